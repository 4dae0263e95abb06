"""Quantisation that stays in floating point: values are moved to the nearest number that few bits could hold."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorValue
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules

_ATTRS: Final = "num_bits: int = 8, narrow_range: bool = False"
_ARGS_ATTRS: Final = f"min: float = -6.0, max: float = 6.0, {_ATTRS}"


def _check_bits(num_bits: int) -> None:
    if not 2 <= num_bits <= 16:
        raise ValueError(f"num_bits must be between 2 and 16, inclusive, but is {num_bits}")


def _nudged(
    least: TensorValue, most: TensorValue, num_bits: int, narrow_range: bool, xp: ArrayLibrary
) -> tuple[Any, Any, Any]:
    """The range that represents zero exactly, and the distance of two neighbours in it: least, most, step.

    An empty range stands for no number: its step is 0, and everything becomes zero.
    """
    _check_bits(num_bits)
    first, last = np.float32(narrow_range), np.float32(2**num_bits - 1)
    least, most = xp.asarray(least, np.float32), xp.asarray(most, np.float32)
    empty = (least == 0) & (most == 0)
    step = xp.where(empty, np.float32(1), (most - least) / (last - first))
    zero = first - least / step
    zero = xp.clip(xp.floor(zero + np.float32(0.5)), first, last)
    return (first - zero) * step * ~empty, (last - zero) * step * ~empty, xp.where(empty, np.float32(0), step)


def _quantized(x: Array, bounds: tuple[Any, Any, Any], xp: ArrayLibrary) -> Any:
    least, most, step = bounds
    divisor = xp.where(step == 0, np.float32(1), step)
    steps = xp.floor((xp.clip(x, least, most) - least) / divisor + np.float32(0.5))
    return (steps * step + least).astype(np.float32)


def _check_range(least: Array, most: Array, ctx: OperationContext, xp: ArrayLibrary) -> None:
    ctx.check(xp.all(xp.asarray(least <= most)), "min has to be smaller than max, was: {0} >= {1}", least, most)


def _args_range(least: float, most: float) -> None:
    if not least < most:
        raise ValueError(f"min has to be smaller than max, was: {least} >= {most}")


# ---------------------------------------------------------------------- the range is an attribute
FakeQuantWithMinMaxArgs = define_op("FakeQuantWithMinMaxArgs", "inputs: float -> outputs: float", _ARGS_ATTRS)
FakeQuantWithMinMaxArgs.shape(shape_rules.same_as_first)


@FakeQuantWithMinMaxArgs.kernel
def _(inputs: Array, *, min: float, max: float, num_bits: int, narrow_range: bool, xp: ArrayLibrary) -> Any:
    _args_range(min, max)
    return _quantized(inputs, _nudged(min, max, num_bits, narrow_range, xp), xp)


@FakeQuantWithMinMaxArgs.gradient
def _(op: Operation, grad: Tensor) -> Any:
    settings = {name: op.attrs[name] for name in ("min", "max", "num_bits", "narrow_range")}
    return raw.FakeQuantWithMinMaxArgsGradient(grad, op.inputs[0], **settings)


FakeQuantWithMinMaxArgsGradient = define_op(
    "FakeQuantWithMinMaxArgsGradient", "gradients: float, inputs: float -> backprops: float", _ARGS_ATTRS
)
FakeQuantWithMinMaxArgsGradient.shape(shape_rules.merged)
FakeQuantWithMinMaxArgsGradient.not_differentiable()


@FakeQuantWithMinMaxArgsGradient.kernel
def _(
    gradients: Array, inputs: Array, *, min: float, max: float, num_bits: int, narrow_range: bool, xp: ArrayLibrary
) -> Any:
    _args_range(min, max)
    least, most, _ = _nudged(min, max, num_bits, narrow_range, xp)
    return xp.where((inputs >= least) & (inputs <= most), gradients, np.float32(0))


# ---------------------------------------------------------------------- the range is given by tensors
def _with_variables(name: str, per_channel: bool) -> tuple[OpFunction, OpFunction]:
    """An operation type whose range is a pair of tensors, scalars or one number per channel, and its gradient's."""
    op = define_op(name, "inputs: float, min: float, max: float -> outputs: float", _ATTRS)

    def check_shapes(inputs: TensorShape, least: TensorShape, most: TensorShape) -> TensorShape:
        rank = 1 if per_channel else 0
        least, most = shape_rules.with_rank(least, rank, "min"), shape_rules.with_rank(most, rank, "max")
        if per_channel:
            inputs = inputs.with_rank_at_least(1)
            channels = least.merge_with(most).merge_with(inputs[-1:])
            return inputs[:-1].concatenate(channels) if inputs.ndims is not None else inputs
        return inputs

    @op.shape
    def _(inputs: TensorShape, min: TensorShape, max: TensorShape) -> TensorShape:
        return check_shapes(inputs, min, max)

    @op.kernel
    def _(
        inputs: Array,
        min: Array,
        max: Array,
        *,
        num_bits: int,
        narrow_range: bool,
        ctx: OperationContext,
        xp: ArrayLibrary,
    ) -> Any:
        _check_range(min, max, ctx, xp)
        return _quantized(inputs, _nudged(min, max, num_bits, narrow_range, xp), xp)

    @op.gradient
    def _(op: Operation, grad: Tensor) -> Any:
        settings = {name: op.attrs[name] for name in ("num_bits", "narrow_range")}
        return list(getattr(raw, f"{name}Gradient")(grad, *op.inputs, **settings))

    backward = define_op(
        f"{name}Gradient",
        "gradients: float, inputs: float, min: float, max: float -> backprops_wrt_input: float, "
        "backprop_wrt_min: float, backprop_wrt_max: float",
        _ATTRS,
    )
    backward.not_differentiable()

    @backward.shape
    def _(gradients: TensorShape, inputs: TensorShape, min: TensorShape, max: TensorShape) -> list[TensorShape]:
        inputs = check_shapes(shape_rules.merged(gradients, inputs), min, max)
        bound = inputs[-1:] if per_channel else shape_rules.SCALAR
        return [inputs, bound, bound]

    @backward.kernel
    def _(
        gradients: Array,
        inputs: Array,
        min: Array,
        max: Array,
        *,
        num_bits: int,
        narrow_range: bool,
        ctx: OperationContext,
        xp: ArrayLibrary,
    ) -> Any:
        _check_range(min, max, ctx, xp)
        least, most, step = _nudged(min, max, num_bits, narrow_range, xp)
        empty = step == 0
        below, above = (inputs < least) & ~empty, (inputs > most) & ~empty
        axes = tuple(range(inputs.ndim - 1)) if per_channel else None
        none = np.float32(0)
        return (
            xp.where(below | above, none, gradients),
            xp.sum(xp.where(below, gradients, none), axis=axes, dtype=np.float32),
            xp.sum(xp.where(above, gradients, none), axis=axes, dtype=np.float32),
        )

    return op, backward


