"""Writers of event files that are resources of a step, as `tf.contrib.summary` of TensorFlow 1 puts them into graphs.

`SummaryWriter` names one, `CreateSummaryFileWriter` opens its file, and the others write events with a step's number.
What an event holds is what the operations of `ops.storage.summary` make.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError, Message

from anabranch.core.resources import ResourceHandle
from anabranch.errors import InvalidArgumentError, NotFoundError
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.io.event_files import EventsWriter
from anabranch.io.summary_database import SummaryDatabase
from anabranch.ops import shape_rules
from anabranch.ops.resources.shared_objects import object_behind, open_object
from anabranch.ops.storage.summary import (
    audio_summary,
    histogram_summary,
    image_summary,
    scalar_summary,
    tensor_summary,
)
from anabranch.proto.graph_pb2 import GraphDef
from anabranch.proto.summary_pb2 import Event, Summary, SummaryMetadata

Array = np.ndarray[Any, Any]

#: the kind of handles of writers
SUMMARY_WRITER = "summary writer"


#: when events are committed to a database: how many have gathered, or how many seconds have passed
_DATABASE_QUEUE, _DATABASE_SECONDS = 100, 2.0


class _EventFile:
    """A writer that may be open; events are handed to the system when `max_queue` have gathered or time has passed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: EventsWriter | SummaryDatabase | None = None
        self._max_queue, self._flush_secs = 0, 0.0
        self._waiting, self._flushed = 0, 0.0

    def open(self, logdir: str, max_queue: int, flush_millis: int, suffix: str) -> None:
        """Opens the file; a writer that is open stays as it is."""
        with self._lock:
            if self._file is None:
                self._file = EventsWriter(logdir, suffix)
                self._max_queue, self._flush_secs = max_queue, flush_millis / 1000
                self._waiting, self._flushed = 0, time.monotonic()

    def open_database(self, path: str, experiment: str, run: str, user: str) -> None:
        """Opens a database instead of a file; a writer that is open stays as it is."""
        with self._lock:
            if self._file is None:
                self._file = SummaryDatabase(path, experiment, run, user)
                self._max_queue, self._flush_secs = _DATABASE_QUEUE, _DATABASE_SECONDS
                self._waiting, self._flushed = 0, time.monotonic()

    @property
    def keeps_dtypes(self) -> bool:
        """Whether numbers are kept in their own dtypes."""
        return isinstance(self._file, SummaryDatabase)

    def write(self, event: Event) -> bool:
        """Whether the writer is open, so that the event was written."""
        with self._lock:
            if self._file is None:
                return False
            self._file.write_event(event)
            self._waiting += 1
            if self._waiting > self._max_queue or time.monotonic() - self._flushed > self._flush_secs:
                self._flush(self._file)
            return True

    def flush(self) -> bool:
        """Whether the writer is open, so that all events are in the file."""
        with self._lock:
            if self._file is not None:
                self._flush(self._file)
            return self._file is not None

    def close(self) -> None:
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                file.close()

    def _flush(self, file: EventsWriter | SummaryDatabase) -> None:
        file.flush()
        self._waiting, self._flushed = 0, time.monotonic()


SummaryWriter = define_op(
    "SummaryWriter", "-> writer: resource", "shared_name: string = '', container: string = ''", stateful=True
)
SummaryWriter.shape(shape_rules.scalar)
SummaryWriter.not_differentiable()


@SummaryWriter.host_kernel
def _(*, ctx: StepHostContext) -> ResourceHandle:
    return open_object(ctx, SUMMARY_WRITER, lambda _: ({}, _EventFile))


def _define(name: str, inputs: str, attrs: str = "", **ranks: int) -> OpFunction:
    op = define_op(name, f"writer: resource{inputs} ->", attrs, stateful=True, ranks=ranks)
    op.shape(shape_rules.no_outputs)
    return op.not_differentiable()


def _writer(ctx: StepHostContext, handle: ResourceHandle) -> _EventFile:
    file: _EventFile = object_behind(ctx, handle, SUMMARY_WRITER)
    return file


def _closed(ctx: StepHostContext) -> NotFoundError:
    return NotFoundError(
        None,
        ctx.op,
        f"{ctx.op.name!r} found its summary writer closed, or not opened yet; run CreateSummaryFileWriter first "
        "(tf.contrib.summary.initialize does)",
    )


# ---------------------------------------------------------------------- files
CreateSummaryFileWriter = _define(
    "CreateSummaryFileWriter",
    ", logdir: string, max_queue: int32, flush_millis: int32, filename_suffix: string",
    logdir=0,
    max_queue=0,
    flush_millis=0,
    filename_suffix=0,
)
CreateSummaryDbWriter = _define(
    "CreateSummaryDbWriter",
    ", db_uri: string, experiment_name: string, run_name: string, user_name: string",
    db_uri=0,
    experiment_name=0,
    run_name=0,
    user_name=0,
)
FlushSummaryWriter = _define("FlushSummaryWriter", "")
CloseSummaryWriter = _define("CloseSummaryWriter", "")


@CreateSummaryFileWriter.host_kernel
def _(
    writer: ResourceHandle,
    logdir: Array,
    max_queue: Array,
    flush_millis: Array,
    filename_suffix: Array,
    *,
    ctx: StepHostContext,
) -> None:
    suffix, folder = filename_suffix.item().decode(), logdir.item().decode()
    _writer(ctx, writer).open(folder, int(max_queue), int(flush_millis), suffix)


