"""`tf.test.TestCase`: unittest with sessions, and comparisons of arrays."""

from __future__ import annotations

import contextlib
import os
import random
import re
import sys
import tempfile
import threading
import unittest
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import IO, Any

import numpy as np
from absl.testing import absltest
from google.protobuf import text_format
from google.protobuf.message import Message

from anabranch.core import compat, nest
from anabranch.core.arrays import HostArray
from anabranch.core.device import DeviceSpec, canonical_name
from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.nest import Structure
from anabranch.core.values import PassedOn, TensorValue
from anabranch.errors import OpError
from anabranch.frontend.platform import flags
from anabranch.frontend.ragged.values import RaggedTensorValue
from anabranch.graph.graph import Graph, default_graphs, get_default_graph, reset_default_graph
from anabranch.graph.operation import Tensor
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.proto.graph_pb2 import GraphDef
from anabranch.session import Session, default_sessions
from anabranch.testing.array_differences import distant_elements, unequal_elements
from anabranch.testing.benchmark import run_benchmarks
from anabranch.testing.test_surroundings import get_temp_dir

_DEFAULT_SEED = 87654321


def _array(value: TensorValue) -> np.ndarray[Any, Any]:
    array = value if isinstance(value, np.ndarray) else np.array(value)
    return array[array.dtype.names[0]] if array.dtype.names else array  # quantized numbers have one field


def _default_config(force_gpu: bool) -> ConfigProto:
    """As TensorFlow's: a GPU that is not there is given up, unless the test forces one."""
    return ConfigProto(allow_soft_placement=not force_gpu)


def _list(value: TensorValue) -> Any:
    """An array, a ragged tensor, or a list of them, as nested lists."""
    if isinstance(value, list | tuple):
        return [_list(item) for item in value]
    if isinstance(value, RaggedTensorValue):
        return value.to_list()
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


