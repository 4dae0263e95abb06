"""What `tf.contrib.learn` calls a model that can be trained, and one that can be evaluated."""

from __future__ import annotations

import abc
from typing import Any, TypeAlias

from anabranch.contrib.arguments import PassedOn

#: the model itself
Fitted: TypeAlias = Any


class Trainable(abc.ABC):
    """Something with `fit`; the models of `tf.contrib.learn` are."""

    @abc.abstractmethod
    def fit(
        self,
        x: PassedOn = None,
        y: PassedOn = None,
        input_fn: PassedOn = None,
        steps: int | None = None,
        batch_size: int | None = None,
        monitors: PassedOn = None,
        max_steps: int | None = None,
    ) -> Fitted:
        """Trains; see `tf.contrib.learn.Estimator.fit`."""


class Evaluable(abc.ABC):
    """Something with `evaluate`, and a folder of checkpoints; the models of `tf.contrib.learn` are."""

    @property
    @abc.abstractmethod
    def model_dir(self) -> str:
        """The folder of checkpoints."""

    @abc.abstractmethod
    def evaluate(
        self,
        x: PassedOn = None,
        y: PassedOn = None,
        input_fn: PassedOn = None,
        feed_fn: PassedOn = None,
        batch_size: int | None = None,
        steps: int | None = None,
        metrics: PassedOn = None,
        name: str | None = None,
        checkpoint_path: str | None = None,
        hooks: PassedOn = None,
    ) -> dict[str, Any]:
        """The metrics on data; see `tf.contrib.learn.Estimator.evaluate`."""


class BaseEstimator(Trainable, Evaluable):
    """A model of `tf.contrib.learn`, to ask for by `isinstance`; make an `Estimator` for one of your own."""
