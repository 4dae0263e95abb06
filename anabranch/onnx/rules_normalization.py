"""Import rules of normalizations and of dropout."""

from __future__ import annotations

import anabranch as tf
from anabranch.onnx import element_types
from anabranch.onnx.rules import OnnxNode, rule


def _along_channels(node: OnnxNode, index: int) -> tf.Tensor:
    return tf.reshape(node.tensor(index), [1, -1] + [1] * (node.rank() - 2))


@rule("BatchNormalization", 1, 6, 7, 9, 14, 15)
def _batch_normalization(node: OnnxNode) -> tuple[tf.Tensor, ...]:
    x, epsilon = node.tensor(), node.real("epsilon", 1e-5)
    scale, offset = _along_channels(node, 1), _along_channels(node, 2)
    mean, variance = node.tensor(3), node.tensor(4)
    training = node.integer("training_mode") if node.since >= 14 else node.outputs > 1
    if not training:
        shape = [1, -1] + [1] * (node.rank() - 2)
        factor = scale * tf.rsqrt(tf.reshape(variance, shape) + tf.cast(epsilon, variance.dtype))
        return (tf.cast(x * factor + (offset - tf.reshape(mean, shape) * factor), x.dtype),)
    axes = [i for i in range(node.rank()) if i != 1]
    now_mean, now_variance = tf.nn.moments(x, axes, keep_dims=True)
    result = (x - now_mean) * tf.rsqrt(now_variance + epsilon) * scale + offset
    keep = node.real("momentum", 0.9)
    means = mean * keep + tf.reshape(now_mean, [-1]) * (1 - keep)
    variances = variance * keep + tf.reshape(now_variance, [-1]) * (1 - keep)
    return result, means, variances


@rule("InstanceNormalization", 1, 6, 22)
def _instance_normalization(node: OnnxNode) -> tf.Tensor:
    x = node.tensor()
    mean, variance = tf.nn.moments(x, list(range(2, node.rank())), keep_dims=True)
    normal = (x - mean) * tf.rsqrt(variance + tf.cast(node.real("epsilon", 1e-5), x.dtype))
    return normal * _along_channels(node, 1) + _along_channels(node, 2)


@rule("LRN", 1, 13)
def _lrn(node: OnnxNode) -> tf.Tensor:
    x, size = node.tensor(), node.integer("size")
    low = (size - 1) // 2
    squares = tf.pad(x * x, [[0, 0], [low, size - 1 - low]] + [[0, 0]] * (node.rank() - 2))
    channels = tf.shape(x)[1]
    total = tf.add_n([squares[:, i : i + channels] for i in range(size)])
    alpha, beta, bias = node.real("alpha", 1e-4), node.real("beta", 0.75), node.real("bias", 1.0)
    return x / tf.pow(bias + alpha / size * total, beta)


@rule("LpNormalization", 1, 22)
def _lp_normalization(node: OnnxNode) -> tf.Tensor:
    x, axis = node.tensor(), node.axis(-1)
    if node.integer("p", 2) == 1:
        return x / tf.reduce_sum(tf.abs(x), axis, keepdims=True)
    return x / tf.sqrt(tf.reduce_sum(x * x, axis, keepdims=True))


@rule("Dropout", 1, 6, 7, 10, 12, 13, 22)
def _dropout(node: OnnxNode) -> tuple[tf.Tensor, ...]:
    x = node.tensor()
    ratio = tf.cast(node.tensor(1), x.dtype) if node.has(1) else tf.cast(node.real("ratio", 0.5), x.dtype)
    training = tf.get_static_value(node.tensor(2)) if node.has(2) else False
    if training is None:
        training = node.static(2)
    everything = tf.ones_like(x, tf.bool)
    if not training:
        return tf.identity(x), everything
    seed = node.integer("seed") if node.attr("seed") is not None else None
    keep = tf.random.uniform(tf.shape(x), dtype=tf.float32, seed=seed) >= tf.cast(ratio, tf.float32)
    return tf.where_v2(keep, x / (tf.cast(1, x.dtype) - ratio), tf.zeros_like(x)), keep


def _random(node: OnnxNode, shape: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Random numbers; ONNX leaves the generator open, so equal seeds give other numbers in other libraries."""
    if node.attr("dtype") is not None or not dtype.is_floating:
        dtype = element_types.dtype_of(node.integer("dtype", 1), node.label)
    seed = int(node.real("seed")) if node.attr("seed") is not None else None
    if node.proto.op_type.startswith("RandomUniform"):
        return tf.random.uniform(shape, node.real("low", 0.0), node.real("high", 1.0), dtype, seed)
    return tf.random.normal(shape, node.real("mean", 0.0), node.real("scale", 1.0), dtype, seed)


@rule("RandomUniformLike", 1, 22)
@rule("RandomNormalLike", 1, 22)
def _random_like(node: OnnxNode) -> tf.Tensor:
    return _random(node, tf.shape(node.tensor()), node.tensor().dtype)


@rule("RandomUniform", 1, 22)
@rule("RandomNormal", 1, 22)
def _random_of_shape(node: OnnxNode) -> tf.Tensor:
    return _random(node, tf.constant(node.ints("shape") or [], tf.int32), tf.float32)
