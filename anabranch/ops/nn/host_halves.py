"""Floating-point numbers of 16 bits in NumPy, where the sign of each is all that matters, by their bits.

Of float16 and bfloat16 NumPy compares, chooses and multiplies one at a time, in 2 to 8 ns each; of integers many at
once. What is here gives the same numbers, bit by bit.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.ops.nn.ordered_bits import has_16_bits

#: elements of a block, so that what lies between two functions stays in a processor's cache; fewer are left to NumPy
_BLOCK: Final = 1 << 14
_SIGN: Final = np.int16(-0x8000)
#: how far the sign is from the lowest bit
_TO_SIGN: Final = np.int16(15)


def is_worthwhile(*arrays: Array) -> bool:
    """Whether these are NumPy's arrays of such numbers, of one shape, row by row, and large enough."""
    return all(
        isinstance(x, np.ndarray)
        and has_16_bits(x)
        and x.size >= _BLOCK
        and x.flags.c_contiguous
        and x.shape == arrays[0].shape
        for x in arrays
    )


def positive_part(x: HostArray, memory: HostArray | None = None) -> Any:
    """The larger of each number and zero; NaN stays NaN. `memory`: where they are written, over `x` maybe."""
    if _most_negative(x) > _infinity(x):
        return np.maximum(x, x.dtype.type(0), out=memory)
    bits = None if memory is None else memory.view(np.int16)
    return np.maximum(x.view(np.int16), np.int16(0), out=bits).view(x.dtype)


def where_positive(gradients: HostArray, x: HostArray, memory: HostArray | None = None) -> Any:
    """The gradients where `x` is positive, elsewhere zero times the gradient.

    Args:
        memory: where they are written, over one of the two maybe.
    """
    if not all_finite(gradients) or _most_positive(x) > _infinity(x):
        return np.multiply(gradients, x > x.dtype.type(0), out=memory)
    result = np.empty_like(gradients) if memory is None else memory
    bits, incoming, outgoing = (array.view(np.int16).reshape(-1) for array in (x, gradients, result))
    inverted, kept = np.empty(_BLOCK, np.int16), np.empty(_BLOCK, np.int16)
    for start in range(0, bits.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        part = bits[block]
        a, b = inverted[: part.size], kept[: part.size]
        # the sign of -x without that of x is set where x > 0. Shifted down it is a mask; the gradient's sign stays
        # beside it, since minus one times zero is minus zero
        np.invert(part, out=a)
        np.negative(part, out=b)
        np.bitwise_and(a, b, out=b)
        np.right_shift(b, _TO_SIGN, out=b)
        np.bitwise_or(b, _SIGN, out=b)
        np.bitwise_and(incoming[block], b, out=outgoing[block])
    return result


def all_finite(x: HostArray) -> bool:
    """Whether all are finite numbers; they lie row by row."""
    return max(_most_positive(x), _most_negative(x)) < _infinity(x)


def _infinity(x: HostArray) -> int:
    """The bits of infinity; those of NaN, but for the sign, are larger."""
    return int(np.array(np.inf, x.dtype).view(np.int16))


def _most_positive(x: HostArray) -> int:
    """The bits of the number whose bits are largest, of those without a sign; negative where there is none."""
    return int(x.view(np.int16).max())


def _most_negative(x: HostArray) -> int:
    """The same of those with a sign, but for the sign."""
    return int(x.view(np.uint16).max()) - 0x8000
