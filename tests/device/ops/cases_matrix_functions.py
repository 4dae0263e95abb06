"""Rows for functions of matrices, tridiagonal matrices, and the operations of TensorFlow's first years."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anabranch import errors
from anabranch.testing.op_cases import OpCase, assert_close

RANDOM = np.random.default_rng(11)


def real(*shape: int) -> Any:
    return RANDOM.normal(size=shape)


def complex_(*shape: int) -> Any:
    return RANDOM.normal(size=shape) + 1j * RANDOM.normal(size=shape)


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def positive(x: Any) -> Any:
    return x @ adjoint(x) + np.eye(x.shape[-1])


def symmetric(x: Any) -> Any:
    return (x + adjoint(x)) / 2


# ---------------------------------------------------------------------- functions of matrices
def by_eigenvalues(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def oracle(x: Any) -> Any:
        e, v = np.linalg.eig(x.astype(np.complex128))
        result = (v * function(e)[..., None, :]) @ np.linalg.inv(v)
        return result if np.iscomplexobj(x) else result.real

    return oracle


SQUARE, BATCH = positive(real(3, 3)), positive(real(2, 3, 3))
COMPLEX = complex_(2, 3, 3) + 4 * np.eye(3)
ROTATION = np.float64([[0, -4, 1], [4, 0, 2], [0, 0, 3]])
FUNCTIONS = [
    OpCase("MatrixSquareRoot", (SQUARE,), oracle=by_eigenvalues(np.sqrt), order=2),
    OpCase("MatrixSquareRoot", (BATCH,), oracle=by_eigenvalues(np.sqrt), label="batch"),
    OpCase("MatrixSquareRoot", (COMPLEX,), oracle=by_eigenvalues(np.sqrt), label="complex128"),
    OpCase("MatrixSquareRoot", (ROTATION,), oracle=by_eigenvalues(np.sqrt), label="complex eigenvalues"),
    OpCase(
        "MatrixSquareRoot", (BATCH.astype(np.float16),), oracle=by_eigenvalues(np.sqrt), gradient=False, label="half"
    ),
    OpCase(
        "MatrixSquareRoot", (np.diag([4.0, 0, 0]),), expected=np.diag([2.0, 0, 0]), gradient=False, label="singular"
    ),
    OpCase("MatrixSquareRoot", (np.zeros((2, 0, 0)),), oracle=lambda x: x, gradient=False, label="empty"),
    OpCase(
        "MatrixSquareRoot",
        (np.stack([-np.eye(2), 9 * np.eye(2)]),),
        expected=np.stack([np.full((2, 2), np.nan), 3 * np.eye(2)]),
        gradient=False,
        label="not real",
    ),
    OpCase(
        "MatrixSquareRoot",
        (np.array([[[0.0, 1], [0, 0]], [[4, 0], [0, 0]]]),),
        expected=np.array([np.full((2, 2), np.nan), [[2, 0], [0, 0]]]),
        gradient=False,
        label="without a root; without an inverse",
    ),
    OpCase("MatrixSquareRoot", (real(2, 3),), error=errors.InvalidArgumentError, label="not square"),
    OpCase("MatrixLogarithm", (COMPLEX,), oracle=by_eigenvalues(np.log)),
    OpCase("MatrixLogarithm", (COMPLEX[0],), oracle=by_eigenvalues(np.log), order=2, label="matrix"),
    OpCase(
        "MatrixLogarithm",
        (1e12 * COMPLEX.astype(np.complex64),),
        oracle=by_eigenvalues(np.log),
        gradient=False,
        label="complex64, large",
    ),
    OpCase("MatrixLogarithm", (np.complex128([[1, 5], [0, 1]]),), expected=[[0, 5], [0, 0]], label="defective"),
    OpCase("MatrixLogarithm", (np.zeros((0, 0), complex),), oracle=lambda x: x, gradient=False, label="empty"),
    OpCase("MatrixLogarithm", (complex_(2, 3),), error=errors.InvalidArgumentError, label="not square"),
]


# ---------------------------------------------------------------------- tridiagonal matrices
def full(above: Any, main: Any, below: Any) -> Any:
    """The matrices of [..., m] diagonals."""
    m = main.shape[-1]
    at = np.arange(m)
    result = np.zeros((*main.shape, m), main.dtype)
    result[..., at, at] = main
    result[..., at[:-1], at[1:]] = above[..., :-1]
    result[..., at[1:], at[:-1]] = below[..., 1:]
    return result


def product(above: Any, main: Any, below: Any, rhs: Any) -> Any:
    return full(above[..., 0, :], main[..., 0, :], below[..., 0, :]) @ rhs


def solution(diagonals: Any, rhs: Any) -> Any:
    return np.linalg.solve(full(*np.moveaxis(diagonals, -2, 0)), rhs)


#: its main diagonal begins with zero: rows must be exchanged
EXCHANGED = np.float64([[2, 1, 3, 7], [0, 0, 1, 2], [5, 1, -1, 4]])
UNREAD = np.float64([[2, 1, 3, np.nan], [0, 0, 1, 2], [np.nan, 1, -1, 4]])
DOMINANT = real(2, 3, 4) + np.float64([[0], [5], [0]])
TRIDIAGONAL = [
    OpCase("TridiagonalMatMul", (real(2, 1, 4), real(2, 1, 4), real(2, 1, 4), real(2, 4, 3)), oracle=product, order=2),
    OpCase("TridiagonalMatMul", (*(complex_(1, 3) for _ in range(3)), complex_(3, 2)), oracle=product, label="complex"),
    OpCase("TridiagonalMatMul", (*(real(1, 1) for _ in range(3)), real(1, 2)), oracle=product, label="one row"),
    OpCase(
        "TridiagonalMatMul",
        (*(real(2, 1, 0) for _ in range(3)), real(2, 0, 2)),
        oracle=lambda *inputs: inputs[-1],
        gradient=False,
        label="empty",
    ),
    OpCase(
        "TridiagonalMatMul",
        (real(1, 3), real(1, 4), real(1, 4), real(4, 2)),
        error=errors.InvalidArgumentError,
        label="lengths differ",
    ),
    OpCase("TridiagonalSolve", (DOMINANT, real(2, 4, 3)), oracle=solution, order=2),
    OpCase("TridiagonalSolve", (EXCHANGED, real(4, 2)), oracle=solution, label="exchanged"),
    OpCase("TridiagonalSolve", (UNREAD, real(4, 2)), oracle=solution, gradient=False, label="unread"),
    OpCase("TridiagonalSolve", (DOMINANT + 1j * real(2, 3, 4), complex_(2, 4, 1)), oracle=solution, label="complex"),
    OpCase(
        "TridiagonalSolve", (DOMINANT, real(2, 4, 3)), {"partial_pivoting": False}, oracle=solution, label="in order"
    ),
    OpCase("TridiagonalSolve", (np.float64([[0], [4], [0]]), real(1, 2)), oracle=solution, label="one row"),
    OpCase("TridiagonalSolve", (real(3, 0), real(0, 2)), oracle=lambda d, r: r, gradient=False, label="empty"),
    OpCase("TridiagonalSolve", (np.zeros((3, 3)), real(3, 1)), error=errors.InvalidArgumentError, label="singular"),
    OpCase(
        "TridiagonalSolve",
        (EXCHANGED, real(4, 2)),
        {"partial_pivoting": False},
        error=errors.InvalidArgumentError,
        label="a pivot of zero",
    ),
    OpCase("TridiagonalSolve", (real(2, 4), real(4, 2)), error=errors.InvalidArgumentError, label="two diagonals"),
]


# ---------------------------------------------------------------------- of TensorFlow's first years
def rebuilt(outputs: list[Any]) -> Any:
    e, v = outputs[0][..., 0, :], outputs[0][..., 1:, :]
    return (v * e[..., None, :]) @ adjoint(v)


def eigen(op: str, matrix: Any) -> OpCase:
    return OpCase(op, (matrix,), verify=lambda outputs: assert_close(rebuilt(outputs), matrix, 1e-9, "product"))


def cholesky_gradient(factor: Any, grad: Any) -> Any:
    """By the derivative of the factor in every direction."""
    size = factor.shape[-1]
    inverse = np.linalg.inv(factor)
    result = np.zeros_like(factor)
    for i in range(size):
        for j in range(size):
            direction = np.zeros((size, size))
            direction[i, j] += 0.5
            direction[j, i] += 0.5
            inner = inverse @ direction @ adjoint(inverse)
            change = factor @ (np.tril(inner) - np.eye(size) * inner / 2)
            result[..., i, j] = np.sum(np.tril(grad) * change, axis=(-2, -1))
    return result


FACTOR = np.linalg.cholesky(BATCH)
SIGNAL = complex_(2, 3, 4, 5).astype(np.complex64)


def transform(op: str, function: Callable[..., Any], rank: int) -> OpCase:
    axes = tuple(range(-rank, 0))
    return OpCase(op, (SIGNAL,), oracle=lambda x: function(x, axes=axes), tolerance=1e-4)


OLDER = [
    OpCase("CholeskyGrad", (FACTOR, real(2, 3, 3)), oracle=cholesky_gradient),
    OpCase(
        "CholeskyGrad",
        (FACTOR[0].astype(np.float32), SQUARE.astype(np.float32)),
        oracle=cholesky_gradient,
        label="float32",
    ),
    OpCase("BatchCholeskyGrad", (FACTOR, real(2, 3, 3)), oracle=cholesky_gradient),
    eigen("SelfAdjointEig", symmetric(real(3, 3))),
    eigen("BatchSelfAdjointEig", symmetric(real(2, 3, 3))),
    OpCase(
        "BatchSelfAdjointEigV2",
        (SQUARE,),
        {"compute_v": False},
        expected=[np.linalg.eigvalsh(SQUARE), np.zeros(0)],
    ),
    OpCase("BatchCholesky", (BATCH,), oracle=np.linalg.cholesky, project=symmetric),
    OpCase("BatchMatrixInverse", (BATCH,), oracle=np.linalg.inv),
    OpCase(
        "BatchMatrixInverse", (BATCH,), {"adjoint": True}, oracle=lambda x: np.linalg.inv(adjoint(x)), label="adjoint"
    ),
    OpCase("BatchMatrixDeterminant", (BATCH,), oracle=np.linalg.det),
    OpCase("BatchMatrixSolve", (BATCH, real(2, 3, 2)), oracle=np.linalg.solve),
    OpCase(
        "BatchMatrixSolveLs",
        (real(4, 3), real(4, 2), np.float64(0.3)),
        oracle=lambda a, b, r: np.linalg.solve(a.T @ a + r * np.eye(3), a.T @ b),
        differentiate=(0, 1),
    ),
    OpCase(
        "BatchSvd",
        (BATCH,),
        {"compute_uv": False},
        expected=[np.linalg.svd(BATCH, compute_uv=False), np.zeros(0), np.zeros(0)],
    ),
    OpCase(
        "BatchMatrixBandPart",
        (BATCH, 1, 0),
        oracle=lambda x, low, high: np.tril(np.triu(x, -1)),
        constants=("num_lower",),
    ),
    OpCase("BatchMatrixDiag", (real(2, 3),), oracle=lambda x: x[..., None] * np.eye(3)),
    OpCase("BatchMatrixDiagPart", (BATCH,), oracle=lambda x: np.diagonal(x, axis1=-2, axis2=-1)),
    OpCase(
        "BatchMatrixSetDiag",
        (BATCH, real(2, 3)),
        oracle=lambda x, d: x * (1 - np.eye(3)) + d[..., None] * np.eye(3),
    ),
    *(transform(f"BatchFFT{suffix}", np.fft.fftn, rank) for rank, suffix in ((1, ""), (2, "2D"), (3, "3D"))),
    *(transform(f"BatchIFFT{suffix}", np.fft.ifftn, rank) for rank, suffix in ((1, ""), (2, "2D"), (3, "3D"))),
]

CASES = [*FUNCTIONS, *TRIDIAGONAL, *OLDER]
