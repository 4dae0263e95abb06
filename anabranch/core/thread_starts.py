"""Threads that no exception meant for their starter can end.

An exception that one thread throws at another (`PyThreadState_SetAsyncExc`: debuggers, time limits, notebooks) is
addressed by the number of the thread. Until Python 3.12, a new thread bears its starter's number until it first runs,
and an exception thrown at the starter then reaches the new thread: it ends before it has begun, and the starter, which
waits for it to begin, waits for ever. So threads that a step needs are started by a thread of the package, at which
nobody throws. That thread in turn is started by a short-lived one, for which nobody waits: if an exception ends it
before it has begun, there is another.
"""

from __future__ import annotations

import _thread
import queue
import threading
from typing import Final

#: how long the thread may take to begin before it is started once more (s)
_BEGIN_SECONDS: Final = 0.1


class _Starter:
    """The thread, which begins with the first thread that is to be started."""

    def __init__(self) -> None:
        #: threads to start, and where to say what came of it
        self._asked: queue.SimpleQueue[tuple[threading.Thread, queue.SimpleQueue[Exception | None]]]
        self._asked = queue.SimpleQueue()
        self._lock = threading.Lock()
        self.thread: threading.Thread | None = None

    def start(self, thread: threading.Thread) -> None:
        while not self._is_there():
            begun = threading.Event()
            _thread.start_new_thread(self._begin, (begun,))
            begun.wait(_BEGIN_SECONDS)
        answer: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._asked.put((thread, answer))
        error = answer.get()
        if error is not None:
            raise error

    def _is_there(self) -> bool:
        # a process that was forked has the object, but not the thread
        return self.thread is not None and self.thread.is_alive()

    def _begin(self, begun: threading.Event) -> None:
        """Starts the thread, on one that has a number of its own by now."""
        with self._lock:
            if not self._is_there():
                thread = threading.Thread(target=self._run, name="anabranch-starter", daemon=True)
                thread.start()
                self.thread = thread
        begun.set()

    def _run(self) -> None:
        while True:
            thread, answer = self._asked.get()
            try:
                thread.start()
            except Exception as error:  # the system has no room for another thread: the one who asked has to know
                answer.put(error)
            else:
                answer.put(None)
            del thread, answer


_starter: Final = _Starter()


def starting_thread() -> threading.Thread | None:
    """The thread that starts others, if there is one; no step waits for what it does."""
    return _starter.thread


def start_thread(thread: threading.Thread) -> None:
    """Starts a thread. An exception from outside may end the wait for its beginning; it begins all the same.

    Raises:
        RuntimeError: the system has no room for another thread, or it was started before.
    """
    _starter.start(thread)
