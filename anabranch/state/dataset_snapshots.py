"""A dataset whose elements are kept in files: written in the first walk through all of them, read in those that follow.

    folder/00000000.snapshot     records: one element each (`positions.encode_position`)
    folder/snapshot.metadata     JSON, written last: how many elements each file has

Without the last file there is no snapshot: a walk that ends early leaves nothing that another would believe. Several
walks may write at once, each in a folder of its own; the first that is complete is the one that is read.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from anabranch.errors import DataLossError, InvalidArgumentError, NotFoundError
from anabranch.io import gfile
from anabranch.io.records import TFRecordOptions, TFRecordWriter, tf_record_iterator
from anabranch.state.datasets import DatasetIterator, Element, Elements, Path, RandomSequence, UnaryDataset
from anabranch.state.positions import Position, decode_position, encode_position

_METADATA: Final = "snapshot.metadata"
#: more files than this no snapshot has
_MOST_FILES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """How a snapshot is kept.

    Attributes:
        compression: "" or "GZIP".
        shard_bytes: a file is closed when it has grown to this size.
        mode: "auto", "write" (always anew), "read" (there must be one) or "passthrough" (neither).
        shuffles: whether the files are read in an order of their own in each walk.
        seed: of that order.
    """

    compression: str
    shard_bytes: int
    mode: str
    shuffles: bool
    seed: int


class SnapshotDataset(UnaryDataset):
    """The elements of `source`, or of the snapshot in `folder` where there is one.

    Raises:
        InvalidArgumentError: a compression or a mode that there is none of.
    """

    def __init__(self, source: Elements, folder: str, options: SnapshotOptions) -> None:
        super().__init__(source)
        if options.compression not in ("", "GZIP"):
            message = f"compression must be '' or 'GZIP', got {options.compression!r}"
            raise InvalidArgumentError(None, None, message)
        if options.mode not in ("auto", "write", "read", "passthrough"):
            message = f"mode must be 'auto', 'read', 'write', or 'passthrough', got {options.mode!r}"
            raise InvalidArgumentError(None, None, message)
        self.folder, self.options = folder, options

    def iterator(self, path: Path = ()) -> DatasetIterator:
        return _SnapshotIterator(self, path)


class _SnapshotIterator(DatasetIterator):
    """What it does is decided at the first element, or by the position that it is moved to."""

    def __init__(self, dataset: SnapshotDataset, path: Path) -> None:
        self._dataset, self._path = dataset, path
        self._reader: Iterator[Element] | None = None
        self._source: DatasetIterator | None = None
        self._writer: _SnapshotWriter | None = None
        self._taken = 0
        self._done = False

    def next(self) -> Element | None:
        if self._reader is None and self._source is None:
            self._begin()
        element = self._pulled()
        if element is not None:
            self._taken += 1
        return element

    def _begin(self, may_write: bool = True) -> None:
        dataset, mode = self._dataset, self._dataset.options.mode
        kept = None if mode in ("write", "passthrough") else _complete(dataset.folder)
        if kept is not None:
            self._reader = _read(dataset, kept, self._path)
            return
        if mode == "read":
            message = f"there is no complete snapshot in {dataset.folder!r}, and mode 'read' writes none"
            raise dataset.attribute(NotFoundError(None, None, message))
        self._source = dataset.source.iterator(self._path)
        if mode != "passthrough" and may_write:
            self._writer = _SnapshotWriter(dataset.folder, dataset.options)

    def _pulled(self) -> Element | None:
        if self._reader is not None:
            return next(self._reader, None)
        assert self._source is not None
        element = self._source.next()
        if self._writer is not None:
            if element is not None:
                self._writer.write(element)
            else:
                self._writer.finish()
                self._writer = None
        return element

    def position(self) -> Any:
        reads = self._reader is not None
        return [self._taken, reads, None if self._source is None else self._source.position()]

    def restore(self, position: Position) -> None:
        """A walk that goes on writes nothing: what it would write is not the whole."""
        taken, reads, source = position
        self._begin(may_write=False)
        if reads and self._reader is not None:
            for _ in range(int(taken)):
                next(self._reader, None)
        elif source is not None and self._source is not None:
            self._source.restore(source)
        self._taken = int(taken)

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.give_up()


# ---------------------------------------------------------------------- files
class _SnapshotWriter:
    """Writes one snapshot."""

    def __init__(self, folder: str, options: SnapshotOptions) -> None:
        self._folder = os.path.join(folder, uuid.uuid4().hex)
        self._root, self._options = folder, options
        self._counts: list[int] = []
        self._file: TFRecordWriter | None = None
        self._bytes = 0
        gfile.makedirs(self._folder)

    def write(self, element: Element) -> None:
        record = encode_position(list(element))
        if self._file is None or self._bytes >= self._options.shard_bytes:
            self._next_file()
        assert self._file is not None
        self._file.write(record)
        self._bytes += len(record)
        self._counts[-1] += 1

    def _next_file(self) -> None:
        if self._file is not None:
            self._file.close()
        name = os.path.join(self._folder, f"{len(self._counts):08d}.snapshot")
        self._file = TFRecordWriter(name, TFRecordOptions(self._options.compression or None))
        self._counts.append(0)
        self._bytes = 0

    def finish(self) -> None:
        if self._file is not None:
            self._file.close()
        text = json.dumps({"elements": self._counts, "compression": self._options.compression})
        with gfile.GFile(os.path.join(self._folder, f"{_METADATA}.new"), "w") as file:
            file.write(text)
        gfile.rename(
            os.path.join(self._folder, f"{_METADATA}.new"), os.path.join(self._folder, _METADATA), overwrite=True
        )

    def give_up(self) -> None:
        if self._file is not None:
            self._file.close()
        gfile.rmtree(self._folder)


def _complete(folder: str) -> str | None:
    """The folder of a complete snapshot; None where there is none."""
    if not gfile.isdir(folder):
        return None
    for name in sorted(gfile.listdir(folder)):
        inner = os.path.join(folder, name.rstrip("/"))
        if gfile.exists(os.path.join(inner, _METADATA)):
            return inner
    return None


def _read(dataset: SnapshotDataset, folder: str, path: Path) -> Iterator[Element]:
    counts, compression = _metadata(dataset, folder)
    order = list(range(len(counts)))
    if dataset.options.shuffles:
        random = RandomSequence(dataset.options.seed, *path)
        for last in range(len(order) - 1, 0, -1):
            at = random.below(last + 1)
            order[at], order[last] = order[last], order[at]
    for number in order:
        name, count = os.path.join(folder, f"{number:08d}.snapshot"), 0
        for record in tf_record_iterator(name, compression or None):
            count += 1
            yield tuple(decode_position(record))
        if count != counts[number]:
            message = f"{name} has {count} elements, and {_METADATA} says {counts[number]}; delete the snapshot"
            raise dataset.attribute(DataLossError(None, None, message))


def _metadata(dataset: SnapshotDataset, folder: str) -> tuple[list[int], str]:
    name = os.path.join(folder, _METADATA)
    try:
        with gfile.GFile(name, "r") as file:
            found = json.loads(file.read())
        counts, compression = found["elements"], found["compression"]
        if len(counts) > _MOST_FILES or not all(isinstance(n, int) and n >= 0 for n in counts):
            raise ValueError("numbers of elements are missing")
        if compression not in ("", "GZIP"):
            raise ValueError(f"there is no compression {compression!r}")
    except (ValueError, KeyError, TypeError) as error:
        message = f"{name} is damaged: {error}; delete the snapshot"
        raise dataset.attribute(DataLossError(None, None, message)) from error
    return counts, compression
