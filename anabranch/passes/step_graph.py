"""What one kind of step runs: nodes of its own, in order, and where they meet the caller (docs/decisions/0032).

A pass makes one `StepGraph` of another and changes neither that one nor its nodes; what stays the same is shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, Unpack

from anabranch.graph.step_nodes import StepNode, StepTensor


@dataclass(frozen=True, slots=True)
class Transfer:
    """A tensor that goes from one device to another: sent once, received once (§3.3).

    Attributes:
        send, recv: the nodes at its ends.
        name: what both call it, unique in the step.
        source, destination: the full names of the devices.
    """

    send: StepNode
    recv: StepNode
    name: str
    source: str
    destination: str

    @property
    def tensor(self) -> StepTensor:
        """What is sent."""
        return self.send.inputs[0]


class StepChanges(TypedDict, total=False):
    """In what a step graph differs from another, besides its operations."""

    fetches: list[StepTensor]
    targets: list[StepNode]
    feeds: list[StepTensor]
    colocated: Mapping[str, StepNode]
    transfers: Mapping[StepNode, Transfer]


@dataclass(slots=True)
class StepGraph:
    """See the module docstring.

    Attributes:
        operations: what to run, in an order that respects data and control edges, except for the back edges of loops;
            ties keep the order of creation.
        fetches: tensors whose values the step returns.
        targets: operations that must run although nothing of them is fetched.
        feeds: tensors whose values the step is given.
        colocated: operations whose devices others are to share, also where they do not run: by name.
        transfers: what goes from device to device, by the node that receives it. A Recv has no edge from its Send:
            they may be on different tasks.
    """

    operations: list[StepNode]
    fetches: list[StepTensor]
    targets: list[StepNode]
    feeds: list[StepTensor]
    colocated: Mapping[str, StepNode] = field(default_factory=dict)
    transfers: Mapping[StepNode, Transfer] = field(default_factory=dict)

    def with_operations(self, operations: list[StepNode], **changes: Unpack[StepChanges]) -> StepGraph:
        """A copy with other operations, and whatever else is to differ."""
        return replace(self, operations=operations, **changes)

    def consumers(self) -> dict[StepTensor, list[StepNode]]:
        """The nodes that take each tensor, in step order; once for each time that they take it."""
        consumers: dict[StepTensor, list[StepNode]] = {}
        for op in self.operations:
            for tensor in op.inputs:
                consumers.setdefault(tensor, []).append(op)
        return consumers

    def known_tensors(self) -> dict[StepTensor, Any]:
        """The tensors that operations take, or the step returns, whose values are known; with their values."""
        taken = (t for op in self.operations for t in op.inputs)
        return {t: t.known for t in (*taken, *self.fetches) if t.is_known}
