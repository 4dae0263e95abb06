"""Hooks that write files: checkpoints, summaries, speeds, traces."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from anabranch.frontend.platform import logging
from anabranch.frontend.storage.graph_io import write_graph
from anabranch.frontend.storage.summary_writer import FileWriter, FileWriterCache
from anabranch.graph.collections import GraphKeys
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import StepRunner, Tensor
from anabranch.io import gfile
from anabranch.proto.config_pb2 import RunOptions
from anabranch.proto.summary_pb2 import SessionLog, Summary
from anabranch.runtime.timeline import Timeline
from anabranch.session import Session
from anabranch.train import meta_graph, training_util
from anabranch.train.basic_session_run_hooks import SecondOrStepTimer, global_step_for
from anabranch.train.coordinator import Coordinator
from anabranch.train.replica_rounds import BetweenRounds, RoundsRunner, rounds_runners
from anabranch.train.saver import Saver
from anabranch.train.scaffold import Scaffold
from anabranch.train.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues


class CheckpointSaverListener:
    """Takes part in the saving of checkpoints by a `CheckpointSaverHook`; each method does nothing."""

    def begin(self) -> None:
        """Called when the hook begins: the graph can still be changed."""

    def before_save(self, session: Session, global_step_value: int) -> None:
        """Called before each checkpoint."""

    def after_save(self, session: Session, global_step_value: int) -> bool | None:
        """Called after each checkpoint. Returning True asks for the end of the training."""
        return None

    def end(self, session: Session, global_step_value: int) -> None:
        """Called at the end, after the last checkpoint."""


class CheckpointSaverHook(SessionRunHook):
    """Saves a checkpoint at the beginning, every so many steps or seconds, and at the end.

    Where this process ends the rounds of replicas that train together, the thread that does so saves, between two of
    them, and calls the listeners: a checkpoint has each round as a whole or not at all. (In TensorFlow a round may
    change variables while they are read.)

    Args:
        checkpoint_dir: the directory.
        save_secs: seconds between two checkpoints.
        save_steps: steps between two checkpoints.
        saver: default: that of `scaffold`, else the one of the graph.
        checkpoint_basename: the checkpoints' names without the step.
        scaffold: whose saver is used.
        listeners: `CheckpointSaverListener`s.

    Raises:
        ValueError: `saver` and `scaffold`, or not exactly one of `save_secs` and `save_steps`.
    """

    def __init__(
        self,
        checkpoint_dir: str,
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: Saver | None = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: Scaffold | None = None,
        listeners: Sequence[CheckpointSaverListener] | None = None,
    ) -> None:
        logging.info("Create CheckpointSaverHook.")
        if saver is not None and scaffold is not None:
            raise ValueError("You cannot provide both saver and scaffold.")
        self._saver = saver
        self._checkpoint_dir = checkpoint_dir
        self._save_path = os.path.join(checkpoint_dir, checkpoint_basename)
        self._scaffold = scaffold
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._listeners = list(listeners or [])
        self._rounds: RoundsRunner | None = None
        #: the checkpoint that is to be saved after the round; it returns whether a listener asks for the end
        self._asked: BetweenRounds | None = None

    def begin(self) -> None:
        self._summary_writer = FileWriterCache.get(self._checkpoint_dir)
        self._global_step_tensor = global_step_for(self)
        self._rounds = rounds_runners.get(get_default_graph())
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        self._asked = None
        step = int(session.run(self._global_step_tensor))
        graph = get_default_graph()
        graph_def = graph.as_graph_def(add_shapes=True)
        write_graph(graph_def, self._checkpoint_dir, "graph.pbtxt")
        self._summary_writer.add_graph(graph)
        saver_def = self._get_saver().saver_def
        self._summary_writer.add_meta_graph(meta_graph.export_meta_graph(graph_def=graph_def, saver_def=saver_def))
        self._save(session, step)
        self._timer.update_last_triggered_step(step)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._asked is not None:
            if not self._asked.ended.is_set():
                return
            asked, self._asked = self._asked, None
            if asked.result():
                run_context.request_stop()
        # The fetched value may be the one before this run's increment: read it again where it matters.
        if not self._timer.should_trigger_for_step(int(run_values.results) + 1):
            return
        session = run_context.session
        if self._rounds is not None and self._rounds.ends_rounds_of(session):
            self._asked = self._rounds.between_rounds(lambda: self._save_if_due(session))
        elif self._save_if_due(session):
            run_context.request_stop()

    def end(self, session: Session) -> None:
        if self._rounds is not None and self._rounds.ends_rounds_of(session):
            if self._asked is not None:
                self._rounds.withdraw(self._asked)
                self._asked.result()
            self._rounds.save_last(session, lambda saves_in: self._save_last(session, saves_in))
        else:
            self._save_last(session, session)
        for listener in self._listeners:
            listener.end(session, int(session.run(self._global_step_tensor)))

    def _save_if_due(self, session: Session) -> bool:
        """Saves, unless that was done in this step; returns whether a listener asks for the end."""
        step = int(session.run(self._global_step_tensor))
        if not self._timer.should_trigger_for_step(step):
            return False
        self._timer.update_last_triggered_step(step)
        with session.graph.as_default():
            return self._save(session, step)

    def _save_last(self, session: Session, saves_in: StepRunner) -> None:
        step = int(session.run(self._global_step_tensor))
        if step != self._timer.last_triggered_step():
            self._save(session, step, saves_in)
            self._timer.update_last_triggered_step(step)

    def _save(self, session: Session, step: int, saves_in: StepRunner | None = None) -> bool:
        """Saves; returns whether a listener asks for the end.

        Args:
            session: of the training; listeners are given that.
            step: the global step.
            saves_in: runs the save; default: the session.
        """
        logging.info("Saving checkpoints for %d into %s.", step, self._save_path)
        for listener in self._listeners:
            listener.before_save(session, step)
        self._get_saver().save(saves_in or session, self._save_path, global_step=step)
        log = SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path=self._save_path)
        self._summary_writer.add_session_log(log, step)
        should_stop = False
        for listener in self._listeners:
            if listener.after_save(session, step):
                logging.info("A CheckpointSaverListener requested that training be stopped. listener: %s", listener)
                should_stop = True
        return should_stop

    def _get_saver(self) -> Any:
        if self._saver is None:
            self._saver = self._scaffold.saver if self._scaffold is not None else _saver_of_graph()
        return self._saver


def _saver_of_graph() -> Any:
    savers = get_default_graph().get_collection(GraphKeys.SAVERS)
    if not savers:
        raise RuntimeError(
            f"No items in collection {GraphKeys.SAVERS}. Please add a saver to the collection or provide a saver or "
            "scaffold."
        )
    if len(savers) > 1:
        raise RuntimeError(
            f"More than one item in collection {GraphKeys.SAVERS}. Please indicate which one to use by passing it to "
            "the constructor."
        )
    return savers[0]


class StepCounterHook(SessionRunHook):
    """Logs the steps per second, and writes them as a summary.

    Args:
        every_n_steps: steps between two times.
        every_n_secs: seconds between two times, in the place of steps.
        output_dir: where to write summaries; None: only log.
        summary_writer: what to write with, in the place of `output_dir`.

    Raises:
        ValueError: not exactly one of `every_n_steps` and `every_n_secs`.
    """

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: FileWriter | None = None,
    ) -> None:
        if (every_n_steps is None) == (every_n_secs is None):
            raise ValueError("exactly one of every_n_steps and every_n_secs should be provided.")
        self._timer = SecondOrStepTimer(every_secs=every_n_secs, every_steps=every_n_steps)
        self._summary_writer = summary_writer
        self._output_dir = output_dir

    def begin(self) -> None:
        if self._summary_writer is None and self._output_dir:
            self._summary_writer = FileWriterCache.get(self._output_dir)
        self._global_step_tensor = global_step_for(self)
        step = training_util.get_global_step()
        assert step is not None
        self._summary_tag = step.op.name + "/sec"

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if not self._timer.should_trigger_for_step(int(run_values.results) + 1):
            return
        step = int(run_context.session.run(self._global_step_tensor))
        if self._timer.should_trigger_for_step(step):
            elapsed_time, elapsed_steps = self._timer.update_last_triggered_step(step)
            if elapsed_time is not None and elapsed_steps is not None:
                self._log_and_record(elapsed_steps, elapsed_time, step)

    def _log_and_record(self, elapsed_steps: int, elapsed_time: float, global_step: int) -> None:
        steps_per_sec = elapsed_steps / max(elapsed_time, 1e-9)
        if self._summary_writer is not None:
            value = Summary.Value(tag=self._summary_tag, simple_value=steps_per_sec)
            self._summary_writer.add_summary(Summary(value=[value]), global_step)
        logging.info("%s: %g", self._summary_tag, steps_per_sec)


class SummarySaverHook(SessionRunHook):
    """Writes summaries every so many steps or seconds.

    Args:
        save_steps: steps between two times.
        save_secs: seconds between two times.
        output_dir: where to write.
        summary_writer: what to write with, in the place of `output_dir`.
        scaffold: whose `summary_op` is written.
        summary_op: a serialized summary, or a list of them.

    Raises:
        ValueError: not exactly one of `scaffold` and `summary_op`, or of `save_steps` and `save_secs`.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | None = None,
        summary_writer: FileWriter | None = None,
        scaffold: Scaffold | None = None,
        summary_op: Tensor | str | Sequence[Tensor | str] | None = None,
    ) -> None:
        if (scaffold is None) == (summary_op is None):
            raise ValueError("Exactly one of scaffold or summary_op must be provided.")
        self._summary_op = summary_op
        self._summary_writer = summary_writer
        self._output_dir = output_dir
        self._scaffold = scaffold
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)

    def begin(self) -> None:
        if self._summary_writer is None and self._output_dir:
            self._summary_writer = FileWriterCache.get(self._output_dir)
        self._next_step: int | None = None
        self._global_step_tensor = global_step_for(self)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        self._request_summary = self._next_step is None or self._timer.should_trigger_for_step(self._next_step)
        requests: dict[str, Any] = {"global_step": self._global_step_tensor}
        if self._request_summary:
            summaries = self._summaries()
            if summaries:
                requests["summary"] = summaries
        return SessionRunArgs(requests)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._summary_writer is None:
            return
        step = int(run_values.results["global_step"]) + 1
        if self._next_step is None or self._request_summary:
            step = int(run_context.session.run(self._global_step_tensor))
        if self._next_step is None:
            self._summary_writer.add_session_log(SessionLog(status=SessionLog.START), step)
        if self._request_summary:
            self._timer.update_last_triggered_step(step)
            for summary in run_values.results.get("summary", ()):
                self._summary_writer.add_summary(summary, step)
        self._next_step = step + 1

    def end(self, session: Session | None = None) -> None:
        if self._summary_writer is not None:
            self._summary_writer.flush()

    def _summaries(self) -> list[Any]:
        summaries = self._summary_op
        if summaries is None and self._scaffold is not None:
            summaries = self._scaffold.summary_op
        if summaries is None:
            return []
        return list(summaries) if isinstance(summaries, list | tuple) else [summaries]


