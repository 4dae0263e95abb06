"""Adam."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.frontend.control_flow.grouping import group
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.ops.resources.variables import variable_shape
from anabranch.train.growing_parts import GrowingVariable
from anabranch.train.optimizer import HyperParameter, Optimizer
from anabranch.train.optimizers.kernel_optimizer import by_kernel, cast_like


@by_kernel
class AdamOptimizer(Optimizer):
    """Running means of the gradient and of its square, corrected for their start at zero (Kingma and Ba, 2015).

    ``rate_t = learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t); m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 -
    beta2) * g²; w -= rate_t * m / (sqrt(v) + epsilon)``; this epsilon is the paper's "epsilon hat". A sparse gradient
    counts as zero in the other rows, whose means decay and which move: the same result as with the dense gradient. In a
    `GrowingTable` rows without a gradient stay as they are. The slots are called "m" and "v"; the powers of beta are
    variables of their own.

    Args:
        learning_rate: a number, a scalar tensor or variable, or a function that returns one. The same for the others.
        beta1: the decay rate of the mean.
        beta2: the decay rate of the mean square.
        epsilon: keeps the divisor away from zero.
        use_locking: see `Optimizer`.
        name: see `Optimizer`.

    Raises:
        ValueError: `name` is empty.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> step = tf.train.AdamOptimizer(0.1).minimize(tf.square(w))
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(step)
        >>> sess.run(w)
        np.float32(0.90000004)
    """

    def __init__(
        self,
        learning_rate: HyperParameter = 0.001,
        beta1: HyperParameter = 0.9,
        beta2: HyperParameter = 0.999,
        epsilon: HyperParameter = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(use_locking, name)
        self._lr = learning_rate
        self._beta1 = beta1
        self._beta2 = beta2
        self._epsilon = epsilon

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        # one place for the powers, whatever the order of the variables: several tasks must agree on it
        first = min(var_list, key=lambda var: str(var.name))
        for name, beta in (("beta1_power", self._beta1), ("beta2_power", self._beta2)):
            self._create_non_slot_variable(self._call_if_callable(beta), name, first)
        for var in var_list:
            self._zeros_slot(var, "m", self._name)
            self._zeros_slot(var, "v", self._name)

    def _prepare(self) -> None:
        self._lr_t = self._hyperparameter(self._lr, "learning_rate")
        self._beta1_t = self._hyperparameter(self._beta1, "beta1")
        self._beta2_t = self._hyperparameter(self._beta2, "beta2")
        self._epsilon_t = self._hyperparameter(self._epsilon, "epsilon")

    def _get_beta_accumulators(self) -> tuple[Any, Any]:
        graph: Graph = get_default_graph()
        return self._get_non_slot_variable("beta1_power", graph), self._get_non_slot_variable("beta2_power", graph)

    def _update_dense(self, grad: Tensor, var: Variable) -> Any:
        return raw.ResourceApplyAdam(*self._inputs(var), grad, use_locking=self._use_locking)

    def _inputs(self, var: Variable) -> list[Tensor]:
        """What update operations take before the gradient."""
        powers = [power.value() for power in self._get_beta_accumulators()]
        settings = (*powers, self._lr_t, self._beta1_t, self._beta2_t, self._epsilon_t)
        slots = [self._kept_slot(var, name).handle for name in ("m", "v")]
        return [var.handle, *slots, *(cast_like(t, var) for t in settings)]

    def _update_rows(self, grad: Tensor, var: Variable, indices: Tensor) -> Any:
        if isinstance(var, GrowingVariable):
            return raw._ResourceSparseApplyAdam(*self._inputs(var), grad, indices, use_locking=self._use_locking)
        rows = raw.StridedSlice(variable_shape(var.handle), [0], [1], [1], shrink_axis_mask=1)
        return self._update_dense(raw.UnsortedSegmentSum(grad, indices, rows), var)

    def _finish(self, update_ops: list[Any], name_scope: str) -> Any:
        graph = get_default_graph()
        updates = list(update_ops)
        with graph.control_dependencies(update_ops):
            for power, beta in zip(self._get_beta_accumulators(), (self._beta1_t, self._beta2_t), strict=True):
                with graph.colocate_with(power):
                    grown = raw.Mul(power.value(), cast_like(beta, power))
                    updates.append(power.assign(grown, use_locking=self._use_locking, read_value=False))
        return group(*updates, name=name_scope)
