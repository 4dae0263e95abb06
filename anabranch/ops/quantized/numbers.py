"""Numbers of few bits that stand for a range of floats: tensors of the dtypes qint8 to qint32, and back.

In NumPy they are records of one field, in compiled programs plain integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules
from anabranch.ops.quantized import steps
from anabranch.ops.quantized.steps import half_away, integers_of, limits, quantised

_MODE: Final = "mode: {'MIN_COMBINED', 'MIN_FIRST', 'SCALED'} = 'MIN_COMBINED'"


def _scaled_step(least: float, most: float, dtype: DType, narrow_range: bool) -> tuple[float, float, float]:
    """In the mode SCALED: steps per unit, and the range that all numbers of the dtype cover."""
    first, last = limits(dtype)
    first += narrow_range and first < 0
    huge = float(np.finfo(np.float32).max)
    per_unit = min(first / least if first * least > 0 else huge, last / most if last * most > 0 else huge)
    return per_unit, first / per_unit, last / per_unit


QuantizeV2 = define_op(
    "QuantizeV2",
    "input: float, min_range: float, max_range: float -> output: T, output_min: float, output_max: float",
    f"T: {steps.TYPES}, {_MODE}, round_mode: {{'HALF_AWAY_FROM_ZERO', 'HALF_TO_EVEN'}} = 'HALF_AWAY_FROM_ZERO', "
    "narrow_range: bool = False, axis: int = -1, ensure_minimum_range: float = 0.01",
    static=("min_range", "max_range"),
    takes_quantised=True,
)
QuantizeV2.not_differentiable()


def _ranges_shape(input: TensorShape, least: TensorShape, most: TensorShape, axis: int) -> TensorShape:
    """That of the ranges: a scalar, or a vector with one for each index of an axis.

    Raises:
        ValueError: they have another.
    """
    if axis < -1:
        raise ValueError(f"axis must be -1, for one range, or the number of a dimension, got {axis}")
    wanted = shape_rules.SCALAR
    if axis != -1:
        wanted = input.with_rank_at_least(axis + 1)[axis : axis + 1] if input.ndims is not None else TensorShape([None])
    return shape_rules.merged(wanted, least, most)


def _along(axis: int, function: Callable[..., Any], x: Array, least: Array, most: Array) -> list[Any]:
    """What a function of numbers and one range gives, for the range of each index of an axis."""
    if axis == -1:
        return list(function(x, float(least), float(most)))
    leading = steps.library_of(x).moveaxis(x, axis, 0)
    parts = [function(part, float(a), float(b)) for part, a, b in zip(leading, least, most, strict=True)]
    if not parts:
        return [function(x, 0.0, 0.0)[0], least, most]
    stacked = [steps.library_of(values[0]).stack(values) for values in zip(*parts, strict=True)]
    return [steps.library_of(stacked[0]).moveaxis(stacked[0], 0, axis), *stacked[1:]]


@QuantizeV2.shape
def _(input: TensorShape, min_range: TensorShape, max_range: TensorShape, *, axis: int) -> list[TensorShape]:
    ranges = _ranges_shape(input, min_range, max_range, axis)
    return [input, ranges, ranges]


@steps.everywhere(QuantizeV2)
def _(
    input: Array,
    min_range: Array,
    max_range: Array,
    *,
    T: DType,
    mode: bytes,
    round_mode: bytes,
    narrow_range: bool,
    axis: int,
    ensure_minimum_range: float,
    ctx: OperationContext,
) -> Any:
    if round_mode == b"HALF_TO_EVEN" and mode != b"SCALED":
        raise InvalidArgumentError(None, ctx.op, "Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED'")
    first, last = limits(T)
    library = steps.library_of(input)

    def quantized(x: Array, least: float, most: float) -> Any:
        least, most = _widened(least, most, ensure_minimum_range, ctx)
        if mode == b"MIN_FIRST":
            output = quantised(steps.quick_steps_of(x, least, most, T), T)
            return output, np.float32(least), np.float32(most)
        x = x.astype(np.float64)
        if mode == b"MIN_COMBINED":
            half = (last - first + 1) / 2 if first < 0 else 0
            moved = steps.rounded((library.clip(x, least, most) - least) * ((last - first) / (most - least)))
            numbers = half_away(moved - half)
        else:
            per_unit, least, most = _scaled_step(least, most, T, narrow_range)
            numbers = library.clip(x, least, most) * per_unit
            numbers = library.rint(numbers) if round_mode == b"HALF_TO_EVEN" else half_away(numbers)
        return steps.saturated(numbers, T), np.float32(least), np.float32(most)

    return _along(axis, quantized, input, min_range, max_range)


@QuantizeV2.early_outputs
def _(attrs: Mapping[str, Any], inputs: Sequence[Any]) -> Mapping[int, Any]:
    if attrs["axis"] != -1 or any(end is None for end in inputs[1:]) or not inputs[1] <= inputs[2]:
        return {}
    least, most = _widened(float(inputs[1]), float(inputs[2]), attrs["ensure_minimum_range"], None)
    if attrs["mode"] == b"SCALED":
        _, least, most = _scaled_step(least, most, attrs["T"], attrs["narrow_range"])
    return {1: np.asarray(least, np.float32), 2: np.asarray(most, np.float32)}


def _widened(least: float, most: float, minimum: float, ctx: OperationContext | None) -> tuple[float, float]:
    """The range, widened so that it has zero in it and is not empty; without an operation it was checked before."""
    if least > most and ctx is not None:
        raise InvalidArgumentError(
            None, ctx.op, f"input_max_range must be larger than input_min_range: {most}, {least}"
        )
    wanted = max(1.0, abs(least), abs(most)) * minimum
    return min(0.0, least), max(0.0, most, min(0.0, least) + wanted)


Dequantize = define_op(
    "Dequantize",
    "input: T, min_range: float, max_range: float -> output: dtype",
    f"T: {steps.TYPES}, {_MODE}, narrow_range: bool = False, axis: int = -1, dtype: {{bfloat16, float}} = float32",
    static=("min_range", "max_range"),
    takes_quantised=True,
)
Dequantize.not_differentiable()


@Dequantize.shape
def _(input: TensorShape, min_range: TensorShape, max_range: TensorShape, *, axis: int) -> TensorShape:
    _ranges_shape(input, min_range, max_range, axis)
    return input


@steps.everywhere(Dequantize)
def _(
    input: Array,
    min_range: Array,
    max_range: Array,
    *,
    T: DType,
    mode: bytes,
    narrow_range: bool,
    axis: int,
    dtype: DType,
) -> Any:
    first, last = limits(T)

    def dequantized(x: Array, least: float, most: float) -> Any:
        if mode == b"MIN_FIRST":
            return (steps.quick_floats_of(integers_of(x), least, most, T).astype(dtype.as_numpy_dtype),)
        numbers = integers_of(x).astype(np.float64)
        if mode == b"MIN_COMBINED":
            half = (last - first + 1) / 2 if first < 0 else 0
            values = steps.rounded((numbers + half) * ((most - least) / (last - first))) + least
        else:
            lowest = first + (narrow_range and first < 0)
            values = numbers * (max(least / lowest, most / last) if lowest < 0 else most / last)
        return (values.astype(dtype.as_numpy_dtype),)

    return _along(axis, dequantized, input, min_range, max_range)[0]
