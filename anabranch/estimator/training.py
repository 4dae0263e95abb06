"""Training with evaluations in between: each new checkpoint is evaluated, and exported by whom the program names.

In one process, training pauses for each evaluation. On a cluster, each task calls the same function, and does what its
role says: the chief and the workers train, parameter servers serve, and an evaluator, which belongs to no cluster,
waits for the chief's checkpoints.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Self

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.estimator.estimators import Estimator
from anabranch.estimator.exporters import Exporter
from anabranch.estimator.model_functions import InputFunction
from anabranch.estimator.task_role import EVALUATOR, MASTER, PS

#: how often (s) an evaluator looks for a new checkpoint
_LOOK_EVERY: Final = 1.0


class _TrainFields(NamedTuple):
    input_fn: InputFunction
    max_steps: int | None
    hooks: tuple[tf.train.SessionRunHook, ...]


class TrainSpec(_TrainFields):
    """What to train on.

    Args:
        input_fn: as for `Estimator.train`.
        max_steps: the global step to stop at; None: when the input ends.
        hooks: of the session.

    Raises:
        ValueError: the number is not positive; TypeError: something is no function or no hook.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: InputFunction,
        max_steps: int | None = None,
        hooks: Iterable[tf.train.SessionRunHook] | None = None,
    ) -> Self:
        if not callable(input_fn):
            raise TypeError(f"input_fn must be callable, given: {input_fn}")
        if max_steps is not None and max_steps <= 0:
            raise ValueError(f"Must specify max_steps > 0, given: {max_steps}")
        return super().__new__(cls, input_fn, max_steps, _checked(hooks, tf.train.SessionRunHook, "hooks"))


class _EvalFields(NamedTuple):
    input_fn: InputFunction
    steps: int | None
    name: str | None
    hooks: tuple[tf.train.SessionRunHook, ...]
    exporters: tuple[Exporter, ...]
    start_delay_secs: float
    throttle_secs: float


