"""Datasets that compute elements before they are asked for: prefetch and parallel map (WP4.5).

What runs at the same time is given from outside (`Background`), so that this file holds no threads: a `Producer` pulls
elements ahead into a bounded buffer, `Workers` run function calls beside each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from anabranch.errors import OpError, OutOfRangeError, exception_type_from_error_code
from anabranch.state.datasets import (
    DatasetIterator,
    Element,
    ElementFunction,
    Elements,
    Outcome,
    Path,
    UnaryDataset,
)
from anabranch.state.positions import Position

Pull = Callable[[], Element | None]


class Producer(Protocol):
    """Pulls elements ahead of time.

    #: No pull runs before the first `take`. At most `capacity` outcomes are buffered. After the end it pulls no more.
    """

    def take(self) -> Outcome:
        """The next outcome, waiting for it.

        Raises:
            CancelledError: the producer was closed meanwhile.
        """

    def halt(self) -> list[Outcome]:
        """Stops after the pull that runs now; returns what was buffered. The producer is finished."""

    def close(self) -> None:
        """Stops, without waiting for the pull that runs now; who waits in `take` is cancelled."""


class Ticket(Protocol):
    """A call that was handed to workers."""

    def result(self) -> Element:
        """What the call returned, waiting for it.

        Raises:
            BaseException: what the call raised; CancelledError when the workers were closed meanwhile.
        """


class Workers(Protocol):
    """Run calls beside each other."""

    def submit(self, function: ElementFunction, arguments: Element) -> Ticket:
        """Hands over a call."""

    def close(self) -> None:
        """Gives up the calls that have not begun; who waits for one is cancelled."""


class Background(Protocol):
    """Where work goes on while its user does something else."""

    def produce(self, pull: Pull, capacity: int) -> Producer:
        """A new producer."""

    def workers(self, count: int) -> Workers:
        """New workers, `count` of them."""


# ---------------------------------------------------------------------- prefetch
class PrefetchDataset(UnaryDataset):
    """The same elements; up to `size` of them are computed ahead of time."""

    def __init__(self, source: Elements, size: int, background: Background) -> None:
        super().__init__(source)
        self.size, self.background = size, background

    def iterator(self, path: Path = ()) -> DatasetIterator:
        source = self.source.iterator(path)
        # no thread for a buffer that holds nothing
        return source if self.size == 0 else _PrefetchIterator(self, source)


class _PrefetchIterator(DatasetIterator):
    def __init__(self, dataset: PrefetchDataset, source: DatasetIterator) -> None:
        self._dataset = dataset
        self._source = source
        self._ready: deque[Outcome] = deque()
        self._producer: Producer | None = None

    def next(self) -> Element | None:
        # what a saved or restored position held comes before anything that a new producer pulls
        if self._ready:
            outcome = self._ready[0]
            # the end stays, for whoever asks once more
            if not outcome.is_end:
                self._ready.popleft()
        else:
            if self._producer is None:
                # from here on the source belongs to the producer, until that is halted
                self._producer = self._dataset.background.produce(self._source.next, self._dataset.size)
            outcome = self._producer.take()
        if outcome.error is not None:
            raise outcome.error
        return outcome.element

    def position(self) -> Any:
        # the source must not move while its position is taken; what was pulled ahead of it is a part of the position
        if self._producer is not None:
            producer, self._producer = self._producer, None
            self._ready.extend(producer.halt())
        return [[outcome.encoded() for outcome in self._ready], self._source.position()]

    def restore(self, position: Position) -> None:
        # a new iterator has no producer yet (`DatasetIterator.restore`), so that nobody moves the source meanwhile
        self._ready = deque(Outcome.decoded(item) for item in position[0])
        self._source.restore(position[1])

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
        self._source.close()

    def __del__(self) -> None:
        # it would go on pulling for nobody
        if self._producer is not None:
            self._producer.close()


# ---------------------------------------------------------------------- parallel map
class ParallelMapDataset(UnaryDataset):
    """`function` of each element, in order; up to `parallelism` calls run at the same time."""

    def __init__(self, source: Elements, function: ElementFunction, parallelism: int, background: Background) -> None:
        super().__init__(source)
        self.function, self.parallelism, self.background = function, parallelism, background

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _ParallelMapIterator(self, self.source.iterator(path))


class _ParallelMapIterator(DatasetIterator):
    """Its position holds the arguments of the calls that are under way: they are made again."""

    def __init__(self, dataset: ParallelMapDataset, source: DatasetIterator) -> None:
        self._dataset = dataset
        self._source = source
        self._calls: deque[tuple[Element, Ticket]] = deque()
        self._failed_pull: OpError | None = None
        self._ended = False
        self._workers: Workers | None = None

    def next(self) -> Element | None:
        calls = self._calls
        self._fill()
        if not calls:
            self._raise_failed_pull()
            return None
        _, ticket = calls[0]
        try:
            return ticket.result()
        # a function may end the dataset; the calls behind this one were made for nothing
        except OutOfRangeError:
            self._ended, self._failed_pull = True, None
            calls.clear()
            return None
        finally:
            # also if it failed: what is asked for next is the next element
            if calls:
                calls.popleft()

    def _fill(self) -> None:
        while not self._ended and self._failed_pull is None and len(self._calls) < self._dataset.parallelism:
            try:
                arguments = self._source.next()
            except OpError as error:
                # it is raised when its turn comes, after the elements of the calls that are under way
                self._failed_pull = error
                return
            if arguments is None:
                self._ended = True
            else:
                self._submit(arguments)

    def _raise_failed_pull(self) -> None:
        failure, self._failed_pull = self._failed_pull, None
        if failure is not None:
            raise failure

    def _submit(self, arguments: Element) -> None:
        if self._workers is None:
            self._workers = self._dataset.background.workers(self._dataset.parallelism)
        # in the order of the source, in which the results are given, whichever call returns first
        self._calls.append((arguments, self._workers.submit(self._dataset.function, arguments)))

    def position(self) -> Any:
        failure = self._failed_pull
        failed = None if failure is None else [failure.error_code, failure.message]
        # not the results: a call may still run, and whether it is repeated must not depend on how far it has come
        return [[arguments for arguments, _ in self._calls], failed, self._ended, self._source.position()]

    def restore(self, position: Position) -> None:
        calls, failed, self._ended, source = position
        # handed over as they were, before the source moves: the first results are wanted next
        for arguments in calls:
            self._submit(tuple(arguments))
        if failed is not None:
            self._failed_pull = exception_type_from_error_code(failed[0])(None, None, failed[1])
        self._source.restore(source)

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()
        self._source.close()

    def __del__(self) -> None:
        if self._workers is not None:
            self._workers.close()
