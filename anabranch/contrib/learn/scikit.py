"""`tf.contrib.learn.SKCompat`: an estimator that arrays are given to, and the words around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeAlias

import numpy as np

from anabranch.contrib.arguments import PassedOn

#: an array, or arrays by name
Predictions: TypeAlias = np.typing.NDArray[Any] | dict[str, np.typing.NDArray[Any]]


class ArrayCompatibleEstimator:
    """The methods of scikit-learn's estimators, around one of `tf.contrib.learn`; its `SKCompat`.

    Args:
        estimator: trains and predicts.
    """

    def __init__(self, estimator: PassedOn) -> None:
        self._estimator = estimator

    def fit(
        self,
        x: PassedOn,
        y: PassedOn,
        batch_size: int = 128,
        steps: int | None = None,
        max_steps: int | None = None,
        monitors: Sequence[Any] | None = None,
    ) -> Self:
        """Trains on arrays; see `tf.contrib.learn.Estimator.fit`."""
        self._estimator.fit(x, y, batch_size=batch_size, steps=steps, max_steps=max_steps, monitors=monitors)
        return self

    def score(
        self,
        x: PassedOn,
        y: PassedOn,
        batch_size: int = 128,
        steps: int | None = None,
        metrics: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """The metrics on arrays; see `tf.contrib.learn.Estimator.evaluate`."""
        found: dict[str, Any] = self._estimator.evaluate(
            x, y, batch_size=batch_size, steps=steps, metrics=metrics, name=name
        )
        return found

    def predict(self, x: PassedOn, batch_size: int = 128, outputs: Sequence[str] | None = None) -> Predictions:
        """What the model says to each example: an array, or arrays by name."""
        found: Predictions = self._estimator.predict(x, batch_size=batch_size, outputs=outputs, as_iterable=False)
        return found


class NotFittedError(ValueError, AttributeError):
    """A model is asked before it has learnt."""
