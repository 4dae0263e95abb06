"""Between quantised integers and the floats that they stand for, with TensorFlow's rounding.

A quantised dtype of n bits has 2**n numbers, the *steps*, which are spread evenly over a range of floats. TensorFlow
has two ways to go from one to the other, whose last bits differ: one computes with float64, number by number, the
other with float32, as its vector code does. Both are here, since an operation's results depend on which of them it
uses.

Kernels compute with the plain integers that a quantised array holds (`integers_of`), and give back a quantised array
(`quantised`): NumPy's records of one field, which no accelerator knows. So all these kernels run on the host.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.ops import shape_rules

#: an end of a range
End: TypeAlias = "float | np.floating[Any]"
#: the quantised dtypes, in signatures
TYPES: Final = "{qint8, quint8, qint32, qint16, quint16}"
#: every sum of products of so many pairs of bytes is exact in float32
_EXACT_PAIRS: Final = 2**24 // 255**2


def plain_type(dtype: DType) -> np.dtype[Any]:
    """The type of the integers that a quantised dtype holds; that of another dtype itself."""
    return np.dtype(dtype.name[1:]) if dtype.is_quantized else np.dtype(dtype.as_numpy_dtype)


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer of a quantised dtype."""
    info = np.iinfo(plain_type(dtype))
    return int(info.min), int(info.max)


def integers_of(x: Array) -> HostArray:
    """The integers that a quantised array holds; another array as it is."""
    dtype = as_dtype(x.dtype)
    return np.ascontiguousarray(x).view(plain_type(dtype)).reshape(x.shape) if dtype.is_quantized else np.asarray(x)


def quantised(integers: Array, dtype: DType) -> HostArray:
    """A quantised array that holds `integers`, which wrap around where they do not fit; another dtype by a cast."""
    shape = np.shape(integers)
    plain = np.ascontiguousarray(np.asarray(integers).astype(plain_type(dtype)))
    return plain.view(dtype.as_numpy_dtype).reshape(shape) if dtype.is_quantized else plain.reshape(shape)


def saturated(numbers: Array, dtype: DType) -> HostArray:
    """A quantised array of the integers nearest to `numbers`, which are whole, within the dtype's limits."""
    return quantised(np.clip(numbers, *limits(dtype)), dtype)


def wrapped(numbers: Array) -> HostArray:
    """Whole numbers as int32; what does not fit wraps around, as it does in a processor's sums."""
    return np.asarray(numbers).astype(np.int64).astype(np.int32)


def half_away(x: Array) -> Any:
    """The nearest whole number, halves away from zero; exact in the float type of `x`."""
    whole = np.trunc(x)
    return whole + np.copysign(np.abs(x - whole) >= 0.5, x)


# ---------------------------------------------------------------------- number by number, in float64
def steps_of(x: Array, least: End, most: End, dtype: DType) -> Any:
    """The steps of floats, not limited to those that the dtype has: int64."""
    first, last = limits(dtype)
    least, most = np.float32(least), np.float32(most)
    if least == most:
        return np.full(np.shape(x), first, np.int64)
    count = float(last - first + 1)
    per_unit = count / (float(most - least) * (count / (count - 1)))
    steps = half_away(np.asarray(x, np.float32).astype(np.float64) * per_unit) - half_away(float(least) * per_unit)
    return steps.astype(np.int64) + first


def step_of(x: float, least: End, most: End, dtype: DType) -> int:
    """The step of one float, limited to those that the dtype has."""
    first, last = limits(dtype)
    return min(max(int(steps_of(x, least, most, dtype)), first), last)


def floats_of(steps: Array, least: End, most: End, dtype: DType) -> HostArray:
    """The floats that integers of a dtype stand for: float32."""
    first, last = limits(dtype)
    least, most = np.float32(least), np.float32(most)
    if least == most:
        return np.full(np.shape(steps), least, np.float32)
    count = float(last - first + 1)
    step = float(most - least) * (count / (count - 1)) / count
    rounded = half_away(least / np.float32(step)) * np.float32(step)
    return np.asarray(float(rounded) + (np.asarray(steps).astype(np.float64) - first) * step, np.float32)


