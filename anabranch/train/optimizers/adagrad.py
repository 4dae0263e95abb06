"""Adagrad, its proximal form, and its dual averaging form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.train.optimizer import HyperParameter, Optimizer
from anabranch.train.optimizers.kernel_optimizer import ConstantSlot, by_kernel, cast_like


@by_kernel
class AdagradOptimizer(Optimizer):
    """``accumulator += g²; w -= learning_rate * g / sqrt(accumulator)`` (Duchi, Hazan and Singer, 2011).

    The update of a sparse gradient touches the rows concerned only. The slot is called "accumulator".

    Args:
        learning_rate: a number, a scalar tensor or variable, or a function that returns one.
        initial_accumulator_value: a number > 0.
        use_locking: see `Optimizer`.
        name: see `Optimizer`.

    Raises:
        ValueError: `initial_accumulator_value` is not positive.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> step = tf.train.AdagradOptimizer(0.1).minimize(tf.square(w))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(w)
        np.float32(0.90122706)
    """

    def __init__(
        self,
        learning_rate: HyperParameter,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        if initial_accumulator_value <= 0.0:
            raise ValueError(f"initial_accumulator_value must be positive: {initial_accumulator_value}")
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._initial_accumulator_value = initial_accumulator_value

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        _create_filled(self, var_list, self._initial_accumulator_value, "accumulator")

    def _prepare(self) -> None:
        self._learning_rate_tensor = self._hyperparameter(self._learning_rate, "learning_rate")

    def _update_dense(self, grad: Tensor, var: Variable) -> Any:
        return raw.ResourceApplyAdagrad(
            var.handle,
            self._kept_slot(var, "accumulator").handle,
            cast_like(self._learning_rate_tensor, var),
            grad,
            use_locking=self._use_locking,
        )

    def _update_rows(self, grad: Tensor, var: Variable, indices: Tensor) -> Any:
        return raw.ResourceSparseApplyAdagrad(
            var.handle,
            self._kept_slot(var, "accumulator").handle,
            cast_like(self._learning_rate_tensor, var),
            grad,
            indices,
            use_locking=self._use_locking,
        )


@by_kernel
class ProximalAdagradOptimizer(Optimizer):
    """Adagrad followed by the proximal step of L1 and L2 regularization (Duchi and Singer, 2009).

    Args:
        learning_rate: as in `AdagradOptimizer`.
        initial_accumulator_value: a number > 0.
        l1_regularization_strength: a number >= 0.
        l2_regularization_strength: a number >= 0.
        use_locking: see `Optimizer`.
        name: see `Optimizer`.

    Raises:
        ValueError: `initial_accumulator_value` is not positive.
    """

    def __init__(
        self,
        learning_rate: HyperParameter,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "ProximalAdagrad",
    ) -> None:
        if initial_accumulator_value <= 0.0:
            raise ValueError(f"initial_accumulator_value must be positive: {initial_accumulator_value}")
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._initial_accumulator_value = initial_accumulator_value
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        _create_filled(self, var_list, self._initial_accumulator_value, "accumulator")

    def _prepare(self) -> None:
        self._learning_rate_tensor = self._hyperparameter(self._learning_rate, "learning_rate")
        self._l1_tensor = self._hyperparameter(self._l1_regularization_strength, "l1_regularization_strength")
        self._l2_tensor = self._hyperparameter(self._l2_regularization_strength, "l2_regularization_strength")

    def _settings(self, var: Variable) -> list[Tensor]:
        return [cast_like(t, var) for t in (self._learning_rate_tensor, self._l1_tensor, self._l2_tensor)]

    def _update_dense(self, grad: Tensor, var: Variable) -> Any:
        accumulator = self._kept_slot(var, "accumulator").handle
        return raw.ResourceApplyProximalAdagrad(
            var.handle, accumulator, *self._settings(var), grad, use_locking=self._use_locking
        )

    def _update_rows(self, grad: Tensor, var: Variable, indices: Tensor) -> Any:
        accumulator = self._kept_slot(var, "accumulator").handle
        return raw.ResourceSparseApplyProximalAdagrad(
            var.handle, accumulator, *self._settings(var), grad, indices, use_locking=self._use_locking
        )


@by_kernel
class AdagradDAOptimizer(Optimizer):
    """Adagrad with dual averaging, for sparse linear models (Duchi, Hazan and Singer, 2011).

    A variable is computed anew from the sums of its gradients, so its initial value should be zero. The slots are
    called "gradient_accumulator" and "gradient_squared_accumulator".

    Args:
        learning_rate: a number, a scalar tensor or variable, or a function that returns one.
        global_step: the variable that counts the steps; needed for the regularization.
        initial_gradient_squared_accumulator_value: a number > 0.
        l1_regularization_strength: a number >= 0.
        l2_regularization_strength: a number >= 0.
        use_locking: see `Optimizer`.
        name: see `Optimizer`.

    Raises:
        ValueError: `initial_gradient_squared_accumulator_value` is not positive.
    """

    def __init__(
        self,
        learning_rate: HyperParameter,
        global_step: TensorLike,
        initial_gradient_squared_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "AdagradDA",
    ) -> None:
        if initial_gradient_squared_accumulator_value <= 0.0:
            raise ValueError(
                "initial_gradient_squared_accumulator_value must be positive: "
                f"{initial_gradient_squared_accumulator_value}"
            )
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._global_step = global_step
        self._initial_squared_value = initial_gradient_squared_accumulator_value
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "gradient_accumulator", self._name)
            _create_filled(self, [var], self._initial_squared_value, "gradient_squared_accumulator")

    def _prepare(self) -> None:
        self._learning_rate_tensor = self._hyperparameter(self._learning_rate, "learning_rate")
        with get_default_graph().colocate_with(self._learning_rate_tensor):
            step = convert_to_tensor(self._global_step)
            step = step if step.dtype is dtypes.int64 else raw.Cast(step, DstT=dtypes.int64)
            self._step_after = raw.AddV2(step, convert_to_tensor(1, dtypes.int64))

    def _slots_of(self, var: Variable) -> list[Tensor]:
        names = ("gradient_accumulator", "gradient_squared_accumulator")
        return [self._kept_slot(var, name).handle for name in names]

    def _settings(self, var: Variable) -> list[Tensor]:
        strengths = (self._l1_regularization_strength, self._l2_regularization_strength)
        return [*(cast_like(value, var) for value in (self._learning_rate_tensor, *strengths)), self._step_after]

    def _update_dense(self, grad: Tensor, var: Variable) -> Any:
        return raw.ResourceApplyAdagradDA(
            var.handle, *self._slots_of(var), grad, *self._settings(var), use_locking=self._use_locking
        )

    def _update_rows(self, grad: Tensor, var: Variable, indices: Tensor) -> Any:
        return raw.ResourceSparseApplyAdagradDA(
            var.handle, *self._slots_of(var), grad, indices, *self._settings(var), use_locking=self._use_locking
        )


def _create_filled(optimizer: Optimizer, var_list: Sequence[Any], value: float, slot_name: str) -> None:
    """Creates the slot of that name of each variable, `value` everywhere."""
    initializer = ConstantSlot(value)
    for var in var_list:
        dtype = var.dtype.base_dtype
        optimizer._get_or_make_slot_with_initializer(
            var, initializer, var.shape, dtype, slot_name, optimizer.get_name()
        )
