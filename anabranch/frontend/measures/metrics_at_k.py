"""Metrics of the k best predictions: precision, recall and average precision.

Labels are class numbers, several per example: int64 of shape [d1, ..., dn, labels] or [d1, ..., dn], or a
`SparseTensor` of either shape. Predictions are scores of shape [d1, ..., dn, classes], or (`*_at_top_k`) class
numbers [d1, ..., dn, k], best first. A class that stands twice among the labels of an example counts once; a label that
is no class, such as -1, is one that nobody can find.
"""

from __future__ import annotations

from typing import Any

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import CollectionNames
from anabranch.frontend.framework import name_scope
from anabranch.frontend.measures.metric_parts import Metric, cast, finish, metric_variable, sum_all
from anabranch.frontend.measures.weights_broadcast import broadcast_weights
from anabranch.graph.composite import SparseTensor, SparseTensorValue
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: stands where there is no label
_NO_LABEL = -(2**63)


# ---------------------------------------------------------------------- labels and predictions as sets
def _dense_labels(labels: TensorLike | SparseTensor, top: Tensor) -> Any:
    """Class numbers [d1, ..., dn, labels]; `_NO_LABEL` where there is none, and where a class stands again."""
    if isinstance(labels, SparseTensor | SparseTensorValue):
        sparse = SparseTensor.from_value(labels)
        none = convert_to_tensor(_NO_LABEL, dtypes.int64)
        values = cast(sparse.values, dtypes.int64)
        dense = raw.SparseToDense(sparse.indices, sparse.dense_shape, values, none, validate_indices=False)
        dense.set_shape(sparse.shape)
    else:
        dense = cast(labels, dtypes.int64)
    return _without_repetitions(_with_axis(dense, top))


def _with_axis(labels: Tensor, like: Tensor) -> Tensor:
    """Labels [d1, ..., dn] as [d1, ..., dn, 1], others as they are: `like` has n + 1 dimensions.

    Raises:
        ValueError: the labels have another number of dimensions than these.
    """
    rank, wanted = labels.shape.ndims, like.shape.ndims
    if rank is None or wanted is None:
        missing = raw.Sub(raw.Rank(like), raw.Rank(labels))
        ones = raw.Fill(raw.ExpandDims(missing, 0), convert_to_tensor(1, dtypes.int32))
        reshaped: Tensor = raw.Reshape(labels, raw.ConcatV2([raw.Shape(labels), ones], 0))
        if wanted is not None:
            reshaped.set_shape([None] * wanted)
        return reshaped
    if rank not in (wanted, wanted - 1):
        raise ValueError(f"Unexpected labels shape {labels.shape} for predictions shape {like.shape}.")
    expanded: Tensor = labels if rank == wanted else raw.ExpandDims(labels, -1)
    return expanded


def _without_repetitions(classes: TensorLike) -> Any:
    """`_NO_LABEL` in place of a class number that stood in the same row before."""
    same = raw.Equal(raw.ExpandDims(classes, -1), raw.ExpandDims(classes, -2))
    earlier = raw.MatrixBandPart(raw.OnesLike(cast(same, dtypes.int32)), -1, 0)
    # the number of equal entries up to and including each position
    count = raw.Sum(raw.Mul(cast(same, dtypes.int32), earlier), [-1])
    return raw.SelectV2(raw.Equal(count, 1), classes, convert_to_tensor(_NO_LABEL, dtypes.int64))


def _membership(items: TensorLike, among: TensorLike) -> Any:
    """Whether each item of a row stands in the other row: bool, the shape of `items`."""
    same = raw.Any(raw.Equal(raw.ExpandDims(items, -1), raw.ExpandDims(among, -2)), [-1])
    return raw.LogicalAnd(same, raw.NotEqual(items, convert_to_tensor(_NO_LABEL, dtypes.int64)))


