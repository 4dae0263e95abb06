"""Readers: records from files whose names come out of a queue  (§4.2, WP4.5). The objects: `state.readers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core.arrays import Array
from anabranch.core.attrs import AttributeValue
from anabranch.core.dtypes import string
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules
from anabranch.ops.resources.shared_objects import Plan, object_behind, open_object, outcome
from anabranch.state import readers

_NAMES = "container: string = '', shared_name: string = ''"


def _making(name: str, attrs: str, make: Callable[..., readers.Reader]) -> Any:
    """An operation that makes a reader from its name and attributes."""
    op = define_op(name, "-> reader_handle: resource", attrs, stateful=True)
    op.shape(shape_rules.scalar)
    wanted = [a for a in op.attrs if a not in {"container", "shared_name"}]

    @op.host_kernel
    def _(*, ctx: StepHostContext) -> ResourceHandle:
        given = {a: _plain(ctx.op.attrs[a]) for a in wanted}

        def plan(handle: ResourceHandle) -> Plan:
            return {"reader type": name, **given}, lambda: make(ctx.op.name, **given)

        return open_object(ctx, "reader", plan)

    return op.not_differentiable()


def _plain(value: AttributeValue) -> Any:
    return value.decode() if isinstance(value, bytes) else value


WholeFileReaderV2 = _making("WholeFileReaderV2", _NAMES, readers.ContentReader)
IdentityReaderV2 = _making("IdentityReaderV2", _NAMES, readers.NameReader)
LMDBReader = _making("_LMDBReader", _NAMES, readers.LmdbReader)
TextLineReaderV2 = _making("TextLineReaderV2", f"skip_header_lines: int = 0, {_NAMES}", readers.LineReader)
TFRecordReaderV2 = _making(
    "TFRecordReaderV2",
    f"{_NAMES}, compression_type: string = ''",
    readers.RecordReader,
)
FixedLengthRecordReaderV2 = _making(
    "FixedLengthRecordReaderV2",
    "header_bytes: int = 0, record_bytes: int, footer_bytes: int = 0, hop_bytes: int = 0, "
    f"{_NAMES}, encoding: string = ''",
    readers.FixedRecordReader,
)


# ---------------------------------------------------------------------- reading
def _reader(ctx: StepHostContext, handle: ResourceHandle) -> readers.Reader:
    reader: readers.Reader = object_behind(ctx, handle, "reader")
    return reader


def _names_from(ctx: StepHostContext, handle: ResourceHandle) -> Callable[[], Any]:
    """What asks the queue of names for the next one."""
    queue = object_behind(ctx, handle, "queue")
    if queue.components.dtypes != (string,):
        types = [t.name for t in queue.components.dtypes]
        problem = (
            "Expected single component queue" if len(types) != 1 else "Expected queue with single string component"
        )
        raise InvalidArgumentError(None, ctx.op, f"{problem} for the names that {ctx.op.name!r} reads, got {types}")
    name = ctx.op.name
    return lambda: queue.dequeue(name)


ReaderReadV2 = define_op(
    "ReaderReadV2",
    "reader_handle: resource, queue_handle: resource -> key: string, value: string",
    stateful=True,
    asynchronous=True,
)
ReaderReadV2.not_differentiable()


@ReaderReadV2.shape
def _(reader_handle: TensorShape, queue_handle: TensorShape) -> list[TensorShape]:
    return [TensorShape([]), TensorShape([])]


@ReaderReadV2.host_kernel
def _(reader_handle: ResourceHandle, queue_handle: ResourceHandle, *, ctx: StepHostContext) -> Any:
    return outcome(_reader(ctx, reader_handle).read(_names_from(ctx, queue_handle)))


ReaderReadUpToV2 = define_op(
    "ReaderReadUpToV2",
    "reader_handle: resource, queue_handle: resource, num_records: int64 -> keys: string, values: string",
    stateful=True,
    asynchronous=True,
)
ReaderReadUpToV2.not_differentiable()


@ReaderReadUpToV2.shape
def _(reader_handle: TensorShape, queue_handle: TensorShape, num_records: TensorShape) -> list[TensorShape]:
    return [TensorShape([None]), TensorShape([None])]


@ReaderReadUpToV2.host_kernel
def _(reader_handle: ResourceHandle, queue_handle: ResourceHandle, num_records: Array, *, ctx: StepHostContext) -> Any:
    return outcome(_reader(ctx, reader_handle).read_up_to(_names_from(ctx, queue_handle), int(num_records)))


# ---------------------------------------------------------------------- questions and position
ReaderNumRecordsProducedV2 = define_op(
    "ReaderNumRecordsProducedV2", "reader_handle: resource -> records_produced: int64", stateful=True
)
ReaderNumRecordsProducedV2.shape(shape_rules.scalar)
ReaderNumRecordsProducedV2.not_differentiable()


@ReaderNumRecordsProducedV2.host_kernel
def _(reader_handle: ResourceHandle, *, ctx: StepHostContext) -> int:
    return _reader(ctx, reader_handle).records_produced()


ReaderNumWorkUnitsCompletedV2 = define_op(
    "ReaderNumWorkUnitsCompletedV2", "reader_handle: resource -> units_completed: int64", stateful=True
)
ReaderNumWorkUnitsCompletedV2.shape(shape_rules.scalar)
ReaderNumWorkUnitsCompletedV2.not_differentiable()


@ReaderNumWorkUnitsCompletedV2.host_kernel
def _(reader_handle: ResourceHandle, *, ctx: StepHostContext) -> int:
    return _reader(ctx, reader_handle).work_units_completed()


ReaderResetV2 = define_op("ReaderResetV2", "reader_handle: resource ->", stateful=True)
ReaderResetV2.shape(shape_rules.no_outputs)
ReaderResetV2.not_differentiable()


@ReaderResetV2.host_kernel
def _(reader_handle: ResourceHandle, *, ctx: StepHostContext) -> None:
    _reader(ctx, reader_handle).reset()


ReaderSerializeStateV2 = define_op("ReaderSerializeStateV2", "reader_handle: resource -> state: string", stateful=True)
ReaderSerializeStateV2.shape(shape_rules.scalar)
ReaderSerializeStateV2.not_differentiable()


@ReaderSerializeStateV2.host_kernel
def _(reader_handle: ResourceHandle, *, ctx: StepHostContext) -> bytes:
    return _reader(ctx, reader_handle).serialize()


ReaderRestoreStateV2 = define_op("ReaderRestoreStateV2", "reader_handle: resource, state: string ->", stateful=True)
ReaderRestoreStateV2.not_differentiable()


@ReaderRestoreStateV2.shape
def _(reader_handle: TensorShape, state: TensorShape) -> tuple[()]:
    state.assert_is_compatible_with([])
    return ()


@ReaderRestoreStateV2.host_kernel
def _(reader_handle: ResourceHandle, state: Array, *, ctx: StepHostContext) -> None:
    _reader(ctx, reader_handle).restore(state.item())
