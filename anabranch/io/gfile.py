"""Files by name: `tf.gfile` (TensorFlow 1's names) and `tf.io.gfile` (lower case).

Paths are local, where a `file://` prefix is accepted and ignored, or addresses (gs://, s3://, ...: see `io.remote`).
Where the system refuses, the error is one of `anabranch.errors`.
"""

from __future__ import annotations

import dataclasses
import glob as _glob
import os
import re
import shutil
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from anabranch import errors
from anabranch.io import os_errors, remote

Path: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"
#: What is read from a file: `bytes` if its mode has a "b", else `str`.
Contents: TypeAlias = Any

_WILD: Final = re.compile(r"[*?[\\]")
_MODES: Final = ("r", "w", "a", "r+", "w+", "a+")


def _local(path: Path) -> str:
    return os.fsdecode(path).removeprefix("file://")


class GFile:
    r"""An open file. It is opened at the first read or write, so a missing file is reported there.

    Positions and counts are in bytes in every mode, as in TensorFlow.

    Args:
        name: the path.
        mode: `"r"`, `"w"` (truncates), `"a"`, `"r+"`, `"w+"`, `"a+"`; with `"b"`, what is read is `bytes`, otherwise
            `str` decoded as UTF-8. Both `str` and `bytes` can be written in either mode. Line ends are left as they
            are.

    Raises:
        InvalidArgumentError: no such mode.

    Example:
        >>> with tf.gfile.GFile("text", "w") as file:
        ...     file.write("first\nsecond\n")
        >>> with tf.gfile.GFile("text") as file:
        ...     file.readline(), file.read()
        ('first\n', 'second\n')
    """

    def __init__(self, name: Path, mode: str = "r") -> None:
        self._file: Any = None
        self.__name = _local(name)
        self.__mode = mode
        self._binary_mode = "b" in mode
        self._plain_mode = mode.replace("b", "", 1)
        if self._plain_mode not in _MODES:
            raise errors.InvalidArgumentError(
                None, None, f"Mode {mode!r} of file {self.__name!r} is none of {_MODES}, with or without 'b'."
            )

    @property
    def name(self) -> str:
        """The path."""
        return self.__name

    @property
    def mode(self) -> str:
        """The mode, as it was given."""
        return self.__mode

    def seekable(self) -> bool:
        """True: every file here is."""
        return True

    def size(self) -> int:
        """The file's length in bytes, what was written but not flushed excepted."""
        return Stat(self.__name).length

    def read(self, n: int = -1) -> Contents:
        """The next `n` bytes, or all that remain if `n` is -1; fewer at the end of the file.

        Raises:
          NotFoundError: the file does not exist.
          PermissionDeniedError: the file is not open for reading, or the user may not read it.
        """
        return self._decoded(self._reading("read", "read", n))

    def readline(self) -> Contents:
        """The next line with its line end; empty at the end of the file."""
        return self._decoded(self._reading("read", "readline"))

    def readlines(self) -> list[Contents]:
        """All lines that remain, with their line ends."""
        return [self._decoded(line) for line in self._reading("read", "readlines")]

    def write(self, file_content: str | bytes) -> None:
        """Writes text (as UTF-8) or bytes at the position, or at the end in the `"a"` modes.

        Raises:
          PermissionDeniedError: the file is not open for writing, or the user may not write it.
          ResourceExhaustedError: the disk is full.
        """
        data = file_content.encode() if isinstance(file_content, str) else file_content
        if self._plain_mode == "r":
            raise errors.PermissionDeniedError(
                None, None, f"File {self.__name!r} isn't open for writing: its mode is {self.__mode!r}, use 'w'."
            )
        with os_errors.translated("write", self.__name):
            self._opened().write(data)

    def seek(self, offset: int | None = None, whence: int = 0, position: int | None = None) -> None:
        """Moves to `offset` bytes from the start (`whence` 0), the position (1) or the end (2).

        `position` is the old name of `offset`.

        Raises:
          TypeError: neither is given.
          InvalidArgumentError: another `whence`, or a position before the start.
        """
        target = position if offset is None else offset
        if target is None:
            raise TypeError("seek(): offset argument required")
        if whence not in (0, 1, 2):
            raise errors.InvalidArgumentError(
                None, None, f"Invalid whence argument: {whence}. Valid values are 0 (start), 1 (position), or 2 (end)."
            )
        with os_errors.translated("seek in", self.__name):
            try:
                self._opened().seek(target, whence)
            except ValueError as error:
                raise errors.InvalidArgumentError(
                    None, None, f"Cannot seek to offset {target} in {self.__name!r}: {error}."
                ) from error

    def tell(self) -> int:
        """The position in bytes."""
        with os_errors.translated("open", self.__name):
            return int(self._opened().tell())

    def flush(self) -> None:
        """Hands what was written to the operating system."""
        if self._file is not None:
            with os_errors.translated("write", self.__name):
                self._file.flush()

    def close(self) -> None:
        """Flushes and closes. A later read or write opens the file anew."""
        opened, self._file = self._file, None
        if opened is not None:
            with os_errors.translated("write", self.__name):
                opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()  # Programs of TensorFlow's time leave that to the garbage collector.

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Contents:
        """The next line with its line end.

        Raises:
            StopIteration: there is none.
        """
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    next = __next__

    def _reading(self, action: str, method: str, *args: int) -> Any:
        if self._plain_mode in ("w", "a"):
            raise errors.PermissionDeniedError(
                None, None, f"File {self.__name!r} isn't open for reading: its mode is {self.__mode!r}, use 'r'."
            )
        with os_errors.translated(action, self.__name):
            return getattr(self._opened(), method)(*args)

    def _opened(self) -> Any:
        if self._file is None:
            self._file = remote.open_file(self.__name, self._plain_mode + "b")
        return self._file

    def _decoded(self, data: bytes) -> str | bytes:
        return data if self._binary_mode else data.decode()


