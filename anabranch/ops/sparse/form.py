"""Sparse tensors (indices, values, dense shape): their form - order, shape, parts, empty rows - and dense copies.

How many elements a result has depends on values, so that most of these run on the host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.core.sizes import check_storable
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules


# ---------------------------------------------------------------------- shared by the sparse operations
def sparse_shapes(indices: TensorShape, values: TensorShape, shape: TensorShape) -> tuple[Any, Any]:
    """The static number of elements and rank of a sparse tensor (dimensions).

    Raises:
        ValueError: the shapes of the three parts do not go together.
    """
    indices = shape_rules.with_rank(indices, 2, "the indices of a sparse tensor")
    values = shape_rules.with_rank(values, 1, "the values of a sparse tensor")
    shape = shape_rules.with_rank(shape, 1, "the shape of a sparse tensor")
    return indices[0].merge_with(values[0]), indices[1].merge_with(shape[0])


def check_sparse(ctx: OperationContext, indices: Array, shape: Array, what: str = "indices") -> None:
    """Raises InvalidArgumentError unless all indices lie inside the dense shape."""
    if indices.ndim != 2 or indices.shape[1] != len(shape):
        raise InvalidArgumentError(
            None, ctx.op, f"{what} of shape {indices.shape} do not index a tensor of shape {shape.tolist()}"
        )
    is_plain = indices.dtype == np.int64 == shape.dtype and min(shape.tolist(), default=0) >= 0
    # as unsigned numbers negative ones are the largest
    if is_plain and not np.logical_or.reduce(indices.view(np.uint64) >= shape.view(np.uint64), axis=None):
        return
    inside = np.all((indices >= 0) & (indices < shape), axis=1)
    if not inside.all():
        at = int(np.argmin(inside))
        raise InvalidArgumentError(
            None, ctx.op, f"{what}[{at}] = {indices[at].tolist()} is out of bounds: need 0 <= index < {shape.tolist()}"
        )


def row_major(indices: Array) -> Array:
    """The stable permutation that sorts index vectors lexicographically."""
    return np.lexsort(indices.T[::-1]) if indices.shape[1] else np.arange(len(indices))


def flat_positions(indices: Array, shape: Array) -> Array:
    """Row-major positions of index vectors in a tensor of `shape`."""
    strides = np.cumprod(np.concatenate([[1], np.asarray(shape, np.int64)[:0:-1]]))[::-1]
    return (indices * strides).sum(axis=1) if len(shape) else np.zeros(len(indices), np.int64)


def _index_vectors(positions: Array, shape: Array) -> Array:
    if not len(shape):
        return np.zeros((len(positions), 0), np.int64)
    return np.stack(np.unravel_index(positions, tuple(int(d) for d in shape)), axis=1).astype(np.int64)


def _some_elements(indices: TensorShape, values: TensorShape, shape: TensorShape, *_: TensorShape) -> Any:
    """Shape rule of operations that make a sparse tensor of the same rank with another number of elements."""
    _, rank = sparse_shapes(indices, values, shape)
    return TensorShape([None, rank]), TensorShape([None]), TensorShape([rank])


# ---------------------------------------------------------------------- order and shape
SparseReorder = define_op(
    "SparseReorder",
    "input_indices: int64, input_values: T, input_shape: int64 -> output_indices: int64, output_values: T",
    "T: any",
    ranks={"input_indices": 2, "input_values": 1, "input_shape": 1},
)


@SparseReorder.late_shape
def _(input_indices: TensorShape, input_values: TensorShape, input_shape: TensorShape) -> Any:
    count, rank = sparse_shapes(input_indices, input_values, input_shape)
    return TensorShape([count, rank]), TensorShape([count])


@SparseReorder.host_kernel
def _(input_indices: Array, input_values: Array, input_shape: Array, *, ctx: OperationContext) -> Any:
    check_sparse(ctx, input_indices, input_shape)
    order = row_major(input_indices)
    return input_indices[order], input_values[order]


@SparseReorder.gradient
def _(op: Operation, _indices_grad: Tensor | None, grad: Tensor) -> Any:
    indices, _, shape = op.inputs
    count = raw.StridedSlice(raw.Shape(indices), [0], [1], [1], shrink_axis_mask=1)
    _, order = SparseReorder(indices, raw.Range(0, count, 1), shape)
    return None, raw.GatherV2(grad, raw.InvertPermutation(order), 0), None


SparseReshape = define_op(
    "SparseReshape",
    "input_indices: int64, input_shape: int64, new_shape: int64 -> output_indices: int64, output_shape: int64",
    ranks={"input_shape": 1},
    shape_outputs={"output_shape": ("input_shape", "new_shape")},
)
SparseReshape.not_differentiable()


@SparseReshape.shape
def _(input_indices: TensorShape, input_shape: TensorShape, new_shape: TensorShape) -> Any:
    indices = shape_rules.with_rank(input_indices, 2, "argument 'input_indices'")
    rank = shape_rules.with_rank(new_shape, 1, "argument 'new_shape'")[0]
    return TensorShape([indices[0], rank]), TensorShape([rank])


@SparseReshape.host_kernel
def _(input_indices: Array, input_shape: Array, new_shape: Array, *, ctx: OperationContext) -> Any:
    check_sparse(ctx, input_indices, input_shape)
    size, wanted = math.prod(input_shape.tolist()), new_shape.copy()
    open_at = np.flatnonzero(wanted == -1)
    ctx.check(len(open_at) <= 1, f"only one output dimension may be -1, got {new_shape.tolist()}")
    if len(open_at):
        rest = math.prod(wanted[wanted != -1].tolist())
        ctx.check(
            rest > 0 and size % rest == 0,
            f"Input to reshape is a SparseTensor with {size} dense values, but the requested shape requires a multiple "
            f"of {rest}: from {input_shape.tolist()} to {new_shape.tolist()}",
        )
        wanted[open_at] = size // rest
    ctx.check(
        math.prod(wanted.tolist()) == size,
        f"Input to reshape is a tensor with {size} dense values, but the requested shape {wanted.tolist()} has "
        f"{math.prod(wanted.tolist())}",
    )
    if wanted.tolist() == input_shape.tolist():
        return input_indices, wanted
    return _index_vectors(flat_positions(input_indices, input_shape), wanted), wanted


# ---------------------------------------------------------------------- putting together and taking apart
SparseConcat = define_op(
    "SparseConcat",
    "indices: N * int64, values: N * T, shapes: N * int64 -> "
    "output_indices: int64, output_values: T, output_shape: int64",
    "concat_dim: int, N: int >= 2, T: any",
    shape_outputs={"output_shape": ("shapes",)},
)
SparseConcat.not_differentiable()


@SparseConcat.shape
def _(indices: list[TensorShape], values: list[TensorShape], shapes: list[TensorShape]) -> Any:
    rank = TensorShape([None])[0]
    count = TensorShape([0])[0]
    for parts in zip(indices, values, shapes, strict=True):
        elements, columns = sparse_shapes(*parts)
        rank, count = rank.merge_with(columns), count + elements
    return TensorShape([count, rank]), TensorShape([count]), TensorShape([rank])


@SparseConcat.host_kernel
def _(indices: list[Array], values: list[Array], shapes: list[Array], *, concat_dim: int, ctx: OperationContext) -> Any:
    rank = len(shapes[0])
    ctx.check(-rank <= concat_dim < rank, f"concat_dim = {concat_dim} is not in [{-rank}, {rank})")
    at = concat_dim % rank
    for shape in shapes[1:]:
        same = len(shape) == rank and np.array_equal(np.delete(shape, at), np.delete(shapes[0], at))
        ctx.check(same, f"Input shapes must match outside of dimension {at}: {shapes[0].tolist()}, {shape.tolist()}")
    moved, offset = [], 0
    for part, shape in zip(indices, shapes, strict=True):
        moved.append(part + np.eye(rank, dtype=np.int64)[at] * offset)
        offset += int(shape[at])
    whole = np.concatenate(moved)
    order = row_major(whole)
    out_shape = shapes[0].copy()
    out_shape[at] = offset
    return whole[order], np.concatenate(values)[order], out_shape


SparseSplit = define_op(
    "SparseSplit",
    "split_dim: int64, indices: int64, values: T, shape: int64 -> "
    "output_indices: num_split * int64, output_values: num_split * T, output_shape: num_split * int64",
    "num_split: int >= 1, T: any",
    late_ranks={"split_dim": 0},
    shape_outputs={"output_shape": ("split_dim", "shape")},
)
SparseSplit.not_differentiable()


@SparseSplit.late_shape
def _(split_dim: TensorShape, indices: TensorShape, values: TensorShape, shape: TensorShape, *, num_split: int) -> Any:
    _, rank = sparse_shapes(indices, values, shape)
    return (
        [TensorShape([None, rank])] * num_split,
        [TensorShape([None])] * num_split,
        [TensorShape([rank])] * num_split,
    )


@SparseSplit.host_kernel
def _(split_dim: Array, indices: Array, values: Array, shape: Array, *, num_split: int, ctx: OperationContext) -> Any:
    rank = len(shape)
    ctx.check(-rank <= split_dim < rank, f"split_dim = {split_dim} is not in [{-rank}, {rank})")
    at = int(split_dim) % rank
    size = int(shape[at])
    ctx.check(num_split <= size, f"cannot split dimension {at} of size {size} into {num_split} parts")
    # the first parts take what does not divide evenly
    ends = np.cumsum([size // num_split + (i < size % num_split) for i in range(num_split)])
    starts = np.concatenate([[0], ends[:-1]])
    parts = [_part(indices, values, shape, at, int(a), int(b)) for a, b in zip(starts, ends, strict=True)]
    return [list(column) for column in zip(*parts, strict=True)]


def _part(indices: Array, values: Array, shape: Array, at: int, start: int, end: int) -> tuple[Array, Array, Array]:
    chosen = (indices[:, at] >= start) & (indices[:, at] < end)
    moved, part_shape = indices[chosen], shape.copy()
    moved[:, at] -= start
    part_shape[at] = end - start
    return moved, values[chosen], part_shape


SparseSlice = define_op(
    "SparseSlice",
    "indices: int64, values: T, shape: int64, start: int64, size: int64 -> "
    "output_indices: int64, output_values: T, output_shape: int64",
    "T: any",
    shape_outputs={"output_shape": ("shape", "start", "size")},
)
SparseSlice.late_shape(_some_elements)


@SparseSlice.host_kernel
def _(indices: Array, values: Array, shape: Array, start: Array, size: Array, *, ctx: OperationContext) -> Any:
    ctx.check(len(start) == len(shape) == len(size), f"start and size must have {len(shape)} elements")
    ctx.check(np.all(start >= 0), f"start must not be negative, got {start.tolist()}")
    ctx.check(np.all(size >= 0), f"size must not be negative, got {size.tolist()}")
    extent = np.clip(shape - start, 0, size)
    moved = indices - start
    chosen = np.all((moved >= 0) & (moved < extent), axis=1)
    return moved[chosen], values[chosen], extent


@SparseSlice.gradient
def _(op: Operation, _indices_grad: Tensor | None, grad: Tensor, _shape_grad: Tensor | None) -> Any:
    indices, _, _, start, _ = op.inputs
    return None, SparseSliceGrad(grad, indices, start, op.outputs[0]), None, None, None


SparseSliceGrad = define_op(
    "SparseSliceGrad",
    "backprop_val_grad: T, input_indices: int64, input_start: int64, output_indices: int64 -> val_grad: T",
    "T: numbers",
    ranks={"input_indices": 2},
)
SparseSliceGrad.not_differentiable()


@SparseSliceGrad.late_shape
def _(
    backprop_val_grad: TensorShape, input_indices: TensorShape, input_start: TensorShape, output_indices: TensorShape
) -> TensorShape:
    _, rank = sparse_shapes(output_indices, backprop_val_grad, input_start)
    count, _ = sparse_shapes(input_indices, TensorShape([None]), TensorShape([rank]))
    return TensorShape([count])


@SparseSliceGrad.host_kernel
def _(backprop_val_grad: Array, input_indices: Array, input_start: Array, output_indices: Array) -> Array:
    return looked_up(input_indices - input_start, output_indices, backprop_val_grad)


def looked_up(wanted: Array, indices: Array, values: Array) -> Array:
    """`values` at the index vectors `wanted`; zero where `indices` does not have them."""
    row_of = {tuple(index): i for i, index in enumerate(indices.tolist())}
    result = np.zeros(len(wanted), values.dtype)
    for i, index in enumerate(wanted.tolist()):
        at = row_of.get(tuple(index))
        if at is not None:
            result[i] = values[at]
    return result


# ---------------------------------------------------------------------- empty rows
SparseFillEmptyRows = define_op(
    "SparseFillEmptyRows",
    "indices: int64, values: T, dense_shape: int64, default_value: T -> "
    "output_indices: int64, output_values: T, empty_row_indicator: bool, reverse_index_map: int64",
    "T: any",
    outputs_sized_by={"empty_row_indicator": {"dense_shape": "values"}},
)


@SparseFillEmptyRows.shape
def _(
    indices: TensorShape,
    values: TensorShape,
    dense_shape: TensorShape,
    default_value: TensorShape,
    *,
    ctx: ShapeContext,
) -> Any:
    count, rank = sparse_shapes(indices, values, dense_shape)
    shape_rules.with_rank(default_value, 0, "argument 'default_value'")
    rows = ctx.constant_as_shape("dense_shape")
    return (
        TensorShape([None, rank]),
        TensorShape([None]),
        TensorShape([rows[0] if rows.ndims else None]),
        TensorShape([count]),
    )


@SparseFillEmptyRows.host_kernel
def _(indices: Array, values: Array, dense_shape: Array, default_value: Array, *, ctx: OperationContext) -> Any:
    check_sparse(ctx, indices, dense_shape)
    count, rows = int(dense_shape[0]), indices[:, 0]
    if _are_all_in_order(rows, count):
        return indices, values, np.zeros(count, np.bool_), np.arange(len(rows))
    empty = np.ones(count, np.bool_)
    empty[rows] = False
    added = np.zeros((int(empty.sum()), len(dense_shape)), np.int64)
    added[:, 0] = np.flatnonzero(empty)
    whole = np.concatenate([indices, added])
    filled = np.empty(len(whole), values.dtype)
    filled[: len(values)] = values
    filled[len(values) :] = np.asarray(default_value)[()]
    order = np.argsort(whole[:, 0], kind="stable")
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return whole[order], filled[order], empty, position[: len(values)]


def _are_all_in_order(rows: HostArray, count: int) -> bool:
    """Whether numbers of rows, all in [0, count), come in order, and each of them does."""
    if len(rows) < count:
        return False
    steps = np.subtract(rows[1:], rows[:-1])
    if not len(steps):
        return len(rows) == count  # no rows, or one
    # from the first row to the last, in steps of none or one; as unsigned numbers those backwards are the largest
    return bool(rows[0] == 0 and rows[-1] == count - 1 and np.maximum.reduce(steps.view(np.uint64)) <= 1)


@SparseFillEmptyRows.gradient
def _(op: Operation, _indices_grad: Tensor | None, grad: Tensor, *_: Tensor | None) -> Any:
    values, default = SparseFillEmptyRowsGrad(op.outputs[3], grad)
    return None, values, None, default


SparseFillEmptyRowsGrad = define_op(
    "SparseFillEmptyRowsGrad",
    "reverse_index_map: int64, grad_values: T -> d_values: T, d_default_value: T",
    "T: any",
    ranks={"grad_values": 1},
)
SparseFillEmptyRowsGrad.not_differentiable()


@SparseFillEmptyRowsGrad.shape
def _(reverse_index_map: TensorShape, grad_values: TensorShape) -> Any:
    shape_rules.with_rank(grad_values, 1, "argument 'grad_values'")
    return shape_rules.with_rank(reverse_index_map, 1, "argument 'reverse_index_map'"), TensorShape([])


@SparseFillEmptyRowsGrad.host_kernel
def _(reverse_index_map: Array, grad_values: Array, *, ctx: OperationContext) -> Any:
    rows = len(grad_values)
    valid = (reverse_index_map >= 0) & (reverse_index_map < rows)
    ctx.check(valid, f"Elements in reverse index must be in [0, {rows}), but got {{0}}", reverse_index_map)
    added = np.ones(len(grad_values), np.bool_)
    added[reverse_index_map] = False
    return grad_values[reverse_index_map], grad_values[added].sum(dtype=grad_values.dtype)


# ---------------------------------------------------------------------- a dense copy
SparseToDense = define_op(
    "SparseToDense",
    "sparse_indices: Tindices, output_shape: Tindices, sparse_values: T, default_value: T -> dense: T",
    "validate_indices: bool = True, T: any, Tindices: index",
    ranks={"output_shape": 1},
    rank_words={"output_shape": "output_shape should be a vector"},
    sized_by={"output_shape": "values"},
)


@SparseToDense.late_shape
def _(
    sparse_indices: TensorShape,
    output_shape: TensorShape,
    sparse_values: TensorShape,
    default_value: TensorShape,
    *,
    ctx: ShapeContext,
) -> TensorShape:
    shape: TensorShape = ctx.constant_as_shape("output_shape")
    return shape


@SparseToDense.host_kernel
def _(
    sparse_indices: Array,
    output_shape: Array,
    sparse_values: Array,
    default_value: Array,
    *,
    validate_indices: bool,
    ctx: OperationContext,
) -> Array:
    vectors = sparse_indices if sparse_indices.ndim == 2 else sparse_indices.reshape(-1, 1)
    check_sparse(ctx, vectors, output_shape, "sparse_indices")
    ctx.check(
        sparse_values.shape in ((), (len(vectors),)),
        f"sparse_values has incorrect shape {_listed(sparse_values.shape)}, should be [] or [{len(vectors)}]",
    )
    ctx.check(
        default_value.ndim == 0, f"default_value should be a scalar, got the shape {_listed(default_value.shape)}"
    )
    if validate_indices:
        _check_order(ctx, vectors, output_shape)
    check_storable(output_shape.tolist(), sparse_values.dtype, ctx.op, "the dense tensor")
    dense = np.empty(tuple(int(d) for d in output_shape), sparse_values.dtype)
    dense[...] = np.asarray(default_value)[()]
    dense[tuple(vectors.T)] = sparse_values
    return dense


def _listed(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _check_order(ctx: OperationContext, vectors: Array, shape: Array) -> None:
    steps = np.diff(flat_positions(vectors, shape))
    if np.all(steps > 0):
        return
    at = int(np.argmax(steps <= 0)) + 1
    what = "is repeated" if steps[at - 1] == 0 else "is out of order"
    raise InvalidArgumentError(
        None,
        ctx.op,
        f"sparse_indices[{at}] = {vectors[at].tolist()} {what}; sort them with tf.sparse_reorder, "
        "or pass validate_indices=False",
    )


@SparseToDense.gradient
def _(op: Operation, grad: Tensor) -> Any:
    indices, _, values, _ = op.inputs
    if indices.shape.ndims == 0:
        indices = raw.Reshape(indices, [1, 1])
    elif indices.shape.ndims == 1:
        indices = raw.ExpandDims(indices, 1)
    to_values = raw.GatherNd(grad, indices)
    given = raw.Sum(to_values, [0])
    default = raw.Sub(raw.Sum(raw.Reshape(grad, [-1]), [0]), given)
    return None, None, given if values.shape.ndims == 0 else to_values, default
