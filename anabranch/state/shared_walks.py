"""One walk through a dataset whose elements are dealt out in turn: what stands behind a MultiDeviceIterator (WP4.5)."""

from __future__ import annotations

import threading
from collections import deque

from anabranch.errors import CancelledError, FailedPreconditionError, InvalidArgumentError
from anabranch.state.datasets import DatasetIterator, Element, Elements, Outcome, outcome_of


class SharedWalk:
    """Deals the elements of a dataset to `shards` takers: element n to the taker n modulo their number. Thread-safe.

    What is passed on the way to the element of one taker waits for the others; a taker that never comes has all of its
    elements wait. (TensorFlow stops there, however often the others ask.)

    #: the lock is held while an element is computed, as it is for an iterator
    """

    def __init__(self, shards: int) -> None:
        self._lock = threading.Lock()
        self._waiting: list[deque[Outcome]] = [deque() for _ in range(shards)]
        self._iterator: DatasetIterator | None = None
        self._turn = 0
        self._incarnation = 0
        self._closed = False

    @property
    def shards(self) -> int:
        """How many takers there are."""
        return len(self._waiting)

    def begin(self, dataset: Elements) -> int:
        """Begins a walk; returns its number, by which takers ask for it."""
        with self._lock:
            old = self._iterator
            self._iterator, self._turn, self._closed = dataset.iterator(), 0, False
            for waiting in self._waiting:
                waiting.clear()
            self._incarnation += 1
            number = self._incarnation
        if old is not None:
            old.close()
        return number

    def next(self, shard: int, incarnation: int) -> Element | None:
        """The next element of one taker; None at the end.

        Raises:
            FailedPreconditionError: no walk was begun.
            InvalidArgumentError: there is no such taker, or another walk was begun since.
            CancelledError: closed.
            OpError: the element could not be computed.
        """
        with self._lock:
            if self._closed:
                raise CancelledError(None, None, "the iterator was closed")
            if self._iterator is None:
                raise FailedPreconditionError(
                    None, None, "the iterator was not begun; run MultiDeviceIteratorInit first"
                )
            if not 0 <= shard < self.shards:
                raise InvalidArgumentError(None, None, f"shard_num must be below {self.shards}, got {shard}")
            if incarnation != self._incarnation:
                message = f"Invalid incarnation id: {incarnation}; the walk that goes on is {self._incarnation}"
                raise InvalidArgumentError(None, None, message)
            while not self._waiting[shard]:
                outcome = outcome_of(self._iterator.next)
                if outcome.is_end:
                    return None
                self._waiting[self._turn].append(outcome)
                self._turn = (self._turn + 1) % self.shards
            outcome = self._waiting[shard].popleft()
        return outcome.value()

    def close(self) -> None:
        """Ends the walk and its threads."""
        self._closed = True
        iterator = self._iterator
        if iterator is not None:
            iterator.close()
