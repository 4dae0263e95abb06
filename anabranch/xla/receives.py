"""Delays the Recvs of a step that was cut into islands (WP5.2); what is decided is in `placement.receive_schedule`.

Islands are what a device runs, so that a Recv can wait for a whole island only. The islands themselves stay as they
are: an edge added earlier, between operations, would have torn islands apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch.core.devices import Device
from anabranch.graph.loop_structure import MERGES
from anabranch.graph.operation import Operation
from anabranch.passes.step_graph import StepGraph
from anabranch.placement.cost_model import CostModel, size_of
from anabranch.placement.receive_schedule import Item, ReceiveSchedule, order, schedule_receives
from anabranch.xla.islands import Grouping, Island, PlanItem


def delay_receives(
    grouping: Grouping, step: StepGraph, devices: Mapping[str, Device], costs: CostModel
) -> tuple[Grouping, ReceiveSchedule]:
    """A grouping whose Recvs start when their results are needed, and the schedule, which numbers its items as before.

    Args:
        devices: those that items name, by their full names.
        costs: what operations and transfers take.
    """
    schedule = schedule_receives(_Items(grouping, step, devices, costs).all())
    if not schedule.after:
        return grouping, schedule
    items = grouping.items
    ends = {receive: _members(items[waited])[-1] for receive, waited in schedule.after.items()}
    waits = {_members(items[receive])[0]: op for receive, op in ends.items()}
    orders = {**grouping.order, **{op: [*grouping.order.get(op, ()), last] for op, last in waits.items()}}
    ordered = [items[number] for number in order(len(items), schedule.after)]
    return replace(grouping, items=ordered, order=orders), schedule


class _Items:
    """The items of a grouping as the schedule sees them."""

    def __init__(
        self, grouping: Grouping, step: StepGraph, devices: Mapping[str, Device], costs: CostModel
    ) -> None:
        self._grouping, self._step, self._devices, self._costs = grouping, step, devices, costs
        self._number = {op: number for number, item in enumerate(grouping.items) for op in _members(item)}
        self._fetched = {step.resolve(tensor).op for tensor in step.fetches}

    def all(self) -> list[Item]:
        return [self._item(number, item) for number, item in enumerate(self._grouping.items)]

    def _item(self, number: int, item: PlanItem) -> Item:
        members = _members(item)
        first = members[0]
        receives = first.type == "_Recv"
        return Item(
            device=item.device,
            seconds=self._transfer(first) if receives else sum(self._seconds(op, item.device) for op in members),
            inputs=sorted({source for op in members for source in self._sources(op)} - {number}),
            received=size_of(first._outputs[0]) if receives else None,
            frame=self._grouping.frames.of[first].position,
            waits_for_all=first.type not in MERGES,
            kept=receives and first in self._fetched,
        )

    def _sources(self, op: Operation) -> list[int]:
        tensors, controls = self._grouping.waits[op]
        sources = [*(t.op for t in tensors), *controls, *self._grouping.order.get(op, ())]
        return [self._number[source] for source in sources if source in self._number]

    def _seconds(self, op: Operation, device: str) -> float:
        return 0.0 if op.type == "_Send" else self._costs.seconds(op, self._devices[device].device_type)

    def _transfer(self, op: Operation) -> float:
        source, destination = (
            self._devices[op.attrs[end].decode()].device_type for end in ("send_device", "recv_device")
        )
        return self._costs.transfer_seconds(source, destination, size_of(op._outputs[0]))


def _members(item: PlanItem) -> list[Operation]:
    return item.operations if isinstance(item, Island) else [item.operation]
