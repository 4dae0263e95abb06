"""Results that are not there yet: what an asynchronous kernel returns instead of waiting (WP5.3).

A kernel that has to wait for something outside its step (an element of a queue, a tensor from another device) must
not hold a thread meanwhile. It returns a `Pending`, keeps hold of it, and settles it when the time has come::

    pending = Pending(on_cancel=waiters.remove)
    waiters.append(pending)
    return pending                       # ... and later, on any thread: pending.complete([value])

A callback informs whoever runs the step. A step that is cancelled cancels the result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.core.interrupts import admitted


class Pending:
    """The outputs of one run of an asynchronous kernel, settled once: by `complete`, `fail` or `cancel`.

    #: Only the first of these has an effect, and says so by returning True. A giver whose `complete` returns False
    #: still owns the values: nothing is lost to a step that was cancelled meanwhile.
    #: Callbacks run exactly once, on the thread that settles, or at once when it is settled already. They must not
    #: block. No lock is held while they run, nor while `on_cancel` runs.

    Args:
        on_cancel: called with this object before a cancelled result is settled, so that its owner forgets it.
        waiting_for: what the kernel waits for, for messages: "an element of queue 'q' (0 of 10)", or something whose
            `str` says so.
    """

    __slots__ = ("_callbacks", "_lock", "_on_cancel", "_settled", "error", "values", "waiting_for")

    def __init__(self, on_cancel: Callable[[Pending], object] | None = None, waiting_for: object = "") -> None:
        self.waiting_for = waiting_for
        self._lock = threading.Lock()
        self._on_cancel = on_cancel
        self._callbacks: list[Callable[[Pending], None]] = []
        self._settled = False
        self.values: Sequence[Any] = ()
        self.error: BaseException | None = None

    @classmethod
    def completed(cls, values: Sequence[Any]) -> Pending:
        """A result that needed no waiting."""
        pending = cls()
        pending.complete(values)
        return pending

    @property
    def is_settled(self) -> bool:
        return self._settled

    def complete(self, values: Sequence[Any]) -> bool:
        """Delivers the outputs, one value each; False when the result was settled before."""
        return self._settle(values, None)

    def fail(self, error: BaseException) -> bool:
        """Makes the kernel fail; False when the result was settled before."""
        return self._settle((), error)

    def cancel(self, error: BaseException) -> bool:
        """Cancels the result with `error`; False when it was settled before."""
        if self._settled:
            return False
        if self._on_cancel is not None:
            self._on_cancel(self)
        return self._settle((), error)

    def when_settled(self, callback: Callable[[Pending], None]) -> None:
        """Calls `callback` with this object as soon as it is settled."""
        with self._lock:
            if not self._settled:
                self._callbacks.append(callback)
                return
        callback(self)

    def wait(self) -> Sequence[Any]:
        """Blocks the calling thread until the result is settled; for callers that have nothing else to run.

        Raises:
            BaseException: what the result failed with. An interrupt of the waiting thread cancels the result.
        """
        # most callers come when it is settled: an event is a dozen calls of Python functions
        if not self._settled:
            self._block()
        if self.error is not None:
            raise self.error
        return self.values

    def _block(self) -> None:
        done = threading.Event()
        self.when_settled(lambda _: done.set())
        try:
            with admitted():
                done.wait()
        except BaseException as interrupt:
            self.cancel(interrupt)
            raise

    def _settle(self, values: Sequence[Any], error: BaseException | None) -> bool:
        with self._lock:
            if self._settled:
                return False
            self.values, self.error, self._settled = values, error, True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)
        return True
