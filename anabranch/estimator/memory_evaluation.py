"""Evaluations of a model as it is in training, without checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.estimator.estimators import Estimator
from anabranch.estimator.model_functions import InputFunction


class InMemoryEvaluatorHook(tf.train.SessionRunHook):
    """Evaluates an estimator before, while and after it trains, on the variables that training has in memory.

    It is for training in one process. The graph of the evaluation is built once.

    Args:
        estimator: that is trained.
        input_fn, steps, hooks, name: as for `Estimator.evaluate`.
        every_n_iter: how many steps of training lie between two evaluations.

    Raises:
        ValueError: a number is not positive, or the estimator is one of several tasks.

    Example:
        >>> hook = tf.estimator.experimental.InMemoryEvaluatorHook(model, test_data, every_n_iter=500)  # doctest: +SKIP
        >>> model.train(training_data, hooks=[hook], steps=2000)  # doctest: +SKIP
    """

    def __init__(
        self,
        estimator: Estimator,
        input_fn: InputFunction,
        steps: int | None = None,
        hooks: Sequence[tf.train.SessionRunHook] | None = None,
        name: str | None = None,
        every_n_iter: int = 100,
    ) -> None:
        if every_n_iter is None or every_n_iter <= 0:
            raise ValueError(f"invalid every_n_iter={every_n_iter}.")
        if steps is not None and steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {steps}")
        if estimator.config.num_ps_replicas > 0 or estimator.config.num_worker_replicas > 1:
            raise ValueError("InMemoryEvaluatorHook evaluates in the one process that trains, not in a cluster.")
        self._estimator, self._input_fn, self._steps = estimator, input_fn, steps
        self._hooks, self._name, self._every = tuple(hooks or ()), name, every_n_iter

    def begin(self) -> None:
        self._count = 0
        self._trained = {variable.name: variable for variable in tf.global_variables()}
        self._evaluation = self._estimator.build_evaluation(self._input_fn)
        scaffold = self._evaluation.spec.scaffold
        if scaffold.saver is not None or scaffold.init_fn is not None:
            raise ValueError("InMemoryEvaluatorHook does not support a saver or an init_fn of the model's scaffold")
        with self._evaluation.graph.as_default():
            self._setters: dict[str, tuple[tf.Tensor, tf.Operation]] = {
                variable.name: _setter(variable) for variable in tf.global_variables() if variable.name in self._trained
            }

    def after_create_session(self, session: PassedOn, coord: PassedOn) -> None:
        self._evaluate(session)

    def after_run(self, run_context: PassedOn, run_values: PassedOn) -> None:
        self._count += 1
        if self._count % self._every == 0:
            self._evaluate(run_context.session)

    def end(self, session: PassedOn) -> None:
        if self._count % self._every:
            self._evaluate(session)

    def _evaluate(self, session: PassedOn) -> None:
        values: dict[str, np.ndarray[Any, Any]] = session.run({name: self._trained[name] for name in self._setters})

        def set_variables(scaffold: tf.train.Scaffold, evaluating: PassedOn) -> None:
            assignments = [assignment for _, assignment in self._setters.values()]
            evaluating.run(assignments, {self._setters[name][0]: value for name, value in values.items()})

        with self._evaluation.graph.as_default():
            scaffold = tf.train.Scaffold(init_fn=set_variables, copy_from_scaffold=self._evaluation.spec.scaffold)
            self._estimator.run_evaluation(self._evaluation, scaffold, self._steps, self._hooks, None, self._name)


def _setter(variable: tf.Variable) -> tuple[tf.Tensor, tf.Operation]:
    """A placeholder, and the operation that gives its value to a variable."""
    fed = tf.placeholder(variable.dtype.base_dtype, variable.shape)
    return fed, tf.assign(variable, fed).op
