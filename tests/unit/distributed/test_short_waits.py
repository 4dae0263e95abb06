"""When a thread that waits for messages looks again and again, and when it sleeps."""

from __future__ import annotations

import sys
import threading

import pytest

from anabranch.distributed.short_waits import SHORT_WAIT, ShortWaits, times_blocked

SHORT, LONG = SHORT_WAIT / 2, SHORT_WAIT * 2


def after(*waits: float) -> bool:
    """Whether a thread looks after these waits."""
    known = ShortWaits()
    for seconds in waits:
        known.ended(seconds)
    assert known.looking_for in (0.0, SHORT_WAIT)
    return known.looking_for > 0


def test_several_short_waits_make_the_next_one_expected_to_be_short() -> None:
    assert not after()
    assert not after(*[SHORT] * 3)
    assert after(*[SHORT] * 4)
    assert not after(SHORT, SHORT, SHORT, LONG, SHORT, SHORT, SHORT)


def test_a_long_wait_now_and_then_changes_nothing_and_several_do() -> None:
    busy = [SHORT] * 100
    assert after(*busy, LONG)
    assert after(*busy, *[LONG, SHORT, SHORT] * 50)
    assert not after(*busy, LONG, LONG, LONG)
    # whatever was before, as many as at first are needed then
    assert not after(*busy, LONG, LONG, LONG, SHORT)
    assert after(*busy, LONG, LONG, LONG, *[SHORT] * 4)


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not count it")
def test_waiting_for_a_lock_is_counted() -> None:
    lock, told = threading.Lock(), threading.Event()
    lock.acquire()
    before = times_blocked()
    # on purpose: as long as this thread takes to block there
    threading.Timer(0.02, lambda: (told.set(), lock.release())).start()
    lock.acquire()
    assert told.is_set()
    assert times_blocked() > before
