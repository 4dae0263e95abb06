"""Rows for slices, gathers, scatters, partitions, and operations with results of data-dependent size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anabranch import errors
from anabranch.testing.op_cases import OpCase

R = np.random.default_rng(5)


def real(*shape: int) -> Any:
    return R.normal(size=shape).astype(np.float32)


def ints(*values: Any) -> Any:
    return np.array(values, np.int32)


X = real(4, 3)
T = np.array([b"a", b"bc", b"", b"a"], np.object_)
INVALID = errors.InvalidArgumentError


UNSORTED = R.choice([np.nan, -np.inf, 0, 1, 2, 3], size=(9, 7)).astype(np.float32)


def bisected(row: Any, value: Any, lower: bool) -> int:
    """C++'s lower_bound or upper_bound, which say what they do with any row."""
    first, count = 0, len(row)
    while count > 0:
        step = count // 2
        if row[first + step] < value if lower else not value < row[first + step]:
            first, count = first + step + 1, count - step - 1
        else:
            count = step
    return first


# ---------------------------------------------------------------------- slices
class Indexing:
    """`at[...]`: a NumPy indexing expression with what `StridedSlice` takes for it."""

    def __getitem__(self, item: Any) -> tuple[Any, tuple[Any, Any, Any], dict[str, int]]:
        entries = item if isinstance(item, tuple) else (item,)
        masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
        rows = []
        for i, entry in enumerate(entries):
            if entry is Ellipsis or entry is None:
                masks["ellipsis_mask" if entry is Ellipsis else "new_axis_mask"] |= 1 << i
                rows.append((0, 0, 1))
            elif isinstance(entry, slice):
                masks["begin_mask"] |= (entry.start is None) << i
                masks["end_mask"] |= (entry.stop is None) << i
                rows.append((entry.start or 0, entry.stop or 0, entry.step or 1))
            else:
                masks["shrink_axis_mask"] |= 1 << i
                rows.append((entry, entry + 1, 1))
        begin, end, strides = (ints(*column) for column in zip(*rows, strict=True))
        return item, (begin, end, strides), masks


at = Indexing()
EXPRESSIONS = [
    at[1],
    at[-1],
    at[1:3],
    at[:, 1],
    at[..., -2],
    at[None, ..., None],
    at[::2, ::-1],
    at[3:0:-2],
    at[-100:100],
    at[2:1],
    at[1, None, :, 2],
    at[:, 1:],
    at[..., None, 1:3],
    at[::-3, -1],
]
VOLUME = real(4, 3, 5)


def sliced(item: Any) -> Callable[..., Any]:
    return lambda x, *_: x[item]


def scattered(item: Any) -> Callable[..., Any]:
    def oracle(shape: Any, begin: Any, end: Any, strides: Any, dy: Any) -> Any:
        out = np.zeros(shape, dy.dtype)
        out[item] = dy
        return out

    return oracle


SLICES = [
    *[
        OpCase("StridedSlice", (VOLUME, *bounds), masks, oracle=sliced(item), order=2, label=str(item))
        for item, bounds, masks in EXPRESSIONS
    ],
    *[
        OpCase(
            "StridedSliceGrad",
            (ints(4, 3, 5), *bounds, VOLUME[item]),
            masks,
            oracle=scattered(item),
            order=2,
            label=str(item),
        )
        for item, bounds, masks in EXPRESSIONS
    ],
    OpCase("StridedSlice", (T, ints(1), ints(3), ints(1)), oracle=lambda x, *_: x[1:3], label="string"),
    OpCase("StridedSlice", (X, ints(4), ints(5), ints(1)), {"shrink_axis_mask": 1}, error=INVALID, label="range"),
    OpCase("StridedSlice", (X, ints(-5), ints(-4), ints(1)), {"shrink_axis_mask": 1}, error=INVALID, label="below"),
    OpCase("StridedSlice", (X, ints(0), ints(1), ints(0)), error=INVALID, label="stride 0"),
    OpCase("StridedSlice", (X, ints(0, 0, 0), ints(1, 1, 1), ints(1, 1, 1)), error=INVALID, label="too many"),
    OpCase("Slice", (VOLUME, ints(1, 0, 2), ints(2, -1, 3)), oracle=lambda x, *_: x[1:3, :, 2:5], order=2),
    OpCase("Slice", (T, ints(1), ints(-1)), oracle=lambda x, *_: x[1:], label="string"),
    OpCase("Slice", (X, ints(3, 0), ints(2, 1)), error=INVALID, label="beyond"),
    OpCase("Slice", (X, ints(-1, 0), ints(2, 1)), error=INVALID, label="before"),
    OpCase(
        "XlaDynamicUpdateSlice",
        (X, real(2, 2), ints(1, 1)),
        oracle=lambda x, u, i: np.concatenate([x[:1], np.concatenate([x[1:3, :1], u], 1), x[3:]]),
        order=2,
    ),
]


