"""The hash functions behind `StringToHashBucket...`: published algorithms, so that buckets match other systems'.

* `fingerprint64`: FarmHash's platform-independent 64-bit fingerprint.
* `murmur64`: MurmurHash64A with TensorFlow's seed.
* `siphash`: SipHash-2-4, keyed: without the key nobody can choose strings that collide.

`hashing_many` has three of them for many strings at once.
"""

from __future__ import annotations

MASK = (1 << 64) - 1
K0 = 0xC3A5C85C97CB3127
K1 = 0xB492B66FBE98F273
K2 = 0x9AE16A3B2F90404F
#: of MurmurHash64A
MURMUR_MULTIPLIER = 0xC6A4A7935BD1E995
#: TensorFlow's
MURMUR_SEED = 0xDECAFCAFFE


def fetch64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _fetch32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def rotate(value: int, shift: int) -> int:
    """Rotates 64 bits to the right."""
    return ((value >> shift) | (value << (64 - shift))) & MASK


def shift_mix(value: int) -> int:
    return value ^ (value >> 47)


def hash_16(u: int, v: int, multiplier: int) -> int:
    a = shift_mix(((u ^ v) * multiplier) & MASK)
    b = shift_mix(((v ^ a) * multiplier) & MASK)
    return (b * multiplier) & MASK


def fingerprint64(data: bytes) -> int:
    """FarmHash's `Fingerprint64`, in [0, 2**64)."""
    size = len(data)
    if size <= 16:
        return up_to_16(data)
    if size <= 32:
        return _farm_17_to_32(data)
    return _farm_33_to_64(data) if size <= 64 else _farm_long(data)


def up_to_16(data: bytes) -> int:
    size = len(data)
    multiplier = (K2 + size * 2) & MASK
    if size >= 8:
        a, b = (fetch64(data, 0) + K2) & MASK, fetch64(data, size - 8)
        c = (rotate(b, 37) * multiplier + a) & MASK
        d = ((rotate(a, 25) + b) * multiplier) & MASK
        return hash_16(c, d, multiplier)
    if size >= 4:
        return hash_16((size + (_fetch32(data, 0) << 3)) & MASK, _fetch32(data, size - 4), multiplier)
    if size > 0:
        y = data[0] + (data[size >> 1] << 8)
        z = size + (data[size - 1] << 2)
        return (shift_mix((y * K2 ^ z * K0) & MASK) * K2) & MASK
    return K2


def _farm_17_to_32(data: bytes) -> int:
    size = len(data)
    multiplier = (K2 + size * 2) & MASK
    a, b = (fetch64(data, 0) * K1) & MASK, fetch64(data, 8)
    c, d = (fetch64(data, size - 8) * multiplier) & MASK, (fetch64(data, size - 16) * K2) & MASK
    u = (rotate((a + b) & MASK, 43) + rotate(c, 30) + d) & MASK
    v = (a + rotate((b + K2) & MASK, 18) + c) & MASK
    return hash_16(u, v, multiplier)


def _farm_33_to_64(data: bytes) -> int:
    size = len(data)
    multiplier = (K2 + size * 2) & MASK
    a, b = (fetch64(data, 0) * K2) & MASK, fetch64(data, 8)
    c, d = (fetch64(data, size - 8) * multiplier) & MASK, (fetch64(data, size - 16) * K2) & MASK
    y = (rotate((a + b) & MASK, 43) + rotate(c, 30) + d) & MASK
    z = hash_16(y, (a + rotate((b + K2) & MASK, 18) + c) & MASK, multiplier)
    e, f = (fetch64(data, 16) * multiplier) & MASK, fetch64(data, 24)
    g, h = (
        ((y + fetch64(data, size - 32)) * multiplier) & MASK,
        ((z + fetch64(data, size - 24)) * multiplier) & MASK,
    )
    u = (rotate((e + f) & MASK, 43) + rotate(g, 30) + h) & MASK
    v = (e + rotate((f + a) & MASK, 18) + g) & MASK
    return hash_16(u, v, multiplier)


