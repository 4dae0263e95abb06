"""Files at addresses such as gs://, s3://, hdfs:// and memory://, through the package fsspec (the extra `remote`).

`tf.gfile` and all readers take such paths. Checkpoints and event files are written where files can be locked, renamed
and appended to, which object stores cannot: they refuse such paths.
"""

from __future__ import annotations

import errno
import importlib
import os
import re
import stat
from types import ModuleType
from typing import IO, Any, Final

from anabranch import errors

#: the scheme of an address; that of Windows' drives is shorter
_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")


def is_remote(path: str) -> bool:
    """Whether a path is an address with a scheme other than `file`."""
    match = _SCHEME.match(path)
    return match is not None and match[1].lower() != "file"


def file_system(path: str) -> Any:
    """The file system of fsspec that serves an address.

    Raises:
        UnimplementedError: fsspec, or the package that it needs for this scheme, is not installed.
        InvalidArgumentError: there is no such scheme.
    """
    try:
        return _fsspec(path).core.url_to_fs(path)[0]
    except ImportError as error:
        raise errors.UnimplementedError(
            None, None, f"Cannot reach {path!r}: {str(error).rstrip('.')}. Install that package beside fsspec."
        ) from error
    except ValueError as error:
        raise errors.InvalidArgumentError(
            None, None, f"Cannot reach {path!r}: {error}. Use a local path, or a scheme that fsspec knows."
        ) from error


def open_file(path: str, mode: str, buffering: int = -1) -> Any:
    """`open` for local files and addresses alike; modes are binary. Raises `OSError`."""
    if is_remote(path):
        return file_system(path).open(path, mode)
    if "\0" in path:
        # Python's own answer is a ValueError, which nobody expects of a file
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
    return open(path, mode, buffering)


def size_of(file: IO[Any]) -> int | None:
    """The length in bytes of an open file; None of what has none, such as a pipe."""
    size = getattr(file, "size", None)
    if size is None and (buffer := getattr(file, "getbuffer", None)) is not None:
        size = len(buffer())
    if size is not None:
        return int(size)
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def refuse(path: str, what: str) -> None:
    """Refuses an address where only local files can serve.

    Raises:
        UnimplementedError: `path` is one.
    """
    if is_remote(path):
        raise errors.UnimplementedError(
            None,
            None,
            f"anabranch keeps {what} in local directories only, got {path!r}: use a local path, and copy the files "
            "with tf.gfile.Copy (which needs the extra: pip install 'anabranch[remote]')",
        )


def _fsspec(path: str) -> ModuleType:
    try:
        return importlib.import_module("fsspec")
    except ImportError as error:
        raise errors.UnimplementedError(
            None,
            None,
            f"Cannot reach {path!r}: files at such addresses need the extra `remote`: pip install 'anabranch[remote]', "
            "and the package for the scheme, such as gcsfs (gs://) or s3fs (s3://).",
        ) from error
