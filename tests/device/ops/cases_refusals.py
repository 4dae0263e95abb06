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
PICTURE, FRAME = np.ones((1, 4, 4, 3), np.float32), MATRIX[None, :, [0, 1, 2, 0]]
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
    refused("MatrixSolveLs", MATRIX, MATRIX, np.float64(-1), label="negative"),
    refused("MatrixSolveLs", MATRIX, MATRIX, np.float64(-1), label="negative, though not used", fast=False),
    refused(
        "DrawBoundingBoxesV2",
        PICTURE,
        FRAME,
        MATRIX[:, :2],
        label="colours",
    ),
    refused("DrawBoundingBoxesV2", PICTURE, FRAME, np.float32([1, 0, 0]), label="a vector of colours"),
    refused("DrawBoundingBoxesV2", PICTURE, FRAME, np.ones((1, 1, 3), np.float32), label="colours of rank 3"),
    refused("DrawBoundingBoxesV2", PICTURE, FRAME, np.ones((0, 2), np.float32), label="no colours, of two channels"),
    refused("DrawBoundingBoxesV2", MATRIX[None, :, :, None], MATRIX[None], MATRIX, label="boxes of 3 numbers"),
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
    refused("AsString", ints(1), fill="x", width=3, label="filled with letters"),
    refused("AsString", np.array([True]), shortest=True, label="shortest booleans"),
    refused("SelfAdjointEigV2", NAN, label="NaN"),
    refused("HistogramFixedWidth", floats(np.nan), floats(0, 1), np.int32(3), label="NaN"),
    refused("Range", np.float32(0), np.float32(np.inf), np.float32(1), label="infinite"),
    refused("Range", np.float32(0), np.float32(np.nan), np.float32(1), label="NaN"),
    refused("Range", np.float32(0), np.float32(1), np.float32(np.nan), label="a step of NaN"),
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

