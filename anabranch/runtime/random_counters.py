"""How often each random operation has run: its place in its sequence of random numbers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from numpy.typing import NDArray


class CountedStream:
    """A random stream: how often each of some operations has drawn, from the beginning of their sequences.

    Attributes:
        run_seed: what operations without a seed of their own draw from.
    """

    __slots__ = ("_counts", "_lock", "run_seed")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: a list: mostly few are asked for, and NumPy's functions take longer to call than that
        self._counts: list[int] = []
        self.run_seed = int.from_bytes(os.urandom(4), "little")

    def advance(self, positions: Sequence[int]) -> list[int]:
        """The counts of operations, of 32 bits, each one higher afterwards."""
        # steps that run at once share the counters: without the lock two could draw the same numbers
        with self._lock:
            counts = self._counts
            missing = max(positions, default=-1) + 1 - len(counts)
            if missing > 0:
                counts += [0] * missing
            current = [counts[position] for position in positions]
            for position, count in zip(positions, current, strict=True):
                counts[position] = count + 1 & 0xFFFFFFFF
        return current


#: that of the function that this thread is in, if it has one of its own
_own: ContextVar[CountedStream | None] = ContextVar("stream", default=None)


@contextmanager
def using_stream(stream: CountedStream) -> Iterator[None]:
    """Random operations that this thread runs in the body count there, and not for their session.

    Those that the executor gives to other threads count for the session.
    """
    token = _own.set(stream)
    try:
        yield
    finally:
        _own.reset(token)


class RandomCounters:
    """One counter per random operation of a session, shared by all steps that run it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._index: dict[str, int] = {}
        self.stream = CountedStream()

    def group(self, operations: Sequence[str]) -> CounterGroup:
        """The counters of the random operations of one island, which are named as `StepNode.origin` does."""
        # two plans bound at once would otherwise give different operations the same next place
        with self._lock:
            positions = [self._index.setdefault(name, len(self._index)) for name in operations]
        return CounterGroup(self.stream, positions)


class CounterGroup:
    """The counters that one island uses."""

    __slots__ = ("_positions", "_session")

    def __init__(self, session: CountedStream, positions: Sequence[int]) -> None:
        self._session = session
        self._positions = positions

    def advance(self) -> NDArray[np.uint32]:
        """The counts before this run, each one higher afterwards, and the seed of the run. Shape [operations + 1].

        The seed is an argument of an island, not part of its code: so another process finds the compiled island.
        """
        stream = _own.get() or self._session
        return np.array([*stream.advance(self._positions), stream.run_seed], np.uint32)
