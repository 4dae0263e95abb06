"""Whole files as bytes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from anabranch import errors
from anabranch.io.whole_files import read_all


@pytest.mark.parametrize("size", [0, 1, 4096, (3 << 20) + 7])
def test_contents(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(size))
    assert read_all(os.fsencode(path)) == path.read_bytes()
    assert read_all(b"file://" + os.fsencode(path)) == path.read_bytes()


def test_what_has_no_size(tmp_path: Path) -> None:
    """Files of the system say that they are empty; a pipe gives what its writer has written so far."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    contents = os.urandom((2 << 20) + 3)
    writer = threading.Thread(target=path.write_bytes, args=(contents,), daemon=True)
    writer.start()
    assert read_all(os.fsencode(path)) == contents
    writer.join(10)
    assert b"Linux" in read_all(b"/proc/version") or not Path("/proc/version").exists()


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="nobody"):
        read_all(os.fsencode(tmp_path / "nobody"))
    with pytest.raises(errors.FailedPreconditionError, match="directory"):
        read_all(os.fsencode(tmp_path))


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    before = os.open(path, os.O_RDONLY)
    os.close(before)
    for _ in range(50):
        read_all(os.fsencode(path))
        with pytest.raises(errors.FailedPreconditionError):
            read_all(os.fsencode(tmp_path))
    after = os.open(path, os.O_RDONLY)
    os.close(after)
    assert after == before
