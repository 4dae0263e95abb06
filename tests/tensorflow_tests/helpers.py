"""What stands for the helpers of TensorFlow's tests that its public interface has not, or has otherwise.

Tests run in graphs, on processors: a decorator that runs a test in several modes runs it in a graph, one that asks for
eager tensors, version 2 or a GPU skips it, and what switches a compiler or checks for leaks does nothing.
"""

from __future__ import annotations

import collections.abc
import contextlib
import functools
import inspect
import itertools
import unittest
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from unittest import mock

import anabranch as tf
from anabranch.compat.private import gradient_checks, inspection

Test = Callable[..., object]
Decorator = Callable[[Any], Any]


def _in_a_graph(test: Test) -> Test:
    @functools.wraps(test)
    def run(self: tf.test.TestCase, *args: object, **kwargs: object) -> object:
        with tf.Graph().as_default(), self.test_session():
            return test(self, *args, **kwargs)

    return run


def _unchanged(test: Test) -> Test:
    return test


def _for_each_test(decorate: Callable[[Test], Test]) -> Callable[..., Any]:
    """A decorator of tests and of classes of them, which may also be called with options before."""

    def decorator(decorated: Any = None, *_: object, **__: object) -> Any:
        if decorated is None or isinstance(decorated, str | bool):
            return decorator
        if not isinstance(decorated, type):
            return decorate(decorated)
        for name, test in list(vars(decorated).items()):
            if name.startswith("test") and name != "test_session" and callable(test):
                setattr(decorated, name, decorate(test))
        return decorated

    return decorator


def _skipped(why: str) -> Callable[..., Any]:
    return _for_each_test(unittest.skip(why))


def _with_options(*_: object, **__: object) -> Decorator:
    """A decorator that is called with options first, and does nothing."""
    return _unchanged


def _in_modes(decorated: Any = None, *_: object, **__: object) -> Any:
    return _in_graphs if decorated is None else _in_graphs(decorated)


def _version_1_only(*args: Any, **_: object) -> Any:
    """Used as `@run_v1_only` and as `@run_v1_only("why")`."""
    return args[0] if args and callable(args[0]) else _unchanged


@contextlib.contextmanager
def _nothing(*_: object, **__: object) -> Iterator[None]:
    yield


def _no(*_: object, **__: object) -> bool:
    return False


def _yes(*_: object, **__: object) -> bool:
    return True


def _none(*_: object, **__: object) -> None:
    return None


def _no_name(*_: object, **__: object) -> str:
    return ""


def _eager_mode(*_: object, **__: object) -> None:
    raise unittest.SkipTest("eager")


_in_graphs: Final = _for_each_test(_in_a_graph)
_kept: Final = _for_each_test(_unchanged)


def _channels_first(shape: Any) -> Any:
    """A tensor or a shape [batch, rows, columns, channels] as [batch, channels, rows, columns]."""
    return [shape[i] for i in (0, 3, 1, 2)] if isinstance(shape, list) else tf.transpose(shape, [0, 3, 1, 2])


def _channels_last(shape: Any) -> Any:
    return [shape[i] for i in (0, 2, 3, 1)] if isinstance(shape, list) else tf.transpose(shape, [0, 2, 3, 1])


class _Reduction:
    """The keys of `tf.keras.losses.Reduction`, which version 1 does not export."""

    AUTO, NONE, SUM, SUM_OVER_BATCH_SIZE = "auto", "none", "sum", "sum_over_batch_size"


def _unknown_shape(rank: int | None = None, ndims: int | None = None) -> tf.TensorShape:
    known = ndims if rank is None else rank
    return tf.TensorShape(None if known is None else [None] * known)


def _combinations(**kwargs: object) -> list[dict[str, object]]:
    """Parameters of tests: every combination of one value of each list, once, with a name."""
    values = [value if isinstance(value, list) else [value] for value in kwargs.values()]
    found: dict[str, dict[str, object]] = {}
    for one in itertools.product(*values):
        named = dict(zip(kwargs, one, strict=True))
        name = "".join(f"_{key}_{value}" for key, value in named.items())
        found[name] = {"testcase_name": name, **named}  # classes of two versions are one here
    return list(found.values())


