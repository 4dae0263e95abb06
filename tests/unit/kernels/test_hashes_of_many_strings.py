"""The hashes of many strings at once are those of each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import anabranch as tf
from anabranch.ops.strings import hashing
from anabranch.ops.strings.hashing_many import FEW, fingerprints64, murmurs64, siphashes

KEY = (0x0706050403020100, 0x8F0E0D0C0B0A0908)
#: of many strings, and of one
HASHES: dict[str, tuple[Callable[[list[bytes]], Any], Callable[[bytes], int]]] = {
    "farm": (fingerprints64, hashing.fingerprint64),
    "murmur": (murmurs64, hashing.murmur64),
    "sip": (lambda strings: siphashes(strings, KEY), lambda string: hashing.siphash(string, KEY)),
}


@pytest.mark.parametrize("name", HASHES)
def test_every_length_up_to_300_bytes(name: str) -> None:
    many, one = HASHES[name]
    random = np.random.default_rng(5)
    for size in range(301):
        strings = [random.bytes(size) for _ in range(FEW + 3)]
        strings[0], strings[1], strings[2] = bytes(size), b"\xff" * size, b"a" * (size // 2) + bytes(size - size // 2)
        found = many(strings)
        assert found.dtype == np.uint64
        assert found.tolist() == [one(string) for string in strings]


@pytest.mark.parametrize("name", HASHES)
@given(
    parts=st.lists(st.binary(max_size=80), min_size=1, max_size=6),
    sizes=st.lists(st.integers(0, 300), max_size=120),
)
def test_strings_of_mixed_lengths(name: str, parts: list[bytes], sizes: list[int]) -> None:
    many, one = HASHES[name]
    strings = [(parts[i % len(parts)] * (size + 1) + b"\0z\xff" * size)[:size] for i, size in enumerate(sizes)]
    assert many(strings).tolist() == [one(string) for string in strings]


@pytest.mark.parametrize("shape", [(), (0,), (3,), (40,), (4, 10), (0, 3)])
@pytest.mark.parametrize("buckets", [1, 1000, 2**63 - 1])
def test_the_operations_take_strings_of_any_shape(shape: tuple[int, ...], buckets: int) -> None:
    texts = [f"{'word ' * (i % 20)}{i}".encode() for i in range(int(np.prod(shape)))]
    value = np.empty(len(texts), object)
    value[:] = texts
    with tf.Graph().as_default(), tf.Session() as session:
        strings = tf.placeholder(tf.string, shape)
        fetched = session.run(
            [
                tf.raw_ops.StringToHashBucketFast(input=strings, num_buckets=buckets),
                tf.raw_ops.StringToHashBucket(string_tensor=strings, num_buckets=buckets),
                tf.raw_ops.StringToHashBucketStrong(input=strings, num_buckets=buckets, key=KEY[:1] + (9,)),
            ],
            {strings: value.reshape(shape)},
        )
    plain = hashing.fingerprint64, hashing.murmur64, lambda text: hashing.siphash(text, (KEY[0], 9))
    for result, function in zip(fetched, plain, strict=True):
        assert np.asarray(result).dtype == np.int64
        assert np.asarray(result).reshape(-1).tolist() == [function(text) % buckets for text in texts]
        assert np.shape(result) == shape
