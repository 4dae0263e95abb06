"""TFRecord files, whole and damaged."""

from __future__ import annotations

import gzip
import os
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from anabranch import errors
from anabranch.io import crc32c, records
from anabranch.io.records import TFRecordCompressionType, TFRecordOptions, TFRecordWriter, tf_record_iterator

COMPRESSIONS = ["", "ZLIB", "GZIP"]
SOME = [b"first", b"", b"third" * 1000, bytes(100_000)]


def write(path: Path, items: list[bytes], compression: str = "") -> None:
    with TFRecordWriter(str(path), TFRecordOptions(compression)) as writer:
        for item in items:
            writer.write(item)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_round_trip(tmp_path: Path, compression: str) -> None:
    write(tmp_path / "f", SOME, compression)
    assert list(tf_record_iterator(str(tmp_path / "f"), TFRecordOptions(compression))) == SOME


@given(items=st.lists(st.binary(max_size=300)))
def test_any_records(tmp_path_factory: pytest.TempPathFactory, items: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("records") / "f"
    write(path, items)
    assert list(tf_record_iterator(path)) == items


def test_bytes_of_a_record() -> None:
    # Length 3, its checksum, "abc", its checksum, as TensorFlow writes it.
    assert records.frame(b"abc").hex() == "0300000000000000b099490e6162636e57f121"


def test_compressed_files_are_zlib_and_gzip(tmp_path: Path) -> None:
    plain = b"".join(map(records.frame, SOME))
    for compression, inflate in (("ZLIB", zlib.decompress), ("GZIP", gzip.decompress)):
        write(tmp_path / "f", SOME, compression)
        assert inflate((tmp_path / "f").read_bytes()) == plain
    (tmp_path / "two").write_bytes(gzip.compress(records.frame(b"a")) + gzip.compress(records.frame(b"b")))
    assert list(tf_record_iterator(tmp_path / "two", "GZIP")) == [b"a", b"b"]


def test_options() -> None:
    as_string = TFRecordOptions.get_compression_type_string
    assert as_string(TFRecordOptions(TFRecordCompressionType.GZIP)) == "GZIP"
    assert as_string(TFRecordOptions(TFRecordCompressionType.NONE)) == ""
    assert as_string(None) == ""
    assert as_string("ZLIB") == "ZLIB"
    assert TFRecordOptions("GZIP", compression_level=9).compression_level == 9
    with pytest.raises(ValueError, match="'LZ4'"):
        TFRecordOptions("LZ4")


def test_flush_makes_records_readable(tmp_path: Path) -> None:
    for compression, options in (("", None), ("ZLIB", TFRecordOptions("ZLIB", flush_mode=zlib.Z_SYNC_FLUSH))):
        with TFRecordWriter(tmp_path / "f", options) as writer:
            writer.write(b"a")
            writer.flush()
            assert next(tf_record_iterator(tmp_path / "f", compression)) == b"a"


def test_misuse(tmp_path: Path) -> None:
    writer = TFRecordWriter(tmp_path / "f")
    with pytest.raises(TypeError, match="bytes"):
        writer.write("text")  # type: ignore[arg-type]
    writer.close()
    writer.close()
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        writer.write(b"")
    with pytest.raises(errors.NotFoundError):
        TFRecordWriter(tmp_path / "missing" / "f")
    with pytest.raises(errors.NotFoundError):
        tf_record_iterator(tmp_path / "missing")


@pytest.mark.parametrize("keep", [1, 11, 12, 14, 20])
def test_truncated(tmp_path: Path, keep: int) -> None:
    first = records.frame(b"first")
    (tmp_path / "f").write_bytes(first + records.frame(b"second")[:keep])
    iterator = tf_record_iterator(tmp_path / "f")
    assert next(iterator) == b"first"
    with pytest.raises(errors.DataLossError, match=rf"'{tmp_path}/f' at byte offset {len(first)}: truncated"):
        next(iterator)


@pytest.mark.parametrize("position", [0, 7, 8, 11, 12, 17, 18, 21])
def test_any_flipped_bit_is_found(tmp_path: Path, position: int) -> None:
    data = bytearray(records.frame(b"first") + records.frame(b"second"))
    data[21 + position] ^= 16
    (tmp_path / "f").write_bytes(data)
    iterator = tf_record_iterator(tmp_path / "f")
    assert next(iterator) == b"first"
    with pytest.raises(errors.DataLossError, match="offset 21"):
        next(iterator)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_length_is_not_believed(tmp_path: Path, compression: str) -> None:
    length = struct.pack("<Q", 1 << 62)
    data = length + struct.pack("<I", crc32c.masked_crc32c(length)) + bytes(1000)
    pack = {"": bytes, "ZLIB": zlib.compress, "GZIP": gzip.compress}[compression]
    (tmp_path / "f").write_bytes(pack(data))
    tracemalloc.start()
    with pytest.raises(errors.DataLossError, match=f"its length is {1 << 62} bytes but"):
        list(tf_record_iterator(tmp_path / "f", compression))
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_wrong_compression(tmp_path: Path) -> None:
    write(tmp_path / "f", SOME)
    with pytest.raises(errors.DataLossError, match="compression type"):
        list(tf_record_iterator(tmp_path / "f", "GZIP"))
    write(tmp_path / "g", SOME, "GZIP")
    with pytest.raises(errors.DataLossError):
        list(tf_record_iterator(tmp_path / "g"))


def test_truncated_compressed_file(tmp_path: Path) -> None:
    write(tmp_path / "f", [os.urandom(1000)], "GZIP")
    os.truncate(tmp_path / "f", 500)
    with pytest.raises(errors.DataLossError, match="truncated"):
        list(tf_record_iterator(tmp_path / "f", "GZIP"))