def _selected(items: TensorLike, class_id: int | None) -> Any:
    """Which entries count: all that there are, or one class only."""
    if class_id is not None:
        return raw.Equal(items, convert_to_tensor(class_id, dtypes.int64))
    return raw.NotEqual(items, convert_to_tensor(_NO_LABEL, dtypes.int64))


def _top(predictions: TensorLike, k: int) -> Any:
    return cast(raw.TopKV2(convert_to_tensor(predictions), k)[1], dtypes.int64)


def _counted(flags: TensorLike, weights: TensorLike) -> Any:
    """The weighted number of flags, float64, shape []."""
    per_example = raw.Sum(cast(flags, dtypes.float64), [-1])
    if weights is not None:
        per_example = raw.Mul(per_example, broadcast_weights(cast(weights, dtypes.float64), per_example))
    return sum_all(per_example)


def _name_at_k(name: str, k: int | None, class_id: int | None) -> str:
    base = f"{name}_at_{k}" if k is not None else f"{name}_at_k"
    return base if class_id is None else f"{base}_class{class_id}"


def _running(amount: TensorLike, name: str) -> tuple[Any, Any]:
    total = metric_variable([], dtypes.float64, name)
    return total.value(), total.assign_add(amount)


def _share(
    kind: str,
    labels: TensorLike | SparseTensor,
    top: TensorLike,
    k: int | None,
    class_id: int | None,
    weights: TensorLike,
    scope: str,
) -> Metric:
    """Hits over hits and the other predictions ("precision") or the other labels ("recall"); `k` is for names only."""
    labels = _dense_labels(labels, top)
    top = _without_repetitions(top)
    hits = raw.LogicalAnd(_membership(top, labels), _selected(top, class_id))
    if kind == "precision":
        misses = raw.LogicalAnd(_selected(top, class_id), raw.LogicalNot(hits))
        other = "false_positive"
    else:
        selected = raw.LogicalAnd(_membership(labels, top), _selected(labels, class_id))
        misses = raw.LogicalAnd(_selected(labels, class_id), raw.LogicalNot(selected))
        other = "false_negative"
    hit, new_hit = _running(_counted(hits, weights), _name_at_k("true_positive", k, class_id))
    miss, new_miss = _running(_counted(misses, weights), _name_at_k(other, k, class_id))
    value = raw.RealDiv(hit, raw.AddV2(hit, miss), name=scope)
    return value, raw.RealDiv(new_hit, raw.AddV2(new_hit, new_miss), name="update")


