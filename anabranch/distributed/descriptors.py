"""Descriptors of one thread, and how it waits until one of them has something to tell.

Where waits are short, the thread looks again and again for a while before it sleeps (`distributed.short_waits`).
(`selectors` takes twice the time.)
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from typing import Final

from anabranch.distributed.short_waits import ShortWaits, times_blocked

#: a look that takes longer (s) was held up, by who wanted this core or Python's lock
_HELD_UP: Final = 5e-6

Look = Callable[[], object]


class Descriptors:
    """Descriptors, and who looks at what they tell of. Used by one thread, but for `is_to_be_woken`.

    Args:
        looks: whether short waits are spent looking.
    """

    def __init__(self, *, looks: bool) -> None:
        self._looks: dict[int, Look] = {}
        if sys.platform == "linux":
            self._poll, self._second = select.epoll(), 1.0
        else:
            # each look takes the longer the more there are, and times are in milliseconds
            self._poll, self._second = select.poll(), 1000.0
        self._short_waits = ShortWaits() if looks else None
        self._sleeps = False
        #: how often the thread had waited when it woke last: what comes on top, in looks and between them, is for
        #: Python's lock
        self._blocked = 0

    @property
    def is_to_be_woken(self) -> bool:
        """Whether the thread sleeps although its wait is expected to be short: another one needed Python's lock."""
        return self._sleeps and self._looking_for > 0

    def add(self, descriptor: int, look: Look, event: int = select.POLLIN) -> None:
        """From now on, `look` is among those that are ready when there is something to read, or room to write."""
        self._looks[descriptor] = look
        self._poll.register(descriptor, event)

    def remove(self, descriptor: int) -> None:
        """It is about to be closed, or of no interest any more."""
        del self._looks[descriptor]
        self._poll.unregister(descriptor)

    def ready(self, seconds: float = 0.0) -> list[Look]:
        """Sleeps until there is something to read, or the time is over; who should look."""
        return [self._looks[descriptor] for descriptor, _ in self._poll.poll(seconds * self._second)]

    def wait(self, seconds: float) -> list[Look]:
        """As `ready`; but if the wait is expected to be short, the thread looks before it sleeps."""
        if self._short_waits is None:
            return self.ready(seconds)
        began = time.perf_counter()
        ready = self._look_again(began)
        if not ready:
            self._sleeps = True
            ready = self.ready(seconds)
            self._sleeps = False
            self._blocked = times_blocked()
        self._short_waits.ended(time.perf_counter() - began)
        return ready

    @property
    def _looking_for(self) -> float:
        return 0.0 if self._short_waits is None else self._short_waits.looking_for

    def _look_again(self, now: float) -> list[Look]:
        """Looks again and again, if the wait is expected to be short; nobody if it is long, or another thread of this
        process needs Python's lock.
        """
        until = now + self._looking_for
        while now < until:
            ready = self.ready()
            if ready:
                return ready
            # whoever else wants this core has it
            os.sched_yield()
            before, now = now, time.perf_counter()
            if now - before > _HELD_UP and times_blocked() != self._blocked:
                break
        return []

    def close(self) -> None:
        """Lets go of the system's list."""
        if sys.platform == "linux":
            self._poll.close()
