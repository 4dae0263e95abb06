"""Rows for operations that read records and files."""

from __future__ import annotations

import atexit
from typing import Any

import numpy as np

from anabranch import errors
from anabranch.distributed.own_folders import OwnFolder
from anabranch.proto.example_pb2 import BytesList, Example, Feature, Features, FloatList, Int64List
from anabranch.testing.op_cases import OpCase

RECORD = Example(
    features=Features(
        feature={
            "x": Feature(float_list=FloatList(value=[1.0, 2.0])),
            "n": Feature(int64_list=Int64List(value=[7])),
            "w": Feature(bytes_list=BytesList(value=[b"a", b"b"])),
        }
    )
).SerializeToString()
_folder = OwnFolder("anabranch-cases")
FOLDER = _folder.path
atexit.register(_folder.close)
(FOLDER / "one.txt").write_bytes(b"contents")


def text(*values: Any) -> Any:
    return np.array(values, np.object_)


def scalar(value: bytes) -> Any:
    out = np.empty((), np.object_)
    out[()] = value
    return out


def _was_written(_: list[Any]) -> None:
    assert (FOLDER / "new" / "file").read_bytes() == b"\x00\x01"


PARSED = {"sparse_types": ["string"], "Tdense": ["float32", "int64"], "dense_shapes": [[2], []]}
NO_DEFAULT, SEVEN = np.zeros(0, np.float32), np.int64(7)

CASES = [
    OpCase(
        "ParseExample",
        (text(RECORD, b""), text(), [scalar(b"w")], [scalar(b"x"), scalar(b"n")], [np.zeros(2, np.float32), SEVEN]),
        {**PARSED, "Nsparse": 1, "Ndense": 2},
        expected=[
            np.array([[0, 0], [0, 1]]),
            text(b"a", b"b"),
            np.array([2, 2]),
            np.array([[1, 2], [0, 0]], np.float32),
            np.array([7, 7]),
        ],
    ),
    OpCase(
        "ParseExample",
        (text(b""), text(), [], [scalar(b"x")], [NO_DEFAULT]),
        {"Nsparse": 0, "Ndense": 1, "sparse_types": [], "Tdense": ["float32"], "dense_shapes": [[2]]},
        error=errors.InvalidArgumentError,
        label="missing",
    ),
    OpCase(
        "ParseExample",
        (text(RECORD), text(), [scalar(b"w\xc2")], [scalar(b"\xc2")], [np.array([7], np.int64)]),
        {"Nsparse": 1, "Ndense": 1, "sparse_types": ["string"], "Tdense": ["int64"], "dense_shapes": [[1]]},
        expected=[np.zeros((0, 2), np.int64), text(), np.array([1, 0]), np.array([[7]])],
        label="keys that are not UTF-8",
    ),
    OpCase(
        "ParseSingleExample",
        (scalar(RECORD), [NO_DEFAULT, SEVEN]),
        {**PARSED, "num_sparse": 1, "sparse_keys": ["w"], "dense_keys": ["x", "n"]},
        expected=[
            np.array([[0], [1]]),
            text(b"a", b"b"),
            np.array([2]),
            np.array([1, 2], np.float32),
            np.array(7),
        ],
    ),
    OpCase(
        "DecodeCSV",
        (text(b"1,2.5", b"3,"), [np.zeros(0, np.int32), np.array([0.5], np.float32)]),
        expected=[np.array([1, 3], np.int32), np.array([2.5, 0.5], np.float32)],
    ),
    OpCase(
        "DecodeCSV",
        (text(b"1"), [np.zeros(1, np.int32), np.zeros(1, np.int32)]),
        error=errors.InvalidArgumentError,
        label="too few fields",
    ),
    OpCase(
        "DecodeCSV",
        (text(b"1_0"), [np.zeros(1, np.int32)]),
        error=errors.InvalidArgumentError,
        label="underscore",
    ),
    OpCase(
        "DecodeCSV",
        (text("\u0663".encode()), [np.zeros(1, np.float32)]),
        error=errors.InvalidArgumentError,
        label="digits of another script",
    ),
    OpCase(
        "DecodeCSV",
        (text(b"\xc2", b"2"), [np.array([5], np.int32)]),
        {"na_value": b"\xc2"},
        expected=[np.array([5, 2], np.int32)],
        label="bytes for what is missing",
    ),
    OpCase("ReadFile", (scalar(str(FOLDER / "one.txt").encode()),), expected=scalar(b"contents")),
    OpCase("ReadFile", (scalar(str(FOLDER / "nobody").encode()),), error=errors.NotFoundError, label="missing"),
    OpCase("WriteFile", (scalar(str(FOLDER / "new" / "file").encode()), scalar(b"\x00\x01")), verify=_was_written),
    OpCase("MatchingFiles", (scalar(str(FOLDER / "*.txt").encode()),), expected=text(str(FOLDER / "one.txt").encode())),
]
