"""Arithmetic on sparse tensors: products with dense matrices, sums, elementwise operations, reductions, softmax."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary, HostArray
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import LateShapeError, TensorShape
from anabranch.core.sizes import check_storable
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.sparse.form import check_sparse, flat_positions, looked_up, row_major, sparse_shapes

#: as many products of two numbers SciPy multiplies and adds up sooner than NumPy, one after the other in the order of
#: the elements, as TensorFlow does
_MANY_TERMS = 1 << 12
_TYPES_OF_SCIPY = frozenset({"float32", "float64", "complex64", "complex128"})


def _check_inside(ctx: OperationContext, indices: Array, shape: Array, what: str, xp: ArrayLibrary = jnp) -> None:
    """Makes the step fail unless all index vectors lie inside `shape`."""
    if not np.shape(indices)[0]:
        return
    indices, shape = xp.asarray(indices), xp.asarray(shape)
    if xp is np and _all_inside(indices, shape):
        return
    inside = xp.all((indices >= 0) & (indices < shape), axis=1)
    at = xp.argmin(inside)
    words = f"invalid index: {what}[{{0}}] = {{1}} is out of bounds: need 0 <= index < {{2}}"
    ctx.check(inside, words, at, indices[at], shape)


def _all_inside(indices: Array, shape: Array) -> bool:
    """The answer alone, column by column: a twentieth of the time that finding the first offender takes."""
    return all(_is_inside(column, bound) for column, bound in zip(indices.T, shape, strict=True))


def _is_inside(column: HostArray, bound: int) -> bool:
    # as unsigned numbers negative ones are larger than any bound: one pass instead of two
    unsigned = column.view(f"u{column.dtype.itemsize}") if column.dtype.kind == "i" else column
    return bool(unsigned.max() < max(bound, 0))


# ---------------------------------------------------------------------- sparse times dense
SparseTensorDenseMatMul = define_op(
    "SparseTensorDenseMatMul",
    "a_indices: Tindices, a_values: T, a_shape: int64, b: T -> product: T",
    "T: any, Tindices: index = int64, adjoint_a: bool = False, adjoint_b: bool = False",
    static=("a_shape",),
    ranks={"a_indices": 2, "a_values": 1, "a_shape": 1, "b": 2},
    sized_by={"a_shape": "values", "b": "shape"},
)


@SparseTensorDenseMatMul.shape
def _(
    a_indices: TensorShape,
    a_values: TensorShape,
    a_shape: TensorShape,
    b: TensorShape,
    *,
    adjoint_a: bool,
    adjoint_b: bool,
    ctx: ShapeContext,
) -> TensorShape:
    shape_rules.merged(a_shape, TensorShape([2]))
    shape_rules.late(sparse_shapes, a_indices, a_values, a_shape)
    a, b = ctx.constant_as_shape("a_shape").with_rank(2), shape_rules.with_rank(b, 2, "argument 'b'")
    rows, inner_a = (a[1], a[0]) if adjoint_a else (a[0], a[1])
    inner_b, columns = (b[1], b[0]) if adjoint_b else (b[0], b[1])
    if not inner_a.is_compatible_with(inner_b):
        raise LateShapeError(f"the inner dimensions {inner_a} and {inner_b} must be equal")
    return TensorShape([rows, columns])


@SparseTensorDenseMatMul.kernel
def _(
    a_indices: Array,
    a_values: Array,
    a_shape: Array,
    b: Array,
    *,
    adjoint_a: bool,
    adjoint_b: bool,
    ctx: OperationContext,
) -> Any:
    values, right = (jnp.conj(a_values) if adjoint_a else a_values), (jnp.conj(b).T if adjoint_b else jnp.asarray(b))
    out, inner = (1, 0) if adjoint_a else (0, 1)
    if int(a_shape[inner]) != right.shape[0]:
        raise ValueError(f"the inner dimensions {int(a_shape[inner])} and {right.shape[0]} must be equal")
    if not (a_shape[out] and right.shape[1]):  # TensorFlow looks at no index of a product without elements
        return jnp.zeros((int(a_shape[out]), right.shape[1]), right.dtype)
    _check_inside(ctx, a_indices, np.asarray(a_shape), "a_indices")
    wide = jnp.float32 if right.dtype.name in {"float16", "bfloat16"} else right.dtype
    terms = jnp.asarray(values, wide)[:, None] * jnp.take(right, a_indices[:, inner], axis=0, mode="clip").astype(wide)
    return jax.ops.segment_sum(terms, a_indices[:, out], num_segments=int(a_shape[out])).astype(right.dtype)


@SparseTensorDenseMatMul.host_kernel
def _(
    a_indices: Array,
    a_values: Array,
    a_shape: Array,
    b: Array,
    *,
    adjoint_a: bool,
    adjoint_b: bool,
    ctx: OperationContext,
) -> Any:
    values, right = (np.conj(a_values) if adjoint_a else a_values), (np.conj(b).T if adjoint_b else b)
    out, inner = (1, 0) if adjoint_a else (0, 1)
    if a_shape[inner] != right.shape[0]:
        raise ValueError(f"the inner dimensions {a_shape[inner]} and {right.shape[0]} must be equal")
    if not (a_shape[out] and right.shape[1]):
        return np.zeros((int(a_shape[out]), right.shape[1]), right.dtype)
    check_storable([int(a_shape[out]), right.shape[1]], right.dtype, ctx.op, "the product")
    many = len(values) * right.shape[1] >= _MANY_TERMS and right.dtype.name in _TYPES_OF_SCIPY
    # what looks at columns of coordinates is quicker where they lie one after the other
    a_indices = np.ascontiguousarray(a_indices.T).T if many else a_indices
    _check_inside(ctx, a_indices, a_shape, "a_indices", np)
    wide = np.float32 if right.dtype.name in {"float16", "bfloat16"} else right.dtype
    rows, columns = a_indices[:, out], a_indices[:, inner]
    if many:
        return _product_by_scipy(rows, columns, values, right, int(a_shape[out]))
    if (rows[1:] < rows[:-1]).any():
        rows, order = _sorted_stably(rows, int(a_shape[out]))
        columns, values = columns[order], values[order]
    terms = right.astype(wide, copy=False).take(columns, axis=0)
    terms *= values.astype(wide, copy=False)[:, None]
    product = np.zeros((int(a_shape[out]), right.shape[1]), wide)
    if len(rows):  # sums of runs are far faster than additions at indices
        first = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
        product[rows[first]] = np.add.reduceat(terms, first, axis=0)
    return product.astype(right.dtype, copy=False)


def _product_by_scipy(rows: HostArray, columns: HostArray, values: HostArray, right: HostArray, count: int) -> Any:
    """The product of a sparse matrix of `count` rows, whose coordinates are known to lie inside, and a dense one."""
    product = _dense_product()
    if product is None:
        return _sparse_matrices().coo_array((values, (rows, columns)), shape=(count, right.shape[0])) @ right
    out = np.zeros((count, right.shape[1]), right.dtype)
    product(len(values), right.shape[1], rows, columns, values, right.ravel(), out.ravel())
    return out


@functools.cache
def _sparse_matrices() -> Any:
    """SciPy's sparse matrices, whose import takes longer than most programs that need none of them would like."""
    return importlib.import_module("scipy.sparse")


