"""When threads that write the same variables wait for each other too long, and which way is taken then."""

from __future__ import annotations

import pytest

from anabranch.runtime.contention import SHARE, WINDOW, ContendedError, Contention, Ways

ONE, TWO = 1, 2
#: a step (s)
STEP = 1e-3


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def window(contention: Contention, clock: Clock, share: float) -> None:
    """Runs for which threads wait, for that part of the time."""
    for _ in range(WINDOW):
        contention.ran()
        clock.now += STEP
        contention.waited(share * STEP)


def test_long_waits_are_told_once() -> None:
    clock = Clock()
    contention = Contention(clock)
    window(contention, clock, 0.0)
    assert not contention.is_long
    with pytest.raises(ContendedError, match=r"0\.49 ms") as caught:
        window(contention, clock, 0.5)
    assert caught.value.seconds == pytest.approx(STEP / 2, rel=0.05)
    for _ in range(5):
        window(contention, clock, 1.0)
        assert contention.is_long
    for _ in range(2):
        window(contention, clock, 0.0)
    assert not contention.is_long


@pytest.mark.parametrize("share", [0.0, 0.9 * SHARE])
def test_short_waits_are_not(share: float) -> None:
    clock = Clock()
    contention = Contention(clock)
    for _ in range(5):
        window(contention, clock, share)


def test_copies_must_take_less_than_waits_do() -> None:
    assert ContendedError(1e-3).pays(0)
    assert ContendedError(1e-3).pays(900_000)
    assert not ContendedError(1e-3).pays(1_100_000)


class Island:
    """An island with parts, that threads run in turns, and what they take for a step (s)."""

    def __init__(self, whole: float, parts: float, warm_after: int = 0) -> None:
        self.whole, self.parts = whole, parts
        self.clock = Clock()
        self.waits, self.left = True, warm_after
        self.ways = Ways(self.is_warm, lambda: self.waits, self.clock)
        self.chosen: list[bool] = []
        self.threads = (ONE, TWO)

    def is_warm(self) -> bool:
        return self.left <= 0

    def run(self) -> bool:
        apart = self.ways.apart(self.threads[len(self.chosen) % len(self.threads)])
        self.chosen.append(apart)
        self.left -= apart
        self.clock.now += self.parts if apart else self.whole
        return apart

    def run_for(self, seconds: float) -> float:
        """The share of its runs that were in parts."""
        end, first = self.clock.now + seconds, len(self.chosen)
        while self.clock.now < end:
            self.run()
        ran = self.chosen[first:]
        return sum(ran) / len(ran)

    def settle(self) -> bool:
        """Measures; whether parts were chosen."""
        share = self.run_for(2.0) and self.run_for(2.0)
        assert share in (0.0, 1.0)
        return bool(share)


def test_programs_of_parts_are_compiled_before_anything_is_measured() -> None:
    island = Island(1e-3, 6e-4, warm_after=100)
    for _ in range(100):
        assert island.run()
    while island.run():
        pass
    assert len(island.chosen) <= 120


def test_nobody_waits_for_ever_for_programs_to_be_compiled() -> None:
    island = Island(1e-3, 6e-4, warm_after=1_000_000)
    island.run_for(2.0)
    assert not all(island.chosen)


@pytest.mark.parametrize(("parts", "expected"), [(6e-4, True), (9.9e-4, False), (1e-3, False), (3e-3, False)])
def test_the_quicker_way_is_taken(parts: float, expected: bool) -> None:
    island = Island(1e-3, parts)
    assert island.settle() is expected
    # what is slower has had a small part of the time
    assert sum(taken is not expected for taken in island.chosen) < 400


@pytest.mark.parametrize("step", [5e-5, 0.5])
def test_steps_of_any_length_are_measured(step: float) -> None:
    island = Island(step, step / 2)
    for _ in range(30_000):
        island.run()
    assert all(island.chosen[-1000:])
    # what is slower has had a small part of the time
    assert sum(island.chosen) > 0.9 * len(island.chosen)


def test_both_ways_are_measured_again_and_less_and_less_often() -> None:
    island = Island(1e-3, 2e-3)
    assert not island.settle()
    island.parts = 5e-4
    assert island.run_for(10.0) == 0.0
    assert island.run_for(15.0) > 0.0
    assert island.settle()
    island.parts = 3e-3
    assert island.run_for(15.0) == 1.0
    island.run_for(30.0)
    assert not island.settle()


def test_a_thread_that_is_left_alone_runs_the_island_as_a_whole() -> None:
    island = Island(1e-3, 5e-4)
    assert island.settle()
    island.threads, island.waits = (ONE, ONE), False
    for _ in range(2 * WINDOW):
        island.run()
    assert island.run_for(1.0) == 0.0
    # another one comes, and they wait: as it was found
    island.threads, island.waits = (ONE, TWO), True
    for _ in range(2 * WINDOW):
        island.run()
    assert island.run_for(1.0) == 1.0


def test_threads_that_do_not_wait_are_not_measured_again() -> None:
    island = Island(1e-3, 2e-3)
    assert not island.settle()
    island.waits = False
    assert island.run_for(100.0) == 0.0
