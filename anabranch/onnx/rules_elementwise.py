"""Import rules of operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

import anabranch as tf
from anabranch.core.arrays import HostArray
from anabranch.onnx import element_types
from anabranch.onnx.element_types import NarrowTensor, NarrowType, narrowed
from anabranch.onnx.rules import OnnxNode, rule

_UNARY: dict[str, tuple[Callable[[tf.Tensor], tf.Tensor], tuple[int, ...]]] = {
    "Abs": (tf.abs, (1, 6, 13)),
    "Acos": (tf.acos, (7, 22)),
    "Acosh": (tf.acosh, (9, 22)),
    "Asin": (tf.asin, (7, 22)),
    "Asinh": (tf.asinh, (9, 22)),
    "Atan": (tf.atan, (7, 22)),
    "Atanh": (tf.atanh, (9, 22)),
    "BitwiseNot": (tf.bitwise.invert, (18,)),
    "Ceil": (tf.math.ceil, (1, 6, 13)),
    "Cos": (tf.cos, (7, 22)),
    "Cosh": (tf.cosh, (9, 22)),
    "Erf": (tf.erf, (9, 13)),
    "Exp": (tf.exp, (1, 6, 13)),
    "Floor": (tf.floor, (1, 6, 13)),
    "Identity": (tf.identity, (1, 13, 14, 16, 19, 21, 23)),
    "IsNaN": (tf.math.is_nan, (9, 13, 20)),
    "Log": (tf.math.log, (1, 6, 13)),
    "Neg": (tf.negative, (1, 6, 13)),
    "Not": (tf.logical_not, (1,)),
    "Reciprocal": (tf.math.reciprocal, (1, 6, 13)),
    "Relu": (tf.nn.relu, (1, 6, 13, 14)),
    "Round": (tf.round, (11, 22)),
    "Sigmoid": (tf.sigmoid, (1, 6, 13)),
    "Sign": (tf.sign, (9, 13)),
    "Sin": (tf.sin, (7, 22)),
    "Sinh": (tf.sinh, (9, 22)),
    "Softplus": (tf.nn.softplus, (1, 22)),
    "Softsign": (tf.nn.softsign, (1, 22)),
    "Sqrt": (tf.sqrt, (1, 6, 13)),
    "Tan": (tf.tan, (7, 22)),
    "Tanh": (tf.tanh, (1, 6, 13)),
}


def _divide(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.truncatediv(x, y) if x.dtype.is_integer else tf.divide(x, y)


def _power(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    if x.dtype == y.dtype:
        return tf.pow(x, y)
    wide = tf.float64 if x.dtype.is_integer and y.dtype.is_floating else x.dtype
    return tf.cast(tf.pow(tf.cast(x, wide), tf.cast(y, wide)), x.dtype)


_BINARY: dict[str, tuple[Callable[[tf.Tensor, tf.Tensor], tf.Tensor], tuple[int, ...]]] = {
    "Add": (tf.add, (1, 6, 7, 13, 14)),
    "And": (tf.logical_and, (1, 7)),
    "BitwiseAnd": (tf.bitwise.bitwise_and, (18,)),
    "BitwiseOr": (tf.bitwise.bitwise_or, (18,)),
    "BitwiseXor": (tf.bitwise.bitwise_xor, (18,)),
    "Div": (_divide, (1, 6, 7, 13, 14)),
    "Equal": (tf.equal, (1, 7, 11, 13, 19)),
    "Greater": (tf.greater, (1, 7, 9, 13)),
    "GreaterOrEqual": (tf.greater_equal, (12, 16)),
    "Less": (tf.less, (1, 7, 9, 13)),
    "LessOrEqual": (tf.less_equal, (12, 16)),
    "Mul": (tf.multiply, (1, 6, 7, 13, 14)),
    "Or": (tf.logical_or, (1, 7)),
    "Pow": (_power, (1, 7, 12, 13, 15)),
    "PRelu": (lambda x, slope: tf.where_v2(x < 0, x * slope, x), (1, 6, 7, 9, 16)),
    "Sub": (tf.subtract, (1, 6, 7, 13, 14)),
    "Xor": (tf.logical_xor, (1, 7)),
}


def _register_unary(name: str, function: Callable[[tf.Tensor], tf.Tensor], versions: tuple[int, ...]) -> None:
    @rule(name, *versions)
    def unary(node: OnnxNode) -> tf.Tensor:
        return function(node.tensor())


def _register_binary(
    name: str, function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], versions: tuple[int, ...]
) -> None:
    @rule(name, *versions)
    def binary(node: OnnxNode) -> tf.Tensor:
        x, y = node.tensor(0), node.tensor(1)
        if node.since < 7 and node.integer("broadcast"):
            y = _legacy_broadcast(node, x, y)
        return function(x, y)


def _legacy_broadcast(node: OnnxNode, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Before operator set 7 the second argument stands at an axis of the first."""
    after = node.rank(0) - node.integer("axis", node.rank(0) - node.rank(1)) - node.rank(1)
    return tf.reshape(y, tf.concat([tf.shape(y), [1] * after], 0)) if after > 0 else y


