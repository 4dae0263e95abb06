"""Heads: from a network's logits and labels to a loss, metrics, predictions and what an exported model gives."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import TensorLike
from anabranch.estimator.export_outputs import ClassificationOutput, ExportOutput, PredictOutput, RegressionOutput
from anabranch.estimator.model_functions import EstimatorSpec, ModeKeys
from anabranch.feature_column.columns import Transformed
from anabranch.feature_column.numeric import NumericColumn

_DEFAULT = tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
WeightColumn: TypeAlias = "str | NumericColumn | None"


class Head(abc.ABC):
    """One kind of prediction.

    Args:
        weight_column: the feature of an example's weight; None: all weigh the same.
        loss_reduction: of `tf.losses.Reduction`: how the losses of a batch become one.

    Attributes:
        logits_dimension: how many logits an example has.
    """

    logits_dimension: int

    def __init__(self, weight_column: WeightColumn, loss_reduction: str) -> None:
        if isinstance(weight_column, str):
            weight_column = tf.feature_column.numeric_column(weight_column)
        if weight_column is not None and not isinstance(weight_column, NumericColumn):
            raise TypeError(f"weight_column must be a string or a numeric_column, got {weight_column}")
        tf.losses.Reduction.validate(loss_reduction)
        self._weight_column, self._reduction = weight_column, loss_reduction

    def spec(
        self,
        features: Mapping[str, TensorLike],
        mode: str,
        logits: tf.Tensor,
        labels: TensorLike,
        train_op_fn: Callable[[tf.Tensor], tf.Operation],
    ) -> EstimatorSpec:
        """The spec of a model.

        Args:
            features: by name.
            mode: of `ModeKeys`.
            logits: [batch, logits_dimension].
            labels: [batch] or [batch, n].
            train_op_fn: makes the training operation of the loss.

        Raises:
            ValueError: labels are missing, or have another shape or dtype.
        """
        predictions = self._predictions(logits)
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions, export_outputs=self._export_outputs(predictions))
        if labels is None:
            raise ValueError("You must provide a labels Tensor. Given: None. Check that your input_fn returns it.")
        if isinstance(labels, Mapping):
            raise ValueError(f"labels must be one tensor, got {sorted(labels)}")
        targets = self._targets(labels)
        weights: Any = 1.0
        if self._weight_column is not None:
            weights = self._weight_column.get_dense_tensor(Transformed(features))
        losses = self._losses(logits, targets)
        loss = tf.losses.compute_weighted_loss(losses, weights, reduction=self._reduction)
        if mode == ModeKeys.TRAIN:
            penalties = tf.losses.get_regularization_losses()
            whole = tf.add_n([loss, *penalties]) if penalties else loss
            return EstimatorSpec(mode, predictions, whole, train_op_fn(whole))
        with tf.name_scope("metrics"):
            metrics = self._metrics(predictions, targets, weights)
            metrics["average_loss"] = tf.metrics.mean(losses, weights=tf.ones_like(losses) * weights)
        return EstimatorSpec(mode, predictions, loss, eval_metric_ops=metrics)

    def _targets(self, labels: TensorLike) -> tf.Tensor:
        """Labels as [batch, n]."""
        tensor: tf.Tensor = tf.convert_to_tensor(labels)
        return tf.expand_dims(tensor, -1) if tensor.shape.ndims == 1 else tensor

    @abc.abstractmethod
    def _losses(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """The losses of the examples, [batch, n]."""

    @abc.abstractmethod
    def _predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Predictions by name."""

    @abc.abstractmethod
    def _metrics(
        self, predictions: Mapping[str, tf.Tensor], targets: tf.Tensor, weights: TensorLike
    ) -> dict[str, tuple[Any, Any]]:
        """Metrics by name, without the loss."""

    @abc.abstractmethod
    def _export_outputs(self, predictions: Mapping[str, tf.Tensor]) -> dict[str, ExportOutput]:
        """What an exported model gives, by signature."""


