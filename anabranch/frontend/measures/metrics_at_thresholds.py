"""Metrics of yes-or-no decisions over a range of thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.core.arrays import HostArray
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import CollectionNames
from anabranch.frontend.measures.metric_parts import Metric, confusion_at_thresholds, finish, pair_of
from anabranch.frontend.variables.scope import variable_scope
from anabranch.graph.conversion import convert_to_tensor
from anabranch.ops import raw

_EPSILON = 1e-7
_AUC_EPSILON = 1e-6
_ALL = ("tp", "fn", "tn", "fp")


def _even_thresholds(count: int) -> list[float]:
    """Evenly spaced in (0, 1), with one below 0 and one above 1 that all scores are on one side of."""
    inner = [(i + 1) / (count - 1) for i in range(count - 2)]
    return [-_EPSILON, *inner, 1.0 + _EPSILON]


def auc(
    labels: TensorLike,
    predictions: TensorLike,
    weights: TensorLike | None = None,
    num_thresholds: int = 200,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    curve: str = "ROC",
    name: str | None = None,
    summation_method: str = "trapezoidal",
    thresholds: Sequence[float] | HostArray | None = None,
) -> Metric:
    """The area under a curve that a decision's threshold draws, approximated at several thresholds.

    Args:
        labels: anything that casts to bool.
        predictions: scores in [0, 1], of the same shape.
        num_thresholds: how many, evenly spaced.
        curve: "ROC" (true positives over false positives) or "PR" (precision over recall).
        summation_method: "trapezoidal", "careful_interpolation" (for "PR"), "minoring" or "majoring".
        thresholds: used besides 0 and 1 in place of evenly spaced ones.

    Raises:
        ValueError: another curve or method. A score outside [0, 1] fails the step with `InvalidArgumentError`.
    """
    if curve not in {"ROC", "PR"}:
        raise ValueError(f"curve must be either ROC or PR, {curve} unknown")
    with variable_scope(name, "auc", [labels, predictions, weights]):
        limits = _even_thresholds(num_thresholds) if thresholds is None else _with_ends(thresholds)
        values, updates = confusion_at_thresholds(labels, predictions, limits, weights, _ALL)

        def area(counts: dict[str, Any], part: str) -> Any:
            return _area(counts, curve, summation_method, part)

        return finish(*pair_of(area, values, updates), metrics_collections, updates_collections)


def _with_ends(thresholds: Sequence[float] | HostArray) -> list[float]:
    return [-_EPSILON, *sorted(float(t) for t in thresholds), 1.0 + _EPSILON]


def _area(counts: dict[str, Any], curve: str, method: str, name: str) -> Any:
    tp, fn, tn, fp = (counts[k] for k in _ALL)
    if curve == "PR" and method == "careful_interpolation":
        return _interpolated_pr_area(tp, fp, fn)
    recall = _share(raw.AddV2(tp, _AUC_EPSILON), tp, fn, _AUC_EPSILON)
    if curve == "ROC":
        x, y = _share(fp, fp, tn, _AUC_EPSILON), recall
    else:
        x, y = recall, _share(raw.AddV2(tp, _AUC_EPSILON), tp, fp, _AUC_EPSILON)
    widths = raw.Sub(_but_last(x), _but_first(x))
    if method in {"trapezoidal", "careful_interpolation"}:
        heights = raw.Mul(raw.AddV2(_but_last(y), _but_first(y)), 0.5)
    elif method == "minoring":
        heights = raw.Minimum(_but_last(y), _but_first(y))
    elif method == "majoring":
        heights = raw.Maximum(_but_last(y), _but_first(y))
    else:
        raise ValueError(f"Invalid summation_method: {method}")
    return raw.Sum(raw.Mul(widths, heights), [0], name=name)


def _share(numerator: TensorLike, a: TensorLike, b: TensorLike, epsilon: float) -> Any:
    return raw.RealDiv(numerator, raw.AddV2(raw.AddV2(a, b), epsilon))


def _but_last(vector: TensorLike) -> Any:
    return raw.StridedSlice(vector, [0], [-1], [1])


def _but_first(vector: TensorLike) -> Any:
    return raw.StridedSlice(vector, [1], [0], [1], end_mask=1)


def _interpolated_pr_area(tp: TensorLike, fp: TensorLike, fn: TensorLike) -> Any:
    """True and false positives, not precision itself, are interpolated between thresholds (Davis and Goadrich 2006)."""
    positives = raw.AddV2(tp, fp)
    zero = convert_to_tensor(0.0, tp.dtype)
    hits = raw.Sub(_but_last(tp), _but_first(tp))
    slope = raw.DivNoNan(hits, raw.Maximum(raw.Sub(_but_last(positives), _but_first(positives)), zero))
    low, high = _but_first(positives), _but_last(positives)
    intercept = raw.Sub(_but_first(tp), raw.Mul(slope, low))
    both = raw.LogicalAnd(raw.Greater(high, zero), raw.Greater(low, zero))
    growth = raw.SelectV2(both, raw.DivNoNan(high, raw.Maximum(low, zero)), raw.OnesLike(low))
    gained = raw.Mul(slope, raw.AddV2(hits, raw.Mul(intercept, raw.Log(growth))))
    actual = raw.Maximum(raw.AddV2(_but_first(tp), _but_first(fn)), zero)
    return raw.Sum(raw.DivNoNan(gained, actual), [0], name="interpolate_pr_auc")


# ---------------------------------------------------------------------- one threshold of many
def sensitivity_at_specificity(
    labels: TensorLike,
    predictions: TensorLike,
    specificity: float,
    weights: TensorLike | None = None,
    num_thresholds: int = 200,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The share of true labels found, at the threshold where the share of false ones rejected is nearest `specificity`.

    Raises:
        ValueError: `specificity` is not in [0, 1].
    """
    if not 0 <= specificity <= 1:
        raise ValueError(f"`specificity` must be in the range [0, 1], got {specificity}")
    with variable_scope(name, "sensitivity_at_specificity", [predictions, labels, weights]):
        limits = _even_thresholds(num_thresholds)
        values, updates = confusion_at_thresholds(labels, predictions, limits, weights, _ALL)

        def sensitivity(c: dict[str, Any], part: str) -> Any:
            specificities = _share(c["tn"], c["tn"], c["fp"], _EPSILON)
            nearest = raw.ArgMin(raw.Abs(raw.Sub(specificities, specificity)), 0)
            hits, misses = raw.GatherV2(c["tp"], nearest, 0), raw.GatherV2(c["fn"], nearest, 0)
            return raw.RealDiv(hits, raw.AddV2(raw.AddV2(hits, misses), _EPSILON), name=part)

        return finish(*pair_of(sensitivity, values, updates), metrics_collections, updates_collections)


