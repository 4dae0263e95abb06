"""Computations of a library on cores that others use as well.

Threads of a library may wait for each other by spinning. That is quick while each has a core; where they share one, a
thread spins until the system takes the core from it, and a call takes ten times as long as it computes, or more. So a
computation that was seen to suffer from that runs on one thread, which waits for nobody, while the cores are crowded.

Now and then a call waits on quiet cores, too: for another operation of its own step. One thread would take twice the
time then. So what calls have lost runs into a leaky bucket, and the cores count as crowded when that is full:

| event | quiet | crowded |
|---|---|---|
| a call waited, the bucket is not full | quiet | - |
| a call waited, the bucket is full | crowded; its pause doubles if it was crowded a moment ago | - |
| the pause is over | - | quiet, the bucket is empty |

While this process itself has work for all cores, as when a program is compiled beside the steps that it is for, nothing
has to be found out: computations whose threads are known to spin run on one thread at once (`Crowding.taken`).

Contract: a result never depends on which of the two forms ran, but in its last places.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

#: a call that takes so many times the least time known, and so much more (s), waited for a core
_FACTOR, _SLACK_SECONDS = 4.0, 2e-3
#: what calls may lose in a second, for good, and what they may lose at once (s)
_LEAK: Final = 0.1
_BUCKET_SECONDS: Final = 0.1
#: how long the cores count as crowded, at first and at most (s)
_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 4.0


class RunnableComputation(Protocol):
    """What runs on arrays at addresses, in memory to work in."""

    @property
    def scratch_bytes(self) -> int:
        """How much memory it needs besides its arrays."""

    def run(self, addresses: Sequence[int], scratch: int, scratch_bytes: int) -> None:
        """Computes."""


class Crowding:
    """Whether the cores were found crowded a short time ago. Any thread may ask and tell.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._lost, self._told = 0.0, -math.inf
        self._until, self._pause = -math.inf, 0.0
        self._takers = 0

    @property
    def is_known(self) -> bool:
        return self.is_taken or self._clock() < self._until

    @property
    def is_taken(self) -> bool:
        """Whether other work of this process has the cores."""
        return self._takers > 0

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """What is done in it, by any number of threads, takes the cores from calls that run meanwhile."""
        with self._lock:
            self._takers += 1
        try:
            yield
        finally:
            with self._lock:
                self._takers -= 1

    def lost(self, seconds: float) -> None:
        """A call took so much longer than it takes on quiet cores."""
        with self._lock:
            now = self._clock()
            if now < self._until or self._takers:  # it began before, or it is known why
                return
            kept = max(self._lost - (now - self._told) * _LEAK, 0.0)
            self._lost, self._told = kept + seconds, now
            if self._lost >= _BUCKET_SECONDS:
                again = now - self._until < _PAUSE_SECONDS
                self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS) if again else _PAUSE_SECONDS
                self._until, self._lost = now + self._pause, 0.0


class SparingComputation:
    """A computation in two forms: on all cores, and, where it suffers from crowded ones, on one.

    Args:
        wide: on all cores.
        narrow: makes the form that runs on one; called when it is first needed.
        crowding: what all such computations of a process find out about their cores.
        spins: whether its threads are known to spin while they wait for each other.
    """

    def __init__(
        self,
        wide: RunnableComputation,
        narrow: Callable[[], RunnableComputation],
        crowding: Crowding,
        spins: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._wide, self._make_narrow, self._crowding, self._clock = wide, narrow, crowding, clock
        self._spins = spins
        self._narrow: RunnableComputation | None = None
        self._least = math.inf
        #: whether it was ever seen to wait
        self._suffers = False

    @property
    def scratch_bytes(self) -> int:
        return self._wide.scratch_bytes

    def run(self, addresses: Sequence[int], scratch: int, scratch_bytes: int) -> None:
        """Computes; raises what the computation raises."""
        if (self._suffers and self._crowding.is_known) or (self._spins and self._crowding.is_taken):
            if self._narrow is None:
                self._narrow = self._make_narrow()
            self._narrow.run(addresses, scratch, scratch_bytes)
            return
        start = self._clock()
        self._wide.run(addresses, scratch, scratch_bytes)
        took = self._clock() - start
        if took > _FACTOR * self._least + _SLACK_SECONDS:
            self._suffers = True
            self._crowding.lost(took - self._least)
        self._least = min(self._least, took)


#: the process's
cores: Final = Crowding()
