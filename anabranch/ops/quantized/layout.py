"""Quantised tensors joined, reshaped and resized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.ops import shape_rules
from anabranch.ops.arrays.array import Reshape
from anabranch.ops.arrays.joining import concat_shape
from anabranch.ops.images.resize import coordinates
from anabranch.ops.quantized import steps

# ---------------------------------------------------------------------- joining
_RANGES = "input_mins: N * float, input_maxes: N * float -> output: T, output_min: float, output_max: float"


def _joined(
    values: list[Array], axis: Array, mins: list[Array], maxes: list[Array], dtype: DType, ctx: OperationContext
) -> Any:
    """The values one after the other, each moved to a range that has all of them, and zero, in it."""
    if not dtype.is_quantized:
        raise InvalidArgumentError(None, ctx.op, f"tf.concat joins tensors of the dtype {dtype.name}")
    at, rank = int(axis), values[0].ndim
    if not 0 <= at < rank:
        raise InvalidArgumentError(
            None, ctx.op, f"Expected concatenating dimensions in the range [0, {rank}), but got {at}"
        )
    if len({(*v.shape[:at], *v.shape[at + 1 :], v.ndim) for v in values}) > 1:
        raise InvalidArgumentError(
            None, ctx.op, f"Dimensions of inputs should match, besides {at}: {[v.shape for v in values]}"
        )
    ends = [(np.float32(a), np.float32(b)) for a, b in zip(mins, maxes, strict=True)]
    least, most = _common_range(mins, maxes, dtype)
    parts = [
        integers if end == (least, most) else steps.moved(integers, (*end, dtype), (least, most, dtype))
        for integers, end in zip(map(steps.integers_of, values), ends, strict=True)
    ]
    return steps.quantised(steps.library_of(parts[0]).concatenate(parts, axis=at), dtype), least, most


def _common_range(mins: Sequence[Array], maxes: Sequence[Array], dtype: DType) -> tuple[Any, Any]:
    """A range that has the given ones, and zero, in it; that of a signed dtype is as long below zero as above."""
    least, most = min(np.float32(0), *map(np.float32, mins)), max(map(np.float32, maxes))
    if steps.limits(dtype)[0] < 0:
        most = max(abs(least), abs(most))
        least = -most
    return least, most


def _early_range(attrs: Mapping[str, Any], inputs: Sequence[Any]) -> Mapping[int, Any]:
    """The range of what is joined: outputs 1 and 2."""
    count, dtype = attrs["N"], attrs["T"]
    mins, maxes = inputs[-2 * count : -count], inputs[-count:]
    if not dtype.is_quantized or any(end is None for end in (*mins, *maxes)):
        return {}
    return {at: np.asarray(end) for at, end in enumerate(_common_range(mins, maxes, dtype), start=1)}


def _check_scalars(*shapes: Sequence[TensorShape]) -> None:
    shape_rules.merged(shape_rules.SCALAR, *(s for group in shapes for s in group))


QuantizedConcat = define_op(
    "QuantizedConcat",
    f"concat_dim: int32, values: N * T, {_RANGES}",
    "N: int >= 2, T: any",
    ranks={"concat_dim": 0},
    static=("concat_dim", "input_mins", "input_maxes"),
    takes_quantised=True,
)
QuantizedConcat.not_differentiable()
QuantizedConcat.early_outputs(_early_range)


@QuantizedConcat.shape
def _(
    concat_dim: TensorShape,
    values: list[TensorShape],
    input_mins: list[TensorShape],
    input_maxes: list[TensorShape],
    *,
    ctx: ShapeContext,
) -> list[TensorShape]:
    _check_scalars(input_mins, input_maxes)
    return steps.with_scalars(concat_shape(values, ctx.constant("concat_dim")))


@steps.everywhere(QuantizedConcat)
def _(
    concat_dim: Array,
    values: list[Any],
    input_mins: list[Any],
    input_maxes: list[Any],
    *,
    T: DType,
    ctx: OperationContext,
) -> Any:
    return _joined(values, concat_dim, input_mins, input_maxes, T, ctx)


# What TensorFlow 2 writes.
QuantizedConcatV2 = define_op(
    "QuantizedConcatV2",
    f"values: N * T, axis: Tidx, {_RANGES}",
    "N: int >= 2, T: any, Tidx: {int32, int64} = int32",
    ranks={"axis": 0},
    static=("axis", "input_mins", "input_maxes"),
    takes_quantised=True,
)
QuantizedConcatV2.not_differentiable()
QuantizedConcatV2.early_outputs(_early_range)


@QuantizedConcatV2.shape
def _(
    values: list[TensorShape],
    axis: TensorShape,
    input_mins: list[TensorShape],
    input_maxes: list[TensorShape],
    *,
    ctx: ShapeContext,
) -> list[TensorShape]:
    _check_scalars(input_mins, input_maxes)
    return steps.with_scalars(concat_shape(values, ctx.constant("axis")))


@steps.everywhere(QuantizedConcatV2)
def _(
    values: list[Any], axis: Array, input_mins: list[Any], input_maxes: list[Any], *, T: DType, ctx: OperationContext
) -> Any:
    return _joined(values, axis, input_mins, input_maxes, T, ctx)


# ---------------------------------------------------------------------- reshaping
QuantizedReshape = define_op(
    "QuantizedReshape",
    "tensor: T, shape: Tshape, input_min: float, input_max: float -> output: T, output_min: float, output_max: float",
    "T: any, Tshape: {int32, int64} = int32",
    ranks={"shape": 1, "input_min": 0, "input_max": 0},
    static=("shape",),
    takes_quantised=True,
)
QuantizedReshape.not_differentiable()
QuantizedReshape.early_outputs(steps.passed_on({1: 2, 2: 3}))


@QuantizedReshape.shape
def _(tensor: TensorShape, shape: TensorShape, *_: TensorShape, ctx: ShapeContext) -> list[TensorShape]:
    rule = Reshape.shape_rule
    assert rule is not None
    return steps.with_scalars(rule.function(tensor, shape, ctx=ctx))


@steps.everywhere(QuantizedReshape)
def _(tensor: Array, shape: Array, input_min: Array, input_max: Array, *, ctx: OperationContext) -> Any:
    rule = Reshape.compiled_rule
    assert rule is not None
    return rule.function(tensor, shape, xp=steps.library_of(tensor), ctx=ctx), input_min, input_max


# ---------------------------------------------------------------------- resizing
QuantizedResizeBilinear = define_op(
    "QuantizedResizeBilinear",
    "images: T, size: int32, min: float, max: float -> resized_images: T, out_min: float, out_max: float",
    "T: {quint8, qint32, float}, align_corners: bool = False, half_pixel_centers: bool = False",
    ranks={"images": 4, "size": 1, "min": 0, "max": 0},
)
QuantizedResizeBilinear.not_differentiable()
#: bits of the weights of two neighbours
_WEIGHT_BITS = {"quint8": 7, "qint32": 30}


@QuantizedResizeBilinear.shape
def _(images: TensorShape, size: TensorShape, *_: TensorShape, ctx: ShapeContext) -> list[TensorShape]:
    shape_rules.merged(size, TensorShape([2]))
    wanted = ctx.constant("size")
    rows, columns = (None, None) if wanted is None else (int(wanted[0]), int(wanted[1]))
    dims = images.dims_tuple or (None,) * 4
    return steps.with_scalars(TensorShape([dims[0], rows, columns, dims[3]]))


@QuantizedResizeBilinear.host_kernel
def _(
    images: Array,
    size: Array,
    min: Array,
    max: Array,
    *,
    T: DType,
    align_corners: bool,
    half_pixel_centers: bool,
    ctx: OperationContext,
) -> Any:
    if size.shape != (2,) or (size <= 0).any():
        raise InvalidArgumentError(
            None, ctx.op, f"output dimensions must be positive, two of them, got {size.tolist()}"
        )
    if images.ndim != 4 or not (images.shape[1] and images.shape[2]):
        raise InvalidArgumentError(
            None, ctx.op, f"images must be [batch, rows, columns, channels] with pixels in them, got {images.shape}"
        )
    x = steps.integers_of(images)
    rows, columns = (coordinates(x.shape[a], int(size[a - 1]), align_corners, half_pixel_centers) for a in (1, 2))
    if x.shape[1:3] != (len(rows), len(columns)):
        x = _resized(x, rows, columns, T)
    return steps.quantised(x, T), min, max


def _resized(x: HostArray, rows: HostArray, columns: HostArray, dtype: DType) -> HostArray:
    top, bottom, down = _neighbours(rows, x.shape[1])
    left, right, across = _neighbours(columns, x.shape[2])
    corners = [x[:, r][:, :, c] for r in (top, bottom) for c in (left, right)]
    down, across = down[:, None, None], across[:, None]
    if not dtype.is_quantized:
        upper, lower = (a + (b - a) * across for a, b in (corners[:2], corners[2:]))
        return np.asarray(upper + (lower - upper) * down)
    # TensorFlow's quantised numbers of 32 bits become larger integers by way of float32
    corners = [corner.astype(np.float32).astype(np.int64) for corner in corners]
    one = 1 << _WEIGHT_BITS[dtype.name]
    down, across = ((w * np.float32(one)).astype(np.int64) for w in (down, across))
    upper, lower = (a * one + (b - a) * across for a, b in (corners[:2], corners[2:]))
    return _divided(upper + _divided(lower - upper, one) * down + one // 2, one)


def _divided(x: HostArray, by: int) -> HostArray:
    """Integer division towards zero."""
    return np.asarray(np.sign(x) * (np.abs(x) // by))


def _neighbours(at: HostArray, length: int) -> tuple[HostArray, HostArray, HostArray]:
    """Of places between pixels: the pixel before, that after, and the weight of that after."""
    below = np.floor(at)
    before = np.maximum(below, 0).astype(np.int64)
    return before, np.minimum(np.ceil(at), length - 1).astype(np.int64), at - below
