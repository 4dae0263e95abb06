"""Datasets of the records of files: lines, fixed-length records, TFRecords; and caches in files (WP4.5)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import boxed
from anabranch.errors import OpError
from anabranch.io import gfile, os_errors
from anabranch.io.csv_rows import RowFile
from anabranch.io.positioned_records import FixedLengthFile, LineFile, RecordFile, TFRecordFile
from anabranch.io.records import TFRecordWriter
from anabranch.state.datasets import (
    UNKNOWN,
    DatasetIterator,
    Element,
    Elements,
    ListDataset,
    Path,
    UnaryDataset,
)
from anabranch.state.positions import Position, decode_position, encode_position


class FileDataset(Elements):
    """The records of several files, one file after the other. `open` makes the reader of a file."""

    def __init__(self, paths: Sequence[str], open: Callable[[str], RecordFile]) -> None:
        self.paths, self.open = list(paths), open

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _FileIterator(self)


def line_dataset(paths: Sequence[str], compression: str, buffer_size: int) -> FileDataset:
    """The lines of text files."""
    return FileDataset(paths, lambda path: LineFile(path, compression, buffer_size))


def row_dataset(paths: Sequence[str], delimiter: bytes, compression: str, buffer_size: int) -> FileDataset:
    """The rows of CSV files."""
    return FileDataset(paths, lambda path: RowFile(path, delimiter, compression, buffer_size))


def record_dataset(paths: Sequence[str], compression: str, buffer_size: int) -> FileDataset:
    """The records of TFRecord files."""
    return FileDataset(paths, lambda path: TFRecordFile(path, compression, buffer_size))


def fixed_length_dataset(
    paths: Sequence[str], record: int, header: int, footer: int, buffer_size: int, compression: str
) -> FileDataset:
    """The records of binary files in which all have one length (bytes)."""
    return FileDataset(paths, lambda path: FixedLengthFile(path, record, header, footer, buffer_size, compression))


class _FileIterator(DatasetIterator):
    def __init__(self, dataset: FileDataset) -> None:
        self._dataset = dataset
        self._which = 0
        self._file: RecordFile | None = None

    def next(self) -> Element | None:
        paths = self._dataset.paths
        while self._which < len(paths):
            try:
                if self._file is None:
                    self._file = self._dataset.open(paths[self._which])
                record = self._file.read()
            except OpError as error:
                # what follows a damaged record in the same file cannot be trusted
                self._next_file()
                raise self._dataset.attribute(error) from error.__cause__
            if record is not None:
                return (boxed(record),)
            self._next_file()
        return None

    def _next_file(self) -> None:
        self.close()
        self._which += 1

    def position(self) -> Any:
        return [self._which, None if self._file is None else self._file.offset]

    def restore(self, position: Position) -> None:
        self._which = int(position[0])
        if position[1] is not None:
            self._file = self._dataset.open(self._dataset.paths[self._which])
            self._file.seek(int(position[1]))

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __del__(self) -> None:
        self.close()


def matching_files(patterns: Sequence[str]) -> ListDataset:
    """The names of the files that match patterns, sorted."""
    # each once, though several patterns may match it; sorted, since a file system has no order
    names = sorted({name for pattern in patterns for name in gfile.glob(pattern)})
    return ListDataset([(boxed(name.encode()),) for name in names])


class FileCacheDataset(UnaryDataset):
    """Writes what the first complete pass yields to a file, and reads later passes from there.

    The file is a TFRecord file beside `prefix` with an element in each record. It gets its name when it is complete.
    """

    def __init__(self, source: Elements, prefix: str) -> None:
        super().__init__(source)
        self.path = prefix + ".cache"

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _FileCacheIterator(self, path)

    def cardinality(self) -> int:
        return UNKNOWN if os.path.exists(self.path) else super().cardinality()


class _FileCacheIterator(DatasetIterator):
    def __init__(self, dataset: FileCacheDataset, path: Path) -> None:
        self._dataset = dataset
        self._path = path
        self._reader: TFRecordFile | None = None
        self._writer: TFRecordWriter | None = None
        self._source: DatasetIterator | None = None
        self._count = 0

    def next(self) -> Element | None:
        # not before the first element: an earlier pass may complete the file until then
        if self._reader is None and self._source is None:
            self._open()
        if self._reader is not None:
            record = self._reader.read()
            if record is None:
                return None
            self._count += 1
            return tuple(decode_position(record))
        assert self._source is not None
        element = self._source.next()
        if element is not None:
            self._count += 1
            self._write(element)
        elif self._writer is not None:
            self._complete()
        return element

    def _write(self, element: Element) -> None:
        if self._writer is None:
            return
        try:
            self._writer.write(encode_position(element))
        except BaseException:
            # a file that lacks an element, or ends in a part of one, must never get its name: the pass goes on without
            self._drop_partial()
            raise

    def _open(self) -> None:
        if os.path.exists(self._dataset.path):
            self._reader = TFRecordFile(self._dataset.path)
        else:
            self._source = self._dataset.source.iterator(self._path)
            self._writer = TFRecordWriter(self._partial)

    @property
    def _partial(self) -> str:
        # a name of its own: other processes and passes may write the same cache at the same time
        return f"{self._dataset.path}.{os.getpid()}-{id(self):x}.partial"

    def _complete(self) -> None:
        assert self._source is not None
        assert self._writer is not None
        # what is not on disk yet has to be there before the file has its name
        self._writer.close()
        with os_errors.translated("rename", self._dataset.path):
            # in one move, so that nobody ever reads a part of it
            os.replace(self._partial, self._dataset.path)
        self._source.close()
        self._writer = self._source = None
        # at its end: this pass has given all elements
        self._reader = TFRecordFile(self._dataset.path)
        self._reader.seek(os.path.getsize(self._dataset.path))

    def position(self) -> Any:
        return [None if self._reader is None else self._reader.offset, self._count]

    def restore(self, position: Position) -> None:
        """A pass that writes the cache begins anew, and skips what was taken."""
        self._open()
        offset, count = position
        # a place in the file helps only who reads it as the saved pass did: the file may have gone, or come, since then
        if self._reader is not None and offset is not None:
            self._reader.seek(int(offset))
            self._count = int(count)
            return
        for _ in range(int(count)):
            self.next()

    def _drop_partial(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            # what cannot be written may not be closed either, where the disk is full
            with contextlib.suppress(OpError):
                writer.close()
            if os.path.exists(self._partial):
                os.remove(self._partial)

    def close(self) -> None:
        self._drop_partial()
        for open_file in (self._reader, self._source):
            if open_file is not None:
                open_file.close()
        self._source = self._reader = None

    def __del__(self) -> None:
        self.close()


def file_names(filenames: np.ndarray[Any, Any]) -> list[str]:
    """The paths in a string tensor."""
    return [os.fsdecode(name) for name in filenames.reshape(-1).tolist()]
