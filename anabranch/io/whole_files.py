"""Whole files as bytes."""

from __future__ import annotations

import os
import stat
from typing import Final

from anabranch.io import os_errors, remote

#: bytes of a read where a file's size is not known
_PIECE: Final = 1 << 20


def read_all(path: bytes) -> bytes:
    """The contents of a local file, or of one at an address (`io.remote`).

    Raises:
        NotFoundError: it does not exist.
        PermissionDeniedError: the user may not read it.
    """
    name = os.fsdecode(path).removeprefix("file://")
    with os_errors.translated("read", name):
        if not remote.is_remote(name):
            return _read_local(name)
        with remote.open_file(name, "rb") as file:
            contents: bytes = file.read()
            return contents


def _read_local(path: str) -> bytes:
    # Small files are read by thousands a second, by several threads. Each call of the system gives Python's lock away,
    # and that is what takes the time then; Python's own file objects make twice as many calls.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(descriptor)
        contents = os.read(descriptor, status.st_size + 1)
        if stat.S_ISREG(status.st_mode) and len(contents) == status.st_size > 0:
            return contents
        # what has no size (pipes, files of the system), what grows, and what is too large for one read
        parts = [contents]
        while parts[-1]:
            parts.append(os.read(descriptor, _PIECE))
        return b"".join(parts)
    finally:
        os.close(descriptor)
