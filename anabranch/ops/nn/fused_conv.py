"""Convolutions of images that are resized, or padded by their mirror image, before."""

from __future__ import annotations

from typing import Any

from jax import numpy as jnp

from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.ops import shape_rules
from anabranch.ops.arrays.padding import check_mirror, mirrored_shape
from anabranch.ops.images.resize import bilinear, resized_shape
from anabranch.ops.nn import windows
from anabranch.ops.nn.conv import Geometry

_ATTRS = "mode: {'REFLECT', 'SYMMETRIC'}, strides: list(int), padding: {'SAME', 'VALID'}"


def _convolved_shape(data: TensorShape, filter: TensorShape, strides: list[int], padding: bytes) -> TensorShape:
    layout = windows.layout_of(b"NHWC")
    kernel = shape_rules.with_rank(filter, 4, "the filter")
    steps = windows.per_axis(strides, layout, "strides")
    if steps[0] != 1 or steps[3] != 1 or min(steps) < 1:
        raise ValueError(f"strides must be positive, and 1 for the batch and the channels, got {strides}")
    shape_rules.merged(data[3:], kernel[2:3])
    dims, size = data.dims_tuple or (None,) * 4, kernel.dims_tuple or (None,) * 4
    lengths = [windows.output_length(dims[a], size[a - 1], steps[a], padding) for a in (1, 2)]
    return layout.shape(dims[0], size[3], lengths)


def _convolved(data: Array, filter: Array, paddings: Array, ctx: OperationContext) -> Any:
    attrs = ctx.op.attrs
    pairs = [(int(before), int(after)) for before, after in paddings]
    check_mirror(data.shape, pairs, attrs["mode"])
    padded = jnp.pad(data, pairs, mode=attrs["mode"].decode().lower())
    if padded.shape[3] != filter.shape[2]:
        raise ValueError(f"the filter is for {filter.shape[2]} channels, but the padded input has {padded.shape[3]}")
    given = {
        "strides": attrs["strides"],
        "padding": attrs["padding"],
        "dilations": [1, 1, 1, 1],
        "data_format": b"NHWC",
    }
    return Geometry(given, padded.shape, filter.shape, depthwise=False).convolve(padded, filter)


FusedPadConv2D = define_op(
    "FusedPadConv2D",
    "input: T, paddings: int32, filter: T -> output: T",
    f"T: {{half, bfloat16, float, double}}, {_ATTRS}",
    static=("paddings",),
    ranks={"input": 4, "paddings": 2, "filter": 4},
)
FusedPadConv2D.not_differentiable()


@FusedPadConv2D.shape
def _(
    input: TensorShape,
    paddings: TensorShape,
    filter: TensorShape,
    *,
    mode: bytes,
    strides: list[int],
    padding: bytes,
    ctx: ShapeContext,
) -> TensorShape:
    padded = mirrored_shape(input.with_rank(4), paddings, ctx.constant("paddings"), mode)
    return _convolved_shape(padded, filter, strides, padding)


@FusedPadConv2D.kernel
def _(input: Array, paddings: Array, filter: Array, *, ctx: OperationContext) -> Any:
    return _convolved(input, filter, paddings, ctx)


FusedResizeAndPadConv2D = define_op(
    "FusedResizeAndPadConv2D",
    "input: T, size: int32, paddings: int32, filter: T -> output: T",
    f"T: {{half, float, double}}, resize_align_corners: bool = False, {_ATTRS}",
    static=("size", "paddings"),
    ranks={"input": 4, "size": 1, "paddings": 2, "filter": 4},
)
FusedResizeAndPadConv2D.not_differentiable()


@FusedResizeAndPadConv2D.shape
def _(
    input: TensorShape,
    size: TensorShape,
    paddings: TensorShape,
    filter: TensorShape,
    *,
    mode: bytes,
    strides: list[int],
    padding: bytes,
    ctx: ShapeContext,
) -> TensorShape:
    resized = resized_shape(input, size, ctx=ctx)
    padded = mirrored_shape(resized, paddings, ctx.constant("paddings"), mode)
    return _convolved_shape(padded, filter, strides, padding)


@FusedResizeAndPadConv2D.kernel
def _(
    input: Array, size: Array, paddings: Array, filter: Array, *, resize_align_corners: bool, ctx: OperationContext
) -> Any:
    resized = bilinear(input, size, resize_align_corners).astype(input.dtype)
    return _convolved(resized, filter, paddings, ctx)
