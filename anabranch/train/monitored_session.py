"""Sessions that initialize, recover and end themselves, and call hooks  (§4.3: fault tolerance)."""

from __future__ import annotations

import abc
import inspect
import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar, overload

from anabranch import errors
from anabranch.core import nest
from anabranch.core.nest import Structure
from anabranch.core.values import TensorValue
from anabranch.distributed.shard_recovery import DIRECTORY_VARIABLE, RecoveryAction
from anabranch.graph.collections import GraphKeys
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import FeedDict, Operation
from anabranch.proto.config_pb2 import ConfigProto, RunMetadata, RunOptions
from anabranch.session import BaseSession, Session
from anabranch.train.automatic_checkpoints import AutomaticCheckpointHook
from anabranch.train.chief_lease import ChiefLease, LeaseHook, WhileChief
from anabranch.train.coordinator import Coordinator, SessionCoordinator
from anabranch.train.hooked_session import (
    PREEMPTION_ERRORS,
    CoordinatedSession,
    HookedSession,
    RecoverableSession,
    StepContext,
    WrappedSession,
)
from anabranch.train.model_shards import ModelShards
from anabranch.train.preemption import PreemptionHook
from anabranch.train.recording_hooks import CheckpointSaverHook, StepCounterHook, SummarySaverHook
from anabranch.train.scaffold import Scaffold
from anabranch.train.session_manager import SessionManager
from anabranch.train.session_run_hook import SessionRunHook

_Result = TypeVar("_Result")

#: stands for "not given" where None has a meaning
USE_DEFAULT: Final[Any] = object()
#: of `save_checkpoint_secs`
AUTOMATIC: Final = "auto"


class SessionCreator(abc.ABC):
    """Makes a session whenever a monitored session needs a new one."""

    @abc.abstractmethod
    def create_session(self) -> BaseSession | WrappedSession:
        """A session whose model is ready."""


class ChiefSessionCreator(SessionCreator):
    """Initializes the model, or restores it from the latest checkpoint.

    Args:
        scaffold: default: a new one.
        master: the target of the session.
        config: a `ConfigProto`.
        checkpoint_dir: where checkpoints are.
        checkpoint_filename_with_path: one checkpoint, in place of a directory.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: ConfigProto | None = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint_filename_with_path = checkpoint_filename_with_path
        self._scaffold = scaffold or Scaffold()
        self._session_manager: SessionManager | None = None
        self._master = master
        self._config = config

    def create_session(self) -> Session:
        if self._session_manager is None:
            self._scaffold.finalize()
            self._session_manager = _session_manager(self._scaffold)
        return self._session_manager.prepare_session(
            self._master,
            saver=self._scaffold.saver,
            checkpoint_dir=self._checkpoint_dir,
            checkpoint_filename_with_path=self._checkpoint_filename_with_path,
            config=self._config,
            init_op=self._scaffold.init_op,
            init_feed_dict=self._scaffold.init_feed_dict,
            init_fn=self._scaffold.init_fn,
        )


class WorkerSessionCreator(SessionCreator):
    """Waits until the chief has initialized the model.

    Args:
        scaffold: default: a new one.
        master: the target of the session.
        config: a `ConfigProto`.
        max_wait_secs: how long to wait, in seconds.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: ConfigProto | None = None,
        max_wait_secs: float = 30 * 60,
    ) -> None:
        self._scaffold = scaffold or Scaffold()
        self._session_manager: SessionManager | None = None
        self._master = master
        self._config = config
        self._max_wait_secs = max_wait_secs

    def create_session(self) -> Session:
        if self._session_manager is None:
            self._scaffold.finalize()
            self._session_manager = _session_manager(self._scaffold)
        return self._session_manager.wait_for_session(
            self._master, config=self._config, max_wait_secs=self._max_wait_secs
        )


class LastingSessionCreator(SessionCreator):
    """Whoever is chief gives shards of the model that have lost their values others; who is not, waits for that.

    Args:
        scaffold: how the model is initialized.
        master: the target of the session.
        config: a `ConfigProto`.
        max_wait_secs: how long to wait, in seconds.
        shards: of the model.
        lease: says who is chief.
        on_recovery: is told what is done to the shards.
    """

    def __init__(
        self,
        scaffold: Scaffold,
        master: str,
        config: ConfigProto | None,
        max_wait_secs: float,
        shards: ModelShards,
        lease: ChiefLease,
        on_recovery: Callable[[RecoveryAction], None],
    ) -> None:
        self._scaffold, self._master, self._config = scaffold, master, config
        self._max_wait_secs = max_wait_secs
        self._shards, self._lease, self._on_recovery = shards, lease, on_recovery
        self._session_manager: SessionManager | None = None

    def create_session(self) -> Session:
        if self._session_manager is None:
            self._shards.build(self._scaffold, self._lease)
            self._scaffold.finalize()
            self._session_manager = _session_manager(self._scaffold)
        return self._session_manager.share_session(self._master, self._prepare, self._config, self._max_wait_secs)

    def _prepare(self, session: Session) -> bool:
        if not self._lease.ask(session):
            return False
        # also while a large model is restored
        self._lease.keep(session)
        self._shards.recover(session, self._scaffold, self._on_recovery, self._lease.from_the_dead)
        self._lease.from_the_dead = False
        return True


