"""Who makes the calls of a parallel map."""

from __future__ import annotations

import pytest

from anabranch.state.call_placement import CallPlacement

COUNT = 4


def made(placement: CallPlacement, calls: int, together: float, alone: float, kept: float | None = None) -> list[bool]:
    """Makes calls that take so long beside others and alone; who made each.

    Args:
        kept: how long a worker's call keeps the caller; if it only waits for calls, and is woken in no time, it is kept
            for what they take, shared by the workers.
    """
    makers = []
    for _ in range(calls):
        by_worker = placement.uses_workers
        placement.note(together if by_worker else alone, by_worker)
        if by_worker:
            placement.note_wait(together / COUNT if kept is None else kept)
        makers.append(by_worker)
    return makers


@pytest.mark.parametrize(
    ("together", "alone", "workers"),
    [
        pytest.param(50e-6, 50e-6, False, id="quick"),
        pytest.param(400e-6, 350e-6, True, id="beside each other"),
        pytest.param(1.2e-3, 280e-6, False, id="in each other's way"),
        pytest.param(1.9e-3, 400e-6, False, id="no faster"),
        pytest.param(1.9e-3, 1e-3, True, id="twice as fast"),
        pytest.param(50e-3, 1e-3, True, id="long, not tried"),
    ],
)
def test_calls_go_where_they_are_made_faster(together: float, alone: float, workers: bool) -> None:
    placement = CallPlacement(COUNT)
    made(placement, 200, together, alone)
    assert set(made(placement, 1000, together, alone)) == {workers}


@pytest.mark.parametrize(
    ("kept", "workers"),
    [
        pytest.param(0.0, True, id="busy elsewhere"),
        pytest.param(250e-6, True, id="woken soon"),
        pytest.param(400e-6, False, id="woken late"),
    ],
)
def test_what_counts_is_how_long_calls_keep_the_caller(kept: float, workers: bool) -> None:
    placement = CallPlacement(COUNT)
    made(placement, 200, 400e-6, 350e-6, kept)
    assert set(made(placement, 1000, 400e-6, 350e-6, kept)) == {workers}


def test_long_calls_are_never_the_callers() -> None:
    assert all(made(CallPlacement(COUNT), 20_000, 0.1, 0.1))


def test_a_trial_takes_few_calls() -> None:
    makers = made(CallPlacement(COUNT), 1000, 400e-6, 350e-6)
    assert makers.count(False) == 32 + COUNT


def test_calls_that_become_long_go_to_workers_at_once() -> None:
    placement = CallPlacement(COUNT)
    made(placement, 500, 50e-6, 50e-6)
    assert made(placement, 3, 0.2, 0.2) == [False, True, True]


def test_calls_that_become_longer_are_measured_anew() -> None:
    placement = CallPlacement(COUNT)
    made(placement, 500, 1.2e-3, 280e-6)
    assert True in made(placement, 150, 5e-3, 5e-3)
    made(placement, 200, 5e-3, 5e-3)
    assert all(made(placement, 500, 5e-3, 5e-3))


def test_one_call_that_was_interrupted_changes_nothing() -> None:
    placement = CallPlacement(COUNT)
    made(placement, 500, 1.2e-3, 280e-6)
    for _ in range(20):
        made(placement, 1, 8e-3, 8e-3)
        assert not any(made(placement, 100, 1.2e-3, 280e-6))


def test_it_is_found_out_anew() -> None:
    """Files that were in memory come from a disk now."""
    placement = CallPlacement(COUNT)
    made(placement, 500, 1.2e-3, 280e-6)
    assert not placement.uses_workers
    made(placement, 9000, 300e-6, 280e-6)
    assert placement.uses_workers


def test_late_reports_do_not_count() -> None:
    placement = CallPlacement(COUNT)
    made(placement, 64, 1e-3, 300e-6)
    assert not placement.uses_workers
    for _ in range(1000):
        placement.note(10.0, by_worker=True)
    made(placement, 100, 1e-3, 200e-6)
    assert not placement.uses_workers
