"""Runs of a partition that nobody waits for: while one waits it holds no thread (`Step.start`).

A started run is a series of *turns*. In a turn a thread of ours runs what can be run. Where nothing can, the turn ends,
and the next event (a result that is settled, another thread that has done its part, the deadline, a cancellation)
brings another. There is never more than one turn at a time, so that what a turn works on needs no lock. Runs that are
short take their turns where the event comes, if that is a thread which may do that (`runtime.pace`).

    ======  ====================  ==================================
    state   an event comes        a turn ends
    ======  ====================  ==================================
    idle    -> turn               -
    turn    -> again              -> idle, or done
    again   -> again              -> turn (at once, on the same thread), or done
    done    dropped               -
    ======  ====================  ==================================
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Protocol

from anabranch.core.interrupts import uninterrupted
from anabranch.runtime.deadlines import deadlines
from anabranch.runtime.pace import Pace, Stopwatch, takes_short_turns_here
from anabranch.runtime.worker_threads import worker_threads


class Advancing(Protocol):
    """What a started run does in its turns; all of it in one turn at a time."""

    @property
    def deadline(self) -> float | None:
        """When the run is to look at the time, on the monotonic clock; None: never."""

    @property
    def is_to_change_threads(self) -> bool:
        """Whether it has stopped because what comes next may hold the thread, which receives messages."""

    def begin(self) -> None:
        """Before anything else, in the first turn."""

    def go_on(self) -> list[Any] | None:
        """Runs what can be run; returns the values of the fetches, or None where the run waits for an event or another
        thread.
        """

    def give_up(self, error: BaseException) -> None:
        """The run is over: what was called before raised this."""


class _State(Enum):
    IDLE = "idle"
    TURN = "turn"
    AGAIN = "again"
    DONE = "done"


class StartedRun:
    """See the module docstring.

    Args:
        make: makes what runs; gets what it is to call after each event.
        on_done: told the values of the fetches, or what the run failed with: once, and it must not raise.
        pace: of what runs.
        is_quick: whether nothing is known that would hold a thread which takes a turn itself.
        begins_here: whether the first turn is taken by this thread.
    """

    def __init__(
        self,
        make: Callable[[Callable[[], None]], Advancing],
        on_done: Callable[[Sequence[Any] | BaseException], None],
        pace: Pace | None = None,
        is_quick: Callable[[], bool] = bool,
        begins_here: bool = False,
    ) -> None:
        self._lock = threading.Lock()
        self._state = _State.TURN if begins_here else _State.IDLE
        self._pace = Pace() if pace is None else pace
        self._is_quick = is_quick
        self._watch = Stopwatch(self._pace)
        self._make, self._on_done = make, on_done
        self._run: Advancing | None = None
        self._forget_deadline: Callable[[], None] | None = None
        # last: the turn that this begins, perhaps on another thread, reads all of the above
        if begins_here:
            uninterrupted(self._take_turns)
        else:
            self.wake()

    def wake(self) -> None:
        """Something has happened."""
        with self._lock:
            begins = self._state is _State.IDLE
            # outside the lock: a turn takes it, and may begin at once
            if begins:
                self._state = _State.TURN
            elif self._state is _State.TURN:
                self._state = _State.AGAIN
        if not begins:
            return
        if self._pace.is_short and takes_short_turns_here() and self._is_quick():
            self._take_turns()
        else:
            worker_threads.submit(self._take_turns)

    def _take_turns(self) -> None:
        self._watch.begin()
        while True:
            try:
                results = self._turn()
            except BaseException as error:  # whatever it is, whoever started the run has to know
                self._end(error)
                return
            if results is not None:
                self._end(results)
                return
            if self._run is not None and self._run.is_to_change_threads:
                # the turn goes on there
                self._watch.pause()
                worker_threads.submit(self._take_turns)
                return
            # an event that came after the turn had looked for events has left `AGAIN`: nothing is overlooked
            with self._lock:
                if self._state is _State.TURN:
                    # before another thread can begin the next turn
                    self._watch.pause()
                    self._state = _State.IDLE
                    return
                self._state = _State.TURN

    def _turn(self) -> list[Any] | None:
        run, first = self._run, self._run is None
        if run is None:
            # here and not in `__init__`: what goes wrong is then reported by `on_done`, as everything else is
            run = self._run = self._make(self.wake)
            if run.deadline is not None:
                self._forget_deadline = deadlines.call_at(run.deadline, self.wake)
        try:
            if first:
                run.begin()
            return run.go_on()
        except BaseException as error:
            run.give_up(error)
            raise

    def _end(self, outcome: Sequence[Any] | BaseException) -> None:
        # first: an event that still comes must not begin a turn of a run that is over
        with self._lock:
            self._state = _State.DONE
        if self._forget_deadline is not None:
            self._forget_deadline()
        self._on_done(outcome)
        # what is told may be large, and take as long as what was run
        self._watch.end()
