"""Partitions: what each task runs of a step, as a value of its own (§3.3; design D6; docs/decisions/0036).

The whole step is planned first, islands and delayed Recvs included. Only then is it cut: a task gets the items of its
devices, in the order that they have in the step, and what they need to run: what waits for what, the loops that they
stand in, which feeds they take and which fetches they give, and what goes to other tasks and comes from there. It
binds and compiles its items; it never groups them anew. Had each task grouped its own share, an island could hold what
is sent to another task together with what needs the answer, and would wait for ever.

A partition refers to nothing but its own nodes, so that it can be written and read (`xla.partition_codec`), printed
(`str`) and compared (by what is written).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.core.devices import task_of
from anabranch.core.dtypes import DType
from anabranch.core.shapes import TensorShape
from anabranch.errors import InternalError
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.step_graph import StepGraph, Transfer
from anabranch.passes.verify import fail
from anabranch.placement.cost_model import size_of
from anabranch.xla.islands import Grouping, Island, PlanItem


@dataclass(frozen=True, slots=True)
class TransferEnd:
    """One end of a transfer between tasks.

    Attributes:
        tensor: the name of the transfer.
        source, destination: the full names of the devices.
        dtype, shape: of the tensor, as far as that is known before the step runs.
        size: its bytes, as estimated.
    """

    tensor: str
    source: str
    destination: str
    dtype: DType
    shape: TensorShape
    size: int


@dataclass(slots=True)
class Partition:
    """See the module docstring.

    Attributes:
        task: the full name of the task, such as "/job:worker/replica:0/task:1".
        default_device: the full name of the device on which items run that name none.
        grouping: what runs, in order.
        feeds: the tensors that are fed here.
        feed_positions: which feeds of the step these are.
        fetches: the tensors whose values are given back from here.
        fetch_positions: which fetches of the step these are.
        sends, receives: what goes to other tasks, and comes from there.
        follows_order: whether no operation of the whole step can die, repeat, or wait for anything but a transfer. All
            tasks may then run what they have in the order of the step.
    """

    task: str
    default_device: str
    grouping: Grouping
    feeds: list[StepTensor]
    feed_positions: list[int]
    fetches: list[StepTensor]
    fetch_positions: list[int]
    sends: list[TransferEnd]
    receives: list[TransferEnd]
    follows_order: bool = True

    @property
    def items(self) -> list[PlanItem]:
        return self.grouping.items

    @property
    def operations(self) -> Iterator[StepNode]:
        """What runs here, in order."""
        return (op for item in self.items for op in item.operations)

    def __str__(self) -> str:
        return "\n".join(_printed(self))


def cut(step: StepGraph, grouping: Grouping, default_device: str) -> list[Partition]:
    """The partitions of a step, one for each task that has something to run or to give back, by name.

    Args:
        default_device: the full name of the device of items, feeds and fetches that name none. Fetches that are known,
            or fed, are given back by its task.
    """
    default_task = task_of(default_device)
    tasks = {task_of(item.device) or default_task for item in grouping.items} | {default_task}
    # the usual case: all belongs to one task, so that the step's own lists serve as they are
    if len(tasks) == 1:
        every_feed, every_fetch = list(range(len(step.feeds))), list(range(len(step.fetches)))
        ends = default_task, default_device
        return [Partition(*ends, grouping, step.feeds, every_feed, step.fetches, every_fetch, [], [])]
    cutting = _Cutting(step, grouping, default_device)
    return [cutting.partition(task) for task in sorted(tasks)]


class _Cutting:
    """The work of `cut` for a step that runs on several tasks."""

    def __init__(self, step: StepGraph, grouping: Grouping, default_device: str) -> None:
        self._step, self._grouping, self._default_device = step, grouping, default_device
        self._default_task = task_of(default_device)
        self._follows_order = not any(
            op.op_def.is_primitive or op.op_def.asynchronous or op.op_def.blocking for op in step.operations
        )
        self._task_of = {op: self._home(item.device) for item in grouping.items for op in item.operations}

    def _home(self, device: str) -> str:
        return task_of(device) or self._default_task

    def partition(self, task: str) -> Partition:
        items = [item for item in self._grouping.items if self._home(item.device) == task]
        operations = [op for item in items for op in item.operations]
        fetched = [i for i, t in enumerate(self._step.fetches) if self._task_of.get(t.op, self._default_task) == task]
        fetches = [self._step.fetches[i] for i in fetched]
        needed = {*fetches, *(t for op in operations for t in op.inputs)}
        fed = [i for i, t in enumerate(self._step.feeds) if t in needed]
        transfers = [t for t in self._step.transfers.values() if self._home(t.source) != self._home(t.destination)]
        return Partition(
            task,
            self._default_device if task == self._default_task else _first_device(items),
            self._part(items, operations),
            [self._step.feeds[i] for i in fed],
            fed,
            fetches,
            fetched,
            [_end(t) for t in transfers if self._home(t.source) == task],
            [_end(t) for t in transfers if self._home(t.destination) == task],
            self._follows_order,
        )

    def _part(self, items: list[PlanItem], operations: Sequence[StepNode]) -> Grouping:
        members, whole = set(operations), self._grouping
        waits = {
            op: ([t for t in whole.waits[op][0] if t.op in members], [c for c in whole.waits[op][1] if c in members])
            for op in operations
        }
        # a Recv that is delayed waits for an item of its own device, so that no order is lost here
        order = {op: [c for c in whole.order[op] if c in members] for op in operations if op in whole.order}
        return Grouping(items, waits, order, whole.frames.of_part(operations))


def _first_device(items: Sequence[PlanItem]) -> str:
    # there is one: an item that names no device belongs to the default task
    return next(item.device for item in items if item.device)


def _end(transfer: Transfer) -> TransferEnd:
    tensor = transfer.tensor
    ends = transfer.source, transfer.destination
    return TransferEnd(transfer.name, *ends, tensor.dtype, tensor.shape, size_of(tensor))


# ---------------------------------------------------------------------- what must hold
def verify_partitions(partitions: Sequence[Partition], step: StepGraph, stage: str) -> None:
    """Raises InternalError unless the partitions are the step, each complete in itself.

    Every operation is in one of them, every fetch is given back by one, and each takes what its own operations compute,
    what is fed to it, or what is known. Every tensor that one sends to another task is received there, and only there.
    """
    homes: dict[StepNode, str] = {}
    for part in partitions:
        _check_is_complete(part, stage)
        for op in part.operations:
            if op in homes:
                fail(stage, op, f"is in the partitions of {homes[op]} and {part.task}")
            homes[op] = part.task
    for op in step.operations:
        if op not in homes:
            fail(stage, op, "is in no partition")
    positions = sorted(position for part in partitions for position in part.fetch_positions)
    if positions != list(range(len(step.fetches))):
        raise InternalError(
            None, None, f"after stage {stage!r} the fetches {positions} are given of {len(step.fetches)}"
        )
    sends = sorted((end.tensor, task_of(end.destination)) for part in partitions for end in part.sends)
    receives = sorted((end.tensor, part.task) for part in partitions for end in part.receives)
    if sends != receives:
        raise InternalError(None, None, f"after stage {stage!r} {sends} are sent and {receives} received")


def _check_is_complete(part: Partition, stage: str) -> None:
    members, fed = set(part.operations), set(part.feeds)
    for op in members:
        for tensor in op.inputs:
            if not (tensor.is_known or tensor in fed or tensor.op in members):
                fail(stage, op, f"takes {tensor.name!r}, which its task {part.task} does not have")
        tensors, controls = part.grouping.waits[op]
        for earlier in (*(t.op for t in tensors), *controls, *part.grouping.order.get(op, ())):
            if earlier not in members:
                fail(stage, op, f"waits for {earlier.name!r} of another task")


# ---------------------------------------------------------------------- printing
def _printed(part: Partition) -> Iterator[str]:
    yield f"partition of {part.task}"
    for what, tensors in (("feeds", part.feeds), ("fetches", part.fetches)):
        if tensors:
            yield f"  {what} {_names(tensors)}"
    for what, ends in (("sends", part.sends), ("receives", part.receives)):
        for end in ends:
            yield (
                f"  {what} {end.tensor} {end.dtype.name}{end.shape} ({end.size} bytes) "
                f"from {end.source} to {end.destination}"
            )
    for number, item in enumerate(part.items):
        first = item.operations[0]
        frame = part.grouping.frames.of[first]
        where = f" on {item.device}" if item.device else ""
        where += "" if frame.parent is None else f" {frame}"
        if isinstance(item, Island):
            yield f"  {number}: island{where}: {_names(item.inputs)} -> {_names(item.outputs)}"
            for what, handles in (("reads", item.reads), ("writes", item.writes)):
                if handles:
                    yield f"       {what} {', '.join(map(str, handles))}"
            yield from (f"       {_described(op)}" for op in item.operations)
        else:
            yield f"  {number}: host{where}: {_described(item.operation)}"


def _names(tensors: Sequence[StepTensor]) -> str:
    return ", ".join(t.name for t in tensors) or "nothing"


def _described(op: StepNode) -> str:
    controls = "".join(f", ^{control.name}" for control in op.control_inputs)
    return f"{op.name} = {op.type}({', '.join(t.name for t in op.inputs)}{controls})"
