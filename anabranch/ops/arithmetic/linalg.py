"""Linear algebra on the matrices in the last two dimensions.

Least squares and LU are compiled only; all else runs on NumPy's arrays, too (`numpy_linalg`). Half precision is
computed in single precision.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arithmetic import numpy_linalg
from anabranch.ops.arithmetic.broadcast_gradients import sum_to_shape
from anabranch.ops.arithmetic.math import conj

_TYPES = "{double, float, half, complex64, complex128}"


# ---------------------------------------------------------------------- arrays
def widened(x: Array) -> Any:
    return x.astype(np.float32) if np.dtype(x.dtype) == np.float16 else x


def transposed(x: Array, xp: ModuleType = jnp) -> Any:
    return xp.conj(xp.swapaxes(x, -1, -2))


def _factored(ctx: OperationContext, matrix: Array, what: str = "Input") -> tuple[Any, Any]:
    """The LU factors and the permutation of invertible matrices; the step fails where one is singular.

    A first pivot that is NaN counts as singular, as it does in TensorFlow; later ones are let through.
    """
    factors, _, permutation = jax.lax.linalg.lu(matrix)
    pivots = jnp.diagonal(factors, axis1=-2, axis2=-1)
    ctx.check(jnp.all(pivots != 0) & ~jnp.any(jnp.isnan(pivots[..., :1])), f"{what} is not invertible.")
    return factors, permutation


def _solved(factors: Array, permutation: Array, rhs: Array) -> Any:
    permuted = jnp.take_along_axis(rhs, permutation[..., None], axis=-2)
    lower = jax.lax.linalg.triangular_solve(factors, permuted, left_side=True, lower=True, unit_diagonal=True)
    return jax.lax.linalg.triangular_solve(factors, lower, left_side=True, lower=False)


# ---------------------------------------------------------------------- tensors, for gradients
def product(a: Tensor, b: Tensor, adj_a: bool = False, adj_b: bool = False) -> Tensor:
    """The product of matrices; `adj` takes the conjugate transpose first."""
    result: Tensor = raw.BatchMatMulV2(a, b, adj_x=adj_a, adj_y=adj_b)
    return result


def adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose of the matrices in `x`."""
    rank = x.shape.ndims
    if rank is not None:
        perm: Any = [*range(rank - 2), rank - 1, rank - 2]
    else:
        count = raw.Rank(x)
        last = raw.Pack([raw.Sub(count, 1), raw.Sub(count, 2)])
        perm = raw.ConcatV2([raw.Range(0, raw.Sub(count, 2), 1), last], 0)
    result: Tensor = raw.ConjugateTranspose(x, perm) if x.dtype.is_complex else raw.Transpose(x, perm)
    return result


def _lower(x: Tensor) -> Tensor:
    return raw.MatrixBandPart(x, -1, 0)  # type: ignore[no-any-return]


def _diagonal(x: Tensor) -> Tensor:
    """The diagonal of each matrix, as a diagonal matrix."""
    return raw.MatrixBandPart(x, 0, 0)  # type: ignore[no-any-return]


def lower_half_diagonal(x: Tensor) -> Tensor:
    """The lower triangle with its diagonal halved."""
    return raw.Sub(_lower(x), raw.Mul(_diagonal(x), 0.5))  # type: ignore[no-any-return]


def add_all(*terms: Tensor | None) -> Any:
    present = [t for t in terms if t is not None]
    return raw.AddN(present) if present else None


def last(x: Tensor) -> Tensor:
    return raw.ExpandDims(x, -1)  # type: ignore[no-any-return]


def row(x: Tensor) -> Tensor:
    return raw.ExpandDims(x, -2)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- shapes
def matrices(shape: TensorShape) -> TensorShape:
    return shape_rules.with_rank_at_least(shape, 2, "matrices are in the last two dimensions")


