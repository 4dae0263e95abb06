"""Reductions over segments of rows.

Where the ids are sorted, the number of segments follows from the last id, so that these operations run on the host;
with a given number of segments they are compiled.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary, HostArray
from anabranch.core.dtypes import as_dtype
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arithmetic.reduction import whole_mean
from anabranch.ops.arrays.gather_scatter import are_below
from anabranch.ops.factories import attach_gradient

#: so many indices are compared one by one in the time in which NumPy begins to
_FEW: Final = 64


# ---------------------------------------------------------------------- sorted ids
def _rows_shape(data: TensorShape, segment_ids: TensorShape) -> TensorShape:
    shape_rules.with_rank(segment_ids, 1, "argument 'segment_ids'")
    return TensorShape([None]).concatenate(data.with_rank_at_least(1)[1:])


def _check_sorted(ctx: OperationContext, ids: Array, rows: int) -> None:
    """Fails as the first segment does that breaks a rule, in the order in which the segments come."""
    ctx.check(ids.ndim == 1, f"segment_ids should be a vector, got shape {ids.shape}")
    ctx.check(
        ids.size == rows, f"segment_ids should be the same size as dimension 0 of input: {ids.size} ids, {rows} rows"
    )
    if not ids.size:
        return
    ctx.check(ids[-1] >= 0, f"segment ids must be >= 0, got {ids[-1]}")
    runs = ids[np.r_[True, ids[1:] != ids[:-1]]]
    segments = _segment_count(ids)
    falling, outside = np.r_[runs[1:] < runs[:-1], False], (runs < 0) | (runs >= segments)
    at = int(np.argmax(falling | outside))
    ctx.check(not falling[at], "segment ids are not increasing")
    ctx.check(
        not outside[at],
        f"Segment id {runs[at]} out of range [0, {segments}), possibly because 'segment_ids' input is not sorted.",
    )


def _check_range(xp: ArrayLibrary, ctx: OperationContext, values: Array, limit: int, message: str) -> None:
    """Each of a vector of values is in [0, limit); `message` shows the first that is not: {0} its index, {1} itself."""
    outside = (values < 0) | (values >= limit)
    if not values.shape[0]:
        return
    at = xp.argmax(outside)
    # take: an index that is computed in the step cannot index an array that is known before
    ctx.check(xp.logical_not(xp.take(outside, at)), f"{message} out of range [0, {limit})", at, xp.take(values, at))


def _reduce_rows(ufunc: np.ufunc, data: Array, ids: Array, segments: int, empty: int) -> Any:
    """Applies `ufunc` to each run of rows with one id; segments without rows hold `empty`."""
    out = np.full((segments, *data.shape[1:]), empty, data.dtype)
    if ids.size:
        starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
        out[ids[starts]] = ufunc.reduceat(data, starts, axis=0)
    return out


def _segment_count(ids: Array) -> int:
    return int(ids[-1]) + 1 if ids.size else 0


def _sorted_segments(name: str, ufunc: np.ufunc, empty: int, types: str, gradient: Callable[..., Any]) -> OpFunction:
    op = define_op(name, "data: T, segment_ids: Tindices -> output: T", f"T: {types}, Tindices: index")
    op.shape(_rows_shape)

    @op.host_kernel
    def _(data: Array, segment_ids: Array, *, ctx: OperationContext) -> Any:
        _check_sorted(ctx, segment_ids, len(data))
        total = _reduce_rows(ufunc, data, segment_ids, _segment_count(segment_ids), empty)
        return _divided(total, _counts(segment_ids, len(total))) if name == "SegmentMean" else total

    return attach_gradient(op, gradient)


def _counts(ids: Array, segments: int) -> Any:
    return np.maximum(np.bincount(ids, minlength=segments), 1)


def _divided(total: Array, counts: Array) -> Any:
    divisor = counts.reshape((-1,) + (1,) * (total.ndim - 1))
    if total.dtype.kind in "iu":
        return whole_mean(np, total, divisor)
    return (total / divisor.astype(total.dtype)).astype(total.dtype)


def _column(vector: Tensor, like: Tensor) -> Tensor:
    """A vector as a tensor of the rank of `like`, so that it broadcasts along the rows."""
    ones = raw.Fill(raw.ExpandDims(raw.Sub(raw.Rank(like), 1), 0), 1)
    result: Tensor = raw.Reshape(vector, raw.ConcatV2([raw.Shape(vector), ones], 0))
    return result


def _segment_sum_gradient(op: Operation, grad: Tensor) -> Any:
    return raw.GatherV2(grad, op.inputs[1], 0), None


def _segment_mean_gradient(op: Operation, grad: Tensor) -> Any:
    ids = op.inputs[1]
    ones = raw.Fill(raw.Shape(ids), raw.Cast(1, DstT=grad.dtype))
    counts = raw.Maximum(SegmentSum(ones, ids), 1.0)
    return raw.GatherV2(raw.RealDiv(grad, _column(counts, grad)), ids, 0), None


def _segment_extreme_gradient(op: Operation, grad: Tensor) -> Any:
    """The gradient is shared evenly among the elements of a segment that equal its extreme."""
    data, ids = op.inputs
    chosen = raw.Cast(raw.Equal(raw.GatherV2(op.outputs[0], ids, 0), data), DstT=grad.dtype)
    count = SegmentSum(chosen, ids)
    return raw.Mul(chosen, raw.GatherV2(raw.DivNoNan(grad, count), ids, 0)), None


def _segment_prod_gradient(op: Operation, grad: Tensor) -> Any:
    data, ids = op.inputs
    others = _product_of_others(
        data,
        lambda x: raw.GatherV2(SegmentProd(x, ids), ids, 0),
        lambda x: raw.GatherV2(SegmentSum(x, ids), ids, 0),
    )
    return raw.Mul(raw.GatherV2(grad, ids, 0), others), None


def _product_of_others(data: Tensor, product: Callable[..., Tensor], total: Callable[..., Tensor]) -> Tensor:
    """For each element the product of the other elements of its segment, which can be differentiated in turn.

    What divides is never zero: the zeros are multiplied by themselves. Their product is nothing, but its derivatives
    are not. Of two zeros in a segment, each one's other is their sum without itself; the product of more is nothing
    and has no derivative.

    Args:
        product: for each element the product of a tensor over its segment.
        total: the same of sums.
    """
    none, one = raw.ZerosLike(data), raw.OnesLike(data)
    zero = raw.Equal(data, none)
    safe, zeros = raw.Select(zero, one, data), raw.Select(zero, data, one)
    rest = product(safe)
    count = total(raw.Cast(zero, DstT=data.dtype))
    other_zero = raw.Sub(total(raw.Select(zero, data, none)), data)
    two = raw.Select(raw.Equal(count, raw.AddV2(one, one)), other_zero, none)
    other_zeros = raw.Select(raw.Equal(count, one), one, two)
    result: Tensor = raw.Select(
        zero, raw.MulNoNan(rest, other_zeros), raw.MulNoNan(raw.RealDiv(rest, safe), product(zeros))
    )
    return result


SegmentSum = _sorted_segments("SegmentSum", np.add, 0, "numbers", _segment_sum_gradient)
SegmentMean = _sorted_segments("SegmentMean", np.add, 0, "numbers", _segment_mean_gradient)
SegmentProd = _sorted_segments("SegmentProd", np.multiply, 1, "numbers", _segment_prod_gradient)
SegmentMax = _sorted_segments("SegmentMax", np.maximum, 0, "real", _segment_extreme_gradient)
SegmentMin = _sorted_segments("SegmentMin", np.minimum, 0, "real", _segment_extreme_gradient)


# ---------------------------------------------------------------------- unsorted ids
def _segments_shape(count: HostArray | None) -> TensorShape:
    if count is not None and count < 0:
        raise ValueError(f"Cannot specify a negative value for num_segments, got {count}")
    return TensorShape([None if count is None else int(count)])


def _unsorted_segments(
    name: str, method: str, ufunc: np.ufunc, empty: Callable[[Any], Any], types: str, gradient: Callable[..., Any]
) -> OpFunction:
    op = define_op(
        name,
        "data: T, segment_ids: Tindices, num_segments: Tnumsegments -> output: T",
        f"T: {types}, Tindices: {{int16, int32, int64}}, Tnumsegments: index = int32",
        static=("num_segments",),
        ranks={"num_segments": 0},
        rank_words={"num_segments": "num_segments should be a scalar"},
        sized_by={"num_segments": "rows"},
    )

    @op.shape
    def _(data: TensorShape, segment_ids: TensorShape, num_segments: TensorShape, *, ctx: ShapeContext) -> TensorShape:
        if data.ndims is None or segment_ids.ndims is None:
            return shape_rules.UNKNOWN
        data[: segment_ids.ndims].assert_is_compatible_with(segment_ids)
        return _segments_shape(ctx.constant("num_segments")).concatenate(data[segment_ids.ndims :])

    @op.kernel
    def _(data: Array, segment_ids: Array, num_segments: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        """Rows with a negative id are left out."""
        count, depth = int(num_segments), segment_ids.ndim
        fits = data.shape[:depth] == segment_ids.shape
        ctx.check(
            fits, f"data of shape {tuple(data.shape)} does not start with the ids' shape {tuple(segment_ids.shape)}"
        )
        ctx.check(count >= 0, f"num_segments must be >= 0, got {count}")
        ids = segment_ids if depth == 1 else xp.reshape(segment_ids, (-1,))
        rows = data if depth == 1 else xp.reshape(data, (ids.shape[0], *data.shape[depth:]))
        if xp is np and type(ids) is type(rows) is np.ndarray and rows.size and are_below(ids, count):
            return _summed_up(rows, ids, count, empty(data.dtype), method, ufunc)
        if 0 not in data.shape:  # TensorFlow looks at no id of rows without elements
            _check_below(xp, ctx, segment_ids, ids, count)
        kept = xp.where((ids < 0) | (ids >= count), count, ids.astype(np.int64))
        out = xp.full((count + 1, *rows.shape[1:]), empty(data.dtype), data.dtype)
        return scatter(xp, out, kept, rows, method, ufunc)[:count]

    return attach_gradient(op, gradient)


def _summed_up(rows: HostArray, ids: HostArray, count: int, empty: Array, method: str, ufunc: np.ufunc) -> HostArray:
    """The segments of rows whose ids are all in [0, count)."""
    if len(ids) == count and rows.ndim > 1 and _rise(ids):  # each segment has its row
        alone: HostArray = ufunc(np.array(empty, rows.dtype), rows)
        return alone
    out = np.empty((count, *rows.shape[1:]), rows.dtype)
    out.fill(empty)
    combined: HostArray = scatter(np, out, ids.astype(np.int64, copy=False), rows, method, ufunc)
    return combined


def _rise(indices: HostArray) -> bool:
    """Whether each index, of which there are some, is larger than the one before."""
    if len(indices) <= _FEW:
        few: list[int] = indices.tolist()
        return all(map(operator.lt, few, few[1:]))
    return bool((indices[1:] > indices[:-1]).all())


def _check_below(xp: ArrayLibrary, ctx: OperationContext, segment_ids: Array, flat: Array, count: int) -> None:
    """No id is `count` or more; the message shows the first that is, with its position."""
    flat = xp.asarray(flat)
    if xp is np and (not flat.size or flat.max() < count):
        return
    at = xp.argmax(flat >= count)
    position = ",".join(f"{{{i}}}" for i in range(1, segment_ids.ndim + 1))
    first = xp.take(flat, at)
    ctx.check(
        first < count,
        f"segment_ids[{position}] = {{0}} is out of range [0, {count})",
        first,
        *xp.unravel_index(at, segment_ids.shape),
    )


def scatter(xp: ArrayLibrary, out: Array, indices: Array, rows: Array, method: str, ufunc: np.ufunc) -> Any:
    """`out` with each of `rows` combined into the row at its index."""
    if xp is jnp:
        return getattr(out.at[indices], method)(rows)
    if rows.ndim == 1 or not rows.size:
        ufunc.at(out, indices, rows)
        return out
    if _rise(indices):  # each row alone
        out[indices] = ufunc(out[indices], rows)
        return out
    # one call for each run of equal indices, where `at` makes one for each row
    if (indices[1:] < indices[:-1]).any():
        order = np.argsort(indices, kind="stable")
        indices, rows = indices[order], rows[order]
    begins = np.empty(len(indices), np.bool_)
    begins[0] = True
    np.not_equal(indices[1:], indices[:-1], out=begins[1:])
    starts = begins.nonzero()[0]
    reduced = ufunc.reduceat(rows, starts, axis=0, dtype=rows.dtype)
    at = indices[starts]
    out[at] = ufunc(out[at], reduced)
    return out


def _gather_rows(params: Tensor, ids: Tensor) -> Tensor:
    """params[ids], and zeros where an id is negative."""
    rows = raw.GatherV2(params, raw.Maximum(ids, 0), 0)
    valid = _spread_over(raw.GreaterEqual(ids, 0), rows)
    result: Tensor = raw.SelectV2(valid, rows, np.zeros((), rows.dtype.as_numpy_dtype))
    return result


def _spread_over(mask: Tensor, rows: Tensor) -> Tensor:
    """A mask of the shape of the ids, with dimensions of size 1 for the rest of the rows' shape."""
    if mask.shape.ndims is not None and rows.shape.ndims is not None:
        for _ in range(rows.shape.ndims - mask.shape.ndims):
            mask = raw.ExpandDims(mask, -1)
        return mask
    missing = raw.ExpandDims(raw.Sub(raw.Rank(rows), raw.Rank(mask)), 0)
    result: Tensor = raw.Reshape(mask, raw.ConcatV2([raw.Shape(mask), raw.Fill(missing, 1)], 0))
    return result


