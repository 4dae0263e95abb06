"""Which runs of a partition are so short that they are taken where their events come.

To hand an event to another thread costs more than a small partition does with it. The thread that receives messages
may therefore run one itself, if that takes no longer than reading a message or two: whatever else comes waits for it.
Nobody can tell beforehand what takes how long, so that it is measured, in all runs, and one long run ends it. Where the
system let somebody else run in the middle of a turn (a preemption), the turn says nothing, unless it took very long: on
a busy machine that happens to any turn, and on any thread.

    ======================  =====================  =================  =========================
    state                   a run was short        a run was long     it was preempted
    ======================  =====================  =================  =========================
    long (0 ... 2)          counted; -> short      -> long (0)        -
    short (3)               -                      -> long (0)        -
    ======================  =====================  =================  =========================
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Final

if sys.platform == "linux":
    import resource

#: a run of which every turn takes less (s) is short
SHORT: Final = 0.001
#: one that took this long (s) is long whatever has interrupted it
_VERY_LONG: Final = 0.05
#: so many runs one after the other must have been short; the first runs of a partition compile
_IN_A_ROW: Final = 3

_threads = threading.local()


def take_short_turns_here() -> None:
    """From now on this thread takes the short turns for which events come on it. It must hold no lock then."""
    _threads.takes_turns = True


def takes_short_turns_here() -> bool:
    """Whether this thread takes short turns itself."""
    return getattr(_threads, "takes_turns", False)


class Pace:
    """How long the runs of one partition take. Threads may note at once: a run that is not counted does no harm."""

    __slots__ = ("_short_runs",)

    def __init__(self) -> None:
        self._short_runs = 0

    @property
    def is_short(self) -> bool:
        """Whether the last runs were short."""
        return self._short_runs >= _IN_A_ROW

    def note(self, longest: float) -> None:
        """A run has ended, of which the longest turn took so long (s)."""
        if longest >= SHORT:
            self._short_runs = 0
        elif self._short_runs < _IN_A_ROW:
            self._short_runs += 1


class Stopwatch:
    """Measures the turns of one run, and notes the longest at its end. A turn begins and ends on one thread."""

    __slots__ = ("_began", "_is_preempted", "_longest", "_pace", "_preemptions")

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._longest = self._began = 0.0
        self._is_preempted = False
        self._preemptions = 0

    def begin(self) -> None:
        """A turn begins."""
        self._preemptions = _preemptions()
        self._began = time.perf_counter()

    def pause(self) -> None:
        """A turn ends."""
        passed = time.perf_counter() - self._began
        self._longest = max(self._longest, passed)
        # asked for those only that took long: it takes a microsecond
        if SHORT <= passed < _VERY_LONG and _preemptions() != self._preemptions:
            self._is_preempted = True

    def end(self) -> None:
        """The last turn ends, and the run."""
        self.pause()
        if not self._is_preempted or self._longest >= _VERY_LONG:
            self._pace.note(self._longest)


def _preemptions() -> int:
    """How often the system took the processor from this thread, which could have gone on; 0 where it does not say."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw if sys.platform == "linux" else 0