def square_shape(input: TensorShape) -> TensorShape:
    shape = matrices(input)
    if shape.ndims is None:
        return shape
    size = shape[-1].merge_with(shape[-2])
    return shape[:-2].concatenate([size, size])


def _scalar_per_matrix(input: TensorShape) -> TensorShape:
    return square_shape(input)[:-2] if input.ndims is not None else input


def _solution(matrix: TensorShape, rhs: TensorShape) -> TensorShape:
    """For square systems: the shape of `rhs`, its number of rows that of the matrix."""
    matrix, rhs = square_shape(matrix), matrices(rhs)
    if matrix.ndims is None or rhs.ndims is None:
        return rhs
    batch = matrix[:-2].merge_with(rhs[:-2])
    return batch.concatenate([matrix[-1].merge_with(rhs[-2]), rhs[-1]])


# ---------------------------------------------------------------------- Cholesky, inverse, determinant
Cholesky = define_op("Cholesky", "input: T -> output: T", f"T: {_TYPES}")
Cholesky.shape(square_shape)


@Cholesky.kernel
def _(input: Array, *, ctx: OperationContext, xp: ModuleType) -> Any:
    """Reads the lower triangle only.

    A matrix with NaN or infinity has a factor with NaN: TensorFlow only compares pivots with zero.
    """
    wide, failure = widened(input), "Cholesky decomposition was not successful. The input might not be valid."
    if xp is np:
        return numpy_linalg.cholesky(ctx, wide, failure).astype(input.dtype)
    factor = jnp.tril(jax.lax.linalg.cholesky(wide, symmetrize_input=False))
    has_factor = jnp.isfinite(factor) | ~jnp.all(jnp.isfinite(jnp.tril(input)), axis=(-2, -1), keepdims=True)
    ctx.check(jnp.all(has_factor), failure)
    return factor.astype(input.dtype)


@Cholesky.gradient
def _(op: Operation, grad: Tensor) -> Any:
    """A symmetric matrix: half of it for each triangle of the symmetric input."""
    factor = op.outputs[0]
    middle = lower_half_diagonal(product(factor, grad, adj_a=True))
    left = MatrixTriangularSolve(factor, middle, lower=True, adjoint=True)
    both = adjoint(MatrixTriangularSolve(factor, adjoint(left), lower=True, adjoint=True))
    return raw.Mul(raw.AddV2(both, adjoint(both)), 0.5)


MatrixInverse = define_op("MatrixInverse", "input: T -> output: T", f"adjoint: bool = False, T: {_TYPES}")
MatrixInverse.shape(square_shape)


@MatrixInverse.kernel
def _(input: Array, *, adjoint: bool, ctx: OperationContext, xp: ModuleType) -> Any:
    matrix = widened(transposed(input, xp) if adjoint else input)
    if xp is np:
        return numpy_linalg.solution(ctx, matrix, None, "Input is not invertible.").astype(input.dtype)
    identity = jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)
    return _solved(*_factored(ctx, matrix), identity).astype(input.dtype)


@MatrixInverse.gradient
def _(op: Operation, grad: Tensor) -> Any:
    y = op.outputs[0]
    if op.attrs["adjoint"]:
        return raw.Neg(product(y, product(grad, y, adj_a=True)))
    return raw.Neg(product(y, product(grad, y, adj_b=True), adj_a=True))


MatrixDeterminant = define_op("MatrixDeterminant", "input: T -> output: T", f"T: {_TYPES}")
MatrixDeterminant.shape(_scalar_per_matrix)


@MatrixDeterminant.kernel
def _(input: Array, *, xp: ModuleType) -> Any:
    return xp.linalg.det(widened(input)).astype(input.dtype)


def _matrix_of(scalar: Tensor) -> Tensor:
    return last(last(scalar))


@MatrixDeterminant.gradient
def _(op: Operation, grad: Tensor) -> Any:
    scale = raw.Mul(grad, conj(op.outputs[0]))
    return raw.Mul(_matrix_of(scale), MatrixInverse(op.inputs[0], adjoint=True))


