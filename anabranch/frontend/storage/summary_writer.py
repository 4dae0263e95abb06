"""`tf.summary.FileWriter`: writes summaries, graphs and step timings to event files, beside the training (WP9.1).

A call hands an event to a bounded queue; one thread per writer takes it from there to the file. The caller waits only
when the queue is full. The thread knows the queue and the file, never the writer itself, so that a writer that is
dropped without `close` is collected, and its events are still written: then, or at the end of the program.

Whenever the queue has run empty, the thread hands the file to the system, and what the system has outlives the process:
one that is killed, by whatever signal, loses the events of its last moment only. Events gather in a buffer (for
`flush_secs` at most) only while they come faster than they can be written.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, SupportsInt

from anabranch.frontend.platform import logging
from anabranch.graph import function_def as _function_def  # writes the library's functions  # noqa: F401
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.graphdef import graph_to_proto
from anabranch.graph.operation import StepRunner
from anabranch.io.event_files import EventsWriter
from anabranch.proto.config_pb2 import RunMetadata
from anabranch.proto.graph_pb2 import GraphDef
from anabranch.proto.summary_pb2 import Event, SessionLog, Summary, TaggedRunMetadata
from anabranch.proto.training_pb2 import MetaGraphDef


class _Flush:
    """Asks the thread to flush; `done` is set when everything queued before is in the file."""

    def __init__(self) -> None:
        self.done = threading.Event()


class EventStream:
    """A bounded queue of events, and the thread that writes them to one new file in `logdir`.

    Several threads may write. An error of the thread (a full disk) is raised by the next call; what was queued after
    it is dropped.

    Args:
        max_queue: events that may wait; 0 or less for no bound.
        flush_secs: how long (s) an event may wait in the buffer, when the queue never runs empty.

    Raises:
        OpError: the file cannot be made.
    """

    def __init__(self, logdir: str, max_queue: int, flush_secs: float, suffix: str) -> None:
        self._file = EventsWriter(logdir, suffix)
        # one whose `put` may interrupt its own `get`: a dropped writer may be collected, and closed, anywhere
        self._queue: queue.SimpleQueue[Event | _Flush | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(max_queue if max_queue > 0 else sys.maxsize)
        self._flush_secs = flush_secs
        self._error: Exception | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._write_events, name="anabranch-events", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> bool:
        """Queues an event; waits while the queue is full. False: the stream is closed, and the event dropped."""
        self._raise_error()
        return self._send(event)

    def flush(self) -> None:
        """Returns when everything that was queued before is in the file, where readers see it."""
        request = _Flush()
        if self._send(request):
            request.done.wait()
        else:
            self._thread.join()
        self._raise_error()

    def close(self) -> None:
        """Writes what is queued and closes the file. Closing twice is allowed."""
        if self._send(None) and threading.current_thread() is not self._thread:  # which may collect a dropped writer
            self._thread.join()
            self._raise_error()

    def _send(self, item: Event | _Flush | None) -> bool:
        """Queues `item`, unless None was sent before: the thread reads nothing after that."""
        if isinstance(item, Event):
            self._room.acquire()
        with self._lock:
            accepted = not self._closed
            if accepted:
                self._closed = item is None
                self._queue.put(item)
        if isinstance(item, Event) and not accepted:
            self._room.release()  # so that the next thread that waits fails in the same way
        return accepted

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    # ------------------------------------------------------------------ in the thread
    def _write_events(self) -> None:
        """Runs until `close`: events go to the file, which is flushed when asked to, when none is left, and in time."""
        flush_at = 0.0
        unflushed = False
        while True:
            item = self._next_item(unflushed)
            if item is None:
                self._guarded(self._file.close)
                return
            if isinstance(item, Event):
                self._room.release()
                self._guarded(self._file.write_event, item)
                if not unflushed:
                    flush_at = time.monotonic() + self._flush_secs
                unflushed = True
            if isinstance(item, _Flush) or time.monotonic() >= flush_at:
                self._guarded(self._file.flush)
                unflushed = False
            if isinstance(item, _Flush):
                item.done.set()

    def _next_item(self, unflushed: bool) -> Event | _Flush | None:
        """What was queued next. Whenever nothing is, what was written is flushed before the wait."""
        if unflushed:
            try:
                return self._queue.get_nowait()
            except queue.Empty:
                return _Flush()
        return self._queue.get()

    def _guarded(self, action: Callable[..., Any], *args: object) -> None:
        try:
            action(*args)
        except Exception as error:  # for the next caller; a thread that ends would leave callers waiting
            self._error = error


def _close_at_exit(streams: list[EventStream]) -> None:
    """The last chance of a writer that nobody closed: there is no caller to raise an error to."""
    for stream in streams:
        try:
            stream.close()
        except Exception as error:
            logging.error("Events were lost: %s", error)


class FileWriter:
    """Writes event files to a directory. A context manager, which closes it; several threads may use it.

    Args:
        logdir: the directory, made if it does not exist.
        graph: a graph to write first.
        max_queue: how many events may wait for the writing thread before a call waits too.
        flush_secs: how long (s) an event may at most wait before it is flushed to the file. Events wait only while more
            of them come than can be written: otherwise each is in the file at once, also if the process is killed.
        graph_def: deprecated: a `GraphDef` in place of `graph`.
        filename_suffix: appended to the file's name.
        session: accepted for compatibility; the writer writes the same with and without it.

    Raises:
        OpError: the directory or the file cannot be made.

    Example:
        >>> loss = tf.summary.scalar("loss", tf.constant(0.5))
        >>> with tf.summary.FileWriter("logs", sess.graph) as writer:
        ...     writer.add_summary(sess.run(loss), global_step=1)
        >>> len(tf.gfile.Glob("logs/events.*"))
        1
    """

    def __init__(
        self,
        logdir: str,
        graph: Graph | GraphDef | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        graph_def: GraphDef | None = None,
        filename_suffix: str | None = None,
        session: StepRunner | None = None,
    ) -> None:
        self._logdir = os.fsdecode(logdir)
        self._options = (max_queue, flush_secs, filename_suffix or "")
        self._session_tags: set[str] = set()
        self._described_tags: set[str] = set()
        #: the open stream, or nothing; a list, which the finalizer can hold without holding the writer
        self._streams: list[EventStream] = [EventStream(self._logdir, *self._options)]
        self._finalizer = weakref.finalize(self, _close_at_exit, self._streams)
        if graph is not None or graph_def is not None:
            self.add_graph(graph=graph, graph_def=graph_def)
            written = graph_to_proto(graph, add_shapes=True) if isinstance(graph, Graph) else graph_def or graph
            self.add_meta_graph(_meta_graph_of(written))

    @property
    def event_writer(self) -> Self:
        """What events are added to."""
        return self

    def get_logdir(self) -> str:
        """The directory."""
        return self._logdir

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ events
    def add_summary(self, summary: Summary | bytes, global_step: SupportsInt | None = None) -> None:
        """Adds what a summary operation returned.

        Args:
            summary: a serialised `Summary`, or the message.
            global_step: the step that it belongs to.

        Raises:
            TypeError: it is neither.
            DecodeError: the bytes are no `Summary`.

        Example:
            >>> with tf.summary.FileWriter("logs") as writer:
            ...     writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="loss", simple_value=0.5)]), 1)
            >>> len(tf.gfile.Glob("logs/events.*"))
            1
        """
        if isinstance(summary, bytes):
            message = Summary.FromString(summary)
        elif isinstance(summary, Summary):
            message = Summary()
            message.CopyFrom(summary)
        else:
            raise TypeError(f"add_summary takes a Summary or its bytes (as fetched), got {type(summary)}")
        for value in message.value:
            # readers look for the metadata of a tag in its first value only
            if value.HasField("metadata"):
                if value.tag in self._described_tags:
                    value.ClearField("metadata")
                else:
                    self._described_tags.add(value.tag)
        self._add(Event(summary=message), global_step)

    def add_session_log(self, session_log: SessionLog, global_step: SupportsInt | None = None) -> None:
        """Adds a `SessionLog`: that a session started, stopped, or saved a checkpoint."""
        self._add(Event(session_log=session_log), global_step)

    def add_graph(
        self,
        graph: Graph | GraphDef | None,
        global_step: SupportsInt | None = None,
        graph_def: GraphDef | None = None,
    ) -> None:
        """Adds a graph, for TensorBoard's graph page.

        Args:
            graph: a `Graph`.
            graph_def: deprecated: a `GraphDef` in its place.

        Raises:
            ValueError: both are given.
            TypeError: neither is a graph.
        """
        if graph is not None and graph_def is not None:
            raise ValueError("Please pass only graph, or graph_def (deprecated), but not both.")
        given = graph if graph is not None else graph_def
        if isinstance(given, Graph):
            message = graph_to_proto(given, add_shapes=True)
        elif isinstance(given, GraphDef):
            logging.warning("Passing a `GraphDef` to the SummaryWriter is deprecated. Pass a `Graph` object instead.")
            message = given
        else:
            raise TypeError(
                f"The passed graph must be an instance of `Graph` or the deprecated `GraphDef`, got {given!r}"
            )
        self._add(Event(graph_def=message.SerializeToString()), global_step)

    def add_meta_graph(self, meta_graph_def: MetaGraphDef, global_step: SupportsInt | None = None) -> None:
        """Adds a `MetaGraphDef`.

        Raises:
            TypeError: it is something else.
        """
        if not isinstance(meta_graph_def, MetaGraphDef):
            raise TypeError(f"meta_graph_def must be type MetaGraphDef, saw type: {type(meta_graph_def)}")
        self._add(Event(meta_graph_def=meta_graph_def.SerializeToString()), global_step)

    def add_run_metadata(self, run_metadata: RunMetadata, tag: str, global_step: SupportsInt | None = None) -> None:
        """Adds the timings of one step, under a tag of its own.

        Raises:
            ValueError: the tag was used before.
        """
        if tag in self._session_tags:
            raise ValueError(f"The provided tag was already used for this event type: {tag!r}; choose another one")
        self._session_tags.add(tag)
        tagged = TaggedRunMetadata(tag=tag, run_metadata=run_metadata.SerializeToString())
        self._add(Event(tagged_run_metadata=tagged), global_step)

    def add_event(self, event: Event) -> None:
        """Adds an `Event` as it is. Does nothing but warn when the writer is closed.

        Raises:
            OpError: writing an earlier event failed.
        """
        for stream in self._open_streams():
            stream.put(event)

    def _add(self, event: Event, global_step: SupportsInt | None) -> None:
        event.wall_time = time.time()
        if global_step is not None:
            event.step = int(global_step)
        self.add_event(event)

    # ------------------------------------------------------------------ the file
    def flush(self) -> None:
        """Returns when all events added so far are in the file.

        Raises:
            OpError: writing an event failed.
        """
        for stream in self._open_streams():
            stream.flush()

    def close(self) -> None:
        """Writes what is left and closes the file. Closing twice is allowed.

        Raises:
            OpError: writing an event failed.
        """
        streams = list(self._streams)
        self._streams.clear()
        for stream in streams:
            stream.close()

    def reopen(self) -> None:
        """Lets a closed writer write again, to a new file. Does nothing when it is open."""
        if not self._streams:
            self._streams.append(EventStream(self._logdir, *self._options))

    def _open_streams(self) -> list[EventStream]:
        """The stream, or nothing and a warning: a copy, as another thread may close the writer meanwhile."""
        streams = list(self._streams)
        if not streams:
            warnings.warn(
                "Attempting to use a closed FileWriter. The operation will be a noop unless the FileWriter is "
                "explicitly reopened.",
                stacklevel=3,
            )
        return streams


def _meta_graph_of(graph_def: GraphDef | None) -> MetaGraphDef:
    return MetaGraphDef(graph_def=graph_def)


class FileWriterCache:
    """One `FileWriter` per directory, shared by whoever asks for it."""

    _writers: dict[str, FileWriter] = {}
    _lock = threading.Lock()

    @staticmethod
    def clear() -> None:
        """Closes and forgets all writers."""
        with FileWriterCache._lock:
            for writer in FileWriterCache._writers.values():
                writer.close()
            FileWriterCache._writers.clear()

    @staticmethod
    def get(logdir: str) -> FileWriter:
        """The writer of a directory, made on first use with the default graph."""
        name = os.fsdecode(logdir)
        with FileWriterCache._lock:
            if name not in FileWriterCache._writers:
                FileWriterCache._writers[name] = FileWriter(name, graph=get_default_graph())
            return FileWriterCache._writers[name]
