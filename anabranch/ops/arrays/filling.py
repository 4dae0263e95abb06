"""Tensors of one number, of zeros, of ones; numbers repeated along axes; one-hot vectors."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary, ElementType, HostArray
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape, broadcast_dims
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext, partial_vector
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arrays.array import Rank, Reshape, Shape
from anabranch.ops.lists.values import TensorList

#: copies of one number up to so many are stored in the time in which NumPy makes a view that repeats it
_FILLED_AT_ONCE: Final = 1 << 12


def zero_of(dtype: ElementType) -> Any:
    """What an element of a NumPy dtype is when nothing was put there: zero, or the empty string."""
    return b"" if np.dtype(dtype) == np.object_ else np.zeros((), dtype)


Fill = define_op(
    "Fill",
    "dims: index_type, value: T -> output: T",
    "T: any, index_type: {int32, int64} = int32",
    static=("dims",),
    ranks={"dims": 1, "value": 0},
    shaped_by="dims",
)


@Fill.shape
def _(dims: TensorShape, value: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    sizes = ctx.constant("dims")
    if sizes is not None and sizes.min(initial=0) < 0:
        raise ValueError(f"Fill dimensions must be >= 0, got {sizes.tolist()}")
    shape: TensorShape = ctx.constant_as_shape("dims")
    return shape


@Fill.kernel
def _(dims: Array, value: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    sizes = [int(d) for d in np.asarray(dims)]
    ctx.check(min(sizes, default=0) >= 0, f"the dimensions of a tensor must not be negative, got {sizes}")
    return _filled(sizes, value) if xp is np and np.size(value) == 1 else xp.full(sizes, value, dtype=value.dtype)


@Fill.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return None, raw.Sum(grad, raw.Range(0, Rank(grad), 1))


ZerosLike = define_op("ZerosLike", "x: T -> y: T", "T: any", knows_objects=True, ignores_values=True)
ZerosLike.shape(shape_rules.same_as_first)
ZerosLike.not_differentiable()


@ZerosLike.kernel
def _(x: Array, *, xp: ArrayLibrary) -> Any:
    if isinstance(x, TensorList):
        return x.to_host().zeroed() if xp is np else x.zeroed()
    if x.dtype == np.object_ and x.ndim == 0 and hasattr(x.item(), "zeroed"):  # an optional
        return x.item().zeroed()
    return xp.full(np.shape(x), zero_of(x.dtype), dtype=x.dtype)


OnesLike = define_op(
    "OnesLike",
    "x: T -> y: T",
    "T: {floating, integers, complex, bool}",
    ignores_values=True,
)
OnesLike.shape(shape_rules.same_as_first)
OnesLike.not_differentiable()


@OnesLike.kernel
def _(x: Array, *, xp: ArrayLibrary) -> Any:
    return xp.ones(np.shape(x), dtype=x.dtype)


BroadcastTo = define_op(
    "BroadcastTo",
    "input: T, shape: Tidx -> output: T",
    "T: any, Tidx: {int32, int64} = int32",
    static=("shape",),
    shaped_by="shape",
    ranks={"shape": 1},
)


@BroadcastTo.shape
def _(input: TensorShape, shape: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    target: TensorShape = ctx.constant_as_shape("shape")
    dims, wanted = input.dims_tuple, target.dims_tuple
    if dims is None or wanted is None:
        return target
    if len(dims) > len(wanted):
        raise ValueError(f"shape {input} does not broadcast to shape {target}: its rank is larger")
    if any(d not in (None, 1, w) and w is not None for d, w in zip(reversed(dims), reversed(wanted), strict=False)):
        raise ValueError(f"shape {input} does not broadcast to shape {target}")
    return target


@BroadcastTo.kernel
def _(input: Array, shape: Array, *, xp: ArrayLibrary) -> Any:
    sizes: list[int] = np.asarray(shape).tolist()
    if xp is np and np.size(input) == 1 and np.ndim(input) <= len(sizes) and math.prod(sizes) <= _FILLED_AT_ONCE:
        return _filled(sizes, input)
    return xp.broadcast_to(input, sizes)


def _filled(sizes: list[int], value: Array) -> HostArray:
    """As `numpy.full` of a tensor with one element, without NumPy's functions in Python."""
    out = np.empty(sizes, value.dtype)
    out[...] = value
    return out


@BroadcastTo.gradient
def _(op: Operation, grad: Tensor) -> Any:
    source, shape = op.inputs
    axes, _ = raw.BroadcastGradientArgs(Shape(source, out_type=shape.dtype), shape)
    return Reshape(raw.Sum(grad, axes), Shape(source)), None


BroadcastArgs = define_op("BroadcastArgs", "s0: T, s1: T -> r0: T", "T: {int32, int64} = int32", static=("s0", "s1"))
BroadcastArgs.not_differentiable()


@BroadcastArgs.shape
def _(s0: TensorShape, s1: TensorShape) -> TensorShape:
    ranks = [shape_rules.with_rank(s, 1, "a shape")[0].value for s in (s0, s1)]
    return TensorShape([None if None in ranks else max(r for r in ranks if r is not None)])


@BroadcastArgs.kernel
def _(s0: Array, s1: Array, *, xp: ArrayLibrary) -> Any:
    dims = broadcast_dims(tuple(int(d) for d in s0), tuple(int(d) for d in s1))
    return np.array(dims, s0.dtype)


OneHot = define_op(
    "OneHot",
    "indices: TI, depth: int32, on_value: T, off_value: T -> output: T",
    "axis: int = -1, T: any, TI: {uint8, int8, int32, int64} = int64",
    static=("depth",),
    late_ranks={"depth": 0, "on_value": 0, "off_value": 0},
)
OneHot.not_differentiable()


@OneHot.shape
def _(
    indices: TensorShape,
    depth: TensorShape,
    on_value: TensorShape,
    off_value: TensorShape,
    *,
    axis: int,
    ctx: ShapeContext,
) -> TensorShape:
    known = partial_vector(ctx.tensor("depth"))
    dims = indices.dims_tuple
    if dims is None:
        return TensorShape(None)
    if not -1 <= axis <= len(dims):
        raise ValueError(f"axis {axis} not in [-1, {len(dims)}]")
    at = len(dims) if axis == -1 else axis
    return TensorShape([*dims[:at], known[0] if known else None, *dims[at:]])


@OneHot.kernel
def _(
    indices: Array,
    depth: Array,
    on_value: Array,
    off_value: Array,
    *,
    axis: int,
    ctx: OperationContext,
    xp: ArrayLibrary,
) -> Any:
    count = int(np.reshape(depth, ()))
    ctx.check(count >= 0, f"depth must be non-negative, got: {count}")
    rank = len(np.shape(indices))
    at = rank if axis == -1 else axis
    classes = np.arange(count, dtype=np.int64).reshape((count, *[1] * (rank - at)))
    hit = xp.expand_dims(indices, at).astype(np.int64) == classes
    return xp.where(hit, on_value, off_value)
