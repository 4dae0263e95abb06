"""A loop that runs straight through, as the dispatcher runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final

from anabranch.core.pending import Pending
from anabranch.errors import InvalidArgumentError
from anabranch.graph.step_nodes import StepNode
from anabranch.runtime.dispatcher import Mode, Work
from anabranch.runtime.item_call import Recorder
from anabranch.runtime.step_frame import StepFrame
from anabranch.runtime.straight_loops import LoopProgram

#: A turn has so many iterations at most, and ends after this time (s). Then others have theirs, and interrupts,
#: deadlines and cancellations are looked for.
TURN: Final = 256
TURN_SECONDS: Final = 2e-3


class LoopWork:
    """See `runtime.dispatcher.Work`.

    Args:
        works: number of a node of the program -> its work.
        sources: where the program's `entering` values are, among those of the frame around the loop.
        outputs: where what leaves it goes there; at the last of these places it is kept where a run of it stands.
    """

    mode = Mode.HERE

    def __init__(
        self, program: LoopProgram, works: Mapping[int, Work], sources: Sequence[int], outputs: Sequence[int]
    ) -> None:
        self._works = [works[number] for number in (*program.test, *program.body)]
        self._test = [works[number].run for number in program.test]
        self._body = [works[number].run for number in program.body]
        self.op: StepNode = self._works[0].op
        self._name, self._condition = program.name, program.condition
        self._known: list[Any] = [None] * program.size
        for slot, value in program.known.items():
            self._known[slot] = value
        self._entering = [(source, slot) for source, (_, slot) in zip(sources, program.entering, strict=True)]
        self._changing = [slot for slot, _ in program.following]
        self._following = [slot for _, slot in program.following]
        self._leaving = list(zip(outputs, program.leaving, strict=False))
        self._place = outputs[-1]

    def run(self, frame: StepFrame, record: Recorder | None) -> bool:
        """Goes on for a turn; whether there is another one."""
        base, inner = frame.values[self._place] or self._begun(frame)
        values, test, body, condition = inner.values, self._test, self._body, self._condition
        end = monotonic() + TURN_SECONDS
        for _ in range(TURN):
            for work in test:
                work(inner, record)
            truth = values[condition]
            if getattr(truth, "ndim", 0):
                raise InvalidArgumentError(
                    None,
                    self.op,
                    f"the condition of the loop {self._name!r} must be a scalar, but has shape {truth.shape}",
                )
            if not truth:
                for slot, own in self._leaving:
                    frame.values[slot] = values[own]
                frame.values[self._place] = None
                return False
            for work in body:
                work(inner, record)
            # all at once, for loop variables may change places
            following = [values[slot] for slot in self._following]
            values[:] = base  # what an iteration has computed goes with it
            for slot, value in zip(self._changing, following, strict=True):
                values[slot] = value
            if monotonic() > end:
                break
        frame.values[self._place] = base, inner
        return True

    def _begun(self, frame: StepFrame) -> tuple[list[Any], StepFrame]:
        """What each iteration begins with, and the values of the first one."""
        base = self._known[:]
        for source, slot in self._entering:
            base[slot] = frame.values[source]
        inner = StepFrame(base[:], None, frame.waiting)
        # those of the first iteration belong to it alone
        for slot in self._changing:
            base[slot] = None
        return base, inner

    def release(self) -> None:
        """Releases executables."""
        for work in self._works:
            work.release()

    def start(self, frame: StepFrame) -> Pending | None:
        """Never called: see `mode`."""
        raise NotImplementedError

    def finish(self, frame: StepFrame, pending: Pending, started: float, record: Recorder | None) -> bool:
        """Never called: see `mode`."""
        raise NotImplementedError

    def send_dead(self, frame: StepFrame) -> None:
        """Never called: nothing in the loop reaches another task."""
        raise NotImplementedError
