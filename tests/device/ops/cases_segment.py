"""Rows for reductions over segments of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from anabranch import errors
from anabranch.testing.op_cases import OpCase

X = np.array(
    [[0.7, -1.9, 0.3], [2.6, -0.4, 1.1], [0.2, 0.9, -1.2], [1.3, 0.8, -2.2], [0.6, -1.7, 0.4], [-0.1, 2.3, 0.75]],
    np.float32,
)
IDS = np.int32([0, 0, 1, 3, 3, 3])
SHUFFLED = np.int32([2, 0, -1, 2, 4, 0])
ALL_IDS = np.int32([2, 0, 1, 2, 4, 3])
#: whole numbers that a double cannot hold; taken for unsigned, some are beyond 2 ** 63
LARGE = np.int64([[2**53 + 1], [2**53 + 3], [-(2**60) - 1], [7], [2**60 + 1], [2**59 + 5]])
ZEROS = np.float64([[0, 2], [3, 0], [0, 0], [4, 5], [0, 6], [1, 7]])
CHOSEN = np.int32([0, 2, 2, 5, 1, 0])


def by_segment(function: Callable[..., Any], empty: float, segments: int | None = None) -> Callable[..., Any]:
    """The oracle: `function` of the rows of each id, axis 0; `empty` where there are none."""

    def oracle(data: Any, ids: Any, *_: Any) -> Any:
        count = int(ids.max()) + 1 if segments is None else segments
        depth = ids.ndim
        flat = data.reshape(-1, *data.shape[depth:])
        rows = [flat[ids.reshape(-1) == i] for i in range(count)]
        return np.stack(
            [function(r, axis=0) if len(r) else np.full(data.shape[depth:], empty, data.dtype) for r in rows]
        )

    return oracle


def truncated_mean(x: Any, axis: int) -> Any:
    return np.trunc(np.mean(x.astype(np.float64), axis=axis))


def whole_mean(x: Any, axis: int) -> Any:
    """The mean as Python computes it with whole numbers of any size."""
    totals = np.sum(x.astype(np.object_), axis=axis)
    return np.array([int(np.sign(t)) * (abs(t) // len(x)) for t in totals], x.dtype)


def sorted_segments(op: str, function: Callable[..., Any], empty: float) -> list[OpCase]:
    oracle = by_segment(function, empty)
    whole = truncated_mean if op == "SegmentMean" else function
    return [
        OpCase(op, (X, IDS), oracle=oracle, order=2),
        OpCase(op, (X[:, 0], IDS.astype(np.int64)), oracle=oracle, label="vector"),
        OpCase(op, ((X * 10).astype(np.int32), IDS), oracle=by_segment(whole, empty), label="int32"),
        OpCase(op, (X.astype(ml_dtypes.bfloat16), IDS), oracle=oracle, gradient=False, tolerance=0.1, label="bfloat16"),
        OpCase(op, (X[:0], IDS[:0]), expected=np.zeros((0, 3)), gradient=False, label="empty"),
        OpCase(op, (X, IDS[::-1]), error=errors.InvalidArgumentError, label="not sorted"),
        OpCase(op, (X, IDS - 1), error=errors.InvalidArgumentError, label="negative"),
        OpCase(op, (X, IDS[:3]), error=errors.InvalidArgumentError, label="too few ids"),
    ]


def unsorted_segments(op: str, function: Callable[..., Any], empty: Callable[[Any], float]) -> list[OpCase]:
    def oracle(dtype: Any, segments: int = 5) -> Callable[..., Any]:
        return by_segment(function, empty(dtype), segments)

    # differences between the greatest numbers, which stand for empty segments, would overflow
    gradient = False if abs(empty(np.float32)) > 1 else None
    return [
        OpCase(op, (X, ALL_IDS, 5), oracle=oracle(np.float32), order=2),
        OpCase(op, (X, SHUFFLED, 5), oracle=oracle(np.float32), gradient=gradient, label="empty segments"),
        OpCase(
            op,
            (X.reshape(2, 3, 3), SHUFFLED.reshape(2, 3), 5),
            oracle=oracle(np.float32),
            gradient=gradient,
            label="ids of rank 2",
        ),
        OpCase(
            op,
            (X, np.abs(SHUFFLED[:, None] * np.int32([1, 1, 1])), 5),
            oracle=oracle(np.float32),
            gradient=gradient,
            label="full rank",
        ),
        OpCase(op, ((X * 10).astype(np.int32), SHUFFLED, np.int64(5)), oracle=oracle(np.int32), label="int32"),
        OpCase(op, (X, SHUFFLED, 4), error=errors.InvalidArgumentError, label="id too large"),
        OpCase(op, (X, SHUFFLED[:3], 5), error=errors.InvalidArgumentError, label="too few ids"),
    ]


def lowest(dtype: Any) -> float:
    return float(np.finfo(dtype).min if np.dtype(dtype).kind == "f" else np.iinfo(dtype).min)


def highest(dtype: Any) -> float:
    return float(np.finfo(dtype).max if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max)


SCALES: dict[str, Callable[[int], float]] = {"Sum": lambda n: 1.0, "Mean": lambda n: n, "SqrtN": np.sqrt}


def sparse(kind: str) -> list[OpCase]:
    def reduce(x: Any, axis: int) -> Any:
        return np.sum(x, axis=axis) / SCALES[kind](len(x))

    def forward(segments: int | None) -> Callable[..., Any]:
        return lambda data, indices, ids, *_: by_segment(reduce, 0, segments)(data[indices], ids)

    name, more = f"SparseSegment{kind}", f"SparseSegment{kind}WithNumSegments"
    return [
        OpCase(name, (X, CHOSEN, IDS), oracle=forward(None), order=2),
        OpCase(name, (X, CHOSEN[:0], IDS[:0]), expected=np.zeros((0, 3)), gradient=False, label="empty"),
        OpCase(name, (X, CHOSEN + 1, IDS), error=errors.InvalidArgumentError, label="index too large"),
        OpCase(name, (X, CHOSEN, IDS[::-1]), error=errors.InvalidArgumentError, label="not sorted"),
        OpCase(more, (X, CHOSEN, IDS, 6), oracle=forward(6), order=2),
        OpCase(more, (X, CHOSEN.astype(np.int64), IDS, np.int64(4)), oracle=forward(4), label="int64"),
        OpCase(more, (X, CHOSEN, IDS, 3), error=errors.InvalidArgumentError, label="id too large"),
        OpCase(more, (X, CHOSEN + 1, IDS, 6), error=errors.InvalidArgumentError, label="index too large"),
    ]


def sparse_gradient(kind: str) -> list[OpCase]:
    def oracle(grad: Any, indices: Any, ids: Any, rows: Any) -> Any:
        out = np.zeros((int(rows), grad.shape[1]), np.float64)
        for index, segment in zip(indices, ids, strict=True):
            out[index] += grad[segment] / SCALES[kind](int(np.sum(ids == segment)))
        return out

    return [
        OpCase(f"SparseSegment{kind}Grad", (X[:4], CHOSEN, IDS, 7), oracle=oracle),
        OpCase(f"SparseSegment{kind}Grad", (X[:4], CHOSEN, IDS, 3), error=errors.InvalidArgumentError, label="index"),
    ]


CASES = [
    *sorted_segments("SegmentSum", np.sum, 0),
    *sorted_segments("SegmentMean", np.mean, 0),
    OpCase("SegmentMean", (LARGE, IDS), oracle=by_segment(whole_mean, 0), label="int64, large"),
    OpCase("SegmentMean", (LARGE.view(np.uint64), IDS), oracle=by_segment(whole_mean, 0), label="uint64, large"),
    *sorted_segments("SegmentProd", np.prod, 1),
    *sorted_segments("SegmentMax", np.max, 0),
    *sorted_segments("SegmentMin", np.min, 0),
    *unsorted_segments("UnsortedSegmentSum", np.sum, lambda dtype: 0),
    *unsorted_segments("UnsortedSegmentProd", np.prod, lambda dtype: 1),
    *unsorted_segments("UnsortedSegmentMax", np.max, lowest),
    *unsorted_segments("UnsortedSegmentMin", np.min, highest),
    OpCase("SegmentProd", (ZEROS, IDS), oracle=by_segment(np.prod, 1), label="zeros", order=2),
    OpCase("UnsortedSegmentProd", (ZEROS, SHUFFLED, 5), oracle=by_segment(np.prod, 1, 5), label="zeros", order=2),
    *sparse("Sum"),
    *sparse("Mean"),
    *sparse("SqrtN"),
    *sparse_gradient("Sum"),
    *sparse_gradient("Mean"),
    *sparse_gradient("SqrtN"),
]
