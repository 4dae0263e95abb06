"""Special functions: error functions, gamma and beta functions, Bessel functions. All compiled only."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as jsp
import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arithmetic import hurwitz_zeta, incomplete_gamma
from anabranch.ops.arithmetic.broadcast_gradients import sum_to_operands, sum_to_shape
from anabranch.ops.arithmetic.math import chain
from anabranch.ops.factories import attach_gradient, unary_compiled


def _gaussian(factor: float, sign: float) -> Callable[[Tensor, Tensor], Tensor]:
    """The function x -> factor * exp(sign * x * x)."""
    return lambda x, _: raw.Mul(raw.Exp(raw.Mul(raw.Square(x), sign)), factor)


def _inverse(rule: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """For a derivative that is a function of the result."""
    return lambda x, y: rule(y, x)


def _ndtri(x: Array) -> Any:
    wide = x if x.dtype.itemsize > 2 else x.astype(np.float32)
    return jsp.ndtri(wide).astype(x.dtype)


def _lgamma(x: Array) -> Any:
    """XLA's is half a millionth off where it is to be 0, as it is in C's library."""
    return jnp.where((x == 1) | (x == 2), jnp.zeros_like(x), jax.lax.lgamma(x))


Erf = unary_compiled("Erf", jsp.erf, gradient=chain(_gaussian(2 / math.sqrt(math.pi), -1.0)))
Erfc = unary_compiled("Erfc", jsp.erfc, gradient=chain(_gaussian(-2 / math.sqrt(math.pi), -1.0)))
Erfinv = unary_compiled("Erfinv", jsp.erfinv, gradient=chain(_inverse(_gaussian(math.sqrt(math.pi) / 2, 1.0))))
Ndtri = unary_compiled("Ndtri", _ndtri, gradient=chain(_inverse(_gaussian(math.sqrt(2 * math.pi), 0.5))))
Lgamma = unary_compiled("Lgamma", _lgamma, gradient=chain(lambda x, y: raw.Digamma(x)))
Digamma = unary_compiled("Digamma", jax.lax.digamma, gradient=chain(lambda x, y: _trigamma(x)))


def _trigamma(x: Tensor) -> Tensor:
    if x.dtype.name in {"float32", "float64"}:
        result: Tensor = Polygamma(raw.OnesLike(x), x)
        return result
    wide = raw.Cast(x, DstT="float32")
    narrow: Tensor = raw.Cast(Polygamma(raw.OnesLike(wide), wide), DstT=x.dtype)
    return narrow


def _i0e_derivative(x: Tensor, y: Tensor) -> Tensor:
    derivative: Tensor = raw.Sub(BesselI1e(x), raw.Mul(raw.Sign(x), y))
    return derivative


def _i1e_derivative(x: Tensor, y: Tensor) -> Tensor:
    """Equals 1/2 at 0, where y / x is not defined."""
    at_zero, zeros = raw.Equal(x, raw.ZerosLike(x)), raw.ZerosLike(x)
    safe = raw.Select(at_zero, raw.OnesLike(x), x)
    elsewhere = raw.Sub(BesselI0e(safe), raw.Mul(y, raw.AddV2(raw.Sign(safe), raw.Reciprocal(safe))))
    derivative: Tensor = raw.Select(at_zero, raw.AddV2(zeros, 0.5), elsewhere)
    return derivative


BesselI0e = unary_compiled("BesselI0e", jsp.i0e, gradient=chain(_i0e_derivative))
BesselI1e = unary_compiled("BesselI1e", jsp.i1e, gradient=chain(_i1e_derivative))


def _binary(
    name: str,
    signature: str,
    function: Callable[..., Any],
    gradient: Callable[..., Any] | None,
    types: str = "{float, double}",
) -> OpFunction:
    op = define_op(name, signature, f"T: {types}")
    op.shape(shape_rules.broadcast)
    op.kernel(function)
    return attach_gradient(op, gradient)


def _polygamma_gradient(op: Operation, grad: Tensor) -> Any:
    n, x = op.inputs
    return None, sum_to_shape(raw.Mul(grad, Polygamma(raw.AddV2(n, 1.0), x)), x, n)


def _zeta_gradient(op: Operation, grad: Tensor) -> Any:
    x, q = op.inputs
    return None, sum_to_shape(raw.Mul(grad, raw.Mul(raw.Neg(x), Zeta(raw.AddV2(x, 1.0), q))), q, x)


def _igamma_gradient(sign: float) -> Callable[..., Any]:
    def gradient(op: Operation, grad: Tensor) -> Any:
        a, x = op.inputs
        density = raw.Exp(raw.Sub(raw.Sub(raw.Mul(raw.Sub(a, 1.0), raw.Log(x)), x), Lgamma(a)))
        signed = raw.Mul(grad, sign)
        return sum_to_operands(op, raw.Mul(signed, IgammaGradA(a, x)), raw.Mul(signed, density))

    return gradient


Polygamma = _binary("Polygamma", "a: T, x: T -> z: T", hurwitz_zeta.polygamma, _polygamma_gradient)
Zeta = _binary("Zeta", "x: T, q: T -> z: T", hurwitz_zeta.zeta, _zeta_gradient)
Igamma = _binary("Igamma", "a: T, x: T -> z: T", incomplete_gamma.lower, _igamma_gradient(1.0), "floating")
Igammac = _binary("Igammac", "a: T, x: T -> z: T", incomplete_gamma.upper, _igamma_gradient(-1.0), "floating")
IgammaGradA = _binary(
    "IgammaGradA",
    "a: T, x: T -> z: T",
    incomplete_gamma.lower_by_a,
    None,
    "floating",
)


Betainc = define_op("Betainc", "a: T, b: T, x: T -> z: T", "T: {float, double}")


@Betainc.shape
def _(a: TensorShape, b: TensorShape, x: TensorShape) -> TensorShape:
    """Scalars combine with any shape; the other inputs have one shape."""
    if any(shape.ndims is None for shape in (a, b, x)):
        return shape_rules.UNKNOWN
    shapes = [shape for shape in (a, b, x) if shape.ndims]
    for shape in shapes[1:]:
        if not shape.is_compatible_with(shapes[0]):
            raise ValueError(f"the shapes of a, b and x must be equal, or (), but are {a}, {b} and {x}")
    return shape_rules.merged(*shapes) if shapes else shape_rules.SCALAR


@Betainc.kernel
def _(a: Array, b: Array, x: Array, *, ctx: OperationContext) -> Any:
    shapes = {v.shape for v in (a, b, x)} - {()}
    ctx.check(len(shapes) < 2, f"Shapes of a, b and x are inconsistent: {a.shape}, {b.shape} and {x.shape}")
    a, b, x = jnp.broadcast_arrays(a, b, x)
    at_end = (x == 0) | (x == 1)  # where the other parameters no longer matter
    # for small b, the difference from 1 that it is leaves two digits in single precision
    wide = jax.lax.betainc(*(v.astype(jnp.float64) for v in (a, b, x)))
    inside = jnp.where(at_end, x, wide.astype(x.dtype))
    return jnp.where((a <= 0) | (b <= 0) | (x < 0) | (x > 1), np.nan, inside)


@Betainc.gradient
def _(op: Operation, grad: Tensor) -> Any:
    """The gradient is by x only, as in TensorFlow: the derivatives by a and b have no closed form."""
    a, b, x = op.inputs
    log_beta = raw.Sub(raw.AddV2(Lgamma(a), Lgamma(b)), Lgamma(raw.AddV2(a, b)))
    log_density = raw.AddV2(raw.Xlog1py(raw.Sub(b, 1.0), raw.Neg(x)), raw.Xlogy(raw.Sub(a, 1.0), x))
    return None, None, sum_to_shape(raw.Mul(grad, raw.Exp(raw.Sub(log_density, log_beta))), x)
