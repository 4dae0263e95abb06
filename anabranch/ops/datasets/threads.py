"""The threads behind prefetch and parallel map; see `state.dataset_background` for the contracts.

Threads are daemons, start when they are first needed and end when their owner is closed or forgotten. Those that still
run when the process ends are stopped before the interpreter ends.
"""

from __future__ import annotations

import atexit
import queue
import threading
import time
import weakref
from collections import deque
from typing import Final

import numpy as np

from anabranch.core.interrupts import admitted
from anabranch.core.thread_starts import start_thread
from anabranch.errors import CancelledError, OpError
from anabranch.state.call_placement import CallPlacement
from anabranch.state.dataset_background import Producer, Pull, Ticket, Workers
from anabranch.state.datasets import Element, ElementFunction, Outcome

#: Waits of a consumer are no longer than this (s): a signal that arrives just before a wait begins does not end it.
_LOOK_AGAIN: Final = 0.5
#: how long (s) the end of the process waits for one thread
_FAREWELL: Final = 2.0

_running: weakref.WeakSet[ThreadProducer | ThreadWorkers] = weakref.WeakSet()


class ThreadBackground:
    """Work goes on in threads of its own."""

    def produce(self, pull: Pull, capacity: int) -> Producer:
        """A thread that pulls ahead."""
        return ThreadProducer(pull, capacity)

    def workers(self, count: int) -> Workers:
        """Threads that run calls."""
        return ThreadWorkers(count)


def _cancelled() -> CancelledError:
    return CancelledError(None, None, "the iterator was closed while an element was computed")


class ThreadProducer:
    """One thread that pulls ahead.

    #: `_buffer`, `_stopping` and `_closed` are only touched under `_changed`; a pull runs without it.
    #: The thread ends after the end of the elements, or when it finds `_stopping`.
    """

    def __init__(self, pull: Pull, capacity: int) -> None:
        self._pull = pull
        self._capacity = capacity
        # reentrant: the garbage collector may close a forgotten iterator on the very thread that holds the lock
        self._changed = threading.Condition(threading.RLock())
        self._buffer: deque[Outcome] = deque()
        self._stopping = self._closed = False
        self._thread: threading.Thread | None = None

    def take(self) -> Outcome:
        if self._thread is None:
            self._start()
        with self._changed:
            while not self._buffer:
                if self._closed:
                    raise _cancelled()
                with admitted():
                    self._changed.wait(_LOOK_AGAIN)
            outcome = self._buffer[0]
            if not outcome.is_end:  # which stays
                self._buffer.popleft()
            self._changed.notify_all()
        return outcome

    def halt(self) -> list[Outcome]:
        self._stop()
        if self._thread is not None:
            self._thread.join()
        return list(self._buffer)

    def close(self) -> None:
        with self._changed:
            self._closed = True
        self._stop()

    def _stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _start(self) -> None:
        with self._changed:
            if self._closed:
                raise _cancelled()
            if self._thread is None:
                _running.add(self)
                self._thread = threading.Thread(target=self._run, name="anabranch-prefetch", daemon=True)
                start_thread(self._thread)

    def _run(self) -> None:
        with np.errstate(all="ignore"):
            self._produce()

    def _produce(self) -> None:
        ended = False
        while not ended:
            with self._changed:
                while len(self._buffer) >= self._capacity and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    return
            outcome = self._outcome()
            ended = outcome.element is None and not isinstance(outcome.error, OpError)
            with self._changed:
                self._buffer.append(outcome)
                self._changed.notify_all()

    def _outcome(self) -> Outcome:
        try:
            return Outcome(self._pull())
        except BaseException as error:  # whatever it is, it belongs to whoever takes this element
            return Outcome(None, error)

    def farewell(self) -> None:
        """Stops, and waits a little."""
        self.close()
        if self._thread is not None:
            self._thread.join(_FAREWELL)


class _Call:
    """One call: made by a worker, or by whoever wants its result.

    Attributes:
        handing_over: how long it took to hand it over to a worker (s).
    """

    __slots__ = ("_arguments", "_done", "_error", "_function", "_owner", "_result", "handing_over")

    def __init__(self, owner: ThreadWorkers, function: ElementFunction, arguments: Element, handed_over: bool) -> None:
        self._owner, self._function, self._arguments = owner, function, arguments
        self._result: Element = ()
        self._error: BaseException | None = None
        self._done: threading.Event | None = threading.Event() if handed_over else None
        self.handing_over = 0.0

    def result(self) -> Element:
        if self._done is None:
            self.run()
        else:
            start = time.perf_counter()
            with admitted():
                while not self._done.wait(_LOOK_AGAIN):
                    pass
            self._owner.placement.note_wait(time.perf_counter() - start + self.handing_over)
        if self._error is not None:
            raise self._error
        return self._result

    def run(self) -> None:
        start = time.perf_counter()
        try:
            self._result = self._function(*self._arguments)
        except BaseException as error:  # whatever it is, it belongs to whoever takes this element
            self._error = error
        self._owner.placement.note(time.perf_counter() - start, by_worker=self._done is not None)
        if self._done is not None:
            self._done.set()

    def cancel(self) -> None:
        self._error = _cancelled()
        if self._done is not None:
            self._done.set()


class ThreadWorkers:
    """Threads that run calls in the order in which they were handed over.

    Calls that workers do not make faster are made by the caller instead, which is found out meanwhile.

    Attributes:
        placement: who makes the next call. Races between calls lose a measurement at worst.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._threads: list[threading.Thread] = []
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.RLock()  # see ThreadProducer
        self._closed = False
        self.placement = CallPlacement(count)
        self._running: set[_Call] = set()

    def submit(self, function: ElementFunction, arguments: Element) -> Ticket:
        if self._closed:
            raise _cancelled()
        handed_over = self.placement.uses_workers
        call = _Call(self, function, arguments, handed_over)
        if handed_over:
            if len(self._threads) < self._count:
                self._start_one()
            start = time.perf_counter()
            self._calls.put(call)
            call.handing_over = time.perf_counter() - start
        return call

    def close(self) -> None:
        self._closed = True
        for _ in self._threads:
            self._calls.put(None)
        self._cancel_waiting()

    def _cancel_waiting(self) -> None:
        """Cancels the calls that no worker has begun, and releases whoever waits for those that run."""
        kept = 0
        while True:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                break
            if call is None:
                kept += 1
            else:
                call.cancel()
        for _ in range(kept):
            self._calls.put(None)
        with self._lock:
            running = list(self._running)
        for call in running:
            call.cancel()

    def _start_one(self) -> None:
        _running.add(self)
        thread = threading.Thread(
            target=_serve, args=(self._calls, self._running, self._lock), name="anabranch-map", daemon=True
        )
        self._threads.append(thread)
        start_thread(thread)

    def farewell(self) -> None:
        """Stops, and waits a little."""
        self.close()
        for thread in self._threads:
            thread.join(_FAREWELL)


def _serve(calls: queue.SimpleQueue[_Call | None], running: set[_Call], lock: threading.RLock) -> None:
    with np.errstate(all="ignore"):
        while (call := calls.get()) is not None:
            with lock:
                running.add(call)
            call.run()
            with lock:
                running.discard(call)
            del call


def _stop_all() -> None:
    for owner in list(_running):
        owner.farewell()


atexit.register(_stop_all)
