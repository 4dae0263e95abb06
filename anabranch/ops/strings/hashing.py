"""The hash functions behind `StringToHashBucket...`: published algorithms, so that buckets match other systems'.

* `fingerprint64`: FarmHash's platform-independent 64-bit fingerprint.
* `joined_fingerprints`: one fingerprint of several, in their order.
* `murmur64`: MurmurHash64A with TensorFlow's seed.
* `siphash`: SipHash-2-4, keyed: without the key nobody can choose strings that collide.
"""

from __future__ import annotations

from collections.abc import Iterable

_MASK = (1 << 64) - 1
_K0 = 0xC3A5C85C97CB3127
_K1 = 0xB492B66FBE98F273
_K2 = 0x9AE16A3B2F90404F
#: of MurmurHash64A
_MULTIPLIER = 0xC6A4A7935BD1E995


def _fetch64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _fetch32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _rotate(value: int, shift: int) -> int:
    """Rotates 64 bits to the right."""
    return ((value >> shift) | (value << (64 - shift))) & _MASK


def _shift_mix(value: int) -> int:
    return value ^ (value >> 47)


def _hash_16(u: int, v: int, multiplier: int) -> int:
    a = _shift_mix(((u ^ v) * multiplier) & _MASK)
    b = _shift_mix(((v ^ a) * multiplier) & _MASK)
    return (b * multiplier) & _MASK


def fingerprint64(data: bytes) -> int:
    """FarmHash's `Fingerprint64`, in [0, 2**64)."""
    size = len(data)
    if size <= 16:
        return _farm_up_to_16(data)
    if size <= 32:
        return _farm_17_to_32(data)
    return _farm_33_to_64(data) if size <= 64 else _farm_long(data)


def joined_fingerprints(first: int, others: Iterable[int]) -> int:
    """A fingerprint of a sequence of fingerprints, in [0, 2**64)."""
    result = first
    for other in others:
        result ^= _MULTIPLIER
        result ^= (_shift_mix((other * _MULTIPLIER) & _MASK) * _MULTIPLIER) & _MASK
        result = (result * _MULTIPLIER) & _MASK
        result = (_shift_mix(result) * _MULTIPLIER) & _MASK
        result = _shift_mix(result)
    return result


def _farm_up_to_16(data: bytes) -> int:
    size = len(data)
    multiplier = (_K2 + size * 2) & _MASK
    if size >= 8:
        a, b = (_fetch64(data, 0) + _K2) & _MASK, _fetch64(data, size - 8)
        c = (_rotate(b, 37) * multiplier + a) & _MASK
        d = ((_rotate(a, 25) + b) * multiplier) & _MASK
        return _hash_16(c, d, multiplier)
    if size >= 4:
        return _hash_16((size + (_fetch32(data, 0) << 3)) & _MASK, _fetch32(data, size - 4), multiplier)
    if size > 0:
        y = data[0] + (data[size >> 1] << 8)
        z = size + (data[size - 1] << 2)
        return (_shift_mix((y * _K2 ^ z * _K0) & _MASK) * _K2) & _MASK
    return _K2


def _farm_17_to_32(data: bytes) -> int:
    size = len(data)
    multiplier = (_K2 + size * 2) & _MASK
    a, b = (_fetch64(data, 0) * _K1) & _MASK, _fetch64(data, 8)
    c, d = (_fetch64(data, size - 8) * multiplier) & _MASK, (_fetch64(data, size - 16) * _K2) & _MASK
    u = (_rotate((a + b) & _MASK, 43) + _rotate(c, 30) + d) & _MASK
    v = (a + _rotate((b + _K2) & _MASK, 18) + c) & _MASK
    return _hash_16(u, v, multiplier)


def _farm_33_to_64(data: bytes) -> int:
    size = len(data)
    multiplier = (_K2 + size * 2) & _MASK
    a, b = (_fetch64(data, 0) * _K2) & _MASK, _fetch64(data, 8)
    c, d = (_fetch64(data, size - 8) * multiplier) & _MASK, (_fetch64(data, size - 16) * _K2) & _MASK
    y = (_rotate((a + b) & _MASK, 43) + _rotate(c, 30) + d) & _MASK
    z = _hash_16(y, (a + _rotate((b + _K2) & _MASK, 18) + c) & _MASK, multiplier)
    e, f = (_fetch64(data, 16) * multiplier) & _MASK, _fetch64(data, 24)
    g, h = (
        ((y + _fetch64(data, size - 32)) * multiplier) & _MASK,
        ((z + _fetch64(data, size - 24)) * multiplier) & _MASK,
    )
    u = (_rotate((e + f) & _MASK, 43) + _rotate(g, 30) + h) & _MASK
    v = (e + _rotate((f + a) & _MASK, 18) + g) & _MASK
    return _hash_16(u, v, multiplier)


