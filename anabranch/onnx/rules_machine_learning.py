"""Import rules of the domains ai.onnx.ml and ai.onnx.preview.training."""

from __future__ import annotations

import numpy as np

import anabranch as tf
from anabranch.core.arrays import HostArray
from anabranch.onnx import models
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


@rule("Adam", 1, domain=_TRAINING)
def _adam(node: OnnxNode) -> tuple[tf.Tensor, ...]:
    count = (len(node.values) - 2) // 4
    rate, step = node.tensor(0), tf.cast(node.tensor(1), node.tensor(0).dtype)
    alpha, beta = node.real("alpha", 0.9), node.real("beta", 0.999)
    # The first step is number 0, and divides by nothing: the second branch must not make a NaN of it.
    power = tf.maximum(step, 1)
    corrected = tf.where_v2(step > 0, rate * tf.sqrt(1 - beta**power) / (1 - alpha**power), rate)
    values, means, squares = [], [], []
    for i in range(count):
        x, g, v, h = (node.tensor(2 + i + j * count) for j in range(4))
        g = g + node.real("norm_coefficient") * x
        means.append(alpha * v + (1 - alpha) * g)
        squares.append(beta * h + (1 - beta) * g * g)
        new = x - corrected * means[-1] / (tf.sqrt(squares[-1]) + node.real("epsilon", 1e-6))
        values.append((1 - node.real("norm_coefficient_post")) * new)
    return (*values, *means, *squares)


def _listed(node: OnnxNode, what: str) -> HostArray:
    """The keys or the values of a LabelEncoder, from the one attribute that holds them."""
    for kind, dtype in (("strings", object), ("int64s", np.int64), ("floats", np.float32)):
        if node.attr(f"{what}_{kind}") is not None:
            return np.array(node.attr(f"{what}_{kind}"), dtype)
    tensor = node.attr(f"{what}_tensor")
    if tensor is None:
        raise ValueError(f"{node.label} has no {what}")
    return models.array_of(tensor).reshape(-1)


@rule("LabelEncoder", 2, 4, domain=_ML)
def _label_encoder(node: OnnxNode) -> tf.Tensor:
    x, keys, values = node.tensor(), _listed(node, "keys"), _listed(node, "values")
    if keys.size != values.size:
        raise ValueError(f"{node.label} has {keys.size} keys and {values.size} values")
    default: HostArray
    if node.attr("default_tensor") is not None:
        default = models.array_of(node.attr("default_tensor")).reshape(())
    elif values.dtype == object:
        default = np.array(node.attr("default_string", b"_Unused"), object)
    else:
        kind, usual = ("default_int64", -1) if values.dtype.kind in "iu" else ("default_float", -0.0)
        default = np.array(node.attr(kind, usual), values.dtype)
    wide = tf.expand_dims(x, -1)
    found = tf.equal(wide, tf.constant(keys, x.dtype))
    if x.dtype.is_floating:  # A key that is no number stands for all that are none.
        found = tf.logical_or(found, tf.logical_and(tf.is_nan(wide), tf.constant(np.isnan(keys))))
    chosen = tf.gather(tf.constant(values), tf.argmax(tf.cast(found, tf.int32), -1))
    return tf.where_v2(tf.reduce_any(found, -1), chosen, tf.constant(default))
