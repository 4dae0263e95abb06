"""`tf.contrib.learn.monitors`: what looks on while a model of `tf.contrib.learn` trains, as hooks of the session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.contrib.learn.step_monitors import as_hooks


class ValidationMonitor(tf.train.SessionRunHook):
    """Evaluates the newest checkpoint while a model trains, and stops when it no longer becomes better.

    Args:
        x, y, input_fn, batch_size, metrics, hooks, name: as for `evaluate` of the estimator.
        eval_steps: how many batches; None: until the input ends.
        every_n_steps: how many steps of training lie between two looks; nothing happens without a new checkpoint.
        early_stopping_rounds: after how many steps without a better value training stops; None: it does not.
        early_stopping_metric: the name of the value.
        early_stopping_metric_minimize: whether less is better.
        check_interval_secs: not used.

    Attributes:
        best_step, best_value, best_metrics: of the best evaluation.
        early_stopped: whether training was stopped.
    """

    def __init__(
        self,
        x: PassedOn = None,
        y: PassedOn = None,
        input_fn: Callable[..., Any] | None = None,
        batch_size: int | None = None,
        eval_steps: int | None = None,
        every_n_steps: int = 100,
        metrics: Mapping[str, Any] | None = None,
        hooks: Sequence[tf.train.SessionRunHook] | None = None,
        early_stopping_rounds: int | None = None,
        early_stopping_metric: str = "loss",
        early_stopping_metric_minimize: bool = True,
        name: str | None = None,
        check_interval_secs: float = 60,
    ) -> None:
        if (x is None) == (input_fn is None):
            raise ValueError("Either x or input_fn should be provided, and not both.")
        self._data = {"x": x, "y": y, "input_fn": input_fn, "batch_size": batch_size}
        self._evaluation = {"steps": eval_steps, "metrics": metrics, "hooks": hooks, "name": name}
        self._every, self._patience = every_n_steps, early_stopping_rounds
        self._metric, self._less_is_better = early_stopping_metric, early_stopping_metric_minimize
        self._estimator: Any = None
        self._seen: str | None = None
        self._looked_at: int | None = None
        self.best_step: int | None = None
        self.best_value: Any = None
        self.best_metrics: dict[str, Any] | None = None
        self.early_stopped = False

    def set_estimator(self, estimator: PassedOn) -> None:
        """Says which model is trained; `fit` does so."""
        self._estimator = estimator

    def begin(self) -> None:
        """Notes where training begins.

        Raises:
            ValueError: no estimator is known.
        """
        if self._estimator is None:
            raise ValueError("Missing call to set_estimator: pass the monitor to `fit`.")
        self._looked_at, self._step = None, tf.train.get_or_create_global_step()

    def before_run(self, run_context: tf.train.SessionRunContext) -> tf.train.SessionRunArgs:
        """Asks for the global step."""
        return tf.train.SessionRunArgs(self._step)

    def after_run(self, run_context: tf.train.SessionRunContext, run_values: tf.train.SessionRunValues) -> None:
        """Evaluates, if it is time and there is a new checkpoint."""
        step = int(run_values.results)
        if self._looked_at is not None and step - self._looked_at < self._every:
            return
        self._looked_at = step
        newest = self._estimator.latest_checkpoint()
        if newest is None or newest == self._seen:
            return
        self._seen = newest
        self._judge(self._estimator.evaluate(**self._data, **self._evaluation, checkpoint_path=newest), run_context)

    def _judge(self, results: dict[str, Any], run_context: tf.train.SessionRunContext) -> None:
        step = int(results[tf.GraphKeys.GLOBAL_STEP])
        tf.logging.info("Validation (step %d): %s", step, results)
        if self._patience is None:
            return
        if self._metric not in results:
            raise ValueError(f"Metric {self._metric} missing from outputs {sorted(results)}.")
        value = results[self._metric]
        is_better = self.best_value is None or (
            value < self.best_value if self._less_is_better else value > self.best_value
        )
        if is_better:
            self.best_step, self.best_value, self.best_metrics = step, value, results
        elif self.best_step is not None and step - self.best_step >= self._patience:
            tf.logging.info("Stopping. Best step: %d with %s = %s.", self.best_step, self._metric, self.best_value)
            self.early_stopped = True
            run_context.request_stop()


def PrintTensor(tensor_names: PassedOn, every_n: int = 100, first_n: int = 1) -> tf.train.LoggingTensorHook:
    """Logs tensors, by names, or by tags of names, now and then."""
    return tf.train.LoggingTensorHook(tensor_names, every_n_iter=every_n)


def StopAtStep(num_steps: int | None = None, last_step: int | None = None) -> tf.train.StopAtStepHook:
    """Stops after a number of steps, or at a global step."""
    return tf.train.StopAtStepHook(num_steps, last_step)


def replace_monitors_with_hooks(monitors: PassedOn, estimator: PassedOn) -> list[Any]:
    """Hooks for monitors and hooks, which know the estimator."""
    return as_hooks(monitors, estimator)
