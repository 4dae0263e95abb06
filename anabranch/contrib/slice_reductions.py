"""`tf.contrib.reduce_slice_ops`: sums, products and extremes of ranges along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import TensorLike


def reduce_slice_sum(data: TensorLike, indices: TensorLike, axis: TensorLike, name: str | None = None) -> tf.Tensor:
    """The sums of ranges along an axis; an empty one has 0.

    Args:
        data: numbers, of a known rank of at least 1.
        indices: int32 or int64 [ranges, 2], where ranges begin and end, the end not included, and cut off where the
            axis ends; or [ranges + 1]: each begins where the one before ends.
        axis: a number, known while the graph is built.
        name: of the operations.

    Returns:
        Like `data`, with as many entries along the axis as there are ranges.

    Raises:
        ValueError: `data` is a scalar, or `indices` have another shape.

    Example:
        >>> sess.run(tf.contrib.reduce_slice_ops.reduce_slice_sum([1, 40, 700], [[0, 1], [0, 3], [2, 2]], 0)).tolist()
        [1, 741, 0]
    """
    return _reduced(data, indices, axis, name or "ReduceSliceSum", tf.reduce_sum, lambda dtype: 0)


def reduce_slice_prod(data: TensorLike, indices: TensorLike, axis: TensorLike, name: str | None = None) -> tf.Tensor:
    """The products of ranges along an axis; an empty one has 1. Arguments as of `reduce_slice_sum`."""
    return _reduced(data, indices, axis, name or "ReduceSliceProd", tf.reduce_prod, lambda dtype: 1)


def reduce_slice_max(data: TensorLike, indices: TensorLike, axis: TensorLike, name: str | None = None) -> tf.Tensor:
    """The largest numbers of ranges; an empty one has the dtype's least. Arguments as of `reduce_slice_sum`."""
    return _reduced(data, indices, axis, name or "ReduceSliceMax", tf.reduce_max, lambda dtype: dtype.min)


def reduce_slice_min(data: TensorLike, indices: TensorLike, axis: TensorLike, name: str | None = None) -> tf.Tensor:
    """The least numbers of ranges; an empty one has the dtype's largest. Arguments as of `reduce_slice_sum`."""
    return _reduced(data, indices, axis, name or "ReduceSliceMin", tf.reduce_min, lambda dtype: dtype.max)


def _reduced(
    data: TensorLike,
    indices: TensorLike,
    axis: TensorLike,
    name: str,
    reduce: Callable[..., tf.Tensor],
    of_nothing: Callable[[tf.DType], Any],
) -> tf.Tensor:
    with tf.name_scope(name):
        given, ranges = tf.convert_to_tensor(data), tf.convert_to_tensor(indices)
        place = tf.get_static_value(axis)
        if given.shape.ndims is None or place is None:
            raise ValueError("the rank of data and the axis must be known while the graph is built")
        if not -given.shape.ndims <= place < given.shape.ndims:
            raise ValueError(f"data of rank {given.shape.ndims} has no axis {place}")
        if ranges.shape.ndims == 1:
            ranges = tf.stack([ranges[:-1], ranges[1:]], 1)
        ranges = tf.cast(ranges, tf.int64)
        if not ranges.shape.is_compatible_with([None, 2]):
            raise ValueError(f"indices must be [ranges, 2] or [ranges + 1], got shape {ranges.shape}")
        order = list(range(given.shape.ndims))
        order[0], order[int(place)] = order[int(place)], 0  # its own inverse
        moved = tf.transpose(given, order)
        places = tf.range(tf.shape(moved, out_type=tf.int64)[0])
        places = tf.reshape(places, [-1] + [1] * (given.shape.ndims - 1))
        nothing = tf.fill(tf.shape(moved), tf.constant(of_nothing(given.dtype), given.dtype))

        def of_range(ends: tf.Tensor) -> tf.Tensor:
            inside = tf.logical_and(places >= ends[0], places < ends[1])
            return reduce(tf.where(tf.broadcast_to(inside, tf.shape(moved)), moved, nothing), 0)

        found = tf.map_fn(of_range, ranges, dtype=given.dtype)
        result: tf.Tensor = tf.transpose(found, order)
        return result
