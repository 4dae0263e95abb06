"""Checkpoints that are missing, damaged or foreign, and places that cannot be written to.

Each refusal has the right class, names the file, the restoring operation and the line that created the saver, and says
what to do; variables and earlier checkpoints stay as they were. tests/unit/io/test_checkpoint_store.py flips every bit
and refuses every call of the operating system; tests/device/train/test_saver.py restores into graphs that do not fit.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.io.crc32c import crc32c
from tests.device.refusals import refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Holds a checkpoint `model-1`, whose `weights` are ones."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("weights", [64], initializer=tf.ones_initializer())
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(tmp_path / "model"), global_step=1)
    return tmp_path


@contextlib.contextmanager
def nothing_restored() -> Iterator[tuple[Any, Any]]:
    """A saver and a session for `weights`, which must still be zeros at the end."""
    weights = tf.get_variable("weights", [64], initializer=tf.zeros_initializer())
    saver = tf.train.Saver()  # the saver
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        yield saver, session
        assert not session.run(weights).any()


def shard_of(folder: Path) -> Path:
    (found,) = folder.glob("model-1.data*")
    return found


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-9] ^= 4
    path.write_bytes(data)


# ---------------------------------------------------------------------- reading
@pytest.mark.parametrize("path", [None, "model-2", "nowhere/model-1"])
def test_missing_checkpoint(folder: Path, path: str | None) -> None:
    with nothing_restored() as (saver, session):
        wanted = None if path is None else str(folder / path)
        with refused(ValueError, "None" if path is None else path, "latest_checkpoint"):
            saver.restore(session, wanted)


@pytest.mark.parametrize(
    ("part", "damage", "says"),
    [
        ("shard", truncate, ("truncated", "its manifest says", "Restore another checkpoint", "save/restore_all")),
        ("shard", flip_a_bit, ("'weights'", "checksum does not match", "Restore another checkpoint", "save/RestoreV2")),
        ("shard", Path.unlink, ("missing", "Copy the files of a checkpoint together", "save/restore_all")),
        ("manifest", truncate, ("is damaged", "Restore another checkpoint", "save/restore_all")),
        ("manifest", flip_a_bit, ("is damaged", "Restore another checkpoint", "save/restore_all")),
    ],
)
def test_damaged_checkpoint(folder: Path, part: str, damage: Callable[[Path], Any], says: tuple[str, ...]) -> None:
    path = shard_of(folder) if part == "shard" else folder / "model-1.index.json"
    damage(path)
    with nothing_restored() as (saver, session), refused(tf.errors.DataLossError, str(path), *says, line="the saver"):
        saver.restore(session, str(folder / "model-1"))


@pytest.mark.parametrize("elsewhere", ["/../../secret", "/etc/passwd", "../../x"])
def test_manifest_that_leads_out_of_its_directory(folder: Path, elsewhere: str) -> None:
    path = folder / "model-1.index.json"
    manifest = json.loads(path.read_text())
    manifest["shards"][0]["suffix"] = elsewhere
    del manifest["manifest_crc32c"]
    body = json.dumps(manifest)[:-1].encode()
    path.write_bytes(body + b',\n"manifest_crc32c": "%08x"\n}\n' % crc32c(body))  # sealed, as an attacker would
    parts = (str(path), "may not lead to other files", "save/restore_all")
    with nothing_restored() as (saver, session), refused(tf.errors.InvalidArgumentError, *parts, line="the saver"):
        saver.restore(session, str(folder / "model-1"))


def test_link_that_leads_out_of_its_directory(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    shard, outside = shard_of(folder), tmp_path_factory.mktemp("outside") / "file"
    shard.rename(outside)
    shard.symlink_to(outside)
    parts = (str(shard), "leads out of its directory", "save/restore_all")
    with nothing_restored() as (saver, session), refused(tf.errors.InvalidArgumentError, *parts, line="the saver"):
        saver.restore(session, str(folder / "model-1"))


def test_checkpoint_of_another_graph(folder: Path) -> None:
    weights = tf.get_variable("weights", [65], initializer=tf.zeros_initializer())
    tf.get_variable("bias", [2])
    saver = tf.train.Saver()  # the saver of another graph
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        parts = ("Key bias not found", "weights: wanted float32 [65], stored float32 [64]", "restore_partial")
        with refused(tf.errors.NotFoundError, *parts, line="the saver of another graph"):
            saver.restore(session, str(folder / "model-1"))
        assert not session.run(weights).any()


# ---------------------------------------------------------------------- writing
@contextlib.contextmanager
def nothing_saved(folder: Path) -> Iterator[tuple[Any, Any]]:
    """A saver and a session for other `weights`; the checkpoint in the folder must not change."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    weights = tf.get_variable("weights", [64], initializer=tf.zeros_initializer())
    saver = tf.train.Saver()  # the writing saver
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        yield saver, session
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        assert tf.train.latest_checkpoint(str(folder)) == str(folder / "model-1")
        saver.restore(session, str(folder / "model-1"))
        assert session.run(weights).tolist() == [1.0] * 64


def refusing(number: int) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("step", [1, 2])
def test_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    with nothing_saved(folder) as (saver, session):
        monkeypatch.setattr(os, "write", refusing(errno.ENOSPC))
        parts = (str(folder / f"model-{step}"), "No space left on device", "'save/SaveV2'")
        with refused(tf.errors.ResourceExhaustedError, *parts, line="the writing saver"):
            saver.save(session, str(folder / "model"), global_step=step)
        monkeypatch.undo()


@pytest.mark.parametrize("call", ["open", "replace"])
def test_unwritable_directory(folder: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """The operating system's answer is imitated: the superuser may write everywhere."""
    with nothing_saved(folder) as (saver, session):
        monkeypatch.setattr(os, call, refusing(errno.EACCES))
        with refused(tf.errors.PermissionDeniedError, str(folder / "model-2"), "Permission denied", "save/"):
            saver.save(session, str(folder / "model"), global_step=2)
        monkeypatch.undo()


@pytest.mark.parametrize("place", ["no/such/model", "file/model"])
def test_directory_that_is_not_there(folder: Path, place: str) -> None:
    (folder / "file").write_text("a file where a directory is expected")
    with nothing_saved(folder) as (saver, session), refused(ValueError, place, "Parent directory", "doesn't exist"):
        saver.save(session, str(folder / place))


def test_variables_without_values_are_not_saved(folder: Path) -> None:
    parts = ("uninitialized value weights", "initializer")
    with nothing_saved(folder) as (saver, _), refused(tf.errors.FailedPreconditionError, *parts):
        saver.save(tf.Session(), str(folder / "model"), global_step=2)


def test_what_was_saved_can_be_read_elsewhere(folder: Path) -> None:
    """The files that the refusals above protect are the whole checkpoint."""
    assert tf.train.list_variables(str(folder / "model-1")) == [("weights", [64])]
    np.testing.assert_array_equal(tf.train.load_variable(str(folder), "weights"), np.ones(64, np.float32))
