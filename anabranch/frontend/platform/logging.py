"""`tf.logging`: a program's log, on Python's own `logging`.

Messages go to the logger "anabranch" and from there to standard error, as `LEVEL:anabranch:message`. Where the
program gives the root logger handlers (`logging.basicConfig`), early or late, those print instead: no line comes twice.

TensorFlow programs configure the logger "tensorflow" by name. It stands between ours and the root: handlers, filters of
handlers and the level set there work, and `set_verbosity` sets the level there.
"""

from __future__ import annotations

import itertools
import logging
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any, Final

from anabranch.core.values import PassedOn

DEBUG: Final = logging.DEBUG
INFO: Final = logging.INFO
WARN: Final = logging.WARNING
WARNING: Final = logging.WARNING
ERROR: Final = logging.ERROR
FATAL: Final = logging.FATAL

_CALLER: Final = 2  # how many frames up, from a helper that a public function calls, the user's code is


class _StandardErrorHandler(logging.StreamHandler[IO[str]]):
    """Writes to what `sys.stderr` is at the time of the message, unless the root logger prints already."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter(logging.BASIC_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers and _logger.propagate and _compatibility_logger.propagate:
            return
        # A test or a notebook may have redirected it since, and closed the former one: nothing of ours waits in that.
        self.stream = sys.stderr
        super().emit(record)


def _make_logger() -> logging.Logger:
    logger = logging.getLogger("anabranch")
    logger.parent = _compatibility_logger
    logger.addHandler(_StandardErrorHandler())
    return logger


_compatibility_logger = logging.getLogger("tensorflow")
_logger = _make_logger()

_counts_lock = threading.Lock()
_counts: dict[tuple[str, int], Iterator[int]] = {}  # guarded by _counts_lock


def get_logger() -> logging.Logger:
    """The logger that all messages go to (`tf.get_logger`)."""
    return _logger


def get_verbosity() -> int:
    """The lowest level that is printed; WARN unless something set it."""
    return _logger.getEffectiveLevel()


def set_verbosity(v: int | str) -> None:
    """Prints messages of one level and above only.

    Args:
        v: a level, such as `tf.logging.INFO`, or its name.

    Raises:
        ValueError: there is no level of that name.

    Example:
        >>> tf.logging.set_verbosity(tf.logging.ERROR)
        >>> tf.logging.get_verbosity() == tf.logging.ERROR
        True
    """
    _compatibility_logger.setLevel(v)
    _logger.setLevel(logging.NOTSET)


def log(level: int, msg: object, *args: object, **kwargs: PassedOn) -> None:
    """Logs `msg % args` at a level. `kwargs` are those of `logging.Logger.log`, such as `exc_info`."""
    _emit(level, msg, args, kwargs)


def vlog(level: int, msg: object, *args: object, **kwargs: PassedOn) -> None:
    """The same as `log`."""
    _emit(level, msg, args, kwargs)


def debug(msg: object, *args: object, **kwargs: PassedOn) -> None:
    """Logs `msg % args` at DEBUG."""
    _emit(DEBUG, msg, args, kwargs)


def info(msg: object, *args: object, **kwargs: PassedOn) -> None:
    """Logs `msg % args` at INFO.

    Args:
        msg: the message, with "%" formats.
        args: what goes into the formats.

    Raises:
        nothing

    Example:
        >>> tf.logging.info("step %d: loss %g", 100, 0.25)
    """
    _emit(INFO, msg, args, kwargs)


def warning(msg: object, *args: object, **kwargs: PassedOn) -> None:
    """Logs `msg % args` at WARN.

    Args:
        msg: the message, with "%" formats.
        args: what goes into the formats.

    Raises:
        nothing

    Example:
        >>> tf.logging.warning("no checkpoint in %s", "runs")
    """
    _emit(WARN, msg, args, kwargs)


def warn(msg: object, *args: object, **kwargs: PassedOn) -> None:
    """The same as `warning`."""
    _emit(WARN, msg, args, kwargs)


def error(msg: object, *args: object, **kwargs: PassedOn) -> None:
    """Logs `msg % args` at ERROR.

    Args:
        msg: the message, with "%" formats.
        args: what goes into the formats.

    Raises:
        nothing

    Example:
        >>> tf.logging.error("cannot read %s", "input.txt")
    """
    _emit(ERROR, msg, args, kwargs)


def fatal(msg: object, *args: object, **kwargs: PassedOn) -> None:
    """Logs `msg % args` at FATAL. The program goes on."""
    _emit(FATAL, msg, args, kwargs)


def TaskLevelStatusMessage(msg: object) -> None:
    """Logs the status of a task, at ERROR."""
    _emit(ERROR, msg, (), {})


def log_if(level: int, msg: object, condition: object, *args: object) -> None:
    """Logs `msg % args` if `condition` is true."""
    if condition:
        _emit(level, msg, args, {})


def log_every_n(level: int, msg: object, n: int, *args: object) -> None:
    """Logs the first, the (n+1)-th, the (2n+1)-th ... of the calls from one line of code."""
    if _count_at_caller() % n == 0:
        _emit(level, msg, args, {})


def log_first_n(level: int, msg: object, n: int, *args: object) -> None:
    """Logs the first n of the calls from one line of code."""
    if _count_at_caller() < n:
        _emit(level, msg, args, {})


def flush() -> None:
    """Writes out what the handlers of the log hold back."""
    logger: logging.Logger | None = _logger
    while logger is not None:
        for handler in logger.handlers:
            handler.flush()
        logger = logger.parent if logger.propagate else None


def _emit(level: int, msg: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    stacklevel = kwargs.pop("stacklevel", 1) + _CALLER  # so that %(filename)s and %(lineno)d name the user's code
    _logger.log(level, msg, *args, stacklevel=stacklevel, **kwargs)


def _count_at_caller() -> int:
    """How many calls the line that called the public function made before this one."""
    caller = sys._getframe(_CALLER)
    with _counts_lock:
        return next(_counts.setdefault((caller.f_code.co_filename, caller.f_lineno), itertools.count()))
