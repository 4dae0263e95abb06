"""Monitors of `tf.contrib.learn` that programs derive their own from, and the hook by which a session calls them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import PassedOn

#: values by what was asked for: names, tensors
Outputs: TypeAlias = Mapping[Any, Any]
#: tensors, operations, or names of such
Requests: TypeAlias = "list[Any]"


class BaseMonitor:
    """Is called before and after each step of training.

    A method that a class of your own has instead calls this one too.
    """

    def __init__(self) -> None:
        self._begun = False
        self._current_epoch: int | None = None
        self._current_step: int | None = None
        self._max_steps: int | None = None
        self._estimator: Any = None

    @property
    def run_on_all_workers(self) -> bool:
        """Whether each worker calls it, and not the chief alone."""
        return False

    def set_estimator(self, estimator: PassedOn) -> None:
        """Says which model is trained; `fit` does so."""
        if estimator is None:
            raise ValueError("Missing estimator.")
        self._estimator = estimator

    def begin(self, max_steps: int | None = None) -> None:
        """Training begins; in the graph that is trained.

        Args:
            max_steps: the global step at which it ends, if that is known.
        """
        if self._begun:
            raise ValueError("begin called twice without end.")
        self._max_steps, self._begun = max_steps, True

    def end(self, session: PassedOn = None) -> None:
        """Training has ended."""
        if not self._begun:
            raise ValueError("end called without begin.")
        self._max_steps, self._begun = None, False

    def epoch_begin(self, epoch: int) -> None:
        """An epoch begins; nothing here calls it."""
        if self._current_epoch is not None:
            raise ValueError("epoch_begin called twice without epoch_end.")
        if epoch < 0:
            raise ValueError(f"Invalid epoch {epoch}.")
        self._current_epoch = epoch

    def epoch_end(self, epoch: int) -> None:
        """An epoch has ended."""
        if self._current_epoch != epoch:
            raise ValueError(f"epoch_end expected {self._current_epoch} but got {epoch}.")
        self._current_epoch = None

    def step_begin(self, step: int) -> Requests:
        """A step begins.

        Returns:
            What else is to be run in it.
        """
        if step < 0 or (self._max_steps is not None and step > self._max_steps):
            raise ValueError(f"Invalid step {step}.")
        self._current_step = step
        return []

    def step_end(self, step: int, output: Outputs) -> bool:
        """A step has ended; `output` has the values of what `step_begin` asked for.

        Returns:
            Whether training is to stop.
        """
        if self._current_step != step:
            raise ValueError(f"step_end expected {self._current_step} but got {step}.")
        self._current_step = None
        return False

    def post_step(self, step: int, session: PassedOn) -> None:
        """A step has ended, and the session may be used."""


class EveryN(BaseMonitor):
    """Is called every `every_n_steps` steps, and in the first ones.

    Args:
        every_n_steps: how many steps lie between two calls.
        first_n_steps: up to which global step it is called each time.
    """

    def __init__(self, every_n_steps: int = 100, first_n_steps: int = 1) -> None:
        super().__init__()
        self._every_n_steps, self._first_n_steps = every_n_steps, first_n_steps
        self._last_successful_step: int | None = None
        self._last_active_step = 0
        self._every_n_step_begin_called = False

    def every_n_step_begin(self, step: int) -> Requests:
        """Such a step begins; returns what else is to be run in it."""
        return []

    def every_n_step_end(self, step: int, outputs: Outputs) -> bool:
        """Such a step has ended; returns whether training is to stop."""
        return False

    def every_n_post_step(self, step: int, session: PassedOn) -> None:
        """Such a step has ended, or training; the session may be used."""

    def step_begin(self, step: int) -> Requests:
        super().step_begin(step)
        is_due = step >= self._every_n_steps + self._last_active_step
        self._every_n_step_begin_called = step <= self._first_n_steps or is_due or step == self._max_steps
        return self.every_n_step_begin(step) if self._every_n_step_begin_called else []

    def step_end(self, step: int, output: Outputs) -> bool:
        super().step_end(step, output)
        return self.every_n_step_end(step, output) if self._every_n_step_begin_called else False

    def post_step(self, step: int, session: PassedOn) -> None:
        super().post_step(step, session)
        if self._every_n_step_begin_called:
            self.every_n_post_step(step, session)
            self._last_active_step = step
        self._last_successful_step = step

    def end(self, session: PassedOn = None) -> None:
        super().end(session)
        if self._last_successful_step is not None and self._last_successful_step != self._last_active_step:
            self.every_n_post_step(self._last_successful_step, session)


class RunHookAdapterForMonitors(tf.train.SessionRunHook):
    """The hook that calls monitors.

    Args:
        monitors: objects of `BaseMonitor`.
    """

    def __init__(self, monitors: Iterable[BaseMonitor]) -> None:
        self._monitors = list(monitors)
        self._last_step: int | None = None
        self._wanted: Requests = []

    def begin(self) -> None:
        """Calls `begin` of all."""
        self._last_step = None
        self._step = tf.train.get_or_create_global_step()
        for one in self._monitors:
            one.begin(max_steps=None)

    def before_run(self, run_context: tf.train.SessionRunContext) -> tf.train.SessionRunArgs:
        """Asks all what is to be run."""
        if self._last_step is None:
            self._last_step = int(run_context.session.run(self._step)) + 1
        wanted: Requests = []
        for one in self._monitors:
            wanted += one.step_begin(self._last_step) or []
        self._wanted = wanted
        elements = [_fetch_of(one) for one in wanted]
        return tf.train.SessionRunArgs([self._step, elements])

    def after_run(self, run_context: tf.train.SessionRunContext, run_values: tf.train.SessionRunValues) -> None:
        """Tells all what came of it; the first that says so stops training."""
        assert self._last_step is not None
        after, found = run_values.results
        values: dict[Any, Any] = {
            getattr(one, "name", one): value for one, value in zip(self._wanted, found, strict=True)
        }
        values.update(zip(self._wanted, found, strict=True))
        for one in self._monitors:
            if one.step_end(self._last_step, values):
                run_context.request_stop()
        for one in self._monitors:
            one.post_step(self._last_step, run_context.session)
        self._last_step = max(int(after), self._last_step) + 1

    def end(self, session: PassedOn) -> None:
        """Calls `end` of all."""
        self._last_step = None
        for one in self._monitors:
            one.end(session)


class CaptureVariable(EveryN):
    """Keeps the values of a variable, or of any tensor.

    Args:
        var_name: the name.
        every_n, first_n: as for `EveryN`.

    Attributes:
        values: by step.
    """

    def __init__(self, var_name: str, every_n: int = 100, first_n: int = 1) -> None:
        super().__init__(every_n, first_n)
        self._var_name = var_name
        self.values: dict[int, Any] = {}

    def every_n_step_begin(self, step: int) -> Requests:
        super().every_n_step_begin(step)
        return [self._var_name]

    def every_n_step_end(self, step: int, outputs: Outputs) -> bool:
        super().every_n_step_end(step, outputs)
        self.values[step] = outputs[self._var_name]
        return False


class NanLoss(EveryN):
    """Ends training when the loss is no number.

    Args:
        loss_tensor: the loss.
        every_n_steps: as for `EveryN`.
        fail_on_nan_loss: whether that is an error, and not just the end.
    """

    def __init__(self, loss_tensor: PassedOn, every_n_steps: int = 100, fail_on_nan_loss: bool = True) -> None:
        super().__init__(every_n_steps)
        self._loss, self._fails = loss_tensor, fail_on_nan_loss

    def every_n_step_begin(self, step: int) -> Requests:
        super().every_n_step_begin(step)
        return [self._loss]

    def every_n_step_end(self, step: int, outputs: Outputs) -> bool:
        super().every_n_step_end(step, outputs)
        if not np.isnan(_value_of(outputs, self._loss)):
            return False
        tf.logging.error("Model diverged with loss = NaN.")
        if self._fails:
            raise tf.train.NanLossDuringTrainingError
        return True


class LoggingTrainable(EveryN):
    """Logs the values of trainable variables.

    Args:
        scope: those whose names begin so; None: all.
        every_n, first_n: as for `EveryN`.
    """

    def __init__(self, scope: str | None = None, every_n: int = 100, first_n: int = 1) -> None:
        super().__init__(every_n, first_n)
        self._scope = scope
        self._names: list[str] = []

    def every_n_step_begin(self, step: int) -> Requests:
        super().every_n_step_begin(step)
        self._names = [f"{one.op.name}:0" for one in tf.trainable_variables(self._scope)]
        return list(self._names)

    def every_n_step_end(self, step: int, outputs: Outputs) -> bool:
        super().every_n_step_end(step, outputs)
        tf.logging.info(
            "Logging Trainable: %s", ", ".join(f"{name.partition(':')[0]} = {outputs[name]}" for name in self._names)
        )
        return False


class _Writing(EveryN):
    """Writes for a board: by a writer, or into a folder, or into that of the estimator's model."""

    def __init__(self, every_n_steps: int, output_dir: str | None, summary_writer: PassedOn) -> None:
        super().__init__(every_n_steps)
        self._writer = summary_writer
        if summary_writer is None and output_dir:
            self._writer = tf.summary.FileWriterCache.get(output_dir)

    def set_estimator(self, estimator: PassedOn) -> None:
        super().set_estimator(estimator)
        if self._writer is None:
            self._writer = tf.summary.FileWriterCache.get(estimator.model_dir)


