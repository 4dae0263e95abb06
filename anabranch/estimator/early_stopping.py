"""Hooks that end training early: when evaluations say so, or when a checkpoint is far enough."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.core.pauses import Pauses
from anabranch.estimator.estimators import Estimator

#: how long (s) a worker waits at most before it looks for the chief's checkpoint again
_LONGEST_PAUSE: Final = 1.0


def make_early_stopping_hook(
    estimator: Estimator,
    should_stop_fn: Callable[[], bool],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> tf.train.SessionRunHook:
    """A hook that ends training when a function says so.

    The chief asks the function, and tells the other workers by a variable of the graph: every task of a cluster needs
    the hook.

    Args:
        estimator: that is trained.
        should_stop_fn: of nothing: whether to stop.
        run_every_secs: seconds between two calls.
        run_every_steps: steps between two calls; then `run_every_secs` must be None.

    Returns:
        The hook, for `Estimator.train` or `TrainSpec`.

    Raises:
        TypeError: `estimator` is no `Estimator`, or `should_stop_fn` no function.
        ValueError: both intervals are given.
    """
    if not isinstance(estimator, Estimator):
        raise TypeError(f"`estimator` must have type `tf.estimator.Estimator`. Got: {type(estimator)}")
    if run_every_secs is not None and run_every_steps is not None:
        raise ValueError("Only one of `run_every_secs` and `run_every_steps` must be set.")
    if not callable(should_stop_fn):
        raise TypeError("`should_stop_fn` must be callable.")
    if estimator.config.is_chief:
        return _StopsWhenTold(should_stop_fn, run_every_secs, run_every_steps)
    return _StopsWithChief()


def _stop_variable() -> Any:
    with tf.variable_scope("signal_early_stopping", reuse=tf.AUTO_REUSE):
        return tf.get_variable(
            "STOP",
            [],
            tf.bool,
            tf.constant_initializer(False),
            trainable=False,
            collections=[tf.GraphKeys.GLOBAL_VARIABLES],
        )


class _StopsWhenTold(tf.train.SessionRunHook):
    """The chief's: asks, stops, and tells the others."""

    def __init__(self, should_stop_fn: Callable[[], bool], every_secs: float | None, every_steps: int | None) -> None:
        self._should_stop = should_stop_fn
        self._timer = tf.train.SecondOrStepTimer(every_secs=every_secs, every_steps=every_steps)

    def begin(self) -> None:
        self._timer.reset()
        self._step = tf.train.get_global_step()
        self._tell = tf.assign(_stop_variable(), True)

    def before_run(self, run_context: PassedOn) -> tf.train.SessionRunArgs:
        return tf.train.SessionRunArgs(self._step)

    def after_run(self, run_context: PassedOn, run_values: PassedOn) -> None:
        step = int(run_values.results)
        if not self._timer.should_trigger_for_step(step):
            return
        self._timer.update_last_triggered_step(step)
        if self._should_stop():
            tf.logging.info("Requesting early stopping at global step %d", step)
            run_context.session.run(self._tell)
            run_context.request_stop()


class _StopsWithChief(tf.train.SessionRunHook):
    """A worker's: looks whether the chief has stopped."""

    def begin(self) -> None:
        self._told = _stop_variable()

    def before_run(self, run_context: PassedOn) -> tf.train.SessionRunArgs:
        return tf.train.SessionRunArgs(self._told)

    def after_run(self, run_context: PassedOn, run_values: PassedOn) -> None:
        if run_values.results:
            tf.logging.info("Early stopping requested, suspending run.")
            run_context.request_stop()


# ---------------------------------------------------------------------- what evaluations say
def _results(folder: str) -> list[tuple[int, dict[str, float]]]:
    """The numbers in the summaries of evaluations, step by step."""
    found: dict[int, dict[str, float]] = {}
    for path in tf.gfile.Glob(os.path.join(folder, "events.out.tfevents.*")):
        for event in tf.train.summary_iterator(path):
            values = {value.tag: value.simple_value for value in event.summary.value if value.HasField("simple_value")}
            if values:
                found.setdefault(event.step, {}).update(values)
    return sorted(found.items())


def _metric_by_step(folder: str, metric_name: str, min_steps: int) -> list[tuple[int, float]]:
    steps = []
    for step, values in _results(folder):
        if step < min_steps:
            continue
        if metric_name not in values:
            raise KeyError(f"no metric {metric_name!r} in the evaluation of step {step} in {folder}: {sorted(values)}")
        steps.append((step, values[metric_name]))
    return steps


#: says of the metric at the steps of the evaluations why training ends; None: it goes on
_Judge = Callable[[list[tuple[int, float]]], str | None]


def _crossed(threshold: float, sign: int) -> _Judge:
    """Training ends when the metric, times the sign, is above the threshold times the sign."""

    def judge(metrics: list[tuple[int, float]]) -> str | None:
        beyond = ((step, value) for step, value in metrics if sign * value > sign * threshold)
        return next((f"at step {step} it is {value}: beyond {threshold}" for step, value in beyond), None)

    return judge


def _no_better(patience: int, sign: int) -> _Judge:
    """Training ends when the metric, times the sign, has not grown for as many steps."""

    def judge(metrics: list[tuple[int, float]]) -> str | None:
        best: tuple[int, float] | None = None
        for step, value in metrics:
            if best is None or sign * value > sign * best[1]:
                best = step, value
            if step - best[0] >= patience:
                return f"it is no better since step {best[0]}"
        return None

    return judge