def _unsorted_sum_gradient(op: Operation, grad: Tensor) -> Any:
    return _gather_rows(grad, op.inputs[1]), None, None


def _unsorted_extreme_gradient(op: Operation, grad: Tensor) -> Any:
    data, ids, segments = op.inputs
    chosen = raw.Cast(raw.Equal(_gather_rows(op.outputs[0], ids), data), DstT=grad.dtype)
    count = UnsortedSegmentSum(chosen, ids, segments)
    return raw.Mul(chosen, _gather_rows(raw.DivNoNan(grad, count), ids)), None, None


def _unsorted_prod_gradient(op: Operation, grad: Tensor) -> Any:
    data, ids, segments = op.inputs
    others = _product_of_others(
        data,
        lambda x: _gather_rows(UnsortedSegmentProd(x, ids, segments), ids),
        lambda x: _gather_rows(UnsortedSegmentSum(x, ids, segments), ids),
    )
    return raw.Mul(_gather_rows(grad, ids), others), None, None


UnsortedSegmentSum = _unsorted_segments(
    "UnsortedSegmentSum", "add", np.add, lambda dtype: 0, "numbers", _unsorted_sum_gradient
)
UnsortedSegmentProd = _unsorted_segments(
    "UnsortedSegmentProd", "multiply", np.multiply, lambda dtype: 1, "numbers", _unsorted_prod_gradient
)
UnsortedSegmentMax = _unsorted_segments(
    "UnsortedSegmentMax",
    "max",
    np.maximum,
    lambda dtype: as_dtype(np.dtype(dtype)).min,
    "real",
    _unsorted_extreme_gradient,
)
UnsortedSegmentMin = _unsorted_segments(
    "UnsortedSegmentMin",
    "min",
    np.minimum,
    lambda dtype: as_dtype(np.dtype(dtype)).max,
    "real",
    _unsorted_extreme_gradient,
)