for _name, (_function, _versions) in _UNARY.items():
    if _name != "Identity":
        _register_unary(_name, _function, _versions)
for _name, (_binary, _versions) in _BINARY.items():
    _register_binary(_name, _binary, _versions)


@rule("Identity", 1, 13, 14, 16, 19, 21, 23)
def _identity(node: OnnxNode) -> tf.Tensor | list[tf.Tensor] | None:
    value = node.values[0]
    return [tf.identity(x) for x in value] if isinstance(value, list) else tf.identity(node.tensor())


def _fold(node: OnnxNode, function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]) -> tf.Tensor:
    result = tf.identity(node.tensor(0))
    for index in range(1, len(node.values)):
        result = function(result, node.tensor(index))
    return result


@rule("Max", 1, 6, 8, 12, 13)
def _max(node: OnnxNode) -> tf.Tensor:
    return _fold(node, _propagating(tf.maximum))


@rule("Min", 1, 6, 8, 12, 13)
def _min(node: OnnxNode) -> tf.Tensor:
    return _fold(node, _propagating(tf.minimum))


def _propagating(function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Computes 8- and 16-bit integers in 32 bits: TensorFlow has no such kernels."""

    def combine(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        if x.dtype in (tf.int8, tf.uint8, tf.int16, tf.uint16, tf.uint32):
            return tf.cast(function(tf.cast(x, tf.int64), tf.cast(y, tf.int64)), x.dtype)
        if x.dtype == tf.uint64:
            larger = tf.where_v2(tf.greater(x, y), x, y)
            return larger if function is tf.maximum else x + y - larger
        return function(x, y)

    return combine


@rule("Sum", 1, 6, 8, 13)
def _sum(node: OnnxNode) -> tf.Tensor:
    return _fold(node, tf.add)


@rule("Mean", 1, 6, 8, 13)
def _mean(node: OnnxNode) -> tf.Tensor:
    return _fold(node, tf.add) / tf.constant(len(node.values), node.tensor().dtype)


@rule("Mod", 10, 13)
def _mod(node: OnnxNode) -> tf.Tensor:
    x, y = node.tensor(0), node.tensor(1)
    if not node.integer("fmod"):
        return tf.floormod(x, y)
    if x.dtype.is_integer:
        return x - y * tf.truncatediv(x, y)
    return tf.truncatemod(x, y)


@rule("BitShift", 11)
def _bit_shift(node: OnnxNode) -> tf.Tensor:
    left = node.text("direction") == "LEFT"
    shift = tf.bitwise.left_shift if left else tf.bitwise.right_shift
    return shift(node.tensor(0), node.tensor(1))


@rule("IsInf", 10, 20)
def _is_inf(node: OnnxNode) -> tf.Tensor:
    x = node.tensor()
    zero = tf.zeros_like(x)
    result = tf.math.is_inf(x)
    if not node.integer("detect_negative", 1):
        result = tf.logical_and(result, x > zero)
    if not node.integer("detect_positive", 1):
        result = tf.logical_and(result, x < zero)
    return result


@rule("Where", 9, 16)
def _where(node: OnnxNode) -> tf.Tensor:
    return tf.where_v2(node.tensor(0), node.tensor(1), node.tensor(2))


@rule("Clip", 1, 6, 11, 12, 13)
def _clip(node: OnnxNode) -> tf.Tensor:
    x = node.tensor()
    low: tf.Tensor | None = node.optional(1)
    high: tf.Tensor | None = node.optional(2)
    if node.since < 11:
        low = tf.constant(node.real("min", float("-inf")), x.dtype)
        high = tf.constant(node.real("max", float("inf")), x.dtype)
    result = tf.identity(x)
    if low is not None:
        result = _propagating(tf.maximum)(result, low)
    return result if high is None else _propagating(tf.minimum)(result, high)


@rule("Elu", 1, 6, 22)
def _elu(node: OnnxNode) -> tf.Tensor:
    x, alpha = node.tensor(), node.real("alpha", 1.0)
    return tf.where_v2(x < 0, tf.cast(alpha, x.dtype) * tf.math.expm1(x), x)


@rule("Selu", 1, 6, 22)
def _selu(node: OnnxNode) -> tf.Tensor:
    x = node.tensor()
    alpha = node.real("alpha", 1.67326319217681884765625)
    gamma = node.real("gamma", 1.05070102214813232421875)
    return tf.cast(gamma, x.dtype) * tf.where_v2(x > 0, x, tf.cast(alpha, x.dtype) * tf.math.expm1(x))


@rule("LeakyRelu", 1, 6, 16)
def _leaky_relu(node: OnnxNode) -> tf.Tensor:
    return tf.nn.leaky_relu(node.tensor(), node.real("alpha", 0.01))


@rule("HardSigmoid", 1, 6, 22)
def _hard_sigmoid(node: OnnxNode) -> tf.Tensor:
    x = node.tensor()
    line = tf.cast(node.real("alpha", 0.2), x.dtype) * x + tf.cast(node.real("beta", 0.5), x.dtype)
    return tf.clip_by_value(line, tf.cast(0, x.dtype), tf.cast(1, x.dtype))


@rule("Cast", 1, 6, 9, 13, 19, 21, 23)
def _cast(node: OnnxNode) -> tf.Tensor | NarrowTensor:
    number = node.integer("to") if node.since >= 6 else TensorProto.DataType.Value(node.text("to"))
    narrow = element_types.narrow(number)
    return _cast_to(node, narrow or element_types.dtype_of(number, node.label))


@rule("CastLike", 15, 19, 21, 23)
def _cast_like(node: OnnxNode) -> tf.Tensor | NarrowTensor:
    like = node.values[1]
    return _cast_to(node, like.type if isinstance(like, NarrowTensor) else node.tensor(1).dtype)


def _cast_to(node: OnnxNode, target: tf.DType | NarrowType) -> tf.Tensor | NarrowTensor:
    value = node.values[0]
    if isinstance(value, NarrowTensor):
        if value.type == target:
            return value
        x = value.tensor
    else:
        x = node.tensor()
    if not isinstance(target, NarrowType):
        return _converted(x, target)
    wide = _converted(x, tf.float64) if x.dtype == tf.string else x
    return narrowed(wide, target, bool(node.integer("saturate", 1)))


def _converted(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    if x.dtype == dtype:
        return tf.identity(x)
    if dtype == tf.string:
        return tf.py_func(_shortest, [x], tf.string, stateful=False) if x.dtype.is_floating else tf.as_string(x)
    if x.dtype == tf.string:
        number = tf.string_to_number(x, tf.float64 if dtype != tf.float32 else dtype)
        return tf.cast(number, dtype)
    return tf.cast(x, dtype)


def _shortest(x: HostArray) -> HostArray:
    return np.array([str(value).encode() for value in x.reshape(-1)], object).reshape(x.shape)
