"""Import rules of the domains ai.onnx.ml and ai.onnx.preview.training."""

from __future__ import annotations

import anabranch as tf
from anabranch.onnx.rules import OnnxNode, rule

_ML = "ai.onnx.ml"
_TRAINING = "ai.onnx.preview.training"


@rule("ArrayFeatureExtractor", 1, domain=_ML)
def _array_feature_extractor(node: OnnxNode) -> tf.Tensor:
    return tf.gather(node.tensor(), tf.reshape(node.tensor(1), [-1]), axis=-1)


@rule("Binarizer", 1, domain=_ML)
def _binarizer(node: OnnxNode) -> tf.Tensor:
    x = node.tensor()
    return tf.cast(x > tf.cast(node.real("threshold"), x.dtype), x.dtype)


@rule("Momentum", 1, domain=_TRAINING)
def _momentum(node: OnnxNode) -> tuple[tf.Tensor, ...]:
    count = (len(node.values) - 2) // 3
    rate, step = node.tensor(0), node.tensor(1)
    alpha, beta, decay = node.real("alpha"), node.real("beta"), node.real("norm_coefficient")
    values, momenta = [], []
    for i in range(count):
        x, g, v = (node.tensor(2 + i + j * count) for j in range(3))
        g = g + decay * x
        new = alpha * v + tf.where_v2(step > 0, tf.constant(beta), tf.constant(1.0)) * g
        momenta.append(new)
        values.append(x - rate * (g + alpha * new if node.text("mode") == "nesterov" else new))
    return (*values, *momenta)


@rule("Adagrad", 1, domain=_TRAINING)
def _adagrad(node: OnnxNode) -> tuple[tf.Tensor, ...]:
    count = (len(node.values) - 2) // 3
    rate = node.tensor(0) / (1 + tf.cast(node.tensor(1), tf.float32) * node.real("decay_factor"))
    values, squares = [], []
    for i in range(count):
        x, g, h = (node.tensor(2 + i + j * count) for j in range(3))
        g = g + node.real("norm_coefficient") * x
        squares.append(h + g * g)
        values.append(x - rate * g / (tf.sqrt(squares[-1]) + node.real("epsilon", 1e-6)))
    return (*values, *squares)
