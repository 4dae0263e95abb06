"""Signals inside a step: their handlers wait until the step can bear an exception (§3.2).

Python runs the handlers of signals on the main thread, between any two bytecodes, and most of them raise. A step of
several items that is left at such a point is half done: one variable is updated, another is not; a queue has given an
element away that nobody got. So a step of the main thread runs in `uninterrupted`, where a handler is put off

- to the end of the step, which then counts as done, or
- to the next place inside `admitted`, where the step waits for something or runs a function of the user.

While it runs, the program's handlers are replaced by one that notes the signal; then they are put back. A handler that
the step itself replaces (a function of the user may) stays replaced.

What a signal cannot do here, an exception that another thread throws (`PyThreadState_SetAsyncExc`) still can: nothing
holds it off. The values of variables are safe from that as well, see `runtime.island_call`.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enumeration members of numbers, which takes long
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, TypeVar, TypeVarTuple

R = TypeVar("R")
Arguments = TypeVarTuple("Arguments")

#: errors of the processor, which cannot wait, and those for which no handler is called
_NEVER_PUT_OFF: Final = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS", "SIGKILL", "SIGSTOP")
#: the signals that have names, that is, all but those of the real-time extension
_SIGNALS: Final = tuple(int(s) for s in signal.Signals if s.name not in _NEVER_PUT_OFF and "SIGRT" not in s.name)

_handler_of: Callable[[int], Any] = _signal.getsignal
_set_handler: Callable[[int, Any], Any] = _signal.signal

Handlers = dict[int, Callable[[int, Any], Any]]

#: what all signals had as handlers when a step looked last, and those that are functions: they hardly ever change
_seen: tuple[list[Any], Handlers] = ([], {})


class _PutOff:
    """The handlers of a program while a step puts them off.

    #: Only the main thread touches it, and the handlers run on that thread.
    #: `is_open` says that handlers run at once. It is so before the step, after it, and inside `admitted`; a handler
    #: that could not be put back in its place is therefore only a detour.
    """

    __slots__ = ("_came", "_handlers", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        self._handlers: Handlers = {}
        self._came: list[int] = []

    def begin(self, alone: bool) -> None:
        """Replaces the handlers.

        Args:
            alone: whether no other section is under way. What one that ended has left in its place, because an
                exception came while it put the handlers back, is gone past then.
        """
        global _seen
        handlers = list(map(_handler_of, _SIGNALS))
        seen, self._handlers = _seen
        if handlers != seen:
            self._handlers = {n: handler for n, handler in zip(_SIGNALS, handlers, strict=True) if callable(handler)}
            if alone:
                self._handlers = {n: _behind(n, handler) for n, handler in self._handlers.items()}
            _seen = handlers, self._handlers
        for number in self._handlers:
            _set_handler(number, self._take)
        self.is_open = False

    def end(self) -> None:
        """Puts the handlers back and runs those whose signals came."""
        self.is_open = True
        try:
            for number, handler in self._handlers.items():
                if _handler_of(number) == self._take:
                    _set_handler(number, handler)
        finally:
            if self._came:
                self.deliver()

    def handler_of(self, number: int) -> Callable[[int, Any], Any]:
        """What it replaced."""
        return self._handlers[number]

    @property
    def has_work(self) -> bool:
        """Whether a signal came that has not been handled."""
        return bool(self._came)

    def deliver(self) -> None:
        """Runs the handlers of the signals that came, even where one of them raises."""
        if not self._came:
            return
        number = self._came.pop(0)
        try:
            self._handlers[number](number, None)
        finally:
            self.deliver()

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.is_open:
            self._handlers[number](number, frame)
        elif number not in self._came:  # as the system does with signals that wait
            self._came.append(number)


def _behind(number: int, handler: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
    """The program's handler behind those that sections have left."""
    while isinstance(section := getattr(handler, "__self__", None), _PutOff):
        handler = section.handler_of(number)
    return handler


#: what the main thread puts off now
_current: _PutOff | None = None


_own_thread: Callable[[], int] = threading.get_ident
_main_thread = threading.main_thread().ident


def _note_main_thread() -> None:
    """The main thread of a forked process is the one that forked."""
    global _main_thread
    _main_thread = _own_thread()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_main_thread)


def uninterrupted(work: Callable[[*Arguments], R], *args: *Arguments) -> R:
    """Calls `work(*args)`. Signals that come meanwhile are handled after it, or where `admitted` lets them in.

    Raises:
        BaseException: what the work or the handlers raise.
    """
    global _current
    if _own_thread() != _main_thread or (_current is not None and not _current.is_open):
        return work(*args)
    around, section = _current, _PutOff()
    try:
        _current = section
        section.begin(alone=around is None)
        return work(*args)
    finally:
        _current = around
        section.end()


class _Admitted:
    __slots__ = ("_closed",)

    def __enter__(self) -> None:
        section = _current if _own_thread() == _main_thread else None
        self._closed = section if section is not None and not section.is_open else None
        if self._closed is None:
            return
        try:
            self._closed.is_open = True
            self._closed.deliver()
        except BaseException:
            self._closed.is_open = False
            raise

    def __exit__(self, *_: object) -> None:
        if self._closed is not None:
            self._closed.is_open = False


def admitted() -> _Admitted:
    """A block in which a step waits or runs a function of the user: there, handlers of signals run at once."""
    return _Admitted()


def admit() -> None:
    """Runs the handlers of signals that came meanwhile: at a place where the step can end."""
    section = _current
    # a look that any thread may take: what has come is delivered on the main one
    if section is not None and section.has_work:
        with admitted():
            pass
