"""Event files, which TensorBoard reads: Event messages in a TFRecord file.

A file is called `events.out.tfevents.<seconds since 1970>.<host><suffix>`; its first event holds the format's version.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import BinaryIO, Final, Self

from google.protobuf.message import DecodeError

from anabranch import errors
from anabranch.io import gfile, os_errors, records, remote
from anabranch.proto.summary_pb2 import Event

FILE_VERSION: Final = "brain.Event:2"
_BUFFER_BYTES: Final = 1 << 18


class EventsWriter:
    """Appends events to a new file in `logdir`. A context manager; several threads may write.

    Events are buffered: they reach the system at `flush`, at `close`, and when a few hundred kilobytes have gathered.

    Args:
      logdir: the directory, made if it does not exist.
      filename_suffix: appended to the file's name.
      prefix: what the file's name begins with.

    Raises:
      UnimplementedError: the directory is an address (gs://, ...).
      PermissionDeniedError: the user may not write there.
      ResourceExhaustedError: the disk is full.
    """

    def __init__(self, logdir: str | os.PathLike[str], filename_suffix: str = "", prefix: str = "events") -> None:
        directory = os.fsdecode(logdir)
        remote.refuse(directory, "event files")
        gfile.makedirs(directory)
        self._lock = threading.Lock()
        now = time.time()
        self._path, file = _create(directory, f"{prefix}.out.tfevents.{int(now):010d}.{_host()}", filename_suffix)
        self._file: BinaryIO | None = file
        self.write_event(Event(wall_time=now, file_version=FILE_VERSION))
        self.flush()

    @property
    def path(self) -> str:
        """The file."""
        return self._path

    def write_event(self, event: Event) -> None:
        """Appends an event.

        Raises:
          FailedPreconditionError: the writer is closed.
          ResourceExhaustedError: the disk is full.
        """
        self.write_serialized_event(event.SerializeToString())

    def write_serialized_event(self, event: bytes) -> None:
        """Appends an Event message that is bytes already. Raises as `write_event`."""
        framed = records.frame(event)
        with self._lock, os_errors.translated("write", self._path):
            self._opened().write(framed)

    def flush(self) -> None:
        """Hands what was written to the system, so that readers see it."""
        with self._lock, os_errors.translated("write", self._path):
            self._opened().flush()

    def close(self) -> None:
        """Flushes and closes. Closing twice is allowed."""
        with self._lock, os_errors.translated("write", self._path):
            file, self._file = self._file, None
            if file is not None:
                file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _opened(self) -> BinaryIO:
        if self._file is None:
            raise errors.FailedPreconditionError(
                None, None, f"The writer of event file {self._path!r} is closed: make a new one."
            )
        return self._file


def summary_iterator(path: str | os.PathLike[str]) -> Iterator[Event]:
    """The events of an event file, in order.

    Raises:
      NotFoundError: the file does not exist.
      DataLossError: it is truncated or corrupt; all events before that place were yielded.
    """
    name = os.fsdecode(path)
    for index, record in enumerate(records.tf_record_iterator(name)):
        try:
            event = Event.FromString(record)
        except DecodeError as error:
            raise errors.DataLossError(
                None, None, f"Record {index} of {name!r} is no Event: {error}. Is it an event file?"
            ) from error
        yield event


def _host() -> str:
    return socket.gethostname() or "localhost"


def _create(directory: str, stem: str, suffix: str) -> tuple[str, BinaryIO]:
    """A file that did not exist: a writer made in the same second gets a number."""
    path, number = os.path.join(directory, stem + suffix), 0
    while True:
        try:
            return path, open(path, "xb", _BUFFER_BYTES)
        except FileExistsError:
            number += 1
            path = os.path.join(directory, f"{stem}.{number}{suffix}")
        except OSError as error:
            raise os_errors.from_os_error(error, "create event file", path) from error
