"""Rows of the statistics, splits and buckets of boosted trees, against loops over examples and over all splits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from anabranch.errors import InvalidArgumentError
from anabranch.testing.op_cases import OpCase

Array = np.ndarray[Any, Any]

RANDOM = np.random.default_rng(29)
BATCH, SPLITS, BUCKETS, DIMENSIONS = 40, 4, 5, 3
NODES = RANDOM.integers(1, SPLITS, BATCH).astype(np.int32)
FEATURES = RANDOM.integers(-1, BUCKETS, (BATCH, DIMENSIONS)).astype(np.int32)
#: nothing is exactly halfway between two 32-bit numbers: sums in any order are the same
STEPS = 1 / 64


def _numbers(width: int, least: int) -> Array:
    return (RANDOM.integers(least, 64, (BATCH, width)) * STEPS).astype(np.float32)


# ---------------------------------------------------------------------- sums
def _summary(gradients: Array, hessians: Array) -> Array:
    sums = np.zeros((SPLITS, DIMENSIONS, BUCKETS + 1, gradients.shape[1] + hessians.shape[1]))
    for i in range(BATCH):
        for dimension in range(DIMENSIONS):
            bucket = FEATURES[i, dimension] if FEATURES[i, dimension] >= 0 else BUCKETS
            sums[NODES[i], dimension, bucket] += [*gradients[i], *hessians[i]]
    return sums


def _plain_summary(gradients: Array, hessians: Array) -> Array:
    sums = np.zeros((DIMENSIONS, SPLITS, BUCKETS, 2))
    for i in range(BATCH):
        for dimension in range(DIMENSIONS):
            sums[dimension, NODES[i], max(FEATURES[i, dimension], 0)] += [gradients[i, 0], hessians[i, 0]]
    return sums


GRADIENTS, HESSIANS = _numbers(1, -64), _numbers(1, 1)
SUMMARY = _summary(GRADIENTS, HESSIANS).astype(np.float32)
PRESENT = np.argwhere(FEATURES >= 0).astype(np.int32)
SIZES = {"max_splits": SPLITS, "num_buckets": BUCKETS}


def _sparse(summary: Array) -> tuple[Array, Array, Array]:
    """A summary of positive hessians: its parts with an example."""
    used = np.argwhere(summary[..., 1] > 0)
    indices = np.array([[*place, stat] for place in used for stat in range(2)], np.int32).reshape(-1, 4)
    return indices, summary[tuple(indices.T)], np.array(summary.shape, np.int32)


def _sums() -> list[OpCase]:
    gradients, hessians = _numbers(2, -64), _numbers(4, 1)
    bounded = [np.maximum(FEATURES[:, i], 0) for i in range(DIMENSIONS)]
    sparse = (NODES, GRADIENTS, HESSIANS, PRESENT, FEATURES[FEATURES >= 0], np.array([BATCH, DIMENSIONS], np.int32))
    many = (NODES, gradients, hessians, FEATURES)
    none = np.zeros((0, 2), np.int32)
    return [
        OpCase("BoostedTreesMakeStatsSummary", (NODES, GRADIENTS, HESSIANS, bounded), SIZES,
               expected=_plain_summary(GRADIENTS, HESSIANS).astype(np.float32)),
        OpCase("BoostedTreesMakeStatsSummary", (NODES, GRADIENTS, HESSIANS, [bounded[0] + 9]), SIZES,
               error=InvalidArgumentError, label="no such bucket"),
        OpCase("BoostedTreesAggregateStats", (NODES, GRADIENTS, HESSIANS, FEATURES), SIZES, expected=SUMMARY),
        OpCase("BoostedTreesAggregateStats", many, SIZES, expected=_summary(gradients, hessians).astype(np.float32),
               label="two logits"),
        OpCase("BoostedTreesAggregateStats", (NODES - 2, *many[1:]), SIZES, error=InvalidArgumentError,
               label="node -1"),
        OpCase("BoostedTreesSparseAggregateStats", sparse, SIZES, expected=_sparse(SUMMARY)),
        OpCase("BoostedTreesSparseAggregateStats", (*sparse[:3], none, np.zeros(0, np.int32), sparse[5]), SIZES,
               expected=_sparse(_moved_to_missing(SUMMARY)), label="nothing present"),
        OpCase("BoostedTreesSparseAggregateStats", (*sparse[:3], PRESENT[::-1].copy(), *sparse[4:]), SIZES,
               error=InvalidArgumentError, label="falling"),
    ]  # fmt: skip


def _moved_to_missing(summary: Array) -> Array:
    moved = np.zeros_like(summary)
    moved[:, :, -1] = summary.sum(axis=2)
    return moved


# ---------------------------------------------------------------------- splits
L1, L2, COMPLEXITY, LEAST = np.float32(0.25), np.float32(0.5), np.float32(0.125), np.float32(0.5)
REGULAR = (L1, L2, COMPLEXITY, LEAST)


def _weight(gradient: float, hessian: float, l1: float) -> float:
    """By trying which sign the weight has."""
    if hessian + L2 <= 1e-15:
        return 0.0
    positive, negative = -(gradient + l1) / (hessian + L2), -(gradient - l1) / (hessian + L2)
    return positive if positive > 0 else negative if negative < 0 else 0.0


def _gain(gradient: float, hessian: float, l1: float) -> float:
    """Twice the decrease of the loss."""
    weight = _weight(gradient, hessian, l1)
    return float(-2 * (gradient * weight + (hessian + L2) * weight**2 / 2 + l1 * abs(weight)))


def _sides(stats: Array, missing: Array, equality: bool) -> Iterator[tuple[int, Array, bytes]]:
    """Of one dimension: bucket, sums of the left side, and kind of each split."""
    for bucket in range(len(stats)):
        if equality:
            yield bucket, stats[bucket], b"EQUALITY_DEFAULT_RIGHT"
        else:
            left = stats[: bucket + 1].sum(axis=0)
            yield bucket, left + missing, b"INEQUALITY_DEFAULT_LEFT"
            yield bucket, left, b"INEQUALITY_DEFAULT_RIGHT"


def _best_splits(summary: Array, l1: float, equality: bool) -> list[Any]:
    rows = []
    for node in range(1, SPLITS):
        total = summary[node, 0].sum(axis=0)
        if total[1] < LEAST:
            continue
        best: Any = None
        for dimension in range(summary.shape[1]):
            stats = summary[node, dimension]
            for bucket, left, kind in _sides(stats[:-1], stats[-1], equality):
                right = total - left
                gain = _gain(*left, l1) + _gain(*right, l1)
                if best is None or gain > best[1] + 1e-6:
                    best = (node, gain, dimension, bucket, [_weight(*left, l1)], [_weight(*right, l1)], kind)
        rows.append((node, best[1] - _gain(*total, l1) - COMPLEXITY, *best[2:]))
    types = (np.int32, np.float32, np.int32, np.int32, np.float32, np.float32, object)
    return [np.array([row[i] for row in rows], t) for i, t in enumerate(types)]


def _split_rows() -> list[OpCase]:
    found = [1, SPLITS]
    wide = _best_splits(SUMMARY.astype(np.float64), float(L1), False)
    equal = _best_splits(SUMMARY.astype(np.float64), float(L1), True)
    alone = SUMMARY[:, 0].copy()
    alone[:, -1] = 0  # the older operation has no bucket for what is missing
    one = _best_splits(np.concatenate([alone, np.zeros_like(alone[:, :1])], axis=1)[:, None].astype(float), 0.25, False)
    two = np.zeros((1, 1, 3, 4), np.float32)
    two[0, 0, 0], two[0, 0, 1] = [2, -4, 1, 3], [-2, 1, 3, 1]
    return [
        OpCase("BoostedTreesCalculateBestGainsPerFeature", (found, [alone, alone], *REGULAR), {"max_splits": SPLITS},
               expected=[c for i in (0, 1, 3, 4, 5) for c in (one[i], one[i])], tolerance=1e-4),
        OpCase("BoostedTreesCalculateBestFeatureSplit", (found, SUMMARY, *REGULAR), {"logits_dimension": 1},
               expected=wide, tolerance=1e-4),
        OpCase("BoostedTreesCalculateBestFeatureSplit", (found, SUMMARY, *REGULAR),
               {"logits_dimension": 1, "split_type": "equality"}, expected=equal, tolerance=1e-4, label="equality"),
        OpCase("BoostedTreesCalculateBestFeatureSplit", ([0, 1], two, 0.0, 1.0, 0.0, 0.0), {"logits_dimension": 2},
               expected=(np.array([0], np.int32), np.array([4 / 2 + 16 / 4 + 4 / 4 + 1 / 2 - 9 / 5], np.float32),
                         np.array([0], np.int32), np.array([0], np.int32), np.array([[-1.0, 1.0]], np.float32),
                         np.array([[0.5, -0.5]], np.float32), np.array([b"INEQUALITY_DEFAULT_LEFT"], object)),
               label="two logits"),
        OpCase("BoostedTreesCalculateBestFeatureSplit", ([0, 1], two, 0.5, 1.0, 0.0, 0.0), {"logits_dimension": 2},
               error=InvalidArgumentError, label="l1 of two logits"),
        OpCase("BoostedTreesCalculateBestFeatureSplit", ([0, 9], two, 0.0, 1.0, 0.0, 0.0), {"logits_dimension": 2},
               error=InvalidArgumentError, label="no such nodes"),
        OpCase("BoostedTreesSparseCalculateBestFeatureSplit", (found, *_sparse(SUMMARY), *REGULAR),
               {"logits_dimension": 1}, verify=lambda outputs: _same_gains(outputs, wide)),
        OpCase("BoostedTreesSparseCalculateBestFeatureSplit", ([0, 1], *_sparse(SUMMARY), *REGULAR),
               {"logits_dimension": 1}, error=InvalidArgumentError, label="other nodes"),
    ]  # fmt: skip


def _same_gains(outputs: list[Array], expected: list[Array]) -> None:
    """Of the sparse form, which tries the kinds in the other order: of equal splits it may take another."""
    for i in (0, 1):
        np.testing.assert_allclose(outputs[i], expected[i], rtol=1e-4)


# ---------------------------------------------------------------------- buckets
def _buckets() -> list[OpCase]:
    values = np.array([-1.0, 0.0, 0.5, 2.0, np.nan, np.inf], np.float32)
    bounds = np.array([0.0, 1.0, 1.5], np.float32)
    empty = np.zeros(0, np.float32)
    weights = np.array([1, 2, 0, 4, -1], np.float32)
    numbers = np.array([3, 1, 9, 1, 5], np.float32)
    summary = np.array([[1, 6, 0, 6], [3, 1, 6, 7]], np.float32)
    return [
        OpCase("BoostedTreesBucketize", ([values, values], [bounds, empty]),
               expected=(np.array([0, 0, 1, 2, 0, 2], np.int32), np.zeros(6, np.int32))),
        OpCase("BoostedTreesMakeQuantileSummaries", ([numbers, numbers[:5]], weights, 0.1), expected=[summary] * 2),
        OpCase("BoostedTreesMakeQuantileSummaries", ([empty], empty, 0.1), expected=[np.zeros((0, 4), np.float32)],
               label="empty"),
        OpCase("BoostedTreesMakeQuantileSummaries", ([numbers], weights[:2], 0.1), error=InvalidArgumentError,
               label="other weights"),
        OpCase("BoostedTreesMakeQuantileSummaries", ([numbers], weights, 0.0), error=InvalidArgumentError,
               label="epsilon 0"),
    ]  # fmt: skip


CASES = [*_sums(), *_split_rows(), *_buckets()]
