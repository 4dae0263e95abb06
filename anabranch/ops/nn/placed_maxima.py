"""Maximum pooling that writes down where it found its maxima, and the gradient that takes that.

`passes.placed_maxima` puts them in place of pooling and of its gradient. What the places look like is the affair of the
kernels: a library has its own form, and the operation's own kernel, which finds them again, writes down nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.ops.nn import windows
from anabranch.ops.nn.pool import checked_window, largest_seen, pool_window, to_first_hit

_ATTRS = (
    "T: {bfloat16, float} = float32, ksize: list(int) >= 4, strides: list(int) >= 4, "
    "padding: {'SAME', 'VALID', 'EXPLICIT'}, explicit_paddings: list(int) = [], "
    "data_format: {'NHWC', 'NCHW'} = 'NHWC'"
)

MaxPoolWithPlaces = define_op("_MaxPoolWithPlaces", "input: T -> output: T, places: uint8", _ATTRS)
MaxPoolWithPlaces.not_differentiable()

MaxPoolGradAtPlaces = define_op(
    "_MaxPoolGradAtPlaces", "orig_input: T, orig_output: T, grad: T, places: uint8 -> output: T", _ATTRS
)
MaxPoolGradAtPlaces.not_differentiable()


@MaxPoolWithPlaces.shape
def _(
    data: TensorShape,
    *,
    ksize: list[int],
    strides: list[int],
    padding: bytes,
    explicit_paddings: list[int],
    data_format: bytes,
) -> Any:
    pooled = windows.pooled_shape(data, ksize, strides, padding, data_format, explicit_paddings)
    return [pooled, TensorShape([None])]


@MaxPoolWithPlaces.kernel
def _(input: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    return [largest_seen(xp, input, pool_window(input.shape, ctx.op.attrs)), np.zeros(0, np.uint8)]


@MaxPoolGradAtPlaces.shape
def _(orig_input: TensorShape, orig_output: TensorShape, grad: TensorShape, places: TensorShape) -> Any:
    orig_output.assert_is_compatible_with(grad)
    return orig_input


@MaxPoolGradAtPlaces.kernel
def _(
    orig_input: Array, orig_output: Array, grad: Array, places: Array, *, xp: ArrayLibrary, ctx: OperationContext
) -> Any:
    return to_first_hit(xp, orig_input, orig_output, grad, checked_window(orig_input, orig_output, ctx.op.attrs))
