"""Which runs of a partition are so short that they are taken where their events come.

To hand an event to another thread costs more than a small partition does with it. The thread that receives messages
may therefore run one itself, if that takes no longer than reading a message or two: whatever else comes waits for it.
Nobody can tell beforehand what takes how long, so that it is measured, in all runs, and one long run ends it.

    ======================  =====================  =================
    state                   a run was short        a run was long
    ======================  =====================  =================
    long (0 ... 2)          counted; -> short      -> long (0)
    short (3)               -                      -> long (0)
    ======================  =====================  =================
"""

from __future__ import annotations

import threading
import time
from typing import Final

#: a run of which every turn takes less (s) is short
SHORT: Final = 0.001
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
    """Measures the turns of one run, and notes the longest at its end."""

    __slots__ = ("_began", "_longest", "_pace")

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._longest = 0.0
        self._began = time.perf_counter()

    def begin(self) -> None:
        """A turn begins."""
        self._began = time.perf_counter()

    def pause(self) -> None:
        """A turn ends."""
        self._longest = max(self._longest, time.perf_counter() - self._began)

    def end(self) -> None:
        """The last turn ends, and the run."""
        self.pause()
        self._pace.note(self._longest)
