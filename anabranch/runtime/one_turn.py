"""The part of a step that waits for nothing, run in one turn on the thread that receives (§4.2, §6.2).

A parameter server's part of most steps receives tensors, changes variables with them, and answers. Where all of these
tensors come along with what starts the part, and what it runs is quick, there is nothing that a run would have to wait
for, nor anybody who could reach it meanwhile. So it needs neither the rendezvous nor events, nor a deadline:

    a run that may wait (`runtime.started_runs`)            in one turn
    its tensors meet their Recvs in the rendezvous          go to the slots of these Recvs
    the rendezvous knows the step, and who waits            the step has ended as it begins, nobody waits
    others may cancel it, at its next event                 it ends before they could
    a call that may hold the thread goes on elsewhere       is looked for before the turn begins: no turn then

What is the same in all steps, above all which tensor goes to which slot, is found out once (`OneTurn`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from anabranch.core.values import TensorValue
from anabranch.runtime.fetched_values import fetched_values
from anabranch.runtime.island_call import IslandCall
from anabranch.runtime.pace import Pace, Stopwatch, takes_short_turns_here
from anabranch.runtime.protocols import OnDone
from anabranch.runtime.rendezvous import Exchange, Rendezvous
from anabranch.runtime.rendezvous_table import Dead, Key, StepId
from anabranch.runtime.step_frame import StepFrame
from anabranch.runtime.straight_run import StraightCalls
from anabranch.runtime.transfer_call import TransferCall
from anabranch.runtime.waiting import ActiveSteps
from anabranch.xla.lowering import NeedsPartsError
from anabranch.xla.partitions import TransferEnd


class PlainRun(NamedTuple):
    """What is run.

    Attributes:
        straight: the calls, without those that receive what is brought (`in_one_turn`).
        size: of the values of a step.
        slots: those to which the tensors go, in their order.
        fetches: takes what is fetched out of the values; None: nothing is.
        shows: shows again what the reader of the partition did not find (`PublishedCalls.show_tables`).
    """

    straight: StraightCalls
    size: int
    slots: Sequence[int]
    fetches: Callable[[list[Any]], list[Any]] | None
    shows: Callable[[], None] | None


class OneTurn:
    """The calls of a partition, for steps that bring the same tensors along.

    Args:
        session: whose steps.
        active: the runs that others may cancel.
        pace: of the partition.

    Attributes:
        is_current: whether the reader of the partition has not asked anew since.
    """

    def __init__(self, plain: PlainRun, session: str, rendezvous: Rendezvous, active: ActiveSteps, pace: Pace) -> None:
        self._plain, self._session = plain, session
        self._rendezvous, self._active, self._pace = rendezvous, active, pace
        self._sends = any(isinstance(call, TransferCall) for call in plain.straight.calls)
        self._empty: list[Any] = [None] * plain.size
        self.is_current = True

    def run(self, number: int, first_step: int, tensors: Sequence[Any], on_done: OnDone) -> bool:
        """Runs the part of a step, and tells its outcome; False: nothing has been done, it is to be started.

        Args:
            first_step: the steps below have ended; 0: none is said to.
            tensors: what came along.
            on_done: told the values of the fetches, or what the step failed with; it must neither raise nor wait.
        """
        straight, rendezvous, values = self._plain.straight, self._rendezvous, self._empty.copy()
        for slot, tensor in zip(self._plain.slots, tensors, strict=True):
            values[slot] = tensor
        frame = StepFrame(values)
        if not (self.is_current and self._pace.is_short and takes_short_turns_here()):
            return False
        for position in straight.holding:
            if not straight.calls[position].is_quick_with(frame):
                return False
        if self._active.are_over or not rendezvous.begin_turn(self._session, number, first_step):
            return False
        watch = Stopwatch(self._pace)
        watch.begin()
        try:
            outcome: Sequence[TensorValue] | BaseException = self._outcome(number, frame)
        except BaseException as error:  # whatever it is, whoever started the step has to know
            outcome = error
        rendezvous.end_turn(self._session)
        on_done(outcome)
        # what is told may be large, and take as long as what was run
        watch.end()
        return True

    def _outcome(self, number: int, frame: StepFrame) -> list[Any]:
        straight, _, _, fetches, shows = self._plain
        values = frame.values
        if shows is not None:
            shows()
        if self._sends:
            frame.exchange = Exchange(self._rendezvous, StepId(self._session, number))
        for position, call in enumerate(straight.calls):
            try:
                call(frame)
            except NeedsPartsError as refusal:
                straight.replace(position, refusal)(frame)
            # a value goes as soon as nothing later reads it, so that its memory can be used again
            for slot in straight.emptied[position]:
                values[slot] = None
        return [] if fetches is None else fetched_values(fetches(values))


def without_received(straight: StraightCalls, ends: Sequence[TransferEnd]) -> tuple[StraightCalls, list[int]] | None:
    """The calls but those that receive these transfers, and where to store their tensors, in the order of the ends.

    Returns:
        None where one of them is not received here, or not stored as it comes.
    """
    receives = _receives(straight)
    positions, slots = list[int](), list[int]()
    for end in ends:
        position, call = receives.get((end.source, end.destination, end.tensor), (0, None))
        slot = None if call is None else call.slot_for(np.dtype(end.dtype.as_numpy_dtype))
        if slot is None:
            return None
        positions.append(position)
        slots.append(slot)
    return straight.without(positions), slots


def _receives(straight: StraightCalls) -> dict[tuple[str, str, str], tuple[int, TransferCall]]:
    """The positions of what receives, and itself, by where a tensor comes from and goes to, and its name."""
    return {
        (call.route.source, call.route.destination, call.route.tensor): (position, call)
        for position, call in enumerate(straight.calls)
        if isinstance(call, TransferCall) and call.receives
    }


def in_one_turn(
    straight: StraightCalls, brought: Sequence[tuple[Key, TensorValue | Dead]]
) -> tuple[StraightCalls, list[int]] | None:
    """What is left to do where tensors are brought along.

    Args:
        brought: those of one step; others are of the same dtypes.

    Returns:
        The calls that are left, and the slot of each tensor. None where something may wait all the same, or what comes
        is not what is received.
    """
    receives = _receives(straight)
    received = [position for position, _ in receives.values()]
    others = (call for call in straight.calls if isinstance(call, TransferCall) and not call.receives)
    # what stays within the task is kept by the rendezvous
    if not all(call.route.leaves for call in others) or not set(straight.slow) <= set(received):
        return None
    slots: list[int] = []
    for key, value in brought:
        _, call = receives.pop((key.source, key.destination, key.tensor), (0, None))
        if call is None or key.frame or not isinstance(value, np.ndarray):
            return None
        slot = call.slot_for(value.dtype)
        if slot is None:
            return None
        slots.append(slot)
    if receives:
        return None
    left = straight.without(received)
    # that an island is quick with inputs of open shapes can be told beforehand of what is brought only
    islands = [call for call in left.calls if isinstance(call, IslandCall)]
    return (left, slots) if all(set(island.open_slots) <= set(slots) for island in islands) else None
