"""A partition as a graph that the executor can run: one node per island, host operation or primitive, one per feed."""

from __future__ import annotations

from typing import Any, Final

from anabranch.core.roles import Role
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.runtime.executor_graph import ExecutorGraph, FrameSpec, Kind, Known, NodeSpec, Output
from anabranch.xla.islands import HostCall, Island, PlanItem
from anabranch.xla.partitions import Partition, crosses_tasks

_KINDS: Final[dict[Role, Kind]] = {
    Role.SWITCH: Kind.SWITCH,
    Role.MERGE: Kind.MERGE,
    Role.ENTER: Kind.ENTER,
    Role.EXIT: Kind.EXIT,
    Role.NEXT_ITERATION: Kind.NEXT_ITERATION,
    Role.LOOP_CONDITION: Kind.PASS,
    Role.GATE: Kind.PASS,
    Role.TRIGGER: Kind.TRIGGER,
}


def kind_of(item: PlanItem) -> Kind:
    """What the executor does with an item."""
    if isinstance(item, Island):
        return Kind.WORK
    op = item.operation
    if op.type == "Const" or (op.op_def.passes_on and len(op.outputs) <= 1):
        return Kind.PASS
    if op.op_def.role is Role.SEND and crosses_tasks(op):
        return Kind.SEND
    return _KINDS.get(op.op_def.role, Kind.WORK)


class ItemGraph:
    """The executor's graph of a partition.

    Attributes:
        graph: its nodes: the feeds, then the partition's items, whose `payload` is left to the caller.
        slots: tensor -> its place among the values of an iteration of its frame.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._feed_of = {tensor: i for i, tensor in enumerate(partition.feeds)}
        self._first = len(partition.feeds)
        self._item_of = {op: i for i, item in enumerate(partition.items) for op in item.operations}
        self._port_of = {t: port for item in partition.items for port, t in enumerate(item.outputs)}
        feeds = [NodeSpec(tensor.name, Kind.FEED) for tensor in partition.feeds]
        frames = [
            FrameSpec(f.name, -1 if f.parent is None else f.parent.position, f.parallel_iterations)
            for f in partition.grouping.frames.all
        ]
        specs = [*feeds, *(self._node(item) for item in partition.items)]
        fetches = [self._output(t) for t in partition.fetches if not t.is_known]
        self.graph = ExecutorGraph(specs, [f for f in fetches if f is not None], frames)
        self.slots = self._slots()

    def node_number(self, position: int) -> int:
        """The number of the node of an item of the partition."""
        return self._first + position

    def _slots(self) -> dict[StepTensor, int]:
        slots = {tensor: self.graph.slot((i, 0)) for tensor, i in self._feed_of.items()}
        for position, item in enumerate(self._partition.items):
            for port, tensor in enumerate(item.outputs):
                # a tensor that is fed has the feed's slot, though an item may compute it as well
                slots.setdefault(tensor, self.graph.slot((self._first + position, port)))
        return slots

    def output_slots(self, position: int) -> list[int]:
        """The slots of an item's own outputs, also where they are fed and nobody takes them."""
        count = len(self._partition.items[position].outputs)
        return [self.graph.slot((self._first + position, port)) for port in range(count)]

    # ---- nodes
    def _node(self, item: PlanItem) -> NodeSpec:
        members = item.operations
        frames = self._partition.grouping.frames
        spec = NodeSpec(members[-1].name, kind_of(item), frames.of[members[0]].position, outputs=len(item.outputs))
        inputs, controls = self._waits(members)
        if spec.kind not in (Kind.WORK, Kind.SEND, Kind.TRIGGER):
            assert isinstance(item, HostCall)
            own = [self._input(t, item) for t in item.inputs]
            if item.operation.type == "Const":
                own = [Known(item.operation.attrs["value"])]
            # what known inputs wait for comes after the inputs themselves
            inputs = [*own, *(i for i in inputs if i not in own)] if spec.kind is not Kind.MERGE else own
            spec.constant = bool(item.operation.attrs.get("is_constant", False))
            if spec.kind is Kind.ENTER:
                spec.child = frames.entered(item.operation).position
        spec.inputs, spec.controls = inputs, controls
        if spec.kind in (Kind.WORK, Kind.SEND) and spec.frame == 0:
            spec.reads = [output for t in item.inputs if (output := self._output(t)) is not None]
        after = {self._number(op) for member in members for op in self._partition.grouping.order.get(member, ())}
        # sorted, so that equal partitions make equal graphs; orders inside of an island are its own affair
        spec.after = sorted(after - {self._number(members[0])})
        return spec

    def _waits(self, members: list[StepNode]) -> tuple[list[Any], list[int]]:
        own = self._item_of[members[0]]
        inputs: dict[Output, None] = {}
        controls: dict[int, None] = {}
        for op in members:
            tensors, operations = self._partition.grouping.waits[op]
            for tensor in tensors:
                if self._item_of[tensor.op] == own:
                    continue
                output = self._output(tensor)
                # of a value that an island keeps for itself only the island's end can be waited for
                if output is not None:
                    inputs[output] = None
                else:
                    controls[self._number(tensor.op)] = None
            controls.update((self._number(c), None) for c in operations if self._item_of[c] != own)
        return list(inputs), list(controls)

    def _number(self, op: StepNode) -> int:
        return self._first + self._item_of[op]

    def _input(self, tensor: StepTensor, item: HostCall) -> Output | Known:
        if tensor.is_known:
            return Known(tensor.known)
        output = self._output(tensor)
        assert output is not None
        return output

    def _output(self, tensor: StepTensor) -> Output | None:
        """Where a tensor comes from; None where an island keeps it for itself."""
        if tensor in self._feed_of:
            return self._feed_of[tensor], 0
        port = self._port_of.get(tensor)
        return None if port is None else (self._number(tensor.op), port)