LogMatrixDeterminant = define_op("LogMatrixDeterminant", "input: T -> sign: T, log_abs_determinant: T", f"T: {_TYPES}")


@LogMatrixDeterminant.shape
def _(input: TensorShape) -> list[TensorShape]:
    return [_scalar_per_matrix(input)] * 2


@LogMatrixDeterminant.kernel
def _(input: Array, *, xp: ModuleType) -> Any:
    """Adds the logarithms of the pivots: their product may be too small, or too large, for its dtype."""
    wide = widened(input)
    if xp is np:
        return [part.astype(input.dtype) for part in numpy_linalg.log_determinant(wide)]
    factors, swaps, _ = jax.lax.linalg.lu(wide)
    pivots = jnp.diagonal(factors, axis1=-2, axis2=-1)
    odd = jnp.sum(swaps != np.arange(swaps.shape[-1]), axis=-1) % 2
    sign = jnp.prod(jnp.sign(pivots), axis=-1) * (1 - 2 * odd)
    return sign.astype(input.dtype), jnp.sum(jnp.log(jnp.abs(pivots)), axis=-1).astype(input.dtype)


@LogMatrixDeterminant.gradient
def _(op: Operation, _: Tensor, grad: Tensor) -> Any:
    """The gradient treats the sign as a constant."""
    return raw.Mul(_matrix_of(grad), MatrixInverse(op.inputs[0], adjoint=True))


# ---------------------------------------------------------------------- systems of equations
MatrixSolve = define_op("MatrixSolve", "matrix: T, rhs: T -> output: T", f"adjoint: bool = False, T: {_TYPES}")
MatrixSolve.shape(_solution)


def _check_system(ctx: OperationContext, matrix: Array, rhs: Array) -> None:
    fits = matrix.ndim >= 2 and matrix.shape[:-1] == rhs.shape[:-1] and matrix.shape[-1] == matrix.shape[-2]
    ctx.check(fits, f"matrices of shape {matrix.shape} and right-hand sides of shape {rhs.shape} form no system")


@MatrixSolve.kernel
def _(matrix: Array, rhs: Array, *, adjoint: bool, ctx: OperationContext, xp: ModuleType) -> Any:
    _check_system(ctx, matrix, rhs)
    wide, sides = widened(transposed(matrix, xp) if adjoint else matrix), widened(rhs)
    if xp is np:
        return numpy_linalg.solution(ctx, wide, sides, "Input matrix is not invertible.").astype(rhs.dtype)
    return _solved(*_factored(ctx, wide, "Input matrix"), sides).astype(rhs.dtype)


def _by_matrix(grad_rhs: Tensor, solution: Tensor, adjoint: bool) -> Tensor:
    """The gradient of the solution for the matrix, given that for the right-hand side."""
    grad = product(solution, grad_rhs, adj_b=True) if adjoint else product(grad_rhs, solution, adj_b=True)
    return raw.Neg(grad)  # type: ignore[no-any-return]


@MatrixSolve.gradient
def _(op: Operation, grad: Tensor) -> Any:
    adjoint = op.attrs["adjoint"]
    grad_rhs = MatrixSolve(op.inputs[0], grad, adjoint=not adjoint)
    return _by_matrix(grad_rhs, op.outputs[0], adjoint), grad_rhs


def _broadcast_solution(matrix: TensorShape, rhs: TensorShape) -> TensorShape:
    """Like `_solution`; the batches broadcast."""
    matrix, rhs = square_shape(matrix), matrices(rhs)
    if matrix.ndims is None or rhs.ndims is None:
        return shape_rules.UNKNOWN
    batch = shape_rules.broadcast(matrix[:-2], rhs[:-2])
    return batch.concatenate([matrix[-1].merge_with(rhs[-2]), rhs[-1]])


