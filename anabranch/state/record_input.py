"""Records of many files in a random order, without an end: what `RecordInput` gives."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Final

from anabranch.errors import InvalidArgumentError, NotFoundError
from anabranch.io import gfile
from anabranch.io.records import tf_record_iterator

#: seeds of epochs do not follow each other, so that those of two inputs do not overlap
_STRIDE: Final = 1_000_003


class RecordInput:
    """The records of all files that match a pattern, again and again; each once in an epoch. Thread-safe.

    An epoch goes through the files in an order of its own. A record is drawn from those that were read ahead, and the
    next epoch begins when all of them are given out.

    Args:
        pattern: of the paths of TFRecord files.
        seed: of all that is random.
        shift: by which part of their number the files are rotated with each epoch, from 0 to 1.
        ahead: how many records are read ahead.
        compression: "", "ZLIB" or "GZIP".

    Raises:
        InvalidArgumentError: numbers out of range.
    """

    def __init__(self, pattern: str, seed: int, shift: float, ahead: int, compression: str) -> None:
        if ahead < 1 or not 0 <= shift <= 1:
            raise InvalidArgumentError(
                None,
                None,
                f"file_buffer_size must be positive and file_shuffle_shift_ratio from 0 to 1, got {ahead} and {shift}",
            )
        self._pattern, self._seed, self._shift = pattern, seed, shift
        self._ahead, self._compression = ahead, compression
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._epoch = 0
        self._records: Iterator[bytes] = iter(())
        self._buffer: list[bytes] = []

    def take(self, count: int) -> list[bytes]:
        """The next records.

        Raises:
            NotFoundError: no file matches the pattern, or none of them has a record.
            DataLossError: a file is damaged.
        """
        with self._lock:
            return [self._next() for _ in range(count)]

    def _next(self) -> bytes:
        self._read_ahead()
        if not self._buffer:
            self._records = self._records_of_epoch()
            self._read_ahead()
        if not self._buffer:
            raise NotFoundError(None, None, f"the files that match {self._pattern!r} have no records")
        chosen = self._random.randrange(len(self._buffer))
        self._buffer[chosen], self._buffer[-1] = self._buffer[-1], self._buffer[chosen]
        return self._buffer.pop()

    def _read_ahead(self) -> None:
        while len(self._buffer) < self._ahead:
            record = next(self._records, None)
            if record is None:
                return
            self._buffer.append(record)

    def _records_of_epoch(self) -> Iterator[bytes]:
        paths = sorted(gfile.glob(self._pattern))
        if not paths:
            raise NotFoundError(None, None, f"Found no files at {self._pattern!r}")
        random.Random(self._seed + _STRIDE * self._epoch).shuffle(paths)
        start = int(self._epoch * self._shift * len(paths)) % len(paths)
        self._epoch += 1
        return self._records_in([*paths[start:], *paths[:start]])

    def _records_in(self, paths: list[str]) -> Iterator[bytes]:
        for path in paths:
            yield from tf_record_iterator(path, self._compression)