PAIRS = [
    refused(
        "FusedBatchNormV3",
        np.zeros((3, 2, 4, 3), np.float32),
        *[np.ones(n, np.float32) for n in (3, 3, 1, 3)],
        label="one mean",
        is_training=False,
    ),
    *(
        refused(op, floats([1, 2], [3, 4]).astype(np.complex64), label="parts of another dtype", Tout="float64")
        for op in ("Real", "Imag", "Angle", "ComplexAbs")
    ),
    refused("Complex", MATRIX, MATRIX, label="parts of another dtype", Tout="complex128"),
    refused("RFFT2D", floats([1, 2], [3, 4]), ints(2, 3), label="too short"),
    refused("IRFFT2D", floats([1, 2], [3, 4]).astype(np.complex64), ints(2, 4), label="too short"),
    *(refused(op, floats([np.nan, 1], [1, 2]), label="a first pivot that is NaN") for op in ("MatrixInverse", "Lu")),
    refused("MatrixSolve", floats([np.nan, 1], [1, 2]), floats([1], [2]), label="a first pivot that is NaN"),
    refused("UnravelIndex", ints(-1), ints(2, 3), label="negative"),
    *(
        refused(op, floats(1, 2), floats(1, 2, 3), label="sizes")
        for op in ("SqrtGrad", "RsqrtGrad", "InvGrad", "ReciprocalGrad", "SigmoidGrad", "TanhGrad")
    ),
    *(
        refused(op, target, indices, updates, label=label)
        for op in ("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "ScatterNdNonAliasingAdd")
        for label, target, indices, updates in (
            ("updates without a dimension", floats(1, 2), ints(0), np.float32(1)),
            ("no rows", np.zeros((0, 3), np.float32), ints([0]), floats([1, 2, 3])),
            ("no columns", np.zeros((3, 0), np.float32), ints([0]), np.zeros((1, 0), np.float32)),
        )
    ),
    refused("ScatterNd", ints(0), np.float32(1), ints(2), label="updates without a dimension"),
    refused("ScatterNd", ints([0]), np.zeros((1, 0), np.float32), ints(3, 0), label="no columns"),
    refused(
        "MaxPoolGradWithArgmax",
        np.zeros((2, 8, 9, 3), np.float32),
        np.zeros((2, 3, 4, 3), np.float32),
        np.zeros((2, 3, 4, 3), np.int64),
        label="maxima of other windows",
        ksize=[1, 3, 3, 1],
        strides=[1, 2, 2, 1],
        padding="SAME",
    ),
    refused(
        "MaxPoolWithArgmax",
        np.zeros((0, 2, 2, 1), np.float32),
        label="nothing",
        ksize=[1, 2, 2, 1],
        strides=[1, 2, 2, 1],
        padding="VALID",
    ),
]
BY_ELEMENTS = [
    OpCase(op, (floats([1, 2, 3], [4, 5, 6]), floats([1, 2], [3, 4], [5, 6])), expected=[wanted], label="other shapes")
    for op, wanted in (
        ("SqrtGrad", floats([0.5, 0.5, 0.5], [0.5, 0.5, 0.5])),
        ("InvGrad", floats([-1, -8, -27], [-64, -125, -216])),
        ("ReciprocalGrad", floats([-1, -8, -27], [-64, -125, -216])),
        ("SigmoidGrad", floats([0, -4, -18], [-48, -100, -180])),
        ("TanhGrad", floats([0, -6, -24], [-60, -120, -210])),
    )
]
_WINDOW = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1]}
MENDED = [
    OpCase(
        "DrawBoundingBoxes",
        (np.zeros((1, 2, 2, 1), np.float32), floats([[[0, 0, np.nan, 1], [np.nan, 0, 0, 1]]]).reshape(1, 2, 4)),
        expected=floats([1, 1], [0, 0]).reshape(1, 2, 2, 1),
        label="NaN ends nothing and begins outside",
    ),
    *(
        OpCase(
            "MatrixTriangularSolve",
            (matrix, rhs),
            oracle=lambda m, r: np.linalg.solve(np.tril(m), r),
            label=f"batches {matrix.shape[:-2]} and {rhs.shape[:-2]}",
        )
        for matrix, rhs in (
            (np.eye(2) + np.ones((2, 2)), np.arange(6.0).reshape(3, 2, 1)),
            (np.eye(2) + np.ones((3, 2, 2)), np.arange(4.0).reshape(2, 2)),
            (np.eye(2) + np.ones((2, 1, 2, 2)), np.arange(6.0).reshape(3, 2, 1)),
        )
    ),
    OpCase(
        "LogMatrixDeterminant",
        (floats([1e-30, 0, 0], [0, 0, -1e-30], [0, 1e-30, 0]),),
        expected=[np.float32(1), np.float32(3 * np.log(1e-30))],
        gradient=False,
        label="too small a determinant",
    ),
    OpCase("EuclideanNorm", (floats(-2, 3), ints()), expected=[floats(2, 3)], label="no axes"),
    OpCase(
        "SoftmaxCrossEntropyWithLogits",
        (floats([1], [2]), floats([0.25, 0.75])),
        expected=[floats(np.log(2), np.log(2)), floats([0.25, -0.25], [0.25, -0.25])],
        label="one logit for all classes",
    ),
    OpCase(
        "LinSpace", (np.float32(1), np.float32(np.nan), np.int32(3)), expected=floats(1, np.nan, np.nan), label="NaN"
    ),
    OpCase(
        "ShardedFilespec",
        (np.array(b"\xff", np.object_), np.int32(3)),
        expected=np.array(b"\xff-?????-of-00003", np.object_),
    ),
    OpCase(
        "ShardedFilename",
        (np.array(b"\xff", np.object_), np.int32(1), np.int32(3)),
        expected=np.array(b"\xff-00001-of-00003", np.object_),
    ),
    *(
        OpCase(
            op,
            (np.zeros((1, 0, 4, 2), np.float32),),
            {**_WINDOW, "padding": "SAME"},
            expected=[np.zeros((1, 0, 2, 2), np.float32)],
            label="nothing, SAME",
        )
        for op in ("MaxPool", "AvgPool")
    ),
    *(
        refused(op, np.zeros(shape, np.float32), label=f"no {what}, VALID", **_WINDOW, padding="VALID")
        for op in ("MaxPool", "AvgPool")
        for what, shape in (("rows", (1, 0, 4, 2)), ("columns", (1, 4, 0, 2)))
    ),
    OpCase(
        "LRNGrad",
        (
            np.full((1, 1, 1, 2), 2, np.float32),
            np.full((1, 1, 1, 2), 3, np.float32),
            np.full((1, 1, 1, 2), 5, np.float32),
        ),
        {"depth_radius": 1, "bias": 2.0, "alpha": 0.5, "beta": 1.0},
        # dy / norm - 2 alpha beta x (dy y / norm, of both channels), with norm = 2 + (9 + 9) / 2
        expected=np.full((1, 1, 1, 2), 2 / 11 - 2 * 0.5 * 3 * 2 * (2 * 5 / 11), np.float32),
        label="an output of its own",
    ),
]

CASES = [*REPEATED_AXES, *RANKS, *VALUES, *PAIRS, *TAKEN, *BY_ELEMENTS, *MENDED]