def _triangular_solve(name: str, types: str) -> OpFunction:
    op = define_op(name, "matrix: T, rhs: T -> output: T", f"lower: bool = True, adjoint: bool = False, T: {types}")
    op.shape(_broadcast_solution)

    @op.kernel
    def _(matrix: Array, rhs: Array, *, lower: bool, adjoint: bool, ctx: OperationContext, xp: ModuleType) -> Any:
        if matrix.shape[:-2] != rhs.shape[:-2]:
            batch = np.broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2])
            matrix = xp.broadcast_to(matrix, (*batch, *matrix.shape[-2:]))
            rhs = xp.broadcast_to(rhs, (*batch, *rhs.shape[-2:]))
        wide = matrix.astype(np.float32) if matrix.dtype.itemsize == 2 else matrix
        ctx.check(xp.all(xp.diagonal(wide, axis1=-2, axis2=-1) != 0), "Input is not invertible.")
        if xp is np:
            triangle = transposed(wide, np) if adjoint else wide
            sides = rhs.astype(wide.dtype)
            return numpy_linalg.triangular_solution(triangle, sides, lower != adjoint).astype(rhs.dtype)
        complex_adjoint = adjoint and np.dtype(wide.dtype).kind == "c"
        solution = jax.lax.linalg.triangular_solve(
            wide, rhs.astype(wide.dtype), left_side=True, lower=lower, transpose_a=adjoint, conjugate_a=complex_adjoint
        )
        return solution.astype(rhs.dtype)

    @op.gradient
    def _(operation: Operation, grad: Tensor) -> Any:
        lower, adjoint = operation.attrs["lower"], operation.attrs["adjoint"]
        grad_rhs = op(operation.inputs[0], grad, lower=lower, adjoint=not adjoint)
        grad_matrix = _by_matrix(grad_rhs, operation.outputs[0], adjoint)
        triangle = raw.MatrixBandPart(grad_matrix, -1 if lower else 0, 0 if lower else -1)
        return sum_to_shape(triangle, operation.inputs[0]), sum_to_shape(grad_rhs, operation.inputs[1])

    return op


MatrixTriangularSolve = _triangular_solve(
    "MatrixTriangularSolve", "{bfloat16, double, float, half, complex64, complex128}"
)
BatchMatrixTriangularSolve = _triangular_solve("BatchMatrixTriangularSolve", "{double, float}")

MatrixSolveLs = define_op(
    "MatrixSolveLs", "matrix: T, rhs: T, l2_regularizer: double -> output: T", f"T: {_TYPES}, fast: bool = True"
)


@MatrixSolveLs.shape
def _(matrix: TensorShape, rhs: TensorShape, l2_regularizer: TensorShape) -> TensorShape:
    matrix, rhs = matrices(matrix), matrices(rhs)
    shape_rules.with_rank(l2_regularizer, 0, "argument 'l2_regularizer'")
    if matrix.ndims is None or rhs.ndims is None:
        return shape_rules.UNKNOWN
    matrix[-2].assert_is_compatible_with(rhs[-2])
    return shape_rules.merged(matrix[:-2], rhs[:-2]).concatenate([matrix[-1], rhs[-1]])


@MatrixSolveLs.kernel
def _(matrix: Array, rhs: Array, l2_regularizer: Array, *, fast: bool, ctx: OperationContext) -> Any:
    """With `fast` normal equations are solved, with the regularizer; else singular values are used, without it."""
    a, b = widened(matrix), widened(rhs)
    ctx.check((l2_regularizer >= 0) | (0 in a.shape[:-2]), "l2_regularizer must be >= 0, got {0}", l2_regularizer)
    rows, columns = a.shape[-2:]
    if not fast:
        # what is smaller counts as zero, where TensorFlow's pivots do
        least = min(rows, columns) * np.finfo(a.dtype).eps
        return (jnp.linalg.pinv(a, rtol=least) @ b).astype(rhs.dtype)
    adj = transposed(a)
    penalty = l2_regularizer.astype(a.dtype) * jnp.eye(min(rows, columns), dtype=a.dtype)
    if rows >= columns:
        return _solved(*_normal_factored(ctx, adj @ a + penalty), adj @ b).astype(rhs.dtype)
    return (adj @ _solved(*_normal_factored(ctx, a @ adj + penalty), b)).astype(rhs.dtype)


