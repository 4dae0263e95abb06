"""Elementwise functions that are one operation each: arithmetic, comparisons, logic, bits.

Their docstrings follow from the operation's signature, one sentence, and one example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, overload

from anabranch.core.values import TensorLike
from anabranch.graph.building import OpFunction
from anabranch.graph.composite import SparseTensor
from anabranch.graph.dispatch import dispatched
from anabranch.graph.operation import Tensor
from anabranch.ops.arithmetic import logic, math as arithmetic, special

_DTYPE = "TypeError: `x` is of a dtype that the operation does not take."
_SHAPES = """TypeError: the dtypes differ, or the operation does not take them.
        ValueError: the shapes do not broadcast."""


class _Unary(Protocol):
    """A function of one tensor."""

    @overload
    def __call__(self, x: SparseTensor, name: str | None = ...) -> SparseTensor: ...
    @overload
    def __call__(self, x: TensorLike, name: str | None = ...) -> Tensor: ...


class _Binary(Protocol):
    """A function of two tensors."""

    def __call__(self, x: TensorLike, y: TensorLike, name: str | None = ...) -> Tensor: ...


def _unary(name: str, op: OpFunction, doc: str, example: str, sparse: bool = False, home: str = "tf") -> _Unary:
    """`<name>(x, name=None)`; with `sparse` also of the elements of a `SparseTensor`, where f(0) = 0."""

    def function(x: TensorLike, name: str | None = None) -> Tensor | SparseTensor:
        if sparse and isinstance(x, SparseTensor):
            return SparseTensor(x.indices, op(x.values, name=name), x.dense_shape)
        result: Tensor = op(x, name=name)
        return result

    also = ", or a `SparseTensor`" if sparse else ""
    takes = f"x: a tensor of any shape{also}; {_kinds(op)}."
    return _documented(
        function, name, doc, takes, _result(op, "of the shape of `x`"), _DTYPE, f"{home}.{name}", example
    )


def _binary(name: str, op: OpFunction, doc: str, example: str, home: str = "tf") -> _Binary:
    """`<name>(x, y, name=None)`; the operands broadcast."""

    def function(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
        result: Tensor = op(x, y, name=name)
        return result

    takes = f"x, y: tensors of one dtype, whose shapes broadcast; {_kinds(op)}."
    gives = _result(op, "of the shape to which `x` and `y` broadcast")
    return _documented(function, name, doc, takes, gives, _SHAPES, f"{home}.{name}", example)


def _kinds(op: OpFunction) -> str:
    """The dtypes that an operation takes."""
    attribute = op.attrs.get("T")
    if attribute is None:
        return "bool"
    if attribute.allowed is None:
        return "any dtype"
    return ", ".join(
        sorted((dtype.name for dtype in attribute.allowed), key=lambda name: (name.rstrip("0123456789"), name))
    )


def _result(op: OpFunction, shape: str) -> str:
    boolean = op.outputs[0].type_attr is None
    return f"A tensor {shape}; {'bool' if boolean else 'the dtype stays'}."


def _documented(
    function: Callable[..., Any], name: str, doc: str, takes: str, gives: str, refuses: str, called: str, example: str
) -> Callable[..., Any]:
    """Names and documents a function; `example` is a call's arguments and what it gives: "[1.0] -> array([1.])"."""
    arguments, _, printed = example.partition(" -> ")
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{doc}

    Args:
        {takes}
        name: of the operation.

    Returns:
        {gives}

    Raises:
        {refuses}

    Example:
        >>> sess.run({called}({arguments}))
        {printed}
    """
    return dispatched(function)


negative = _unary(
    "negative",
    arithmetic.Neg,
    "-x for each element of a tensor or `SparseTensor`.",
    "[1.0, -2.0] -> array([-1.,  2.], dtype=float32)",
    sparse=True,
)
square = _unary(
    "square",
    arithmetic.Square,
    "x * x for each element of a tensor or `SparseTensor`.",
    "[1.0, -3.0] -> array([1., 9.], dtype=float32)",
    sparse=True,
)
sqrt = _unary(
    "sqrt",
    arithmetic.Sqrt,
    "The square root of each element; floating or complex.",
    "[4.0, 9.0] -> array([2., 3.], dtype=float32)",
    sparse=True,
)
rsqrt = _unary(
    "rsqrt",
    arithmetic.Rsqrt,
    "1 / sqrt(x) for each element; floating or complex.",
    "[4.0, 0.25] -> array([0.5, 2. ], dtype=float32)",
)
reciprocal = _unary(
    "reciprocal", arithmetic.Reciprocal, "1 / x for each element.", "[4.0, 0.5] -> array([0.25, 2.  ], dtype=float32)"
)
exp = _unary(
    "exp",
    arithmetic.Exp,
    "e to the power of each element; floating or complex.",
    "[0.0, 1.0] -> array([1.      , 2.718282], dtype=float32)",
)
expm1 = _unary(
    "expm1",
    arithmetic.Expm1,
    "exp(x) - 1 for each element, exact near 0.",
    "[0.0, 1e-8] -> array([0.e+00, 1.e-08], dtype=float32)",
)
log = _unary(
    "log",
    arithmetic.Log,
    "The natural logarithm of each element; floating or complex.",
    "[1.0, 10.0] -> array([0.       , 2.3025851], dtype=float32)",
)
log1p = _unary(
    "log1p",
    arithmetic.Log1p,
    "log(1 + x) for each element, exact near 0.",
    "[0.0, 1.0] -> array([0.       , 0.6931472], dtype=float32)",
)
sin = _unary(
    "sin",
    arithmetic.Sin,
    "The sine of each element, in radians.",
    "[0.0, 1.0] -> array([0.      , 0.841471], dtype=float32)",
)
cos = _unary(
    "cos",
    arithmetic.Cos,
    "The cosine of each element, in radians.",
    "[0.0, 1.0] -> array([1.       , 0.5403023], dtype=float32)",
)
tan = _unary(
    "tan",
    arithmetic.Tan,
    "The tangent of each element, in radians.",
    "[0.0, 1.0] -> array([0.       , 1.5574077], dtype=float32)",
)
asin = _unary(
    "asin",
    arithmetic.Asin,
    "The inverse sine of each element, in radians.",
    "[0.0, 1.0] -> array([0.       , 1.5707964], dtype=float32)",
)
acos = _unary(
    "acos",
    arithmetic.Acos,
    "The inverse cosine of each element, in radians.",
    "[1.0, 0.0] -> array([0.       , 1.5707964], dtype=float32)",
)
atan = _unary(
    "atan",
    arithmetic.Atan,
    "The inverse tangent of each element, in radians.",
    "[0.0, 1.0] -> array([0.       , 0.7853982], dtype=float32)",
)
sinh = _unary(
    "sinh",
    arithmetic.Sinh,
    "The hyperbolic sine of each element.",
    "[0.0, 1.0] -> array([0.       , 1.1752012], dtype=float32)",
)
cosh = _unary(
    "cosh",
    arithmetic.Cosh,
    "The hyperbolic cosine of each element.",
    "[0.0, 1.0] -> array([1.       , 1.5430806], dtype=float32)",
)
tanh = _unary(
    "tanh",
    arithmetic.Tanh,
    "The hyperbolic tangent of each element.",
    "[0.0, 1.0] -> array([0.       , 0.7615942], dtype=float32)",
    sparse=True,
)
asinh = _unary(
    "asinh",
    arithmetic.Asinh,
    "The inverse hyperbolic sine of each element.",
    "[0.0, 1.0] -> array([0.       , 0.8813736], dtype=float32)",
)
acosh = _unary(
    "acosh",
    arithmetic.Acosh,
    "The inverse hyperbolic cosine of each element.",
    "[1.0, 2.0] -> array([0.      , 1.316958], dtype=float32)",
)
atanh = _unary(
    "atanh",
    arithmetic.Atanh,
    "The inverse hyperbolic tangent of each element.",
    "[0.0, 0.5] -> array([0.        , 0.54930615], dtype=float32)",
)
sigmoid = _unary(
    "sigmoid",
    arithmetic.Sigmoid,
    "1 / (1 + exp(-x)) for each element; floating or complex.",
    "[0.0, 2.0] -> array([0.5     , 0.880797], dtype=float32)",
)
sign = _unary(
    "sign",
    arithmetic.Sign,
    "-1, 0 or 1 for each element; x / |x| for complex numbers.",
    "[-2.0, 0.0, 5.0] -> array([-1.,  0.,  1.], dtype=float32)",
    sparse=True,
)
floor = _unary(
    "floor",
    arithmetic.Floor,
    "The greatest integer not above each element; floating.",
    "[1.7, -1.2] -> array([ 1., -2.], dtype=float32)",
)
ceil = _unary(
    "ceil",
    arithmetic.Ceil,
    "The smallest integer not below each element; floating.",
    "[1.2, -1.7] -> array([ 2., -1.], dtype=float32)",
)
rint = _unary(
    "rint",
    arithmetic.Rint,
    "The nearest integer to each element, halves to the even one; floating.",
    "[0.5, 1.5, 1.7] -> array([0., 2., 2.], dtype=float32)",
)
erf = _unary(
    "erf",
    special.Erf,
    "The error function of each element; floating.",
    "[0.0, 1.0] -> array([0.       , 0.8427008], dtype=float32)",
    sparse=True,
)
erfc = _unary(
    "erfc",
    special.Erfc,
    "The complementary error function of each element; floating.",
    "[0.0, 1.0] -> array([1.        , 0.15729924], dtype=float32)",
)
lgamma = _unary(
    "lgamma",
    special.Lgamma,
    "The logarithm of |gamma(x)| for each element; floating.",
    "[1.0, 4.0] -> array([4.7683716e-07, 1.7917603e+00], dtype=float32)",
)
digamma = _unary(
    "digamma",
    special.Digamma,
    "The derivative of lgamma at each element; floating.",
    "[1.0, 2.0] -> array([-0.5772154 ,  0.42278463], dtype=float32)",
)
bessel_i0e = _unary(
    "bessel_i0e",
    special.BesselI0e,
    "exp(-|x|) I0(x) for each element; floating.",
    "[0.0, 1.0] -> array([1.0000001 , 0.46575963], dtype=float32)",
    home="tf.math",
)
bessel_i1e = _unary(
    "bessel_i1e",
    special.BesselI1e,
    "exp(-|x|) I1(x) for each element; floating.",
    "[0.0, 1.0] -> array([0.        , 0.20791042], dtype=float32)",
    home="tf.math",
)
is_nan = _unary(
    "is_nan", logic.IsNan, "Which elements are not a number; bool.", "[1.0, float('nan')] -> array([False,  True])"
)
is_inf = _unary(
    "is_inf", logic.IsInf, "Which elements are infinite; bool.", "[1.0, float('inf')] -> array([False,  True])"
)
is_finite = _unary(
    "is_finite",
    logic.IsFinite,
    "Which elements are neither infinite nor NaN; bool.",
    "[1.0, float('inf')] -> array([ True, False])",
)
logical_not = _unary(
    "logical_not", logic.LogicalNot, "The negation of each element; bool.", "[True, False] -> array([False,  True])"
)
invert = _unary(
    "invert",
    logic.Invert,
    "The complement of each bit; integers.",
    "[0, 5] -> array([-1, -6], dtype=int32)",
    home="tf.bitwise",
)

add = _binary(
    "add", arithmetic.Add, "x + y; numbers, or strings, which are joined.", "[1, 2], 10 -> array([11, 12], dtype=int32)"
)
subtract = _binary("subtract", arithmetic.Sub, "x - y.", "[1, 2], 10 -> array([-9, -8], dtype=int32)")
multiply = _binary("multiply", arithmetic.Mul, "x * y.", "[1.0, 2.0], [3.0, 4.0] -> array([3., 8.], dtype=float32)")
multiply_no_nan = _binary(
    "multiply_no_nan",
    arithmetic.MulNoNan,
    "x * y, and 0 where y is 0 even if x is infinite or NaN.",
    "[1.0, float('inf')], [2.0, 0.0] -> array([2., 0.], dtype=float32)",
    home="tf.math",
)
div_no_nan = _binary(
    "div_no_nan",
    arithmetic.DivNoNan,
    "x / y, and 0 where y is 0; floating or complex.",
    "[1.0, 1.0], [2.0, 0.0] -> array([0.5, 0. ], dtype=float32)",
)
divide_no_nan = div_no_nan
realdiv = _binary(
    "realdiv",
    arithmetic.RealDiv,
    "x / y for floating and complex numbers.",
    "[1.0, 3.0], 2.0 -> array([0.5, 1.5], dtype=float32)",
)
truncatediv = _binary(
    "truncatediv", arithmetic.TruncateDiv, "x / y rounded towards zero.", "[7, -7], 2 -> array([ 3, -3], dtype=int32)"
)
truncatemod = _binary(
    "truncatemod",
    arithmetic.TruncateMod,
    "The remainder of x / y with the sign of x.",
    "[7, -7], 3 -> array([ 1, -1], dtype=int32)",
)
floordiv = _binary(
    "floordiv",
    arithmetic.FloorDiv,
    "x / y rounded towards minus infinity.",
    "[7, -7], 2 -> array([ 3, -4], dtype=int32)",
)
floor_div = _binary(
    "floor_div",
    arithmetic.FloorDiv,
    "x / y rounded towards minus infinity.",
    "[7, -7], 2 -> array([ 3, -4], dtype=int32)",
)
floormod = _binary(
    "floormod",
    arithmetic.FloorMod,
    "The remainder of x / y with the sign of y.",
    "[7, -7], 3 -> array([1, 2], dtype=int32)",
)
mod = floormod
squared_difference = _binary(
    "squared_difference",
    arithmetic.SquaredDifference,
    "(x - y) * (x - y).",
    "[1.0, 5.0], 3.0 -> array([4., 4.], dtype=float32)",
)
maximum = _binary(
    "maximum", arithmetic.Maximum, "The greater of x and y, elementwise.", "[1, 5], 3 -> array([3, 5], dtype=int32)"
)
minimum = _binary(
    "minimum", arithmetic.Minimum, "The smaller of x and y, elementwise.", "[1, 5], 3 -> array([1, 3], dtype=int32)"
)
xdivy = _binary(
    "xdivy",
    arithmetic.Xdivy,
    "x / y, and 0 where x is 0 even if y is 0.",
    "[0.0, 1.0], [0.0, 2.0] -> array([0. , 0.5], dtype=float32)",
    home="tf.math",
)
xlogy = _binary(
    "xlogy",
    arithmetic.Xlogy,
    "x * log(y), and 0 where x is 0 even if y is 0.",
    "[0.0, 1.0], [0.0, 10.0] -> array([0.       , 2.3025851], dtype=float32)",
    home="tf.math",
)
equal = _binary("equal", logic.Equal, "x == y, elementwise; any type.", "[1, 2], [1, 3] -> array([ True, False])")
not_equal = _binary(
    "not_equal", logic.NotEqual, "x != y, elementwise; any type.", "[1, 2], [1, 3] -> array([False,  True])"
)
less = _binary("less", logic.Less, "x < y, elementwise; real numbers.", "[1, 2, 3], 2 -> array([ True, False, False])")
less_equal = _binary(
    "less_equal", logic.LessEqual, "x <= y, elementwise; real numbers.", "[1, 2, 3], 2 -> array([ True,  True, False])"
)
greater = _binary(
    "greater", logic.Greater, "x > y, elementwise; real numbers.", "[1, 2, 3], 2 -> array([False, False,  True])"
)
greater_equal = _binary(
    "greater_equal",
    logic.GreaterEqual,
    "x >= y, elementwise; real numbers.",
    "[1, 2, 3], 2 -> array([False,  True,  True])",
)
logical_and = _binary(
    "logical_and",
    logic.LogicalAnd,
    "x and y, elementwise; bool.",
    "[True, True], [True, False] -> array([ True, False])",
)
logical_or = _binary(
    "logical_or",
    logic.LogicalOr,
    "x or y, elementwise; bool.",
    "[True, False], [False, False] -> array([ True, False])",
)
bitwise_and = _binary(
    "bitwise_and",
    logic.BitwiseAnd,
    "The bits set in both x and y; integers.",
    "[6, 5], 3 -> array([2, 1], dtype=int32)",
    home="tf.bitwise",
)
bitwise_or = _binary(
    "bitwise_or",
    logic.BitwiseOr,
    "The bits set in x or y; integers.",
    "[6, 5], 3 -> array([7, 7], dtype=int32)",
    home="tf.bitwise",
)
bitwise_xor = _binary(
    "bitwise_xor",
    logic.BitwiseXor,
    "The bits set in one of x and y only; integers.",
    "[6, 5], 3 -> array([5, 6], dtype=int32)",
    home="tf.bitwise",
)
left_shift = _binary(
    "left_shift",
    logic.LeftShift,
    "The bits of x, y places to the left; integers.",
    "[1, 3], 2 -> array([ 4, 12], dtype=int32)",
    home="tf.bitwise",
)
right_shift = _binary(
    "right_shift",
    logic.RightShift,
    "The bits of x, y places to the right, keeping the sign; integers.",
    "[8, -8], 2 -> array([ 2, -2], dtype=int32)",
    home="tf.bitwise",
)
