"""Floating-point numbers of 16 bits as integers in the same order.

Processors compare 32 such integers at a time. Of the numbers themselves, bfloat16 or float16, XLA makes float32 there,
one by one, so that a maximum takes three to seven times as long.

The bits of a number that is not negative grow with it; those of a negative one run against its order, so all of them
but the sign are turned. NaN of either sign becomes the largest integer: what is compared with it is lost, as a maximum
demands.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jax import lax, numpy as jnp

from anabranch.core.arrays import Array, ArrayLibrary, ElementType, HostArray

#: all bits but the sign
_SIZE: Final = np.int16(0x7FFF)


def has_16_bits(x: Array) -> bool:
    """Whether these are floating-point numbers of 16 bits."""
    return x.dtype.itemsize == 2 and x.dtype.kind not in "iu"


def has_numbers_alone(x: HostArray, bounded: bool = False) -> bool:
    """Whether there is no NaN among NumPy's floating-point numbers; `bounded`: nor minus infinity.

    One or two passes over them, in which those of 16 bits are compared by their bits.
    """
    if not x.size:
        return True
    if not has_16_bits(x):
        return bool(x.min() > -np.inf) if bounded else not np.isnan(x.min())
    bits, infinity = np.ascontiguousarray(x).view(np.int16), np.array(np.inf, x.dtype).view(np.int16)[()]
    negative = int(bits.view(np.uint16).max()) - 0x8000
    return bool(bits.max() <= infinity) and negative < int(infinity) + (not bounded)


def in_order(x: Array, xp: ArrayLibrary = jnp) -> Any:
    """The integers of numbers, of any shape; NumPy's lie row by row."""
    if xp is np:
        return _in_order_on_host(np.ascontiguousarray(x).view(np.int16), key(np.inf, x.dtype))
    bits = lax.bitcast_convert_type(x, np.int16)
    return jnp.where((bits & _SIZE) > key(np.inf, x.dtype), _SIZE, bits ^ _turned(bits))


def _in_order_on_host(bits: HostArray, infinity: Array) -> Any:
    keys = _turned(bits)
    keys ^= bits
    # two numbers tell whether there is any NaN: most often there is none, and one pass less over the data
    if keys.size and (keys.max() > infinity or keys.min() < ~infinity):
        keys[(bits & _SIZE) > infinity] = _SIZE
    return keys


def from_order(keys: Array, dtype: ElementType, xp: ArrayLibrary = jnp) -> Any:
    """The numbers of integers, of any shape; NumPy's lie row by row."""
    bits = keys ^ _turned(keys)
    return bits.view(dtype) if xp is np else lax.bitcast_convert_type(bits, dtype)


def where_positive(values: Array, x: Array) -> Any:
    """JAX's values of such a dtype where `x`, of the same one, is positive, and elsewhere zero times the value."""
    infinity, nothing = key(np.inf, values.dtype), np.array(np.nan, values.dtype).view(np.int16)[()]
    bits, signs = lax.bitcast_convert_type(values, np.int16), lax.bitcast_convert_type(x, np.int16)
    zero = jnp.where((bits & _SIZE) >= infinity, nothing, bits & ~_SIZE)
    return lax.bitcast_convert_type(jnp.where((signs > 0) & (signs <= infinity), bits, zero), values.dtype)


def key(value: float, dtype: ElementType) -> Any:
    """The integer of one number, which is no NaN."""
    bits = np.array(value, dtype).view(np.int16)[()]
    return bits ^ _turned(bits)


def _turned(bits: Array) -> Any:
    return (bits >> np.int16(15)) & _SIZE
