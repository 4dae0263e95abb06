"""Iterators as resources: what stands behind an iterator handle (WP4.5).

The lock is inside, and is held while an element is computed: an iterator is moved by one step at a time, and the others
wait for their own elements, which come after. Threads wait for it, since to compute an element holds a thread anyhow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from anabranch.errors import CancelledError, FailedPreconditionError
from anabranch.state.dataset_assertions import check_what_follows
from anabranch.state.datasets import DatasetIterator, Element, Elements
from anabranch.state.positions import decode_position, encode_position


class IteratorResource:
    """A place in a dataset, shared by the steps of a task. Thread-safe: one step at a time moves it.

    #: `close` does not wait for a step that is in `next`: that step ends with CancelledError if it waits for a thread.
    """

    def __init__(self) -> None:
        # reentrant, for `initialize_once` calls `initialize`
        self._lock = threading.RLock()
        self._dataset: Elements | None = None
        self._iterator: DatasetIterator | None = None
        self._closed = False

    @property
    def dataset(self) -> Elements | None:
        """The dataset of the last initialisation."""
        return self._dataset

    def initialize(self, dataset: Elements) -> None:
        """Begins a new walk through a dataset.

        Raises:
            InvalidArgumentError: a dataset is not followed by those that it says must follow.
        """
        check_what_follows(dataset)
        with self._lock:
            old = self._iterator
            self._dataset, self._iterator, self._closed = dataset, dataset.iterator(), False
        if old is not None:
            old.close()

    def initialize_once(self, make: Callable[[], Elements]) -> None:
        """Begins a walk unless there is one."""
        if self._iterator is None:
            with self._lock:
                # another step may have begun it meanwhile
                if self._iterator is None:
                    self.initialize(make())

    def next(self) -> Element | None:
        """The next element; None at the end.

        Raises:
            FailedPreconditionError: not initialised.
            CancelledError: closed.
            OpError: the element could not be computed.
        """
        with self._lock:
            # the lock is held while the element is computed: elements come in the order in which the steps asked
            return self._opened().next()

    def save(self) -> bytes:
        """The position as bytes.

        Raises:
            FailedPreconditionError: not initialised.
            UnimplementedError: it buffers elements that have no bytes (datasets).
        """
        with self._lock:
            return encode_position(self._opened().position())

    def restore(self, data: bytes) -> None:
        """Moves to a saved position of a dataset that was made in the same way.

        Raises:
            FailedPreconditionError: not initialised: it is not known of what dataset the position is.
            DataLossError: the bytes are no position of this dataset.
        """
        with self._lock:
            self._opened()
            assert self._dataset is not None
            dataset = self._dataset
            # a new one: if the position cannot be restored, the old one goes on from where it is
            fresh = dataset.iterator()
            try:
                fresh.restore(decode_position(data))
            except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
                raise FailedPreconditionError(
                    None,
                    None,
                    f"the saved position is not one of this iterator's dataset ({error}); build the same pipeline",
                ) from error
            old, self._iterator = self._iterator, fresh
        if old is not None:
            old.close()

    def close(self) -> None:
        """Ends the walk and its threads."""
        # without the lock, which a step holds while it waits for an element: closing is what ends that wait
        self._closed = True
        iterator = self._iterator
        if iterator is not None:
            iterator.close()

    def _opened(self) -> DatasetIterator:
        if self._closed:
            raise CancelledError(None, None, "the iterator was closed")
        if self._iterator is None:
            raise FailedPreconditionError(
                None,
                None,
                "GetNext() failed because the iterator has not been initialized. Ensure that you have run the "
                "initializer operation for this iterator before getting the next element.",
            )
        return self._iterator