Open = GFile
FastGFile = GFile


@dataclasses.dataclass(frozen=True)
class FileStatistics:
    """What `Stat` tells: `length` in bytes, `mtime_nsec` in nanoseconds since 1970, `is_directory`."""

    length: int
    mtime_nsec: int
    is_directory: bool


def exists(path: Path) -> bool:
    """Whether there is a file or directory at `path`."""
    local = _local(path)
    return remote.file_system(local).exists(local) if remote.is_remote(local) else os.path.exists(local)


def isdir(path: Path) -> bool:
    """Whether `path` is a directory."""
    local = _local(path)
    return remote.file_system(local).isdir(local) if remote.is_remote(local) else os.path.isdir(local)


def glob(pattern: Path | list[Path] | tuple[Path, ...]) -> list[str]:
    """The paths that match a pattern, or one of several, sorted within each pattern.

    `*` matches anything but `/`, `?` one character, `[...]` one of several, and a backslash takes what follows
    literally. Nothing matched, or no such directory: an empty list. A path begins as its pattern does, with `./` where
    the pattern names no directory before the first of these characters.
    """
    patterns = pattern if isinstance(pattern, (list, tuple)) else (pattern,)
    return [name for one in patterns for name in sorted(_matches(os.fsdecode(one)))]


def _matches(pattern: str) -> list[str]:
    local = _local(pattern)
    if remote.is_remote(local):
        files = remote.file_system(local)
        return [files.unstrip_protocol(name) for name in files.glob(local)]
    scheme = pattern.removesuffix(local)
    wild = _WILD.search(local)
    if wild is not None:
        local = ("" if "/" in local[: wild.start()] else "./") + local.rstrip("/")
    return [scheme + name for name in _glob.glob(_python_pattern(local), include_hidden=True)]


def _python_pattern(pattern: str) -> str:
    """Python's spelling of a pattern: `[!...]` for `[^...]`, and `[x]` where TensorFlow writes a backslash and x."""
    pattern = pattern.replace("[^", "[!").replace("**", "*")
    return re.sub(r"\\(.)", lambda match: f"[{match[1]}]" if match[1] in "*?[" else match[1], pattern)


def listdir(path: Path) -> list[str]:
    """The sorted names in a directory, without `.` and `..`.

    Raises:
      NotFoundError: there is no such directory.
    """
    local = _local(path)
    if not isdir(local):
        raise errors.NotFoundError(None, None, f"Could not find directory {local!r}.")
    with os_errors.translated("list", local):
        if remote.is_remote(local):
            names = remote.file_system(local).ls(local, detail=False)
            return sorted(os.path.basename(name.rstrip("/")) for name in names)
        return sorted(os.listdir(local))