# ---------------------------------------------------------------------- numbers
class RegressionHead(Head):
    """Numbers, by squared differences.

    Args:
        label_dimension: how many numbers an example has.
        weight_column, loss_reduction: as for `Head`.
    """

    def __init__(self, label_dimension: int, weight_column: WeightColumn, loss_reduction: str) -> None:
        super().__init__(weight_column, loss_reduction)
        if label_dimension < 1:
            raise ValueError(f"Invalid label_dimension {label_dimension}.")
        self.logits_dimension = label_dimension

    def _losses(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        return tf.squared_difference(logits, targets)

    def _targets(self, labels: TensorLike) -> tf.Tensor:
        targets: tf.Tensor = tf.cast(super()._targets(labels), tf.float32)
        targets.shape.assert_is_compatible_with([None, self.logits_dimension])
        return targets

    def _predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"predictions": logits}

    def _metrics(
        self, predictions: Mapping[str, tf.Tensor], targets: tf.Tensor, weights: TensorLike
    ) -> dict[str, tuple[Any, Any]]:
        spread = tf.ones_like(targets) * weights
        return {
            "label/mean": tf.metrics.mean(targets, weights=spread),
            "prediction/mean": tf.metrics.mean(predictions["predictions"], weights=spread),
        }

    def _export_outputs(self, predictions: Mapping[str, tf.Tensor]) -> dict[str, ExportOutput]:
        regression = RegressionOutput(predictions["predictions"])
        return {_DEFAULT: regression, "regression": regression, "predict": PredictOutput(predictions)}


# ---------------------------------------------------------------------- classes
class _ClassificationHead(Head):
    """Classes: integers in [0, n_classes), or words of a vocabulary."""

    def __init__(
        self,
        n_classes: int,
        weight_column: WeightColumn,
        label_vocabulary: Sequence[str] | None,
        loss_reduction: str,
    ) -> None:
        super().__init__(weight_column, loss_reduction)
        if label_vocabulary is not None and len(label_vocabulary) != n_classes:
            size = len(label_vocabulary)
            raise ValueError(f"Length of label_vocabulary must be n_classes ({n_classes}). Given: {size}")
        self._n_classes = n_classes
        self._vocabulary = None if label_vocabulary is None else list(label_vocabulary)

    def _targets(self, labels: TensorLike) -> tf.Tensor:
        """The numbers of the classes, int64 [batch, 1]."""
        targets = super()._targets(labels)
        targets.shape.assert_is_compatible_with([None, 1])
        if self._vocabulary is not None:
            if targets.dtype.base_dtype != tf.string:
                raise ValueError(f"Labels dtype should be string since there is a vocabulary. Given label: {targets}")
            table = tf.contrib.lookup.index_table_from_tensor(tf.constant(self._vocabulary), name="class_id_lookup")
            looked_up = table.lookup(targets)
            assert isinstance(looked_up, tf.Tensor)
            targets = looked_up
        elif not (targets.dtype.is_integer or targets.dtype.is_floating):
            raise ValueError(f"Labels dtype should be integer, or give a label_vocabulary. Given label: {targets}")
        ids = tf.cast(targets, tf.int64)
        message = f"labels must be in [0, {self._n_classes})"
        with tf.control_dependencies(
            [
                tf.assert_less(ids, np.int64(self._n_classes), message=message),
                tf.assert_greater_equal(ids, np.int64(0), message=message),
            ]
        ):
            result: tf.Tensor = tf.identity(ids)
        return result

    def _classes(self, class_ids: tf.Tensor) -> tf.Tensor:
        """The names of classes: of the vocabulary, or digits."""
        if self._vocabulary is None:
            return tf.as_string(class_ids)
        return tf.gather(tf.constant(self._vocabulary), class_ids)

    def _named(self, class_ids: tf.Tensor, probabilities: tf.Tensor) -> dict[str, tf.Tensor]:
        """Predictions that name classes."""
        every = tf.range(self._n_classes)
        batch = tf.shape(probabilities)[0]
        return {
            "class_ids": class_ids,
            "classes": self._classes(class_ids),
            "all_class_ids": tf.tile(tf.expand_dims(every, 0), [batch, 1]),
            "all_classes": tf.tile(tf.expand_dims(self._classes(every), 0), [batch, 1]),
        }

    def _export_outputs(self, predictions: Mapping[str, tf.Tensor]) -> dict[str, ExportOutput]:
        classes = ClassificationOutput(predictions["probabilities"], predictions["all_classes"])
        return {_DEFAULT: classes, "classification": classes, "predict": PredictOutput(predictions)}