# ---------------------------------------------------------------------- precision and recall
def precision_at_top_k(
    labels: TensorLike | SparseTensor,
    predictions_idx: TensorLike,
    k: int | None = None,
    class_id: int | None = None,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The share of the predicted classes that are labels.

    Args:
        predictions_idx: class numbers, int64, shape [d1, ..., dn, k].
        k: only for the name.
        class_id: look at this class only.
        weights: a scalar, or shape [d1, ..., dn] (or ones).

    Returns:
        Value and update, float64; NaN where nothing was predicted.
    """
    with name_scope(name, _name_at_k("precision", k, class_id), None) as scope:
        parts = _share("precision", labels, cast(predictions_idx, dtypes.int64), k, class_id, weights, scope)
        return finish(*parts, metrics_collections, updates_collections)


def precision_at_k(
    labels: TensorLike | SparseTensor,
    predictions: TensorLike,
    k: int,
    class_id: int | None = None,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The share of the `k` classes with the highest scores that are labels; see `precision_at_top_k`."""
    with name_scope(name, _name_at_k("precision", k, class_id), None) as scope:
        parts = _share("precision", labels, _top(predictions, k), k, class_id, weights, scope)
        return finish(*parts, metrics_collections, updates_collections)


def sparse_precision_at_k(
    labels: TensorLike | SparseTensor,
    predictions: TensorLike,
    k: int,
    class_id: int | None = None,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The old name of `precision_at_k`."""
    return precision_at_k(labels, predictions, k, class_id, weights, metrics_collections, updates_collections, name)


def recall_at_top_k(
    labels: TensorLike | SparseTensor,
    predictions_idx: TensorLike,
    k: int | None = None,
    class_id: int | None = None,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The share of the labels that are among the predicted classes; arguments as in `precision_at_top_k`."""
    with name_scope(name, _name_at_k("recall", k, class_id), None) as scope:
        parts = _share("recall", labels, cast(predictions_idx, dtypes.int64), k, class_id, weights, scope)
        return finish(*parts, metrics_collections, updates_collections)


def recall_at_k(
    labels: TensorLike | SparseTensor,
    predictions: TensorLike,
    k: int,
    class_id: int | None = None,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The share of the labels that are among the `k` classes with the highest scores."""
    with name_scope(name, _name_at_k("recall", k, class_id), None) as scope:
        parts = _share("recall", labels, _top(predictions, k), k, class_id, weights, scope)
        return finish(*parts, metrics_collections, updates_collections)


# ---------------------------------------------------------------------- average precision
def average_precision_at_k(
    labels: TensorLike | SparseTensor,
    predictions: TensorLike,
    k: int,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The mean over examples of the average precision of the `k` best predictions.

    An example's average precision is the sum of the precisions at those of its k ranks whose class is a label, over
    the number of labels (at most k); NaN for an example without labels.

    Raises:
        ValueError: `k` is less than 1.
    """
    if k < 1:
        raise ValueError(f"Invalid k={k}; it must be at least 1")
    with name_scope(name, f"average_precision_at_{k}", None) as scope:
        parts = average_precision_of(labels, _top(predictions, k), k, weights, scope)
        return finish(*parts, metrics_collections, updates_collections)


def average_precision_of(
    labels: TensorLike | SparseTensor, top: Tensor, k: int, weights: TensorLike | None, scope: str | None
) -> tuple[Tensor, Tensor]:
    """The value and the update of `average_precision_at_k`, of predicted classes [d1, ..., dn, k], the best first.

    Args:
        scope: the name of the update.
    """
    classes = _dense_labels(labels, top)
    average = _average_precision(classes, top, k, _number_of_labels(labels, classes))
    if weights is None:
        amount = cast(raw.Size(average), dtypes.float64)
    else:
        weights = broadcast_weights(cast(weights, dtypes.float64), average)
        average, amount = raw.Mul(average, weights), sum_all(weights)
    total, new_total = _running(sum_all(average), "total")
    most, new_most = _running(amount, "max")
    return raw.DivNoNan(total, most, name="mean"), raw.DivNoNan(new_total, new_most, name=scope)


def _number_of_labels(labels: TensorLike | SparseTensor, classes: TensorLike) -> Any:
    """Per example; of a dense tensor the numbers that are not negative, whether a class stands twice or not."""
    if isinstance(labels, SparseTensor | SparseTensorValue):
        present = raw.NotEqual(classes, convert_to_tensor(_NO_LABEL, dtypes.int64))
    else:
        given = _with_axis(cast(labels, dtypes.int64), classes)
        present = raw.GreaterEqual(given, convert_to_tensor(0, dtypes.int64))
    return raw.Sum(cast(present, dtypes.float64), [-1])


def _average_precision(labels: TensorLike | SparseTensor, top: TensorLike, k: int, number_of_labels: TensorLike) -> Any:
    relevant = cast(_membership(top, labels), dtypes.float64)
    ranks = raw.Range(convert_to_tensor(1.0, dtypes.float64), k + 1.0, 1.0)
    precisions = raw.RealDiv(raw.Cumsum(relevant, -1), ranks)
    summed = raw.Sum(raw.Mul(precisions, relevant), [-1])
    return raw.RealDiv(summed, raw.Minimum(number_of_labels, float(k)))


def sparse_average_precision_at_k(
    labels: TensorLike | SparseTensor,
    predictions: TensorLike,
    k: int,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The old name of `average_precision_at_k`."""
    return average_precision_at_k(labels, predictions, k, weights, metrics_collections, updates_collections, name)
