"""Threads that run what may take long: user functions, files, islands of other devices.

There is no bound on their number: two functions that wait for each other must both run. A thread that has nothing to do
is kept for a while. All are daemons, so that a function which never returns does not keep the process alive.
"""

from __future__ import annotations

import contextvars
import itertools
import queue
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from anabranch.core.collected import calling_thread
from anabranch.core.thread_starts import start_thread, starting_thread

R = TypeVar("R")

#: how long an idle thread is kept (s)
_KEPT_FOR: Final = 10.0
_here = threading.local()


def runs_here() -> bool:
    """Whether the calling thread is one of these, to which no exception comes from outside."""
    return getattr(_here, "is_worker", False)


class WorkerThreads:
    """Threads made on demand. `submit` may be called from any thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._ended_work = threading.Condition(self._lock)
        self._is_awaited = False
        #: the idle threads' mailboxes, the one that became idle last at the end
        self._idle: list[queue.SimpleQueue[Callable[[], None]]] = []
        self._threads: set[threading.Thread] = set()

    def submit(self, work: Callable[[], None]) -> None:
        """Runs `work`, which must not raise, on a thread of its own."""
        with self._lock:
            # the one that became idle last: so those that are not needed stay idle, and end after `_KEPT_FOR`
            mailbox = self._idle.pop() if self._idle else None
        if mailbox is not None:
            mailbox.put(work)
            return
        mailbox = queue.SimpleQueue()
        mailbox.put(work)
        # `next` of a count is one call of C code, which two threads cannot be in at once: it needs no lock
        name = f"{self._name}_{next(self._numbers)}"
        thread = threading.Thread(target=self._run, args=(mailbox,), name=name, daemon=True)
        with self._lock:
            # before it starts: `are_all_but` must not take it for a thread of the program
            self._threads.add(thread)
        start_thread(thread)

    def call(self, work: Callable[[], R]) -> R:
        """Runs `work` on one of these threads, with the caller's context variables, and waits for it.

        Raises:
            BaseException: what `work` raises, or an interrupt of the caller. If `work` has begun by then, the caller
                waits for its end as well, unless it is interrupted once more; if not, `work` never begins.
        """
        outcome: list[tuple[R, None] | tuple[None, BaseException]] = []
        # `begun` is a flag that only one can take: the thread, which then runs `work`, or the interrupted caller
        context, done, begun = contextvars.copy_context(), threading.Lock(), threading.Lock()
        done.acquire()

        def run() -> None:
            if not begun.acquire(blocking=False):
                return  # the caller was interrupted before
            try:
                outcome.append((context.run(work), None))
            except BaseException as error:  # whatever it is, the caller has to know
                outcome.append((None, error))
            done.release()

        try:
            self.submit(run)
            done.acquire()
        except BaseException:
            if not begun.acquire(blocking=False):
                while not outcome:  # the exception may have come right after the lock was taken
                    done.acquire()
            raise
        result, error = outcome.pop()
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    @property
    def busy(self) -> int:
        """How many of these threads run something, or are about to."""
        with self._lock:
            return len(self._threads) - len(self._idle)

    def rest(self, seconds: float) -> bool:
        """Waits until none of these threads runs anything, at most so long; whether none does.

        For the end of a process: one that comes back from C++ code when the interpreter is gone aborts it.
        """
        with self._ended_work:
            self._is_awaited = True
            return self._ended_work.wait_for(lambda: len(self._threads) == len(self._idle), seconds)

    def are_all_but(self, thread: threading.Thread) -> bool:
        """Whether no other thread in this process than `thread` could do something: others of ours are idle."""
        with self._lock:
            others = set(threading.enumerate()) - {thread, calling_thread(), starting_thread()}
            return others <= self._threads and len(self._idle) == len(self._threads)

    def _run(self, mailbox: queue.SimpleQueue[Callable[[], None]]) -> None:
        _here.is_worker = True
        while True:
            try:
                work = mailbox.get(timeout=_KEPT_FOR)
            except queue.Empty:
                with self._lock:
                    if mailbox in self._idle:
                        self._idle.remove(mailbox)
                        self._threads.discard(threading.current_thread())
                        return
                continue  # somebody has just taken the mailbox to put something in
            work()
            # an idle thread must not keep alive what its last work referred to
            del work
            with self._lock:
                self._idle.append(mailbox)
                if self._is_awaited:
                    self._ended_work.notify_all()


#: the threads of this process
worker_threads = WorkerThreads("anabranch_worker")
