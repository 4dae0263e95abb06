"""Elementwise arithmetic, comparisons, logic, bits, complex numbers, special functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, overload

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DType
from anabranch.core.shapes import TensorShape
from anabranch.frontend.framework import convert_to_tensor, name_scope
from anabranch.graph.building import OpFunction
from anabranch.graph.composite import IndexedSlices, SparseTensor
from anabranch.graph.conversion import is_tensor_like
from anabranch.graph.operation import Tensor
from anabranch.ops import complex_numbers, logic, math as arithmetic, raw, special

__all__ = [
    "abs",
    "accumulate_n",
    "acos",
    "acosh",
    "add",
    "add_n",
    "angle",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bessel_i0",
    "bessel_i0e",
    "bessel_i1",
    "bessel_i1e",
    "betainc",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "ceil",
    "complex",
    "conj",
    "cos",
    "cosh",
    "digamma",
    "div",
    "div_no_nan",
    "divide",
    "divide_no_nan",
    "equal",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "floor",
    "floor_div",
    "floordiv",
    "floormod",
    "greater",
    "greater_equal",
    "igamma",
    "igammac",
    "imag",
    "invert",
    "is_finite",
    "is_inf",
    "is_nan",
    "lbeta",
    "left_shift",
    "less",
    "less_equal",
    "lgamma",
    "log",
    "log1p",
    "log_sigmoid",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "multiply_no_nan",
    "negative",
    "nextafter",
    "not_equal",
    "polygamma",
    "polyval",
    "pow",
    "real",
    "realdiv",
    "reciprocal",
    "reciprocal_no_nan",
    "right_shift",
    "rint",
    "round",
    "rsqrt",
    "scalar_mul",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "squared_difference",
    "subtract",
    "tan",
    "tanh",
    "truediv",
    "truncatediv",
    "truncatemod",
    "xdivy",
    "xlogy",
    "zeta",
]


# ---------------------------------------------------------------------- functions that are one operation
class _Unary(Protocol):
    """A function of one tensor."""

    @overload
    def __call__(self, x: SparseTensor, name: str | None = ...) -> SparseTensor: ...
    @overload
    def __call__(self, x: Any, name: str | None = ...) -> Tensor: ...


class _Binary(Protocol):
    """A function of two tensors."""

    def __call__(self, x: Any, y: Any, name: str | None = ...) -> Tensor: ...


def _unary(name: str, op: OpFunction, doc: str, sparse: bool = False) -> _Unary:
    """`<name>(x, name=None)`; with `sparse` also of the elements of a `SparseTensor`, where f(0) = 0."""

    def function(x: Any, name: str | None = None) -> Tensor | SparseTensor:
        if sparse and isinstance(x, SparseTensor):
            return SparseTensor(x.indices, op(x.values, name=name), x.dense_shape)
        result: Tensor | SparseTensor = op(x, name=name)
        return result

    return _named(function, name, doc)


def _binary(name: str, op: OpFunction, doc: str) -> _Binary:
    """`<name>(x, y, name=None)`; the operands broadcast."""

    def function(x: Any, y: Any, name: str | None = None) -> Tensor:
        result: Tensor = op(x, y, name=name)
        return result

    return _named(function, name, doc)


def _named(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


negative = _unary("negative", arithmetic.Neg, "-x for each element of a tensor or `SparseTensor`.", sparse=True)
square = _unary("square", arithmetic.Square, "x * x for each element of a tensor or `SparseTensor`.", sparse=True)
sqrt = _unary("sqrt", arithmetic.Sqrt, "The square root of each element; floating or complex.", sparse=True)
rsqrt = _unary("rsqrt", arithmetic.Rsqrt, "1 / sqrt(x) for each element; floating or complex.")
reciprocal = _unary("reciprocal", arithmetic.Reciprocal, "1 / x for each element.")
exp = _unary("exp", arithmetic.Exp, "e to the power of each element; floating or complex.")
expm1 = _unary("expm1", arithmetic.Expm1, "exp(x) - 1 for each element, exact near 0.")
log = _unary("log", arithmetic.Log, "The natural logarithm of each element; floating or complex.")
log1p = _unary("log1p", arithmetic.Log1p, "log(1 + x) for each element, exact near 0.")
sin = _unary("sin", arithmetic.Sin, "The sine of each element, in radians.")
cos = _unary("cos", arithmetic.Cos, "The cosine of each element, in radians.")
tan = _unary("tan", arithmetic.Tan, "The tangent of each element, in radians.")
asin = _unary("asin", arithmetic.Asin, "The inverse sine of each element, in radians.")
acos = _unary("acos", arithmetic.Acos, "The inverse cosine of each element, in radians.")
atan = _unary("atan", arithmetic.Atan, "The inverse tangent of each element, in radians.")
sinh = _unary("sinh", arithmetic.Sinh, "The hyperbolic sine of each element.")
cosh = _unary("cosh", arithmetic.Cosh, "The hyperbolic cosine of each element.")
tanh = _unary("tanh", arithmetic.Tanh, "The hyperbolic tangent of each element.", sparse=True)
asinh = _unary("asinh", arithmetic.Asinh, "The inverse hyperbolic sine of each element.")
acosh = _unary("acosh", arithmetic.Acosh, "The inverse hyperbolic cosine of each element.")
atanh = _unary("atanh", arithmetic.Atanh, "The inverse hyperbolic tangent of each element.")
sigmoid = _unary("sigmoid", arithmetic.Sigmoid, "1 / (1 + exp(-x)) for each element; floating or complex.")
sign = _unary("sign", arithmetic.Sign, "-1, 0 or 1 for each element; x / |x| for complex numbers.", sparse=True)
floor = _unary("floor", arithmetic.Floor, "The greatest integer not above each element; floating.")
ceil = _unary("ceil", arithmetic.Ceil, "The smallest integer not below each element; floating.")
rint = _unary("rint", arithmetic.Rint, "The nearest integer to each element, halves to the even one; floating.")
erf = _unary("erf", special.Erf, "The error function of each element; floating.", sparse=True)
erfc = _unary("erfc", special.Erfc, "The complementary error function of each element; floating.")
lgamma = _unary("lgamma", special.Lgamma, "The logarithm of |gamma(x)| for each element; floating.")
digamma = _unary("digamma", special.Digamma, "The derivative of lgamma at each element; floating.")
bessel_i0e = _unary("bessel_i0e", special.BesselI0e, "exp(-|x|) I0(x) for each element; floating.")
bessel_i1e = _unary("bessel_i1e", special.BesselI1e, "exp(-|x|) I1(x) for each element; floating.")
is_nan = _unary("is_nan", logic.IsNan, "Which elements are not a number; bool.")
is_inf = _unary("is_inf", logic.IsInf, "Which elements are infinite; bool.")
is_finite = _unary("is_finite", logic.IsFinite, "Which elements are neither infinite nor NaN; bool.")
logical_not = _unary("logical_not", logic.LogicalNot, "The negation of each element; bool.")
invert = _unary("invert", logic.Invert, "The complement of each bit; integers.")

add = _binary("add", arithmetic.Add, "x + y; numbers, or strings, which are joined.")
subtract = _binary("subtract", arithmetic.Sub, "x - y.")
multiply = _binary("multiply", arithmetic.Mul, "x * y.")
multiply_no_nan = _binary(
    "multiply_no_nan", arithmetic.MulNoNan, "x * y, and 0 where y is 0 even if x is infinite or NaN."
)
div_no_nan = _binary("div_no_nan", arithmetic.DivNoNan, "x / y, and 0 where y is 0; floating or complex.")
divide_no_nan = div_no_nan
realdiv = _binary("realdiv", arithmetic.RealDiv, "x / y for floating and complex numbers.")
truncatediv = _binary("truncatediv", arithmetic.TruncateDiv, "x / y rounded towards zero.")
truncatemod = _binary("truncatemod", arithmetic.TruncateMod, "The remainder of x / y with the sign of x.")
floordiv = _binary("floordiv", arithmetic.FloorDiv, "x / y rounded towards minus infinity.")
floor_div = _binary("floor_div", arithmetic.FloorDiv, "x / y rounded towards minus infinity.")
floormod = _binary("floormod", arithmetic.FloorMod, "The remainder of x / y with the sign of y.")
mod = floormod
squared_difference = _binary("squared_difference", arithmetic.SquaredDifference, "(x - y) * (x - y).")
maximum = _binary("maximum", arithmetic.Maximum, "The greater of x and y, elementwise.")
minimum = _binary("minimum", arithmetic.Minimum, "The smaller of x and y, elementwise.")
xdivy = _binary("xdivy", arithmetic.Xdivy, "x / y, and 0 where x is 0 even if y is 0.")
xlogy = _binary("xlogy", arithmetic.Xlogy, "x * log(y), and 0 where x is 0 even if y is 0.")
equal = _binary("equal", logic.Equal, "x == y, elementwise; any type.")
not_equal = _binary("not_equal", logic.NotEqual, "x != y, elementwise; any type.")
less = _binary("less", logic.Less, "x < y, elementwise; real numbers.")
less_equal = _binary("less_equal", logic.LessEqual, "x <= y, elementwise; real numbers.")
greater = _binary("greater", logic.Greater, "x > y, elementwise; real numbers.")
greater_equal = _binary("greater_equal", logic.GreaterEqual, "x >= y, elementwise; real numbers.")
logical_and = _binary("logical_and", logic.LogicalAnd, "x and y, elementwise; bool.")
logical_or = _binary("logical_or", logic.LogicalOr, "x or y, elementwise; bool.")
bitwise_and = _binary("bitwise_and", logic.BitwiseAnd, "The bits set in both x and y; integers.")
bitwise_or = _binary("bitwise_or", logic.BitwiseOr, "The bits set in x or y; integers.")
bitwise_xor = _binary("bitwise_xor", logic.BitwiseXor, "The bits set in one of x and y only; integers.")
left_shift = _binary("left_shift", logic.LeftShift, "The bits of x, y places to the left; integers.")
right_shift = _binary(
    "right_shift", logic.RightShift, "The bits of x, y places to the right, keeping the sign; integers."
)


def atan2(y: Any, x: Any, name: str | None = None) -> Tensor:
    """The angle of the point (x, y), in radians in [-pi, pi]; floating."""
    result: Tensor = arithmetic.Atan2(y, x, name=name)
    return result


def nextafter(x1: Any, x2: Any, name: str | None = None) -> Tensor:
    """The representable number next to x1 in the direction of x2; float32 or float64."""
    result: Tensor = arithmetic.NextAfter(x1, x2, name=name)
    return result


def polygamma(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The derivative of order `a` of digamma at x; float32 or float64."""
    result: Tensor = special.Polygamma(a, x, name=name)
    return result


