"""The generator Philox 4x32-10 (Salmon et al., SC'11), and the numbers that TensorFlow makes of its words.

Its state is three whole numbers of 64 bits: the low and the high half of a counter, and a key. A block of four words of
32 bits is a hash of the counter under the key; the next block is that of the counter and 1. The functions compute in
NumPy or JAX, and give the same words as TensorFlow's on every device; floating numbers differ in their last place where
the logarithm, the sine and the cosine of the libraries do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary, ElementType

#: how many numbers the state holds
STATE_SIZE: Final = 3
#: by how many blocks a counter goes on for each number that was drawn, however many it took
BLOCKS_PER_NUMBER: Final = 256
_ROUNDS: Final = 10
_MULTIPLIERS: Final = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS: Final = 0x9E3779B9, 0xBB67AE85
_HALF: Final = np.uint64(32)
#: dtype -> type of its bits, how many of them are random, the bits of 1.0
_LAYOUT: Final[dict[str, tuple[Any, int, int]]] = {
    "float64": (np.uint64, 0xFFFFFFFFFFFFF, 0x3FF0000000000000),
    "float32": (np.uint32, 0x7FFFFF, 0x3F800000),
    "float16": (np.uint16, 0x3FF, 0x3C00),
    "bfloat16": (np.uint16, 0x7F, 0x3F80),
}
#: of normal numbers, those further than this from 0 are drawn again
_TRUNCATED_AT: Final = 2.0
#: blocks of which truncated numbers are chosen. One number in 22 lies too far out: that of 24 numbers fewer than 4 lie
#: within, or of 20 fewer than 2, happens once in 1e24 times.
_CHOSEN_FROM: Final = {"float64": 10}
_CHOSEN_FROM_OTHERWISE: Final = 6

#: blocks that are computed together where it is not known how many are needed
_FETCHED_AT_ONCE: Final = 4


def skipped(state: Array, count: Array, xp: ArrayLibrary) -> Any:
    """The state whose counter is higher by `count`, a whole number of 64 bits (a negative one counts as unsigned)."""
    low, high, key = (xp.asarray(state)[i].astype(np.uint64) for i in range(STATE_SIZE))
    added = low + xp.asarray(count).astype(np.uint64)
    carry = (added < low).astype(np.uint64)
    return xp.stack([added, high + carry, key]).astype(np.int64)


def after(state: Array, numbers: int, xp: ArrayLibrary) -> Any:
    """The state when that many numbers were drawn."""
    return skipped(state, np.uint64(numbers * BLOCKS_PER_NUMBER & 0xFFFFFFFFFFFFFFFF), xp)


def blocks(state: Array, offsets: Array, xp: ArrayLibrary) -> Any:
    """The blocks of the counter and offsets: uint32, of the shape of the offsets and [4]."""
    low, high, key = (xp.asarray(state)[i].astype(np.uint64) for i in range(STATE_SIZE))
    lows = low + xp.asarray(offsets).astype(np.uint64)
    highs = high + (lows < low).astype(np.uint64)
    words = [part.astype(np.uint32) for half in (lows, highs) for part in (half, half >> _HALF)]
    keys = [key.astype(np.uint32), (key >> _HALF).astype(np.uint32)]
    for round_ in range(_ROUNDS):
        now = [k + np.uint32(round_ * step & 0xFFFFFFFF) for k, step in zip(keys, _KEY_STEPS, strict=True)]
        first, second = (words[2 * i].astype(np.uint64) * _MULTIPLIERS[i] for i in range(2))
        words = [
            (second >> _HALF).astype(np.uint32) ^ words[1] ^ now[0],
            second.astype(np.uint32),
            (first >> _HALF).astype(np.uint32) ^ words[3] ^ now[1],
            first.astype(np.uint32),
        ]
    return xp.stack(words, axis=-1)


def bits32(state: Array, count: int, xp: ArrayLibrary) -> Any:
    """That many words of 32 bits."""
    return blocks(state, xp.arange(-(-count // 4), dtype=np.uint64), xp).reshape(-1)[:count]


def bits64(state: Array, count: int, xp: ArrayLibrary) -> Any:
    """That many words of 64 bits: of two of 32, the first is the lower."""
    pairs = blocks(state, xp.arange(-(-count // 2), dtype=np.uint64), xp).reshape(-1, 2).astype(np.uint64)
    return (pairs[:, 0] | (pairs[:, 1] << _HALF))[:count]


def _unit(words: Array, dtype: ElementType) -> Any:
    """Floating numbers in [0, 1) of one word each, of two in double precision, of which the first is the higher."""
    kind, mantissa, one = _LAYOUT[np.dtype(dtype).name]
    if np.dtype(dtype) == np.float64:
        pairs = words.reshape(*words.shape[:-1], words.shape[-1] // 2, 2).astype(np.uint64)
        words = (pairs[..., 0] << _HALF) | pairs[..., 1]
    bits = words.astype(kind) & kind(mantissa) | kind(one)
    return bits.view(dtype) - np.ones((), dtype)


def uniform(state: Array, shape: tuple[int, ...], dtype: ElementType, xp: ArrayLibrary) -> Any:
    """Floating numbers in [0, 1)."""
    count = math.prod(shape)
    words = bits32(state, 2 * count if np.dtype(dtype) == np.float64 else count, xp)
    return _unit(words, dtype).reshape(shape)


def _normal_blocks(words: Array, dtype: ElementType, xp: ArrayLibrary) -> Any:
    """Normal numbers of blocks, by Box and Muller: four of each, two in double precision."""
    wide = np.float64 if np.dtype(dtype) == np.float64 else np.float32
    numbers = _unit(words, wide)
    pairs = numbers.reshape(*words.shape[:-1], numbers.shape[-1] // 2, 2)
    radius = xp.sqrt(wide(-2) * xp.log(xp.maximum(pairs[..., 0], wide(1e-7))))
    angle = (2 * math.pi * pairs[..., 1].astype(np.float64)).astype(wide)
    both = xp.stack([xp.sin(angle) * radius, xp.cos(angle) * radius], axis=-1)
    return both.reshape(numbers.shape)


def normal(state: Array, shape: tuple[int, ...], dtype: ElementType, xp: ArrayLibrary) -> Any:
    """Numbers of the standard normal distribution."""
    count = math.prod(shape)
    per_block = 2 if np.dtype(dtype) == np.float64 else 4
    words = blocks(state, xp.arange(-(-count // per_block), dtype=np.uint64), xp)
    return _normal_blocks(words, dtype, xp).reshape(-1)[:count].reshape(shape).astype(dtype)


def truncated_normal(state: Array, shape: tuple[int, ...], dtype: ElementType, xp: ArrayLibrary) -> Any:
    """Numbers of the normal distribution, without those further from 0 than 2.

    Each group of as many numbers as a block gives has a part of the counter to itself, and takes the first from there
    that lie within.
    """
    count = math.prod(shape)
    per_group = 2 if np.dtype(dtype) == np.float64 else 4
    groups = -(-count // per_group)
    starts = xp.arange(groups, dtype=np.uint64) * np.uint64(per_group * BLOCKS_PER_NUMBER // 4)
    taken = _CHOSEN_FROM.get(np.dtype(dtype).name, _CHOSEN_FROM_OTHERWISE)
    words = blocks(state, starts[:, None] + np.arange(taken, dtype=np.uint64), xp)
    numbers = _normal_blocks(words, dtype, xp).reshape(groups, taken * per_group)
    within = xp.abs(numbers) < numbers.dtype.type(_TRUNCATED_AT)
    chosen = xp.argsort(~within, axis=1, stable=True)[:, :per_group]
    return xp.take_along_axis(numbers, chosen, axis=1).reshape(-1)[:count].reshape(shape).astype(dtype)


def integers(state: Array, shape: tuple[int, ...], low: Array, high: Array, xp: ArrayLibrary) -> Any:
    """Whole numbers in [low, high), of the dtype of these scalars, int32 or int64."""
    count, signed = math.prod(shape), np.dtype(low.dtype)
    unsigned, draw = (np.uint32, bits32) if signed == np.int32 else (np.uint64, bits64)
    low, high = (xp.asarray(bound).astype(unsigned) for bound in (low, high))
    # where the bounds are refused, the remainder by 0 is not to be asked for
    span = xp.maximum(high - low, unsigned(1))
    return (low + draw(state, count, xp) % span).astype(signed).reshape(shape)


def whole_numbers(state: Array, shape: tuple[int, ...], dtype: ElementType, xp: ArrayLibrary) -> Any:
    """Whole numbers of all that a dtype of 32 or 64 bits has."""
    draw = bits64 if np.dtype(dtype).itemsize == 8 else bits32
    return draw(state, math.prod(shape), xp).astype(dtype).reshape(shape)


def pairs_of_doubles(state: Array, begin: int) -> Iterator[tuple[float, float]]:
    """The numbers in [0, 1) of block after block, without end, for algorithms that do not know how many they need."""
    while True:
        words = blocks(state, begin + np.arange(_FETCHED_AT_ONCE, dtype=np.uint64), np)
        yield from map(tuple, _unit(words, np.float64).tolist())
        begin += _FETCHED_AT_ONCE
