"""Products and convolutions of bytes in compiled programs: exact sums of 32 bits, which wrap around.

Bytes are multiplied as they are, and the steps that stand for zero are made up for afterwards: with ``p`` and ``q``
for the zeros of both factors, ``sum (a - p) (b - q) = sum a b - p sum b - q sum a + k p q``. Unsigned bytes become
signed ones, with zeros that are 128 less, since XLA's product of signed bytes with sums of 32 bits is as fast as that
of floats or faster (2 cores with AVX2: 22976 x 144 by 144 x 32 in 2.5 ms, in float32 5.1).

A convolution is one such product, of the matrix of what the window sees at each place, which for bytes is small.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from jax import lax, numpy as jnp

from anabranch.core.arrays import Array
from anabranch.ops.nn.sliding import MAX_UNROLLED_TAPS

Pads = Sequence[tuple[int, int]]
_LEAST, _MOST = -128, 127
_HALF: Final = 128
#: float32 has all whole numbers up to it
_WHOLE_FLOATS: Final = 1 << 24
#: sizes of matrices of bytes that the units of GPUs take are multiples of this
_UNIT_BYTES: Final = 16


class Bytes(NamedTuple):
    """Integers of 8 bits, and which of all integers stands for zero."""

    array: Any
    zero: int = 0

    @property
    def signed_zero(self) -> int:
        """What stands for zero in `signed`."""
        return self.zero - (_HALF if self.array.dtype == np.uint8 else 0)

    @property
    def unsigned_zero(self) -> int:
        """What stands for zero in `unsigned`."""
        return self.signed_zero + _HALF

    @property
    def signed(self) -> Bytes:
        """The same as int8."""
        if self.array.dtype == np.int8:
            return self
        flipped = jnp.asarray(self.array) ^ np.uint8(_HALF)
        return Bytes(lax.bitcast_convert_type(flipped, np.int8), self.signed_zero)

    @property
    def unsigned(self) -> Bytes:
        """The same as uint8."""
        if self.array.dtype == np.uint8:
            return self
        flipped = lax.bitcast_convert_type(jnp.asarray(self.array), np.uint8) ^ np.uint8(_HALF)
        return Bytes(flipped, self.unsigned_zero)

    @property
    def from_zero(self) -> Any:
        """The distances from zero: int32."""
        return jnp.asarray(self.array).astype(np.int32) - wrapped(self.zero)


class ByteWindow(NamedTuple):
    """How a convolution's window goes over rows and columns; a padding below 0 cuts something off."""

    strides: tuple[int, int]
    pads: Pads
    dilations: tuple[int, int] = (1, 1)

    def places(self, lengths: Sequence[int], size: Sequence[int]) -> list[int]:
        """At how many places the window stands along rows and columns."""
        reach = [(k - 1) * d + 1 for k, d in zip(size, self.dilations, strict=True)]
        whole = [n + low + high for n, (low, high) in zip(lengths, self.pads, strict=True)]
        return [max(0, (n - r) // s + 1) for n, r, s in zip(whole, reach, self.strides, strict=True)]


#: the product of two matrices of bytes, and the convolution of images with a filter, as int32; last the operation's
#: name, for errors
Multiply = Callable[[Bytes, Bytes, str], Any]
Convolve = Callable[[Bytes, Bytes, ByteWindow, str], Any]


def wrapped(number: int) -> Any:
    """A whole number as int32, as sums of 32 bits wrap around."""
    return np.int32((number + 2**31) % 2**32 - 2**31)


def materialised(x: Array) -> Any:
    """The same array, which XLA computes once and stores, where it would compute it anew for each part that is taken.

    On processors it fuses cheap calculations into all that takes their results: what leads to a convolution's images
    would run once for each tap of the window. What a conditional takes is in memory; that this one goes one way only,
    XLA cannot know.
    """
    if isinstance(x, np.ndarray) or not x.size:
        return x

    def stored(y: Array) -> Any:
        always = y.reshape(-1)[0].astype(np.int32) > np.int32(_LEAST - 1)
        return lax.cond(always, lambda z: z, lambda z: z ^ z.dtype.type(1), y)

    return lax.platform_dependent(x, cpu=stored, default=lambda y: y)


def product(a: Bytes, b: Bytes, name: str = "") -> Any:
    """The product of two matrices of bytes: int32."""
    a, b = a.signed, b.signed
    return from_steps(_multiplied(a.array, with_ones(b)), a, b)


def with_ones(w: Bytes) -> Any:
    """A factor, with a last output more, of ones, if its zero is not 0: it gives the sums of the other factor.

    That would be read once more for them otherwise.
    """
    array = jnp.asarray(w.array)
    if not w.zero:
        return array
    return jnp.concatenate([array, np.ones((*array.shape[:-1], 1), array.dtype)], axis=-1)


def from_steps(total: Array, x: Bytes, w: Bytes) -> Any:
    """The sums of products of distances from zero, given those of steps with `with_ones` of the second factor."""
    if w.zero:
        total = total[..., :-1] - wrapped(w.zero) * total[..., -1:]
    if x.zero:
        inner = tuple(range(w.array.ndim - 1))
        total = total - wrapped(x.zero) * jnp.sum(w.array, axis=inner, dtype=np.int32)
    both = wrapped(math.prod(w.array.shape[:-1]) * x.zero * w.zero)
    return total + both if both else total


def _multiplied(a: Array, b: Array) -> Any:
    if a.dtype.itemsize > 1 or not any(size % _UNIT_BYTES for size in (*a.shape, *b.shape)):
        return _in_integers(a, b)
    return lax.platform_dependent(a, b, cpu=_in_integers, default=_in_doubles)


def _in_integers(a: Array, b: Array) -> Any:
    return lax.dot(a, b, preferred_element_type=np.dtype(np.int32))


def _in_doubles(a: Array, b: Array) -> Any:
    """The same where a GPU's units for bytes, which take them by sixteen, gave wrong sums for sizes between.

    Float64 has every sum of products of bytes that a memory can hold; what exceeds 32 bits wraps around.
    """
    total = lax.dot(a.astype(np.float64), b.astype(np.float64), precision=lax.Precision.HIGHEST)
    return total.astype(np.int64).astype(np.int32)


def convolution(x: Bytes, w: Bytes, window: ByteWindow, name: str = "") -> Any:
    """The convolution of images [batch, rows, columns, channels] with a filter [*size, channels, outputs]: int32."""
    x, w = x.signed, w.signed
    size, depth, outputs = w.array.shape[:2], math.prod(w.array.shape[:3]), w.array.shape[3]
    if _LEAST <= x.zero <= _MOST or not any(map(any, window.pads)):
        seen = _columns(x._replace(array=materialised(x.array)), size, window)
        matrix = seen.reshape(math.prod(seen.shape[:3]), depth)
        total = product(Bytes(matrix, x.zero), Bytes(w.array.reshape(depth, outputs), w.zero))
    else:
        # no byte is zero, which stands outside the images
        seen = _columns(Bytes(x.from_zero), size, window)
        matrix = seen.reshape(math.prod(seen.shape[:3]), depth)
        total = _multiplied(matrix, w.from_zero.reshape(depth, outputs))
    return total.reshape(*seen.shape[:3], outputs)


def convolution_of_floats(x: Bytes, w: Bytes, window: ByteWindow, name: str = "") -> Any:
    """The same by a convolution in float32, which is exact as long as float32 has all sums (`sums_are_floats`)."""
    images, filter = (jnp.asarray(b.array).astype(np.float32) - np.float32(b.zero) for b in (x, w))
    total = lax.conv_general_dilated(
        *(images, filter, window.strides, window.pads),
        rhs_dilation=window.dilations,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision=lax.Precision.HIGHEST,
    )
    return total.astype(np.int32)


def sums_are_floats(x: Bytes, w: Bytes, pairs: int) -> bool:
    """Whether float32 has every sum of so many products of these types and zeros."""
    furthest = [
        max(abs(end - b.zero) for end in (np.iinfo(b.array.dtype).min, np.iinfo(b.array.dtype).max)) for b in (x, w)
    ]
    return pairs * furthest[0] * furthest[1] <= _WHOLE_FLOATS


def convolution_per_channel(x: Bytes, w: Bytes, window: ByteWindow) -> Any:
    """The same with a filter [*size, channels, multiplier] each of whose channels sees that of the images."""
    taps = _taps(Bytes(x.from_zero), w.array.shape[:2], window)
    factors = w.from_zero.reshape(len(taps), *w.array.shape[2:])
    total: Any = 0
    for tap, factor in zip(taps, factors, strict=True):
        total = total + tap[..., None] * factor
    return total.reshape(*total.shape[:3], total.shape[3] * total.shape[4])


def _taps(x: Bytes, size: Sequence[int], window: ByteWindow) -> list[Any]:
    """What each place of the window sees of the images."""
    array = jnp.asarray(x.array)
    padded = array
    if any(map(any, window.pads)):  # otherwise zero need not be among the array's numbers
        padded = lax.pad(array, array.dtype.type(x.zero), [(0, 0, 0), *((a, b, 0) for a, b in window.pads), (0, 0, 0)])
    counts = window.places(x.array.shape[1:3], size)
    if 0 in counts:
        return [jnp.zeros((array.shape[0], *counts, array.shape[3]), array.dtype)] * math.prod(size)
    taps = []
    for place in np.ndindex(*size):
        first = [p * d for p, d in zip(place, window.dilations, strict=True)]
        ends = [f + (n - 1) * s + 1 for f, n, s in zip(first, counts, window.strides, strict=True)]
        start, stop = (0, *first, 0), (array.shape[0], *ends, array.shape[3])
        taps.append(lax.slice(padded, start, stop, (1, *window.strides, 1)))
    return taps


def _columns(x: Bytes, size: Sequence[int], window: ByteWindow) -> Any:
    """What the window sees at each place: [batch, rows, columns, *size and channels]."""
    taps = _taps(x, size, window)
    return taps[0] if len(taps) == 1 else jnp.concatenate(taps, axis=3)


def reduced(x: Array, size: Sequence[int], window: ByteWindow, over: str) -> Any:
    """What "max" or "sum" makes of all that the window sees at each place."""
    if math.prod(size) <= MAX_UNROLLED_TAPS:
        combine = jnp.maximum if over == "max" else jnp.add
        seen = materialised(x) if x.dtype.itemsize == 1 else x
        return functools.reduce(combine, _taps(Bytes(seen), size, window))
    start, combined = (np.iinfo(x.dtype).min, lax.max) if over == "max" else (0, lax.add)
    shape, strides = (1, *size, 1), (1, *window.strides, 1)
    return lax.reduce_window(x, x.dtype.type(start), combined, shape, strides, "VALID")
