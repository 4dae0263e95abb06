"""AddSign and PowerSign, which look whether a gradient agrees with the recent ones, and how that decays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import GradientsAndVariables, HyperParameter, TensorLike
from anabranch.contrib.opt_rows import as_whole, like

#: gives the factor of a step, from the number of the step
Decay: TypeAlias = "Callable[[TensorLike], tf.Tensor]"


class _SignOptimizer(tf.train.Optimizer):
    """What both have: a mean of the gradients, the slot "m", and a factor of the agreement that may decay."""

    def __init__(
        self,
        learning_rate: HyperParameter,
        beta: HyperParameter,
        sign_decay_fn: Decay | None,
        use_locking: bool,
        name: str,
    ) -> None:
        super().__init__(use_locking, name)
        self._lr = learning_rate
        self._beta = beta
        self._sign_decay_fn = sign_decay_fn

    def apply_gradients(
        self, grads_and_vars: GradientsAndVariables, global_step: tf.Variable | None = None, name: str | None = None
    ) -> tf.Operation:
        """Adds the updates; see `tf.train.Optimizer.apply_gradients`.

        Args:
            grads_and_vars: pairs as `compute_gradients` returns them.
            global_step: a variable that is incremented after the updates; the decay function is given it, too.
            name: of the returned operation; default: the optimizer's name.

        Returns:
            The operation that updates the variables and increments `global_step`.

        Raises:
            TypeError: a gradient is neither a tensor, an `IndexedSlices` nor None, or a variable is none.
            ValueError: no pairs, or none with a gradient, or a decay function needs a `global_step` and there is none.
        """
        decay: Any = 1.0 if self._sign_decay_fn is None else self._sign_decay_fn(global_step)
        self._sign_decay_t = tf.convert_to_tensor(decay, name="sign_decay")
        return super().apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "m", self._name)

    def _prepare(self) -> None:
        self._lr_t = self._hyperparameter(self._lr, "learning_rate")
        self._beta_t = self._hyperparameter(self._beta, "beta")

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> Any:
        return self._resource_apply_dense(grad, var)

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> Any:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor) -> Any:
        # a zero gradient moves nothing, and the means of all rows decay: the dense update is the sparse one
        return self._resource_apply_dense(as_whole(grad, indices, handle), handle)


class AddSignOptimizer(_SignOptimizer):
    """Steps are larger where a gradient has the sign of the recent ones (Bello et al., 2017, AddSign).

    ``m = beta * m + (1 - beta) * g; w -= learning_rate * (alpha + decay * sign(g) * sign(m)) * g``, from "Neural
    Optimizer Search with Reinforcement Learning". The slot is called "m".

    Args:
        learning_rate: a number, a scalar tensor or variable, or a function that returns one. The same for the others.
        alpha: the factor of the gradient itself.
        beta: the decay rate of the mean.
        sign_decay_fn: gives the factor `decay` from the global step, as what `get_linear_decay_fn`,
            `get_cosine_decay_fn` and `get_restart_decay_fn` return; None: it is 1.
        use_locking: see `tf.train.Optimizer`.
        name: see `tf.train.Optimizer`.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> step = tf.contrib.opt.AddSignOptimizer(0.125).minimize(tf.square(w))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(w)
        np.float32(0.5)
    """

    def __init__(
        self,
        learning_rate: HyperParameter = 0.1,
        alpha: HyperParameter = 1.0,
        beta: HyperParameter = 0.9,
        sign_decay_fn: Decay | None = None,
        use_locking: bool = False,
        name: str = "AddSignOptimizer",
    ) -> None:
        super().__init__(learning_rate, beta, sign_decay_fn, use_locking, name)
        self._alpha = alpha

    def _prepare(self) -> None:
        super()._prepare()
        self._alpha_t = self._hyperparameter(self._alpha, "alpha")

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable) -> Any:
        return tf.raw_ops.ResourceApplyAddSign(
            var=handle.handle,
            m=self._kept_slot(handle, "m").handle,
            lr=like(self._lr_t, handle),
            alpha=like(self._alpha_t, handle),
            sign_decay=like(self._sign_decay_t, handle),
            beta=like(self._beta_t, handle),
            grad=grad,
            use_locking=self._use_locking,
        )


class PowerSignOptimizer(_SignOptimizer):
    """Steps are larger where a gradient has the sign of the recent ones (Bello et al., 2017, PowerSign).

    ``m = beta * m + (1 - beta) * g; w -= learning_rate * base ^ (decay * sign(g) * sign(m)) * g``, from "Neural
    Optimizer Search with Reinforcement Learning". The slot is called "m".

    Args:
        learning_rate: a number, a scalar tensor or variable, or a function that returns one. The same for `beta`.
        base: a number > 0.
        beta: the decay rate of the mean.
        sign_decay_fn: gives the factor `decay` from the global step, as what `get_linear_decay_fn`,
            `get_cosine_decay_fn` and `get_restart_decay_fn` return; None: it is 1.
        use_locking: see `tf.train.Optimizer`.
        name: see `tf.train.Optimizer`.

    Raises:
        ValueError: `name` is empty, or `base` is not positive.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> step = tf.contrib.opt.PowerSignOptimizer(0.125, base=2.0).minimize(tf.square(w))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(w)
        np.float32(0.5)
    """

    def __init__(
        self,
        learning_rate: HyperParameter = 0.1,
        base: float = math.e,
        beta: HyperParameter = 0.9,
        sign_decay_fn: Decay | None = None,
        use_locking: bool = False,
        name: str = "PowerSignOptimizer",
    ) -> None:
        super().__init__(learning_rate, beta, sign_decay_fn, use_locking, name)
        if base <= 0:
            raise ValueError(f"base must be positive, for steps are multiplied by its powers: got {base}")
        self._logbase = math.log(base)

    def _prepare(self) -> None:
        super()._prepare()
        self._logbase_t = tf.convert_to_tensor(self._logbase, name="logbase")

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable) -> Any:
        return tf.raw_ops.ResourceApplyPowerSign(
            var=handle.handle,
            m=self._kept_slot(handle, "m").handle,
            lr=like(self._lr_t, handle),
            logbase=like(self._logbase_t, handle),
            sign_decay=like(self._sign_decay_t, handle),
            beta=like(self._beta_t, handle),
            grad=grad,
            use_locking=self._use_locking,
        )


# ---------------------------------------------------------------------- decays
def get_linear_decay_fn(decay_steps: TensorLike) -> Decay:
    """A function of the global step that goes from 1 to 0 along a line, and stays there.

    Args:
        decay_steps: an integer: the step at which it is 0.

    Returns:
        A function that gives a float32 scalar. It raises a ValueError where it is given no step.

    Example:
        >>> sess.run(tf.contrib.opt.get_linear_decay_fn(8)(2))
        np.float32(0.75)
    """

    def linear_decay_fn(global_step: TensorLike) -> tf.Tensor:
        done, all_steps = _counted(global_step, decay_steps, "linear")
        return (all_steps - done) / all_steps

    return linear_decay_fn


def get_cosine_decay_fn(decay_steps: TensorLike, num_periods: float = 0.5, zero_after: float | None = None) -> Decay:
    """A function of the global step that swings between 1 and 0: ``(1 + cos(2π * num_periods * progress)) / 2``.

    Args:
        decay_steps: an integer: the step at which the progress is 1, where it stays.
        num_periods: how often it swings in that time; with the default it ends at 0.
        zero_after: the number of periods after which it is 0; None: as long as `decay_steps` say.

    Returns:
        A function that gives a float32 scalar. It raises a ValueError where it is given no step.

    Example:
        >>> sess.run(tf.contrib.opt.get_cosine_decay_fn(8)(8))
        np.float32(0.0)
    """

    def cosine_decay_fn(global_step: TensorLike) -> tf.Tensor:
        done, all_steps = _counted(global_step, decay_steps, "cosine")
        half_periods = 2.0 * num_periods * (done / all_steps)
        decayed = _half_cosine(half_periods)
        return decayed if zero_after is None else _zero_from(half_periods, 2.0 * zero_after, decayed)

    return cosine_decay_fn


def get_restart_decay_fn(decay_steps: TensorLike, num_periods: float = 1, zero_after: float | None = None) -> Decay:
    """A function of the global step that goes from 1 to 0 along a cosine, several times (Loshchilov and Hutter, 2017).

    Each time it begins anew at 1, as the learning rate does in "SGDR: Stochastic Gradient Descent with Warm Restarts".

    Args:
        decay_steps: an integer: the steps that all the periods take together.
        num_periods: how often it goes from 1 to 0.
        zero_after: the number of periods after which it is 0; None: it goes on.

    Returns:
        A function that gives a float32 scalar. It raises a ValueError where it is given no step.

    Example:
        >>> sess.run(tf.contrib.opt.get_restart_decay_fn(8, num_periods=2)([0, 2, 4, 6]))
        array([1. , 0.5, 1. , 0.5], dtype=float32)
    """

    def restart_decay_fn(global_step: TensorLike) -> tf.Tensor:
        done, all_steps = _counted(global_step, decay_steps, "restart")
        decayed = _half_cosine(tf.math.floormod(num_periods * done, all_steps) / all_steps)
        return decayed if zero_after is None else _zero_from(num_periods * done / all_steps, zero_after, decayed)

    return restart_decay_fn


def _counted(global_step: TensorLike, decay_steps: TensorLike, kind: str) -> tuple[tf.Tensor, tf.Tensor]:
    """The steps that are behind, at most all that there are, and all: float32."""
    if global_step is None:
        raise ValueError(f"global_step is required for {kind}_decay; give it to `minimize` or `apply_gradients`.")
    all_steps = tf.cast(decay_steps, tf.float32)
    return tf.minimum(tf.cast(global_step, tf.float32), all_steps), all_steps


def _half_cosine(half_periods: tf.Tensor) -> tf.Tensor:
    return 0.5 * (1.0 + tf.cos(math.pi * half_periods))


def _zero_from(where: tf.Tensor, limit: float, value: tf.Tensor) -> tf.Tensor:
    return tf.where(where >= limit, tf.zeros_like(value), value)
