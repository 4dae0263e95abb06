"""Tensors as strings, compressed strings, and examples as JSON (WP4.5)."""

from __future__ import annotations

from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.values import TensorLike
from anabranch.graph.dispatch import dispatched
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def serialize_tensor(tensor: TensorLike, name: str | None = None) -> Tensor:
    """A tensor of any type but resource and variant as a scalar string: a serialized TensorProto message."""
    result: Tensor = raw.SerializeTensor(tensor, name=name)
    return result


def parse_tensor(serialized: TensorLike, out_type: DTypeLike, name: str | None = None) -> Tensor:
    """The tensor in a scalar string that `serialize_tensor` gave; its shape is not known before the step runs.

    Raises (when run):
        InvalidArgumentError: the string holds no tensor, or one of another type than `out_type`.
    """
    result: Tensor = raw.ParseTensor(serialized, out_type=as_dtype(out_type), name=name)
    return result


@dispatched
def decode_compressed(bytes: TensorLike, compression_type: str = "", name: str | None = None) -> Tensor:
    """Strings as they were before they were compressed; the shape of `bytes`.

    Args:
        compression_type: "ZLIB", "GZIP", or "" for strings that are not compressed.

    Raises (when run):
        DataLossError: a string is damaged or not whole.
    """
    result: Tensor = raw.DecodeCompressed(bytes, compression_type=compression_type, name=name)
    return result


def decode_json_example(json_examples: TensorLike, name: str | None = None) -> Tensor:
    """Serialized tf.train.Example messages from the same messages as JSON (protobuf's mapping); the same shape.

    Raises (when run):
        InvalidArgumentError: a string is no JSON, or no example.
    """
    result: Tensor = raw.DecodeJSONExample(json_examples, name=name)
    return result
