"""Short runs take their turns where their events come; long ones, and those that something might hold, do not."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.runtime import pace as paces
from anabranch.runtime.pace import SHORT, Pace, Stopwatch, take_short_turns_here
from anabranch.runtime.started_runs import StartedRun

DEADLINE = 60.0


class Noting:
    """A run that waits once, and notes on which threads its turns are."""

    deadline = None
    is_to_change_threads = False

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


def run_of(turns: list[tuple[float, bool]], pace: Pace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose turns took so long, and were preempted or not."""
    now, preemptions = [0.0], [0]
    monkeypatch.setattr("anabranch.runtime.pace.time.perf_counter", lambda: now[0])
    monkeypatch.setattr("anabranch.runtime.pace._preemptions", lambda: preemptions[0])
    watch = Stopwatch(pace)
    for number, (seconds, is_preempted) in enumerate(turns):
        watch.begin()
        now[0] += seconds
        preemptions[0] += is_preempted
        watch.pause() if number + 1 < len(turns) else watch.end()


def test_a_turn_in_which_another_thread_got_the_processor_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = short_pace()
    run_of([(0.0, False), (2 * SHORT, True)], pace, monkeypatch)
    assert pace.is_short
    run_of([(2 * SHORT, True), (0.0, False)], pace, monkeypatch)
    assert pace.is_short
    # one that took long by itself does, and so does one that took very long in any case
    run_of([(2 * SHORT, False), (0.0, True)], pace, monkeypatch)
    assert not pace.is_short
    pace = short_pace()
    run_of([(100 * SHORT, True)], pace, monkeypatch)
    assert not pace.is_short
    # it does not make a partition short either
    pace = Pace()
    for _ in range(5):
        run_of([(2 * SHORT, True)], pace, monkeypatch)
    assert not pace.is_short


def test_a_thread_that_computes_beside_others_is_preempted() -> None:
    if sys.platform != "linux":
        pytest.skip("the system does not say how often that happens")
    deadline = time.monotonic() + DEADLINE
    others = [
        subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        before = paces._preemptions()
        while paces._preemptions() == before:
            assert time.monotonic() < deadline
    finally:
        for other in others:
            other.kill()
            other.wait()
