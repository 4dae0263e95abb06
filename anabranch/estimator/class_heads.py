"""Heads that say classes: one of two, one of several, or any of several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import TensorLike
from anabranch.estimator import head_metrics
from anabranch.estimator.export_outputs import ClassificationOutput, ExportOutput, PredictOutput, RegressionOutput
from anabranch.estimator.head_metrics import Metric, mean
from anabranch.estimator.heads import (
    BATCH_MEAN,
    DEFAULT,
    PREDICT,
    LossFunction,
    Metrics,
    SingleHead,
    WeightColumn,
    dense_labels,
    in_range,
)


class _ClassHead(SingleHead):
    """Classes: integers in [0, n_classes), or words of a vocabulary."""

    def __init__(
        self,
        n_classes: int,
        logits_dimension: int,
        weight_column: WeightColumn,
        label_vocabulary: Sequence[str] | None,
        loss_reduction: str,
        loss_fn: LossFunction,
        name: str | None,
    ) -> None:
        super().__init__(logits_dimension, weight_column, loss_reduction, loss_fn, name)
        if label_vocabulary is not None:
            if not isinstance(label_vocabulary, list | tuple):
                kind = type(label_vocabulary).__name__
                raise ValueError(f"label_vocabulary should be a list or a tuple. Given type: {kind}")
            if len(label_vocabulary) != n_classes:
                size = len(label_vocabulary)
                raise ValueError(f"Length of label_vocabulary must be n_classes ({n_classes}). Given: {size}")
        self._n_classes = n_classes
        self._vocabulary = None if label_vocabulary is None else list(label_vocabulary)

    def _looked_up(self, labels: tf.Tensor) -> tf.Tensor:
        """The numbers of words, int64; -1 for those that the vocabulary lacks."""
        assert self._vocabulary is not None
        if labels.dtype.base_dtype != tf.string:
            raise ValueError(f"Labels dtype should be string since there is a vocabulary. Given label: {labels}")
        table = tf.contrib.lookup.index_table_from_tensor(tf.constant(self._vocabulary), name="class_id_lookup")
        ids = table.lookup(labels)
        assert isinstance(ids, tf.Tensor)
        return ids

    def _classes(self, class_ids: tf.Tensor) -> tf.Tensor:
        """The names of classes: of the vocabulary, or digits."""
        if self._vocabulary is None:
            return tf.as_string(class_ids)
        return tf.gather(tf.constant(self._vocabulary), class_ids)

    def _for_each(self, batch_of: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
        """A row for each example."""
        tiled: tf.Tensor = tf.tile(tf.expand_dims(row, 0), [tf.shape(batch_of)[0], 1])
        return tiled

    def _export_outputs(self, predictions: Mapping[Any, tf.Tensor]) -> dict[str, ExportOutput]:
        probabilities = predictions["probabilities"]
        names = self._for_each(probabilities, self._classes(tf.range(self._n_classes)))
        classes = ClassificationOutput(probabilities, names)
        return {DEFAULT: classes, "classification": classes, PREDICT: PredictOutput(predictions)}


class _OneClassHead(_ClassHead):
    """One class of an example."""

    def _named(self, scores: tf.Tensor, wanted: Sequence[str]) -> dict[str, tf.Tensor]:
        """Predictions from a score for each class."""
        every = tf.range(self._n_classes)
        class_ids = tf.expand_dims(tf.argmax(scores, -1, name="class_ids"), -1)
        made = {"probabilities": tf.nn.softmax(scores, name="probabilities"), "class_ids": class_ids}
        if "classes" in wanted:
            made["classes"] = self._classes(class_ids)
        if "all_class_ids" in wanted:
            made["all_class_ids"] = self._for_each(scores, every)
        if "all_classes" in wanted:
            made["all_classes"] = self._for_each(scores, self._classes(every))
        return made


class MultiClassHead(_OneClassHead):
    """One of three or more classes, by the cross entropy of a softmax or a loss of your own.

    Labels are integers in [0, n_classes), or words of the vocabulary: [batch, ..., 1], or without the last dimension.

    Args:
        n_classes: how many.
        weight_column: the feature of an example's weight; None: all weigh the same.
        label_vocabulary: the classes, if labels are strings; None: labels are integers.
        loss_reduction: "sum_over_batch_size" (the mean over a batch), "sum", or one of `tf.losses.Reduction`.
        loss_fn: of labels (integers), logits and, if it names them, features: losses, [batch, ..., 1].
        name: of the head, which its metrics bear too.

    Raises:
        ValueError: there are fewer than three classes, the vocabulary has another number, an unknown reduction, or a
            function of other arguments.

    Example:
        >>> head = tf.estimator.MultiClassHead(3)
        >>> with tf.Session() as session:
        ...     print(session.run(head.predictions([[0.0, 1.0, 0.5]], ["class_ids"])["class_ids"]))
        [[1]]
    """

    _prediction_keys = ("logits", "probabilities", "class_ids", "classes", "all_class_ids", "all_classes")

    def __init__(
        self,
        n_classes: int,
        weight_column: WeightColumn = None,
        label_vocabulary: Sequence[str] | None = None,
        loss_reduction: str = BATCH_MEAN,
        loss_fn: LossFunction = None,
        name: str | None = None,
    ) -> None:
        if n_classes is None or n_classes <= 2:
            raise ValueError(f"n_classes must be > 2: {n_classes}. For two there is BinaryClassHead.")
        super().__init__(n_classes, n_classes, weight_column, label_vocabulary, loss_reduction, loss_fn, name)

    def _targets(self, labels: TensorLike, logits: tf.Tensor) -> tf.Tensor:
        given = dense_labels(labels, logits, 1)
        if self._vocabulary is not None:
            given = self._looked_up(given)
        elif not given.dtype.is_integer:
            raise ValueError(f"Labels dtype should be integer, or give a label_vocabulary. Given label: {given}")
        return in_range(given, self._n_classes, f"labels must be in [0, {self._n_classes})")

    def _losses(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.squeeze(targets, [-1]), logits=logits)
        return tf.expand_dims(losses, -1)

    def _predictions(self, logits: tf.Tensor, wanted: Sequence[str]) -> dict[str, tf.Tensor]:
        return {"logits": logits, **self._named(logits, wanted)}

    def _own_metrics(self) -> list[Metric]:
        return [head_metrics.accuracy("accuracy")]

    def _update_own_metrics(
        self, metrics: Metrics, logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor | None
    ) -> None:
        said = self.predictions(logits, ["class_ids"])["class_ids"]
        self._comparison(metrics, "accuracy").update_state(targets, said, weights)


class _HasThresholds(_ClassHead):
    """Metrics of probabilities at thresholds."""

    _thresholds: tuple[float, ...]

    def _set_thresholds(self, thresholds: Iterable[float] | None) -> None:
        self._thresholds = tuple(thresholds or ())
        for threshold in self._thresholds:
            if not 0 < threshold < 1:
                raise ValueError(f"thresholds must be in (0, 1) range. Given: {threshold}")

    def _threshold_metrics(self) -> list[Metric]:
        made: list[Metric] = []
        for threshold in self._thresholds:
            name = f"positive_threshold_{threshold:g}"
            made.append(head_metrics.accuracy(f"accuracy/{name}", threshold))
            made.append(head_metrics.precision(f"precision/{name}", threshold))
            made.append(head_metrics.recall(f"recall/{name}", threshold))
        return made

    def _update_threshold_metrics(
        self, metrics: Metrics, targets: tf.Tensor, probabilities: tf.Tensor, weights: tf.Tensor | None
    ) -> None:
        for metric in ("auc", "auc_precision_recall"):
            self._comparison(metrics, metric).update_state(targets, probabilities, weights)
        for threshold in self._thresholds:
            for kind in ("accuracy", "precision", "recall"):
                name = f"{kind}/positive_threshold_{threshold:g}"
                self._comparison(metrics, name).update_state(targets, probabilities, weights)


class BinaryClassHead(_OneClassHead, _HasThresholds):
    """One of two classes, by the cross entropy of a sigmoid or a loss of your own.

    Labels are numbers in [0, 1], or words of the vocabulary: [batch, ..., 1], or without the last dimension.

    Args:
        weight_column: the feature of an example's weight; None: all weigh the same.
        thresholds: in (0, 1): accuracy, precision and recall are computed at each.
        label_vocabulary: the two classes, if labels are strings; None: labels are numbers.
        loss_reduction: "sum_over_batch_size" (the mean over a batch), "sum", or one of `tf.losses.Reduction`.
        loss_fn: of labels (floats), logits and, if it names them, features: losses, [batch, ..., 1].
        name: of the head, which its metrics bear too.

    Raises:
        ValueError: the vocabulary has another number, a threshold is not in (0, 1), an unknown reduction, or a function
            of other arguments.

    Example:
        >>> head = tf.estimator.BinaryClassHead(label_vocabulary=["no", "yes"])
        >>> with tf.Session() as session:
        ...     print(session.run(head.predictions([[2.0], [-1.0]], ["classes"])["classes"]))
        [[b'yes']
         [b'no']]
    """

    _dual_loss = "logistic_loss"
    _prediction_keys = ("logits", "logistic", "probabilities", "class_ids", "classes", "all_class_ids", "all_classes")

    def __init__(
        self,
        weight_column: WeightColumn = None,
        thresholds: Iterable[float] | None = None,
        label_vocabulary: Sequence[str] | None = None,
        loss_reduction: str = BATCH_MEAN,
        loss_fn: LossFunction = None,
        name: str | None = None,
    ) -> None:
        super().__init__(2, 1, weight_column, label_vocabulary, loss_reduction, loss_fn, name)
        self._set_thresholds(thresholds)

    def _targets(self, labels: TensorLike, logits: tf.Tensor) -> tf.Tensor:
        given = dense_labels(labels, logits, 1)
        if self._vocabulary is not None:
            given = self._looked_up(given)
        elif given.dtype.base_dtype == tf.string:
            raise ValueError(f"Labels dtype should be a number, or give a label_vocabulary. Given label: {given}")
        return in_range(tf.cast(given, tf.float32), 2, "labels must be in [0, 1]")

    def _losses(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=logits)

    def _predictions(self, logits: tf.Tensor, wanted: Sequence[str]) -> dict[str, tf.Tensor]:
        both = tf.concat([tf.zeros_like(logits), logits], -1)
        return {"logits": logits, "logistic": tf.sigmoid(logits, name="logistic"), **self._named(both, wanted)}

    def _own_metrics(self) -> list[Metric]:
        return [
            head_metrics.accuracy("accuracy"),
            head_metrics.precision("precision"),
            head_metrics.recall("recall"),
            mean("prediction/mean"),
            mean("label/mean"),
            head_metrics.larger_share("accuracy_baseline"),
            head_metrics.auc("auc"),
            head_metrics.auc_precision_recall("auc_precision_recall"),
            *self._threshold_metrics(),
        ]

    def _update_own_metrics(
        self, metrics: Metrics, logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor | None
    ) -> None:
        said = self.predictions(logits, ["logistic", "class_ids"])
        for metric in ("accuracy", "precision", "recall"):
            self._comparison(metrics, metric).update_state(targets, said["class_ids"], weights)
        self._value(metrics, "prediction/mean").update_state(said["logistic"], weights)
        for metric in ("label/mean", "accuracy_baseline"):
            self._value(metrics, metric).update_state(targets, weights)
        self._update_threshold_metrics(metrics, targets, said["logistic"], weights)

    def _export_outputs(self, predictions: Mapping[Any, tf.Tensor]) -> dict[str, ExportOutput]:
        return {**super()._export_outputs(predictions), "regression": RegressionOutput(predictions["logistic"])}


class MultiLabelHead(_HasThresholds):
    """Any of several classes, each by the cross entropy of a sigmoid of its own, or by a loss of your own.

    Labels are an indicator for each class, [batch, ..., n_classes], or a `SparseTensor` of the classes that an example
    has: integers in [0, n_classes), or words of the vocabulary. The loss of an example is the mean over classes.

    Args:
        n_classes: how many.
        weight_column: the feature of an example's weight; None: all weigh the same.
        thresholds: in (0, 1): accuracy, precision and recall are computed at each.
        label_vocabulary: the classes, if sparse labels are strings; None: they are integers.
        loss_reduction: "sum_over_batch_size" (the mean over a batch), "sum", or one of `tf.losses.Reduction`.
        loss_fn: of labels (indicators), logits and, if it names them, features: losses, [batch, ..., 1].
        classes_for_class_based_metrics: numbers or words of classes that have metrics of their own: the mean
            probability, and both areas under curves.
        name: of the head, which its metrics bear too.

    Raises:
        ValueError: there are fewer than two classes, the vocabulary has another number, a threshold is not in (0, 1),
            a class is not among them, an unknown reduction, or a function of other arguments.

    Example:
        >>> head = tf.estimator.MultiLabelHead(3)
        >>> with tf.Session() as session:
        ...     print(session.run(head.loss([[1, 0, 1]], [[9.0, -9.0, 9.0]]) < 0.001))
        True
    """

    _prediction_keys = ("logits", "probabilities")

    def __init__(
        self,
        n_classes: int,
        weight_column: WeightColumn = None,
        thresholds: Iterable[float] | None = None,
        label_vocabulary: Sequence[str] | None = None,
        loss_reduction: str = BATCH_MEAN,
        loss_fn: LossFunction = None,
        classes_for_class_based_metrics: Iterable[int | str] | None = None,
        name: str | None = None,
    ) -> None:
        if n_classes is None or n_classes < 2:
            raise ValueError(f"n_classes must be > 1 for multi-label classification. Given: {n_classes}")
        super().__init__(n_classes, n_classes, weight_column, label_vocabulary, loss_reduction, loss_fn, name)
        self._set_thresholds(thresholds)
        self._watched = tuple(self._number_of(given) for given in classes_for_class_based_metrics or ())

    def _number_of(self, given: int | str) -> int:
        if isinstance(given, str):
            if self._vocabulary is None or given not in self._vocabulary:
                raise ValueError(
                    f"label_vocabulary must have the words of classes_for_class_based_metrics. Given: {given!r}, "
                    f"vocabulary: {self._vocabulary}"
                )
            return self._vocabulary.index(given)
        if not 0 <= given < self._n_classes:
            largest = self._n_classes - 1
            raise ValueError(f"All classes_for_class_based_metrics must be in range [0, {largest}]. Given: {given}")
        return given

    def _targets(self, labels: TensorLike, logits: tf.Tensor) -> tf.Tensor:
        if isinstance(labels, tf.SparseTensor):
            indicators: TensorLike = self._indicators(labels)
        elif labels is None:
            indicators = None
        else:
            indicators = in_range(
                tf.convert_to_tensor(labels), 2, "labels must be an integer indicator Tensor with values in [0, 1]"
            )
        return dense_labels(indicators, logits, self._n_classes)

    def _indicators(self, labels: tf.SparseTensor) -> tf.Tensor:
        ids = labels.values
        if ids.dtype.base_dtype == tf.string:
            if self._vocabulary is None:
                raise ValueError(f"labels that are strings need a label_vocabulary. Given: {labels}")
            ids = self._looked_up(ids)
        elif not ids.dtype.is_integer:
            raise ValueError(f"Labels dtype should be integer. Instead got {ids.dtype}.")
        message = f"labels must be a SparseTensor with values in [0, {self._n_classes}), or words of the vocabulary"
        sparse = tf.SparseTensor(labels.indices, in_range(ids, self._n_classes, message), labels.dense_shape)
        indicators: tf.Tensor = tf.cast(tf.sparse_to_indicator(sparse, self._n_classes), tf.int64)
        return indicators

    def _losses(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        each = tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(targets, tf.float32), logits=logits)
        losses: tf.Tensor = tf.reduce_mean(each, -1, keepdims=True)
        return losses

    def _predictions(self, logits: tf.Tensor, wanted: Sequence[str]) -> dict[str, tf.Tensor]:
        return {"logits": logits, "probabilities": tf.sigmoid(logits, name="probabilities")}

    def _watched_names(self) -> list[tuple[int, str]]:
        return [
            (number, f"class{number}" if self._vocabulary is None else str(self._vocabulary[number]))
            for number in self._watched
        ]

    def _own_metrics(self) -> list[Metric]:
        made: list[Metric] = [
            head_metrics.auc("auc"),
            head_metrics.auc_precision_recall("auc_precision_recall"),
            *self._threshold_metrics(),
        ]
        for _, name in self._watched_names():
            made.append(mean(f"probability_mean/{name}"))
            made.append(head_metrics.auc(f"auc/{name}"))
            made.append(head_metrics.auc_precision_recall(f"auc_precision_recall/{name}"))
        return made

    def _update_own_metrics(
        self, metrics: Metrics, logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor | None
    ) -> None:
        probabilities = self.predictions(logits, ["probabilities"])["probabilities"]
        self._update_threshold_metrics(metrics, targets, probabilities, weights)
        for number, name in self._watched_names():
            said, true = probabilities[..., number : number + 1], targets[..., number : number + 1]
            self._value(metrics, f"probability_mean/{name}").update_state(said, weights)
            for metric in ("auc", "auc_precision_recall"):
                self._comparison(metrics, f"{metric}/{name}").update_state(true, said, weights)


def classification_head(
    n_classes: int, weight_column: WeightColumn, label_vocabulary: Sequence[str] | None, loss_reduction: str
) -> BinaryClassHead | MultiClassHead:
    """The head of so many classes.

    Raises:
        ValueError: fewer than two.
    """
    if n_classes < 2:
        raise ValueError(f"n_classes must be >= 2, got {n_classes}")
    if n_classes == 2:
        return BinaryClassHead(weight_column, None, label_vocabulary, loss_reduction)
    return MultiClassHead(n_classes, weight_column, label_vocabulary, loss_reduction)
