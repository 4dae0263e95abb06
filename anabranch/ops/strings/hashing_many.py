"""The hashes of `hashing` for many strings at once, by NumPy's arithmetic on vectors of 64 bits.

All strings stand behind one another in one buffer. What a hash does with a string depends on its length: strings for
which it does the same are hashed together, one element of each vector for each of them. Where there are only a few of
a kind, a call of NumPy costs more than the arithmetic, and the functions of one string are quicker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from anabranch.ops.strings import hashing

#: vectors of 64 bits without a sign, whose sums and products wrap around
Words: TypeAlias = "np.ndarray[Any, Any]"
Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

#: fewer strings of a kind are hashed one by one
FEW: Final = 24
#: what is read at the end of the last string may lie behind it
_PADDING: Final = bytes(8)

_K0, _K1, _K2 = np.uint64(hashing.K0), np.uint64(hashing.K1), np.uint64(hashing.K2)
_MURMUR = np.uint64(hashing.MURMUR_MULTIPLIER)
_ONE, _TWO, _NINE = np.uint64(1), np.uint64(2), np.uint64(9)
_SHIFTS = [np.uint64(i) for i in range(65)]
#: for each n the bits of n bytes
_BITS_OF_BYTES = np.array([2 ** (8 * n) - 1 for n in range(9)], np.uint64)


class _Strings:
    """Strings in one buffer: `starts` and `sizes` have an element for each of them, in bytes."""

    def __init__(self, buffer: bytes, starts: Integers, sizes: Integers) -> None:
        self._buffer = buffer
        self.starts, self.sizes = starts, sizes
        self._bytes = np.frombuffer(buffer, np.uint8)
        # every byte of the buffer begins a word
        self._words: Words = np.ndarray((len(buffer) - 7,), "<u8", buffer, strides=(1,))

    def some(self, chosen: Integers) -> _Strings:
        return _Strings(self._buffer, self.starts[chosen], self.sizes[chosen])

    def word(self, at: int | Integers) -> Words:
        """The 8 bytes of each string from `at` on."""
        found: Words = self._words[self.starts + at].astype(np.uint64, copy=False)
        return found

    def half(self, at: int | Integers) -> Words:
        """4 bytes from `at` on."""
        found: Words = self.word(at) & _BITS_OF_BYTES[4]
        return found

    def byte(self, at: int | Integers) -> Words:
        found: Words = self._bytes[self.starts + at].astype(np.uint64)
        return found

    def rest(self, at: int) -> Words:
        """What is left from `at` on, fewer than 8 bytes, with zeros behind."""
        found: Words = self.word(at) & _BITS_OF_BYTES[self.sizes - at]
        return found


def _hashes(
    strings: Sequence[bytes],
    kinds: Callable[[Integers], Integers],
    one: Callable[[bytes], int],
    many: Callable[[_Strings, int], Words],
) -> Words:
    """The hash of each string.

    Args:
        strings: any number.
        kinds: from the sizes of strings to numbers that are equal where the hash does the same.
        one: the hash of a string.
        many: the hashes of strings of one kind, which is the second argument.
    """
    if len(strings) < FEW:
        return np.array([one(string) for string in strings], np.uint64)
    sizes = np.fromiter(map(len, strings), np.int64, len(strings))
    ends = np.cumsum(sizes)
    data = _Strings(b"".join([*strings, _PADDING]), ends - sizes, sizes)
    of_strings = kinds(sizes)
    found = np.flatnonzero(np.bincount(of_strings))
    if len(found) == 1:
        return many(data, int(found[0]))
    result = np.empty(len(strings), np.uint64)
    for kind in found.tolist():
        chosen = np.flatnonzero(of_strings == kind)
        if len(chosen) < FEW:
            result[chosen] = [one(strings[i]) for i in chosen.tolist()]
        else:
            result[chosen] = many(data.some(chosen), kind)
    return result


def _rotate(value: Words, shift: int) -> Words:
    return (value >> _SHIFTS[shift]) | (value << _SHIFTS[64 - shift])


def _shift_mix(value: Words) -> Words:
    mixed: Words = value ^ (value >> _SHIFTS[47])
    return mixed


def _hash_16(u: Words, v: Words, multiplier: Words) -> Words:
    a = _shift_mix((u ^ v) * multiplier)
    return _shift_mix((v ^ a) * multiplier) * multiplier


def joined_fingerprints(first: Words, others: Sequence[Words]) -> Words:
    """A fingerprint of each of many sequences of fingerprints; the vectors hold their first, second, ... elements."""
    result = first
    for other in others:
        result = result ^ _MURMUR ^ (_shift_mix(other * _MURMUR) * _MURMUR)
        result = _shift_mix(_shift_mix(result * _MURMUR) * _MURMUR)
    return result


# ---------------------------------------------------------------------- strings that come again
#: as many strings are looked up one by one, with so many bytes at most; and as many are remembered
_LOOKED_UP: Final = 256
_SHORT: Final = 64
_REMEMBERED: Final = 1 << 14


def _remembering(function: Callable[[Sequence[bytes]], Words]) -> Callable[[Sequence[bytes]], Words]:
    """A hash that remembers those of short strings: features and words come again and again, a few in each step."""
    known: dict[bytes, int] = {}

    def hashes(strings: Sequence[bytes]) -> Words:
        if len(strings) > _LOOKED_UP:
            return function(strings)
        try:
            return np.array([known[string] for string in strings], np.uint64)
        except KeyError:
            computed = function(strings)
        if max(map(len, strings)) <= _SHORT:
            if len(known) >= _REMEMBERED:
                known.clear()
            known.update(zip(strings, computed.tolist(), strict=True))
        return computed

    return hashes


# ---------------------------------------------------------------------- FarmHash
@_remembering
def fingerprints64(strings: Sequence[bytes]) -> Words:
    """`hashing.fingerprint64` of each string."""
    return _hashes(strings, _kinds_of_farm, hashing.fingerprint64, _farm)


#: of more than 64 bytes: how many blocks of 64 bytes are read from the beginning is added
_FARM_LONG: Final = 6
#: for each size
_FARM_KINDS: Final = np.repeat(np.arange(_FARM_LONG + 1), [1, 3, 4, 9, 16, 32, 1])


def _kinds_of_farm(sizes: Integers) -> Integers:
    short: Integers = _FARM_KINDS[np.minimum(sizes, 65)]
    return short if short.max() < _FARM_LONG else np.where(sizes <= 64, short, _FARM_LONG + (sizes - 1) // 64)


def _farm(data: _Strings, kind: int) -> Words:
    if kind >= _FARM_LONG:
        return _farm_long(data, kind - _FARM_LONG)
    return (_farm_0, _farm_1_to_3, _farm_4_to_7, _farm_8_to_16, _farm_17_to_32, _farm_33_to_64)[kind](data)


def _multiplier(data: _Strings) -> Words:
    return _K2 + (data.sizes * 2).astype(np.uint64)


def _farm_0(data: _Strings) -> Words:
    return np.full(len(data.sizes), _K2)


def _farm_1_to_3(data: _Strings) -> Words:
    size = data.sizes
    y = data.byte(0) + (data.byte(size >> 1) << _SHIFTS[8])
    z = size.astype(np.uint64) + (data.byte(size - 1) << _TWO)
    return _shift_mix(y * _K2 ^ z * _K0) * _K2


def _farm_4_to_7(data: _Strings) -> Words:
    first = data.sizes.astype(np.uint64) + (data.half(0) << _SHIFTS[3])
    return _hash_16(first, data.half(data.sizes - 4), _multiplier(data))


def _farm_8_to_16(data: _Strings) -> Words:
    multiplier = _multiplier(data)
    a, b = data.word(0) + _K2, data.word(data.sizes - 8)
    c = _rotate(b, 37) * multiplier + a
    d = (_rotate(a, 25) + b) * multiplier
    return _hash_16(c, d, multiplier)


def _farm_17_to_32(data: _Strings) -> Words:
    multiplier = _multiplier(data)
    a, b = data.word(0) * _K1, data.word(8)
    c, d = data.word(data.sizes - 8) * multiplier, data.word(data.sizes - 16) * _K2
    u = _rotate(a + b, 43) + _rotate(c, 30) + d
    return _hash_16(u, a + _rotate(b + _K2, 18) + c, multiplier)


def _farm_33_to_64(data: _Strings) -> Words:
    multiplier, size = _multiplier(data), data.sizes
    a, b = data.word(0) * _K2, data.word(8)
    c, d = data.word(size - 8) * multiplier, data.word(size - 16) * _K2
    y = _rotate(a + b, 43) + _rotate(c, 30) + d
    z = _hash_16(y, a + _rotate(b + _K2, 18) + c, multiplier)
    e, f = data.word(16) * multiplier, data.word(24)
    g, h = (y + data.word(size - 32)) * multiplier, (z + data.word(size - 24)) * multiplier
    u = _rotate(e + f, 43) + _rotate(g, 30) + h
    return _hash_16(u, e + _rotate(f + a, 18) + g, multiplier)


def _weak_32(data: _Strings, at: int | Integers, a: Words, b: Words) -> tuple[Words, Words]:
    w, x, y, z = (data.word(at + offset) for offset in (0, 8, 16, 24))
    c = a + w
    b = _rotate(b + c + z, 21)
    a = c + x + y
    return a + z, b + _rotate(a, 44) + c


def _farm_long(data: _Strings, blocks: int) -> Words:
    """Of more than 64 bytes: `blocks` are read from the beginning, and then the last 64 bytes."""
    seed = 81
    y_seed = (seed * hashing.K1 + 113) & hashing.MASK
    z_seed = (hashing.shift_mix((y_seed * hashing.K2 + 113) & hashing.MASK) * hashing.K2) & hashing.MASK
    zero = np.zeros(len(data.sizes), np.uint64)
    x, y, z = zero + np.uint64((seed * hashing.K2) & hashing.MASK) + data.word(0), zero + y_seed, zero + z_seed
    state: _FarmState = x, y, z, (zero, zero), (zero, zero)
    for block in range(blocks):
        state = _farm_block(data, 64 * block, state, _K1, _ONE)
    x, y, z, v, w = state
    multiplier = _K1 + ((z & _BITS_OF_BYTES[1]) << _ONE)
    w = w[0] + ((data.sizes - 1) & 63).astype(np.uint64), w[1]
    v = v[0] + w[0], v[1]
    w = w[0] + v[0], w[1]
    x, y, z, v, w = _farm_block(data, data.sizes - 64, (x, y, z, v, w), multiplier, _NINE)
    first = _hash_16(v[0], w[0], multiplier) + _shift_mix(y) * _K0 + z
    return _hash_16(first, _hash_16(v[1], w[1], multiplier) + x, multiplier)


_FarmState: TypeAlias = "tuple[Words, Words, Words, tuple[Words, Words], tuple[Words, Words]]"


def _farm_block(
    data: _Strings, at: int | Integers, state: _FarmState, multiplier: Words | np.uint64, factor: np.uint64
) -> _FarmState:
    x, y, z, v, w = state
    x = _rotate(x + y + v[0] + data.word(at + 8), 37) * multiplier
    y = _rotate(y + v[1] + data.word(at + 48), 42) * multiplier
    x = x ^ (w[1] * factor)
    y = y + v[0] * factor + data.word(at + 40)
    z = _rotate(z + w[0], 33) * multiplier
    v = _weak_32(data, at, v[1] * multiplier, x + w[0])
    w = _weak_32(data, at + 32, z + w[1], y + data.word(at + 16))
    return z, y, x, v, w


# ---------------------------------------------------------------------- word by word
def _whole_words(sizes: Integers) -> Integers:
    return sizes >> 3


def murmurs64(strings: Sequence[bytes]) -> Words:
    """`hashing.murmur64` of each string, with its seed."""
    return _hashes(strings, _whole_words, hashing.murmur64, _murmur)


def _murmur(data: _Strings, words: int) -> Words:
    value: Words = np.uint64(hashing.MURMUR_SEED) ^ (data.sizes.astype(np.uint64) * _MURMUR)
    for i in range(words):
        value = (value ^ (_shift_mix(data.word(8 * i) * _MURMUR) * _MURMUR)) * _MURMUR
    with_rest = (value ^ data.rest(8 * words)) * _MURMUR
    value = np.where(data.sizes > 8 * words, with_rest, value)
    return _shift_mix(_shift_mix(value) * _MURMUR)


def siphashes(strings: Sequence[bytes], key: tuple[int, int]) -> Words:
    """`hashing.siphash` of each string with a 128-bit key."""
    return _hashes(
        strings, _whole_words, lambda string: hashing.siphash(string, key), lambda data, words: _sip(data, words, key)
    )


def _sip_start(count: int, key: tuple[int, int]) -> list[Words]:
    return [np.full(count, part, np.uint64) for part in hashing.sip_start(key)]


def _sip(data: _Strings, words: int, key: tuple[int, int]) -> Words:
    v0, v1, v2, v3 = _sip_start(len(data.sizes), key)
    last = data.rest(8 * words) | (data.sizes.astype(np.uint64) << _SHIFTS[56])
    for i in range(words + 1):
        word = last if i == words else data.word(8 * i)
        v0, v1, v2, v3 = _sip_round(*_sip_round(v0, v1, v2, v3 ^ word))
        v0 = v0 ^ word
    v2 = v2 ^ _BITS_OF_BYTES[1]
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


def _sip_round(v0: Words, v1: Words, v2: Words, v3: Words) -> tuple[Words, Words, Words, Words]:
    v0 = v0 + v1
    v1 = _rotate(v1, 51) ^ v0
    v0 = _rotate(v0, 32)
    v2 = v2 + v3
    v3 = _rotate(v3, 48) ^ v2
    v0 = v0 + v3
    v3 = _rotate(v3, 43) ^ v0
    v2 = v2 + v1
    v1 = _rotate(v1, 47) ^ v2
    return v0, v1, _rotate(v2, 32), v3
