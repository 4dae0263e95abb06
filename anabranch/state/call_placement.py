"""Who makes the calls of a parallel map: workers beside each other, or whoever wants the results (WP4.5).

To hand a call over takes longer than a quick call. And calls that are mostly Python, or that give Python's lock away
for microseconds again and again, as reading a small file does, take more than twice as long beside each other as alone:
at each of these moments threads change places. Which functions are of that kind their operations do not tell, so it is
measured: how long whoever wants the results is kept by a call, which counts handing it over and being woken, and does
not count what workers do while the caller is busy elsewhere.
"""

from __future__ import annotations

import enum
from typing import Final

#: calls shorter than this (s) cost more to hand over than to make
_QUICK: Final = 100e-6
#: only calls shorter than this (s) are tried by the caller: longer ones may wait, and workers wait beside each other
_SHORT: Final = 2e-3
#: Calls of the caller are of another kind when so many of them take so many times what they took, or one of them longer
#: than this (s). One that takes some milliseconds need not be: another process may have had the processor.
_WINDOW: Final = 64
_LONGER: Final = 4.0
_SLOW: Final = 50e-3
#: workers must keep the caller so many times shorter than making the call itself does
_WORTH_IT: Final = 1.2


class _Phase(enum.Enum):
    """What is going on, by how many calls it takes."""

    #: workers make calls, which are measured
    TOGETHER = 64
    #: the caller makes calls, which are measured
    ALONE = 32
    #: it is known who makes them; then it is found out anew
    SETTLED = 8192


class CallPlacement:
    """Finds out whether workers make calls faster than their caller. Pure; a measurement that is lost does no harm.

    Args:
        parallelism: how many workers there are.

    Attributes:
        uses_workers: who is to make the next call.
    """

    def __init__(self, parallelism: int) -> None:
        self.uses_workers = True
        self._parallelism = parallelism
        #: mean seconds that a worker's call keeps the caller, and of a call of the caller
        self._kept = self._alone = 0.0
        self._phase, self._left_out, self._calls = _Phase.TOGETHER, 0, 0
        #: what the calls of the phase have taken, and those of its window
        self._seconds = self._window = 0.0
        #: how long the phase's calls kept the caller, and how many did
        self._waited, self._waits = 0.0, 0

    def note(self, seconds: float, by_worker: bool) -> None:
        """A call has taken so long."""
        if by_worker is not self.uses_workers:
            return  # it began before the last decision
        if self._left_out > 0:
            self._left_out -= 1
            return
        self._calls += 1
        self._seconds += seconds
        if not by_worker and self._are_of_another_kind(seconds):
            self._measure()
        elif self._calls >= self._phase.value:
            self._end(self._seconds / self._calls)

    def note_wait(self, seconds: float) -> None:
        """A call that was handed over has kept the caller for so long: to hand it over, and to wait for its result."""
        self._waited += seconds
        self._waits += 1

    def _are_of_another_kind(self, seconds: float) -> bool:
        """Whether the caller's calls have become longer, of which the last took so long."""
        self._window += seconds
        longer = seconds > _SLOW
        if self._calls % _WINDOW == 0:
            longer = longer or self._window > _LONGER * _WINDOW * max(self._alone, _QUICK)
            self._window = 0.0
        return longer

    def _end(self, mean: float) -> None:
        """The phase is over, whose calls took so long on average."""
        if self._phase is _Phase.SETTLED:
            self._measure()
        elif self._phase is _Phase.ALONE:
            self._alone = mean
            self._settle(uses_workers=mean > _WORTH_IT * self._kept)
        elif mean < _QUICK:
            self._alone = mean
            self._settle(uses_workers=False)
        elif mean < _SHORT:
            self._alone = mean
            # the first calls' results may not have been taken yet, if the caller is busy: then they keep nobody
            self._kept = self._waited / max(self._waits, 1)
            self.uses_workers = False
            # the workers' last calls run beside the caller's first ones
            self._begin(_Phase.ALONE, left_out=self._parallelism)
        else:
            self._settle(uses_workers=True)

    def _measure(self) -> None:
        self.uses_workers = True
        self._begin(_Phase.TOGETHER)

    def _settle(self, uses_workers: bool) -> None:
        self.uses_workers = uses_workers
        self._begin(_Phase.SETTLED)

    def _begin(self, phase: _Phase, left_out: int = 0) -> None:
        self._phase, self._left_out = phase, left_out
        self._calls = 0
        self._seconds = self._window = 0.0
        self._waited, self._waits = 0.0, 0
