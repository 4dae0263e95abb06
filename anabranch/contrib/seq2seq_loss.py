"""`tf.contrib.seq2seq`: the loss of sequences, and batches in which each row stands several times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import TensorLike


def sequence_loss(
    logits: TensorLike,
    targets: TensorLike,
    weights: TensorLike,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    sum_over_timesteps: bool = False,
    sum_over_batch: bool = False,
    softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """The weighted cross entropy of sequences of symbols.

    Args:
        logits: float [batch, time, symbols].
        targets: int [batch, time].
        weights: float [batch, time]: zeros leave steps out.
        average_across_timesteps: sum over time, divided by the sum of the weights.
        average_across_batch: the same over the batch.
        sum_over_timesteps: sum over time, divided by the number of weights that are not zero.
        sum_over_batch: the same over the batch.
        softmax_loss_function: called as f(labels=[n], logits=[n, symbols]) for [n]; default: sparse softmax.
        name: of the operation.

    Returns:
        A scalar where both dimensions are averaged or both summed, [batch] or [time] where one is, else [batch, time].
        Where one dimension is averaged and the other to be summed, only the average is taken.

    Raises:
        ValueError: wrong ranks, or a dimension is to be both averaged and summed.

    Example:
        >>> logits = tf.zeros([1, 2, 4])
        >>> sess.run(tf.contrib.seq2seq.sequence_loss(logits, tf.constant([[1, 2]]), tf.ones([1, 2])))
        np.float32(1.3862944)
    """
    logits, targets, weights = (tf.convert_to_tensor(v) for v in (logits, targets, weights))
    _check_rank("Logits", logits, 3, "[batch_size x sequence_length x logits]")
    _check_rank("Targets", targets, 2, "[batch_size x sequence_length]")
    _check_rank("Weights", weights, 2, "[batch_size x sequence_length]")
    if average_across_timesteps and sum_over_timesteps:
        raise ValueError("average_across_timesteps and sum_over_timesteps cannot be set to True at same time.")
    if average_across_batch and sum_over_batch:
        raise ValueError("average_across_batch and sum_over_batch cannot be set to True at same time.")
    with tf.name_scope(name, "sequence_loss", [logits, targets, weights]):
        losses = _losses(logits, targets, softmax_loss_function) * weights
        averaged = [axis for axis, on in enumerate((average_across_batch, average_across_timesteps)) if on]
        summed = [axis for axis, on in enumerate((sum_over_batch, sum_over_timesteps)) if on]
        if averaged:
            return tf.div_no_nan(tf.reduce_sum(losses, averaged), tf.reduce_sum(weights, averaged))
        if summed:
            count = tf.reduce_sum(tf.cast(tf.not_equal(weights, 0), losses.dtype), summed)
            return tf.div_no_nan(tf.reduce_sum(losses, summed), count)
        result: tf.Tensor = losses
        return result


def _check_rank(what: str, tensor: tf.Tensor, rank: int, layout: str) -> None:
    if tensor.shape.ndims != rank:
        raise ValueError(f"{what} must be a {layout} tensor, got shape {tensor.shape}")


def _losses(logits: TensorLike, targets: TensorLike, function: Callable[..., Any] | None) -> Any:
    """[batch, time]."""
    function = function or tf.nn.sparse_softmax_cross_entropy_with_logits
    flat = tf.reshape(logits, [-1, tf.shape(logits)[2]])
    losses = function(labels=tf.reshape(targets, [-1]), logits=flat)
    shaped = tf.reshape(losses, tf.shape(logits)[:2])
    shaped.set_shape(logits.shape[:2])
    return shaped


class SequenceLoss:
    """`sequence_loss` as an object, which by default sums over batch and time and divides by the weights that count.

    Args:
        average_across_timesteps, average_across_batch, sum_over_timesteps, sum_over_batch, softmax_loss_function: as
            for `sequence_loss`.
        name: of the operations.
    """

    def __init__(
        self,
        average_across_timesteps: bool = False,
        average_across_batch: bool = False,
        sum_over_timesteps: bool = True,
        sum_over_batch: bool = True,
        softmax_loss_function: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> None:
        self.average_across_timesteps, self.average_across_batch = average_across_timesteps, average_across_batch
        self.sum_over_timesteps, self.sum_over_batch = sum_over_timesteps, sum_over_batch
        self.softmax_loss_function, self.name = softmax_loss_function, name

    def __call__(
        self, targets: TensorLike, logits: TensorLike, weights: TensorLike, name: str | None = None
    ) -> tf.Tensor:
        """The loss; the targets come first here."""
        how = (self.average_across_timesteps, self.average_across_batch, self.sum_over_timesteps, self.sum_over_batch)
        return sequence_loss(logits, targets, weights, *how, self.softmax_loss_function, name or self.name)


def tile_batch(t: tf.nest.Structure, multiplier: int, name: str | None = None) -> tf.nest.Structure:
    """Repeats each row of a batch `multiplier` times, one after the other.

    Args:
        t: structure of tensors [batch, ...].
        multiplier: int.

    Returns:
        The same structure of tensors [batch * multiplier, ...].

    Raises:
        ValueError: a tensor's rank is not known, or 0.
    """
    with tf.name_scope(name, "tile_batch", [*tf.nest.flatten(t), multiplier]):
        return tf.nest.map_structure(lambda value: _tiled(tf.convert_to_tensor(value, name="t"), multiplier), t)


def _tiled(value: tf.Tensor, multiplier: int) -> Any:
    rank = value.shape.ndims
    if not rank:
        raise ValueError(f"t must have a batch dimension, {value.name} has shape {value.shape}")
    repeated = tf.tile(tf.expand_dims(value, 1), [1, multiplier] + [1] * (rank - 1))
    shape = tf.shape(value)
    tiled = tf.reshape(repeated, tf.concat([shape[:1] * multiplier, shape[1:]], 0))
    known = value.shape.as_list()[0]
    times = tf.get_static_value(multiplier) if isinstance(multiplier, tf.Tensor) else multiplier
    tiled.set_shape([None if known is None or times is None else known * int(times), *value.shape.as_list()[1:]])
    return tiled
