"""Moving averages of variables and tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anabranch.core import dtypes
from anabranch.core.dtypes import DType
from anabranch.core.values import TensorLike
from anabranch.frontend.control_flow.grouping import group
from anabranch.frontend.framework import init_scope
from anabranch.frontend.variables.scope import get_variable, get_variable_scope, variable_scope
from anabranch.frontend.variables.updates import UnreadVariable
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import REFERENCE, convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.train import slot_creator

_AVERAGED_DTYPES = (dtypes.bfloat16, dtypes.float16, dtypes.float32, dtypes.float64)


def assign_moving_average(
    variable: Variable, value: TensorLike, decay: TensorLike, zero_debias: bool = True, name: str | None = None
) -> UnreadVariable:
    """Moves a variable towards a value: ``variable = variable * decay + value * (1 - decay)``.

    Args:
        variable: the average.
        value: a tensor of its shape and dtype.
        decay: a number or tensor in [0, 1].
        zero_debias: whether to correct for the variable's start at zero, as in Adam (Kingma and Ba, 2015); the
            uncorrected average and the number of updates are variables of their own then.
        name: of the operations.

    Returns:
        The new value.
    """
    graph = get_default_graph()
    with graph.name_scope(name or "AssignMovingAvg"), graph.colocate_with(variable):
        dtype = variable.dtype.base_dtype
        rate = _complement(decay, dtype)
        value = convert_to_tensor(value, dtype)
        if zero_debias:
            return variable.assign(_debiased(variable, value, rate))
        return variable.assign_sub(raw.Mul(raw.Sub(variable.value(), value), rate))


def _complement(decay: TensorLike, dtype: DType) -> Tensor:
    rate = convert_to_tensor(1.0 - decay, name="decay")
    if rate.dtype.base_dtype is not dtype:
        rate = raw.Cast(rate, DstT=dtype)
    return rate


def _debiased(variable: Variable, value: Tensor, rate: Tensor) -> Tensor:
    """Moves the uncorrected average of `variable` and returns the corrected one."""
    dtype = variable.dtype.base_dtype
    scope = get_variable_scope().name  # which TensorFlow puts before the name, though that begins with it already
    with init_scope(), get_default_graph().name_scope(None):
        name = f"{scope}/{variable.op.name}" if scope else variable.op.name
        biased = Variable(_zeros_like(variable, dtype), trainable=False, name=f"{name}/biased")
        count = Variable(convert_to_tensor(0.0, dtype), trainable=False, name=f"{name}/local_step")
    moved = biased.assign_sub(raw.Mul(raw.Sub(biased.value(), value), rate))
    steps = count.assign_add(convert_to_tensor(1.0, dtype))
    one = convert_to_tensor(1.0, dtype)
    corrected: Tensor = raw.RealDiv(moved, raw.Sub(one, raw.Pow(raw.Sub(one, rate), steps)))
    return corrected


def _zeros_like(variable: Variable, dtype: DType) -> Any:
    def zeros() -> Tensor:
        filled: Tensor = raw.Fill(variable.shape.as_list(), convert_to_tensor(0.0, dtype))
        return filled

    return zeros


def weighted_moving_average(
    value: TensorLike,
    decay: TensorLike,
    weight: TensorLike,
    truediv: bool = True,
    collections: Iterable[str] | None = None,
    name: str | None = None,
) -> Tensor:
    """The moving average of ``value * weight`` divided by that of ``weight``; both are updated when it is computed.

    Args:
        value: a tensor of a known shape.
        decay: a number or tensor in [0, 1].
        weight: a tensor that broadcasts with `value`; the influence of this value.
        truediv: whether integers are divided to a floating-point number.
        collections: of the two variables.
        name: of the result.
    """
    value = convert_to_tensor(value)
    weight = convert_to_tensor(weight)
    with variable_scope(name, "WeightedMovingAvg", [value, weight]):
        sums = _local_average("value_x_weight", raw.Mul(value, weight), decay, collections)
        weights = _local_average("weight", weight, decay, collections)
        result: Tensor = raw.RealDiv(sums, weights) if truediv else raw.FloorDiv(sums, weights)
        return result


def _local_average(name: str, value: Tensor, decay: TensorLike, collections: Iterable[str] | None) -> UnreadVariable:
    variable = get_variable(
        name,
        shape=value.shape,
        dtype=value.dtype,
        initializer=slot_creator.zeros,
        trainable=False,
        collections=collections,
    )
    return assign_moving_average(variable, value, decay, zero_debias=False)


class ExponentialMovingAverage:
    """Keeps shadow copies of variables and tensors that follow them slowly.

    ``shadow = decay * shadow + (1 - decay) * variable``, each time that the operation which `apply` returns runs.
    Models are often better with the averages than with the trained values; `variables_to_restore` says how to load them
    from a checkpoint in the place of the variables.

    Args:
        decay: a number or scalar tensor near 1.
        num_updates: a number or tensor n, such as the global step; the decay is then at most ``(1 + n) / (10 + n)``, so
            that the averages move faster at first.
        zero_debias: whether to correct the averages of tensors (not those of variables) for their start at zero.
        name: suffix of the shadow variables' names.

    Raises:
        nothing

    Example:
        >>> v = tf.get_variable("v", initializer=0.0)
        >>> average = tf.train.ExponentialMovingAverage(decay=0.9)
        >>> maintain = average.apply([v])
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(tf.assign(v, 1.0))
        np.float32(1.0)
        >>> sess.run(maintain)
        >>> sess.run(average.average(v))
        np.float32(0.100000024)
    """

    def __init__(
        self,
        decay: TensorLike,
        num_updates: TensorLike | None = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        self._decay = decay
        self._num_updates = num_updates
        self._zero_debias = zero_debias
        self._name = name
        self._averages: dict[Any, Any] = {}

    @property
    def name(self) -> str:
        """The name given at construction."""
        return self._name

    def apply(self, var_list: Iterable[Any] | None = None) -> Operation:
        """Creates the shadows of `var_list` and returns an operation that updates them.

        A variable's shadow begins with the variable's initial value and the variable joins the collection
        `GraphKeys.MOVING_AVERAGE_VARIABLES`; a tensor's begins with zeros. May be called several times,
        also for the same variables: they keep their shadows.

        Args:
            var_list: variables and tensors; default: the trainable variables.

        Returns:
            An operation: each time that it runs, the shadows follow by one step.

        Raises:
            TypeError: one is of a dtype that has no average.

        Example:
            >>> v = tf.get_variable("v", initializer=1.0)
            >>> average = tf.train.ExponentialMovingAverage(0.5)
            >>> maintain = average.apply([v])
            >>> sess.run(tf.global_variables_initializer())
            >>> sess.run(v.assign(3.0))
            np.float32(3.0)
            >>> sess.run(maintain)
            >>> sess.run(average.average(v))
            np.float32(2.0)
        """
        graph = get_default_graph()
        averaged = list(graph.get_collection(GraphKeys.TRAINABLE_VARIABLES) if var_list is None else var_list)
        for var in averaged:
            if var.dtype.base_dtype not in _AVERAGED_DTYPES:
                raise TypeError(f"The variables must be half, float, or double: {var.name}")
            if var not in self._averages:
                self._averages[var] = self._shadow(var)
        with graph.name_scope(self._name) as scope:
            decay = self._current_decay()
            updates = [self._update(var, decay).op for var in averaged]
            return group(*updates, name=scope)

    def _shadow(self, var: Variable | Tensor) -> Any:
        if isinstance(var, Tensor):
            on_variable = var.op.type == "VarHandleOp" or REFERENCE in var.op.attrs
            return slot_creator.create_zeros_slot(var, self._name, colocate_with_primary=on_variable)
        with init_scope():
            shadow = slot_creator.create_slot(var, var.initialized_value(), self._name)
        var.graph.add_to_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, var)
        return shadow

    def _current_decay(self) -> Tensor:
        decay = convert_to_tensor(self._decay, name="decay")
        if self._num_updates is None:
            return decay
        updates = raw.Cast(convert_to_tensor(self._num_updates), DstT=decay.dtype.base_dtype)
        warm_up = (1.0 + updates) / (10.0 + updates)
        smaller: Tensor = raw.Minimum(decay, warm_up)
        return smaller

    def _update(self, var: Variable | Tensor, decay: Tensor) -> UnreadVariable:
        debias = self._zero_debias and isinstance(var, Tensor)
        return assign_moving_average(self._averages[var], var, decay, zero_debias=debias)

    def average(self, var: Variable | Tensor) -> Variable | None:
        """The shadow variable of `var`, or None."""
        return self._averages.get(var)

    def average_name(self, var: Variable | Tensor) -> str:
        """The name that the shadow of `var` has, or would have: without the ":0"."""
        if var in self._averages:
            name: str = self._averages[var].op.name
            return name
        graph = get_default_graph()
        return graph.unique_name(f"{var.op.name}/{self._name}", mark_as_used=False)

    def variables_to_restore(self, moving_avg_variables: Iterable[Any] | None = None) -> dict[str, Any]:
        """Names in a checkpoint to variables: a variable that has an average is restored from that.

        Args:
            moving_avg_variables: those that have averages; default: the trainable variables and the collection
                `GraphKeys.MOVING_AVERAGE_VARIABLES`.

        Returns:
            A dictionary for the `var_list` of a `Saver`, with all global variables.
        """
        graph = get_default_graph()
        if moving_avg_variables is None:
            moving_avg_variables = [
                *graph.get_collection(GraphKeys.TRAINABLE_VARIABLES),
                *graph.get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES),
            ]
        averaged = list(dict.fromkeys(moving_avg_variables))
        names = {self.average_name(var): var for var in averaged}
        with_average = {var.name for var in averaged}
        for var in graph.get_collection(GraphKeys.GLOBAL_VARIABLES):
            if var.name not in with_average and var.op.name not in names:
                names[var.op.name] = var
        return names
