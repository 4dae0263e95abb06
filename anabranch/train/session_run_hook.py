"""Hooks: objects that take part in each `run` call of a monitored session.

The order of calls: `begin` (the graph can still be changed), `after_create_session` (each time a session is created or
recovered), then for each run `before_run` and `after_run`, and `end` after the last run, unless an exception ended it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from anabranch.graph.operation import FeedDict
from anabranch.proto.config_pb2 import RunMetadata, RunOptions
from anabranch.session import Session
from anabranch.train.coordinator import Coordinator


class SessionRunArgs(NamedTuple):
    """What a hook adds to a run: fetches (any nested structure), feeds, and run options.

    Args:
        fetches: tensors, operations and variables, in any nested structure.
        feed_dict: values for tensors.
        options: a `RunOptions`.

    Raises:
        nothing

    Example:
        >>> class Watch(tf.train.SessionRunHook):
        ...     def before_run(self, run_context):
        ...         return tf.train.SessionRunArgs("loss:0")
        ...     def after_run(self, run_context, run_values):
        ...         print("loss", run_values.results)
        >>> loss = tf.constant(0.25, name="loss")
        >>> with tf.train.MonitoredTrainingSession(hooks=[Watch()]) as session:
        ...     _ = session.run(loss)
        loss 0.25
    """

    fetches: Any
    feed_dict: FeedDict | None = None
    options: RunOptions | None = None


class SessionRunValues(NamedTuple):
    """What came of a run: values in the structure of the hook's fetches, the options used, and the metadata."""

    results: Any
    options: RunOptions | None
    run_metadata: RunMetadata | None


class SessionRunContext:
    """What a hook knows of a run, and how it asks for the end.

    Args:
        original_args: a `SessionRunArgs` with the arguments of the `run` call.
        session: the session that will run it.
    """

    def __init__(self, original_args: SessionRunArgs, session: Session) -> None:
        self._original_args = original_args
        self._session: Session = session
        self._stop_requested = False

    @property
    def original_args(self) -> SessionRunArgs:
        """The arguments of the `run` call."""
        return self._original_args

    @property
    def session(self) -> Session:
        """The session."""
        return self._session

    @property
    def stop_requested(self) -> bool:
        """Whether `request_stop` was called."""
        return self._stop_requested

    def request_stop(self) -> None:
        """Makes `should_stop` of the monitored session true after this run."""
        self._stop_requested = True


class SessionRunHook:
    """Base class of hooks; each method does nothing."""

    def begin(self) -> None:
        """Called once, before the session is created: the last chance to add operations to the default graph."""

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Called with each new session, whose graph is finalized, and its `Coordinator`."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before each run. Returns what to add to it."""
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after each run that raised nothing."""

    def before_end(self, session: Session) -> None:
        """Called before `end` of any hook is: the last chance to change what others save.

        TensorFlow's hooks have no such method; a hook that does not extend this class need not have it.
        """

    def end(self, session: Session) -> None:
        """Called at the end, unless an exception other than `OutOfRangeError` and StopIteration caused it."""

    def abandoned(self) -> None:
        """Called instead of `end` where another exception ended the session: give back what is held.

        TensorFlow's hooks have no such method; a hook that does not extend this class need not have it.
        """