def _normal_factored(ctx: OperationContext, matrix: Array) -> tuple[Any, Any]:
    """The LU factors and the permutation of the matrix of normal equations; one with NaN or infinity is let through."""
    factors, _, permutation = jax.lax.linalg.lu(matrix)
    singular = jnp.any(jnp.diagonal(factors, axis1=-2, axis2=-1) == 0, axis=-1)
    ctx.check(
        jnp.all(~singular | ~jnp.all(jnp.isfinite(matrix), axis=(-2, -1))),
        "Input matrix was rank deficient or ill-conditioned. Try setting fast=False or provide a larger l2_regularizer "
        "> 0.",
    )
    return factors, permutation


@MatrixSolveLs.gradient
def _(op: Operation, grad: Tensor) -> Any:
    a, b, regularizer = op.inputs
    x = op.outputs[0]
    penalty = raw.Cast(regularizer, DstT=a.dtype) if op.attrs["fast"] else raw.Cast(0.0, DstT=a.dtype)
    shape = matrices(a.shape)
    if shape.ndims is None or shape[-1].value is None or shape[-2].value is None:
        # only the step knows which side is longer: the other side's system, which has no inverse, gets one and counts
        # nothing
        tall = raw.LessEqual(raw.Size(product(a, a, adj_a=True)), raw.Size(product(a, a, adj_b=True)))
        is_tall, is_wide = raw.Cast(tall, DstT=a.dtype), raw.Cast(raw.LogicalNot(tall), DstT=a.dtype)
        of_tall = _by_tall_system(a, b, x, grad, raw.AddV2(penalty, is_wide))
        of_wide = _by_wide_system(a, b, x, grad, raw.AddV2(penalty, is_tall))
        parts = zip(of_tall, of_wide, strict=True)
        return *(raw.AddV2(raw.Mul(is_tall, one), raw.Mul(is_wide, other)) for one, other in parts), None
    by_system = _by_tall_system if shape[-2].value >= shape[-1].value else _by_wide_system
    return *by_system(a, b, x, grad, penalty), None


