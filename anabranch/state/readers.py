"""Readers: records from files whose names come out of a queue  (§4.2, WP4.5).

A reader works on one file (a *work unit*) at a time and takes the next name from the queue when it needs one::

    IDLE       a read is asked for, a file is open          -> reads on; the read gets its records
    IDLE       a read is asked for, no file is open         -> WAITING for a name
    WAITING    the queue gives a name                       -> the file is opened; reads on
    WAITING    the queue fails, or the file cannot be read  -> the read fails; IDLE
    WAITING    the read is cancelled                        -> the request for a name is cancelled too; IDLE

**Invariants**: `_busy` exactly while a read is being served, by whichever thread brought what it waited for; reads are
served one after the other, in the order in which they came. Files are read on the thread that asks, or that puts the
name into the queue.

The lock is inside, but is not what keeps reads apart: it is held for what needs no one else (a file is read under it),
and released to ask the queue and to answer, both of which call others. Meanwhile `_busy` keeps other reads out.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np

from anabranch.core.pending import Pending
from anabranch.errors import CancelledError, InvalidArgumentError, OpError
from anabranch.io import byte_sources, os_errors, records, remote
from anabranch.io.lmdb import LmdbFile

#: asks the queue for the next name
NextWork = Callable[[], Pending]
Record = tuple[bytes, bytes]


class Read(Pending):
    """A read that waits for its records: `limit` of them, or one as two scalars if it is None."""

    __slots__ = ("given_up", "limit", "next_work", "records", "requested_work")

    def __init__(self, on_cancel: Callable[[Pending], object], next_work: NextWork, limit: int | None) -> None:
        super().__init__(on_cancel)
        self.next_work = next_work
        self.limit = limit
        self.records: list[Record] = []
        self.requested_work: Pending | None = None
        self.given_up = False

    @property
    def has_enough(self) -> bool:
        return len(self.records) >= (1 if self.limit is None else self.limit)

    def deliver(self) -> bool:
        """Answers with what was found; False if the read was cancelled before."""
        if self.limit is None:
            return self.complete(self.records[0])
        columns = np.empty((2, len(self.records)), np.object_)
        for i, (key, value) in enumerate(self.records):
            columns[0, i], columns[1, i] = key, value
        return self.complete([columns[0].copy(), columns[1].copy()])


class Reader:
    """See the module docstring; a subclass says what the records of a file are. Thread-safe; never blocks.

    Args:
        name: of the resource.
    """

    title = "Reader"

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._reads: deque[Read] = deque()
        self._busy = False
        self._closed = False
        self._clear()

    def _clear(self) -> None:
        self._returned: deque[Record] = deque()  # read for a step that was cancelled meanwhile
        self._work: bytes | None = None
        self._records: Iterator[Record] = iter(())
        self._position = 0  # records of the current file that were read
        self._started = self._finished = self._produced = 0

    def open_file(self, work: bytes) -> Iterator[Record]:
        """The records (key, value) of a work unit.

        Raises:
            OpError: the file cannot be opened or read, or is corrupt; the message names it.
        """
        raise NotImplementedError

    # ------------------------------------------------------------------ requests
    def read(self, next_work: NextWork) -> Pending:
        """The next record: a key and a value, two scalars."""
        return self._ask(Read(self._give_up, next_work, None))

    def read_up_to(self, next_work: NextWork, limit: int) -> Pending:
        """The next records, at least one and at most `limit`, all of one file: keys and values, two vectors.

        Raises:
            InvalidArgumentError: `limit` is not positive.
        """
        if limit <= 0:
            raise InvalidArgumentError(
                None, None, f"num_records must be positive for {self.title} {self.name!r}, got {limit}"
            )
        return self._ask(Read(self._give_up, next_work, limit))

    def _ask(self, read: Read) -> Pending:
        with self._lock:
            if self._closed:
                return _failed(read, CancelledError(None, None, f"{self.title} {self.name!r} was released"))
            self._reads.append(read)
        self._go_on()
        return read

    def reset(self) -> None:
        """Forgets the current file and all counts."""
        with self._lock:
            self._clear()

    def close(self) -> None:
        """Called when the container of the reader goes away: cancels the reads that wait."""
        with self._lock:
            self._closed = True
            # cancelled without the lock, which `_give_up` takes
            waiting = list(self._reads)
            self._clear()
        for read in waiting:
            read.cancel(CancelledError(None, None, f"{self.title} {self.name!r} was released with its session"))

    # ------------------------------------------------------------------ questions
    def records_produced(self) -> int:
        """How many records were read in all."""
        with self._lock:
            return self._produced

    def work_units_completed(self) -> int:
        """How many files were read to their end."""
        with self._lock:
            return self._finished

    # ------------------------------------------------------------------ the position
    def serialize(self) -> bytes:
        """The position as text, from which `restore` goes on."""
        with self._lock:
            work = None if self._work is None else base64.b64encode(self._work).decode()
            state = {
                "reader": self.title,
                "work": work,
                "position": self._position,
                "started": self._started,
                "finished": self._finished,
                "produced": self._produced,
            }
        return json.dumps(state).encode()

    def restore(self, state: bytes) -> None:
        """Goes to a position that `serialize` wrote. If that fails the reader is as after `reset`.

        Raises:
            InvalidArgumentError: this is no position of such a reader.
            OpError: its file cannot be read.
        """
        with self._lock:
            self._clear()
            parsed = self._parsed(state)
            self._started, self._finished, self._produced = (parsed[k] for k in ("started", "finished", "produced"))
            if parsed["work"] is None:
                return
            try:
                self._work = base64.b64decode(parsed["work"], validate=True)
                self._records = self.open_file(self._work)
                # read again and passed over: where the records lie is known to the file's own format only
                for _ in range(parsed["position"]):
                    next(self._records, None)
                self._position = parsed["position"]
            except (OpError, binascii.Error):
                self._clear()
                raise

    def _parsed(self, state: bytes) -> dict[str, Any]:
        try:
            parsed = json.loads(state)
            numbers = [parsed[k] for k in ("position", "started", "finished", "produced")]
            right = parsed["reader"] == self.title and isinstance(parsed["work"], str | None)
            if not right or not all(type(n) is int and n >= 0 for n in numbers) or len(parsed) != 6:
                raise ValueError("it has other fields")
            if isinstance(parsed["work"], str):
                base64.b64decode(parsed["work"], validate=True)
        except (ValueError, KeyError, TypeError) as error:
            shown = state[:64].decode("utf-8", "backslashreplace")
            raise InvalidArgumentError(
                None,
                None,
                f"Could not parse state for {self.title} '{self.name}': {shown}; give it what serialize_state of a "
                f"reader of this kind returned ({error})",
            ) from None
        return parsed  # type: ignore[no-any-return]

    # ------------------------------------------------------------------ the machine
    def _go_on(self) -> None:
        """Serves reads until one has to wait."""
        while True:
            with self._lock:
                # whoever serves a read serves those behind it as well (`_done` and then here): nobody need wait
                # to do that
                if self._busy or not self._reads:
                    return
                self._busy = True
                read = self._reads[0]
            if not self._serve(read):
                return
            self._done(read)

    def _done(self, read: Read) -> None:
        with self._lock:
            self._busy = False
            # a read that was given up may have been taken out already
            if self._reads and self._reads[0] is read:
                self._reads.popleft()

    def _serve(self, read: Read) -> bool:
        """Returns False if it waits for a name; then `_work_came` goes on."""
        try:
            while not (read.is_settled or read.given_up):
                if self._collect(read):
                    # without the lock: while this read is the busy one, nobody else touches what was returned,
                    # but for a reset
                    if not read.deliver():
                        self._returned.extendleft(reversed(read.records))
                    return True
                request = read.next_work()
                # most names are there at once, and are used without a call back
                if not request.is_settled:
                    read.requested_work = request
                    if read.given_up:  # before it could be seen what it waits for
                        request.cancel(CancelledError(None, None, "the read was cancelled"))
                    # perhaps at once, on this thread, if the name has come since: then all is done when this returns
                    request.when_settled(lambda settled: self._work_came(read, settled))
                    return False
                self._begin(request)
        # whatever it is, the read is told, and not the step on whose thread it happens to be served; the reader goes on
        except Exception as error:
            read.fail(error)
        return True

    def _work_came(self, read: Read, request: Pending) -> None:
        # a name that has come is used even if its read was given up: it is out of the queue, and would be lost
        if request.error is None or not read.given_up:
            try:
                self._begin(request)
            except Exception as error:
                read.fail(error)
        # it goes on where it stopped, on the thread that brought the name
        if self._serve(read):
            self._done(read)
            self._go_on()

    def _begin(self, request: Pending) -> None:
        if request.error is not None:
            raise request.error
        with self._lock:
            (name,) = request.values
            if name.size != 1:
                raise InvalidArgumentError(
                    None, None, f"Expected to dequeue a one-element string tensor, got shape {list(name.shape)}"
                )
            self._work = name.item()
            try:
                self._records = self.open_file(self._work)
            except Exception:
                self._work = None
                raise
            self._position = 0
            self._started += 1

    def _collect(self, read: Read) -> bool:
        """Reads what the current file gives; returns whether that is enough, which a file's last records always are."""
        with self._lock:
            while not read.has_enough:
                # what was read for a step that was given up comes before what follows it in the file
                if self._returned:
                    read.records.append(self._returned.popleft())
                    continue
                if self._work is None:
                    return bool(read.records)
                try:
                    # under the lock, as long as that takes: a position must not be saved between a record and its count
                    record = next(self._records, None)
                except OpError as error:
                    if read.records:  # they are intact; the next read is told
                        self._records = _failing(error)
                        return True
                    self._work = None
                    raise
                if record is None:
                    self._end_work()
                else:
                    read.records.append(record)
                    self._position += 1
                    self._produced += 1
                    self._look_ahead()
            return True

    def _look_ahead(self) -> None:
        """For readers of one record per work unit: the unit ends with the record."""

    def _end_work(self) -> None:
        self._work = None
        self._records = iter(())
        # one file is open at a time, so that all that were begun are over by now; one that broke off, too
        self._finished = self._started

    def _give_up(self, pending: Pending) -> None:
        assert isinstance(pending, Read)
        with self._lock:
            pending.given_up = True
            # one that is served stays first, until `_serve` sees that it was given up: its thread may be reading for it
            being_served = self._busy and bool(self._reads) and self._reads[0] is pending
            if not being_served:
                self._reads = deque(r for r in self._reads if r is not pending)
        if being_served and pending.requested_work is not None:
            pending.requested_work.cancel(CancelledError(None, None, "the read that wanted this name was cancelled"))


