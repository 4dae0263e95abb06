"""Matrix products, norms, decompositions and systems of equations, on the matrices in the last two dimensions."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import one_of
from anabranch.frontend.arithmetic.math import abs, conj, real
from anabranch.frontend.arithmetic.reduction import reduce_max, reduce_sum
from anabranch.frontend.arrays.layout import matrix_transpose
from anabranch.frontend.framework import name_scope
from anabranch.graph.conversion import convert_to_tensor, is_tensor_like
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.ops.arithmetic import (
    linalg as ops,
    math as arithmetic,
    matmul as products,
    matrix_functions,
    svd as singular,
)


# ---------------------------------------------------------------------- the identity
def eye(
    num_rows: TensorLike,
    num_columns: TensorLike | None = None,
    batch_shape: TensorLike | None = None,
    dtype: DTypeLike = dtypes.float32,
    name: str | None = None,
) -> Tensor:
    """Matrices with ones on the diagonal and zeros elsewhere, shape [*batch_shape, num_rows, num_columns].

    Args:
        num_rows, num_columns: scalars; `num_columns` defaults to `num_rows`.
        batch_shape: a vector.
        dtype: of the result.
        name: of the operation.

    Returns:
        Matrices of dtype `dtype`.

    Raises:
        ValueError: a size is known to be negative.

    Example:
        >>> sess.run(tf.eye(2))
        array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    with name_scope(name, "eye"):
        wanted = as_dtype(dtype)
        rows = convert_to_tensor(num_rows, dtypes.int32 if not isinstance(num_rows, Tensor) else None, "num_rows")
        columns = rows if num_columns is None else convert_to_tensor(num_columns, rows.dtype, "num_columns")
        # that both are scalars, and how many dimensions there are, is known whatever is known of their tensors
        rows, columns = (raw.Reshape(size, []) if size.shape.ndims is None else size for size in (rows, columns))
        batch = [] if batch_shape is None else batch_shape
        leading = convert_to_tensor(batch, rows.dtype if not isinstance(batch, Tensor) else None, "batch_shape")
        if leading.dtype is not rows.dtype:
            leading = arithmetic.Cast(leading, DstT=rows.dtype)
        shape = raw.ConcatV2([leading, raw.Pack([rows, columns])], 0)
        position = raw.Range(0, rows, 1), raw.Range(0, columns, 1)
        ones = arithmetic.Cast(raw.Equal(raw.ExpandDims(position[0], 1), position[1]), DstT=wanted)
        result: Tensor = raw.BroadcastTo(ones, shape)
        return result