# ---------------------------------------------------------------------- chosen rows, sorted ids
_SPARSE_SCALES: dict[str, Callable[[Any, Any], Any]] = {
    "Sum": lambda xp, counts: xp.ones_like(counts),
    "Mean": lambda xp, counts: counts,
    "SqrtN": lambda xp, counts: xp.sqrt(counts),
}


def _sparse_types(kind: str) -> str:
    return "real" if kind == "Sum" else "floating"


_SPARSE_INDEX_ATTRS = "Tidx: index = int32, Tsegmentids: index = int32"


def _sparse_gradient(kind: str) -> Callable[..., Any]:
    def gradient(op: Operation, grad: Tensor) -> Any:
        data, indices, ids = op.inputs[:3]
        rows = raw.StridedSlice(raw.Shape(data), [0], [1], [1], shrink_axis_mask=1)
        rest = [None] * (len(op.inputs) - 1)
        if kind == "Sum":
            return [UnsortedSegmentSum(raw.GatherV2(grad, ids, 0), indices, rows), *rest]
        return [getattr(raw, f"SparseSegment{kind}Grad")(grad, indices, ids, rows), *rest]

    return gradient


def _sparse_segments(kind: str) -> OpFunction:
    """data[indices], reduced over segments: by sum, mean, or sum over the square root of the count."""
    op = define_op(
        f"SparseSegment{kind}",
        "data: T, indices: Tidx, segment_ids: Tsegmentids -> output: T",
        f"T: {_sparse_types(kind)}, {_SPARSE_INDEX_ATTRS}",
        ranks={"indices": 1, "segment_ids": 1},
    )

    @op.shape
    def _(data: TensorShape, indices: TensorShape, segment_ids: TensorShape) -> TensorShape:
        shape_rules.with_rank(indices.merge_with(segment_ids), 1, "argument 'segment_ids'")
        return _rows_shape(data, segment_ids)

    @op.host_kernel
    def _(data: Array, indices: Array, segment_ids: Array, *, ctx: OperationContext) -> Any:
        return _reduce_chosen(ctx, kind, data, indices, segment_ids, _segment_count(segment_ids))

    op.gradient(_sparse_gradient(kind))
    return op


