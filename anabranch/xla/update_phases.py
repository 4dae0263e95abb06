"""A training step in three parts, for several threads that train one model: look-ups, gradients, updates.

An island that writes variables keeps them to itself until it has run. Where several threads run steps of one model,
they would run one after the other, although most of a step only computes what is then added to the variables. In three
islands, only the first and the last of which keep variables to themselves, the steps run side by side, and each update
is made of values that others may have changed since: that is how TensorFlow's steps meet (§3.2; Recht et al., Hogwild,
2011).

* **Look-ups** read rows of variables. They are few, so that to wait for them is cheaper than to copy the table for
  whoever updates it meanwhile, which pinning it would mean (decision 0012).
* **Gradients** are computed of these rows and of whole variables, which are pinned: updates leave their values as they
  are, and write new ones beside them.
* **Updates** are all that writes, what comes after it, and what lies between the reading of a variable and the write
  that replaces it (`v.assign(v * 0.9)`): what others add to the variable must not come between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from anabranch.core.resources import ResourceHandle
from anabranch.graph.step_nodes import StepNode
from anabranch.passes.dependencies import Dependencies
from anabranch.passes.frames import find_frames
from anabranch.passes.step_graph import StepGraph
from anabranch.xla.state import known_handle, state_of
from anabranch.xla.variable_order import variable_order

LOOKUPS: Final = 0
GRADIENTS: Final = 1
UPDATES: Final = 2

#: which part of the operations updates may be
_MOST_UPDATES: Final = 0.75
#: what look-ups may need of other operations: more are no preparation
_MOST_PREPARING: Final = 64


@dataclass(frozen=True)
class UpdatePhases:
    """In which part of a step each operation runs.

    Attributes:
        of: operation -> `LOOKUPS`, `GRADIENTS` or `UPDATES`.
        pinned: the variables that gradients read whole and updates write: who updates them copies them meanwhile.
    """

    of: Mapping[StepNode, int]
    pinned: Collection[ResourceHandle]


def update_phases(step: StepGraph) -> UpdatePhases | None:
    """The parts of a step.

    Returns:
        None where it has none: it only reads, or updates are nearly all of it.
    """
    dependencies = Dependencies(step)
    if dependencies.dynamic:
        return None
    state = {op: state_of(op, known_handle) for op in step.operations}
    order = variable_order(step, state, find_frames(dependencies))
    earlier: dict[StepNode, list[StepNode]] = {}
    for op in step.operations:
        tensors, controls = dependencies.of(op)
        earlier[op] = [*(t.op for t in tensors), *controls, *order.get(op, ())]
    late = {op for op in step.operations if state[op][1]}
    for op in [*late]:
        late |= _replaced_by(op, state, earlier)
    phases: dict[StepNode, int] = {}
    for op in step.operations:
        is_late = op in late or any(phases[before] == UPDATES for before in earlier[op])
        phases[op] = UPDATES if is_late else GRADIENTS
    updates = sum(phase == UPDATES for phase in phases.values())
    if not 0 < updates <= _MOST_UPDATES * len(phases):
        return None
    for op in step.operations:
        if phases[op] == GRADIENTS and op.op_def.only_reads and _takes_rows(op):
            _prepare(op, phases, state, earlier)
    read = {h for op, phase in phases.items() if phase == GRADIENTS for h in state[op][0]}
    written = {h for op in step.operations for h in state[op][1]}
    return UpdatePhases(phases, frozenset(read & written))


def _takes_rows(op: StepNode) -> bool:
    """Whether a reading operation is told what of the variable it reads."""
    return len(op.inputs) > 1


def _prepare(
    lookup: StepNode,
    phases: dict[StepNode, int],
    state: Mapping[StepNode, tuple[list[ResourceHandle], list[ResourceHandle]]],
    earlier: Mapping[StepNode, list[StepNode]],
) -> None:
    """Puts a look-up, and what it needs, into the first part, unless that reads variables itself or is much."""
    needed: set[StepNode] = set()
    stack = list(earlier[lookup])
    while stack:
        op = stack.pop()
        if op in needed or phases[op] == LOOKUPS:
            continue
        needed.add(op)
        if state[op][0] or len(needed) > _MOST_PREPARING:
            return
        stack.extend(earlier[op])
    phases.update(dict.fromkeys((lookup, *needed), LOOKUPS))


def _replaced_by(
    op: StepNode,
    state: Mapping[StepNode, tuple[list[ResourceHandle], list[ResourceHandle]]],
    earlier: Mapping[StepNode, list[StepNode]],
) -> set[StepNode]:
    """Of an operation that replaces a variable: what reads that before, and all that leads from there to it."""
    reads, writes = state[op]
    replaced = set(writes) - set(reads)
    found: set[StepNode] = set()
    seen: set[StepNode] = set()
    # from each operation first to what comes before it, and once more when that is done
    stack = [(op, False)] if replaced else []
    while stack:
        current, is_done = stack.pop()
        before = earlier[current]
        if is_done:
            if not replaced.isdisjoint(state[current][0]) or not found.isdisjoint(before):
                found.add(current)
        elif current not in seen:
            seen.add(current)
            stack.append((current, True))
            stack.extend((one, False) for one in before)
    return found
