"""Small parameters of another process of this host are read in its memory: the same steps, with half the messages."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.distributed import read_ahead
from anabranch.runtime.published_values import PublishedReads, keeps_order
from tests.cluster.processes import DEADLINE, Process, one_ps

pytestmark = pytest.mark.skipif(not keeps_order(), reason="processes of this machine do not read each other's boards")

STEPS = 3 * read_ahead.MANY


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was read ahead, or None where nothing was shown."""
    values: list[Any] = []
    read = PublishedReads.values

    def noted(self: PublishedReads) -> Any:
        values.append(read(self))
        return values[-1]

    monkeypatch.setattr(PublishedReads, "values", noted)
    return values


@contextlib.contextmanager
def training() -> Iterator[tuple[Any, Any, Any, dict[str, list[str]], list[Process]]]:
    """A session, a step that adds half of what is missing to 1, fed whether it fails, and its variable."""
    with one_ps() as (addresses, worker, processes):
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", [3], initializer=tf.zeros_initializer(), use_resource=True)
        with tf.device("/job:worker/task:0"):
            allowed = tf.placeholder_with_default(True, [])
            value = v.read_value()
            with tf.control_dependencies([tf.debugging.Assert(allowed, ["not allowed"])]):
                missing = (1.0 - value) * 0.5
        step = tf.group(v.assign_add(missing))
        config = tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))
        with tf.Session(worker.target, config=config) as session:
            session.run(v.initializer)
            yield session, (step, allowed), v, addresses, processes


def run_until_read(session: Any, step: Any, taken: list[Any], feeds: dict[Any, Any] | None = None) -> int:
    """Runs steps until one has read ahead; how many. With other feeds a step is another one."""
    deadline = time.monotonic() + DEADLINE
    steps = 0
    while not any(values is not None for values in taken):
        assert time.monotonic() < deadline
        session.run(step, feeds)
        steps += 1
    return steps


def test_steps_that_read_ahead_do_what_others_do(taken: list[Any]) -> None:
    with training() as (session, (step, _), v, _, _):
        run_until_read(session, step, taken)
        taken.clear()
        session.run(v.initializer)
        for count in range(1, 30):
            session.run(step)
            # a step begins with what the one before has written
            np.testing.assert_array_equal(session.run(v), np.full(3, 1 - 0.5**count, np.float32))
        assert sum(values is not None for values in taken) > 20


def test_what_other_sessions_write_is_seen_by_the_next_step(taken: list[Any]) -> None:
    with training() as (session, (step, _), v, _, _):
        run_until_read(session, step, taken)
        with tf.Session(session.sess_str, config=tf.ConfigProto()) as other:
            value = tf.placeholder(tf.float32, [3])
            assign = v.assign(value).op
            for number in (2.0, 3.0, 5.0):
                other.run(assign, {value: np.full(3, number)})
                session.run(step)
                np.testing.assert_array_equal(other.run(v), np.full(3, number + (1 - number) / 2))
        assert any(values is not None for values in taken[1:])


def test_a_step_that_fails_before_it_has_sent_anything_ends_at_once_and_changes_nothing(taken: list[Any]) -> None:
    with training() as (session, (step, allowed), v, _, _):
        run_until_read(session, step, taken, {allowed: True})
        before = session.run(v)
        taken.clear()
        begun = time.monotonic()
        for _ in range(3):
            with pytest.raises(tf.errors.InvalidArgumentError, match="not allowed"):
                session.run(step, {allowed: False})
        # who was to begin has begun, and has answered: nobody waits until the grace after a failure is over
        assert time.monotonic() - begun < 4
        assert sum(values is not None for values in taken) == 3
        np.testing.assert_array_equal(session.run(v), before)
        session.run(step)
        np.testing.assert_array_equal(session.run(v), before + (1 - before) / 2)


def test_a_variable_that_lost_its_value_is_not_read(taken: list[Any]) -> None:
    with training() as (session, (step, _), v, _, _):
        run_until_read(session, step, taken)
        destroy = tf.raw_ops.DestroyResourceOp(resource=v.handle)
        session.run(destroy)
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized"):
            session.run(step)
        session.run(v.initializer)
        session.run(step)
        np.testing.assert_array_equal(session.run(v), np.full(3, 0.5))


def test_a_server_that_was_killed_is_read_no_more_and_again_when_it_is_back(taken: list[Any]) -> None:
    with training() as (session, (step, _), v, addresses, processes):
        run_until_read(session, step, taken)
        processes[0].kill()
        # its memory is still mapped here
        with pytest.raises((tf.errors.UnavailableError, tf.errors.AbortedError), match="ps"):
            session.run(step)
        processes.append(Process("task_process.py", json.dumps(addresses), "ps", "0"))
        lost = tf.errors.UnavailableError, tf.errors.AbortedError
        with contextlib.suppress(*lost):
            session.run(v.initializer)
        session.run(v.initializer)
        taken.clear()
        steps = run_until_read(session, step, taken)
        np.testing.assert_allclose(session.run(v), np.full(3, 1 - 0.5**steps), rtol=1e-6)


def test_processes_that_are_to_be_as_on_several_machines_read_nothing(
    taken: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_NETWORK", "plain")
    with training() as (session, (step, _), v, _, _):
        for _ in range(STEPS):
            session.run(step)
        assert session.run(v)[0] == 1
    assert not taken


def test_threads_of_one_session_lose_no_update(taken: list[Any]) -> None:
    with one_ps() as (_, worker, _):
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", [], initializer=tf.zeros_initializer(), use_resource=True)
        with tf.device("/job:worker/task:0"):
            one = v.read_value() * 0.0 + 1.0
        step = tf.group(v.assign_add(one))
        with tf.Session(worker.target) as session:
            session.run(v.initializer)
            extra = run_until_read(session, step, taken)
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda _: [session.run(step) for _ in range(100)], range(4)))
            assert session.run(v) == extra + 400
