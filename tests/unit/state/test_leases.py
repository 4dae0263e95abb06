"""Leases of one holder, of ranges of examples, and membership, with workers that come, go, stop and die."""

from __future__ import annotations

import collections
import random

import pytest

from anabranch.state.leases import Attendance, Held, Lease, Membership, Range, RangeLeases
from tests.each_case import each_case


# ---------------------------------------------------------------------- one holder
def test_a_lease_is_had_by_one_until_its_time_is_over() -> None:
    lease = Lease()
    assert lease.ask("a", 10, 0) == Held("a", 1, 10)
    assert lease.ask("b", 10, 9) == Held("a", 1, 1)
    assert lease.ask("a", 10, 9) == Held("a", 1, 10)
    assert lease.ask("b", 10, 19) == Held("b", 2, 10)
    # the first was stopped, and is woken
    assert lease.ask("a", 10, 20) == Held("b", 2, 9)


def test_a_lease_that_is_over_and_that_nobody_wants_is_renewed_by_its_holder() -> None:
    lease = Lease()
    lease.ask("a", 10, 0)
    assert lease.ask("a", 10, 100) == Held("a", 1, 10)


def test_a_lease_given_back_is_free_at_once_and_looking_takes_nothing() -> None:
    lease = Lease()
    assert lease.ask("b", 0, 0) == Held("", 0, 0)
    lease.ask("a", 10, 0)
    assert lease.ask("b", 0, 1) == Held("a", 1, 9)
    assert lease.ask("a", 0, 1) == Held("", 1, 0)
    assert lease.ask("b", 10, 1) == Held("b", 2, 10)


def test_nobody_believes_in_a_lease_that_another_has() -> None:
    """As workers count: from when they asked, so that their ends come before the lease's own."""
    for seed in range(200):
        chance = random.Random(seed)
        lease, now = Lease(), 0.0
        believes: dict[str, float] = {}
        terms = []
        for _ in range(100):
            asked = now
            now += chance.uniform(0, 3)
            who = chance.choice("abc")
            held = lease.ask(who, 5, now)
            now += chance.uniform(0, 3)
            terms.append(held.term)
            if held.holder == who:
                believes[who] = asked + 5
            assert sum(now < until for until in believes.values()) <= 1
        assert terms == sorted(terms)


# ---------------------------------------------------------------------- members
def test_members_come_stay_leave_and_are_forgotten() -> None:
    membership = Membership()
    assert membership.renew("a", 10, 0) == (["a"], 1)
    assert membership.renew("b", 10, 5) == (["a", "b"], 2)
    assert membership.renew("a", 10, 9) == (["a", "b"], 2)
    assert membership.renew("a", 10, 16) == (["a"], 3)
    assert membership.renew("a", 0, 17) == ([], 4)


# ---------------------------------------------------------------------- attendance
LIFE = 3


def expected(attendance: Attendance, worker: int, seconds: float, now: float, anew: bool = False) -> tuple[int, int]:
    """How many of three workers are waited for, and how often that has changed."""
    count, version = attendance.attend(worker, 3, seconds, anew, now)
    assert version >> 32 == LIFE
    return count, version % (1 << 32)


def test_workers_are_waited_for_until_they_leave_or_are_not_heard_of() -> None:
    attendance = Attendance(LIFE)
    # those that have not come yet are waited for as well
    assert expected(attendance, 0, 9, 0) == (3, 0)
    assert expected(attendance, 1, 9, 3) == (3, 0)
    # one leaves: at once
    assert expected(attendance, 1, -9, 4) == (2, 1)
    assert expected(attendance, 0, 9, 6) == (2, 1)
    # the third has not come
    assert expected(attendance, 0, 9, 9) == (1, 2)
    assert expected(attendance, 2, 9, 10) == (2, 3)
    assert expected(attendance, 1, 9, 11) == (3, 4)
    # the first is not heard of
    assert expected(attendance, 1, 9, 14) == (3, 4)
    assert expected(attendance, 2, 9, 17) == (3, 4)
    assert expected(attendance, 1, 9, 18) == (2, 5)
    # and comes back
    assert expected(attendance, 0, 9, 20) == (3, 6)


def test_a_pause_of_all_is_no_absence() -> None:
    attendance = Attendance(LIFE)
    for worker in range(3):
        expected(attendance, worker, 9, 0)
    assert expected(attendance, 0, 9, 100) == (3, 0)
    # the others are woken, too, or they are not
    assert expected(attendance, 1, 9, 101) == (3, 0)
    assert expected(attendance, 0, 9, 104) == (3, 0)
    assert expected(attendance, 0, 9, 108) == (3, 0)
    assert expected(attendance, 1, 9, 109) == (2, 1)


def test_who_has_left_a_training_is_waited_for_in_the_next() -> None:
    attendance = Attendance(LIFE)
    for worker in range(3):
        expected(attendance, worker, -9, 0)
    assert expected(attendance, 0, 9, 1) == (1, 4)
    assert expected(attendance, 0, 9, 2, anew=True) == (3, 5)


