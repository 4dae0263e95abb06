"""Operations that write summaries themselves, when they run, to the default writer: what `tf.contrib.summary` and
`tf.compat.v2.summary` have in common.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

import anabranch as tf
from anabranch.core.values import PassedOn, TensorLike

#: collections of a graph
_WRITERS_INIT: Final = "_SUMMARY_WRITER_INIT"
_ALL_SUMMARIES: Final = "_SUMMARY_V2"
_SECONDS_PER_MILLISECOND: Final = 1e-3


class _Scopes(threading.local):
    """The default writers, and whether summaries are recorded, of a thread: the innermost is last."""

    def __init__(self) -> None:
        self.writers: list[SummaryWriter | None] = []
        self.records: list[Any] = []


_scopes: Final = _Scopes()


class SummaryWriter:
    """Writes event files; `create_file_writer` makes one. Its file is opened when its initializer runs."""

    def __init__(self, open_file: Callable[[], Any]) -> None:
        self._open = open_file
        self._lock = threading.Lock()
        self._file: Any = None

    def set_as_default(self) -> None:
        """Makes it the default writer of this thread from now on."""
        _scopes.writers.append(self)

    @contextlib.contextmanager
    def as_default(self) -> Iterator[SummaryWriter]:
        """Inside, it is the default writer."""
        _scopes.writers.append(self)
        try:
            yield self
        finally:
            _scopes.writers.pop()

    def init(self) -> tf.Operation:
        """An operation that opens the file, if that was not done."""
        return _calling(self._opened, [])

    def flush(self) -> tf.Operation:
        """An operation that writes to the disk what waits."""
        return _calling(lambda: self._opened().flush(), [])

    def close(self) -> tf.Operation:
        """An operation that writes what waits, and closes the file."""
        return _calling(self._close, [])

    def write(self, summary: TensorLike, step: TensorLike) -> tf.Operation:
        """An operation that writes a serialized summary of a step."""
        return _calling(lambda data, at: self._opened().add_summary(data, int(at)), [summary, step])

    def write_graph(self, graph_def: TensorLike, step: TensorLike) -> tf.Operation:
        """An operation that writes a serialized graph."""

        def add(data: bytes, at: int) -> None:
            self._opened().add_graph(tf.GraphDef.FromString(data), int(at))

        return _calling(add, [graph_def, step])

    def _opened(self) -> Any:
        with self._lock:
            if self._file is None:
                self._file = self._open()
            return self._file

    def _close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()


def _calling(function: Callable[..., Any], inputs: list[Any]) -> tf.Operation:
    """An operation that calls a function of this process each time that it runs."""

    def call(*values: PassedOn) -> np.bool_:
        function(*values)
        return np.bool_(True)

    operation: tf.Operation = tf.py_func(call, inputs, tf.bool, stateful=True).op
    return operation


# ---------------------------------------------------------------------- writers
def create_file_writer(
    logdir: str | None,
    max_queue: int | None = None,
    flush_millis: float | None = None,
    filename_suffix: str | None = None,
    name: str | None = None,
) -> SummaryWriter:
    """A writer of event files in a directory.

    Args:
        logdir: the directory; None: a writer that writes nothing.
        max_queue: events that may wait (10).
        flush_millis: milliseconds that they may wait (120,000).
        filename_suffix: of the files.
        name: accepted.

    Returns:
        The writer; its initializer is among those that `initialize` runs.
    """
    if logdir is None:
        return _Nowhere()

    def open_file() -> tf.summary.FileWriter:
        seconds = 120.0 if flush_millis is None else flush_millis * _SECONDS_PER_MILLISECOND
        return tf.summary.FileWriter(
            logdir, max_queue=max_queue or 10, flush_secs=seconds, filename_suffix=filename_suffix
        )

    writer = SummaryWriter(open_file)
    tf.add_to_collection(_WRITERS_INIT, writer.init())
    return writer


create_summary_file_writer = create_file_writer


class _Nowhere(SummaryWriter):
    """Inside, summaries are written nowhere."""

    def __init__(self) -> None:
        super().__init__(lambda: None)

    def set_as_default(self) -> None:
        _scopes.writers.append(None)

    @contextlib.contextmanager
    def as_default(self) -> Iterator[SummaryWriter]:
        _scopes.writers.append(None)
        try:
            yield self
        finally:
            _scopes.writers.pop()


def summary_writer_initializer_op() -> list[tf.Operation]:
    """The operations that open the writers of the default graph."""
    operations: list[tf.Operation] = tf.get_collection(_WRITERS_INIT)
    return operations


def initialize(graph: tf.Graph | None = None, session: tf.Session | None = None) -> None:
    """Opens the writers of the default graph.

    Args:
        graph: is written to the default writer, if there is one.
        session: default: the default session.

    Raises:
        ValueError: there is no session.
    """
    opened = session or tf.get_default_session()
    if opened is None:
        raise ValueError("initialize needs a session: pass one, or enter one")
    opened.run(summary_writer_initializer_op())
    writer = default_writer()
    if graph is not None and writer is not None:
        opened.run(writer.write_graph(graph.as_graph_def(add_shapes=True).SerializeToString(), 0))


def flush(writer: SummaryWriter | None = None, name: str | None = None) -> tf.Operation:
    """An operation that writes to the disk what waits; of the default writer, if none is given."""
    writer = writer or default_writer()
    return tf.no_op() if writer is None else writer.flush()


def default_writer() -> SummaryWriter | None:
    """The innermost default writer of this thread; None: there is none, or it writes nowhere."""
    return _scopes.writers[-1] if _scopes.writers else None


# ---------------------------------------------------------------------- whether they are recorded
@contextlib.contextmanager
def recording(when: TensorLike | Callable[[], TensorLike]) -> Iterator[None]:
    """Inside, summaries are recorded where that is true, or where a function says so when it is asked."""
    _scopes.records.append(when)
    try:
        yield
    finally:
        _scopes.records.pop()


def always_record_summaries() -> contextlib.AbstractContextManager[None]:
    """Inside, all summaries are recorded."""
    return recording(True)


def never_record_summaries() -> contextlib.AbstractContextManager[None]:
    """Inside, no summary is recorded."""
    return recording(False)


def record_summaries_every_n_global_steps(
    n: int, global_step: TensorLike | None = None
) -> contextlib.AbstractContextManager[None]:
    """Inside, summaries are recorded in steps whose number `n` divides."""
    step = tf.train.get_or_create_global_step() if global_step is None else global_step
    with tf.device("cpu:0"):
        return recording(tf.equal(tf.cast(step, tf.int64) % n, 0))


def should_record_summaries() -> tf.Tensor:
    """Whether summaries are recorded, bool scalar; False where nothing says so."""
    return tf.convert_to_tensor(_condition(False))


def _condition(otherwise: bool) -> Any:
    when = _scopes.records[-1] if _scopes.records else otherwise
    return when() if callable(when) and not isinstance(when, tf.Tensor | tf.Variable) else when


def all_summary_ops() -> list[tf.Operation]:
    """The operations that write summaries, in the default graph."""
    operations: list[tf.Operation] = tf.get_collection(_ALL_SUMMARIES)
    return operations


# ---------------------------------------------------------------------- summaries
def record(step: TensorLike | None, make: Callable[[], TensorLike], otherwise: bool = False) -> tf.Tensor | None:
    """Writes what `make` gives, if summaries are recorded.

    Args:
        step: int64 scalar; default: the global step.
        make: gives a serialized summary.
        otherwise: whether summaries are recorded where nothing says so.

    Returns:
        Whether it was written, bool scalar; None where nothing is ever written here.
    """
    writer, when = default_writer(), _condition(otherwise)
    if writer is None or when is False:
        return None
    at = tf.train.get_or_create_global_step() if step is None else step

    def write() -> tf.Tensor:
        with tf.control_dependencies([writer.write(make(), tf.cast(at, tf.int64))]):
            return tf.constant(True)

    with tf.name_scope(None), tf.device("cpu:0"):
        written: tf.Tensor = tf.cond(tf.convert_to_tensor(when), write, lambda: tf.constant(False))
    tf.add_to_collection(_ALL_SUMMARIES, written.op)
    return written
