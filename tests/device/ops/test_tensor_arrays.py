"""Tensor arrays that are changed in place: TensorArrayV3 and what works on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors
from anabranch.ops import raw


def made(size: Any = 3, dtype: str = "float32", **attrs: Any) -> Any:
    return raw.TensorArrayV3(size, dtype=dtype, **attrs)


def written(array: Any, values: dict[int, Any], flow: Any = None) -> Any:
    flow = array.flow if flow is None else flow
    for index, value in values.items():
        flow = raw.TensorArrayWriteV3(array.handle, index, np.float32(value), flow)
    return flow


def run(fetches: Any) -> Any:
    with tf.Session() as session:
        return session.run(fetches)


def test_elements_come_back() -> None:
    array = made(clear_after_read=False)
    flow = written(array, {0: [1, 2], 2: [5, 6], 1: [3, 4]})
    row = raw.TensorArrayReadV3(array.handle, 2, flow, dtype="float32")
    some = raw.TensorArrayGatherV3(array.handle, [1, 0], flow, dtype="float32")
    size = raw.TensorArraySizeV3(array.handle, flow)
    everything = raw.TensorArrayConcatV3(array.handle, flow, dtype="float32")
    results = run([row, some, size, *everything])
    assert [r.tolist() for r in results] == [[5, 6], [[3, 4], [1, 2]], 3, [1, 2, 3, 4, 5, 6], [2, 2, 2]]


def test_scatter_and_split() -> None:
    scattered = made(0, dynamic_size=True)
    flow = raw.TensorArrayScatterV3(scattered.handle, [2, 0, 1], np.float32([[1], [2], [3]]), scattered.flow)
    rows = raw.TensorArrayGatherV3(scattered.handle, [0, 1, 2], flow, dtype="float32")
    pieces = made(2)
    cut = raw.TensorArraySplitV3(pieces.handle, np.float32([1, 2, 3]), np.int64([1, 2]), pieces.flow)
    last = raw.TensorArrayReadV3(pieces.handle, 1, cut, dtype="float32")
    assert [r.tolist() for r in run([rows, last])] == [[[2], [3], [1]], [2, 3]]


def test_an_array_lives_for_one_step() -> None:
    array = made(1)
    row = raw.TensorArrayReadV3(array.handle, 0, written(array, {0: 7}), dtype="float32")
    with tf.Session() as session:
        assert [session.run(row) for _ in range(3)] == [7, 7, 7]


def test_gradients_add_up_and_have_the_shape_of_the_elements() -> None:
    array = made(2)
    flow = written(array, {0: [1, 2], 1: [3]})
    grad = raw.TensorArrayGradV3(array.handle, flow, source="g")
    again = raw.TensorArrayGradV3(array.handle, flow, source="g")
    summed = raw.TensorArrayWriteV3(grad.grad_handle, 0, np.float32([10, 20]), grad.flow_out)
    summed = raw.TensorArrayWriteV3(again.grad_handle, 0, np.float32([1, 1]), summed)
    rows = [raw.TensorArrayReadV3(again.grad_handle, i, summed, dtype="float32") for i in (0, 1)]
    assert [r.tolist() for r in run(rows)] == [[11, 21], [0]]


def reading(array: Any, flow: Any, index: int = 0) -> Any:
    return raw.TensorArrayReadV3(array.handle, index, flow, dtype="float32")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: written(made(), {3: 1}), "Tried to write to index 3 but array is not resizeable and size is: 3"),
        (lambda: written(made(dynamic_size=True), {-1: 1}), "Tried to write to index -1 but size is: 3"),
        (lambda: written(a := made(), {0: 1}, written(a, {0: 1})), "index 0 because it has already been written"),
        (lambda: reading(a := made(), a.flow, 5), "Tried to read from index 5 but array size is: 3"),
        (lambda: reading(a := made(), a.flow), "it was not written, and the element shape is not known"),
        (lambda: written(made(element_shape=[2]), {0: 1.0}), "incompatible with the TensorArray's element shape"),
        (lambda: written(made(dtype="float64"), {0: 1.0}), "it holds float64, but the value for index 0 is float32"),
        (lambda: made(-1).flow, "Size should be >= 0"),
        (
            lambda: raw.TensorArrayScatterV3((a := made()).handle, [0], np.float32([1, 2]), a.flow),
            r"Expected len\(indices\) == values.shape\[0\], but saw: 1 vs. 2",
        ),
        (
            lambda: raw.TensorArraySplitV3((a := made()).handle, np.float32([1, 2]), np.int64([1]), a.flow),
            "Expected sum of lengths to be equal to values.shape",
        ),
    ],
)
def test_bad_input(build: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        run(build())


def test_what_was_read_is_gone() -> None:
    array = made(1)
    flow = written(array, {0: 1.0})
    first = reading(array, flow)
    with tf.control_dependencies([first]):
        second = reading(array, raw.Identity(flow))
    with pytest.raises(errors.InvalidArgumentError, match="Could not read index 0 twice because it was cleared"):
        run(second)


def test_a_closed_array() -> None:
    array = made(1, element_shape=[])
    with tf.control_dependencies([raw.TensorArrayCloseV3(array.handle)]):
        flow = raw.Identity(array.flow)
    with pytest.raises(errors.InvalidArgumentError, match="has already been closed"):
        run(reading(array, flow))


def test_zeros_where_nothing_was_written_and_the_shape_is_known() -> None:
    array = made(2, element_shape=[2])
    assert run(reading(array, array.flow)).tolist() == [0, 0]


def test_gradients_of_places_that_are_read_twice_add_up() -> None:
    x = tf.constant([2.0, 3.0])
    array = made(2, clear_after_read=False)
    flow = raw.TensorArrayScatterV3(array.handle, [0, 1], x, array.flow)
    y = reading(array, flow) * reading(array, flow)
    assert run(tf.gradients(y, x)[0]).tolist() == [4, 0]
    with pytest.raises(ValueError, match="in a scope called 'gradients'"):
        tf.gradients(y, x, name="slopes")


def test_an_array_of_gradients_may_have_dimensions_in_front() -> None:
    array = made(2, element_shape=[2])
    flow = written(array, {0: [1, 2], 1: [3, 4]})
    grads = raw.TensorArrayGradWithShape(array.handle, flow, [3], source="gradients")
    flow = raw.TensorArrayWriteV3(grads.grad_handle, 1, np.ones((3, 2), np.float32), grads.flow_out)
    rows = [raw.TensorArrayReadV3(grads.grad_handle, i, flow, dtype="float32") for i in (0, 1)]
    assert [row.tolist() for row in run(rows)] == [[[0, 0]] * 3, [[1, 1]] * 3]


def test_the_reader_may_know_the_shape_of_the_elements_that_there_are_not() -> None:
    array = made(0)
    rows = raw.TensorArrayGatherV3(array.handle, np.zeros(0, np.int32), array.flow, dtype="float32", element_shape=[2])
    joined = raw.TensorArrayConcatV3(array.handle, array.flow, dtype="float32", element_shape_except0=[3])
    assert [r.shape for r in run([rows, *joined])] == [(0, 2), (0, 3), (0,)]
    half = made(0, element_shape=[None, 2])
    rows = raw.TensorArrayGatherV3(half.handle, np.zeros(0, np.int32), half.flow, dtype="float32", element_shape=[4, 2])
    assert run(rows).shape == (0, 4, 2)
    other = raw.TensorArrayGatherV3(half.handle, np.zeros(0, np.int32), half.flow, dtype="float32", element_shape=[4])
    with pytest.raises(errors.InvalidArgumentError):
        run(other)
