"""Rows for matrix products, decompositions, systems of equations, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from anabranch import errors
from anabranch.core import dtypes
from anabranch.testing.op_cases import OpCase, assert_close

RANDOM = np.random.default_rng(3)


def real(*shape: int) -> Any:
    return RANDOM.normal(size=shape)


def complex_(*shape: int) -> Any:
    return RANDOM.normal(size=shape) + 1j * RANDOM.normal(size=shape)


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def symmetric(x: Any) -> Any:
    return (x + adjoint(x)) / 2


def float32(x: Any) -> Any:
    return x.astype(np.complex64 if np.iscomplexobj(x) else np.float32)


# ---------------------------------------------------------------------- products
def matmul(transpose_a: bool, transpose_b: bool, a: Any, b: Any, label: str = "") -> OpCase:
    a, b = (a.T if transpose_a else a), (b.T if transpose_b else b)
    return OpCase(
        "MatMul",
        (a, b),
        {"transpose_a": transpose_a, "transpose_b": transpose_b},
        order=2,
        oracle=lambda a, b: (a.T if transpose_a else a) @ (b.T if transpose_b else b),
        label=f"{label}{' a^T' * transpose_a}{' b^T' * transpose_b}",
    )


def batch_matmul(op: str, adj_x: bool, adj_y: bool, x: Any, y: Any, label: str, **attrs: Any) -> OpCase:
    x, y = (adjoint(x) if adj_x else x), (adjoint(y) if adj_y else y)
    return OpCase(
        op,
        (x, y),
        {"adj_x": adj_x, "adj_y": adj_y, **attrs},
        order=2,
        oracle=lambda x, y: (adjoint(x) if adj_x else x) @ (adjoint(y) if adj_y else y),
        label=f"{label}{' x^H' * adj_x}{' y^H' * adj_y}",
    )


def einsum(equation: str, *operands: Any) -> OpCase:
    return OpCase(
        "Einsum",
        (list(operands),),
        {"equation": equation},
        oracle=lambda x: np.einsum(equation, *x),
        label=equation,
        order=2,
    )


BOTH = [(a, b) for a in (False, True) for b in (False, True)]
A, B = real(2, 3), real(3, 4)
STACK = np.random.default_rng(4).normal(size=(2, 1, 3, 3))
PRODUCTS = [
    *(matmul(ta, tb, A, B, "float64") for ta, tb in BOTH),
    *(matmul(ta, tb, complex_(2, 3), complex_(3, 4), "complex128") for ta, tb in BOTH),
    OpCase("MatMul", (float32(A), float32(B)), oracle=np.matmul, label="float32"),
    OpCase(
        "MatMul",
        (A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)),
        oracle=np.matmul,
        gradient=False,
        tolerance=0.1,
        label="bfloat16",
    ),
    OpCase("MatMul", (np.int32([[1, 2]]), np.int32([[3], [4]])), oracle=np.matmul, label="int32"),
    OpCase("MatMul", (A[:, :0], B[:0]), oracle=np.matmul, label="empty"),
    OpCase("MatMul", (A, A), error=errors.InvalidArgumentError, label="inner dimensions differ"),
    *(batch_matmul("BatchMatMul", ax, ay, real(2, 2, 3), real(2, 3, 4), "float64") for ax, ay in BOTH),
    *(batch_matmul("BatchMatMulV2", ax, ay, real(2, 1, 2, 3), real(4, 3, 2), "float64") for ax, ay in BOTH),
    *(batch_matmul("BatchMatMulV2", ax, ay, complex_(2, 2, 3), complex_(1, 3, 2), "complex128") for ax, ay in BOTH),
    *(batch_matmul("BatchMatMulV3", ax, ay, STACK, STACK[:, 0], "float64", Tout=dtypes.float64) for ax, ay in BOTH),
    *(
        batch_matmul("BatchMatMulV3", ax, ay, 1j * STACK, STACK[0] + 1j, "complex128", Tout=dtypes.complex128)
        for ax, ay in BOTH
    ),
    OpCase(
        "BatchMatMulV3",
        (np.int8([[[100, -128]]]), np.uint8([[200], [255]])),
        {"Tout": dtypes.int32},
        oracle=lambda x, y: x.astype(np.int32) @ y.astype(np.int32),
        label="whole numbers of one byte",
    ),
    OpCase(
        "BatchMatMulV3",
        (A.astype(ml_dtypes.bfloat16), np.int8([[1], [-2], [3]])),
        {"Tout": dtypes.bfloat16},
        oracle=np.matmul,
        gradient=False,
        tolerance=0.1,
        label="by whole numbers",
    ),
    OpCase(
        "BatchMatMulV3",
        (float32(A), np.int8([[1], [-2], [3]])),
        {"Tout": dtypes.int32},
        error=errors.InvalidArgumentError,
        label="no product of this dtype",
    ),
    OpCase("SparseMatMul", (float32(A), float32(B)), {"a_is_sparse": True}, oracle=np.matmul),
    OpCase(
        "SparseMatMul",
        (float32(A.T), float32(B.T)),
        {"transpose_a": True, "transpose_b": True},
        oracle=lambda a, b: a.T @ b.T,
        label="transposed",
    ),
    OpCase(
        "SparseMatMul", (A.astype(ml_dtypes.bfloat16), float32(B)), oracle=np.matmul, gradient=False, label="bfloat16"
    ),
    OpCase("Cross", (real(2, 3), real(2, 3)), oracle=np.cross, order=2),
    OpCase("Cross", (np.int32([1, 2, 3]), np.int32([4, 5, 7])), oracle=np.cross, label="int32"),
    OpCase("Cross", (real(2, 4), real(2, 4)), error=errors.InvalidArgumentError, label="not 3"),
    einsum("ij,jk->ik", A, B),
    einsum("ij,ij->", A, A + 1),
    einsum("ij->ji", A),
    einsum("ij->i", A),
    einsum("ii->i", real(3, 3)),
    einsum("ii->", real(3, 3)),
    einsum("i,j->ij", real(2), real(3)),
    einsum("ij,k->i", A, real(2)),
    einsum("iij,jk->ik", real(2, 2, 3), B),
    einsum("bij,bjk->bik", complex_(2, 2, 3), complex_(2, 3, 2)),
    einsum("...ij,...jk->...ik", real(2, 1, 2, 3), real(4, 3, 2)),
    einsum("...i,i->...", real(2, 4, 3), real(3)),
    einsum("b...c,b...->...c", real(2, 4, 3), real(2, 4)),
    einsum("...ii->...i", real(2, 3, 3)),
    OpCase("Einsum", ([real(3)],), {"equation": "i->ii"}, oracle=lambda x: np.diag(x[0]), order=2, label="i->ii"),
    OpCase(
        "Einsum",
        ([real(2, 3), real(3)],),
        {"equation": "bi,i->iib"},
        oracle=lambda x: np.einsum("bi,i,ij->ijb", *x, np.eye(3)),
        label="bi,i->iib",
    ),
    OpCase(
        "Einsum",
        ([np.array([1.0, np.nan, np.inf])],),
        {"equation": "i->ii"},
        oracle=lambda x: np.diag(x[0]),
        gradient=False,
        label="beside a diagonal that is not finite",
    ),
    OpCase(
        "Einsum",
        ([real(2, 5, 3)],),
        {"equation": "i...j->j...iij"},
        oracle=lambda x: np.einsum("ikj,il,jm->jkilm", x[0], np.eye(2), np.eye(3)),
        label="i...j->j...iij",
    ),
    OpCase(
        "Einsum",
        ([float32(A).astype(ml_dtypes.bfloat16), float32(B).astype(ml_dtypes.bfloat16)],),
        {"equation": "ij,jk->ik"},
        oracle=lambda x: x[0].astype(np.float32) @ x[1].astype(np.float32),
        tolerance=2e-2,
        label="bfloat16",
    ),
    einsum("ab,bc,cd->ad", real(2, 3), real(3, 2), real(2, 4)),
]


# ---------------------------------------------------------------------- square matrices
SQUARE, BATCH = real(3, 3) + 3 * np.eye(3), real(2, 3, 3) + 3 * np.eye(3)
COMPLEX = complex_(2, 3, 3) + 3 * np.eye(3)
SINGULAR = np.float64([[1, 2], [2, 4]])


def positive(x: Any) -> Any:
    return x @ adjoint(x) + np.eye(x.shape[-1])


def determinants(x: Any) -> Any:
    return list(np.linalg.slogdet(x))


def square(op: str, oracle: Callable[..., Any], **more: Any) -> list[OpCase]:
    return [
        OpCase(op, (SQUARE,), oracle=oracle, order=2, label="matrix", **more),
        OpCase(op, (BATCH,), oracle=oracle, label="batch", **more),
        OpCase(op, (COMPLEX,), oracle=oracle, label="complex128", **more),
        OpCase(op, (float32(BATCH),), oracle=oracle, gradient=False, label="float32", tolerance=1e-4, **more),
        OpCase(op, (BATCH.astype(np.float16),), oracle=oracle, gradient=False, label="half", tolerance=5e-2, **more),
        OpCase(op, (real(2, 3),), error=errors.InvalidArgumentError, label="not square"),
    ]


def solve(op: str, lower: bool | None, adj: bool, matrix: Any, rhs: Any, label: str) -> OpCase:
    attrs = {"adjoint": adj} if lower is None else {"adjoint": adj, "lower": lower}

    def oracle(matrix: Any, rhs: Any) -> Any:
        if lower is not None:
            matrix = np.tril(matrix) if lower else np.triu(matrix)
        return np.linalg.solve(adjoint(matrix) if adj else matrix, rhs)

    side = "" if lower is None else " lower" if lower else " upper"
    return OpCase(op, (matrix, rhs), attrs, oracle=oracle, order=2, label=f"{label}{side}{' adjoint' * adj}")


def least_squares(a: Any, b: Any, regularizer: Any) -> Any:
    normal = adjoint(a) @ a + regularizer * np.eye(a.shape[-1])
    return np.linalg.solve(normal, adjoint(a) @ b)


def least_norm(a: Any, b: Any, regularizer: Any) -> Any:
    normal = a @ adjoint(a) + regularizer * np.eye(a.shape[-2])
    return adjoint(a) @ np.linalg.solve(normal, b)


SYSTEMS = [
    OpCase("Cholesky", (positive(SQUARE),), oracle=np.linalg.cholesky, project=symmetric, order=2),
    OpCase("Cholesky", (positive(BATCH),), oracle=np.linalg.cholesky, project=symmetric, label="batch"),
    OpCase("Cholesky", (positive(COMPLEX),), oracle=np.linalg.cholesky, project=symmetric, label="complex128"),
    OpCase(
        "Cholesky",
        (np.triu(SQUARE, 1) + np.tril(positive(SQUARE)),),
        oracle=lambda x: np.linalg.cholesky(positive(SQUARE)),
        gradient=False,
        label="reads the lower triangle",
    ),
    OpCase("Cholesky", (-np.eye(2),), error=errors.InvalidArgumentError, label="not positive"),
    OpCase(
        "Cholesky",
        (np.stack([np.diag([np.nan, 1]), positive(SQUARE)[:2, :2]]),),
        oracle=lambda x: np.stack([np.tril(np.full((2, 2), np.nan)), np.linalg.cholesky(x[1])]),
        gradient=False,
        label="one of NaN",
    ),
    *square("MatrixInverse", np.linalg.inv),
    OpCase(
        "MatrixInverse",
        (COMPLEX,),
        {"adjoint": True},
        oracle=lambda x: np.linalg.inv(adjoint(x)),
        label="adjoint",
        order=2,
    ),
    OpCase("MatrixInverse", (SINGULAR,), error=errors.InvalidArgumentError, label="singular"),
    *square("MatrixDeterminant", np.linalg.det),
    *square("LogMatrixDeterminant", determinants, differentiate=()),
    *(solve("MatrixSolve", None, adj, BATCH, real(2, 3, 2), "float64") for adj in (False, True)),
    *(solve("MatrixSolve", None, adj, COMPLEX, complex_(2, 3, 2), "complex128") for adj in (False, True)),
    OpCase("MatrixSolve", (SINGULAR, real(2, 1)), error=errors.InvalidArgumentError, label="singular"),
    OpCase("MatrixSolve", (BATCH, real(2, 2, 2)), error=errors.InvalidArgumentError, label="rows differ"),
    *(solve("MatrixTriangularSolve", low, adj, BATCH, real(2, 3, 2), "float64") for low, adj in BOTH),
    *(solve("MatrixTriangularSolve", low, adj, COMPLEX, complex_(2, 3, 2), "complex128") for low, adj in BOTH),
    *(solve("BatchMatrixTriangularSolve", low, adj, BATCH, real(2, 3, 2), "float64") for low, adj in BOTH),
    OpCase(
        "MatrixTriangularSolve", (np.zeros((2, 2)), real(2, 1)), error=errors.InvalidArgumentError, label="singular"
    ),
    OpCase(
        "MatrixSolveLs",
        (real(2, 4, 3), real(2, 4, 2), np.float64(0.3)),
        oracle=least_squares,
        differentiate=(0, 1),
        order=2,
    ),
    OpCase(
        "MatrixSolveLs",
        (real(3, 4), real(3, 2), np.float64(0.3)),
        oracle=least_norm,
        differentiate=(0, 1),
        label="wide",
    ),
    OpCase(
        "MatrixSolveLs",
        (complex_(4, 3), complex_(4, 2), np.float64(0.1)),
        oracle=least_squares,
        differentiate=(0, 1),
        label="complex128",
    ),
    OpCase(
        "MatrixSolveLs",
        (np.stack([np.where(np.eye(3) > 0, np.nan, 1), np.eye(3)]), np.ones((2, 3, 1)), np.float64(9)),
        expected=np.stack([np.full((3, 1), np.nan), np.full((3, 1), 0.1)]),
        gradient=False,
        label="NaN",
    ),
    OpCase(
        "MatrixSolveLs",
        (np.zeros((3, 3)), np.ones((3, 1)), np.float64(0)),
        error=errors.InvalidArgumentError,
        label="without an inverse",
    ),
    OpCase(
        "MatrixSolveLs",
        (real(4, 3), real(4, 2), np.float64(0)),
        {"fast": False},
        oracle=least_squares,
        differentiate=(0, 1),
        label="by singular values",
    ),
    OpCase(
        "MatrixSolveLs",
        (
            np.eye(1000, 3, dtype=np.float32) * np.float32([1, 5e-7, 2e-7]),
            np.ones((1000, 1), np.float32),
            np.float64(0),
        ),
        {"fast": False},
        # TensorFlow 2.21 takes the second for a small number, and the third for none
        expected=np.array([[1.0], [2e6], [0.0]], np.float32),
        gradient=False,
        label="columns that count for nothing",
    ),
]


# ---------------------------------------------------------------------- decompositions
def product_is(matrix: Any, recompose: Callable[..., Any]) -> Callable[[list[Any]], None]:
    """The outputs multiply to the matrix; which basis they use is open."""
    return lambda outputs: assert_close(
        recompose(*outputs), matrix, 1e-4 if outputs[0].itemsize < 8 else 1e-9, "product"
    )


def rebuilt_eig(e: Any, v: Any) -> Any:
    return (v * e[..., None, :]) @ adjoint(v)


def rebuilt_svd(s: Any, u: Any, v: Any) -> Any:
    count = s.shape[-1]
    return (u[..., :count] * s[..., None, :]) @ adjoint(v[..., :count])


def rebuilt_lu(lu: Any, p: Any) -> Any:
    product = (np.tril(lu, -1) + np.eye(lu.shape[-1])) @ np.triu(lu)
    return np.take_along_axis(product, np.argsort(p, -1)[..., None], -2)


def bases_are_orthonormal(outputs: list[Any]) -> None:
    for basis in outputs[1:]:
        identity = np.broadcast_to(np.eye(basis.shape[-1]), basis.shape)
        assert_close(basis @ adjoint(basis), identity, 1e-9, "basis")


def qr(matrix: Any, full: bool, label: str, **more: Any) -> OpCase:
    return OpCase("Qr", (matrix,), {"full_matrices": full}, verify=product_is(matrix, np.matmul), label=label, **more)


def svd(matrix: Any, label: str, **more: Any) -> OpCase:
    return OpCase("Svd", (matrix,), verify=product_is(matrix, rebuilt_svd), label=label, **more)


def eig(matrix: Any, label: str, **more: Any) -> OpCase:
    return OpCase("SelfAdjointEigV2", (matrix,), verify=product_is(matrix, rebuilt_eig), label=label, **more)


TALL, WIDE, EMPTY = real(2, 4, 3), real(3, 4), np.zeros(0)
HERMITIAN = symmetric(complex_(3, 3))
DECOMPOSITIONS = [
    qr(SQUARE, False, "square", order=2),
    qr(TALL, False, "tall", order=2),
    qr(WIDE, False, "wide", order=2),
    qr(real(4, 2), True, "full", gradient=False),
    qr(complex_(3, 2), False, "complex128", gradient=False),
    svd(SQUARE, "square", order=2),
    svd(TALL, "tall", order=2),
    svd(WIDE, "wide"),
    svd(complex_(3, 2), "complex128", gradient=False),
    svd(float32(TALL), "float32", gradient=False),
    OpCase(
        "Svd",
        (real(4, 2),),
        {"full_matrices": True},
        gradient=False,
        label="full",
        verify=bases_are_orthonormal,
    ),
    *(
        OpCase("Svd", (matrix,), {"full_matrices": True}, label=f"full, {label}", verify=bases_are_orthonormal, order=2)
        for label, matrix in (("tall", TALL), ("wide", WIDE))
    ),
    OpCase(
        "Svd",
        (TALL,),
        {"compute_uv": False},
        expected=[np.linalg.svd(TALL, compute_uv=False), EMPTY, EMPTY],
        label="values only",
    ),
    eig(symmetric(SQUARE), "matrix", order=2),
    eig(symmetric(BATCH), "batch"),
    eig(HERMITIAN, "complex128", gradient=False),
    OpCase(
        "SelfAdjointEigV2",
        (symmetric(BATCH),),
        {"compute_v": False},
        label="values only",
        order=2,
        expected=[np.linalg.eigvalsh(symmetric(BATCH)), EMPTY],
    ),
    OpCase("Lu", (BATCH,), verify=product_is(BATCH, rebuilt_lu), order=2),
    OpCase("Lu", (COMPLEX,), {"output_idx_type": "int64"}, verify=product_is(COMPLEX, rebuilt_lu), label="complex128"),
    OpCase("Lu", (SINGULAR,), error=errors.InvalidArgumentError, label="singular"),
]


def by_eigenvalues(x: Any) -> Any:
    e, v = np.linalg.eig(x)
    exponential = (v * np.exp(e)[..., None, :]) @ np.linalg.inv(v)
    return exponential if np.iscomplexobj(x) else exponential.real


EXPONENTIALS = [
    OpCase("MatrixExponential", (SQUARE,), oracle=by_eigenvalues, order=2),
    OpCase("MatrixExponential", (BATCH / 4,), oracle=by_eigenvalues, label="batch"),
    OpCase("MatrixExponential", (COMPLEX,), oracle=by_eigenvalues, label="complex128"),
]


# ---------------------------------------------------------------------- Fourier transforms
def transform(op: str, function: Callable[..., Any], rank: int) -> list[OpCase]:
    axes = tuple(range(-rank, 0))
    x = complex_(2, 3, 4, 5)[..., : 2 + rank]
    return [
        OpCase(op, (x,), oracle=lambda x: function(x, axes=axes), order=2),
        OpCase(
            op, (x.astype(np.complex64),), oracle=lambda x: function(x, axes=axes), tolerance=1e-4, label="complex64"
        ),
        OpCase(op, (x[:, :0],), oracle=lambda x: x, label="empty"),
    ]


def real_transform(rank: int, length: list[int], label: str) -> list[OpCase]:
    """`length` may cut what is transformed."""
    axes = tuple(range(-rank, 0))
    name = "RFFT" if rank == 1 else f"RFFT{rank}D"
    attrs = {"Treal": "float64", "Tcomplex": "complex128"}
    x, z = real(2, 3, 4, 6), complex_(2, 3, 4, 4)
    return [
        OpCase(name, (x, np.int32(length)), attrs, oracle=lambda x, n: np.fft.rfftn(x, n, axes), order=2, label=label),
        OpCase(
            f"I{name}",
            (z, np.int32(length)),
            attrs,
            oracle=lambda z, n: np.fft.irfftn(z, n, axes),
            order=2,
            label=label,
        ),
    ]


def refused_transform(name: str, kind: str) -> OpCase:
    """A signal shorter than the transform, which the kernel does not pad; or dtypes that do not go together."""
    x: Any = np.ones((2, 4), np.complex64 if name == "IRFFT" else np.float32)
    attrs = {} if kind == "too short" else {"Treal": "float64"} if name == "IRFFT" else {"Tcomplex": "complex128"}
    return OpCase(
        name, (x, np.int32([9 if kind == "too short" else 4])), attrs, error=errors.InvalidArgumentError, label=kind
    )


FOURIER = [
    *(row for rank, name in ((1, "FFT"), (2, "FFT2D"), (3, "FFT3D")) for row in transform(name, np.fft.fftn, rank)),
    *(row for rank, name in ((1, "IFFT"), (2, "IFFT2D"), (3, "IFFT3D")) for row in transform(name, np.fft.ifftn, rank)),
    *real_transform(1, [6], "even"),
    *real_transform(1, [5], "odd, cut"),
    *(refused_transform(name, kind) for name in ("RFFT", "IRFFT") for kind in ("too short", "parts")),
    *real_transform(2, [4, 6], "even"),
    *real_transform(2, [3, 5], "cut"),
    *real_transform(3, [3, 4, 6], "even"),
    OpCase(
        "RFFT",
        (float32(real(2, 6)), np.int32([6])),
        oracle=lambda x, n: np.fft.rfft(x),
        gradient=False,
        tolerance=1e-4,
        label="float32",
    ),
    OpCase("RFFT", (float32(real(2, 6)), np.int32([6, 1])), error=errors.InvalidArgumentError, label="fft_length"),
]

CASES = [*PRODUCTS, *SYSTEMS, *DECOMPOSITIONS, *EXPONENTIALS, *FOURIER]