_PLATFORM: Final[dict[str, object]] = {
    "main": _none,
    "mock": mock,
    "is_gpu_available": _no,
    "is_built_with_cuda": _no,
    "is_built_with_rocm": _no,
    "gpu_device_name": _no_name,
}
_TEST_UTIL: Final[dict[str, object]] = {
    "TensorFlowTestCase": tf.test.TestCase,
    "run_deprecated_v1": _kept,
    "with_control_flow_v2": _kept,
    "build_as_function_and_v1_graph": _kept,
    "run_v1_only": _version_1_only,
    "deprecated_graph_mode_only": _in_graphs,
    "run_all_in_deprecated_graph_mode_only": _in_graphs,
    "run_all_in_graph_and_eager_modes": _in_graphs,
    "run_in_graph_and_eager_modes": _in_modes,
    "generate_combinations_with_testcase_name": _combinations,
    "run_v2_only": _skipped("version 2"),
    "run_gpu_only": _skipped("GPU"),
    "run_cuda_only": _skipped("GPU"),
    "enable_control_flow_v2": _skipped("control flow of version 2"),
    "assert_no_new_pyobjects_executing_eagerly": _skipped("eager"),
    "assert_no_new_tensors": _unchanged,
    "assert_no_garbage_created": _unchanged,
    "also_run_as_tf_function": _unchanged,
    "enable_output_all_intermediates": _unchanged,
    "disable_control_flow_v2": _with_options,
    "disable_cudnn_autotune": _unchanged,
    "disable_xla": _with_options,
    "disable_all_xla": _with_options,
    "no_xla_auto_jit": _with_options,
    "xla_allow_fallback": _with_options,
    "enable_tf_xla_constant_folding": _with_options,
    "for_all_test_methods": _with_options,
    "skip_if": _with_options,
    "use_gpu": _nothing,
    "force_gpu": _nothing,
    "force_cpu": _nothing,
    "device": _nothing,
    "is_gpu_available": _no,
    "is_xla_enabled": _no,
    "IsMklEnabled": _no,
    "IsGoogleCudaEnabled": _no,
    "GpuSupportsHalfMatMulAndConv": _no,
    "CudaSupportsHalfMatMulAndConv": _no,
    "gpu_device_name": _no_name,
    "set_producer_version": _none,
    "NHWCToNCHW": _channels_first,
    "NCHWToNHWC": _channels_last,
}

#: module -> name -> what stands for it, before anything public is looked for
HELPERS: Final[Mapping[str, Mapping[str, object]]] = {
    "python.framework.test_util": _TEST_UTIL,
    "python.platform.test": _PLATFORM,
    "python.platform.googletest": {"TestCase": unittest.TestCase, "main": _none},
    "python.eager.context": {
        "executing_eagerly": _no,
        "in_eager_mode": _no,
        "in_graph_mode": _yes,
        "eager_mode": _eager_mode,
        "graph_mode": _nothing,
        "num_gpus": lambda: 0,
        "device": tf.device,
    },
    "python.ops.control_flow_v2_toggles": {"control_flow_v2_enabled": _no},
    "python.tf2": {"enabled": _no, "enable": _none, "disable": _none},
    "python.compat.compat": {"forward_compatible": _yes, "forward_compatibility_horizon": _nothing},
    "python.framework.tensor_shape": {
        "unknown_shape": _unknown_shape,
        "unknown_dim": lambda: tf.Dimension(None),
        "as_shape": tf.TensorShape,
        "as_dimension": tf.Dimension,
        "scalar": lambda: tf.TensorShape([]),
        "vector": lambda length: tf.TensorShape([length]),
        "matrix": lambda rows, columns: tf.TensorShape([rows, columns]),
        "dimension_value": tf.dimension_value,
    },
    "python.framework.ops": {
        "Tensor": tf.Tensor,
        "EagerTensor": type("EagerTensor", (), {}),
        "colocate_with": tf.colocate_with,
    },
    "python.util.tf_contextlib": {"contextmanager": contextlib.contextmanager},
    "python.util.tf_inspect": {
        "getargspec": inspection.getargspec,
        "getfullargspec": inspection.getfullargspec,
        "isclass": inspect.isclass,
        "isfunction": inspect.isfunction,
    },
    "python.util.compat": {"collections_abc": collections.abc},
    "python.ops.array_ops": {"constant": tf.constant},
    "python.ops.variables": {
        "Variable": tf.Variable,
        "RefVariable": functools.partial(tf.Variable, use_resource=False),
    },
    "python.ops.rnn_cell_impl": {"_WEIGHTS_VARIABLE_NAME": "kernel", "_BIAS_VARIABLE_NAME": "bias"},
    "python.ops.resource_variable_ops": {"ResourceVariable": functools.partial(tf.Variable, use_resource=True)},
    "python.keras.utils.losses_utils": {"ReductionV2": _Reduction},
    "python.ops.losses.loss_reduction": {"ReductionV2": _Reduction},
    "python.ops.gradient_checker_v2": {
        "compute_gradient": gradient_checks.compute_gradient,
        "max_error": gradient_checks.max_error,
    },
}

#: module -> the public module, "" for `tf`, that has what neither helpers nor exports have
PUBLIC_COUNTERPARTS: Final[Mapping[str, str]] = {
    "python.framework.dtypes": "dtypes",
    "python.framework.errors": "errors",
    "python.framework.errors_impl": "errors",
    "python.framework.tensor_util": "",
    "python.framework.test_util": "test",
    "python.keras": "keras",
    "python.keras.backend": "keras.backend",
    "python.keras.losses": "keras.losses",
    "python.keras.metrics": "keras.metrics",
    "python.ops.gradient_checker": "test",
    "python.platform.gfile": "gfile",
    "python.platform.googletest": "test",
    "python.platform.test": "test",
    "python.platform.tf_logging": "logging",
    "python.util.compat": "compat",
    "python.util.nest": "nest",
}
