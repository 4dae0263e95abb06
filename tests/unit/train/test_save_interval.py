"""When checkpoints are due: Young's and Daly's formula beside the loss that it should make least."""

from __future__ import annotations

import math

import numpy as np
import pytest

from anabranch.train.save_interval import LONGEST, SHORTEST, SaveInterval, best_interval


def lost(interval: float, cost: float, life: float) -> float:
    """The expected time per unit of work, with exponential failures and restarts that cost nothing (Daly 2006, 20)."""
    return life * (math.exp((interval + cost) / life) - 1) / interval


@pytest.mark.parametrize("cost", [0.1, 2.0, 30.0, 300.0])
@pytest.mark.parametrize("life", [600.0, 3600.0, 86400.0])
def test_the_interval_loses_hardly_more_than_the_best_one(cost: float, life: float) -> None:
    candidates = np.geomspace(0.5, 2 * life, 4000)
    least = min(lost(candidate, cost, life) for candidate in candidates)
    assert lost(best_interval(cost, life), cost, life) < 1.005 * least


def test_a_save_that_costs_more_than_lives_last_is_made_once_in_a_life() -> None:
    assert best_interval(100.0, 50.0) == 50.0


def test_young_s_rule_is_its_limit() -> None:
    assert best_interval(0.01, 86400.0) == pytest.approx(math.sqrt(2 * 0.01 * 86400), rel=2e-3)


def test_the_first_save_is_due_at_once_and_the_next_after_the_interval() -> None:
    interval = SaveInterval(100.0, tasks=4, task_life=4 * 3600.0)
    assert interval.is_due(100.0)
    # ten steps in 2 s while saving, as many in 1 s before: half of the time was lost
    interval.saved(began=101.0, ended=103.0, pause=0.0, steps=10, steps_before=10)
    assert interval.cost == pytest.approx(1.0)
    seconds = interval.seconds(103.0)
    assert seconds == pytest.approx(best_interval(1.0, 3600 + 3), rel=1e-6)
    assert not interval.is_due(103.0 + seconds - 0.1)
    assert interval.is_due(103.0 + seconds + 5)


def test_a_pause_counts_whole_and_a_save_that_nobody_felt_a_little() -> None:
    interval = SaveInterval(0.0)
    interval.saved(began=10.0, ended=20.0, pause=4.0, steps=100, steps_before=100)
    assert interval.cost == 4.0
    other = SaveInterval(0.0)
    other.saved(began=10.0, ended=20.0, pause=0.0, steps=100, steps_before=100)
    assert 0 < other.cost < 0.5


def test_failures_shorten_the_interval_and_time_without_them_lengthens_it() -> None:
    interval = SaveInterval(0.0, task_life=3600.0)
    interval.saved(began=10.0, ended=11.0, pause=1.0, steps=0, steps_before=10)
    before = interval.seconds(100.0)
    assert interval.seconds(10 * 3600.0) > before
    for _ in range(8):
        interval.failed()
    assert interval.seconds(100.0) == pytest.approx(best_interval(1.0, 3700 / 9))
    assert interval.seconds(100.0) < before / 2


def test_intervals_have_bounds() -> None:
    interval = SaveInterval(0.0, task_life=1.0)
    interval.saved(began=0.0, ended=0.001, pause=0.0, steps=1, steps_before=1)
    assert interval.seconds(0.0) == SHORTEST
    slow = SaveInterval(0.0, task_life=1e12)
    slow.saved(began=0.0, ended=1000.0, pause=1000.0, steps=0, steps_before=0)
    assert slow.seconds(0.0) == LONGEST


@pytest.mark.parametrize(("tasks", "life"), [(0, 1.0), (1, 0.0), (1, -1.0)])
def test_what_makes_no_sense_is_refused(tasks: int, life: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        SaveInterval(0.0, tasks, life)
