"""Adadelta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.frontend.variables.variables import Variable
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.train.optimizer import HyperParameter, Optimizer
from anabranch.train.optimizers.kernel_optimizer import by_kernel, cast_like


@by_kernel
class AdadeltaOptimizer(Optimizer):
    """Steps scaled by the ratio of past steps to past gradients (Zeiler, 2012).

    ``accum = rho * accum + (1 - rho) * g²; step = sqrt(accum_update + epsilon) / sqrt(accum + epsilon) * g;
    accum_update = rho * accum_update + (1 - rho) * step²; w -= learning_rate * step``. The slots are called "accum" and
    "accum_update".

    Args:
        learning_rate: a number, a scalar tensor or variable, or a function that returns one; 1 gives the form in the
            paper. The same for `rho` and `epsilon`.
        rho: the decay rate.
        epsilon: keeps the ratio's parts away from zero.
        use_locking: see `Optimizer`.
        name: see `Optimizer`.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> step = tf.train.AdadeltaOptimizer(learning_rate=1.0).minimize(tf.square(w))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> bool(sess.run(w) < 1.0)
        True
    """

    def __init__(
        self,
        learning_rate: HyperParameter = 0.001,
        rho: HyperParameter = 0.95,
        epsilon: HyperParameter = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        super().__init__(use_locking, name)
        self._lr = learning_rate
        self._rho = rho
        self._epsilon = epsilon

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "accum", self._name)
            self._zeros_slot(var, "accum_update", self._name)

    def _prepare(self) -> None:
        self._lr_t = self._hyperparameter(self._lr, "lr")
        self._rho_t = self._hyperparameter(self._rho, "rho")
        self._epsilon_t = self._hyperparameter(self._epsilon, "epsilon")

    def _arguments(self, var: Variable) -> list[Tensor]:
        slots = [self._kept_slot(var, name).handle for name in ("accum", "accum_update")]
        return [var.handle, *slots, *(cast_like(t, var) for t in (self._lr_t, self._rho_t, self._epsilon_t))]

    def _update_dense(self, grad: Tensor, var: Variable) -> Any:
        return raw.ResourceApplyAdadelta(*self._arguments(var), grad, use_locking=self._use_locking)

    def _update_rows(self, grad: Tensor, var: Variable, indices: Tensor) -> Any:
        return raw.ResourceSparseApplyAdadelta(*self._arguments(var), grad, indices, use_locking=self._use_locking)
