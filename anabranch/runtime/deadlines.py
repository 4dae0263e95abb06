"""Calls at a later time, from one thread for all of them."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from anabranch.core.interrupts import admitted
from anabranch.runtime.worker_threads import WorkerThreads, worker_threads


class Deadlines:
    """Calls functions when their time has come. Thread-safe.

    #: A thread is held only while there is something to call.
    #: A call that is cancelled before its time does not happen; one that has begun is not waited for.

    Args:
        threads: where the thread comes from.
    """

    def __init__(self, threads: WorkerThreads) -> None:
        self._threads = threads
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._heap: list[tuple[float, int]] = []
        self._calls: dict[int, Callable[[], None]] = {}
        self._running = False

    def now(self) -> float:
        """The time of the monotonic clock, in seconds."""
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        """Waits; an interrupt of the thread ends it."""
        with admitted():
            threading.Event().wait(seconds)

    def call_at(self, when: float, function: Callable[[], None]) -> Callable[[], None]:
        """Calls a function, which must neither raise nor wait, at a time of the monotonic clock.

        Returns:
            A function that cancels it.
        """
        number = next(self._numbers)
        with self._changed:
            self._calls[number] = function
            heapq.heappush(self._heap, (when, number))
            begins, self._running = not self._running, True
            self._changed.notify()
        if begins:
            self._threads.submit(self._run)
        return lambda: self._cancel(number)

    def _cancel(self, number: int) -> None:
        with self._changed:
            self._calls.pop(number, None)
            # the thread drops the entry in the heap, and ends if it was the last
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                function = self._next()
                # decided under the lock that `call_at` takes: a call added later starts a thread again
                if function is None and not self._heap:
                    self._running = False
                    return
                if function is None:
                    # woken before by an earlier call that is added, or by a cancellation; either way it looks anew
                    self._changed.wait(self._heap[0][0] - time.monotonic())
            # outside the lock, which the function may want in order to add or cancel a call
            if function is not None:
                function()

    def _next(self) -> Callable[[], None] | None:
        """What is to be called now, if anything; what was cancelled is dropped on the way."""
        while self._heap and self._heap[0][1] not in self._calls:
            heapq.heappop(self._heap)
        if not self._heap or self._heap[0][0] > time.monotonic():
            return None
        return self._calls.pop(heapq.heappop(self._heap)[1])


#: those of this process
deadlines = Deadlines(worker_threads)
