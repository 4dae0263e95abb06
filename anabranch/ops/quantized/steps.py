"""Between quantised integers and the floats that they stand for, with TensorFlow's rounding.

A quantised dtype of n bits has 2**n numbers, the *steps*, which are spread evenly over a range of floats. TensorFlow
has two ways to go from one to the other, whose last bits differ: one computes with float64, number by number, the
other with float32, as its vector code does. Both are here, since an operation's results depend on which of them it
uses.

Kernels compute with the plain integers that a quantised array holds (`integers_of`), and give back a quantised array
(`quantised`): on the host NumPy's records of one field, in compiled programs plain integers. One kernel serves both
where it asks the arrays for their library (`library_of`). Ranges are known when a program is compiled, and are NumPy's;
where they are not, the operation runs on the host.

Compilers may fuse a product with the sum that takes it, and round once where TensorFlow rounds twice. What may not be
fused goes through `rounded`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from jax import lax, numpy as jnp

from anabranch.core.arrays import Array, ArrayLibrary, HostArray
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.op_def import EarlyRule, OpDef
from anabranch.core.quantised_arrays import as_integers, plain_type
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.ops import shape_rules

#: an end of a range
End: TypeAlias = "float | np.floating[Any]"
#: the range of a tensor's steps, and their dtype
Range: TypeAlias = "tuple[End, End, DType]"
#: the quantised dtypes, in signatures
TYPES: Final = "{qint8, quint8, qint32, qint16, quint16}"
#: a dtype of bytes has no more numbers
_MANY: Final = 256
#: float32 has all whole numbers below
_WHOLE_FLOATS: Final = 1 << 24
#: every sum of products of so many pairs of bytes is exact in float32
_EXACT_PAIRS: Final = 2**24 // 255**2


def library_of(x: Array) -> ArrayLibrary:
    """The library whose array this is: NumPy, or `jax.numpy`."""
    return np if isinstance(x, np.ndarray | np.generic | int | float) else jnp


def everywhere(op: OpDef) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Attaches a function of either library's arrays as the kernel of an operation, compiled and on the host."""

    def attach(function: Callable[..., Any]) -> Callable[..., Any]:
        op.kernel(function)
        return op.host_kernel(function)

    return attach


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer of a quantised dtype."""
    info = np.iinfo(plain_type(dtype))
    return int(info.min), int(info.max)


def integers_of(x: Array) -> Any:
    """The integers that a quantised array holds; another array as it is."""
    return as_integers(x)


def quantised(integers: Array, dtype: DType) -> Any:
    """A quantised array that holds `integers`, which wrap around where they do not fit; another dtype by a cast."""
    if library_of(integers) is not np:
        return integers.astype(plain_type(dtype))
    shape = np.shape(integers)
    plain = np.ascontiguousarray(np.asarray(integers).astype(plain_type(dtype)))
    return plain.view(dtype.as_numpy_dtype).reshape(shape) if dtype.is_quantized else plain.reshape(shape)


def saturated(numbers: Array, dtype: DType) -> Any:
    """A quantised array of the integers nearest to `numbers`, which are whole, within the dtype's limits."""
    library = library_of(numbers)
    if library is not np and numbers.dtype == np.float32 and plain_type(dtype).itemsize > 2:
        numbers = numbers.astype(np.float64)  # the limits of 32 bits are no float32
    return quantised(library.clip(numbers, *limits(dtype)), dtype)


def wrapped(numbers: Array) -> HostArray:
    """Whole numbers as int32; what does not fit wraps around, as it does in a processor's sums."""
    return np.asarray(numbers).astype(np.int64).astype(np.int32)


#: the integers of as many bits, and their largest, which stands for a number that is none
_BITS: Final[Mapping[int, tuple[type[Any], int]]] = {4: (np.int32, 2**31 - 1), 8: (np.int64, 2**63 - 1)}


def rounded(x: Array) -> Any:
    """A product, rounded by itself: a compiler must not fuse it with the sum that takes it, as XLA's does."""
    if library_of(x) is np:
        return x
    # the pattern of bits is compared as an integer, which compilers do not look through; only one NaN becomes another
    kind, largest = _BITS[x.dtype.itemsize]
    bits = jnp.minimum(lax.bitcast_convert_type(x, kind), kind(largest - 1))
    return lax.bitcast_convert_type(bits, x.dtype)