# ---------------------------------------------------------------------- ranges
def test_ranges_are_dealt_out_in_order_and_an_epoch_waits_for_the_last() -> None:
    ranges = RangeLeases(5, 2, 2)
    assert ranges.ask("a", None, 10, 0)[2:] == (0, 2)
    assert ranges.ask("b", None, 10, 0)[2:] == (2, 4)
    assert ranges.ask("a", (0, 0), 10, 1)[2:] == (4, 5)
    assert ranges.ask("a", (0, 4), 10, 2) == Range(0, 0, -1, -1)
    # nothing was done with what `b` had: it asks again, and has it still
    assert ranges.ask("b", None, 10, 3)[2:] == (2, 4)
    assert ranges.ask("b", (0, 2), 10, 4) == Range(1, 1, 0, 2)
    assert ranges.ask("a", None, 10, 4) == Range(1, 1, 2, 4)


def test_what_a_dead_worker_had_goes_to_another_and_what_it_says_late_counts_once() -> None:
    ranges = RangeLeases(4, 2, 1)
    ranges.ask("dead", None, 10, 0)
    assert ranges.ask("a", None, 10, 5)[2:] == (2, 4)
    assert ranges.ask("a", (0, 2), 10, 9).begin == -1
    assert ranges.ask("a", None, 10, 10)[2:] == (0, 2)
    # woken, it has done what `a` has now
    assert ranges.ask("dead", (0, 0), 10, 11).begin == -1
    assert ranges.ask("a", (0, 0), 10, 12).epoch == 1


def test_who_leaves_gives_back_what_it_has_not_done() -> None:
    ranges = RangeLeases(4, 2, 1)
    ranges.ask("a", None, 10, 0)
    ranges.ask("a", None, 0, 1)
    assert ranges.ask("b", None, 10, 1)[2:] == (0, 2)


def test_positions_are_restored_and_what_came_after_them_was_lost() -> None:
    ranges = RangeLeases(10, 2, 1)
    for begin in (0, 2, 4):
        ranges.ask(f"worker of {begin}", None, 10, 0)
    ranges.ask("worker of 2", (0, 2), 0, 1)
    state = ranges.export()
    late = ranges.ask("worker of 4", (0, 4), 10, 2)
    ranges.restore(state, life=5)
    assert ranges.export() == state == [10, 2, 0, 6, 0, 4]
    # it was done with a model that is gone
    given = ranges.ask("worker of 4", (late.ticket, late.begin), 10, 3)
    assert (given.begin, given.ticket) == (0, 5 << 32)
    ranges.restore([])
    assert ranges.export() == [10, 2, 0, 0]


@pytest.mark.parametrize(
    "state",
    [
        [1],
        [9, 2, 0, 0],
        [10, 3, 0, 0],
        [10, 2, -1, 0],
        [10, 2, 0, 0, 3],
        [10, 2, 0, 0, -2],
        [10, 2, 0, 3],
        [10, 2, 0, 4, 4],
        [10, 2, 0, 4, 2, 2],
    ],
)
def test_positions_of_something_else_are_refused_and_change_nothing(state: list[int]) -> None:
    ranges = RangeLeases(10, 2, 1)
    ranges.ask("a", None, 10, 0)
    before = ranges.export()
    with pytest.raises(ValueError, match="positions"):
        ranges.restore(state)
    assert ranges.export() == before


@pytest.mark.parametrize("numbers", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_numbers_are_positive(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        RangeLeases(*numbers)


@each_case("seed", range(60))
def test_each_example_is_used_once_in_an_epoch_by_4_then_2_then_6_workers(seed: int) -> None:
    """Workers join, leave, stop for a while and die; what a dead one did before its death is done, or not."""
    chance = random.Random(seed)
    examples, size, epochs = chance.randint(1, 60), chance.randint(1, 7), 3
    # some lose what they still have, because they were stopped or were slow; then it is used twice
    are_stopped = seed % 2 == 1
    seconds = 5.0 if are_stopped else 60.0
    ranges = RangeLeases(examples, size, epochs)
    used: collections.Counter[tuple[int, int]] = collections.Counter()
    holding: dict[str, Range | None] = {f"first {i}": None for i in range(4)}
    stopped: dict[str, float] = {}
    now, is_over = 0.0, False
    for turn in range(4000):
        now += chance.uniform(0, 0.5)
        wanted = 4 if turn < 20 else 2 if turn < 40 else 6
        while len(holding) > wanted:
            leaver = chance.choice(sorted(holding))
            if chance.random() < 0.5:  # it leaves as it should; else it dies with what it has
                ranges.ask(leaver, None, 0, now)
            del holding[leaver]
        while len(holding) < wanted:
            holding[f"{turn} {len(holding)}"] = None
        who = chance.choice(sorted(holding))
        if now < stopped.get(who, 0.0):
            continue
        if are_stopped and chance.random() < 0.03:
            stopped[who] = now + 2 * seconds
            continue
        had = holding[who]
        got = ranges.ask(who, None if had is None else (had.ticket, had.begin), seconds, now)
        if had is not None:
            for example in range(had.begin, had.end):
                used[had.epoch, example] += 1
        holding[who] = got if got.begin >= 0 else None
        if got.epoch >= epochs:
            is_over = True
            break
    assert is_over
    assert set(used) == {(epoch, example) for epoch in range(epochs) for example in range(examples)}
    if not are_stopped:
        assert set(used.values()) == {1}
