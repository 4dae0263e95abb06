"""FTRL-Proximal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.frontend.variables.variables import Variable
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.train.optimizer import HyperParameter, Optimizer
from anabranch.train.optimizers.kernel_optimizer import ConstantSlot, by_kernel, cast_like


@by_kernel
class FtrlOptimizer(Optimizer):
    """Follow the regularized leader, for sparse linear models (McMahan et al., 2013).

    Args:
        learning_rate: a number, a scalar tensor or variable, or a function that returns one.
        learning_rate_power: a number <= 0; how fast the rate falls with the sum of squared gradients.
        initial_accumulator_value: a number >= 0.
        l1_regularization_strength: a number >= 0.
        l2_regularization_strength: a number >= 0, a penalty that stabilizes.
        use_locking: see `Optimizer`.
        name: see `Optimizer`.
        accum_name: suffix of the slot "accum"; default: `name`.
        linear_name: suffix of the slot "linear"; default: `name`.
        l2_shrinkage_regularization_strength: a number >= 0, a penalty on the magnitude of the weights.

    Raises:
        ValueError: a number is out of its range.
    """

    def __init__(
        self,
        learning_rate: HyperParameter,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
    ) -> None:
        super().__init__(use_locking, name)
        if learning_rate_power > 0.0:
            raise ValueError(f"learning_rate_power {learning_rate_power:f} needs to be negative or zero")
        for label, value in (
            ("initial_accumulator_value", initial_accumulator_value),
            ("l1_regularization_strength", l1_regularization_strength),
            ("l2_regularization_strength", l2_regularization_strength),
            ("l2_shrinkage_regularization_strength", l2_shrinkage_regularization_strength),
        ):
            if value < 0.0:
                raise ValueError(f"{label} {value:f} needs to be positive or zero")
        self._learning_rate = learning_rate
        self._learning_rate_power = learning_rate_power
        self._initial_accumulator_value = initial_accumulator_value
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength
        self._l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength
        self._accum_name = accum_name
        self._linear_name = linear_name

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        initializer = ConstantSlot(self._initial_accumulator_value)
        for var in var_list:
            self._get_or_make_slot_with_initializer(
                var, initializer, var.shape, var.dtype.base_dtype, "accum", self._accum_name or self._name
            )
            self._zeros_slot(var, "linear", self._linear_name or self._name)

    def _prepare(self) -> None:
        self._learning_rate_tensor = self._hyperparameter(self._learning_rate, "learning_rate")
        self._l1_tensor = self._hyperparameter(self._l1_regularization_strength, "l1_regularization_strength")
        self._l2_tensor = self._hyperparameter(self._l2_regularization_strength, "l2_regularization_strength")
        self._shrinkage_tensor = self._hyperparameter(
            self._l2_shrinkage_regularization_strength, "l2_shrinkage_regularization_strength"
        )
        self._power_tensor = self._hyperparameter(self._learning_rate_power, "learning_rate_power")

    @property
    def _shrinks(self) -> bool:
        return self._l2_shrinkage_regularization_strength > 0.0

    def _variables(self, var: Variable) -> list[Tensor]:
        return [var.handle, *(self._kept_slot(var, name).handle for name in ("accum", "linear"))]

    def _settings(self, var: Variable) -> list[Tensor]:
        shrinkage = [self._shrinkage_tensor] if self._shrinks else []
        settings = (self._learning_rate_tensor, self._l1_tensor, self._l2_tensor, *shrinkage, self._power_tensor)
        return [cast_like(t, var) for t in settings]

    def _update_dense(self, grad: Tensor, var: Variable) -> Any:
        update = raw.ResourceApplyFtrlV2 if self._shrinks else raw.ResourceApplyFtrl
        return update(*self._variables(var), grad, *self._settings(var), use_locking=self._use_locking)

    def _update_rows(self, grad: Tensor, var: Variable, indices: Tensor) -> Any:
        update = raw.ResourceSparseApplyFtrlV2 if self._shrinks else raw.ResourceSparseApplyFtrl
        return update(*self._variables(var), grad, indices, *self._settings(var), use_locking=self._use_locking)
