"""Import rules of operators that look at images at places between the elements: RoiAlign and DeformConv."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

import anabranch as tf
from anabranch.onnx.rules import OnnxNode, rule, size_of, sizes_of
from anabranch.onnx.rules_images import sampled


@rule("RoiAlign", 10, 16, 22)
def _roi_align(node: OnnxNode) -> tf.Tensor:
    x, rois, batch = node.tensor(0), node.tensor(1), node.tensor(2)
    ratio = node.integer("sampling_ratio")
    if ratio > 0:
        return _aligned(node, x, rois, batch, (ratio, ratio))
    # A region has as many samples as it is large, so the regions must be known.
    known = node.static(1)
    if not len(known):
        return tf.zeros([0, size_of(x, 1), *_output_sizes(node)], x.dtype)
    parts = []
    for number, roi in enumerate(known.astype(np.float64) * node.real("spatial_scale", 1.0)):
        extents = roi[[3, 2]] - roi[[1, 0]]
        extents = extents if _half_pixel(node) else np.maximum(extents, 1)
        rows, columns = np.ceil(extents / _output_sizes(node)).astype(int)
        one = slice(number, number + 1)
        if rows > 0 and columns > 0:
            parts.append(_aligned(node, x, rois[one], batch[one], (int(rows), int(columns))))
        else:
            parts.append(tf.zeros([1, size_of(x, 1), *_output_sizes(node)], x.dtype))
    return tf.concat(parts, 0)


def _output_sizes(node: OnnxNode) -> tuple[int, int]:
    return node.integer("output_height", 1), node.integer("output_width", 1)


def _half_pixel(node: OnnxNode) -> bool:
    usual = "half_pixel" if node.since >= 16 else "output_half_pixel"
    return node.text("coordinate_transformation_mode", usual) == "half_pixel"


def _aligned(node: OnnxNode, x: tf.Tensor, rois: tf.Tensor, batch: tf.Tensor, samples: tuple[int, int]) -> tf.Tensor:
    """The pooled regions [regions, channels, height, width], of so many samples in each part of a region."""
    half = _half_pixel(node)
    rois = tf.cast(rois, tf.float64 if x.dtype == tf.float64 else tf.float32)
    scaled = rois * node.real("spatial_scale", 1.0) - (0.5 if half else 0.0)
    lines = []
    for axis, (parts, count) in enumerate(zip(_output_sizes(node), samples, strict=True)):
        low, high = scaled[:, 1 - axis], scaled[:, 3 - axis]
        extent = high - low if half else tf.maximum(high - low, 1)
        offsets = tf.constant((np.arange(parts * count) + 0.5) / (parts * count), rois.dtype)
        lines.append(_neighbours(tf.expand_dims(low, 1) + tf.expand_dims(extent, 1) * offsets, size_of(x, 2 + axis)))
    (rows, row_weights), (columns, column_weights) = lines
    last = tf.transpose(x, [0, 2, 3, 1])
    terms = []
    for i, j in itertools.product(range(2), repeat=2):
        row, column = tf.expand_dims(rows[i], 2), tf.expand_dims(columns[j], 1)
        number = tf.reshape(tf.cast(batch, tf.int32), [-1, 1, 1])
        places = tf.stack([number + 0 * (row + column), row + 0 * column, column + 0 * row], -1)
        weights = tf.expand_dims(row_weights[i], 2) * tf.expand_dims(column_weights[j], 1)
        terms.append(tf.gather_nd(last, places) * tf.cast(tf.expand_dims(weights, 3), x.dtype))
    height, width = _output_sizes(node)
    grid = [-1, height, samples[0], width, samples[1], size_of(x, 1)]
    if node.text("mode", "avg").lower() == "max":  # The greatest of the weighted neighbours, not of their sums.
        pooled = tf.reduce_max(tf.reshape(tf.reduce_max(tf.stack(terms), 0), grid), [2, 4])
    else:
        pooled = tf.reduce_mean(tf.reshape(tf.add_n(terms), grid), [2, 4])
    return tf.transpose(pooled, [0, 3, 1, 2])


def _neighbours(places: tf.Tensor, size: int) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """The two elements beside each place along an axis, and their weights: none where a place is outside."""
    inside = tf.cast(tf.logical_and(places >= -1, places <= size), places.dtype)
    held = tf.clip_by_value(places, tf.cast(0, places.dtype), tf.cast(size - 1, places.dtype))
    below = tf.floor(held)
    share = held - below
    low = tf.cast(below, tf.int32)
    return [low, tf.minimum(low + 1, size - 1)], [(1 - share) * inside, share * inside]


@rule("DeformConv", 19, 22)
def _deform_conv(node: OnnxNode) -> tf.Tensor:
    x, w, offset = node.tensor(0), node.tensor(1), node.tensor(2)
    channels = size_of(x, 1)
    outputs, per_group, *kernel = sizes_of(w)
    spatial, taps = len(kernel), int(np.prod(kernel))
    groups, offset_groups = node.integer("group", 1), node.integer("offset_group", 1)
    out = [size_of(offset, 2 + i) for i in range(spatial)]
    # Every group of offsets is an element of a batch of its own.
    parts = tf.reshape(x, [-1, channels // offset_groups, *sizes_of(x)[2:]])
    moved = tf.reshape(offset, [-1, taps, spatial, *out])
    places = [
        moved[:, :, axis] + tf.constant(grid, offset.dtype) for axis, grid in enumerate(_grids(node, kernel, out))
    ]
    found = _between(parts, places)
    if node.has(4):
        found = found * tf.reshape(node.tensor(4), [-1, 1, taps, *out])
    columns = tf.reshape(found, [-1, groups, per_group * taps, int(np.prod(out))])
    filters = tf.reshape(w, [groups, outputs // groups, per_group * taps])
    result = tf.reshape(tf.matmul(filters, columns), [-1, outputs, *out])
    if node.has(3):
        result = result + tf.reshape(node.tensor(3), [1, -1] + [1] * spatial)
    return result


def _grids(
    node: OnnxNode, kernel: Sequence[int], out: Sequence[int]
) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """For each axis, where the taps [taps, ...] of each window are before they are moved."""
    spatial = len(kernel)
    ones = [1] * spatial
    strides, dilations = node.ints("strides", default=ones) or ones, node.ints("dilations", default=ones) or ones
    pads = node.ints("pads", default=[0] * 2 * spatial) or [0] * 2 * spatial
    grids = []
    taps = np.indices(kernel).reshape(spatial, -1)
    windows = np.indices(out)
    for axis in range(spatial):
        first = windows[axis] * strides[axis] - pads[axis]
        grids.append(first[None] + (taps[axis] * dilations[axis]).reshape([-1] + [1] * spatial).astype(np.float64))
    return grids


def _between(x: tf.Tensor, places: Sequence[tf.Tensor]) -> tf.Tensor:
    """The elements of [batch, channels, ...] at places of [batch, ...] between them; zeros are around the image."""
    floors = [tf.floor(place) for place in places]
    terms = []
    for corner in itertools.product(range(2), repeat=len(places)):
        weights = [
            share if above else 1 - share
            for above, share in zip(corner, (p - f for p, f in zip(places, floors, strict=True)), strict=True)
        ]
        weight = weights[0]
        for factor in weights[1:]:
            weight = weight * factor
        indices = [tf.cast(floor, tf.int32) + above for floor, above in zip(floors, corner, strict=True)]
        terms.append(sampled(x, indices, "zeros", False) * tf.cast(tf.expand_dims(weight, 1), x.dtype))
    return tf.add_n(terms)