class MultiClassHead(_ClassificationHead):
    """One of three or more classes, by the cross entropy of a softmax.

    Args:
        n_classes: how many.
        weight_column, loss_reduction: as for `Head`.
        label_vocabulary: the classes, if labels are strings; None: labels are integers.
    """

    def __init__(
        self,
        n_classes: int,
        weight_column: WeightColumn,
        label_vocabulary: Sequence[str] | None,
        loss_reduction: str,
    ) -> None:
        super().__init__(n_classes, weight_column, label_vocabulary, loss_reduction)
        self.logits_dimension = n_classes

    def _losses(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.squeeze(targets, [-1]), logits=logits)
        return tf.expand_dims(losses, -1)

    def _predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        probabilities = tf.nn.softmax(logits, name="probabilities")
        class_ids = tf.expand_dims(tf.argmax(logits, -1), -1)
        return {"logits": logits, "probabilities": probabilities, **self._named(class_ids, probabilities)}

    def _metrics(
        self, predictions: Mapping[str, tf.Tensor], targets: tf.Tensor, weights: TensorLike
    ) -> dict[str, tuple[Any, Any]]:
        spread = tf.ones_like(targets, tf.float32) * weights
        return {"accuracy": tf.metrics.accuracy(targets, predictions["class_ids"], weights=spread)}


class BinaryHead(_ClassificationHead):
    """One of two classes, by the cross entropy of a sigmoid.

    Args:
        weight_column, loss_reduction: as for `Head`.
        label_vocabulary: as for `MultiClassHead`.
    """

    logits_dimension = 1

    def __init__(
        self, weight_column: WeightColumn, label_vocabulary: Sequence[str] | None, loss_reduction: str
    ) -> None:
        super().__init__(2, weight_column, label_vocabulary, loss_reduction)

    def _losses(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(targets, tf.float32), logits=logits)

    def _predictions(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        both = tf.concat([tf.zeros_like(logits), logits], -1)
        probabilities = tf.nn.softmax(both, name="probabilities")
        class_ids = tf.expand_dims(tf.argmax(both, -1), -1)
        return {
            "logits": logits,
            "logistic": tf.sigmoid(logits, name="logistic"),
            "probabilities": probabilities,
            **self._named(class_ids, probabilities),
        }

    def _metrics(
        self, predictions: Mapping[str, tf.Tensor], targets: tf.Tensor, weights: TensorLike
    ) -> dict[str, tuple[Any, Any]]:
        logistic, class_ids = predictions["logistic"], predictions["class_ids"]
        numbers = tf.cast(targets, tf.float32)
        spread = tf.ones_like(numbers) * weights
        mean, update = tf.metrics.mean(numbers, weights=spread)
        return {
            "accuracy": tf.metrics.accuracy(targets, class_ids, weights=spread),
            "precision": tf.metrics.precision(targets, class_ids, weights=spread),
            "recall": tf.metrics.recall(targets, class_ids, weights=spread),
            "prediction/mean": tf.metrics.mean(logistic, weights=spread),
            "label/mean": (mean, update),
            # what always naming the more frequent class would reach
            "accuracy_baseline": (tf.maximum(mean, 1 - mean), tf.maximum(update, 1 - update)),
            "auc": tf.metrics.auc(numbers, logistic, weights=spread),
            "auc_precision_recall": tf.metrics.auc(
                numbers, logistic, weights=spread, curve="PR", summation_method="careful_interpolation"
            ),
        }

    def _export_outputs(self, predictions: Mapping[str, tf.Tensor]) -> dict[str, ExportOutput]:
        return {**super()._export_outputs(predictions), "regression": RegressionOutput(predictions["logistic"])}


def classification_head(
    n_classes: int, weight_column: WeightColumn, label_vocabulary: Sequence[str] | None, loss_reduction: str
) -> Head:
    """The head of so many classes.

    Raises:
        ValueError: fewer than two.
    """
    if n_classes < 2:
        raise ValueError(f"n_classes must be >= 2, got {n_classes}")
    if n_classes == 2:
        return BinaryHead(weight_column, label_vocabulary, loss_reduction)
    return MultiClassHead(n_classes, weight_column, label_vocabulary, loss_reduction)
