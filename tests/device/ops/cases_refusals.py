"""Rows for arguments that TensorFlow refuses, and for odd ones that it takes.

`tests/oracles/check_refusals.py` runs the same rows with TensorFlow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.errors import InvalidArgumentError
from anabranch.testing.op_cases import OpCase


def floats(*values: Any) -> Any:
    return np.array(values, np.float32)


def ints(*values: Any) -> Any:
    return np.array(values, np.int32)


def refused(op: str, *inputs: Any, label: str, **attrs: Any) -> OpCase:
    return OpCase(op, inputs, attrs, error=InvalidArgumentError, label=f"refused: {label}")


MATRIX = floats([1, 2, 3], [4, 5, 6])
NAN = floats([np.nan, 0], [0, 0])
TWICE = ints(0, 0)
WORDS = np.array([b"a", b"b"], np.object_)

REDUCTIONS = ("Sum", "Prod", "Mean", "Max", "Min", "EuclideanNorm")
REPEATED_AXES = [
    *(refused(op, MATRIX, axes, label=str(axes)) for op in REDUCTIONS for axes in (TWICE, ints(1, -1))),
    *(refused(op, MATRIX > 2, TWICE, label="an axis twice") for op in ("All", "Any")),
    refused("Transpose", MATRIX, TWICE, label="an axis twice"),
    refused("ConjugateTranspose", MATRIX, TWICE, label="an axis twice"),
    refused("ReverseV2", MATRIX, TWICE, label="an axis twice"),
    refused("ReduceJoin", np.array([[b"a"]], np.object_), TWICE, label="an axis twice"),
    refused("InvertPermutation", TWICE, label="a place twice"),
    refused("InvertPermutation", ints(0, -1), label="negative"),
]
RANKS = [
    refused("Unique", MATRIX, label="a matrix"),
    refused("UniqueWithCounts", MATRIX, label="a matrix"),
    refused("ListDiff", MATRIX, floats(1), label="a matrix"),
    refused("InvertPermutation", ints([0, 1]), label="a matrix"),
    refused("SegmentSum", MATRIX, ints([0, 1]), label="ids of a matrix"),
    refused("SparseSegmentSum", MATRIX, ints([0, 1]), ints(0, 0), label="indices of a matrix"),
    refused("MatMul", floats(1, 2, 3), MATRIX.T, label="a vector"),
    refused("BatchMatMulV2", floats(1, 2, 3), MATRIX.T, label="a vector"),
    refused("Diag", np.float32(1), label="a scalar"),
    refused("Cholesky", floats(1, 2), label="a vector"),
    refused("MatrixInverse", MATRIX, label="not square"),
    refused("BiasAdd", MATRIX, MATRIX, label="a matrix"),
    refused("SoftmaxCrossEntropyWithLogits", MATRIX[None], MATRIX[None], label="rank 3"),
    refused("StringSplit", np.array([[b"a"]], np.object_), np.array(b",", np.object_), label="a matrix"),
    refused("StringJoin", [WORDS[:1], WORDS], label="lengths"),
    refused("RegexReplace", WORDS, WORDS, np.array(b"", np.object_), label="two patterns"),
    refused("Assert", np.array([True, True]), [floats(1)], label="two conditions"),
    refused("Cross", floats(1, 2), floats(1, 2), label="two elements"),
]
VALUES = [
    refused("MatrixBandPart", MATRIX, np.int64(3), np.int64(0), label="more bands than rows"),
    refused("MatrixBandPart", MATRIX, np.int64(0), np.int64(4), label="more bands than columns"),
    refused("MatrixDiagV3", MATRIX, ints(0), np.int32(5), np.int32(5), np.float32(0), label="neither rows nor columns"),
    refused("MatrixDiagV2", MATRIX, ints(0), np.int32(2), np.int32(-1), np.float32(0), label="too few rows"),
    refused("MatrixDiagV3", floats(1, 2), ints(0, 1), *[np.int32(-1)] * 2, np.float32(0), label="one of two diagonals"),
    refused("BroadcastGradientArgs", ints(2, 3), ints(2, 4), label="no broadcast"),
    refused("BiasAddGrad", MATRIX, data_format="NCHW", label="a matrix of channels"),
    refused("StridedSliceGrad", ints(4), ints(0), ints(2), ints(1), floats([1, 2]), label="a gradient of another rank"),
    refused("DynamicStitch", [ints(-1, 1)], [floats(1, 2)], label="negative"),
    refused("ParallelDynamicStitch", [ints(-1, 1)], [floats(1, 2)], label="negative"),
    refused("DynamicPartition", floats(1), ints(-1), num_partitions=2, label="negative"),
    refused("AsString", ints(1), precision=3, label="precision of integers"),
    refused("AsString", ints(1), scientific=True, label="scientific integers"),
    refused("AsString", np.array([True]), shortest=True, label="shortest booleans"),
    refused("SelfAdjointEigV2", NAN, label="NaN"),
    refused("HistogramFixedWidth", floats(np.nan), floats(0, 1), np.int32(3), label="NaN"),
    refused("Range", np.float32(0), np.float32(np.inf), np.float32(1), label="infinite"),
    refused("Range", np.float32(0), np.float32(np.nan), np.float32(1), label="NaN"),
    refused(
        "Conv2D",
        np.zeros((1, 2, 2, 1), np.float32),
        np.zeros((0, 2, 1, 1), np.float32),
        strides=[1, 1, 1, 1],
        padding="SAME",
        label="a filter of height 0",
    ),
    refused(
        "Conv3D",
        np.zeros((1, 2, 2, 2, 1), np.float32),
        np.zeros((1, 0, 2, 1, 1), np.float32),
        strides=[1, 1, 1, 1, 1],
        padding="SAME",
        label="a filter of height 0",
    ),
]
PAIRS = np.array([1 + 2j, 3 - 4j], np.complex64)
TAKEN = [
    OpCase("MirrorPad", (np.float32(2), np.zeros((0, 2), np.int32)), {"mode": "REFLECT"}, expected=np.float32(2)),
    OpCase(
        "MatrixDiagPartV3",
        (np.zeros((0, 3), np.float32), np.int32(0), np.float32(0)),
        expected=np.zeros(0, np.float32),
        label="no rows",
    ),
    OpCase("Bitcast", (PAIRS,), {"type": "float32"}, oracle=lambda x: x.view(np.float32).reshape(2, 2), label="parts"),
    OpCase("Bitcast", (PAIRS,), {"type": "int64"}, oracle=lambda x: x.view(np.int64), label="complex bits"),
    OpCase("Bitcast", (PAIRS,), {"type": "uint8"}, oracle=lambda x: x.view(np.uint8).reshape(2, 8), label="bytes"),
    OpCase("Bitcast", (PAIRS,), {"type": "complex128"}, oracle=lambda x: x.view(np.complex128)[0], label="wider"),
    OpCase("Bitcast", (MATRIX[:, :2],), {"type": "complex64"}, oracle=lambda x: x.copy().view(np.complex64)[:, 0]),
    OpCase(
        "ResizeArea",
        (floats([[[7]]]), ints(2, 2)),
        {"align_corners": True},
        expected=np.full((1, 2, 2, 1), 7, np.float32),
        label="one pixel",
    ),
    OpCase(
        "TopKV2",
        (floats(-0.0, 0.0, -1.0), np.int32(2)),
        expected=[floats(-0.0, 0.0), ints(0, 1)],
        gradient=False,
        label="zeros",
    ),
    OpCase(
        "StringSplit",
        (np.array([b""], np.object_), np.array(b",", np.object_)),
        {"skip_empty": False},
        expected=[np.zeros((0, 2), np.int64), np.zeros(0, np.object_), np.array([1, 0])],
        label="nothing",
    ),
]

CASES = [*REPEATED_AXES, *RANKS, *VALUES, *TAKEN]