class TestCase(absltest.TestCase):
    """A unit test with a fresh default graph, fixed seeds, and assertions on arrays and nested structures of them.

    Args:
        methodName: the method that is the test.

    Raises:
        ValueError: there is no such method.

    Example:
        >>> class SquareTest(tf.test.TestCase):
        ...     def test_square(self):
        ...         with self.session() as session:
        ...             self.assertAllClose(session.run(tf.square([1.0, 2.0])), [1.0, 4.0])
        >>> SquareTest("test_square").run().wasSuccessful()
        True
    """

    def __init__(self, methodName: str = "runTest") -> None:
        super().__init__(methodName)
        self._cached: Session | None = None
        self._cached_for = False
        self._temporary: str | None = None

    def setUp(self) -> None:
        """Resets the default graph and the seeds; closes the cached session.

        Graphs and sessions that are the default around the test, or that an earlier test has left so, no longer are.
        """
        self._close_cached()
        random.seed(_DEFAULT_SEED)
        np.random.seed(_DEFAULT_SEED % (1 << 32))  # noqa: NPY002 - tests of that time use the global generator
        default_sessions.stack.clear()
        default_graphs.stack.clear()
        reset_default_graph()
        get_default_graph().seed = _DEFAULT_SEED

    def tearDown(self) -> None:
        """Closes the cached session."""
        self._close_cached()

    def _close_cached(self) -> None:
        if self._cached is not None:
            self._cached.close()
            self._cached = None

    def get_temp_dir(self) -> str:
        """A directory of this test's own."""
        if self._temporary is None:
            self._temporary = tempfile.mkdtemp(dir=get_temp_dir())
        return self._temporary

    # ------------------------------------------------------------------ sessions
    @contextlib.contextmanager
    def session(
        self,
        graph: Graph | None = None,
        config: ConfigProto | None = None,
        use_gpu: bool = False,
        force_gpu: bool = False,
    ) -> Iterator[Session]:
        """A session of its own as the default session."""
        with Session(graph=graph, config=config or _default_config(force_gpu)) as session:
            yield session

    @contextlib.contextmanager
    def cached_session(
        self,
        graph: Graph | None = None,
        config: ConfigProto | None = None,
        use_gpu: bool = False,
        force_gpu: bool = False,
    ) -> Iterator[Session]:
        """One session per test, kept open between blocks.

        Raises:
            ValueError: it was opened for another graph, or another `force_gpu`, before.
        """
        wanted = graph if graph is not None else get_default_graph()
        if self._cached is not None and self._cached_for != force_gpu:
            raise ValueError(
                "The force_gpu value used to get the cached session is different than the one that was used to create "
                "it."
            )
        self._cached_for = force_gpu
        if self._cached is None:
            self._cached = Session(graph=wanted, config=config or _default_config(force_gpu))
        elif graph is not None and self._cached.graph is not graph:
            raise ValueError(
                "The graph used to get the cached session is different than the one that was used to create it."
            )
        with self._cached.graph.as_default(), self._cached.as_default():
            yield self._cached

    def test_session(self, *args: PassedOn, **kwargs: PassedOn) -> contextlib.AbstractContextManager[Session]:
        """The deprecated name: `cached_session`, or `session` for a graph of its own."""
        if self.id().endswith(".test_session"):  # unittest takes this method for a test, by its name
            self.skipTest("Not a test.")
        if kwargs.get("graph") is not None or args[:1] not in ((), (None,)):
            return self.session(*args, **kwargs)
        return self.cached_session(**kwargs)

    def evaluate(self, tensors: Structure) -> nest.Structure:
        """The values of tensors, by the default session."""
        session = default_sessions.stack[-1] if default_sessions.stack else None
        if session is None:
            with self._session_of(get_default_graph()) as session:
                return session.run(tensors)
        return session.run(tensors)

    def _session_of(self, graph: Graph) -> Any:
        """The cached session, so that variables keep their values; one of its own for another graph."""
        if self._cached is not None and self._cached.graph is not graph:
            return self.session(graph)
        return self.cached_session()

    # ------------------------------------------------------------------ comparisons
    def _evaluated(self, value: TensorValue) -> Any:
        if hasattr(value, "graph") and (hasattr(value, "eval") or hasattr(value, "op")):
            return self.evaluate(value)
        return value

    def _GetNdArray(self, a: TensorValue) -> np.ndarray[Any, Any]:
        """A value, or a tensor's value, as an array."""
        a = self._evaluated(a)
        return a if isinstance(a, np.ndarray) else np.array(a)

    def assertAllClose(
        self, a: Structure, b: Structure, rtol: float = 1e-6, atol: float = 1e-6, msg: object = None
    ) -> None:
        """Arrays, ragged tensors, or nested structures of arrays, are equal up to rounding."""
        a, b = self._evaluated(a), self._evaluated(b)
        if isinstance(a, RaggedTensorValue) or isinstance(b, RaggedTensorValue):
            self._check_ragged_ranks(a, b)
            a, b = _list(a), _list(b)
        self._walk(a, b, lambda x, y, path: self._close(x, y, rtol, atol, msg or path), "")

    def _check_ragged_ranks(self, a: TensorValue, b: TensorValue) -> None:
        """As many dimensions of two values are ragged; a list may stand for any."""
        if not isinstance(a, list | tuple) and not isinstance(b, list | tuple):
            self.assertEqual(getattr(a, "ragged_rank", 0), getattr(b, "ragged_rank", 0), "the ragged_ranks differ")

    def assertAllCloseAccordingToType(
        self,
        a: Structure,
        b: Structure,
        rtol: float = 1e-6,
        atol: float = 1e-6,
        float_rtol: float = 1e-6,
        float_atol: float = 1e-6,
        half_rtol: float = 1e-3,
        half_atol: float = 1e-3,
        bfloat16_rtol: float = 1e-2,
        bfloat16_atol: float = 1e-2,
        msg: object = None,
    ) -> None:
        """Like `assertAllClose`, with tolerances for the less precise of the two dtypes."""
        for name, r, t in (
            ("float32", float_rtol, float_atol),
            ("complex64", float_rtol, float_atol),
            ("float16", half_rtol, half_atol),
            ("bfloat16", bfloat16_rtol, bfloat16_atol),
        ):
            if name in (str(_array(self._evaluated(a)).dtype), str(_array(self._evaluated(b)).dtype)):
                rtol, atol = max(rtol, r), max(atol, t)
        self.assertAllClose(a, b, rtol, atol, msg)

    def assertNotAllClose(self, a: Structure, b: Structure, **kwargs: PassedOn) -> None:
        """Some element differs."""
        try:
            self.assertAllClose(a, b, **kwargs)
        except AssertionError:
            return
        raise AssertionError("The two values are close at all elements")

    def assertAllEqual(self, a: Structure, b: Structure, msg: object = None) -> None:
        """Arrays, or ragged tensors, are equal in shape and in every element; NaN equals NaN in arrays."""
        a, b = self._evaluated(a), self._evaluated(b)
        if isinstance(a, RaggedTensorValue) or isinstance(b, RaggedTensorValue):
            self._check_ragged_ranks(a, b)
            self.assertEqual(_list(a), _list(b), msg)
            return
        x, y = _array(a), _array(b)
        self.assertEqual(x.shape, y.shape, f"Shape mismatch: expected {x.shape}, got {y.shape}. {msg or ''}")
        if x.dtype.kind in "OSU" or y.dtype.kind in "OSU":
            same = np.array(
                [
                    compat.as_bytes(p) == compat.as_bytes(q) if isinstance(p, str | bytes) else p == q
                    for p, q in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)
                ],
                bool,
            )
        else:
            same = x == y
            if x.dtype.kind in "fc" or y.dtype.kind in "fc":
                same = np.logical_or(same, np.logical_and(np.isnan(x), np.isnan(y)))
        if not np.all(same):
            raise AssertionError(unequal_elements(x, y, np.reshape(same, x.shape), msg))

    def assertNotAllEqual(self, a: Structure, b: Structure, msg: object = None) -> None:
        """Some element differs."""
        try:
            self.assertAllEqual(a, b)
        except AssertionError:
            return
        raise AssertionError(f"The two values are equal at all elements. {msg or ''}")

    def assertArrayNear(
        self, farray1: Sequence[float] | HostArray, farray2: Sequence[float] | HostArray, err: float, msg: object = None
    ) -> None:
        """Two sequences of numbers differ by at most `err` in each place."""
        self.assertEqual(len(farray1), len(farray2), msg)
        for one, two in zip(farray1, farray2, strict=True):
            self.assertNear(float(one), float(two), err, msg)

    def _NDArrayNear(self, ndarray1: HostArray, ndarray2: HostArray, err: float) -> bool:
        """Whether the distance of two arrays, as vectors, is less than `err`."""
        return bool(np.linalg.norm(np.asarray(ndarray1) - np.asarray(ndarray2)) < err)

    def assertNDArrayNear(self, ndarray1: HostArray, ndarray2: HostArray, err: float, msg: object = None) -> None:
        """The distance of two arrays, as vectors, is less than `err`."""
        self.assertTrue(self._NDArrayNear(ndarray1, ndarray2, err), msg)

    def assertNear(self, f1: float, f2: float, err: float, msg: object = None) -> None:
        """Two numbers differ by at most `err`."""
        self.assertTrue(f1 == f2 or abs(f1 - f2) <= err, f"{f1} != {f2} +/- {err} {msg or ''}")

    def assertDeviceEqual(
        self, device1: DeviceSpec | str | None, device2: DeviceSpec | str | None, msg: object = None
    ) -> None:
        """Two device names or functions mean the same device."""
        self.assertEqual(canonical_name(device1), canonical_name(device2), msg)

    def assertShapeEqual(self, np_array: HostArray, tf_tensor: Tensor, msg: object = None) -> None:
        """The static shape of a tensor is that of an array."""
        self.assertAllEqual(np_array.shape, tf_tensor.get_shape().as_list(), msg=msg)

    def assertDTypeEqual(self, target: Structure, expected_dtype: DTypeLike) -> None:
        """The values of a tensor, an array, or a list of them, are of a NumPy type."""
        value = self._evaluated(target)
        for one in value if isinstance(value, list) else [value]:
            self.assertEqual(np.asarray(one).dtype, np.dtype(as_dtype(expected_dtype).as_numpy_dtype))

    def assertAllGreater(self, a: Structure, comparison_target: TensorValue) -> None:
        """Every element is greater."""
        self.assertGreater(np.min(self._evaluated(a)), comparison_target)

    def assertAllGreaterEqual(self, a: Structure, comparison_target: TensorValue) -> None:
        """Every element is at least the target."""
        self.assertGreaterEqual(np.min(self._evaluated(a)), comparison_target)

    def assertAllLess(self, a: Structure, comparison_target: TensorValue) -> None:
        """Every element is less."""
        self.assertLess(np.max(self._evaluated(a)), comparison_target)

    def assertAllLessEqual(self, a: Structure, comparison_target: TensorValue) -> None:
        """Every element is at most the target."""
        self.assertLessEqual(np.max(self._evaluated(a)), comparison_target)

    def assertAllInSet(self, target: Structure, expected_set: Iterable[object]) -> None:
        """Every element is one of those given."""
        strange = set(_array(self._evaluated(target)).ravel().tolist()) - set(expected_set)
        self.assertFalse(strange, f"{strange} is not in {expected_set}")

    def assertAllInRange(
        self,
        target: Structure,
        lower_bound: float,
        upper_bound: float,
        open_lower_bound: bool = False,
        open_upper_bound: bool = False,
    ) -> None:
        """Every element lies between the bounds."""
        values = _array(self._evaluated(target))
        if values.dtype.kind not in "iuf" and "float" not in str(values.dtype):
            raise AssertionError(f"The value of {target} does not have an ordered numeric type: it has {values.dtype}")
        below = values <= lower_bound if open_lower_bound else values < lower_bound
        above = values >= upper_bound if open_upper_bound else values > upper_bound
        self.assertFalse(np.any(below | above | np.isnan(values.astype(np.float64))), f"out of range: {values}")

    def assertProtoEquals(
        self, expected_message_maybe_ascii: Message | str, message: Message, msg: object = None
    ) -> None:
        """Two messages are equal; the expected one may be given in text format."""
        expected = expected_message_maybe_ascii
        if isinstance(expected, str):
            expected = text_format.Parse(expected, type(message)())
        self.assertEqual(str(expected), str(message), msg)

    def assertItemsEqual(
        self, expected_seq: Iterable[object], actual_seq: Iterable[object], msg: object = None
    ) -> None:
        """Two sequences have the same elements, in any order."""
        self.assertCountEqual(expected_seq, actual_seq, msg)

    def assertEmpty(self, container: Sized, msg: object = None) -> None:
        """A container has no elements."""
        self.assertEqual(len(container), 0, msg or f"{container!r} is not empty")

    def assertNotEmpty(self, container: Sized, msg: object = None) -> None:
        """A container has elements."""
        self.assertNotEqual(len(container), 0, msg or f"{container!r} is empty")

    def assertLen(self, container: Sized, expected_len: int, msg: object = None) -> None:
        """A container has as many elements as expected."""
        self.assertEqual(len(container), expected_len, msg or f"{container!r} has not {expected_len} elements")

    def assertBetween(self, value: TensorValue, minv: TensorValue, maxv: TensorValue, msg: object = None) -> None:
        """The value lies in [minv, maxv]."""
        self.assertTrue(minv <= value <= maxv, msg or f"{value!r} is not in [{minv!r}, {maxv!r}]")

    def assertStartsWith(self, actual: str, expected_start: str, msg: object = None) -> None:
        """A string begins with another."""
        self.assertTrue(
            actual.startswith(expected_start), f"{actual!r} does not start with {expected_start!r} {msg or ''}"
        )

    @contextlib.contextmanager
    def assertRaisesWithPredicateMatch(  # type: ignore[override]  # TensorFlow's argument may be a pattern
        self,
        exception_type: type[BaseException],
        expected_err_re_or_predicate: str | Callable[[BaseException], object],
    ) -> Iterator[None]:
        """The block raises an error whose message matches (or of which the predicate holds)."""
        predicate = expected_err_re_or_predicate
        if not callable(predicate):
            pattern = predicate

            def predicate(error: BaseException) -> bool:
                message = error.message if isinstance(error, OpError) else str(error)
                return re.search(pattern, message) is not None

        try:
            yield
        except exception_type as error:
            if not predicate(error):
                raise AssertionError(f"Exception of type {type(error)}: {error}") from error
        else:
            raise AssertionError(f"{exception_type.__name__} not raised")

    def assertRaisesOpError(
        self, expected_err_re_or_predicate: str | Callable[[BaseException], object]
    ) -> contextlib.AbstractContextManager[None]:
        """The block raises an `OpError` whose message matches."""
        return self.assertRaisesWithPredicateMatch(OpError, expected_err_re_or_predicate)

    @contextlib.contextmanager
    def captureWritesToStream(self, stream: IO[str]) -> Iterator[Any]:
        """Inside, what is written to the file of `stream` is kept aside: `contents()` of what is yielded gives it."""
        stream.flush()
        number = stream.fileno()
        kept = os.dup(number)
        with tempfile.NamedTemporaryFile(dir=self.get_temp_dir(), delete=False) as aside:
            os.dup2(aside.fileno(), number)
            try:
                yield _Captured(stream, aside.name)
            finally:
                stream.flush()
                os.dup2(kept, number)
                os.close(kept)

    def checkedThread(
        self, target: Callable[..., Any], args: Sequence[object] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> _CheckedThread:
        """A thread whose `join` raises what its function raised."""
        return _CheckedThread(target, args or (), kwargs or {})

    def _walk(self, a: Structure, b: Structure, compare: Callable[[Any, Any, str], None], path: str) -> None:
        a, b = _as_mapping(self._evaluated(a)), _as_mapping(self._evaluated(b))
        if isinstance(a, Mapping) or isinstance(b, Mapping):
            if not (isinstance(a, Mapping) and isinstance(b, Mapping)):
                raise ValueError(f"Can't compare dict to non-dict, {a!r} vs {b!r}. {path}")
            self.assertEqual(set(a), set(b), f"mismatched keys at {path}: expected {sorted(a)}, got {sorted(b)}.")
            for key in a:
                self._walk(a[key], b[key], compare, f"{path}[{key}]")
        elif isinstance(a, list | tuple) and not _is_regular(a, b):
            self.assertEqual(len(a), len(b), f"lengths differ at {path}")
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                self._walk(x, y, compare, f"{path}[{i}]")
        else:
            compare(_array(a), _array(b), path)

    def _close(self, x: HostArray, y: HostArray, rtol: float, atol: float, message: object) -> None:
        self.assertEqual(x.shape, y.shape, f"Shape mismatch: expected {x.shape}, got {y.shape} {message}")
        if x.dtype.kind == "V" or str(x.dtype) == "bfloat16":
            x = x.astype(np.float32)
        if y.dtype.kind == "V" or str(y.dtype) == "bfloat16":
            y = y.astype(np.float32)
        if np.ndim(rtol) or np.ndim(atol):  # a tolerance for each element: NumPy's own check cannot name it
            self.assertTrue(np.allclose(x, y, rtol, atol, equal_nan=True), f"{x} and {y} differ {message}")
            return
        if not np.allclose(x, y, rtol, atol, equal_nan=True):
            details = distant_elements(x, y, rtol, atol, message)
            np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=details, equal_nan=True)


