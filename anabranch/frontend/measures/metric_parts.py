"""What metrics are made of: local variables, weighted sums, counts, confusions at thresholds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import HostArray
from anabranch.core.dtypes import DType
from anabranch.core.shapes import ShapeLike
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import CollectionNames
from anabranch.frontend.arrays.constants import zeros
from anabranch.frontend.framework import add_to_collections
from anabranch.frontend.measures.weights_broadcast import (
    broadcast_weights,
    remove_squeezable_dimensions,
    with_rank_changed,
)
from anabranch.frontend.variables.policy import VariableAggregation, VariableSynchronization
from anabranch.frontend.variables.scope import variable_scope
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: (value, operation that updates it and gives the new value)
Metric = tuple[Tensor, Tensor]


def metric_variable(shape: ShapeLike, dtype: DType, name: str) -> Any:
    """A variable that starts at zero, is in no checkpoint, and is in `LOCAL_VARIABLES` and `METRIC_VARIABLES`."""
    return Variable(
        lambda: zeros(shape, dtype),
        trainable=False,
        collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES],
        name=name,
        synchronization=VariableSynchronization.ON_READ,
        aggregation=VariableAggregation.SUM,
    )


def finish(
    value: TensorLike,
    update: TensorLike,
    metrics_collections: CollectionNames | None,
    updates_collections: CollectionNames | None,
) -> Metric:
    """Adds the two parts of a metric to the collections asked for."""
    if metrics_collections:
        add_to_collections(metrics_collections, value)
    if updates_collections:
        add_to_collections(updates_collections, update)
    return value, update


def cast(value: TensorLike, dtype: DType) -> Any:
    tensor = convert_to_tensor(value)
    return tensor if tensor.dtype.base_dtype is dtype else raw.Cast(tensor, DstT=dtype)


def sum_all(tensor: Tensor) -> Any:
    rank = tensor.shape.ndims
    axes = raw.Range(0, raw.Rank(tensor), 1) if rank is None else np.arange(rank, dtype=np.int32)
    return raw.Sum(tensor, axes)


def flat(tensor: TensorLike) -> Any:
    tensor = convert_to_tensor(tensor)
    return tensor if tensor.shape.ndims == 1 else raw.Reshape(tensor, [-1])


def ratio(numerator: TensorLike, denominator: TensorLike, name: str) -> Any:
    """0 where the denominator is not positive."""
    return raw.DivNoNan(numerator, raw.Maximum(denominator, convert_to_tensor(0, denominator.dtype)), name=name)


def matched(predictions: TensorLike, labels: TensorLike, weights: TensorLike) -> tuple[Any, Any, Any]:
    """The three with last dimensions of size 1 dropped, or added to weights, so that their ranks go together.

    Raises:
        ValueError: predictions and labels have shapes that contradict each other.
    """
    predictions = convert_to_tensor(predictions)
    if labels is not None:
        labels, predictions = remove_squeezable_dimensions(labels, predictions)
        predictions.shape.assert_is_compatible_with(labels.shape)
    if weights is None:
        return predictions, labels, None
    weights = convert_to_tensor(weights)
    ranks = (predictions.shape.ndims, weights.shape.ndims)
    if ranks[1] == 0:
        return predictions, labels, weights
    if None in ranks:
        rank = raw.Rank(weights)
        excess = raw.Sub(rank, raw.Rank(predictions))
        is_lower = raw.LogicalAnd(raw.Equal(excess, -1), raw.Greater(rank, 0))
        return predictions, labels, with_rank_changed(weights, drop=raw.Equal(excess, 1), add=is_lower)
    if ranks[1] == ranks[0] + 1:
        weights = raw.Squeeze(weights, squeeze_dims=[-1])
    elif ranks[1] == ranks[0] - 1:
        weights = raw.ExpandDims(weights, -1)
    return predictions, labels, weights


# ---------------------------------------------------------------------- running means
def running_mean(values: TensorLike, weights: TensorLike, name: str | None, default_name: str = "mean") -> Metric:
    """The weighted mean of all values so far, in float32."""
    with variable_scope(name, default_name, [values, weights]):
        values = cast(values, dtypes.float32)
        total = metric_variable([], dtypes.float32, "total")
        count = metric_variable([], dtypes.float32, "count")
        if weights is None:
            number = cast(raw.Size(values), dtypes.float32)
        else:
            values, _, weights = matched(values, None, weights)
            weights = broadcast_weights(cast(weights, dtypes.float32), values)
            values = raw.Mul(values, weights)
            number = sum_all(weights)
        new_total = total.assign_add(sum_all(values))
        with get_default_graph().control_dependencies([values]):
            new_count = count.assign_add(number)
        return ratio(total.value(), count.value(), "value"), ratio(new_total, new_count, "update_op")


# ---------------------------------------------------------------------- counts
def count_where(
    condition: TensorLike,
    weights: TensorLike,
    name: str | None,
    default_name: str,
    collections: tuple[CollectionNames | None, CollectionNames | None],
) -> Metric:
    """How often `condition` (booleans) held so far, weighted."""
    with variable_scope(name, default_name, [condition, weights]):
        count = metric_variable([], dtypes.float32, "count")
        values = cast(condition, dtypes.float32)
        if weights is not None:
            values = raw.Mul(values, broadcast_weights(cast(weights, dtypes.float32), values))
        value = raw.Identity(count.value(), name="value")
        update = raw.Identity(count.assign_add(sum_all(values)), name="update_op")
        return finish(value, update, *collections)


def of_kind(labels: TensorLike, predictions: TensorLike, kind: str) -> Any:
    """Marks where the decision is a "tp", "fp", "tn" or "fn"; booleans in, booleans out."""
    right, positive = kind[0] == "t", kind[1] == "p"
    label = labels if right == positive else raw.LogicalNot(labels)
    return raw.LogicalAnd(label, predictions if positive else raw.LogicalNot(predictions))


# ---------------------------------------------------------------------- thresholds
_VARIABLE_NAMES = {
    "tp": "true_positives",
    "fn": "false_negatives",
    "tn": "true_negatives",
    "fp": "false_positives",
}


def _all(conditions: TensorLike) -> Any:
    rank = conditions.shape.ndims
    axes = raw.Range(0, raw.Rank(conditions), 1) if rank is None else np.arange(rank, dtype=np.int32)
    return raw.All(conditions, axes)


def confusion_at_thresholds(
    labels: TensorLike,
    predictions: TensorLike,
    thresholds: Sequence[float] | HostArray,
    weights: TensorLike,
    kinds: tuple[str, ...],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Running counts of each kind of decision, per threshold: the variables and their updates, shape [thresholds].

    Args:
        labels: anything that casts to bool.
        predictions: scores in [0, 1], of the same shape; a score above the threshold is a positive decision. Another
            score fails the step with `InvalidArgumentError`.
    """
    given = cast(predictions, dtypes.float32)
    in_range = raw.LogicalAnd(_all(raw.GreaterEqual(given, 0.0)), _all(raw.LessEqual(given, 1.0)))
    check = raw.Assert(in_range, ["predictions must be in [0, 1]", given])
    with get_default_graph().control_dependencies([check]):
        predictions, labels, weights = matched(raw.Identity(given), cast(labels, dtypes.bool), weights)
    limits = np.asarray(thresholds, np.float32)
    scores = raw.Reshape(predictions, [1, -1])
    truth = raw.Reshape(labels, [1, -1])
    decided = raw.Greater(scores, limits[:, None])
    row = None
    if weights is not None:
        row = raw.Reshape(broadcast_weights(cast(weights, dtypes.float32), predictions), [1, -1])
    values, updates = {}, {}
    for kind in kinds:
        counts = metric_variable([len(limits)], dtypes.float32, _VARIABLE_NAMES[kind])
        hits = cast(of_kind(truth, decided, kind), dtypes.float32)
        if row is not None:
            hits = raw.Mul(hits, row)
        values[kind] = counts
        updates[kind] = counts.assign_add(raw.Sum(hits, [1]))
    return values, updates


def pair_of(function: Callable[[dict[str, Any], str], Any], values: dict[str, Any], updates: dict[str, Any]) -> Metric:
    """A formula on counts, applied to the counts so far and to the updated ones."""
    so_far = {kind: variable.value() for kind, variable in values.items()}
    return function(so_far, "value"), function(updates, "update_op")
