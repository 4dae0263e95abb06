"""Python functions in graphs: PyFunc, PyFuncStateless, and tf.py_func that makes them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.ops import raw


def run(fetches: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(fetches, feeds)


@pytest.mark.parametrize(("stateful", "kind"), [(True, "PyFunc"), (False, "PyFuncStateless")])
def test_a_function_of_arrays(stateful: bool, kind: str) -> None:
    x = tf.placeholder(tf.float32, [None])
    y = tf.py_func(lambda a, b: (a + b, a.dtype.name.encode()), [x, np.float32(1)], [tf.float32, tf.string], stateful)
    assert y[0].op.type == kind
    assert y[0].shape.ndims is None
    total, name = run([2 * y[0], y[1]], {x: [1, 2]})
    assert total.tolist() == [4, 6]
    assert name == b"float32"


def test_values_with_the_method_numpy() -> None:
    """EagerPyFunc: what `py_function` makes; its function gets tensors that have values."""
    x = tf.placeholder(tf.float32, [None])
    y = tf.py_function(lambda a: a.numpy() + 1, [x], tf.float32)
    assert y.op.type == "EagerPyFunc"
    assert y.op.get_attr("is_async") is False
    assert run(y, {x: [1, 2]}).tolist() == [2, 3]
    (again,) = tf.raw_ops.EagerPyFunc(input=[x], token=y.op.get_attr("token"), Tout=[tf.float32], is_async=True)
    assert run(again, {x: [5]}).tolist() == [6]
    (gradient,) = tf.gradients(tf.py_function(lambda a: a**2, [x], tf.float32), x)
    assert run(gradient, {x: [1, 2]}).tolist() == [2, 4]


def test_calls_that_have_effects_are_neither_merged_nor_folded() -> None:
    calls: list[int] = []
    two = [tf.py_func(lambda: np.int64(calls.append(1) or len(calls)), [], tf.int64) for _ in range(2)]
    same = tf.py_func(lambda x: np.int64(calls.append(1) or len(calls)), [tf.constant(0)], tf.int64)
    with tf.Session() as session:
        assert sorted(session.run(two)) == [1, 2]
        assert [session.run(same) for _ in range(2)] == [3, 4]


def test_the_arguments_belong_to_the_function() -> None:
    def spoil(array: Any) -> Any:
        array[:] = 0
        return array

    x = tf.constant([1.0, 2.0])
    assert [v.tolist() for v in run([tf.py_func(spoil, [x], tf.float32), x])] == [[0, 0], [1, 2]]


def test_no_gradient_flows() -> None:
    x = tf.constant(1.0)
    assert tf.gradients(tf.py_func(lambda a: a, [x], tf.float32), x) == [None]


def _raise(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (ValueError("bad value"), tf.errors.InvalidArgumentError),
        (TypeError("bad type"), tf.errors.InvalidArgumentError),
        (StopIteration("the end"), tf.errors.OutOfRangeError),
        (MemoryError("full"), tf.errors.ResourceExhaustedError),
        (NotImplementedError("later"), tf.errors.UnimplementedError),
        (KeyError("other"), tf.errors.UnknownError),
    ],
    ids=repr,
)
def test_exceptions_reach_the_caller_with_their_traceback(raised: Exception, error: Any) -> None:
    result = tf.py_func(lambda: _raise(raised), [], tf.float32, name="mine")
    with pytest.raises(error, match=r"(?s)Traceback.*_raise.*test_script\.py") as caught:
        run(result)
    assert caught.value.op.name == "mine"


@pytest.mark.parametrize(
    ("function", "types", "message"),
    [
        (lambda: (1.0, 2.0), [tf.float32] * 3, "'mine' returns 2 values, but expects to see 3"),
        (lambda: [1.0, 2.0], tf.float32, "'mine' returns 2 values, but expects to see 1 values; return an array"),
        (lambda: 1.5, tf.int32, "0-th value returned by 'mine' is float32, but expects int32"),
        (lambda: np.float64(1), tf.float32, "0-th value returned by 'mine' is float64, but expects float32"),
    ],
)
def test_results_that_do_not_fit(function: Any, types: Any, message: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(tf.py_func(function, [], types, name="mine"))


def test_a_function_of_another_process_is_not_found() -> None:
    orphan = raw.PyFunc([], token=b"pyfunc_of_nobody", Tout=[tf.float32], name="mine")
    with pytest.raises(tf.errors.NotFoundError, match="'mine' belongs to another process, or to a graph that is gone"):
        run(orphan)


def test_a_function_without_results_is_an_operation_to_run() -> None:
    seen: list[Any] = []
    call = tf.py_func(seen.append, [tf.constant(3)], [])
    assert isinstance(call, tf.Operation)
    with tf.Session() as session:
        assert session.run(call) is None
    assert seen == [3]


@pytest.mark.parametrize("value", [{"a": 1}, np.zeros(2, [("a", np.float32)])])
def test_results_that_no_tensor_holds(value: Any) -> None:
    with tf.Session() as session, pytest.raises(tf.errors.InternalError, match="Unsupported"):
        session.run(tf.py_func(lambda: value, [], tf.float32))


def doubled(function: Any, in_a_branch: bool) -> Any:
    """What the function makes of 3, in a step of a graph that is gone when this returns."""
    with tf.Graph().as_default():
        x = tf.constant(3)
        if in_a_branch:
            there = tf.placeholder_with_default(True, [])
            y = tf.cond(there, lambda: tf.py_func(function, [x], tf.int32), lambda: x)
        else:
            y = tf.py_func(function, [x], tf.int32)
        gc.collect()
        return run(y)


@pytest.mark.parametrize("in_a_branch", [False, True])
def test_a_function_goes_with_its_graph(in_a_branch: bool) -> None:
    def double(x: Any) -> Any:
        return 2 * x

    assert doubled(double, in_a_branch) == 6
    remembered = weakref.ref(double)
    del double
    gc.collect()
    assert remembered() is None
