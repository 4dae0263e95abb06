"""A ragged tensor in other forms: sparse, dense, and packed into variants for datasets and lists."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ElementType
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.core.sizes import check_storable
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.ops.arithmetic.broadcast_gradients import sum_to_shape
from anabranch.ops.ragged.parts import check_nested, check_splits, rows_of
from anabranch.state.positions import Position, register_held

# ---------------------------------------------------------------------- sparse
RaggedTensorToSparse = define_op(
    "RaggedTensorToSparse",
    "rt_nested_splits: RAGGED_RANK * Tsplits, rt_dense_values: T -> "
    "sparse_indices: int64, sparse_values: T, sparse_dense_shape: int64",
    "RAGGED_RANK: int >= 1, T: any, Tsplits: {int32, int64} = int64",
)


@RaggedTensorToSparse.shape
def _(rt_nested_splits: list[TensorShape], rt_dense_values: TensorShape) -> Any:
    for splits in rt_nested_splits:
        splits.with_rank(1)
    values = rt_dense_values.with_rank_at_least(1)
    rank = None if values.ndims is None else values.ndims + len(rt_nested_splits)
    dims = values.dims_tuple
    count = None if dims is None or None in dims else math.prod(d for d in dims if d is not None)
    return TensorShape([count, rank]), TensorShape([count]), TensorShape([rank])


@RaggedTensorToSparse.host_kernel
def _(rt_nested_splits: list[Array], rt_dense_values: Array, *, ctx: OperationContext) -> Any:
    check_nested(rt_nested_splits, rt_dense_values, ctx, "rt_nested_splits")
    # the coordinates of what lies below one splits after another, from the outermost on
    places = np.arange(len(rt_nested_splits[0]) - 1, dtype=np.int64)[:, None]
    shape = [len(places)]
    for splits in rt_nested_splits:
        lengths = np.diff(splits).astype(np.int64)
        columns = np.arange(int(lengths.sum())) - np.repeat(splits[:-1].astype(np.int64), lengths)
        places = np.hstack([np.repeat(places, lengths, axis=0), columns[:, None]])
        shape.append(int(lengths.max(initial=0)))
    inner = rt_dense_values.shape[1:]
    below = np.array(list(np.ndindex(inner)), np.int64).reshape(math.prod(inner), len(inner))
    indices = np.hstack([np.repeat(places, len(below), axis=0), np.tile(below, (len(places), 1))])
    return indices, rt_dense_values.reshape(-1), np.array([*shape, *inner], np.int64)


@RaggedTensorToSparse.gradient
def _(op: Operation, _indices: Tensor, grad: Tensor, _shape: Tensor) -> Any:
    values = op.inputs[-1]
    return [*([None] * (len(op.inputs) - 1)), None if grad is None else raw.Reshape(grad, raw.Shape(values))]


# ---------------------------------------------------------------------- dense
_FIRST, _IDS, _SPLITS = b"FIRST_DIM_SIZE", b"VALUE_ROWIDS", b"ROW_SPLITS"

RaggedTensorToTensor = define_op(
    "RaggedTensorToTensor",
    "shape: Tshape, values: T, default_value: T, row_partition_tensors: num_row_partition_tensors * Tindex "
    "-> result: T",
    "T: any, Tindex: {int64, int32}, Tshape: {int64, int32}, num_row_partition_tensors: int >= 1, "
    "row_partition_types: list(string)",
)


def _check_types(types: list[bytes], count: int) -> None:
    """Raises ValueError unless the types of the partition tensors are an order that describes a ragged tensor."""
    if len(types) != count:
        raise ValueError(
            f"Number of row partition tensors ({count}) does not equal the number of row partition types({len(types)})."
        )
    unknown = [kind for kind in types if kind not in (_FIRST, _IDS, _SPLITS)]
    if unknown:
        raise ValueError(f"Unsupported partition type: {unknown[0]!r}; use FIRST_DIM_SIZE, VALUE_ROWIDS or ROW_SPLITS")
    if _FIRST in types[1:]:
        raise ValueError("FIRST_DIM_SIZE must be first")
    if types[0] == _FIRST and (len(types) < 2 or types[1] != _IDS):
        raise ValueError("FIRST_DIM_SIZE must be followed by VALUE_ROWIDS")
    if types[0] == _IDS:
        raise ValueError("VALUE_ROWIDS cannot be first")


def _check_default(default_value: TensorShape, values: TensorShape) -> None:
    """Raises ValueError where it is known already that a default value does not broadcast to the inner dimensions."""
    own, inner = default_value.dims_tuple, values.dims_tuple
    if own is None or inner is None:
        return
    pairs = zip(own[::-1], inner[:0:-1], strict=False)
    if len(own) >= len(inner) or not all(a in (None, 1) or b in (None, a) for a, b in pairs):
        raise ValueError(f"default_value of shape {default_value} must broadcast to {values[1:]}")


@RaggedTensorToTensor.shape
def _(
    shape: TensorShape,
    values: TensorShape,
    default_value: TensorShape,
    row_partition_tensors: list[TensorShape],
    *,
    row_partition_types: list[bytes],
    ctx: ShapeContext,
) -> TensorShape:
    _check_types(row_partition_types, len(row_partition_tensors))
    for kind, partition in zip(row_partition_types, row_partition_tensors, strict=True):
        partition.with_rank(0 if kind == _FIRST else 1)
    depth = len(row_partition_types) - (row_partition_types[0] == _FIRST)
    values = values.with_rank_at_least(1)
    _check_default(default_value, values)
    found = TensorShape(None) if values.ndims is None else TensorShape([None] * (depth + 1)).concatenate(values[1:])
    wanted = ctx.constant("shape")
    if wanted is None or wanted.ndim == 0:
        return found
    return found.merge_with(TensorShape([None if d < 0 else d for d in wanted.tolist()]))


def _lengths(kinds: list[bytes], partitions: list[Array], values: Array, ctx: OperationContext) -> list[Any]:
    """The lengths of the rows of each ragged dimension."""
    rows = int(partitions[0]) if kinds[0] == _FIRST else len(partitions[0]) - 1
    ctx.check(rows >= 0, "the number of rows must not be negative, got {0}", np.int64(rows))
    skipped = int(kinds[0] == _FIRST)
    found = []
    for i, (kind, partition) in enumerate(zip(kinds[skipped:], partitions[skipped:], strict=True), skipped):
        if kind == _IDS:
            rising = bool((partition[1:] >= partition[:-1]).all())
            inside = partition.size == 0 or (partition[0] >= 0 and partition[-1] < rows)
            ctx.check(rising and inside, f"row_partition_tensors[{i}] must not decrease and lie in [0, {rows})")
            below, lengths = len(partition), np.bincount(partition, minlength=rows)
        else:
            below = int(partition[-1]) if partition.size else 0
            check_splits(partition, below, ctx, f"row_partition_tensors[{i}]")
            ctx.check(len(partition) == rows + 1, f"row_partition_tensors[{i}] must have {rows + 1} elements")
            lengths = np.diff(partition)
        found.append(lengths.astype(np.int64))
        rows = below
    ctx.check(rows == len(values), f"the partition tensors cut {rows} values into rows, and there are {len(values)}")
    return found


@RaggedTensorToTensor.host_kernel
def _(
    shape: Array,
    values: Array,
    default_value: Array,
    row_partition_tensors: list[Array],
    *,
    row_partition_types: list[bytes],
    ctx: OperationContext,
) -> Any:
    ctx.check(values.ndim > 0, "the values of a ragged tensor must not be a scalar")
    lengths = _lengths(row_partition_types, row_partition_tensors, values, ctx)
    natural = [len(lengths[0]), *(int(n.max(initial=0)) for n in lengths), *values.shape[1:]]
    dims = _wanted_dims(shape, natural, ctx)
    depth = len(lengths) + 1
    ctx.check(
        tuple(dims[depth:]) == values.shape[1:],
        f"shape {dims} must have the inner dimensions of the values, {[*values.shape[1:]]}: only rows are padded",
    )
    ctx.check(
        default_value.ndim < values.ndim and _broadcasts(default_value.shape, values.shape[1:]),
        f"default_value of shape {[*default_value.shape]} must broadcast to {[*values.shape[1:]]}",
    )
    check_storable(dims, values.dtype, ctx.op, "the dense tensor")
    out = np.empty(dims, values.dtype)
    out[...] = default_value
    places, kept = _places(lengths, dims[:depth])
    out.reshape(-1, *values.shape[1:])[places] = values[kept]
    return out


def _wanted_dims(shape: Array, natural: list[int], ctx: OperationContext) -> list[int]:
    """The dimensions that `shape` asks for, with those of the rows where it says -1."""
    if shape.ndim == 0:
        ctx.check(shape == -1, "a scalar shape must be -1, which leaves all dimensions open, got {0}", shape)
        return natural
    ctx.check(shape.size == len(natural), f"shape must have {len(natural)} elements, the tensor's rank, got {shape}")
    ctx.check(bool((shape >= -1).all()), f"a dimension must be -1 (the longest row) or a size, got {shape}")
    return [n if d < 0 else d for d, n in zip(shape.tolist(), natural, strict=True)]


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(shape[::-1], to[::-1], strict=False))


def _places(lengths: list[Any], dims: list[int]) -> tuple[Any, Any]:
    """Where the values lie in a tensor of `dims`, flat, and which of them do (the others are cut off)."""
    at = np.arange(len(lengths[0]), dtype=np.int64)
    inside = at < dims[0]
    for rows, size in zip(lengths, dims[1:], strict=True):
        columns = np.arange(int(rows.sum())) - np.repeat(np.cumsum(rows) - rows, rows)
        at = np.repeat(at, rows) * size + columns
        inside = np.repeat(inside, rows) & (columns < size)
    return at[inside], np.flatnonzero(inside)


@RaggedTensorToTensor.gradient
def _(op: Operation, grad: Tensor) -> Any:
    _, values, default, *partitions = op.inputs
    none: list[None] = [None] * len(partitions)
    types = op.attrs["row_partition_types"]
    depth = len(types) - (types[0] == _FIRST) + 1
    count = raw.Reshape(raw.StridedSlice(raw.Shape(values), [0], [1], [1]), [])
    outer = raw.StridedSlice(raw.Shape(grad), [0], [depth], [1])
    inner = raw.StridedSlice(raw.Shape(values), [1], [0], [1], end_mask=1)
    # the number of the value at each place of the dense tensor, -1 where the default stands
    numbers = raw.RaggedTensorToTensor(outer, raw.Range(0, count, 1), -1, partitions, row_partition_types=types)
    flat, rows = raw.Reshape(numbers, [-1]), raw.Reshape(grad, raw.ConcatV2([[-1], inner], 0))
    of_values = raw.UnsortedSegmentSum(rows, flat, count)
    of_defaults = raw.UnsortedSegmentSum(rows, raw.Sub(raw.Neg(raw.Minimum(flat, 0)), 1), 1)
    per_value = raw.Reshape(of_defaults, inner)
    return [None, of_values, sum_to_shape(per_value, default), *none]


# ---------------------------------------------------------------------- variants
@dataclass(frozen=True)
class RaggedParts:
    """A ragged tensor as the value of a variant: its splits, from the outermost on, and its values."""

    nested_splits: tuple[Any, ...]
    values: Any


def _as_position(parts: RaggedParts) -> Position:
    return [[np.asarray(splits) for splits in parts.nested_splits], np.asarray(parts.values)]


def _from_position(tree: Position) -> RaggedParts:
    splits, values = tree
    return RaggedParts(tuple(splits), values)


# elements of iterators that are saved
register_held("ragged", RaggedParts, _as_position, _from_position)

RaggedTensorToVariant = define_op(
    "RaggedTensorToVariant",
    "rt_nested_splits: RAGGED_RANK * Tsplits, rt_dense_values: Tvalues -> encoded_ragged: variant",
    "RAGGED_RANK: int >= 0, Tvalues: any, Tsplits: {int32, int64} = int64, batched_input: bool",
)
RaggedTensorToVariant.not_differentiable()


@RaggedTensorToVariant.shape
def _(rt_nested_splits: list[TensorShape], rt_dense_values: TensorShape, *, batched_input: bool) -> TensorShape:
    for splits in rt_nested_splits:
        splits.with_rank(1)
    if not batched_input:
        return TensorShape([])
    if not rt_nested_splits:
        return rt_dense_values.with_rank_at_least(1)[:1]
    dims = rt_nested_splits[0].dims_tuple
    return TensorShape([None if dims is None or dims[0] is None else dims[0] - 1])


@RaggedTensorToVariant.host_kernel
def _(rt_nested_splits: list[Array], rt_dense_values: Array, *, batched_input: bool, ctx: OperationContext) -> Any:
    if rt_nested_splits or batched_input:
        check_nested(rt_nested_splits, rt_dense_values, ctx, "rt_nested_splits")
    if not batched_input:
        return _boxed([RaggedParts(tuple(rt_nested_splits), rt_dense_values)]).reshape(())
    if not rt_nested_splits:
        return _boxed([RaggedParts((), row) for row in rt_dense_values])
    outer, below = rt_nested_splits[0], rt_nested_splits[1:]
    parts = []
    for start, limit in zip(outer[:-1].tolist(), outer[1:].tolist(), strict=True):
        nested, values = rows_of(np.arange(start, limit), below, rt_dense_values)
        parts.append(RaggedParts(tuple(nested), values))
    return _boxed(parts)


def _boxed(items: list[RaggedParts]) -> Any:
    box = np.empty(len(items), np.object_)
    box[:] = items
    return box


RaggedTensorFromVariant = define_op(
    "RaggedTensorFromVariant",
    "encoded_ragged: variant -> output_nested_splits: output_ragged_rank * Tsplits, output_dense_values: Tvalues",
    "input_ragged_rank: int >= -1, output_ragged_rank: int >= 0, Tvalues: any, Tsplits: {int32, int64} = int64",
)
RaggedTensorFromVariant.not_differentiable()


@RaggedTensorFromVariant.shape
def _(encoded_ragged: TensorShape, *, input_ragged_rank: int, output_ragged_rank: int) -> Any:
    rank = encoded_ragged.ndims
    if input_ragged_rank >= 0 and rank is not None and output_ragged_rank != rank + input_ragged_rank:
        raise ValueError(
            f"output_ragged_rank must be the rank of encoded_ragged, {rank}, and input_ragged_rank, "
            f"{input_ragged_rank}, added up, got {output_ragged_rank}"
        )
    return [TensorShape([None])] * output_ragged_rank, TensorShape(None)


@RaggedTensorFromVariant.host_kernel
def _(
    encoded_ragged: Array,
    *,
    input_ragged_rank: int,
    output_ragged_rank: int,
    Tvalues: DType,
    Tsplits: DType,
    ctx: OperationContext,
) -> Any:
    below = output_ragged_rank - encoded_ragged.ndim if input_ragged_rank < 0 else input_ragged_rank
    ctx.check(
        below >= 0 and output_ragged_rank == below + encoded_ragged.ndim,
        f"output_ragged_rank is {output_ragged_rank}, and encoded_ragged has {encoded_ragged.ndim} dimensions of "
        f"ragged tensors of ragged_rank {below}: add them up",
    )
    items = encoded_ragged.reshape(-1).tolist()
    wanted, splits_dtype = np.dtype(Tvalues.as_numpy_dtype), np.dtype(Tsplits.as_numpy_dtype)
    for item in items:
        _check_parts(item, below, wanted, splits_dtype, ctx)
    if not encoded_ragged.ndim:
        return list(items[0].nested_splits), items[0].values
    shape = encoded_ragged.shape
    outer = [np.arange(math.prod(shape[: i + 1]) + 1, dtype=splits_dtype) * shape[i + 1] for i in range(len(shape) - 1)]
    return [*outer, *_stacked(items, below, splits_dtype)], _values_of(items, below, wanted)


def _check_parts(item: object, below: int, wanted: ElementType, splits: ElementType, ctx: OperationContext) -> None:
    if not isinstance(item, RaggedParts):
        ctx.check(False, f"encoded_ragged holds a {type(item).__name__}, and no ragged tensor")
        return
    ctx.check(
        len(item.nested_splits) == below,
        f"encoded_ragged holds a tensor of ragged_rank {len(item.nested_splits)}, expected {below}",
    )
    ctx.check(item.values.dtype == wanted, f"Expected values Tensor dtype: {wanted}, found: {item.values.dtype}")
    found = [part.dtype for part in item.nested_splits if part.dtype != splits]
    ctx.check(not found, f"Expected row_splits Tensor dtype: {splits}, found: {found}")


def _stacked(items: list[RaggedParts], below: int, dtype: ElementType) -> list[Any]:
    """The splits that cut the items out of their common values, and the items' own ones, one after another."""
    rows = [len(i.nested_splits[0]) - 1 if below else len(np.atleast_1d(i.values)) for i in items]
    nested = [np.concatenate([[0], np.cumsum(rows)]).astype(dtype)]
    for depth in range(below):
        lengths = [np.diff(item.nested_splits[depth]) for item in items]
        nested.append(np.concatenate([[0], np.cumsum(np.concatenate([[], *lengths]))]).astype(dtype))
    return nested


def _values_of(items: list[RaggedParts], below: int, dtype: ElementType) -> Any:
    return np.concatenate([np.atleast_1d(item.values) for item in items]) if items else np.empty(0, dtype)
