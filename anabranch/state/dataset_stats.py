"""Datasets that record how long their elements took and how large they are, and those that say where (WP4.5).

A dataset that records looks for the recorder of the walk that it is part of: the nearest one behind it. A walk through
a `RecordedDataset` names its recorder while iterators are made and while elements are computed.
"""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Iterator
from typing import Final, Protocol

import numpy as np

from anabranch.state.datasets import DatasetIterator, Element, Elements, Path, UnaryDataset, UnaryIterator

_STRING: Final = 24


class Recorder(Protocol):
    """What statistics are given to. Thread-safe."""

    def record(self, name: str, value: float, step: int) -> None:
        """One number of a distribution, of the element with this number."""


class TaggedRecorder:
    """Records under longer names."""

    def __init__(self, recorder: Recorder, tag: str) -> None:
        self._recorder, self._tag = recorder, tag

    def record(self, name: str, value: float, step: int) -> None:
        self._recorder.record(f"{self._tag}::{name}" if self._tag else name, value, step)


_recorder: contextvars.ContextVar[Recorder | None] = contextvars.ContextVar("recorder", default=None)


@contextlib.contextmanager
def _recording(recorder: Recorder) -> Iterator[None]:
    token = _recorder.set(recorder)
    try:
        yield
    finally:
        _recorder.reset(token)


class RecordedDataset(UnaryDataset):
    """The same elements; what the datasets before it record is given to `recorder`."""

    def __init__(self, source: Elements, recorder: Recorder) -> None:
        super().__init__(source)
        self.recorder = recorder

    def iterator(self, path: Path = ()) -> DatasetIterator:
        with _recording(self.recorder):
            return _RecordedIterator(self.source.iterator(path), self.recorder)


class _RecordedIterator(UnaryIterator):
    def __init__(self, source: DatasetIterator, recorder: Recorder) -> None:
        super().__init__(source)
        self._recorder = recorder

    def next(self) -> Element | None:
        with _recording(self._recorder):
            return self.source.next()


class MeasuredDataset(UnaryDataset):
    """The same elements; of each a number is recorded under `tag`: how long it took (µs), or how many bytes it has."""

    def __init__(self, source: Elements, tag: str, measures_time: bool) -> None:
        super().__init__(source)
        self.tag, self.measures_time = tag, measures_time

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _MeasuringIterator(self, self.source.iterator(path))


class _MeasuringIterator(UnaryIterator):
    def __init__(self, dataset: MeasuredDataset, source: DatasetIterator) -> None:
        super().__init__(source)
        self._dataset = dataset
        # a thread that computes ahead knows no walk, but was made in one
        self._recorder = _recorder.get()
        self._count = 0

    def next(self) -> Element | None:
        began = time.perf_counter()
        element = self.source.next()
        took = time.perf_counter() - began
        recorder = _recorder.get() or self._recorder
        if element is not None:
            self._count += 1
            if recorder is not None:
                value = took * 1e6 if self._dataset.measures_time else float(sum(map(_bytes_of, element)))
                recorder.record(self._dataset.tag, value, self._count)
        return element


def _bytes_of(component: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> int:
    """As TensorFlow counts: a string takes 24 bytes and its own."""
    if component.dtype != np.object_:
        return component.nbytes
    return sum(_STRING + len(item) for item in component.reshape(-1).tolist() if isinstance(item, bytes))
