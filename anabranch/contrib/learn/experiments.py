"""`tf.contrib.learn.Experiment` and `learn_runner`: a model with its data, and what is to be done with both."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.contrib.learn.estimators import LearnsFromArrays
from anabranch.contrib.learn.monitor_hooks import ValidationMonitor
from anabranch.contrib.learn.run_settings import LearnRunConfig
from anabranch.contrib.learn.step_monitors import BaseMonitor, RunHookAdapterForMonitors

#: what a method of `Experiment` returns
Outcome: TypeAlias = Any


class Experiment:
    """A model, the data to train and to evaluate it on, and for how long.

    Args:
        estimator: of `tf.contrib.learn` or `tf.estimator`.
        train_input_fn, eval_input_fn: give features and labels.
        eval_metrics: further metrics of evaluations by name, each a `MetricSpec`; of `tf.contrib.learn` alone.
        train_steps: the global step at which training ends; None: when the input ends.
        eval_steps: how many batches an evaluation has; None: until the input ends.
        train_monitors: hooks of training.
        eval_hooks: hooks of evaluations.
        min_eval_frequency: every how many steps a new checkpoint is evaluated while the model trains; 0 or None: only
            at the end.
        eval_delay_secs, continuous_eval_throttle_secs, delay_workers_by_global_step: not used: one process does all.
        train_steps_per_iteration: of `continuous_train_and_eval`; None: a tenth of the steps.
        export_strategies: what exports the model at the end; each is called `export` with the estimator, a folder, and
            the evaluation.
        checkpoint_and_export: not used.
    """

    def __init__(
        self,
        estimator: PassedOn,
        train_input_fn: Callable[..., Any],
        eval_input_fn: Callable[..., Any],
        eval_metrics: Mapping[str, Any] | None = None,
        train_steps: int | None = None,
        eval_steps: int | None = 100,
        train_monitors: Sequence[tf.train.SessionRunHook] | None = None,
        eval_hooks: Sequence[tf.train.SessionRunHook] | None = None,
        local_eval_frequency: int | None = None,
        eval_delay_secs: float = 120,
        continuous_eval_throttle_secs: float = 60,
        min_eval_frequency: int | None = None,
        delay_workers_by_global_step: bool = False,
        export_strategies: PassedOn = None,
        train_steps_per_iteration: int | None = None,
        checkpoint_and_export: bool = False,
    ) -> None:
        if not isinstance(estimator, tf.estimator.Estimator):
            raise ValueError(f"`estimator` must be of tf.contrib.learn or tf.estimator, got {estimator!r}")
        if eval_metrics is not None and not isinstance(estimator, LearnsFromArrays):
            raise ValueError(
                "`eval_metrics` must be `None` with `tf.estimator.Estimator`: return them by its model_fn."
            )
        self._estimator, self._eval_metrics = estimator, eval_metrics
        self._train_input_fn, self._eval_input_fn = train_input_fn, eval_input_fn
        self._train_steps, self._eval_steps = train_steps, eval_steps
        self._train_steps_per_iteration = train_steps_per_iteration
        self._train_monitors, self._eval_hooks = list(train_monitors or ()), list(eval_hooks or ())
        self._min_eval_frequency = min_eval_frequency if local_eval_frequency is None else local_eval_frequency
        strategies = export_strategies or ()
        self._strategies: list[Any] = [strategies] if hasattr(strategies, "export") else list(strategies)

    @property
    def estimator(self) -> tf.estimator.Estimator:
        """The model."""
        return self._estimator

    @property
    def train_steps(self) -> int | None:
        """The global step at which training ends."""
        return self._train_steps

    @property
    def eval_steps(self) -> int | None:
        """How many batches an evaluation has."""
        return self._eval_steps

    def extend_train_hooks(self, additional_hooks: Sequence[tf.train.SessionRunHook]) -> None:
        """Adds hooks of training."""
        self._train_monitors.extend(additional_hooks)

    def train(self, delay_secs: float | None = None) -> tf.estimator.Estimator:
        """Trains the model, and returns it."""
        return self._train(self._train_monitors, self._train_steps)

    def evaluate(self, delay_secs: float | None = None, name: str | None = None) -> dict[str, Any]:
        """The metrics of the newest checkpoint."""
        return self._evaluate(self._eval_steps, name or "one_pass")

    def train_and_evaluate(self) -> tuple[dict[str, Any], list[Any]]:
        """Trains, evaluates new checkpoints meanwhile and the last one at the end, and exports the model.

        Returns:
            The metrics of the last evaluation, and what was exported.
        """
        monitors = list(self._train_monitors)
        if self._min_eval_frequency:
            validation = ValidationMonitor(
                input_fn=self._eval_input_fn,
                eval_steps=self._eval_steps,
                metrics=self._eval_metrics,
                every_n_steps=self._min_eval_frequency,
                hooks=self._eval_hooks,
            )
            monitors.append(validation if isinstance(self._estimator, LearnsFromArrays) else self._checks(validation))
        self._train(monitors, self._train_steps)
        results = self._evaluate(self._eval_steps, None)
        return results, self._maybe_export(results)

    local_run = train_and_evaluate

    def continuous_train_and_eval(
        self, continuous_eval_predicate_fn: Callable[[Any], bool] | None = None
    ) -> tuple[dict[str, Any] | None, list[Any]]:
        """Trains and evaluates in turns, as long as a function of the last evaluation says so, or to the last step.

        Args:
            continuous_eval_predicate_fn: is given None before the first evaluation; None: always goes on.

        Returns:
            The metrics of the last evaluation, and what was exported.
        """
        results: dict[str, Any] | None = None
        at_once = self._train_steps_per_iteration or max((self._train_steps or 10_000) // 10, 1)
        goes_on = continuous_eval_predicate_fn or (lambda _: True)
        while goes_on(results):
            step = 0 if results is None else int(results[tf.GraphKeys.GLOBAL_STEP])
            if self._train_steps is not None and step >= self._train_steps:
                break
            self._train(self._train_monitors, None, at_once)
            results = self._evaluate(self._eval_steps, "one_pass")
        return results, self._maybe_export(results)

    def test(self) -> tuple[dict[str, Any], list[Any]]:
        """A step of training and of evaluation, to see that they work."""
        self._train(self._train_monitors, 1)
        return self._evaluate(1, "one_pass"), []

    def _train(
        self, monitors: Sequence[tf.train.SessionRunHook], last_step: int | None, steps: int | None = None
    ) -> tf.estimator.Estimator:
        if isinstance(self._estimator, LearnsFromArrays):
            return self._estimator.fit(
                input_fn=self._train_input_fn, monitors=monitors, steps=steps, max_steps=last_step
            )
        hooks = [RunHookAdapterForMonitors([one]) if isinstance(one, BaseMonitor) else one for one in monitors]
        return self._estimator.train(self._train_input_fn, hooks=hooks, steps=steps, max_steps=last_step)

    def _maybe_export(self, results: dict[str, Any] | None) -> list[Any]:
        folder = f"{self._estimator.model_dir}/export"
        return [
            strategy.export(self._estimator, f"{folder}/{strategy.name}", eval_result=results)
            for strategy in self._strategies
        ]

    def _evaluate(self, steps: int | None, name: str | None) -> dict[str, Any]:
        more: dict[str, Any] = {} if self._eval_metrics is None else {"metrics": self._eval_metrics}
        results: dict[str, Any] = self._estimator.evaluate(
            input_fn=self._eval_input_fn, steps=steps, name=name, hooks=self._eval_hooks, **more
        )
        return results

    def _checks(self, validation: ValidationMonitor) -> ValidationMonitor:
        validation.set_estimator(_WithoutArrays(self._estimator))
        return validation


class _WithoutArrays:
    """An estimator of `tf.estimator`, evaluated as a `ValidationMonitor` asks for it."""

    def __init__(self, estimator: tf.estimator.Estimator) -> None:
        self._estimator = estimator

    def latest_checkpoint(self) -> str | None:
        return self._estimator.latest_checkpoint()

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None,
        hooks: Sequence[tf.train.SessionRunHook] | None,
        name: str | None,
        checkpoint_path: str,
        **_: PassedOn,
    ) -> dict[str, Any]:
        return self._estimator.evaluate(input_fn, steps, hooks, checkpoint_path, name)


def run(
    experiment_fn: Callable[..., Experiment],
    output_dir: str | None = None,
    schedule: str | None = None,
    run_config: LearnRunConfig | tf.estimator.RunConfig | None = None,
    hparams: PassedOn = None,
) -> Outcome:
    """Makes an experiment and does one thing with it.

    Args:
        experiment_fn: takes `output_dir`; or, where there is a `run_config`, it and `hparams`.
        schedule: the name of a method of `Experiment`; None: train_and_evaluate.

    Returns:
        What the method returns.

    Raises:
        ValueError: there is no such method, or neither a folder nor settings, or both.
        TypeError: `experiment_fn` makes something else.
    """
    if (output_dir is None) == (run_config is None):
        raise ValueError("Must provide either `output_dir` or `run_config`, and not both.")
    if run_config is not None:
        if run_config.model_dir is None:
            raise ValueError("Must specify a model directory in `run_config`.")
        count = len(inspect.signature(experiment_fn).parameters)
        experiment = experiment_fn(*(run_config, hparams)[: max(count, 1)])
    else:
        experiment = experiment_fn(output_dir)
    if not isinstance(experiment, Experiment):
        raise TypeError(f"`experiment_fn` should return an Experiment, got {type(experiment).__name__}")
    wanted = schedule or "train_and_evaluate"
    method = getattr(experiment, wanted, None)
    if wanted.startswith("_") or not callable(method):
        known = [name for name in dir(Experiment) if name[0] != "_" and callable(getattr(Experiment, name))]
        raise ValueError(f"Schedule references non-existent task {wanted!r}; there are {', '.join(known)}")
    return method()
