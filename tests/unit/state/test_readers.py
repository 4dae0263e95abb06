"""Readers: records, positions, corrupt files, and reads that are given up."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch.core import dtypes
from anabranch.core.pending import Pending
from anabranch.core.shapes import TensorShape
from anabranch.errors import (
    CancelledError,
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
)
from anabranch.io.records import TFRecordWriter
from anabranch.state.components import Components
from anabranch.state.element_stores import FifoStore
from anabranch.state.queue import Queue
from anabranch.state.readers import (
    ContentReader,
    FixedRecordReader,
    LineReader,
    NameReader,
    Reader,
    RecordReader,
)

GIVEN_UP = CancelledError(None, None, "given up")


def names(*paths: Any, closed: bool = True) -> Queue:
    components = Components((dtypes.string,), (TensorShape([]),), "FIFOQueue 'names'")
    queue = Queue("names", "FIFOQueue", components, 100, FifoStore())
    for path in paths:
        put(queue, path)
    if closed:
        queue.request_close()
    return queue


def put(queue: Queue, path: Any) -> None:
    element = np.empty((), object)
    element[()] = path if isinstance(path, bytes) else str(path).encode()
    queue.enqueue([element])


def all_records(reader: Reader, queue: Queue) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = []
    while True:
        try:
            key, value = reader.read(queue.dequeue).wait()
        except OutOfRangeError:
            return found
        found.append((key, value))


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def write_records(path: Path, *records: bytes, options: Any = None) -> Path:
    with TFRecordWriter(path, options) as writer:
        for record in records:
            writer.write(record)
    return path


def test_identity_and_whole_files(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", b"one\0"), write(tmp_path / "b", b"")
    keys = [str(a).encode(), str(b).encode()]
    assert all_records(NameReader("r"), names(a, b)) == [(k, k) for k in keys]
    reader = ContentReader("r")
    assert all_records(reader, names(a, b)) == [(keys[0], b"one\0"), (keys[1], b"")]
    assert (reader.records_produced(), reader.work_units_completed()) == (2, 2)


def test_lines(tmp_path: Path) -> None:
    a = write(tmp_path / "a", b"head\none\r\ntwo")
    b = write(tmp_path / "b", b"head\n")
    reader = LineReader("r", 1)
    found = all_records(reader, names(a, b))
    assert found == [(f"{a}:2".encode(), b"one"), (f"{a}:3".encode(), b"two")]
    assert reader.work_units_completed() == 2


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_records(tmp_path: Path, compression: str) -> None:
    path = write_records(tmp_path / "r", b"first", b"", b"third", options=compression)
    found = all_records(RecordReader("r", compression), names(path))
    assert found == [
        (f"{path}:0".encode(), b"first"),
        (f"{path}:21".encode(), b""),
        (f"{path}:37".encode(), b"third"),
    ]


@pytest.mark.parametrize("encoding", ["", "GZIP", "ZLIB"])
def test_pieces_of_one_length(tmp_path: Path, encoding: str) -> None:
    data = b"HEAD" + b"aabbccd" + b"FT"
    packed = {"": data, "GZIP": gzip.compress(data), "ZLIB": zlib.compress(data)}[encoding]
    path = write(tmp_path / "f", packed)
    values = [v for _, v in all_records(FixedRecordReader("r", 4, 2, 2, 0, encoding), names(path))]
    assert values == [b"aa", b"bb", b"cc"]
    found = all_records(FixedRecordReader("r", 4, 3, 2, 2, encoding), names(path))
    assert found == [(f"{path}:{i}".encode(), v) for i, v in enumerate([b"aab", b"bbc", b"ccd"])]


def test_several_records_of_one_file(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", b"1\n2\n3\n"), write(tmp_path / "b", b"4\n")
    reader, queue = LineReader("r", 0), names(a, b)
    batches = [reader.read_up_to(queue.dequeue, 2).wait()[1].tolist() for _ in range(3)]
    assert batches == [[b"1", b"2"], [b"3"], [b"4"]]
    with pytest.raises(OutOfRangeError):
        reader.read_up_to(queue.dequeue, 2).wait()
    with pytest.raises(InvalidArgumentError, match="must be positive"):
        reader.read_up_to(queue.dequeue, 0)


# ---------------------------------------------------------------------- waiting
def test_reads_wait_for_names_in_order(tmp_path: Path) -> None:
    a = write(tmp_path / "a", b"1\n2\n3\n")
    reader, queue = LineReader("r", 0), names(closed=False)
    reads = [reader.read(queue.dequeue) for _ in range(3)]
    assert not any(r.is_settled for r in reads)
    put(queue, a)
    assert [r.values[1] for r in reads] == [b"1", b"2", b"3"]
    reader.close()


def test_a_read_that_is_given_up_loses_nothing(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", b"1\n2\n"), write(tmp_path / "b", b"3\n")
    reader, queue = LineReader("r", 0), names(closed=False)
    first, second, third = (reader.read(queue.dequeue) for _ in range(3))
    assert first.cancel(GIVEN_UP)
    assert third.cancel(GIVEN_UP)
    assert first.error is GIVEN_UP
    assert not second.is_settled
    put(queue, a)
    assert second.values[1] == b"1"
    put(queue, b)
    queue.request_close()
    assert [v for _, v in all_records(reader, queue)] == [b"2", b"3"]


def test_a_reader_whose_container_goes_away() -> None:
    reader, queue = NameReader("r"), names(closed=False)
    waiting = reader.read(queue.dequeue)
    reader.close()
    assert isinstance(waiting.error, CancelledError)
    assert isinstance(reader.read(queue.dequeue).error, CancelledError)


# ---------------------------------------------------------------------- corrupt and missing files
def test_a_missing_file_is_named_and_skipped(tmp_path: Path) -> None:
    good = write(tmp_path / "good", b"x\n")
    reader, queue = LineReader("r", 0), names(tmp_path / "missing", good)
    with pytest.raises(NotFoundError, match="missing"):
        reader.read(queue.dequeue).wait()
    assert reader.read(queue.dequeue).wait()[1] == b"x"
    reader.close()


def test_a_name_that_no_file_can_have_fails_its_read_only(tmp_path: Path) -> None:
    good = write(tmp_path / "good", b"x\n")
    reader, queue = LineReader("r", 0), names("a\0b", good)
    with pytest.raises(InvalidArgumentError, match=r"'a\\x00b'"):
        reader.read(queue.dequeue).wait()
    assert reader.read(queue.dequeue).wait()[1] == b"x"
    reader.close()


def test_whatever_a_reader_raises_fails_its_read_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reader, queue = LineReader("r", 0), names(write(tmp_path / "a", b"x\n"), write(tmp_path / "b", b"y\n"))
    with monkeypatch.context() as patch:
        patch.setattr(reader, "open_file", lambda work: bytes(work, "utf-8"))
        with pytest.raises(TypeError):
            reader.read(queue.dequeue).wait()
    assert reader.read(queue.dequeue).wait()[1] == b"y"
    reader.close()


def test_a_corrupt_record_names_file_and_offset(tmp_path: Path) -> None:
    path = write_records(tmp_path / "records", b"first", b"second", b"third")
    data = bytearray(path.read_bytes())
    data[21 + 12] ^= 1
    path.write_bytes(bytes(data))
    reader, queue = RecordReader("r", ""), names(path)
    assert reader.read(queue.dequeue).wait()[1] == b"first"
    with pytest.raises(DataLossError, match="records' at byte offset 21"):
        reader.read(queue.dequeue).wait()
    with pytest.raises(OutOfRangeError):
        reader.read(queue.dequeue).wait()


def test_intact_records_before_a_corrupt_one_are_given_first(tmp_path: Path) -> None:
    path = write_records(tmp_path / "records", b"first", b"second")
    path.write_bytes(path.read_bytes()[:-1])
    reader, queue = RecordReader("r", ""), names(path)
    assert reader.read_up_to(queue.dequeue, 10).wait()[1].tolist() == [b"first"]
    with pytest.raises(DataLossError, match="truncated"):
        reader.read_up_to(queue.dequeue, 10).wait()


def test_wrong_lengths_and_encodings(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="header_bytes must be >= 0"):
        FixedRecordReader("r", -1, 1, 0, 0, "")
    path = write(tmp_path / "f", b"not compressed")
    with pytest.raises(InvalidArgumentError, match="cannot decompress .*f' as GZIP"):
        FixedRecordReader("r", 0, 1, 0, 0, "GZIP").read(names(path).dequeue).wait()


# ---------------------------------------------------------------------- positions
def kinds(tmp_path: Path) -> list[tuple[Any, Path]]:
    return [
        (lambda: LineReader("r", 0), write(tmp_path / "lines", b"1\n2\n3\n4\n")),
        (lambda: RecordReader("r", ""), write_records(tmp_path / "records", b"1", b"2", b"3", b"4")),
        (lambda: FixedRecordReader("r", 0, 1, 0, 0, ""), write(tmp_path / "fixed", b"1234")),
    ]


def test_a_position_is_saved_and_restored(tmp_path: Path) -> None:
    for make, path in kinds(tmp_path):
        reader, queue = make(), names(path)
        for _ in range(2):
            reader.read(queue.dequeue).wait()
        state = reader.serialize()
        other = make()
        other.restore(state)
        assert other.records_produced() == 2
        for one, source in ((reader, queue), (other, names())):
            assert [v for _, v in all_records(one, source)] == [b"3", b"4"]
        assert other.work_units_completed() == 1


def test_what_is_no_position_is_refused(tmp_path: Path) -> None:
    reader = NameReader("r")
    reader.read(names(b"a").dequeue).wait()
    state = reader.serialize()
    for wrong in (state[1:], state[:-1], state + b"x", b"x" + state, b"", b"[]", ContentReader("w").serialize()):
        with pytest.raises(InvalidArgumentError, match="Could not parse state for IdentityReader 'r': "):
            reader.restore(wrong)
    reader.restore(state)
    assert reader.records_produced() == 1
    reader.reset()
    assert reader.records_produced() == 0


def test_settled_results_have_values(tmp_path: Path) -> None:
    found: Pending = NameReader("r").read(names(b"a").dequeue)
    assert found.is_settled
    assert found.values == (b"a", b"a")
