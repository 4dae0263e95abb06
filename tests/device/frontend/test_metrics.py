"""Metrics over several batches against NumPy: values, updates, weights, names, collections, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anabranch import errors
from anabranch.core.shapes import TensorShape
from anabranch.frontend.measures import metrics, metrics_at_k, metrics_at_thresholds
from anabranch.frontend.variables import functions
from anabranch.graph.collections import GraphKeys
from anabranch.graph.composite import SparseTensor
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw
from anabranch.session import Session

rng = np.random.default_rng(0)
WEIGHTS = np.array([1, 2, 0, 1, 0.5, 3], np.float32)
BATCHES = 3


def gathered(
    metric: Callable[[Any, Any], Any], first: list[Any], second: list[Any], shape: Any = (None,)
) -> tuple[Any, Any]:
    """What a metric says after all batches: its value, and the last update."""
    a = raw.Placeholder(dtype=first[0].dtype.name, shape=TensorShape(shape))
    b = raw.Placeholder(dtype=second[0].dtype.name, shape=TensorShape([None] * second[0].ndim))
    value, update = metric(a, b)
    with Session() as session:
        session.run(functions.local_variables_initializer())
        for x, y in zip(first, second, strict=True):
            last = session.run(update, {a: x, b: y})
        return session.run(value), last


CLASSES = [[rng.integers(0, 3, 6) for _ in range(BATCHES)] for _ in range(2)]
FLAGS = [(rng.random(6) > 0.5).astype(np.float32) for _ in range(BATCHES)]
SCORES = [rng.random(6, np.float32) for _ in range(BATCHES)]
ALL_FLAGS, ALL_SCORES = np.concatenate(FLAGS), np.concatenate(SCORES)
ALL_WEIGHTS = np.tile(WEIGHTS, BATCHES)


def average(values: Any, weights: Any = None) -> Any:
    return np.average(values, weights=weights)


# ---------------------------------------------------------------------- means
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_means(weights: Any) -> None:
    every = None if weights is None else ALL_WEIGHTS
    labels, predictions = (np.concatenate(c) for c in CLASSES)
    error = ALL_FLAGS - ALL_SCORES
    cases: list[tuple[Any, Any, list[Any], list[Any]]] = [
        (lambda x, y: metrics.accuracy(x, y, weights), average(labels == predictions, every), *CLASSES),
        (lambda x, y: metrics.mean(y, weights), average(ALL_SCORES, every), FLAGS, SCORES),
        (lambda x, y: metrics.mean_absolute_error(x, y, weights), average(np.abs(error), every), FLAGS, SCORES),
        (lambda x, y: metrics.mean_squared_error(x, y, weights), average(error**2, every), FLAGS, SCORES),
        (
            lambda x, y: metrics.root_mean_squared_error(x, y, weights),
            np.sqrt(average(error**2, every)),
            FLAGS,
            SCORES,
        ),
        (lambda x, y: metrics.percentage_below(y, 0.5, weights), average(ALL_SCORES < 0.5, every), FLAGS, SCORES),
        (
            lambda x, y: metrics.mean_relative_error(x, y, x, weights),
            average(np.where(ALL_FLAGS == 0, 0, np.abs(error)), every),
            FLAGS,
            SCORES,
        ),
    ]
    for metric, expected, first, second in cases:
        value, update = gathered(metric, first, second)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        assert update == value


def test_mean_cosine_distance() -> None:
    first, second = [[rng.random((2, 3), np.float32) for _ in range(BATCHES)] for _ in range(2)]
    value, update = gathered(lambda x, y: metrics.mean_cosine_distance(x, y, 1), first, second, (None, 3))
    expected = 1 - np.mean([(x * y).sum(1) for x, y in zip(first, second, strict=True)])
    np.testing.assert_allclose([value, update], expected, rtol=1e-5)


def test_mean_tensor() -> None:
    first = [rng.random((2, 3), np.float32) for _ in range(BATCHES)]
    weights = np.array([[1.0], [0.0]], np.float32)
    value, update = gathered(lambda x, y: metrics.mean_tensor(x, weights), first, first, (2, 3))
    np.testing.assert_allclose(value, np.mean(first, 0) * weights, rtol=1e-5)
    np.testing.assert_array_equal(value, update)


def test_a_mean_of_nothing_is_zero() -> None:
    value, _ = metrics.mean(raw.Placeholder(dtype="float32", shape=TensorShape([None])))
    with Session() as session:
        session.run(functions.local_variables_initializer())
        assert session.run(value) == 0


# ---------------------------------------------------------------------- decisions
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_counts_precision_and_recall(weights: Any) -> None:
    every = np.ones(18) if weights is None else ALL_WEIGHTS
    labels, predictions = (np.concatenate(c).astype(bool) for c in CLASSES)
    tp, fp = (every * (labels & predictions)).sum(), (every * (~labels & predictions)).sum()
    tn, fn = (every * (~labels & ~predictions)).sum(), (every * (labels & ~predictions)).sum()
    cases = {
        "true_positives": tp,
        "false_positives": fp,
        "true_negatives": tn,
        "false_negatives": fn,
        "precision": tp / (tp + fp),
        "recall": tp / (tp + fn),
    }
    for name, expected in cases.items():
        metric = getattr(metrics, name)
        value, update = gathered(lambda x, y, metric=metric: metric(x, y, weights), *CLASSES)  # type: ignore[misc]
        np.testing.assert_allclose([value, update], expected, rtol=1e-5)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_classes(weights: Any) -> None:
    every = np.ones(18) if weights is None else ALL_WEIGHTS
    labels, predictions = (np.concatenate(c) for c in CLASSES)
    matrix = np.zeros((4, 4))
    np.add.at(matrix, (labels, predictions), every)
    union = matrix.sum(0) + matrix.sum(1) - np.diag(matrix)
    value, update = gathered(lambda x, y: metrics.mean_iou(x, y, 4, weights), *CLASSES)
    np.testing.assert_allclose(update, matrix)
    np.testing.assert_allclose(value, (np.diag(matrix)[:3] / union[:3]).mean(), rtol=1e-5)
    value, update = gathered(lambda x, y: metrics.mean_per_class_accuracy(x, y, 4, weights), *CLASSES)
    accuracies = np.diag(matrix) / np.maximum(matrix.sum(1), 1e-9)
    np.testing.assert_allclose(update, accuracies, rtol=1e-5)
    np.testing.assert_allclose(value, accuracies.mean(), rtol=1e-5)


# ---------------------------------------------------------------------- thresholds
LIMITS = [0.2, 0.5, 0.8]


def counts(limit: float) -> tuple[float, float, float, float]:
    positive, label = limit < ALL_SCORES, ALL_FLAGS.astype(bool)
    parts = (label & positive, ~label & positive, ~label & ~positive, label & ~positive)
    return tuple(float((ALL_WEIGHTS * p).sum()) for p in parts)  # type: ignore[return-value]


def test_counts_at_thresholds() -> None:
    expected = np.array([counts(t) for t in LIMITS]).T
    tp, fp, tn, fn = expected
    cases = {
        "true_positives": tp,
        "false_positives": fp,
        "true_negatives": tn,
        "false_negatives": fn,
        "precision": tp / (tp + fp + 1e-7),
        "recall": tp / (tp + fn + 1e-7),
    }
    for name, values in cases.items():
        metric = getattr(metrics_at_thresholds, name + "_at_thresholds")
        value, update = gathered(lambda x, y, m=metric: m(x, y, LIMITS, WEIGHTS), FLAGS, SCORES)  # type: ignore[misc]
        np.testing.assert_allclose(value, values, rtol=1e-5)
        np.testing.assert_allclose(update, values, rtol=1e-5)


def test_auc_approaches_the_area() -> None:
    """The area under the ROC curve is the share of pairs that are in the right order."""
    label = ALL_FLAGS.astype(bool)
    above = ALL_SCORES[label][:, None] > ALL_SCORES[~label][None]
    pairs = ALL_WEIGHTS[label][:, None] * ALL_WEIGHTS[~label][None]
    expected = (above * pairs).sum() / pairs.sum()
    value, update = gathered(lambda x, y: metrics_at_thresholds.auc(x, y, WEIGHTS, num_thresholds=2000), FLAGS, SCORES)
    assert abs(value - expected) < 0.01
    assert value == update
    areas = {
        method: gathered(
            lambda x, y, m=method: metrics_at_thresholds.auc(x, y, curve="PR", summation_method=m),
            FLAGS,
            SCORES,  # type: ignore[misc]
        )[0]
        for method in ("minoring", "trapezoidal", "careful_interpolation", "majoring")
    }
    assert areas["minoring"] <= areas["trapezoidal"] <= areas["majoring"]
    assert areas["minoring"] <= areas["careful_interpolation"] <= areas["majoring"]


def test_auc_wants_probabilities() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"\[0, 1\]"):
        gathered(metrics_at_thresholds.auc, FLAGS, [s + 1 for s in SCORES])
    for metric, threshold in (
        (metrics_at_thresholds.recall_at_thresholds, [0.5]),
        (metrics_at_thresholds.precision_at_thresholds, [0.5]),
        (metrics_at_thresholds.sensitivity_at_specificity, 0.5),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=r"\[0, 1\]"):
            gathered(lambda x, y, m=metric, t=threshold: m(x, y, t), FLAGS, [s - 1 for s in SCORES])  # type: ignore[misc]
    with pytest.raises(ValueError, match="ROC or PR"):
        metrics_at_thresholds.auc([1.0], [1.0], curve="XY")
    with pytest.raises(ValueError, match="summation_method"):
        metrics_at_thresholds.auc([1.0], [1.0], summation_method="wild")


def test_sensitivity_and_specificity() -> None:
    label = ALL_FLAGS.astype(bool)
    limits = np.array([-1e-7, *((i + 1) / 199 for i in range(198)), 1 + 1e-7], np.float32)
    positive = ALL_SCORES[None] > limits[:, None]
    sensitivity = (positive & label).sum(1) / label.sum()
    specificity = (~positive & ~label).sum(1) / (~label).sum()
    value, update = gathered(lambda x, y: metrics_at_thresholds.sensitivity_at_specificity(x, y, 0.6), FLAGS, SCORES)
    np.testing.assert_allclose(value, sensitivity[np.argmin(np.abs(specificity - 0.6))], rtol=1e-4)
    assert value == update
    value, _ = gathered(lambda x, y: metrics_at_thresholds.specificity_at_sensitivity(x, y, 0.6), FLAGS, SCORES)
    distance = np.abs(sensitivity - 0.6)
    np.testing.assert_allclose(value, specificity[np.flatnonzero(distance == distance.min())[-1]], rtol=1e-4)
    for metric in (metrics_at_thresholds.sensitivity_at_specificity, metrics_at_thresholds.specificity_at_sensitivity):
        with pytest.raises(ValueError, match="range"):
            metric([1.0], [1.0], 1.5)


# ---------------------------------------------------------------------- the k best
LABELS_K = [np.array([[0, 1], [2, 3], [4, 4], [1, 2]]) for _ in range(BATCHES)]
SCORES_K = [rng.random((4, 5), np.float32) for _ in range(BATCHES)]
WEIGHTS_K = np.array([1, 2, 0, 0.5], np.float32)


def precision_and_recall(k: int, class_id: int | None, weights: Any) -> tuple[float, float]:
    hits = false_alarms = misses = 0.0
    for labels, scores in zip(LABELS_K, SCORES_K, strict=True):
        for row, score, weight in zip(labels, scores, weights, strict=True):
            wanted, top = set(row.tolist()), set(np.argsort(-score)[:k].tolist())
            if class_id is not None:
                wanted, top = wanted & {class_id}, top & {class_id}
            hits += weight * len(wanted & top)
            false_alarms += weight * len(top - wanted)
            misses += weight * len(wanted - top)
    return hits / (hits + false_alarms), hits / (hits + misses)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("class_id", [None, 2])
def test_precision_and_recall_at_k(k: int, class_id: int | None) -> None:
    for weights in (None, WEIGHTS_K):
        precision, recall = precision_and_recall(k, class_id, np.ones(4) if weights is None else weights)
        value, update = gathered(
            lambda x, y, w=weights: metrics_at_k.precision_at_k(x, y, k, class_id, w),  # type: ignore[misc]
            LABELS_K,
            SCORES_K,
            (None, 2),
        )
        np.testing.assert_allclose([value, update], precision, rtol=1e-6)
        value, update = gathered(
            lambda x, y, w=weights: metrics_at_k.recall_at_k(x, y, k, class_id, w),  # type: ignore[misc]
            LABELS_K,
            SCORES_K,
            (None, 2),
        )
        np.testing.assert_allclose([value, update], recall, rtol=1e-6)


def test_one_label_per_example_and_sparse_labels() -> None:
    flat = [labels[:, 0] for labels in LABELS_K]
    value, _ = gathered(lambda x, y: metrics_at_k.precision_at_k(x, y, 2), flat, SCORES_K)
    hits = [
        r in np.argsort(-s)[:2]
        for rows, scores in zip(flat, SCORES_K, strict=True)
        for r, s in zip(rows, scores, strict=True)
    ]
    np.testing.assert_allclose(value, np.sum(hits) / 24)

    def with_sparse(x: Any, y: Any) -> Any:
        sparse = SparseTensor([[0, 0], [1, 0], [2, 0], [3, 0]], x, [4, 3])
        return metrics_at_k.precision_at_k(sparse, y, 2)

    again, _ = gathered(with_sparse, flat, SCORES_K)
    assert again == value


def test_precision_at_given_classes() -> None:
    value, update = metrics_at_k.precision_at_top_k(np.array([[1, 2]]), np.array([[2, 5, 1]]), k=3)
    _, new_recall = metrics_at_k.recall_at_top_k(np.array([[1, 2, 3]]), np.array([[2, 5]]))
    with Session() as session:
        session.run(functions.local_variables_initializer())
        assert np.isnan(session.run(value))
        np.testing.assert_allclose(session.run([update, new_recall]), [2 / 3, 1 / 3])


@pytest.mark.parametrize("k", [1, 3])
def test_average_precision(k: int) -> None:
    found = []
    for labels, scores in zip(LABELS_K, SCORES_K, strict=True):
        for row, score in zip(labels, scores, strict=True):
            relevant = np.isin(np.argsort(-score)[:k], row)
            found.append((np.cumsum(relevant) / np.arange(1, k + 1) * relevant).sum() / min(k, 2))
    value, update = gathered(lambda x, y: metrics_at_k.average_precision_at_k(x, y, k), LABELS_K, SCORES_K, (None, 2))
    np.testing.assert_allclose([value, update], np.mean(found), rtol=1e-6)
    value, _ = gathered(
        lambda x, y: metrics_at_k.average_precision_at_k(x, y, k, WEIGHTS_K), LABELS_K, SCORES_K, (None, 2)
    )
    np.testing.assert_allclose(value, np.average(found, weights=np.tile(WEIGHTS_K, 3)), rtol=1e-6)
    with pytest.raises(ValueError, match="k=0"):
        metrics_at_k.average_precision_at_k([[1]], [[0.5, 0.5]], 0)


# ---------------------------------------------------------------------- names and collections
def test_names_and_collections() -> None:
    value, update = metrics.accuracy([1, 2], [1, 3], metrics_collections=["m"], updates_collections="u")
    metrics.accuracy([1, 2], [1, 3])
    metrics.precision([True], [True], name="mine")
    graph = get_default_graph()
    assert (value.name, update.name) == ("accuracy/value:0", "accuracy/update_op:0")
    assert graph.get_collection("m") == [value]
    assert graph.get_collection("u") == [update]
    names = [v.name for v in functions.local_variables()]
    assert names == [
        *("accuracy/total:0", "accuracy/count:0", "accuracy_1/total:0", "accuracy_1/count:0"),
        *("mine/true_positives/count:0", "mine/false_positives/count:0"),
    ]
    assert graph.get_collection(GraphKeys.METRIC_VARIABLES) == functions.local_variables()
    assert functions.global_variables() == []


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="incompatible"):
        metrics.accuracy(np.zeros(3), np.zeros(4))
    with pytest.raises(ValueError, match="Mismatch"):
        metrics.mean(np.zeros(3, np.float32), np.ones(2, np.float32))
