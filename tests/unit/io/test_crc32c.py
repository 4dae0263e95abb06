"""CRC-32C: known values, agreement with the definition, and the polynomial that makes it fast."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, strategies as st

from anabranch.io import crc32c

# RFC 3720, appendix B.4.
KNOWN = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
    b"123456789": 0xE3069283,
    b"": 0,
}


#: before a test replaces it
FIND = crc32c._compiled


def by_definition(data: bytes) -> int:
    """One bit at a time."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


@pytest.fixture(params=["as installed", "NumPy"], scope="module", autouse=True)
def implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Everything is tested with what is installed, and without."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "NumPy":
            patch.setattr(crc32c, "_compiled", lambda: None)
        yield


def test_the_compiled_version_serves_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("google_crc32c")
    package.implementation, package.extend = "c", lambda crc, data: 7  # type: ignore[attr-defined]
    find = FIND.__wrapped__
    monkeypatch.setitem(sys.modules, "google_crc32c", package)
    assert find()(0, b"") == 7
    package.implementation = "python"  # type: ignore[attr-defined]
    assert find() is None, "its version in Python is slower than ours"
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    assert find() is None


@pytest.mark.parametrize("data", list(KNOWN), ids=len)
def test_known_values(data: bytes) -> None:
    assert crc32c.crc32c(data) == KNOWN[data]


@pytest.mark.parametrize(
    "length", [*range(45, 52), 255, 256, 257, 511, 5685, 11370, 11371, 16000, 90960, 90961, 350_000]
)
def test_agrees_with_definition_at_every_internal_limit(length: int) -> None:
    data = np.random.default_rng(length).integers(0, 256, length, np.uint8).tobytes()
    assert crc32c.crc32c(data) == by_definition(data)


@given(st.binary(max_size=20_000), st.integers(0, 20_000))
def test_sum_may_be_continued(data: bytes, cut: int) -> None:
    cut = min(cut, len(data))
    assert crc32c.crc32c(data[cut:], crc32c.crc32c(data[:cut])) == crc32c.crc32c(data)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_accepts_any_bytes_and_leaves_them(wrap: type) -> None:
    data = bytes(range(256)) * 100
    wrapped = wrap(data)
    assert crc32c.crc32c(wrapped) == crc32c.crc32c(data)
    assert bytes(wrapped) == data


@given(st.integers(0, 2**32 - 1))
def test_unmask_inverts_mask(crc: int) -> None:
    assert crc32c.unmask(crc32c.mask(crc)) == crc


def test_generator_divides_the_folding_polynomial() -> None:
    generator = 0x11EDC6F41  # highest power first
    near, middle, span = crc32c._FOLD_DISTANCES
    polynomial = 0
    for power in (span, span - near, span - middle, 0):
        polynomial ^= 1 << (8 * power)
    while polynomial.bit_length() >= generator.bit_length():
        polynomial ^= generator << (polynomial.bit_length() - generator.bit_length())
    assert polynomial == 0