def _weak_32(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    """Mixes 32 bytes into two seeds."""
    w, x, y, z = (_fetch64(data, at + offset) for offset in (0, 8, 16, 24))
    a = (a + w) & _MASK
    b = _rotate((b + a + z) & _MASK, 21)
    c = a
    a = (a + x + y) & _MASK
    b = (b + _rotate(a, 44)) & _MASK
    return (a + z) & _MASK, (b + c) & _MASK


def _farm_long(data: bytes) -> int:
    seed = 81
    x, y = seed, (seed * _K1 + 113) & _MASK
    z = (_shift_mix((y * _K2 + 113) & _MASK) * _K2) & _MASK
    v, w = (0, 0), (0, 0)
    x = (x * _K2 + _fetch64(data, 0)) & _MASK
    last = ((len(data) - 1) // 64) * 64
    for at in range(0, last, 64):
        x = (_rotate((x + y + v[0] + _fetch64(data, at + 8)) & _MASK, 37) * _K1) & _MASK
        y = (_rotate((y + v[1] + _fetch64(data, at + 48)) & _MASK, 42) * _K1) & _MASK
        x ^= w[1]
        y = (y + v[0] + _fetch64(data, at + 40)) & _MASK
        z = (_rotate((z + w[0]) & _MASK, 33) * _K1) & _MASK
        v = _weak_32(data, at, (v[1] * _K1) & _MASK, (x + w[0]) & _MASK)
        w = _weak_32(data, at + 32, (z + w[1]) & _MASK, (y + _fetch64(data, at + 16)) & _MASK)
        z, x = x, z
    multiplier = (_K1 + ((z & 0xFF) << 1)) & _MASK
    at = len(data) - 64
    w = ((w[0] + ((len(data) - 1) & 63)) & _MASK, w[1])
    v = ((v[0] + w[0]) & _MASK, v[1])
    w = ((w[0] + v[0]) & _MASK, w[1])
    x = (_rotate((x + y + v[0] + _fetch64(data, at + 8)) & _MASK, 37) * multiplier) & _MASK
    y = (_rotate((y + v[1] + _fetch64(data, at + 48)) & _MASK, 42) * multiplier) & _MASK
    x ^= (w[1] * 9) & _MASK
    y = (y + v[0] * 9 + _fetch64(data, at + 40)) & _MASK
    z = (_rotate((z + w[0]) & _MASK, 33) * multiplier) & _MASK
    v = _weak_32(data, at, (v[1] * multiplier) & _MASK, (x + w[0]) & _MASK)
    w = _weak_32(data, at + 32, (z + w[1]) & _MASK, (y + _fetch64(data, at + 16)) & _MASK)
    z, x = x, z
    first = (_hash_16(v[0], w[0], multiplier) + _shift_mix(y) * _K0 + z) & _MASK
    return _hash_16(first, (_hash_16(v[1], w[1], multiplier) + x) & _MASK, multiplier)


def murmur64(data: bytes, seed: int = 0xDECAFCAFFE) -> int:
    """MurmurHash64A, in [0, 2**64)."""
    multiplier, shift = _MULTIPLIER, 47
    value = (seed ^ (len(data) * multiplier)) & _MASK
    whole = len(data) - len(data) % 8
    for at in range(0, whole, 8):
        part = (_fetch64(data, at) * multiplier) & _MASK
        part = ((part ^ (part >> shift)) * multiplier) & _MASK
        value = ((value ^ part) * multiplier) & _MASK
    if whole < len(data):
        value = ((value ^ _fetch64(data, whole)) * multiplier) & _MASK
    value = ((value ^ (value >> shift)) * multiplier) & _MASK
    return value ^ (value >> shift)


def siphash(data: bytes, key: tuple[int, int]) -> int:
    """SipHash-2-4 with a 128-bit key, in [0, 2**64)."""
    v0, v1 = key[0] ^ 0x736F6D6570736575, key[1] ^ 0x646F72616E646F6D
    v2, v3 = key[0] ^ 0x6C7967656E657261, key[1] ^ 0x7465646279746573
    state = (v0, v1, v2, v3)
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = _fetch64(padded, at)
        state = (*state[:3], state[3] ^ word)
        state = _sip_round(_sip_round(state))
        state = (state[0] ^ word, *state[1:])
    state = (*state[:2], state[2] ^ 0xFF, state[3])
    for _ in range(4):
        state = _sip_round(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _sip_round(state: tuple[int, ...]) -> tuple[int, int, int, int]:
    v0, v1, v2, v3 = state
    v0 = (v0 + v1) & _MASK
    v1 = _rotate(v1, 51) ^ v0
    v0 = _rotate(v0, 32)
    v2 = (v2 + v3) & _MASK
    v3 = _rotate(v3, 48) ^ v2
    v0 = (v0 + v3) & _MASK
    v3 = _rotate(v3, 43) ^ v0
    v2 = (v2 + v1) & _MASK
    v1 = _rotate(v1, 47) ^ v2
    return v0, v1, _rotate(v2, 32), v3
