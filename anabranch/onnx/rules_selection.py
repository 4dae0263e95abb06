"""Import rules of gathers, scatters, and of what finds places in tensors."""

from __future__ import annotations

import numpy as np

import anabranch as tf
from anabranch.core.arrays import HostArray
from anabranch.onnx.rules import OnnxNode, rank_of, rule, size_of


def _wrapped(indices: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Indices of which negative ones count from the end."""
    indices = tf.cast(indices, tf.int64)
    return tf.where_v2(indices < 0, indices + tf.cast(size, tf.int64), indices)


@rule("Gather", 1, 11, 13)
def _gather(node: OnnxNode) -> tf.Tensor:
    x, axis = node.tensor(), node.axis(0)
    return tf.gather(x, _wrapped(node.tensor(1), tf.shape(x)[axis]), axis=axis)


@rule("GatherND", 11, 12, 13)
def _gather_nd(node: OnnxNode) -> tf.Tensor:
    x, indices, batch = node.tensor(), node.tensor(1), node.integer("batch_dims")
    depth = size_of(indices, -1)
    wrapped = _wrapped(indices, tf.shape(x)[batch : batch + depth])
    return tf.gather_nd(x, wrapped, batch_dims=batch)


def _full_places(indices: tf.Tensor, size: tf.Tensor, axis: int) -> tf.Tensor:
    """The place of every element of a tensor of indices, with its index along one axis."""
    shape = tf.shape(indices, out_type=tf.int64)
    grid = []
    for i in range(rank_of(indices)):
        counting = tf.range(shape[i])
        sizes = [-1 if j == i else 1 for j in range(rank_of(indices))]
        grid.append(tf.broadcast_to(tf.reshape(counting, sizes), shape))
    grid[axis] = _wrapped(indices, size)
    return tf.stack(grid, -1)


@rule("GatherElements", 11, 13)
def _gather_elements(node: OnnxNode) -> tf.Tensor:
    x, axis = node.tensor(), node.axis(0)
    return tf.gather_nd(x, _full_places(node.tensor(1), tf.shape(x)[axis], axis))


def _scattered(x: tf.Tensor, places: tf.Tensor, updates: tf.Tensor, how: str) -> tf.Tensor:
    if how == "none":
        return tf.tensor_scatter_nd_update(x, places, updates)
    if how == "add":
        return tf.tensor_scatter_nd_add(x, places, updates)
    flat_shape = tf.shape(x, out_type=tf.int64)
    depth = size_of(places, -1)
    strides = tf.cumprod(flat_shape[:depth], exclusive=True, reverse=True)
    rows = tf.reshape(tf.reduce_sum(places * strides, -1), [-1])
    count = tf.reduce_prod(flat_shape[:depth])
    inner = tf.concat([[-1], flat_shape[depth:]], 0)
    reduce = {
        "mul": tf.math.unsorted_segment_prod,
        "max": tf.math.unsorted_segment_max,
        "min": tf.math.unsorted_segment_min,
    }
    merged = reduce[how](tf.reshape(updates, inner), rows, count)
    combine = {"mul": tf.multiply, "max": tf.maximum, "min": tf.minimum}[how]
    return combine(x, tf.reshape(merged, flat_shape))


@rule("ScatterElements", 11, 13, 16, 18)
def _scatter_elements(node: OnnxNode) -> tf.Tensor:
    x, axis = node.tensor(), node.axis(0)
    return _scattered(
        x, _full_places(node.tensor(1), tf.shape(x)[axis], axis), node.tensor(2), node.text("reduction", "none")
    )


rule("Scatter", 9, 11)(_scatter_elements)


@rule("ScatterND", 11, 13, 16, 18)
def _scatter_nd(node: OnnxNode) -> tf.Tensor:
    x, indices = node.tensor(), node.tensor(1)
    depth = size_of(indices, -1)
    return _scattered(x, _wrapped(indices, tf.shape(x)[:depth]), node.tensor(2), node.text("reduction", "none"))


@rule("NonZero", 9, 13)
def _non_zero(node: OnnxNode) -> tf.Tensor:
    return tf.transpose(tf.where(tf.not_equal(node.tensor(), tf.zeros_like(node.tensor()))))


@rule("Compress", 9, 11)
def _compress(node: OnnxNode) -> tf.Tensor:
    x, condition = node.tensor(), node.tensor(1)
    places = tf.squeeze(tf.where(condition), [1])
    if node.attr("axis") is None:
        return tf.gather(tf.reshape(x, [-1]), places)
    return tf.gather(x, places, axis=node.axis(0))


@rule("OneHot", 9, 11)
def _one_hot(node: OnnxNode) -> tf.Tensor:
    depth = tf.cast(tf.reshape(node.tensor(1), []), tf.int64)
    off, on = tf.unstack(node.tensor(2))
    indices = _wrapped(node.tensor(), depth)
    axis, rank = node.integer("axis", -1), node.rank()
    hot = tf.one_hot(indices, tf.cast(depth, tf.int32), True, False, axis=axis % (rank + 1), dtype=tf.bool)
    return tf.where_v2(hot, on, off)


@rule("Unique", 11)
def _unique(node: OnnxNode) -> tuple[tf.Tensor, ...]:
    has_axis, axis, ordered = node.attr("axis") is not None, node.integer("axis"), bool(node.integer("sorted", 1))

    def find(x: HostArray) -> tuple[HostArray, ...]:
        along = axis if has_axis else None
        values, first, inverse, counts = np.unique(x, True, True, True, axis=along)
        inverse = inverse.reshape(-1)
        if not ordered:
            order = np.argsort(first)
            back = np.argsort(order)
            values = np.take(values, order, axis=along or 0)
            first, inverse, counts = first[order], back[inverse], counts[order]
        return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)

    x = node.tensor()
    return tuple(tf.py_func(find, [x], [x.dtype, tf.int64, tf.int64, tf.int64], stateful=False))


@rule("NonMaxSuppression", 10, 11)
def _non_max_suppression(node: OnnxNode) -> tf.Tensor:
    boxes, scores = node.tensor(0), node.tensor(1)
    limit = tf.cast(tf.reshape(node.tensor(2), []), tf.int32) if node.has(2) else tf.constant(0)
    overlap = tf.reshape(node.tensor(3), []) if node.has(3) else tf.constant(0.0)
    least = tf.reshape(node.tensor(4), []) if node.has(4) else tf.constant(float("-inf"))
    batches, classes = scores.shape.as_list()[:2]
    if batches is None or classes is None:
        raise ValueError(f"{node.label}: the numbers of batches and classes must be known")
    found = []
    for batch in range(batches):
        corners = boxes[batch]
        if node.integer("center_point_box"):
            half = corners[:, 2:] / 2
            corners = tf.concat([corners[:, :2] - half, corners[:, :2] + half], 1)
        for kind in range(classes):
            chosen = tf.raw_ops.NonMaxSuppressionV3(
                boxes=corners,
                scores=scores[batch, kind],
                max_output_size=limit,
                iou_threshold=overlap,
                score_threshold=least,
            )
            rows = tf.cast(tf.expand_dims(chosen, 1), tf.int64)
            found.append(tf.pad(rows, [[0, 0], [2, 0]]) + tf.constant([[batch, kind, 0]], tf.int64))
    return tf.concat(found, 0)