# ---------------------------------------------------------------------- products
def matmul(
    a: TensorLike,
    b: TensorLike,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:
    """The product of matrices, or of batches of matrices that broadcast.

    Args:
        a: shape [..., n, k].
        b: shape [..., k, m], of the same dtype.
        transpose_a, transpose_b: whether to take the transpose of the operand.
        adjoint_a, adjoint_b: whether to take its conjugate transpose.
        a_is_sparse, b_is_sparse: hints that many elements are 0. A bfloat16 and a float32 matrix go together.
        name: of the operation.

    Returns:
        Shape [..., n, m].

    Raises:
        ValueError: both transpose and adjoint are asked for, or the inner dimensions differ.

    Example:
        >>> sess.run(tf.matmul([[1.0, 2.0], [3.0, 4.0]], [[1.0], [10.0]]))
        array([[21.],
               [43.]], dtype=float32)
    """
    for letter, transpose, adj in (("a", transpose_a, adjoint_a), ("b", transpose_b, adjoint_b)):
        if transpose and adj:
            raise ValueError(f"Only one of transpose_{letter} and adjoint_{letter} can be True.")
    with name_scope(name, "MatMul", [a, b]) as scope:
        a, b = _matrices(a, b)
        sparse = a_is_sparse or b_is_sparse or {a.dtype, b.dtype} == {dtypes.float32, dtypes.bfloat16}
        if not sparse and any(t.shape.ndims is None or t.shape.ndims > 2 for t in (a, b)):
            a, adjoint_a = (conj(a), True) if transpose_a else (a, adjoint_a)
            b, adjoint_b = (conj(b), True) if transpose_b else (b, adjoint_b)
            return products.BatchMatMulV2(a, b, adj_x=adjoint_a, adj_y=adjoint_b, name=scope)  # type: ignore[no-any-return]
        a, transpose_a = (conj(a), True) if adjoint_a else (a, transpose_a)
        b, transpose_b = (conj(b), True) if adjoint_b else (b, transpose_b)
        if sparse and {a.dtype, b.dtype} <= {dtypes.float32, dtypes.bfloat16}:
            return sparse_matmul(a, b, transpose_a, transpose_b, a_is_sparse, b_is_sparse, scope)
        result: Tensor = products.MatMul(a, b, transpose_a=transpose_a, transpose_b=transpose_b, name=scope)
        return result


def _matrices(a: TensorLike, b: TensorLike) -> tuple[Tensor, Tensor]:
    """Both operands as tensors; plain Python values follow the dtype of the other operand."""
    if is_tensor_like(b) and not is_tensor_like(a):
        second = convert_to_tensor(b, name="b")
        return convert_to_tensor(a, name="a", preferred_dtype=second.dtype.base_dtype), second
    first = convert_to_tensor(a, name="a")
    return first, convert_to_tensor(b, name="b", preferred_dtype=first.dtype.base_dtype)


def sparse_matmul(
    a: TensorLike,
    b: TensorLike,
    transpose_a: bool = False,
    transpose_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:
    """The float32 product of two float32 or bfloat16 matrices, of which many elements are expected to be 0."""
    result: Tensor = products.SparseMatMul(
        a,
        b,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        a_is_sparse=a_is_sparse,
        b_is_sparse=b_is_sparse,
        name=name,
    )
    return result


def matvec(
    a: TensorLike,
    b: TensorLike,
    transpose_a: bool = False,
    adjoint_a: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:
    """The product of matrices [..., n, k] with vectors [..., k], shape [..., n]; see `matmul`."""
    with name_scope(name, "MatVec", [a, b]) as scope:
        a, b = _matrices(a, b)
        column = raw.ExpandDims(b, -1)
        product = matmul(a, column, transpose_a, False, adjoint_a, False, a_is_sparse, b_is_sparse)
        result: Tensor = raw.Squeeze(product, squeeze_dims=[-1], name=scope)
        return result


def cross(a: TensorLike, b: TensorLike, name: str | None = None) -> Tensor:
    """The cross products of the vectors of 3 elements in the last dimension of `a` and `b`, of one shape."""
    result: Tensor = products.Cross(a, b, name=name)
    return result


def adjoint(matrix: TensorLike, name: str | None = None) -> Tensor:
    """The conjugate transpose of each matrix."""
    return matrix_transpose(matrix, name=name or "adjoint", conjugate=True)


def trace(x: TensorLike, name: str | None = None) -> Tensor:
    """The sum of the diagonal of each matrix: shape [..., n, m] gives [...]."""
    with name_scope(name, "Trace", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return reduce_sum(raw.MatrixDiagPart(x), [-1], name=scope)


# ---------------------------------------------------------------------- norms
def norm(
    tensor: TensorLike,
    ord: str | float = "euclidean",
    axis: TensorLike | None = None,
    keepdims: bool | None = None,
    name: str | None = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """A norm of a tensor, of vectors, or of matrices in it.

    Args:
        tensor: floating or complex.
        ord: 'euclidean', 'fro' (matrices only), a positive number, or np.inf. Of matrices: 'fro', 1, 2 or np.inf.
        axis: None: of all elements as one vector; an integer: of the vectors along that axis; a pair of integers: of
            the matrices in those dimensions.
        keepdims: whether the dimensions stay, of size 1.
        name: of the operation.
        keep_dims: deprecated name of `keepdims`.

    Returns:
        A tensor of the dtype of `tensor` (real for complex), of its shape without the dimensions in `axis`.

    Raises:
        ValueError: `ord` or `axis` is not supported.

    Example:
        >>> sess.run(tf.norm([[3.0, 4.0], [6.0, 8.0]], axis=1))
        array([ 5., 10.], dtype=float32)
    """
    keepdims = bool(one_of("keepdims", keepdims, "keep_dims", keep_dims))
    of_matrices = isinstance(axis, list | tuple | np.ndarray) and len(axis) == 2
    _check_ord(ord, of_matrices, axis)
    with name_scope(name, "norm", [tensor]):
        tensor = convert_to_tensor(tensor)
        if ord in ("fro", "euclidean") or (ord == 2 and not of_matrices):
            squares = real(arithmetic.Mul(tensor, conj(tensor)))
            result: Tensor = arithmetic.Sqrt(reduce_sum(squares, axis, keepdims=True))
        elif of_matrices and axis is not None:
            result = _matrix_norm(tensor, ord, [int(a) for a in axis])
        elif ord == np.inf:
            result = reduce_max(abs(tensor), axis, keepdims=True)
        else:
            size = abs(tensor)
            powers = size if ord == 1 else arithmetic.Pow(size, float(ord))
            total = reduce_sum(powers, axis, keepdims=True)
            result = total if ord == 1 else arithmetic.Pow(total, 1.0 / float(ord))
        return result if keepdims else _without(result, axis)


def _check_ord(ord: str | float, of_matrices: bool, axis: TensorLike) -> None:
    if of_matrices:
        if axis[0] == axis[1] or not all(isinstance(a, int | np.integer) for a in axis):
            raise ValueError(f"'axis' must be None, an integer, or a tuple of 2 unique integers, got {axis}")
        if ord not in ("euclidean", "fro", 1, 2, np.inf):
            raise ValueError(f"'ord' must be a supported matrix norm in ['euclidean', 'fro', 1, 2, inf], got {ord}")
        return
    single = axis[0] if isinstance(axis, list | tuple) and len(axis) == 1 else axis
    if single is not None and not isinstance(single, int | np.integer):
        raise ValueError(f"'axis' must be None, an integer, or a tuple of 2 unique integers, got {axis}")
    if ord != "euclidean" and (isinstance(ord, str) or ord <= 0):
        raise ValueError(f"'ord' must be a supported vector norm: 'euclidean', a positive number or inf, got {ord}")


def _matrix_norm(tensor: Tensor, ord: str | float, axes: list[int]) -> Tensor:
    if ord == 1:
        return reduce_max(reduce_sum(abs(tensor), axes[0], keepdims=True), axes[1], keepdims=True)
    if ord == np.inf:
        return reduce_max(reduce_sum(abs(tensor), axes[1], keepdims=True), axes[0], keepdims=True)
    order, back = _to_the_end(tensor, axes)
    values = singular.Svd(raw.Transpose(tensor, order), compute_uv=False).s
    greatest = reduce_max(real(values), -1, keepdims=True)
    return raw.Transpose(raw.ExpandDims(greatest, -1), back)  # type: ignore[no-any-return]


def _to_the_end(tensor: Tensor, axes: list[int]) -> tuple[Any, Any]:
    """The permutation that moves `axes` behind the others, and its inverse."""
    rank = tensor.shape.ndims
    if rank is not None:
        inner = [a % rank for a in axes]
        order = [*(i for i in range(rank) if i not in inner), *inner]
        return order, [int(i) for i in np.argsort(order)]
    count = raw.Rank(tensor)
    moved = arithmetic.FloorMod(axes, count)
    others = raw.ListDiff(raw.Range(0, count, 1), moved).out
    order = raw.ConcatV2([others, moved], 0)
    return order, raw.InvertPermutation(order)


def _without(kept: Tensor, axis: TensorLike) -> Tensor:
    """Takes the reduced dimensions out."""
    if axis is None:
        return raw.Reshape(kept, np.zeros(0, np.int32))  # type: ignore[no-any-return]
    axes = [int(a) for a in np.reshape(axis, -1)]
    return raw.Squeeze(kept, squeeze_dims=axes)  # type: ignore[no-any-return]


def normalize(
    tensor: TensorLike, ord: str | float = "euclidean", axis: TensorLike | None = None, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """A tensor over its norm, and the norm with the reduced dimensions kept; see `norm`."""
    with name_scope(name, "normalize", [tensor]):
        tensor = convert_to_tensor(tensor)
        size = norm(tensor, ord, axis, keepdims=True)
        divisor = size if size.dtype is tensor.dtype else arithmetic.Cast(size, DstT=tensor.dtype)
        return arithmetic.RealDiv(tensor, divisor), size


# ---------------------------------------------------------------------- determinants, inverses, systems
def matrix_inverse(input: TensorLike, adjoint: bool = False, name: str | None = None) -> Tensor:
    """The inverse of each square matrix (of its adjoint); the step fails where one is not invertible."""
    result: Tensor = ops.MatrixInverse(input, adjoint=adjoint, name=name)
    return result


def matrix_determinant(input: TensorLike, name: str | None = None) -> Tensor:
    """The determinant of each square matrix: shape [..., n, n] gives [...]."""
    result: Tensor = ops.MatrixDeterminant(input, name=name)
    return result


class SignAndLogarithm(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: Tensor
    log_abs_determinant: Tensor


def slogdet(input: TensorLike, name: str | None = None) -> SignAndLogarithm:
    """The sign and the logarithm of the absolute value of each determinant: (sign, log_abs_determinant)."""
    return SignAndLogarithm(*ops.LogMatrixDeterminant(input, name=name))


def logdet(matrix: TensorLike, name: str | None = None) -> Tensor:
    """The logarithm of the determinant of each Hermitian positive definite matrix."""
    with name_scope(name, "logdet", [matrix]):
        diagonal = real(raw.MatrixDiagPart(cholesky(matrix)))
        result: Tensor = arithmetic.Mul(reduce_sum(arithmetic.Log(diagonal), [-1]), 2.0)
        return result


def matrix_solve(matrix: TensorLike, rhs: TensorLike, adjoint: bool = False, name: str | None = None) -> Tensor:
    """The solution x of matrix x = rhs (of its adjoint); the step fails where a matrix is not invertible.

    Args:
        matrix: shape [..., n, n].
        rhs: shape [..., n, k].
    """
    result: Tensor = ops.MatrixSolve(matrix, rhs, adjoint=adjoint, name=name)
    return result


def matrix_triangular_solve(
    matrix: TensorLike, rhs: TensorLike, lower: bool = True, adjoint: bool = False, name: str | None = None
) -> Tensor:
    """Like `matrix_solve`, reading the lower (or upper) triangle of each matrix only."""
    result: Tensor = ops.MatrixTriangularSolve(matrix, rhs, lower=lower, adjoint=adjoint, name=name)
    return result


def matrix_solve_ls(
    matrix: TensorLike, rhs: TensorLike, l2_regularizer: TensorLike = 0.0, fast: bool = True, name: str | None = None
) -> Tensor:
    """The x that makes |matrix x - rhs|^2 + l2_regularizer |x|^2 least; of several, the one of the least norm.

    Args:
        matrix: shape [..., n, m].
        rhs: shape [..., n, k].
        l2_regularizer: a scalar, converted to float64.
        fast: by normal equations, for well-conditioned matrices; else by singular values, without the regularizer.
    """
    with name_scope(name, "matrix_solve_ls", [matrix, rhs]) as scope:
        regularizer = convert_to_tensor(l2_regularizer)
        if regularizer.dtype is not dtypes.float64:
            regularizer = arithmetic.Cast(regularizer, DstT=dtypes.float64)
        result: Tensor = ops.MatrixSolveLs(matrix, rhs, regularizer, fast=fast, name=scope)
        return result


# ---------------------------------------------------------------------- decompositions
def cholesky(input: TensorLike, name: str | None = None) -> Tensor:
    """The lower triangular l with l l^H = input, for each Hermitian positive definite matrix.

    Only the lower triangle is read. The step fails where a matrix is not positive definite.
    """
    result: Tensor = ops.Cholesky(input, name=name)
    return result


def cholesky_solve(chol: TensorLike, rhs: TensorLike, name: str | None = None) -> Tensor:
    """The solution of a x = rhs, given `chol = cholesky(a)`; `rhs` has shape [..., n, k]."""
    with name_scope(name, "cholesky_solve", [chol, rhs]):
        chol = convert_to_tensor(chol, name="chol")
        forward = matrix_triangular_solve(chol, rhs, lower=True, adjoint=False)
        return matrix_triangular_solve(chol, forward, lower=True, adjoint=True)


class QRFactors(NamedTuple):
    """Orthonormal columns `q` and an upper triangular `r`."""

    q: Tensor
    r: Tensor


def qr(input: TensorLike, full_matrices: bool = False, name: str | None = None) -> QRFactors:
    """The decomposition input = q r with orthonormal columns in q and upper triangular r: (q, r).

    Args:
        input: shape [..., n, m].
        full_matrices: whether q has shape [..., n, n], instead of [..., n, min(n, m)].
    """
    return QRFactors(*ops.Qr(input, full_matrices=full_matrices, name=name))


class LUFactors(NamedTuple):
    """Both triangles in one matrix, and the permutation of the rows."""

    lu: Tensor
    p: Tensor


def lu(input: TensorLike, output_idx_type: DTypeLike = dtypes.int32, name: str | None = None) -> LUFactors:
    """The decomposition input[p] = l u: (lu, p); lu holds u and, below its diagonal, l."""
    return LUFactors(*ops.Lu(input, output_idx_type=output_idx_type, name=name))


@overload
def svd(
    tensor: TensorLike, full_matrices: bool = ..., compute_uv: Literal[True] = ..., name: str | None = ...
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def svd(
    tensor: TensorLike, full_matrices: bool = ..., *, compute_uv: Literal[False], name: str | None = ...
) -> Tensor: ...
def svd(
    tensor: TensorLike, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None
) -> tuple[Tensor, Tensor, Tensor] | Tensor:
    """The decomposition tensor = u diag(s) v^H with s descending: (s, u, v), or s alone.

    Args:
        tensor: shape [..., n, m].
        full_matrices: whether u and v are square.
        compute_uv: whether u and v are computed.

    Returns:
        s is real, shape [..., min(n, m)].
    """
    parts = singular.Svd(tensor, compute_uv=compute_uv, full_matrices=full_matrices, name=name)
    s = real(parts.s)
    return (s, parts.u, parts.v) if compute_uv else s


def self_adjoint_eig(tensor: TensorLike, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The eigenvalues (ascending) and eigenvectors (in columns) of each Hermitian matrix: (e, v).

    Only the lower triangle is read.
    """
    parts = ops.SelfAdjointEigV2(tensor, compute_v=True, name=name)
    return parts.e, parts.v


def self_adjoint_eigvals(tensor: TensorLike, name: str | None = None) -> Tensor:
    """The eigenvalues (ascending) of each Hermitian matrix."""
    result: Tensor = ops.SelfAdjointEigV2(tensor, compute_v=False, name=name).e
    return result


def matrix_rank(
    a: TensorLike, tol: TensorLike | None = None, validate_args: bool = False, name: str | None = None
) -> Tensor:
    """The number of singular values of each matrix above `tol` (default: what rounding may leave); int32."""
    with name_scope(name or "matrix_rank"):
        a = convert_to_tensor(a, dtype_hint=dtypes.float32, name="a")
        s = svd(a, compute_uv=False)
        if tol is None:
            tol = arithmetic.Mul(reduce_max(s, -1, keepdims=True), _rounding(a))
        return reduce_sum(arithmetic.Cast(raw.Greater(s, tol), DstT=dtypes.int32), -1)


def _rounding(a: Tensor) -> Any:
    """The greater of rows and columns, times the distance of 1 to the next number; a number or a tensor."""
    real_dtype = as_dtype(a.dtype).real_dtype
    eps = float(np.finfo(real_dtype.as_numpy_dtype).eps)
    sizes = a.shape[-2:].dims_tuple if a.shape.ndims is not None else None
    if sizes is not None and None not in sizes:
        return max(size for size in sizes if size is not None) * eps
    last = raw.StridedSlice(raw.Shape(a), [-2], [0], [1], end_mask=1)
    return arithmetic.Mul(arithmetic.Cast(reduce_max(last), DstT=real_dtype), eps)


def pinv(
    a: TensorLike, rcond: TensorLike | None = None, validate_args: bool = False, name: str | None = None
) -> Tensor:
    """The Moore-Penrose inverse of each matrix, shape [..., n, m] -> [..., m, n].

    Args:
        a: floating.
        rcond: singular values not above this part of the greatest one count as 0; default: ten times the rounding.
    """
    with name_scope(name or "pinv"):
        a = convert_to_tensor(a, name="a")
        limit = _rounding(a) * 10.0 if rcond is None else rcond
        s, u, v = svd(a)
        cutoff = raw.ExpandDims(arithmetic.Mul(reduce_max(s, -1), limit), -1)
        kept = raw.SelectV2(raw.Greater(s, cutoff), s, arithmetic.AddV2(raw.ZerosLike(s), math.inf))
        return matmul(arithmetic.RealDiv(v, raw.ExpandDims(kept, -2)), u, adjoint_b=True)


# ---------------------------------------------------------------------- exponential
def expm(input: TensorLike, name: str | None = None) -> Tensor:
    """The exponential of each square matrix; floating or complex."""
    result: Tensor = matrix_functions.MatrixExponential(input, name=name)
    return result


def matrix_square_root(input: TensorLike, name: str | None = None) -> Tensor:
    """The principal square root of each matrix, whose product with itself is the matrix.

    Args:
        input: shape [..., n, n].
        name: of the operation.

    Returns:
        A tensor of the input's shape and dtype; NaN for a real matrix whose root is not real.

    Raises:
        ValueError: the matrices are not square.
    """
    result: Tensor = matrix_functions.MatrixSquareRoot(input, name=name)
    return result


def logm(input: TensorLike, name: str | None = None) -> Tensor:
    """The principal logarithm of each matrix, whose exponential is the matrix.

    Args:
        input: shape [..., n, n], complex64 or complex128.
        name: of the operation.

    Returns:
        A tensor of the input's shape and dtype.

    Raises:
        ValueError: the matrices are not square.
    """
    result: Tensor = matrix_functions.MatrixLogarithm(input, name=name)
    return result
