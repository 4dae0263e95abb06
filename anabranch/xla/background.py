"""Compiling in the background: one thread that takes one program after the other, and ends when there is none left."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final


class BackgroundCompiler:
    """Runs what it is given, in order, on a thread of its own.

    The interpreter waits at its end for the program that is being compiled (XLA cannot be stopped in the middle of
    one), but for no other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[tuple[Future[None], Callable[[], None]]] = deque()
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], None]) -> Future[None]:
        """Has something done. What it raises stands in the future that is given back."""
        future: Future[None] = Future()
        with self._lock:
            self._queue.append((future, work))
            if self._thread is None:
                # whoever asks may be a daemon: then a new thread is one, too, unless it is told not to be
                self._thread = threading.Thread(target=self._run, name="anabranch-compiler", daemon=False)
                self._thread.start()
        return future

    def wait(self, seconds: float) -> bool:
        """Waits until nothing is left to do; returns whether that is so."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return self._thread is None

    def _run(self) -> None:
        while True:
            with self._lock:
                if not threading.main_thread().is_alive():
                    while self._queue:
                        self._queue.popleft()[0].cancel()
                if not self._queue:
                    self._thread = None
                    return
                future, work = self._queue.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                work()
            except BaseException as error:  # whoever looks at the future is told
                future.set_exception(error)
            else:
                future.set_result(None)
            # nothing of it is kept until there is more to do
            del future, work


#: the process's
background: Final = BackgroundCompiler()
