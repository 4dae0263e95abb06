"""How an island takes the values of its variables while other steps change them."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import anabranch as tf
from anabranch.runtime.island_call import IslandCall
from anabranch.xla import executable, island_program
from anabranch.xla.lowering import trace_operations
from tests.device.shared_task import SharedTask

DEADLINE = 300


def test_an_island_sees_its_variables_as_of_one_moment() -> None:
    a = tf.get_variable("a", [], initializer=tf.zeros_initializer())
    b = tf.get_variable("b", [], initializer=tf.zeros_initializer())
    task = SharedTask()
    with task.session() as session:
        session.run(tf.global_variables_initializer())
        first, last = task.variables(session, a, b)
        reads = [a.read_value(), b.read_value()]
        thread = threading.Thread(target=session.run, args=(reads,))
        deadline = time.monotonic() + DEADLINE
        with last.lock:
            thread.start()
            # no writer of both can come between the two readings: the first is locked until the last is, too
            while not first.lock.locked():
                assert time.monotonic() < deadline
            # what must not happen tells nobody: time in which it would be unlocked
            assert not first.lock.acquire(timeout=0.1)
        thread.join(DEADLINE)
        assert not thread.is_alive()
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


@pytest.mark.parametrize("writes", [False, True])
def test_what_jax_traces_is_traced_on_another_thread(writes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception for the program's thread that came meanwhile could be replaced by one of JAX's own."""
    traced: list[int] = []

    def noted(*args: Any) -> Any:
        traced.append(threading.get_ident())
        return trace_operations(*args)

    monkeypatch.setattr(island_program, "trace_operations", noted)
    v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
    x = tf.placeholder(tf.float32, [None])
    fetch = tf.assign_add(v, tf.reduce_sum(x)) if writes else v + tf.reduce_sum(x)
    with tf.Session() as session:
        session.run(v.initializer)
        for size in range(1, 7):
            session.run(fetch, {x: [1.0] * size})
    assert traced
    assert threading.get_ident() not in traced


def test_checks_hold_where_flags_are_copied_ahead_from_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an accelerator: what the host will read is asked for before it waits."""
    begun: list[int] = []
    begin = IslandCall._begin_fetching

    def noted(call: IslandCall, results: Any, variant: Any) -> None:
        begun.append(len(results))
        begin(call, results, variant)

    monkeypatch.setattr(IslandCall, "_begin_fetching", noted)
    monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 0)
    v = tf.get_variable("v", initializer=[1.0, 2.0, 3.0], use_resource=True)
    i = tf.placeholder(tf.int32, [])
    taken = tf.gather(v.value(), i)
    step = [taken, v.assign_add(tf.fill([3], taken))]
    with tf.Session() as session:
        session.run(v.initializer)
        # the programs are compiled for the processor all the same
        own = executable.Executable.__init__

        def far(self: executable.Executable, *args: Any) -> None:
            own(self, *args)
            self.platform = "far"

        monkeypatch.setattr(executable.Executable, "__init__", far)
        assert session.run(step, {i: 1})[0] == 2
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(step, {i: 7})
        assert session.run(step, {i: 0})[1].tolist() == [6.0, 7.0, 8.0]
    assert begun
    assert min(begun) > 1
