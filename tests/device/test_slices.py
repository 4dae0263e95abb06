"""Slices whose place is computed: one executable for all places; assignment to a slice of a variable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors
from anabranch.autodiff.gradients import gradients
from anabranch.frontend.arrays import constants, joining, slicing
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.xla.variants import compile_log

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def compilations(fetches: list[Tensor], feeds: list[dict[Tensor, Any]]) -> int:
    before = len(compile_log.events)
    with Session() as session:
        for feed in feeds:
            session.run(fetches, feed)
    return len(compile_log.events) - before


def test_a_computed_index_compiles_once() -> None:
    x, i = constants.placeholder("float32", [None, 4]), constants.placeholder("int32", [])
    computed = raw.Cast(raw.Max(x, [0, 1]), DstT="int32")
    picked = slicing.slice_helper(x, (i, slice(1, None)))
    by_value = slicing.slice_helper(x, (raw.FloorMod(computed, 3), None))
    window = slicing.slice(x, joining.stack([i, 0]), [1, 3])
    fetches = [picked, by_value, window, *gradients([picked, by_value, window], [x])]
    assert compilations(fetches, [{x: X + k, i: k} for k in range(3)]) == 1


def variable(value: Any) -> tuple[Tensor, Any]:
    handle = raw.VarHandleOp(dtype="float32", shape=value.shape, shared_name="v")
    return handle, raw.AssignVariableOp(handle, value)


@pytest.mark.parametrize(
    ("begin", "end", "strides", "masks", "item"),
    [
        ([1], [2], [1], {"shrink_axis_mask": 1}, 1),
        ([0, 1], [2, 3], [1, 1], {}, (slice(0, 2), slice(1, 3))),
        ([2, 0], [0, 4], [-1, 2], {}, (slice(2, 0, -1), slice(0, 4, 2))),
        (
            [0, 0, 3],
            [0, 0, 4],
            [1, 1, 1],
            {"ellipsis_mask": 1, "new_axis_mask": 2, "shrink_axis_mask": 4},
            (Ellipsis, None, 3),
        ),
    ],
)
def test_assignment_to_a_slice(begin: Any, end: Any, strides: Any, masks: Any, item: Any) -> None:
    handle, initialize = variable(X)
    value = -np.ones_like(X[item]) * np.arange(1, X[item].size + 1).reshape(X[item].shape)
    assign = raw.ResourceStridedSliceAssign(handle, begin, end, strides, value.astype(np.float32), **masks)
    with Session() as session:
        session.run(initialize)
        session.run(assign)
        got = session.run(raw.ReadVariableOp(handle, dtype="float32"))
    wanted = X.copy()
    wanted[item] = value
    np.testing.assert_array_equal(got, wanted)


def test_a_slice_without_elements_takes_any_value() -> None:
    handle, initialize = variable(X)
    assign = raw.ResourceStridedSliceAssign(handle, [1, 0], [1, 0], [1, 1], X)
    with Session() as session:
        session.run(initialize)
        session.run(assign)
        np.testing.assert_array_equal(session.run(raw.ReadVariableOp(handle, dtype="float32")), X)


def test_a_value_of_a_higher_rank_is_assigned_where_it_has_one_element_along_what_comes_first() -> None:
    handle, initialize = variable(X)
    assign = raw.ResourceStridedSliceAssign(handle, [0], [1], [1], -X[None, :1, :1], shrink_axis_mask=1)
    with Session() as session:
        session.run(initialize)
        session.run(assign)
        wanted = X.copy()
        wanted[0] = -X[0, :1]
        np.testing.assert_array_equal(session.run(raw.ReadVariableOp(handle, dtype="float32")), wanted)


def test_assignment_at_a_fed_index() -> None:
    handle, initialize = variable(X)
    i = constants.placeholder("int32", [])

    class Owner:
        def __init__(self) -> None:
            self.handle = handle

        def read_value(self) -> Any:
            return raw.ReadVariableOp(self.handle, dtype="float32")

    part = slicing.slice_helper(raw.ReadVariableOp(handle, dtype="float32"), (i, slice(None)), var=Owner())
    assert isinstance(part, slicing.VariableSlice)
    assign = part.assign(7.0)
    read = raw.ReadVariableOp(handle, dtype="float32")
    with Session() as session:
        session.run(initialize)
        for k in (2, -3):
            assert session.run(assign, {i: k})[k, 0] == 7
        assert session.run(read)[:, 0].tolist() == [7.0, 4.0, 7.0]
        with pytest.raises(errors.InvalidArgumentError, match="out of bounds"):
            session.run(assign, {i: 3})
        assert session.run(read)[:, 0].tolist() == [7.0, 4.0, 7.0]


def test_a_window_that_moves_is_one_executable() -> None:
    """Its static shape says how long it is, so that where it begins need not be known."""
    data = tf.constant(np.arange(40, dtype=np.float32).reshape(2, 20))
    at = tf.placeholder(tf.int32, [])
    window = tf.strided_slice(data, [0, at * 3], [2, (at + 1) * 3])
    window.set_shape([2, 3])
    gradient = tf.gradients(tf.square(window), data)[0]
    compiled: list[Any] = []
    compile_log.listeners.append(compiled.append)
    try:
        with tf.Session() as session:
            for i in (0, 1, 4, 5):
                got, back = session.run([window, gradient], {at: i})
                expected = np.arange(40).reshape(2, 20)[:, 3 * i : 3 * i + 3]
                np.testing.assert_array_equal(got, expected)
                np.testing.assert_array_equal(back[:, 3 * i : 3 * i + 3], 2 * expected)
                assert np.count_nonzero(back) == np.count_nonzero(expected)
            with pytest.raises(tf.errors.InvalidArgumentError, match="3 elements that its shape says"):
                session.run(window, {at: 6})
    finally:
        compile_log.listeners.remove(compiled.append)
    assert len(compiled) <= 2


@pytest.mark.parametrize("stride", [1, 2, -1, -3])
@pytest.mark.parametrize("begin_mask", [0, 1])
@pytest.mark.parametrize("end_mask", [0, 1])
def test_bounds_that_the_masks_leave_out_may_be_computed(stride: int, begin_mask: int, end_mask: int) -> None:
    """A slice and its gradient, and that one's; begin and end come from the step, and only their number is known."""
    bounds = (4, 1) if stride < 0 else (1, 4)
    x, weights = np.arange(5.0), np.arange(5.0) + 1
    taken = slice(None if begin_mask else bounds[0], None if end_mask else bounds[1], stride)
    with tf.Graph().as_default(), tf.Session() as session:
        begin, end = tf.placeholder(tf.int32, [1]), tf.placeholder(tf.int32, [1])
        source, known = tf.placeholder(tf.float64, None), tf.placeholder(tf.float64, [5])
        masks = {"begin_mask": begin_mask, "end_mask": end_mask, "ellipsis_mask": 0, "new_axis_mask": 0}
        feeds = {begin: [bounds[0]], end: [bounds[1]], source: x, known: x}
        for tensor in (source, known):
            part = tf.raw_ops.StridedSlice(
                input=tensor, begin=begin, end=end, strides=[stride], shrink_axis_mask=0, **masks
            )
            grad = tf.gradients(part**2, tensor)[0]
            again = tf.gradients(grad * weights, tensor)[0]
            expected = np.zeros(5)
            expected[taken] = 2.0
            values = session.run([part, grad, again], feeds)
            np.testing.assert_array_equal(values[0], x[taken])
            np.testing.assert_array_equal(values[1], expected * x)
            np.testing.assert_array_equal(values[2], expected * weights)


@pytest.mark.parametrize(
    ("index", "value"),
    [(slice(1, None), b"x"), (1, b"y"), (slice(None, None, -2), [[b"p"], [b"q"]]), ((slice(0, 2), 1), [b"m", b"n"])],
)
def test_texts_are_assigned_to_a_slice(index: Any, value: Any) -> None:
    texts = np.array([[b"a", b"b"], [b"c", b"d"], [b"e", b"f"]], object)
    variable = tf.Variable(texts)
    update = variable[index].assign(value)
    with Session() as session:
        session.run(variable.initializer)
        session.run(update)
        found = session.run(variable)
    texts[index] = value
    assert found.tolist() == texts.tolist()
