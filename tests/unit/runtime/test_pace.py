"""Short runs take their turns where their events come; long ones, and those that something might hold, do not."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.runtime.pace import SHORT, Pace, take_short_turns_here
from anabranch.runtime.started_runs import StartedRun

DEADLINE = 60.0


class Noting:
    """A run that waits once, and notes on which threads its turns are."""

    deadline = None

    def __init__(self) -> None:
        self.threads: list[int] = []

    def begin(self) -> None:
        """Nothing is to be done before."""

    def go_on(self) -> list[Any] | None:
        self.threads.append(threading.get_ident())
        return None if len(self.threads) == 1 else []

    def give_up(self, error: BaseException) -> None:
        raise AssertionError("the run does not fail") from error


def test_a_pace_is_short_after_three_short_runs_until_a_long_one() -> None:
    pace = Pace()
    seen = []
    for seconds in (0.0, 0.0, 0.0, 0.0, SHORT, 0.0, 0.0, 0.0):
        pace.note(seconds)
        seen.append(pace.is_short)
    assert seen == [False, False, True, True, False, False, False, True]


def on_a_receiving_thread(pace: Pace, is_quick: bool) -> tuple[int, list[int]]:
    """The thread that starts a run and has its event come, and those of its turns."""
    run, told = Noting(), queue.SimpleQueue[Any]()
    receiver: list[int] = []

    def receive() -> None:
        take_short_turns_here()
        receiver.append(threading.get_ident())
        first = threading.Event()

        def make(wake: Callable[[], None]) -> Noting:
            first.set()
            return run

        started = StartedRun(make, told.put, pace, lambda: is_quick)
        first.wait(DEADLINE)
        # comes within the first turn, or after it
        started.wake()

    thread = threading.Thread(target=receive)
    thread.start()
    assert told.get(timeout=DEADLINE) == []
    thread.join(DEADLINE)
    return receiver[0], run.threads


def short_pace() -> Pace:
    pace = Pace()
    for _ in range(3):
        pace.note(0.0)
    return pace


def test_short_runs_are_taken_by_the_thread_on_which_events_come() -> None:
    receiver, turns = on_a_receiving_thread(short_pace(), is_quick=True)
    assert turns == [receiver, receiver]


@pytest.mark.parametrize(("pace", "is_quick"), [(Pace(), True), (short_pace(), False)])
def test_other_runs_are_not(pace: Pace, is_quick: bool) -> None:
    receiver, turns = on_a_receiving_thread(pace, is_quick)
    assert receiver not in turns


def test_no_thread_takes_turns_that_did_not_say_so() -> None:
    run, told = Noting(), queue.SimpleQueue[Any]()
    started = StartedRun(lambda _: run, told.put, short_pace(), lambda: True)
    started.wake()
    assert told.get(timeout=DEADLINE) == []
    assert threading.get_ident() not in run.threads


def test_the_first_turn_may_be_taken_at_once() -> None:
    run, told = Noting(), queue.SimpleQueue[Any]()
    started = StartedRun(lambda _: run, told.put, Pace(), lambda: True, begins_here=True)
    assert run.threads == [threading.get_ident()]
    started.wake()
    assert told.get(timeout=DEADLINE) == []
    assert len(run.threads) == 2
