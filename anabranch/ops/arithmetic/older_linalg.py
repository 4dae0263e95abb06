"""Operations on matrices from TensorFlow's first years, and the gradient of Cholesky as one operation.

`BatchX` is `X` for fewer dtypes, from the time when `X` took one matrix.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import shape_rules
from anabranch.ops.arithmetic import fft, linalg, svd
from anabranch.ops.arithmetic.linalg import square_shape, widened
from anabranch.ops.arrays import diagonals

_REAL = "T: {double, float}"


def _as(name: str, newer: OpFunction, signature: str, attrs: str = _REAL) -> OpFunction:
    """The older name of an operation: its shapes, its kernel and its gradient."""
    op = define_op(name, signature, attrs)
    if newer.shape_rule is None or newer.compiled_rule is None or newer.gradient_rule is None:
        raise ValueError(f"{newer.name} has no rule that {name} could take")
    op.shape(newer.shape_rule.function)
    op.kernel(newer.compiled_rule.function)
    op.gradient(newer.gradient_rule)
    return op


BatchCholesky = _as("BatchCholesky", linalg.Cholesky, "input: T -> output: T")
BatchMatrixInverse = _as(
    "BatchMatrixInverse", linalg.MatrixInverse, "input: T -> output: T", f"adjoint: bool = False, {_REAL}"
)
BatchMatrixDeterminant = _as(
    "BatchMatrixDeterminant",
    linalg.MatrixDeterminant,
    "input: T -> output: T",
    "T: {float, double, complex64, complex128}",
)
BatchMatrixSolve = _as(
    "BatchMatrixSolve", linalg.MatrixSolve, "matrix: T, rhs: T -> output: T", f"adjoint: bool = False, {_REAL}"
)
BatchMatrixSolveLs = _as(
    "BatchMatrixSolveLs",
    linalg.MatrixSolveLs,
    "matrix: T, rhs: T, l2_regularizer: double -> output: T",
    f"{_REAL}, fast: bool = True",
)
BatchSelfAdjointEigV2 = _as(
    "BatchSelfAdjointEigV2", linalg.SelfAdjointEigV2, "input: T -> e: T, v: T", f"compute_v: bool = True, {_REAL}"
)
BatchSvd = _as(
    "BatchSvd",
    svd.Svd,
    "input: T -> s: T, u: T, v: T",
    "compute_uv: bool = True, full_matrices: bool = False, T: {double, float, complex64, complex128}",
)
BatchMatrixBandPart = _as(
    "BatchMatrixBandPart",
    diagonals.MatrixBandPart,
    "input: T, num_lower: int64, num_upper: int64 -> band: T",
    "T: any",
)
BatchMatrixDiag = _as("BatchMatrixDiag", diagonals.MatrixDiag, "diagonal: T -> output: T", "T: any")
BatchMatrixDiagPart = _as("BatchMatrixDiagPart", diagonals.MatrixDiagPart, "input: T -> diagonal: T", "T: any")
BatchMatrixSetDiag = _as("BatchMatrixSetDiag", diagonals.MatrixSetDiag, "input: T, diagonal: T -> output: T", "T: any")
BatchFFT, BatchFFT2D, BatchFFT3D, BatchIFFT, BatchIFFT2D, BatchIFFT3D = (
    _as(f"Batch{newer.name}", newer, "input: complex64 -> output: complex64", "")
    for newer in (fft.FFT, fft.FFT2D, fft.FFT3D, fft.IFFT, fft.IFFT2D, fft.IFFT3D)
)


# ---------------------------------------------------------------------- eigenvalues above their vectors
def _eigenvalues_above(name: str, types: str) -> OpFunction:
    """Eigenvalues [..., 1, n] and, below them, eigenvectors [..., n, n]."""
    op = define_op(name, "input: T -> output: T", types)

    @op.shape
    def _(input: TensorShape) -> TensorShape:
        square = square_shape(input)
        if square.ndims is None:
            return shape_rules.UNKNOWN
        size = square[-1].value
        return square[:-2].concatenate([None if size is None else size + 1, size])

    @op.kernel
    def _(input: Array, *, ctx: OperationContext) -> Any:
        finite = jnp.isfinite(jnp.tril(input))
        ctx.check(finite, "Self-adjoint eigen decomposition was not successful. The input may be NaN.")
        e, v = jnp.linalg.eigh(widened(input), UPLO="L", symmetrize_input=False)
        return jnp.concatenate([e[..., None, :], v], axis=-2).astype(input.dtype)

    @op.gradient
    def _(operation: Operation, grad: Tensor) -> Any:
        output = operation.outputs[0]
        return linalg.by_eigenvalues(output[..., 0, :], output[..., 1:, :], grad[..., 0, :], grad[..., 1:, :])

    return op


# ---------------------------------------------------------------------- gradient of Cholesky
def _cholesky_grad(name: str, types: str) -> OpFunction:
    op = define_op(name, "l: T, grad: T -> output: T", types)

    @op.shape
    def _(l: TensorShape, grad: TensorShape) -> TensorShape:
        return square_shape(l).merge_with(grad)

    @op.kernel
    def _(l: Array, grad: Array, *, ctx: OperationContext) -> Any:
        ctx.check(l.shape == grad.shape, f"the factor of shape {l.shape} and its gradient of {grad.shape} differ")
        factor = jnp.tril(widened(l))

        def over(x: Array) -> Any:
            return jax.lax.linalg.triangular_solve(factor, x, left_side=True, lower=True, transpose_a=True)

        below = jnp.tril(jnp.swapaxes(factor, -1, -2) @ jnp.tril(widened(grad)))
        middle = below - jnp.eye(l.shape[-1], dtype=below.dtype) * below / 2
        one = jnp.swapaxes(over(jnp.swapaxes(over(middle), -1, -2)), -1, -2)
        return ((one + jnp.swapaxes(one, -1, -2)) / 2).astype(l.dtype)

    op.not_differentiable()
    return op


CholeskyGrad = _cholesky_grad("CholeskyGrad", "T: {half, float, double}")
BatchCholeskyGrad = _cholesky_grad("BatchCholeskyGrad", _REAL)
SelfAdjointEig = _eigenvalues_above("SelfAdjointEig", "T: {double, float, half}")
BatchSelfAdjointEig = _eigenvalues_above("BatchSelfAdjointEig", _REAL)
