"""A lock that steps hold from one operation to another: what a critical section is made of.

A `Hold` is the lock in somebody's hands. It is given back by `release`, and at the latest when nobody refers to it any
more, so that a step that fails between the two operations does not keep the others out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from anabranch.core.pending import Pending
from anabranch.state.requests import Request, SharedObject, WaitQueue, Withdraw


class Hold:
    """A held lock."""

    __slots__ = ("_mutex",)

    def __init__(self, mutex: Mutex) -> None:
        self._mutex: Mutex | None = mutex

    def release(self) -> None:
        """Gives the lock back; again: nothing happens."""
        # forgotten first: the program and the garbage collector may both come here, and only one of them finds
        # the mutex
        mutex, self._mutex = self._mutex, None
        if mutex is not None:
            mutex.released()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at the end of the interpreter the lock may be gone
            self.release()


class Acquire(Request):
    """Wants the lock."""

    __slots__ = ("hold",)

    def __init__(self, by: str, on_cancel: Withdraw) -> None:
        super().__init__(by, on_cancel)
        self.hold: Hold | None = None

    def results(self) -> Sequence[Any]:
        return [self.hold]


class Release(Request):
    """Gives the lock back. It never waits, so that the garbage collector may submit it in the midst of anything."""

    __slots__ = ()


class Mutex(SharedObject):
    """A lock for one holder at a time, given in the order of the requests. Thread-safe; never blocks."""

    title = "mutex"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._acquires: WaitQueue[Acquire] = WaitQueue()
        self._releases: WaitQueue[Release] = WaitQueue()
        self._held = False

    def acquire(self, by: str = "lock") -> Pending:
        """Waits for the lock; the result is a `Hold`."""
        return self._submit(Acquire(by, self._withdraw), self._acquires)

    def released(self) -> None:
        """For `Hold`: gives the lock to the next that waits."""
        self._submit(Release("release"), self._releases)

    def _wait_queues(self) -> Sequence[WaitQueue[Any]]:
        return (self._acquires, self._releases)

    def _serve(self) -> None:
        # the only hold gives itself back, once, so that a release is always of the hold that `_held` stands for
        while self._releases:
            self._held = False
            self._grant(self._releases)
        if self._acquires and not self._held:
            self._held = True
            # made here and not when it is answered: if the step is gone by then, the hold is dropped, and gives
            # itself back
            self._acquires.first.hold = Hold(self)
            self._grant(self._acquires)
