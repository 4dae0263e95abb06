"""Rows for elementwise mathematics, special functions, complex numbers and conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import scipy.special as sp

from anabranch import errors
from anabranch.testing.op_cases import OpCase

bfloat16 = ml_dtypes.bfloat16

X = np.array([[0.7, -1.9, 0.3], [2.6, -0.4, 1.1]], np.float32)
Y = np.array([[1.3, 0.8, -2.2], [0.6, -1.7, 0.5]], np.float32)
P = np.abs(X) + np.float32(0.2)
Q = np.abs(Y) + np.float32(0.3)
UNIT = np.array([[0.1, -0.6, 0.85], [-0.9, 0.4, 0.05]], np.float32)
I = np.array([[7, -7, 3], [-9, 8, -1]], np.int32)
J = np.array([[2, 3, -2], [-4, -3, 5]], np.int32)
U = np.array([[7, 200, 3], [9, 8, 1]], np.uint8)
Z = X.astype(np.complex64) + 1j * Y
W = Q.astype(np.complex64) - 1j * X
ROW = np.array([0.9, -1.2, 1.6], np.float32)
COLUMN = np.array([[0.4], [-1.3]], np.float32)
NOT_FINITE = np.array([1, np.nan, -np.inf, 1, np.inf, np.nan], np.float32)
SPECIAL = np.array([0.0, -0.0, 1.0, -np.inf, np.inf, np.nan], np.float32)


def unary(op: str, oracle: Callable[..., Any], x: Any = X, complex_x: Any = Z, **more: Any) -> list[OpCase]:
    """In single precision with gradients up to second order, in half precisions, for complex numbers."""
    rows = [
        OpCase(op, (x,), oracle=oracle, order=2, label="float32", **more),
        OpCase(op, (x.astype(np.float64),), oracle=oracle, gradient=False, label="float64"),
        OpCase(op, (x.astype(bfloat16),), oracle=oracle, gradient=False, label="bfloat16"),
        OpCase(op, (x.astype(np.float16),), oracle=oracle, gradient=False, label="float16"),
    ]
    if complex_x is not None:
        rows.append(OpCase(op, (complex_x,), oracle=oracle, order=2, label="complex64", tolerance=1e-4))
    return rows


def binary(op: str, oracle: Callable[..., Any], x: Any = X, y: Any = Y, complex_xy: Any = (Z, W)) -> list[OpCase]:
    """With equal shapes, with broadcasting both ways, in bfloat16, for complex numbers."""
    row = ROW if (y < 0).any() else np.abs(ROW)
    column = COLUMN if (x < 0).any() else np.abs(COLUMN)
    rows = [
        OpCase(op, (x, y), oracle=oracle, order=2, label="same"),
        OpCase(op, (x, row), oracle=oracle, label="row"),
        OpCase(op, (column, y), oracle=oracle, label="column"),
        OpCase(op, (column, row), oracle=oracle, label="outer"),
        OpCase(op, (x, np.float32(1.5)), oracle=oracle, label="scalar"),
        OpCase(
            op,
            (x.astype(bfloat16), y.astype(bfloat16)),
            oracle=oracle,
            gradient=False,
            label="bfloat16",
            tolerance=5e-2,
        ),
    ]
    if complex_xy is not None:
        rows.append(OpCase(op, complex_xy, oracle=oracle, order=2, label="complex64", tolerance=1e-4))
    return rows


def integers(op: str, oracle: Callable[..., Any], x: Any = I, y: Any = J, narrow: bool = True) -> list[OpCase]:
    rows = [
        OpCase(op, (x, y), oracle=oracle, label="int32"),
        OpCase(op, (x.astype(np.int64), y.astype(np.int64)), oracle=oracle, label="int64"),
        OpCase(op, (np.abs(x).astype(np.uint8), np.abs(y).astype(np.uint8)), oracle=oracle, label="uint8"),
    ]
    return rows if narrow else rows[:2]


def where(condition: Any, then: Any, otherwise: Any) -> Any:
    return np.where(condition, then, otherwise)


def truncated(x: Any, y: Any) -> Any:
    return np.trunc(x / y)


def grad_op(op: str, oracle: Callable[..., Any]) -> list[OpCase]:
    return [
        OpCase(op, (P, Y), oracle=oracle, order=2, label="float32"),
        OpCase(op, (W, Z), oracle=oracle, order=2, label="complex64", tolerance=1e-4),
        OpCase(
            op,
            (P.astype(bfloat16), Y.astype(bfloat16)),
            oracle=oracle,
            gradient=False,
            label="bfloat16",
            tolerance=6e-2,
        ),
    ]


ARITHMETIC = [
    *binary("Add", np.add),
    *binary("AddV2", np.add),
    *binary("Sub", np.subtract),
    *binary("Mul", np.multiply),
    *binary("MulNoNan", lambda x, y: where(y == 0, 0, x * y)),
    *binary("Div", np.divide),
    *binary("RealDiv", np.divide),
    *binary("DivNoNan", lambda x, y: where(y == 0, 0, x / where(y == 0, 1, y))),
    *binary("FloorDiv", lambda x, y: np.floor(x / y), complex_xy=None),
    *binary("FloorMod", np.mod, complex_xy=None),
    *binary("TruncateMod", np.fmod, complex_xy=None),
    *binary("Mod", np.fmod, complex_xy=None),
    *binary("TruncateDiv", truncated, complex_xy=None),
    *binary("Pow", np.power, P, Y, (W, Z)),
    *binary("SquaredDifference", lambda x, y: np.conj(x - y) * (x - y)),
    *binary("Maximum", np.maximum, complex_xy=None),
    *binary("Minimum", np.minimum, complex_xy=None),
    *binary("Atan2", np.arctan2, complex_xy=None),
    *binary("Xdivy", lambda x, y: where(x == 0, 0, x / y)),
    *binary("Xlogy", sp.xlogy, P, Q),
    *binary("Xlog1py", sp.xlog1py, P, Q),
    *integers("Add", np.add),
    *integers("AddV2", np.add),
    *integers("Sub", np.subtract),
    *integers("Mul", np.multiply),
    *integers("Div", truncated),
    *integers("RealDiv", truncated),
    *integers("TruncateDiv", truncated),
    *integers("FloorDiv", np.floor_divide),
    *integers("FloorMod", np.mod),
    *integers("TruncateMod", np.fmod, narrow=False),
    *integers("Mod", np.fmod, narrow=False),
    *integers("Maximum", np.maximum),
    *integers("Minimum", np.minimum),
    *integers("SquaredDifference", lambda x, y: (x - y) ** 2, narrow=False),
    *integers("Pow", np.power, I, np.abs(J), narrow=False),
    OpCase("Add", (np.array([b"ab", b"c"], object), np.array(b"!", object)), expected=[b"ab!", b"c!"], label="strings"),
    OpCase("FloorDiv", (I, 0), error=errors.InvalidArgumentError, label="by zero"),
    OpCase("FloorMod", (I, 0), error=errors.InvalidArgumentError, label="by zero"),
    OpCase(
        "Pow",
        (np.array([71, -3, 7, 2, 0]), np.array([71, 2**62 + 1, 2**63 - 1, 64, 0])),
        expected=np.array([-5821812116355782473, -3, 7905747460161236407, 0, 1]),
        label="exponents of any size",
    ),
    OpCase("Pow", (I, -1), error=errors.InvalidArgumentError, label="negative power"),
    *(
        OpCase(name, (I[:0], -1 if name == "Pow" else 0), expected=I[:0], label="of nothing")
        for name in ("Div", "FloorDiv", "FloorMod", "TruncateDiv", "TruncateMod", "Pow")
    ),
    OpCase("Add", (X, np.ones(4, np.float32)), error=errors.InvalidArgumentError, label="shapes do not fit"),
    OpCase("Pow", (np.float32([0, 0, 2]), np.float32([0, 2, 0])), oracle=np.power, differentiate=(0,), label="at zero"),
    OpCase("Pow", (np.float64([2, 0.5]), np.float64([0, 1])), oracle=np.power, order=2, label="by zero"),
    OpCase(
        "MulNoNan",
        (np.float32([np.nan, np.inf, 2]), np.float32([0, 0, 3])),
        expected=[0, 0, 6],
        gradient=False,
        label="nan",
    ),
    OpCase(
        "DivNoNan", (np.float32([1, 0, 3]), np.float32([0, 0, 2])), expected=[0, 0, 1.5], gradient=False, label="zero"
    ),
    OpCase("Xlogy", (np.float32([0, 2]), np.float32([0, 3])), oracle=sp.xlogy, gradient=False, label="zero"),
    OpCase("Xdivy", (np.float32([0, 2]), np.float32([0, 4])), expected=[0, 0.5], gradient=False, label="zero"),
    OpCase("AddN", ([X, Y, P],), oracle=sum, order=2),
    OpCase("AddN", ([I],), oracle=sum, label="one"),
    OpCase("AddN", ([Z, W],), oracle=sum, label="complex64"),
    OpCase("AccumulateNV2", ([X, Y],), {"shape": [2, 3]}, oracle=sum),
    OpCase("NextAfter", (X, Y), oracle=np.nextafter, gradient=False),
    OpCase("NextAfter", (X.astype(np.float64), np.float64(9)), oracle=np.nextafter, label="float64"),
    OpCase("ClipByValue", (X, np.float32(-0.5), np.float32(1.0)), oracle=np.clip),
    OpCase(
        "ClipByValue", (X, -Q, P), oracle=lambda t, low, high: np.maximum(np.minimum(t, high), low), label="tensors"
    ),
    OpCase("ClipByValue", (I, -5, 4), oracle=np.clip, label="int32"),
    OpCase(
        "ClipByValue",
        (np.float32([np.nan, 5, -5, 5, -5, np.nan]), np.float32([-1, -1, np.nan, 7, np.nan, np.nan]), NOT_FINITE),
        expected=np.float32([np.nan, 5, -np.inf, 7, -5, np.nan]),
        gradient=False,
        label="NaN bounds nothing",
    ),
    OpCase(
        "ClipByValue",
        (np.complex64([1 + 5j, 9, complex(np.inf, -np.inf)]), np.complex64(7), np.complex64(3 + 1j)),
        expected=np.complex64([7 + 1j, 7, 7]),
        gradient=False,
        label="complex",
    ),
    OpCase("BroadcastGradientArgs", (np.int32([2, 3]), np.int32([3])), expected=([], [0]), label="row"),
    OpCase(
        "BroadcastGradientArgs",
        (np.int32([2, 1]), np.int32([5, 2, 3])),
        expected=([0, 2], []),
        label="both",
        static_shape=False,
    ),
    OpCase(
        "BroadcastGradientArgs",
        (np.int32([3, 1]), np.int32([])),
        expected=([1], [0, 1]),
        label="one element in an axis",
    ),
    OpCase(
        "BroadcastGradientArgs",
        (np.int64([2, 1, 1, 3, 1]), np.int64([1, 3, 1])),
        expected=([1, 2, 4], [0, 1, 2, 4]),
        label="one element in several axes",
    ),
    OpCase("BroadcastGradientArgs", (np.int32([3, 1]), np.int32([3, 1])), expected=([], []), label="equal"),
    OpCase("BroadcastGradientArgs", (np.int32([0]), np.int32([1])), expected=([], [0]), label="no element"),
]

ELEMENTARY = [
    *unary("Neg", np.negative),
    *unary("Abs", np.abs, complex_x=None),
    *unary("Sign", np.sign),
    *unary("Square", np.square),
    *unary("Sqrt", np.sqrt, P),
    *unary("Rsqrt", lambda x: 1 / np.sqrt(x), P),
    *unary("Reciprocal", np.reciprocal),
    *unary("Inv", np.reciprocal),
    *unary("Exp", np.exp),
    *unary("Expm1", np.expm1),
    *unary("Log", np.log, P),
    *unary("Log1p", np.log1p, P),
    *unary("Sin", np.sin),
    *unary("Cos", np.cos),
    *unary("Tan", np.tan),
    *unary("Asin", np.arcsin, UNIT),
    *unary("Acos", np.arccos, UNIT),
    *unary("Atan", np.arctan),
    *unary("Sinh", np.sinh),
    *unary("Cosh", np.cosh),
    *unary("Tanh", np.tanh),
    *unary("Asinh", np.arcsinh),
    *unary("Acosh", np.arccosh, P + np.float32(1)),
    *unary("Atanh", np.arctanh, UNIT),
    *unary("Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    *unary("Floor", np.floor, complex_x=None),
    *unary("Ceil", np.ceil, complex_x=None),
    *unary("Rint", np.rint, complex_x=None),
    *unary("Round", np.rint, complex_x=None),
    OpCase("Round", (np.float32([0.5, 1.5, 2.5, -0.5]),), expected=[0, 2, 2, 0], gradient=False, label="half to even"),
    OpCase("Round", (I,), oracle=np.array, label="int32"),
    OpCase("Abs", (I,), oracle=np.abs, label="int32"),
    OpCase("Neg", (I,), oracle=np.negative, label="int32"),
    OpCase("Sign", (I,), oracle=np.sign, label="int32"),
    OpCase("Square", (U,), oracle=np.square, label="uint8"),
    OpCase("Reciprocal", (np.int32([1, -1, 5]),), expected=[1, -1, 0], label="int32"),
    OpCase("Sigmoid", (np.float32([-100, 0, 100]),), expected=[0, 0.5, 1], gradient=False, label="saturated"),
    *grad_op("SqrtGrad", lambda y, dy: dy * 0.5 / np.conj(y)),
    *grad_op("RsqrtGrad", lambda y, dy: dy * -0.5 * np.conj(y) ** 3),
    *grad_op("ReciprocalGrad", lambda y, dy: -dy * np.conj(y) ** 2),
    *grad_op("InvGrad", lambda y, dy: -dy * np.conj(y) ** 2),
    *grad_op("TanhGrad", lambda y, dy: dy * (1 - y**2)),
    *grad_op("SigmoidGrad", lambda y, dy: dy * y * (1 - y)),
]


def special(op: str, oracle: Callable[..., Any], x: Any = X) -> list[OpCase]:
    return [
        OpCase(op, (x,), oracle=oracle, order=2, label="float32", tolerance=1e-4),
        OpCase(op, (x.astype(np.float64),), oracle=oracle, gradient=False, label="float64", tolerance=1e-8),
        OpCase(op, (x.astype(bfloat16),), oracle=oracle, gradient=False, label="bfloat16", tolerance=6e-2),
    ]


A = np.array([[0.8, 2.1, 3.4], [1.2, 0.5, 2.7]], np.float64)
B = np.array([[1.5, 0.7, 2.2], [3.1, 1.9, 0.6]], np.float64)
PROBABILITY = (np.abs(UNIT) * 0.9 + 0.05).astype(np.float64)
ORDERS = np.array([[1, 2, 0], [3, 1, 2]], np.float64)


def igamma_by_a(a: Any, x: Any) -> Any:
    step = 1e-6
    return (sp.gammainc(a + step, x) - sp.gammainc(a - step, x)) / (2 * step)


def zeta_below(x: int, q: Any) -> Any:
    """The Hurwitz zeta function of q < 0: terms one by one, each with its sign, until q is positive."""
    terms = int(np.ceil(-np.min(q))) + 1
    return sum((q + n) ** -float(x) for n in range(terms)) + sp.zeta(x, q + terms)


#: as both sides have it: TensorFlow 2.21, and here
ZETA_ENDS = (
    np.float64([1, 1, 0.5, -2, 2, 3, 2, 2.5, np.nan, 2, 1e4, np.inf, 0, 3, 2, 1e30, np.inf]),
    np.float64([1, 0, 1, 0, 0, 0, -1, -1.5, 1, np.inf, 1, 1, 0, -4, -1e-30, -2.2, -1000.5]),
    np.float64(
        [
            np.inf,
            np.inf,
            *[np.nan] * 2,
            np.inf,
            np.nan,
            np.inf,
            *[np.nan] * 2,
            0,
            1,
            1,
            *[np.nan] * 2,
            1e60,
            *[np.inf] * 2,
        ]
    ),
)
BELOW = np.float64([-0.25, -1.5, -9.75, -20.5, -499.25, -500.75, -1234.125])
GAMMA_ENDS = (
    np.float64([0, 0, -1, 1, 1, np.nan, 1, np.inf, 1, np.inf, -1, -1, np.nan, 5]),
    np.float64([0, 1, 1, 0, -1, 1, np.nan, 1, np.inf, np.inf, 0, -1, 0, 1e6]),
    np.float64([0, np.nan, np.nan, 0, np.nan, np.nan, np.nan, 0, 1, 0, 0, np.nan, 0, 1]),
    np.float64([np.nan, np.nan, np.nan, 1, np.nan, np.nan, np.nan, 1, 0, 0, *[np.nan] * 3, 0]),
    np.float64([0, np.nan, np.nan, 0, np.nan, np.nan, np.nan, 0, 0, 0, 0, np.nan, 0, 0]),
)
BETA_ENDS = (
    np.float64([np.nan, 1, 0, 1, 1, 1, 2, -1, 1]),
    np.float64([np.nan, np.nan, 1, 0, 1, 1, 2, 1, 1]),
    np.float64([0, 1, 0, 1, 1.5, -0.5, np.nan, 0.5, 0]),
    np.float64([0, 1, *[np.nan] * 6, 0]),
)

SPECIAL_FUNCTIONS = [
    *special("Erf", sp.erf),
    *special("Erfc", sp.erfc),
    *special("Erfinv", sp.erfinv, UNIT),
    *special("Ndtri", sp.ndtri, PROBABILITY.astype(np.float32)),
    *special("Lgamma", sp.gammaln, P),
    OpCase(
        "Lgamma",
        (np.float32([1, 2]),),
        expected=np.zeros(2, np.float32),
        tolerance=0.0,
        gradient=False,
        label="zeros",
    ),
    *special("Digamma", sp.digamma, P),
    *special("BesselI0e", sp.i0e),
    *special("BesselI1e", sp.i1e),
    OpCase("BesselI1e", (np.float64([0.0, 0.5]),), oracle=sp.i1e, label="at zero", tolerance=1e-8),
    OpCase(
        "Polygamma",
        (ORDERS, A),
        oracle=lambda n, x: sp.polygamma(n.astype(int), x),
        differentiate=(1,),
        tolerance=1e-8,
        order=1,
    ),
    OpCase(
        "Polygamma",
        (np.float64(1), A),
        oracle=lambda n, x: sp.polygamma(1, x),
        differentiate=(1,),
        tolerance=1e-8,
        label="scalar",
    ),
    OpCase("Zeta", (A + 1, B), oracle=sp.zeta, differentiate=(1,), tolerance=1e-8),
    OpCase("Zeta", ZETA_ENDS[:2], expected=ZETA_ENDS[2], gradient=False, label="ends"),
    OpCase("Zeta", (np.float64(3), BELOW), oracle=lambda x, q: zeta_below(3, q), gradient=False, label="odd, q < 0"),
    OpCase("Zeta", (np.float64(2), BELOW), oracle=lambda x, q: zeta_below(2, q), gradient=False, label="even, q < 0"),
    OpCase(
        "Polygamma",
        (np.float64([0, 1, 2, 3, 0.5, -1, 2]), np.float64([1, -2, -2, -20.5, 1, 1, np.inf])),
        expected=[-np.euler_gamma, np.inf, np.nan, 6 * zeta_below(4, np.array([-20.5]))[0], np.nan, np.nan, -0.0],
        gradient=False,
        label="ends",
    ),
    OpCase(
        "Polygamma",
        (np.float64([1e30, 1e30, 2**53]), np.float64([0.5, 2.5, 0.5])),
        expected=[np.inf, np.nan, np.inf],
        gradient=False,
        label="orders that have no neighbours",
    ),
    OpCase("Igamma", (A, B), oracle=sp.gammainc, tolerance=1e-8),
    OpCase("Igamma", (np.float64(1.5), B), oracle=sp.gammainc, tolerance=1e-8, label="scalar"),
    OpCase("Igammac", (A, B), oracle=sp.gammaincc, tolerance=1e-8),
    OpCase("IgammaGradA", (A, B), oracle=igamma_by_a, tolerance=1e-6),
    *(
        OpCase(op, GAMMA_ENDS[:2], expected=expected, gradient=False, tolerance=1e-9, label="ends")
        for op, expected in zip(("Igamma", "Igammac", "IgammaGradA"), GAMMA_ENDS[2:], strict=True)
    ),
    OpCase("Betainc", (A, B, PROBABILITY), oracle=sp.betainc, differentiate=(2,), tolerance=1e-8, order=2),
    OpCase(
        "Betainc",
        (np.float32([3, 8.4, 4.2]), np.float32([3e-4, 0.0147, 0.0186]), np.float32([0.9, 0.91, 0.95])),
        oracle=lambda *parameters: sp.betainc(*(np.float64(p) for p in parameters)).astype(np.float32),
        gradient=False,
        tolerance=1e-6,
        label="small b in single precision",
    ),
    OpCase("Betainc", BETA_ENDS[:3], expected=BETA_ENDS[3], gradient=False, label="ends"),
    OpCase(
        "Betainc",
        (np.float64(2), B, np.float64(0.3)),
        oracle=sp.betainc,
        differentiate=(2,),
        tolerance=1e-8,
        label="scalars",
    ),
]

Z128, W128 = Z.astype(np.complex128), W.astype(np.complex128)
WIDE = {"Tout": "float64"}
COMPLEX_NUMBERS = [
    OpCase("Complex", (X, Y), oracle=lambda re, im: re + 1j * im, gradient=False, label="complex64"),
    OpCase(
        "Complex",
        (A, 0.5 * ROW.astype(np.float64)),
        {"Tout": "complex128"},
        oracle=lambda re, im: re + 1j * im,
        order=2,
    ),
    OpCase("Real", (Z,), oracle=np.real, label="complex64", gradient=False),
    OpCase("Real", (Z128,), WIDE, oracle=np.real, order=2),
    OpCase("Imag", (Z128,), WIDE, oracle=np.imag, order=2),
    OpCase("Conj", (Z128,), oracle=np.conj, order=2),
    OpCase("Angle", (Z128,), WIDE, oracle=np.angle, order=2),
    OpCase("ComplexAbs", (Z128,), WIDE, oracle=np.abs, order=2),
]


def cast(value: Any, source: Any, target: Any, expected: Any) -> OpCase:
    label = f"{np.dtype(source).name} to {np.dtype(target).name}"
    attrs = {"DstT": np.dtype(target).name}
    return OpCase("Cast", (np.array(value, source),), attrs, expected=expected, gradient=False, label=label)


CONVERSIONS = [
    cast([1.9, -1.9, 0.2], np.float32, np.int32, [1, -1, 0]),
    cast([1.5, 0, -2], np.float32, np.bool_, [True, False, True]),
    cast([True, False], np.bool_, np.float32, [1, 0]),
    cast([True, False], np.bool_, np.int64, [1, 0]),
    cast([300, -1, 5], np.int32, np.uint8, [44, 255, 5]),
    cast([1 + 2j, -3j], np.complex64, np.float32, [1, 0]),
    cast([1 + 2j, 0], np.complex64, np.bool_, [True, False]),
    cast([1.5, -2], np.float64, np.complex64, [1.5, -2]),
    cast([1.00390625, 3.5], np.float32, bfloat16, [1.0, 3.5]),
    cast([1.5, 300], bfloat16, np.float32, [1.5, 300]),
    cast([1, 2**40], np.int64, np.float64, [1, 2**40]),
    OpCase("Cast", (A,), {"DstT": "complex128"}, oracle=np.array, order=2, label="gradient real to complex"),
    OpCase("Cast", (Z128,), {"DstT": "float64"}, oracle=np.real, label="gradient complex to real"),
    OpCase("Cast", (A,), {"DstT": "float64"}, oracle=np.array, label="nothing to do"),
    OpCase("Cast", (np.array([b"1"], object),), {"DstT": "float32"}, error=errors.UnimplementedError, label="strings"),
]

#: of a gradient of zero nothing comes, whatever it is multiplied by
NO_GRADIENT = [
    OpCase(
        op, (np.float32([0, np.inf, np.nan]), np.zeros(3, np.float32)), expected=np.zeros(3), gradient=False, label="no"
    )
    for op in ("SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad")
]
#: the order of multiplications decides what overflows
FAR_GRADIENTS = [
    OpCase("RsqrtGrad", (np.float32([1e15]), np.float32([1e-30])), expected=[-5e14], gradient=False, label="far"),
]

CASES = [*NO_GRADIENT, *ARITHMETIC, *ELEMENTARY, *SPECIAL_FUNCTIONS, *COMPLEX_NUMBERS, *CONVERSIONS, *FAR_GRADIENTS]
