"""Pauses between attempts at sessions, on a clock that nobody waits for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import anabranch as tf
from anabranch.core.pauses import Pauses
from anabranch.train import hooked_session, session_manager
from anabranch.train.hooked_session import RecoverableSession


class Clock:
    """Stands in for `time`; notes the pauses."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(hooked_session, "time", found)
    monkeypatch.setattr(session_manager, "time", found)
    return found


DOUBLING = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


def test_pauses_double_up_to_the_longest() -> None:
    pauses = Pauses()
    assert [pauses.next() for _ in DOUBLING] == DOUBLING
    pauses.reset()
    assert pauses.next() == 0.1
    assert [Pauses(0.01).next() for _ in range(2)] == [0.01, 0.01]


class Unreliable:
    """Makes sessions, of which some cannot be made and some cannot run a step."""

    def __init__(self, outcomes: str) -> None:
        self.outcomes = list(outcomes)

    def create_session(self) -> Any:
        if self.outcomes[0] == "c":
            self.outcomes.pop(0)
            raise tf.errors.UnavailableError(None, None, "cannot be created")
        return SimpleNamespace(run=self.run, close=lambda: None)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        if self.outcomes.pop(0) == "r":
            raise tf.errors.AbortedError(None, None, "the task is gone")
        return "done"


@pytest.mark.parametrize(
    ("outcomes", "steps", "slept"),
    [
        (".", 1, []),
        ("ccc.", 1, [0.1, 0.2, 0.4]),
        (".r.r.", 3, []),  # after a step that went well, at once
        ("rrr.", 1, [0.1, 0.2, 0.4]),
        (".rrc.r.", 3, [0.1, 0.2]),  # a step that goes well begins anew
        ("c" * 11 + ".", 1, DOUBLING),
    ],
)
def test_lost_sessions_are_made_anew_with_pauses(clock: Clock, outcomes: str, steps: int, slept: list[float]) -> None:
    creator = Unreliable(outcomes)
    session = RecoverableSession(creator)
    assert [session.run("x") for _ in range(steps)] == ["done"] * steps
    assert clock.slept == slept
    assert not creator.outcomes


def test_replicas_look_often_at_first_whether_the_chief_has_initialized(clock: Clock) -> None:
    tf.get_variable("v", [])
    manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables())
    with pytest.raises(tf.errors.DeadlineExceededError, match="Session was not ready after waiting 60 secs"):
        manager.wait_for_session("", max_wait_secs=60)
    assert clock.slept == pytest.approx([*DOUBLING[:9], 60 - sum(DOUBLING[:9])])
    clock.slept.clear()
    with pytest.raises(tf.errors.DeadlineExceededError):
        tf.train.SessionManager(ready_op=tf.report_uninitialized_variables(), recovery_wait_secs=0.3).wait_for_session(
            "", max_wait_secs=1
        )
    assert clock.slept == pytest.approx([0.1, 0.2, 0.3, 0.3, 0.1])
