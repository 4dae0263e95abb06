"""Loops that do not end by themselves: a deadline, the end of their session, or an interrupt does (§3.4, WP5.3)."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors
from anabranch.pipeline import Plan, plan_listeners
from anabranch.xla import watched_loops
from anabranch.xla.variants import compile_log

DEADLINE = 60.0


def _impatient() -> Any:
    return tf.RunOptions(timeout_in_ms=100)


def _patient() -> Any:
    return tf.RunOptions(timeout_in_ms=int(DEADLINE * 1000))


def _counting(start: Any) -> Any:
    return tf.while_loop(lambda i: True, lambda i: i + 1, [start], name="endless")


def _nothing_but_primitives(start: Any) -> Any:
    return tf.while_loop(lambda i: True, lambda i: 0, [start], name="endless")


def _in_a_loop(start: Any) -> Any:
    return tf.while_loop(lambda i: i < 5, _counting, [start], name="outer")


def _in_a_condition(start: Any) -> Any:
    return tf.while_loop(lambda i: _counting(i) < 5, lambda i: i + 1, [start], name="outer")


def _in_a_branch(start: Any) -> Any:
    return tf.cond(start < 5, lambda: _counting(start), lambda: start)


def _to_be_differentiated(start: Any) -> Any:
    x = tf.ones([3])
    _, y = tf.while_loop(lambda i, y: i >= 0, lambda i, y: (i * 1, y * 1.0 + x), [start, x], name="endless")
    return tf.gradients(y, x)[0]


def _calling(function: Any, start: Any) -> Any:
    """A loop without end that calls a user function, which makes the executor run it."""
    return tf.while_loop(lambda i: True, lambda i: tf.ensure_shape(tf.py_func(function, [i], tf.int32), []), [start])


ENDLESS = [_counting, _nothing_but_primitives, _in_a_loop, _in_a_condition, _in_a_branch, _to_be_differentiated]


@pytest.mark.parametrize("lowered", [False, True], indirect=True, ids=["compiled", "lowered"])
@pytest.mark.parametrize("program", ENDLESS)
def test_a_deadline_ends_a_loop_and_leaves_the_session_usable(program: Any, lowered: bool) -> None:
    start = tf.placeholder(tf.int32, [])
    result = program(start)
    other = start * 2
    with tf.Session() as session:
        with pytest.raises(errors.DeadlineExceededError, match="did not end within 0.1 s"):
            session.run(result, {start: 0}, _impatient())
        assert session.run(other, {start: 4}) == 8
    config = tf.ConfigProto(operation_timeout_in_ms=100)
    with tf.Session(config=config) as session, pytest.raises(errors.DeadlineExceededError):
        session.run(result, {start: 0})


def test_the_error_names_the_loop() -> None:
    start = tf.placeholder(tf.int32, [])
    with (
        tf.Session() as session,
        pytest.raises(errors.DeadlineExceededError, match=r"'endless/While' .*created at .*was running.*timeout_in_ms"),
    ):
        session.run(_counting(start), {start: 0}, _impatient())


def test_a_loop_that_is_stopped_changes_no_variable() -> None:
    start = tf.placeholder(tf.float32, [])
    v = tf.get_variable("v", [3], initializer=tf.ones_initializer())
    inside = tf.while_loop(lambda x: x < 5.0, lambda x: x + tf.reduce_sum(v.assign_add(tf.ones([3]))) * 0.0, [start])
    after = v.assign_add(tf.ones([3]) * tf.while_loop(lambda x: x < 5.0, lambda x: x * 1.0, [start]))
    with tf.Session() as session:
        session.run(v.initializer)
        for endless in (inside, after):
            with pytest.raises(errors.DeadlineExceededError):
                session.run(endless, {start: 0.0}, _impatient())
            assert session.run(v).tolist() == [1.0, 1.0, 1.0]
        session.run(after, {start: 5.0}, _patient())
        assert session.run(v).tolist() == [6.0, 6.0, 6.0]


def test_a_deadline_ends_a_loop_on_another_device() -> None:
    start = tf.placeholder(tf.int32, [])
    with tf.device("/cpu:1"):
        endless = _counting(start)
    with tf.device("/cpu:0"):
        both = [endless + 1, start * 2]
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        with pytest.raises(errors.DeadlineExceededError, match="did not end within 0.1 s"):
            session.run(both, {start: 0}, _impatient())
        assert session.run(both[1], {start: 4}, _patient()) == 8


def test_threads_run_one_loop_with_deadlines_of_their_own() -> None:
    limit = tf.placeholder(tf.int32, [])
    result = tf.while_loop(lambda i: i < limit, lambda i: i + 1, [0])
    found: list[int] = []
    with tf.Session() as session:

        def run(number: int) -> None:
            found.extend(session.run(result, {limit: number}, _patient()) - number for _ in range(5))

        threads = [threading.Thread(target=run, args=[10_000 * i]) for i in range(6)]
        for thread in threads:
            thread.start()
        with pytest.raises(errors.DeadlineExceededError):
            session.run(_counting(limit), {limit: 0}, _impatient())
        for thread in threads:
            thread.join(DEADLINE)
    assert found == [0] * 30


def test_closing_the_session_ends_a_loop_with_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    running = threading.Event()
    ask = watched_loops._next_stretch

    def told(*args: Any) -> Any:
        running.set()
        return ask(*args)

    monkeypatch.setattr(watched_loops, "_next_stretch", told)
    start = tf.placeholder(tf.int32, [])
    result = _counting(start)
    session = tf.Session()
    caught: list[Exception] = []

    def run() -> None:
        try:
            session.run(result, {start: 0}, _patient())
        except errors.CancelledError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert running.wait(DEADLINE)
    session.close()
    thread.join(DEADLINE)
    assert "its session was closed" in str(caught[0])
    assert "'endless/While'" in str(caught[0])


def test_closing_the_session_ends_a_loop_that_the_executor_runs() -> None:
    running = threading.Event()
    start = tf.placeholder(tf.int32, [])
    result = _calling(lambda i: running.set() or i, start)
    session = tf.Session()
    caught: list[Exception] = []

    def run() -> None:
        try:
            session.run(result, {start: 0})
        except errors.CancelledError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert running.wait(DEADLINE)
    session.close()
    thread.join(DEADLINE)
    assert "its session was closed" in str(caught[0])


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_an_interrupt_ends_a_loop_that_the_executor_runs() -> None:
    def interrupt(i: Any) -> Any:
        if i == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return np.int32(i + 1)

    start = tf.placeholder(tf.int32, [])
    result = _calling(interrupt, start)
    other = start * 2
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with tf.Session() as session:
            with pytest.raises(KeyboardInterrupt):
                session.run(result, {start: 0})
            assert session.run(other, {start: 4}) == 8
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_deadline_does_not_change_the_results_and_the_loop_stays_compiled() -> None:
    plans: list[Plan] = []
    x = tf.placeholder(tf.float32, [4, 6, 3])
    outputs, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.LSTMCell(5), x, dtype=tf.float32)
    loss = tf.reduce_sum(tf.square(outputs))
    fetches = [loss, *tf.gradients(loss, tf.trainable_variables())]
    feeds = {x: np.random.default_rng(0).normal(size=(4, 6, 3))}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        plans_before = len(compile_log.events)
        plan_listeners.append(plans.append)
        try:
            plain = session.run(fetches, feeds)
            watched = session.run(fetches, feeds, _patient())
        finally:
            plan_listeners.remove(plans.append)
        for one, other in zip(plain, watched, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        assert [op.type for op in plans[-1].step.operations if op.op_def.repeats_bodies]
        assert [e.reason for e in compile_log.events[plans_before:]][-1].startswith("a deadline")


def test_a_loop_is_asked_about_every_twenty_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    ask = watched_loops._next_stretch

    def counted(op: Any, number: Any, done: Any) -> Any:
        asked.append(int(done))
        return ask(op, number, done)

    monkeypatch.setattr(watched_loops, "_next_stretch", counted)
    start = tf.placeholder(tf.int32, [])
    result = tf.while_loop(lambda i: i < 1_000_000, lambda i: i + 1, [start])
    with tf.Session() as session:
        assert session.run(result, {start: 0}, _patient()) == 1_000_000
    assert asked[0] == 1
    assert len(asked) < 40
    assert max(b / a for a, b in itertools.pairwise(asked)) <= 16


def test_short_loops_inside_others_are_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask = watched_loops._next_stretch

    def counted(op: Any, number: Any, done: Any) -> Any:
        asked.append(op.name)
        return ask(op, number, done)

    monkeypatch.setattr(watched_loops, "_next_stretch", counted)
    start = tf.placeholder(tf.int32, [])

    def body(i: Any) -> Any:
        return i + tf.while_loop(lambda j: j < 10, lambda j: j + 1, [0], name="inner") // 10

    with tf.Session() as session:
        assert session.run(tf.while_loop(lambda i: i < 1000, body, [start], name="outer"), {start: 0}, _patient())
    assert set(asked) == {"outer/While"}
