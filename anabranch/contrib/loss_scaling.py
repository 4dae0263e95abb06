"""`tf.contrib.mixed_precision`: losses that are scaled so that small gradients stay apart from zero in float16."""

from __future__ import annotations

import abc
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import GradientsAndVariables, PassedOn


class LossScaleManager(abc.ABC):
    """Says by how much a loss is scaled, and learns from gradients that were not finite."""

    @abc.abstractmethod
    def get_loss_scale(self) -> PassedOn:
        """The scale: float32, shape []."""

    @abc.abstractmethod
    def update_loss_scale(self, finite_grads: tf.Tensor) -> tf.Operation:
        """Adds what adapts the scale.

        Args:
            finite_grads: bool []: whether all gradients of the step are finite.
        """


class FixedLossScaleManager(LossScaleManager):
    """A scale that stays what it is.

    Args:
        loss_scale: at least 1.

    Raises:
        ValueError: it is less.
    """

    def __init__(self, loss_scale: float) -> None:
        if loss_scale < 1:
            raise ValueError("loss scale must be at least 1.")
        self._loss_scale = tf.convert_to_tensor(loss_scale, tf.float32)

    def get_loss_scale(self) -> tf.Tensor:
        """See `LossScaleManager.get_loss_scale`."""
        return self._loss_scale

    def update_loss_scale(self, finite_grads: tf.Tensor) -> tf.Operation:
        """An operation that does nothing."""
        del finite_grads
        return tf.no_op()


class ExponentialUpdateLossScaleManager(LossScaleManager):
    """A scale that grows after some steps in a row with finite gradients, and shrinks after some without.

    It stays at least 1 and a finite float32. A change starts both counts anew; steps without finite gradients need not
    come in a row. Scale and counts are the global variables "loss_scale", "good_steps" and "bad_steps".

    Args:
        init_loss_scale: at the beginning.
        incr_every_n_steps: steps in a row with finite gradients before it grows.
        decr_every_n_nan_or_inf: steps without before it shrinks.
        incr_ratio: what it is multiplied by where it grows.
        decr_ratio: and where it shrinks.
    """

    def __init__(
        self,
        init_loss_scale: float,
        incr_every_n_steps: int,
        decr_every_n_nan_or_inf: int = 2,
        incr_ratio: float = 2,
        decr_ratio: float = 0.8,
    ) -> None:
        self._incr_every_n_steps = incr_every_n_steps
        self._decr_every_n_nan_or_inf = decr_every_n_nan_or_inf
        self._incr_ratio, self._decr_ratio = incr_ratio, decr_ratio
        start = tf.convert_to_tensor(init_loss_scale, tf.float32)
        self._loss_scale = tf.Variable(start, trainable=False, name="loss_scale")
        self._num_good_steps = tf.Variable(0, trainable=False, name="good_steps")
        self._num_bad_steps = tf.Variable(0, trainable=False, name="bad_steps")

    def get_loss_scale(self) -> tf.Variable:
        """The variable that holds the scale."""
        return self._loss_scale

    def update_loss_scale(self, finite_grads: tf.Tensor) -> tf.Operation:
        """See `LossScaleManager.update_loss_scale`."""
        scale = tf.convert_to_tensor(self._loss_scale)
        good = tf.where(finite_grads, self._num_good_steps + 1, 0)
        bad = self._num_bad_steps + tf.cast(tf.logical_not(finite_grads), tf.int32)
        grows = good >= self._incr_every_n_steps
        shrinks = tf.logical_and(tf.logical_not(finite_grads), bad >= self._decr_every_n_nan_or_inf)
        larger = scale * self._incr_ratio
        larger = tf.where(tf.is_finite(larger), larger, scale)
        smaller = tf.maximum(1.0, scale * self._decr_ratio)
        changes = tf.logical_or(grows, shrinks)
        return tf.group(
            self._loss_scale.assign(tf.where(grows, larger, tf.where(shrinks, smaller, scale))),
            self._num_good_steps.assign(tf.where(changes, 0, good)),
            self._num_bad_steps.assign(tf.where(changes, 0, bad)),
        )


class LossScaleOptimizer(tf.train.Optimizer):
    """Multiplies the loss before another optimizer computes gradients, which are divided again.

    Steps whose gradients are not all finite change no variable.

    Args:
        opt: the other optimizer.
        loss_scale_manager: says by how much.

    Example:
        >>> manager = tf.contrib.mixed_precision.FixedLossScaleManager(1024)
        >>> inner = tf.train.GradientDescentOptimizer(0.1)
        >>> v = tf.get_variable("v", initializer=1.0)
        >>> train = tf.contrib.mixed_precision.LossScaleOptimizer(inner, manager).minimize(2.0 * v)
        >>> sess.run(v.initializer)
        >>> sess.run(train)
        >>> sess.run(v)
        np.float32(0.8)
    """

    def __init__(self, opt: tf.train.Optimizer, loss_scale_manager: LossScaleManager) -> None:
        super().__init__(False, "LossScaleOptimizer")
        self._opt = opt
        self._loss_scale_manager = loss_scale_manager

    def compute_gradients(self, loss: PassedOn, *args: PassedOn, **kwargs: PassedOn) -> list[tuple[Any, Any]]:
        """The gradients of the loss, for which that of the scaled loss is computed; see `tf.train.Optimizer`."""
        scale = tf.convert_to_tensor(self._loss_scale_manager.get_loss_scale())
        given = tf.convert_to_tensor(loss() if callable(loss) else loss)
        pairs = self._opt.compute_gradients(given * tf.cast(scale, given.dtype), *args, **kwargs)
        return [(None if grad is None else _scaled(grad, 1.0 / scale), var) for grad, var in pairs]

    def apply_gradients(
        self, grads_and_vars: GradientsAndVariables, global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Applies gradients where all of them are finite, and adapts the scale; see `tf.train.Optimizer`."""
        pairs = list(grads_and_vars)
        dense = [grad.values if isinstance(grad, tf.IndexedSlices) else grad for grad, _ in pairs if grad is not None]
        finite = tf.reduce_all([tf.reduce_all(tf.is_finite(grad)) for grad in dense])
        applied = tf.cond(finite, lambda: self._opt.apply_gradients(pairs, global_step, name), tf.no_op)
        with tf.control_dependencies([applied]):
            return tf.group(applied, self._loss_scale_manager.update_loss_scale(finite))


def _scaled(grad: PassedOn, factor: tf.Tensor) -> Any:
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(_scaled(grad.values, factor), grad.indices, grad.dense_shape)
    return grad * tf.cast(factor, grad.dtype)
