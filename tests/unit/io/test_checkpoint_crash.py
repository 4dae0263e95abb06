"""A checkpoint is whole at any moment: when its saver is killed, when others read it or save it meanwhile."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from anabranch.io import durable
from anabranch.io.checkpoint_reader import CheckpointReader
from anabranch.io.checkpoint_store import list_files
from anabranch.io.checkpoint_writer import write_checkpoint

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def start(script: str, *args: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(HERE / script), *map(str, args)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def version_of(prefix: str) -> int:
    with CheckpointReader(prefix) as reader:
        versions = {int(value) for name in reader.names() for value in np.unique(reader.get_tensor(name))}
    assert versions == {reader.step}, "one version, and the one the manifest says"
    return versions.pop()


def test_killed_saver_leaves_one_whole_checkpoint(tmp_path: Path) -> None:
    with start("crashing_saver.py", tmp_path) as saver:
        points, _ = saver.communicate()
    assert saver.returncode == 0
    assert int(points) > 25


def test_reader_sees_one_version_while_it_is_overwritten(tmp_path: Path) -> None:
    prefix = str(tmp_path / "ckpt")
    write_checkpoint(prefix, {f"v{i}": np.zeros(2000, np.int64) for i in range(4)}, shard_bytes=1, step=0)
    seen = [0]
    with start("rewriting_saver.py", prefix, 1, 50) as saver:
        while saver.poll() is None:
            seen.append(version_of(prefix))
    assert saver.returncode == 0
    assert seen == sorted(seen)
    assert len(set(seen)) > 5, "reading and saving did overlap"
    assert version_of(prefix) == 99
    assert sorted(map(str, tmp_path.iterdir())) == sorted(list_files(prefix))


def test_two_savers_of_one_prefix(tmp_path: Path) -> None:
    prefix = str(tmp_path / "ckpt")
    write_checkpoint(prefix, {f"v{i}": np.zeros(2000, np.int64) for i in range(4)}, shard_bytes=1, step=0)
    with start("rewriting_saver.py", prefix, 1, 20) as odd, start("rewriting_saver.py", prefix, 2, 20) as even:
        while odd.poll() is None or even.poll() is None:
            version_of(prefix)
    assert (odd.returncode, even.returncode) == (0, 0)
    assert version_of(prefix) in (39, 40)
    assert sorted(map(str, tmp_path.iterdir())) == sorted(list_files(prefix))


def test_files_being_written_are_not_swept(tmp_path: Path) -> None:
    abandoned = durable.aside_name(str(tmp_path / "x"))
    written = durable.aside_name(str(tmp_path / "y"))
    Path(abandoned).write_bytes(b"")
    (tmp_path / ".other").write_bytes(b"")
    descriptor = durable.create_locked(written)
    durable.sweep(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == sorted([".other", os.path.basename(written)])
    durable.release(descriptor)
    durable.sweep(str(tmp_path))
    assert os.listdir(tmp_path) == [".other"]


def test_file_swept_between_creation_and_lock_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = durable.aside_name(str(tmp_path / "x"))
    really_lock, swept = fcntl.flock, []

    def lock(descriptor: int, operation: int) -> None:
        if not swept:
            swept.append(path)
            os.unlink(path)
        really_lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock)
    descriptor = durable.create_locked(path)
    os.write(descriptor, b"x")
    durable.release(descriptor)
    assert Path(path).read_bytes() == b"x"