@CreateSummaryDbWriter.host_kernel
def _(
    writer: ResourceHandle,
    db_uri: Array,
    experiment_name: Array,
    run_name: Array,
    user_name: Array,
    *,
    ctx: StepHostContext,
) -> None:
    names = (text.item().decode() for text in (experiment_name, run_name, user_name))
    _writer(ctx, writer).open_database(os.fsdecode(db_uri.item()), *names)


@FlushSummaryWriter.host_kernel
def _(writer: ResourceHandle, *, ctx: StepHostContext) -> None:
    if not _writer(ctx, writer).flush():
        raise _closed(ctx)


@CloseSummaryWriter.host_kernel
def _(writer: ResourceHandle, *, ctx: StepHostContext) -> None:
    _writer(ctx, writer).close()


# ---------------------------------------------------------------------- events
def _write(ctx: StepHostContext, writer: ResourceHandle, event: Event) -> None:
    if not _writer(ctx, writer).write(event):
        raise _closed(ctx)


def _write_summary(ctx: StepHostContext, writer: ResourceHandle, step: Array, summary: bytes) -> None:
    parsed = _parsed(ctx, Summary, summary)
    _write(ctx, writer, Event(step=int(step), wall_time=time.time(), summary=parsed))


def _parsed(ctx: StepHostContext, message: type[Message], serialized: bytes) -> Any:
    try:
        return message.FromString(serialized)
    except DecodeError as error:
        raise InvalidArgumentError(
            None, ctx.op, f"{ctx.op.name!r} was given bytes that are no {message.DESCRIPTOR.name}: {error}"
        ) from error


_STEP = ", step: int64"
_TAGGED = f"{_STEP}, tag: string"
_HISTOGRAM_TYPES = (
    "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, bool} = float"
)
WriteSummary = _define(
    "WriteSummary", f"{_STEP}, tensor: T, tag: string, summary_metadata: string", "T: any", step=0, tag=0
)
WriteScalarSummary = _define("WriteScalarSummary", f"{_TAGGED}, value: T", "T: real", step=0, tag=0, value=0)
WriteHistogramSummary = _define("WriteHistogramSummary", f"{_TAGGED}, values: T", _HISTOGRAM_TYPES, step=0, tag=0)
WriteImageSummary = _define(
    "WriteImageSummary",
    f"{_TAGGED}, tensor: T, bad_color: uint8",
    "max_images: int >= 1 = 3, T: {uint8, float, half, double} = float",
    step=0,
    tag=0,
)
WriteAudioSummary = _define(
    "WriteAudioSummary",
    f"{_TAGGED}, tensor: float, sample_rate: float",
    "max_outputs: int >= 1 = 3",
    step=0,
    tag=0,
    sample_rate=0,
)
WriteGraphSummary = _define("WriteGraphSummary", f"{_STEP}, tensor: string", step=0, tensor=0)
WriteRawProtoSummary = _define("WriteRawProtoSummary", f"{_STEP}, tensor: string", step=0)
ImportEvent = _define("ImportEvent", ", event: string", event=0)


@WriteSummary.host_kernel
def _(
    writer: ResourceHandle, step: Array, tensor: Array, tag: Array, summary_metadata: Array, *, ctx: StepHostContext
) -> None:
    summary = tensor_summary(tag, tensor, summary_metadata, ctx.op.inputs[2].dtype, ctx)
    _write_summary(ctx, writer, step, summary)


#: what says that a tensor is a scalar of a series
_SCALARS = np.array(
    SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars")).SerializeToString(), np.object_
)


@WriteScalarSummary.host_kernel
def _(writer: ResourceHandle, step: Array, tag: Array, value: Array, *, ctx: StepHostContext) -> None:
    if _writer(ctx, writer).keeps_dtypes:
        _write_summary(ctx, writer, step, tensor_summary(tag, value, _SCALARS, ctx.op.inputs[3].dtype, ctx))
        return
    _write_summary(ctx, writer, step, scalar_summary(tag, value, ctx=ctx))


@WriteHistogramSummary.host_kernel
def _(writer: ResourceHandle, step: Array, tag: Array, values: Array, *, ctx: StepHostContext) -> None:
    _write_summary(ctx, writer, step, histogram_summary(tag, values, ctx=ctx))


@WriteImageSummary.host_kernel
def _(
    writer: ResourceHandle,
    step: Array,
    tag: Array,
    tensor: Array,
    bad_color: Array,
    *,
    max_images: int,
    ctx: StepHostContext,
) -> None:
    summary = image_summary(tag, tensor, max_images=max_images, bad_color=bad_color, ctx=ctx)
    _write_summary(ctx, writer, step, summary)


@WriteAudioSummary.host_kernel
def _(
    writer: ResourceHandle,
    step: Array,
    tag: Array,
    tensor: Array,
    sample_rate: Array,
    *,
    max_outputs: int,
    ctx: StepHostContext,
) -> None:
    _write_summary(ctx, writer, step, audio_summary(tag, tensor, float(sample_rate), max_outputs, ctx))


@WriteGraphSummary.host_kernel
def _(writer: ResourceHandle, step: Array, tensor: Array, *, ctx: StepHostContext) -> None:
    _parsed(ctx, GraphDef, tensor.item())
    _write(ctx, writer, Event(step=int(step), wall_time=time.time(), graph_def=tensor.item()))


@WriteRawProtoSummary.host_kernel
def _(writer: ResourceHandle, step: Array, tensor: Array, *, ctx: StepHostContext) -> None:
    for serialized in tensor.ravel().tolist():
        _write_summary(ctx, writer, step, serialized)


@ImportEvent.host_kernel
def _(writer: ResourceHandle, event: Array, *, ctx: StepHostContext) -> None:
    _write(ctx, writer, _parsed(ctx, Event, event.item()))
