"""`RecordInput`: batches of the records of many files, without an end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as tf
from anabranch.ops import raw


def write(folder: Path, files: int, each: int, compression: str = "") -> set[bytes]:
    written = set()
    for number in range(files):
        with tf.io.TFRecordWriter(str(folder / f"part-{number}"), compression) as writer:
            for record in range(each):
                written.add(f"{number}/{record}".encode())
                writer.write(f"{number}/{record}".encode())
    return written


def taken(folder: Path, batches: int, size: int, **attrs: Any) -> list[list[bytes]]:
    with tf.Graph().as_default(), tf.Session() as session:
        batch = raw.RecordInput(file_pattern=str(folder / "part-*"), batch_size=size, **attrs)
        assert batch.shape.as_list() == [size]
        return [session.run(batch).tolist() for _ in range(batches)]


@pytest.mark.parametrize(("ahead", "shift"), [(1, 0.0), (4, 0.5), (10000, 1.0)])
@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_each_record_comes_once_in_an_epoch(tmp_path: Path, ahead: int, shift: float, compression: str) -> None:
    written = write(tmp_path, files=3, each=4, compression=compression)
    options = {"file_buffer_size": ahead, "file_shuffle_shift_ratio": shift, "compression_type": compression}
    batches = taken(tmp_path, batches=6, size=4, **options)
    flat = [record for batch in batches for record in batch]
    assert set(flat[:12]) == set(flat[12:]) == written
    assert ahead == 1 or flat[:12] != flat[12:]


def test_a_seed_decides_the_order(tmp_path: Path) -> None:
    write(tmp_path, files=4, each=5)
    first, again, other = (taken(tmp_path, 4, 5, file_random_seed=seed) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(tf.errors.NotFoundError, match="Found no files"):
        taken(tmp_path, 1, 2)
    write(tmp_path, files=2, each=0)
    with pytest.raises(tf.errors.NotFoundError, match="have no records"):
        taken(tmp_path, 1, 2)
    (tmp_path / "part-0").write_bytes(b"no record at all")
    with pytest.raises(tf.errors.DataLossError):
        taken(tmp_path, 1, 2)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"file_buffer_size": 0}, "file_buffer_size must be positive"),
        ({"file_shuffle_shift_ratio": 1.5}, "from 0 to 1"),
        ({"file_parallelism": 0}, "file_parallelism must be positive"),
    ],
)
def test_numbers_that_say_nothing_are_refused(tmp_path: Path, attrs: dict[str, Any], message: str) -> None:
    write(tmp_path, files=1, each=1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        taken(tmp_path, 1, 1, **attrs)


def test_a_negative_size_is_refused() -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError, match="must not be negative"):
        raw.RecordInput(file_pattern="x", batch_size=-1)
