"""Which operations look at indices of rows without elements, as TensorFlow 2.21 does; and so on to their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors, raw_ops

TABLE = np.zeros((4, 0), np.float32)
ROWS = np.zeros((2, 0), np.float32)
BEYOND = np.int32([0, 9])
UPWARD = np.int32([0, 1])


def fed(value: Any) -> tf.Tensor:
    """A tensor of which nothing is known while the graph is built."""
    return tf.placeholder_with_default(value, None)


def unsorted(name: str) -> Callable[[tf.Tensor], tf.Tensor]:
    return lambda rows: getattr(raw_ops, name)(data=rows, segment_ids=BEYOND, num_segments=4)


def product(b: tf.Tensor) -> tf.Tensor:
    return raw_ops.SparseTensorDenseMatMul(
        a_indices=np.int64([[0, 9]]), a_values=fed(np.float32([1])), a_shape=np.int64([2, 4]), b=b
    )


#: what takes any index, its argument and the shape of its result
LOOKED_AT_BY_NOBODY: dict[str, tuple[Callable[[tf.Tensor], tf.Tensor], Any, tuple[int, ...]]] = {
    "Gather": (lambda x: raw_ops.Gather(params=x, indices=BEYOND), TABLE, (2, 0)),
    "GatherV2": (lambda x: raw_ops.GatherV2(params=x, indices=BEYOND, axis=1), TABLE.T, (0, 2)),
    "UnsortedSegmentSum": (unsorted("UnsortedSegmentSum"), ROWS, (4, 0)),
    "UnsortedSegmentProd": (unsorted("UnsortedSegmentProd"), ROWS, (4, 0)),
    "UnsortedSegmentMax": (unsorted("UnsortedSegmentMax"), ROWS, (4, 0)),
    "UnsortedSegmentMin": (unsorted("UnsortedSegmentMin"), ROWS, (4, 0)),
    "SparseTensorDenseMatMul": (product, TABLE, (2, 0)),
}


def rows_of_variable(indices: Any) -> tf.Tensor:
    variable = tf.get_variable("table", initializer=TABLE, use_resource=True)
    with tf.control_dependencies([variable.initializer]):
        return raw_ops.ResourceGather(resource=variable.handle, indices=indices, dtype=tf.float32)


REFUSED: dict[str, Callable[[], tf.Tensor]] = {
    "GatherNd": lambda: raw_ops.GatherNd(params=fed(TABLE), indices=fed(BEYOND[:, None])),
    "ResourceGather": lambda: rows_of_variable(fed(BEYOND)),
    "ScatterNd": lambda: raw_ops.ScatterNd(
        indices=fed(BEYOND[:, None]), updates=fed(ROWS), shape=fed(np.int32([4, 0]))
    ),
    "SparseSegmentSum": lambda: raw_ops.SparseSegmentSum(data=fed(TABLE), indices=fed(BEYOND), segment_ids=fed(UPWARD)),
    "TensorScatterAdd": lambda: raw_ops.TensorScatterAdd(
        tensor=fed(TABLE), indices=fed(BEYOND[:, None]), updates=fed(ROWS)
    ),
}


@pytest.mark.parametrize("name", LOOKED_AT_BY_NOBODY)
def test_taken(name: str) -> None:
    function, argument, shape = LOOKED_AT_BY_NOBODY[name]
    x = fed(argument)
    y = function(x)
    with tf.Session() as session:
        value, gradient = session.run([y, tf.convert_to_tensor(tf.gradients(y, x)[0])])
    assert value.shape == shape
    assert gradient.shape == argument.shape


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with tf.Session() as session, pytest.raises(errors.InvalidArgumentError):
        session.run(REFUSED[name]())


@pytest.mark.parametrize("segments", [-1, 3])
def test_what_does_not_belong_to_indices_is_refused_all_the_same(segments: int) -> None:
    """A negative number of segments, and ids of another shape."""
    ids = BEYOND if segments < 0 else np.int32([0, 1, 2])
    result = raw_ops.UnsortedSegmentSum(data=fed(ROWS), segment_ids=fed(ids), num_segments=fed(np.int32(segments)))
    with tf.Session() as session, pytest.raises(errors.InvalidArgumentError):
        session.run(result)