class ProfilerHook(SessionRunHook):
    """Traces a run every so many steps or seconds: ``timeline-<step>.json``, for Perfetto or chrome://tracing.

    Args:
        save_steps: steps between two traces.
        save_secs: seconds between two traces.
        output_dir: where to write; the timings are written to an event file there, too.
        show_dataflow: adds an arrow from each node to those that take its results.
        show_memory: adds a curve of the bytes in use.

    Raises:
        ValueError: not exactly one of `save_steps` and `save_secs`.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
    ) -> None:
        self._output_dir = output_dir
        self._shown = {"show_dataflow": show_dataflow, "show_memory": show_memory}
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)

    def begin(self) -> None:
        self._summary_writer = FileWriterCache.get(self._output_dir)
        self._next_step: int | None = None
        self._global_step_tensor = global_step_for(self)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        self._request_trace = self._next_step is not None and self._timer.should_trigger_for_step(self._next_step)
        options = RunOptions(trace_level=RunOptions.FULL_TRACE) if self._request_trace else None
        return SessionRunArgs(self._global_step_tensor, options=options)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = int(run_values.results) + 1
        if self._next_step is None:
            # The first run compiles; its timings would mislead. The count begins after it.
            self._timer.update_last_triggered_step(step - 1)
        if self._request_trace:
            step = int(run_context.session.run(self._global_step_tensor))
            self._timer.update_last_triggered_step(step)
            self._save(step, run_values)
        self._next_step = step + 1

    def _save(self, step: int, run_values: SessionRunValues) -> None:
        assert run_values.run_metadata is not None
        path = os.path.join(self._output_dir, f"timeline-{step}.json")
        logging.info("Saving timeline for %d into '%s'.", step, path)
        with gfile.GFile(path, "w") as file:
            file.write(Timeline(run_values.run_metadata.step_stats).generate_chrome_trace_format(**self._shown))
        self._summary_writer.add_run_metadata(run_values.run_metadata, f"step_{step}", step)
