"""Delays the Recvs of a step that was cut into islands (WP5.2); what is decided is in `placement.receive_schedule`.

Islands are what a device runs, so that a Recv can wait for a whole island only. The islands themselves stay as they
are: an edge added earlier, between operations, would have torn islands apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.core.devices import Device
from anabranch.core.roles import Role
from anabranch.graph.step_nodes import StepNode
from anabranch.passes.step_graph import StepGraph
from anabranch.placement.cost_model import CostModel, size_of
from anabranch.placement.receive_schedule import Item, ReceiveSchedule, order, schedule_receives
from anabranch.xla.islands import Grouping, PlanItem


@dataclass(frozen=True, slots=True)
class DelayedReceive:
    """A Recv of so many bytes on a device, and the operation (the last of its island) that it waits for."""

    name: str
    device: str
    size: int
    after: str


@dataclass(frozen=True, slots=True)
class ReceiveReport:
    """What came of it.

    Attributes:
        delayed: the Recvs that wait.
        peaks: device -> the most bytes that would wait received there at once, if nothing were delayed, and as it is.
    """

    delayed: list[DelayedReceive] = field(default_factory=list)
    peaks: dict[str, tuple[int, int]] = field(default_factory=dict)


def delay_receives(
    grouping: Grouping, step: StepGraph, devices: Mapping[str, Device], costs: CostModel
) -> tuple[Grouping, ReceiveReport]:
    """A grouping whose Recvs start when their results are needed, and what was changed.

    Args:
        devices: those that items name, by their full names.
        costs: what operations and transfers take.
    """
    schedule = schedule_receives(_Items(grouping, step, devices, costs).all())
    if not schedule.after:
        return grouping, _report(grouping.items, schedule)
    orders = dict(grouping.order)
    for number, waited in schedule.after.items():
        # a Recv is host work, and hence an item alone: islands hold what is compiled
        (receive,) = grouping.items[number].operations
        orders[receive] = [*orders.get(receive, ()), grouping.items[waited].operations[-1]]
    # the items' order must respect the new edges too, for those who run them one after the other
    ordered = [grouping.items[number] for number in order(len(grouping.items), schedule.after)]
    return replace(grouping, items=ordered, order=orders), _report(grouping.items, schedule)


def _report(items: Sequence[PlanItem], schedule: ReceiveSchedule) -> ReceiveReport:
    delayed = []
    for number, waited in schedule.after.items():
        (receive,) = items[number].operations
        size = size_of(receive.outputs[0])
        delayed.append(DelayedReceive(receive.name, items[number].device, size, items[waited].operations[-1].name))
    peaks = {device: (most, schedule.delayed.peak[device]) for device, most in schedule.at_once.peak.items()}
    return ReceiveReport(delayed, peaks)


class _Items:
    """The items of a grouping as the schedule sees them."""

    def __init__(self, grouping: Grouping, step: StepGraph, devices: Mapping[str, Device], costs: CostModel) -> None:
        self._grouping, self._step, self._devices, self._costs = grouping, step, devices, costs
        self._number = {op: number for number, item in enumerate(grouping.items) for op in item.operations}
        self._fetched = {tensor.op for tensor in step.fetches}

    def all(self) -> list[Item]:
        return [self._item(number, item) for number, item in enumerate(self._grouping.items)]

    def _item(self, number: int, item: PlanItem) -> Item:
        members = item.operations
        first = members[0]
        receives = first.op_def.role is Role.RECEIVE
        return Item(
            device=item.device,
            seconds=self._transfer(first) if receives else sum(self._seconds(op, item.device) for op in members),
            # an island's operations feed each other; only what comes from other items makes it wait
            inputs=sorted({source for op in members for source in self._sources(op)} - {number}),
            received=size_of(first.outputs[0]) if receives else None,
            frame=self._grouping.frames.of[first].position,
            # a Merge starts with the first of its inputs, all others with the last
            waits_for_all=first.op_def.role is not Role.MERGE,
            kept=receives and first in self._fetched,
        )

    def _sources(self, op: StepNode) -> list[int]:
        tensors, controls = self._grouping.waits[op]
        sources = [*(t.op for t in tensors), *controls, *self._grouping.order.get(op, ())]
        return [self._number[source] for source in sources if source in self._number]

    def _seconds(self, op: StepNode, device: str) -> float:
        # a transfer's time is counted once, at its Recv
        return 0.0 if op.op_def.role is Role.SEND else self._costs.seconds(op, self._devices[device].device_type)

    def _transfer(self, op: StepNode) -> float:
        source, destination = (
            self._devices[op.attrs[end].decode()].device_type for end in ("send_device", "recv_device")
        )
        return self._costs.transfer_seconds(source, destination, size_of(op.outputs[0]))
