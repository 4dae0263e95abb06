"""Turns of started runs: one at a time, one for each event that comes between, none after the end."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.runtime.deadlines import Deadlines
from anabranch.runtime.started_runs import StartedRun
from anabranch.runtime.worker_threads import WorkerThreads

DEADLINE = 60.0


class Scripted:
    """A run whose turns the test decides: None waits, "change" asks for another thread, a list ends it, an exception is
    raised.
    """

    def __init__(self, script: queue.SimpleQueue[Any], deadline: float | None = None) -> None:
        self.deadline = deadline
        self.is_to_change_threads = False
        self.begun = 0
        self.given_up: list[BaseException] = []
        self.turn_began: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._script = script
        self._in_turn = threading.Lock()

    def begin(self) -> None:
        self.begun += 1

    def go_on(self) -> list[Any] | None:
        assert self._in_turn.acquire(blocking=False), "two turns at once"
        try:
            self.turn_began.put(threading.get_ident())
            outcome = self._script.get(timeout=DEADLINE)
        finally:
            self._in_turn.release()
        self.is_to_change_threads = outcome == "change"
        if isinstance(outcome, BaseException):
            raise outcome
        if self.is_to_change_threads:
            return None
        result: list[Any] | None = outcome
        return result

    def give_up(self, error: BaseException) -> None:
        self.given_up.append(error)


def started(
    deadline: float | None = None,
) -> tuple[Scripted, queue.SimpleQueue[Any], queue.SimpleQueue[Any], StartedRun]:
    script: queue.SimpleQueue[Any] = queue.SimpleQueue()
    outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()
    run = Scripted(script, deadline)
    return run, script, outcomes, StartedRun(lambda _: run, outcomes.put)


def test_a_run_that_does_not_wait_has_one_turn() -> None:
    run, script, outcomes, _ = started()
    script.put([1])
    assert outcomes.get(timeout=DEADLINE) == [1]
    assert run.begun == 1


def test_each_event_brings_a_turn_and_those_within_a_turn_bring_one() -> None:
    run, script, outcomes, handle = started()
    run.turn_began.get(timeout=DEADLINE)
    for _ in range(5):
        handle.wake()  # while the first turn is under way
    script.put(None)
    run.turn_began.get(timeout=DEADLINE)
    script.put(None)
    # the turn ends with nothing more to do: an event begins the next, whenever it comes
    handle.wake()
    run.turn_began.get(timeout=DEADLINE)
    script.put(["done"])
    assert outcomes.get(timeout=DEADLINE) == ["done"]
    handle.wake()
    assert run.turn_began.empty()
    assert run.begun == 1


def test_a_run_that_fails_is_given_up_once_and_told_once() -> None:
    run, script, outcomes, handle = started()
    error = KeyboardInterrupt("from a user function")
    script.put(error)
    assert outcomes.get(timeout=DEADLINE) is error
    handle.wake()
    assert run.given_up == [error]
    assert outcomes.empty()


def test_what_cannot_be_made_is_told() -> None:
    outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def make(_: Callable[[], None]) -> Scripted:
        raise ValueError("no run")

    StartedRun(make, outcomes.put)
    assert isinstance(outcomes.get(timeout=DEADLINE), ValueError)


def test_the_deadline_is_an_event() -> None:
    run, script, outcomes, _ = started(time.monotonic() + 0.01)
    run.turn_began.get(timeout=DEADLINE)
    script.put(None)
    run.turn_began.get(timeout=DEADLINE)
    script.put(["late"])
    assert outcomes.get(timeout=DEADLINE) == ["late"]


# ---------------------------------------------------------------------- deadlines
def test_calls_come_in_the_order_of_their_times() -> None:
    told: queue.SimpleQueue[int] = queue.SimpleQueue()
    deadlines = Deadlines(WorkerThreads("test"))
    now = time.monotonic()
    for delay in (3, 1, 2, 0):
        deadlines.call_at(now + delay / 50, lambda delay=delay: told.put(delay))  # type: ignore[misc]
    assert [told.get(timeout=DEADLINE) for _ in range(4)] == [0, 1, 2, 3]


def test_a_cancelled_call_does_not_come_and_frees_the_thread() -> None:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    threads = WorkerThreads("test")
    deadlines = Deadlines(threads)
    cancel = deadlines.call_at(time.monotonic() + 3600, lambda: told.put("never"))
    cancel()
    cancel()
    deadlines.call_at(time.monotonic(), lambda: told.put("now"))
    assert told.get(timeout=DEADLINE) == "now"
    assert told.empty()
    # nothing is left to call: the next call needs a thread again, and gets one
    deadlines.call_at(time.monotonic(), lambda: told.put("again"))
    assert told.get(timeout=DEADLINE) == "again"


@pytest.mark.parametrize("count", [200])
def test_many_threads_ask_at_once(count: int) -> None:
    told: queue.SimpleQueue[int] = queue.SimpleQueue()
    deadlines = Deadlines(WorkerThreads("test"))

    def ask(number: int) -> None:
        cancel = deadlines.call_at(time.monotonic() + 0.001 * (number % 5), lambda: told.put(number))
        if number % 2:
            cancel()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    kept = {number for number in range(count) if not number % 2}
    found: set[int] = set()
    while not kept <= found:  # a call that is cancelled too late comes as well
        found.add(told.get(timeout=DEADLINE))


def test_a_turn_goes_on_on_another_thread_where_the_run_asks_for_one() -> None:
    run, script, outcomes, started_run = started()
    first = run.turn_began.get(timeout=DEADLINE)
    # what happens meanwhile is not lost
    started_run.wake()
    script.put("change")
    run.turn_began.get(timeout=DEADLINE)
    script.put(None)
    run.turn_began.get(timeout=DEADLINE)
    script.put([5])
    assert outcomes.get(timeout=DEADLINE) == [5]
    assert run.begun == 1
    assert first
