"""How one thread waits for several descriptors: by sleeping, and by looking where waits are short."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator

import pytest

from anabranch.distributed.descriptors import Descriptors, Look
from anabranch.distributed.short_waits import SHORT_WAIT


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@pytest.fixture(params=[True, False], ids=["looks", "sleeps"])
def descriptors(request: pytest.FixtureRequest) -> Iterator[Descriptors]:
    made = Descriptors(looks=request.param)
    yield made
    made.close()


def expecting(descriptors: Descriptors) -> Descriptors:
    """After many short waits."""
    for _ in range(10):
        assert descriptors._short_waits is not None
        descriptors._short_waits.ended(0.0)
    return descriptors


def test_who_has_something_to_read_or_room_to_write_is_told(descriptors: Descriptors, pipe: tuple[int, int]) -> None:
    told: list[str] = []
    read, write = pipe
    descriptors.add(read, lambda: told.append("read"))
    assert descriptors.ready() == descriptors.wait(0.0) == []
    os.write(write, b"x")
    for look in descriptors.wait(10.0):
        look()
    descriptors.add(write, lambda: told.append("write"), select.POLLOUT)
    descriptors.remove(read)
    for look in descriptors.ready():
        look()
    assert told == ["read", "write"]


def test_what_comes_while_the_thread_sleeps_wakes_it(pipe: tuple[int, int]) -> None:
    descriptors = expecting(Descriptors(looks=True))
    read, write = pipe
    descriptors.add(read, lambda: None)
    found: list[list[Look]] = []
    waiter = threading.Thread(target=lambda: found.append(descriptors.wait(10.0)))
    waiter.start()
    # it looks for a moment, and sleeps then; a long wait or two change nothing of what it expects of the next
    while not descriptors.is_to_be_woken:
        waiter.join(SHORT_WAIT)
        assert waiter.is_alive()
    os.write(write, b"x")
    waiter.join(10.0)
    assert len(found[0]) == 1
    assert not descriptors.is_to_be_woken
    descriptors.close()


def test_what_is_there_is_found_without_sleeping(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors = expecting(Descriptors(looks=True))
    read, write = pipe
    descriptors.add(read, lambda: None)
    looks = []
    ready = descriptors.ready

    def looked(seconds: float = 0.0) -> list[Look]:
        looks.append(seconds)
        # it comes with the third look
        if len(looks) == 3:
            os.write(write, b"x")
        return ready(seconds)

    monkeypatch.setattr(descriptors, "ready", looked)
    monkeypatch.setattr("anabranch.distributed.descriptors.times_blocked", lambda: 0)
    monkeypatch.setattr("anabranch.distributed.short_waits.SHORT_WAIT", 10.0)
    assert len(descriptors.wait(20.0)) == 1
    assert looks == [0.0] * 3
    descriptors.close()


def test_a_thread_that_had_to_wait_for_pythons_lock_sleeps(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptors = expecting(Descriptors(looks=True))
    descriptors.add(pipe[0], lambda: None)
    looks = []

    def looked(seconds: float = 0.0) -> list[Look]:
        looks.append(seconds)
        return []

    monkeypatch.setattr(descriptors, "ready", looked)
    monkeypatch.setattr("anabranch.distributed.descriptors._HELD_UP", -1.0)
    blocked = iter([0, 0, 1, 1])
    monkeypatch.setattr("anabranch.distributed.descriptors.times_blocked", lambda: next(blocked))
    monkeypatch.setattr("anabranch.distributed.short_waits.SHORT_WAIT", 10.0)
    assert descriptors.wait(20.0) == []
    assert looks == [0.0, 0.0, 0.0, 20.0]
    descriptors.close()
