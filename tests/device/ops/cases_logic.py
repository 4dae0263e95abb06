"""Rows for comparisons, logic, bits and choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from anabranch import errors
from anabranch.testing.op_cases import OpCase

X = np.array([[0.5, -1.0, 2.0], [3.0, -0.5, np.nan]], np.float32)
Y = np.array([[0.5, 1.0, -2.0], [3.0, -2.5, np.nan]], np.float32)
I = np.array([[7, -7, 3], [-9, 8, -1]], np.int32)
J = np.array([[7, 3, -2], [-4, 8, 5]], np.int32)
T = np.array([[True, False, True], [False, False, True]])
S = np.array([b"a", b"b", b""], object)
LIKE = np.array([b"a", b"c", b""], object)
HALF = ml_dtypes.bfloat16


def comparison(op: str, oracle: Callable[..., Any]) -> list[OpCase]:
    return [
        OpCase(op, (X, Y), oracle=oracle, label="float32"),
        OpCase(op, (X.astype(HALF), Y.astype(HALF)), oracle=oracle, label="bfloat16"),
        OpCase(op, (I, J), oracle=oracle, label="int32"),
        OpCase(op, (I, np.int32([7, 0, 3])), oracle=oracle, label="row"),
        OpCase(op, (np.abs(I).astype(np.uint8), np.uint8(7)), oracle=oracle, label="uint8"),
    ]


def integers(op: str, oracle: Callable[..., Any], y: Any = J) -> list[OpCase]:
    return [
        OpCase(op, (I, y), oracle=oracle, label="int32"),
        OpCase(op, (I.astype(np.int64), np.int64(3)), oracle=oracle, label="int64"),
        OpCase(op, (np.abs(I).astype(np.uint8), np.abs(y).astype(np.uint8)), oracle=oracle, label="uint8"),
    ]


def bits(x: Any) -> Any:
    return np.bitwise_count(x.view(np.dtype(f"u{x.itemsize}")))


COMPARISONS = [
    *comparison("Less", np.less),
    *comparison("LessEqual", np.less_equal),
    *comparison("Greater", np.greater),
    *comparison("GreaterEqual", np.greater_equal),
    *comparison("Equal", np.equal),
    *comparison("NotEqual", np.not_equal),
    OpCase("Equal", (T, T[::-1]), oracle=np.equal, label="bool"),
    OpCase("Equal", (S, LIKE), expected=[True, False, True], label="string"),
    OpCase("NotEqual", (S, np.array(b"a", object)), expected=[False, True, True], label="string"),
    OpCase("Equal", (X + 1j * Y, X + 1j * Y), oracle=np.equal, label="complex64"),
    OpCase("Equal", (I, np.int32([1, 2])), error=errors.InvalidArgumentError, label="shapes do not fit"),
    OpCase("Equal", (I, np.int32([1, 2])), {"incompatible_shape_error": False}, expected=False, label="answers False"),
    OpCase("NotEqual", (I, np.int32([1, 2])), {"incompatible_shape_error": False}, expected=True, label="answers True"),
    OpCase(
        "ApproximateEqual",
        (np.float32([1, 2, 3]), np.float32([1.05, 2.5, 3])),
        {"tolerance": 0.1},
        expected=[True, False, True],
    ),
    OpCase(
        "ApproximateEqual",
        (np.uint8([1, 9]), np.uint8([3, 3])),
        {"tolerance": 3.0},
        expected=[True, False],
        label="uint8",
    ),
    OpCase(
        "ApproximateEqual", (np.complex64([1, 1j]), np.complex64([1, 1])), expected=[True, False], label="complex64"
    ),
]

LOGIC = [
    OpCase("LogicalAnd", (T, T[:, ::-1]), oracle=np.logical_and),
    OpCase("LogicalAnd", (T, np.array([True, False, True])), oracle=np.logical_and, label="row"),
    OpCase("LogicalOr", (T, T[:, ::-1]), oracle=np.logical_or),
    OpCase("LogicalNot", (T,), oracle=np.logical_not),
    OpCase("IsNan", (X,), oracle=np.isnan),
    OpCase("IsNan", (X.astype(HALF),), oracle=np.isnan, label="bfloat16"),
    OpCase("IsInf", (np.float64([0, np.inf, -np.inf, np.nan]),), oracle=np.isinf),
    OpCase("IsFinite", (np.float32([0, np.inf, -np.inf, np.nan]),), oracle=np.isfinite),
    *integers("BitwiseAnd", np.bitwise_and),
    *integers("BitwiseOr", np.bitwise_or),
    *integers("BitwiseXor", np.bitwise_xor),
    *integers("LeftShift", np.left_shift, np.abs(J) % 5),
    *integers("RightShift", np.right_shift, np.abs(J) % 5),
    OpCase("RightShift", (np.int8([-128, 64]), np.int8([9, 100])), expected=[-1, 0], label="too far"),
    OpCase("Invert", (I,), oracle=np.invert, label="int32"),
    OpCase("Invert", (np.uint8([0, 1, 255]),), oracle=np.invert, label="uint8"),
    OpCase("PopulationCount", (I,), oracle=bits, label="int32"),
    OpCase("PopulationCount", (np.uint8([0, 1, 255]),), oracle=bits, label="uint8"),
]

A = np.array([[0.5, -1.0, 2.0], [3.0, -0.5, 1.25]], np.float32)
B = A[:, ::-1] * 2
CHOICES = [
    OpCase("Select", (T, A, B), oracle=np.where, order=2),
    OpCase("Select", (np.array([True, False]), A, B), oracle=lambda c, t, e: np.where(c[:, None], t, e), label="rows"),
    OpCase("Select", (True, A, B), oracle=np.where, label="scalar"),
    OpCase("Select", (T[0], S, LIKE), expected=[b"a", b"c", b""], label="string"),
    OpCase("Select", (T, I, J), oracle=np.where, label="int32"),
    OpCase("Select", (T[:1], A, B), error=errors.InvalidArgumentError, label="shapes do not fit"),
    OpCase("SelectV2", (T, A, B), oracle=np.where, order=2),
    OpCase("SelectV2", (T[0], A[:, :1], np.float32(3)), oracle=np.where, label="broadcast"),
    OpCase("SelectV2", (T[:, :1], A[0], B[0]), oracle=np.where, label="condition wider"),
    OpCase("SelectV2", (T[0], S, np.array(b"z", object)), expected=[b"a", b"z", b""], label="string"),
]

CASES = [*COMPARISONS, *LOGIC, *CHOICES]
