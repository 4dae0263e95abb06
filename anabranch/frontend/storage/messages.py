"""tf.io: fields of serialized protocol buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import TensorLike
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class DecodeProtoV2(NamedTuple):
    """What `decode_proto` returns."""

    sizes: Tensor
    values: list[Tensor]


def decode_proto(
    bytes: TensorLike,
    message_type: str,
    field_names: Sequence[str],
    output_types: Sequence[DTypeLike],
    descriptor_source: str = "local://",
    message_format: str = "binary",
    sanitize: bool = False,
    name: str | None = None,
) -> DecodeProtoV2:
    """Takes fields out of serialized protocol buffers.

    Args:
        bytes: strings of any shape: the messages.
        message_type: the full name of their type.
        field_names: the fields; extensions by their full names.
        output_types: the dtype of each: that of the field, or a wider one. Messages in messages are strings.
        descriptor_source: a file that holds a FileDescriptorSet (``protoc --descriptor_set_out``), "bytes://" followed
            by its content, or "local://": the messages that this process has modules of.
        message_format: "binary", or "text" for text.
        sanitize: whether to parse and serialize the messages once before.

    Returns:
        `sizes`, int32 of the shape of `bytes` and as many elements as there are fields: how often each field stands in
        each message. `values`: a tensor for each field, of the shape of `bytes` and as many elements as it stands in
        any, at least one. What is not there is the field's default.

    When it runs: `DataLossError` for what is no such message, `InvalidArgumentError` for types and fields that are not
    known.
    """
    sizes, values = raw.DecodeProtoV2(
        bytes, message_type, field_names, output_types, descriptor_source, message_format, sanitize, name=name
    )
    return DecodeProtoV2(sizes, values)


def encode_proto(
    sizes: TensorLike,
    values: Sequence[TensorLike],
    field_names: Sequence[str],
    message_type: str,
    descriptor_source: str = "local://",
    name: str | None = None,
) -> Tensor:
    """Serializes protocol buffers of the values of their fields: the way back from `decode_proto`.

    Args:
        sizes: int32 of shape batch + [fields]: how many of the values of each field go into each message.
        values: for each field a tensor of shape batch + [values].
        field_names, message_type, descriptor_source: as for `decode_proto`.

    Returns:
        Strings of the batch's shape.
    """
    encoded: Tensor = raw.EncodeProto(sizes, values, field_names, message_type, descriptor_source, name=name)
    return encoded
