"""Optimizers that measure out the learning rate: by layers, or apart from what regularizes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import HyperParameter
from anabranch.contrib.opt_rows import like


class LARSOptimizer(tf.train.MomentumOptimizer):
    """Momentum whose rate for each variable follows its norm and its gradient's (You, Gitman and Ginsburg, 2017).

    ``ratio = eeta * |w| / (|g| + weight_decay * |w| + epsilon)``, or 1 where a norm is zero; then momentum's update
    with the gradient ``learning_rate * ratio * (g + weight_decay * w)``: "Large Batch Training of Convolutional
    Networks". Sparse gradients are those of plain momentum. The slot is called "momentum".

    Args:
        learning_rate: a number, a scalar tensor or variable, or a function that returns one.
        momentum: as `learning_rate`.
        weight_decay: a number: the part of the variable that is added to its gradient.
        eeta: a number: the paper's coefficient, how far a variable may go in relation to its norm.
        epsilon: a number that keeps the divisor away from zero where gradients are very small.
        name: see `tf.train.Optimizer`.
        skip_list: parts of the names of variables whose rate is not scaled and which do not decay; None: there are
            none.
        use_nesterov: whether to look ahead.

    Raises:
        ValueError: `momentum` or `weight_decay` is negative, or `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=[3.0, 4.0])
        >>> opt = tf.contrib.opt.LARSOptimizer(1.0, weight_decay=0.0, eeta=0.5)
        >>> step = opt.minimize(tf.nn.l2_loss(w))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(w)
        array([1.5, 2. ], dtype=float32)
    """

    def __init__(
        self,
        learning_rate: HyperParameter,
        momentum: HyperParameter = 0.9,
        weight_decay: float = 0.0001,
        eeta: float = 0.001,
        epsilon: float = 0.0,
        name: str = "LARSOptimizer",
        skip_list: Sequence[str] | None = None,
        use_nesterov: bool = False,
    ) -> None:
        if isinstance(momentum, int | float) and momentum < 0.0:
            raise ValueError(f"momentum should be positive: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"weight_decay should be positive: {weight_decay}")
        super().__init__(learning_rate, momentum, use_locking=False, name=name, use_nesterov=use_nesterov)
        self._weight_decay = weight_decay
        self._eeta = eeta
        self._epsilon = epsilon
        self._skip_list = skip_list

    def compute_lr(self, grad: tf.Tensor, var: tf.Variable) -> tuple[Any, tf.Tensor]:
        """The rate for a variable, and its gradient with what regularizes.

        Args:
            grad: the gradient, dense.
            var: the variable.

        Returns:
            (A scalar, a tensor like `grad`).
        """
        rate = like(self._call_if_callable(self._learning_rate), var)
        if any(part in var.name for part in self._skip_list or ()):
            return rate, grad
        value = var.read_value()
        norm, slope = tf.norm(value, ord=2), tf.norm(grad, ord=2)
        ratio = self._eeta * norm / (slope + self._weight_decay * norm + self._epsilon)
        is_known = tf.logical_and(norm > 0, slope > 0)
        return rate * tf.where(is_known, ratio, tf.ones_like(ratio)), grad + self._weight_decay * value

    def _update_dense(self, grad: tf.Tensor, var: tf.Variable) -> Any:
        rate, slope = self.compute_lr(grad, var)
        return tf.raw_ops.ResourceApplyMomentum(
            var=var.handle,
            accum=self._kept_slot(var, "momentum").handle,
            lr=like(1.0, var),
            grad=slope * rate,
            momentum=like(self._momentum_tensor, var),
            use_nesterov=self._use_nesterov,
        )


class RegAdagradOptimizer(tf.train.AdagradOptimizer):
    """Adagrad that can leave its accumulators alone, so that what regularizes does not lower the learning rate.

    What is minimized within `avoid_updating_slots` is divided by the accumulators as they are. The slot is called
    "accumulator".

    Args:
        learning_rate: a number, a scalar tensor or variable, or a function that returns one.
        initial_accumulator_value: a number > 0.
        use_locking: see `tf.train.Optimizer`.
        name: see `tf.train.Optimizer`.

    Raises:
        ValueError: `initial_accumulator_value` is not positive.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> opt = tf.contrib.opt.RegAdagradOptimizer(0.25, initial_accumulator_value=4.0)
        >>> with opt.avoid_updating_slots():
        ...     step = opt.minimize(tf.square(w))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run([w, opt.get_slot(w, "accumulator")])
        [np.float32(0.75), np.float32(4.0)]
    """

    def __init__(
        self,
        learning_rate: HyperParameter,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "RegAdagrad",
    ) -> None:
        super().__init__(learning_rate, initial_accumulator_value, use_locking, name)
        self._should_update_slots = True

    @contextlib.contextmanager
    def avoid_updating_slots(self) -> Iterator[None]:
        """Within it, the updates that are added to the graph leave the accumulators as they are."""
        before = self._should_update_slots
        self._should_update_slots = False
        try:
            yield
        finally:
            self._should_update_slots = before

    def _update_dense(self, grad: tf.Tensor, var: tf.Variable) -> Any:
        return tf.raw_ops.ResourceApplyAdagrad(
            var=var.handle,
            accum=self._kept_slot(var, "accumulator").handle,
            lr=like(self._learning_rate_tensor, var),
            grad=grad,
            use_locking=self._use_locking,
            update_slots=self._should_update_slots,
        )

    def _update_rows(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> Any:
        return tf.raw_ops.ResourceSparseApplyAdagrad(
            var=var.handle,
            accum=self._kept_slot(var, "accumulator").handle,
            lr=like(self._learning_rate_tensor, var),
            grad=grad,
            indices=indices,
            use_locking=self._use_locking,
            update_slots=self._should_update_slots,
        )