def _session_manager(scaffold: Scaffold) -> SessionManager:
    return SessionManager(
        local_init_op=scaffold.local_init_op,
        local_init_feed_dict=scaffold.local_init_feed_dict,
        ready_op=scaffold.ready_op,
        ready_for_local_init_op=scaffold.ready_for_local_init_op,
        graph=get_default_graph(),
    )


class _MonitoredSession:
    """What monitored sessions have in common."""

    StepContext = StepContext

    def __init__(
        self,
        session_creator: SessionCreator | None,
        hooks: Sequence[SessionRunHook] | None,
        should_recover: bool,
        stop_grace_period_secs: float = 120,
    ) -> None:
        self._graph_was_finalized = get_default_graph().finalized
        self._hooks = list(hooks or [])
        for hook in self._hooks:
            hook.begin()
        self._coordinated_creator = _CoordinatedSessionCreator(
            session_creator or ChiefSessionCreator(), self._hooks, stop_grace_period_secs
        )
        self._sess: WrappedSession | None = (
            RecoverableSession(self._coordinated_creator)
            if should_recover
            else self._coordinated_creator.create_session()
        )

    @property
    def graph(self) -> Graph | None:
        """The graph that is run; None once the session is closed."""
        inner = self._tf_sess()
        return None if inner is None else inner.graph

    @overload
    def run(
        self,
        fetches: Operation,
        feed_dict: FeedDict | None = ...,
        options: RunOptions | None = ...,
        run_metadata: RunMetadata | None = ...,
    ) -> None: ...
    @overload
    def run(
        self,
        fetches: list[Any],
        feed_dict: FeedDict | None = ...,
        options: RunOptions | None = ...,
        run_metadata: RunMetadata | None = ...,
    ) -> list[Any]: ...
    @overload
    def run(
        self,
        fetches: Structure,
        feed_dict: FeedDict | None = ...,
        options: RunOptions | None = ...,
        run_metadata: RunMetadata | None = ...,
    ) -> TensorValue: ...
    def run(
        self,
        fetches: Structure,
        feed_dict: FeedDict | None = None,
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> TensorValue | nest.Structure:
        """Runs a step with all hooks. Arguments, result and errors as with `Session.run`."""
        return self._open().run(fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata)

    def run_step_fn(self, step_fn: Callable[..., _Result]) -> _Result:
        """Runs a step that is a Python function.

        Args:
            step_fn: called with a `StepContext` (a method: with its object before that); may run the session without
                hooks as often as it likes and `run_with_hooks` once.

        Returns:
            What `step_fn` returns.

        Raises:
            StopIteration: `step_fn` called `request_stop`.
            ValueError: `step_fn` does not take that argument.
            RuntimeError: the session is closed.
        """
        names = list(inspect.signature(step_fn).parameters)
        if names not in (["step_context"], ["self", "step_context"]):
            raise ValueError(
                "`step_fn` may either have one `step_context` argument, or an argument `self` before it; "
                f"it has {names}"
            )
        result: _Result = self._open().run_step_fn(step_fn, self._tf_sess)
        return result

    def should_stop(self) -> bool:
        """Whether the training loop should end."""
        return self._sess is None or self._sess.should_stop()

    def close(self) -> None:
        """Ends the session: calls the hooks' `end`, and waits for threads.

        Raises:
            RuntimeError: it is closed already.
            Exception: the first that a thread reported.
        """
        self._close_internal()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        regular = kind is None or issubclass(kind, errors.OutOfRangeError | StopIteration)
        self._close_internal(None if regular else error)
        return regular

    def _close_internal(self, failure: BaseException | None = None) -> None:
        try:
            if failure is None:
                session = self._coordinated_creator.tf_sess
                if session is None:
                    raise RuntimeError("Session is already closed.")
                for hook in self._hooks:
                    if isinstance(hook, SessionRunHook):
                        hook.before_end(session)
                for hook in self._hooks:
                    hook.end(session)
            else:
                for hook in self._hooks:
                    if isinstance(hook, SessionRunHook):
                        hook.abandoned()
        finally:
            try:
                if self._sess is not None:
                    self._sess.close()
            finally:
                self._sess = None
                self._coordinated_creator.tf_sess = None
                self._coordinated_creator.coord = None
                if not self._graph_was_finalized:
                    get_default_graph()._unsafe_unfinalize()

    def _is_closed(self) -> bool:
        return self._coordinated_creator.tf_sess is None

    @property
    def _coord(self) -> Coordinator | None:
        return self._coordinated_creator.coord

    def _tf_sess(self) -> Any:
        return self._coordinated_creator.tf_sess

    def _open(self) -> WrappedSession:
        if self._sess is None or self._is_closed():
            raise RuntimeError("Run called even after should_stop requested.")
        return self._sess


class _CoordinatedSessionCreator(SessionCreator):
    """Adds threads and hooks to what another creator makes."""

    def __init__(self, session_creator: SessionCreator, hooks: list[SessionRunHook], grace_period: float) -> None:
        self._session_creator = session_creator
        self._hooks = hooks
        self._grace_period = grace_period
        self.coord: Coordinator | None = None
        self.tf_sess: Any = None

    def create_session(self) -> WrappedSession:
        self.tf_sess = self._session_creator.create_session()
        self.coord = SessionCoordinator(PREEMPTION_ERRORS)
        for runner in self.tf_sess.graph.get_collection(GraphKeys.QUEUE_RUNNERS):
            runner.create_threads(self.tf_sess, coord=self.coord, daemon=True, start=True)
        with self.coord.begins():
            for hook in self._hooks:
                hook.after_create_session(self.tf_sess, self.coord)
        return CoordinatedSession(HookedSession(self.tf_sess, self._hooks), self.coord, self._grace_period)


class MonitoredSession(_MonitoredSession):
    """A session with hooks that is created anew when a task of the cluster is lost.

    Use it as ``with MonitoredSession(...) as sess: while not sess.should_stop(): sess.run(train_op)``. Leaving the
    block calls the hooks' `end`, unless an exception did it; `OutOfRangeError` and StopIteration are regular ends and
    go no further. After `AbortedError` and `UnavailableError` the session is created again, from the latest checkpoint.

    Args:
        session_creator: default: a `ChiefSessionCreator`.
        hooks: `SessionRunHook`s, called in this order.
        stop_grace_period_secs: how long threads may take to end, in seconds.
    """

    def __init__(
        self,
        session_creator: SessionCreator | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        stop_grace_period_secs: float = 120,
    ) -> None:
        super().__init__(session_creator, hooks, True, stop_grace_period_secs)


class SingularMonitoredSession(_MonitoredSession):
    """A session with hooks that is created once: a lost task ends it.

    Args:
        hooks: `SessionRunHook`s, called in this order.
        scaffold: default: a new one.
        master: the target of the session.
        config: a `ConfigProto`.
        checkpoint_dir: where checkpoints are.
        stop_grace_period_secs: how long threads may take to end, in seconds.
        checkpoint_filename_with_path: one checkpoint, in place of a directory.
    """

    def __init__(
        self,
        hooks: Sequence[SessionRunHook] | None = None,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: ConfigProto | None = None,
        checkpoint_dir: str | None = None,
        stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        creator = ChiefSessionCreator(scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path)
        super().__init__(creator, hooks, False, stop_grace_period_secs)

    def raw_session(self) -> Session:
        """The session without hooks."""
        result: Session = self._tf_sess()
        return result


def MonitoredTrainingSession(
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: str | None = None,
    scaffold: Scaffold | None = None,
    hooks: Sequence[SessionRunHook] | None = None,
    chief_only_hooks: Sequence[SessionRunHook] | None = None,
    save_checkpoint_secs: float | Literal["auto"] | None = USE_DEFAULT,
    save_summaries_steps: int | None = USE_DEFAULT,
    save_summaries_secs: float | None = USE_DEFAULT,
    config: ConfigProto | None = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float = 7200,
    save_checkpoint_steps: int | None = USE_DEFAULT,
    summary_dir: str | None = None,
) -> MonitoredSession:
    """A `MonitoredSession` for training: the chief's also saves checkpoints and summaries, and logs the speed.

    Args:
        master: the target of the session.
        is_chief: whether to initialize the model, or to wait for the chief.
        checkpoint_dir: where checkpoints are saved and looked for; None: where ANABRANCH_CHECKPOINT says, with
            `save_checkpoint_secs="auto"`, or else nowhere.
        scaffold: default: a new one.
        hooks: `SessionRunHook`s.
        chief_only_hooks: hooks that only the chief runs.
        save_checkpoint_secs: seconds between checkpoints; default: 600 if `save_checkpoint_steps` is not given either;
            None: not by time. "auto": as often as it pays, beside the training, and a task that has lost its variables
            gets them back from the last checkpoint; a process that gets SIGTERM saves and leaves; all workers say so
            (docs/clusters.md#what-lasts).
        save_summaries_steps: steps between summaries; default: 100 if `save_summaries_secs` is not given either.
        save_summaries_secs: seconds between summaries; default: not by time.
        config: a `ConfigProto`.
        stop_grace_period_secs: how long threads may take to end, in seconds.
        log_step_count_steps: steps between two logs of the speed; None: never.
        max_wait_secs: how long a worker waits for the chief, in seconds.
        save_checkpoint_steps: steps between checkpoints; default: not by steps.
        summary_dir: where summaries are written; default: `checkpoint_dir`.

    Returns:
        A `MonitoredSession`.

    Raises:
        ValueError: `save_checkpoint_secs` is "auto", and there is no directory, or `save_checkpoint_steps` is given.

    Example:
        >>> step = tf.train.get_or_create_global_step()
        >>> train_op = tf.assign_add(step, 1)
        >>> with tf.train.MonitoredTrainingSession(checkpoint_dir="runs") as session:
        ...     print(session.run(train_op))
        1
        >>> tf.train.latest_checkpoint("runs")
        'runs/model.ckpt-1'
    """
    checkpoint_dir = os.fsdecode(checkpoint_dir) if checkpoint_dir else checkpoint_dir
    everywhere = os.environ.get(DIRECTORY_VARIABLE)
    if checkpoint_dir is None and everywhere and save_checkpoint_secs is USE_DEFAULT:
        checkpoint_dir, save_checkpoint_secs = everywhere, AUTOMATIC
    shards = None
    if save_checkpoint_secs == AUTOMATIC:
        if not checkpoint_dir or _given(save_checkpoint_steps):
            raise ValueError(
                f"save_checkpoint_secs={AUTOMATIC!r} needs a checkpoint_dir, and no save_checkpoint_steps; got "
                f"{checkpoint_dir!r} and {_given(save_checkpoint_steps)}"
            )
        shards = ModelShards(checkpoint_dir)
    if save_summaries_steps is USE_DEFAULT and save_summaries_secs is USE_DEFAULT:
        save_summaries_steps = 100
    if save_checkpoint_secs is USE_DEFAULT and save_checkpoint_steps is USE_DEFAULT:
        save_checkpoint_secs = 600
    save_secs = None if save_checkpoint_secs == AUTOMATIC else _given(save_checkpoint_secs)
    save_checkpoint_steps = _given(save_checkpoint_steps)
    save_summaries_secs, save_summaries_steps = _given(save_summaries_secs), _given(save_summaries_steps)
    scaffold = scaffold or Scaffold()
    if shards is None and not is_chief:
        worker = WorkerSessionCreator(scaffold, master, config, max_wait_secs)
        return MonitoredSession(worker, hooks, stop_grace_period_secs)
    all_hooks = list(chief_only_hooks or [])
    summary_dir = summary_dir or checkpoint_dir
    if summary_dir:
        if log_step_count_steps and log_step_count_steps > 0:
            all_hooks.append(StepCounterHook(every_n_steps=log_step_count_steps, output_dir=summary_dir))
        if (save_summaries_steps and save_summaries_steps > 0) or (save_summaries_secs and save_summaries_secs > 0):
            all_hooks.append(
                SummarySaverHook(
                    scaffold=scaffold,
                    save_steps=save_summaries_steps,
                    save_secs=save_summaries_secs,
                    output_dir=summary_dir,
                )
            )
    saves = (save_secs and save_secs > 0) or (save_checkpoint_steps and save_checkpoint_steps > 0)
    if shards is not None:
        lease, saving = ChiefLease(is_chief), AutomaticCheckpointHook(shards)
        creator = LastingSessionCreator(scaffold, master, config, max_wait_secs, shards, lease, saving.recovered)
        of_chief = [WhileChief(hook, lease) for hook in (*all_hooks, saving)]
        # last: the others have seen the step when it ends the training
        all_of = [*of_chief, *(hooks or []), LeaseHook(lease), PreemptionHook()]
        return MonitoredSession(creator, all_of, stop_grace_period_secs)
    chief = ChiefSessionCreator(scaffold, master, config, checkpoint_dir)
    if checkpoint_dir and saves:
        all_hooks.append(
            CheckpointSaverHook(
                checkpoint_dir, save_steps=save_checkpoint_steps, save_secs=save_secs, scaffold=scaffold
            )
        )
    return MonitoredSession(chief, [*all_hooks, *(hooks or [])], stop_grace_period_secs)


def _given(value: float | None) -> Any:
    return None if value is USE_DEFAULT else value