def _failing(error: OpError) -> Iterator[Record]:
    """Records of which the next cannot be read."""
    raise error
    yield b"", b""


def _failed(read: Read, error: OpError) -> Read:
    read.fail(error)
    return read


# ---------------------------------------------------------------------- kinds of readers
class _OneRecordReader(Reader):
    def _look_ahead(self) -> None:
        self._end_work()


class NameReader(_OneRecordReader):
    """The names themselves, as keys and as values."""

    title = "IdentityReader"

    def open_file(self, work: bytes) -> Iterator[Record]:
        return iter([(work, work)])


class ContentReader(_OneRecordReader):
    """A file is one record; the key is its name."""

    title = "WholeFileReader"

    def open_file(self, work: bytes) -> Iterator[Record]:
        return iter([(work, _contents(work))])


class LineReader(Reader):
    """A line is a record, without the line break; the key is ``name:number``, from 1.

    Args:
        skip_header_lines: how many lines at the beginning of a file are no records.
    """

    title = "TextLineReader"

    def __init__(self, name: str, skip_header_lines: int) -> None:
        super().__init__(name)
        self._skip = skip_header_lines

    def open_file(self, work: bytes) -> Iterator[Record]:
        return _begun(self._numbered(work, _opened(work)))

    def _numbered(self, work: bytes, file: BinaryIO) -> Iterator[Record]:
        with file, os_errors.translated("read", work.decode(errors="replace")):
            yield _BEGUN
            for number, line in enumerate(file, 1):
                if number > self._skip:
                    yield work + b":%d" % number, line.removesuffix(b"\n").replace(b"\r", b"")


