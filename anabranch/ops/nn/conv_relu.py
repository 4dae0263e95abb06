"""A convolution, its bias and the ReLU behind it, as one operation.

`passes.fused_bias` puts it in place of the three. A library adds and compares before the sums leave the registers.
"""

from __future__ import annotations

from typing import Any

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.ops.nn.activations import add_bias, bias_shape, positive_part
from anabranch.ops.nn.conv import PLAIN_2D, convolved, flops_of, forward_shape, of_forward

ConvBiasRelu = define_op(
    "_Conv2DBiasRelu",
    "input: T, filter: T, bias: T -> output: T",
    f"T: {{half, bfloat16, float, double}}, {PLAIN_2D}",
)
ConvBiasRelu.not_differentiable()
ConvBiasRelu.flops(flops_of(of_forward))


@ConvBiasRelu.shape
def _(
    input: TensorShape,
    filter: TensorShape,
    bias: TensorShape,
    *,
    strides: list[int],
    padding: bytes,
    explicit_paddings: list[int],
    data_format: bytes,
    dilations: list[int],
) -> TensorShape:
    attrs = {"strides": strides, "padding": padding, "data_format": data_format, "dilations": dilations}
    given = {**attrs, "explicit_paddings": explicit_paddings}
    return bias_shape(forward_shape((input, filter), given, depthwise=False), bias, data_format)


@ConvBiasRelu.kernel
def _(input: Array, filter: Array, bias: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    return with_bias_and_relu(convolved(xp, input, filter, ctx.op.attrs, depthwise=False), bias, xp, ctx)


def with_bias_and_relu(sums: Array, bias: Array, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    """What the operation gives, of the sums of its convolution."""
    return positive_part(add_bias(sums, bias, ctx.op.attrs["data_format"], xp, ctx), xp, ctx)
