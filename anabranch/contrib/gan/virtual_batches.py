"""Normalization of each example by its own statistics and those of a batch that stays the same."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn


class VBN:
    """Virtual batch normalization: called with a batch, it gives that batch normalized.

    Each example is normalized as if it were one more example of the reference batch.

    Args:
        reference_batch: of known rank.
        axis: the dimension of features.
        epsilon: added to the variance.
        center, scale: whether what is normalized is moved and multiplied, by variables that all calls share.
        beta_initializer, gamma_initializer, beta_regularizer, gamma_regularizer: of those.
        trainable: whether they are trained.
        name: of the variable scope.
        batch_axis: the dimension of examples.

    Raises:
        ValueError: the rank is not known, or an axis is out of range; both are the same.
    """

    def __init__(
        self,
        reference_batch: tf.Tensor,
        axis: int = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: PassedOn = None,
        gamma_initializer: PassedOn = None,
        beta_regularizer: PassedOn = None,
        gamma_regularizer: PassedOn = None,
        trainable: bool = True,
        name: str | None = None,
        batch_axis: int = 0,
    ) -> None:
        axis, self._batch_axis = (_in_range(reference_batch, one) for one in (axis, batch_axis))
        if axis == self._batch_axis:
            raise ValueError("`axis` and `batch_axis` cannot be the same.")
        self._epsilon = epsilon
        self._reference = reference_batch
        rank = int(reference_batch.shape.ndims or 0)
        self._axes = [one for one in range(rank) if one not in (axis, self._batch_axis)]
        features = reference_batch.shape.as_list()[axis]
        self._of_parameters = [features if one == axis else 1 for one in range(rank)]
        self._beta: Any = None
        self._gamma: Any = None
        with tf.variable_scope(name, "VBN", values=[reference_batch]) as scope:
            self._scope_name = scope.name
            self._mean, self._square = _statistics(reference_batch, [one for one in range(rank) if one != axis])
            size = tf.cast(tf.shape(reference_batch)[self._batch_axis], self._mean.dtype)
            self._weight = 1.0 / (size + 1.0)
            if center:
                self._beta = tf.get_variable(
                    "beta",
                    [features],
                    initializer=beta_initializer or tf.zeros_initializer(),
                    regularizer=beta_regularizer,
                    trainable=trainable,
                )
            if scale:
                self._gamma = tf.get_variable(
                    "gamma",
                    [features],
                    initializer=gamma_initializer or tf.ones_initializer(),
                    regularizer=gamma_regularizer,
                    trainable=trainable,
                )

    def reference_batch_normalization(self) -> tf.Tensor:
        """The reference batch, normalized by its own statistics."""
        with tf.name_scope(self._scope_name):
            return self._normalized(self._reference, self._mean, self._square)

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """A batch, normalized.

        Raises:
            ValueError: its shape is not that of the reference batch, the number of examples aside.
        """
        lengths, expected = (list(x.shape.as_list()) for x in (inputs, self._reference))
        for one in (lengths, expected):
            del one[self._batch_axis]
        tf.TensorShape(expected).assert_is_compatible_with(lengths)
        with tf.name_scope(self._scope_name, values=[inputs, self._reference]):
            mean, square = _statistics(inputs, self._axes)
            return self._normalized(
                inputs,
                self._weight * mean + (1.0 - self._weight) * self._mean,
                self._weight * square + (1.0 - self._weight) * self._square,
            )

    def _normalized(self, inputs: tf.Tensor, mean: PassedOn, square: PassedOn) -> tf.Tensor:
        beta, gamma = (
            None if one is None else tf.reshape(one, self._of_parameters) for one in (self._beta, self._gamma)
        )
        return tf.nn.batch_normalization(inputs, mean, square - tf.square(mean), beta, gamma, self._epsilon)


def _in_range(batch: tf.Tensor, axis: int) -> int:
    rank = batch.shape.ndims
    if rank is None:
        raise ValueError("`reference_batch` has unknown dimensions.")
    used = axis + rank if axis < 0 else axis
    if not 0 <= used < rank:
        raise ValueError(f"Value of `axis` argument {used} is out of range for input with rank {rank}")
    return used


def _statistics(x: tf.Tensor, axes: list[int]) -> tuple[Any, Any]:
    """Means of numbers and of their squares, of half precision ones in single precision; the dimensions are kept."""
    wide = tf.cast(x, tf.float32) if x.dtype == tf.float16 else x
    mean, square = (tf.reduce_mean(one, axes, keepdims=True) for one in (wide, tf.square(wide)))
    return tf.cast(mean, x.dtype), tf.cast(square, x.dtype)
