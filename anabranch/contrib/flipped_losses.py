"""`tf.contrib.nn`: cross entropies with the arguments of TensorFlow's first versions, (logits, labels)."""

from __future__ import annotations

import anabranch as tf
from anabranch.contrib.arguments import TensorLike


def flipped_softmax_cross_entropy(
    logits: TensorLike, labels: TensorLike, dim: int = -1, name: str | None = None
) -> tf.Tensor:
    """`tf.nn.softmax_cross_entropy_with_logits` whose logits come first, without a gradient for the labels.

    Args:
        logits: float [..., classes].
        labels: probabilities of the same shape and dtype.
        dim: the dimension of the classes.
        name: of the operation.

    Returns:
        The cross entropies, of the shape of `logits` without `dim`.
    """
    return tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits, dim=dim, name=name)


def flipped_sparse_softmax_cross_entropy(logits: TensorLike, labels: TensorLike, name: str | None = None) -> tf.Tensor:
    """`tf.nn.sparse_softmax_cross_entropy_with_logits` whose logits come first.

    Args:
        logits: float [..., classes].
        labels: int32 or int64 [...]: the classes.
        name: of the operation.

    Returns:
        The cross entropies [...].
    """
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name=name)


def flipped_sigmoid_cross_entropy(logits: TensorLike, targets: TensorLike, name: str | None = None) -> tf.Tensor:
    """`tf.nn.sigmoid_cross_entropy_with_logits` whose logits come first.

    Args:
        logits: float, of any shape.
        targets: probabilities of the same shape and dtype.
        name: of the operation.

    Returns:
        The cross entropies, of the same shape.
    """
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=logits, name=name)
