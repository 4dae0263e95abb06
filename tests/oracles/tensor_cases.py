"""TensorProtos in every dtype and encoding, with the elements that TensorFlow's C++ reader finds in them.

Used by `make_proto_fixtures.py`; needs TensorFlow.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

_LIST_OF_DTYPE = {
    "float32": "float_val",
    "float64": "double_val",
    "int32": "int_val",
    "uint8": "int_val",
    "int16": "int_val",
    "int8": "int_val",
    "uint16": "int_val",
    "string": "string_val",
    "complex64": "scomplex_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "qint8": "int_val",
    "quint8": "int_val",
    "qint32": "int_val",
    "qint16": "int_val",
    "quint16": "int_val",
    "bfloat16": "half_val",
    "float16": "half_val",
    "complex128": "dcomplex_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "float8_e5m2": "float8_val",
    "float8_e4m3fn": "float8_val",
}
_STRINGS = (b"", b"a", b"\xff\x00", "naïve".encode(), b"five" * 50, b"6")


def _entries(dtype: tf.DType) -> list[Any]:
    """Six elements as the dtype's list holds them (two entries each for complex dtypes)."""
    if dtype == tf.string:
        return list(_STRINGS)
    if dtype == tf.bool:
        return [True, False, True, True, False, False]
    if dtype in (tf.float16, tf.bfloat16):
        return [int(bits) for bits in np.array([1.5, -2, 0, 3, np.inf, 0.25], dtype.as_numpy_dtype).view(np.uint16)]
    if dtype.name.startswith("float8"):
        return list(np.array([1.5, -2, 0, 3, 1, 0.25], dtype.as_numpy_dtype).view(np.uint8).tobytes())
    if dtype.is_complex:
        return [1.5, -2.0, 0.25, 3.0, 4.0, 5.0, -6.0, 7.0, 8.0, 9.0, 10.0, -11.5]
    if dtype.is_floating:
        return [1.5, -2.0, float("inf"), 1e-30, 0.1, 3.0]
    if dtype.is_unsigned or dtype in (tf.quint8, tf.quint16):
        return [0, 1, 2, 200, 255, 7]
    return [0, 1, -2, 100, -128, 127]


def _in_list(dtype: tf.DType, entries: list[Any], shape: list[int]) -> tensor_pb2.TensorProto:
    proto = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum, tensor_shape=tf.TensorShape(shape).as_proto())
    field = _LIST_OF_DTYPE[dtype.name]
    if field == "float8_val":
        proto.float8_val = bytes(entries)
    else:
        getattr(proto, field).extend(entries)
    return proto


def _encodings(dtype: tf.DType) -> Iterator[tuple[str, tensor_pb2.TensorProto]]:
    entries, per_element = _entries(dtype), 2 if dtype.is_complex else 1
    yield "list", _in_list(dtype, entries, [2, 3])
    yield "splat", _in_list(dtype, entries[per_element : 2 * per_element], [3, 1, 2])
    yield "continued", _in_list(dtype, entries[: 4 * per_element], [7])
    yield "absent", _in_list(dtype, [], [3])
    yield "scalar", _in_list(dtype, entries[per_element : 2 * per_element], [])
    yield "empty", _in_list(dtype, [], [2, 0, 3])
    if dtype == tf.string:
        yield "content", _string_content()
        return
    values = _read(_in_list(dtype, entries, [2, 3]))
    if values is None:
        values = np.frombuffer(bytes(entries), np.uint8).reshape(2, 3)  # float8: no reader in C++
    yield (
        "content",
        tensor_pb2.TensorProto(
            dtype=dtype.as_datatype_enum,
            tensor_shape=tf.TensorShape([2, 3]).as_proto(),
            tensor_content=values.tobytes(),
        ),
    )


def _string_content() -> tensor_pb2.TensorProto:
    """Strings in tensor_content: their lengths as varints, then their bytes."""
    lengths = b"".join(bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7]) for n in map(len, _STRINGS))
    return tensor_pb2.TensorProto(
        dtype=tf.string.as_datatype_enum,
        tensor_shape=tf.TensorShape([2, 3]).as_proto(),
        tensor_content=lengths + b"".join(_STRINGS),
    )


def _read(proto: tensor_pb2.TensorProto) -> np.ndarray[Any, Any] | None:
    """What C++ reads; None where it has no reader for the dtype."""
    dtype = tf.as_dtype(proto.dtype)
    try:
        tensor = tf.io.parse_tensor(proto.SerializeToString(), dtype)
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
        return None
    return np.asarray(tensor.numpy())


def _expected(proto: tensor_pb2.TensorProto) -> tuple[str, np.ndarray[Any, Any]]:
    values = _read(proto)
    if values is not None:
        return "c++", values
    return "python", tf.make_ndarray(proto)


def _case(encoding: str, proto: tensor_pb2.TensorProto) -> dict[str, Any]:
    reader, values = _expected(proto)
    case: dict[str, Any] = {
        "dtype": tf.as_dtype(proto.dtype).name,
        "encoding": encoding,
        "reader": reader,
        "shape": list(values.shape),
        "proto": _text(proto.SerializeToString(deterministic=True)),
    }
    if proto.dtype == tf.string.as_datatype_enum:
        case["strings"] = [_text(item) for item in values.ravel().tolist()]
    else:
        case["data"] = _text(values.tobytes())
    return case


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _made() -> Iterator[dict[str, Any]]:
    """What `tf.make_tensor_proto` makes of Python values: the arguments as JSON, and the proto."""
    arguments: list[tuple[Any, str | None, list[int] | None]] = [
        (1.5, None, None),
        (3, None, None),
        (True, None, None),
        ("text", None, None),
        ([1, 2, 3], None, None),
        ([[1.0, 2.0], [3.0, 4.0]], None, None),
        ([[1.0, 2.0], [3.0, 4.0]], "float64", [4]),
        ([[1.0, 2.0], [3.0, 4.0]], "float16", None),
        ([[1.0, 2.0], [3.0, 4.0]], "bfloat16", [4, 1]),
        ([1, 2], "complex64", None),
        ([1, 2], "complex128", [2]),
        ([True, False], "bool", None),
        (7, "int64", [2, 2]),
        (7, "uint8", None),
        ([7, 8], "uint16", None),
        ([7, 8], "uint32", None),
        ([7, 8], "uint64", None),
        ([7, -8], "int8", None),
        ([7, -8], "int16", None),
        (0.5, "float32", [3]),
        (["a", "bc", ""], "string", [3, 1]),
        ([], "float32", None),
        ([], None, None),
        ([], "string", [0]),
        (2**40, None, None),
    ]
    for values, dtype, shape in arguments:
        proto = tf.make_tensor_proto(values, dtype=dtype, shape=shape)
        yield {
            "values": values,
            "dtype": dtype,
            "shape": shape,
            "proto": _text(proto.SerializeToString(deterministic=True)),
        }


def write(path: Path) -> None:
    cases = [_case(encoding, proto) for name in _LIST_OF_DTYPE for encoding, proto in _encodings(tf.as_dtype(name))]
    lines = [",\n".join(json.dumps(case) for case in group) for group in (cases, list(_made()))]
    path.write_text(f'{{"read": [\n{lines[0]}\n],\n"made": [\n{lines[1]}\n]}}\n')
