"""Rows for reductions, cumulative operations, positions, sequences and counting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from anabranch import errors
from anabranch.testing.op_cases import OpCase

X = np.array(
    [
        [[0.7, -1.9, 0.3, 1.4], [2.6, -0.4, 1.1, -0.8], [0.2, 0.9, -1.2, 2.1]],
        [[1.3, 0.8, -2.2, 0.5], [0.6, -1.7, 0.4, 1.8], [-0.1, 2.3, 0.75, -1.6]],
    ],
    np.float32,
)
#: whole numbers that a double cannot hold
LARGE = np.int64([[[2**60 + 1], [-(2**60) - 3]], [[5], [2**59 + 1]]])
I = (X * 10).astype(np.int32)
Z = X.astype(np.complex64) + 1j * X[::-1, :, ::-1]
FLAGS = X > 0
EMPTY = np.zeros((2, 0, 3), np.float32)
WITH_ZEROS = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 1.5], [1.2, -0.7, 2.0]], np.float64)

AXES: list[tuple[Any, Any]] = [(1, 1), (-1, -1), ([0, 2], (0, 2)), ([2, -2], (2, 1)), ([0, 1, 2], None), ([], ())]


def reduction(op: str, oracle: Callable[..., Any], x: Any = X, **more: Any) -> list[OpCase]:
    """All kinds of axes, with and without the reduced dimensions."""
    rows = [
        OpCase(
            op,
            (x, np.int32(given)),
            {"keep_dims": keep},
            label=f"{x.dtype} axis={given}{' keep' * keep}",
            oracle=lambda x, _, axis=axis, keep=keep: oracle(x, axis=axis, keepdims=keep),
            order=2 if given == [0, 2] else 1,
            **more,
        )
        for given, axis in AXES
        for keep in (False, True)
    ]
    rows.append(OpCase(op, (x, np.int64(1)), oracle=lambda x, _: oracle(x, axis=1), label="int64 axis", gradient=False))
    rows.append(OpCase(op, (x, 3), error=errors.InvalidArgumentError, label="axis out of range"))
    return rows


def of_type(op: str, oracle: Callable[..., Any], x: Any, label: str, **more: Any) -> OpCase:
    return OpCase(op, (x, np.int32([0, 2])), oracle=lambda x, _: oracle(x, axis=(0, 2)), label=label, **more)


def norm(x: Any, axis: Any, keepdims: bool = False) -> Any:
    if axis == ():
        return np.abs(x)
    return np.sqrt(np.sum(np.abs(x) ** 2, axis=axis, keepdims=keepdims))


def truncated_mean(x: Any, axis: Any) -> Any:
    return np.trunc(np.mean(x.astype(np.float64), axis=axis))


def whole_mean(x: Any, axis: Any) -> Any:
    """The mean as Python computes it with whole numbers of any size."""
    total = np.sum(x.astype(np.object_), axis=axis)
    count = x.size // total.size
    return np.array([int(np.sign(t)) * (abs(t) // count) for t in total], x.dtype)


bfloat16 = X.astype(ml_dtypes.bfloat16)
REDUCTIONS = [
    *reduction("Sum", np.sum),
    *reduction("Mean", np.mean),
    *reduction("Prod", np.prod),
    *reduction("Max", np.max),
    *reduction("Min", np.min),
    *reduction("EuclideanNorm", norm),
    *reduction("All", np.all, FLAGS),
    *reduction("Any", np.any, FLAGS),
    of_type("Sum", np.sum, I, "int32"),
    of_type("Sum", np.sum, Z, "complex64"),
    of_type("Sum", np.sum, bfloat16, "bfloat16", gradient=False, tolerance=0.1),
    of_type("Mean", truncated_mean, I, "int32"),
    of_type("Mean", whole_mean, LARGE, "int64, large"),
    of_type("Mean", whole_mean, np.abs(LARGE).astype(np.uint64), "uint64, large"),
    of_type("Mean", whole_mean, np.int8([[[0] * 100], [[-1] * 100]]), "int8, more elements than int8 counts"),
    of_type("Mean", truncated_mean, np.uint8(I % 100 + 150), "uint8, a sum that uint8 does not hold"),
    of_type("Mean", np.mean, Z, "complex64"),
    of_type("Mean", np.mean, bfloat16, "bfloat16", gradient=False, tolerance=0.1),
    of_type("Prod", np.prod, I % 3 - 1, "int32"),
    of_type("Prod", np.prod, Z, "complex64"),
    of_type("Max", np.max, I, "int32"),
    of_type("Max", np.max, bfloat16, "bfloat16", gradient=False),
    of_type("Min", np.min, I, "int32"),
    of_type("EuclideanNorm", lambda x, axis: np.trunc(norm(x, axis)), I, "int32"),
    of_type("EuclideanNorm", norm, Z, "complex64"),
    # squares overflow as in TensorFlow: 255 ** 2 is 1, and 300 ** 2 less than nothing
    OpCase(
        "EuclideanNorm", (np.uint8([255, 200, 3]), np.int32([])), expected=np.uint8([1, 8, 3]), label="uint8, no axes"
    ),
    OpCase("EuclideanNorm", (np.int16([200, 0]), 0), expected=np.int16(0), label="int16, overflow"),
    OpCase("EuclideanNorm", (np.int32([[46000] * 2, [3, 4]]), 1), expected=np.int32([-(2**31), 5]), label="overflow"),
    OpCase("Prod", (WITH_ZEROS, 1), oracle=lambda x, _: np.prod(x, axis=1), label="zeros", order=2),
    OpCase("Prod", (WITH_ZEROS, np.int32([0, 1])), oracle=lambda x, _: np.prod(x), label="many zeros", order=2),
    OpCase("Sum", (EMPTY, 1), oracle=lambda x, _: np.sum(x, axis=1), label="empty"),
    OpCase("Max", (EMPTY, 1), expected=np.full((2, 3), -np.inf), gradient=False, label="empty"),
    OpCase("Min", (EMPTY, 1), {"keep_dims": True}, expected=np.full((2, 1, 3), np.inf), gradient=False, label="empty"),
    OpCase("Max", (EMPTY.astype(np.int32), 1), expected=np.full((2, 3), -(2**31)), label="empty int32"),
    OpCase("All", (EMPTY > 0, 1), expected=np.full((2, 3), True), label="empty"),
]


def cumulative(
    op: str,
    function: Callable[..., Any],
    neutral: int,
    x: Any,
    label: str = "",
    axes: tuple[int, ...] = (0, -1, 1),
    order: int = 2,
) -> list[OpCase]:
    def oracle(axis: int, exclusive: bool, reverse: bool) -> Callable[..., Any]:
        def compute(x: Any, _: Any) -> Any:
            x = np.flip(x, axis) if reverse else x
            out = function(x, axis)
            if exclusive:
                first = np.full_like(np.take(out, [0], axis), neutral)
                out = np.concatenate([first, np.delete(out, -1, axis)], axis)
            return np.flip(out, axis) if reverse else out

        return compute

    return [
        OpCase(
            op,
            (x, axis),
            {"exclusive": exclusive, "reverse": reverse},
            oracle=oracle(axis, exclusive, reverse),
            label=f"{label}axis={axis}{' exclusive' * exclusive}{' reverse' * reverse}",
            order=order if axis else 1,
        )
        for axis in axes
        for exclusive in (False, True)
        for reverse in (False, True)
    ]


CUMULATIVE = [
    *cumulative("Cumsum", np.cumsum, 0, X),
    *cumulative("Cumprod", np.cumprod, 1, X),
    *cumulative("Cumprod", np.cumprod, 1, WITH_ZEROS, "zeros ", (0, 1), order=1),
    *cumulative("Cumprod", np.cumprod, 1, WITH_ZEROS[[0, 2]], "a zero ", (1,)),
    OpCase("Cumsum", (I, 1), oracle=lambda x, _: np.cumsum(x, 1), label="int32"),
    OpCase("Cumsum", (Z, 1), oracle=lambda x, _: np.cumsum(x, 1), label="complex64"),
    OpCase("Cumprod", (Z, 1), oracle=lambda x, _: np.cumprod(x, 1), label="complex64", tolerance=1e-4),
    OpCase("Cumsum", (EMPTY, 1), {"exclusive": True}, oracle=lambda x, _: x, label="empty"),
    OpCase("Cumsum", (X, 3), error=errors.InvalidArgumentError, label="axis out of range"),
]

NOT_NUMBERS = np.array(
    [
        [np.nan, 0.25, 0.5],
        [0.25, 0.5, np.nan],
        [np.nan, np.nan, np.nan],
        [np.nan, -np.inf, np.nan],
        [-np.inf, -np.inf, np.nan],
        [np.inf, np.nan, np.nan],
        [np.nan, np.inf, 1.0],
    ]
)
POSITIONS = [
    OpCase("ArgMax", (X, 1), oracle=lambda x, _: np.argmax(x, 1)),
    OpCase("ArgMax", (I, -1), {"output_type": "int32"}, oracle=lambda x, _: np.argmax(x, -1), label="int32"),
    OpCase("ArgMax", (FLAGS, 0), oracle=lambda x, _: np.argmax(x, 0), label="bool"),
    OpCase("ArgMin", (X, 2), oracle=lambda x, _: np.argmin(x, 2)),
    OpCase("ArgMin", (X, -3), {"output_type": "int32"}, oracle=lambda x, _: np.argmin(x, 0), label="int32"),
    # TensorFlow starts from the worst finite number, which NaN and the infinity beyond it do not exceed
    *(
        OpCase(
            op,
            (NOT_NUMBERS.astype(dtype), 1),
            expected=np.array(positions),
            label=f"not numbers, {np.dtype(dtype).name}",
        )
        for op, positions in (("ArgMax", [2, 1, 0, 0, 0, 0, 1]), ("ArgMin", [1, 0, 0, 1, 0, 0, 2]))
        for dtype in (np.float32, np.float16, np.float64, ml_dtypes.bfloat16)
    ),
    OpCase("ArgMax", (X, 3), error=errors.InvalidArgumentError, label="axis out of range"),
    OpCase("ArgMin", (EMPTY, 1), error=errors.InvalidArgumentError, label="empty"),
]


def count(values: Any, size: int, weights: Any = None) -> Any:
    return np.bincount(values.reshape(-1), weights, minlength=size)[:size]


VALUES = np.int32([[3, 1, 4, 1], [5, 9, 2, 6]])
WEIGHTS = np.linspace(0, 2, 8, dtype=np.float32).reshape(2, 4)
NONE = np.zeros(0, np.int32)
SEQUENCES = [
    OpCase("Range", (2, 17, 5), expected=[2, 7, 12]),
    OpCase("Range", (5, -3, -2), expected=[5, 3, 1, -1], label="down"),
    OpCase("Range", (4, 4, 1), expected=[], label="none"),
    OpCase("Range", (np.int64(1), np.int64(4), np.int64(1)), expected=[1, 2, 3], label="int64"),
    OpCase("Range", (0.0, 1.0, 0.3), expected=np.float32([0, 0.3, 0.6, 0.9]), label="float32"),
    OpCase("Range", (np.float64(0), np.float64(1), np.float64(0.25)), expected=[0, 0.25, 0.5, 0.75], label="float64"),
    OpCase("Range", (0.0, 1.0, np.float32(np.inf)), expected=np.float32([]), label="a step beyond all"),
    OpCase("Range", (0.0, -1.0, np.float32(-np.inf)), expected=np.float32([]), label="a step below all"),
    OpCase("Range", (0, 5, 0), error=errors.InvalidArgumentError, label="no step"),
    OpCase("Range", (0, 5, -1), error=errors.InvalidArgumentError, label="wrong way"),
    OpCase("LinSpace", (10.0, 12.0, 3), expected=[10, 11, 12]),
    OpCase("LinSpace", (np.float64(-1), np.float64(2), 7), expected=np.linspace(-1, 2, 7), label="float64"),
    OpCase("LinSpace", (3.0, 9.0, 1), expected=[3], label="one"),
    OpCase("LinSpace", (3.0, 9.0, 0), error=errors.InvalidArgumentError, label="none"),
    OpCase("Bincount", (VALUES, 10, NONE), oracle=lambda v, n, _: count(v, 10)),
    OpCase("Bincount", (VALUES, 5, WEIGHTS), oracle=lambda v, n, w: count(v, 5, w.reshape(-1)), label="weights, cut"),
    OpCase(
        "Bincount", (VALUES, 10, WEIGHTS[None]), oracle=lambda v, n, w: count(v, 10, w.reshape(-1)), label="as many"
    ),
    OpCase("Bincount", (-VALUES, 5, NONE), error=errors.InvalidArgumentError, label="negative"),
    OpCase("Bincount", (VALUES, 5, WEIGHTS[:1]), error=errors.InvalidArgumentError, label="too few weights"),
    OpCase("Bucketize", (np.float32([-5, 10, 150, 100, 1e9]),), {"boundaries": [0, 10, 100]}, expected=[0, 2, 3, 3, 3]),
    OpCase(
        "Bucketize", (np.int64([[3, 4], [0, 9]]),), {"boundaries": [1.5, 4]}, expected=[[1, 2], [0, 2]], label="int64"
    ),
    OpCase(
        "Bucketize", (np.float32([0]),), {"boundaries": [2, 1]}, error=errors.InvalidArgumentError, label="unsorted"
    ),
    OpCase(
        "HistogramFixedWidth", (np.float32([-1, 0, 1.5, 2, 5, 15]), np.float32([0, 5]), 5), expected=[2, 1, 1, 0, 2]
    ),
    OpCase(
        "HistogramFixedWidth",
        (np.int32([1, 9, 3]), np.int32([0, 10]), 2),
        {"dtype": "int64"},
        expected=[2, 1],
        label="int64",
    ),
    OpCase("HistogramFixedWidth", (WEIGHTS, np.float32([2, 1]), 3), error=errors.InvalidArgumentError, label="range"),
]

CASES = [*REDUCTIONS, *CUMULATIVE, *POSITIONS, *SEQUENCES]
