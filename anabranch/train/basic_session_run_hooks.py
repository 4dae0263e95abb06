"""Hooks that watch and steer training: logging, stopping, counting, waiting, feeding.

Those that write files stand in `recording_hooks`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from anabranch import errors
from anabranch.core import nest
from anabranch.core.nest import Structure
from anabranch.core.values import TensorLike
from anabranch.frontend.platform import logging
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.session import Session
from anabranch.train import training_util
from anabranch.train.coordinator import Coordinator
from anabranch.train.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues

_POLL_SECONDS = 0.5


class SecondOrStepTimer:
    """Says when something is due that is done every so many seconds or steps.

    It is due at the first step asked about, and at most once in a step.

    Args:
        every_secs: seconds between two times.
        every_steps: steps between two times.

    Raises:
        ValueError: neither or both are given.
    """

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        if every_secs is None and every_steps is None:
            raise ValueError("Either every_secs or every_steps should be provided.")
        if every_secs is not None and every_steps is not None:
            raise ValueError("Can not provide both every_secs and every_steps.")
        self._every_secs = every_secs
        self._every_steps = every_steps
        self.reset()

    def reset(self) -> None:
        """Begins anew."""
        self._last_triggered_step: int | None = None
        self._last_triggered_time: float | None = None

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether it is due at `step`."""
        if self._last_triggered_step is None or self._last_triggered_time is None:
            return True
        if self._last_triggered_step == step:
            return False
        if self._every_secs is not None:
            return time.monotonic() >= self._last_triggered_time + self._every_secs
        assert self._every_steps is not None
        return step >= self._last_triggered_step + self._every_steps

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Notes that it was done at `step`; returns the seconds and steps since the time before, or (None, None)."""
        now = time.monotonic()
        elapsed: tuple[float | None, int | None] = (None, None)
        if self._last_triggered_time is not None and self._last_triggered_step is not None:
            elapsed = (now - self._last_triggered_time, step - self._last_triggered_step)
        self._last_triggered_time = now
        self._last_triggered_step = step
        return elapsed

    def last_triggered_step(self) -> int | None:
        """The step at which it was done last."""
        return self._last_triggered_step


class NeverTriggerTimer(SecondOrStepTimer):
    """A timer that is never due."""

    def __init__(self) -> None:
        super().__init__(every_steps=1)

    def should_trigger_for_step(self, step: int) -> bool:
        return False


def global_step_for(hook: SessionRunHook) -> Tensor:
    """The tensor by which a hook learns the global step.

    Raises:
        RuntimeError: the graph has no global step.
    """
    tensor = training_util.get_or_create_global_step_read()
    if tensor is None:
        raise RuntimeError(f"Global step should be created to use {type(hook).__name__}.")
    return tensor


class LoggingTensorHook(SessionRunHook):
    """Logs tensors every so many runs or seconds, and at the end.

    Args:
        tensors: a dictionary from tags to tensors or names of tensors, or an iterable of tensors or names.
        every_n_iter: log in every n-th run.
        every_n_secs: log in the run after every n seconds.
        at_end: whether to log at the end.
        formatter: function from a dictionary from tags to values to the string that is logged.

    Raises:
        ValueError: not exactly one of `every_n_iter` and `every_n_secs` is given (none may be with `at_end`), or
            `every_n_iter` is not positive.
    """

    def __init__(
        self,
        tensors: Structure,
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[Any, Any]], str] | None = None,
    ) -> None:
        only_at_end = at_end and every_n_iter is None and every_n_secs is None
        if not only_at_end and (every_n_iter is None) == (every_n_secs is None):
            raise ValueError("either at_end and/or exactly one of every_n_iter and every_n_secs must be provided.")
        if every_n_iter is not None and every_n_iter <= 0:
            raise ValueError(f"invalid every_n_iter={every_n_iter}.")
        if isinstance(tensors, Mapping):
            self._tensors = dict(tensors)
            self._tag_order: list[Any] = sorted(self._tensors)
        else:
            self._tag_order = list(tensors)
            self._tensors = {item: item for item in self._tag_order}
        self._formatter = formatter
        self._log_at_end = at_end
        self._timer = (
            NeverTriggerTimer() if only_at_end else SecondOrStepTimer(every_secs=every_n_secs, every_steps=every_n_iter)
        )
        self._iter_count = 0
        self._should_trigger = False

    def begin(self) -> None:
        self._timer.reset()
        self._iter_count = 0
        graph = get_default_graph()
        self._current_tensors = {tag: fetchable(graph, tensor) for tag, tensor in self._tensors.items()}

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        self._should_trigger = self._timer.should_trigger_for_step(self._iter_count)
        return SessionRunArgs(self._current_tensors) if self._should_trigger else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._should_trigger:
            self._log_tensors(run_values.results)
        self._iter_count += 1

    def end(self, session: Session) -> None:
        if self._log_at_end:
            self._log_tensors(session.run(self._current_tensors))

    def _log_tensors(self, values: dict[Any, Any]) -> None:
        elapsed_secs, _ = self._timer.update_last_triggered_step(self._iter_count)
        if self._formatter is not None:
            logging.info(self._formatter(values))
            return
        with np.printoptions(suppress=True):
            text = ", ".join(f"{_tag_name(tag)} = {values[tag]}" for tag in self._tag_order)
        if elapsed_secs is None:
            logging.info("%s", text)
        else:
            logging.info("%s (%.3f sec)", text, elapsed_secs)


def fetchable(graph: Graph, value: TensorLike) -> Any:
    """The tensor that a tensor, a variable or a name (also without ":0") stands for."""
    if isinstance(value, str) and ":" not in value:
        return graph.as_graph_element(value + ":0")
    return graph.as_graph_element(value)


def _tag_name(tag: TensorLike) -> str:
    return str(tag)


class StopAtStepHook(SessionRunHook):
    """Asks for the end at a global step.

    Args:
        num_steps: steps to do, counted from the global step that the session begins with.
        last_step: the global step at which to stop.

    Raises:
        ValueError: neither or both are given.

    Example:
        >>> step = tf.train.get_or_create_global_step()
        >>> train_op = tf.assign_add(step, 1)
        >>> with tf.train.MonitoredTrainingSession(hooks=[tf.train.StopAtStepHook(last_step=3)]) as session:
        ...     while not session.should_stop():
        ...         last = session.run(train_op)
        >>> print(last)
        3
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps = num_steps
        self._last_step = last_step

    def begin(self) -> None:
        self._global_step_tensor = global_step_for(self)

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        step = int(session.run(self._global_step_tensor))
        if self._last_step is None:
            assert self._num_steps is not None
            self._last_step = step + self._num_steps
        elif step >= self._last_step:
            logging.warning(
                "This training is finished: its checkpoint is at global step %d, and it was to stop at step %d. It "
                "will stop after one more step. Give StopAtStepHook a later last_step, or begin in another directory.",
                step,
                self._last_step,
            )

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        assert self._last_step is not None
        # The fetched value may be the one before or after this run's increment: only where it matters, read it again.
        if run_values.results + 1 < self._last_step:
            return
        if run_context.session.run(self._global_step_tensor) >= self._last_step:
            run_context.request_stop()