@functools.cache
def _dense_product() -> Any:
    """What SciPy multiplies by, or None where this SciPy has it not under that name.

    To make one of its matrices, which checks all coordinates once more, takes as long as the product of 13,000 elements
    and 16 columns.
    """
    _sparse_matrices()
    return getattr(importlib.import_module("scipy.sparse._sparsetools"), "coo_matmat_dense", None)


def _sorted_stably(numbers: Array, bound: int) -> tuple[Array, Array]:
    """Numbers below `bound` in ascending order, and where each one stood; equal ones keep their order."""
    if bound <= 1 << 16:  # NumPy sorts 16 bits by their digits, six times faster than wider numbers
        order = np.argsort(numbers.astype(np.uint16), kind="stable")
    else:
        order = np.argsort(numbers, kind="stable")
    return numbers[order], order


@SparseTensorDenseMatMul.gradient
def _(op: Operation, grad: Tensor) -> Any:
    indices, values, shape, b = op.inputs
    adjoint_a, adjoint_b = op.attrs["adjoint_a"], op.attrs["adjoint_b"]
    grad_b = SparseTensorDenseMatMul(indices, values, shape, grad, adjoint_a=not adjoint_a)
    if adjoint_b:
        grad_b = raw.Transpose(raw.Conj(grad_b) if grad_b.dtype.is_complex else grad_b, [1, 0])
    if adjoint_b:
        b = raw.Transpose(raw.Conj(b) if b.dtype.is_complex else b, [1, 0])
    out, inner = (1, 0) if adjoint_a else (0, 1)
    rows, columns = (
        raw.StridedSlice(indices, [0, i], [0, i + 1], [1, 1], begin_mask=1, end_mask=1, shrink_axis_mask=2)
        for i in (out, inner)
    )
    left, right = raw.GatherV2(grad, rows, 0), raw.GatherV2(b, columns, 0)
    if b.dtype.is_complex:
        left, right = (raw.Conj(left), right) if adjoint_a else (left, raw.Conj(right))
    return None, raw.Sum(raw.Mul(left, right), [1]), None, grad_b


