"""Whether a thread that waits for messages looks again and again for a while before it sleeps.

To wake a thread that sleeps takes 20 µs and more where its core sleeps as well, and what it does then takes twice as
long as in a loop. In a small step each message is followed by the next within some 0.1 ms. So it is noted how long the
waits were: where most of the last ones were short, the next is expected to be, and is spent looking. Who looks gives
its core after each look to whoever wants it.

A look takes Python's lock, so that another thread of the process that runs Python code meanwhile would wait for it at
each of its calls of the system. Who looks finds that it had to wait for the lock itself (`times_blocked`), and sleeps
then. It is woken when the other thread has nothing to do any more but wait for a message
(`distributed.network.TaskNetwork.expect`).

    ======================  =============  =========================
    expected                wait is short  wait is long
    ======================  =============  =========================
    long (0 ... 3)          + 1            0
    short (4 ... 8)         + 1            - 2
    ======================  =============  =========================
"""

from __future__ import annotations

import sys
from typing import Final

if sys.platform == "linux":
    import resource

#: a wait (s) is short until then; a look that is longer costs more than it saves
SHORT_WAIT: Final = 0.001
#: so many short waits one after the other, and the next one is expected to be short
_IN_A_ROW: Final = 4
#: with so many, one that is long may be an exception
_MOST: Final = 8
#: what a long one takes away
_LOSS: Final = 2


class ShortWaits:
    """What is known of the last waits of one thread."""

    __slots__ = ("_score",)

    def __init__(self) -> None:
        self._score = 0

    @property
    def looking_for(self) -> float:
        """How long (s) the next wait is spent looking, before the thread sleeps; 0: it sleeps at once."""
        return SHORT_WAIT if self._score >= _IN_A_ROW else 0.0

    def ended(self, seconds: float) -> None:
        """A wait has ended that took so long (s)."""
        if seconds < SHORT_WAIT:
            self._score = min(self._score + 1, _MOST)
        else:
            self._score = self._score - _LOSS if self._score >= _IN_A_ROW else 0


def times_blocked() -> int:
    """How often this thread has had to wait, be it for a lock; 0 where the system does not say. It takes 1 µs."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw if sys.platform == "linux" else 0
