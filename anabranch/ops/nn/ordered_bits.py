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

from anabranch.core.arrays import Array, ElementType

#: all bits but the sign
_SIZE: Final = np.int16(0x7FFF)


def has_16_bits(x: Array) -> bool:
    """Whether these are floating-point numbers of 16 bits."""
    return x.dtype.itemsize == 2 and x.dtype.kind not in "iu"


def in_order(x: Array) -> Any:
    """The integers of numbers, of any shape."""
    bits = lax.bitcast_convert_type(x, np.int16)
    return jnp.where((bits & _SIZE) > key(np.inf, x.dtype), _SIZE, bits ^ _turned(bits))


def from_order(keys: Array, dtype: ElementType) -> Any:
    """The numbers of integers, of any shape."""
    return lax.bitcast_convert_type(keys ^ _turned(keys), dtype)


def key(value: float, dtype: ElementType) -> Any:
    """The integer of one number, which is no NaN."""
    bits = np.array(value, dtype).view(np.int16)[()]
    return bits ^ _turned(bits)


def _turned(bits: Array) -> Any:
    return (bits >> np.int16(15)) & _SIZE
