"""Comparisons, logic, bits, and choosing elementwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arithmetic.broadcast_gradients import sum_to_shape
from anabranch.ops.factories import binary, comparison

Less = comparison("Less", lambda xp, x, y: xp.less(x, y))
LessEqual = comparison("LessEqual", lambda xp, x, y: xp.less_equal(x, y))
Greater = comparison("Greater", lambda xp, x, y: xp.greater(x, y))
GreaterEqual = comparison("GreaterEqual", lambda xp, x, y: xp.greater_equal(x, y))


def _equality(name: str, function: Callable[..., Any], otherwise: bool) -> OpFunction:
    """Equality of any type; `otherwise` is the scalar answer for shapes that do not broadcast, where allowed."""
    op = define_op(name, "x: T, y: T -> z: bool", "T: any, incompatible_shape_error: bool = True", commutative=True)

    @op.shape
    def _(x: TensorShape, y: TensorShape, *, incompatible_shape_error: bool) -> TensorShape:
        if incompatible_shape_error:
            return shape_rules.broadcast(x, y)
        if not (x.is_fully_defined() and y.is_fully_defined()):
            return shape_rules.UNKNOWN
        try:
            return shape_rules.broadcast(x, y)
        except ValueError:
            return shape_rules.SCALAR

    @op.kernel
    def _(x: Array, y: Array, *, incompatible_shape_error: bool, xp: ArrayLibrary) -> Any:
        if not incompatible_shape_error:
            try:
                np.broadcast_shapes(x.shape, y.shape)
            except ValueError:
                return xp.asarray(otherwise)
        return function(xp, x, y)

    op.not_differentiable()
    return op


Equal = _equality("Equal", lambda xp, x, y: xp.equal(x, y), False)
NotEqual = _equality("NotEqual", lambda xp, x, y: xp.not_equal(x, y), True)

ApproximateEqual = define_op(
    "ApproximateEqual", "x: T, y: T -> z: bool", "T: numbers, tolerance: float = 1e-05", commutative=True
)
ApproximateEqual.shape(shape_rules.merged)
ApproximateEqual.not_differentiable()


@ApproximateEqual.kernel
def _(x: Array, y: Array, *, tolerance: float, xp: ArrayLibrary) -> Any:
    # the greater minus the smaller, so that unsigned integers do not wrap
    apart = xp.abs(x - y) if np.dtype(x.dtype).kind == "c" else xp.maximum(x, y) - xp.minimum(x, y)
    return apart < tolerance


# ---------------------------------------------------------------------- logic
def _logical(name: str, function: Callable[..., Any]) -> OpFunction:
    op = define_op(name, "x: bool, y: bool -> z: bool", commutative=True)
    op.shape(shape_rules.broadcast)

    @op.kernel
    def _(x: Array, y: Array, *, xp: ArrayLibrary) -> Any:
        return function(xp, x, y)

    op.not_differentiable()
    return op


LogicalAnd = _logical("LogicalAnd", lambda xp, x, y: xp.logical_and(x, y))
LogicalOr = _logical("LogicalOr", lambda xp, x, y: xp.logical_or(x, y))

LogicalNot = define_op("LogicalNot", "x: bool -> y: bool")
LogicalNot.shape(shape_rules.same_as_first)
LogicalNot.not_differentiable()


@LogicalNot.kernel
def _(x: Array, *, xp: ArrayLibrary) -> Any:
    return xp.logical_not(x)


def _classification(name: str, function: Callable[..., Any]) -> OpFunction:
    op = define_op(name, "x: T -> y: bool", "T: floating")
    op.shape(shape_rules.same_as_first)

    @op.kernel
    def _(x: Array, *, xp: ArrayLibrary) -> Any:
        return function(xp, x)

    op.not_differentiable()
    return op


IsNan = _classification("IsNan", lambda xp, x: xp.isnan(x))
IsInf = _classification("IsInf", lambda xp, x: xp.isinf(x))
IsFinite = _classification("IsFinite", lambda xp, x: xp.isfinite(x))


# ---------------------------------------------------------------------- bits
def _shift(function: Callable[..., Any]) -> Callable[..., Any]:
    """Shifts by a number of bits that is clamped to what the type has."""

    def shifted(xp: ArrayLibrary, x: Array, y: Array) -> Any:
        bits = np.dtype(x.dtype).itemsize * 8
        return function(xp, x, xp.clip(y, 0, bits - 1).astype(x.dtype))

    return shifted


BitwiseAnd = binary("BitwiseAnd", lambda xp, x, y: xp.bitwise_and(x, y), "integers", commutative=True)
BitwiseOr = binary("BitwiseOr", lambda xp, x, y: xp.bitwise_or(x, y), "integers", commutative=True)
BitwiseXor = binary("BitwiseXor", lambda xp, x, y: xp.bitwise_xor(x, y), "integers", commutative=True)
LeftShift = binary("LeftShift", _shift(lambda xp, x, y: xp.left_shift(x, y)), "integers")
RightShift = binary("RightShift", _shift(lambda xp, x, y: xp.right_shift(x, y)), "integers")

Invert = define_op("Invert", "x: T -> y: T", "T: integers")
Invert.shape(shape_rules.same_as_first)
Invert.not_differentiable()


@Invert.kernel
def _(x: Array, *, xp: ArrayLibrary) -> Any:
    return xp.invert(x)


PopulationCount = define_op("PopulationCount", "x: T -> y: uint8", "T: integers")
PopulationCount.shape(shape_rules.same_as_first)
PopulationCount.not_differentiable()


@PopulationCount.kernel
def _(x: Array) -> Any:
    return jax.lax.population_count(x).astype(np.uint8)


# ---------------------------------------------------------------------- choosing
Select = define_op("Select", "condition: bool, t: T, e: T -> output: T", "T: any")
Select.shape(shape_rules.chosen)


@Select.kernel
def _(condition: Array, t: Array, e: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    """A vector chooses rows; any other condition has the values' shape, or none."""
    fits = condition.shape in ((), t.shape, t.shape[:1]) and t.shape == e.shape
    ctx.check(
        fits, f"a condition of shape {condition.shape} cannot choose from values of shapes {t.shape} and {e.shape}"
    )
    if condition.ndim == 1 and t.ndim > 1:
        condition = xp.reshape(condition, condition.shape + (1,) * (t.ndim - 1))
    return xp.where(condition, t, e)


