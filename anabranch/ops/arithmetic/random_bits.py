"""The generator behind the random operations: counter-based, hence parallel and reproducible.

Number `i` of a draw is a hash of `i` under a 64-bit key: Widynski's *Squares* (arXiv:2004.06278), four rounds of
squaring for 32 bits, five for 64. The key itself comes from a Threefry key of JAX, so that independence between
operations and steps rests on Threefry, and only the bulk of one draw on Squares.

One million float32 numbers on 2 cores: 0.16 ms, against 1.3 ms for `jax.random.bits` with Threefry and 4.4 ms with the
`rbg` and `unsafe_rbg` generators: dropout costs about as much as reading its input.

Where a step's kernels run directly (docs/decisions/0018), the key is a `HostKey`, and NumPy computes the same numbers.
Only the inverse of the error function, whose last places are the compiler's, is left to a compiled program of its own.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, ElementType

_HALF = np.uint64(32)
_WORD = 0xFFFFFFFF
#: Threefry-2x32: by how many bits its rounds rotate, and what joins the words of the key (Salmon et al., SC'11)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


class HostKey(NamedTuple):
    """A random key of JAX's default kind, Threefry, outside of JAX: its two words of 32 bits."""

    high: int
    low: int

    @classmethod
    def of(cls, seed: int) -> HostKey:
        """What `jax.random.key` makes of a seed of 64 bits."""
        return cls(seed >> 32 & _WORD, seed & _WORD)

    def folded(self, number: int) -> HostKey:
        """What `jax.random.fold_in` makes of this key and a number of 32 bits."""
        return HostKey(*self._hash(0, number))

    def bits64(self) -> int:
        """What `jax.random.bits` draws for one number of 64 bits."""
        high, low = self._hash(0, 0)
        return high << 32 | low

    def on_device(self) -> Any:
        """The same as a key of JAX's."""
        return jax.random.wrap_key_data(jnp.asarray(self, jnp.uint32))

    def _hash(self, x: int, y: int) -> tuple[int, int]:
        words = (self.high, self.low, self.high ^ self.low ^ _PARITY)
        x, y = x + words[0] & _WORD, y + words[1] & _WORD
        for group in range(5):
            for bits in _ROTATIONS[group % 2]:
                x = x + y & _WORD
                y = (y << bits & _WORD | y >> 32 - bits) ^ x
            x = x + words[(group + 1) % 3] & _WORD
            y = y + words[(group + 2) % 3] + group + 1 & _WORD
        return x, y


def library_for(key: Array) -> Any:
    """The array library that draws from a key: NumPy from a `HostKey`."""
    return np if isinstance(key, HostKey) else jnp


def _as_type(bits: Array, dtype: ElementType) -> Any:
    """The same bits as another type of the same width."""
    return bits.view(dtype) if isinstance(bits, np.ndarray | np.generic) else jax.lax.bitcast_convert_type(bits, dtype)


def _rotated(x: Array) -> Any:
    return (x >> _HALF) | (x << _HALF)


def _rounds(key: Array, shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """The state after three rounds, and the two Weyl increments that the last rounds add."""
    drawn = np.uint64(key.bits64()) if isinstance(key, HostKey) else jax.random.bits(key, (), jnp.uint64)
    stream = drawn | np.uint64(1)
    counter = library_for(key).arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    y = counter * stream
    z = y + stream
    x = _rotated(y * y + y)
    x = _rotated(x * x + z)
    return _rotated(x * x + y), y, z


def bits32(key: Array, shape: tuple[int, ...]) -> Any:
    """Uniform uint32 numbers.

    Args:
        key: a scalar JAX random key, or a `HostKey`.
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
    return _as_type(mantissa | np.asarray(one, kind), dtype) - np.ones((), dtype)


def symmetric(key: Array, shape: tuple[int, ...], dtype: ElementType) -> Any:
    """Numbers uniform in the open interval (-1, 1), never 0: odd multiples of the dtype's finest step below 1.

    Args:
        dtype: float32 or float64.
    """
    if np.dtype(dtype) == np.float64:
        signed = _as_type(bits64(key, shape), np.int64)
        return ((signed >> np.int64(10)) | np.int64(1)).astype(jnp.float64) * np.float64(2.0**-53)
    signed = _as_type(bits32(key, shape), np.int32)
    return ((signed >> np.int32(7)) | np.int32(1)).astype(jnp.float32) * np.float32(2.0**-24)


def normal(key: Array, shape: tuple[int, ...], dtype: ElementType, bound: float = math.inf) -> Any:
    """Standard normal numbers; with `bound` those of the normal distribution cut off at ±bound."""
    dtype = np.dtype(dtype)
    wide = np.float64 if dtype == np.float64 else np.float32
    part = symmetric(key, shape, wide)
    if not isinstance(key, HostKey):
        return _normal_of(part, bound).astype(dtype)
    return np.asarray(_compiled_normal(padded(part, 0.0), bound))[: part.size].reshape(shape).astype(dtype)


#: how many numbers a compiled program takes: the next power of 16; of many numbers, the next power of two
_BITS_APART = 4
_MANY = 1 << 20


def padded(numbers: np.ndarray[Any, Any], by: float) -> np.ndarray[Any, Any]:
    """A vector of the numbers, made longer: programs that take it are of few sizes, so that few are compiled."""
    apart = _BITS_APART if numbers.size <= _MANY else 1
    bits = max(numbers.size - 1, 1).bit_length()
    found = np.full(1 << -(-bits // apart) * apart, by, numbers.dtype)
    found[: numbers.size] = numbers.ravel()
    return found


def _normal_of(part: Array, bound: float) -> Any:
    """Normal numbers, cut off at ±bound, of numbers uniform in (-1, 1)."""
    wide = part.dtype.type
    part = part * wide(math.erf(bound / math.sqrt(2.0)))
    numbers = jax.lax.erf_inv(part) * wide(math.sqrt(2.0))
    if bound != math.inf:
        numbers = jnp.clip(numbers, wide(-bound), wide(bound))
    return numbers


_compiled_normal = partial(jax.jit, static_argnums=1)(_normal_of)


def integers(key: Array, shape: tuple[int, ...], low: Array, high: Array) -> Any:
    """Integers uniform in [low, high), of the dtype of the scalars `low` and `high` (int32 or int64; low < high).

    The bias is below (high - low) / 2**32 for int32 and (high - low) / 2**64 for int64.
    """
    xp = library_for(key)
    if low.dtype == np.int32:
        span = xp.asarray(high, np.int64) - xp.asarray(low, np.int64)
        offset = (bits32(key, shape).astype(jnp.uint64) * span.astype(jnp.uint64)) >> _HALF
        return (xp.asarray(low, np.int64) + offset.astype(jnp.int64)).astype(jnp.int32)
    span = xp.asarray(high).astype(np.uint64) - xp.asarray(low).astype(np.uint64)
    return low + (bits64(key, shape) % xp.maximum(span, np.uint64(1))).astype(jnp.int64)