# ---------------------------------------------------------------------- many numbers, in float32
def quick_floats_of(integers: HostArray, least: End, most: End, dtype: DType) -> HostArray:
    """As `floats_of`, computed in float32 throughout."""
    first, last = limits(dtype)
    least, most = np.float32(least), np.float32(most)
    step = np.float32(float(most - least) / (last - first))
    rounded = least if least == most else half_away(least / step) * step
    return np.asarray((rounded - np.float32(first) * step) + integers.astype(np.float32) * step)


def quick_steps_of(x: HostArray, least: End, most: End, dtype: DType) -> HostArray:
    """The steps of floats, limited to those that the dtype has, computed in float32 throughout: int64."""
    first, last = limits(dtype)
    least, most = np.float32(least), np.float32(most)
    per_unit = np.float32(0 if least == most else (last - first) / float(most - least))
    steps = half_away(x * per_unit) - (half_away(least * per_unit) - np.float32(first))
    # the greatest float32 that is an int32 is smaller than the greatest int32
    highest = min(np.float32(last), np.float32(2147483520.0))
    return np.asarray(np.clip(steps, np.float32(first), highest)).astype(np.int64)


def moved(integers: HostArray, given: tuple[End, End, DType], wanted: tuple[End, End, DType]) -> HostArray:
    """The integers of one range and dtype as those of another, computed in float32 throughout: int64."""
    first, last = limits(given[2])
    if last - first + 1 < integers.size:
        # each of a byte's numbers is moved once
        table = moved(np.arange(first, last + 1), given, wanted)
        return np.asarray(table[integers.astype(np.intp) - first])
    return quick_steps_of(quick_floats_of(integers, *given), *wanted)


def from_zero(x: Array, least: End, most: End, dtype: DType) -> HostArray:
    """The steps between zero and each number, as int16 where that holds them."""
    zero = int(wrapped(steps_of(0.0, least, most, dtype)))
    integers = integers_of(x)
    small = integers.dtype.itemsize == 1 and abs(zero) < 2**14
    kind = np.dtype(np.int16 if small else np.int64)
    return np.asarray(np.subtract(integers.astype(kind), zero, dtype=kind))


# ---------------------------------------------------------------------- ranges
def product_range(a: tuple[End, End, DType], b: tuple[End, End, DType], product: DType) -> tuple[Any, Any]:
    """The range of sums of products of two tensors' steps: (least, most, dtype) of each."""
    one = _step_length(*a) * _step_length(*b)
    first, last = limits(product)
    return one * np.float32(first), one * np.float32(last)


def _step_length(least: End, most: End, dtype: DType) -> Any:
    first, last = limits(dtype)
    return (np.float32(most) - np.float32(least)) / np.float32(last - first)


def check_range(least: End, most: End, what: str, ctx: OperationContext) -> None:
    """Raises InvalidArgumentError unless a range has a length."""
    if not most > least:
        raise InvalidArgumentError(
            None, ctx.op, f"max_{what} must be larger than min_{what}, got {most} and {least}; widen the range"
        )


def same_type(given: DType, wanted: DType, ctx: OperationContext) -> None:
    """Raises InvalidArgumentError where an operation that changes no dtype was asked to."""
    if given is not wanted:
        raise InvalidArgumentError(
            None,
            ctx.op,
            f"the output has the dtype of the input, {given.name}, not {wanted.name}; tf.raw_ops.Requantize changes it",
        )


# ---------------------------------------------------------------------- products
def product_of(a: HostArray, b: HostArray) -> HostArray:
    """The matrix product of integers of at most 9 bits (and a sign), exact as int32: [..., m, k] by [k, n].

    BLAS knows floats only, and multiplies them many times faster than NumPy does integers. Partial sums that float32
    holds exactly are taken, and added as integers.
    """
    a, b = a.astype(np.float32), b.astype(np.float32)
    total = np.zeros((*a.shape[:-1], b.shape[-1]), np.int32)
    for start in range(0, a.shape[-1], _EXACT_PAIRS):
        part = slice(start, start + _EXACT_PAIRS)
        total += (a[..., part] @ b[part]).astype(np.int32)
    return total


# ---------------------------------------------------------------------- shapes
def with_scalars(shape: TensorShape) -> list[TensorShape]:
    """The shapes of a tensor and of its range."""
    return [shape, shape_rules.SCALAR, shape_rules.SCALAR]
