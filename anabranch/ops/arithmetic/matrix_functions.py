"""Functions of square matrices: exponential, square root, logarithm.

The square root and the logarithm are those of a triangular matrix, the complex Schur form, which XLA has on CPUs only,
as TensorFlow has these operations there only. The gradient of a function f of matrices stands in f of larger ones:
f([[a, e], [0, a]]) = [[f(a), the derivative of f at a in direction e], [0, f(a)]].
"""

from __future__ import annotations

import functools
import math
from types import ModuleType
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array
from anabranch.graph.building import define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.ops.arithmetic.linalg import adjoint, square_shape, widened
from anabranch.ops.arithmetic.numpy_linalg import NumpyArray

_TYPES = "{double, float, half, complex64, complex128}"


# ---------------------------------------------------------------------- gradients
def _gradient(op: Operation, grad: Tensor) -> Any:
    """The upper right block of the function of [[a, grad], [0, a]], with a the adjoint of the input."""
    a = adjoint(op.inputs[0])
    upper, lower = raw.ConcatV2([a, grad], -1), raw.ConcatV2([raw.ZerosLike(a), a], -1)
    both = getattr(raw, op.type)(raw.ConcatV2([upper, lower], -2))
    size = raw.StridedSlice(raw.Shape(a), [-1], [0], [1], end_mask=1)
    batch = raw.StridedSlice(raw.Shape(a), [0], [-1], [1], begin_mask=1)
    return raw.Slice(both, raw.Concat(0, [raw.ZerosLike(batch), size]), raw.Concat(0, [batch, size]))


# ---------------------------------------------------------------------- exponential
MatrixExponential = define_op("MatrixExponential", "input: T -> output: T", f"T: {_TYPES}")
MatrixExponential.shape(square_shape)
MatrixExponential.gradient(_gradient)


#: Of the quotient p(x) / p(-x) of polynomials that is nearest to exp(x) at 0: the coefficients of p, lowest first, by
#: degree, and the 1-norm up to which it is exact in single or double precision (Higham, SIAM J. Matrix Anal. Appl. 26,
#: 2005). A coefficient is (2n - k)! n! / ((2n)! k! (n - k)!).
_DEGREES: Final = {4: (7, 3.925724783138660), 8: (13, 5.371920351148152)}


def _quotient(degree: int) -> list[float]:
    n, of = degree, math.factorial
    return [of(2 * n - k) * of(n) / (of(2 * n) * of(k) * of(n - k)) for k in range(n + 1)]


@MatrixExponential.kernel
def _(input: Array, *, xp: ModuleType) -> Any:
    """That of the 2^k-th part, whose norm is small, is squared k times; k is the matrix's own."""
    if _empty(input):
        return input
    matrix = widened(input)
    degree, most = _DEGREES[np.finfo(matrix.dtype).dtype.itemsize]
    size = xp.max(xp.sum(xp.abs(matrix), axis=-2), axis=-1)
    halvings = xp.ceil(xp.log2(xp.where(xp.isfinite(size) & (size > most), size / most, 1))).astype(np.int32)
    x = matrix * xp.exp2(-halvings)[..., None, None].astype(matrix.dtype)
    identity, square = xp.broadcast_to(xp.eye(x.shape[-1], dtype=x.dtype), x.shape), x @ x
    coefficients = np.array(_quotient(degree), np.finfo(matrix.dtype).dtype)
    even, odd = (_polynomial(coefficients[first::2], square, identity) for first in (0, 1))
    odd = x @ odd
    result = xp.linalg.solve(even - odd, even + odd)

    def squared(i: Array, so_far: Array) -> Any:
        return xp.where((i < halvings)[..., None, None], so_far @ so_far, so_far)

    times = xp.max(halvings)
    result = (
        functools.reduce(lambda r, i: squared(i, r), range(times), result)
        if xp is np
        else jax.lax.fori_loop(0, times, squared, result)
    )
    return result.astype(input.dtype)


def _polynomial(coefficients: NumpyArray, x: Array, identity: Array) -> Any:
    """The polynomial of a matrix, coefficients lowest first."""
    result = coefficients[-1] * identity
    for coefficient in coefficients[-2::-1]:
        result = result @ x + coefficient * identity
    return result


# ---------------------------------------------------------------------- triangular matrices
def _schur(matrix: Array) -> tuple[Any, Any]:
    """The triangular t and the unitary q with matrix = q t q^H, in double precision."""
    triangular, unitary = jax.lax.linalg.schur(matrix.astype(np.complex128))
    return jnp.triu(triangular), unitary