class SummarySaver(_Writing):
    """Writes a summary.

    Args:
        summary_op: string scalar.
        save_steps: as `every_n_steps` of `EveryN`.
        output_dir: the folder of the file; needed without `summary_writer`.
        summary_writer: writes it.
        scaffold: has the summary, where `summary_op` is None.
    """

    def __init__(
        self,
        summary_op: PassedOn,
        save_steps: int = 100,
        output_dir: str | None = None,
        summary_writer: PassedOn = None,
        scaffold: tf.train.Scaffold | None = None,
    ) -> None:
        super().__init__(save_steps, output_dir, summary_writer)
        self._summary_op, self._scaffold = summary_op, scaffold

    def every_n_step_begin(self, step: int) -> Requests:
        super().every_n_step_begin(step)
        if self._summary_op is None and self._scaffold is not None:
            self._summary_op = self._scaffold.summary_op
        return [] if self._summary_op is None else [self._summary_op]

    def every_n_step_end(self, step: int, outputs: Outputs) -> bool:
        super().every_n_step_end(step, outputs)
        if self._summary_op is not None and self._writer is not None:
            self._writer.add_summary(_value_of(outputs, self._summary_op), step)
        return False

    def end(self, session: PassedOn = None) -> None:
        super().end(session)
        if self._writer is not None:
            self._writer.flush()


