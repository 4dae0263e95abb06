"""How an island takes the values of its variables while other steps change them."""

from __future__ import annotations

import threading

import pytest

import anabranch as tf
from tests.device.shared_task import SharedTask


class WatchedLock:
    """A lock that notes, whenever it is acquired, whether another lock is held at that moment."""

    def __init__(self, other: threading.Lock) -> None:
        self._lock = threading.Lock()
        self._other = other
        self.found_locked: list[bool] = []

    def acquire(self) -> bool:
        self.found_locked.append(self._other.locked())
        return self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


def test_an_island_sees_its_variables_as_of_one_moment() -> None:
    a = tf.get_variable("a", [], initializer=tf.zeros_initializer())
    b = tf.get_variable("b", [], initializer=tf.zeros_initializer())
    task = SharedTask()
    with task.session() as session:
        session.run(tf.global_variables_initializer())
        first, last = task.variables(session, a, b)
        last.lock = WatchedLock(first.lock)
        session.run([a.read_value(), b.read_value()])
        # no writer of both can come between the two readings: the first is locked until the last is, too
        assert last.lock.found_locked[0]
        assert not first.lock.locked()
        assert not last.lock.locked()
        assert first.pins == last.pins == []


def test_a_missing_value_leaves_nothing_locked_or_pinned() -> None:
    a = tf.get_variable("a", [], initializer=tf.zeros_initializer())
    b = tf.get_variable("b", [], initializer=tf.zeros_initializer())
    total = a + b
    update = tf.assign(a, total)
    task = SharedTask()
    with task.session() as session:
        session.run(a.initializer)
        for fetch in (total, update):
            with pytest.raises(tf.errors.FailedPreconditionError, match="'b'"):
                session.run(fetch)
        for state in task.variables(session, a, b):
            assert not state.lock.locked()
            assert not state.pins
        session.run(b.initializer)
        assert session.run(update) == 0
