"""The writer of event files that `tensorflow.python.pywrap_tensorflow` has, which programs call by itself."""

from __future__ import annotations

import os

from anabranch.core.compat import as_text
from anabranch.io.event_files import EventsWriter
from anabranch.proto.summary_pb2 import Event


class PrefixedEventsWriter:
    """Writes events to ``<file_prefix>.out.tfevents.<time>.<host>``; the file is made when it is first needed.

    Args:
        file_prefix: the path of the file up to the dot.

    Raises:
        OpError: the file cannot be made or written; from the methods.
    """

    def __init__(self, file_prefix: str | bytes) -> None:
        folder, self._prefix = os.path.split(as_text(file_prefix))
        self._folder = folder or "."
        self._suffix = ""
        self._writer: EventsWriter | None = None

    def _opened(self) -> EventsWriter:
        if self._writer is None:
            self._writer = EventsWriter(self._folder, self._suffix, self._prefix)
        return self._writer

    def Init(self) -> None:
        """Makes the file."""
        self._opened()

    def InitWithSuffix(self, suffix: str | bytes) -> None:
        """Makes the file, with something at the end of its name."""
        if self._writer is None:
            self._suffix = as_text(suffix)
        self._opened()

    def FileName(self) -> bytes:
        """The path of the file."""
        return os.fsencode(self._opened().path)

    def WriteEvent(self, event: Event) -> None:
        """Appends an event.

        Raises:
            TypeError: it is no Event message.
        """
        if not isinstance(event, Event):
            raise TypeError(f"Expected an event_pb2.Event proto,  but got {type(event)}")
        self._opened().write_event(event)

    def _WriteSerializedEvent(self, event: bytes) -> None:
        """Appends an event that is bytes already."""
        self._opened().write_serialized_event(event)

    def Flush(self) -> None:
        """Hands what was written to the system."""
        if self._writer is not None:
            self._writer.flush()

    def Close(self) -> None:
        """Flushes and closes; the next event begins a new file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
