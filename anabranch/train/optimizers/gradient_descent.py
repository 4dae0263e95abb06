"""Gradient descent, plain and proximal."""

from __future__ import annotations

from typing import Any

from anabranch.frontend.variables.variables import Variable
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.train.optimizer import HyperParameter, Optimizer
from anabranch.train.optimizers.kernel_optimizer import by_kernel, cast_like


@by_kernel
class GradientDescentOptimizer(Optimizer):
    """``w -= learning_rate * g``. The update of a sparse gradient touches the rows concerned only.

    Args:
        learning_rate: a number, a scalar tensor or variable, or a function that returns one.
        use_locking: see `Optimizer`. The same holds for all optimizers.
        name: see `Optimizer`.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> step = tf.train.GradientDescentOptimizer(0.25).minimize(tf.square(w))
        >>> sess.run(w.initializer)
        >>> sess.run(step)
        >>> sess.run(w)
        np.float32(0.5)
    """

    def __init__(self, learning_rate: HyperParameter, use_locking: bool = False, name: str = "GradientDescent") -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate

    def _prepare(self) -> None:
        self._learning_rate_tensor = self._hyperparameter(self._learning_rate, "learning_rate")

    def _update_dense(self, grad: Tensor, var: Variable) -> Any:
        rate = cast_like(self._learning_rate_tensor, var)
        return raw.ResourceApplyGradientDescent(var.handle, rate, grad, use_locking=self._use_locking)

    def _update_rows(self, grad: Tensor, var: Variable, indices: Tensor) -> Any:
        step = raw.Mul(raw.Neg(grad), cast_like(self._learning_rate_tensor, var))
        return raw.ResourceScatterAdd(var.handle, indices, step)


@by_kernel
class ProximalGradientDescentOptimizer(Optimizer):
    """Gradient descent followed by the proximal step of L1 and L2 regularization (Duchi and Singer, 2009).

    ``p = w - rate * g; w = sign(p) / (1 + rate * l2) * max(|p| - rate * l1, 0)``

    Args:
        learning_rate: as in `GradientDescentOptimizer`.
        l1_regularization_strength: a number >= 0.
        l2_regularization_strength: a number >= 0.
        use_locking: see `Optimizer`.
        name: see `Optimizer`.
    """

    def __init__(
        self,
        learning_rate: HyperParameter,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "ProximalGradientDescent",
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength

    def _prepare(self) -> None:
        self._learning_rate_tensor = self._hyperparameter(self._learning_rate, "learning_rate")
        self._l1_tensor = self._hyperparameter(self._l1_regularization_strength, "l1_regularization_strength")
        self._l2_tensor = self._hyperparameter(self._l2_regularization_strength, "l2_regularization_strength")

    def _settings(self, var: Variable) -> list[Tensor]:
        return [cast_like(t, var) for t in (self._learning_rate_tensor, self._l1_tensor, self._l2_tensor)]

    def _update_dense(self, grad: Tensor, var: Variable) -> Any:
        return raw.ResourceApplyProximalGradientDescent(
            var.handle, *self._settings(var), grad, use_locking=self._use_locking
        )

    def _update_rows(self, grad: Tensor, var: Variable, indices: Tensor) -> Any:
        return raw.ResourceSparseApplyProximalGradientDescent(
            var.handle, *self._settings(var), grad, indices, use_locking=self._use_locking
        )
