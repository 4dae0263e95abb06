"""Sparse tensors as one tensor: the three parts in a vector of strings, or of variants for datasets (WP4.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.proto.graph_pb2 import TensorProto
from anabranch.proto.tensors import make_ndarray, make_tensor_proto

_PARTS = "sparse_indices: int64, sparse_values: T, sparse_shape: int64 -> serialized_sparse: out_type"
_FORM = "T: any, out_type: {string, variant} = string"
SerializeSparse = define_op("SerializeSparse", _PARTS, _FORM)
SerializeManySparse = define_op("SerializeManySparse", _PARTS, _FORM)
_RESULT = "sparse_indices: int64, sparse_values: dtype, sparse_shape: int64"
DeserializeSparse = define_op(
    "DeserializeSparse",
    f"serialized_sparse: Tserialized -> {_RESULT}",
    "dtype: any, Tserialized: {string, variant} = string",
    shape_outputs={"sparse_shape": ()},
)
DeserializeManySparse = define_op(
    "DeserializeManySparse",
    f"serialized_sparse: string -> {_RESULT}",
    "dtype: any",
    shape_outputs={"sparse_shape": ()},
)
for _op in (SerializeSparse, SerializeManySparse, DeserializeSparse, DeserializeManySparse):
    _op.not_differentiable()


@SerializeSparse.shape
def _(*_: TensorShape) -> TensorShape:
    return TensorShape([3])


@SerializeManySparse.shape
def _(*_: TensorShape) -> TensorShape:
    return TensorShape([None, 3])


def _parts_shape(serialized: TensorShape) -> list[TensorShape]:
    return [TensorShape([None, None]), TensorShape([None]), TensorShape([None])]


DeserializeSparse.shape(_parts_shape)
DeserializeManySparse.shape(_parts_shape)


def _packed(parts: tuple[Any, Any, Any], out_type: DType) -> Any:
    out = np.empty(3, np.object_)
    for i, part in enumerate(parts):
        if out_type is dtypes.variant:
            out[i] = part if part.ndim else part.reshape(())
        else:
            out[i] = make_tensor_proto(part).SerializeToString()
    return out


@SerializeSparse.host_kernel
def _(sparse_indices: Array, sparse_values: Array, sparse_shape: Array, *, out_type: DType) -> Any:
    return _packed((sparse_indices, sparse_values, sparse_shape), out_type)


@SerializeManySparse.host_kernel
def _(
    sparse_indices: Array, sparse_values: Array, sparse_shape: Array, *, out_type: DType, ctx: OperationContext
) -> Any:
    if sparse_shape.size < 2:
        raise InvalidArgumentError(None, ctx.op, "Rank of input SparseTensor should be > 1, but saw rank: 1")
    count = int(sparse_shape[0])
    rows = sparse_indices[:, 0]
    if rows.size and not (rows.min() >= 0 and rows.max() < count):
        raise InvalidArgumentError(None, ctx.op, f"Received sparse indices outside the first dimension, {count}")
    order = np.argsort(rows, kind="stable")
    starts = np.searchsorted(rows[order], np.arange(count + 1))
    out = np.empty((count, 3), np.object_)
    for i in range(count):
        mine = order[starts[i] : starts[i + 1]]
        out[i] = _packed((sparse_indices[mine, 1:], sparse_values[mine], sparse_shape[1:]), out_type)
    return out


def _part(value: Array, ctx: OperationContext) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ndarray):
        return value
    try:
        return make_ndarray(TensorProto.FromString(value))
    except Exception as error:  # the message parser raises what it likes
        raise InvalidArgumentError(
            None, ctx.op, f"Could not parse serialized proto, a part of a sparse tensor: {error}"
        ) from (error)


def _unpacked(serialized: Array, dtype: DType, ctx: OperationContext) -> list[Any]:
    if serialized.ndim == 0 or serialized.shape[-1] != 3:
        raise InvalidArgumentError(
            None, ctx.op, f"Serialized sparse should have 3 as the last dimension, got {list(serialized.shape)}"
        )
    outer = serialized.shape[:-1]
    triples = [[_part(v, ctx) for v in triple] for triple in serialized.reshape(-1, 3)]
    if not triples:
        raise InvalidArgumentError(None, ctx.op, "Must have at least 1 serialized SparseTensor, but input has none")
    ranks = [indices.shape[1] for indices, _, _ in triples]
    for i, (_, values, _) in enumerate(triples):
        if values.dtype != dtype.as_numpy_dtype:
            message = (
                f"Requested SparseTensor of type {dtype.name} but SparseTensor[{i}].values.dtype() == {values.dtype}"
            )
            raise InvalidArgumentError(None, ctx.op, message)
        if ranks[i] != ranks[0]:
            message = (
                f"Inconsistent shape across SparseTensors: rank prior to SparseTensor[{i}] was: {ranks[0]} but rank of "
                f"SparseTensor[{i}] is: {ranks[i]}"
            )
            raise InvalidArgumentError(None, ctx.op, message)
    if not outer:
        return triples[0]
    places = list(np.ndindex(outer))
    indices = np.concatenate(
        [
            np.hstack([np.tile(np.array(at, np.int64), (len(t[0]), 1)), t[0]])
            for at, t in zip(places, triples, strict=True)
        ]
    )
    dense = np.max([t[2] for t in triples], axis=0)
    return [indices, np.concatenate([t[1] for t in triples]), np.array([*outer, *dense], np.int64)]


@DeserializeSparse.host_kernel
def _(serialized_sparse: Array, *, dtype: DType, ctx: OperationContext) -> list[Any]:
    return _unpacked(serialized_sparse, dtype, ctx)


@DeserializeManySparse.host_kernel
def _(serialized_sparse: Array, *, dtype: DType, ctx: OperationContext) -> list[Any]:
    return _unpacked(serialized_sparse, dtype, ctx)
