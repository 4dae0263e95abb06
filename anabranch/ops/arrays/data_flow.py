"""Partitioning and stitching, and the operations whose result's size depends on values: where, unique, list diff."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary, HostArray
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.core.sizes import check_storable
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext, constant_value
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arrays.layout import normal_axis
from anabranch.ops.sparse.form import sparse_shapes

# ---------------------------------------------------------------------- positions and distinct values
Where = define_op("Where", "input: T -> index: int64", "T: {numbers, bool} = bool")
Where.not_differentiable()


@Where.shape
def _(input: TensorShape) -> TensorShape:
    return TensorShape([None, input.ndims])


@Where.host_kernel
def _(input: Array) -> Any:
    if input.ndim == 0:
        raise ValueError("WhereOp : Unhandled input dimensions: 0; a scalar has no coordinates, reshape it to [1]")
    return np.argwhere(input).astype(np.int64, copy=False)


#: so many integers are sooner looked up one by one than sorted
_FEW: Final = 256


def _few_unique(x: HostArray) -> tuple[Any, Any, Any]:
    places: dict[int, int] = {}
    inverse = np.array([places.setdefault(value, len(places)) for value in x.tolist()], np.int64)
    return np.array(list(places), x.dtype), inverse, np.bincount(inverse, minlength=len(places))


def _unique(x: Array, axis: int | None) -> tuple[Any, Any, Any]:
    """Distinct values in the order in which they first occur, the position of each element's value, and counts.

    Not even NaN is equal to NaN.
    """
    if x.ndim == 1 and x.size <= _FEW and x.dtype.kind in "iu":
        return _few_unique(x)
    _, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis, equal_nan=False
    )
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return np.take(x, first[order], axis=axis or 0), rank[np.reshape(inverse, -1)], counts[order]


def _unique_axis(x: Array, axis: Array) -> int | None:
    """The axis given as a vector of at most one element."""
    if axis.size == 0:
        if np.ndim(x) != 1:
            raise ValueError(f"without an axis unique expects a vector, got shape {np.shape(x)}; give an axis")
        return None
    at = normal_axis(int(axis[0]), np.ndim(x))
    return None if np.ndim(x) == 1 else at


def _check_unique_axis(x: TensorShape, axis: TensorShape, known: HostArray | None) -> None:
    """Checks the axis while the graph is built where its value is known, as TensorFlow does."""
    if known is None:
        shape_rules.late(_check_axis_size, axis)
        return
    _check_axis_size(axis)
    if known.size == 0:
        shape_rules.with_rank(x, 1, "argument 'x' without an axis")
    elif x.ndims is not None:
        normal_axis(int(known[0]), x.ndims)


def _check_axis_size(axis: TensorShape) -> None:
    if axis.with_rank(1)[0].value not in (None, 0, 1):
        raise ValueError(f"the axis is a vector of at most one element, got shape {axis}")


def _vector_shapes(x: TensorShape, count: int) -> tuple[TensorShape, ...]:
    shape_rules.with_rank(x, 1, "argument 'x'")
    return (TensorShape([None]), x.with_rank(1), TensorShape([None]))[:count]


_UNIQUE_ATTRS = "T: any, out_idx: {int32, int64} = int32"

#: each element of a vector has the position of its value
_PLACES_SIZED_BY: Final = {"idx": {"x": "shape"}}

Unique = define_op("Unique", "x: T -> y: T, idx: out_idx", _UNIQUE_ATTRS, outputs_sized_by=_PLACES_SIZED_BY)
Unique.not_differentiable()


@Unique.shape
def _(x: TensorShape) -> tuple[TensorShape, ...]:
    return _vector_shapes(x, 2)


@Unique.host_kernel
def _(x: Array, *, out_idx: DType) -> Any:
    y, idx, _ = _unique(x, None)
    return y, idx.astype(out_idx.as_numpy_dtype)


UniqueWithCounts = define_op(
    "UniqueWithCounts",
    "x: T -> y: T, idx: out_idx, count: out_idx",
    _UNIQUE_ATTRS,
    outputs_sized_by=_PLACES_SIZED_BY,
)
UniqueWithCounts.not_differentiable()


@UniqueWithCounts.late_shape
def _(x: TensorShape) -> tuple[TensorShape, ...]:
    return _vector_shapes(x, 3)


@UniqueWithCounts.host_kernel
def _(x: Array, *, out_idx: DType) -> Any:
    y, idx, count = _unique(x, None)
    return y, idx.astype(out_idx.as_numpy_dtype), count.astype(out_idx.as_numpy_dtype)


_UNIQUE_V2_ATTRS = "T: any, Taxis: {int32, int64} = int64, out_idx: {int32, int64} = int32"

UniqueV2 = define_op("UniqueV2", "x: T, axis: Taxis -> y: T, idx: out_idx", _UNIQUE_V2_ATTRS, late_ranks={"axis": 1})
UniqueV2.not_differentiable()


@UniqueV2.shape
def _(x: TensorShape, axis: TensorShape, *, ctx: ShapeContext) -> tuple[TensorShape, ...]:
    _check_unique_axis(x, axis, ctx.constant("axis"))
    return TensorShape(None if x.ndims is None else [None] * x.ndims), TensorShape([None])


@UniqueV2.host_kernel
def _(x: Array, axis: Array, *, out_idx: DType) -> Any:
    y, idx, _ = _unique(x, _unique_axis(x, axis))
    return y, idx.astype(out_idx.as_numpy_dtype)


UniqueWithCountsV2 = define_op(
    "UniqueWithCountsV2",
    "x: T, axis: Taxis -> y: T, idx: out_idx, count: out_idx",
    _UNIQUE_V2_ATTRS,
    late_ranks={"axis": 1},
)
UniqueWithCountsV2.not_differentiable()


@UniqueWithCountsV2.shape
def _(x: TensorShape, axis: TensorShape, *, ctx: ShapeContext) -> tuple[TensorShape, ...]:
    _check_unique_axis(x, axis, ctx.constant("axis"))
    return TensorShape(None if x.ndims is None else [None] * x.ndims), TensorShape([None]), TensorShape([None])


@UniqueWithCountsV2.host_kernel
def _(x: Array, axis: Array, *, out_idx: DType) -> Any:
    y, idx, count = _unique(x, _unique_axis(x, axis))
    return y, idx.astype(out_idx.as_numpy_dtype), count.astype(out_idx.as_numpy_dtype)


ListDiff = define_op("ListDiff", "x: T, y: T -> out: T, idx: out_idx", "T: any, out_idx: {int32, int64} = int32")
ListDiff.not_differentiable()


@ListDiff.shape
def _(x: TensorShape, y: TensorShape) -> tuple[TensorShape, TensorShape]:
    shape_rules.with_rank(x, 1, "argument 'x'")
    shape_rules.with_rank(y, 1, "argument 'y'")
    return TensorShape([None]), TensorShape([None])


@ListDiff.host_kernel
def _(x: Array, y: Array, *, out_idx: DType) -> Any:
    excluded = set(y.tolist())
    kept = np.array([i for i, v in enumerate(x.tolist()) if v not in excluded], out_idx.as_numpy_dtype)
    return x[kept], kept


# ---------------------------------------------------------------------- partition and stitch
DynamicPartition = define_op(
    "DynamicPartition",
    "data: T, partitions: int32 -> outputs: num_partitions * T",
    "num_partitions: int >= 1, T: any",
    deals_out=True,
)


@DynamicPartition.shape
def _(data: TensorShape, partitions: TensorShape, *, num_partitions: int) -> list[TensorShape]:
    rank = partitions.ndims
    if data.ndims is None or rank is None:
        return [TensorShape(None)] * num_partitions
    data[:rank].assert_is_compatible_with(partitions)
    return [TensorShape([None]).concatenate(data[rank:])] * num_partitions


@DynamicPartition.host_kernel
def _(data: Array, partitions: Array, *, num_partitions: int, ctx: OperationContext) -> Any:
    valid = (partitions >= 0) & (partitions < num_partitions)
    if not valid.all():
        first = np.unravel_index(int(valid.argmin()), valid.shape)
        at = f"[{','.join(map(str, first))}]" if first else ""
        ctx.check(False, f"partitions{at} = {partitions[first]} is not in [0, {num_partitions})")
    return [data[partitions == i] for i in range(num_partitions)]


@DynamicPartition.gradient
def _(op: Operation, *grads: Tensor | None) -> Any:
    data, partitions = op.inputs
    shape = raw.Shape(partitions)
    positions = raw.Reshape(raw.Range(0, raw.Size(partitions), 1), shape)
    parts = DynamicPartition(positions, partitions, num_partitions=op.attrs["num_partitions"])
    return raw.Reshape(ParallelDynamicStitch(list(parts), list(grads)), raw.Shape(data)), None


def _stitched_shape(indices: list[TensorShape], data: list[TensorShape], *, ctx: ShapeContext) -> TensorShape:
    row = _row_of_all(indices, data)
    for index, values in zip(indices, data, strict=True) if row.ndims is None else ():
        if index.ndims is not None and values.ndims is not None:
            values[: index.ndims].assert_is_compatible_with(index)
            row = row.merge_with(values[index.ndims :])
    known = [constant_value(tensor) for tensor in ctx.tensor("indices")]
    missing = any(value is None for value in known)
    return TensorShape([None if missing else _rows(known)]).concatenate(row)


def _row_of_all(indices: list[TensorShape], data: list[TensorShape]) -> TensorShape:
    """The shape of a row where all shapes are known and go together, as they nearly always do; unknown: anything else.

    While a step runs, the sizes of the parts of a table are others each time, and to merge shapes takes long.
    """
    rows = set()
    for index, values in zip(indices, data, strict=True):
        places, dims = index.dims_tuple, values.dims_tuple
        if places is None or dims is None or None in dims or dims[: len(places)] != places:
            return TensorShape(None)
        rows.add(dims[len(places) :])
    return TensorShape(rows.pop()) if len(rows) == 1 else TensorShape(None)


def _rows(indices: list[Any]) -> int:
    return 1 + max((int(np.max(index)) for index in indices if np.size(index)), default=-1)


def _stitch(indices: list[Any], data: list[Any], xp: ArrayLibrary, ctx: OperationContext) -> Any:
    """Rows of `data` at the places that `indices` names; of several for one place the last counts."""
    places = np.concatenate([np.reshape(index, -1) for index in indices])
    if places.size and places.min() < 0:
        for i, index in enumerate(indices):
            ctx.check(np.min(index, initial=0) >= 0, f"indices[{i}] {{0}} must not be negative", index)
    row = np.shape(data[0])[np.ndim(indices[0]) :]
    values = xp.concatenate([xp.reshape(v, (np.size(i), *row)) for i, v in zip(indices, data, strict=True)])
    count = int(places.max(initial=-1)) + 1
    check_storable([count], np.int64, ctx.op, "the places of rows")
    source = np.zeros(count, np.int64)
    # of repeated places the last one stays
    source[places] = np.arange(len(places))
    return xp.take(values, source, axis=0)


def _stitching(name: str) -> Any:
    op = define_op(
        name,
        "indices: N * int32, data: N * T -> merged: T",
        "N: int >= 1, T: any",
        static=("indices",),
        sized_by={"indices": "dealt"},
    )
    op.shape(_stitched_shape)

    @op.kernel
    def _(indices: list[Any], data: list[Any], *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        return _stitch(indices, data, xp, ctx)

    # Indices that were computed from data differ in every step: the host does not compile for each of them.
    @op.host_kernel
    def _(indices: list[Any], data: list[Any], *, ctx: OperationContext) -> Any:
        return _stitch(indices, data, np, ctx)

    @op.gradient
    def _(op: Operation, grad: Tensor) -> Any:
        count = op.attrs["N"]
        return [None] * count + [raw.GatherV2(grad, index, 0) for index in op.inputs[:count]]

    return op


DynamicStitch = _stitching("DynamicStitch")
ParallelDynamicStitch = _stitching("ParallelDynamicStitch")


# ---------------------------------------------------------------------- flat and full indices
UnravelIndex = define_op(
    "UnravelIndex",
    "indices: Tidx, dims: Tidx -> output: Tidx",
    "Tidx: {int32, int64} = int32",
    ranks={"dims": 1},
)
UnravelIndex.not_differentiable()


@UnravelIndex.late_shape
def _(indices: TensorShape, dims: TensorShape) -> TensorShape:
    return shape_rules.with_rank(dims, 1, "argument 'dims'").concatenate(indices.with_rank_at_most(1))


@UnravelIndex.kernel
def _(indices: Array, dims: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    ctx.check(dims >= 0, "Input dims cannot be negative: {0}", dims)
    count = xp.prod(dims.astype(np.float64))
    ctx.check(count < 2.0 ** (8 * dims.dtype.itemsize - 1), "Input dims product is causing integer overflow: {0}", dims)
    ctx.check(indices >= 0, "an index is negative: {0}", indices)
    ctx.check(indices < xp.prod(dims), "index is out of bounds of the shape {0}", dims)
    sizes = xp.reshape(dims, (-1,) + (1,) * len(np.shape(indices)))
    below = xp.cumprod(sizes[::-1], axis=0)[::-1] // sizes
    return ((indices // below) % sizes).astype(indices.dtype)


# ---------------------------------------------------------------------- search in sorted rows
def _bisected(rows: Array, values: Array, lower: bool, xp: ArrayLibrary) -> Any:
    """The positions that C++'s `lower_bound` or `upper_bound` gives, also in rows that are unsorted or hold NaN."""
    shape = np.shape(values)
    first, count = xp.zeros(shape, np.int32), xp.full(shape, np.shape(rows)[1], np.int32)
    for _ in range(int(np.shape(rows)[1]).bit_length()):
        middle = first + count // 2
        at = xp.take_along_axis(rows, xp.minimum(middle, np.shape(rows)[1] - 1), axis=1)
        after = (count > 0) & ((at < values) if lower else ~(values < at))
        first = xp.where(after, middle + 1, first)
        count = xp.where(after, count - count // 2 - 1, count // 2)
    return first


def _searching(name: str, side: str) -> Any:
    op = define_op(
        name,
        "sorted_inputs: T, values: T -> output: out_type",
        "T: any, out_type: {int32, int64} = int32",
        ranks={"sorted_inputs": 2, "values": 2},
    )

    @op.late_shape
    def _(sorted_inputs: TensorShape, values: TensorShape) -> TensorShape:
        rows = shape_rules.with_rank(sorted_inputs, 2, "argument 'sorted_inputs'")
        values_shape = shape_rules.with_rank(values, 2, "argument 'values'")
        return TensorShape([rows[0].merge_with(values_shape[0]), values_shape[1]])

    @op.kernel
    def _(sorted_inputs: Array, values: Array, *, out_type: DType, xp: ArrayLibrary) -> Any:
        return _bisected(sorted_inputs, values, side == "left", xp).astype(out_type.as_numpy_dtype)

    return op.not_differentiable()


LowerBound = _searching("LowerBound", "left")
UpperBound = _searching("UpperBound", "right")


# ---------------------------------------------------------------------- edit distance
EditDistance = define_op(
    "EditDistance",
    "hypothesis_indices: int64, hypothesis_values: T, hypothesis_shape: int64, truth_indices: int64, truth_values: T, "
    "truth_shape: int64 -> output: float",
    "normalize: bool = True, T: any",
    ranks={"hypothesis_shape": 1, "truth_shape": 1},
)
EditDistance.not_differentiable()


@EditDistance.shape
def _(
    hypothesis_indices: TensorShape,
    hypothesis_values: TensorShape,
    hypothesis_shape: TensorShape,
    truth_indices: TensorShape,
    truth_values: TensorShape,
    truth_shape: TensorShape,
    *,
    ctx: ShapeContext,
) -> TensorShape:
    sparse_shapes(hypothesis_indices, hypothesis_values, hypothesis_shape)
    sparse_shapes(truth_indices, truth_values, truth_shape)
    groups = [ctx.constant_as_shape(name) for name in ("hypothesis_shape", "truth_shape")]
    if any(g.ndims is None for g in groups):
        return TensorShape(None)
    sizes = zip(*((g.dims_tuple or ())[:-1] for g in groups), strict=True)
    return TensorShape([None if None in pair else max(d or 0 for d in pair) for pair in sizes])


@EditDistance.host_kernel
def _(
    hypothesis_indices: Array,
    hypothesis_values: Array,
    hypothesis_shape: Array,
    truth_indices: Array,
    truth_values: Array,
    truth_shape: Array,
    *,
    normalize: bool,
) -> Any:
    shape = np.maximum(hypothesis_shape, truth_shape)[:-1]
    said = _sequences(hypothesis_indices, hypothesis_values)
    meant = _sequences(truth_indices, truth_values)
    result = np.zeros(shape, np.float32)
    for group in np.ndindex(*shape):
        a, b = said.get(group, []), meant.get(group, [])
        distance = float(_levenshtein(a, b))
        if normalize:
            distance = distance / len(b) if b else (np.inf if a else 0.0)
        result[group] = distance
    return result


def _sequences(indices: Array, values: Array) -> dict[tuple[int, ...], list[Any]]:
    """The values of each group of a sparse tensor: all elements that agree in all indices but the last."""
    sequences: dict[tuple[int, ...], list[Any]] = {}
    for index, value in zip(indices.tolist(), values.tolist(), strict=True):
        sequences.setdefault(tuple(index[:-1]), []).append(value)
    return sequences


def _levenshtein(a: list[Any], b: list[Any]) -> int:
    """The least number of insertions, deletions and substitutions that turn `a` into `b`."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]
