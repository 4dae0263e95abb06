"""Elementwise arithmetic, comparisons, logic, bits, complex numbers, special functions."""

from __future__ import annotations

from typing import overload

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DType, DTypeLike
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.framework import name_scope
from anabranch.graph.building import OpFunction
from anabranch.graph.composite import IndexedSlices, SparseTensor
from anabranch.graph.conversion import convert_to_tensor, is_tensor_like
from anabranch.graph.dispatch import dispatched
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.ops.arithmetic import complex_numbers, logic, math as arithmetic, special


@dispatched
def atan2(y: TensorLike, x: TensorLike, name: str | None = None) -> Tensor:
    """The angle of the point (x, y), in radians in [-pi, pi]; floating."""
    result: Tensor = arithmetic.Atan2(y, x, name=name)
    return result


def nextafter(x1: TensorLike, x2: TensorLike, name: str | None = None) -> Tensor:
    """The representable number next to x1 in the direction of x2; float32 or float64."""
    result: Tensor = arithmetic.NextAfter(x1, x2, name=name)
    return result


def polygamma(a: TensorLike, x: TensorLike, name: str | None = None) -> Tensor:
    """The derivative of order `a` of digamma at x; float32 or float64."""
    result: Tensor = special.Polygamma(a, x, name=name)
    return result


def zeta(x: TensorLike, q: TensorLike, name: str | None = None) -> Tensor:
    """Hurwitz' zeta function: the sum over n >= 0 of (q + n) ** -x; float32 or float64."""
    result: Tensor = special.Zeta(x, q, name=name)
    return result


def igamma(a: TensorLike, x: TensorLike, name: str | None = None) -> Tensor:
    """The lower regularized incomplete gamma function P(a, x); floating."""
    result: Tensor = special.Igamma(a, x, name=name)
    return result


def igammac(a: TensorLike, x: TensorLike, name: str | None = None) -> Tensor:
    """The upper regularized incomplete gamma function 1 - P(a, x); floating."""
    result: Tensor = special.Igammac(a, x, name=name)
    return result


def betainc(a: TensorLike, b: TensorLike, x: TensorLike, name: str | None = None) -> Tensor:
    """The regularized incomplete beta function I_x(a, b); float32 or float64."""
    result: Tensor = special.Betainc(a, b, x, name=name)
    return result


