"""Regularizers: functions from weights to a loss."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence

import anabranch as tf
from anabranch.contrib.arguments import TensorLike

Regularizer = Callable[..., tf.Tensor | None]


def _no_loss(_: TensorLike, name: str | None = None) -> None:
    return


def _checked_scale(scale: TensorLike, name: str) -> bool:
    """Whether there is anything to add; raises ValueError for a scale that is an integer or negative."""
    if isinstance(scale, numbers.Integral):
        raise ValueError(f"{name} cannot be an integer: {scale}; write {scale}.0")
    if isinstance(scale, numbers.Real):
        if scale < 0.0:
            raise ValueError(f"setting a {name} less than 0 on a regularizer: {scale}")
        return scale != 0.0
    return True


def _sum_of_magnitudes(weights: tf.Tensor) -> tf.Tensor:
    every = (
        list(range(weights.shape.ndims))
        if weights.shape.ndims is not None
        else tf.raw_ops.Range(start=0, limit=tf.raw_ops.Rank(input=weights), delta=1)
    )
    return tf.raw_ops.Sum(input=tf.raw_ops.Abs(x=weights), axis=tf.convert_to_tensor(every, "int32"))


def _scaled(scale: TensorLike, loss: tf.Tensor, name: str) -> tf.Tensor:
    return tf.raw_ops.Mul(x=tf.convert_to_tensor(scale, loss.dtype, name="scale"), y=loss, name=name)


def l1_regularizer(scale: TensorLike, scope: str | None = None) -> Regularizer:
    """``scale * sum(abs(weights))``.

    Args:
        scale: a floating-point number >= 0 (0: no loss), or a tensor.
        scope: name scope of the loss.

    Raises:
        ValueError: `scale` is an integer or negative.
    """
    if not _checked_scale(scale, "scale"):
        return _no_loss

    def l1(weights: TensorLike, name: str | None = None) -> tf.Tensor:
        with tf.get_default_graph().name_scope(scope or name or "l1_regularizer") as full_name:
            return _scaled(scale, _sum_of_magnitudes(tf.convert_to_tensor(weights)), full_name)

    return l1


def l2_regularizer(scale: TensorLike, scope: str | None = None) -> Regularizer:
    """``scale * sum(weights ** 2) / 2``; arguments and errors as those of `l1_regularizer`.

    Args:
        scale: a number, not negative; 0 regularizes nothing.
        scope: name scope of the operations.

    Returns:
        A function from a tensor of any shape to a scalar.

    Raises:
        ValueError: `scale` is negative, or an integer.

    Example:
        >>> regularizer = tf.contrib.layers.l2_regularizer(0.1)
        >>> sess.run(regularizer(tf.constant([3.0, 4.0])))
        np.float32(1.25)
    """
    if not _checked_scale(scale, "scale"):
        return _no_loss

    def l2(weights: TensorLike, name: str | None = None) -> tf.Tensor:
        with tf.get_default_graph().name_scope(scope or name or "l2_regularizer") as full_name:
            return _scaled(scale, tf.raw_ops.L2Loss(t=tf.convert_to_tensor(weights)), full_name)

    return l2


def l1_l2_regularizer(scale_l1: TensorLike = 1.0, scale_l2: TensorLike = 1.0, scope: str | None = None) -> Regularizer:
    """The sum of both; errors as those of `l1_regularizer`."""
    with_l1, with_l2 = _checked_scale(scale_l1, "scale_l1"), _checked_scale(scale_l2, "scale_l2")
    scope = scope or "l1_l2_regularizer"
    parts = [l1_regularizer(scale_l1)] if with_l1 else []
    parts += [l2_regularizer(scale_l2)] if with_l2 else []
    return sum_regularizer(parts, scope) if parts else _no_loss


def sum_regularizer(regularizer_list: Sequence[Regularizer | None], scope: str | None = None) -> Regularizer:
    """The sum of several regularizers; None among them is passed over."""
    regularizers = [r for r in regularizer_list if r is not None]
    if not regularizers:
        return _no_loss

    def total(weights: TensorLike) -> tf.Tensor | None:
        with tf.get_default_graph().name_scope(scope or "sum_regularizer") as full_name:
            losses = [loss for loss in (r(weights) for r in regularizers) if loss is not None]
            if not losses:
                return None
            return tf.raw_ops.AddN(inputs=losses, name=full_name)

    return total


def apply_regularization(regularizer: Regularizer, weights_list: Sequence[TensorLike] | None = None) -> tf.Tensor:
    """The summed loss of several weights, also added to `GraphKeys.REGULARIZATION_LOSSES`.

    Args:
        weights_list: default: `GraphKeys.WEIGHTS`.

    Raises:
        ValueError: there are no weights.
    """
    graph = tf.get_default_graph()
    weights = graph.get_collection(tf.GraphKeys.WEIGHTS) if weights_list is None else list(weights_list)
    if not weights:
        raise ValueError("no weights to regularize: give weights_list, or add variables to GraphKeys.WEIGHTS")
    with graph.name_scope("get_regularization_penalty") as full_name:
        losses = [loss for loss in (regularizer(w) for w in weights) if loss is not None]
        total: tf.Tensor = (
            tf.raw_ops.AddN(inputs=losses, name=full_name) if losses else tf.convert_to_tensor(0.0, name=full_name)
        )
    graph.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, total)
    return total
