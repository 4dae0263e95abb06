"""The supervisor: a session with checkpoints and summaries written by threads  (§4.3).

Programs since TensorFlow 0.11 use `MonitoredTrainingSession` in its place; this class is here for older ones.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, SupportsInt

from anabranch.frontend.platform import logging
from anabranch.frontend.storage.graph_io import write_graph
from anabranch.frontend.storage.summary import merge_all
from anabranch.frontend.storage.summary_writer import FileWriter
from anabranch.frontend.variables.functions import (
    global_variables,
    global_variables_initializer,
    report_uninitialized_variables,
)
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.proto.config_pb2 import ConfigProto, RunOptions
from anabranch.proto.summary_pb2 import SessionLog, Summary
from anabranch.session import Session
from anabranch.train import training_util
from anabranch.train.coordinator import Coordinator, ExceptionInfo, LooperThread
from anabranch.train.meta_graph import export_meta_graph
from anabranch.train.saver import Saver
from anabranch.train.scaffold import Scaffold
from anabranch.train.session_manager import SessionManager


class Supervisor:
    """Initializes or restores a model, and saves it and its summaries while the program trains.

    Where an argument is left at `USE_DEFAULT`, it is taken from the graph's collection of that name or made; None means
    to do without. The graph cannot be changed any more once the supervisor exists.

    Args:
        graph: default: the default graph.
        ready_op: its value is the list of what is not initialized.
        ready_for_local_init_op: the same before `local_init_op`.
        is_chief: whether to initialize the model and write, or to wait for the chief.
        init_op: initializes the model where there is no checkpoint.
        init_feed_dict: feeds for it.
        local_init_op: run in each new session.
        logdir: where checkpoints and summaries are; None: none are written.
        summary_op: serialized summaries.
        saver: saves and restores the model.
        global_step: counts the steps.
        save_summaries_secs: seconds between summaries; 0: none.
        save_model_secs: seconds between checkpoints; 0: none.
        recovery_wait_secs: seconds between attempts to find the model ready.
        stop_grace_secs: how long threads may take to end, in seconds.
        checkpoint_basename: the checkpoints' names without the step.
        session_manager: default: a `SessionManager`.
        summary_writer: default: a `FileWriter` in `logdir`, of the chief.
        init_fn: called with the session after `init_op`.
        local_init_run_options: a `RunOptions` for `local_init_op`.

    Raises:
        RuntimeError: the graph is finalized.

    Example:
        >>> v = tf.get_variable("v", initializer=3.0)
        >>> supervisor = tf.train.Supervisor()
        >>> with supervisor.managed_session() as session:
        ...     print(session.run(v))
        3.0
    """

    #: stands for "not given" where None has a meaning
    USE_DEFAULT: ClassVar[Any] = 0

    def __init__(
        self,
        graph: Graph | None = None,
        ready_op: Tensor | None = USE_DEFAULT,
        ready_for_local_init_op: Tensor | None = USE_DEFAULT,
        is_chief: bool = True,
        init_op: Operation | Tensor | None = USE_DEFAULT,
        init_feed_dict: dict[Any, Any] | None = None,
        local_init_op: Operation | Tensor | None = USE_DEFAULT,
        logdir: str | None = None,
        summary_op: Tensor | None = USE_DEFAULT,
        saver: Saver | None = USE_DEFAULT,
        global_step: Tensor | Variable | None = USE_DEFAULT,
        save_summaries_secs: float = 120,
        save_model_secs: float = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt",
        session_manager: SessionManager | None = None,
        summary_writer: FileWriter | None = USE_DEFAULT,
        init_fn: Callable[[Any], Any] | None = None,
        local_init_run_options: RunOptions | None = None,
    ) -> None:
        self._graph = graph or get_default_graph()
        self._is_chief = is_chief
        self._coord = Coordinator()
        self._started_threads: list[LooperThread] = []
        self._init_fn = init_fn
        self._init_feed_dict = init_feed_dict
        logdir = os.fsdecode(logdir) if logdir else None
        self._logdir = logdir if is_chief else None
        self._save_path = os.path.join(logdir, checkpoint_basename) if logdir and is_chief else None
        self._save_summaries_secs = save_summaries_secs if is_chief else None
        self._save_model_secs = save_model_secs if is_chief else None
        self._stop_grace_secs = stop_grace_secs
        with self._graph.as_default():
            self._ready_op: Tensor | None = _given(ready_op, GraphKeys.READY_OP, report_uninitialized_variables)
            self._ready_for_local_init_op: Tensor | None = _given(
                ready_for_local_init_op, GraphKeys.READY_FOR_LOCAL_INIT_OP, lambda: None
            )
            self._init_op: Operation = _given(init_op, GraphKeys.INIT_OP, global_variables_initializer)
            self._local_init_op = _given(local_init_op, GraphKeys.LOCAL_INIT_OP, Scaffold.default_local_init_op)
            self._saver: Saver = _given(saver, GraphKeys.SAVERS, _default_saver)
            self._summary_op: Tensor | None = _given(summary_op, GraphKeys.SUMMARY_OP, merge_all)
            self._global_step: Tensor | Variable | None = _given(
                global_step, GraphKeys.GLOBAL_STEP, _called_global_step
            )
        self._session_manager = session_manager or SessionManager(
            local_init_op=self._local_init_op,
            ready_op=self._ready_op,
            ready_for_local_init_op=self._ready_for_local_init_op,
            graph=self._graph,
            recovery_wait_secs=recovery_wait_secs,
            local_init_run_options=local_init_run_options,
        )
        if not is_chief:
            self._summary_writer: FileWriter | None = None
        elif _is_default(summary_writer):
            self._summary_writer = FileWriter(self._logdir) if self._logdir else None
        else:
            self._summary_writer = summary_writer
        self._graph_added_to_summary = False
        self._graph.finalize()

    # ------------------------------------------------------------------ what it holds
    @property
    def is_chief(self) -> bool:
        return self._is_chief

    @property
    def session_manager(self) -> SessionManager:
        return self._session_manager

    @property
    def coord(self) -> Coordinator:
        """The coordinator of the threads."""
        return self._coord

    @property
    def init_op(self) -> Operation:
        return self._init_op

    @property
    def init_feed_dict(self) -> dict[Any, Any] | None:
        return self._init_feed_dict

    @property
    def ready_op(self) -> Tensor | None:
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Tensor | None:
        return self._ready_for_local_init_op

    @property
    def summary_writer(self) -> FileWriter | None:
        """What events are written with; None if this is not the chief, or without `logdir`."""
        return self._summary_writer

    @property
    def summary_op(self) -> Tensor | None:
        return self._summary_op

    @property
    def save_summaries_secs(self) -> float | None:
        """Seconds between summaries."""
        return self._save_summaries_secs

    @property
    def global_step(self) -> Tensor | Variable | None:
        return self._global_step

    @property
    def saver(self) -> Saver:
        return self._saver

    @property
    def save_model_secs(self) -> float | None:
        """Seconds between checkpoints."""
        return self._save_model_secs

    @property
    def save_path(self) -> str | None:
        """The checkpoints' prefix, without the step."""
        return self._save_path

    # ------------------------------------------------------------------ sessions
    def prepare_or_wait_for_session(
        self,
        master: str = "",
        config: ConfigProto | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        start_standard_services: bool = True,
    ) -> Session:
        """A session whose model is ready.

        Args:
            master: the target of the session.
            config: a `ConfigProto`.
            wait_for_checkpoint: whether the chief waits for a checkpoint to restore.
            max_wait_secs: how long to wait, in seconds.
            start_standard_services: whether to start the threads that write, and those of queues.

        Raises:
            RuntimeError: the model cannot be made ready.
            DeadlineExceededError: the chief took too long.
        """
        self._coord.clear_stop()
        if self._summary_writer is not None:
            self._summary_writer.reopen()
        if self._is_chief:
            session = self._session_manager.prepare_session(
                master,
                init_op=self._init_op,
                saver=self._saver,
                checkpoint_dir=self._logdir,
                wait_for_checkpoint=wait_for_checkpoint,
                max_wait_secs=max_wait_secs,
                config=config,
                init_feed_dict=self._init_feed_dict,
                init_fn=self._init_fn,
            )
            self._write_graph()
            if start_standard_services:
                logging.info("Starting standard services.")
                self.start_standard_services(session)
        else:
            session = self._session_manager.wait_for_session(master, config=config, max_wait_secs=max_wait_secs)
        if start_standard_services:
            logging.info("Starting queue runners.")
            self.start_queue_runners(session)
        return session

    @contextlib.contextmanager
    def managed_session(
        self,
        master: str = "",
        config: ConfigProto | None = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[Session]:
        """A session for a block; leaving it stops the threads and raises what one of them reported.

        An exception in the block is raised, unless it is an `OutOfRangeError`: the regular end of the data.
        """
        session: Session | None = None
        try:
            session = self.prepare_or_wait_for_session(
                master=master, config=config, start_standard_services=start_standard_services
            )
            yield session
        except Exception as error:  # raised by `stop` if it is no regular end
            self.request_stop(error)
        finally:
            try:
                self.stop(close_summary_writer=close_summary_writer)
            finally:
                if session is not None:
                    session.close()

    # ------------------------------------------------------------------ threads
    def start_standard_services(self, sess: Session) -> list[LooperThread]:
        """Starts the threads that write summaries, the speed and checkpoints.

        Raises:
            RuntimeError: this is not the chief's supervisor.
        """
        if not self._is_chief:
            raise RuntimeError(
                "Only chief supervisor can start standard services. Because only chief supervisors can write events."
            )
        if not self._logdir:
            logging.warning("Standard services need a 'logdir' passed to the SessionManager")
            return []
        if self._global_step is not None and self._summary_writer is not None:
            step = training_util.global_step(sess, self._global_step)
            self._summary_writer.add_session_log(SessionLog(status=SessionLog.START), step)
        threads: list[LooperThread] = []
        if self._save_summaries_secs and self._summary_writer is not None:
            if self._summary_op is not None:
                threads.append(_SummaryThread(self, sess, self._save_summaries_secs))
            if self._global_step is not None:
                threads.append(_StepCounterThread(self, sess, self._save_summaries_secs))
        if self._saver is not None and self._save_model_secs:
            threads.append(_CheckpointThread(self, sess, self._save_model_secs))
        for thread in threads:
            thread.start()
        self._started_threads.extend(threads)
        return threads

    def start_queue_runners(self, sess: Session, queue_runners: Sequence[Any] | None = None) -> list[Any]:
        """Starts the threads of queue runners; default: of those in the graph's collection."""
        runners = self._graph.get_collection(GraphKeys.QUEUE_RUNNERS) if queue_runners is None else queue_runners
        threads: list[Any] = []
        for runner in runners:
            threads.extend(runner.create_threads(sess, coord=self._coord, daemon=True, start=True))
        self._started_threads.extend(threads)
        return threads

    def loop(
        self,
        timer_interval_secs: float | None,
        target: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> LooperThread:
        """Starts a `LooperThread` of this supervisor's coordinator."""
        looper = LooperThread.loop(self._coord, timer_interval_secs, target=target, args=args, kwargs=kwargs)
        self._started_threads.append(looper)
        return looper

    def stop(
        self,
        threads: Iterable[Any] | None = None,
        close_summary_writer: bool = True,
        ignore_live_threads: bool = False,
    ) -> None:
        """Stops the threads and waits for them.

        Args:
            threads: to wait for; default: those that this supervisor started.
            close_summary_writer: whether to close the writer too.
            ignore_live_threads: whether threads that do not stop are no error.

        Raises:
            The exception that was given to `request_stop`.
            RuntimeError: a thread does not stop.
        """
        self._coord.request_stop()
        try:
            self._coord.join(
                self._started_threads if threads is None else threads,
                stop_grace_period_secs=self._stop_grace_secs,
                ignore_live_threads=ignore_live_threads,
            )
        finally:
            if close_summary_writer and self._summary_writer is not None:
                self._summary_writer.add_session_log(SessionLog(status=SessionLog.STOP))
                self._summary_writer.close()
                self._graph_added_to_summary = False
        self._started_threads = []

    def request_stop(self, ex: BaseException | ExceptionInfo | None = None) -> None:
        """See `Coordinator.request_stop`."""
        self._coord.request_stop(ex)

    def should_stop(self) -> bool:
        """See `Coordinator.should_stop`."""
        return self._coord.should_stop()

    def stop_on_exception(self) -> contextlib.AbstractContextManager[None]:
        """See `Coordinator.stop_on_exception`."""
        return self._coord.stop_on_exception()

    def wait_for_stop(self) -> None:
        """Returns when a stop was requested."""
        self._coord.wait_for_stop()

    # ------------------------------------------------------------------ events
    def summary_computed(self, sess: Session, summary: Summary | bytes, global_step: SupportsInt | None = None) -> None:
        """Writes a summary that the program computed.

        Args:
            sess: reads the global step if it is not given.
            summary: a `Summary`, or its bytes.
            global_step: the step.

        Raises:
            TypeError: `summary` is something else.
            RuntimeError: there is no summary writer.
        """
        if self._summary_writer is None:
            raise RuntimeError("Writing a summary requires a summary writer.")
        if global_step is None and self._global_step is not None:
            global_step = training_util.global_step(sess, self._global_step)
        self._summary_writer.add_summary(summary, global_step)

    def _write_graph(self) -> None:
        if self._logdir:
            write_graph(self._graph.as_graph_def(add_shapes=True), self._logdir, "graph.pbtxt")
        if self._summary_writer is not None and not self._graph_added_to_summary:
            self._summary_writer.add_graph(self._graph)
            saver_def = None if self._saver is None else self._saver.saver_def
            self._summary_writer.add_meta_graph(export_meta_graph(graph=self._graph, saver_def=saver_def))
            self._graph_added_to_summary = True

    # ------------------------------------------------------------------ the names of old
    PrepareSession = prepare_or_wait_for_session
    StartQueueRunners = start_queue_runners
    StartStandardServices = start_standard_services
    Loop = loop
    Stop = stop
    RequestStop = request_stop
    ShouldStop = should_stop
    StopOnException = stop_on_exception
    WaitForStop = wait_for_stop
    SummaryComputed = summary_computed


def _is_default(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == Supervisor.USE_DEFAULT


def _given(value: object, collection: str, make: Callable[[], Any]) -> Any:
    """The argument; where it was left open, the first member of a collection, or what is made and put there."""
    if not _is_default(value):
        return value
    graph = get_default_graph()
    members = graph.get_collection(collection)
    if members:
        return members[0]
    made = make()
    if made is not None:
        graph.add_to_collection(collection, made)
    return made


def _called_global_step() -> Any:
    """The variable or tensor called "global_step"; here it may also be a vector of one number."""
    step = training_util.named_global_step(get_default_graph())
    return step if step is not None and step.dtype.base_dtype.is_integer else None


def _default_saver() -> Saver | None:
    return Saver() if global_variables() else None


class _Service(LooperThread):
    """A thread that writes something from time to time."""

    def __init__(self, supervisor: Supervisor, sess: Session, interval: float) -> None:
        super().__init__(supervisor.coord, interval)
        self._supervisor = supervisor
        self._sess = sess

    def _step(self) -> int | None:
        step = self._supervisor.global_step
        return None if step is None else training_util.global_step(self._sess, step)


class _SummaryThread(_Service):
    def run_loop(self) -> None:
        summaries = self._sess.run(self._supervisor.summary_op)
        self._supervisor.summary_computed(self._sess, summaries, self._step())


class _StepCounterThread(_Service):
    def start_loop(self) -> None:
        self._last_time = time.monotonic()
        self._last_step = self._step() or 0
        step = self._supervisor.global_step
        assert step is not None
        self._tag = f"{step.op.name}/sec"

    def run_loop(self) -> None:
        now, step = time.monotonic(), self._step() or 0
        elapsed, done = now - self._last_time, step - self._last_step
        self._last_time, self._last_step = now, step
        speed = done / elapsed if elapsed > 0 else float("inf")
        value = Summary.Value(tag=self._tag, simple_value=speed)
        writer = self._supervisor.summary_writer
        assert writer is not None
        writer.add_summary(Summary(value=[value]), step)
        logging.info("%s: %g", self._tag, speed)


class _CheckpointThread(_Service):
    def run_loop(self) -> None:
        supervisor = self._supervisor
        assert supervisor.save_path is not None
        logging.info("Saving checkpoint to path %s", supervisor.save_path)
        supervisor.saver.save(self._sess, supervisor.save_path, global_step=supervisor.global_step)
        if supervisor.summary_writer is not None and supervisor.global_step is not None:
            log = SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path=supervisor.save_path or "")
            supervisor.summary_writer.add_session_log(log, self._step())
