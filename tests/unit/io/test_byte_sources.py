"""Bytes of plain and compressed files: what is asked for comes, and no file makes a reader take more than it holds."""

from __future__ import annotations

import contextlib
import gzip
import os
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from anabranch import errors
from anabranch.io import byte_sources, crc32c
from anabranch.io.byte_sources import inflated, open_source
from anabranch.io.positioned_records import FixedLengthFile, LineFile, TFRecordFile
from anabranch.io.records import tf_record_iterator

PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, "ZLIB": zlib.compress, "GZIP": gzip.compress}
COMPRESSIONS = sorted(PACK)
FEW = 8 << 20


@contextlib.contextmanager
def few_bytes_taken() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < FEW
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", COMPRESSIONS)
@given(
    members=st.lists(st.binary(min_size=1, max_size=40) | st.just(b"line\n" * 9), min_size=1, max_size=3),
    padding=st.integers(0, 3),
    steps=st.lists(st.none() | st.integers(0, 30), max_size=8),
)
def test_bytes_come_in_order(tmp_path_factory: Any, compression: str, members: Any, padding: int, steps: Any) -> None:
    content = b"".join(members)
    path = tmp_path_factory.getbasetemp() / f"source{compression}"
    zeros = bytes(padding) if compression == "GZIP" else b""
    path.write_bytes(zeros.join(PACK[compression](member) for member in members) + zeros)
    source = open_source(str(path), compression)
    at = 0
    for step in steps:
        end = content.find(b"\n", at) + 1 or len(content) if step is None else at + step
        assert (source.readline() if step is None else source.read(step)) == content[at:end]
        at = min(end, len(content))
    assert source.read(1 << 40) == content[at:]
    source.close()


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("lost", [1, 5, 20])
def test_data_that_end_early_are_damage(tmp_path: Path, compression: str, lost: int) -> None:
    packed = PACK[compression](os.urandom(100))
    (tmp_path / "f").write_bytes(packed[:-lost])
    source = open_source(str(tmp_path / "f"), compression)
    with pytest.raises(errors.DataLossError, match=r"/f' after byte offset \d+: the file ends before"):
        source.read(1000)
    source.close()
    with pytest.raises(ValueError, match="too early"):
        inflated(packed[:-lost], compression)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("method", ["read", "readline"])
def test_compressed_data_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str, method: str
) -> None:
    monkeypatch.setattr(byte_sources, "MAX_INFLATED", 2 << 20)
    packed = PACK[compression](bytes(12 << 20))
    (tmp_path / "f").write_bytes(packed)
    source = open_source(str(tmp_path / "f"), compression)
    with few_bytes_taken():
        with pytest.raises(errors.ResourceExhaustedError, match="/f' holds a record of more than"):
            source.readline() if method == "readline" else source.read(1 << 40)
        with pytest.raises(ValueError, match="more than 2097152 bytes"):
            inflated(packed, compression)
    source.close()


# ---------------------------------------------------------------------- readers of files that claim too much
def claim(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", crc32c.masked_crc32c(packed)) + bytes(1000)


def first_record(path: str, compression: str) -> None:
    file = TFRecordFile(path, compression)
    try:
        file.read()
    finally:
        file.close()


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("length", [1001, 1 << 40, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("read", [first_record, lambda *args: list(tf_record_iterator(*args))])
def test_the_length_of_a_record_is_not_believed(tmp_path: Path, compression: str, length: int, read: Any) -> None:
    (tmp_path / "f").write_bytes(PACK[compression](claim(length)))
    with (
        few_bytes_taken(),
        pytest.raises(errors.DataLossError, match=rf"/f' at byte offset 0: .*its length is {length} bytes but 1000"),
    ):
        read(str(tmp_path / "f"), compression)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_longer_than_the_file_are_not_asked_for(tmp_path: Path, compression: str) -> None:
    (tmp_path / "f").write_bytes(PACK[compression](b""))
    with few_bytes_taken():
        file = FixedLengthFile(str(tmp_path / "f"), 1 << 62, 0, 0, 0, compression)
        assert file.read() is None
        file.close()


def test_what_comes_through_a_pipe_is_read(tmp_path: Path) -> None:
    """A pipe has no size that could bound a record."""
    os.mkfifo(tmp_path / "pipe")
    descriptor = os.open(tmp_path / "pipe", os.O_RDWR)
    os.write(descriptor, b"one\ntwo\n")
    file = LineFile(str(tmp_path / "pipe"))
    assert file.read() == b"one"
    file.close()
    os.close(descriptor)
