"""Fingerprints of 128 bits: those of FarmHash, which are CityHash's of version 1.1  (Pike, Alakuijala, 2011)."""

from __future__ import annotations

from typing import Final

from anabranch.ops.strings.hashing import K0, K1, MASK, fetch64, hash_16, rotate, shift_mix, up_to_16, weak_32

_TO_64: Final = 0x9DDFEA08EB382D69
_BLOCK: Final = 128


def fingerprint128(data: bytes) -> tuple[int, int]:
    """The lower and the upper 64 bits, each in [0, 2**64)."""
    if len(data) < 16:
        return _murmur(data, K0, K1)
    low, high = fetch64(data, 0), (fetch64(data, 8) + K0) & MASK
    rest = data[16:]
    return _murmur(rest, low, high) if len(rest) < _BLOCK else _long(rest, low, high)


def _mixed(a: int, b: int) -> int:
    return hash_16(a & MASK, b & MASK, _TO_64)


def _murmur(data: bytes, a: int, b: int) -> tuple[int, int]:
    """Of fewer than 128 bytes."""
    size = len(data)
    if size <= 16:
        a = (shift_mix((a * K1) & MASK) * K1) & MASK
        c = (b * K1 + up_to_16(data)) & MASK
        d = shift_mix((a + (fetch64(data, 0) if size >= 8 else c)) & MASK)
    else:
        c = _mixed(fetch64(data, size - 8) + K1, a)
        d = _mixed(b + size, c + fetch64(data, size - 16))
        a = (a + d) & MASK
        for at in range(0, size - 16, 16):
            a = ((a ^ (shift_mix((fetch64(data, at) * K1) & MASK) * K1) & MASK) * K1) & MASK
            b ^= a
            c = ((c ^ (shift_mix((fetch64(data, at + 8) * K1) & MASK) * K1) & MASK) * K1) & MASK
            d ^= c
    a, b = _mixed(a, c), _mixed(d, b)
    return a ^ b, _mixed(b, a)


def _long(data: bytes, x: int, y: int) -> tuple[int, int]:
    size = len(data)
    z = (size * K1) & MASK
    first = (rotate(y ^ K1, 49) * K1 + fetch64(data, 0)) & MASK
    v = first, (rotate(first, 42) * K1 + fetch64(data, 8)) & MASK
    w = (rotate((y + z) & MASK, 35) * K1 + x) & MASK, (rotate((x + fetch64(data, 88)) & MASK, 53) * K1) & MASK
    whole = size // _BLOCK * _BLOCK
    for at in range(0, whole, 64):
        x = (rotate((x + y + v[0] + fetch64(data, at + 8)) & MASK, 37) * K1) & MASK
        y = (rotate((y + v[1] + fetch64(data, at + 48)) & MASK, 42) * K1) & MASK
        x ^= w[1]
        y = (y + v[0] + fetch64(data, at + 40)) & MASK
        z = (rotate((z + w[0]) & MASK, 33) * K1) & MASK
        v = weak_32(data, at, (v[1] * K1) & MASK, (x + w[0]) & MASK)
        w = weak_32(data, at + 32, (z + w[1]) & MASK, (y + fetch64(data, at + 16)) & MASK)
        z, x = x, z
    x = (x + rotate((v[0] + z) & MASK, 49) * K0) & MASK
    y = (y * K0 + rotate(w[1], 37)) & MASK
    z = (z * K0 + rotate(w[0], 27)) & MASK
    v, w = ((v[0] * K0) & MASK, v[1]), ((w[0] * 9) & MASK, w[1])
    left = size - whole
    done = 0
    while done < left:  # pieces of 32 bytes from the end; the last of them may begin in what was read
        done += 32
        at = size - done
        y = (rotate((x + y) & MASK, 42) * K0 + v[1]) & MASK
        w = (w[0] + fetch64(data, at + 16)) & MASK, w[1]
        x = (x * K0 + w[0]) & MASK
        z = (z + w[1] + fetch64(data, at)) & MASK
        w = w[0], (w[1] + v[0]) & MASK
        v = weak_32(data, at, (v[0] + z) & MASK, v[1])
        v = (v[0] * K0) & MASK, v[1]
    x, y = _mixed(x, v[0]), _mixed(y + z, w[0])
    return (_mixed(x + v[1], w[1]) + y) & MASK, _mixed(x + w[1], y + v[1])
