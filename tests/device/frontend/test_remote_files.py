"""Files at addresses (memory:// of fsspec): what takes them, and what refuses them in words."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

import anabranch as tf
from anabranch.io import gfile


@pytest.fixture
def folder() -> str:
    """An empty one, at an address."""
    pytest.importorskip("fsspec")
    path = f"memory://{uuid.uuid4().hex}"
    tf.gfile.MakeDirs(path)
    return path


def test_files_and_directories(folder: str, tmp_path: Path) -> None:
    name = f"{folder}/a/b.txt"
    tf.gfile.MakeDirs(f"{folder}/a")
    with tf.gfile.GFile(name, "w") as file:
        file.write("one\ntwo\n")
    with tf.gfile.GFile(name) as file:
        assert file.readlines() == ["one\n", "two\n"]
        file.seek(4)
        assert file.read(3) == "two"
    assert tf.gfile.Exists(name)
    assert (tf.gfile.IsDirectory(f"{folder}/a"), tf.gfile.IsDirectory(name)) == (True, False)
    assert tf.gfile.ListDirectory(folder) == ["a"]
    assert (tf.gfile.Stat(name).length, tf.gfile.Stat(name).is_directory) == (8, False)
    assert gfile.glob(f"{folder}/a/*.txt") == [name.replace("memory://", "memory:///")]
    assert list(tf.gfile.Walk(folder)) == [(folder, ["a"], []), (f"{folder}/a", [], ["b.txt"])]
    local = str(tmp_path / "copy")
    tf.gfile.Copy(name, local)
    tf.gfile.Copy(local, f"{folder}/back")
    assert Path(local).read_text() == "one\ntwo\n"
    with pytest.raises(tf.errors.AlreadyExistsError):
        tf.gfile.Copy(local, f"{folder}/back")
    tf.gfile.Rename(f"{folder}/back", f"{folder}/new")
    assert tf.gfile.ListDirectory(folder) == ["a", "new"]
    tf.gfile.Remove(f"{folder}/new")
    tf.gfile.DeleteRecursively(f"{folder}/a")
    assert not tf.gfile.Exists(name)
    with pytest.raises(tf.errors.NotFoundError):
        tf.gfile.GFile(name).read()
    with pytest.raises(tf.errors.UnimplementedError, match="Copy, then remove"):
        tf.gfile.Rename(local, f"{folder}/x")


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_readers(folder: str, compression: str) -> None:
    name = f"{folder}/records"
    with tf.python_io.TFRecordWriter(name, compression) as writer:
        for i in range(3):
            writer.write(b"record %d" % i)
    expected = [b"record 0", b"record 1", b"record 2"]
    assert list(tf.python_io.tf_record_iterator(name, compression)) == expected
    with tf.Graph().as_default(), tf.Session() as session:
        element = tf.data.TFRecordDataset(name, compression).make_one_shot_iterator().get_next()
        assert [session.run(element) for _ in range(3)] == expected
        with tf.gfile.GFile(f"{folder}/text", "w") as file:
            file.write("a\nb\n")
        assert session.run(tf.read_file(f"{folder}/text")) == b"a\nb\n"
        line = tf.data.TextLineDataset(f"{folder}/text").make_one_shot_iterator().get_next()
        assert [session.run(line) for _ in range(2)] == [b"a", b"b"]


@pytest.mark.parametrize(
    "use",
    [
        lambda session, path: tf.train.Saver().save(session, f"{path}/model"),
        lambda session, path: tf.train.Saver().restore(session, f"{path}/model"),
        lambda session, path: tf.train.latest_checkpoint(path),
        lambda session, path: tf.train.list_variables(f"{path}/model"),
        lambda session, path: tf.summary.FileWriter(path),
    ],
)
def test_what_needs_a_local_directory_says_so(use: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("v", [])
        session.run(variable.initializer)
        with pytest.raises(tf.errors.UnimplementedError, match="in local directories only, got 'gs://bucket"):
            use(session, "gs://bucket/run")
    assert list(tmp_path.iterdir()) == [], "no directory called gs: was made"


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    for use in (tf.gfile.Exists, tf.gfile.Glob, tf.gfile.MakeDirs, lambda path: tf.gfile.GFile(path).read()):
        with pytest.raises(tf.errors.UnimplementedError, match=r"pip install 'anabranch\[remote\]'"):
            use("gs://bucket/file")


def test_a_scheme_that_nobody_knows() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(tf.errors.InvalidArgumentError, match="nosuch"):
        tf.gfile.Exists("nosuch://bucket/file")
