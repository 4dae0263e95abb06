"""Heads of `tf.contrib.learn` whose labels are classes: one of two, one of several, several at once."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.contrib.learn.heads import LearnHead, Losses, SingleLearnHead, mean_losses
from anabranch.contrib.learn.keys import LearnMetricKey, LearnPredictionKey, LearnProblemType

#: a value and the operation that updates it, by name
Metrics: TypeAlias = dict[str, tuple[Any, Any]]
#: takes labels, logits and weights, and gives a scalar
LossFunction: TypeAlias = Callable[..., Any]


class _ClassesHead(SingleLearnHead):
    """A head of classes.

    Args:
        loss_fn: the loss of labels, logits and weights; None: that of the head.
        thresholds: of probabilities, for metrics; None: 0.5.
        metric_class_ids: the classes that have metrics of their own.
        further: other arguments of `SingleLearnHead`.
    """

    problem_type = LearnProblemType.CLASSIFICATION

    def __init__(
        self,
        logits_dimension: int,
        loss_fn: LossFunction | None,
        thresholds: Sequence[float] | None,
        metric_class_ids: Sequence[int] | None,
        *further: PassedOn,
    ) -> None:
        super().__init__(logits_dimension, *further)
        if loss_fn is not None:
            missing = {"labels", "logits", "weights"} - set(inspect.signature(loss_fn).parameters)
            if missing:
                raise ValueError(f"Argument {min(missing)} not found in loss_fn, which takes labels, logits, weights")
        self._loss_fn, self._thresholds = loss_fn, tuple(thresholds or (0.5,))
        self._class_ids = tuple(metric_class_ids or ())
        for one in self._class_ids:
            if not 0 <= one < logits_dimension:
                raise ValueError(f"Class ID {one} not in [0, {logits_dimension}).")

    def losses(self, labels: PassedOn, logits: tf.Tensor, weights: TensorLike) -> Losses:
        if self._loss_fn is None:
            return self._own_losses(labels, logits, weights)
        ids = self._ids(labels)
        loss = self._loss_fn(ids, logits) if weights is None else self._loss_fn(ids, logits, weights)
        return loss, loss

    @abc.abstractmethod
    def _own_losses(self, labels: PassedOn, logits: tf.Tensor, weights: TensorLike) -> Losses:
        """As `losses`, where no function was given."""

    def _ids(self, labels: PassedOn) -> Any:
        """The labels as numbers."""
        return labels

    def _names_of_classes(self, batch: tf.Tensor) -> Any:
        """What each class is called, string [batch, classes]."""
        return tf.as_string(tf.tile(tf.expand_dims(tf.range(tf.shape(batch)[1]), 0), [tf.shape(batch)[0], 1]))

    def output_alternatives(self, predictions: Mapping[str, Any]) -> dict[Any, tuple[int, Mapping[str, Any]]]:
        probabilities = predictions[LearnPredictionKey.PROBABILITIES]
        exported = {
            LearnPredictionKey.PROBABILITIES: probabilities,
            LearnPredictionKey.CLASSES: self._names_of_classes(probabilities),
        }
        return {self.head_name: (self.problem_type, exported)}


class _LogisticHead(_ClassesHead):
    """One of two classes, of one logit."""

    problem_type = LearnProblemType.LOGISTIC_REGRESSION
    _scope = "binary_logistic_head"

    def _own_losses(self, labels: PassedOn, logits: tf.Tensor, weights: TensorLike) -> Losses:
        return mean_losses(tf.nn.sigmoid_cross_entropy_with_logits(labels=_column(labels), logits=logits), weights)

    def predictions(self, logits: tf.Tensor) -> dict[str, Any]:
        both = _both_logits(logits)
        return {
            LearnPredictionKey.LOGITS: logits,
            LearnPredictionKey.LOGISTIC: tf.sigmoid(logits, name=LearnPredictionKey.LOGISTIC),
            LearnPredictionKey.PROBABILITIES: tf.nn.softmax(both, name=LearnPredictionKey.PROBABILITIES),
            LearnPredictionKey.CLASSES: tf.argmax(both, 1, name=LearnPredictionKey.CLASSES),
        }

    def metrics(self, predictions: Mapping[str, Any], labels: PassedOn, weights: TensorLike) -> Metrics:
        expected, logistic = _column(labels), predictions[LearnPredictionKey.LOGISTIC]
        found = {
            LearnMetricKey.ACCURACY: tf.metrics.accuracy(
                expected, tf.expand_dims(predictions[LearnPredictionKey.CLASSES], 1), weights
            ),
            LearnMetricKey.PREDICTION_MEAN: _mean(logistic, weights),
            LearnMetricKey.LABEL_MEAN: _mean(expected, weights),
            LearnMetricKey.ACCURACY_BASELINE: _mean(expected, weights),
            LearnMetricKey.AUC: _area(logistic, expected, weights),
            LearnMetricKey.AUC_PR: _area(logistic, expected, weights, curve="PR"),
        }
        for threshold in self._thresholds:
            chosen = tf.cast(tf.greater_equal(logistic, threshold), tf.float32)
            found[LearnMetricKey.ACCURACY_MEAN % threshold] = tf.metrics.accuracy(expected, chosen, weights)
            found[LearnMetricKey.PRECISION_MEAN % threshold] = _first(
                tf.metrics.precision_at_thresholds(expected, logistic, [threshold], weights)
            )
            found[LearnMetricKey.RECALL_MEAN % threshold] = _first(
                tf.metrics.recall_at_thresholds(expected, logistic, [threshold], weights)
            )
        return found


class _MachineHead(_ClassesHead):
    """One of two classes, by a support vector machine."""

    problem_type = LearnProblemType.LOGISTIC_REGRESSION
    _scope = "binary_svm_head"

    def _own_losses(self, labels: PassedOn, logits: tf.Tensor, weights: TensorLike) -> Losses:
        none = tf.losses.Reduction.NONE
        return mean_losses(tf.losses.hinge_loss(_column(labels), logits, reduction=none), weights)

    def predictions(self, logits: tf.Tensor) -> dict[str, Any]:
        classes = tf.argmax(_both_logits(logits), 1, name=LearnPredictionKey.CLASSES)
        return {LearnPredictionKey.LOGITS: logits, LearnPredictionKey.CLASSES: classes}

    def metrics(self, predictions: Mapping[str, Any], labels: PassedOn, weights: TensorLike) -> Metrics:
        classes = tf.expand_dims(predictions[LearnPredictionKey.CLASSES], 1)
        return {LearnMetricKey.ACCURACY: tf.metrics.accuracy(_column(labels), classes, weights)}

    def output_alternatives(self, predictions: Mapping[str, Any]) -> dict[Any, tuple[int, Mapping[str, Any]]]:
        return SingleLearnHead.output_alternatives(self, predictions)


class _SoftmaxHead(_ClassesHead):
    """One of several classes."""

    _scope = "multi_class_head"

    def __init__(self, label_keys: Sequence[str] | None, n_classes: int, *further: PassedOn) -> None:
        super().__init__(n_classes, *further)
        if label_keys and len(label_keys) != n_classes:
            raise ValueError("Length of label_keys must equal n_classes.")
        self._keys = list(label_keys or ())

    def checked_labels(self, labels: TensorLike) -> Any:
        said = super().checked_labels(labels)
        if not self._keys:
            return said, said
        table = tf.contrib.lookup.index_table_from_tensor(self._keys, name="label_id_lookup")
        return said, table.lookup(said)

    def _ids(self, labels: PassedOn) -> Any:
        return labels[1]

    def _names_of_classes(self, batch: tf.Tensor) -> Any:
        if not self._keys:
            return super()._names_of_classes(batch)
        return tf.tile(tf.expand_dims(self._keys, 0), [tf.shape(batch)[0], 1], name="classes_tensor")

    def _own_losses(self, labels: PassedOn, logits: tf.Tensor, weights: TensorLike) -> Losses:
        ids = self._ids(labels)
        if not ids.dtype.is_integer:
            raise ValueError(f"Labels dtype should be integer Instead got {ids.dtype}.")
        vector = tf.squeeze(ids, [1]) if ids.shape.ndims == 2 else ids
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=vector, logits=logits)
        return mean_losses(
            tf.expand_dims(losses, 1) if ids.shape.ndims == 2 or weights is not None else losses, weights
        )

    def predictions(self, logits: tf.Tensor) -> dict[str, Any]:
        classes: Any = tf.argmax(logits, 1, name=LearnPredictionKey.CLASSES)
        if self._keys:
            names = tf.contrib.lookup.index_to_string_table_from_tensor(self._keys, name="class_string_lookup")
            classes = names.lookup(classes)
        return {
            LearnPredictionKey.LOGITS: logits,
            LearnPredictionKey.PROBABILITIES: tf.nn.softmax(logits, name=LearnPredictionKey.PROBABILITIES),
            LearnPredictionKey.CLASSES: classes,
        }

    def metrics(self, predictions: Mapping[str, Any], labels: PassedOn, weights: TensorLike) -> Metrics:
        classes = predictions[LearnPredictionKey.CLASSES]
        said = tf.squeeze(labels[0], [1]) if labels[0].shape.ndims == 2 else labels[0]
        of_each = None if weights is None else tf.reshape(weights * tf.ones([tf.shape(classes)[0], 1]), [-1])
        found = {LearnMetricKey.ACCURACY: tf.metrics.accuracy(said, classes, of_each)}
        if self._keys:
            return found
        for one in self._class_ids:
            found[LearnMetricKey.CLASS_PREDICTION_MEAN % one] = _mean(tf.equal(classes, one), of_each)
            found[LearnMetricKey.CLASS_LABEL_MEAN % one] = _mean(tf.equal(tf.cast(said, tf.int64), one), of_each)
            found[LearnMetricKey.CLASS_PROBABILITY_MEAN % one] = _mean(
                predictions[LearnPredictionKey.PROBABILITIES][:, one], of_each
            )
            found[LearnMetricKey.CLASS_LOGITS_MEAN % one] = _mean(
                predictions[LearnPredictionKey.LOGITS][:, one], of_each
            )
        return found


class _LabelsHead(_ClassesHead):
    """Any number of several classes."""

    _scope = "multi_label_head"

    def checked_labels(self, labels: TensorLike) -> Any:
        said = self._chosen_labels(labels)
        if isinstance(said, tf.SparseTensor):
            return tf.cast(tf.sparse_to_indicator(said, self.logits_dimension), tf.int64)
        return said

    def _own_losses(self, labels: PassedOn, logits: tf.Tensor, weights: TensorLike) -> Losses:
        expected = tf.cast(labels, tf.float32)
        return mean_losses(tf.nn.sigmoid_cross_entropy_with_logits(labels=expected, logits=logits), weights)

    def predictions(self, logits: tf.Tensor) -> dict[str, Any]:
        return {
            LearnPredictionKey.LOGITS: logits,
            LearnPredictionKey.PROBABILITIES: tf.sigmoid(logits, name=LearnPredictionKey.PROBABILITIES),
            LearnPredictionKey.CLASSES: tf.cast(tf.greater(logits, 0), tf.int64, name=LearnPredictionKey.CLASSES),
        }

    def metrics(self, predictions: Mapping[str, Any], labels: PassedOn, weights: TensorLike) -> Metrics:
        probabilities = predictions[LearnPredictionKey.PROBABILITIES]
        spread = None if weights is None else weights * tf.ones_like(probabilities)
        found = {
            LearnMetricKey.ACCURACY: tf.metrics.accuracy(labels, predictions[LearnPredictionKey.CLASSES], spread),
            LearnMetricKey.AUC: _area(probabilities, labels, spread),
            LearnMetricKey.AUC_PR: _area(probabilities, labels, spread, curve="PR"),
        }
        means = (
            (LearnMetricKey.CLASS_PREDICTION_MEAN, predictions[LearnPredictionKey.CLASSES]),
            (LearnMetricKey.CLASS_LABEL_MEAN, labels),
            (LearnMetricKey.CLASS_PROBABILITY_MEAN, probabilities),
            (LearnMetricKey.CLASS_LOGITS_MEAN, predictions[LearnPredictionKey.LOGITS]),
        )
        for one in self._class_ids:
            weight = None if spread is None else spread[:, one]
            for key, values in means:
                found[key % one] = _mean(values[:, one], weight)
            of_class = probabilities[:, one], labels[:, one], weight
            found[LearnMetricKey.CLASS_AUC % one] = _area(*of_class)
            found[LearnMetricKey.CLASS_AUC_PR % one] = _area(*of_class, curve="PR")
        return found


def _column(labels: tf.Tensor) -> Any:
    """Labels as float [batch, 1]."""
    return tf.reshape(tf.cast(labels, tf.float32), [-1, 1])


def _both_logits(logits: tf.Tensor) -> Any:
    return tf.concat([tf.zeros_like(logits), logits], 1)


def _mean(values: TensorLike, weights: TensorLike) -> tuple[Any, Any]:
    numbers = tf.cast(values, tf.float32)
    metric: tuple[Any, Any] = tf.metrics.mean(numbers, None if weights is None else weights * tf.ones_like(numbers))
    return metric


def _area(probabilities: tf.Tensor, labels: TensorLike, weights: TensorLike, curve: str = "ROC") -> tuple[Any, Any]:
    spread = None if weights is None else weights * tf.ones_like(probabilities)
    metric: tuple[Any, Any] = tf.metrics.auc(tf.cast(labels, tf.bool), probabilities, spread, curve=curve)
    return metric


def _first(metric: tuple[Any, Any]) -> tuple[Any, Any]:
    value, update = metric
    return tf.squeeze(value), tf.squeeze(update)


def multi_class_head(
    n_classes: int,
    label_name: str | None = None,
    weight_column_name: str | None = None,
    enable_centered_bias: bool = False,
    head_name: str | None = None,
    thresholds: Sequence[float] | None = None,
    metric_class_ids: Sequence[int] | None = None,
    loss_fn: LossFunction | None = None,
    label_keys: Sequence[str] | None = None,
) -> LearnHead:
    """A head for one of several classes; of two classes, it has one logit.

    Args:
        n_classes: how many there are.
        label_name, weight_column_name, enable_centered_bias, head_name: as `regression_head` has them.
        thresholds: of probabilities, for metrics of two classes; None: 0.5.
        metric_class_ids: of more than two, the classes that have metrics of their own.
        loss_fn: takes labels, logits and weights, and gives a scalar; None: the cross entropy.
        label_keys: of more than two, what the classes are called, where labels are strings.

    Raises:
        ValueError: fewer than two classes, or a wrong number of `label_keys`, or a class that there is not.
    """
    if n_classes is None or n_classes < 2:
        raise ValueError(f"n_classes must be > 1 for classification: {n_classes}.")
    further = label_name, weight_column_name, enable_centered_bias, head_name
    if n_classes > 2:
        return _SoftmaxHead(label_keys, n_classes, loss_fn, thresholds, metric_class_ids, *further)
    if metric_class_ids:
        raise ValueError("metric_class_ids invalid for n_classes==2.")
    if label_keys:
        raise ValueError("label_keys is not supported for n_classes=2.")
    return _LogisticHead(1, loss_fn, thresholds, None, *further)


def binary_svm_head(
    label_name: str | None = None,
    weight_column_name: str | None = None,
    enable_centered_bias: bool = False,
    head_name: str | None = None,
    thresholds: Sequence[float] | None = None,
) -> LearnHead:
    """A head for one of two classes, whose loss is the hinge loss; arguments are those of `multi_class_head`."""
    further = label_name, weight_column_name, enable_centered_bias, head_name
    return _MachineHead(1, None, thresholds, None, *further)


def multi_label_head(
    n_classes: int,
    label_name: str | None = None,
    weight_column_name: str | None = None,
    enable_centered_bias: bool = False,
    head_name: str | None = None,
    thresholds: Sequence[float] | None = None,
    metric_class_ids: Sequence[int] | None = None,
    loss_fn: LossFunction | None = None,
) -> LearnHead:
    """A head for any number of several classes, whose labels are [batch, n_classes] of 0 and 1, or sparse.

    Args:
        n_classes, label_name, weight_column_name, enable_centered_bias, head_name, thresholds, metric_class_ids,
            loss_fn: as `multi_class_head` has them.

    Raises:
        ValueError: fewer than two classes.
    """
    if n_classes < 2:
        raise ValueError("n_classes must be > 1 for classification.")
    further = label_name, weight_column_name, enable_centered_bias, head_name
    return _LabelsHead(n_classes, loss_fn, thresholds, metric_class_ids, *further)
