"""Datasets that leave elements out at random, and those that take their time (WP4.5)."""

from __future__ import annotations

import threading
from typing import Any, Final

from anabranch.errors import CancelledError
from anabranch.state.datasets import (
    UNKNOWN,
    DatasetIterator,
    Element,
    Elements,
    Path,
    RandomSequence,
    UnaryDataset,
    UnaryIterator,
)
from anabranch.state.positions import Position

_RESOLUTION: Final = 2**53


class SamplingDataset(UnaryDataset):
    """Each element with the probability `rate`. The same ones in each pass."""

    def __init__(self, source: Elements, rate: float, seeds: tuple[int, int]) -> None:
        super().__init__(source)
        self.rate, self.seeds = rate, seeds

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _SamplingIterator(self, self.source.iterator(path))

    def cardinality(self) -> int:
        return UNKNOWN


class _SamplingIterator(UnaryIterator):
    def __init__(self, dataset: SamplingDataset, source: DatasetIterator) -> None:
        super().__init__(source)
        self._limit = dataset.rate * _RESOLUTION
        self._random = RandomSequence(*dataset.seeds)

    def next(self) -> Element | None:
        while (element := self.source.next()) is not None:
            if self._random.below(_RESOLUTION) < self._limit:
                return element
        return None

    def position(self) -> Any:
        return [[self._random.key, self._random.at], super().position()]

    def restore(self, position: Position) -> None:
        random, source = position
        self._random.restore(*random)
        super().restore(source)


class SleepDataset(UnaryDataset):
    """The same elements, each after a pause of `seconds`."""

    def __init__(self, source: Elements, seconds: float) -> None:
        super().__init__(source)
        self.seconds = seconds

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _SleepIterator(self, self.source.iterator(path))


class _SleepIterator(UnaryIterator):
    def __init__(self, dataset: SleepDataset, source: DatasetIterator) -> None:
        super().__init__(source)
        self._seconds = dataset.seconds
        self._closed = threading.Event()

    def next(self) -> Element | None:
        if self._closed.wait(self._seconds):
            raise CancelledError(None, None, "the iterator was closed while it waited")
        return self.source.next()

    def close(self) -> None:
        self._closed.set()
        super().close()
