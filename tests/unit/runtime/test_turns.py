"""Whose turn it is of threads that write the same variables."""

from __future__ import annotations

import threading
import time

import pytest

from anabranch.runtime.turns import TURN, Turns, Waiter

ONE, TWO, THREE = 1, 2, 3
DEADLINE = 60.0
#: a step, and the time between two of a thread (s)
STEP, BETWEEN = 2e-4, 5e-5
LONG = 1e-2


class Table:
    """Turns, a lock that says whether the variables are in use, and a clock that stands still."""

    def __init__(self) -> None:
        self.is_locked = False
        self.turns = Turns(lambda: self.is_locked, lambda: self.now)
        self.now = 100.0

    def comes(self, thread: int) -> bool:
        """Whether a thread runs that comes now; it begins to."""
        if not self.turns.may_run(thread, self.now):
            return False
        self.turns.runs = self.is_locked = True
        return True

    def ends(self, thread: int, after: float = STEP) -> int | None:
        """A thread has run; who is woken, if it looks for others."""
        self.now += after
        self.turns.runs = self.is_locked = False
        following = self.turns.has_run(thread, self.now) if self.turns.thread or self.turns.waiting else None
        return None if following is None else following.thread

    def waits(self, thread: int) -> Waiter:
        waiter = Waiter(thread, threading.Lock())
        self.turns.waiting.append(waiter)
        return waiter

    def goes_on(self, thread: int, between: float = BETWEEN) -> list[int]:
        """A thread runs step after step, until another is woken; how many steps it has made, and who that is."""
        for steps in range(1, 1000):
            assert self.comes(thread)
            woken = self.ends(thread)
            if woken is not None:
                return [steps, woken]
            self.now += between
        raise AssertionError("nobody was woken")


@pytest.fixture
def table() -> Table:
    return Table()


def test_one_thread_runs_without_asking(table: Table) -> None:
    for _ in range(5):
        assert table.comes(ONE)
        assert table.ends(ONE) is None


def test_a_thread_keeps_its_turn_for_some_steps_while_others_wait(table: Table) -> None:
    assert table.comes(ONE)
    assert not table.comes(TWO)
    table.waits(TWO)
    assert table.ends(ONE) is None
    # between two steps of the one that has the turn, the variables are free, and nobody else gets them
    table.now += BETWEEN
    assert not table.comes(TWO)
    steps, woken = table.goes_on(ONE)
    assert woken == TWO
    assert steps == pytest.approx(TURN / (STEP + BETWEEN), abs=2)
    assert not table.comes(ONE)
    table.waits(ONE)
    steps, woken = table.goes_on(TWO)
    assert woken == ONE
    assert steps == pytest.approx(TURN / (STEP + BETWEEN), abs=2)


def test_turns_go_round(table: Table) -> None:
    table.comes(ONE)
    table.waits(TWO)
    table.waits(THREE)
    order = [table.goes_on(ONE)[1]]
    for _ in range(5):
        table.waits(ONE if len(order) == 1 else order[-2])
        order.append(table.goes_on(order[-1])[1])
    assert order == [TWO, THREE, ONE, TWO, THREE, ONE]


def test_a_long_step_is_a_turn(table: Table) -> None:
    table.comes(ONE)
    table.waits(TWO)
    assert table.ends(ONE, LONG) == TWO


def test_who_stays_away_between_its_steps_gives_the_turn_away_after_each(table: Table) -> None:
    table.comes(ONE)
    table.waits(TWO)
    assert table.ends(ONE) is None
    table.now += LONG
    assert table.comes(ONE)
    assert table.ends(ONE) == TWO


def test_one_that_comes_late_finds_the_others_turn_as_long_as_it_is(table: Table) -> None:
    table.comes(ONE)
    table.waits(TWO)
    assert table.goes_on(ONE)[1] == TWO
    # the first one is held up, and comes back when the second has made some steps
    for _ in range(3):
        assert table.comes(TWO)
        assert table.ends(TWO) is None
        table.now += BETWEEN
    assert not table.comes(ONE)
    table.waits(ONE)
    steps, woken = table.goes_on(TWO)
    assert woken == ONE
    assert steps == pytest.approx(TURN / (STEP + BETWEEN) - 3, abs=2)


def test_where_nobody_else_comes_any_more_nobody_is_asked(table: Table) -> None:
    table.comes(ONE)
    table.waits(TWO)
    assert table.goes_on(ONE)[1] == TWO
    for _ in range(3):
        table.now += LONG
        assert table.comes(TWO)
        assert table.ends(TWO) is None
        assert table.turns.thread == TWO
    table.now += 1.0
    assert table.comes(TWO)
    assert table.ends(TWO) is None
    assert table.turns.thread == 0


def test_who_has_gone_holds_nobody_up(table: Table) -> None:
    table.comes(ONE)
    table.waits(TWO)
    table.ends(ONE)
    assert not table.comes(TWO)
    table.now += LONG
    assert table.comes(TWO)
    # the first one is back, and finds the turn taken
    assert not table.comes(ONE)


def test_one_that_was_woken_and_does_not_come_holds_nobody_up(table: Table) -> None:
    table.comes(ONE)
    table.waits(TWO)
    assert table.goes_on(ONE)[1] == TWO
    assert not table.comes(THREE)
    table.now += LONG
    assert table.comes(THREE)


def test_a_mark_that_an_exception_left_is_no_run(table: Table) -> None:
    table.comes(ONE)
    table.is_locked = False
    table.now += LONG
    assert table.comes(TWO)


def test_a_lock_that_somebody_else_holds_is_waited_for_as_such(table: Table) -> None:
    table.is_locked = True
    assert table.turns.may_run(ONE, table.now)


def test_who_gave_up_is_not_woken(table: Table) -> None:
    table.comes(ONE)
    assert table.turns.has_run(ONE, table.now + LONG) is None


def test_threads_that_come_and_go_all_run_and_none_waits_for_a_thread_that_has_ended() -> None:
    lock = threading.Lock()
    turns = Turns(lock.locked)
    counts = [0] * 3
    inside: list[int] = []

    def work(number: int) -> None:
        for _ in range(300 * (number + 1)):
            if turns.thread or turns.runs:
                turns.come()
            with lock:
                turns.runs = True
                inside.append(number)
                counts[number] += 1
                assert inside.pop() == number
                turns.runs = False
            if turns.thread or turns.waiting:
                turns.go()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    assert counts == [300, 600, 900]
    assert not turns.waiting
    assert time.monotonic() - began < DEADLINE
