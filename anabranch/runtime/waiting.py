"""How a step waits: for events, with a deadline, and with an answer to who waits for what (§3.2, WP5.3; design D8).

Every wait ends: by an event, by the deadline of the step, by an interrupt, or by `StepWaiting.cancel` from another
thread.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from anabranch.core.interrupts import admitted
from anabranch.core.pending import Pending
from anabranch.errors import CancelledError, DeadlineExceededError, FailedPreconditionError, OpError
from anabranch.graph.step_nodes import StepNode
from anabranch.runtime import trace_clock
from anabranch.runtime.worker_threads import worker_threads

_log = logging.getLogger(__name__)

#: after this time (s) a step that only waits makes sure that there is somebody to wait for
LONELY_SECONDS: Final = 1.0
#: after this time (s) more in which all steps of a task only wait, a warning tells for what
STALL_SECONDS: Final = 60.0
#: the part of that time that the process computes for at least where it is not stalled, but works
_WORKING: Final = 0.25
_MAX_NAMED: Final = 8


class ActiveSteps:
    """The runs of a task's steps that are under way. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: set[StepWaiting] = set()
        self._over: str | None = None

    def add(self, run: StepWaiting) -> None:
        """Notes the beginning of a run, and cancels it where runs are over."""
        with self._lock:
            self._runs.add(run)
            # read with the lock that the run is added under: `cancel_all` finds the run, or the run finds what it said
            over = self._over
        if over is not None:
            run.cancel(CancelledError(None, None, over))

    def remove(self, run: StepWaiting) -> None:
        """Notes its end."""
        with self._lock:
            self._runs.discard(run)

    def cancel(self, number: int, error: OpError) -> None:
        """Ends the run of one step of the master, if it is under way here."""
        with self._lock:
            runs = [run for run in self._runs if run.number == number]
        for run in runs:
            # outside the lock, which the runs that this wakes take in order to remove themselves
            run.cancel(error)

    def cancel_all(self, why: str) -> None:
        """Ends all runs with CancelledError: those under way, and those that begin later."""
        with self._lock:
            self._over = why
            runs = list(self._runs)
        for run in runs:
            run.cancel(CancelledError(None, None, why))

    @property
    def are_over(self) -> bool:
        """Whether `cancel_all` has ended them: a run that begins would be cancelled."""
        return self._over is not None

    def all_wait(self) -> bool:
        """Whether every run that is under way only waits."""
        with self._lock:
            return all(run.only_waits for run in self._runs)


class _Waking(queue.SimpleQueue[tuple[Any, Any]]):
    """Events that wake somebody."""

    def __init__(self, wake: Callable[[], None]) -> None:
        super().__init__()
        self._wake = wake

    def put(self, item: tuple[Any, Any], block: bool = True, timeout: float | None = None) -> None:
        """Adds an event."""
        # before it wakes anybody, who then finds the event
        super().put(item)
        self._wake()


