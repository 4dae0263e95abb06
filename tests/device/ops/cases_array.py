"""Rows for constants, identities, shapes, filling, layout, padding and diagonals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from anabranch import errors
from anabranch.core.shapes import TensorShape
from anabranch.testing.op_cases import OpCase

bfloat16 = ml_dtypes.bfloat16
R = np.random.default_rng(3)


def real(*shape: int) -> Any:
    return R.normal(size=shape).astype(np.float32)


def compl(*shape: int) -> Any:
    return (R.normal(size=shape) + 1j * R.normal(size=shape)).astype(np.complex64)


def ints(*values: Any) -> Any:
    return np.array(values, np.int32)


X = real(2, 3)
T = np.array([b"a", b"bc", b""], np.object_)
HALF = real(2, 3).astype(bfloat16)

IDENTITIES = [
    OpCase("PreventGradient", (X,), {"message": "m"}, oracle=lambda x: x, gradient=False),
    *[
        OpCase(op, (value,), oracle=lambda x: x, label=value.dtype.name)
        for op in ("Identity", "Snapshot", "StopGradient", "GuaranteeConst")
        for value in (X, T, HALF)
    ],
    OpCase("IdentityN", ([X, ints(1, 2)],), oracle=lambda v: v, order=2),
    OpCase("EnsureShape", (X,), {"shape": TensorShape([None, 3])}, oracle=lambda x: x),
    OpCase("EnsureShape", (X,), {"shape": TensorShape([None, 4])}, error=errors.InvalidArgumentError, label="wrong"),
    OpCase("CheckNumerics", (X,), {"message": "m {0}"}, oracle=lambda x: x, order=2),
    OpCase("CheckNumerics", (X.astype(bfloat16),), {"message": "m"}, oracle=lambda x: x, label="bfloat16"),
    OpCase("CheckNumerics", (np.array([1, np.nan], np.float32),), {"message": "m"}, error=errors.InvalidArgumentError),
    OpCase("CheckNumerics", (np.array([1, np.inf], np.float32),), {"message": "m"}, error=errors.InvalidArgumentError),
    OpCase("Assert", (np.bool_(True), [X])),
    OpCase("Assert", (np.bool_(False), [X, np.array(b"t {x}", np.object_)]), error=errors.InvalidArgumentError),
    OpCase("Const", (), {"value": X, "dtype": "float32"}, expected=X),
    OpCase("Const", (), {"value": T, "dtype": "string"}, expected=T, label="string", static_shape=False),
    OpCase("StringFormat", ([X, ints(1)],), {"template": "%s|%s"}, verify=lambda o: None, label="text"),
    *(
        OpCase(
            "StringFormat", ([values],), {"summarize": 9}, expected=np.array(text, np.object_), label=values.dtype.name
        )
        for values, text in (
            (np.float32([1 / 3, 1e-5, 16777216, np.nan, -np.inf]), b"[0.333333343 1e-05 16777216 nan -inf]"),
            (np.float64([1 / 3, 2.547, np.nan]), b"[0.33333333333333331 2.547 nan]"),
            (np.float16([0.1, 1000.5]), b"[0.0999755859 1000.5]"),
            (np.array([0.1, 3], ml_dtypes.bfloat16), b"[0.100097656 3]"),
        )
    ),
    OpCase(
        "StringFormat", ([np.zeros((3, 0), np.int32)],), expected=np.array(b"[\n ...]", np.object_), label="no columns"
    ),
    OpCase(
        "StringFormat",
        ([np.arange(8, dtype=np.int32).reshape(2, 2, 2)],),
        expected=np.array(b"[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]", np.object_),
        label="three dimensions",
    ),
    OpCase("StringFormat", ([ints(*range(9))],), {"summarize": 2}, expected=np.array(b"[0 1 ... 7 8]", np.object_)),
]

SHAPES = [
    OpCase("Shape", (X,), oracle=lambda x: ints(2, 3)),
    OpCase("Shape", (T,), {"out_type": "int64"}, oracle=lambda x: np.array([3], np.int64), label="string"),
    OpCase("ShapeN", ([X, np.float32(1)],), oracle=lambda v: [ints(2, 3), ints()]),
    OpCase("Size", (X,), oracle=lambda x: np.int32(6)),
    OpCase("Rank", (X,), oracle=lambda x: np.int32(2)),
    OpCase("Reshape", (X, ints(3, -1)), oracle=lambda x, s: x.reshape(3, 2), order=2),
    OpCase("Reshape", (T, ints(3, 1)), oracle=lambda x, s: x.reshape(3, 1), label="string"),
    OpCase("Reshape", (X, ints(4, -1)), error=errors.InvalidArgumentError, label="remainder"),
    OpCase("Reshape", (X, ints(-1, -1)), error=errors.InvalidArgumentError, label="two open"),
    OpCase("Reshape", (real(0, 3), ints(0, 7)), oracle=lambda x, s: x.reshape(0, 7), label="empty"),
    OpCase("Reshape", (real(3, 0), ints(-1, 0)), oracle=lambda x, s: x.reshape(3, 0), label="empty, open"),
    OpCase("Reshape", (real(2, 0, 6), ints(5, 0, -1)), oracle=lambda x, s: x.reshape(5, 0, 2), label="remainder of 0"),
    *[
        OpCase("ExpandDims", (X, np.int32(d)), oracle=lambda x, d: np.expand_dims(x, int(d)), order=2, label=str(d))
        for d in (0, 1, -1, -3)
    ],
    OpCase("ExpandDims", (X, np.int32(3)), error=errors.InvalidArgumentError, label="range"),
    OpCase("Squeeze", (real(1, 2, 1, 3),), oracle=np.squeeze, order=2),
    OpCase("Squeeze", (real(1, 2, 1),), {"squeeze_dims": [-1]}, oracle=lambda x: x[..., 0], label="one"),
    OpCase("Squeeze", (real(1, 2),), {"squeeze_dims": [1]}, error=errors.InvalidArgumentError, label="not 1"),
    OpCase("Bitcast", (X,), {"type": "int32"}, oracle=lambda x: x.view(np.int32)),
    OpCase("Bitcast", (X,), {"type": "uint8"}, oracle=lambda x: x.view(np.uint8).reshape(2, 3, 4), label="smaller"),
    OpCase(
        "Bitcast",
        (np.arange(8, dtype=np.uint8).reshape(2, 4),),
        {"type": "int32"},
        label="larger",
        oracle=lambda x: x.view(np.int32).reshape(2),
    ),
]

FILLING = [
    OpCase("Fill", (ints(2, 2), np.float32(1.5)), oracle=np.full, order=2),
    OpCase("Fill", (ints(2), np.array(b"x", np.object_)), oracle=lambda d, v: np.full(2, v), label="string"),
    OpCase("Fill", (ints(-1), np.float32(1.5)), error=errors.InvalidArgumentError, label="negative"),
    OpCase("ZerosLike", (X,), oracle=np.zeros_like),
    OpCase("ZerosLike", (T,), expected=np.array([b"", b"", b""], np.object_), label="string"),
    OpCase("OnesLike", (HALF,), oracle=lambda x: np.ones((2, 3)), label="bfloat16"),
    OpCase("OnesLike", (np.array([False, True]),), oracle=np.ones_like, label="bool"),
    OpCase("BroadcastTo", (real(3, 1), ints(2, 3, 4)), oracle=np.broadcast_to, order=2),
    OpCase("BroadcastTo", (X, ints(3, 3)), error=errors.InvalidArgumentError, label="wrong"),
    OpCase("BroadcastArgs", (ints(2, 1), ints(3)), expected=ints(2, 3)),
    OpCase("BroadcastArgs", (ints(2), ints(3)), error=errors.InvalidArgumentError, label="wrong"),
    OpCase(
        "OneHot",
        (ints([0, 2], [-1, 1]), np.int32(3), np.float32(2), np.float32(-1)),
        oracle=lambda i, d, a, b: np.where(i[..., None] == np.arange(3), a, b),
    ),
    OpCase(
        "OneHot",
        (ints(0, 2), np.int32(3), np.array(True), np.array(False)),
        {"axis": 0},
        label="axis",
        oracle=lambda i, d, a, b: i[None] == np.arange(3)[:, None],
    ),
    OpCase(
        "OneHot",
        (ints([0, 2]), np.int32(3), np.float32(2), np.float32(-1)),
        {"axis": 1},
        label="middle",
        oracle=lambda i, d, a, b: np.where(i[:, None] == np.arange(3)[None, :, None], a, b),
    ),
]

LAYOUT = [
    *[
        OpCase("Pack", ([X, X * 2, X + 1],), {"axis": a}, oracle=lambda v, a=a: np.stack(v, a), order=2, label=str(a))
        for a in (0, 1, -1)
    ],
    OpCase("Pack", ([X, real(3, 2)],), error=errors.InvalidArgumentError, label="shapes"),
    *[
        OpCase(
            "Unpack", (X,), {"num": 3, "axis": a}, oracle=lambda x: list(np.moveaxis(x, 1, 0)), order=2, label=str(a)
        )
        for a in (1, -1)
    ],
    OpCase("Unpack", (T,), {"num": 3}, oracle=list, label="string"),
    OpCase("Unpack", (X,), {"num": 3}, error=errors.InvalidArgumentError, label="wrong"),
    OpCase("ParallelConcat", ([real(1, 2), real(1, 2)],), {"shape": TensorShape([2, 2])}, oracle=np.concatenate),
    OpCase("Concat", (np.int32(1), [X, real(2, 1)]), oracle=lambda a, v: np.concatenate(v, 1), order=2),
    OpCase("ConcatV2", ([X, real(2, 1)], np.int32(1)), oracle=lambda v, a: np.concatenate(v, 1), order=2),
    OpCase("ConcatV2", ([X, real(1, 3), X], np.int32(-2)), oracle=lambda v, a: np.concatenate(v, 0), label="negative"),
    *(
        OpCase(
            "ConcatV2", ([half, half[:1]], np.int32(0)), oracle=lambda v, a: np.concatenate(v), label=str(half.dtype)
        )
        for half in (X.astype(np.float16), X.astype(ml_dtypes.bfloat16))
    ),
    OpCase("ConcatV2", ([T, T], np.int32(0)), oracle=lambda v, a: np.concatenate(v), label="string"),
    OpCase("ConcatV2", ([X, real(3, 2)], np.int32(0)), error=errors.InvalidArgumentError, label="shapes"),
    OpCase("ConcatV2", ([X, X], np.int32(2)), error=errors.InvalidArgumentError, label="axis"),
    OpCase(
        "ConcatOffset",
        (np.int32(1), [ints(2, 3), ints(2, 4), ints(2, 5)]),
        expected=[ints(0, 0), ints(0, 3), ints(0, 7)],
    ),
    OpCase("Split", (np.int32(1), real(2, 6)), {"num_split": 3}, oracle=lambda a, x: np.split(x, 3, 1), order=2),
    OpCase("Split", (np.int32(1), X), {"num_split": 2}, error=errors.InvalidArgumentError, label="uneven"),
    OpCase(
        "SplitV",
        (real(2, 6), np.array([1, -1, 2], np.int64), np.int32(1)),
        {"num_split": 3},
        order=2,
        oracle=lambda x, s, a: np.split(x, [1, 4], 1),
    ),
    OpCase("SplitV", (X, np.array([1, 1], np.int64), np.int32(1)), {"num_split": 2}, error=errors.InvalidArgumentError),
    OpCase("Transpose", (real(2, 3, 4), ints(2, 0, 1)), oracle=np.transpose, order=2),
    OpCase("Transpose", (X, ints(0, 0)), error=errors.InvalidArgumentError, label="wrong"),
    OpCase("ConjugateTranspose", (compl(2, 3), ints(1, 0)), oracle=lambda x, p: x.conj().T, order=2),
    OpCase("InvertPermutation", (ints(2, 0, 1),), oracle=lambda p: np.argsort(p).astype(np.int32)),
    OpCase("InvertPermutation", (ints(2, 2, 1),), error=errors.InvalidArgumentError, label="wrong"),
    OpCase("Tile", (X, ints(2, 3)), oracle=np.tile, order=2),
    OpCase("Tile", (T, ints(2)), oracle=np.tile, label="string"),
    OpCase("Reverse", (X, np.array([False, True])), oracle=lambda x, d: x[:, ::-1], order=2),
    OpCase("ReverseV2", (X, ints(0, -1)), oracle=lambda x, a: x[::-1, ::-1], order=2),
    OpCase("ReverseV2", (X, ints(2)), error=errors.InvalidArgumentError, label="axis"),
    OpCase(
        "ReverseSequence",
        (real(2, 4, 3), np.array([3, 0], np.int64)),
        {"seq_dim": 1, "batch_dim": 0},
        order=2,
        oracle=lambda x, n: np.stack([np.concatenate([x[i, :k][::-1], x[i, k:]]) for i, k in enumerate(n)]),
    ),
    OpCase(
        "ReverseSequence",
        (real(4, 2), np.array([3, 2], np.int64)),
        {"seq_dim": 0, "batch_dim": 1},
        label="time",
        oracle=lambda x, n: np.stack([np.concatenate([x[:k, i][::-1], x[k:, i]]) for i, k in enumerate(n)], 1),
    ),
    OpCase(
        "ReverseSequence", (real(2, 4), np.array([5, 0], np.int64)), {"seq_dim": 1}, error=errors.InvalidArgumentError
    ),
    OpCase("Roll", (X, ints(1, -1), ints(0, 1)), oracle=np.roll, order=2),
    OpCase("Roll", (X, np.int32(2), np.int32(1)), oracle=lambda x, s, a: np.roll(x, 2, 1), label="scalar"),
]

PADDING = [
    OpCase("Pad", (X, ints([1, 0], [2, 3])), oracle=np.pad, order=2),
    OpCase("Pad", (HALF, ints([1, 0], [2, 3])), oracle=np.pad, label="bfloat16"),
    OpCase("Pad", (X, ints([-1, 0], [2, 3])), error=errors.InvalidArgumentError, label="negative"),
    OpCase(
        "PadV2",
        (X, ints([1, 0], [0, 1]), np.float32(7)),
        oracle=lambda x, p, v: np.pad(x, p, constant_values=v),
        order=2,
    ),
    *[
        OpCase(
            "MirrorPad",
            (real(3, 4), ints([1, 2], [0, 3])),
            {"mode": mode},
            order=2,
            label=mode,
            oracle=lambda x, p, mode=mode: np.pad(x, p, mode=mode.lower()),
        )
        for mode in ("REFLECT", "SYMMETRIC")
    ],
    OpCase(
        "MirrorPad", (X, ints([2, 0], [0, 0])), {"mode": "REFLECT"}, error=errors.InvalidArgumentError, label="too far"
    ),
    OpCase(
        "MirrorPadGrad",
        (real(4), ints([1, 1])),
        {"mode": "SYMMETRIC"},
        order=2,
        oracle=lambda g, p: np.array([g[0] + g[1], g[2] + g[3]]),
    ),
    OpCase(
        "SpaceToBatchND",
        (real(2, 3, 4, 1), ints(2, 2), ints([1, 0], [0, 0])),
        order=2,
        oracle=lambda x, b, p: space_to_batch(np.pad(x, [(0, 0), (1, 0), (0, 0), (0, 0)]), 2),
    ),
    OpCase(
        "BatchToSpaceND",
        (real(8, 2, 2, 1), ints(2, 2), ints([1, 0], [0, 1])),
        order=2,
        oracle=lambda x, b, p: batch_to_space(x, 2)[:, 1:, :-1],
    ),
    OpCase("SpaceToBatchND", (real(2, 3), ints(2), ints([0, 0])), error=errors.InvalidArgumentError, label="uneven"),
    *(
        OpCase(
            name,
            (real(4, 4, 4), ints(2, 2), ints([0, 0])),
            error=errors.InvalidArgumentError,
            label="a pair missing",
        )
        for name in ("SpaceToBatchND", "BatchToSpaceND")
    ),
    OpCase(
        "SpaceToBatch",
        (real(1, 4, 4, 2), ints([0, 0], [0, 0])),
        {"block_size": 2},
        order=2,
        oracle=lambda x, p: space_to_batch(x, 2),
    ),
    OpCase(
        "BatchToSpace",
        (real(4, 2, 2, 2), ints([0, 0], [0, 0])),
        {"block_size": 2},
        order=2,
        oracle=lambda x, p: batch_to_space(x, 2),
    ),
    OpCase(
        "BatchToSpace",
        (real(4, 2, 2, 2), ints([0, 0], [0, 0])),
        {"block_size": 1 << 32},
        error=errors.InvalidArgumentError,
        label="a product beyond 64 bits",
    ),
    OpCase("SpaceToDepth", (real(2, 4, 4, 3),), {"block_size": 2}, order=2, oracle=lambda x: space_to_depth(x, 2)),
    OpCase(
        "SpaceToDepth",
        (real(2, 3, 4, 4),),
        {"block_size": 2, "data_format": "NCHW"},
        order=2,
        label="NCHW",
        oracle=lambda x: np.moveaxis(space_to_depth(np.moveaxis(x, 1, -1), 2), -1, 1),
    ),
    OpCase("DepthToSpace", (real(2, 2, 2, 8),), {"block_size": 2}, order=2, oracle=lambda x: depth_to_space(x, 2)),
    OpCase(
        "DepthToSpace",
        (real(2, 8, 2, 2),),
        {"block_size": 2, "data_format": "NCHW"},
        order=2,
        label="NCHW",
        oracle=lambda x: np.moveaxis(depth_to_space(np.moveaxis(x, 1, -1), 2), -1, 1),
    ),
    OpCase(
        "ExtractImagePatches",
        (real(2, 5, 6, 3),),
        {"ksizes": [1, 2, 3, 1], "strides": [1, 2, 1, 1], "rates": [1, 1, 2, 1], "padding": "VALID"},
        order=2,
        oracle=lambda x: patches(x, (2, 3), (2, 1), (1, 2)),
    ),
    OpCase(
        "ExtractImagePatches",
        (real(1, 4, 5, 2),),
        {"ksizes": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "rates": [1, 1, 1, 1], "padding": "SAME"},
        order=2,
        label="same",
        oracle=lambda x: patches(np.pad(x, [(0, 0), (0, 1), (1, 1), (0, 0)]), (3, 3), (2, 2), (1, 1)),
    ),
    OpCase(
        "ExtractImagePatches",
        (real(1, 4, 3, 2),),
        {"ksizes": [1, 2, 4, 1], "strides": [1, 1, 2, 1], "rates": [1, 1, 1, 1], "padding": "VALID"},
        label="longer by less than a stride",
        oracle=lambda x: np.zeros((1, 3, 0, 16)),
    ),
]


def space_to_batch(x: Any, b: int) -> Any:
    return np.concatenate([x[:, i::b, j::b] for i in range(b) for j in range(b)])


def batch_to_space(x: Any, b: int) -> Any:
    parts = np.split(x, b * b)
    n, h, w, c = parts[0].shape
    out = np.zeros((n, h * b, w * b, c), x.dtype)
    for k, part in enumerate(parts):
        out[:, k // b :: b, k % b :: b] = part
    return out


def space_to_depth(x: Any, b: int) -> Any:
    return np.concatenate([x[:, i::b, j::b] for i in range(b) for j in range(b)], axis=-1)


def depth_to_space(x: Any, b: int) -> Any:
    return batch_to_space(np.concatenate(np.split(x, b * b, axis=-1)), b)


def patches(x: Any, size: Any, stride: Any, rate: Any) -> Any:
    reach = [(k - 1) * r + 1 for k, r in zip(size, rate, strict=True)]
    rows = range(0, x.shape[1] - reach[0] + 1, stride[0])
    columns = range(0, x.shape[2] - reach[1] + 1, stride[1])
    return np.stack(
        [
            np.stack(
                [x[:, i : i + reach[0] : rate[0], j : j + reach[1] : rate[1]].reshape(len(x), -1) for j in columns],
                axis=1,
            )
            for i in rows
        ],
        axis=1,
    )


def set_diagonal(x: Any, d: Any) -> Any:
    out = np.array(x)
    k = np.arange(d.shape[-1])
    out[..., k, k] = d
    return out


DIAGONALS = [
    OpCase("Diag", (real(2, 2),), oracle=lambda d: np.diag(d.ravel()).reshape(2, 2, 2, 2), order=2),
    OpCase("DiagPart", (real(2, 3, 2, 3),), oracle=lambda x: np.diag(x.reshape(6, 6)).reshape(2, 3), order=2),
    OpCase("DiagPart", (real(2, 3),), error=errors.InvalidArgumentError, label="uneven"),
    OpCase("MatrixDiag", (X,), oracle=lambda d: np.stack([np.diag(r) for r in d]), order=2),
    *[
        OpCase(
            "MatrixDiagPart", (real(2, *s),), oracle=lambda x: np.diagonal(x, axis1=-2, axis2=-1), order=2, label=str(s)
        )
        for s in ((3, 3), (2, 4), (4, 2))
    ],
    *[
        OpCase("MatrixSetDiag", (real(2, *s), real(2, min(s))), oracle=set_diagonal, order=2, label=str(s))
        for s in ((3, 3), (2, 4), (4, 2))
    ],
    *[
        OpCase(
            "MatrixBandPart",
            (real(2, 3, 4), np.int64(a), np.int64(b)),
            order=2,
            label=f"{a},{b}",
            oracle=lambda x, a, b: np.triu(np.tril(x, 9 if b < 0 else b), -9 if a < 0 else -a),
        )
        for a, b in ((0, 1), (1, -1), (-1, 0))
    ],
]


def diagonals(x: Any, low: int, high: int, align: str, padding: float) -> Any:
    """The packed diagonals of one matrix, the highest first, by NumPy's `diagonal`."""
    found = [np.diagonal(x, d) for d in range(high, low - 1, -1)]
    width = max(map(len, found))
    rows = []
    for d, diagonal in zip(range(high, low - 1, -1), found, strict=True):
        left = align.split("_")[0 if d >= 0 else 1] == "LEFT" or (d == 0 and "LEFT" in align)
        missing = width - len(diagonal)
        rows.append(np.pad(diagonal, (0, missing) if left else (missing, 0), constant_values=padding))
    return np.stack(rows) if low != high else rows[0]