def zeta(x: Any, q: Any, name: str | None = None) -> Tensor:
    """Hurwitz' zeta function: the sum over n >= 0 of (q + n) ** -x; float32 or float64."""
    result: Tensor = special.Zeta(x, q, name=name)
    return result


def igamma(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The lower regularized incomplete gamma function P(a, x); floating."""
    result: Tensor = special.Igamma(a, x, name=name)
    return result


def igammac(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The upper regularized incomplete gamma function 1 - P(a, x); floating."""
    result: Tensor = special.Igammac(a, x, name=name)
    return result


def betainc(a: Any, b: Any, x: Any, name: str | None = None) -> Tensor:
    """The regularized incomplete beta function I_x(a, b); float32 or float64."""
    result: Tensor = special.Betainc(a, b, x, name=name)
    return result


# ---------------------------------------------------------------------- compositions
@overload
def abs(x: SparseTensor, name: str | None = ...) -> SparseTensor: ...
@overload
def abs(x: Any, name: str | None = ...) -> Tensor: ...
def abs(x: Any, name: str | None = None) -> Tensor | SparseTensor:
    """The absolute value of each element of a tensor or `SparseTensor`; real for complex numbers."""
    if isinstance(x, SparseTensor):
        return SparseTensor(x.indices, abs(x.values, name), x.dense_shape)
    with name_scope(name, "Abs", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        if x.dtype.is_complex:
            magnitude: Tensor = complex_numbers.ComplexAbs(x, Tout=x.dtype.real_dtype, name=scope)
            return magnitude
        result: Tensor = arithmetic.Abs(x, name=scope)
        return result


def round(x: Any, name: str | None = None) -> Tensor:
    """The nearest integer to each element, halves to the even one; integers are returned as they are."""
    tensor = convert_to_tensor(x, name="x")
    if tensor.dtype.is_integer:
        return tensor
    result: Tensor = arithmetic.Round(tensor, name=name)
    return result


def pow(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Powers: x to the power of y, elementwise."""
    result: Tensor = arithmetic.Pow(x, y, name=name or "Pow")
    return result


def logical_xor(x: Any, y: Any, name: str = "LogicalXor") -> Tensor:
    """Whether exactly one of x and y is true, elementwise; bool."""
    either = logic.LogicalOr(x, y)
    result: Tensor = logic.LogicalAnd(either, logic.LogicalNot(logic.LogicalAnd(x, y)), name=name)
    return result


def _operands(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Two tensors of one dtype; a plain Python value follows the other operand.

    Raises:
        TypeError: the dtypes differ.
    """
    if is_tensor_like(y) and not is_tensor_like(x):
        b = convert_to_tensor(y, name="y")
        a = convert_to_tensor(x, name="x", preferred_dtype=b.dtype.base_dtype)
    else:
        a = convert_to_tensor(x, name="x")
        b = convert_to_tensor(y, name="y", preferred_dtype=a.dtype.base_dtype)
    if a.dtype.base_dtype is not b.dtype.base_dtype:
        raise TypeError(f"x and y must have the same dtype, got {a.dtype!r} != {b.dtype!r}; use tf.cast")
    return a, b


#: what integers become before they are divided as in Python 3
QUOTIENT_TYPES: dict[DType, DType] = {
    dtypes.uint8: dtypes.float32,
    dtypes.int8: dtypes.float32,
    dtypes.uint16: dtypes.float32,
    dtypes.int16: dtypes.float32,
    dtypes.uint32: dtypes.float64,
    dtypes.int32: dtypes.float64,
    dtypes.uint64: dtypes.float64,
    dtypes.int64: dtypes.float64,
}


def truediv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """The quotient x / y as Python 3 divides: integers are converted first.

    Those of up to 16 bits become float32, wider ones float64.

    Raises:
        TypeError: the dtypes differ.
    """
    with name_scope(name, "truediv", [x, y]) as scope:
        a, b = _operands(x, y)
        wide = QUOTIENT_TYPES.get(a.dtype.base_dtype)
        if wide is not None:
            a, b = raw.Cast(a, DstT=wide), raw.Cast(b, DstT=wide)
        result: Tensor = arithmetic.RealDiv(a, b, name=scope)
        return result


def divide(x: Any, y: Any, name: str | None = None) -> Tensor:
    """The quotient x / y as Python 3 divides; see `truediv`."""
    return truediv(x, y, name)


def div(x: Any, y: Any, name: str | None = None) -> Tensor:
    """The quotient x / y as Python 2 divides: that of integers is rounded towards minus infinity.

    Raises:
        TypeError: the dtypes differ.
    """
    with name_scope(name, "div", [x, y]) as scope:
        a, b = _operands(x, y)
        op = arithmetic.RealDiv if a.dtype.is_floating or a.dtype.is_complex else arithmetic.FloorDiv
        result: Tensor = op(a, b, name=scope)
        return result


def reciprocal_no_nan(x: Any, name: str | None = None) -> Tensor:
    """1 / x, and 0 where x is 0; floating or complex."""
    with name_scope(name, "reciprocal_no_nan", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        result: Tensor = arithmetic.DivNoNan(raw.Cast(1, DstT=x.dtype.base_dtype), x, name=scope)
        return result


@overload
def scalar_mul(scalar: Any, x: IndexedSlices, name: str | None = ...) -> IndexedSlices: ...
@overload
def scalar_mul(scalar: Any, x: Any, name: str | None = ...) -> Tensor: ...
def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Tensor | IndexedSlices:
    """A number times a tensor or `IndexedSlices`.

    Raises:
        ValueError: `scalar` is not a scalar.
    """
    scalar = convert_to_tensor(scalar, x.dtype.base_dtype if hasattr(x, "dtype") else None, name="scalar")
    if scalar.shape.ndims not in (0, None):
        raise ValueError(f"Only scalar multiply works, got shape {scalar.shape}")
    if isinstance(x, IndexedSlices):
        return IndexedSlices(arithmetic.Mul(scalar, x.values, name=name), x.indices, x.dense_shape)
    result: Tensor | IndexedSlices = arithmetic.Mul(scalar, x, name=name)
    return result


def log_sigmoid(x: Any, name: str | None = None) -> Tensor:
    """log(sigmoid(x)) for each element, exact for all x; floating."""
    with name_scope(name, "LogSigmoid", [x]) as scope:
        result: Tensor = arithmetic.Neg(raw.Softplus(arithmetic.Neg(x)), name=scope)
        return result


def _unscaled_bessel(name: str | None, default: str, x: Any, scaled: OpFunction) -> Tensor:
    with name_scope(name, default, [x]):
        x = convert_to_tensor(x, name="x")
        result: Tensor = arithmetic.Mul(arithmetic.Exp(arithmetic.Abs(x)), scaled(x))
        return result


def bessel_i0(x: Any, name: str | None = None) -> Tensor:
    """The modified Bessel function of the first kind of order 0; floating."""
    return _unscaled_bessel(name, "bessel_i0", x, special.BesselI0e)


def bessel_i1(x: Any, name: str | None = None) -> Tensor:
    """The modified Bessel function of the first kind of order 1; floating."""
    return _unscaled_bessel(name, "bessel_i1", x, special.BesselI1e)


def lbeta(x: Any, name: str | None = None) -> Tensor:
    """The logarithm of |beta| of the vectors in the last dimension of `x`, shape [..., n]; the result
    has shape [...].
    """
    with name_scope(name, "lbeta", [x]):
        x = convert_to_tensor(x, name="x")
        product = raw.Sum(special.Lgamma(x), [-1])
        result: Tensor = arithmetic.Sub(product, special.Lgamma(raw.Sum(x, [-1])))
        return result


def polyval(coeffs: Any, x: Any, name: str | None = None) -> Tensor:
    """The polynomial with `coeffs` (a list of tensors, the highest power first) at x.

    Raises:
        ValueError: `coeffs` is not a list.
    """
    if not isinstance(coeffs, list):
        raise ValueError(f"Argument coeffs must be list type, found {type(coeffs)}.")
    with name_scope(name, "polyval", [*coeffs, x]):
        x = convert_to_tensor(x, name="x")
        if not coeffs:
            zero: Tensor = raw.ZerosLike(x)
            return zero
        total = convert_to_tensor(coeffs[0], name="coeff_0")
        for i, coefficient in enumerate(coeffs[1:]):
            total = arithmetic.AddV2(convert_to_tensor(coefficient, name=f"coeff_{i + 1}"), arithmetic.Mul(total, x))
        return total


# ---------------------------------------------------------------------- sums of lists
def add_n(inputs: Any, name: str | None = None) -> Tensor:
    """The sum of a list of tensors (or `IndexedSlices`) of one shape and dtype.

    Raises:
        ValueError: the list is empty, or shapes or dtypes differ.
    """
    if not isinstance(inputs, list | tuple) or not inputs:
        raise ValueError("inputs must be a list of at least one Tensor/IndexedSlices with the same dtype and shape")
    tensors = [convert_to_tensor(t) for t in inputs]
    _check_same_type(tensors)
    if len(tensors) == 1:
        same: Tensor = raw.Identity(tensors[0], name=name) if name else tensors[0]
        return same
    result: Tensor = arithmetic.AddN(tensors, name=name)
    return result


def _check_same_type(tensors: list[Tensor]) -> None:
    if any(t.dtype.base_dtype is not tensors[0].dtype.base_dtype for t in tensors):
        raise ValueError(f"inputs must all have the same dtype, got {[t.dtype.name for t in tensors]}")


def accumulate_n(inputs: Any, shape: Any = None, tensor_dtype: Any = None, name: str | None = None) -> Tensor:
    """The sum of a list of tensors of one shape and dtype.

    Args:
        inputs: the tensors.
        shape: their shape, where it is not known.
        tensor_dtype: their dtype, to be checked.

    Raises:
        ValueError: the list is empty, or shapes or dtypes differ.
        TypeError: the dtype is not `tensor_dtype`.
    """
    if not isinstance(inputs, list | tuple) or not inputs:
        raise ValueError("inputs must be a list of at least one Tensor with the same dtype and shape")
    tensors = [convert_to_tensor(t) for t in inputs]
    _check_same_type(tensors)
    if tensor_dtype is not None and dtypes.as_dtype(tensor_dtype) is not tensors[0].dtype.base_dtype:
        raise TypeError(f"tensor_dtype is {tensor_dtype}, but input is of type {tensors[0].dtype.name}")
    full = TensorShape(shape) if shape is not None else TensorShape(None)
    for tensor in tensors:
        full = full.merge_with(tensor.shape)
    if len(tensors) == 1:
        same: Tensor = raw.Identity(tensors[0], name=name) if name else tensors[0]
        return same
    result: Tensor = arithmetic.AccumulateNV2(tensors, shape=full, name=name)
    return result


# ---------------------------------------------------------------------- complex numbers
def complex(real: Any, imag: Any, name: str | None = None) -> Tensor:
    """Real + i imag: complex64 from float32, complex128 from float64.

    Raises:
        TypeError: the parts are neither both float32 nor both float64.
    """
    real, imag = convert_to_tensor(real, name="real"), convert_to_tensor(imag, name="imag")
    kinds = {dtypes.float32: dtypes.complex64, dtypes.float64: dtypes.complex128}
    kind = kinds.get(real.dtype.base_dtype)
    if kind is None or real.dtype.base_dtype is not imag.dtype.base_dtype:
        raise TypeError(
            f"real and imag have incorrect types: {real.dtype.name} {imag.dtype.name}; both must be float32 or float64"
        )
    result: Tensor = complex_numbers.Complex(real, imag, Tout=kind, name=name or "Complex")
    return result


def _real_part(input: Any, name: str | None, op: OpFunction) -> Tensor:
    result: Tensor = op(input, Tout=input.dtype.real_dtype, name=name)
    return result


def real(input: Any, name: str | None = None) -> Tensor:
    """The real part of each element; a real tensor itself."""
    tensor = convert_to_tensor(input, name="input")
    return _real_part(tensor, name, complex_numbers.Real) if tensor.dtype.is_complex else tensor


def imag(input: Any, name: str | None = None) -> Tensor:
    """The imaginary part of each element; zeros for a real tensor."""
    tensor = convert_to_tensor(input, name="input")
    if tensor.dtype.is_complex:
        return _real_part(tensor, name, complex_numbers.Imag)
    zeros: Tensor = raw.ZerosLike(tensor, name=name)
    return zeros


def angle(input: Any, name: str | None = None) -> Tensor:
    """The angle of each element in the complex plane, in radians; 0 or pi for real numbers."""
    tensor = convert_to_tensor(input, name="input")
    if tensor.dtype.is_complex:
        return _real_part(tensor, name, complex_numbers.Angle)
    zeros = raw.ZerosLike(tensor)
    half_turn = raw.Cast(np.float64(np.pi), DstT=tensor.dtype)
    result: Tensor = raw.SelectV2(logic.Less(tensor, zeros), half_turn, zeros, name=name)
    return result


@overload
def conj(x: SparseTensor, name: str | None = ...) -> SparseTensor: ...
@overload
def conj(x: Any, name: str | None = ...) -> Tensor: ...
def conj(x: Any, name: str | None = None) -> Tensor | SparseTensor:
    """The complex conjugate of each element; a real tensor itself.

    Raises:
        TypeError: `x` is not numeric.
    """
    if isinstance(x, SparseTensor):
        return SparseTensor(x.indices, conj(x.values, name), x.dense_shape)
    tensor = convert_to_tensor(x, name="x")
    if tensor.dtype.is_complex:
        result: Tensor = complex_numbers.Conj(tensor, name=name)
        return result
    if tensor.dtype.is_floating or tensor.dtype.is_integer:
        return tensor
    raise TypeError(f"Expected numeric or variant tensor, got dtype {tensor.dtype!r}")
