"""Complex numbers: their parts, and how to put them together.

Gradients follow the convention Re(sum(conj(grad) dz)): that of a real function points in the direction of its steepest
ascent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arithmetic.broadcast_gradients import sum_to_operands
from anabranch.ops.arithmetic.math import complex_array
from anabranch.ops.factories import attach_gradient

Complex = define_op(
    "Complex",
    "real: T, imag: T -> out: Tout",
    "T: {float, double} = float32, Tout: {complex64, complex128} = complex64",
)
Complex.shape(shape_rules.broadcast)


def check_parts(ctx: OperationContext, real: Array, whole: Array) -> None:
    """Makes the step fail unless a complex dtype has parts of that real one."""
    ctx.check(
        whole.real_dtype is real,
        f"{real.name} and {whole.name} do not go together: the parts of {whole.name} are {whole.real_dtype.name}",
    )


@Complex.kernel
def _(real: Array, imag: Array, *, T: DType, Tout: DType, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    check_parts(ctx, T, Tout)
    return complex_array(real, imag, xp=xp)


@Complex.gradient
def _(op: Operation, grad: Tensor) -> Any:
    real = op.attrs["T"]
    return sum_to_operands(op, Real(grad, Tout=real), Imag(grad, Tout=real))


def complex_of(real: Tensor, imag: Tensor) -> Tensor:
    """Real + i imag, of the complex dtype that goes with theirs."""
    result: Tensor = Complex(real, imag, Tout="complex128" if real.dtype.name == "float64" else "complex64")
    return result


def _part(name: str, signature: str, function: Callable[..., Any], gradient: Callable[..., Any]) -> OpFunction:
    """A real function of a complex tensor."""
    op = define_op(name, signature, "T: {complex64, complex128} = complex64, Tout: {float, double} = float32")
    op.shape(shape_rules.same_as_first)

    @op.kernel
    def _(z: Array, *, T: DType, Tout: DType, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        check_parts(ctx, Tout, T)
        return function(xp, z).astype(Tout.as_numpy_dtype)

    return attach_gradient(op, gradient)


def _angle_gradient(op: Operation, grad: Tensor) -> Any:
    z, real = op.inputs[0], op.attrs["Tout"]
    re, im = Real(z, Tout=real), Imag(z, Tout=real)
    scaled = raw.RealDiv(grad, raw.AddV2(raw.Square(re), raw.Square(im)))
    return complex_of(raw.Mul(raw.Neg(im), scaled), raw.Mul(re, scaled))


Real = _part(
    "Real", "input: T -> output: Tout", lambda xp, z: xp.real(z), lambda op, grad: complex_of(grad, raw.ZerosLike(grad))
)
Imag = _part(
    "Imag", "input: T -> output: Tout", lambda xp, z: xp.imag(z), lambda op, grad: complex_of(raw.ZerosLike(grad), grad)
)
Angle = _part("Angle", "input: T -> output: Tout", lambda xp, z: xp.angle(z), _angle_gradient)
ComplexAbs = _part(
    "ComplexAbs",
    "x: T -> y: Tout",
    lambda xp, z: xp.abs(z),
    lambda op, grad: raw.Mul(complex_of(grad, raw.ZerosLike(grad)), raw.Sign(op.inputs[0])),
)

Conj = define_op("Conj", "input: T -> output: T", "T: {complex64, complex128, variant} = complex64")
Conj.shape(shape_rules.same_as_first)


@Conj.kernel
def _(input: Array, *, xp: ArrayLibrary) -> Any:
    return xp.conj(input)


@Conj.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return Conj(grad)
