"""ONNX's element types, TensorFlow's, and how the narrow ones that TensorFlow has not are carried.

The 8-bit and 4-bit floating-point types and the 4-bit integers have no dtype in TensorFlow 1. A value of such a type
is a `NarrowTensor`: a tensor of a wider dtype (float32, int8, uint8), whose elements are numbers of the narrow type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
from onnx import TensorProto

import anabranch as tf
from anabranch.core.arrays import HostArray

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
        UnimplementedError: there is none; those that `narrow` knows are carried in wider ones.
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


_finfo: Final[Any] = ml_dtypes.finfo  # These two carry no annotations.
_iinfo: Final[Any] = ml_dtypes.iinfo


@dataclass(frozen=True)
class NarrowType:
    """An element type that TensorFlow has not."""

    number: int
    #: The type of NumPy arrays that hold its values.
    numpy: Any
    #: What its values are carried in.
    carrier: tf.DType

    @property
    def name(self) -> str:
        return str(TensorProto.DataType.Name(self.number))

    @property
    def bits(self) -> int:
        return int(self.limits.bits)

    @property
    def limits(self) -> Any:
        """The record of its least and greatest values that NumPy would give."""
        return (_iinfo if self.carrier.is_integer else _finfo)(self.numpy)

    def from_bits(self, bits: HostArray) -> HostArray:
        """The values that bytes stand for (one byte for each element), in the carrier's dtype."""
        if self.carrier.is_integer:
            signed = (bits.astype(np.int16) ^ 8) - 8 if self.carrier == tf.int8 else bits
            return np.asarray(signed, self.carrier.as_numpy_dtype)
        values: HostArray = bits.astype(np.uint8).view(self.numpy).astype(np.float32)
        return values


@dataclass(frozen=True)
class NarrowTensor:
    """A value of a narrow type: a tensor of the type's carrier."""

    tensor: tf.Tensor
    type: NarrowType


_NARROW = {
    number: NarrowType(number, numpy_type, carrier)
    for number, numpy_type, carrier in (
        (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn, tf.float32),
        (TensorProto.FLOAT8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz, tf.float32),
        (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2, tf.float32),
        (TensorProto.FLOAT8E5M2FNUZ, ml_dtypes.float8_e5m2fnuz, tf.float32),
        (TensorProto.FLOAT4E2M1, ml_dtypes.float4_e2m1fn, tf.float32),
        (TensorProto.INT4, ml_dtypes.int4, tf.int8),
        (TensorProto.UINT4, ml_dtypes.uint4, tf.uint8),
    )
}


def narrow(number: int) -> NarrowType | None:
    """The narrow type of one of ONNX's numbers; None for all others."""
    return _NARROW.get(number)


def narrowed(x: tf.Tensor, target: NarrowType, saturate: bool = True) -> NarrowTensor:
    """The nearest values that a narrow type has, ties to even; those beyond become the limits, or infinity or NaN."""
    if target.carrier.is_integer:
        limits = target.limits
        whole = tf.cast(x, tf.float64) if x.dtype.is_floating else tf.cast(x, tf.int64)
        held = tf.clip_by_value(tf.round(whole), tf.cast(limits.min, whole.dtype), tf.cast(limits.max, whole.dtype))
        return NarrowTensor(tf.cast(held, target.carrier), target)
    return NarrowTensor(tf.cast(_rounded(tf.cast(x, tf.float64), target, saturate), tf.float32), target)


def _rounded(x: tf.Tensor, target: NarrowType, saturate: bool) -> tf.Tensor:
    """Float64 values rounded to those of a narrow floating-point type.

    Between two powers of two the values of a type are evenly spaced, so the spacing follows from the exponent, which is
    taken from the bits of the number.
    """
    limits = target.limits
    exponent = tf.bitwise.bitwise_and(tf.bitwise.right_shift(tf.bitcast(x, tf.int64), tf.constant(52, tf.int64)), 0x7FF)
    lowest = tf.constant(int(limits.minexp) + 1023, tf.int64)
    spacing = tf.maximum(exponent, lowest) - int(limits.nmant)
    step = tf.bitcast(tf.bitwise.left_shift(spacing, tf.constant(52, tf.int64)), tf.float64)
    rounded = tf.round(x / step) * step
    most, missing = float(limits.max), _missing(target)
    beyond = tf.sign(x) * (most if saturate or target.number == TensorProto.FLOAT4E2M1 else missing[0])
    rounded = tf.where_v2(tf.abs(rounded) > most, beyond, rounded)
    if target.number in (TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2FNUZ):  # There is one zero only.
        rounded = tf.where_v2(tf.equal(rounded, 0), tf.zeros_like(rounded), rounded)
    return tf.where_v2(tf.is_nan(x), tf.constant(missing[1], tf.float64), rounded)


def _missing(target: NarrowType) -> tuple[float, float]:
    """What stands for infinity and for NaN: a type without NaN has its greatest value there."""
    if target.number == TensorProto.FLOAT4E2M1:
        return 6.0, 6.0
    return (float("inf") if target.number == TensorProto.FLOAT8E5M2 else float("nan")), float("nan")


def numpy_dtype(dtype: tf.DType) -> np.dtype[np.generic]:
    """The NumPy dtype of the values."""
    result: np.dtype[np.generic] = np.dtype(dtype.as_numpy_dtype)
    return result