FakeQuantWithMinMaxVars, FakeQuantWithMinMaxVarsGradient = _with_variables("FakeQuantWithMinMaxVars", False)
FakeQuantWithMinMaxVarsPerChannel, FakeQuantWithMinMaxVarsPerChannelGradient = _with_variables(
    "FakeQuantWithMinMaxVarsPerChannel", True
)


# ---------------------------------------------------------------------- quantised, and back
def _there_and_back(
    x: Array,
    least: TensorValue,
    most: TensorValue,
    num_bits: TensorValue,
    signed_input: bool,
    narrow_range: bool,
    range_given: bool,
    half_up: bool,
    xp: ArrayLibrary,
) -> Any:
    """`x`, moved to the nearest of the multiples of one step that cover the range; zero is one of them."""
    number, halves = x.dtype.type, 2.0 ** (num_bits - 1)
    last = halves - 1 if signed_input else 2 * halves - 1
    first = -halves + narrow_range if signed_input else 0.0 * halves
    first, last = xp.asarray(first, x.dtype), xp.asarray(last, x.dtype)
    huge = xp.asarray(np.finfo(x.dtype).max if x.dtype.kind == "f" else 3.38953139e38, x.dtype)
    from_least = xp.where(first * least > 0, first / xp.where(least == 0, number(1), least), huge)
    from_most = xp.where(last * most > 0, last / xp.where(most == 0, number(1), most), huge)
    by_least = from_least < from_most
    scale = xp.where(by_least, from_least, from_most)
    step = xp.where(by_least, least / xp.where(first == 0, number(1), first), most / last)
    if range_given:
        x = xp.clip(x, xp.where(by_least, least, first * step), xp.where(by_least, last * step, most))
    steps = xp.floor(x * scale + number(0.5)) if half_up else xp.round(x * scale)
    return (steps * step).astype(x.dtype)


def _range_of(x: Array, axis: int, xp: ArrayLibrary) -> tuple[Any, Any]:
    """The least and the largest element, of all or of each slice along an axis, so that they broadcast."""
    if x.size == 0:
        return x.dtype.type(0), x.dtype.type(0)
    axes = None if axis < 0 else tuple(i for i in range(x.ndim) if i != axis)
    return xp.min(x, axis=axes, keepdims=True), xp.max(x, axis=axes, keepdims=True)


