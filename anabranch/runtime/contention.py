"""How long an island that writes variables waits for others that write the same ones, and when that is too much.

A window is so many runs of the island, by all threads together. If in one of them every second run or so found the
variables taken, and waited for long, the island is taken apart (`xla.update_phases`). Short waits do not count: to run
in parts takes two more calls of programs. Counts are not exact where threads change them at once, and need not be.
"""

from __future__ import annotations

from typing import Final

from anabranch.xla.lowering import NeedsPartsError

#: runs in a window
WINDOW: Final = 64
#: in so many of them the variables were taken
MOST_WAITS: Final = 24
#: the mean wait (s) from which on it pays to run in parts: threads that hand over Python's lock and the variables' for
#: each part wait for that, too
LONG: Final = 1e-3
#: bytes of a variable that are copied in a second, at least
_COPIED: Final = 4e9
#: which part of the mean wait copying may take
_PART: Final = 0.25


class ContendedError(NeedsPartsError):
    """Several threads run an island and wait for each other.

    Attributes:
        seconds: how long a run waits on the average.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"threads wait {seconds * 1e3:.2g} ms for each other's updates")
        self.seconds = seconds

    def pays(self, copied: int) -> bool:
        """Whether updates may copy so many bytes of variables in each step."""
        return copied / _COPIED < _PART * self.seconds


class Contention:
    """See the module docstring."""

    __slots__ = ("_decided", "_runs", "_seconds", "_waits")

    def __init__(self) -> None:
        self._decided = False
        self._runs = self._waits = 0
        self._seconds = 0.0

    def ran(self) -> None:
        """A run begins.

        Raises:
            ContendedError: the last window had too many long waits. Once only.
        """
        self._runs += 1
        if self._runs < WINDOW:
            return
        waits, seconds = self._waits, self._seconds
        self._runs = self._waits = 0
        self._seconds = 0.0
        if not self._decided and waits >= MOST_WAITS and seconds >= waits * LONG:
            self._decided = True
            raise ContendedError(seconds / waits)

    def waited(self, seconds: float) -> None:
        """A run found the variables taken, and waited so long for them."""
        self._waits += 1
        self._seconds += seconds
