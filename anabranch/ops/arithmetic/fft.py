"""Discrete Fourier transforms over the innermost dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax.experimental.layout import Layout, with_layout_constraint

from anabranch.core.arrays import Array, ArrayLibrary, HostArray
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.constants import ShapeContext, constant_value
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arithmetic.complex_numbers import check_parts, complex_of

# JAX does not say what it takes and gives
_constrained: Callable[..., Any] = with_layout_constraint

_COMPLEX = "Tcomplex: {complex64, complex128} = complex64"
_REAL = "Treal: {float, double} = float32"


def _axes(rank: int) -> list[int]:
    return list(range(-rank, 0))


def _inner_size(x: Tensor, rank: int) -> Tensor:
    """The number of elements in the innermost `rank` dimensions, in the dtype of `x`."""
    lengths = raw.StridedSlice(raw.Shape(x), [-rank], [0], [1], end_mask=1)
    result: Tensor = raw.Cast(raw.Prod(lengths, [0]), DstT=x.dtype)
    return result


def _row_major(transformed: Array, xp: ArrayLibrary) -> Array:
    """A transform as XLA's CPU runtime can compute it, whatever takes it.

    Matrix decompositions take their matrices column by column. Of a transform that they take, the compiler would ask
    the same, and the runtime refuses that.
    """
    if xp is np:
        return transformed
    constrained = _constrained(transformed, Layout(tuple(range(transformed.ndim))))
    # a result of the program must not be constrained itself: JAX would leave the layouts of all results to XLA, and
    # take the others for row by row all the same
    free: Array = lax.optimization_barrier(constrained)  # type: ignore[no-untyped-call]
    return free


# ---------------------------------------------------------------------- complex to complex
def _complex_transform(name: str, rank: int, inverse: bool) -> OpFunction:
    op = define_op(name, "input: Tcomplex -> output: Tcomplex", _COMPLEX)

    @op.shape
    def _(input: TensorShape) -> TensorShape:
        return input.with_rank_at_least(rank)

    @op.kernel
    def _(input: Array, *, xp: ArrayLibrary) -> Any:
        if 0 in np.shape(input):  # the libraries refuse to transform nothing
            return input
        function = xp.fft.ifftn if inverse else xp.fft.fftn
        return _row_major(function(input, axes=_axes(rank)), xp).astype(input.dtype)

    @op.gradient
    def _(operation: Operation, grad: Tensor) -> Any:
        other = getattr(raw, name[1:] if inverse else f"I{name}")(grad)
        size = _inner_size(grad, rank)
        return raw.RealDiv(other, size) if inverse else raw.Mul(other, size)

    return op


FFT = _complex_transform("FFT", 1, False)
FFT2D = _complex_transform("FFT2D", 2, False)
FFT3D = _complex_transform("FFT3D", 3, False)
IFFT = _complex_transform("IFFT", 1, True)
IFFT2D = _complex_transform("IFFT2D", 2, True)
IFFT3D = _complex_transform("IFFT3D", 3, True)


# ---------------------------------------------------------------------- real to complex and back
def _transformed_shape(input: TensorShape, fft_length: HostArray | None, rank: int, halved: bool) -> TensorShape:
    shape = input.with_rank_at_least(rank)
    if shape.ndims is None:
        return shape
    inner = [None] * rank if fft_length is None else [int(n) for n in fft_length]
    if halved and inner[-1] is not None:
        inner[-1] = inner[-1] // 2 + 1 if inner[-1] > 0 else 0
    return shape[:-rank].concatenate(inner)


def _real_transform(rank: int) -> OpFunction:
    suffix = "" if rank == 1 else f"{rank}D"
    op = define_op(
        f"RFFT{suffix}",
        "input: Treal, fft_length: int32 -> output: Tcomplex",
        f"{_REAL}, {_COMPLEX}",
        static=("fft_length",),
        ranks={"fft_length": 1},
    )

    @op.shape
    def _(input: TensorShape, fft_length: TensorShape, *, ctx: ShapeContext) -> TensorShape:
        shape_rules.merged(fft_length, TensorShape([rank]))
        return _transformed_shape(input, ctx.constant("fft_length"), rank, True)

    @op.kernel
    def _(
        input: Array, fft_length: Array, *, Treal: DType, Tcomplex: DType, xp: ArrayLibrary, ctx: OperationContext
    ) -> Any:
        check_parts(ctx, Treal, Tcomplex)
        lengths = _lengths(ctx, fft_length, rank)
        _check_long_enough(ctx, np.shape(input), lengths)
        return _row_major(xp.fft.rfftn(input, s=lengths, axes=_axes(rank)), xp).astype(Tcomplex.as_numpy_dtype)

    @op.gradient
    def _(operation: Operation, grad: Tensor) -> Any:
        """The part beyond the middle, which the transform leaves out, contributes nothing to <grad, output>."""
        x, lengths = operation.inputs
        full = getattr(raw, f"IFFT{suffix}")(_fitted(grad, lengths, rank))
        scaled = raw.Real(raw.Mul(full, _inner_size(full, rank)), Tout=x.dtype)
        return _fitted(scaled, _inner_lengths(x, rank), rank), None

    return op


def _inverse_real_transform(rank: int) -> OpFunction:
    suffix = "" if rank == 1 else f"{rank}D"
    op = define_op(
        f"IRFFT{suffix}",
        "input: Tcomplex, fft_length: int32 -> output: Treal",
        f"{_REAL}, {_COMPLEX}",
        static=("fft_length",),
        ranks={"fft_length": 1},
    )

    @op.shape
    def _(input: TensorShape, fft_length: TensorShape, *, ctx: ShapeContext) -> TensorShape:
        shape_rules.merged(fft_length, TensorShape([rank]))
        return _transformed_shape(input, ctx.constant("fft_length"), rank, False)

    @op.kernel
    def _(
        input: Array, fft_length: Array, *, Treal: DType, Tcomplex: DType, xp: ArrayLibrary, ctx: OperationContext
    ) -> Any:
        check_parts(ctx, Treal, Tcomplex)
        lengths = _lengths(ctx, fft_length, rank)
        _check_long_enough(ctx, np.shape(input), [*lengths[:-1], lengths[-1] // 2 + 1])
        return _row_major(xp.fft.irfftn(input, s=lengths, axes=_axes(rank)), xp).astype(Treal.as_numpy_dtype)

    @op.gradient
    def _(operation: Operation, grad: Tensor) -> Any:
        """Every coefficient stands for itself and its mirror image, except the first and the middle one."""
        z, lengths = operation.inputs
        spectrum = getattr(raw, f"RFFT{suffix}")(grad, lengths, Treal=grad.dtype, Tcomplex=z.dtype)
        weights = raw.RealDiv(_mirror_counts(lengths, grad), _inner_size(grad, rank))
        weighted = raw.Mul(spectrum, complex_of(weights, raw.ZerosLike(weights)))
        return _fitted(weighted, _inner_lengths(z, rank), rank), None

    return op


def _lengths(ctx: OperationContext, fft_length: Array, rank: int) -> list[int]:
    lengths = [int(n) for n in np.reshape(fft_length, -1)]
    ctx.check(len(lengths) == rank, f"fft_length must have {rank} elements, got {lengths}")
    ctx.check(all(n > 0 for n in lengths), f"fft_length must be positive, got {lengths}")
    return lengths


def _check_long_enough(ctx: OperationContext, shape: tuple[int, ...], needed: list[int]) -> None:
    """Refuses inputs that are too short (`tf.signal` pads them); only empty dimensions count as zeros."""
    for axis, least in zip(range(len(shape) - len(needed), len(shape)), needed, strict=True):
        fits = shape[axis] == 0 or shape[axis] >= least
        ctx.check(fits, f"Input dimension {axis} must have length of at least {least} but got: {shape[axis]}")


def _inner_lengths(x: Tensor, rank: int) -> Tensor:
    return raw.StridedSlice(raw.Shape(x), [-rank], [0], [1], end_mask=1)  # type: ignore[no-any-return]


def _mirror_counts(lengths: Tensor, grad: Tensor) -> Tensor:
    """1 for the first coefficient, and for the middle one of an even length; 2 for the others."""
    length = raw.StridedSlice(lengths, [-1], [0], [1], end_mask=1, shrink_axis_mask=1)
    at = raw.Range(0, raw.AddV2(raw.FloorDiv(length, 2), 1), 1)
    alone = raw.LogicalOr(raw.Equal(at, 0), raw.Equal(raw.Mul(at, 2), length))
    one, two = raw.Cast(1.0, DstT=grad.dtype), raw.Cast(2.0, DstT=grad.dtype)
    return raw.SelectV2(alone, one, two)  # type: ignore[no-any-return]


def _fitted(x: Tensor, lengths: Tensor, rank: int) -> Tensor:
    """`x` with its innermost dimensions cut, or padded with zeros at the end, to `lengths`."""
    shape = raw.Shape(x)
    outer = raw.StridedSlice(shape, [0], [-rank], [1], begin_mask=1)
    wanted = raw.ConcatV2([outer, lengths], 0)
    known, current = constant_value(wanted), constant_value(shape)
    if known is not None and current is not None and np.array_equal(known, current):
        return x
    after = raw.Maximum(raw.Sub(wanted, shape), 0)
    padded = raw.Pad(x, raw.Pack([raw.ZerosLike(after), after], axis=1))
    fitted: Tensor = raw.Slice(padded, raw.ZerosLike(wanted), wanted)
    return fitted


RFFT, RFFT2D, RFFT3D = (_real_transform(rank) for rank in (1, 2, 3))
IRFFT, IRFFT2D, IRFFT3D = (_inverse_real_transform(rank) for rank in (1, 2, 3))