def _as_mapping(value: Structure) -> Structure:
    """A named tuple as the mapping that it can be compared with."""
    return value._asdict() if isinstance(value, tuple) and hasattr(value, "_asdict") else value


def _is_regular(a: Structure, b: Structure) -> bool:
    """Whether two lists can be compared as arrays."""
    try:
        return all(np.asarray(v).dtype.kind in "biufc" for v in (a, b))
    except (ValueError, TypeError, NotImplementedError):
        return False


class _Captured:
    def __init__(self, stream: IO[str], path: str) -> None:
        self._stream, self._path = stream, path

    def contents(self) -> str:
        """All that was written so far."""
        self._stream.flush()
        with open(self._path, encoding="utf-8") as file:
            return file.read()


class _CheckedThread:
    def __init__(self, target: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, Any]) -> None:
        self._error: BaseException | None = None

        def run() -> None:
            try:
                target(*args, **kwargs)
            except BaseException as error:  # handed to whoever joins
                self._error = error

        self._thread = threading.Thread(target=run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)
        if self._error is not None:
            raise AssertionError(f"error in a checked thread: {self._error!r}") from self._error

    def is_alive(self) -> bool:
        return self._thread.is_alive()


def main(argv: list[str] | None = None) -> None:
    """Runs the tests of the calling program, or its benchmarks.

    Args:
        argv: the command line; default: `sys.argv`. With ``--benchmarks=``, the benchmarks are run that match the
            regular expression behind it, in place of the tests; see `tf.test.Benchmark`.

    Raises:
        SystemExit: always, with status 0 where all tests passed.

    Example:
        >>> try:
        ...     tf.test.main(["program", "--quiet"])
        ... except SystemExit:
        ...     print("done")
        done
    """
    line = list(sys.argv if argv is None else argv)
    for argument in line:
        if found := re.fullmatch("--?benchmarks=(.*)", argument):
            run_benchmarks(found[1])
            sys.exit(0)
    # flags are parsed for tests that read absl's; what begins with one dash, and the help, is unittest's
    of_unittest = [argument for argument in line[1:] if re.match("-[^-]|--help$", argument)]
    left = flags.FLAGS([each for each in line if each not in of_unittest], known_only=True)
    unittest.main(argv=[*left, *of_unittest])


def assert_equal_graph_def(actual: GraphDef, expected: GraphDef, checkpoint_v2: bool = False) -> None:
    """Two GraphDefs have the same nodes, in whatever order.

    Raises:
        AssertionError: they differ.
    """
    one, two = ({n.name: n for n in g.node} for g in (actual, expected))
    if one.keys() != two.keys():
        if unexpected := [name for name in one if name not in two]:
            raise AssertionError(f"Found unexpected node '{{{{node {unexpected[-1]}}}}}', one of {len(unexpected)}")
        raise AssertionError(f"Missing expected nodes: {sorted(two.keys() - one.keys())}")
    for name, node in one.items():
        if node != two[name]:
            raise AssertionError(f"node {name!r} differs:\n{node}\n{two[name]}")
