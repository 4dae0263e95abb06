"""Loss scales: factors that keep small gradients apart from zero in float16 (Micikevicius et al., 2018)."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, TypeAlias

from anabranch.core import dtypes, nest
from anabranch.core.dtypes import DTypeLike
from anabranch.core.nest import Structure
from anabranch.core.trackables import Trackable, TrackableReference
from anabranch.core.values import TensorLike
from anabranch.frontend.control_flow.conditionals import cond
from anabranch.frontend.control_flow.grouping import group, no_op
from anabranch.frontend.variables.policy import outermost_graph
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

LossScaleLike: TypeAlias = "LossScale | float | str"


class LossScale(Trackable, abc.ABC):
    """Base class of loss scales. A loss is multiplied by the scale, and each of its gradients divided by it.

    Calling a loss scale gives it as a scalar float32 tensor; `update` adds the operations that adapt it. A subclass
    defines both, and `get_config`.

    Example:
        >>> scale = tf.train.experimental.FixedLossScale(8)
        >>> isinstance(scale, tf.train.experimental.LossScale)
        True
    """

    def __init__(self) -> None:
        self._weights: dict[tuple[str, Graph], Variable] = {}

    @abc.abstractmethod
    def __call__(self) -> Tensor:
        """The scale now: a scalar float32 tensor."""

    @abc.abstractmethod
    def update(self, grads: Structure) -> tuple[Operation, Tensor | bool]:
        """Adds what adapts the scale to the gradients of a step.

        Args:
            grads: a structure of gradients (tensors, `IndexedSlices`, None), divided by the scale already.

        Returns:
            The operation that adapts the scale, and whether the gradients should be applied: a scalar bool tensor, or
            True where that holds always.
        """

    @abc.abstractmethod
    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, by name."""

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LossScale:
        """A loss scale of the arguments that `get_config` gave."""
        return cls(**config)

    def variables(self) -> list[Variable]:
        """The variables in which the scale keeps its state."""
        return list(self._weights.values())

    @property
    def _checkpoint_dependencies(self) -> list[TrackableReference]:
        """The variables of the default graph, by name."""
        graph = outermost_graph()
        mine = sorted((name, variable) for (name, owner), variable in self._weights.items() if owner is graph)
        return [*super()._checkpoint_dependencies, *(TrackableReference(*item) for item in mine)]

    def _add_weight(self, name: str, initial_value: TensorLike, dtype: DTypeLike | None = None) -> Variable:
        """Adds a variable for the scale's state.

        Raises:
            RuntimeError: the scale has a variable of that name in this graph.
        """
        variable = Variable(initial_value, name=name, dtype=dtype, trainable=False, use_resource=True)
        key = (name, outermost_graph())
        if key in self._weights:
            raise RuntimeError(f"the loss scale has a variable {name!r} in this graph already")
        self._weights[key] = variable
        return variable


