"""Operations on sets: the last dimension of a tensor, or the elements of a sparse tensor's rows, are sets."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.dimensions import Dimension
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules
from anabranch.ops.sparse.form import check_sparse, row_major, sparse_shapes

_TYPES = "T: {int8, int16, int32, int64, uint8, uint16, string}"
_ATTRS = f"set_operation: string, validate_indices: bool = True, {_TYPES}"
_RESULT = "result_indices: int64, result_values: T, result_shape: int64"

#: the sets of a tensor: their shape, and those that are not empty by their index
Sets = tuple[tuple[int, ...], dict[tuple[int, ...], set[Any]]]

DenseToDenseSetOperation = define_op("DenseToDenseSetOperation", f"set1: T, set2: T -> {_RESULT}", _ATTRS)
DenseToSparseSetOperation = define_op(
    "DenseToSparseSetOperation",
    f"set1: T, set2_indices: int64, set2_values: T, set2_shape: int64 -> {_RESULT}",
    _ATTRS,
)
SparseToSparseSetOperation = define_op(
    "SparseToSparseSetOperation",
    "set1_indices: int64, set1_values: T, set1_shape: int64, set2_indices: int64, set2_values: T, set2_shape: int64 -> "
    + _RESULT,
    _ATTRS,
)
SetSize = define_op(
    "SetSize",
    "set_indices: int64, set_values: T, set_shape: int64 -> size: int32",
    f"validate_indices: bool = True, {_TYPES}",
)
for _op in (DenseToDenseSetOperation, DenseToSparseSetOperation, SparseToSparseSetOperation, SetSize):
    _op.not_differentiable()


def _result_shapes(rank: int | Dimension | None) -> tuple[TensorShape, TensorShape, TensorShape]:
    return TensorShape([None, rank]), TensorShape([None]), TensorShape([rank])


def _groups(set_shape: TensorShape) -> TensorShape:
    """The shape of a tensor of sets without the dimension of their elements."""
    if set_shape.ndims is not None and set_shape.ndims < 2:
        raise ValueError(f"Shape must be at least rank 2 but is rank {set_shape.ndims}: sets are rows of a tensor")
    return TensorShape(None) if set_shape.ndims is None else set_shape[:-1]


@DenseToDenseSetOperation.shape
def _(set1: TensorShape, set2: TensorShape) -> Any:
    groups = shape_rules.merged(_groups(set1), _groups(set2))
    return _result_shapes(None if groups.ndims is None else groups.ndims + 1)


@DenseToSparseSetOperation.shape
def _(set1: TensorShape, indices: TensorShape, values: TensorShape, shape: TensorShape) -> Any:
    groups, (_, rank) = _groups(set1), sparse_shapes(indices, values, shape)
    if groups.ndims is not None:
        rank = Dimension(groups.ndims + 1).merge_with(rank)
    return _result_shapes(rank)


@SparseToSparseSetOperation.shape
def _(*parts: TensorShape) -> Any:
    (_, first), (_, second) = sparse_shapes(*parts[:3]), sparse_shapes(*parts[3:])
    for at, rank in enumerate((first, second)):
        if rank.value is not None and rank.value < 2:
            raise ValueError(f"Input {at}, expected rank >= 2, got {rank.value}: sets are rows of a tensor")
    return _result_shapes(first.merge_with(second))


@SetSize.shape
def _(set_indices: TensorShape, set_values: TensorShape, set_shape: TensorShape) -> TensorShape:
    _, rank = shape_rules.late(sparse_shapes, set_indices, set_values, set_shape)
    return TensorShape(None if rank.value is None else [None] * (rank.value - 1))


def _of_dense(values: Array, ctx: OperationContext) -> Sets:
    ctx.check(values.ndim > 1, f"Shape {list(values.shape)} has rank {values.ndim} < 2: sets are rows of a tensor")
    groups = values.shape[:-1]
    return groups, {index: set(values[index].tolist()) for index in np.ndindex(*groups) if values.shape[-1]}


def _of_sparse(indices: Array, values: Array, shape: Array, validate: bool, ctx: OperationContext) -> Sets:
    ctx.check(len(shape) > 1, f"Invalid rank {len(shape)}: sets are rows of a sparse tensor")
    check_sparse(ctx, indices, shape)
    if validate:
        ctx.check(bool((row_major(indices) == np.arange(len(indices))).all()), "the indices of a set are out of order")
    held: dict[tuple[int, ...], set[Any]] = defaultdict(set)
    for index, value in zip(indices.tolist(), values.tolist(), strict=True):
        held[tuple(index[:-1])].add(value)
    return tuple(int(d) for d in shape[:-1]), held


def _combined(a: Sets, b: Sets, operation: bytes, like: Array, ctx: OperationContext) -> Any:
    (groups, first), (others, second) = a, b
    ctx.check(groups == others, f"the sets of {list(groups)} and of {list(others)} cannot be paired")
    combine = {
        b"a-b": lambda x, y: x - y,
        b"b-a": lambda x, y: y - x,
        b"intersection": lambda x, y: x & y,
        b"union": lambda x, y: x | y,
    }
    ctx.check(operation in combine, f"set_operation {operation!r} is none of {sorted(combine)}")
    indices: list[tuple[int, ...]] = []
    values: list[Any] = []
    longest = 0
    for group in sorted({*first, *second}):
        result = sorted(combine[operation](first.get(group, set()), second.get(group, set())))
        indices += [(*group, at) for at in range(len(result))]
        values += result
        longest = max(longest, len(result))
    shape = np.array([*groups, longest], np.int64)
    return np.array(indices, np.int64).reshape(len(values), len(shape)), np.array(values, like.dtype), shape


@DenseToDenseSetOperation.host_kernel
def _(set1: Array, set2: Array, *, set_operation: bytes, ctx: OperationContext) -> Any:
    return _combined(_of_dense(set1, ctx), _of_dense(set2, ctx), set_operation, set1, ctx)


@DenseToSparseSetOperation.host_kernel
def _(
    set1: Array,
    set2_indices: Array,
    set2_values: Array,
    set2_shape: Array,
    *,
    set_operation: bytes,
    validate_indices: bool,
    ctx: OperationContext,
) -> Any:
    second = _of_sparse(set2_indices, set2_values, set2_shape, validate_indices, ctx)
    return _combined(_of_dense(set1, ctx), second, set_operation, set1, ctx)


@SparseToSparseSetOperation.host_kernel
def _(
    set1_indices: Array,
    set1_values: Array,
    set1_shape: Array,
    set2_indices: Array,
    set2_values: Array,
    set2_shape: Array,
    *,
    set_operation: bytes,
    validate_indices: bool,
    ctx: OperationContext,
) -> Any:
    first = _of_sparse(set1_indices, set1_values, set1_shape, validate_indices, ctx)
    second = _of_sparse(set2_indices, set2_values, set2_shape, validate_indices, ctx)
    return _combined(first, second, set_operation, set1_values, ctx)


@SetSize.host_kernel
def _(set_indices: Array, set_values: Array, set_shape: Array, *, validate_indices: bool, ctx: OperationContext) -> Any:
    groups, held = _of_sparse(set_indices, set_values, set_shape, validate_indices, ctx)
    sizes = np.zeros(groups, np.int32)
    for group, values in held.items():
        sizes[group] = len(values)
    return sizes