# ---------------------------------------------------------------------- compositions
@overload
def abs(x: SparseTensor, name: str | None = ...) -> SparseTensor: ...
@overload
def abs(x: TensorLike, name: str | None = ...) -> Tensor: ...
@dispatched
def abs(x: TensorLike, name: str | None = None) -> Tensor | SparseTensor:
    """The absolute value of each element of a tensor or `SparseTensor`; real for complex numbers.

    Args:
        x: a tensor of real or complex numbers of any shape, or a `SparseTensor`.
        name: of the operation.

    Returns:
        A tensor of the shape of `x`; of a complex one with the dtype of its parts.

    Raises:
        TypeError: `x` is not numeric.

    Example:
        >>> sess.run(tf.abs([-1.5, 2.0]))
        array([1.5, 2. ], dtype=float32)
    """
    if isinstance(x, SparseTensor):
        return SparseTensor(x.indices, abs(x.values, name), x.dense_shape)
    with name_scope(name, "Abs", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        if x.dtype.is_complex:
            magnitude: Tensor = complex_numbers.ComplexAbs(x, Tout=x.dtype.real_dtype, name=scope)
            return magnitude
        result: Tensor = arithmetic.Abs(x, name=scope)
        return result


@dispatched
def round(x: TensorLike, name: str | None = None) -> Tensor:
    """The nearest integer to each element, halves to the even one; integers are returned as they are.

    Args:
        x: a tensor of numbers of any shape.
        name: of the operation.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        TypeError: `x` is not numeric.

    Example:
        >>> sess.run(tf.round([0.5, 1.5, -1.2]))
        array([ 0.,  2., -1.], dtype=float32)
    """
    tensor = convert_to_tensor(x, name="x")
    if tensor.dtype.is_integer:
        return tensor
    result: Tensor = arithmetic.Round(tensor, name=name)
    return result


@dispatched
def pow(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Powers: x to the power of y, elementwise.

    Args:
        x: numbers, of any shape.
        y: of the dtype of `x`; the shapes broadcast.
        name: of the operation.

    Returns:
        A tensor of the shape to which `x` and `y` broadcast, of their dtype.

    Raises:
        TypeError: the dtypes differ, or are not numeric.
        ValueError: the shapes do not broadcast.

    Raises (in the step):
        InvalidArgumentError: an integer is raised to a negative power.

    Example:
        >>> sess.run(tf.pow([2.0, 3.0], 2.0))
        array([4., 9.], dtype=float32)
    """
    result: Tensor = arithmetic.Pow(x, y, name=name or "Pow")
    return result


@dispatched
def logical_xor(x: TensorLike, y: TensorLike, name: str = "LogicalXor") -> Tensor:
    """Whether exactly one of x and y is true, elementwise; bool."""
    either = logic.LogicalOr(x, y)
    result: Tensor = logic.LogicalAnd(either, logic.LogicalNot(logic.LogicalAnd(x, y)), name=name)
    return result


def _operands(x: TensorLike, y: TensorLike) -> tuple[Tensor, Tensor]:
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


@dispatched
def truediv(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The quotient x / y as Python 3 divides: integers are converted first.

    Those of up to 16 bits become float32, wider ones float64.

    Args:
        x, y: numbers of one dtype, whose shapes broadcast.
        name: of the operation.

    Returns:
        A tensor of the shape to which `x` and `y` broadcast.

    Raises:
        TypeError: the dtypes differ.
        ValueError: the shapes do not broadcast.

    Example:
        >>> sess.run(tf.truediv([1, 3], [2, 2]))
        array([0.5, 1.5])
    """
    with name_scope(name, "truediv", [x, y]) as scope:
        a, b = _operands(x, y)
        wide = QUOTIENT_TYPES.get(a.dtype.base_dtype)
        if wide is not None:
            a, b = raw.Cast(a, DstT=wide), raw.Cast(b, DstT=wide)
        result: Tensor = arithmetic.RealDiv(a, b, name=scope)
        return result


@dispatched
def divide(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The quotient x / y as Python 3 divides; see `truediv`.

    Args:
        x, y: numbers of one dtype, whose shapes broadcast.
        name: of the operation.

    Returns:
        A tensor of the shape to which `x` and `y` broadcast.

    Raises:
        TypeError: the dtypes differ.
        ValueError: the shapes do not broadcast.

    Example:
        >>> sess.run(tf.divide([1.0, 3.0], 2.0))
        array([0.5, 1.5], dtype=float32)
    """
    return truediv(x, y, name)


@dispatched
def div(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The quotient x / y as Python 2 divides: that of integers is rounded towards minus infinity.

    Args:
        x, y: numbers of one dtype, whose shapes broadcast.
        name: of the operation.

    Returns:
        A tensor of the shape to which `x` and `y` broadcast, of their dtype.

    Raises:
        TypeError: the dtypes differ.
        ValueError: the shapes do not broadcast.

    Example:
        >>> sess.run(tf.div(7, 2)), sess.run(tf.div(7.0, 2.0))
        (np.int32(3), np.float32(3.5))
    """
    with name_scope(name, "div", [x, y]) as scope:
        a, b = _operands(x, y)
        op = arithmetic.RealDiv if a.dtype.is_floating or a.dtype.is_complex else arithmetic.FloorDiv
        result: Tensor = op(a, b, name=scope)
        return result


def reciprocal_no_nan(x: TensorLike, name: str | None = None) -> Tensor:
    """1 / x, and 0 where x is 0; floating or complex."""
    with name_scope(name, "reciprocal_no_nan", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        result: Tensor = arithmetic.DivNoNan(raw.Cast(1, DstT=x.dtype.base_dtype), x, name=scope)
        return result


@overload
def scalar_mul(scalar: TensorLike, x: IndexedSlices, name: str | None = ...) -> IndexedSlices: ...
@overload
def scalar_mul(scalar: TensorLike, x: TensorLike, name: str | None = ...) -> Tensor: ...
def scalar_mul(scalar: TensorLike, x: TensorLike, name: str | None = None) -> Tensor | IndexedSlices:
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


@dispatched
def log_sigmoid(x: TensorLike, name: str | None = None) -> Tensor:
    """log(sigmoid(x)) for each element, exact for all x; floating."""
    with name_scope(name, "LogSigmoid", [x]) as scope:
        result: Tensor = arithmetic.Neg(raw.Softplus(arithmetic.Neg(x)), name=scope)
        return result


def _unscaled_bessel(name: str | None, default: str, x: TensorLike, scaled: OpFunction) -> Tensor:
    with name_scope(name, default, [x]):
        x = convert_to_tensor(x, name="x")
        result: Tensor = arithmetic.Mul(arithmetic.Exp(arithmetic.Abs(x)), scaled(x))
        return result


def bessel_i0(x: TensorLike, name: str | None = None) -> Tensor:
    """The modified Bessel function of the first kind of order 0; floating."""
    return _unscaled_bessel(name, "bessel_i0", x, special.BesselI0e)


def bessel_i1(x: TensorLike, name: str | None = None) -> Tensor:
    """The modified Bessel function of the first kind of order 1; floating."""
    return _unscaled_bessel(name, "bessel_i1", x, special.BesselI1e)


def lbeta(x: TensorLike, name: str | None = None) -> Tensor:
    """The logarithm of |beta| of the vectors in the last dimension of `x`, shape [..., n]; the result
    has shape [...].
    """
    with name_scope(name, "lbeta", [x]):
        x = convert_to_tensor(x, name="x")
        product = raw.Sum(special.Lgamma(x), [-1])
        result: Tensor = arithmetic.Sub(product, special.Lgamma(raw.Sum(x, [-1])))
        return result


def polyval(coeffs: TensorLike, x: TensorLike, name: str | None = None) -> Tensor:
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
@dispatched
def add_n(inputs: TensorLike, name: str | None = None) -> Tensor:
    """The sum of a list of tensors (or `IndexedSlices`) of one shape and dtype.

    Args:
        inputs: a list of tensors of numbers (or `IndexedSlices`), of one shape and dtype.
        name: of the operation.

    Returns:
        A tensor of that shape and dtype.

    Raises:
        ValueError: the list is empty, or shapes or dtypes differ.

    Example:
        >>> sess.run(tf.add_n([[1, 2], [10, 20], [100, 200]]))
        array([111, 222], dtype=int32)
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


def accumulate_n(
    inputs: TensorLike, shape: ShapeLike | None = None, tensor_dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
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
@dispatched
def complex(real: TensorLike, imag: TensorLike, name: str | None = None) -> Tensor:
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


def _real_part(input: TensorLike, name: str | None, op: OpFunction) -> Tensor:
    result: Tensor = op(input, Tout=input.dtype.real_dtype, name=name)
    return result


@dispatched
def real(input: TensorLike, name: str | None = None) -> Tensor:
    """The real part of each element; a real tensor itself."""
    tensor = convert_to_tensor(input, name="input")
    return _real_part(tensor, name, complex_numbers.Real) if tensor.dtype.is_complex else tensor


@dispatched
def imag(input: TensorLike, name: str | None = None) -> Tensor:
    """The imaginary part of each element; zeros for a real tensor."""
    tensor = convert_to_tensor(input, name="input")
    if tensor.dtype.is_complex:
        return _real_part(tensor, name, complex_numbers.Imag)
    zeros: Tensor = raw.ZerosLike(tensor, name=name)
    return zeros


@dispatched
def angle(input: TensorLike, name: str | None = None) -> Tensor:
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
def conj(x: TensorLike, name: str | None = ...) -> Tensor: ...
@dispatched
def conj(x: TensorLike, name: str | None = None) -> Tensor | SparseTensor:
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