class RecordReader(Reader):
    """The records of a record file; the key is ``name:offset``, the offset that of the record's frame.

    Args:
        compression_type: "", "GZIP" or "ZLIB".
    """

    title = "TFRecordReader"

    def __init__(self, name: str, compression_type: str) -> None:
        super().__init__(name)
        self._compression = compression_type

    def open_file(self, work: bytes) -> Iterator[Record]:
        return _begun(
            _framed(work, records.tf_record_iterator(work.decode(errors="surrogateescape"), self._compression))
        )


def _framed(work: bytes, contents: Iterator[bytes]) -> Iterator[Record]:
    offset = 0
    yield _BEGUN
    for record in contents:
        yield work + b":%d" % offset, record
        offset += records.frame_size(record)


class FixedRecordReader(Reader):
    """Pieces of one length; the key is ``name:number``, from 0.

    Args:
        header_bytes, footer_bytes: what is skipped at both ends of a file.
        record_bytes: the length of a record.
        hop_bytes: how far the beginnings of two records are apart; 0: `record_bytes`.
        encoding: "", "ZLIB" or "GZIP".

    Raises:
        InvalidArgumentError: a length is negative.
    """

    title = "FixedLengthRecordReader"

    def __init__(
        self, name: str, header_bytes: int, record_bytes: int, footer_bytes: int, hop_bytes: int, encoding: str
    ) -> None:
        super().__init__(name)
        for what, value in (
            ("header_bytes", header_bytes),
            ("record_bytes", record_bytes),
            ("footer_bytes", footer_bytes),
            ("hop_bytes", hop_bytes),
        ):
            if value < 0:
                raise InvalidArgumentError(None, None, f"{what} must be >= 0 not {value} for {self.title} {name!r}")
        if encoding not in {"", "ZLIB", "GZIP"}:
            raise InvalidArgumentError(
                None, None, f"encoding of {self.title} {name!r} must be '', 'ZLIB' or 'GZIP', got {encoding!r}"
            )
        self._header, self._length, self._footer = header_bytes, record_bytes, footer_bytes
        self._hop = hop_bytes or record_bytes
        self._encoding = encoding

    def open_file(self, work: bytes) -> Iterator[Record]:
        if self._encoding:
            return _begun(self._pieces(work, io.BytesIO(_inflated(_contents(work), self._encoding, work))))
        return _begun(self._pieces(work, _opened(work)))

    def _pieces(self, work: bytes, file: BinaryIO) -> Iterator[Record]:
        with file, os_errors.translated("read", work.decode(errors="replace")):
            yield _BEGUN
            last = file.seek(0, os.SEEK_END) - self._footer - self._length
            # a length of 0 would give the same nothing for ever
            for number, at in enumerate(range(self._header, last + 1, self._hop) if self._hop else ()):
                file.seek(at)
                yield work + b":%d" % number, file.read(self._length)