def _reduce_chosen(ctx: OperationContext, kind: str, data: Array, indices: Array, ids: Array, segments: int) -> Any:
    _check_sorted(ctx, ids, indices.size)
    _check_range(np, ctx, indices, len(data), "indices[{0}] == {1}")
    total = _reduce_rows(np.add, data[indices], ids, segments, 0)
    if kind == "Sum":
        return total
    counts = _SPARSE_SCALES[kind](np, _counts(ids, segments).astype(np.float64))
    wide = np.float64 if total.dtype == np.float64 else np.float32
    return _divided(total.astype(wide), counts).astype(total.dtype)


def _sparse_segments_with_count(kind: str) -> OpFunction:
    op = define_op(
        f"SparseSegment{kind}WithNumSegments",
        "data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: Tnumsegments -> output: T",
        f"T: {_sparse_types(kind)}, {_SPARSE_INDEX_ATTRS}, Tnumsegments: index = int32",
        static=("num_segments",),
        ranks={"indices": 1, "segment_ids": 1, "num_segments": 0},
    )

    @op.shape
    def _(
        data: TensorShape,
        indices: TensorShape,
        segment_ids: TensorShape,
        num_segments: TensorShape,
        *,
        ctx: ShapeContext,
    ) -> TensorShape:
        shape_rules.with_rank(indices.merge_with(segment_ids), 1, "argument 'segment_ids'")
        return _segments_shape(ctx.constant("num_segments")).concatenate(data.with_rank_at_least(1)[1:])

    @op.kernel
    def _(
        data: Array, indices: Array, segment_ids: Array, num_segments: Array, *, xp: ArrayLibrary, ctx: OperationContext
    ) -> Any:
        count = int(num_segments)
        ctx.check(indices.shape == segment_ids.shape, "segment_ids and indices should have same size.")
        ctx.check(xp.all(segment_ids >= 0), "segment ids must be >= 0")
        ctx.check(xp.all(segment_ids < count), f"segment ids must be < num_segments = {count}")
        ctx.check(xp.all(segment_ids[1:] >= segment_ids[:-1]), "segment ids are not increasing")
        _check_range(xp, ctx, indices, data.shape[0], "indices[{0}] == {1}")
        rows = xp.take(data, xp.clip(indices, 0, max(data.shape[0] - 1, 0)), axis=0)
        out = xp.zeros((count, *data.shape[1:]), data.dtype)
        total = scatter(xp, out, xp.clip(segment_ids, 0, max(count - 1, 0)), rows, "add", np.add)
        return _scaled(xp, kind, total, segment_ids, count)

    op.gradient(_sparse_gradient(kind))
    return op