class FixedLossScale(LossScale):
    """A loss scale that stays what it is.

    Args:
        loss_scale_value: the scale, at least 1.

    Raises:
        ValueError: it is no number, or less than 1.

    Example:
        >>> sess.run(tf.train.experimental.FixedLossScale(8)())
        np.float32(8.0)
    """

    def __init__(self, loss_scale_value: float) -> None:
        super().__init__()
        if not isinstance(loss_scale_value, int | float):
            raise ValueError(f"loss_scale_value must be a Python int or float, not {loss_scale_value!r}.")
        # said so that NaN is refused as well
        if not loss_scale_value >= 1:
            raise ValueError(f"loss_scale_value must be at least 1, not {loss_scale_value}.")
        self._loss_scale_value = float(loss_scale_value)

    def __call__(self) -> Tensor:
        """The scale: a scalar float32 tensor."""
        return convert_to_tensor(self._loss_scale_value, dtypes.float32)

    def update(self, grads: Structure) -> tuple[Operation, bool]:
        """Nothing to adapt: an operation that does nothing, and True."""
        del grads
        return no_op(), True

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, by name."""
        return {"loss_scale_value": self._loss_scale_value}

    def __repr__(self) -> str:
        return f"FixedLossScale({self._loss_scale_value})"


class DynamicLossScale(LossScale):
    """A loss scale that is as large as gradients allow.

    After `increment_period` steps in a row with finite gradients it is multiplied by `multiplier`. When a gradient is
    infinite or NaN it is divided by `multiplier`, but stays at least 1, and the step's gradients should not be applied.
    The scale is a variable "current_loss_scale", the count of steps a variable "good_steps"; both are global variables,
    so that a `Saver` keeps them.

    Args:
        initial_loss_scale: the scale at the beginning.
        increment_period: a number of steps.
        multiplier: by which the scale grows and shrinks.

    Example:
        >>> scale = tf.train.experimental.DynamicLossScale(initial_loss_scale=4, increment_period=1)
        >>> update, apply = scale.update([tf.constant(1.0)])
        >>> sess.run(tf.global_variables_initializer())
        >>> _, _ = sess.run([update, apply])
        >>> sess.run(scale())
        np.float32(8.0)
    """

    def __init__(
        self, initial_loss_scale: float = 2**15, increment_period: int = 2000, multiplier: float = 2.0
    ) -> None:
        super().__init__()
        self._initial_loss_scale = float(initial_loss_scale)
        self._increment_period = int(increment_period)
        self._multiplier = float(multiplier)
        self._current_loss_scale = self._add_weight("current_loss_scale", self._initial_loss_scale, dtypes.float32)
        self._num_good_steps = self._add_weight("good_steps", 0, dtypes.int64)

    @property
    def initial_loss_scale(self) -> float:
        """The scale at the beginning."""
        return self._initial_loss_scale

    @property
    def increment_period(self) -> int:
        """After how many steps in a row with finite gradients the scale grows."""
        return self._increment_period

    @property
    def multiplier(self) -> float:
        """The factor by which the scale grows and shrinks."""
        return self._multiplier

    def __call__(self) -> Tensor:
        """The scale now: a scalar float32 tensor."""
        return convert_to_tensor(self._current_loss_scale)

    def update(self, grads: Structure) -> tuple[Operation, Tensor]:
        """Adds what adapts the scale; see `LossScale.update`."""
        finite = _all_finite(nest.flatten(grads))
        update = cond(finite, self._after_finite, self._after_not_finite)
        return _as_operation(update), finite

    def _after_finite(self) -> Operation:
        def grow() -> Operation:
            larger = raw.Mul(self._current_loss_scale.value(), self._multiplier)
            # float32 ends somewhere: then it stays as it is
            grown = cond(raw.IsFinite(larger), _assigning(self._current_loss_scale, larger), no_op)
            return group(grown, self._num_good_steps.assign(0))

        enough = raw.GreaterEqual(raw.AddV2(self._num_good_steps.value(), 1), self._increment_period)
        return _as_operation(cond(enough, grow, lambda: self._num_good_steps.assign_add(1).op))

    def _after_not_finite(self) -> Operation:
        smaller = raw.Maximum(raw.RealDiv(self._current_loss_scale.value(), self._multiplier), 1.0)
        return group(self._num_good_steps.assign(0), self._current_loss_scale.assign(smaller))

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, by name."""
        return {
            "initial_loss_scale": self._initial_loss_scale,
            "increment_period": self._increment_period,
            "multiplier": self._multiplier,
        }

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value}" for name, value in self.get_config().items())
        return f"DynamicLossScale({said})"


def loss_scale_of(identifier: LossScaleLike) -> LossScale:
    """The loss scale that a number, "dynamic", or a loss scale names.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(identifier, LossScale):
        return identifier
    if isinstance(identifier, int | float):
        return FixedLossScale(identifier)
    if identifier == "dynamic":
        return DynamicLossScale()
    raise ValueError(f'a loss scale is a number, "dynamic" or a LossScale, not {identifier!r}')


def _assigning(variable: Variable, value: Tensor) -> Callable[[], Operation]:
    return lambda: variable.assign(value).op


def _as_operation(value: Tensor | Operation) -> Operation:
    return value if isinstance(value, Operation) else value.op


def _all_finite(grads: list[Any]) -> Tensor:
    dense = [g.values if isinstance(g, IndexedSlices) else g for g in grads if g is not None]
    all_finite: Tensor = convert_to_tensor(True)
    for gradient in dense:
        tensor = convert_to_tensor(gradient)
        finite = raw.All(raw.IsFinite(tensor), raw.Range(0, raw.Rank(tensor), 1))
        all_finite = raw.LogicalAnd(all_finite, finite)
    return all_finite