class NanLossDuringTrainingError(RuntimeError):
    """The loss is not a number."""

    def __str__(self) -> str:
        return "NaN loss during training."


class NanTensorHook(SessionRunHook):
    """Watches the loss for NaN.

    Args:
        loss_tensor: the loss.
        fail_on_nan_loss: whether to raise `NanLossDuringTrainingError`, or to log it and ask for the end.
    """

    def __init__(self, loss_tensor: Tensor | str, fail_on_nan_loss: bool = True) -> None:
        self._loss_tensor = loss_tensor
        self._fail_on_nan_loss = fail_on_nan_loss

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._loss_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if not np.any(np.isnan(run_values.results)):
            return
        failure = "Model diverged with loss = NaN."
        if self._fail_on_nan_loss:
            logging.error(failure)
            raise NanLossDuringTrainingError
        logging.warning(failure)
        run_context.request_stop()


class GlobalStepWaiterHook(SessionRunHook):
    """Delays the first run until the global step, which other workers raise, has reached a value.

    Args:
        wait_until_step: that value.
    """

    def __init__(self, wait_until_step: int) -> None:
        self._wait_until_step = wait_until_step

    def begin(self) -> None:
        self._worker_is_started = self._wait_until_step <= 0
        self._global_step_tensor = global_step_for(self)

    def before_run(self, run_context: SessionRunContext) -> None:
        if self._worker_is_started:
            return
        logging.info("Waiting for global step %d before starting training.", self._wait_until_step)
        last_logged = 0
        while True:
            current = int(run_context.session.run(self._global_step_tensor))
            if current >= self._wait_until_step:
                break
            if current - last_logged > 1000:
                logging.info(
                    "Waiting for global step %d before starting training. Current step is %d.",
                    self._wait_until_step,
                    current,
                )
                last_logged = current
            time.sleep(_POLL_SECONDS)
        self._worker_is_started = True


class FinalOpsHook(SessionRunHook):
    """Evaluates something at the end.

    Args:
        final_ops: a nested structure of tensors and operations.
        final_ops_feed_dict: feeds for it.
    """

    def __init__(self, final_ops: Structure, final_ops_feed_dict: dict[Any, Any] | None = None) -> None:
        self._final_ops = final_ops
        self._final_ops_feed_dict = final_ops_feed_dict
        self._final_ops_values: Any = None

    @property
    def final_ops_values(self) -> nest.Structure:
        """The values, once the session has ended."""
        return self._final_ops_values

    def end(self, session: Session) -> None:
        if self._final_ops is None:
            return
        try:
            self._final_ops_values = session.run(self._final_ops, feed_dict=self._final_ops_feed_dict)
        except (errors.OutOfRangeError, StopIteration):
            logging.error(
                "An OutOfRangeError or StopIteration exception is raised by the code in FinalOpsHook. This typically "
                "means the ops run by FinalOpsHook depend on some input source, which should not happen."
            )
            raise


class FeedFnHook(SessionRunHook):
    """Feeds each run with what a function returns.

    Args:
        feed_fn: called before each run; returns a feed dictionary.
    """

    def __init__(self, feed_fn: Callable[[], dict[Any, Any]]) -> None:
        self.feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(fetches=None, feed_dict=self.feed_fn())
