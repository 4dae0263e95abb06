"""`tf.contrib.nn`: dropout for networks that keep the mean and the variance of what they compute."""

from __future__ import annotations

import numbers
from typing import Final

import anabranch as tf
from anabranch.contrib.arguments import TensorLike

#: what `tf.nn.selu` tends to for large negative numbers
_LEAST: Final = -1.7580993408473766


def alpha_dropout(
    x: TensorLike,
    keep_prob: TensorLike,
    noise_shape: TensorLike | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """Drops numbers to what `tf.nn.selu` saturates at, and keeps mean 0 and variance 1 (Klambauer et al. 2017, 3).

    Args:
        x: a floating tensor of any shape.
        keep_prob: how likely a number is to be kept; a scalar.
        noise_shape: which numbers are kept or dropped together; default: each for itself.
        seed: see `tf.set_random_seed`.
        name: of the operations.

    Returns:
        A tensor like `x`.

    Raises:
        ValueError: `keep_prob` is a number that is not in (0, 1], or no scalar.
    """
    with tf.name_scope(name, "alpha_dropout", [x]):
        x = tf.convert_to_tensor(x, name="x")
        if isinstance(keep_prob, numbers.Real) and not 0 < float(keep_prob) <= 1:
            raise ValueError(f"keep_prob must be a scalar tensor or a float in the range (0, 1], got {keep_prob}")
        keep = tf.convert_to_tensor(keep_prob, dtype=x.dtype, name="keep_prob")
        keep.shape.assert_has_rank(0)
        kept: tf.Tensor = x
        if tf.get_static_value(keep) == 1:
            return kept
        noise = tf.random_uniform(tf.shape(x) if noise_shape is None else noise_shape, seed=seed, dtype=x.dtype)
        is_kept = tf.cast(noise >= 1 - keep, x.dtype)
        dropped = x * is_kept + _LEAST * (1 - is_kept)
        factor = tf.rsqrt(keep + keep * (1 - keep) * _LEAST**2)
        result: tf.Tensor = factor * dropped - factor * _LEAST * (1 - keep)
        return result


def scaled_softplus(
    x: TensorLike, alpha: TensorLike, clip: TensorLike | None = None, name: str | None = None
) -> tf.Tensor:
    """Alpha * softplus(x / alpha), or the smaller of that and `clip`: a ramp whose corner is round for large alpha.

    Args:
        x: a floating tensor.
        alpha: positive, of the same dtype; broadcast.
        clip: of the same dtype; None: no limit.
        name: of the operations.

    Returns:
        A tensor of the dtype of `x`.
    """
    with tf.name_scope(name, "scaled_softplus", [x, alpha]):
        x = tf.convert_to_tensor(x, name="x")
        alpha = tf.convert_to_tensor(alpha, dtype=x.dtype, name="alpha")
        ramp: tf.Tensor = alpha * tf.nn.softplus(x / alpha)
        return ramp if clip is None else tf.minimum(ramp, tf.cast(clip, x.dtype))


def nth_element(input: TensorLike, n: TensorLike, reverse: bool = False, name: str | None = None) -> tf.Tensor:
    """The n-th smallest number of each row.

    Args:
        input: numbers [..., size].
        n: int32, from 0 on, less than size.
        reverse: whether the largest is number 0.
        name: of the operation.

    Returns:
        [...], the dtype of `input`.

    Raises:
        InvalidArgumentError: n is out of range.
    """
    result: tf.Tensor = tf.raw_ops.NthElement(input=input, n=n, reverse=reverse, name=name)
    return result
