"""Private functions of `tensorflow.python.ops.metrics_impl` that libraries build their own metrics with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anabranch as tf
from anabranch.core.dtypes import DTypeLike
from anabranch.core.shapes import ShapeLike
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import CollectionNames
from anabranch.frontend.measures import metric_parts, metrics_at_k


def metric_variable(
    shape: ShapeLike, dtype: DTypeLike, validate_shape: bool = True, name: str | None = None
) -> tf.Variable:
    """A variable that starts at zero, is in no checkpoint, and is in `LOCAL_VARIABLES` and `METRIC_VARIABLES`.

    Args:
        validate_shape: False allows that values of another shape are assigned.
    """
    return tf.Variable(
        lambda: tf.zeros(shape, dtype),
        trainable=False,
        collections=[tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.METRIC_VARIABLES],
        validate_shape=validate_shape,
        name=name,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )


def _remove_squeezable_dimensions(
    predictions: TensorLike, labels: TensorLike | None, weights: TensorLike | None
) -> tuple[Any, Any, Any]:
    return metric_parts.matched(predictions, labels, weights)


def _safe_scalar_div(numerator: TensorLike, denominator: TensorLike, name: str | None) -> tf.Tensor:
    """A quotient that is zero where the denominator is."""
    return tf.div_no_nan(numerator, denominator, name=name)


def _safe_div(numerator: TensorLike, denominator: TensorLike, name: str | None = None) -> tf.Tensor:
    """A quotient that is zero where the denominator is not positive."""
    quotient = tf.div_no_nan(numerator, denominator)
    return tf.where(tf.greater(denominator, 0), quotient, tf.zeros_like(quotient), name=name)


def _aggregate_variable(v: tf.Variable, collections: str | list[str] | None) -> tf.Tensor:
    """The variable's value, noted in collections: there is one copy of it."""
    value = tf.identity(v)
    if collections:
        tf.add_to_collections(collections, value)
    return value


def _confusion_matrix_at_thresholds(
    labels: TensorLike,
    predictions: TensorLike,
    thresholds: Sequence[float],
    weights: TensorLike | None = None,
    includes: Sequence[str] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Counts of right and wrong decisions at each threshold, and their updates.

    Raises:
        ValueError: `includes` has another word than "tp", "fn", "tn" and "fp".
    """
    kinds = tuple(includes) if includes else ("tp", "fn", "tn", "fp")
    for kind in kinds:
        if kind not in ("tp", "fn", "tn", "fp"):
            raise ValueError(f"Invalid key: {kind}. It must be one of tp, fn, tn and fp")
    return metric_parts.confusion_at_thresholds(labels, predictions, thresholds, weights, kinds)


def _streaming_sparse_average_precision_at_top_k(
    labels: TensorLike | tf.SparseTensor,
    predictions_idx: TensorLike,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> metric_parts.Metric:
    """`tf.metrics.average_precision_at_k` of the predicted classes themselves.

    Args:
        predictions_idx: class numbers [d1, ..., dn, k], the best first; k must be known.

    Raises:
        ValueError: k is not known.
    """
    with tf.name_scope(name, "average_precision_at_top_k") as scope:
        top = tf.cast(predictions_idx, tf.int64)
        k = top.shape.with_rank_at_least(1)[-1].value
        if k is None:
            raise ValueError(f"The last dimension of predictions_idx must be known, but its shape is {top.shape}")
        parts = metrics_at_k.average_precision_of(labels, top, k, weights, scope)
        return metric_parts.finish(*parts, metrics_collections, updates_collections)


def _streaming_confusion_matrix(
    labels: TensorLike, predictions: TensorLike, num_classes: int, weights: TensorLike | None = None
) -> tuple[Any, Any]:
    """How often each class was taken for which, over all batches.

    Args:
        labels, predictions: classes, of any shape, the same for both.
        weights: None, or how much each counts, of that shape too.

    Returns:
        A float64 variable [classes, classes], and the operation that adds a batch to it.
    """
    total = metric_variable([num_classes, num_classes], tf.float64, name="total_confusion_matrix")
    expected, found = (tf.reshape(tf.cast(classes, tf.int64), [-1]) for classes in (labels, predictions))
    counted = None if weights is None else tf.reshape(tf.cast(weights, tf.float64), [-1])
    batch = tf.confusion_matrix(expected, found, num_classes, weights=counted, dtype=tf.float64)
    return total, tf.assign_add(total, batch)
