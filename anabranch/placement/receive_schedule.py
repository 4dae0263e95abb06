"""When to receive: a Recv waits until shortly before its result is needed, to save memory at its device (WP5.2).

A Recv can start as soon as its tensor was sent. Where the device is then busy with something else for long, tensors
pile up there. So a step that has its devices is simulated: each device does one thing at a time, in the order of the
step, and each tensor arrives the time of its transfer after its Recv has started. That tells when each item starts *as
soon as possible*, and of each Recv how late it may start such that no item starts later than that (*as late as
possible*). The Recv is then made to wait for the last item of its device that

* all consumers of the received tensor wait for anyhow, if through others,
* ends, in the simulation, early enough for the transfer to be done when the first consumer could start.

**Why it is right.** Let y be the item that the Recv r is made to wait for. Each consumer c of r's result comes after y
without this too. So a path that leads over the new edge (y, r) and on to a consumer is no path between items that were
unordered before, and a cycle over it would have been one before, without it: there is none, however many Recvs wait.
Nor does a consumer wait for anything new but the transfer itself, which the second condition hides: in the simulation
nothing starts later. An item that starts with the first of its inputs (a Merge) does not wait for the rest of them,
and counts as waiting for none. Items of different loops or iterations are not ordered, so y and r stand in one frame.

Example: a device computes for 3 ms with what it has, then takes a tensor that another device sent after 1 ms. Its Recv,
of 0.5 ms, waits for the last operation that ends within 2.5 ms.
"""

from __future__ import annotations

import bisect
import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

#: smaller tensors are received at once: keeping them costs less than thinking of them
WORTH_BYTES: Final = 4096


@dataclass(slots=True)
class Item:
    """What runs in a placed step, as the schedule sees it.

    Attributes:
        device: where it runs.
        seconds: what it takes; of a Recv, the transfer.
        inputs: the numbers of the items that it waits for, all smaller than its own.
        received: the bytes that a Recv brings to its device; None: it is something else.
        frame: the loop it stands in.
        waits_for_all: False where it starts with the first of its inputs.
        kept: whether its result is needed when the step has ended.
    """

    device: str
    seconds: float
    inputs: Sequence[int] = ()
    received: int | None = None
    frame: int = 0
    waits_for_all: bool = True
    kept: bool = False


class Times(NamedTuple):
    """When each item starts and ends (s), and the most bytes that wait received at each device at once."""

    start: list[float]
    end: list[float]
    peak: dict[str, int]


@dataclass(slots=True)
class ReceiveSchedule:
    """What each Recv that is delayed waits for, and the simulation without and with that."""

    after: dict[int, int] = field(default_factory=dict)
    at_once: Times = field(default_factory=lambda: Times([], [], {}))
    delayed: Times = field(default_factory=lambda: Times([], [], {}))


def schedule_receives(items: Sequence[Item]) -> ReceiveSchedule:
    """Decides which Recvs to delay, and until when.

    Args:
        items: those of a step, in an order in which they can run.
    """
    consumers = _consumers(items)
    # by this simulation all is decided: since no item but a Recv starts later by a delay, its times stay true
    at_once = simulate(items, {})
    before = _before(items)
    ends = _ends(items, at_once)
    after: dict[int, int] = {}
    for number, item in enumerate(items):
        if item.received is not None and item.received >= WORTH_BYTES and consumers[number] and not item.kept:
            latest = min(at_once.start[consumer] for consumer in consumers[number]) - item.seconds
            # sets as the bits of numbers: steps have thousands of items, and an intersection is one operation then
            common = functools.reduce(operator.and_, (before[consumer] for consumer in consumers[number]))
            # on its own device, whose memory is to be saved, and in its own frame: items of different loops are
            # not ordered
            ended = ends.get((item.device, item.frame), [])
            # the latest first; what ends before the Recv could start anyhow delays nothing
            # `len(items)` is above any number, so that what ends just at `latest` is among them
            for end, other in reversed(ended[: bisect.bisect_right(ended, (latest, len(items)))]):
                if end <= at_once.start[number]:
                    break
                if common >> other & 1:
                    after[number] = other
                    break
    return ReceiveSchedule(after, at_once, simulate(items, after))


def _ends(items: Sequence[Item], times: Times) -> dict[tuple[str, int], list[tuple[float, int]]]:
    """For each device and frame, what a Recv there could wait for, by the time at which it ends."""
    ends: dict[tuple[str, int], list[tuple[float, int]]] = {}
    for number, item in enumerate(items):
        if item.received is None:
            ends.setdefault((item.device, item.frame), []).append((times.end[number], number))
    return {place: sorted(entries) for place, entries in ends.items()}


def simulate(items: Sequence[Item], after: dict[int, int]) -> Times:
    """When each item runs.

    Args:
        after: Recv -> the item that it waits for besides its Send.
    """
    start, end = [0.0] * len(items), [0.0] * len(items)
    free: dict[str, float] = {}
    for number in order(len(items), after):
        item = items[number]
        waits = [*item.inputs, after[number]] if number in after else item.inputs
        begin = max((end[i] for i in waits), default=0.0)
        # a transfer does not keep the device that receives from computing
        if item.received is None:
            begin = max(begin, free.get(item.device, 0.0))
            free[item.device] = begin + item.seconds
        start[number], end[number] = begin, begin + item.seconds
    return Times(start, end, _peaks(items, start, end))


def order(count: int, after: dict[int, int]) -> list[int]:
    """The numbers of the items in an order in which they can run, each Recv after what it waits for."""
    later: dict[int, list[int]] = {}
    for receive, waited in after.items():
        # what it waits for may come later in the step's order; the Recv moves behind it, before whatever comes next
        if waited > receive:
            later.setdefault(waited, []).append(receive)
    moved = {receive for receives in later.values() for receive in receives}
    return [n for number in range(count) if number not in moved for n in (number, *later.get(number, ()))]


def _peaks(items: Sequence[Item], start: list[float], end: list[float]) -> dict[str, int]:
    """The most bytes that are at each device at once, from the start of a Recv to the end of its last consumer."""
    changes: dict[str, list[tuple[float, int]]] = {}
    consumers = _consumers(items)
    finish = max(end, default=0.0)
    for number, item in enumerate(items):
        if item.received:
            # a value goes after its last use; one that nobody takes stays till the end
            last = max((end[consumer] for consumer in consumers[number]), default=finish)
            until = finish if item.kept else last
            changes.setdefault(item.device, []).extend([(start[number], item.received), (until, -item.received)])
    return {device: _highest(sorted(entries)) for device, entries in changes.items()}


def _highest(changes: list[tuple[float, int]]) -> int:
    held = highest = 0
    for _, change in changes:  # at one moment what goes comes first
        held += change
        highest = max(highest, held)
    return highest


def _consumers(items: Sequence[Item]) -> list[list[int]]:
    consumers: list[list[int]] = [[] for _ in items]
    for number, item in enumerate(items):
        for source in item.inputs:
            consumers[source].append(number)
    return consumers


def _before(items: Sequence[Item]) -> list[int]:
    """Of each item, the items that it waits for through others, as the bits of a number."""
    earlier = [0] * len(items)
    for number, item in enumerate(items):
        if item.waits_for_all:
            for source in item.inputs:
                earlier[number] |= earlier[source] | 1 << source
    return earlier