def specificity_at_sensitivity(
    labels: TensorLike,
    predictions: TensorLike,
    sensitivity: float,
    weights: TensorLike | None = None,
    num_thresholds: int = 200,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The share of false labels rejected, at the highest threshold where the share of true ones found is nearest.

    Raises:
        ValueError: `sensitivity` is not in [0, 1].
    """
    if not 0 <= sensitivity <= 1:
        raise ValueError(f"`sensitivity` must be in the range [0, 1], got {sensitivity}")
    with variable_scope(name, "specificity_at_sensitivity", [predictions, labels, weights]):
        limits = _even_thresholds(num_thresholds)
        values, updates = confusion_at_thresholds(labels, predictions, limits, weights, _ALL)

        def specificity(c: dict[str, Any], part: str) -> Any:
            sensitivities = _share(c["tp"], c["tp"], c["fn"], _EPSILON)
            distances = raw.Abs(raw.Sub(sensitivities, sensitivity))
            from_end = raw.ArgMin(raw.ReverseV2(distances, [0]), 0)
            nearest = raw.Sub(convert_to_tensor(num_thresholds - 1, from_end.dtype), from_end)
            rejected, accepted = raw.GatherV2(c["tn"], nearest, 0), raw.GatherV2(c["fp"], nearest, 0)
            return raw.RealDiv(rejected, raw.AddV2(raw.AddV2(rejected, accepted), _EPSILON), name=part)

        return finish(*pair_of(specificity, values, updates), metrics_collections, updates_collections)


# ---------------------------------------------------------------------- every threshold
def precision_at_thresholds(
    labels: TensorLike,
    predictions: TensorLike,
    thresholds: Sequence[float] | HostArray,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The precision at each of `thresholds` (a list of numbers in [0, 1])."""
    with variable_scope(name, "precision_at_thresholds", [predictions, labels, weights]):
        values, updates = confusion_at_thresholds(labels, predictions, thresholds, weights, ("tp", "fp"))

        def share(c: dict[str, Any], part: str) -> Any:
            return raw.RealDiv(c["tp"], raw.AddV2(raw.AddV2(c["tp"], c["fp"]), _EPSILON), name=f"precision_{part}")

        return finish(*pair_of(share, values, updates), metrics_collections, updates_collections)


def recall_at_thresholds(
    labels: TensorLike,
    predictions: TensorLike,
    thresholds: Sequence[float] | HostArray,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """The recall at each of `thresholds` (a list of numbers in [0, 1])."""
    with variable_scope(name, "recall_at_thresholds", [predictions, labels, weights]):
        values, updates = confusion_at_thresholds(labels, predictions, thresholds, weights, ("tp", "fn"))

        def share(c: dict[str, Any], part: str) -> Any:
            return raw.RealDiv(c["tp"], raw.AddV2(raw.AddV2(c["tp"], c["fn"]), _EPSILON), name=f"recall_{part}")

        return finish(*pair_of(share, values, updates), metrics_collections, updates_collections)


def _counts_at_thresholds(kind: str, default_name: str, *arguments: TensorLike) -> Metric:
    labels, predictions, thresholds, weights, metrics_collections, updates_collections, name = arguments
    with variable_scope(name, default_name, [predictions, labels, weights]):
        values, updates = confusion_at_thresholds(labels, predictions, thresholds, weights, (kind,))
        return finish(values[kind].value(), updates[kind], metrics_collections, updates_collections)


def true_positives_at_thresholds(
    labels: TensorLike,
    predictions: TensorLike,
    thresholds: Sequence[float] | HostArray,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """How often a true label's score is above each threshold."""
    arguments = (labels, predictions, thresholds, weights, metrics_collections, updates_collections, name)
    return _counts_at_thresholds("tp", "true_positives", *arguments)


def true_negatives_at_thresholds(
    labels: TensorLike,
    predictions: TensorLike,
    thresholds: Sequence[float] | HostArray,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """How often a false label's score is not above each threshold."""
    arguments = (labels, predictions, thresholds, weights, metrics_collections, updates_collections, name)
    return _counts_at_thresholds("tn", "true_negatives", *arguments)


def false_positives_at_thresholds(
    labels: TensorLike,
    predictions: TensorLike,
    thresholds: Sequence[float] | HostArray,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """How often a false label's score is above each threshold."""
    arguments = (labels, predictions, thresholds, weights, metrics_collections, updates_collections, name)
    return _counts_at_thresholds("fp", "false_positives", *arguments)


def false_negatives_at_thresholds(
    labels: TensorLike,
    predictions: TensorLike,
    thresholds: Sequence[float] | HostArray,
    weights: TensorLike | None = None,
    metrics_collections: CollectionNames | None = None,
    updates_collections: CollectionNames | None = None,
    name: str | None = None,
) -> Metric:
    """How often a true label's score is not above each threshold."""
    arguments = (labels, predictions, thresholds, weights, metrics_collections, updates_collections, name)
    return _counts_at_thresholds("fn", "false_negatives", *arguments)