class StepCounter(_Writing):
    """Writes how many steps a second has.

    Args:
        every_n_steps: as for `EveryN`.
        output_dir, summary_writer: as for `SummarySaver`.
    """

    def __init__(
        self, every_n_steps: int = 100, output_dir: str | None = None, summary_writer: PassedOn = None
    ) -> None:
        super().__init__(every_n_steps, output_dir, summary_writer)
        self._last: tuple[int, float] | None = None

    def every_n_step_end(self, step: int, outputs: Outputs) -> bool:
        super().every_n_step_end(step, outputs)
        now = time.perf_counter()
        if self._last is not None and self._writer is not None and step > self._last[0]:
            rate = (step - self._last[0]) / (now - self._last[1])
            value = tf.Summary.Value(tag="global_step/sec", simple_value=rate)
            self._writer.add_summary(tf.Summary(value=[value]), step)
        self._last = step, now
        return False


class CheckpointSaver(BaseMonitor):
    """Saves the variables now and then.

    Args:
        checkpoint_dir: the folder.
        save_secs, save_steps: how many seconds, or steps, lie between two checkpoints; one of them.
        saver, scaffold: saves; one of them.
        checkpoint_basename: of the files.
    """

    def __init__(
        self,
        checkpoint_dir: str,
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: PassedOn = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: tf.train.Scaffold | None = None,
    ) -> None:
        super().__init__()
        if (save_secs is None) == (save_steps is None):
            raise ValueError("Exactly one of save_steps and save_secs should be provided")
        self._path = os.path.join(checkpoint_dir, checkpoint_basename)
        self._secs, self._steps, self._saver, self._scaffold = save_secs, save_steps, saver, scaffold
        self._last: tuple[int, float] | None = None

    def post_step(self, step: int, session: PassedOn) -> None:
        super().post_step(step, session)
        now = time.perf_counter()
        is_due = self._last is None or (
            now - self._last[1] >= self._secs if self._secs is not None else step - self._last[0] >= (self._steps or 1)
        )
        if is_due:
            self._save(step, session)

    def end(self, session: PassedOn = None) -> None:
        super().end(session)
        if session is not None:
            self._save(int(session.run(tf.train.get_global_step())), session)

    def _save(self, step: int, session: PassedOn) -> None:
        saver = self._saver if self._saver is not None else self._scaffold.saver if self._scaffold else None
        if saver is None:
            raise ValueError("Provide a saver or a scaffold to CheckpointSaver")
        self._last = step, time.perf_counter()
        saver.save(session, self._path, global_step=step)


