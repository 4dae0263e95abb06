"""Tensors that a compiled loop makes longer while it rearranges them, and looks at their ends  (§3.4).

A loop variable that is joined with a piece in each iteration changes its shape, which nothing that is compiled may.
Where it is known how often the loop runs, it is known how long the variable will be, and the loop can carry it with
room for all pieces: an iteration writes its own where the last one ended. That is the same as long as nobody sees the
room: the body takes rows of the variable along other axes than that which grows, looks at its last place, and does
nothing else with it; the condition does not take it.

Example: a beam search, ``words = tf.concat([tf.gather_nd(words, parents), chosen], 2)`` with ``words[:, :, -1]``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from anabranch.core.values import TensorValue
from anabranch.graph.loop_bodies import behind_identities, parameters_behind
from anabranch.graph.step_nodes import StepFunction, StepNode, StepTensor
from anabranch.ops.arrays.slice_pieces import picked_place
from anabranch.ops.control_flow.counters import constant_integer

#: tensor of a body -> its value
ValueOf = Callable[[StepTensor], Any]


@dataclass(frozen=True, slots=True)
class Rearranged:
    """A loop variable at a position that an iteration makes longer, along an axis.

    Attributes:
        joining: the operation that does so.
        size: of a piece, along that axis.
        ends: the operations that take its last place.
    """

    position: int
    axis: int
    joining: StepNode
    size: int
    ends: tuple[StepNode, ...]

    def with_room(self, first: TensorValue, count: int) -> Any:
        """The first value, with room for the pieces of so many iterations; None: there is no end to look at."""
        first = jnp.asarray(first)
        if self.ends and not first.shape[self.axis]:
            return None
        room = [(0, 0)] * first.ndim
        room[self.axis] = (0, count * self.size)
        return jnp.pad(first, room)

    def kernels(
        self, begin: int, number: TensorValue, refusal: Callable[[str], Exception]
    ) -> Mapping[StepNode, Callable[[ValueOf], Any]]:
        """How these operations are computed in the iteration of a number, where the first value was so long.

        Args:
            refusal: makes an exception of why the loop cannot be compiled.
        """
        end = jnp.asarray(number, np.int32) * np.int32(self.size) + np.int32(begin)
        whole, piece = self.joining.inputs[:2]

        def joined(value_of: ValueOf) -> Any:
            before, added = jnp.asarray(value_of(whole)), jnp.asarray(value_of(piece))
            if (
                _others(before.shape, self.axis) != _others(added.shape, self.axis)
                or added.shape[self.axis] != self.size
            ):
                raise refusal(f"{self.joining.name} joins shapes {before.shape} and {added.shape}")
            return lax.dynamic_update_slice_in_dim(before, added, end, self.axis)

        def last(op: StepNode) -> Callable[[ValueOf], Any]:
            taken = op.inputs[0]
            return lambda value_of: lax.dynamic_index_in_dim(value_of(taken), end - 1, self.axis, keepdims=False)

        return {self.joining: joined, **{op: last(op) for op in self.ends}}


def _others(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def rearranged_values(cond: StepFunction, body: StepFunction, carried: Collection[int]) -> list[Rearranged]:
    """The loop variables, among some, that an iteration makes longer without anybody seeing how long they are."""
    found: list[Rearranged] = []
    in_condition: set[int] | None = None
    for position in carried:
        parameter, joining = body.inputs[position], behind_identities(body.outputs[position]).op
        rank = parameter.shape.ndims
        if joining.type != "ConcatV2" or len(joining.inputs) != 3 or joining.control_inputs or not rank:
            continue
        axis = constant_integer(joining.inputs[2])
        if axis is None or not -rank <= axis < rank:
            continue
        axis %= rank
        piece = joining.inputs[1].shape
        size = piece[axis].value if piece.ndims == rank else None
        rows = _rows_before(joining.inputs[0], parameter, axis)
        if size is None or rows is None:
            continue
        if in_condition is None:
            in_condition = parameters_behind(cond, cond.outputs)
        ends = None if position in in_condition else _ends(body, position, rows, axis)
        if ends is not None:
            found.append(Rearranged(position, axis, joining, size, tuple(ends)))
    return found


def _rows_before(tensor: StepTensor, parameter: StepTensor, axis: int) -> list[StepNode] | None:
    """The operations that take rows of a parameter, along axes before one, to give a tensor; None: others do."""
    operations: list[StepNode] = []
    tensor = behind_identities(tensor)
    while tensor is not parameter:
        op = tensor.op
        if op.control_inputs or not _keeps_axis(op, axis):
            return None
        operations.append(op)
        tensor = behind_identities(op.inputs[0])
    return operations


def _keeps_axis(op: StepNode, axis: int) -> bool:
    """Whether an operation takes rows of its first input, and an axis stays what it is."""
    if op.type == "GatherNd":
        indices = op.inputs[1].shape
        depth = indices[-1].value if indices.ndims else None
        return depth is not None and depth <= axis and indices.ndims == depth + 1
    if op.type != "GatherV2":
        return False
    along, ranks, batch = constant_integer(op.inputs[2]), op.inputs[1].shape.ndims, op.attrs["batch_dims"]
    return along is not None and 0 <= along < axis and batch >= 0 and ranks == batch + 1


def _ends(body: StepFunction, position: int, rows: list[StepNode], axis: int) -> list[StepNode] | None:
    """The operations that take the last place of a loop variable; None where anything else is done with it."""
    parameter, result = body.inputs[position], behind_identities(body.outputs[position])
    values = {parameter, result, *(op.outputs[0] for op in rows)}
    if any(behind_identities(t) in values for place, t in enumerate(body.outputs) if place != position):
        return None
    ends: list[StepNode] = []
    for op in body.operations:
        taken = [behind_identities(tensor) in values for tensor in op.inputs]
        if not any(taken) or any(behind_identities(out) is not out for out in op.outputs):
            continue  # it passes them on, and who takes what it gives is looked at
        if any(taken[1:]) or op.control_inputs:
            return None
        if op in rows or op is result.op:
            continue
        if behind_identities(op.inputs[0]) is not parameter or picked_place(op) != (axis, -1):
            return None
        ends.append(op)
    return ends
