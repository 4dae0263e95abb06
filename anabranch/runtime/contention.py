"""Whether threads wait for each other's updates, and whether an island is quicker as a whole then or in parts.

**Threads wait** (`Contention`) where they have waited for a quarter of the time that so many runs of an island took, by
all threads together. Then the island's step is planned in parts as well (`xla.update_phases`).

**Which way is quicker** depends on the machine and on the step: parts compute side by side, but take two more calls of
programs, and threads hand over Python's lock and the variables' for each. So both ways are tried, and the runs counted
that all threads finish in some time (`Ways`):

    ===========  =========================  ====================================================================
    state        runs                       when its window ends
    ===========  =========================  ====================================================================
    warming      in parts                   once their programs are compiled: measuring
    measuring    as a whole, in parts, ...  after `_PAIRS` of each: settled, for the way that took less
    settled      as it was found            one thread alone has run: alone; long ago and they wait: measuring
    alone        as a whole                 threads wait again: settled, or measuring where that was long ago
    ===========  =========================  ====================================================================

Counts are not exact where threads change them at once, and need not be.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from anabranch.xla.lowering import NeedsPartsError

#: runs in a window
WINDOW: Final = 64
#: which part of the time threads have waited, all together, where it is too much
SHARE: Final = 0.25
#: bytes of a variable that are copied in a second, at least
_COPIED: Final = 4e9
#: which part of the mean wait copying may take
_PART: Final = 0.25

#: runs that are not counted after a change of the way, since others still run in the other way
_UNCOUNTED: Final = 8
#: the least runs and seconds of a window in which a way is measured
_LEAST_RUNS, _LEAST_SECONDS = 12, 0.04
#: how often each way is measured
_PAIRS: Final = 3
#: after so many runs nobody waits any longer for programs to be compiled
_MOST_WARMING: Final = 256
#: parts have to be so much quicker
_GAIN: Final = 1.03
#: after so many seconds both ways are measured again; each time twice as many, and at most so many
_AGAIN, _AGAIN_AT_MOST = 20.0, 640.0
#: and not before so many times the seconds have passed that measuring took
_REST: Final = 50.0


class ContendedError(NeedsPartsError):
    """Several threads run an island and wait for each other.

    Attributes:
        seconds: how long they wait for each run, on the average.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"threads wait {seconds * 1e3:.2g} ms for each other's updates")
        self.seconds = seconds

    def pays(self, copied: int) -> bool:
        """Whether updates may copy so many bytes of variables in each step."""
        return copied / _COPIED < _PART * self.seconds


class Contention:
    """How long an island waits for others that write the same variables; see the module docstring.

    Args:
        clock: seconds, monotonic.

    Attributes:
        is_long: whether threads waited too long in the last window.
    """

    __slots__ = ("_clock", "_is_told", "_runs", "_seconds", "_since", "is_long")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._is_told = self.is_long = False
        self._runs = 0
        self._seconds, self._since = 0.0, clock()

    def ran(self) -> None:
        """A run begins.

        Raises:
            ContendedError: threads waited too long in the last window. Once only.
        """
        self._runs += 1
        if self._runs < WINDOW:
            return
        seconds, now = self._seconds, self._clock()
        passed, self._since = now - self._since, now
        self._runs, self._seconds = 0, 0.0
        self.is_long = seconds >= SHARE * passed
        if self.is_long and not self._is_told:
            self._is_told = True
            raise ContendedError(seconds / WINDOW)

    def waited(self, seconds: float) -> None:
        """A run found the variables taken, and waited so long for them."""
        self._seconds += seconds


class Ways:
    """Chooses between an island as a whole and its parts, run by run; see the module docstring.

    Args:
        is_warm: whether the programs of all parts are compiled.
        waits: whether threads wait for each other, while the island runs as a whole.
        clock: seconds, monotonic.
    """

    def __init__(
        self, is_warm: Callable[[], bool], waits: Callable[[], bool], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._is_warm, self._waits, self._clock = is_warm, waits, clock
        self._end: Callable[[float], None] = self._end_warming
        self._apart, self._is_better = True, True
        self._runs, self._all = 0, _UNCOUNTED
        #: who has run in this window
        self._threads: set[int] = set()
        self._warming = 0
        #: when a window of measurements began; None while runs are not counted
        self._began: float | None = None
        #: windows measured, and the runs and seconds of those as a whole and in parts
        self._windows = 0
        self._counts, self._seconds = [0, 0], [0.0, 0.0]
        self._again, self._until, self._measuring = _AGAIN, 0.0, 0.0

    def apart(self, thread: int) -> bool:
        """A thread begins a run; whether it runs in parts."""
        self._threads.add(thread)
        self._runs += 1
        if self._runs >= self._all:
            self._end(self._clock())
        return self._apart

    def _begin(self, end: Callable[[float], None], apart: bool, runs: int) -> None:
        self._end, self._apart, self._all = end, apart, runs
        self._runs = 0
        self._threads.clear()

    def _end_warming(self, now: float) -> None:
        self._warming += self._runs
        if self._is_warm() or self._warming >= _MOST_WARMING:
            self._measure(now)
        else:
            self._begin(self._end_warming, True, _UNCOUNTED)

    def _measure(self, now: float) -> None:
        self._windows = 0
        self._counts, self._seconds = [0, 0], [0.0, 0.0]
        self._began, self._measuring = None, now
        self._begin(self._end_measuring, False, _UNCOUNTED)

    def _end_measuring(self, now: float) -> None:
        if self._began is None:
            self._began = now
            self._begin(self._end_measuring, self._apart, _LEAST_RUNS)
            return
        if now - self._began < _LEAST_SECONDS:
            self._all += _LEAST_RUNS
            return
        self._counts[self._apart] += self._runs
        self._seconds[self._apart] += now - self._began
        self._windows += 1
        self._began = None
        if self._windows < 2 * _PAIRS:
            self._begin(self._end_measuring, not self._apart, _UNCOUNTED)
            return
        whole, parts = (count / seconds for count, seconds in zip(self._counts, self._seconds, strict=True))
        self._is_better = parts > _GAIN * whole
        self._until = now + max(self._again, _REST * (now - self._measuring))
        self._again = min(2 * self._again, _AGAIN_AT_MOST)
        self._begin(self._end_settled, self._is_better, WINDOW)

    def _end_settled(self, now: float) -> None:
        if len(self._threads) < 2:
            self._begin(self._end_alone, False, WINDOW)
        elif now >= self._until and (self._apart or self._waits()):
            self._measure(now)
        else:
            self._begin(self._end_settled, self._apart, WINDOW)

    def _end_alone(self, now: float) -> None:
        if not self._waits():
            self._begin(self._end_alone, False, WINDOW)
        elif now >= self._until:
            self._measure(now)
        else:
            self._begin(self._end_settled, self._is_better, WINDOW)
