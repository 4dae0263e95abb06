"""From one range and dtype to another: what follows a sum of products, which has 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType, qint32, quint8
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules
from anabranch.ops.quantized import steps
from anabranch.ops.quantized.fixed_point import FixedPoint

_RANGE = "input_min: float, input_max: float"
_RANGES = {"input_min": 0, "input_max": 0}
#: bits after the point of the fixed-point numbers that lead to bytes
_POINT = 16


def _moved(x: Array, range_in: tuple[float, float], range_out: tuple[float, float], types: tuple[DType, DType]) -> Any:
    """The same floats in another range and dtype, as far as they are there."""
    integers = steps.integers_of(x)
    if types[0] is qint32 and types[1] is quint8:
        return steps.quantised(_bytes_of(integers, range_in, range_out), quint8)
    return steps.quantised(steps.moved(integers, (*range_in, types[0]), (*range_out, types[1])), types[1])


def _bytes_of(integers: Array, range_in: tuple[float, float], range_out: tuple[float, float]) -> Any:
    """32 bits to 8 by fixed-point arithmetic, as TensorFlow does it: halves go up."""
    (low, high), (least, most) = (tuple(np.float32(v) for v in ends) for ends in (range_in, range_out))
    length, library = most - least, steps.library_of(integers)
    if length == 0:
        return library.zeros(integers.shape, np.int64)
    scale = int(255.0 * (1 << _POINT) * float(high - low) / float(length))
    middle = np.float32(float(low + high) / 2.0)
    offset_in = int(middle * np.float32(255.0 / float(length)) * np.float32(1 << _POINT))
    offset_out = int((1 << _POINT) * (float(least) * 255.0) / float(length))
    rounded = offset_in - offset_out + (1 << (_POINT - 1))
    return FixedPoint(scale, rounded)(integers)


def _used(x: Array, low: float, high: float, dtype: DType) -> tuple[Any, Any]:
    """The range that a tensor makes use of, which has zero or less at its lower end."""
    integers = steps.integers_of(x)
    first, last = steps.limits(dtype)
    ends = integers.min(initial=last), integers.max(initial=first)
    least, most = (steps.floats_of(end, low, high, dtype)[()] for end in ends)
    return min(np.float32(0), least), most


QuantizeDownAndShrinkRange = define_op(
    "QuantizeDownAndShrinkRange",
    f"input: Tinput, {_RANGE} -> output: out_type, output_min: float, output_max: float",
    f"Tinput: {steps.TYPES}, out_type: {steps.TYPES}",
    ranks=_RANGES,
)
QuantizeDownAndShrinkRange.not_differentiable()


@QuantizeDownAndShrinkRange.shape
def _(input: TensorShape, *_: TensorShape) -> list[TensorShape]:
    return steps.with_scalars(input)


@QuantizeDownAndShrinkRange.host_kernel
def _(input: Array, input_min: Array, input_max: Array, *, Tinput: DType, out_type: DType) -> Any:
    given = float(input_min), float(input_max)
    used = _used(input, *given, Tinput)
    return _moved(input, given, used, (Tinput, out_type)), *used


RequantizationRange = define_op(
    "RequantizationRange",
    f"input: Tinput, {_RANGE} -> output_min: float, output_max: float",
    f"Tinput: {steps.TYPES}",
    ranks=_RANGES,
)
RequantizationRange.not_differentiable()


@RequantizationRange.shape
def _(*_: TensorShape) -> list[TensorShape]:
    return [shape_rules.SCALAR, shape_rules.SCALAR]


@RequantizationRange.host_kernel
def _(input: Array, input_min: Array, input_max: Array, *, Tinput: DType) -> Any:
    return _used(input, float(input_min), float(input_max), Tinput)


_REQUESTED = "requested_output_min: float, requested_output_max: float"

Requantize = define_op(
    "Requantize",
    f"input: Tinput, {_RANGE}, {_REQUESTED} -> output: out_type, output_min: float, output_max: float",
    f"Tinput: {steps.TYPES}, out_type: {steps.TYPES}",
    ranks={**_RANGES, "requested_output_min": 0, "requested_output_max": 0},
    static=(*_RANGES, "requested_output_min", "requested_output_max"),
    takes_quantised=True,
)
Requantize.not_differentiable()
Requantize.early_outputs(steps.passed_on({1: 3, 2: 4}))


@Requantize.shape
def _(input: TensorShape, *_: TensorShape) -> list[TensorShape]:
    return steps.with_scalars(input)


@steps.everywhere(Requantize)
def _(
    input: Array,
    input_min: Array,
    input_max: Array,
    requested_output_min: Array,
    requested_output_max: Array,
    *,
    Tinput: DType,
    out_type: DType,
    ctx: OperationContext,
) -> Any:
    given = float(input_min), float(input_max)
    wanted = float(requested_output_min), float(requested_output_max)
    if not wanted[0] <= 0:
        raise InvalidArgumentError(None, ctx.op, f"requested_output_min must be <= 0, but got {wanted[0]}")
    if not wanted[1] >= wanted[0]:
        raise InvalidArgumentError(
            None,
            ctx.op,
            f"requested_output_max must be >= requested_output_min, but got {wanted[1]} and {wanted[0]}",
        )
    return _moved(input, given, wanted, (Tinput, out_type)), requested_output_min, requested_output_max


# ---------------------------------------------------------------------- a range for each channel
_CHANNELS = {"input_min": 1, "input_max": 1}

RequantizationRangePerChannel = define_op(
    "RequantizationRangePerChannel",
    f"input: T, {_RANGE} -> output_min: float, output_max: float",
    f"T: {steps.TYPES} = qint32, clip_value_max: float",
    ranks=_CHANNELS,
)
RequantizationRangePerChannel.not_differentiable()


@RequantizationRangePerChannel.shape
def _(*_: TensorShape) -> list[TensorShape]:
    return [shape_rules.SCALAR, shape_rules.SCALAR]


def _check_channels(input: Array, low: Array, high: Array, ctx: OperationContext) -> None:
    shape = input.shape
    if len(shape) != 4 or low.shape != shape[-1:] or high.shape != shape[-1:]:
        raise InvalidArgumentError(
            None,
            ctx.op,
            "the input must have 4 dimensions, and a range for each index of the last one, got the shape "
            f"{shape} and ranges of the shapes {low.shape} and {high.shape}",
        )


@RequantizationRangePerChannel.host_kernel
def _(
    input: Array, input_min: Array, input_max: Array, *, T: DType, clip_value_max: float, ctx: OperationContext
) -> Any:
    _check_channels(input, input_min, input_max, ctx)
    if not input.size:
        raise InvalidArgumentError(None, ctx.op, "the input of a range must not be empty")
    integers = steps.integers_of(input).astype(np.int64)
    furthest = np.abs(integers).max(axis=(0, 1, 2)).astype(np.float32)
    scale = np.maximum(np.abs(input_min), np.abs(input_max))
    most = min(max((scale * furthest / np.float32(2**31)).max(), np.finfo(np.float32).tiny), np.float32(clip_value_max))
    return np.float32(0 if integers.min() >= 0 else -most), np.float32(most)


RequantizePerChannel = define_op(
    "RequantizePerChannel",
    f"input: T, {_RANGE}, {_REQUESTED} -> output: out_type, output_min: float, output_max: float",
    f"T: {steps.TYPES} = qint32, out_type: {steps.TYPES} = quint8",
    ranks={**_CHANNELS, "requested_output_min": 0, "requested_output_max": 0},
    static=(*_CHANNELS, "requested_output_min", "requested_output_max"),
    takes_quantised=True,
)
RequantizePerChannel.not_differentiable()
RequantizePerChannel.early_outputs(steps.passed_on({1: 3, 2: 4}))


@RequantizePerChannel.shape
def _(input: TensorShape, *_: TensorShape) -> list[TensorShape]:
    return steps.with_scalars(input)


@steps.everywhere(RequantizePerChannel)
def _(
    input: Array,
    input_min: Array,
    input_max: Array,
    requested_output_min: Array,
    requested_output_max: Array,
    *,
    out_type: DType,
    ctx: OperationContext,
) -> Any:
    _check_channels(input, input_min, input_max, ctx)
    _, last = steps.limits(out_type)
    wanted = max(abs(float(requested_output_min)), abs(float(requested_output_max)))
    given = np.maximum(np.abs(input_min), np.abs(input_max))
    scale = np.float32(last) * (given / np.float32(wanted) / np.float32(2**31))
    numbers = steps.integers_of(input).astype(np.float32) * scale
    numbers = steps.library_of(numbers).rint(numbers)
    return steps.saturated(numbers, out_type), requested_output_min, requested_output_max
