"""Calls that follow the end of an object, made where they may wait for locks.

The garbage collector runs finalizers on any thread in the midst of anything, also of what holds the very lock that the
finalizer wants: that thread would wait for itself. So a finalizer here only notes what is to be called, which never
waits, and a thread of the package calls it.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

#: how long the end of the process waits for calls that are under way (s)
_FAREWELL: Final = 10.0


class _Caller:
    """The thread, which begins with the first object that is watched."""

    def __init__(self) -> None:
        # its `put` may be called while another `put` or `get` of this thread is under way, which no other queue allows
        #: None ends the thread
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._ended = False
        self.thread: threading.Thread | None = None

    def note(self, call: Callable[[], None]) -> None:
        """Has something called soon."""
        self._calls.put(call)

    def start(self) -> None:
        """Starts the thread unless it runs: here, since starting one waits for locks as well."""
        with self._lock:
            # a process that was forked has the object, but not the thread
            if not self._ended and (self.thread is None or not self.thread.is_alive()):
                self.thread = threading.Thread(target=self._run, name="anabranch-collected", daemon=True)
                self.thread.start()

    def end(self) -> None:
        """Ends the thread after what has been noted.

        A call may release what a library in C++ made, without Python's lock. When the interpreter is gone, the thread
        would be ended where it asks for that lock again, which C++ does not bear: the process would be aborted.
        """
        with self._lock:
            self._ended, thread = True, self.thread
        if thread is not None:
            self._calls.put(None)
            thread.join(_FAREWELL)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception:
                _log.exception("What follows the end of an object failed")
            del call


_caller: Final = _Caller()
atexit.register(_caller.end)


def calling_thread() -> threading.Thread | None:
    """The thread that makes the calls, if there is one; no step waits for what it does."""
    return _caller.thread


def when_collected(watched: object, call: Callable[[], None]) -> None:
    """Has `call` called on a thread of its own soon after an object is collected; never at the end of the process.

    Args:
        watched: can be referred to weakly.
        call: holds no reference to it. What it raises is logged.
    """
    _caller.start()
    weakref.finalize(watched, _caller.note, call).atexit = False
