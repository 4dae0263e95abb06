"""Batch normalization in training followed by ReLU, as one operation, and its gradient; with a sum between them, too.

`passes.fused_relu` puts them in place of the operations of which they consist. All is computed in one pass over the
data, and the gradients in another. What is added is, in a residual network, what went around the layer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules
from anabranch.ops.nn.activations import where_positive
from anabranch.ops.nn.normalization import FORMATS, fused_backward, fused_channels, fused_forward

_RESERVED = "reserve_space_1: U, reserve_space_2: U, reserve_space_3: U"
_OUTPUTS = f"y: T, batch_mean: U, batch_variance: U, {_RESERVED}, positive: uint8"
_TYPES = f"T: {{half, bfloat16, float}}, U: {{float}}, epsilon: float = 0.0001, {FORMATS}, is_training: bool = True"

FusedBatchNormRelu = define_op(
    "_FusedBatchNormRelu",
    f"x: T, scale: U, offset: U, mean: U, variance: U -> {_OUTPUTS}",
    f"{_TYPES}, exponential_avg_factor: float = 1.0",
)
FusedBatchNormRelu.not_differentiable()

FusedBatchNormAddRelu = define_op(
    "_FusedBatchNormAddRelu",
    f"x: T, scale: U, offset: U, mean: U, variance: U, side: T -> {_OUTPUTS}",
    f"{_TYPES}, exponential_avg_factor: float = 1.0",
)
FusedBatchNormAddRelu.not_differentiable()

FusedBatchNormReluGrad = define_op(
    "_FusedBatchNormReluGrad",
    "y_backprop: T, x: T, scale: U, reserve_space_1: U, reserve_space_2: U, y: T, positive: uint8 -> "
    "x_backprop: T, scale_backprop: U, offset_backprop: U, reserve_space_3: U, reserve_space_4: U",
    _TYPES,
)
FusedBatchNormReluGrad.not_differentiable()

FusedBatchNormAddReluGrad = define_op(
    "_FusedBatchNormAddReluGrad",
    "y_backprop: T, x: T, scale: U, reserve_space_1: U, reserve_space_2: U, y: T, positive: uint8 -> "
    "x_backprop: T, scale_backprop: U, offset_backprop: U, reserve_space_3: U, reserve_space_4: U, side_backprop: T",
    _TYPES,
)
FusedBatchNormAddReluGrad.not_differentiable()


@FusedBatchNormRelu.shape
def _(x: TensorShape, scale: TensorShape, offset: TensorShape, *_: TensorShape, data_format: bytes) -> Any:
    """`positive` is for the kernel of the gradient alone: where y is, in the form in which a library writes it down."""
    data, channels = fused_channels(x, data_format, scale, offset)
    return [data, *([channels] * 4), shape_rules.SCALAR, TensorShape([None])]


@FusedBatchNormRelu.kernel
def _(
    x: Array, scale: Array, offset: Array, mean: Array, variance: Array, *, xp: ArrayLibrary, ctx: OperationContext
) -> Any:
    y, *vectors = fused_forward(xp, x, scale, offset, mean, variance, ctx.op.attrs)
    y = np.maximum(y, y.dtype.type(0), out=y) if xp is np else xp.maximum(y, y.dtype.type(0))
    vectors = [vector.astype(scale.dtype) for vector in vectors]
    return [y, *vectors, np.zeros((), scale.dtype), np.zeros(0, np.uint8)]


@FusedBatchNormAddRelu.shape
def _(x: TensorShape, scale: TensorShape, offset: TensorShape, *rest: TensorShape, data_format: bytes) -> Any:
    """What is open when a step is rewritten may turn out to be repeated, as in a sum."""
    data, channels = fused_channels(x, data_format, scale, offset)
    side = rest[-1]
    return [shape_rules.broadcast(data, side), *([channels] * 4), shape_rules.SCALAR, TensorShape([None])]


@FusedBatchNormAddRelu.kernel
def _(
    x: Array,
    scale: Array,
    offset: Array,
    mean: Array,
    variance: Array,
    side: Array,
    *,
    xp: ArrayLibrary,
    ctx: OperationContext,
) -> Any:
    y, *vectors = fused_forward(xp, x, scale, offset, mean, variance, ctx.op.attrs)
    y = xp.maximum(y + side, y.dtype.type(0))
    vectors = [vector.astype(scale.dtype) for vector in vectors]
    return [y, *vectors, np.zeros((), scale.dtype), np.zeros(0, np.uint8)]


@FusedBatchNormReluGrad.shape
def _(grad: TensorShape, x: TensorShape, scale: TensorShape, *vectors: TensorShape, data_format: bytes) -> Any:
    data, channels = fused_channels(x.merge_with(grad), data_format, scale, *vectors[:2])
    return [data, channels, channels, TensorShape([0]), TensorShape([0])]


@FusedBatchNormReluGrad.kernel
def _(
    grad: Array,
    x: Array,
    scale: Array,
    mean: Array,
    variance: Array,
    y: Array,
    positive: Array,
    *,
    xp: ArrayLibrary,
    ctx: OperationContext,
) -> Any:
    return _backward(grad, x, scale, mean, variance, y, xp, ctx)[1]


def _backward(
    grad: Array,
    x: Array,
    scale: Array,
    mean: Array,
    variance: Array,
    y: Array,
    xp: ArrayLibrary,
    ctx: OperationContext,
) -> tuple[Any, list[Any]]:
    """What the ReLU's gradient passes on, and the outputs of the normalization's."""
    steep = where_positive(xp, grad, y, ctx, (0, 5))
    grads = fused_backward(xp, steep, x, scale, mean, variance, ctx.op.attrs)
    return steep, [*grads, np.zeros(0, mean.dtype), np.zeros(0, mean.dtype)]


@FusedBatchNormAddReluGrad.shape
def _(grad: TensorShape, x: TensorShape, scale: TensorShape, *vectors: TensorShape, data_format: bytes) -> Any:
    data, channels = fused_channels(x.merge_with(grad), data_format, scale, *vectors[:2])
    return [data, channels, channels, TensorShape([0]), TensorShape([0]), data]


@FusedBatchNormAddReluGrad.kernel
def _(
    grad: Array,
    x: Array,
    scale: Array,
    mean: Array,
    variance: Array,
    y: Array,
    positive: Array,
    *,
    xp: ArrayLibrary,
    ctx: OperationContext,
) -> Any:
    steep, outputs = _backward(grad, x, scale, mean, variance, y, xp, ctx)
    return [*outputs, steep]