def _along(bound: Array, rank: int, axis: int, xp: ArrayLibrary) -> Any:
    """A given bound, of all or of each slice along an axis, so that it broadcasts."""
    return bound if axis < 0 else xp.reshape(bound, tuple(-1 if i == axis else 1 for i in range(rank)))


def _check_axis(input: TensorShape, least: TensorShape, most: TensorShape, axis: int) -> TensorShape:
    if axis < -1:
        raise ValueError(f"axis should be at least -1, got {axis}")
    bounds = least.with_rank(0 if axis == -1 else 1).merge_with(most)
    if axis >= 0:
        input = input.with_rank_at_least(axis + 1)
        input[axis : axis + 1].merge_with(bounds)
    return input


QuantizeAndDequantize = define_op(
    "QuantizeAndDequantize",
    "input: T -> output: T",
    "signed_input: bool = True, num_bits: int = 8, range_given: bool = False, input_min: float = 0.0, "
    "input_max: float = 0.0, T: floating",
)
QuantizeAndDequantize.shape(shape_rules.same_as_first)


@QuantizeAndDequantize.kernel
def _(
    input: Array,
    *,
    signed_input: bool,
    num_bits: int,
    range_given: bool,
    input_min: float,
    input_max: float,
    xp: ArrayLibrary,
) -> Any:
    given = input.dtype.type(input_min), input.dtype.type(input_max)
    least, most = given if range_given else _range_of(input, -1, xp)
    return _there_and_back(input, least, most, num_bits, signed_input, False, range_given, False, xp)


@QuantizeAndDequantize.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return grad


QuantizeAndDequantizeV2 = define_op(
    "QuantizeAndDequantizeV2",
    "input: T, input_min: T, input_max: T -> output: T",
    "signed_input: bool = True, num_bits: int = 8, range_given: bool = False, T: floating, "
    "round_mode: {'HALF_TO_EVEN', 'HALF_UP'} = 'HALF_TO_EVEN', narrow_range: bool = False, axis: int = -1",
)


@QuantizeAndDequantizeV2.shape
def _(input: TensorShape, input_min: TensorShape, input_max: TensorShape, *, axis: int) -> TensorShape:
    return _check_axis(input, input_min, input_max, axis)


@QuantizeAndDequantizeV2.kernel
def _(
    input: Array,
    input_min: Array,
    input_max: Array,
    *,
    signed_input: bool,
    num_bits: int,
    range_given: bool,
    round_mode: bytes,
    narrow_range: bool,
    axis: int,
    ctx: OperationContext,
    xp: ArrayLibrary,
) -> Any:
    if not (2 if signed_input else 1) <= num_bits < 63:
        raise ValueError(f"num_bits is out of range: {num_bits} with signed_input {signed_input}")
    if range_given:
        _check_range(input_min, input_max, ctx, xp)
        least, most = (_along(bound, input.ndim, axis, xp) for bound in (input_min, input_max))
    else:
        least, most = _range_of(input, axis, xp)
    half_up = round_mode == b"HALF_UP"
    return _there_and_back(input, least, most, num_bits, signed_input, narrow_range, range_given, half_up, xp)


@QuantizeAndDequantizeV2.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return [grad, None, None]


QuantizeAndDequantizeV3 = define_op(
    "QuantizeAndDequantizeV3",
    "input: T, input_min: T, input_max: T, num_bits: int32 -> output: T",
    "signed_input: bool = True, range_given: bool = True, T: floating, narrow_range: bool = False, axis: int = -1",
)


@QuantizeAndDequantizeV3.shape
def _(
    input: TensorShape, input_min: TensorShape, input_max: TensorShape, num_bits: TensorShape, *, axis: int
) -> TensorShape:
    shape_rules.with_rank(num_bits, 0, "num_bits")
    return _check_axis(input, input_min, input_max, axis)


@QuantizeAndDequantizeV3.kernel
def _(
    input: Array,
    input_min: Array,
    input_max: Array,
    num_bits: Array,
    *,
    signed_input: bool,
    range_given: bool,
    narrow_range: bool,
    axis: int,
    ctx: OperationContext,
    xp: ArrayLibrary,
) -> Any:
    fits = (num_bits >= (2 if signed_input else 1)) & (num_bits < 63)
    ctx.check(fits, "num_bits is out of range: {0}", num_bits)
    if range_given:
        _check_range(input_min, input_max, ctx, xp)
        least, most = (_along(bound, input.ndim, axis, xp) for bound in (input_min, input_max))
    else:
        least, most = _range_of(input, axis, xp)
    bits = xp.asarray(num_bits, np.float32)
    return _there_and_back(input, least, most, bits, signed_input, narrow_range, range_given, False, xp)


@QuantizeAndDequantizeV3.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return [grad, None, None, None]
