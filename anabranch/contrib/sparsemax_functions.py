"""`tf.contrib.sparsemax`: probabilities of which many are zero, and their loss (Martins and Astudillo 2016)."""

from __future__ import annotations

import anabranch as tf
from anabranch.contrib.arguments import TensorLike


def sparsemax(logits: TensorLike, name: str | None = None) -> tf.Tensor:
    """The point of the simplex that is nearest to each row: all less one threshold, and zero where that is negative.

    Args:
        logits: floats, [batch, classes].
        name: of the operations.

    Returns:
        [batch, classes]; rows that hold NaN or infinity, or negative infinity alone, are NaN.

    Example:
        >>> sess.run(tf.contrib.sparsemax.sparsemax([[1.0, 1.5, -3.0]])).tolist()
        [[0.25, 0.75, 0.0]]
    """
    with tf.name_scope(name, "sparsemax", [logits]):
        z = tf.convert_to_tensor(logits, name="logits")
        classes = tf.shape(z)[1]
        descending, _ = tf.nn.top_k(z, k=classes)
        sums = tf.cumsum(descending, axis=1)
        ranks = tf.cast(tf.range(1, classes + 1), z.dtype)
        is_supported = 1 + ranks * descending > sums
        support = tf.reduce_sum(tf.cast(is_supported, tf.int32), axis=1)
        last = tf.stack([tf.range(tf.shape(z)[0]), tf.maximum(support, 1) - 1], axis=1)
        threshold = (tf.gather_nd(sums, last) - 1) / tf.cast(tf.maximum(support, 1), z.dtype)
        nearest = tf.maximum(z - tf.expand_dims(threshold, 1), tf.zeros([], z.dtype))
        is_undefined = tf.equal(support, 0) | tf.is_nan(sums[:, -1])
        result: tf.Tensor = tf.where(is_undefined, tf.fill(tf.shape(z), tf.constant(float("nan"), z.dtype)), nearest)
        result.set_shape(z.shape)
        return result


def sparsemax_loss(logits: TensorLike, sparsemax: TensorLike, labels: TensorLike, name: str | None = None) -> tf.Tensor:
    """The loss of which `sparsemax` less the labels is the gradient, as of the cross entropy that of softmax is.

    Args:
        logits: floats, [batch, classes].
        sparsemax: what `sparsemax` makes of them.
        labels: probabilities, [batch, classes].
        name: of the operations.

    Returns:
        [batch].

    Example:
        >>> logits = tf.constant([[1.0, 1.5, -3.0]])
        >>> probabilities = tf.contrib.sparsemax.sparsemax(logits)
        >>> sess.run(tf.contrib.sparsemax.sparsemax_loss(logits, probabilities, [[0.0, 1.0, 0.0]])).tolist()
        [0.0625]
    """
    with tf.name_scope(name, "sparsemax_loss", [logits, sparsemax, labels]):
        z, p, q = (tf.convert_to_tensor(value) for value in (logits, sparsemax, labels))
        zeros = tf.zeros_like(p)
        # what has no part in a sum is taken out of it, and not multiplied by zero: its logit may be infinite
        of_support = tf.where((p > 0) | tf.is_nan(p), p * (z - 0.5 * p), zeros)
        of_labels = tf.where(tf.equal(q, 0) & tf.is_inf(z), zeros, q * (0.5 * q - z))
        result: tf.Tensor = tf.reduce_sum(of_support + of_labels, axis=1)
        return result