def weak_32(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    """Mixes 32 bytes into two seeds."""
    w, x, y, z = (fetch64(data, at + offset) for offset in (0, 8, 16, 24))
    a = (a + w) & MASK
    b = rotate((b + a + z) & MASK, 21)
    c = a
    a = (a + x + y) & MASK
    b = (b + rotate(a, 44)) & MASK
    return (a + z) & MASK, (b + c) & MASK


def _farm_long(data: bytes) -> int:
    seed = 81
    x, y = seed, (seed * K1 + 113) & MASK
    z = (shift_mix((y * K2 + 113) & MASK) * K2) & MASK
    v, w = (0, 0), (0, 0)
    x = (x * K2 + fetch64(data, 0)) & MASK
    last = ((len(data) - 1) // 64) * 64
    for at in range(0, last, 64):
        x = (rotate((x + y + v[0] + fetch64(data, at + 8)) & MASK, 37) * K1) & MASK
        y = (rotate((y + v[1] + fetch64(data, at + 48)) & MASK, 42) * K1) & MASK
        x ^= w[1]
        y = (y + v[0] + fetch64(data, at + 40)) & MASK
        z = (rotate((z + w[0]) & MASK, 33) * K1) & MASK
        v = weak_32(data, at, (v[1] * K1) & MASK, (x + w[0]) & MASK)
        w = weak_32(data, at + 32, (z + w[1]) & MASK, (y + fetch64(data, at + 16)) & MASK)
        z, x = x, z
    multiplier = (K1 + ((z & 0xFF) << 1)) & MASK
    at = len(data) - 64
    w = ((w[0] + ((len(data) - 1) & 63)) & MASK, w[1])
    v = ((v[0] + w[0]) & MASK, v[1])
    w = ((w[0] + v[0]) & MASK, w[1])
    x = (rotate((x + y + v[0] + fetch64(data, at + 8)) & MASK, 37) * multiplier) & MASK
    y = (rotate((y + v[1] + fetch64(data, at + 48)) & MASK, 42) * multiplier) & MASK
    x ^= (w[1] * 9) & MASK
    y = (y + v[0] * 9 + fetch64(data, at + 40)) & MASK
    z = (rotate((z + w[0]) & MASK, 33) * multiplier) & MASK
    v = weak_32(data, at, (v[1] * multiplier) & MASK, (x + w[0]) & MASK)
    w = weak_32(data, at + 32, (z + w[1]) & MASK, (y + fetch64(data, at + 16)) & MASK)
    z, x = x, z
    first = (hash_16(v[0], w[0], multiplier) + shift_mix(y) * K0 + z) & MASK
    return hash_16(first, (hash_16(v[1], w[1], multiplier) + x) & MASK, multiplier)


def murmur64(data: bytes, seed: int = MURMUR_SEED) -> int:
    """MurmurHash64A, in [0, 2**64)."""
    multiplier, shift = MURMUR_MULTIPLIER, 47
    value = (seed ^ (len(data) * multiplier)) & MASK
    whole = len(data) - len(data) % 8
    for at in range(0, whole, 8):
        part = (fetch64(data, at) * multiplier) & MASK
        part = ((part ^ (part >> shift)) * multiplier) & MASK
        value = ((value ^ part) * multiplier) & MASK
    if whole < len(data):
        value = ((value ^ fetch64(data, whole)) * multiplier) & MASK
    value = ((value ^ (value >> shift)) * multiplier) & MASK
    return value ^ (value >> shift)


def siphash(data: bytes, key: tuple[int, int]) -> int:
    """SipHash-2-4 with a 128-bit key, in [0, 2**64)."""
    state = sip_start(key)
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = fetch64(padded, at)
        state = (*state[:3], state[3] ^ word)
        state = _sip_round(_sip_round(state))
        state = (state[0] ^ word, *state[1:])
    state = (*state[:2], state[2] ^ 0xFF, state[3])
    for _ in range(4):
        state = _sip_round(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def sip_start(key: tuple[int, int]) -> tuple[int, int, int, int]:
    """The state before the first word of a string."""
    v0, v1 = key[0] ^ 0x736F6D6570736575, key[1] ^ 0x646F72616E646F6D
    return v0, v1, key[0] ^ 0x6C7967656E657261, key[1] ^ 0x7465646279746573


def _sip_round(state: tuple[int, ...]) -> tuple[int, int, int, int]:
    v0, v1, v2, v3 = state
    v0 = (v0 + v1) & MASK
    v1 = rotate(v1, 51) ^ v0
    v0 = rotate(v0, 32)
    v2 = (v2 + v3) & MASK
    v3 = rotate(v3, 48) ^ v2
    v0 = (v0 + v3) & MASK
    v3 = rotate(v3, 43) ^ v0
    v2 = (v2 + v1) & MASK
    v1 = rotate(v1, 47) ^ v2
    return v0, v1, rotate(v2, 32), v3
