"""Results that are not there yet."""

from __future__ import annotations

import threading

import pytest

from anabranch.core.pending import Pending
from anabranch.errors import CancelledError


def test_a_result_is_settled_once():
    pending = Pending()
    assert pending.complete([1])
    assert not pending.complete([2])
    assert not pending.fail(ValueError())
    assert not pending.cancel(ValueError())
    assert pending.wait() == [1]


def test_a_callback_runs_once_whenever_it_is_added():
    pending, seen = Pending(), []
    pending.when_settled(lambda p: seen.append(p.values))
    assert seen == []
    pending.complete([3])
    pending.when_settled(lambda p: seen.append(p.values))
    assert seen == [[3], [3]]


def test_its_owner_forgets_a_cancelled_result_first():
    waiters = []
    pending = Pending(on_cancel=waiters.remove)
    waiters.append(pending)
    assert pending.cancel(CancelledError(None, None, "the step was given up"))
    assert waiters == []
    with pytest.raises(CancelledError, match="given up"):
        pending.wait()
    assert not pending.complete([1]), "the giver must learn that it keeps the values"


def test_waiting_ends_when_another_thread_delivers():
    pending = Pending()
    threading.Timer(0.01, pending.complete, [[5]]).start()
    assert pending.wait() == [5]


def test_of_many_givers_one_succeeds():
    pending, barrier, successes = Pending(), threading.Barrier(8), []

    def give(value):
        barrier.wait(10)
        if pending.complete([value]):
            successes.append(value)

    threads = [threading.Thread(target=give, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert [pending.wait()[0]] == successes
