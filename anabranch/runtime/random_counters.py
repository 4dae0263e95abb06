"""How often each random operation has run: its place in its sequence of random numbers."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch.graph.operation import Operation


class RandomCounters:
    """One counter per random operation of a session, shared by all steps that run it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._index: dict[Operation, int] = {}
        self._counts = np.zeros(64, np.uint32)

    def group(self, operations: Sequence[Operation], run_seed: int) -> CounterGroup:
        """The counters of the random operations of one island, and the session's seed."""
        with self._lock:
            positions = [self._index.setdefault(op.origin, len(self._index)) for op in operations]
            if len(self._index) > len(self._counts):
                grown = np.zeros(2 * len(self._index), np.uint32)
                grown[: len(self._counts)] = self._counts
                self._counts = grown
        return CounterGroup(self, np.array(positions, np.intp), run_seed)

    def advance(self, positions: NDArray[np.intp]) -> NDArray[np.uint32]:
        with self._lock:
            current = self._counts[positions]
            self._counts[positions] += np.uint32(1)
        return current


class CounterGroup:
    """The counters that one island uses."""

    __slots__ = ("_owner", "_positions", "_run_seed")

    def __init__(self, owner: RandomCounters, positions: NDArray[np.intp], run_seed: int) -> None:
        self._owner = owner
        self._positions = positions
        self._run_seed = run_seed

    def advance(self) -> NDArray[np.uint32]:
        """The counts before this run, each one higher afterwards, and the session's seed. Shape [operations + 1].

        The seed is an argument of an island, not part of its code: so another process finds the compiled island.
        """
        found = np.empty(len(self._positions) + 1, np.uint32)
        found[:-1] = self._owner.advance(self._positions)
        found[-1] = self._run_seed
        return found
