"""Messages written as text, in which messages of type `Any` may be spelled out, as TensorFlow's writers have them:
`value { [type.googleapis.com/tensorflow.AssetFileDef] { filename: "words.txt" } }`.
"""

from __future__ import annotations

import functools
from typing import TypeVar

from google.protobuf import any_pb2, text_format, wrappers_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from anabranch.proto import error_code_pb2, graph_pb2, saved_object_pb2, training_pb2

_OURS, _THEIRS = "anabranch", "tensorflow"

M = TypeVar("M", bound=Message)


def parse_text(text: str, message: M, allow_repeats: bool = False) -> M:
    """Fills a message from text.

    Args:
        text: fields and their values. A message of type `Any` is given by its `type_url` and `value`, or by
            TensorFlow's name of its type and its fields.
        message: what is filled; fields that the text does not name stay.
        allow_repeats: whether a field of one value may stand twice: the last one counts then.

    Returns:
        `message`.

    Raises:
        google.protobuf.text_format.ParseError: the text is no such message, or spells out one of a type that is in
            none of TensorFlow's formats.
    """
    read = text_format.Merge if allow_repeats else text_format.Parse
    return read(text, message, descriptor_pool=_pool_of_their_names())


@functools.cache
def _pool_of_their_names() -> DescriptorPool:
    """The messages of saved graphs by the names that TensorFlow has for them: they describe, and run nothing."""
    pool = DescriptorPool()
    for module in (any_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for module in (error_code_pb2, graph_pb2, saved_object_pb2, training_pb2):
        file = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        file.package = _THEIRS + file.package.removeprefix(_OURS)
        for message in file.message_type:
            _rename(message)
        pool.AddSerializedFile(file.SerializeToString(deterministic=True))
    return pool


def _rename(message: DescriptorProto) -> None:
    for field in message.field:
        if field.type_name.startswith(f".{_OURS}."):
            field.type_name = f".{_THEIRS}{field.type_name.removeprefix(f'.{_OURS}')}"
    for inner in message.nested_type:
        _rename(inner)