# ---------------------------------------------------------------------- gathers and scatters
def batched(params: Any, indices: Any, axis: int) -> Any:
    return np.stack([np.take(p, i, axis=axis) for p, i in zip(params, indices, strict=True)])


def put(target: Any, indices: Any, updates: Any, change: Callable[[Any, Any], Any]) -> Any:
    out = np.array(target)
    for where in np.ndindex(*indices.shape[:-1]):
        key = tuple(indices[where])
        out[key] = change(out[key], updates[where])
    return out


ROWS = ints([0, 2], [2, 1])
CELLS = ints([0, 1], [3, 2], [0, 1])

GATHERS = [
    OpCase("Gather", (X, ROWS), oracle=lambda p, i: p[i], order=2),
    OpCase("GatherV2", (X, ROWS, np.int32(0)), oracle=lambda p, i, a: p[i], order=2),
    # TensorFlow does not look at indices of what has no elements
    OpCase(
        "Gather",
        (X[:, :0], ints([0, 9])),
        oracle=lambda p, i: np.zeros((*i.shape, 0, *p.shape[2:])),
        gradient=False,
        label="empty",
    ),
    OpCase(
        "GatherV2",
        (VOLUME[:0], ints([-1, 9]), np.int32(1)),
        oracle=lambda p, i, a: np.zeros((0, *i.shape, *p.shape[2:])),
        gradient=False,
        label="empty",
    ),
    OpCase("GatherV2", (X, np.int64(1), np.int32(0)), oracle=lambda p, i, a: p[1], label="scalar"),
    OpCase("GatherV2", (X, ROWS, np.int32(-1)), oracle=lambda p, i, a: p[:, i], order=2, label="last"),
    OpCase("GatherV2", (VOLUME, ints(2, 2, 0), np.int32(1)), oracle=lambda p, i, a: p[:, i], order=2, label="middle"),
    OpCase("GatherV2", (T, ROWS, np.int32(0)), oracle=lambda p, i, a: p[i], label="string"),
    OpCase(
        "GatherV2",
        (real(2, 3, 4), ROWS, np.int32(1)),
        {"batch_dims": 1},
        order=2,
        label="batch",
        oracle=lambda p, i, a: batched(p, i, 0),
    ),
    OpCase(
        "GatherV2",
        (real(2, 3, 4), ROWS, np.int32(2)),
        {"batch_dims": 1},
        order=2,
        label="batch, last axis",
        oracle=lambda p, i, a: batched(p, i, 1),
    ),
    OpCase(
        "GatherV2",
        (real(2, 3, 2, 4), ints([[0, 1, 1], [0, 0, 1], [1, 1, 1]], [[0, 1, 0], [1, 0, 1], [1, 0, 0]]), np.int32(2)),
        {"batch_dims": 2},
        order=2,
        label="two batch dimensions",
        oracle=lambda p, i, a: np.stack([batched(x, y, 0) for x, y in zip(p, i, strict=True)]),
    ),
    OpCase("GatherV2", (X, ints(0, 4), np.int32(0)), error=INVALID, label="beyond"),
    OpCase("GatherV2", (X, ints(-1), np.int32(0)), error=INVALID, label="negative"),
    OpCase("GatherV2", (X, np.zeros(0, np.int32), np.int32(0)), oracle=lambda p, i, a: p[:0], label="empty"),
    OpCase("GatherNd", (X, CELLS), oracle=lambda p, i: p[tuple(i.T)], order=2),
    OpCase("GatherNd", (X, ints([[1], [0]], [[2], [2]])), oracle=lambda p, i: p[i[..., 0]], order=2, label="rows"),
    OpCase("GatherNd", (X, ints([1], [1])), oracle=lambda p, i: p[i[..., 0]], order=2, label="slices"),
    OpCase("GatherNd", (X, np.zeros((2, 0), np.int32)), oracle=lambda p, i: np.stack([p, p]), order=2, label="whole"),
    OpCase("GatherNd", (T, ints([3], [1])), oracle=lambda p, i: p[[3, 1]], label="string"),
    OpCase("GatherNd", (X, ints([0, 3])), error=INVALID, label="beyond"),
    OpCase(
        "GatherNd",
        (X, ints([0, 3], [1, 1])),
        {"bad_indices_policy": "IGNORE"},
        order=2,
        label="ignore",
        oracle=lambda p, i: np.array([0, p[1, 1]]),
    ),
    OpCase(
        "ScatterNd",
        (CELLS, real(3), ints(4, 3)),
        order=2,
        oracle=lambda i, u, s: put(np.zeros(s, u.dtype), i, u, lambda a, b: a + b),
    ),
    OpCase(
        "ScatterNd",
        (ints([1], [3]), real(2, 3), ints(4, 3)),
        order=2,
        label="rows",
        oracle=lambda i, u, s: put(np.zeros(s, u.dtype), i, u, lambda a, b: a + b),
    ),
    OpCase("ScatterNd", (ints([4]), real(1, 3), ints(4, 3)), error=INVALID, label="beyond"),
    OpCase(
        "ScatterNd",
        (ints([4], [0]), ints(7, 8), ints(4)),
        {"bad_indices_policy": "IGNORE"},
        label="ignore",
        expected=ints(8, 0, 0, 0),
    ),
    OpCase(
        "TensorScatterUpdate",
        (X, ints([0, 3], [1, 1]), real(2)),
        {"bad_indices_policy": "IGNORE"},
        order=2,
        label="ignore",
        oracle=lambda x, i, u: put(x, i[1:], u[1:], lambda a, b: b),
    ),
    OpCase(
        "TensorScatterAdd",
        (X, ints([0, 3], [1, 1]), real(2)),
        {"bad_indices_policy": "IGNORE"},
        order=2,
        label="ignore",
        oracle=lambda x, i, u: put(x, i[1:], u[1:], lambda a, b: a + b),
    ),
    OpCase(
        "TensorScatterUpdate", (X, CELLS[:2], real(2)), order=2, oracle=lambda x, i, u: put(x, i, u, lambda a, b: b)
    ),
    OpCase(
        "TensorScatterUpdate",
        (T, ints([1]), T[:1]),
        oracle=lambda x, i, u: put(x, i, u, lambda a, b: b),
        label="string",
    ),
    OpCase("TensorScatterAdd", (X, CELLS, real(3)), order=2, oracle=lambda x, i, u: put(x, i, u, lambda a, b: a + b)),
    OpCase("TensorScatterSub", (X, CELLS, real(3)), order=2, oracle=lambda x, i, u: put(x, i, u, lambda a, b: a - b)),
    OpCase("TensorScatterSub", (X, ints([0, 3]), real(1)), error=INVALID, label="beyond"),
    OpCase("TensorScatterAdd", (X, CELLS, real(2)), error=INVALID, label="shapes"),
    OpCase(
        "ScatterNdNonAliasingAdd",
        (np.eye(4, 3) > 0, np.array([[0, 1], [0, 1], [0, 0]]), np.array([True, False, False])),
        expected=np.eye(4, 3) + np.eye(4, 3, 1) * (np.arange(4) == 0)[:, None] > 0,
        label="truth values",
    ),
    OpCase(
        "ScatterNdNonAliasingAdd", (X, CELLS, real(3)), order=2, oracle=lambda x, i, u: put(x, i, u, lambda a, b: a + b)
    ),
]