def _stop_when(
    judge: _Judge,
    estimator: Estimator,
    metric_name: str,
    eval_dir: str | None,
    min_steps: int,
    run_every_secs: float | None,
    run_every_steps: int | None,
) -> tf.train.SessionRunHook:
    folder = estimator.eval_dir() if eval_dir is None else eval_dir

    def should_stop() -> bool:
        reason = judge(_metric_by_step(folder, metric_name, min_steps))
        if reason is not None:
            tf.logging.info("Metric %r: %s, at which training ends", metric_name, reason)
        return reason is not None

    return make_early_stopping_hook(estimator, should_stop, run_every_secs, run_every_steps)


def stop_if_higher_hook(
    estimator: Estimator,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> tf.train.SessionRunHook:
    """A hook that ends training when a metric of an evaluation is above a threshold.

    Args:
        estimator: that is trained.
        metric_name: of the metric, such as "accuracy".
        threshold: that it must pass.
        eval_dir: where the summaries of evaluations are; None: `estimator.eval_dir()`.
        min_steps: evaluations of earlier steps do not count.
        run_every_secs, run_every_steps: how often to look, as for `make_early_stopping_hook`.

    Returns:
        The hook, for `Estimator.train` or `TrainSpec`.
    """
    judge = _crossed(threshold, 1)
    return _stop_when(judge, estimator, metric_name, eval_dir, min_steps, run_every_secs, run_every_steps)


def stop_if_lower_hook(
    estimator: Estimator,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> tf.train.SessionRunHook:
    """A hook that ends training when a metric of an evaluation is below a threshold; see `stop_if_higher_hook`."""
    judge = _crossed(threshold, -1)
    return _stop_when(judge, estimator, metric_name, eval_dir, min_steps, run_every_secs, run_every_steps)


def stop_if_no_increase_hook(
    estimator: Estimator,
    metric_name: str,
    max_steps_without_increase: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> tf.train.SessionRunHook:
    """A hook that ends training when a metric of evaluations has not grown for a while.

    Args:
        estimator: that is trained.
        metric_name: of the metric, such as "accuracy".
        max_steps_without_increase: how many steps it may not grow.
        eval_dir, min_steps, run_every_secs, run_every_steps: as for `stop_if_higher_hook`.

    Returns:
        The hook, for `Estimator.train` or `TrainSpec`.
    """
    judge = _no_better(max_steps_without_increase, 1)
    return _stop_when(judge, estimator, metric_name, eval_dir, min_steps, run_every_secs, run_every_steps)


def stop_if_no_decrease_hook(
    estimator: Estimator,
    metric_name: str,
    max_steps_without_decrease: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> tf.train.SessionRunHook:
    """A hook that ends training when a metric has not fallen for a while; see `stop_if_no_increase_hook`."""
    judge = _no_better(max_steps_without_decrease, -1)
    return _stop_when(judge, estimator, metric_name, eval_dir, min_steps, run_every_secs, run_every_steps)


# ---------------------------------------------------------------------- the last checkpoint
def make_stop_at_checkpoint_step_hook(
    estimator: Estimator, last_step: int, wait_after_file_check_secs: float = 30
) -> tf.train.SessionRunHook:
    """A hook that ends training at a step: the chief's when it has made it, a worker's when it has been saved.

    Args:
        estimator: that is trained.
        last_step: the global step to stop at.
        wait_after_file_check_secs: how long a worker waits for the chief's checkpoint before it makes another step.

    Returns:
        The hook, for `Estimator.train` or `TrainSpec`.

    Raises:
        ValueError: there is no step.
    """
    if last_step is None:
        raise ValueError("last_step must be specified.")
    if estimator.config.is_chief:
        return tf.train.StopAtStepHook(last_step=last_step)
    return _StopsAtCheckpoint(estimator, last_step, wait_after_file_check_secs)


class _StopsAtCheckpoint(tf.train.SessionRunHook):
    """A worker's: goes on until the checkpoint of the last step is there."""

    def __init__(self, estimator: Estimator, last_step: int, wait_secs: float) -> None:
        self._estimator, self._last_step, self._wait_secs = estimator, last_step, wait_secs

    def begin(self) -> None:
        self._step = tf.train.get_or_create_global_step()

    def before_run(self, run_context: PassedOn) -> tf.train.SessionRunArgs:
        return tf.train.SessionRunArgs(self._step)

    def after_run(self, run_context: PassedOn, run_values: PassedOn) -> None:
        if int(run_values.results) + 1 < self._last_step:
            return
        if self._saved_step(self._wait_secs) >= self._last_step:
            run_context.request_stop()

    def _saved_step(self, seconds: float) -> int:
        """The step of the latest checkpoint, waiting for that of the last step at most so long."""
        end, pauses = time.monotonic() + seconds, Pauses(_LONGEST_PAUSE)
        while True:
            path = self._estimator.latest_checkpoint()
            step = 0 if path is None else self._estimator.step_of(path)
            remaining = end - time.monotonic()
            if step >= self._last_step or remaining <= 0:
                return step
            # nothing tells of a checkpoint but the directory, which another machine writes
            time.sleep(min(pauses.next(), remaining))