class LmdbReader(Reader):
    """The records of a database of the library LMDB, with its keys."""

    title = "LMDBReader"

    def open_file(self, work: bytes) -> Iterator[Record]:
        return _begun(self._of_database(LmdbFile(work.decode(errors="surrogateescape"))))

    def _of_database(self, database: LmdbFile) -> Iterator[Record]:
        with database:
            yield _BEGUN
            yield from database


_BEGUN: Record = (b"", b"")


def _begun(records: Iterator[Record]) -> Iterator[Record]:
    """A generator that stands at its first `yield`: from there on it closes its file whenever it is dropped."""
    # an iterator that was never begun runs no `finally`, and would leave the file open
    next(records)
    return records


def _opened(work: bytes) -> BinaryIO:
    path = work.decode(errors="surrogateescape")
    with os_errors.translated("open", path):
        file: BinaryIO = remote.open_file(path, "rb", 1 << 18)
        return file


def _contents(work: bytes) -> bytes:
    with _opened(work) as file, os_errors.translated("read", work.decode(errors="replace")):
        return file.read()


def _inflated(data: bytes, encoding: str, work: bytes) -> bytes:
    if not encoding:
        return data
    try:
        return byte_sources.inflated(data, encoding)
    except ValueError as error:
        raise InvalidArgumentError(
            None,
            None,
            f"cannot decompress {work.decode(errors='replace')!r} as {encoding}: {error}; check the encoding",
        ) from error