# ---------------------------------------------------------------------- data flow
def first_occurrences(x: Any) -> list[Any]:
    return list(dict.fromkeys(x.tolist()))


def unique(x: Any) -> Any:
    values = first_occurrences(x)
    found = np.array(values, x.dtype) if x.dtype != np.object_ else np.array([*values, None], np.object_)[:-1]
    return found, np.array([values.index(v) for v in x.tolist()], np.int32)


def unique_with_counts(x: Any, *_: Any) -> Any:
    return (*unique(x), np.array([x.tolist().count(v) for v in first_occurrences(x)], np.int32))


def stitched(indices: list[Any], data: list[Any]) -> Any:
    out = np.zeros((1 + max(int(i.max()) for i in indices), data[0].shape[-1]), data[0].dtype)
    for index, rows in zip(indices, data, strict=True):
        for where in np.ndindex(*index.shape):
            out[index[where]] = rows[where]
    return out


REPEATED = ints(3, 1, 3, 7, 1, 1)
TABLE = ints([2, 1], [0, 5], [2, 1])

DATA_FLOW = [
    OpCase("Where", (np.array([[True, False], [True, True]]),), oracle=np.argwhere),
    OpCase("Where", (ints(0, 4, 0, -1),), oracle=np.argwhere, label="numbers"),
    OpCase("Where", (np.array(True),), error=INVALID, label="scalar"),
    OpCase("Unique", (REPEATED,), oracle=unique),
    OpCase("Unique", (T,), oracle=unique, label="string"),
    OpCase(
        "Unique",
        (np.float32([np.nan, 0, np.nan, -0.0]),),
        expected=(np.float32([np.nan, 0, np.nan]), np.int32([0, 1, 2, 1])),
        label="NaN",
    ),
    OpCase(
        "UniqueV2",
        (np.float32([[np.nan, 1], [2, 3], [np.nan, 1], [2, 3]]), np.int64([0])),
        expected=(np.float32([[np.nan, 1], [2, 3], [np.nan, 1]]), np.int32([0, 1, 2, 1])),
        label="NaN",
    ),
    OpCase("Unique", (np.zeros(0, np.int32),), oracle=unique, label="empty"),
    OpCase("UniqueWithCounts", (REPEATED,), oracle=unique_with_counts),
    OpCase("UniqueV2", (TABLE, np.array([0], np.int64)), expected=[TABLE[:2], ints(0, 1, 0)]),
    OpCase("UniqueV2", (REPEATED, np.zeros(0, np.int64)), oracle=lambda x, a: unique(x), label="vector"),
    OpCase("UniqueWithCountsV2", (TABLE, np.array([0], np.int64)), expected=[TABLE[:2], ints(0, 1, 0), ints(2, 1)]),
    OpCase("UnravelIndex", (ints(5, 0), ints(2, 3)), expected=ints([1, 0], [2, 0])),
    OpCase("UnravelIndex", (np.int32(4), ints(2, 3)), expected=ints(1, 1), label="scalar"),
    OpCase("UnravelIndex", (ints(6), ints(2, 3)), error=INVALID, label="range"),
    OpCase("UnravelIndex", (ints(3), ints(-2, -3)), error=INVALID, label="negative sizes"),
    OpCase("ListDiff", (REPEATED, ints(1, 9)), expected=[ints(3, 3, 7), ints(0, 2, 3)]),
    OpCase("ListDiff", (T, T[1:2]), expected=[T[[0, 2, 3]], ints(0, 2, 3)], label="string"),
    OpCase(
        "DynamicPartition",
        (X, ints(1, 0, 1, 2)),
        {"num_partitions": 4},
        order=2,
        oracle=lambda d, p: [d[p == k] for k in range(4)],
    ),
    OpCase(
        "DynamicPartition",
        (X[:2], ints([1, 0, 1], [1, 1, 0])),
        {"num_partitions": 2},
        label="elements",
        oracle=lambda d, p: [d[p == k] for k in range(2)],
    ),
    OpCase("DynamicPartition", (X, ints(1, 0, 1, 2)), {"num_partitions": 2}, error=INVALID, label="beyond"),
    *[
        OpCase(op, ([ints(4, 0), ints([1, 3], [2, 5])], [real(2, 3), real(2, 2, 3)]), order=2, oracle=stitched)
        for op in ("DynamicStitch", "ParallelDynamicStitch")
    ],
    OpCase(
        "DynamicStitch",
        ([ints(4, 0), ints([1, 3], [2, 0])], [real(2, 3), real(2, 2, 3)]),
        gradient=False,
        label="the last row wins",
        oracle=stitched,
    ),
    OpCase(
        "DynamicStitch",
        ([ints(1), ints(0, 2)], [T[:1], T[1:3]]),
        label="string",
        oracle=lambda i, d: np.array([d[1][0], d[0][0], d[1][1]], np.object_),
    ),
    *[
        OpCase(
            op,
            (np.sort(REPEATED)[None].repeat(2, 0), ints([0, 1, 3], [8, 7, 2])),
            label=op,
            oracle=lambda a, v, side=side: np.stack([np.searchsorted(r, w, side) for r, w in zip(a, v, strict=True)]),
        )
        for op, side in (("LowerBound", "left"), ("UpperBound", "right"))
    ],
    *[
        OpCase(
            op,
            (UNSORTED, np.repeat(np.arange(-1, 4, dtype=np.float32)[None], 9, 0)),
            oracle=lambda a, v, lower=op == "LowerBound": np.array(
                [[bisected(row, value, lower) for value in values] for row, values in zip(a, v, strict=True)]
            ),
            label="not sorted",
        )
        for op in ("LowerBound", "UpperBound")
    ],
    *[
        OpCase(op, (real(2, 0), real(2, 3)), expected=np.zeros((2, 3), np.int32), label="none")
        for op in ("LowerBound", "UpperBound")
    ],
    *[
        OpCase(op, (x, np.array([], np.int64)), error=INVALID, label=f"no axis, {np.ndim(x)}")
        for op in ("UniqueV2", "UniqueWithCountsV2")
        for x in (real(2, 2), np.float32(1), real(2, 0))
    ],
    *[
        OpCase(
            "EditDistance",
            (
                np.array([[0, 0], [0, 1], [1, 0]], np.int64),
                T[[0, 1, 0]],
                np.array([2, 2], np.int64),
                np.array([[0, 0], [0, 1], [0, 2], [0, 3]], np.int64),
                T,
                np.array([2, 4], np.int64),
            ),
            {"normalize": normalize},
            expected=np.array(wanted, np.float32),
            label=str(normalize),
        )
        for normalize, wanted in ((False, [2, 1]), (True, [0.5, np.inf]))
    ],
]


CASES = [*SLICES, *GATHERS, *DATA_FLOW]