def _back(triangular: Array, unitary: Array) -> Any:
    return unitary @ triangular @ jnp.conj(jnp.swapaxes(unitary, -1, -2))


def _triangular_root(t: Array) -> Any:
    """The upper triangular r with r r = t, one diagonal after the other.

    While the diagonals from the k-th on are zero, element (i, i + k) of r r lacks nothing but r_ik (r_ii + r_kk). Where
    that is zero and something is lacking, there is no root: NaN.
    """
    values = jnp.sqrt(jnp.diagonal(t, axis1=-2, axis2=-1))
    sums = values[..., :, None] + values[..., None, :]
    size = t.shape[-1]
    diagonal = np.arange(size)[None, :] - np.arange(size)[:, None]

    def with_diagonal(k: Array, r: Array) -> Any:
        rest = t - r @ r
        quotient = jnp.where(sums == 0, jnp.where(rest == 0, 0, np.nan), rest / jnp.where(sums == 0, 1, sums))
        return jnp.where(diagonal == k, quotient, r)

    return jax.lax.fori_loop(1, size, with_diagonal, jnp.where(diagonal == 0, values[..., None], 0))


def _empty(matrix: Array) -> bool:
    return 0 in matrix.shape


# ---------------------------------------------------------------------- square root
# by a Schur decomposition, for which XLA has no kernel on accelerators; nor has TensorFlow 1.15
MatrixSquareRoot = define_op("MatrixSquareRoot", "input: T -> output: T", f"T: {_TYPES}", processors_only="all")
MatrixSquareRoot.shape(square_shape)
MatrixSquareRoot.gradient(_gradient)


@MatrixSquareRoot.kernel
def _(input: Array) -> Any:
    """The principal square root; of a real matrix that has none that is real, NaN."""
    if _empty(input):
        return input
    triangular, unitary = _schur(input)
    root = _back(_triangular_root(triangular), unitary)
    if np.dtype(input.dtype).kind == "c":
        return root.astype(input.dtype)
    size = jnp.max(jnp.abs(root), axis=(-2, -1), keepdims=True)
    is_real = jnp.max(jnp.abs(root.imag), axis=(-2, -1), keepdims=True) <= 1e-7 * size
    return jnp.where(is_real, root.real, np.nan).astype(input.dtype)


# ---------------------------------------------------------------------- logarithm
#: with these points, the logarithm of a matrix that is at most so far from the identity is exact in double precision
_POINTS, _FAR = 8, 0.25
#: a number in double precision has a root this near to 1 after so many square roots
_MOST_ROOTS = 24

MatrixLogarithm = define_op(
    "MatrixLogarithm", "input: T -> output: T", "T: {complex64, complex128}", processors_only="all"
)
MatrixLogarithm.shape(square_shape)
MatrixLogarithm.gradient(_gradient)


def _distance(matrix: Array, identity: Array) -> Any:
    return jnp.max(jnp.sum(jnp.abs(matrix - identity), axis=-2))


@MatrixLogarithm.kernel
def _(input: Array) -> Any:
    """The principal logarithm: 2^k times that of the 2^k-th root, which is near the identity.

    There it is the integral of x / (1 + s x) from s = 0 to 1, computed at Gauss and Legendre's points.
    """
    if _empty(input):
        return input
    triangular, unitary = _schur(input)
    identity = np.eye(input.shape[-1])

    def is_far(state: tuple[Array, Array]) -> Any:
        return (state[0] < _MOST_ROOTS) & (_distance(state[1], identity) > _FAR)

    count, root = jax.lax.while_loop(is_far, lambda s: (s[0] + 1, _triangular_root(s[1])), (0, triangular))
    points, weights = np.polynomial.legendre.leggauss(_POINTS)
    x = root - identity
    parts = [
        w / 2 * jax.lax.linalg.triangular_solve(identity + (s + 1) / 2 * x, x, left_side=True)
        for s, w in zip(points, weights, strict=True)
    ]
    logarithm = sum(parts[1:], parts[0]) * 2.0**count
    # the diagonal lost what the roots rounded away
    exact = jnp.log(jnp.diagonal(triangular, axis1=-2, axis2=-1))
    logarithm = jnp.where(identity == 1, exact[..., None], logarithm)
    return _back(logarithm, unitary).astype(input.dtype)
