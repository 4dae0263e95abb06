"""Weights divided by their spectral norm, which is found by the power method, a round in each step."""

from __future__ import annotations

import numbers
import re
from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn

_VECTOR = "spectral_norm_u"
_WEIGHTS = re.compile(r"(.*/)?(depthwise_|pointwise_)?(weights|kernel)")
_DTYPES = (tf.float16, tf.float32, tf.float64)


def compute_spectral_norm(w_tensor: PassedOn, power_iteration_rounds: int = 1, name: str | None = None) -> tf.Tensor:
    """The largest singular value of weights, as far as rounds of the power method have found it.

    The singular vector is a variable, so that each step goes on where the last one ended.

    Args:
        w_tensor: weights, whose last dimension is that of outputs; the others are taken together.
        power_iteration_rounds: how many rounds a step makes.
        name: of the variable scope.
    """
    with tf.variable_scope(name, "spectral_norm"):
        w = tf.reshape(w_tensor, [-1, w_tensor.get_shape().as_list()[-1]])
        rows = w.shape.as_list()[0]
        variable = tf.get_variable(_VECTOR, [rows, 1], w.dtype, tf.random_normal_initializer(), trainable=False)
        left: Any = variable
        right: Any = None
        for _ in range(power_iteration_rounds):
            right = tf.nn.l2_normalize(tf.matmul(w, left, transpose_a=True))
            left = tf.nn.l2_normalize(tf.matmul(w, right))
        with tf.control_dependencies([tf.assign(variable, left, name="update_u")]):
            left = tf.stop_gradient(tf.identity(left))
        norm = tf.matmul(tf.matmul(left, w, transpose_a=True), tf.stop_gradient(right))
        return norm[0][0]


def spectral_normalize(w: PassedOn, power_iteration_rounds: int = 1, name: str | None = None) -> tf.Tensor:
    """Weights by their spectral norm."""
    with tf.variable_scope(name, "spectral_normalize"):
        return tf.reshape(w / compute_spectral_norm(w, power_iteration_rounds), w.get_shape())


def spectral_norm_regularizer(
    scale: float, power_iteration_rounds: int = 1, scope: str | None = None
) -> Callable[..., Any]:
    """A regularizer: the spectral norm of weights, scaled; 0 switches it off.

    Raises:
        ValueError: the scale is an integer or negative.
    """
    if isinstance(scale, numbers.Integral):
        raise ValueError(f"scale cannot be an integer: {scale}")
    if isinstance(scale, numbers.Real) and scale < 0.0:
        raise ValueError(f"Setting a scale less than 0 on a regularizer: {scale:g}")
    if isinstance(scale, numbers.Real) and scale == 0.0:
        return lambda _: None

    def regularize(weights: PassedOn, name: str | None = None) -> Any:
        with tf.name_scope(scope, "SpectralNormRegularizer", [weights]) as name:
            factor = tf.convert_to_tensor(scale, dtype=weights.dtype.base_dtype, name="scale")
            return tf.multiply(factor, compute_spectral_norm(weights, power_iteration_rounds), name=name)

    return regularize


def _is_weight(name: str) -> bool:
    return _WEIGHTS.fullmatch(name) is not None


def spectral_normalization_custom_getter(
    name_filter: Callable[[str], bool] = _is_weight, power_iteration_rounds: int = 1
) -> Callable[..., Any]:
    """A `custom_getter` of variable scopes that gives weights by their spectral norm.

    Args:
        name_filter: says which variables, by their names; default: kernels and weights of layers.
        power_iteration_rounds: how many rounds a step makes.

    Raises:
        ValueError: the filter is not callable. The getter raises it for the variables that it makes itself, for
            vectors, and for what are no floats.
    """
    if not callable(name_filter):
        raise ValueError("name_filter must be callable")

    def normalized(getter: Callable[..., Any], name: str, *args: PassedOn, **kwargs: PassedOn) -> Any:
        if not name_filter(name):
            return getter(name, *args, **kwargs)
        if name.endswith(_VECTOR):
            raise ValueError(
                "Cannot apply Spectral Normalization to internal variables created for Spectral Normalization. Tried "
                f"to normalized variable [{name}]"
            )
        if kwargs["dtype"] not in _DTYPES:
            raise ValueError(f"Disallowed data type {kwargs['dtype']}")
        weights = getter(name, *args, **kwargs)
        if len(weights.get_shape()) < 2:
            raise ValueError("Spectral norm can only be applied to multi-dimensional tensors")
        return spectral_normalize(weights, power_iteration_rounds, name=f"{name}/spectral_normalize")

    return normalized
