"""`tensorflow.python.framework.test_util`: decorators that say in which modes of TensorFlow a test runs.

Here there are graphs alone: a test of several modes runs once, in a graph; one that asks for version 2 is skipped, and
says why.
"""

from __future__ import annotations

import contextlib
import functools
import unittest
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import anabranch as tf
from anabranch.core.values import PassedOn

Test = Callable[..., object]
_Tested = TypeVar("_Tested", bound=Callable[..., Any] | type)


def run_in_graph_and_eager_modes(
    func: Test | None = None,
    config: tf.ConfigProto | None = None,
    use_gpu: bool = True,
    reset_test: bool = True,
    assert_no_eager_garbage: bool = False,
) -> Any:
    """Makes a test run in a session; also used with arguments, as `@run_in_graph_and_eager_modes(config=...)`.

    Args:
        func: the test; default: a decorator is returned.
        config, use_gpu: of the session, as for `tf.test.TestCase.test_session`.
        reset_test, assert_no_eager_garbage: nothing depends on them: there is no second run.

    Raises:
        ValueError: it decorates a class.
    """

    def decorator(test: Test) -> Test:
        if isinstance(test, type):
            raise ValueError(
                "`run_in_graph_and_eager_modes` is for tests; classes take run_all_in_graph_and_eager_modes"
            )
        return _in_a_session(test, config, use_gpu)

    return decorator if func is None else decorator(func)


def run_all_in_graph_and_eager_modes(cls: type) -> type:
    """Makes every test of a class run in a session of its own."""
    return _each_test_of(cls, run_in_graph_and_eager_modes)


def deprecated_graph_mode_only(func: Test | type | None = None) -> Any:
    """Makes a test, or each test of a class, run in a graph."""

    def decorator(decorated: Test | type) -> Any:
        return (
            _each_test_of(decorated, decorator) if isinstance(decorated, type) else _in_a_session(decorated, None, True)
        )

    return decorator if func is None else decorator(func)


run_all_in_deprecated_graph_mode_only = deprecated_graph_mode_only


def run_deprecated_v1(func: Test | None = None) -> Any:
    """Leaves a test as it is: it runs as in version 1."""
    return _unchanged if func is None else func


def run_v1_only(reason: str | Test | type = "", func: Test | type | None = None) -> Any:
    """Leaves a test, or a class of tests, as it is; used as `@run_v1_only("why")`."""
    if callable(reason):
        return reason
    return _unchanged if func is None else func


def run_v2_only(func: Test | type | None = None) -> Any:
    """Skips a test, or each test of a class: there is no version 2."""

    def decorator(decorated: Test | type) -> Any:
        if isinstance(decorated, type):
            return _each_test_of(decorated, decorator)
        return unittest.skip("this is version 1 of the interface")(decorated)

    return decorator if func is None else decorator(func)


def run_gpu_only(func: Test | None = None) -> Any:
    """Skips a test where there is no GPU."""

    def decorator(test: Test) -> Test:
        @functools.wraps(test)
        def run(self: tf.test.TestCase, *args: PassedOn, **kwargs: PassedOn) -> object:
            if not tf.test.is_gpu_available():
                self.skipTest("there is no GPU")
            return test(self, *args, **kwargs)

        return run

    return decorator if func is None else decorator(func)


run_cuda_only = run_gpu_only


def enable_control_flow_v2(fn: Test) -> Test:
    """Leaves a test as it is: what conditionals and loops become is decided when a step is compiled."""
    return fn


def with_control_flow_v2(cls: type) -> type:
    """Leaves a class as it is: what conditionals and loops become is decided when a step is compiled."""
    return cls


disable_control_flow_v2 = run_v1_only


def also_run_as_tf_function(f: Test) -> Test:
    """Leaves a test as it is."""
    return f


def disable_xla(description: str) -> Callable[[_Tested], _Tested]:
    """Leaves a test as it is: there is no other compiler."""
    return _unchanged


@contextlib.contextmanager
def device(use_gpu: bool) -> Iterator[None]:
    """Places what is built inside on a GPU if there is one and it is asked for, else on the processor."""
    with tf.device("/gpu:0" if use_gpu and tf.test.is_gpu_available() else "/cpu:0"):
        yield


def use_gpu() -> contextlib.AbstractContextManager[None]:
    """Places what is built inside on a GPU if there is one."""
    return device(True)


force_gpu = use_gpu


def force_cpu() -> contextlib.AbstractContextManager[None]:
    """Places what is built inside on the processor."""
    return device(False)


def fft_kernel_label_map() -> contextlib.AbstractContextManager[None]:
    """Changes nothing: there is one kernel of each Fourier transform (`spectral_ops_test_util`)."""
    return contextlib.nullcontext()


def _unchanged(decorated: _Tested) -> _Tested:
    return decorated


def _in_a_session(test: Test, config: tf.ConfigProto | None, use_gpu: bool) -> Test:
    @functools.wraps(test)
    def run(self: tf.test.TestCase, *args: PassedOn, **kwargs: PassedOn) -> object:
        with self.test_session(use_gpu=use_gpu, config=config):
            return test(self, *args, **kwargs)

    return run


def _each_test_of(cls: type, decorate: Callable[[Test], Test]) -> type:
    for name, test in list(vars(cls).items()):
        if name.startswith("test") and name != "test_session" and callable(test):
            setattr(cls, name, decorate(test))
    return cls
