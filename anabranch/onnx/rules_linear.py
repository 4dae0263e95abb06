"""Import rules of matrix products and convolutions."""

from __future__ import annotations

import numpy as np

import anabranch as tf
from anabranch.onnx.rules import NeedsConstantError, OnnxNode, rank_of, rule, sizes_of


def product(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """The matrix product as NumPy has it: vectors too, and leading dimensions broadcast."""
    left, right = x.shape.ndims == 1, y.shape.ndims == 1
    result = tf.matmul(tf.expand_dims(x, 0) if left else x, tf.expand_dims(y, 1) if right else y)
    if right:
        result = tf.squeeze(result, [-1])
    return tf.squeeze(result, [-1 if right else -2]) if left else result


@rule("MatMul", 1, 9, 13)
def _matmul(node: OnnxNode) -> tf.Tensor:
    return product(node.tensor(0), node.tensor(1))


@rule("Gemm", 1, 6, 7, 9, 11, 13)
def _gemm(node: OnnxNode) -> tf.Tensor:
    a, b = node.tensor(0), node.tensor(1)
    result = tf.matmul(a, b, bool(node.integer("transA")), bool(node.integer("transB")))
    alpha, beta = node.real("alpha", 1.0), node.real("beta", 1.0)
    if alpha != 1:
        result = tf.cast(alpha, a.dtype) * result
    if not node.has(2):
        return result
    return result + (node.tensor(2) if beta == 1 else tf.cast(beta, a.dtype) * node.tensor(2))


@rule("Det", 11, 22)
def _det(node: OnnxNode) -> tf.Tensor:
    return tf.linalg.det(node.tensor())


def pads_of(
    node: OnnxNode, sizes: list[int], kernel: list[int], strides: list[int], dilations: list[int]
) -> list[tuple[int, int]]:
    """The padding before and after each dimension of space."""
    mode, spatial = node.text("auto_pad", "NOTSET"), len(kernel)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        result = []
        for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
            total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
            small, large = total // 2, total - total // 2
            result.append((small, large) if mode == "SAME_UPPER" else (large, small))
        return result
    pads = (node.ints("pads") if mode == "NOTSET" else None) or [0] * (2 * spatial)
    return list(zip(pads[:spatial], pads[spatial:], strict=True))


def spatial_sizes(node: OnnxNode) -> list[int]:
    """The sizes of the dimensions after batch and channels."""
    sizes = node.tensor().shape.as_list()[2:]
    same = node.text("auto_pad", "NOTSET").startswith("SAME")
    if None in sizes and (same or node.integer("ceil_mode") or node.attr("output_shape") is not None):
        raise NeedsConstantError(f"{node.label}: the sizes of its input must be known, and are {sizes}")
    return [size or 0 for size in sizes]


def convolve(x: tf.Tensor, w: tf.Tensor, strides: list[int], dilations: list[int], groups: int) -> tf.Tensor:
    """A convolution of [batch, channels, ...] without padding; w is [outputs, channels / groups, ...]."""
    if groups > 1:
        parts = zip(tf.split(x, groups, 1), tf.split(w, groups, 0), strict=True)
        channels = x.shape.as_list()[1]
        if channels == groups and len(strides) == 2 and (strides[0] == strides[1] or dilations == [1, 1]):
            return _depthwise(x, w, strides, dilations, groups)
        return tf.concat([convolve(a, b, strides, dilations, 1) for a, b in parts], 1)
    spatial = len(strides)
    if spatial == 1:
        wide = convolve(tf.expand_dims(x, 2), tf.expand_dims(w, 2), [1, *strides], [1, *dilations], 1)
        return tf.squeeze(wide, [2])
    last = [0, *range(2, spatial + 2), 1]
    moved, filters = tf.transpose(x, last), tf.transpose(w, [*range(2, spatial + 2), 1, 0])
    if spatial == 2:
        result = tf.nn.conv2d(moved, filters, [1, *strides, 1], "VALID", dilations=[1, *dilations, 1])
    else:
        result = tf.nn.conv3d(moved, filters, [1, *strides, 1], "VALID", dilations=[1, *dilations, 1])
    return tf.transpose(result, [0, spatial + 1, *range(1, spatial + 1)])


def _depthwise(x: tf.Tensor, w: tf.Tensor, strides: list[int], dilations: list[int], groups: int) -> tf.Tensor:
    outputs, _, *kernel = sizes_of(w)
    filters = tf.transpose(tf.reshape(w, [groups, outputs // groups, *kernel]), [2, 3, 0, 1])
    moved = tf.transpose(x, [0, 2, 3, 1])
    if strides[0] != strides[1] or (strides[0] > 1 and dilations != [1, 1]):
        parts = zip(tf.split(x, groups, 1), tf.split(w, groups, 0), strict=True)
        return tf.concat([convolve(a, b, strides, dilations, 1) for a, b in parts], 1)
    result = tf.nn.depthwise_conv2d(moved, filters, [1, *strides, 1], "VALID", rate=dilations)
    return tf.transpose(result, [0, 3, 1, 2])


def convolution(node: OnnxNode, x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    """The convolution that a node's attributes describe."""
    kernel = sizes_of(w)[2:]
    ones = [1] * len(kernel)
    strides, dilations = node.ints("strides", default=ones) or ones, node.ints("dilations", default=ones) or ones
    pads = pads_of(node, spatial_sizes(node), kernel, strides, dilations)
    padded = tf.pad(x, [[0, 0], [0, 0], *pads]) if any(map(any, pads)) else x
    return convolve(padded, w, strides, dilations, node.integer("group", 1))


def _with_bias(result: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
    if bias is None:
        return result
    return result + tf.reshape(bias, [1, -1] + [1] * (rank_of(result) - 2))


@rule("Conv", 1, 11, 22)
def _conv(node: OnnxNode) -> tf.Tensor:
    return _with_bias(convolution(node, node.tensor(0), node.tensor(1)), node.optional(2))


@rule("ConvTranspose", 1, 11, 22)
def _conv_transpose(node: OnnxNode) -> tf.Tensor:
    x, w = node.tensor(0), node.tensor(1)
    channels, per_group, *kernel = sizes_of(w)
    spatial, groups = len(kernel), node.integer("group", 1)
    ones = [1] * spatial
    strides, dilations = node.ints("strides", default=ones) or ones, node.ints("dilations", default=ones) or ones
    extra = node.ints("output_padding", default=[0] * spatial) or [0] * spatial
    pads = _transposed_pads(node, spatial_sizes(node), kernel, strides, dilations, extra)
    result = x
    for axis, stride in enumerate(strides):
        result = _spread(result, 2 + axis, stride)
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    around = [(r, r + e) for r, e in zip(reach, extra, strict=True)]
    result = tf.pad(result, [[0, 0], [0, 0], *around])
    flipped = tf.reverse(w, list(range(2, 2 + spatial)))
    grouped = tf.reshape(flipped, [groups, channels // groups, per_group, *kernel])
    order = [0, 2, 1, *range(3, 3 + spatial)]
    filters = tf.reshape(tf.transpose(grouped, order), [groups * per_group, channels // groups, *kernel])
    result = convolve(result, filters, ones, dilations, groups)
    cut = tuple(slice(max(low, 0), -high if high > 0 else None) for low, high in pads)
    result = result[(slice(None), slice(None), *cut)]
    missing = [(max(-low, 0), max(-high, 0)) for low, high in pads]
    return _with_bias(tf.pad(result, [[0, 0], [0, 0], *missing]), node.optional(2))


def _transposed_pads(
    node: OnnxNode, sizes: list[int], kernel: list[int], strides: list[int], dilations: list[int], extra: list[int]
) -> list[tuple[int, int]]:
    mode, wanted = node.text("auto_pad", "NOTSET"), node.ints("output_shape")
    if wanted is None and not mode.startswith("SAME"):
        return pads_of(node, sizes, kernel, strides, dilations)
    result = []
    for i, size in enumerate(sizes):
        target = wanted[-len(sizes) + i] if wanted is not None else size * strides[i]
        total = strides[i] * (size - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1 - target
        small, large = total // 2, total - total // 2
        result.append((large, small) if mode != "SAME_UPPER" else (small, large))
    return result


def _spread(x: tf.Tensor, axis: int, stride: int) -> tf.Tensor:
    """Zeros between the elements along an axis."""
    if stride == 1:
        return x
    shape = tf.shape(x)
    apart = tf.expand_dims(x, axis + 1)
    filled = tf.pad(apart, [[0, stride - 1 if i == axis + 1 else 0] for i in range(rank_of(x) + 1)])
    joined = tf.reshape(filled, tf.concat([shape[:axis], [shape[axis] * stride], shape[axis + 1 :]], 0))
    sizes = x.shape.as_list()
    cut = [slice(None)] * rank_of(x)
    cut[axis] = slice(None, -(stride - 1))
    joined.set_shape([s if i != axis or s is None else s * stride for i, s in enumerate(sizes)])
    return joined[tuple(cut)]


@rule("ConvInteger", 10)
def _conv_integer(node: OnnxNode) -> tf.Tensor:
    x, w = tf.cast(node.tensor(0), tf.float64), tf.cast(node.tensor(1), tf.float64)
    x = x - tf.cast(node.tensor(2), tf.float64) if node.has(2) else x
    if node.has(3):
        zero = tf.cast(node.tensor(3), tf.float64)
        w = w - (tf.reshape(zero, [-1] + [1] * (rank_of(w) - 1)) if zero.shape.ndims else zero)
    return tf.cast(convolution(node, x, w), tf.int32)


@rule("MatMulInteger", 10)
def _matmul_integer(node: OnnxNode) -> tf.Tensor:
    x, y = tf.cast(node.tensor(0), tf.int32), tf.cast(node.tensor(1), tf.int32)
    if node.has(2):
        zero = tf.cast(node.tensor(2), tf.int32)
        x = x - (tf.expand_dims(zero, -1) if zero.shape.ndims == 1 and zero.shape.num_elements() != 1 else zero)
    y = y - tf.cast(node.tensor(3), tf.int32) if node.has(3) else y
    return product(x, y)


@rule("Col2Im", 18)
def _col2im(node: OnnxNode) -> tf.Tensor:
    x = node.tensor()
    image, block = node.ints("", 1) or [], node.ints("", 2) or []
    ones = [1] * len(image)
    strides, dilations = node.ints("strides", default=ones) or ones, node.ints("dilations", default=ones) or ones
    pads = node.ints("pads", default=[0] * (2 * len(image))) or []
    batch, columns, _ = sizes_of(x)
    space = [size + pads[i] + pads[i + len(image)] for i, size in enumerate(image)]
    steps = [(size - d * (k - 1) - 1) // s + 1 for size, d, k, s in zip(space, dilations, block, strides, strict=True)]
    # Where each element of each block goes.
    places = np.zeros([*block, *steps], np.int64)
    for axis, (size, d, s) in enumerate(zip(space, dilations, strides, strict=True)):
        inside = np.arange(block[axis]).reshape([-1 if i == axis else 1 for i in range(2 * len(image))]) * d
        outside = (
            np.arange(steps[axis]).reshape([-1 if i == axis + len(image) else 1 for i in range(2 * len(image))]) * s
        )
        places = places * size + inside + outside
    channels = columns // int(np.prod(block))
    flat = tf.transpose(tf.reshape(x, [batch * channels, -1]))
    total = tf.math.unsorted_segment_sum(flat, places.reshape(-1), int(np.prod(space)))
    result = tf.reshape(tf.transpose(total), [batch, channels, *space])
    cut = tuple(slice(pads[i], pads[i] + size) for i, size in enumerate(image))
    return result[(slice(None), slice(None), *cut)]
