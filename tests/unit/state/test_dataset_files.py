"""Datasets of generators and of files: records, lines, numbers of fixed length, caches; and damaged files."""

from __future__ import annotations

import gzip
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from anabranch.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    ResourceExhaustedError,
)
from anabranch.io.records import TFRecordWriter
from anabranch.state import dataset_files as files
from anabranch.state.dataset_functions import (
    MapDataset,
)
from anabranch.state.dataset_transforms import (
    RepeatDataset,
)
from anabranch.state.datasets import (
    Element,
    Elements,
    GeneratorDataset,
    RangeDataset,
)
from anabranch.state.positions import decode_position, encode_position
from tests.unit.state.dataset_walks import continued, plain, rest_of, taken


def test_a_generator_starts_for_every_walk_and_is_finished() -> None:
    running: dict[int, Any] = {}

    def start() -> Element:
        running[len(running)] = iter(range(3))
        return (np.asarray(len(running) - 1),)

    def step(number: Any) -> Element:
        try:
            return (np.asarray(next(running[int(number)])),)
        except StopIteration:
            raise OutOfRangeError(None, None, "end") from None

    def finish(number: Any) -> Element:
        finished.append(int(number))
        return ()

    finished: list[int] = []
    dataset = GeneratorDataset(start, step, finish)
    assert taken(RepeatDataset(dataset, 2)) == [0, 1, 2, 0, 1, 2]
    assert finished == [0, 1]
    assert continued(lambda: dataset, 2) == [2]
    # it had more elements when its position was taken
    shorter = dataset.iterator()
    shorter.restore([5, False])
    assert [shorter.next(), shorter.next()] == [None, None]
    iterator = dataset.iterator()
    iterator.next()
    iterator.close()
    assert finished[-1] == len(running) - 1


@given(st.lists(st.binary(max_size=6), max_size=6), st.integers(0, 14), st.sampled_from(["", "GZIP", "ZLIB"]))
def test_records_of_several_files(tmp_path_factory: Any, records: list[bytes], steps: int, compression: str) -> None:
    folder = tmp_path_factory.mktemp("records")
    paths = [str(folder / "a"), str(folder / "b")]
    for path in paths:
        with TFRecordWriter(path, compression) as writer:
            for record in records:
                writer.write(record)

    def make() -> Elements:
        return files.record_dataset(paths, compression, 0)

    assert taken(make()) == records * 2
    assert continued(make, steps) == (records * 2)[steps:]


@given(st.lists(st.text("ab\r", max_size=4), max_size=6), st.booleans(), st.integers(0, 14))
def test_lines_of_several_files(tmp_path_factory: Any, lines: list[str], newline: bool, steps: int) -> None:
    folder = tmp_path_factory.mktemp("lines")
    text = "\n".join(lines) + ("\n" if newline and lines else "")
    paths = [str(folder / "a"), str(folder / "b")]
    for path in paths:
        with open(path, "w", newline="") as file:
            file.write(text)
    expected = [line.replace("\r", "").encode() for line in text.split("\n")]
    if expected[-1] == b"" and (not text or text.endswith("\n")):
        expected.pop()

    def make() -> Elements:
        return files.line_dataset(paths, "", 0)

    assert taken(make()) == expected * 2
    assert continued(make, steps) == (expected * 2)[steps:]


@pytest.mark.parametrize("footer", [0, 2])
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_records_of_one_length(tmp_path: Any, footer: int, compression: str) -> None:
    content = b"HH" + b"abcdefghi" + b"F" * footer
    path = tmp_path / "fixed"
    path.write_bytes(gzip.compress(content) if compression else content)

    def make(length: int = 3) -> Elements:
        return files.fixed_length_dataset([str(path)], length, 2, footer, 0, compression)

    for steps in range(4):
        assert continued(make, steps) == [b"abc", b"def", b"ghi"][steps:]
    if not compression:
        with pytest.raises(InvalidArgumentError, match="body length 9 bytes.*record length .4 bytes"):
            taken(make(4))


def test_damaged_files_are_named_with_the_offset(tmp_path: Any) -> None:
    path, good = tmp_path / "bad", str(tmp_path / "good")
    for name in (str(path), good):
        with TFRecordWriter(name) as writer:
            for record in (b"first", b"second"):
                writer.write(record)
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    path.write_bytes(bytes(data))
    iterator = files.record_dataset([str(path), good], "", 0).iterator()
    assert plain(iterator.next() or ()) == b"first"
    with pytest.raises(DataLossError, match=r"bad' at byte offset 21: corrupted record"):
        iterator.next()
    assert rest_of(iterator) == [b"first", b"second"]
    path.write_bytes(bytes(data[:30]))
    with pytest.raises(DataLossError, match=r"bad' at byte offset 21: truncated"):
        taken(files.record_dataset([str(path)], "", 0))
    with pytest.raises(NotFoundError, match="nowhere"):
        taken(files.line_dataset([str(tmp_path / "nowhere")], "", 0))
    with pytest.raises(DataLossError, match="check the compression type"):
        taken(files.line_dataset([good], "ZLIB", 0))


def test_a_cache_in_a_file_is_complete_or_absent(tmp_path: Any) -> None:
    calls: list[int] = []

    def counted(x: Any) -> Element:
        calls.append(int(x))
        return (np.asarray(x), np.array([b"t"], object))

    def make() -> Elements:
        return files.FileCacheDataset(MapDataset(RangeDataset(0, 3, 1), counted), str(tmp_path / "cache"))

    broken = make().iterator()
    broken.next()
    broken.close()
    assert list(tmp_path.iterdir()) == []
    expected = [(0, [b"t"]), (1, [b"t"]), (2, [b"t"])]
    assert taken(make()) == expected
    calls.clear()
    assert taken(make()) == expected
    assert continued(make, 2) == expected[2:]
    assert calls == []
    # what the saved pass read is gone when it is restored, and computed again up to its place
    reading = make().iterator()
    reading.next()
    position = decode_position(encode_position(reading.position()))
    reading.close()
    (tmp_path / "cache.cache").unlink()
    restored = make().iterator()
    restored.restore(position)
    assert rest_of(restored) == expected[1:]


def test_a_cache_that_cannot_be_written_is_none(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Elements:
        return files.FileCacheDataset(RangeDataset(0, 4, 1), str(tmp_path / "cache"))

    full = ResourceExhaustedError(None, None, "no space left")
    written: list[bytes] = []
    write = TFRecordWriter.write

    def second_fails(self: TFRecordWriter, record: bytes) -> None:
        written.append(record)
        if len(written) == 2:
            raise full
        write(self, record)

    monkeypatch.setattr(TFRecordWriter, "write", second_fails)
    walk = make().iterator()
    assert plain(walk.next() or ()) == 0
    with pytest.raises(ResourceExhaustedError, match="no space"):
        walk.next()
    assert rest_of(walk) == [2, 3]
    assert walk.next() is None
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert taken(make()) == taken(make()) == [0, 1, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == ["cache.cache"]
