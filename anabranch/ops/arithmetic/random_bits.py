"""The generator behind the random operations: counter-based, hence parallel and reproducible.

Number `i` of a draw is a hash of `i` under a 64-bit key: Widynski's *Squares* (arXiv:2004.06278), four rounds of
squaring for 32 bits, five for 64. The key itself comes from a Threefry key of JAX, so that independence between
operations and steps rests on Threefry, and only the bulk of one draw on Squares.

One million float32 numbers on 2 cores: 0.16 ms, against 1.3 ms for `jax.random.bits` with Threefry and 4.4 ms with the
`rbg` and `unsafe_rbg` generators: dropout costs about as much as reading its input.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, ElementType

_HALF = np.uint64(32)


def _rotated(x: Array) -> Any:
    return (x >> _HALF) | (x << _HALF)


def _rounds(key: Array, shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """The state after three rounds, and the two Weyl increments that the last rounds add."""
    stream = jax.random.bits(key, (), jnp.uint64) | np.uint64(1)
    counter = jax.lax.iota(jnp.uint64, math.prod(shape)).reshape(shape)
    y = counter * stream
    z = y + stream
    x = _rotated(y * y + y)
    x = _rotated(x * x + z)
    return _rotated(x * x + y), y, z


def bits32(key: Array, shape: tuple[int, ...]) -> Any:
    """Uniform uint32 numbers.

    Args:
        key: a scalar JAX random key.
    """
    x, _, z = _rounds(key, shape)
    return ((x * x + z) >> _HALF).astype(jnp.uint32)


def bits64(key: Array, shape: tuple[int, ...]) -> Any:
    """Uniform uint64 numbers."""
    x, y, z = _rounds(key, shape)
    last = x * x + z
    x = _rotated(last)
    return last ^ ((x * x + y) >> _HALF)


#: dtype -> (type of its bits, mantissa width, bits of 1.0)
_LAYOUT: dict[str, tuple[Any, int, int]] = {
    "float64": (jnp.uint64, 52, 0x3FF0000000000000),
    "float32": (jnp.uint32, 23, 0x3F800000),
    "float16": (jnp.uint16, 10, 0x3C00),
    "bfloat16": (jnp.uint16, 7, 0x3F80),
}


def uniform(key: Array, shape: tuple[int, ...], dtype: ElementType) -> Any:
    """Numbers of a floating dtype, uniform in [0, 1), as many distinct ones as its mantissa has."""
    dtype = np.dtype(dtype)
    kind, width, one = _LAYOUT[dtype.name]
    if dtype == np.float64:
        mantissa = bits64(key, shape) >> np.uint64(64 - width)
    else:
        mantissa = (bits32(key, shape) >> np.uint32(32 - width)).astype(kind)
    return jax.lax.bitcast_convert_type(mantissa | np.asarray(one, kind), dtype) - np.ones((), dtype)


def symmetric(key: Array, shape: tuple[int, ...], dtype: ElementType) -> Any:
    """Numbers uniform in the open interval (-1, 1), never 0: odd multiples of the dtype's finest step below 1.

    Args:
        dtype: float32 or float64.
    """
    if np.dtype(dtype) == np.float64:
        signed = jax.lax.bitcast_convert_type(bits64(key, shape), jnp.int64)
        return ((signed >> np.int64(10)) | np.int64(1)).astype(jnp.float64) * np.float64(2.0**-53)
    signed = jax.lax.bitcast_convert_type(bits32(key, shape), jnp.int32)
    return ((signed >> np.int32(7)) | np.int32(1)).astype(jnp.float32) * np.float32(2.0**-24)


def normal(key: Array, shape: tuple[int, ...], dtype: ElementType, bound: float = math.inf) -> Any:
    """Standard normal numbers; with `bound` those of the normal distribution cut off at ±bound."""
    dtype = np.dtype(dtype)
    wide = np.float64 if dtype == np.float64 else np.float32
    part = symmetric(key, shape, wide) * wide(math.erf(bound / math.sqrt(2.0)))
    numbers = jax.lax.erf_inv(part) * wide(math.sqrt(2.0))
    if bound != math.inf:
        numbers = jnp.clip(numbers, wide(-bound), wide(bound))
    return numbers.astype(dtype)


def integers(key: Array, shape: tuple[int, ...], low: Array, high: Array) -> Any:
    """Integers uniform in [low, high), of the dtype of the scalars `low` and `high` (int32 or int64; low < high).

    The bias is below (high - low) / 2**32 for int32 and (high - low) / 2**64 for int64.
    """
    if low.dtype == np.int32:
        span = jnp.asarray(high, jnp.int64) - jnp.asarray(low, jnp.int64)
        offset = (bits32(key, shape).astype(jnp.uint64) * span.astype(jnp.uint64)) >> _HALF
        return (jnp.asarray(low, jnp.int64) + offset.astype(jnp.int64)).astype(jnp.int32)
    span = jnp.asarray(high).astype(jnp.uint64) - jnp.asarray(low).astype(jnp.uint64)
    return low + (bits64(key, shape) % jnp.maximum(span, np.uint64(1))).astype(jnp.int64)
