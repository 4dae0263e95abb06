"""A partition as a graph that the executor can run: one node per island, host operation or primitive, one per feed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final, TypeGuard

from anabranch.core.roles import Role
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.runtime.dispatcher import Mode, Work
from anabranch.runtime.executor_graph import ExecutorGraph, FrameSpec, Kind, Known, NodeSpec, Output
from anabranch.runtime.loop_work import LoopWork
from anabranch.runtime.run_order import mode_of, uses_several_devices
from anabranch.runtime.straight_loops import straighten
from anabranch.xla.between_tasks import crosses_tasks
from anabranch.xla.islands import HostCall, Island, PlanItem
from anabranch.xla.partitions import Partition

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


_by_executor_alone: ContextVar[bool] = ContextVar("by_executor_alone", default=False)


@contextlib.contextmanager
def by_executor_alone() -> Iterator[None]:
    """Inside the block, the executor takes all loops apart, also those that could run straight through.

    For tests and comparisons.
    """
    token = _by_executor_alone.set(True)
    try:
        yield
    finally:
        _by_executor_alone.reset(token)


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

    An item that does nothing but hand on what one other item computes (an Identity behind a Switch, the LoopCond of a
    loop) has no node: who takes its output, or waits for it, takes what it hands on. That is alive or dead together
    with it. Of the instances of a small loop's iteration a quarter are of this kind.

    Attributes:
        graph: its nodes: the feeds, then the partition's other items, whose `payload` is left to the caller.
        slots: tensor -> its place among the values of an iteration of its frame.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._feed_of = {tensor: i for i, tensor in enumerate(partition.feeds)}
        self._first = len(partition.feeds)
        self._item_of = {op: i for i, item in enumerate(partition.items) for op in item.operations}
        self._port_of = {t: port for item in partition.items for port, t in enumerate(item.outputs)}
        #: what the items without a node hand on
        self._handed_on = {item.operation: item.inputs[0] for item in partition.items if self._is_transparent(item)}
        kept = [i for i, item in enumerate(partition.items) if item.operations[0] not in self._handed_on]
        self._numbers = {position: self._first + number for number, position in enumerate(kept)}
        feeds = [NodeSpec(tensor.name, Kind.FEED) for tensor in partition.feeds]
        frames = [
            FrameSpec(f.name, -1 if f.parent is None else f.parent.position, f.parallel_iterations)
            for f in partition.grouping.frames.all
        ]
        specs = [*feeds, *(self._node(partition.items[position]) for position in kept)]
        straight = set() if _by_executor_alone.get() else {self._numbers[position] for position in self._quick(kept)}
        self._straight = straighten(specs, frames, straight)
        fetches = [self._output(t) for t in partition.fetches if not t.is_known]
        outputs = [self._straight.output(f) for f in fetches if f is not None]
        loops = self._straight.loops
        self.graph = ExecutorGraph(self._straight.specs, outputs, self._straight.frames, bool(loops))
        #: slots of what is computed inside of loops that run straight through
        self._inside = {output: slot for loop in loops.values() for output, slot in loop.slots.items()}
        self.slots = self._slots()

    def _quick(self, positions: list[int]) -> Iterator[int]:
        """The items that neither wait, nor take a thread, nor speak to other devices."""
        several = uses_several_devices(self._partition)
        for position in positions:
            item = self._partition.items[position]
            is_transfer = isinstance(item, HostCall) and item.operation.op_def.is_transfer
            if not is_transfer and mode_of(item, several) in (Mode.HERE, Mode.AT_ONCE):
                yield position

    def bind(self, works: Mapping[int, Work]) -> None:
        """Gives the nodes their work: that of the items of the partition, by their positions."""
        nodes = self.graph.nodes
        by_number = {self._numbers[position]: work for position, work in works.items()}
        for number, work in by_number.items():
            if number in self._straight.numbers:
                nodes[self._straight.numbers[number]].payload = work
        for number, loop in self._straight.loops.items():
            sources = [self._slot(output) for output, _ in loop.entering]
            nodes[number].payload = LoopWork(loop, by_number, sources, nodes[number].slots)

    def _slots(self) -> dict[StepTensor, int]:
        # of what an item computes although it is fed, the feed's
        outputs = {tensor: self._output(tensor) for item in self._partition.items for tensor in item.outputs}
        slots = {tensor: self._slot(output) for tensor, output in outputs.items() if self._has_slot(output)}
        return {**slots, **{tensor: self._slot((i, 0)) for tensor, i in self._feed_of.items()}}

    def _has_slot(self, output: Output | None) -> TypeGuard[Output]:
        return output is not None and (output in self._inside or self._straight.has(output))

    def _slot(self, output: Output) -> int:
        slot = self._inside.get(output)
        return self.graph.slot(self._straight.output(output)) if slot is None else slot

    def output_slots(self, position: int) -> list[int]:
        """The slots of an item's own outputs, also where they are fed and nobody takes them."""
        count = len(self._partition.items[position].outputs)
        return [self._slot((self._numbers[position], port)) for port in range(count)]

    def _is_transparent(self, item: PlanItem) -> TypeGuard[HostCall]:
        if isinstance(item, Island) or kind_of(item) is not Kind.PASS or len(item.outputs) != 1:
            return False
        op, (output,) = item.operation, item.outputs
        # a fetch that is dead is told by its name
        if len(item.inputs) != 1 or output in self._feed_of or output in self._partition.fetches:
            return False
        (source,) = item.inputs
        tensors, operations = self._partition.grouping.waits[op]
        if source.is_known or source in self._feed_of or operations or self._partition.grouping.order.get(op):
            return False
        # these speak to other iterations, or frames, than their own, and a Merge cannot listen to all of that
        apart = (Role.ENTER, Role.EXIT, Role.NEXT_ITERATION)
        return set(tensors) <= {source} and source in self._port_of and source.op.op_def.role not in apart

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
            more = [i for i in inputs if i not in own]
            # what known inputs wait for comes after the inputs themselves; all those of a Merge are data
            inputs = [*own, *more] if spec.kind is not Kind.MERGE else own
            if spec.kind is Kind.MERGE:
                controls = [*controls, *(node for node, _ in more)]
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
            for earlier in operations:
                if earlier in self._handed_on:
                    # of a side of a Switch: it may be dead while the Switch is not
                    inputs[self._known_output(earlier.outputs[0])] = None
                elif self._item_of[earlier] != own:
                    controls[self._number(earlier)] = None
        return list(inputs), list(controls)

    def _number(self, op: StepNode) -> int:
        """The number of the node that says when an operation has run."""
        while op in self._handed_on:
            op = self._handed_on[op].op
        return self._numbers[self._item_of[op]]

    def _input(self, tensor: StepTensor, item: HostCall) -> Output | Known:
        if tensor.is_known:
            return Known(tensor.known)
        return self._known_output(tensor)

    def _known_output(self, tensor: StepTensor) -> Output:
        output = self._output(tensor)
        assert output is not None
        return output

    def _output(self, tensor: StepTensor) -> Output | None:
        """Where a tensor comes from; None where an island keeps it for itself."""
        if tensor in self._feed_of:
            return self._feed_of[tensor], 0
        while tensor.op in self._handed_on:
            tensor = self._handed_on[tensor.op]
        port = self._port_of.get(tensor)
        return None if port is None else (self._number(tensor.op), port)
