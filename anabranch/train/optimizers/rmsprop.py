"""RMSProp, plain and centered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.frontend.variables.variables import Variable
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.train.optimizer import HyperParameter, Optimizer
from anabranch.train.optimizers.kernel_optimizer import ConstantSlot, by_kernel, cast_like


@by_kernel
class RMSPropOptimizer(Optimizer):
    """Divides the gradient by a running root mean square of itself (Tieleman and Hinton, 2012).

    ``rms = decay * rms + (1 - decay) * g²; mom = momentum * mom + learning_rate * g / sqrt(rms + epsilon); w -= mom``;
    `centered` subtracts the square of the running mean of the gradient, ``mg``, from ``rms`` under the root (Graves,
    2013). A sparse gradient updates the rows concerned only: the averages of the others do not decay. The slots are
    called "rms" (which begins with ones), "momentum" and, if centered, "mg".

    Args:
        learning_rate: a number, a scalar tensor or variable, or a function that returns one. The same for `decay`,
            `momentum` and `epsilon`.
        decay: of the running averages.
        momentum: of the steps.
        epsilon: keeps the root away from zero.
        use_locking: see `Optimizer`.
        centered: whether to use the variance in place of the mean square.
        name: see `Optimizer`.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> step = tf.train.RMSPropOptimizer(0.1).minimize(tf.square(w))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> bool(sess.run(w) < 1.0)
        True
    """

    def __init__(
        self,
        learning_rate: HyperParameter,
        decay: HyperParameter = 0.9,
        momentum: HyperParameter = 0.0,
        epsilon: HyperParameter = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._decay = decay
        self._momentum = momentum
        self._epsilon = epsilon
        self._centered = centered

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        ones = ConstantSlot(1.0)
        for var in var_list:
            self._get_or_make_slot_with_initializer(var, ones, var.shape, var.dtype.base_dtype, "rms", self._name)
            if self._centered:
                self._zeros_slot(var, "mg", self._name)
            self._zeros_slot(var, "momentum", self._name)

    def _prepare(self) -> None:
        self._learning_rate_tensor = self._hyperparameter(self._learning_rate, "learning_rate")
        self._decay_tensor = self._hyperparameter(self._decay, "decay")
        self._momentum_tensor = self._hyperparameter(self._momentum, "momentum")
        self._epsilon_tensor = self._hyperparameter(self._epsilon, "epsilon")

    def _arguments(self, var: Variable) -> list[Tensor]:
        names = ("mg", "rms", "momentum") if self._centered else ("rms", "momentum")
        slots = [self._kept_slot(var, name).handle for name in names]
        settings = (self._learning_rate_tensor, self._decay_tensor, self._momentum_tensor, self._epsilon_tensor)
        return [var.handle, *slots, *(cast_like(t, var) for t in settings)]

    def _update_dense(self, grad: Tensor, var: Variable) -> Any:
        update = raw.ResourceApplyCenteredRMSProp if self._centered else raw.ResourceApplyRMSProp
        return update(*self._arguments(var), grad, use_locking=self._use_locking)

    def _update_rows(self, grad: Tensor, var: Variable, indices: Tensor) -> Any:
        update = raw.ResourceSparseApplyCenteredRMSProp if self._centered else raw.ResourceSparseApplyRMSProp
        return update(*self._arguments(var), grad, indices, use_locking=self._use_locking)