class StepWaiting:
    """The waiting of one run of a step. All methods but `cancel` are for the thread that owns the step.

    Args:
        timeout: seconds that the step was given; None: any time.
        deadline: when they are over, on the monotonic clock.
        active: where the step is known while it runs.
        wake: called after each event, from whichever thread; None: the thread of the step waits for events.

    Attributes:
        number: the step's, if other tasks may run parts of it.
    """

    number: int | None = None

    def __init__(
        self,
        timeout: float | None,
        deadline: float | None,
        active: ActiveSteps,
        wake: Callable[[], None] | None = None,
    ) -> None:
        self._timeout = timeout
        self._deadline = deadline
        self._active = active
        #: (what it is about, Pending or error or None); (None, error) ends the step
        self._events: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue() if wake is None else _Waking(wake)
        #: what was started and is settled by somebody else: by whom, what to wait for, since when
        self._pending: dict[Any, tuple[StepNode, Pending, float]] = {}
        #: what threads of their own run, and since when
        self._apart: dict[Any, tuple[StepNode, float]] = {}
        #: read by other threads
        self.only_waits = False
        #: why compiled loops of the step were stopped
        self.stopped: OpError | None = None
        self._cancelled_by: OpError | None = None

    def cancel(self, error: OpError) -> None:
        """Ends the run with an error as soon as its thread is free; from any thread."""
        # compiled loops look at this one, for they see no events
        self._cancelled_by = error
        self._events.put((None, error))

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """Inside, other threads know of the run; an interrupt is told what it interrupted."""
        self._active.add(self)
        try:
            yield
        except BaseException as error:
            # an error of the step names its operation; an interrupt (KeyboardInterrupt and its kind) knows of none
            if not isinstance(error, Exception) and (self._pending or self._apart):
                error.add_note(f"the step was interrupted: {self.who_waits()}")
            raise
        finally:
            self._active.remove(self)

    # ---- going on
    @property
    def deadline(self) -> float | None:
        """When the step must have ended, on the monotonic clock; None: never."""
        return self._deadline

    @property
    def watch(self) -> StepWaiting | None:
        """Who is asked whether compiled loops may go on; nobody in a step without a deadline."""
        return None if self._deadline is None else self

    def stops(self, op: StepNode) -> bool:
        """Whether a loop of the step has to end; see `xla.watched_loops.Watch`."""
        if self._cancelled_by is not None:
            self.stopped = type(self._cancelled_by)(None, op, f"{self._cancelled_by.message}: {_described_loop(op)}")
        elif self.seconds_left == 0:
            self.stopped = self._too_late(op, _described_loop(op))
        return self.stopped is not None

    @property
    def seconds_left(self) -> float | None:
        """The time until the deadline (s), not below 0; None where there is none."""
        return None if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)

    def _check_time(self) -> None:
        """Fails the step when its deadline has passed."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise self._too_late(self._first_op(), self.who_waits())

    # ---- waiting
    def _only_event(self) -> Any:
        """What the one event says that this run waits for.

        Raises:
            OpError: as `_wait`; CancelledError.
        """
        with self.under_way():
            about, outcome = self._wait()
            if about is None:
                raise self._cancelled(outcome)
            return outcome

    def _check_not_cancelled(self) -> None:
        """For a run that did not wait for events, and has not started anything that makes any."""
        if not self._events.empty():
            raise self._cancelled(self._events.get()[1])

    def _wait(self) -> tuple[Any, Any]:
        """The next event.

        Raises:
            DeadlineExceededError: it does not come in time.
            FailedPreconditionError: it can never come.
        """
        self.only_waits = not self._apart
        try:
            event = self._event_within(LONELY_SECONDS)
            if event is not None:
                return event
            self._check_not_alone()
            quiet = False
            while not quiet:
                worked = time.process_time()
                event = self._event_within(STALL_SECONDS)
                if event is not None:
                    return event
                # what is compiled, and steps that never wait, are not among the runs that are known
                quiet = time.process_time() - worked < _WORKING * STALL_SECONDS
            self._warn_of_stall()
            event = self._event_within(None)
            assert event is not None
            return event
        finally:
            self.only_waits = False

    def _event_within(self, seconds: float | None) -> tuple[Any, Any] | None:
        """The next event, or None after some time."""
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            # whether the deadline comes first
            late = seconds is None or left <= seconds
            seconds = max(left, 0.0) if late else seconds
        else:
            late = False
        try:
            with admitted() if self._may_be_left() else contextlib.nullcontext():
                return self._events.get(timeout=seconds)
        except queue.Empty:
            if late:
                raise self._too_late(self._first_op(), self.who_waits()) from None
            return None

    def _may_be_left(self) -> bool:
        """Whether what this run waits for comes from outside, so that an interrupt must end the wait."""
        return True

    def _check_not_alone(self) -> None:
        """Fails a step that waits in a program with no other thread: nobody can give it what it waits for."""
        # a deadline ends the wait in any case, and what runs on another thread brings an event
        if self._deadline is None and not self._apart and worker_threads.are_all_but(threading.current_thread()):
            raise FailedPreconditionError(
                None,
                self._first_op(),
                f"deadlock: the step waits, and no other thread of the program could run a step: {self.who_waits()};"
                " run the step that gives it what it waits for before, or on a thread of its own",
            )

    def _warn_of_stall(self) -> None:
        if self._active.all_wait():
            _log.warning(
                "all steps of this task have been waiting for %d s, and none runs: %s. Another step may still give "
                "them what they wait for; if none will, interrupt the program or set RunOptions.timeout_in_ms",
                STALL_SECONDS,
                self.who_waits(),
            )

    def _first_op(self) -> StepNode | None:
        waiting = [*(op for op, _, _ in self._pending.values()), *(op for op, _ in self._apart.values())]
        return waiting[0] if waiting else None

    def _too_late(self, op: StepNode | None, who: str) -> DeadlineExceededError:
        message = (  # programs look for its beginning
            f"Timed out waiting for notification: the step did not end within {self._timeout} s: {who}; "
            "give it more time (timeout_in_ms)"
        )
        return DeadlineExceededError(None, op, message)

    def _cancelled(self, error: OpError) -> OpError:
        return type(error)(None, self._first_op(), f"{error.message}: {self.who_waits()}")

    def who_waits(self) -> str:
        """Names the operations that wait or run on threads, where they were created, and what they wait for."""
        now = trace_clock.now()
        waits = []
        for op, pending, started in list(self._pending.values()):
            what = pending.waiting_for or "a result from outside of the step"
            waits.append(_described(op, f"waits for {what}", now - started))
        for op, started in list(self._apart.values()):
            waits.append(_described(op, "runs", now - started))
        more = [f"and {len(waits) - _MAX_NAMED} more"] if len(waits) > _MAX_NAMED else []
        return "; ".join(waits[:_MAX_NAMED] + more) or "no operation waits"


def _described(op: StepNode, what: str, seconds: float) -> str:
    return f"{op.name!r} ({op.type}, created at {op.creation_site}) {what} ({seconds:.1f} s so far)"


def _described_loop(op: StepNode) -> str:
    return f"{op.name!r} ({op.type}, created at {op.creation_site}) was running"


def deadline_after(timeout: float | None) -> float | None:
    """When so many seconds are over, on the monotonic clock."""
    return None if timeout is None else time.monotonic() + timeout


def wait_for(
    op: StepNode,
    pending: Pending,
    timeout: float | None,
    deadline: float | None,
    active: ActiveSteps,
    number: int | None = None,
) -> None:
    """Waits for the result of one operation, in a step that has nothing else to do.

    Args:
        number: as of `StepWaiting`.

    Raises:
        DeadlineExceededError, CancelledError, FailedPreconditionError: it did not come; it is cancelled then.
        BaseException: an interrupt of this thread; likewise.
    """
    waiting = StepWaiting(timeout, deadline, active)
    waiting.number = number
    waiting._pending[pending] = op, pending, trace_clock.now()
    pending.when_settled(lambda settled: waiting._events.put((settled, settled)))
    try:
        waiting._only_event()
    except OpError as error:
        if pending.cancel(error):
            raise
        # it came at the last moment, and must not be lost
    except BaseException as error:
        pending.cancel(error)
        raise


def run_alone(
    op: StepNode, work: Callable[[], None], timeout: float | None, deadline: float | None, active: ActiveSteps
) -> None:
    """Runs what may hold its thread for long, in a step that has nothing else to do.

    It runs here, unless a deadline may have to end the step before it returns.

    Raises:
        DeadlineExceededError, CancelledError: it did not return in time, or its step was cancelled; it is left alone.
        BaseException: what it raises, or an interrupt of this thread.
    """
    waiting = StepWaiting(timeout, deadline, active)
    waiting._apart[op] = op, trace_clock.now()
    if deadline is None:
        # nothing has to end the step before the work returns; a cancellation is looked at then
        with waiting.under_way():
            work()
            waiting._check_not_cancelled()
        return
    worker_threads.submit(lambda: waiting._events.put((op, error_of(work))))
    error = waiting._only_event()
    if error is not None:
        raise error


def error_of(work: Callable[[], None]) -> BaseException | None:
    """What `work` raises, or None; for a thread of its own."""
    try:
        work()
    except BaseException as error:  # whatever it is, the thread of the step has to know
        return error
    return None
