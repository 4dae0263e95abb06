"""Rates from two answers of a task (`distributed.activity`)."""

from __future__ import annotations

import pytest

from anabranch.distributed.activity import rates
from anabranch.proto.step_plan_pb2 import LinkActivity, TaskActivity


def answer(seconds: float, steps: int, *links: tuple[str, int, int]) -> TaskActivity:
    return TaskActivity(
        seconds=seconds,
        ended_steps=steps,
        link=[
            LinkActivity(name="x", address=address, state="up", sent_bytes=sent, received_bytes=received)
            for address, sent, received in links
        ],
    )


def test_two_answers_make_rates_by_the_tasks_own_time() -> None:
    seen = rates(answer(10.0, 100, ("a:1", 1000, 0)), answer(12.0, 150, ("a:1", 5000, 10), ("b:1", 7, 7)))
    assert (seen.steps, seen.ended_steps) == (25.0, 150)
    known, new = seen.links
    assert (known.sent, known.received) == (2000.0, 5.0)
    # a link that was not there before has nothing to be compared with
    assert (new.sent, new.received) == (None, None)


@pytest.mark.parametrize(
    "before",
    [
        None,
        answer(10.0, 100),  # at the same instant
        answer(9.9, 100),  # a step more or less would be the rate
        answer(500.0, 2),  # the task was started again, on a machine that was
        answer(1.0, 5000),  # the task was started again
    ],
)
def test_what_cannot_be_compared_has_no_rate(before: TaskActivity | None) -> None:
    seen = rates(before, answer(10.0, 100, ("a:1", 1000, 0)))
    assert seen.steps is None
    assert [(link.sent, link.received) for link in seen.links] == [(None, None)]


def test_a_link_that_counts_anew_has_no_rate() -> None:
    seen = rates(answer(1.0, 1, ("a:1", 1000, 1000)), answer(2.0, 2, ("a:1", 10, 2000)))
    assert [(link.sent, link.received) for link in seen.links] == [(None, 1000.0)]