def _by_tall_system(a: Tensor, b: Tensor, x: Tensor, grad: Tensor, penalty: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients with respect to the matrix, of at least as many rows as columns, and to the right-hand side."""
    z = MatrixSolve(_regular(product(a, a, adj_a=True), penalty), grad)
    grad_b = product(a, z)
    residual = raw.Sub(b, product(a, x))
    return raw.Sub(product(residual, z, adj_b=True), product(grad_b, x, adj_b=True)), grad_b


def _by_wide_system(a: Tensor, b: Tensor, x: Tensor, grad: Tensor, penalty: Tensor) -> tuple[Tensor, Tensor]:
    """The same of a matrix of more columns than rows."""
    normal = _regular(product(a, a, adj_b=True), penalty)
    w, grad_b = MatrixSolve(normal, b), MatrixSolve(normal, product(a, grad))
    outside = raw.Sub(grad, product(a, grad_b, adj_a=True))
    return raw.Sub(product(w, outside, adj_b=True), product(grad_b, x, adj_b=True)), grad_b


def _regular(normal: Tensor, penalty: Tensor) -> Tensor:
    identity = _diagonal(raw.OnesLike(normal))
    return raw.AddV2(normal, raw.Mul(identity, penalty))  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- QR
Qr = define_op("Qr", "input: T -> q: T, r: T", f"full_matrices: bool = False, T: {_TYPES}")


@Qr.shape
def _(input: TensorShape, *, full_matrices: bool) -> list[TensorShape]:
    shape = matrices(input)
    if shape.ndims is None:
        return [shape_rules.UNKNOWN] * 2
    rows, columns = shape[-2].value, shape[-1].value
    inner = rows if full_matrices else least_of(rows, columns)
    return [shape[:-2].concatenate([rows, inner]), shape[:-2].concatenate([inner, columns])]


def least_of(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else min(a, b)


@Qr.kernel
def _(input: Array, *, full_matrices: bool, xp: ModuleType) -> Any:
    wide = widened(input)
    if xp is np:
        parts: Any = numpy_linalg.qr(wide, full_matrices)
    else:
        parts = jnp.linalg.qr(wide, mode="complete" if full_matrices else "reduced")
    q, r = parts
    return q.astype(input.dtype), r.astype(input.dtype)


@Qr.gradient
def _(op: Operation, grad_q: Tensor | None, grad_r: Tensor | None) -> Any:
    """Of a wide matrix, the square to the left gives q, and q and what is to the right give the rest of r."""
    a, (q, r) = op.inputs[0], op.outputs
    shape = a.shape
    rows, columns = (shape[-2].value, shape[-1].value) if shape.ndims is not None else (None, None)
    if rows is None or columns is None or (op.attrs["full_matrices"] and rows > columns):
        raise NotImplementedError(
            f"the gradient of {op.name} needs to know the number of rows and columns, and full_matrices=False where "
            f"there are more rows than columns; the input has shape {shape}"
        )
    grad_q = raw.ZerosLike(q) if grad_q is None else grad_q
    grad_r = raw.ZerosLike(r) if grad_r is None else grad_r
    if rows >= columns:
        return _qr_gradient(q, r, grad_q, grad_r)
    sizes = [rows, columns - rows]
    (_, right), (square, _), (grad_square, grad_rest) = (
        raw.SplitV(whole, sizes, -1, num_split=2) for whole in (a, r, grad_r)
    )
    grad_q = raw.AddV2(grad_q, product(right, grad_rest, adj_b=True))
    return raw.ConcatV2([_qr_gradient(q, square, grad_q, grad_square), product(q, grad_rest)], -1)


def _qr_gradient(q: Tensor, r: Tensor, grad_q: Tensor, grad_r: Tensor) -> Tensor:
    """The gradient of a matrix with no more columns than rows."""
    by_q, by_r = product(q, grad_q, adj_a=True), product(r, grad_r, adj_b=True)
    skew = _lower(raw.AddV2(raw.Sub(by_q, adjoint(by_q)), raw.Sub(by_r, adjoint(by_r))))
    inside = product(q, raw.AddV2(grad_r, _over_upper(skew, r)))
    return raw.AddV2(inside, _over_upper(raw.Sub(grad_q, product(q, by_q)), r))  # type: ignore[no-any-return]


def _over_upper(x: Tensor, r: Tensor) -> Tensor:
    """The product of x with the inverse of the adjoint of the upper triangular `r`."""
    return adjoint(MatrixTriangularSolve(r, adjoint(x), lower=False, adjoint=False))


# ---------------------------------------------------------------------- eigenvalues
SelfAdjointEigV2 = define_op("SelfAdjointEigV2", "input: T -> e: T, v: T", f"compute_v: bool = True, T: {_TYPES}")


@SelfAdjointEigV2.shape
def _(input: TensorShape, *, compute_v: bool) -> list[TensorShape]:
    square = square_shape(input)
    values = square[:-1] if square.ndims is not None else square
    return [values, square if compute_v else TensorShape([0])]


@SelfAdjointEigV2.kernel
def _(input: Array, *, compute_v: bool, ctx: OperationContext, xp: ModuleType) -> Any:
    """Reads the lower triangle only; eigenvalues ascend."""
    failure = "Self-adjoint eigen decomposition was not successful. The input may be NaN."
    ctx.check(xp.isfinite(xp.tril(input)), failure)
    wide = widened(input)
    if xp is np:
        parts: Any = numpy_linalg.eigenvectors(wide)
    else:
        parts = jnp.linalg.eigh(wide, UPLO="L", symmetrize_input=False)
    e, v = parts
    vectors = v.astype(input.dtype) if compute_v else xp.zeros((0,), input.dtype)
    return e.astype(input.dtype), vectors


@SelfAdjointEigV2.gradient
def _(op: Operation, grad_e: Tensor | None, grad_v: Tensor | None) -> Any:
    """The gradient is that of the lower triangle, the one that is read."""
    if not op.attrs["compute_v"]:
        e, v = SelfAdjointEigV2(op.inputs[0], compute_v=True)
        grad_v = None
    else:
        e, v = op.outputs
    return by_eigenvalues(e, v, grad_e, grad_v)


def by_eigenvalues(e: Tensor, v: Tensor, grad_e: Tensor | None, grad_v: Tensor | None) -> Any:
    """The gradient of the lower triangle, given those of the eigenvalues and eigenvectors."""
    middle = None if grad_e is None else raw.MatrixDiag(grad_e)
    if grad_v is not None:
        gaps = safe_reciprocal(raw.Sub(row(e), last(e)))
        middle = add_all(middle, raw.Mul(gaps, product(v, grad_v, adj_a=True)))
    if middle is None:
        return None
    full = product(v, product(middle, v, adj_b=True))
    return lower_half_diagonal(raw.AddV2(full, adjoint(full)))


def safe_reciprocal(x: Tensor) -> Tensor:
    """1 / x, and 0 where x is 0."""
    return raw.DivNoNan(raw.OnesLike(x), x)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- LU
Lu = define_op("Lu", "input: T -> lu: T, p: output_idx_type", f"T: {_TYPES}, output_idx_type: {{int32, int64}} = int32")


@Lu.shape
def _(input: TensorShape) -> list[TensorShape]:
    square = square_shape(input)
    return [square, square[:-1] if square.ndims is not None else square]


@Lu.kernel
def _(input: Array, *, output_idx_type: DType, ctx: OperationContext) -> Any:
    """input[p] = l u; the result holds l (without its unit diagonal) and u."""
    factors, permutation = _factored(ctx, widened(input))
    return factors.astype(input.dtype), permutation.astype(output_idx_type.as_numpy_dtype)


@Lu.gradient
def _(op: Operation, grad: Tensor, _: Tensor | None) -> Any:
    """With P A = L U: P grad_A = L^-H (lower(L^H grad_L) + upper(grad_U U^H)) U^-H."""
    factors, permutation = op.outputs
    upper = raw.MatrixBandPart(factors, 0, -1)
    identity = _diagonal(raw.OnesLike(factors))
    lower = raw.AddV2(raw.Sub(_lower(factors), _diagonal(factors)), identity)
    grad_lower, grad_upper = raw.Sub(_lower(grad), _diagonal(grad)), raw.MatrixBandPart(grad, 0, -1)
    by_lower = product(lower, grad_lower, adj_a=True)
    by_upper = raw.MatrixBandPart(product(grad_upper, upper, adj_b=True), 0, -1)
    middle = raw.AddV2(raw.Sub(_lower(by_lower), _diagonal(by_lower)), by_upper)
    left = MatrixTriangularSolve(lower, middle, lower=True, adjoint=True)
    permuted = _over_upper(left, upper)
    size = raw.StridedSlice(raw.Shape(factors), [-1], [0], [1], end_mask=1, shrink_axis_mask=1)
    order = raw.OneHot(permutation, size, raw.Cast(1, DstT=grad.dtype), raw.Cast(0, DstT=grad.dtype))
    return product(order, permuted, adj_a=True)