def get_default_monitors(
    loss_op: PassedOn = None,
    summary_op: PassedOn = None,
    save_summary_steps: int = 100,
    output_dir: str | None = None,
    summary_writer: PassedOn = None,
) -> list[BaseMonitor]:
    """The monitors of a training that says none: of its loss, and of its summaries.

    Args:
        loss_op: the loss; None: not looked at.
        summary_op: the summary; None: not written.
        save_summary_steps, output_dir, summary_writer: as for `SummarySaver`.
    """
    found: list[BaseMonitor] = []
    if loss_op is not None:
        found.append(_PrintLoss(loss_op))
    if summary_op is not None:
        found.append(SummarySaver(summary_op, save_summary_steps, output_dir, summary_writer))
    return found


class _PrintLoss(EveryN):
    def __init__(self, loss: PassedOn) -> None:
        super().__init__()
        self._loss = loss

    def every_n_step_begin(self, step: int) -> Requests:
        super().every_n_step_begin(step)
        return [self._loss]

    def every_n_step_end(self, step: int, outputs: Outputs) -> bool:
        super().every_n_step_end(step, outputs)
        tf.logging.info("Step %d: loss = %s", step, _value_of(outputs, self._loss))
        return False


def as_hooks(monitors: Sequence[PassedOn] | None, estimator: PassedOn) -> list[Any]:
    """Hooks for monitors and hooks, which know the model that is trained."""
    hooks: list[Any] = []
    called: list[BaseMonitor] = []
    for one in monitors or ():
        if estimator is not None and hasattr(one, "set_estimator"):
            one.set_estimator(estimator)
        (called if isinstance(one, BaseMonitor) else hooks).append(one)
    return [*hooks, RunHookAdapterForMonitors(called)] if called else hooks


def _fetch_of(wanted: PassedOn) -> Any:
    """What is asked for; the name of an operation stands for its one output, that of a variable for its value."""
    return f"{wanted}:0" if isinstance(wanted, str) and ":" not in wanted else wanted


def _value_of(outputs: Outputs, tensor: PassedOn) -> Any:
    return outputs[tensor if isinstance(tensor, str) else tensor.name]
