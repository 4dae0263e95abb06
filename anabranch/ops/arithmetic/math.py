"""Elementwise arithmetic with NumPy-style broadcasting."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import UnimplementedError
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.constants import partial_vector
from anabranch.graph.kernel_contexts import StepTracingContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.step_nodes import AnyTensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arithmetic.broadcast_gradients import sum_to_operands, sum_to_shape
from anabranch.ops.arithmetic.integer_powers import integer_power
from anabranch.ops.factories import attach_gradient, binary, unary
from anabranch.ops.lists.values import TensorList, sum_of_lists

_DIVISIBLE = "{bfloat16, half, float, double, int32, int64}"
_SIGNED = "{bfloat16, half, float, double, int8, int16, int32, int64}"
_SIGNED_OR_COMPLEX = f"{_SIGNED[:-1]}, complex64, complex128}}"


def conj(x: Tensor) -> Tensor:
    """The complex conjugate; a real tensor itself."""
    result: Tensor = raw.Conj(x) if x.dtype.is_complex else x
    return result


def chain(derivative: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The gradient of y = f(x) with f holomorphic: `derivative(x, y)` is f'(x), in terms of graph tensors."""

    def gradient(op: Operation, grad: Tensor) -> Any:
        return Mul(grad, conj(derivative(op.inputs[0], op.outputs[0])))

    return gradient


