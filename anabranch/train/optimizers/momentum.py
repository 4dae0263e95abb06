"""Momentum, classical and Nesterov's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.frontend.variables.variables import Variable
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.train.optimizer import HyperParameter, Optimizer
from anabranch.train.optimizers.kernel_optimizer import by_kernel, cast_like


@by_kernel
class MomentumOptimizer(Optimizer):
    """``accumulation = momentum * accumulation + g; w -= learning_rate * accumulation``.

    With `use_nesterov` (Sutskever et al., 2013): ``w -= learning_rate * (g + momentum * accumulation)``. The update of
    a sparse gradient touches the rows concerned only. The slot is called "momentum".

    Args:
        learning_rate: a number, a scalar tensor or variable, or a function that returns one.
        momentum: as `learning_rate`.
        use_locking: see `Optimizer`.
        name: see `Optimizer`.
        use_nesterov: whether to look ahead.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> step = tf.train.MomentumOptimizer(0.25, momentum=0.9).minimize(tf.square(w))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(w)
        np.float32(0.5)
    """

    def __init__(
        self,
        learning_rate: HyperParameter,
        momentum: HyperParameter,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._use_nesterov = use_nesterov

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "momentum", self._name)

    def _prepare(self) -> None:
        self._learning_rate_tensor = self._hyperparameter(self._learning_rate, "learning_rate")
        self._momentum_tensor = self._hyperparameter(self._momentum, "momentum")

    def _update_dense(self, grad: Tensor, var: Variable) -> Any:
        return raw.ResourceApplyMomentum(
            var.handle,
            self._kept_slot(var, "momentum").handle,
            cast_like(self._learning_rate_tensor, var),
            grad,
            cast_like(self._momentum_tensor, var),
            use_locking=self._use_locking,
            use_nesterov=self._use_nesterov,
        )

    def _update_rows(self, grad: Tensor, var: Variable, indices: Tensor) -> Any:
        return raw.ResourceSparseApplyMomentum(
            var.handle,
            self._kept_slot(var, "momentum").handle,
            cast_like(self._learning_rate_tensor, var),
            grad,
            indices,
            cast_like(self._momentum_tensor, var),
            use_locking=self._use_locking,
            use_nesterov=self._use_nesterov,
        )
