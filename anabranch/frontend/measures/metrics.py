"""Metrics: measures of a whole evaluation, gathered over many steps.

Every metric returns two tensors: the value so far, and one that takes the current batch in and gives the new value.
What is gathered lies in local variables: run `tf.local_variables_initializer()` before an evaluation begins.

Arguments that all metrics share: `weights` (a scalar, or of the rank of the labels with sizes 1 or theirs; None: 1),
`metrics_collections` and `updates_collections` (where value and update are added), `name` (of the variable scope).
All raise ValueError where shapes do not go together.
"""

from __future__ import annotations

from typing import Any

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import CollectionNames
from anabranch.frontend.arrays.constants import ones_like
from anabranch.frontend.measures.metric_parts import (
    Metric,
    cast,
    count_where,
    finish,
    flat,
    matched,
    metric_variable,
    of_kind,
    ratio,
    running_mean,
    sum_all,
)
from anabranch.frontend.measures.weights_broadcast import broadcast_weights
from anabranch.frontend.variables.scope import variable_scope
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw


# ---------------------------------------------------------------------- means
def mean(
    values: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The weighted mean of `values` (of any shape).

    Args:
        values: numbers of any shape.
        weights: a tensor that broadcasts to them; default: 1.
        metrics_collections, updates_collections: lists of collections that the value and the update join.
        name: of the operation.

    Returns:
        A pair of float32 scalars: the value so far, and the operation that adds a batch (and gives the value after it).

    Raises:
        ValueError: the shapes do not go together.

    Example:
        >>> x = tf.placeholder(tf.float32, [None])
        >>> value, update = tf.metrics.mean(x)
        >>> sess.run(tf.local_variables_initializer())
        >>> sess.run(update, {x: [1.0, 3.0]}), sess.run(update, {x: [5.0]})
        (np.float32(2.0), np.float32(3.0))
    """
    return finish(*running_mean(values, weights, name), metrics_collections, updates_collections)


def accuracy(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """How often predictions equal labels.

    Args:
        labels, predictions: tensors of one shape.
        weights: a tensor that broadcasts to them; default: 1.
        metrics_collections, updates_collections: lists of collections that the value and the update join.
        name: of the operation.

    Returns:
        A pair of float32 scalars: the value so far, and the operation that adds a batch (and gives the value after it).

    Raises:
        ValueError: the shapes do not go together.

    Example:
        >>> value, update = tf.metrics.accuracy([1, 2, 3, 4], [1, 2, 3, 0])
        >>> sess.run(tf.local_variables_initializer())
        >>> sess.run(update)
        np.float32(0.75)
    """
    predictions, labels, weights = matched(predictions, labels, weights)
    right = raw.Equal(cast(predictions, labels.dtype), labels)
    return finish(*running_mean(right, weights, name, "accuracy"), metrics_collections, updates_collections)


def mean_absolute_error(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The mean of ``|predictions - labels|``."""
    predictions, labels, weights = matched(predictions, labels, weights)
    errors = raw.Abs(raw.Sub(predictions, labels))
    return finish(*running_mean(errors, weights, name, "mean_absolute_error"), metrics_collections, updates_collections)


def mean_squared_error(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The mean of ``(predictions - labels) ** 2``."""
    predictions, labels, weights = matched(predictions, labels, weights)
    errors = raw.SquaredDifference(labels, predictions)
    return finish(*running_mean(errors, weights, name, "mean_squared_error"), metrics_collections, updates_collections)


def root_mean_squared_error(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The square root of the mean of ``(predictions - labels) ** 2``."""
    predictions, labels, weights = matched(predictions, labels, weights)
    errors = raw.SquaredDifference(labels, predictions)
    value, update = running_mean(errors, weights, name, "root_mean_squared_error")
    return finish(raw.Sqrt(value), raw.Sqrt(update), metrics_collections, updates_collections)


def mean_relative_error(
    labels: TensorLike,
    predictions: TensorLike,
    normalizer: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The mean of ``|labels - predictions| / normalizer``; an element with normalizer 0 counts as 0."""
    predictions, labels, weights = matched(predictions, labels, weights)
    predictions, normalizer = remove_rank_difference(predictions, normalizer)
    errors = raw.DivNoNan(raw.Abs(raw.Sub(labels, predictions)), normalizer)
    return finish(*running_mean(errors, weights, name, "mean_relative_error"), metrics_collections, updates_collections)


def remove_rank_difference(predictions: TensorLike, normalizer: TensorLike) -> tuple[Any, Any]:
    """The two with a last dimension of size 1 dropped from the one that has more dimensions."""
    squeezed, _, _ = matched(predictions, normalizer, None)
    other, _, _ = matched(normalizer, predictions, None)
    return squeezed, other


def mean_cosine_distance(
    labels: TensorLike,
    predictions: TensorLike,
    dim: int,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """One minus the mean of the dot products along `dim` of labels and predictions of length 1."""
    predictions, labels, weights = matched(predictions, labels, weights)
    products = raw.Sum(raw.Mul(predictions, labels), [dim], keep_dims=True)
    value, update = running_mean(products, weights, name, "mean_cosine_distance")
    one = convert_to_tensor(1.0, value.dtype)
    return finish(raw.Sub(one, value), raw.Sub(one, update), metrics_collections, updates_collections)


def percentage_below(
    values: TensorLike,
    threshold: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The share of values below `threshold`."""
    below = raw.Less(values, threshold)
    return finish(
        *running_mean(below, weights, name, "percentage_below_threshold"), metrics_collections, updates_collections
    )


def mean_tensor(
    values: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The weighted mean of each element by itself: value and update have the shape of `values`, which must be known."""
    with variable_scope(name, "mean", [values, weights]):
        values = cast(values, dtypes.float32)
        total = metric_variable(values.shape, dtypes.float32, "total_tensor")
        count = metric_variable(values.shape, dtypes.float32, "count_tensor")
        number = ones_like(values)
        if weights is not None:
            values, _, weights = matched(values, None, weights)
            weights = broadcast_weights(cast(weights, dtypes.float32), values)
            values, number = raw.Mul(values, weights), raw.Mul(number, weights)
        new_total = total.assign_add(values)
        with get_default_graph().control_dependencies([values]):
            new_count = count.assign_add(number)
        value = ratio(total.value(), count.value(), "value")
        update = ratio(new_total, new_count, "update_op")
        return finish(value, update, metrics_collections, updates_collections)


# ---------------------------------------------------------------------- yes-or-no decisions
def _decisions(
    kind: str,
    default_name: str,
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike,
    name: str | None,
    collections: tuple[CollectionNames | None, CollectionNames | None],
) -> Metric:
    predictions, labels, weights = matched(cast(predictions, dtypes.bool), cast(labels, dtypes.bool), weights)
    return count_where(of_kind(labels, predictions, kind), weights, name, default_name, collections)


def true_positives(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """How often both are true (anything that casts to bool)."""
    collections = (metrics_collections, updates_collections)
    return _decisions("tp", "true_positives", labels, predictions, weights, name, collections)


def true_negatives(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """How often both are false."""
    collections = (metrics_collections, updates_collections)
    return _decisions("tn", "true_negatives", labels, predictions, weights, name, collections)


def false_positives(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """How often the prediction is true and the label false."""
    collections = (metrics_collections, updates_collections)
    return _decisions("fp", "false_positives", labels, predictions, weights, name, collections)


def false_negatives(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """How often the prediction is false and the label true."""
    collections = (metrics_collections, updates_collections)
    return _decisions("fn", "false_negatives", labels, predictions, weights, name, collections)


def _share_of_true_positives(
    other: str, default_name: str, labels: TensorLike, predictions: TensorLike, weights: TensorLike, name: str | None
) -> Metric:
    """True positives over themselves and another count."""
    with variable_scope(name, default_name, [predictions, labels, weights]):
        other_counts = false_positives if other == "fp" else false_negatives
        hits, new_hits = true_positives(labels, predictions, weights)
        misses, new_misses = other_counts(labels, predictions, weights)
        value = raw.DivNoNan(hits, raw.AddV2(hits, misses), name="value")
        return value, raw.DivNoNan(new_hits, raw.AddV2(new_hits, new_misses), name="update_op")


def precision(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The share of true predictions whose label is true; 0 where there is none."""
    parts = _share_of_true_positives("fp", "precision", labels, predictions, weights, name)
    return finish(*parts, metrics_collections, updates_collections)


def recall(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The share of true labels whose prediction is true; 0 where there is none."""
    parts = _share_of_true_positives("fn", "recall", labels, predictions, weights, name)
    return finish(*parts, metrics_collections, updates_collections)


# ---------------------------------------------------------------------- classes
def mean_iou(
    labels: TensorLike,
    predictions: TensorLike,
    num_classes: int,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The mean over classes of intersection over union: hits over hits, misses and false alarms of a class.

    Args:
        labels, predictions: class numbers in [0, num_classes), of one shape.

    Returns:
        The value, and an update that gives the gathered confusion matrix, float64, shape [num_classes, num_classes].
    """
    with variable_scope(name, "mean_iou", [predictions, labels, weights]):
        predictions, labels, weights = matched(predictions, labels, weights)
        matrix = metric_variable([num_classes, num_classes], dtypes.float64, "total_confusion_matrix")
        positions = raw.Pack([cast(flat(labels), dtypes.int64), cast(flat(predictions), dtypes.int64)], axis=1)
        if weights is None:
            amounts = raw.OnesLike(cast(flat(labels), dtypes.float64))
        else:
            amounts = flat(broadcast_weights(cast(weights, dtypes.float64), cast(labels, dtypes.float64)))
        batch = raw.ScatterNd(positions, amounts, raw.Pack([convert_to_tensor(num_classes, dtypes.int64)] * 2))
        update = raw.Identity(matrix.assign_add(batch), name="update_op")
        value = _mean_iou_of(cast(matrix.value(), dtypes.float32))
        return finish(value, update, metrics_collections, updates_collections)


def _mean_iou_of(matrix: TensorLike) -> Any:
    hits = raw.DiagPart(matrix)
    union = raw.Sub(raw.AddV2(raw.Sum(matrix, [0]), raw.Sum(matrix, [1])), hits)
    # classes that occur neither among labels nor among predictions do not count
    present = sum_all(cast(raw.NotEqual(union, 0.0), dtypes.float32))
    return raw.DivNoNan(sum_all(raw.DivNoNan(hits, union)), present, name="mean_iou")


def mean_per_class_accuracy(
    labels: TensorLike,
    predictions: TensorLike,
    num_classes: int,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The mean over classes of the accuracy within a class; the update gives the classes' accuracies.

    Args:
        labels, predictions: class numbers in [0, num_classes), of one shape.
    """
    with variable_scope(name, "mean_accuracy", [predictions, labels, weights]):
        labels = cast(labels, dtypes.int64)
        predictions, labels, weights = matched(predictions, labels, weights)
        total = metric_variable([num_classes], dtypes.float32, "total")
        count = metric_variable([num_classes], dtypes.float32, "count")
        right = cast(raw.Equal(cast(flat(predictions), dtypes.int64), flat(labels)), dtypes.float32)
        amounts = raw.OnesLike(right)
        if weights is not None:
            amounts = flat(broadcast_weights(cast(weights, dtypes.float32), cast(labels, dtypes.float32)))
            right = raw.Mul(right, amounts)
        new_total = _scatter_add(total, flat(labels), amounts)
        new_count = _scatter_add(count, flat(labels), right)
        value = raw.Mean(ratio(count.value(), total.value(), "per_class"), [0], name="mean_accuracy")
        update = ratio(new_count, new_total, "update_op")
        return finish(value, update, metrics_collections, updates_collections)


def _scatter_add(variable: Variable, indices: TensorLike, amounts: TensorLike) -> Any:
    return variable._after(raw.ResourceScatterAdd(variable.handle, indices, amounts))