SparseTensorDenseAdd = define_op(
    "SparseTensorDenseAdd",
    "a_indices: Tindices, a_values: T, a_shape: Tindices, b: T -> output: T",
    "T: numbers, Tindices: index",
    sized_by={"b": "shape"},
)


@SparseTensorDenseAdd.late_shape
def _(
    a_indices: TensorShape, a_values: TensorShape, a_shape: TensorShape, b: TensorShape, *, ctx: ShapeContext
) -> TensorShape:
    sparse_shapes(a_indices, a_values, a_shape)
    return b.merge_with(ctx.constant_as_shape("a_shape"))


@SparseTensorDenseAdd.kernel
def _(a_indices: Array, a_values: Array, a_shape: Array, b: Array, *, ctx: OperationContext) -> Any:
    dense, dims = jnp.asarray(b), np.array(np.shape(b), np.int64)
    if np.shape(a_shape) != dims.shape:
        raise ValueError(f"the sparse tensor has rank {np.shape(a_shape)[0]}, the dense one {len(dims)}")
    same = jnp.all(jnp.asarray(a_shape) == dims)
    ctx.check(same, f"the sparse tensor has shape {{0}}, the dense one {dims.tolist()}", a_shape)
    _check_inside(ctx, a_indices, dims, "a_indices")
    return dense.at[tuple(a_indices[:, i] for i in range(dense.ndim))].add(a_values)


@SparseTensorDenseAdd.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return None, raw.GatherNd(grad, op.inputs[0]), None, grad


