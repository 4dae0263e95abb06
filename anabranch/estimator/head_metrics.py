"""Metrics as objects: made first, given values later, so that a head can say which it has before there are any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

import anabranch as tf
from anabranch.contrib.arguments import TensorLike

#: what `tf.metrics` gives: a value, and an operation that updates it
ValueAndUpdate: TypeAlias = "tuple[tf.Tensor, tf.Tensor]"


@runtime_checkable
class MetricObject(Protocol):
    """What `EstimatorSpec` takes as a metric besides a pair: the metrics of heads, and Keras'."""

    @property
    def updates(self) -> Any:
        """The operations that add a batch."""

    def result(self) -> Any:
        """The value over all batches."""


class Metric:
    """A number over all batches of an evaluation.

    Args:
        name: of the metric.
        function: gives a value and its update, as the functions of `tf.metrics` do.
    """

    def __init__(self, name: str, function: Callable[..., ValueAndUpdate]) -> None:
        self._name, self._function = name, function
        self._pair: ValueAndUpdate | None = None

    @property
    def name(self) -> str:
        """The name of the metric."""
        return self._name

    @property
    def updates(self) -> list[tf.Tensor]:
        """The operations that add a batch; none before `update_state`."""
        return [] if self._pair is None else [self._pair[1]]

    def result(self) -> tf.Tensor:
        """The value over all batches.

        Raises:
            ValueError: the metric was given no values.
        """
        if self._pair is None:
            raise ValueError(
                f"metric {self._name!r} has no values; call its update_state, or its head's update_metrics"
            )
        return self._pair[0]

    def _update(self, *values: TensorLike, weights: TensorLike) -> tf.Tensor:
        if self._pair is not None:
            raise ValueError(
                f"metric {self._name!r} has values already; make a new one for more, as head.metrics() does"
            )
        if weights is not None:
            weights = tf.ones_like(values[0], tf.float32) * tf.cast(weights, tf.float32)
        with tf.name_scope(None):
            self._pair = self._function(*values, weights=weights)
        return self._pair[1]


class ValueMetric(Metric):
    """A metric of values alone, such as their mean."""

    def update_state(self, values: TensorLike, sample_weight: TensorLike = None) -> tf.Tensor:
        """Adds a batch.

        Args:
            values: of any shape.
            sample_weight: broadcasts to it; None: all weigh the same.

        Returns:
            The operation that adds it.

        Raises:
            ValueError: the metric has values already.
        """
        return self._update(tf.cast(values, tf.float32), weights=sample_weight)


class LabelMetric(Metric):
    """A metric that compares predictions with labels."""

    def update_state(self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike = None) -> tf.Tensor:
        """Adds a batch.

        Args:
            y_true: labels.
            y_pred: predictions, of the same shape.
            sample_weight: broadcasts to it; None: all weigh the same.

        Returns:
            The operation that adds it.

        Raises:
            ValueError: the metric has values already, or the shapes differ.
        """
        return self._update(tf.cast(y_true, tf.float32), tf.cast(y_pred, tf.float32), weights=sample_weight)


def mean(name: str) -> ValueMetric:
    """The mean of values."""
    return ValueMetric(name, tf.metrics.mean)


def larger_share(name: str) -> ValueMetric:
    """Of values 0 and 1, the share of the more frequent: what always naming the same class would reach."""

    def function(values: tf.Tensor, weights: TensorLike) -> ValueAndUpdate:
        value, update = tf.metrics.mean(values, weights=weights)
        return tf.maximum(value, 1 - value), tf.maximum(update, 1 - update)

    return ValueMetric(name, function)


def accuracy(name: str, threshold: float | None = None) -> LabelMetric:
    """The share of predictions that are the labels; with a threshold, predictions above it mean 1 and others 0."""
    return LabelMetric(name, _decided(tf.metrics.accuracy, threshold))


def precision(name: str, threshold: float = 0.5) -> LabelMetric:
    """Of predictions above a threshold, the share whose labels are 1."""
    return LabelMetric(name, _decided(tf.metrics.precision, threshold))


def recall(name: str, threshold: float = 0.5) -> LabelMetric:
    """Of labels that are 1, the share whose predictions are above a threshold."""
    return LabelMetric(name, _decided(tf.metrics.recall, threshold))


def auc(name: str) -> LabelMetric:
    """The area under the curve of true positives over false positives."""
    return LabelMetric(name, tf.metrics.auc)


def auc_precision_recall(name: str) -> LabelMetric:
    """The area under the curve of precision over recall, interpolated between thresholds by true positives."""

    def function(labels: tf.Tensor, predictions: tf.Tensor, weights: TensorLike) -> ValueAndUpdate:
        return tf.metrics.auc(
            labels, predictions, weights=weights, curve="PR", summation_method="careful_interpolation"
        )

    return LabelMetric(name, function)


def _decided(function: Callable[..., ValueAndUpdate], threshold: float | None) -> Callable[..., ValueAndUpdate]:
    """The function of labels and of what predictions mean."""
    if threshold is None:
        return function

    def of_decisions(labels: tf.Tensor, predictions: tf.Tensor, weights: TensorLike) -> ValueAndUpdate:
        return function(labels, tf.cast(predictions > threshold, tf.float32), weights=weights)

    return of_decisions