def half_away(x: Array) -> Any:
    """The nearest whole number, halves away from zero; exact in the float type of `x`."""
    if library_of(x) is not np:
        return lax.round(rounded(x), lax.RoundingMethod.AWAY_FROM_ZERO)
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
def quick_floats_of(integers: Array, least: End, most: End, dtype: DType) -> Any:
    """As `floats_of`, computed in float32 throughout."""
    first, last = limits(dtype)
    least, most = np.float32(least), np.float32(most)
    step = np.float32(float(most - least) / (last - first))
    start = least if least == most else half_away(least / step) * step
    return (start - np.float32(first) * step) + rounded(integers.astype(np.float32) * step)


def quick_steps_of(x: Array, least: End, most: End, dtype: DType) -> Any:
    """The steps of floats, limited to those that the dtype has, computed in float32 throughout: int64, or int32."""
    first, last = limits(dtype)
    least, most = np.float32(least), np.float32(most)
    per_unit = np.float32(0 if least == most else (last - first) / float(most - least))
    steps = half_away(x * per_unit) - (half_away(least * per_unit) - np.float32(first))
    # the greatest float32 that is an int32 is smaller than the greatest int32
    highest = min(np.float32(last), np.float32(2147483520.0))
    library = library_of(steps)
    return library.clip(steps, np.float32(first), highest).astype(np.int64 if library is np else np.int32)


def moved(integers: Array, given: tuple[End, End, DType], wanted: tuple[End, End, DType]) -> Any:
    """The integers of one range and dtype as those of another, computed in float32 throughout: int64, or int32."""
    first, last = limits(given[2])
    if library_of(integers) is np and last - first + 1 < integers.size:
        # each of a byte's numbers is moved once
        table = moved(np.arange(first, last + 1), given, wanted)
        return table[integers.astype(np.intp) - first]
    if library_of(integers) is not np and last - first < _MANY:
        quick = _quickly_moved(given, wanted)
        if quick is not None:
            return quick(integers)
    return quick_steps_of(quick_floats_of(integers, *given), *wanted)


def _quickly_moved(given: Range, wanted: Range) -> Callable[[Array], Any] | None:
    """`moved` without its limits and its rounding of halves, where none of a byte's numbers needs them."""
    every = np.arange(limits(given[2])[0], limits(given[2])[1] + 1)
    least, most = np.float32(wanted[0]), np.float32(wanted[1])
    first, last = limits(wanted[2])
    per_unit = np.float32(0 if least == most else (last - first) / float(most - least))
    start = np.float32(half_away(least * per_unit) - np.float32(first))

    def quick(integers: Array) -> Any:
        numbers = quick_floats_of(integers, *given) * per_unit
        return library_of(numbers).rint(numbers).astype(np.int32) - start.astype(np.int32)

    exact = float(start).is_integer() and abs(float(start)) < _WHOLE_FLOATS
    return quick if exact and (quick(every) == moved(every, given, wanted)).all() else None


def zero_of(least: End, most: End, dtype: DType) -> int:
    """The step that stands for zero, which need not be one that the dtype has."""
    return int(wrapped(steps_of(0.0, least, most, dtype)))


def from_zero(x: Array, least: End, most: End, dtype: DType) -> HostArray:
    """The steps between zero and each number, as int16 where that holds them."""
    zero = zero_of(least, most, dtype)
    integers = integers_of(x)
    small = integers.dtype.itemsize == 1 and abs(zero) < 2**14
    kind = np.dtype(np.int16 if small else np.int64)
    return np.asarray(np.subtract(integers.astype(kind), zero, dtype=kind))


# ---------------------------------------------------------------------- ranges
def passed_on(ends: Mapping[int, int]) -> EarlyRule:
    """A rule for outputs that are inputs: position of the output -> that of the input."""

    def rule(attrs: Mapping[str, Any], inputs: Sequence[Any]) -> Mapping[int, Any]:
        return {out: inputs[given] for out, given in ends.items() if inputs[given] is not None}

    return rule


def product_ends(first: str, second: str, product: str) -> EarlyRule:
    """A rule for the range of a product, whose inputs 2 to 5 are those of its factors; the attributes with types."""

    def rule(attrs: Mapping[str, Any], inputs: Sequence[Any]) -> Mapping[int, Any]:
        if any(end is None or end.size != 1 for end in inputs[2:6]):
            return {}
        a, b = (float(inputs[2]), float(inputs[3])), (float(inputs[4]), float(inputs[5]))
        least, most = product_range((*a, attrs[first]), (*b, attrs[second]), attrs[product])
        return {1: np.asarray(least), 2: np.asarray(most)} if a[1] > a[0] and b[1] > b[0] else {}

    return rule


def product_range(a: Range, b: Range, product: DType) -> tuple[Any, Any]:
    """The range of sums of products of two tensors' steps."""
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
