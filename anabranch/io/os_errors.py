"""Turns what the operating system refuses into `anabranch.errors`, by the classes TensorFlow gives each errno."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Final

from anabranch import errors

_ERRNO_NAMES: Final[dict[type[errors.OpError], str]] = {
    errors.NotFoundError: "ENOENT ENODEV ENXIO ESRCH",
    errors.AlreadyExistsError: "EEXIST EADDRNOTAVAIL EALREADY",
    errors.PermissionDeniedError: "EPERM EACCES EROFS",
    errors.FailedPreconditionError: "ENOTEMPTY EISDIR ENOTDIR EBADF EBUSY EPIPE ETXTBSY EXDEV",
    errors.ResourceExhaustedError: "ENOSPC EDQUOT EMFILE EMLINK ENFILE ENOBUFS ENOMEM EUSERS",
    errors.InvalidArgumentError: "EINVAL ENAMETOOLONG E2BIG EFAULT EILSEQ ESPIPE ELOOP",
    errors.OutOfRangeError: "EFBIG EOVERFLOW ERANGE",
    errors.UnimplementedError: "ENOSYS ENOTSUP EOPNOTSUPP",
    errors.UnavailableError: "EAGAIN EINTR ENOLCK",
    errors.AbortedError: "EDEADLK ESTALE",
    errors.DeadlineExceededError: "ETIMEDOUT",
    errors.DataLossError: "EIO",
}
_CLASS_OF_ERRNO: Final = {
    getattr(errno, name): error_class
    for error_class, names in _ERRNO_NAMES.items()
    for name in names.split()
    if hasattr(errno, name)
}
_ERRNO_OF_CLASS: Final[dict[type[OSError], int]] = {
    FileNotFoundError: errno.ENOENT,
    FileExistsError: errno.EEXIST,
    PermissionError: errno.EACCES,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    TimeoutError: errno.ETIMEDOUT,
}
_ADVICE: Final[dict[type[errors.OpError], str]] = {
    errors.NotFoundError: "Check the path, and that its directory was created.",
    errors.AlreadyExistsError: "Remove it first, or allow overwriting.",
    errors.PermissionDeniedError: "Choose a place this user may write to, or change its permissions.",
    errors.ResourceExhaustedError: "Free some space (or handles), or choose another place.",
}


def from_os_error(error: OSError, action: str, path: str) -> errors.OpError:
    """The `OpError` for an `OSError` that `action` (such as `"write"`) met at `path`."""
    # file systems of other packages raise these classes without their number
    number = error.errno or next((n for kind, n in _ERRNO_OF_CLASS.items() if isinstance(error, kind)), None)
    error_class = _CLASS_OF_ERRNO.get(number, errors.UnknownError) if number else errors.UnknownError
    reason = os.strerror(number) if number else str(error)
    advice = _ADVICE.get(error_class)
    message = f"Could not {action} {path!r}: {reason}."
    return error_class(None, None, f"{message} {advice}" if advice else message)


class _TranslatedBlock:
    """A block of `translated`. It surrounds each read of a line, for which a generator would take 2 µs."""

    __slots__ = ("_action", "_path")

    def __init__(self, action: str, path: str) -> None:
        self._action, self._path = action, path

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise from_os_error(error, self._action, self._path) from error


def translated(action: str, path: str) -> contextlib.AbstractContextManager[None]:
    """Raises an `OSError` that leaves the block as the `OpError` of its errno, naming `action` and `path`."""
    return _TranslatedBlock(action, path)
