"""Rows for tf.train.SequenceExample messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch import errors
from anabranch.proto.example_pb2 import (
    BytesList,
    Feature,
    FeatureList,
    FeatureLists,
    Features,
    FloatList,
    Int64List,
    SequenceExample,
)
from anabranch.testing.op_cases import OpCase


def text(*values: Any) -> Any:
    return np.array(values, np.object_)


def scalar(value: bytes) -> Any:
    out = np.empty((), np.object_)
    out[()] = value
    return out


def floats(*rows: Any) -> Any:
    return FeatureList(feature=[Feature(float_list=FloatList(value=row)) for row in rows])


def words(*rows: Any) -> Any:
    return FeatureList(feature=[Feature(bytes_list=BytesList(value=row)) for row in rows])


def message(context: dict[str, Any], lists: dict[str, Any]) -> bytes:
    made = SequenceExample(context=Features(feature=context), feature_lists=FeatureLists(feature_list=lists))
    data: bytes = made.SerializeToString()
    return data


NUMBER = Feature(int64_list=Int64List(value=[3]))
NAMES = Feature(bytes_list=BytesList(value=[b"a", b"b"]))
LONG = message({"n": NUMBER, "w": NAMES}, {"x": floats([1, 2], [3, 4]), "t": words([b"p"], [b"q", b"r"])})
ONE_WORD_EACH = message({}, {"x": words([b"p"], [b"q"]), "t": words()})
ONE_WORD: dict[str, Any] = {"feature_list_dense_types": ["string"], "feature_list_dense_shapes": [[]]}
SHORT = message({}, {"x": floats([5, 6]), "t": words([])})
BARE = message({}, {})

COUNTS = {"Ncontext_sparse": 1, "Ncontext_dense": 1, "Nfeature_list_sparse": 1, "Nfeature_list_dense": 1}
TYPES = {
    "context_sparse_types": ["string"],
    "Tcontext_dense": ["int64"],
    "context_dense_shapes": [[]],
    "feature_list_sparse_types": ["string"],
    "feature_list_dense_types": ["float32"],
    "feature_list_dense_shapes": [[2]],
}
KEYS = {
    "context_sparse_keys": ["w"],
    "context_dense_keys": ["n"],
    "feature_list_sparse_keys": ["t"],
    "feature_list_dense_keys": ["x"],
}
SEVEN = np.array(7)
NONE = np.zeros(0, np.int64)


def single(record: bytes, default: Any = SEVEN, optional: Any = (), name: bytes = b"", **types: Any) -> dict[str, Any]:
    keys = [[scalar(k)] for k in (b"w", b"n", b"t", b"x")]
    inputs = (scalar(record), text(*optional), *keys, [default], scalar(name))
    return {"op": "ParseSingleSequenceExample", "inputs": inputs, "attrs": {**COUNTS, **TYPES, **types}}


def batch(*records: bytes, default: Any = SEVEN, optional: Any = (), names: Any = (), **types: Any) -> dict[str, Any]:
    attrs = {**COUNTS, **TYPES, **KEYS, "feature_list_dense_missing_assumed_empty": list(optional), **types}
    return {"op": "ParseSequenceExample", "inputs": (text(*records), text(*names), [default]), "attrs": attrs}


BAD = errors.InvalidArgumentError
_EMPTY = np.zeros((0, 1), np.int64)

CASES = [
    OpCase(**single(LONG), expected=[
        np.array([[0], [1]]), text(b"a", b"b"), np.array([2]), np.array(3),
        np.array([[0, 0], [1, 0], [1, 1]]), text(b"p", b"q", b"r"), np.array([2, 2]),
        np.array([[1, 2], [3, 4]], np.float32),
    ]),
    OpCase(**single(BARE, optional=[b"x"]), label="nothing there", expected=[
        _EMPTY, text(), np.array([0]), np.array(7), np.zeros((0, 2), np.int64), text(), np.array([0, 0]),
        np.zeros((0, 2), np.float32),
    ]),
    OpCase(**single(ONE_WORD_EACH, **ONE_WORD), label="one text in each", expected=[
        _EMPTY, text(), np.array([0]), np.array(7), np.zeros((0, 2), np.int64), text(), np.array([0, 0]),
        text(b"p", b"q"),
    ]),
    OpCase(**single(BARE), error=BAD, label="no list"),
    OpCase(**single(BARE, default=NONE, optional=[b"x"], name=b"bare"), error=BAD, label="no feature"),
    OpCase(**single(b"\xff\xff"), error=BAD, label="corrupt"),
    OpCase(**single(LONG, feature_list_dense_shapes=[[3]]), error=BAD, label="another size"),
    OpCase(**single(LONG, feature_list_dense_types=["int64"]), error=BAD, label="another type"),
    OpCase(**single(LONG, feature_list_sparse_types=["int64"]), error=BAD, label="another type of a sparse list"),
    OpCase(**batch(LONG, SHORT, BARE, optional=["x"]), expected=[
        np.array([[0, 0], [0, 1]]), text(b"a", b"b"), np.array([3, 2]), np.array([3, 7, 7]),
        np.array([[0, 0, 0], [0, 1, 0], [0, 1, 1]]), text(b"p", b"q", b"r"), np.array([3, 2, 2]),
        np.array([[[1, 2], [3, 4]], [[5, 6], [0, 0]], [[0, 0], [0, 0]]], np.float32), np.array([2, 1, 0]),
    ]),
    OpCase(**batch(optional=["x"]), label="no records", expected=[
        np.zeros((0, 2), np.int64), text(), np.array([0, 0]), np.zeros(0, np.int64),
        np.zeros((0, 3), np.int64), text(), np.array([0, 0, 0]), np.zeros((0, 0, 2), np.float32), np.zeros(0, np.int64),
    ]),
    OpCase(**batch(LONG, BARE), error=BAD, label="no list"),
    OpCase(**batch(LONG, SHORT, default=NONE), error=BAD, label="no feature"),
    OpCase(**batch(LONG, b"\xff"), error=BAD, label="corrupt"),
    OpCase(**batch(LONG, names=["a", "b"]), error=BAD, label="too many names"),
]  # fmt: skip
