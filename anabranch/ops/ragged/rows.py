"""Rows of different lengths: ranges of numbers, and rows of a ragged tensor by their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.core.sizes import check_storable
from anabranch.graph.building import define_op
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.ops.ragged.parts import check_nested, rows_of, splits_of

#: numbers of ranges that are computed at once: what is needed in between takes several times their memory
_AT_ONCE = 1 << 20

RaggedRange = define_op(
    "RaggedRange",
    "starts: T, limits: T, deltas: T -> rt_nested_splits: Tsplits, rt_dense_values: T",
    "T: {bfloat16, float, double, int32, int64} = int32, Tsplits: {int32, int64} = int64",
)
RaggedRange.not_differentiable()


@RaggedRange.shape
def _(starts: TensorShape, limits: TensorShape, deltas: TensorShape) -> Any:
    rows = TensorShape(None)
    for shape in (starts, limits, deltas):
        shape.with_rank_at_most(1)
        if shape.ndims == 1:
            rows = rows.merge_with(shape)
    if rows.ndims is None:
        known = all(shape.ndims == 0 for shape in (starts, limits, deltas))
        return TensorShape([2 if known else None]), TensorShape([None])
    dims = rows.dims_tuple
    return TensorShape([None if dims is None or dims[0] is None else dims[0] + 1]), TensorShape([None])


@RaggedRange.host_kernel
def _(starts: Array, limits: Array, deltas: Array, *, Tsplits: DType, ctx: OperationContext) -> Any:
    for name, value in (("starts", starts), ("limits", limits), ("deltas", deltas)):
        ctx.check(value.ndim <= 1, f"{name} must be a scalar or vector")
    sizes = {value.size for value in (starts, limits, deltas) if value.ndim}
    ctx.check(len(sizes) <= 1, f"starts, limits, and deltas must have the same shape, got the sizes {sorted(sizes)}")
    rows = sizes.pop() if sizes else 1
    first, last, step = (np.broadcast_to(value, (rows,)) for value in (starts, limits, deltas))
    ctx.check(bool((step != 0).all()), "Requires delta != 0")
    lengths = _range_lengths(first, last, step)
    total = sum(lengths)
    ctx.check(
        all(length >= 0 for length in lengths) and total <= np.iinfo(Tsplits.as_numpy_dtype).max,
        f"the ranges have more numbers than {Tsplits.name} can count: look at their starts, limits and deltas",
    )
    check_storable([total], starts.dtype, ctx.op, "the ranges")
    ends = np.cumsum(lengths, dtype=np.int64)
    values = np.empty(total, starts.dtype)
    for begin in range(0, total, _AT_ONCE):
        _count_on(values[begin : begin + _AT_ONCE], begin, ends, first, step)
    return splits_of(np.array(lengths, np.int64), Tsplits.as_numpy_dtype), values


def _count_on(values: Array, begin: int, ends: Array, first: Array, step: Array) -> None:
    """Fills a piece of all ranges' numbers, which starts with the one at `begin`; row `i` stops before `ends[i]`."""
    end = begin + len(values)
    rows = np.arange(np.searchsorted(ends, begin, "right"), np.searchsorted(ends, end) + 1)
    starts = np.where(rows > 0, ends[rows - 1], 0)
    counts = np.minimum(ends[rows], end) - np.maximum(starts, begin)
    row = np.repeat(rows, counts)
    within = np.arange(begin, end) - np.repeat(starts, counts)
    values[:] = first[row] + within.astype(values.dtype) * step[row]


def _range_lengths(first: Array, last: Array, step: Array) -> list[int]:
    """How many numbers each range has, -1 where that is no number; in Python's integers, which do not overflow."""
    if first.dtype.kind in "iu":
        triples = zip(first.tolist(), last.tolist(), step.tolist(), strict=True)
        return [len(range(*triple)) for triple in triples]
    first, last, step = (each.astype(np.float64) for each in (first, last, step))
    with np.errstate(invalid="ignore", over="ignore"):
        lengths = np.ceil((last - first) / step)
    lengths[(step > 0) & (last < first) | (step < 0) & (last > first)] = (
        0  # infinite ones that lie the wrong way round, too
    )
    return [int(n) if np.isfinite(n) else -1 for n in lengths]


RaggedGather = define_op(
    "RaggedGather",
    "params_nested_splits: PARAMS_RAGGED_RANK * Tsplits, params_dense_values: Tvalues, indices: Tindices -> "
    "output_nested_splits: OUTPUT_RAGGED_RANK * Tsplits, output_dense_values: Tvalues",
    "Tvalues: any, Tindices: {int32, int64}, Tsplits: {int32, int64} = int64, PARAMS_RAGGED_RANK: int >= 1, "
    "OUTPUT_RAGGED_RANK: int >= 0",
)


@RaggedGather.shape
def _(
    params_nested_splits: list[TensorShape],
    params_dense_values: TensorShape,
    indices: TensorShape,
    *,
    OUTPUT_RAGGED_RANK: int,
) -> Any:
    for splits in params_nested_splits:
        splits.with_rank(1)
    rank = indices.ndims
    if rank is not None and rank - 1 + len(params_nested_splits) != OUTPUT_RAGGED_RANK:
        raise ValueError(
            f"OUTPUT_RAGGED_RANK must be the rank of indices, {rank}, and the number of the splits of params, "
            f"{len(params_nested_splits)}, less 1, got {OUTPUT_RAGGED_RANK}"
        )
    values = params_dense_values.with_rank_at_least(1)
    below = TensorShape(None) if values.ndims is None else TensorShape([None]).concatenate(values[1:])
    return [TensorShape([None])] * OUTPUT_RAGGED_RANK, below


@RaggedGather.host_kernel
def _(params_nested_splits: list[Array], params_dense_values: Array, indices: Array, *, ctx: OperationContext) -> Any:
    check_nested(params_nested_splits, params_dense_values, ctx, "params_nested_splits")
    rows = len(params_nested_splits[0]) - 1
    flat = indices.reshape(-1)
    outside = (flat < 0) | (flat >= rows)
    if outside.any():
        at = int(np.argmax(outside))
        ctx.check(False, f"indices[{at}] = {{0}} is not in [0, {rows})", flat[at])
    nested, values = rows_of(flat, params_nested_splits, params_dense_values)
    dtype = params_nested_splits[0].dtype
    outer = [
        np.arange(int(np.prod(indices.shape[: i + 1])) + 1, dtype=dtype) * indices.shape[i + 1]
        for i in range(indices.ndim - 1)
    ]
    return [*outer, *(nested if indices.ndim else nested[1:])], values


@RaggedGather.gradient
def _(op: Operation, *grads: Tensor) -> Any:
    *splits, values, indices = op.inputs
    none = [None] * len(splits)
    if grads[-1] is None:
        return [*none, None, None]
    # where the values of each row begin: the splits followed down to the values
    bounds = splits[0]
    for inner in splits[1:]:
        bounds = raw.GatherV2(inner, bounds, 0)
    flat = raw.Reshape(indices, [-1])
    starts = raw.GatherV2(bounds, flat, 0)
    limits = raw.GatherV2(bounds, raw.AddV2(flat, 1), 0)
    places = raw.RaggedRange(starts, limits, raw.OnesLike(starts)).rt_dense_values
    return [*none, IndexedSlices(grads[-1], places, raw.Shape(values, out_type=places.dtype)), None]
