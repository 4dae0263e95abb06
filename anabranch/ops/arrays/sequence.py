"""Sequences of numbers, and counting numbers by value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary, HostArray
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.step_nodes import StepNode
from anabranch.ops import shape_rules

# ---------------------------------------------------------------------- Range, LinSpace
Range = define_op(
    "Range",
    "start: Tidx, limit: Tidx, delta: Tidx -> output: Tidx",
    "Tidx: {floating, int8, int16, int32, int64, uint16, uint32, uint64} = int32",
    static=("start", "limit", "delta"),
    ranks={"start": 0, "limit": 0, "delta": 0},
)
Range.not_differentiable()


def _range_length(start: Array, limit: Array, delta: Array) -> int:
    if np.asarray(start).dtype.kind in "iu":
        return max(0, -((int(start) - int(limit)) // int(delta)))
    return max(0, int(np.ceil((float(limit) - float(start)) / float(delta))))


def _range_problem(start: Array, limit: Array, delta: Array) -> str | None:
    if any(np.ndim(v) for v in (start, limit, delta)):
        return "start, limit and delta must be scalars"
    if not np.isfinite(float(start)) or not np.isfinite(float(limit)) or np.isnan(float(delta)):
        return f"Requires finite start and limit, and a delta that is a number, got {start}, {limit} and {delta}"
    if delta == 0:
        return f"Requires delta != 0, for the numbers from {start} to {limit}"
    if delta > 0 and start > limit:
        return f"Requires start <= limit when delta > 0: {start}/{limit}"
    if delta < 0 and start < limit:
        return f"Requires start >= limit when delta < 0: {start}/{limit}"
    return None


@Range.shape
def _(start: TensorShape, limit: TensorShape, delta: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    values = [ctx.constant(name) for name in ("start", "limit", "delta")]
    if any(v is None for v in values):
        return TensorShape([None])
    problem = _range_problem(*values)
    if problem is not None:
        raise ValueError(problem)
    return TensorShape([_range_length(*values)])


@Range.kernel
def _(start: Array, limit: Array, delta: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    dtype = np.asarray(start).dtype
    if xp is np and dtype.kind == "i" and not any(np.ndim(v) for v in (start, limit, delta)):
        first, end, step = int(start), int(limit), int(delta)
        if (step > 0 and first <= end) or (step < 0 and first >= end):
            return np.arange(first, end, step, np.int64).astype(dtype, copy=False)
    problem = _range_problem(start, limit, delta)
    ctx.check(problem is None, problem or "")
    count = _range_length(start, limit, delta)
    if dtype.kind in "iu":
        return (int(start) + xp.arange(count, dtype=np.int64) * int(delta)).astype(dtype)
    steps = np.arange(count)  # always in NumPy: a compiled program may round product and sum together
    wide = np.float64 if dtype == np.float64 else np.float32
    return (np.asarray(start).astype(wide) + steps.astype(wide) * np.asarray(delta).astype(wide)).astype(dtype)


LinSpace = define_op(
    "LinSpace",
    "start: T, stop: T, num: Tidx -> output: T",
    "T: floating, Tidx: index = int32",
    static=("num",),
    ranks={"start": 0, "stop": 0, "num": 0},
)
LinSpace.not_differentiable()


@LinSpace.shape
def _(start: TensorShape, stop: TensorShape, num: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    count = ctx.constant("num")
    if count is not None and count <= 0:
        raise ValueError(f"Requires num > 0: {count}")
    return TensorShape([None if count is None else int(count)])


@LinSpace.kernel
def _(start: Array, stop: Array, num: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    count = int(num)
    ctx.check(count > 0, f"Requires num > 0: {count}")
    if count == 1:
        return xp.reshape(start, (1,))
    at = xp.arange(count, dtype=start.dtype)
    inner = start + at * ((stop - start) / xp.asarray(count - 1, dtype=start.dtype))
    return xp.where(at == 0, start, xp.where(at == count - 1, stop, inner))


# ---------------------------------------------------------------------- counting
Bincount = define_op(
    "Bincount",
    "arr: int32, size: int32, weights: T -> bins: T",
    "T: {int32, int64, float32, float64}",
    static=("size",),
)
Bincount.not_differentiable()


@Bincount.shape
def _(arr: TensorShape, size: TensorShape, weights: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    shape_rules.with_rank(size, 0, "argument 'size'")
    count = ctx.constant("size")
    if count is not None and count < 0:
        raise ValueError(f"size {count} must be non-negative")
    return TensorShape([None if count is None else int(count)])


@Bincount.kernel
def _(arr: Array, size: Array, weights: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    """Values from `size` on are not counted; without weights each value counts 1. Weights are taken in their order, as
    TensorFlow does, whatever their shape.
    """
    count = int(size)
    ctx.check(count >= 0, f"size {count} must be non-negative")
    ctx.check(xp.all(arr >= 0), "Input arr must be non-negative, but the smallest value is {0}", xp.min(arr, initial=0))
    fits = weights.size in (0, arr.size)
    ctx.check(fits, f"weights of shape {tuple(weights.shape)} do not match values of shape {tuple(arr.shape)}")
    flat = xp.reshape(arr, (-1,))
    each = xp.reshape(weights, (-1,)) if weights.size else xp.ones(flat.shape, weights.dtype)
    counted = xp.where(flat < count, flat, count)
    return scatter_add(xp, count + 1, counted, each)[:count]


def scatter_add(xp: ArrayLibrary, size: int, indices: Array, values: Array) -> Any:
    """A vector of `size` zeros to which values[i] is added at indices[i]."""
    zeros = xp.zeros((size,), values.dtype)
    if xp is jnp:
        return zeros.at[indices].add(values)
    np.add.at(zeros, indices, values)
    return zeros


Bucketize = define_op(
    "Bucketize",
    "input: T -> output: int32",
    "T: {int32, int64, float, double}, boundaries: list(float)",
    exact=True,
)
Bucketize.shape(shape_rules.same_as_first)
Bucketize.not_differentiable()


@Bucketize.kernel
def _(input: Array, *, boundaries: list[float], xp: ArrayLibrary, ctx: OperationContext) -> Any:
    """The number of boundaries that are not greater than each value."""
    ctx.check(sorted(boundaries) == boundaries, f"the boundaries must be sorted, got {boundaries}")
    limits = np.array(boundaries, np.float32)
    wide = input if np.dtype(input.dtype).kind == "f" else input.astype(np.float64)
    return xp.searchsorted(xp.asarray(limits.astype(wide.dtype)), wide, side="right").astype(np.int32)


@Bucketize.when_known
def _(op: StepNode) -> Callable[[HostArray], HostArray] | None:
    boundaries: list[float] = op.attrs["boundaries"]
    if sorted(boundaries) != boundaries:
        return None  # the kernel refuses them
    dtype = np.dtype(op.inputs[0].dtype.as_numpy_dtype)
    limits = np.array(boundaries, np.float32).astype(dtype if dtype.kind == "f" else np.float64)

    def buckets(array: HostArray) -> HostArray:
        return limits.searchsorted(array, "right").astype(np.int32)

    return buckets


HistogramFixedWidth = define_op(
    "HistogramFixedWidth",
    "values: T, value_range: T, nbins: int32 -> out: dtype",
    "T: {int32, int64, float32, float64}, dtype: {int32, int64} = int32",
    static=("nbins",),
)
HistogramFixedWidth.not_differentiable()


@HistogramFixedWidth.shape
def _(values: TensorShape, value_range: TensorShape, nbins: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    edges = shape_rules.with_rank(value_range, 1, "argument 'value_range'")
    if not edges[0].is_compatible_with(2):
        raise ValueError(f"Dimension must be 2 but is {edges[0]} in the argument 'value_range'")
    shape_rules.with_rank(nbins, 0, "argument 'nbins'")
    count = ctx.constant("nbins")
    if count is not None and count <= 0:
        raise ValueError(f"Requires nbins > 0, got {count}")
    return TensorShape([None if count is None else int(count)])


@HistogramFixedWidth.kernel
def _(values: Array, value_range: Array, nbins: Array, *, dtype: DType, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    """Values outside the range are counted in the first and the last bin."""
    count = int(nbins)
    ctx.check(count > 0, f"Requires nbins > 0, got {count}")
    low, high = value_range[0], value_range[1]
    ctx.check(low < high, "the range must be increasing, got {0}", value_range)
    if np.dtype(values.dtype).kind == "f":
        ctx.check(~xp.any(xp.isnan(values)), "values must not contain NaN")
    wide = np.float64 if np.dtype(values.dtype) != np.float32 else np.float32
    scaled = (xp.reshape(values, (-1,)).astype(wide) - low) / ((high - low).astype(wide) / count)
    bins = xp.clip(xp.floor(scaled), 0, count - 1).astype(np.int32)
    return scatter_add(xp, count, bins, xp.ones(bins.shape, dtype.as_numpy_dtype))
