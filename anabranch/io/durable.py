"""Files that appear whole or not at all, also after a crash: written aside, fsynced, renamed, directory fsynced.

While a file is written aside its writer holds a lock on it, which the system drops when the process dies, however it
dies. So another process can tell a file that is being written from one that was abandoned, and sweep the latter.
Where the file system knows no locks, nothing is ever swept.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import uuid
from collections.abc import Iterator
from typing import Final

from anabranch import errors
from anabranch.io import os_errors

Chunk = bytes | bytearray | memoryview
_MAX_WRITE: Final = 1 << 30  # Linux writes at most 2 GiB - 4 KiB per call.
_ASIDE: Final = re.compile(r"\..+\.[0-9a-f]{12}\.aside")


def write_all(descriptor: int, data: Chunk) -> None:
    """Writes all of `data`, however little the system takes at a time. Raises `OSError`."""
    view = memoryview(data).cast("B")
    while view:
        written = os.write(descriptor, view[:_MAX_WRITE])
        view = view[written:]


def fsync_directory(directory: str) -> None:
    """Makes renames, creations and removals in `directory` outlive a power failure. Raises `OSError`."""
    descriptor = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def aside_name(path: str) -> str:
    """A new name beside `path`, hidden, which `sweep` recognises and no reader's pattern matches."""
    directory, base = os.path.split(path)
    return os.path.join(directory, f".{base}.{uuid.uuid4().hex[:12]}.aside")


def create_locked(path: str) -> int:
    """Creates `path`, which must not exist, and locks it against `removable`.

    Returns:
      The descriptor, for writing. Close it with `release`.

    Raises:
      OSError: the system's refusal.
    """
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with contextlib.suppress(OSError):  # A file system without locks.
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # Swept between creation and lock: once more.


def open_locked(path: str) -> int:
    """Opens a file for reading and locks it, under all names it has, against `removable`.

    Raises:
      OSError: the system's refusal.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with contextlib.suppress(OSError):  # A file system without locks.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def open_regular(path: str, flags: int) -> int:
    """Opens without waiting for a writer, should `path` be a pipe, and refuses all but regular files.

    Raises:
      InvalidArgumentError: it is none.
      OSError: the system's refusal.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise errors.InvalidArgumentError(None, None, f"{path!r} is not a regular file.")
    return descriptor


def release(descriptor: int) -> None:
    """Unlocks and closes. The lock goes at once, even if a forked process still holds the descriptor."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


@contextlib.contextmanager
def removable(path: str) -> Iterator[bool]:
    """Holds the lock of `path`, if nobody else does, so that the block may remove it: then True, otherwise False."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = _is_at(descriptor, path)
        except OSError:
            free = False
        yield free
    finally:
        release(descriptor)


def sweep(directory: str) -> None:
    """Removes what dead processes left written aside in `directory`. Never raises: it is housekeeping."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory or "."):
            if _ASIDE.fullmatch(name):
                path = os.path.join(directory, name)
                with removable(path) as free:
                    if free:
                        os.unlink(path)


@contextlib.contextmanager
def placing_locked(path: str) -> Iterator[int]:
    """Yields a file written aside, locked; the end of the block fsyncs it and renames it to `path`.

    The file stays locked, for whoever must not have it removed yet: close the descriptor with `release`. If the block
    raises, nothing remains and the descriptor is closed. The directory is not fsynced.

    Raises:
      OSError: the system's refusal.
    """
    aside = aside_name(path)
    descriptor = create_locked(aside)
    try:
        yield descriptor
        os.fsync(descriptor)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        release(descriptor)
        raise


@contextlib.contextmanager
def replacing(path: str) -> Iterator[int]:
    """As `placing_locked`, but the lock ends with the block.

    Raises:
      OSError: the system's refusal.
    """
    with placing_locked(path) as descriptor:
        yield descriptor
    release(descriptor)


def replace_file(path: str, data: Chunk) -> None:
    """Puts `data` at `path`, so that at any moment, and after any crash, `path` holds the old or the new bytes, whole.

    Raises:
      OpError: of the class of the system's refusal: `NotFoundError` (no such directory), `PermissionDeniedError`,
        `ResourceExhaustedError` (disk full). No file written aside remains; `path` is as it was, unless only the
        directory could not be fsynced.
    """
    with os_errors.translated("write", path):
        with replacing(path) as descriptor:
            write_all(descriptor, data)
        fsync_directory(os.path.dirname(path))


def _is_at(descriptor: int, path: str) -> bool:
    """Whether the open file is what stands at `path` now."""
    try:
        named = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    opened = os.fstat(descriptor)
    return (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino)
