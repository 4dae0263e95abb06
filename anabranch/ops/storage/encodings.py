"""What strings may hold: serialized tensors, compressed data, tf.train.Example messages as JSON (WP4.5)."""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import DataLossError, InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.io.byte_sources import WINDOW_BITS, inflated
from anabranch.ops import shape_rules
from anabranch.ops.strings.strings import elementwise
from anabranch.proto.example_pb2 import Example
from anabranch.proto.graph_pb2 import TensorProto
from anabranch.proto.tensors import make_ndarray, make_tensor_proto

# ---------------------------------------------------------------------- tensors
SerializeTensor = define_op("SerializeTensor", "tensor: T -> serialized: string", "T: type")
SerializeTensor.shape(lambda tensor: shape_rules.SCALAR)
SerializeTensor.not_differentiable()


@SerializeTensor.host_kernel
def _(tensor: Array, *, T: DType) -> bytes:
    proto = make_tensor_proto(tensor, T)
    if tensor.dtype != np.object_:  # a constant's message may list elements; here TensorFlow has bytes always
        proto = TensorProto(dtype=proto.dtype, tensor_shape=proto.tensor_shape, tensor_content=tensor.tobytes())
    return proto.SerializeToString(deterministic=True)


ParseTensor = define_op("ParseTensor", "serialized: string -> output: out_type", "out_type: type")
ParseTensor.shape(lambda serialized: TensorShape(None))
ParseTensor.not_differentiable()


@ParseTensor.host_kernel
def _(serialized: Array, *, out_type: DType, ctx: OperationContext) -> Any:
    if serialized.ndim:
        message = f"Expected `serialized` to be a scalar, got shape: {list(serialized.shape)}"
        raise InvalidArgumentError(None, ctx.op, message)
    data: bytes = serialized.item()
    try:
        proto = TensorProto.FromString(data)
    except DecodeError:
        shown = data[:50].decode("utf-8", "replace")
        raise InvalidArgumentError(None, ctx.op, f"Could not parse `serialized` as TensorProto: '{shown}'") from None
    try:
        kept, array = as_dtype(proto.dtype), make_ndarray(proto)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(None, ctx.op, f"the serialized tensor cannot be read: {error}") from error
    if kept is not out_type:
        message = f"Type mismatch between parsed tensor ({kept.name}) and dtype ({out_type.name})"
        raise InvalidArgumentError(None, ctx.op, message)
    return array


# ---------------------------------------------------------------------- compressed data
DecodeCompressed = define_op("DecodeCompressed", "bytes: string -> output: string", "compression_type: string = ''")
DecodeCompressed.shape(shape_rules.same_as_first)
DecodeCompressed.not_differentiable()


@DecodeCompressed.host_kernel
def _(bytes: Array, *, compression_type: bytes, ctx: OperationContext) -> Any:
    kind = compression_type.decode()
    if not kind:
        return bytes
    if kind not in WINDOW_BITS:
        message = f"compression_type must be '', {', '.join(map(repr, WINDOW_BITS))}, got {kind!r}"
        raise InvalidArgumentError(None, ctx.op, message)

    def decompressed(data: bytes) -> Any:
        if not data:
            return data
        try:
            return inflated(data, kind)
        except ValueError as error:
            raise DataLossError(None, ctx.op, f"{len(data)} bytes are no whole {kind} data: {error}") from error

    return elementwise(decompressed, bytes)


# ---------------------------------------------------------------------- JSON
DecodeJSONExample = define_op("DecodeJSONExample", "json_examples: string -> binary_examples: string")
DecodeJSONExample.shape(shape_rules.same_as_first)
DecodeJSONExample.not_differentiable()


@DecodeJSONExample.host_kernel
def _(json_examples: Array, *, ctx: OperationContext) -> Any:
    def encoded(text: bytes) -> Any:
        if not text.lstrip().startswith(b"{"):
            raise InvalidArgumentError(None, ctx.op, f"Error while parsing JSON: no object, but {text[:50]!r}")
        try:
            return json_format.Parse(text, Example()).SerializeToString(deterministic=True)
        except (json_format.ParseError, UnicodeDecodeError) as error:
            raise InvalidArgumentError(None, ctx.op, f"Error while parsing JSON: {error}") from error

    examples: np.ndarray[Any, Any] = elementwise(encoded, json_examples)
    return examples
