"""Lists that a compiled loop makes longer  (§3.4, WP4.5).

A compiled loop carries values of one shape, and a list that grows by an element in each iteration is none. But where it
is known how often the loop runs, and each iteration writes at a counter of the loop, it is known as well how long the
list will be. So the loop begins with a list of that length, into which nothing was written. That is the same as long as
nobody looks at the list meanwhile: the body does nothing with it but write, and the condition does not take it.

Of a list that has elements already a gradient may ask how long it was before the loop. So only those are meant that the
step makes without elements; `passes.counted_loops` finds them, and tells the loop which they are.

Example: ``tf.nn.raw_rnn`` writes what its cells emit into a `TensorArray` of dynamic size, at the time step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.values import TensorValue
from anabranch.graph.loop_bodies import behind_identities, parameters_behind
from anabranch.graph.step_nodes import StepFunction, StepNode, StepTensor
from anabranch.ops.control_flow.counters import constant_integer, counter_steps
from anabranch.ops.lists.tensor_list import resized
from anabranch.ops.lists.values import TensorList

#: an attribute of loops: the positions of the loop variables that are lists which begin without elements
GROWING = "_growing"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an iteration writes: at a counter of the loop and some more; without a counter always at one place."""

    counter: int | None
    step: int
    more: int

    def last(self, start: Sequence[Any], count: int) -> int | None:
        """The highest of the places of so many iterations; None where it is not known where the counter starts."""
        if self.counter is None:
            return self.more
        first = start[self.counter]
        if not isinstance(first, np.ndarray | np.generic) or np.ndim(first):
            return None
        return int(first) + max(self.step, 0) * (count - 1) + self.more


def growing_lists(
    cond: StepFunction, body: StepFunction, looked_at: Collection[int] = ()
) -> dict[int, tuple[_Place, ...]]:
    """The loop variables that are lists into which iterations only write, and where they do.

    Args:
        looked_at: positions of results of the body, beside the loop variables, of which somebody takes the values.
    """
    lists = [position for position, parameter in enumerate(body.inputs) if parameter.dtype is dtypes.variant]
    if not lists:
        return {}
    in_condition = parameters_behind(cond, cond.outputs)
    steps = counter_steps(body)
    found: dict[int, tuple[_Place, ...]] = {}
    for position in lists:
        writes = _writes(body, position)
        if not writes or position in in_condition or not _only_written(body, position, writes, looked_at):
            continue
        places = [_place(body, steps, write.inputs[1]) for write in writes]
        if None not in places:
            found[position] = tuple(place for place in places if place is not None)
    return found


def with_room(start: list[Any], places_of: Mapping[int, Sequence[_Place]], count: int) -> list[Any]:
    """The first values of loop variables, with room in lists for what so many iterations will write."""
    made = list(start)
    for position, places in places_of.items():
        value, last = start[position], [place.last(start, count) for place in places]
        if not isinstance(value, TensorList) or value.on_host or value.declared is None or None in last:
            continue
        longest = max(value.length, *(place + 1 for place in last if place is not None)) if count else value.length
        made[position] = resized(value.declared_as(replace(value.declared, has_room=True)), longest)
    return made


def as_left(value: TensorValue) -> Any:
    """A loop variable as it leaves the loop: of a list it is not known any more where it is written."""
    if isinstance(value, TensorList) and value.declared is not None and value.declared.has_room:
        return value.declared_as(replace(value.declared, has_room=False))
    return value


def _writes(body: StepFunction, position: int) -> list[StepNode]:
    """The operations that write into a list in an iteration, the last one first; none where anything else does."""
    parameter, writes = body.inputs[position], []
    tensor = behind_identities(body.outputs[position])
    while tensor is not parameter:
        op = tensor.op
        if op.type != "TensorListSetItem" or not op.attrs["resize_if_index_out_of_bounds"]:
            return []
        writes.append(op)
        tensor = behind_identities(op.inputs[0])
    return writes


def _only_written(body: StepFunction, position: int, writes: Sequence[StepNode], looked_at: Collection[int]) -> bool:
    """Whether an iteration does nothing with a list but write into it."""
    values = {body.inputs[position], *(write.outputs[0] for write in writes)}
    for place, output in enumerate(body.outputs):
        is_other = place != position and (place < len(body.inputs) or place in looked_at)
        if is_other and behind_identities(output) in values:
            return False
    for op in body.operations:
        if any(behind_identities(tensor) in values for tensor in op.inputs):
            takes_as_list = op in writes and not any(behind_identities(tensor) in values for tensor in op.inputs[1:])
            if not takes_as_list and any(behind_identities(out) is out for out in op.outputs):
                return False
    return True


def _place(body: StepFunction, steps: Sequence[int | None], index: StepTensor) -> _Place | None:
    index, more = behind_identities(index), 0
    fixed = constant_integer(index)
    if fixed is not None:
        return _Place(None, 0, fixed)
    if index.op.type in {"Add", "AddV2"} and not index.op.control_inputs:
        one, other = (behind_identities(tensor) for tensor in index.op.inputs)
        if constant_integer(one) is not None:
            one, other = other, one
        added = constant_integer(other)
        if added is None:
            return None
        index, more = one, added
    for position, parameter in enumerate(body.inputs):
        if parameter is index:
            step = steps[position]
            return None if step is None else _Place(position, step, more)
    return None
