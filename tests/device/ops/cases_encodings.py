"""Rows for what strings may hold: tensors, compressed data, JSON."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import numpy as np

from anabranch import errors
from anabranch.proto.example_pb2 import Example, Feature, Features, Int64List
from anabranch.proto.graph_pb2 import TensorProto
from anabranch.proto.tensors import make_ndarray, make_tensor_proto
from anabranch.testing.op_cases import OpCase

INVALID = errors.InvalidArgumentError
TEXTS = np.array([[b"one", b""], [b"\x00\xff", b"four"]], np.object_)
NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)


def scalar(value: bytes) -> Any:
    out = np.empty((), np.object_)
    out[()] = value
    return out


def serialized(value: Any) -> Any:
    return scalar(make_tensor_proto(value).SerializeToString())


def _reads_as(expected: Any) -> Any:
    def verify(outputs: list[Any]) -> None:
        np.testing.assert_array_equal(make_ndarray(TensorProto.FromString(outputs[0].item())), expected)

    return verify


EXAMPLE = Example(features=Features(feature={"n": Feature(int64_list=Int64List(value=[7, 8]))}))
JSON = scalar(b'{"features": {"feature": {"n": {"int64List": {"value": ["7", "8"]}}}}}')

CASES = [
    OpCase("SerializeTensor", (NUMBERS,), verify=_reads_as(NUMBERS), label="numbers"),
    OpCase("SerializeTensor", (TEXTS,), verify=_reads_as(TEXTS), label="texts"),
    *(
        OpCase("SerializeTensor", (value,), expected=[scalar(message)], label=f"bytes of {value.dtype} {value.shape}")
        for value, message in (
            (np.float32(1), b'\x08\x01\x12\x00"\x04\x00\x00\x80?'),
            (np.array([-1], np.int64), b'\x08\t\x12\x04\x12\x02\x08\x01"\x08' + b"\xff" * 8),
            (np.array([False, True]), b'\x08\n\x12\x04\x12\x02\x08\x02"\x02\x00\x01'),
        )
    ),
    OpCase("ParseTensor", (serialized(NUMBERS),), {"out_type": "float"}, expected=[NUMBERS], label="numbers"),
    OpCase("ParseTensor", (serialized(TEXTS),), {"out_type": "string"}, expected=[TEXTS], label="texts"),
    OpCase("ParseTensor", (serialized(NUMBERS),), {"out_type": "int32"}, error=INVALID, label="type"),
    OpCase("ParseTensor", (scalar(b"bogus"),), {"out_type": "float"}, error=INVALID, label="damaged"),
    OpCase("ParseTensor", (np.array([b"bogus"], np.object_),), {"out_type": "float"}, error=INVALID, label="rank"),
    OpCase("DecodeCompressed", (TEXTS,), expected=[TEXTS], label="plain"),
    OpCase("DecodeCompressed", (np.array([zlib.compress(b"ab"), zlib.compress(b"")], np.object_),),
           {"compression_type": "ZLIB"}, expected=[np.array([b"ab", b""], np.object_)], label="zlib"),
    OpCase("DecodeCompressed", (scalar(gzip.compress(b"ab")),), {"compression_type": "GZIP"},
           expected=[scalar(b"ab")], label="gzip"),
    OpCase("DecodeCompressed", (scalar(gzip.compress(b"ab")[:-9]),), {"compression_type": "GZIP"},
           error=errors.DataLossError, label="cut"),
    OpCase("DecodeCompressed", (scalar(b""),), {"compression_type": "GZIP"}, expected=[scalar(b"")], label="nothing"),
    OpCase("DecodeCompressed", (TEXTS,), {"compression_type": "LZ4"}, error=INVALID, label="unknown kind"),
    OpCase("DecodeJSONExample", (JSON,), expected=[scalar(EXAMPLE.SerializeToString())], label="JSON"),
    OpCase("DecodeJSONExample", (scalar(b"{x"),), error=INVALID, label="no JSON"),
    OpCase("DecodeJSONExample", (scalar(b"[]"),), error=INVALID, label="no object"),
    OpCase("DecodeJSONExample", (scalar(b'{"feature": 1}'),), error=INVALID, label="no example"),
]  # fmt: skip
