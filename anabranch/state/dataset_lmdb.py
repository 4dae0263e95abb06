"""Datasets of the records of LMDB databases (WP4.5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from anabranch.core.arrays import boxed
from anabranch.errors import OpError
from anabranch.io.lmdb import LmdbFile
from anabranch.state.datasets import DatasetIterator, Element, Elements, Path
from anabranch.state.positions import Position


class LmdbRecords(Elements):
    """The records of several databases, one after the other, each as its key and its value."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = list(paths)

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _LmdbIterator(self)


class _LmdbIterator(DatasetIterator):
    """Its position is the database and how many of its records were taken."""

    def __init__(self, dataset: LmdbRecords) -> None:
        self._dataset = dataset
        self._which, self._taken = 0, 0
        self._file: LmdbFile | None = None
        self._records: Iterator[tuple[bytes, bytes]] = iter(())

    def next(self) -> Element | None:
        while self._which < len(self._dataset.paths):
            try:
                if self._file is None:
                    self._file = LmdbFile(self._dataset.paths[self._which])
                    self._records = iter(self._file)
                record = next(self._records, None)
            except OpError as error:
                self._next_file()  # what follows damage in the same file cannot be trusted
                raise self._dataset.attribute(error) from error.__cause__
            if record is not None:
                self._taken += 1
                return boxed(record[0]), boxed(record[1])
            self._next_file()
        return None

    def _next_file(self) -> None:
        self.close()
        self._which, self._taken = self._which + 1, 0

    def position(self) -> Any:
        return [self._which, self._taken]

    def restore(self, position: Position) -> None:
        which, taken = (int(number) for number in position)
        self._which = which
        while self._which == which and self._taken < taken:
            if self.next() is None:
                return

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __del__(self) -> None:
        self.close()