def with_diagonals(x: Any, packed: Any, low: int, high: int, align: str) -> Any:
    """One matrix with its diagonals replaced by packed ones."""
    out = np.array(x)
    places = diagonals(np.arange(x.size).reshape(x.shape), low, high, align, -1).reshape(-1)
    out.reshape(-1)[places[places >= 0]] = packed.reshape(-1)[places >= 0]
    return out


def band_rows(version: str, align: str, shape: tuple[int, int], low: int, high: int) -> list[OpCase]:
    """Reading, making and replacing one band, of one diagonal or several."""
    k = ints(low) if low == high else ints(low, high)
    attrs = {} if version == "V2" else {"align": align}
    x, label = real(2, *shape), f"{align} {shape} [{low}, {high}]"
    packed = real(2, *diagonals(x[0], low, high, align, 0).shape)
    return [
        OpCase(
            f"MatrixDiagPart{version}",
            (x, k, np.float32(9)),
            attrs,
            order=2,
            differentiate=[0],
            label=label,
            oracle=lambda x, k, p: np.stack([diagonals(m, low, high, align, float(p)) for m in x]),
        ),
        OpCase(
            f"MatrixDiag{version}",
            (packed, k, np.int32(shape[0]), np.int32(shape[1]), np.float32(5)),
            attrs,
            order=2,
            differentiate=[0],
            label=label,
            oracle=lambda d, *_: np.stack([with_diagonals(np.full(shape, 5.0), m, low, high, align) for m in d]),
        ),
        OpCase(
            f"MatrixSetDiag{version}",
            (x, packed, k),
            attrs,
            order=2,
            label=label,
            oracle=lambda x, d, k: np.stack(
                [with_diagonals(m, p, low, high, align) for m, p in zip(x, d, strict=True)]
            ),
        ),
    ]


