"""How long to wait between attempts at something that other tasks must make possible."""

from __future__ import annotations

from typing import Final

#: of the first pause, in seconds
FIRST_SECONDS: Final = 0.1
#: of the longest one, where nobody says otherwise
LONGEST_SECONDS: Final = 30.0


class Pauses:
    """Pauses that double from 0.1 s to a longest one: what is quick to come is noticed soon, what is not costs little.

    Args:
        longest: in seconds; may be less than 0.1.

    Example:
        >>> pauses = Pauses(longest=0.5)
        >>> [pauses.next() for _ in range(4)]
        [0.1, 0.2, 0.4, 0.5]
    """

    def __init__(self, longest: float = LONGEST_SECONDS) -> None:
        self._longest = longest
        self._next: float
        self.reset()

    def next(self) -> float:
        """The seconds to wait now."""
        now = self._next
        self._next = min(2 * now, self._longest)
        return now

    def reset(self) -> None:
        """Begins anew, after a success."""
        self._next = min(FIRST_SECONDS, self._longest)
