"""Fields of serialized protocol buffers as tensors, and back (WP4.5).

The messages are those of a descriptor: a file or bytes that hold a FileDescriptorSet, or the messages that this process
has modules of. Those of TensorFlow's own that are known here go by their names there, ``tensorflow.Example``.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
from google.protobuf import descriptor_pool, message_factory, text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError

from anabranch.core.arrays import Array, HostArray
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import DataLossError, InvalidArgumentError, OpError
from anabranch.graph.building import define_op
from anabranch.io import gfile
from anabranch.io.message_fields import MessageError, read_fields, written
from anabranch.ops import shape_rules
from anabranch.proto import config_pb2, example_pb2, saved_object_pb2, step_stats_pb2, summary_pb2, training_pb2

#: modules of messages that are TensorFlow's; to have imported them makes them known
_OURS: Final = (config_pb2, example_pb2, saved_object_pb2, step_stats_pb2, summary_pb2, training_pb2)
_THEIR_PACKAGE: Final = "tensorflow."
_OUR_PACKAGE: Final = "anabranch."
_LOCAL: Final = ("", "local://")
_BYTES: Final = b"bytes://"
#: how large a file of descriptors may be
_MOST_BYTES: Final = 1 << 28

_T: Final = FieldDescriptor
#: type of a field -> dtypes of a tensor of its values; the first is the field's own
_DTYPES: Final[dict[int, tuple[str, ...]]] = {
    _T.TYPE_DOUBLE: ("float64",),
    _T.TYPE_FLOAT: ("float32", "float64"),
    _T.TYPE_BOOL: ("bool",),
    _T.TYPE_ENUM: ("int32",),
    **dict.fromkeys((_T.TYPE_INT64, _T.TYPE_SFIXED64, _T.TYPE_SINT64), ("int64",)),
    **dict.fromkeys((_T.TYPE_INT32, _T.TYPE_SFIXED32, _T.TYPE_SINT32), ("int32", "int64")),
    **dict.fromkeys((_T.TYPE_UINT64, _T.TYPE_FIXED64), ("uint64",)),
    **dict.fromkeys((_T.TYPE_UINT32, _T.TYPE_FIXED32), ("uint32", "uint64")),
    **dict.fromkeys((_T.TYPE_STRING, _T.TYPE_BYTES, _T.TYPE_MESSAGE, _T.TYPE_GROUP), ("string",)),
}

DecodeProtoV2 = define_op(
    "DecodeProtoV2",
    "bytes: string -> sizes: int32, values: output_types",
    "message_type: string, field_names: list(string), output_types: list(type) >= 0, "
    "descriptor_source: string = 'local://', message_format: string = 'binary', sanitize: bool = False",
)
DecodeProtoV2.not_differentiable()
EncodeProto = define_op(
    "EncodeProto",
    "sizes: int32, values: Tinput_types -> bytes: string",
    "field_names: list(string), message_type: string, descriptor_source: string = 'local://', "
    "Tinput_types: list(type) >= 1",
)
EncodeProto.not_differentiable()


@DecodeProtoV2.shape
def _(bytes: TensorShape, *, field_names: list[bytes], output_types: list[DType]) -> list[TensorShape]:
    if len(field_names) != len(output_types):
        message = "field_names and output_types attributes must have the same length"
        raise ValueError(f"{message}, got {len(field_names)} and {len(output_types)}")
    return [bytes.concatenate([len(field_names)]), *[bytes.concatenate([None])] * len(output_types)]


@DecodeProtoV2.host_kernel
def _(
    bytes: Array,
    *,
    message_type: bytes,
    field_names: list[bytes],
    output_types: list[DType],
    descriptor_source: bytes,
    message_format: bytes,
    sanitize: bool,
    ctx: OperationContext,
) -> Any:
    """At least one value of each field for each message; where there are fewer, defaults stand."""
    known = message_format in (b"binary", b"text")
    ctx.check(known, f"message_format must be binary or text, got {message_format.decode()!r}")
    messages: list[Any] = np.asarray(bytes, np.object_).reshape(-1).tolist()
    ctx.check(bool(messages), "Bufs argument must contain at least one value")
    descriptor = _descriptor(message_type, descriptor_source, ctx)
    fields = [_field(descriptor, name, ctx) for name in field_names]
    for field, dtype in zip(fields, output_types, strict=True):
        _check_dtype(field, dtype, ctx)
    if message_format == b"text" or sanitize:
        messages = [_reserialized(descriptor, data, message_format == b"text", ctx) for data in messages]
    wanted = {field.number: field for field in fields}
    try:
        found = [read_fields(data, wanted) for data in messages]
    except MessageError as error:
        raise DataLossError(None, ctx.op, f"a message of type {message_type.decode()} is none: {error}") from error
    shape = np.shape(bytes)
    sizes = np.array([[len(one[field.number]) for field in fields] for one in found], np.int32)
    columns = [
        _column(field, dtype, [one[field.number] for one in found], shape)
        for field, dtype in zip(fields, output_types, strict=True)
    ]
    return sizes.reshape(*shape, len(fields)), columns


def _column(field: FieldDescriptor, dtype: DType, rows: list[list[Any]], shape: tuple[int, ...]) -> HostArray:
    length = max(1, *(len(row) for row in rows))
    column = np.full((len(rows), length), _default(field), dtype.as_numpy_dtype)
    for at, row in enumerate(rows):
        for i, value in enumerate(row):
            column[at, i] = value
    return column.reshape(*shape, length)


def _default(field: FieldDescriptor) -> Any:
    if field.type in (_T.TYPE_MESSAGE, _T.TYPE_GROUP):
        return b""
    is_text = field.type in (_T.TYPE_STRING, _T.TYPE_BYTES)
    if field.is_repeated:
        return b"" if is_text else 0
    value = field.default_value
    return value.encode() if isinstance(value, str) else value


def _reserialized(descriptor: Descriptor, data: bytes, as_text: bool, ctx: OperationContext) -> bytes:
    message = message_factory.GetMessageClass(descriptor)()
    try:
        if as_text:
            text_format.Parse(data, message)
        else:
            message.ParseFromString(data)
    except (text_format.ParseError, DecodeError, UnicodeDecodeError) as error:
        kind = "text" if as_text else "binary"
        raise DataLossError(None, ctx.op, f"Unable to parse {kind} protobuf {descriptor.full_name}: {error}") from error
    return message.SerializeToString(deterministic=True)


@EncodeProto.shape
def _(sizes: TensorShape, values: list[TensorShape], *, field_names: list[bytes]) -> TensorShape:
    if sizes.ndims is None:
        batch = shape_rules.UNKNOWN
    else:
        sizes.with_rank_at_least(1)[-1:].merge_with([len(field_names)])
        batch = sizes[:-1]
    for value in values:
        if value.ndims is not None:
            batch = batch.merge_with(value.with_rank_at_least(1)[:-1])
    return batch


@EncodeProto.host_kernel
def _(
    sizes: Array,
    values: list[Array],
    *,
    field_names: list[bytes],
    message_type: bytes,
    descriptor_source: bytes,
    Tinput_types: list[DType],
    ctx: OperationContext,
) -> Any:
    """The fields stand in the messages in the order of their numbers."""
    descriptor = _descriptor(message_type, descriptor_source, ctx)
    fields = [_field(descriptor, name, ctx, extensions=False) for name in field_names]
    ctx.check(len(fields) == len(values), f"there are {len(fields)} field_names for {len(values)} values")
    batch = values[0].shape[:-1]
    for field, value, dtype in zip(fields, values, Tinput_types, strict=True):
        _check_dtype(field, dtype, ctx)
        ctx.check(value.ndim >= 2, f"Invalid shape for field {field.name}: {value.shape} should be at least a matrix.")
        fits = value.shape[:-1] == batch
        ctx.check(fits, f"Values must match up to the last dimension, but {field.name} has the shape {value.shape}")
    fits = sizes.shape == (*batch, len(fields))
    ctx.check(
        fits, f"sizes should be batch_size + [{len(fields)}]. Saw: {sizes.shape}, expected {(*batch, len(fields))}"
    )
    counts, columns = sizes.reshape(-1, len(fields)), [v.reshape(-1, v.shape[-1]) for v in values]
    for i, column in enumerate(columns):
        most = int(counts[:, i].max(initial=0))
        fits = most <= column.shape[1] and int(counts[:, i].min(initial=0)) >= 0
        ctx.check(fits, f"Size to write must not be larger than value tensor; but saw: {most} > {column.shape[1]} of "
                  f"{fields[i].name}")  # fmt: skip
    in_order = sorted(range(len(fields)), key=lambda i: fields[i].number)
    messages = np.empty(len(counts), np.object_)
    for at, count in enumerate(counts):
        parts = (written(fields[i], columns[i][at, : count[i]].tolist()) for i in in_order if count[i])
        messages[at] = b"".join(parts)
    return messages.reshape(batch)


# ---------------------------------------------------------------------- descriptors
def _check_dtype(field: FieldDescriptor, dtype: DType, ctx: OperationContext) -> None:
    allowed = _DTYPES[field.type]
    if dtype.name not in allowed:
        message = f"Unexpected output type for {field.full_name}: {dtype.name}; it is one of {list(allowed)}"
        raise InvalidArgumentError(None, ctx.op, message)


def _field(descriptor: Descriptor, name: bytes, ctx: OperationContext, extensions: bool = True) -> FieldDescriptor:
    text = name.decode()
    field = descriptor.fields_by_name.get(text)
    if field is None and extensions:
        pool = descriptor.file.pool
        field = next((e for e in pool.FindAllExtensions(descriptor) if e.full_name == text), None)
    if field is None:
        known = sorted(descriptor.fields_by_name)[:20]
        message = f"Unknown field: {text} in message type {descriptor.full_name}; it has {known}"
        raise InvalidArgumentError(None, ctx.op, message)
    return field


def _descriptor(message_type: bytes, source: bytes, ctx: OperationContext) -> Descriptor:
    name = message_type.decode()
    try:
        pool, names = _pool(source), [name]
        if source.decode("utf-8", "replace") in _LOCAL and name.startswith(_THEIR_PACKAGE):
            names.append(_OUR_PACKAGE + name.removeprefix(_THEIR_PACKAGE))
        for candidate in names:
            try:
                return pool.FindMessageTypeByName(candidate)
            except KeyError:
                continue
    except OpError as error:
        error.attribute_to(ctx.op)
        raise
    except (DecodeError, TypeError, ValueError) as error:
        message = f"descriptor_source of {ctx.op.name!r} holds no FileDescriptorSet: {error}; write one with "
        raise InvalidArgumentError(None, ctx.op, f"{message}`protoc --include_imports --descriptor_set_out`") from error
    message = f"No descriptor found for message type {name}; give descriptor_source a file that `protoc "
    raise InvalidArgumentError(None, ctx.op, f"{message}--include_imports --descriptor_set_out` wrote")


def _pool(source: bytes) -> descriptor_pool.DescriptorPool:
    if source.decode("utf-8", "replace") in _LOCAL:
        return descriptor_pool.Default()
    return _pool_of(source[len(_BYTES) :]) if source.startswith(_BYTES) else _pool_of(_content(source.decode()))


def _content(path: str) -> bytes:
    with gfile.GFile(path, "rb") as file:
        content: bytes = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise InvalidArgumentError(
            None, None, f"{path} has more than {_MOST_BYTES} bytes, and is no set of descriptors"
        )
    return content


@functools.lru_cache(maxsize=16)
def _pool_of(content: bytes) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in FileDescriptorSet.FromString(content).file:
        pool.Add(file)
    return pool
