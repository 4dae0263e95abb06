"""Tensors to which a compiled loop only appends  (§3.4).

A loop variable that is joined with a piece in each iteration changes its shape, which nothing that is compiled may.
But where it is known how often the loop runs, and nobody looks at the variable meanwhile, the pieces can be kept, as
records are, and joined with the first value after the loop.

Example: a program that samples words one after the other, ``words = tf.concat([words, word[:, None]], 1)``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from anabranch.core.arrays import Array
from anabranch.graph.loop_bodies import behind_identities, parameters_behind
from anabranch.graph.step_nodes import StepFunction, StepTensor
from anabranch.ops.control_flow.counters import constant_integer


@dataclass(frozen=True, slots=True)
class Appended:
    """A loop variable at a position, to which an iteration appends a piece along an axis."""

    position: int
    piece: StepTensor
    axis: int

    def whole(self, first: Array, pieces: Array, count: int) -> Any:
        """The variable after the loop.

        Args:
            first: its value before.
            pieces: [at least count, ...]: what the iterations appended.
        """
        first = jnp.asarray(first)
        if not count:
            return first
        axis = self.axis % first.ndim
        in_place = jnp.moveaxis(pieces[:count], 0, axis)
        shape = list(pieces.shape[1:])
        shape[axis] *= count
        return jnp.concatenate([first, in_place.reshape(shape)], axis)


def appended_values(cond: StepFunction, body: StepFunction, carried: Collection[int]) -> list[Appended]:
    """The loop variables, among some, with which an iteration does nothing but append to them."""
    found: list[Appended] = []
    in_condition: set[int] | None = None
    for position in carried:
        parameter, result = body.inputs[position], behind_identities(body.outputs[position])
        joining = result.op
        if (
            joining.type != "ConcatV2"
            or len(joining.inputs) != 3
            or behind_identities(joining.inputs[0]) is not parameter
        ):
            continue
        axis = constant_integer(joining.inputs[2])
        if in_condition is None:
            in_condition = parameters_behind(cond, cond.outputs)
        if axis is None or position in in_condition or not _is_only_joined(body, position, {parameter, result}):
            continue
        found.append(Appended(position, joining.inputs[1], axis))
    return found


def _is_only_joined(body: StepFunction, position: int, values: set[StepTensor]) -> bool:
    """Whether nobody but the operation that appends takes the variable, and nobody what that gives."""
    if any(behind_identities(t) in values for place, t in enumerate(body.outputs) if place != position):
        return False
    parameter, result = body.inputs[position], behind_identities(body.outputs[position])
    for op in body.operations:
        taken = [behind_identities(tensor) for tensor in op.inputs]
        if op is result.op:
            if parameter in taken[1:]:
                return False
        elif not values.isdisjoint(taken) and any(behind_identities(out) is out for out in op.outputs):
            return False
    return True