@Select.gradient
def _(op: Operation, grad: Tensor) -> Any:
    condition, zeros = op.inputs[0], raw.ZerosLike(grad)
    return None, Select(condition, grad, zeros), Select(condition, zeros, grad)


SelectV2 = define_op("SelectV2", "condition: bool, t: T, e: T -> output: T", "T: any")
SelectV2.shape(shape_rules.broadcast)


@SelectV2.kernel
def _(condition: Array, t: Array, e: Array, *, xp: ArrayLibrary) -> Any:
    return xp.where(condition, t, e)


@SelectV2.gradient
def _(op: Operation, grad: Tensor) -> Any:
    condition, t, e = op.inputs
    zeros = raw.ZerosLike(grad)
    by_t, by_e = SelectV2(condition, grad, zeros), SelectV2(condition, zeros, grad)
    return None, sum_to_shape(by_t, t), sum_to_shape(by_e, e)


CompareAndBitpack = define_op(
    "CompareAndBitpack",
    "input: T, threshold: T -> output: uint8",
    "T: {bool, half, float, double, int8, int16, int32, int64}",
    ranks={"threshold": 0},
)
CompareAndBitpack.not_differentiable()


@CompareAndBitpack.shape
def _(input: TensorShape, threshold: TensorShape) -> TensorShape:
    if input.ndims is None:
        return input
    rows = input.with_rank_at_least(1)
    length = rows[-1].value
    if length is not None and length % 8:
        raise ValueError(f"Dimension size must be evenly divisible by 8 but is {length} for the last of {input}")
    return rows[:-1].concatenate([None if length is None else length // 8])


@CompareAndBitpack.kernel
def _(input: Array, threshold: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    """Eight comparisons in a byte, the first in its highest bit."""
    ctx.check(input.ndim > 0 and input.shape[-1] % 8 == 0, f"the last dimension of {input.shape} is not divisible by 8")
    return xp.packbits(xp.greater(input, threshold), axis=-1)
