"""The lease of the chief as a worker sees it, by a clock of the test."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch import errors
from anabranch.state.leases import Lease
from anabranch.train import chief_lease
from anabranch.train.chief_lease import ChiefLease
from anabranch.train.coordinator import Coordinator

SECONDS = 10.0


class Clock:
    """What the workers' clocks say. It counts from when the machine was started, long ago."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(chief_lease.time, "monotonic", lambda: self.now)


class Session:
    """Asks the one lease for one worker."""

    def __init__(self, lease: Lease, worker: ChiefLease, clock: Clock) -> None:
        self._lease, self._worker, self._clock = lease, worker, clock

    def run(self, answer: Any, feeds: dict[Any, float]) -> tuple[bytes, int, float]:
        (seconds,) = feeds.values()
        holder, term, remaining = self._lease.ask(self._worker._me, seconds, self._clock.now)
        return holder.encode(), term, remaining


class Worker:
    def __init__(self, lease: Lease, clock: Clock, is_first: bool) -> None:
        self.lease = ChiefLease(is_first, SECONDS)
        self.lease._answer = self.lease._wanted = "asked"
        self._session: Any = Session(lease, self.lease, clock)

    def ask(self) -> bool:
        return self.lease.ask(self._session)


def test_who_has_taken_the_lease_from_a_dead_chief_knows_it_until_the_model_has_gone_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where it loses it before it has made its session anew, since its step took longer than that."""
    clock, shared = Clock(monkeypatch), Lease()
    dead, other = Worker(shared, clock, True), Worker(shared, clock, False)
    assert dead.ask()
    assert not other.ask()
    clock.now += SECONDS / 2
    assert not other.ask()
    clock.now += SECONDS
    assert other.ask()
    assert other.lease.from_the_dead
    clock.now += 2 * SECONDS
    assert not other.lease.is_held
    assert other.ask()
    assert other.lease.from_the_dead
    other.lease.from_the_dead = False
    clock.now += SECONDS / 2
    assert other.ask()
    assert not other.lease.from_the_dead
    assert not dead.lease.from_the_dead


def test_what_was_given_back_is_not_from_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, shared = Clock(monkeypatch), Lease()
    first, other = Worker(shared, clock, True), Worker(shared, clock, False)
    assert first.ask()
    first.lease.give_back(first._session)
    assert not first.lease.is_held
    assert other.ask()
    assert not other.lease.from_the_dead


@pytest.mark.parametrize("ended", [False, True])
def test_a_session_that_ends_as_its_worker_becomes_chief_is_closed_all_the_same(
    ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator that was joined meanwhile would raise, on the thread that keeps the lease."""
    worker, coord = Worker(Lease(), Clock(monkeypatch), True), Coordinator()
    worker.lease.interrupts = True
    closed: list[bool] = []
    session: Any = worker._session
    session.close = lambda: closed.append(True)
    ask = worker.lease.ask

    def asks_as_it_ends(session: Any) -> bool:
        if ended:
            coord.request_stop()
            coord.join([])
        return ask(session)

    monkeypatch.setattr(worker.lease, "ask", asks_as_it_ends)
    monkeypatch.setattr(worker.lease, "_seconds", 0.03)
    worker.lease._keep(session, coord, False, worker.lease._stop)
    assert closed == [True]
    if not ended:
        with pytest.raises(errors.AbortedError, match="is chief now"):
            coord.join([])