BANDS = [
    *band_rows("V2", "LEFT_LEFT", (3, 4), -1, 1),
    *band_rows("V2", "LEFT_LEFT", (3, 3), 1, 1),
    *band_rows("V3", "RIGHT_LEFT", (3, 4), -1, 2),
    *band_rows("V3", "LEFT_RIGHT", (4, 2), -2, 0),
    *band_rows("V3", "RIGHT_RIGHT", (3, 3), -1, 1),
    OpCase(
        "MatrixDiagV3",
        (real(2), ints(1), np.int32(-1), np.int32(-1), np.float32(0)),
        gradient=False,
        label="square",
        oracle=lambda d, *_: np.diag(d, 1),
    ),
    OpCase(
        "MatrixDiagV3",
        (real(2), ints(-1), np.int32(-1), np.int32(2), np.float32(0)),
        gradient=False,
        label="rows",
        oracle=lambda d, *_: np.diag(d, -1)[:, :2],
    ),
    OpCase(
        "MatrixDiagPartV3", (real(2, 2), ints(3), np.float32(0)), error=errors.InvalidArgumentError, label="outside"
    ),
    OpCase("MatrixSetDiagV3", (real(2, 2), real(3), ints(0)), error=errors.InvalidArgumentError, label="length"),
]

CASES = [*IDENTITIES, *SHAPES, *FILLING, *LAYOUT, *PADDING, *DIAGONALS, *BANDS]
