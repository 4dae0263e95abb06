"""A loop that runs straight through, as the dispatcher runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Final

from anabranch.core.pending import Pending
from anabranch.core.quiet_arithmetic import quietly
from anabranch.errors import InvalidArgumentError
from anabranch.graph.step_nodes import StepNode
from anabranch.runtime.dispatcher import Mode, Work
from anabranch.runtime.item_call import Arithmetic, Recorder
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
        test, body = [works[number] for number in program.test], [works[number] for number in program.body]
        self._works = [*test, *body]
        self._test, self._body = [work.run for work in test], [work.run for work in body]
        #: the same where all of it is arithmetic
        self._arithmetic = _arithmetic(test), _arithmetic(body)
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
        test, body = self._arithmetic
        if test is None or body is None or record is not None:
            goes_on = self._turn(
                base, inner.values, _bound(self._test, inner, record), _bound(self._body, inner, record)
            )
        else:
            goes_on = quietly(self._turn, base, inner.values, test, body)
        if goes_on:
            frame.values[self._place] = base, inner
            return True
        for slot, own in self._leaving:
            frame.values[slot] = inner.values[own]
        frame.values[self._place] = None
        return False

    def _turn(self, base: list[Any], values: list[Any], test: Sequence[Arithmetic], body: Sequence[Arithmetic]) -> bool:
        """Iterations, as many as belong to a turn; whether there are more."""
        condition, changing, following = self._condition, self._changing, self._following
        end = monotonic() + TURN_SECONDS
        for _ in range(TURN):
            for compute in test:
                compute(values)
            truth = values[condition]
            if getattr(truth, "ndim", 0):
                raise InvalidArgumentError(
                    None,
                    self.op,
                    f"the condition of the loop {self._name!r} must be a scalar, but has shape {truth.shape}",
                )
            if not truth:
                return False
            for compute in body:
                compute(values)
            # all at once, for loop variables may change places
            next_values = [values[slot] for slot in following]
            values[:] = base  # what an iteration has computed goes with it
            for slot, value in zip(changing, next_values, strict=True):
                values[slot] = value
            if monotonic() > end:
                break
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

    def arithmetic(self) -> Arithmetic | None:
        """Nothing: it takes turns."""
        return None

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


def _arithmetic(works: Sequence[Work]) -> list[Arithmetic] | None:
    """What all of them compute, one after the other; None where one does something else."""
    each = [work.arithmetic() for work in works]
    return None if None in each else [compute for compute in each if compute is not None]


def _bound(
    runs: Sequence[Callable[[StepFrame, Recorder | None], bool]], frame: StepFrame, record: Recorder | None
) -> list[Arithmetic]:
    """Work as it is called in a turn, which gives it the values of the frame that it has."""

    def one(run: Callable[[StepFrame, Recorder | None], bool]) -> Arithmetic:
        def compute(_: list[Any]) -> None:
            run(frame, record)

        return compute

    return [one(run) for run in runs]