class EvalSpec(_EvalFields):
    """What to evaluate on.

    Args:
        input_fn: as for `Estimator.evaluate`.
        steps: how many batches; None: until the input ends.
        name: of the evaluation.
        hooks: of the session.
        exporters: an `Exporter`, or several with different names.
        start_delay_secs: seconds before an evaluator looks for checkpoints; training is not held up otherwise.
        throttle_secs: seconds between evaluations, at least.

    Raises:
        ValueError: a number is not positive, or two exporters have one name; TypeError: something is of another kind.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: InputFunction,
        steps: int | None = 100,
        name: str | None = None,
        hooks: Iterable[tf.train.SessionRunHook] | None = None,
        exporters: Iterable[Exporter] | Exporter | None = None,
        start_delay_secs: float = 120,
        throttle_secs: float = 600,
    ) -> Self:
        if not callable(input_fn):
            raise TypeError(f"input_fn must be callable, given: {input_fn}")
        if steps is not None and steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {steps}")
        if start_delay_secs < 0 or throttle_secs < 0:
            raise ValueError(
                f"start_delay_secs and throttle_secs must be >= 0, got {start_delay_secs}, {throttle_secs}"
            )
        listed = _checked([exporters] if isinstance(exporters, Exporter) else exporters, Exporter, "exporters")
        names = [exporter.name for exporter in listed]
        if len(set(names)) < len(names):
            raise ValueError(f"`exporters` must have unique names. Such names present in the list: {names}")
        checked_hooks = _checked(hooks, tf.train.SessionRunHook, "hooks")
        return super().__new__(cls, input_fn, steps, name, checked_hooks, listed, start_delay_secs, throttle_secs)


def _checked(values: Iterable[PassedOn] | None, kind: type, what: str) -> tuple[Any, ...]:
    checked = tuple(values or ())
    for value in checked:
        if not isinstance(value, kind):
            raise TypeError(f"All {what} must be `{kind.__name__}` instances, given: {value}")
    return checked


class _EvaluatesCheckpoints(tf.train.CheckpointSaverListener):
    """Evaluates the checkpoints that training saves, with a pause after each evaluation."""

    def __init__(self, estimator: Estimator, spec: EvalSpec, max_steps: int | None) -> None:
        self._estimator, self._spec, self._max_steps = estimator, spec, max_steps
        self._ended: float | None = None
        self._evaluated_step: int | None = None
        self._is_first, self._is_done = True, False
        self.result: dict[str, Any] | None = None
        self.exported: list[bytes | None] = []

    def begin(self) -> None:
        self._ended = None

    def after_save(self, session: PassedOn, global_step_value: int) -> None:
        if self._is_first:  # the model as it was before training
            self._is_first = False
            return
        if self._ended is None or time.monotonic() - self._ended >= self._spec.throttle_secs:
            self.evaluate(self._estimator.latest_checkpoint(), global_step_value, is_last=False)

    def end(self, session: PassedOn, global_step_value: int) -> None:
        self.evaluate(self._estimator.latest_checkpoint(), global_step_value, is_last=True)

    @property
    def is_done(self) -> bool:
        """Whether the model has been evaluated as it is after all steps."""
        return self._is_done

    def evaluate(self, path: str | None, step: int, is_last: bool) -> None:
        """Evaluates a checkpoint of that step, unless that was done, and lets exporters see it."""
        if path is None or self._is_done:
            return
        spec = self._spec
        if self.result is None or self._evaluated_step != step:
            self.result = self._estimator.evaluate(spec.input_fn, spec.steps, spec.hooks, path, spec.name)
            self._evaluated_step = step
        elif not is_last:
            return
        self._ended = time.monotonic()
        self._is_done = is_last or (self._max_steps is not None and step >= self._max_steps)
        self._export(path, self.result)

    def _export(self, path: str, result: Mapping[str, Any]) -> None:
        folder = os.path.join(self._estimator.model_dir, "export")
        self.exported = [
            exporter.export(self._estimator, os.path.join(folder, exporter.name), path, result, self._is_done)
            for exporter in self._spec.exporters
        ]


def train_and_evaluate(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[dict[str, Any] | None, list[bytes | None]]:
    """Trains an estimator, and evaluates what it saves: in this process, or as a task of the cluster in TF_CONFIG.

    In one process, an evaluation follows a checkpoint, not sooner than `throttle_secs` after the last, and the end of
    training. Checkpoints come as the estimator's `RunConfig` says.

    On a cluster every task makes the same call. The task "chief/0" initializes the model, trains and saves; workers
    train; a parameter server serves, and this never returns. A task "evaluator/0", beside the cluster, evaluates and
    exports until a checkpoint of `max_steps` has come. All must see `model_dir`.

    Args:
        estimator: to train.
        train_spec: on what.
        eval_spec: on what else, and who exports.

    Returns:
        The metrics of the last evaluation, and what each exporter exported after it. None, and nothing, where the model
        was trained for `max_steps` before, and from tasks that do not evaluate.

    Raises:
        TypeError: an argument is of another class.
        OpError: the task's server cannot be started.
    """
    for value, kind in ((estimator, Estimator), (train_spec, TrainSpec), (eval_spec, EvalSpec)):
        if not isinstance(value, kind):
            raise TypeError(f"expected a tf.estimator.{kind.__name__}, given: {type(value).__name__}")
    config = estimator.config
    evaluations = _EvaluatesCheckpoints(estimator, eval_spec, train_spec.max_steps)
    if config.task_type == EVALUATOR:
        _evaluate_until_trained(estimator, evaluations, eval_spec, train_spec.max_steps)
        return evaluations.result, evaluations.exported
    if config.task_role.is_alone:
        _train(estimator, train_spec, [evaluations])
        return evaluations.result, evaluations.exported
    with tf.train.Server(
        config.cluster_spec,
        job_name=config.task_type,
        task_index=config.task_id,
        protocol=config.protocol,
        config=config.session_config or config.task_role.session_config(),
    ) as server:
        if config.task_type == PS:
            server.join()
        _train(estimator, train_spec, [evaluations] if config.task_type == MASTER else [])
    return evaluations.result, evaluations.exported


def _train(estimator: Estimator, spec: TrainSpec, listeners: list[tf.train.CheckpointSaverListener]) -> None:
    estimator.train(spec.input_fn, spec.hooks, max_steps=spec.max_steps, saving_listeners=listeners)


def _evaluate_until_trained(
    estimator: Estimator, evaluations: _EvaluatesCheckpoints, spec: EvalSpec, max_steps: int | None
) -> None:
    """Evaluates each checkpoint that others save, until one of `max_steps` has come; without that number, for ever."""
    begun = time.monotonic()
    evaluated: str | None = None
    while not evaluations.is_done:
        path = estimator.latest_checkpoint()
        step = 0 if path is None else estimator.step_of(path)
        is_last = max_steps is not None and step >= max_steps
        pause = spec.start_delay_secs if evaluated is None else spec.throttle_secs
        # the last is not waited for longer: nothing comes after it
        if path is not None and path != evaluated and (is_last or time.monotonic() - begun >= pause):
            begun = time.monotonic()
            evaluations.evaluate(path, step, is_last)
            evaluated = path
        else:
            # nothing tells of a checkpoint but the directory, which other machines write as well
            time.sleep(_LOOK_EVERY)
