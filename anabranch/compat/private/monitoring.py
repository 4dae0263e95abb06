"""`tensorflow.python.eager.monitoring`: numbers that libraries count about themselves, kept in this process."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

_Cell = TypeVar("_Cell")
_Value = TypeVar("_Value")


class CounterCell:
    """A number that grows."""

    def __init__(self) -> None:
        self._lock, self._value = threading.Lock(), 0

    def increase_by(self, value: int) -> None:
        """Adds a number, which is not negative.

        Raises:
            ValueError: it is.
        """
        if value < 0:
            raise ValueError(f"a counter does not fall, but was to grow by {value}")
        with self._lock:
            self._value += value

    def value(self) -> int:
        """The number."""
        return self._value


class GaugeCell(Generic[_Value]):
    """A value that is set."""

    def __init__(self, value: _Value) -> None:
        self._value: _Value = value

    def set(self, value: _Value) -> None:
        """Replaces the value."""
        self._value = value

    def value(self) -> _Value:
        """The value that was set last; at first 0, "" or False."""
        return self._value


class ExponentialBuckets:
    """Where the buckets of a histogram begin: `scale`, `scale * growth_factor`, and so on.

    Args:
        scale: where the second bucket begins; the first one begins at minus infinity.
        growth_factor: more than 1.
        bucket_count: how many of them begin so.
    """

    def __init__(self, scale: float, growth_factor: float, bucket_count: int) -> None:
        self.limits: list[float] = [scale * growth_factor**i for i in range(bucket_count)]


class SamplerCell:
    """Samples of a number, of which their count in each bucket is kept."""

    def __init__(self, limits: Sequence[float]) -> None:
        self._limits, self._counts = tuple(limits), [0] * (len(limits) + 1)
        self._lock = threading.Lock()

    def add(self, sample: float) -> None:
        """Adds a sample."""
        with self._lock:
            self._counts[bisect.bisect_right(self._limits, sample)] += 1

    def value(self) -> list[int]:
        """How many samples fell in each bucket."""
        return list(self._counts)


class _Labelled(Generic[_Cell]):
    """A metric: a cell for each combination of its labels' values."""

    def __init__(self, name: str, description: str, labels: Sequence[str], make: Callable[[], _Cell]) -> None:
        self.name, self.description, self.labels = name, description, labels
        self._make, self._lock = make, threading.Lock()
        self._cells: dict[tuple[Hashable, ...], _Cell] = {}

    def get_cell(self, *labels: str) -> _Cell:
        """The cell of those values of the labels, which is made when it is asked for first.

        Raises:
            ValueError: there are more labels, or fewer.
        """
        if len(labels) != len(self.labels):
            raise ValueError(f"metric {self.name!r} has {len(self.labels)} labels, but got {len(labels)} values")
        with self._lock:
            if labels not in self._cells:
                self._cells[labels] = self._make()
            return self._cells[labels]


class Counter(_Labelled[CounterCell]):
    """Numbers that grow."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        super().__init__(name, description, labels, CounterCell)


class IntGauge(_Labelled[GaugeCell[int]]):
    """Integers that are set."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        super().__init__(name, description, labels, lambda: GaugeCell(0))


class StringGauge(_Labelled[GaugeCell[str]]):
    """Texts that are set."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        super().__init__(name, description, labels, lambda: GaugeCell(""))


class BoolGauge(_Labelled[GaugeCell[bool]]):
    """Booleans that are set."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        super().__init__(name, description, labels, lambda: GaugeCell(False))


class Sampler(_Labelled[SamplerCell]):
    """Histograms of numbers."""

    def __init__(self, name: str, buckets: ExponentialBuckets, description: str, *labels: str) -> None:
        super().__init__(name, description, labels, lambda: SamplerCell(buckets.limits))
