"""In which order the operations of a step come to each variable (design D11).

A write comes after the reads and writes that precede it in step order, and before those that follow. Only operations
of one frame can be ordered: what stands in a loop happens many times between two others. (The lowering of a loop
orders the loop as a whole.)

Locks are taken and given back in step order as well. Else what holds a lock could wait for an earlier operation on its
variables that waits for the lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anabranch.core.resources import ResourceHandle
from anabranch.graph.step_nodes import StepNode
from anabranch.passes.frames import Frames
from anabranch.passes.step_graph import StepGraph
from anabranch.xla.state import locks

#: operation -> the variables that it reads and those that it writes
States = Mapping[StepNode, tuple[list[ResourceHandle], list[ResourceHandle]]]


#: stands for what locks guard
_LOCKS: Final = "locks"


class _VariableHistory:
    """The operations on each variable so far, in step order: the last write, and the reads since then."""

    def __init__(self) -> None:
        self._last_write: dict[Any, StepNode] = {}
        self._reads: dict[Any, list[StepNode]] = {}

    def before(self, reads: list[Any], writes: list[Any]) -> list[StepNode]:
        """What an operation with these reads and writes must come after."""
        earlier_operations = [self._last_write[h] for h in (*reads, *writes) if h in self._last_write]
        earlier_operations.extend(read for h in writes for read in self._reads.get(h, ()))
        return earlier_operations

    def add(self, op: StepNode, reads: list[Any], writes: list[Any]) -> None:
        """Adds the next operation."""
        for handle in writes:
            self._last_write[handle] = op
            # what comes after this write comes after those reads as well
            self._reads[handle] = []
        for handle in reads:
            self._reads.setdefault(handle, []).append(op)


def variable_order(step: StepGraph, states: States, frames: Frames | None = None) -> dict[StepNode, list[StepNode]]:
    """For each operation, those that come before it to a variable of theirs; and what their `after` says."""
    histories: dict[int, _VariableHistory] = {}
    order: dict[StepNode, list[StepNode]] = {}
    for op in step.operations:
        reads, writes = states[op]
        # as if a device's locks were one variable
        changed: list[Any] = [*writes, (_LOCKS, op.placed_on)] if locks(op) else writes
        earlier = list(op.after)
        if reads or changed:
            place = 0 if frames is None else frames.of[op].position
            history = histories.setdefault(place, _VariableHistory())
            earlier += history.before(reads, changed)
            history.add(op, reads, changed)
        if earlier:
            order[op] = [other for other in dict.fromkeys(earlier) if other is not op]
    return order