def makedirs(path: Path) -> None:
    """Makes a directory and those above it; one that exists already is no error.

    Raises:
      FailedPreconditionError: something on the way is a file.
      PermissionDeniedError: the user may not.
    """
    local = _local(path)
    try:
        if remote.is_remote(local):
            remote.file_system(local).makedirs(local, exist_ok=True)
        else:
            os.makedirs(local, exist_ok=True)
    except FileExistsError as error:
        raise errors.FailedPreconditionError(
            None, None, f"Could not make directory {local!r}: a file of that name exists."
        ) from error
    except OSError as error:
        raise os_errors.from_os_error(error, "make directory", local) from error


def mkdir(path: Path) -> None:
    """Makes one directory, whose parent must exist.

    Raises:
      AlreadyExistsError: there is something at `path`.
      NotFoundError: the parent is missing.
    """
    local = _local(path)
    with os_errors.translated("make directory", local):
        if remote.is_remote(local):
            remote.file_system(local).mkdir(local, create_parents=False)
        else:
            os.mkdir(local)


def remove(path: Path) -> None:
    """Removes a file.

    Raises:
      NotFoundError: there is none.
      FailedPreconditionError: it is a directory.
    """
    local = _local(path)
    with os_errors.translated("remove", local):
        if remote.is_remote(local):
            remote.file_system(local).rm_file(local)
        else:
            os.unlink(local)


def rmtree(path: Path) -> None:
    """Removes a directory with all that is in it, or a file. Links are removed, not followed.

    Raises:
      NotFoundError: there is nothing at `path`.
    """
    local = _local(path)
    with os_errors.translated("remove", local):
        if remote.is_remote(local):
            remote.file_system(local).rm(local, recursive=True)
        elif os.path.isdir(local) and not os.path.islink(local):
            shutil.rmtree(local)
        else:
            os.unlink(local)


def copy(src: Path, dst: Path, overwrite: bool = False) -> None:
    """Copies the bytes of a file.

    Raises:
      NotFoundError: `src` does not exist.
      AlreadyExistsError: `dst` exists and `overwrite` is False.
    """
    source, target = _local(src), _local(dst)
    _check_target(target, overwrite, "copy")
    with (
        os_errors.translated("read", source),
        remote.open_file(source, "rb") as reader,
        os_errors.translated("write", target),
        remote.open_file(target, "wb") as writer,
    ):
        shutil.copyfileobj(reader, writer, 1 << 20)


def rename(src: Path, dst: Path, overwrite: bool = False) -> None:
    """Moves a file or directory.

    Raises:
      NotFoundError: `src` does not exist.
      AlreadyExistsError: `dst` exists and `overwrite` is False.
    """
    source, target = _local(src), _local(dst)
    _check_target(target, overwrite, "rename")
    with os_errors.translated("rename", source):
        if not remote.is_remote(source) and not remote.is_remote(target):
            os.replace(source, target)
        elif remote.is_remote(source) and source.partition("://")[0] == target.partition("://")[0]:
            remote.file_system(source).mv(source, target, recursive=True)
        else:
            raise errors.UnimplementedError(
                None,
                None,
                f"Could not rename {source!r} to {target!r}: they lie in different places. Copy, then remove.",
            )


def _check_target(target: str, overwrite: bool, action: str) -> None:
    if not overwrite and exists(target):
        raise errors.AlreadyExistsError(
            None, None, f"Could not {action} to {target!r}: it exists. Remove it first, or pass overwrite=True."
        )


def stat(path: Path) -> FileStatistics:
    """Length, time of the last change, and whether it is a directory.

    Raises:
      NotFoundError: there is nothing at `path`.
    """
    local = _local(path)
    with os_errors.translated("stat", local):
        if remote.is_remote(local):
            return _remote_statistics(local)
        status = os.stat(local)
    return FileStatistics(status.st_size, status.st_mtime_ns, os.path.isdir(local))


def _remote_statistics(path: str) -> FileStatistics:
    info = remote.file_system(path).info(path)
    changed = info.get("mtime") or info.get("LastModified") or info.get("updated") or info.get("created") or 0
    seconds = changed.timestamp() if hasattr(changed, "timestamp") else changed
    is_directory = info["type"] == "directory"
    nanoseconds = int(seconds * 1e9) if isinstance(seconds, int | float) else 0
    return FileStatistics(int(info.get("size") or 0), nanoseconds, is_directory)