def divided_by(denominator: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Like `chain`, for f'(x) = 1 / denominator(x, y)."""

    def gradient(op: Operation, grad: Tensor) -> Any:
        return RealDiv(grad, conj(denominator(op.inputs[0], op.outputs[0])))

    return gradient


def no_gradient(op: Operation, *grads: Tensor | None) -> Any:
    """The gradient of operations that are constant almost everywhere: None for each input."""
    return [None] * len(op.inputs)


def _is_integer(x: Array) -> bool:
    return np.dtype(x.dtype).kind in "iu"


# ---------------------------------------------------------------------- sums and products
def _add_gradient(op: Operation, grad: Tensor) -> Any:
    return sum_to_operands(op, grad, grad)


def _product_gradient(op: Operation, grad: Tensor) -> Any:
    x, y = op.inputs
    return sum_to_operands(op, Mul(grad, conj(y)), Mul(conj(x), grad))


def _no_nan_gradient(op: Operation, grad: Tensor) -> Any:
    x, y = (conj(t) for t in op.inputs)
    return sum_to_operands(op, raw.MulNoNan(grad, y), raw.MulNoNan(x, grad))


Add = binary("Add", "add", "{numbers, string}", _add_gradient, adds=True)
AddV2 = binary("AddV2", "add", "numbers", _add_gradient, commutative=True, adds=True)
Sub = binary(
    "Sub",
    "subtract",
    "numbers",
    lambda op, grad: sum_to_operands(op, grad, raw.Neg(grad)),
    adds=True,
)
Mul = binary("Mul", "multiply", "numbers", _product_gradient, commutative=True)
MulNoNan = binary(
    "MulNoNan",
    lambda xp, x, y: xp.where(y == 0, xp.zeros_like(y), x * y),
    "inexact",
    _no_nan_gradient,
)
Neg = unary("Neg", lambda xp, x: xp.negative(x), _SIGNED_OR_COMPLEX, lambda op, grad: raw.Neg(grad))

AddN = define_op(
    "AddN", "inputs: N * T -> sum: T", "N: int >= 1, T: {numbers, variant}", commutative=True, knows_objects=True
)
AddN.gradient(lambda op, grad: [grad] * len(op.inputs))


@AddN.shape
def _(inputs: list[TensorShape]) -> TensorShape:
    return shape_rules.merged(*inputs)


@AddN.kernel
def _(inputs: list[Any], *, xp: ArrayLibrary, ctx: StepTracingContext) -> Any:
    if isinstance(inputs[0], TensorList):
        return functools.reduce(lambda a, b: sum_of_lists(a, b, ctx), inputs)
    if xp is np and len(inputs) > 1:
        memory = ctx.memory(np.shape(inputs[0]), inputs[0].dtype, 0, 1)
        if memory is not None:
            return functools.reduce(lambda a, b: np.add(a, b, out=memory), inputs)
    return functools.reduce(xp.add, inputs)


AccumulateNV2 = define_op(
    "AccumulateNV2", "inputs: N * T -> sum: T", "N: int >= 1, T: numbers, shape: shape", commutative=True
)
AccumulateNV2.gradient(lambda op, grad: [grad] * len(op.inputs))


@AccumulateNV2.late_shape
def _(inputs: list[TensorShape], *, shape: TensorShape) -> TensorShape:
    return shape_rules.merged(shape, *inputs)


@AccumulateNV2.kernel
def _(inputs: list[Any], *, xp: ArrayLibrary) -> Any:
    return functools.reduce(xp.add, inputs)


# ---------------------------------------------------------------------- quotients and remainders
def _division(name: str, function: Callable[..., Any], types: str, gradient: Callable[..., Any] | None) -> OpFunction:
    """Like `binary`; division of integers by zero is an error, if anything is divided."""
    op = define_op(name, "x: T, y: T -> z: T", f"T: {types}")
    op.shape(shape_rules.broadcast)

    @op.kernel
    def _(x: Array, y: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        # mostly it is one number
        if _is_integer(y) and not (xp is np and isinstance(y, np.ndarray) and y.size == 1 and y.item()):
            ctx.check(0 in np.shape(x) or xp.all(y != 0), "Integer division by zero")
            y = xp.where(y == 0, xp.ones_like(y), y)
        return function(xp, x, y)

    return attach_gradient(op, gradient)


def truncated_quotient(xp: ArrayLibrary, x: Array, y: Array) -> Any:
    """The quotient rounded towards zero, as in C; of whole numbers without a detour over floats."""
    if not _is_integer(x):
        return xp.trunc(x / y)
    if xp is jnp:
        return jax.lax.div(*jnp.broadcast_arrays(x, y))
    quotient = np.floor_divide(x, y)
    inexact = quotient * y != x
    return quotient + (inexact & ((x < 0) != (y < 0))).astype(quotient.dtype)


def _quotient(xp: ArrayLibrary, x: Array, y: Array) -> Any:
    return truncated_quotient(xp, x, y) if _is_integer(x) else xp.divide(x, y)


def _floor_quotient(xp: ArrayLibrary, x: Array, y: Array) -> Any:
    return xp.floor_divide(x, y) if _is_integer(x) else xp.floor(xp.divide(x, y))


def _quotient_gradient(op: Operation, grad: Tensor) -> Any:
    x, y = (conj(t) for t in op.inputs)
    return sum_to_operands(op, RealDiv(grad, y), Mul(grad, RealDiv(RealDiv(Neg(x), y), y)))


def _remainder_gradient(quotient: str) -> Callable[..., Any]:
    def gradient(op: Operation, grad: Tensor) -> Any:
        x, y = op.inputs
        return sum_to_operands(op, grad, Mul(grad, Neg(getattr(raw, quotient)(x, y))))

    return gradient


Div = _division("Div", _quotient, "numbers", _quotient_gradient)
RealDiv = _division("RealDiv", _quotient, "numbers", _quotient_gradient)
FloorDiv = _division("FloorDiv", _floor_quotient, "numbers", no_gradient)
TruncateDiv = _division("TruncateDiv", truncated_quotient, "numbers", no_gradient)
FloorMod = _division("FloorMod", lambda xp, x, y: xp.mod(x, y), "real", _remainder_gradient("FloorDiv"))
TruncateMod = _division("TruncateMod", lambda xp, x, y: xp.fmod(x, y), _DIVISIBLE, _remainder_gradient("TruncateDiv"))
Mod = _division("Mod", lambda xp, x, y: xp.fmod(x, y), _DIVISIBLE, _remainder_gradient("TruncateDiv"))


def _div_no_nan_gradient(op: Operation, grad: Tensor) -> Any:
    x, y = (conj(t) for t in op.inputs)
    return sum_to_operands(op, DivNoNan(grad, y), Mul(grad, DivNoNan(DivNoNan(Neg(x), y), y)))


DivNoNan = binary(
    "DivNoNan",
    lambda xp, x, y: xp.where(y == 0, xp.zeros_like(y), x / xp.where(y == 0, xp.ones_like(y), y)),
    "inexact",
    _div_no_nan_gradient,
)


def _where_zero(x: Tensor) -> Tensor:
    """1 where `x` is not 0, else 0; constant as far as gradients are concerned."""
    result: Tensor = raw.Cast(raw.NotEqual(x, raw.ZerosLike(x)), DstT=x.dtype)
    return result


def _zero_safe(name: str, function: Callable[..., Any], by_y: Callable[..., Any]) -> OpFunction:
    """The product x * f(y), and 0 where x is 0 whatever f(y) is; `by_y` is its derivative by y."""

    def gradient(op: Operation, grad: Tensor) -> Any:
        x, y = (conj(t) for t in op.inputs)
        by_x = getattr(raw, op.type)(_where_zero(x), y)
        return sum_to_operands(op, Mul(grad, by_x), Mul(grad, by_y(x, y)))

    return binary(name, lambda xp, x, y: xp.where(x == 0, xp.zeros_like(x), function(xp, x, y)), "inexact", gradient)


Xdivy = _zero_safe("Xdivy", lambda xp, x, y: x / y, lambda x, y: raw.Xdivy(Neg(x), raw.Square(y)))
Xlogy = _zero_safe("Xlogy", lambda xp, x, y: x * xp.log(y), Xdivy)
Xlog1py = _zero_safe("Xlog1py", lambda xp, x, y: x * xp.log1p(y), lambda x, y: Xdivy(x, AddV2(y, 1.0)))


# ---------------------------------------------------------------------- powers
def _pow_gradient(op: Operation, grad: Tensor) -> Any:
    x, y, z = (conj(t) for t in (*op.inputs, op.outputs[0]))
    one, zero_x = raw.OnesLike(y), raw.ZerosLike(x)
    # x ** (y - 1) is infinite at x = 0, where y = 0 makes its factor vanish
    constant = raw.LogicalAnd(raw.Equal(x, zero_x), raw.Equal(y, raw.ZerosLike(y)))
    less = raw.SelectV2(constant, one, Sub(y, one))
    # products from the left: a factor 0 of the gradient keeps what follows from overflowing
    grad_x = Mul(Mul(grad, y), Pow(x, less))
    has_log = raw.NotEqual(x, zero_x) if x.dtype.is_complex else raw.Greater(x, zero_x)
    log = raw.Select(has_log, Log(raw.Select(has_log, x, raw.OnesLike(x))), zero_x)
    return sum_to_operands(op, grad_x, Mul(Mul(grad, z), log))


Pow = define_op("Pow", "x: T, y: T -> z: T", f"T: {_SIGNED_OR_COMPLEX}")
Pow.shape(shape_rules.broadcast)
Pow.gradient(_pow_gradient)


@Pow.kernel
def _(x: Array, y: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    if np.dtype(y.dtype).kind == "i":
        allowed = 0 in np.shape(x) or xp.all(y >= 0)
        ctx.check(allowed, "Integers to negative integer powers are not allowed; cast to a floating type")
        y = xp.maximum(y, xp.zeros_like(y))
    power = integer_power(x, y) if np.dtype(x.dtype).kind == "i" and xp is not np else xp.power(x, y)
    if np.dtype(x.dtype).kind != "c":
        return power
    # 0 ** y by logarithms would not be a number
    at_zero = xp.where(y == 0, xp.ones_like(power), xp.zeros_like(power))
    return xp.where((x == 0) & (xp.real(y) >= 0), at_zero, power)


def _squared_difference(xp: ArrayLibrary, x: Array, y: Array) -> Any:
    difference = xp.subtract(x, y)
    return xp.conj(difference) * difference if np.dtype(x.dtype).kind == "c" else xp.square(difference)


def _squared_difference_gradient(op: Operation, grad: Tensor) -> Any:
    """Of complex numbers the result is real: the imaginary part of its gradient has no effect."""
    x, y = op.inputs
    if grad.dtype.is_complex:
        grad = Cast(raw.Real(grad, Tout=grad.dtype.real_dtype), DstT=grad.dtype)
    grad_x = Mul(grad, Mul(Sub(x, y), 2.0))
    return sum_to_operands(op, grad_x, Neg(grad_x))


SquaredDifference = binary(
    "SquaredDifference",
    _squared_difference,
    f"{_DIVISIBLE[:-1]}, complex64, complex128}}",
    commutative=True,
    gradient=_squared_difference_gradient,
)


Square = unary("Square", lambda xp, x: xp.square(x), "numbers", chain(lambda x, y: Mul(x, 2.0)))


def _from_result(
    name: str,
    function: Callable[..., Any],
    by_y: Callable[..., Any],
    conjugating: bool = True,
    zero_stays: bool = False,
) -> OpFunction:
    """`<name>(y, dy)`: a gradient as a function of its operation's result.

    Args:
        function: (y, dy) -> gradient, of arrays.
        by_y: (y, dy, the result) -> its derivative by y, of tensors.
        conjugating: whether the operation takes the conjugate of a complex y itself. Those for tanh and sigmoid do not.
        zero_stays: whether zero comes of a dy of zero, even where y is zero, infinite or NaN.
    """
    op = define_op(name, "y: T, dy: T -> z: T", "T: inexact")
    op.shape(shape_rules.same_as_first)

    @op.kernel
    def _(y: Array, dy: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        """The two go together element by element, whatever their shapes are."""
        ctx.check(np.size(y) == np.size(dy), f"y of shape {np.shape(y)} and dy of shape {np.shape(dy)} differ in size")
        dy = xp.reshape(dy, np.shape(y))
        result = function(xp.conj(y) if conjugating and np.dtype(y.dtype).kind == "c" else y, dy)
        return xp.where(dy == 0, xp.zeros_like(result), result) if zero_stays else result

    @op.gradient
    def _(operation: Operation, grad: Tensor) -> Any:
        y, dy = operation.inputs
        alike = y.shape.ndims is not None and y.shape.dims_tuple == dy.shape.dims_tuple
        shaped = dy if alike else raw.Reshape(dy, raw.Shape(y))
        by = by_y(conj(y), shaped if conjugating else conj(shaped), operation.outputs[0])
        by_dy = op(conj(y), grad)
        return Mul(conj(grad) if conjugating else grad, by), by_dy if alike else raw.Reshape(by_dy, raw.Shape(dy))

    return op


SqrtGrad = _from_result(
    "SqrtGrad",
    lambda y, dy: dy * y.dtype.type(0.5) / y,
    lambda y, dy, z: Neg(RealDiv(z, y)),  # the result counts as one that the gradient depends on, as in TensorFlow
    zero_stays=True,
)
RsqrtGrad = _from_result(
    "RsqrtGrad",
    lambda y, dy: dy * y.dtype.type(-0.5) * y * (y * y),
    lambda y, dy, z: Mul(Mul(dy, -1.5), Square(y)),
    zero_stays=True,
)
ReciprocalGrad, InvGrad = (
    _from_result(name, lambda y, dy: -dy * (y * y), lambda y, dy, z: Mul(Mul(dy, -2.0), y), zero_stays=True)
    for name in ("ReciprocalGrad", "InvGrad")
)
TanhGrad = _from_result(
    "TanhGrad",
    lambda y, dy: dy * (y.dtype.type(1) - y * y),
    lambda y, dy, z: Mul(Mul(dy, -2.0), y),
    conjugating=False,
)
SigmoidGrad = _from_result(
    "SigmoidGrad",
    lambda y, dy: dy * y * (y.dtype.type(1) - y),
    lambda y, dy, z: Mul(dy, Sub(1.0, Mul(y, 2.0))),
    conjugating=False,
)


def _by_result(grad_op: OpFunction) -> Callable[..., Any]:
    return lambda op, grad: grad_op(op.outputs[0], grad)


def _by_conjugate(grad_op: OpFunction) -> Callable[..., Any]:
    return lambda op, grad: grad_op(conj(op.outputs[0]), grad)


def _reciprocal(xp: ArrayLibrary, x: Array) -> Any:
    return xp.trunc(1 / x).astype(x.dtype) if _is_integer(x) else xp.reciprocal(x)


Sqrt = unary("Sqrt", lambda xp, x: xp.sqrt(x), "inexact", _by_result(SqrtGrad))
Rsqrt = unary(
    "Rsqrt",
    lambda xp, x: jax.lax.rsqrt(x) if xp is jnp else np.reciprocal(np.sqrt(x)),
    "inexact",
    _by_result(RsqrtGrad),
)
Reciprocal = unary("Reciprocal", _reciprocal, _SIGNED_OR_COMPLEX, _by_result(ReciprocalGrad))
Inv = unary("Inv", _reciprocal, _SIGNED_OR_COMPLEX, _by_result(InvGrad))

# ---------------------------------------------------------------------- exponentials, trigonometry
Exp = unary("Exp", lambda xp, x: xp.exp(x), "inexact", chain(lambda x, y: y))
Expm1 = unary("Expm1", lambda xp, x: xp.expm1(x), "inexact", chain(lambda x, y: Exp(x)))
Log = unary("Log", lambda xp, x: xp.log(x), "inexact", divided_by(lambda x, y: x))
Log1p = unary("Log1p", lambda xp, x: xp.log1p(x), "inexact", divided_by(lambda x, y: AddV2(x, 1.0)))
Sin = unary("Sin", lambda xp, x: xp.sin(x), "inexact", chain(lambda x, y: raw.Cos(x)))
Cos = unary("Cos", lambda xp, x: xp.cos(x), "inexact", chain(lambda x, y: Neg(Sin(x))))
Tan = unary("Tan", lambda xp, x: xp.tan(x), "inexact", divided_by(lambda x, y: Square(raw.Cos(x))))
Asin = unary("Asin", lambda xp, x: xp.arcsin(x), "inexact", divided_by(lambda x, y: Sqrt(Sub(1.0, Square(x)))))
Acos = unary("Acos", lambda xp, x: xp.arccos(x), "inexact", divided_by(lambda x, y: Neg(Sqrt(Sub(1.0, Square(x))))))
Atan = unary("Atan", lambda xp, x: xp.arctan(x), "inexact", divided_by(lambda x, y: AddV2(Square(x), 1.0)))
Sinh = unary("Sinh", lambda xp, x: xp.sinh(x), "inexact", chain(lambda x, y: raw.Cosh(x)))
Cosh = unary("Cosh", lambda xp, x: xp.cosh(x), "inexact", chain(lambda x, y: Sinh(x)))
Tanh = unary("Tanh", lambda xp, x: xp.tanh(x), "inexact", _by_conjugate(TanhGrad))
Asinh = unary("Asinh", lambda xp, x: xp.arcsinh(x), "inexact", divided_by(lambda x, y: Cosh(y)))
Acosh = unary("Acosh", lambda xp, x: xp.arccosh(x), "inexact", divided_by(lambda x, y: Sinh(y)))
Atanh = unary("Atanh", lambda xp, x: xp.arctanh(x), "inexact", divided_by(lambda x, y: Sub(1.0, Square(x))))


def _sigmoid(xp: ArrayLibrary, x: Array) -> Any:
    if xp is not np:
        return jax.lax.logistic(x)
    # NumPy computes small floating types in steps that are rounded each; XLA rounds once
    wide = x.astype(np.result_type(x, np.float32)) if np.dtype(x.dtype).itemsize < 4 else x
    if np.iscomplexobj(wide):
        return 1 / (1 + np.exp(-wide))
    small = np.exp(-np.abs(wide))  # of no positive number, which could overflow
    return (np.where(wide < 0, small, 1) / (1 + small)).astype(x.dtype)


Sigmoid = unary("Sigmoid", _sigmoid, "inexact", _by_conjugate(SigmoidGrad))

Atan2 = define_op("Atan2", "y: T, x: T -> z: T", "T: floating")
Atan2.shape(shape_rules.broadcast)


@Atan2.kernel
def _(y: Array, x: Array, *, xp: ArrayLibrary) -> Any:
    return xp.arctan2(y, x)


@Atan2.gradient
def _(op: Operation, grad: Tensor) -> Any:
    y, x = op.inputs
    scaled = RealDiv(grad, AddV2(Square(x), Square(y)))
    return sum_to_operands(op, Mul(x, scaled), Mul(Neg(y), scaled))


# ---------------------------------------------------------------------- signs, rounding
def _sign_gradient(op: Operation, grad: Tensor) -> Any:
    x, sign = op.inputs[0], op.outputs[0]
    if not x.dtype.is_complex:
        return raw.ZerosLike(x)
    along = raw.Cast(raw.Real(Mul(conj(sign), grad), Tout=x.dtype.real_dtype), DstT=x.dtype)
    size = raw.Cast(raw.ComplexAbs(x, Tout=x.dtype.real_dtype), DstT=x.dtype)
    return DivNoNan(Sub(grad, Mul(sign, along)), size)


Abs = unary("Abs", lambda xp, x: xp.abs(x), _SIGNED, lambda op, grad: Mul(grad, raw.Sign(op.inputs[0])))
Sign = unary("Sign", lambda xp, x: xp.sign(x), _SIGNED_OR_COMPLEX, _sign_gradient)
Floor = unary("Floor", lambda xp, x: xp.floor(x), "floating", no_gradient)
Ceil = unary("Ceil", lambda xp, x: xp.ceil(x), "floating", no_gradient)
Rint = unary("Rint", lambda xp, x: xp.rint(x), "floating", no_gradient)
#: half to even
Round = unary("Round", lambda xp, x: x if _is_integer(x) else xp.rint(x), _SIGNED_OR_COMPLEX, no_gradient)

NextAfter = define_op("NextAfter", "x1: T, x2: T -> output: T", "T: {double, float} = float32")
NextAfter.shape(shape_rules.broadcast)


@NextAfter.kernel
def _(x1: Array, x2: Array, *, xp: ArrayLibrary) -> Any:
    return xp.nextafter(x1, x2)


@NextAfter.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return sum_to_operands(op, grad, raw.ZerosLike(grad))


# ---------------------------------------------------------------------- extremes
def _extreme_gradient(first_wins: str) -> Callable[..., Any]:
    def gradient(op: Operation, grad: Tensor) -> Any:
        mask, zeros = getattr(raw, first_wins)(*op.inputs), raw.ZerosLike(grad)
        return sum_to_operands(op, raw.Select(mask, grad, zeros), raw.Select(mask, zeros, grad))

    return gradient


Maximum = binary("Maximum", lambda xp, x, y: xp.maximum(x, y), "real", _extreme_gradient("GreaterEqual"))
Minimum = binary("Minimum", lambda xp, x, y: xp.minimum(x, y), "real", _extreme_gradient("LessEqual"))


def complex_array(real: Array, imag: Array, *, xp: ArrayLibrary) -> Any:
    """Complex numbers of their parts; real + 1j * imag would spoil infinities."""
    real, imag = xp.broadcast_arrays(real, imag)
    if xp is not np:
        return jax.lax.complex(real, imag)
    out = np.empty(real.shape, np.result_type(real, np.complex64))
    out.real, out.imag = real, imag
    return out


ClipByValue = define_op("ClipByValue", "t: T, clip_value_min: T, clip_value_max: T -> output: T", "T: numbers")


@ClipByValue.late_shape
def _(t: TensorShape, clip_value_min: TensorShape, clip_value_max: TensorShape) -> TensorShape:
    for bound in (clip_value_min, clip_value_max):
        if bound.ndims:
            t = shape_rules.merged(t, bound)
    return t


@ClipByValue.kernel
def _(t: Array, clip_value_min: Array, clip_value_max: Array, *, xp: ArrayLibrary) -> Any:
    """A bound that is NaN bounds nothing; NaN stays. Complex numbers are clipped part by part."""
    if np.iscomplexobj(t):
        parts = [_clipped(part(t), part(clip_value_min), part(clip_value_max), xp) for part in (xp.real, xp.imag)]
        return complex_array(*parts, xp=xp)
    return _clipped(t, clip_value_min, clip_value_max, xp)


def _clipped(t: Array, low: Array, high: Array, xp: ArrayLibrary) -> Any:
    below = xp.where(high < t, high, t)
    return xp.where(low > below, low, below)


@ClipByValue.gradient
def _(op: Operation, grad: Tensor) -> Any:
    t, low, high = op.inputs
    zeros = raw.ZerosLike(grad)
    below, above = raw.Less(t, low), raw.Greater(t, high)
    by_low, by_high = raw.SelectV2(below, grad, zeros), raw.SelectV2(above, grad, zeros)
    inside = raw.SelectV2(raw.LogicalOr(below, above), zeros, grad)
    return sum_to_shape(inside, t), sum_to_shape(by_low, low), sum_to_shape(by_high, high)


# ---------------------------------------------------------------------- conversion
Cast = define_op("Cast", "x: SrcT -> y: DstT", "SrcT: any, DstT: any, Truncate: bool = False", keeps_all=True)
Cast.shape(shape_rules.same_as_first)


@Cast.partial_value
def _(tensor: AnyTensor, depth: int) -> list[int | None] | None:
    return partial_vector(tensor.op.inputs[0], depth)


@Cast.kernel
def _(x: Array, *, SrcT: DType, DstT: DType, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    """Floating to integer truncates; complex to real keeps the real part; to bool is != 0."""
    if SrcT == DstT:
        return x
    if not (SrcT.is_numpy_compatible and DstT.is_numpy_compatible) or "string" in (SrcT.name, DstT.name):
        ctx.check(False, f"Cast {SrcT.name} to {DstT.name} is not supported", error=UnimplementedError)
    if DstT.is_bool:
        return x != 0
    if SrcT.is_complex and not DstT.is_complex:
        x = xp.real(x)
    narrowed = ctx.narrowed(x)
    if narrowed is not None:
        return narrowed
    memory = ctx.memory(np.shape(x), DstT.as_numpy_dtype) if xp is np else None
    if memory is None:
        return x.astype(DstT.as_numpy_dtype)
    np.copyto(memory, x, casting="unsafe")
    return memory


@Cast.gradient
def _(op: Operation, grad: Tensor) -> Any:
    source, target = op.attrs["SrcT"], op.attrs["DstT"]
    if not all(t.is_floating or t.is_complex for t in (source, target)):
        return None
    return Cast(grad, DstT=source)