# ---------------------------------------------------------------------- elementwise with a dense tensor
def _at_elements(indices: Array, shape: Array, dense: Array, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    """The values of `dense`, broadcast to the sparse tensor's shape, at its elements."""
    rank, dims = np.shape(indices)[1], np.shape(dense)
    if len(dims) > rank:
        raise ValueError(f"only the dense side broadcasts: it has rank {len(dims)}, the sparse side {rank}")
    tail = xp.asarray(shape)[rank - len(dims) :]
    fits = (np.array(dims, np.int64) == 1) | (tail == np.array(dims, np.int64))
    message = f"{ctx.op.type} broadcasts dense to sparse only; got incompatible shapes: [{{0}}] vs. {list(dims)}"
    ctx.check(fits, message, shape)
    _check_inside(ctx, indices, shape, "sp_indices", xp)
    columns = (indices[:, rank - len(dims) + i] if d != 1 else np.int64(0) for i, d in enumerate(dims))
    return xp.broadcast_to(xp.asarray(dense)[tuple(columns)], np.shape(indices)[:1])


def _with_dense(name: str, function: Callable[[Any, Any], Any], gradient: Callable[..., tuple[Any, Any]]) -> Any:
    op = define_op(
        name,
        "sp_indices: int64, sp_values: T, sp_shape: int64, dense: T -> output: T",
        "T: numbers",
        ranks={"sp_indices": 2},
    )

    @op.late_shape
    def _(sp_indices: TensorShape, sp_values: TensorShape, sp_shape: TensorShape, dense: TensorShape) -> TensorShape:
        return TensorShape([sparse_shapes(sp_indices, sp_values, sp_shape)[0]])

    @op.kernel
    def _(
        sp_indices: Array, sp_values: Array, sp_shape: Array, dense: Array, *, ctx: OperationContext, xp: ArrayLibrary
    ) -> Any:
        elements = _at_elements(sp_indices, sp_shape, dense, ctx, xp)
        if function is _divide and dense.dtype.kind in "iu":
            ctx.check(xp.all(elements != 0), "integers cannot be divided by zero, which the dense tensor has there")
        return function(xp.asarray(sp_values), elements)

    @op.gradient
    def _(op: Operation, grad: Tensor) -> Any:
        indices, values, shape, dense = op.inputs
        at_elements = SparseDenseCwiseAdd(indices, raw.ZerosLike(values), shape, dense)
        grad_values, grad_elements = gradient(grad, values, at_elements)
        return None, grad_values, None, _summed_to_dense(indices, shape, dense, grad_elements)

    return op


def _summed_to_dense(indices: Tensor, shape: Tensor, dense: Tensor, grad: Tensor) -> Any:
    """Adds up the gradients of the elements that each value of the dense side stood for."""
    dims = raw.Shape(dense, out_type="int64")
    missing = raw.Sub(raw.Size(shape), raw.Size(dims))
    ones = raw.Fill(raw.Reshape(missing, [1]), np.int64(1))
    repeats = raw.FloorDiv(shape, raw.ConcatV2([ones, dims], 0))
    at = raw.FloorDiv(indices, raw.Maximum(repeats, np.int64(1)))
    columns = raw.Slice(at, raw.Pack([np.int32(0), missing]), [-1, -1])
    return raw.ScatterNd(columns, grad, dims)


def _divide(x: Array, y: Array) -> Any:
    if x.dtype.kind in "iu":
        xp = np if isinstance(x, np.ndarray) else jnp
        return xp.sign(x) * xp.sign(y) * (abs(x) // xp.maximum(abs(y), np.ones((), y.dtype)))
    return x / y


def _division_gradient(grad: Tensor, x: Tensor, y: Tensor) -> tuple[Any, Any]:
    quotient = raw.RealDiv(grad, y)
    return quotient, raw.Neg(raw.RealDiv(raw.Mul(quotient, x), y))


SparseDenseCwiseAdd = _with_dense("SparseDenseCwiseAdd", lambda x, y: x + y, lambda grad, x, y: (grad, grad))
SparseDenseCwiseMul = _with_dense(
    "SparseDenseCwiseMul", lambda x, y: x * y, lambda grad, x, y: (raw.Mul(grad, y), raw.Mul(grad, x))
)
SparseDenseCwiseDiv = _with_dense("SparseDenseCwiseDiv", _divide, _division_gradient)


# ---------------------------------------------------------------------- two sparse tensors
def _check_same_shape(ctx: OperationContext, a_shape: Array, b_shape: Array) -> None:
    same = a_shape.shape == b_shape.shape and np.array_equal(a_shape, b_shape)
    ctx.check(same, f"Operands' shapes do not match: got {a_shape.tolist()} and {b_shape.tolist()}")


def _union(a_indices: Array, b_indices: Array) -> tuple[Array, Array, Array]:
    """The index vectors of both, in order; and for each index of a and of b its place among them."""
    both = np.concatenate([a_indices, b_indices])
    order = row_major(both)
    ordered = both[order]
    is_new = np.ones(len(both), np.bool_)
    is_new[1:] = np.any(ordered[1:] != ordered[:-1], axis=1)
    place = np.empty(len(both), np.int64)
    place[order] = np.cumsum(is_new) - 1
    return ordered[is_new], place[: len(a_indices)], place[len(a_indices) :]


def _two_sparse(a_indices: TensorShape, a_values: TensorShape, a_shape: TensorShape, *rest: TensorShape) -> Any:
    _, rank = sparse_shapes(a_indices, a_values, a_shape)
    other = sparse_shapes(*rest[:3])[1]
    if not rank.is_compatible_with(other):
        raise ValueError(f"Operands do not have the same ranks; got indices of {rank} and of {other} dimensions")
    rank = rank.merge_with(other)
    return TensorShape([None, rank]), TensorShape([None]), TensorShape([rank])


SparseAdd = define_op(
    "SparseAdd",
    "a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64, thresh: Treal -> "
    "sum_indices: int64, sum_values: T, sum_shape: int64",
    "T: numbers, Treal: real",
    late_ranks={"thresh": 0},
    ranks={"a_shape": 1},
)
SparseAdd.late_shape(_two_sparse)


@SparseAdd.host_kernel
def _(
    a_indices: Array,
    a_values: Array,
    a_shape: Array,
    b_indices: Array,
    b_values: Array,
    b_shape: Array,
    thresh: Array,
    *,
    ctx: OperationContext,
) -> Any:
    _check_same_shape(ctx, a_shape, b_shape)
    indices, at_a, at_b = _union(a_indices, b_indices)
    total = np.zeros(len(indices), a_values.dtype)
    np.add.at(total, at_a, a_values)
    np.add.at(total, at_b, b_values)
    # an element that only one side has is no sum, however small it is
    of_a, of_b = np.zeros((2, len(indices)), np.bool_)
    of_a[at_a], of_b[at_b] = True, True
    kept = (of_a != of_b) | (np.abs(total) >= thresh)
    return indices[kept], total[kept], a_shape


@SparseAdd.gradient
def _(op: Operation, _indices_grad: Tensor | None, grad: Tensor, _shape_grad: Tensor | None) -> Any:
    a_grad, b_grad = SparseAddGrad(grad, op.inputs[0], op.inputs[3], op.outputs[0])
    return None, a_grad, None, None, b_grad, None, None


SparseAddGrad = define_op(
    "SparseAddGrad",
    "backprop_val_grad: T, a_indices: int64, b_indices: int64, sum_indices: int64 -> a_val_grad: T, b_val_grad: T",
    "T: numbers",
    ranks={"a_indices": 2, "b_indices": 2},
)
SparseAddGrad.not_differentiable()


@SparseAddGrad.late_shape
def _(backprop_val_grad: TensorShape, a_indices: TensorShape, b_indices: TensorShape, sum_indices: TensorShape) -> Any:
    _, rank = sparse_shapes(sum_indices, backprop_val_grad, TensorShape([None]))
    counts = [sparse_shapes(i, TensorShape([None]), TensorShape([rank]))[0] for i in (a_indices, b_indices)]
    return TensorShape([counts[0]]), TensorShape([counts[1]])


@SparseAddGrad.host_kernel
def _(backprop_val_grad: Array, a_indices: Array, b_indices: Array, sum_indices: Array) -> Any:
    return tuple(looked_up(wanted, sum_indices, backprop_val_grad) for wanted in (a_indices, b_indices))


def _extremum(name: str, function: Callable[..., Array], types: str) -> Any:
    op = define_op(
        name,
        "a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64 -> "
        "output_indices: int64, output_values: T",
        f"T: {types}",
        ranks={"a_indices": 2, "a_values": 1, "a_shape": 1, "b_indices": 2, "b_values": 1, "b_shape": 1},
    )

    @op.late_shape
    def _(*shapes: TensorShape) -> Any:
        return _two_sparse(*shapes)[:2]

    @op.host_kernel
    def _(
        a_indices: Array,
        a_values: Array,
        a_shape: Array,
        b_indices: Array,
        b_values: Array,
        b_shape: Array,
        *,
        ctx: OperationContext,
    ) -> Any:
        _check_same_shape(ctx, a_shape, b_shape)
        indices, at_a, at_b = _union(a_indices, b_indices)
        left, right = np.zeros(len(indices), a_values.dtype), np.zeros(len(indices), a_values.dtype)
        left[at_a], right[at_b] = a_values, b_values
        return indices, function(left, right)

    return op.not_differentiable()


SparseSparseMaximum = _extremum("SparseSparseMaximum", np.maximum, "real")
SparseSparseMinimum = _extremum("SparseSparseMinimum", np.minimum, "numbers")


# ---------------------------------------------------------------------- reductions
def _groups(
    indices: Array, shape: Array, axes: Array, keep_dims: bool, ctx: OperationContext
) -> tuple[Array, list[int], list[int]]:
    """The row-major position of each element in the result; the result's shape; its shape with reduced axes as 1."""
    rank = len(shape)
    check_sparse(ctx, indices, shape)
    elements = math.prod(int(d) for d in shape)
    ctx.check(elements < 1 << 63, f"a shape of {shape.tolist()} has {elements} elements, more than an int64 counts")
    for axis in axes.reshape(-1).tolist():
        ctx.check(-rank <= axis < rank, f"Invalid reduction dimension {axis}, for input with {rank} dimensions.")
    reduced = {int(a) % rank for a in axes.reshape(-1)}
    kept = [i for i in range(rank) if i not in reduced]
    whole = [1 if i in reduced else int(shape[i]) for i in range(rank)]
    return flat_positions(indices[:, kept], shape[kept]), whole if keep_dims else [int(shape[i]) for i in kept], whole


def _reduced_values(values: Array, groups: Array, count: int, maximum: bool) -> Array:
    if not maximum:
        result = np.zeros(count, values.dtype)
        np.add.at(result, groups, values)
        return result
    lowest = -np.inf if values.dtype.kind not in "iu" else np.iinfo(values.dtype).min
    result = np.full(count, lowest, values.dtype)
    np.maximum.at(result, groups, values)
    return result


def _reduction(name: str, types: str, maximum: bool) -> tuple[Any, Any]:
    inputs = "input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32"
    attrs = f"keep_dims: bool = False, T: {types}"
    sized_by = {"input_shape": "values", "reduction_axes": "values"}
    dense = define_op(name, f"{inputs} -> output: T", attrs, sized_by=sized_by)
    sparse = define_op(
        f"{name}Sparse", f"{inputs} -> output_indices: int64, output_values: T, output_shape: int64", attrs
    )

    def check(indices: TensorShape, values: TensorShape, shape: TensorShape, axes: TensorShape) -> None:
        sparse_shapes(indices, values, shape)
        axes.with_rank_at_most(1)

    @dense.late_shape
    def _(
        input_indices: TensorShape,
        input_values: TensorShape,
        input_shape: TensorShape,
        reduction_axes: TensorShape,
        *,
        keep_dims: bool,
        ctx: ShapeContext,
    ) -> TensorShape:
        check(input_indices, input_values, input_shape, reduction_axes)
        shape, axes = ctx.constant_as_shape("input_shape"), ctx.constant("reduction_axes")
        if shape.dims_tuple is None or axes is None:
            return shape_rules.UNKNOWN
        reduced = {int(a) % len(shape.dims_tuple) for a in axes.reshape(-1)}
        dims = [(1 if i in reduced else d) for i, d in enumerate(shape.dims_tuple) if keep_dims or i not in reduced]
        return TensorShape(dims)

    @dense.host_kernel
    def _(
        input_indices: Array,
        input_values: Array,
        input_shape: Array,
        reduction_axes: Array,
        *,
        keep_dims: bool,
        ctx: OperationContext,
    ) -> Any:
        groups, dims, _ = _groups(input_indices, input_shape, reduction_axes, keep_dims, ctx)
        extrema = _reduced_values(input_values, groups, int(np.prod(dims)), maximum)
        if maximum:  # a group without elements is zero, like all that a sparse tensor does not store
            is_empty = np.ones(len(extrema), np.bool_)
            is_empty[groups] = False
            extrema[is_empty] = 0
        return extrema.reshape(dims)

    @sparse.late_shape
    def _(*shapes: TensorShape) -> Any:
        check(*shapes)
        return TensorShape([None, None]), TensorShape([None]), TensorShape([None])

    @sparse.host_kernel
    def _(
        input_indices: Array,
        input_values: Array,
        input_shape: Array,
        reduction_axes: Array,
        *,
        keep_dims: bool,
        ctx: OperationContext,
    ) -> Any:
        groups, dims, _ = _groups(input_indices, input_shape, reduction_axes, keep_dims, ctx)
        present, inverse = np.unique(groups, return_inverse=True)
        extrema = _reduced_values(input_values, inverse, len(present), maximum)
        vectors = np.stack(np.unravel_index(present, dims), axis=1) if dims else np.zeros((len(present), 0), np.int64)
        return vectors.astype(np.int64), extrema, np.array(dims, np.int64)

    sparse.not_differentiable()
    return dense, sparse


SparseReduceSum, SparseReduceSumSparse = _reduction("SparseReduceSum", "numbers", maximum=False)
SparseReduceMax, SparseReduceMaxSparse = _reduction("SparseReduceMax", "real", maximum=True)
SparseReduceMax.not_differentiable()


@SparseReduceSum.gradient  # type: ignore[untyped-decorator]
def _(op: Operation, grad: Tensor) -> Any:
    indices, values, shape, axes = op.inputs
    if not op.attrs["keep_dims"]:
        rank = raw.Size(shape)
        places = raw.Range(0, rank, 1)
        axes = raw.FloorMod(raw.Reshape(axes, [-1]), rank)
        ones = raw.Fill(raw.Shape(axes), np.int64(1))
        grad = raw.Reshape(grad, raw.DynamicStitch([places, axes], [shape, ones]))
    return None, SparseDenseCwiseAdd(indices, raw.ZerosLike(values), shape, grad), None, None


# ---------------------------------------------------------------------- softmax
SparseSoftmax = define_op(
    "SparseSoftmax",
    "sp_indices: int64, sp_values: T, sp_shape: int64 -> output: T",
    "T: {half, float, double}",
    ranks={"sp_indices": 2, "sp_values": 1, "sp_shape": 1},
)


@SparseSoftmax.late_shape
def _(sp_indices: TensorShape, sp_values: TensorShape, sp_shape: TensorShape) -> TensorShape:
    return TensorShape([sparse_shapes(sp_indices, sp_values, sp_shape)[0]])


@SparseSoftmax.host_kernel
def _(sp_indices: Array, sp_values: Array, sp_shape: Array, *, ctx: OperationContext) -> Array:
    """Softmax over the last axis, among the elements that are stored."""
    ctx.check(len(sp_shape) >= 2, f"the sparse tensor must have at least rank 2, got shape {sp_shape.tolist()}")
    check_sparse(ctx, sp_indices, sp_shape)
    _, groups = np.unique(flat_positions(sp_indices[:, :-1], sp_shape[:-1]), return_inverse=True)
    top = np.full(groups.max(initial=-1) + 1, -np.inf)
    np.maximum.at(top, groups, sp_values.astype(np.float64))
    powers = np.exp(sp_values.astype(np.float64) - top[groups])
    return (powers / np.bincount(groups, powers)[groups]).astype(sp_values.dtype)


@SparseSoftmax.gradient
def _(op: Operation, grad: Tensor) -> Any:
    indices, _, shape = op.inputs
    probabilities = op.outputs[0]
    inner = SparseReduceSum(indices, raw.Mul(probabilities, grad), shape, [-1], keep_dims=True)
    centered = SparseDenseCwiseAdd(indices, grad, shape, raw.Neg(inner))
    return None, raw.Mul(probabilities, centered), None