def _scaled(xp: ArrayLibrary, kind: str, rows: Array, ids: Array, segments: int) -> Any:
    """Each row over the (square root of the) number of entries of its segment."""
    if kind == "Sum":
        return rows
    return (rows / _row_scale(xp, kind, ids, segments, rows)).astype(rows.dtype)


def _row_scale(xp: ArrayLibrary, kind: str, ids: Array, segments: int, rows: Array) -> Any:
    wide = np.float64 if rows.dtype == np.float64 else np.float32
    counts = scatter(xp, xp.zeros((segments,), wide), ids, xp.ones(ids.shape, wide), "add", np.add)
    return xp.reshape(_SPARSE_SCALES[kind](xp, xp.maximum(counts, 1)), (-1,) + (1,) * (rows.ndim - 1))


def _sparse_segments_grad(kind: str) -> OpFunction:
    op = define_op(
        f"SparseSegment{kind}Grad",
        "grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: int32 -> output: T",
        f"T: floating, {_SPARSE_INDEX_ATTRS}",
        static=("output_dim0",),
        ranks={"indices": 1, "segment_ids": 1, "output_dim0": 0},
    )

    @op.shape
    def _(
        grad: TensorShape,
        indices: TensorShape,
        segment_ids: TensorShape,
        output_dim0: TensorShape,
        *,
        ctx: ShapeContext,
    ) -> TensorShape:
        shape_rules.merged(indices, segment_ids)
        count = ctx.constant("output_dim0")
        return TensorShape([None if count is None else int(count)]).concatenate(grad.with_rank_at_least(1)[1:])

    @op.kernel
    def _(
        grad: Array, indices: Array, segment_ids: Array, output_dim0: Array, *, xp: ArrayLibrary, ctx: OperationContext
    ) -> Any:
        rows, segments = int(output_dim0), grad.shape[0]
        if segment_ids.shape[0]:
            ctx.check(
                segment_ids[-1] < segments,
                f"Invalid number of segments {segments} for the last id {{0}}",
                segment_ids[-1],
            )
        _check_range(xp, ctx, indices, rows, "Index {1}")
        _check_range(xp, ctx, segment_ids, segments, "Segment id {1}")
        ids = xp.clip(segment_ids, 0, max(segments - 1, 0))
        each = xp.take(_scaled(xp, kind, grad, ids, segments), ids, axis=0)
        out = xp.zeros((rows, *grad.shape[1:]), grad.dtype)
        return scatter(xp, out, xp.clip(indices, 0, max(rows - 1, 0)), each, "add", np.add)

    @op.gradient
    def _(operation: Operation, grad: Tensor) -> Any:
        segment_grads, indices, ids = operation.inputs[:3]
        count = raw.StridedSlice(raw.Shape(segment_grads), [0], [1], [1], shrink_axis_mask=1)
        forward = getattr(raw, f"SparseSegment{kind}WithNumSegments")
        return forward(grad, indices, ids, count), None, None, None

    return op


SparseSegmentSum = _sparse_segments("Sum")
SparseSegmentMean = _sparse_segments("Mean")
SparseSegmentSqrtN = _sparse_segments("SqrtN")
SparseSegmentSumWithNumSegments = _sparse_segments_with_count("Sum")
SparseSegmentMeanWithNumSegments = _sparse_segments_with_count("Mean")
SparseSegmentSqrtNWithNumSegments = _sparse_segments_with_count("SqrtN")
SparseSegmentSumGrad = _sparse_segments_grad("Sum")
SparseSegmentMeanGrad = _sparse_segments_grad("Mean")
SparseSegmentSqrtNGrad = _sparse_segments_grad("SqrtN")
