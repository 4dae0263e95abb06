"""Import rules of quantized operators, for integers of 4, 8 and 16 bits and narrow floating-point types."""

from __future__ import annotations

import anabranch as tf
from anabranch.onnx import element_types
from anabranch.onnx.element_types import NarrowTensor, NarrowType, narrowed
from anabranch.onnx.rules import OnnxNode, rank_of, rule
from anabranch.onnx.rules_linear import convolution, product


def _spread(value: tf.Tensor, x: tf.Tensor, axis: int, block: int) -> tf.Tensor:
    """A scale or a zero point beside the elements it belongs to: of all, of a slice, or of a block of an axis."""
    if value.shape.ndims == 0 or (value.shape.ndims == 1 and value.shape.num_elements() == 1):
        return tf.reshape(value, [])
    if value.shape.ndims == 1:
        return tf.reshape(value, [-1 if i == axis % rank_of(x) else 1 for i in range(rank_of(x))])
    repeated = tf.repeat(value, block, axis=axis) if block else value
    if block:
        repeated = tf.slice(repeated, [0] * rank_of(x), tf.shape(x))
    return repeated


def _quantized(x: tf.Tensor, scale: tf.Tensor, zero: tf.Tensor | None, dtype: tf.DType) -> tf.Tensor:
    steps = tf.cast(tf.round(x / scale), tf.float64)
    steps = steps + tf.cast(zero, tf.float64) if zero is not None else steps
    return tf.cast(tf.clip_by_value(steps, float(dtype.min), float(dtype.max)), dtype)


def _plain(node: OnnxNode, index: int) -> tuple[tf.Tensor | None, NarrowType | None]:
    """An input as a tensor of numbers, and its type if TensorFlow has not that type."""
    value = node.values[index] if node.has(index) else None
    if isinstance(value, NarrowTensor):
        return value.tensor, value.type
    return node.optional(index), None


@rule("QuantizeLinear", 10, 13, 19, 21, 23)
def _quantize_linear(node: OnnxNode) -> tf.Tensor | NarrowTensor:
    x, axis, block = node.tensor(), node.integer("axis", 1), node.integer("block_size")
    zero, narrow = _plain(node, 2)
    number = node.integer("output_dtype")
    if zero is None and number:
        narrow = element_types.narrow(number)
    point = _spread(zero, x, axis, block) if zero is not None else None
    scale = tf.cast(_spread(node.tensor(1), x, axis, block), x.dtype)
    if narrow is not None:
        steps = x / scale
        if narrow.carrier.is_integer:  # Rounded before the zero point is added: ties are even in steps.
            steps = tf.round(steps)
        steps = steps if point is None else steps + tf.cast(point, steps.dtype)
        return narrowed(steps, narrow, bool(node.integer("saturate", 1)))
    dtype = zero.dtype if zero is not None else element_types.dtype_of(number, node.label) if number else tf.uint8
    return _quantized(x, scale, point, dtype)


@rule("DequantizeLinear", 10, 13, 19, 21, 23)
def _dequantize_linear(node: OnnxNode) -> tf.Tensor:
    axis, block = node.integer("axis", 1), node.integer("block_size")
    x, _ = _plain(node, 0)
    zero, _ = _plain(node, 2)
    if x is None:
        raise ValueError(f"{node.label} has nothing to dequantize")
    scale = _spread(node.tensor(1), x, axis, block)
    centered = x if x.dtype.is_floating else tf.cast(x, tf.int32)
    if zero is not None:
        centered = centered - tf.cast(_spread(zero, x, axis, block), centered.dtype)
    return tf.cast(centered, scale.dtype) * scale


@rule("QLinearMatMul", 10, 21)
def _qlinear_matmul(node: OnnxNode) -> tf.Tensor:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = [node.tensor(i) for i in range(8)]
    exact = product(
        tf.cast(a, tf.float64) - tf.cast(a_zero, tf.float64), tf.cast(b, tf.float64) - tf.cast(b_zero, tf.float64)
    )
    factor = tf.cast(a_scale, tf.float64) * tf.cast(b_scale, tf.float64) / tf.cast(scale, tf.float64)
    return _quantized(exact * factor, tf.constant(1.0, tf.float64), zero, zero.dtype)


@rule("QLinearConv", 10)
def _qlinear_conv(node: OnnxNode) -> tf.Tensor:
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero = [node.tensor(i) for i in range(8)]
    rank = node.rank()

    def outer(value: tf.Tensor) -> tf.Tensor:
        wide = tf.cast(value, tf.float64)
        return tf.reshape(wide, [-1] + [1] * (rank - 1)) if wide.shape.ndims else wide

    exact = convolution(
        node, tf.cast(x, tf.float64) - tf.cast(x_zero, tf.float64), tf.cast(w, tf.float64) - outer(w_zero)
    )
    factor = tf.cast(x_scale, tf.float64) * tf.cast(w_scale, tf.float64) / tf.cast(scale, tf.float64)
    channels = [1, -1] + [1] * (rank - 2)
    if node.has(8):
        exact = exact + tf.reshape(tf.cast(node.tensor(8), tf.float64), channels)
    factor = tf.reshape(factor, channels) if factor.shape.ndims else factor
    return _quantized(exact * factor, tf.constant(1.0, tf.float64), zero, zero.dtype)
