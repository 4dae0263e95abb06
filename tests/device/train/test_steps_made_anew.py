"""Steps that are Python functions, in a monitored session that another thread has made anew."""

from __future__ import annotations

from typing import Any

import pytest

import anabranch as tf


class Counts(tf.train.SessionRunHook):
    """How often a session was made."""

    sessions = 0

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        self.sessions += 1


def test_a_step_without_hooks_is_done_again_in_the_session_that_follows() -> None:
    """Where a worker becomes chief, a thread closes its session, in which a step may be under way."""
    w = tf.get_variable("w", initializer=8.0)
    counts = Counts()
    closed: list[tf.Session] = []

    def step_fn(step_context: Any) -> Any:
        if not closed:
            closed.append(step_context.session)
            creator.coord.request_stop(tf.errors.AbortedError(None, None, "the session is made anew"))
            step_context.session.close()
        return step_context.session.run(w)

    with tf.train.MonitoredSession(hooks=[counts]) as session:
        creator: Any = session._coordinated_creator
        assert session.run_step_fn(step_fn) == 8.0
        assert counts.sessions == 2


def test_what_the_function_raises_is_raised_and_ends_nothing() -> None:
    tf.get_variable("w", initializer=8.0)
    counts = Counts()

    def step_fn(step_context: Any) -> None:
        raise KeyError("of the function itself")

    with tf.train.MonitoredSession(hooks=[counts]) as session:
        with pytest.raises(KeyError, match="of the function itself"):
            session.run_step_fn(step_fn)
        assert counts.sessions == 1
        assert not session.should_stop()


def test_why_a_thread_stopped_is_raised_and_not_what_followed_from_it() -> None:
    def step_fn(step_context: Any) -> Any:
        creator.coord.request_stop(ValueError("the thread's"))
        step_context.session.close()
        return step_context.run_with_hooks(w)

    w = tf.get_variable("w", initializer=8.0)
    session = tf.train.MonitoredSession()
    creator: Any = session._coordinated_creator
    with pytest.raises(ValueError, match="the thread's") as raised:
        session.run_step_fn(step_fn)
    assert isinstance(raised.value.__cause__, RuntimeError | tf.errors.OpError)
    with pytest.raises(ValueError, match="the thread's"):
        session.close()