def walk(
    top: Path, topdown: bool = True, onerror: Callable[[errors.OpError], None] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Goes through a directory tree: `(directory, names of directories in it, names of files in it)`, sorted.

    Args:
      top: where to begin; nothing is yielded if it is not a directory.
      topdown: a directory before those in it, or after.
      onerror: called with the error for a directory that cannot be listed, which is then skipped.
    """
    local = _local(top)
    if not isdir(local):
        return
    try:
        names = listdir(local)
    except errors.OpError as error:
        if onerror is not None:
            onerror(error)
        return
    directories = [name for name in names if isdir(os.path.join(local, name))]
    entry = (local, directories, [name for name in names if name not in set(directories)])
    if topdown:
        yield entry
    for name in directories:
        yield from walk(os.path.join(local, name), topdown, onerror)
    if not topdown:
        yield entry


def Exists(filename: Path) -> bool:
    """Whether there is a file or directory; TensorFlow 1's name of `exists`.

    Args:
        filename: the path.

    Returns:
        A bool.

    Raises:
        nothing

    Example:
        >>> tf.gfile.Exists("missing")
        False
    """
    return exists(filename)


def IsDirectory(dirname: Path) -> bool:
    """Whether a path is a directory; TensorFlow 1's name of `isdir`.

    Args:
        dirname: the path.

    Returns:
        A bool.

    Raises:
        nothing

    Example:
        >>> tf.gfile.IsDirectory(".")
        True
    """
    return isdir(dirname)


def Glob(filename: Path | list[Path] | tuple[Path, ...]) -> list[str]:
    """The paths that match a pattern; TensorFlow 1's name of `glob`.

    Args:
        filename: a pattern with "*", "?" and "[...]", or a list of them.

    Returns:
        A list of paths.

    Raises:
        nothing

    Example:
        >>> for name in ["a.txt", "b.txt"]:
        ...     tf.gfile.GFile(name, "w").write("")
        >>> sorted(tf.gfile.Glob("./*.txt"))
        ['./a.txt', './b.txt']
    """
    return glob(filename)


def ListDirectory(dirname: Path) -> list[str]:
    """The names in a directory; TensorFlow 1's name of `listdir`.

    Args:
        dirname: the path.

    Returns:
        A list of names, without the directory and in no order.

    Raises:
        NotFoundError: there is no such directory.

    Example:
        >>> tf.gfile.MakeDirs("runs/first")
        >>> tf.gfile.ListDirectory("runs")
        ['first']
    """
    return listdir(dirname)


def MakeDirs(dirname: Path) -> None:
    """Makes a directory, and those above it that are missing; TensorFlow 1's name of `makedirs`.

    Args:
        dirname: the path.

    Raises:
        FailedPreconditionError: a part of the path is a file.
        PermissionDeniedError: the user may not write there.

    Example:
        >>> tf.gfile.MakeDirs("runs/first")
        >>> tf.gfile.IsDirectory("runs/first")
        True
    """
    makedirs(dirname)


def MkDir(dirname: Path) -> None:
    """TensorFlow 1's name of `mkdir`."""
    mkdir(dirname)


def Remove(filename: Path) -> None:
    """TensorFlow 1's name of `remove`."""
    remove(filename)


def DeleteRecursively(dirname: Path) -> None:
    """Deletes a directory and all that is in it; TensorFlow 1's name of `rmtree`.

    Args:
        dirname: the path.

    Raises:
        NotFoundError: there is no such directory.

    Example:
        >>> tf.gfile.MakeDirs("runs/first")
        >>> tf.gfile.DeleteRecursively("runs")
        >>> tf.gfile.Exists("runs")
        False
    """
    rmtree(dirname)


def Copy(oldpath: Path, newpath: Path, overwrite: bool = False) -> None:
    """TensorFlow 1's name of `copy`."""
    copy(oldpath, newpath, overwrite)


def Rename(oldname: Path, newname: Path, overwrite: bool = False) -> None:
    """TensorFlow 1's name of `rename`."""
    rename(oldname, newname, overwrite)


def Stat(filename: Path) -> FileStatistics:
    """TensorFlow 1's name of `stat`."""
    return stat(filename)


def Walk(top: Path, in_order: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
    """`walk`, where `in_order` is `topdown`. A directory that cannot be listed is skipped."""
    return walk(top, in_order)
