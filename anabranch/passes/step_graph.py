"""The part of a graph that one kind of step runs, as the passes see and rewrite it.

A `StepGraph` is an overlay: it never changes the user's graph. It lists the operations to run, in an order that
respects all edges, and says of some tensors that their value is known or that another tensor has the same value.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.errors import InvalidArgumentError
from anabranch.graph.loop_structure import is_back_edge
from anabranch.graph.operation import Operation, Tensor


@dataclass(slots=True)
class StepGraph:
    """See the module docstring.

    Attributes:
        operations: what to run, in an order that respects data and control edges, except for the back edges of loops;
            ties keep the order of creation.
        fetches: tensors whose values the step returns.
        targets: operations that must run although nothing of them is fetched.
        feeds: tensors whose values the step is given.
        known: tensors whose value is the same in every such step: NumPy arrays, and resource handles.
        alias: tensor -> the tensor that stands for it.
        device: operation -> the full name of the device that it was placed on; what is not listed runs on the default
            device.
        local_alias: device -> what `alias` is there: a tensor of another device is stood for by its received copy.
        controls: operation -> its control inputs in this step, where they are not those of the graph. All control
            inputs are operations of the step: a pass that removes some hands on what they waited for.
        after: operation -> operations that it waits for, dead or alive, although no tensor or control edge says so.
    """

    operations: list[Operation]
    fetches: list[Tensor]
    targets: list[Operation]
    feeds: list[Tensor]
    known: dict[Tensor, Any] = field(default_factory=dict)
    alias: dict[Tensor, Tensor] = field(default_factory=dict)
    device: dict[Operation, str] = field(default_factory=dict)
    local_alias: dict[str, dict[Tensor, Tensor]] = field(default_factory=dict)
    controls: dict[Operation, list[Operation]] = field(default_factory=dict)
    after: dict[Operation, list[Operation]] = field(default_factory=dict)

    def with_operations(self, operations: list[Operation], **changes: Any) -> StepGraph:
        """A copy with other operations, and whatever else is to differ."""
        return replace(self, operations=operations, **changes)

    def resolve(self, tensor: Tensor) -> Tensor:
        """The tensor that stands for `tensor` after merging."""
        return self.alias.get(tensor, tensor)

    def inputs_of(self, op: Operation) -> list[Tensor]:
        """The tensors that `op` takes in this step."""
        alias = self.alias_on(self.device.get(op, "")) if self.local_alias else self.alias
        return [alias.get(t, t) for t in op.inputs] if alias else op.inputs

    def alias_on(self, device: str) -> dict[Tensor, Tensor]:
        """Tensor -> the tensor that stands for it on a device."""
        return self.local_alias.get(device, self.alias)

    def controls_of(self, op: Operation) -> list[Operation]:
        """The operations that must finish before `op` starts in this step, besides those that produce its inputs."""
        return self.controls.get(op, op._control_inputs) if self.controls else op._control_inputs


def in_execution_order(operations: Iterable[Operation], fed: set[Tensor]) -> list[Operation]:
    """Sorts topologically; among ready operations the one created first goes first.

    Raises:
        InvalidArgumentError: the operations form a cycle.
    """
    ordered = sorted(operations, key=lambda op: op._id)
    if all(_comes_after_inputs(op, fed) for op in ordered):
        return ordered
    return _kahn(ordered, fed)


def _comes_after_inputs(op: Operation, fed: set[Tensor]) -> bool:
    return all(t._op._id < op._id or t in fed or is_back_edge(op, t) for t in op._inputs) and all(
        c._id < op._id for c in op._control_inputs
    )


def _kahn(operations: list[Operation], fed: set[Tensor]) -> list[Operation]:
    members = set(operations)
    waiting: dict[Operation, int] = {}
    followers: dict[Operation, list[Operation]] = {op: [] for op in operations}
    for op in operations:
        before = {t.op for t in op.inputs if t not in fed and t.op in members and not is_back_edge(op, t)}
        before.update(c for c in op._control_inputs if c in members)
        waiting[op] = len(before)
        for earlier in before:
            followers[earlier].append(op)
    ready = [(op._id, op) for op in operations if waiting[op] == 0]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, op = heapq.heappop(ready)
        ordered.append(op)
        for later in followers[op]:
            waiting[later] -= 1
            if waiting[later] == 0:
                heapq.heappush(ready, (later._id, later))
    if len(ordered) < len(operations):
        stuck = sorted((op for op in operations if waiting[op] > 0), key=lambda op: op._id)
        raise InvalidArgumentError(
            None,
            stuck[0],
            f"the graph has a cycle through {', '.join(repr(op.name) for op in stuck[:5])}; "
            "only the edge from a NextIteration to a Merge may close one",
        )
    return ordered
