"""Operations on sets: the last dimension of a tensor, or the elements of a sparse tensor's rows, are sets."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.ops.sparse.form import check_sparse, row_major

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


def _result_shapes(rank: Any) -> tuple[TensorShape, TensorShape, TensorShape]:
    return TensorShape([None, rank]), TensorShape([None]), TensorShape([rank])


@DenseToDenseSetOperation.shape
def _(set1: TensorShape, set2: TensorShape) -> Any:
    return _result_shapes(set1.ndims if set1.ndims is not None else set2.ndims)


@DenseToSparseSetOperation.shape
def _(set1: TensorShape, *_: TensorShape) -> Any:
    return _result_shapes(set1.ndims)


@SparseToSparseSetOperation.shape
def _(set1_indices: TensorShape, *_: TensorShape) -> Any:
    return _result_shapes(set1_indices[1] if set1_indices.ndims is not None else None)


@SetSize.shape
def _(set_indices: TensorShape, *_: TensorShape) -> TensorShape:
    rank = set_indices[1].value if set_indices.ndims is not None else None
    return TensorShape(None if rank is None else [None] * (rank - 1))


def _of_dense(values: Array, ctx: OperationContext) -> Sets:
    ctx.check(values.ndim > 0, "a scalar holds no set; the last dimension of a tensor does")
    groups = values.shape[:-1]
    return groups, {index: set(values[index].tolist()) for index in np.ndindex(*groups) if values.shape[-1]}


def _of_sparse(indices: Array, values: Array, shape: Array, validate: bool, ctx: OperationContext) -> Sets:
    ctx.check(len(shape) > 0, "a sparse tensor without dimensions holds no sets")
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
