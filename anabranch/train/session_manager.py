"""How a session for training comes to be: restored from a checkpoint, or initialized, or waited for."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from anabranch import errors
from anabranch.core.device import DeviceSpec
from anabranch.core.pauses import Pauses
from anabranch.frontend.platform import logging
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.io.checkpoint_state import read_checkpoint_state
from anabranch.proto.config_pb2 import ConfigProto, RunOptions
from anabranch.session import Session
from anabranch.train.saver import Saver


class SessionManager:
    """Makes sessions whose variables have values.

    The chief calls `prepare_session`, other workers `wait_for_session`.

    Args:
        local_init_op: run in each new session, after the model is ready for it.
        ready_op: what says that the model is ready: its value is empty, or it is the list of uninitialized variables.
        ready_for_local_init_op: the same, before `local_init_op` is run.
        graph: default: the default graph.
        recovery_wait_secs: the most seconds between two attempts while waiting; the first pauses are shorter.
        local_init_run_options: a `RunOptions` for `local_init_op`.
        local_init_feed_dict: feeds for `local_init_op`.

    Raises:
        ValueError: `ready_for_local_init_op` without `local_init_op`.
    """

    def __init__(
        self,
        local_init_op: Operation | None = None,
        ready_op: Tensor | Operation | None = None,
        ready_for_local_init_op: Tensor | Operation | None = None,
        graph: Graph | None = None,
        recovery_wait_secs: float = 30,
        local_init_run_options: RunOptions | None = None,
        local_init_feed_dict: dict[Any, Any] | None = None,
    ) -> None:
        if ready_for_local_init_op is not None and local_init_op is None:
            raise ValueError(
                "If you pass a ready_for_local_init_op you must also pass a local_init_op , "
                f"ready_for_local_init_op [{ready_for_local_init_op}]"
            )
        self._graph = graph or get_default_graph()
        self._local_init_op = local_init_op
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._recovery_wait_secs = recovery_wait_secs
        self._local_init_run_options = local_init_run_options
        self._local_init_feed_dict = local_init_feed_dict
        #: the tasks that the graph names, as filters, once that is known
        self._filters: list[str] | None = None

    def prepare_session(
        self,
        master: str,
        init_op: Operation | None = None,
        saver: Saver | None = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: ConfigProto | None = None,
        init_feed_dict: dict[Any, Any] | None = None,
        init_fn: Callable[[Any], Any] | None = None,
    ) -> Session:
        """A session with the values of the latest checkpoint, or else with initial values.

        Args:
            master: the target of the session.
            init_op: run if there is no checkpoint.
            saver: restores the checkpoint; None: always initialize.
            checkpoint_dir: where checkpoints are.
            checkpoint_filename_with_path: one checkpoint, in place of a directory.
            wait_for_checkpoint: whether to wait for one, at most `max_wait_secs` seconds.
            max_wait_secs: see there.
            config: a `ConfigProto`.
            init_feed_dict: feeds for `init_op`.
            init_fn: called with the session after `init_op`.

        Raises:
            RuntimeError: there is nothing to initialize with, or the model is not ready after it.
            ValueError: both `checkpoint_dir` and `checkpoint_filename_with_path`.
        """
        session, restored = self._restore_checkpoint(
            master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint, max_wait_secs, config
        )
        with _closed_if_this_fails(session):
            if not restored:
                if init_op is None and init_fn is None and self._local_init_op is None:
                    raise RuntimeError("Model is not initialized and no init_op or init_fn or local_init_op was given")
                if init_op is not None:
                    session.run(init_op, feed_dict=init_feed_dict)
                if init_fn is not None:
                    init_fn(session)
            self._complete(session, f"Init op: {_name(init_op)}, init fn: {init_fn}")
        return session

    def share_session(
        self,
        master: str,
        prepare: Callable[[Session], bool],
        config: ConfigProto | None = None,
        max_wait_secs: float = math.inf,
    ) -> Session:
        """A session of a model that any of several tasks may have to initialize or restore: whoever is chief then.

        Args:
            master: the target of the session.
            prepare: called with each session that is tried; does what the model needs, or returns False where
                another task does that.
            config: a `ConfigProto`.
            max_wait_secs: how long to wait for another task, in seconds.

        Raises:
            RuntimeError: the model is not ready after it was prepared.
            DeadlineExceededError: nobody prepared it in time.
        """

        def is_ready(session: Session) -> tuple[bool, str | None]:
            if prepare(session):
                self._complete(session, "Its shards were initialized or restored")
                return True, None
            return self._is_ready(session)

        return self._first_ready(master, config, max_wait_secs, is_ready)

    def _complete(self, session: Session, what_was_done: str) -> None:
        done, message = self._try_run_local_init_op(session)
        what = "ready for local_init"
        if done:
            done, message = model_ready(self._ready_op, session, "Model not ready")
            what = "ready"
        if not done:
            raise RuntimeError(
                f"Init operations did not make model {what}.  {what_was_done}, "
                f"local_init_op: {_name(self._local_init_op)}, error: {message}"
            )

    def recover_session(
        self,
        master: str,
        saver: Saver | None = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: ConfigProto | None = None,
    ) -> tuple[Session, bool]:
        """A session with the values of the latest checkpoint, if there is one. Arguments as in `prepare_session`.

        Returns:
            The session, and whether its model is ready: restored, and with nothing left to initialize.

        Raises:
            ValueError: both `checkpoint_dir` and `checkpoint_filename_with_path`.
        """
        session, restored = self._restore_checkpoint(
            master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint, max_wait_secs, config
        )
        with _closed_if_this_fails(session):
            done, message = self._try_run_local_init_op(session)
            if not restored:
                return session, False
            if not done:
                logging.info("Restoring model did not make model ready for local init: %s", message)
                return session, False
            ready, message = model_ready(self._ready_op, session, "Model not ready")
            if not ready:
                logging.info("Restoring model did not make model ready: %s", message)
            return session, ready

    def wait_for_session(
        self, master: str, config: ConfigProto | None = None, max_wait_secs: float = math.inf
    ) -> Session:
        """A session of a model that another task initializes.

        Raises:
            DeadlineExceededError: that took longer than `max_wait_secs` seconds.
        """
        return self._first_ready(master, config, max_wait_secs, self._is_ready)

    def _is_ready(self, session: Session) -> tuple[bool, str | None]:
        done, message = self._try_run_local_init_op(session)
        return model_ready(self._ready_op, session, "Model not ready") if done else (done, message)

    def _first_ready(
        self,
        master: str,
        config: ConfigProto | None,
        max_wait_secs: float,
        is_ready: Callable[[Session], tuple[bool, str | None]],
    ) -> Session:
        """Makes sessions until one is ready.

        Raises:
            DeadlineExceededError: none was in time.
        """
        deadline = time.monotonic() + (math.inf if max_wait_secs is None else max_wait_secs)
        pauses = Pauses(self._recovery_wait_secs)
        while True:
            session = self._session(master, config)
            with _closed_if_this_fails(session):
                done, message = is_ready(session)
            if done:
                return session
            session.close()
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise errors.DeadlineExceededError(
                    None, None, f"Session was not ready after waiting {max_wait_secs} secs: {message}"
                )
            logging.info("Waiting for model to be ready: %s", message)
            time.sleep(min(pauses.next(), remaining))

    def _session(self, master: str, config: ConfigProto | None) -> Session:
        """A new session, in which a task that another process has taken over stays lost.

        Its model was given values by steps of this session. Of a loss the first step hears that needs the task, which
        may be one of a queue's thread, or of what keeps a lease; those of the training must hear of it as well.
        """
        session = Session(master, graph=self._graph, config=self._waiting_for_named_tasks(config))
        session._stay_lost()
        return session

    def _waiting_for_named_tasks(self, config: ConfigProto | None) -> ConfigProto | None:
        """A configuration for sessions that see the tasks which the graph names, unless it says which they see.

        A session waits for all tasks that it sees: another worker, which may be gone, is not to be among them. A graph
        that is not finalized may name others later.
        """
        if (config is not None and config.device_filters) or not self._graph.finalized:
            return config
        if self._filters is None:
            self._filters = _tasks_named_in(self._graph)
        made = ConfigProto()
        if config is not None:
            made.CopyFrom(config)
        made.device_filters.extend(self._filters)
        return made

    def _restore_checkpoint(
        self,
        master: str,
        saver: Saver | None,
        checkpoint_dir: str | None,
        checkpoint_filename_with_path: str | None,
        wait_for_checkpoint: bool,
        max_wait_secs: float,
        config: ConfigProto | None,
    ) -> tuple[Session, bool]:
        if checkpoint_dir and checkpoint_filename_with_path:
            raise ValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")
        session = self._session(master, config)
        if saver is None or not (checkpoint_dir or checkpoint_filename_with_path):
            return session, False
        with _closed_if_this_fails(session):
            if checkpoint_filename_with_path:
                saver.restore(session, checkpoint_filename_with_path)
                return session, True
            assert checkpoint_dir is not None
            state = self._checkpoint_state(checkpoint_dir, wait_for_checkpoint, max_wait_secs)
            if state is None:
                return session, False
            saver.restore(session, state.model_checkpoint_path)
            saver.recover_last_checkpoints(list(state.all_model_checkpoint_paths))
            return session, True

    def _checkpoint_state(self, directory: str, wait: bool, max_wait_secs: float) -> Any:
        deadline = time.monotonic() + max_wait_secs
        pauses = Pauses(self._recovery_wait_secs)
        while True:
            state = read_checkpoint_state(directory)
            if state is not None or not wait or time.monotonic() > deadline:
                return state
            logging.info("Waiting for checkpoint to be available in %s.", directory)
            time.sleep(min(pauses.next(), max(0.0, deadline - time.monotonic())))

    def _try_run_local_init_op(self, session: Session) -> tuple[bool, str | None]:
        if self._local_init_op is None:
            return True, None
        ready, message = model_ready(self._ready_for_local_init_op, session, "Model not ready for local init")
        if ready:
            logging.info("Running local_init_op.")
            session.run(self._local_init_op, feed_dict=self._local_init_feed_dict, options=self._local_init_run_options)
            logging.info("Done running local_init_op.")
        return ready, message


def _tasks_named_in(graph: Graph) -> list[str]:
    """Filters that match the tasks which operations of a graph ask for; none if they may ask for any."""
    graphs = [graph, *graph.functions.values()]
    specs = {DeviceSpec.from_string(name) for name in {op.device for g in graphs for op in g.get_operations()} if name}
    if any(spec.job is None and (spec.task is not None or spec.device_type not in (None, "CPU")) for spec in specs):
        # any task may be the one that has such a device
        return []
    tasks = {(spec.job, spec.task) for spec in specs if spec.job is not None}
    return sorted(f"/job:{job}" if task is None else f"/job:{job}/task:{task}" for job, task in tasks)


@contextlib.contextmanager
def _closed_if_this_fails(session: Session) -> Iterator[None]:
    try:
        yield
    except BaseException:
        session.close()
        raise


def model_ready(op: Tensor | Operation | None, session: Session, what: str) -> tuple[bool, str | None]:
    """Whether the operation says that the model is ready, and if not, what it says.

    Args:
        op: its value is empty, or the list of variables without a value; None: the model is ready.
        session: runs it.
        what: how warnings begin.
    """
    if op is None:
        return True, None
    try:
        value = session.run(op)
    except errors.FailedPreconditionError as error:
        if "uninitialized" not in str(error):
            logging.warning("%s : error [%s]", what, error)
            raise
        return False, str(error)
    if value is None or np.size(value) == 0 or np.asarray(value).dtype == np.int32:
        return True, None
    names = [item.decode("utf-8") if isinstance(item, bytes) else str(item) for item in np.ravel(value)]
    return False, "Variables not initialized: " + ", ".join(names)


def _name(op: Operation | Tensor | None) -> str:
    return getattr(op, "name", None) or str(op)
