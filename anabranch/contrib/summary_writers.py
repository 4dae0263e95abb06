"""`tf.contrib.summary`: operations that write summaries themselves, when they run, to the default writer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike

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
    writer = _default_writer()
    if graph is not None and writer is not None:
        opened.run(writer.write_graph(graph.as_graph_def(add_shapes=True).SerializeToString(), 0))


def flush(writer: SummaryWriter | None = None, name: str | None = None) -> tf.Operation:
    """An operation that writes to the disk what waits; of the default writer, if none is given."""
    writer = writer or _default_writer()
    return tf.no_op() if writer is None else writer.flush()


def _default_writer() -> SummaryWriter | None:
    return _scopes.writers[-1] if _scopes.writers else None


# ---------------------------------------------------------------------- whether they are recorded
@contextlib.contextmanager
def _recording(when: TensorLike) -> Iterator[None]:
    _scopes.records.append(when)
    try:
        yield
    finally:
        _scopes.records.pop()


def always_record_summaries() -> contextlib.AbstractContextManager[None]:
    """Inside, all summaries are recorded."""
    return _recording(True)


def never_record_summaries() -> contextlib.AbstractContextManager[None]:
    """Inside, no summary is recorded."""
    return _recording(False)


def record_summaries_every_n_global_steps(
    n: int, global_step: TensorLike | None = None
) -> contextlib.AbstractContextManager[None]:
    """Inside, summaries are recorded in steps whose number `n` divides."""
    step = tf.train.get_or_create_global_step() if global_step is None else global_step
    with tf.device("cpu:0"):
        return _recording(tf.equal(tf.cast(step, tf.int64) % n, 0))


def should_record_summaries() -> tf.Tensor:
    """Whether summaries are recorded, bool scalar; False where nothing says so."""
    return tf.convert_to_tensor(_scopes.records[-1] if _scopes.records else False)


def all_summary_ops() -> list[tf.Operation]:
    """The operations that write summaries, in the default graph."""
    operations: list[tf.Operation] = tf.get_collection(_ALL_SUMMARIES)
    return operations


# ---------------------------------------------------------------------- summaries
def _record(name: str, family: str | None, step: TensorLike | None, make: Callable[[str], TensorLike]) -> tf.Operation:
    """An operation that writes what `make` gives for a tag, if summaries are recorded."""
    writer = _default_writer()
    if writer is None or (_scopes.records[-1] if _scopes.records else False) is False:
        return tf.no_op()
    at = tf.train.get_or_create_global_step() if step is None else step
    scope = tf.get_default_graph().get_name_scope()
    tag = "/".join(part for part in (scope, family, name) if part)

    def write() -> tf.Tensor:
        with tf.control_dependencies([writer.write(make(tag), tf.cast(at, tf.int64))]):
            return tf.constant(True)

    with tf.name_scope(None), tf.device("cpu:0"):
        written = tf.cond(should_record_summaries(), write, lambda: tf.constant(False))
    operation: tf.Operation = written.op
    tf.add_to_collection(_ALL_SUMMARIES, operation)
    return operation


def scalar(name: str, tensor: TensorLike, family: str | None = None, step: TensorLike | None = None) -> tf.Operation:
    """Writes a number.

    Args:
        name: of the summary, after the name scope and `family`.
        tensor: any real scalar.
        family: stands before the name.
        step: int64 scalar; default: the global step.

    Returns:
        The operation.
    """
    return _record(name, family, step, lambda tag: tf.raw_ops.ScalarSummary(tags=tag, values=tensor))


def histogram(name: str, tensor: TensorLike, family: str | None = None, step: TensorLike | None = None) -> tf.Operation:
    """Writes a histogram of a tensor's elements; arguments as of `scalar`."""
    return _record(name, family, step, lambda tag: tf.raw_ops.HistogramSummary(tag=tag, values=tensor))


def image(
    name: str,
    tensor: TensorLike,
    bad_color: TensorLike | None = None,
    max_images: int = 3,
    family: str | None = None,
    step: TensorLike | None = None,
) -> tf.Operation:
    """Writes images [batch, height, width, 1 | 3 | 4]; not a number is shown red. Other arguments as of `scalar`."""
    if bad_color is not None:
        raise NotImplementedError("contrib.summary.image shows what is not a number red; bad_color cannot be chosen")
    return _record(
        name, family, step, lambda tag: tf.raw_ops.ImageSummary(tag=tag, tensor=tensor, max_images=max_images)
    )


def audio(
    name: str,
    tensor: TensorLike,
    sample_rate: TensorLike,
    max_outputs: int,
    family: str | None = None,
    step: TensorLike | None = None,
) -> tf.Operation:
    """Writes sounds [batch, frames] or [batch, frames, channels] in [-1, 1]. Other arguments as of `scalar`."""

    def make(tag: str) -> TensorLike:
        return tf.raw_ops.AudioSummaryV2(
            tag=tag, tensor=tensor, sample_rate=tf.cast(sample_rate, tf.float32), max_outputs=max_outputs
        )

    return _record(name, family, step, make)


def generic(
    name: str,
    tensor: TensorLike,
    metadata: PassedOn = None,
    family: str | None = None,
    step: TensorLike | None = None,
) -> tf.Operation:
    """Writes a tensor, with a `SummaryMetadata` or its bytes. Other arguments as of `scalar`."""
    data = b"" if metadata is None else metadata if isinstance(metadata, bytes) else metadata.SerializeToString()
    return _record(
        name,
        family,
        step,
        lambda tag: tf.raw_ops.TensorSummaryV2(tag=tag, tensor=tensor, serialized_summary_metadata=data),
    )


def graph(param: PassedOn, step: TensorLike | None = None, name: str | None = None) -> tf.Operation:
    """Writes a graph: a `GraphDef`, its bytes, or a string tensor of them.

    Raises:
        TypeError: `param` is none of these.
    """
    if isinstance(param, tf.GraphDef):
        param = param.SerializeToString()
    if not isinstance(param, bytes | tf.Tensor):
        raise TypeError(f"param must be a GraphDef, or bytes of one, got {type(param).__name__}")
    writer = _default_writer()
    if writer is None:
        return tf.no_op()
    at = tf.train.get_or_create_global_step() if step is None else step
    return writer.write_graph(param, tf.cast(at, tf.int64))
