"""ONNX's element types and TensorFlow's."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

import anabranch as tf

_DTYPES = {
    TensorProto.FLOAT: tf.float32,
    TensorProto.UINT8: tf.uint8,
    TensorProto.INT8: tf.int8,
    TensorProto.UINT16: tf.uint16,
    TensorProto.INT16: tf.int16,
    TensorProto.INT32: tf.int32,
    TensorProto.INT64: tf.int64,
    TensorProto.STRING: tf.string,
    TensorProto.BOOL: tf.bool,
    TensorProto.FLOAT16: tf.float16,
    TensorProto.DOUBLE: tf.float64,
    TensorProto.UINT32: tf.uint32,
    TensorProto.UINT64: tf.uint64,
    TensorProto.COMPLEX64: tf.complex64,
    TensorProto.COMPLEX128: tf.complex128,
    TensorProto.BFLOAT16: tf.bfloat16,
}
_NUMBERS = {dtype: number for number, dtype in _DTYPES.items()}


def dtype_of(number: int, where: str) -> tf.DType:
    """The dtype of one of ONNX's element types.

    Raises:
        UnimplementedError: there is none (the 8-bit and 4-bit floating-point types and the 4-bit integers).
    """
    if number not in _DTYPES:
        known = TensorProto.DataType.keys()
        name = TensorProto.DataType.Name(number) if number in TensorProto.DataType.values() else f"number {number}"
        raise tf.errors.UnimplementedError(
            None,
            None,
            f"{where} has the element type {name}, of {len(known)} that ONNX has; TensorFlow 1 has no such type",
        )
    return _DTYPES[number]


def number_of(dtype: tf.DType) -> int | None:
    """ONNX's number of a dtype, or None."""
    return _NUMBERS.get(dtype.base_dtype)


def numpy_dtype(dtype: tf.DType) -> np.dtype[np.generic]:
    """The NumPy dtype of the values."""
    result: np.dtype[np.generic] = np.dtype(dtype.as_numpy_dtype)
    return result
