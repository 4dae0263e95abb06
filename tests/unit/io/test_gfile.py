"""Files by name: `tf.gfile` and `tf.io.gfile`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch import errors
from anabranch.io import gfile


def test_text_and_bytes(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    with gfile.GFile(path, "w") as file:
        file.write("naïve\n")
        file.write(b"bytes\r\n")
        file.write("last")
    with gfile.Open(path) as file:
        assert file.read() == "naïve\nbytes\r\nlast"
        assert file.read() == ""
    with gfile.FastGFile(path, "rb") as file:
        assert file.read(6) == "naïve".encode()
        assert file.tell() == 6
        assert file.read(-1) == b"\nbytes\r\nlast"
        assert file.size() == 18
    assert (file.name, file.mode, file.seekable()) == (path, "rb", True)


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one\ntwo\n\nfour")
    assert list(gfile.GFile(path)) == ["one\n", "two\n", "\n", "four"]
    file = gfile.GFile(path, "rb")
    assert file.readline() == b"one\n"
    assert file.readlines() == [b"two\n", b"\n", b"four"]
    assert file.readline() == b""
    file.close()


def test_append_and_seek(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    for text in ("ab", "cd"):
        with gfile.GFile(path, "a") as file:
            file.write(text)
    with gfile.GFile(path, "r+") as file:
        file.seek(1)
        assert file.read(1) == "b"
        file.seek(-1, 2)
        assert file.read() == "d"
        file.seek(position=0)
        file.seek(1, 1)
        assert file.tell() == 1
        file.write("X")
    assert gfile.GFile(path).read() == "aXcd"


def test_seek_errors(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"ab")
    with gfile.GFile(tmp_path / "f") as file:
        with pytest.raises(TypeError, match="offset argument required"):
            file.seek()
        with pytest.raises(errors.InvalidArgumentError, match="Invalid whence argument: 7"):
            file.seek(0, 7)
        with pytest.raises(errors.InvalidArgumentError):
            file.seek(-1)


def test_open_late_and_only_as_the_mode_says(tmp_path: Path) -> None:
    file = gfile.GFile(str(tmp_path / "missing"))
    with pytest.raises(errors.NotFoundError, match="missing"):
        file.read()
    with pytest.raises(errors.PermissionDeniedError, match="open for writing"):
        file.write("x")
    with pytest.raises(errors.PermissionDeniedError, match="open for reading"):
        gfile.GFile(str(tmp_path / "f"), "w").read()
    with pytest.raises(errors.InvalidArgumentError, match="'q'"):
        gfile.GFile("f", "q")


def test_written_bytes_are_there_after_flush(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with gfile.GFile(path, "w") as file:
        file.write("x")
        file.flush()
        assert path.read_bytes() == b"x"


def test_directories(tmp_path: Path) -> None:
    deep = str(tmp_path / "a" / "b")
    gfile.MakeDirs(deep)
    gfile.MakeDirs(deep)
    assert gfile.IsDirectory(deep)
    assert gfile.Exists(deep)
    with pytest.raises(errors.AlreadyExistsError):
        gfile.MkDir(deep)
    with pytest.raises(errors.NotFoundError):
        gfile.MkDir(str(tmp_path / "x" / "y"))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.FailedPreconditionError):
        gfile.MakeDirs(str(tmp_path / "file"))
    with pytest.raises(errors.FailedPreconditionError):
        gfile.MakeDirs(str(tmp_path / "file" / "below"))
    assert gfile.ListDirectory(str(tmp_path)) == ["a", "file"]
    with pytest.raises(errors.NotFoundError, match="nowhere"):
        gfile.ListDirectory(str(tmp_path / "nowhere"))
    gfile.DeleteRecursively(str(tmp_path / "a"))
    assert not gfile.Exists(deep)
    with pytest.raises(errors.NotFoundError):
        gfile.DeleteRecursively(str(tmp_path / "a"))


def test_remove(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    gfile.Remove(tmp_path / "f")
    with pytest.raises(errors.NotFoundError):
        gfile.Remove(tmp_path / "f")
    with pytest.raises((errors.FailedPreconditionError, errors.PermissionDeniedError)):
        gfile.Remove(tmp_path)


def test_delete_recursively_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "f").write_bytes(b"")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "link").symlink_to(tmp_path / "kept")
    gfile.DeleteRecursively(tmp_path / "gone")
    assert (tmp_path / "kept" / "f").exists()


@pytest.mark.parametrize("move", [gfile.Copy, gfile.Rename])
def test_copy_and_rename(tmp_path: Path, move: object) -> None:
    assert callable(move)
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_bytes(b"new")
    target.write_bytes(b"old")
    with pytest.raises(errors.AlreadyExistsError):
        move(str(source), str(target))
    assert target.read_bytes() == b"old"
    move(str(source), str(target), overwrite=True)
    assert target.read_bytes() == b"new"
    assert source.exists() == (move is gfile.Copy)
    with pytest.raises(errors.NotFoundError):
        move(str(tmp_path / "missing"), str(tmp_path / "u"))
    assert not (tmp_path / "u").exists()


def test_glob(tmp_path: Path) -> None:
    for name in ("a1", "a2", "b1", ".hidden", "[x]"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a3").write_bytes(b"")

    def names(pattern: object) -> list[str]:
        return [os.path.relpath(path, tmp_path) for path in gfile.Glob(pattern)]  # type: ignore[arg-type]

    assert names(str(tmp_path / "a*")) == ["a1", "a2"]
    assert names([str(tmp_path / "b*"), str(tmp_path / "a?")]) == ["b1", "a1", "a2"]
    assert names(str(tmp_path / "[^a]1")) == ["b1"]
    assert names(str(tmp_path / "*" / "a*")) == ["d/a3"]
    assert names(str(tmp_path / "\\[x\\]")) == ["[x]"]
    assert names(str(tmp_path / "*")) == [".hidden", "[x]", "a1", "a2", "b1", "d"]
    assert names(str(tmp_path / "none" / "*")) == []


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["./.h", "./[x].txt", "./a.txt", "./b.txt", "./sub", "./sub2"]),
        ("./*", ["./.h", "./[x].txt", "./a.txt", "./b.txt", "./sub", "./sub2"]),
        ("*.txt", ["./[x].txt", "./a.txt", "./b.txt"]),
        ("./*.txt", ["./[x].txt", "./a.txt", "./b.txt"]),
        ("?.txt", ["./a.txt", "./b.txt"]),
        ("[ab].txt", ["./a.txt", "./b.txt"]),
        ("\\[x].txt", ["./[x].txt"]),
        ("a.txt", ["a.txt"]),
        ("./a.txt", ["./a.txt"]),
        (".*", ["./.h"]),
        ("sub/*", ["sub/c.txt"]),
        ("./sub/*", ["./sub/c.txt"]),
        ("sub/./*", ["sub/./c.txt"]),
        ("sub/../?.txt", ["sub/../a.txt", "sub/../b.txt"]),
        ("sub*/*", ["./sub/c.txt", "./sub2/c.txt"]),
        ("*/c.txt", ["./sub/c.txt", "./sub2/c.txt"]),
        ("sub*/", ["./sub", "./sub2"]),
        ("sub", ["sub"]),
        (".", ["."]),
        (["sub/*", "?.txt"], ["sub/c.txt", "./a.txt", "./b.txt"]),
        ("nope*", []),
    ],
)
def test_found_paths_begin_as_tensorflows_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str | list[str], expected: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.txt", ".h", "[x].txt", "sub/c.txt", "sub2/c.txt"):
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        Path(name).write_bytes(b"")
    assert gfile.glob(pattern) == expected  # type: ignore[arg-type]


def test_a_found_path_keeps_the_scheme_of_its_pattern(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    assert gfile.glob(f"file://{tmp_path}/*") == [f"file://{tmp_path}/a"]
    assert gfile.exists(gfile.glob(f"file://{tmp_path}/*")[0])


def test_stat(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    statistics = gfile.Stat(tmp_path / "f")
    assert (statistics.length, statistics.is_directory) == (3, False)
    assert statistics.mtime_nsec == (tmp_path / "f").stat().st_mtime_ns
    assert gfile.Stat(tmp_path).is_directory
    with pytest.raises(errors.NotFoundError):
        gfile.Stat(tmp_path / "missing")


def test_walk(tmp_path: Path) -> None:
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "f").write_bytes(b"")
    (tmp_path / "g").write_bytes(b"")
    top = str(tmp_path)
    expected = [(top, ["d"], ["g"]), (f"{top}/d", ["e"], ["f"]), (f"{top}/d/e", [], [])]
    assert list(gfile.Walk(top)) == expected
    assert list(gfile.Walk(top, in_order=False)) == expected[::-1]
    assert list(gfile.walk(str(tmp_path / "missing"))) == []


def test_names_of_version_two_are_the_same_functions(tmp_path: Path) -> None:
    gfile.makedirs(tmp_path / "a" / "b")
    gfile.mkdir(tmp_path / "c")
    gfile.GFile(tmp_path / "c" / "f", "w").write("x")
    assert gfile.listdir(tmp_path) == ["a", "c"]
    assert gfile.isdir(tmp_path / "a")
    assert gfile.exists("file://" + str(tmp_path / "a"))
    gfile.rmtree(tmp_path / "a")
    assert gfile.glob(str(tmp_path / "*")) == [str(tmp_path / "c")]
    gfile.rename(tmp_path / "c", tmp_path / "d")
    assert gfile.stat(tmp_path / "d").is_directory
