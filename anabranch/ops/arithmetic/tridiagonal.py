"""Products and systems of equations with tridiagonal matrices, given by their three diagonals; compiled only.

Element i of a diagonal stands in row i: the last element of the one above the main diagonal, and the first element of
the one below it, are not read.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arithmetic.math import conj

_TYPES = "{double, float, complex64, complex128}"


# ---------------------------------------------------------------------- tensors, for gradients
def _from_next(x: Tensor) -> Tensor:
    """[..., m, n], each row replaced by the next one, the last by zeros."""
    return raw.ConcatV2([x[..., 1:, :], raw.ZerosLike(x[..., :1, :])], -2)  # type: ignore[no-any-return]


def _from_previous(x: Tensor) -> Tensor:
    return raw.ConcatV2([raw.ZerosLike(x[..., :1, :]), x[..., :-1, :]], -2)  # type: ignore[no-any-return]


def _column(diagonal: Tensor) -> Tensor:
    """[..., m] -> [..., m, 1]"""
    return raw.ExpandDims(diagonal, -1)  # type: ignore[no-any-return]


def _by_diagonals(left: Tensor, right: Tensor) -> list[Tensor]:
    """The diagonals (above, main, below) [..., m] of left right^H, for [..., m, n] matrices."""
    right = conj(right)
    return [raw.Sum(raw.Mul(left, moved), -1) for moved in (_from_next(right), right, _from_previous(right))]


# ---------------------------------------------------------------------- product
TridiagonalMatMul = define_op(
    "TridiagonalMatMul", "superdiag: T, maindiag: T, subdiag: T, rhs: T -> output: T", f"T: {_TYPES}"
)


@TridiagonalMatMul.shape
def _(superdiag: TensorShape, maindiag: TensorShape, subdiag: TensorShape, rhs: TensorShape) -> TensorShape:
    shape = rhs.with_rank_at_least(2)
    diagonals = [d.with_rank_at_least(2) for d in (superdiag, maindiag, subdiag)]
    if shape.ndims is None:
        return shape
    wanted = shape[:-2].concatenate([1, shape[-2]])
    for diagonal in diagonals:
        shape_rules.merged(wanted, diagonal)
    return shape


@TridiagonalMatMul.kernel
def _(superdiag: Array, maindiag: Array, subdiag: Array, rhs: Array, *, ctx: OperationContext) -> Any:
    fits = len({superdiag.shape, maindiag.shape, subdiag.shape}) == 1 and rhs.ndim >= 2
    fits = fits and maindiag.shape == (*rhs.shape[:-2], 1, rhs.shape[-2])
    ctx.check(
        fits,
        f"diagonals of shapes {superdiag.shape}, {maindiag.shape} and {subdiag.shape} do not fit rows of {rhs.shape}",
    )
    above, main, below = (jnp.swapaxes(d, -1, -2) for d in (superdiag, maindiag, subdiag))
    edge = jnp.zeros_like(rhs[..., :1, :])
    after = jnp.concatenate([rhs[..., 1:, :], edge], axis=-2)
    before = jnp.concatenate([edge, rhs[..., :-1, :]], axis=-2)
    # what stands at the unread ends may be infinite or NaN
    above, below = above.at[..., -1:, :].set(0), below.at[..., :1, :].set(0)
    return above * after + main * rhs + below * before


@TridiagonalMatMul.gradient
def _(op: Operation, grad: Tensor) -> Any:
    above, main, below = (_column(conj(raw.Squeeze(d, squeeze_dims=[-2]))) for d in op.inputs[:3])
    grad_rhs = raw.AddN([_from_previous(raw.Mul(above, grad)), raw.Mul(main, grad), _from_next(raw.Mul(below, grad))])
    diagonals = [raw.ExpandDims(d, -2) for d in _by_diagonals(grad, op.inputs[3])]
    return *diagonals, grad_rhs


# ---------------------------------------------------------------------- system of equations
TridiagonalSolve = define_op(
    "TridiagonalSolve", "diagonals: T, rhs: T -> output: T", f"partial_pivoting: bool = True, T: {_TYPES}"
)


@TridiagonalSolve.shape
def _(diagonals: TensorShape, rhs: TensorShape) -> TensorShape:
    diagonals, rhs = diagonals.with_rank_at_least(2), rhs.with_rank_at_least(2)
    if diagonals.ndims is None or rhs.ndims is None:
        return rhs
    shape_rules.merged(diagonals[:-2], rhs[:-2])
    diagonals[-2].assert_is_compatible_with(3)
    return rhs[:-2].concatenate([diagonals[-1].merge_with(rhs[-2]), rhs[-1]])


@TridiagonalSolve.kernel
def _(diagonals: Array, rhs: Array, *, partial_pivoting: bool, ctx: OperationContext) -> Any:
    fits = rhs.ndim >= 2 and diagonals.shape == (*rhs.shape[:-2], 3, rhs.shape[-2])
    ctx.check(fits, f"diagonals of shape {diagonals.shape} do not fit right-hand sides of shape {rhs.shape}")
    if 0 in rhs.shape:
        return rhs
    above, main, below = (jnp.moveaxis(diagonals[..., i, :], -1, 0)[..., None] for i in range(3))
    pivots, sides = _eliminated(above, main, below, jnp.moveaxis(rhs, -2, 0), partial_pivoting)
    message = "The matrix is not invertible." if partial_pivoting else "A pivot is zero; try partial_pivoting=True."
    ctx.check(jnp.all(pivots[0] != 0), message)
    return jnp.moveaxis(_substituted(pivots, sides), 0, -2)


def _eliminated(above: Array, main: Array, below: Array, rhs: Array, pivoting: bool) -> tuple[Any, Any]:
    """Upper triangular rows, each with three elements from the diagonal on, and their right-hand sides.

    One row after the other is subtracted from the row in hand; with `pivoting`, or the row in hand from it, whichever
    begins with the larger number.
    """

    def step(hand: tuple[Array, ...], row: tuple[Array, ...]) -> Any:
        a, b, r = hand
        first, second, third, side = row
        swap = (jnp.abs(first) > jnp.abs(a)) & pivoting
        pairs = ((first, a), (second, b), (third, jnp.zeros_like(third)), (side, r))
        pivot = [jnp.where(swap, x, y) for x, y in pairs]
        other = [jnp.where(swap, y, x) for x, y in pairs]
        factor = other[0] / pivot[0]
        hand = (other[1] - factor * pivot[1], other[2] - factor * pivot[2], other[3] - factor * pivot[3])
        return hand, pivot

    zero = jnp.zeros_like(main[:1])
    above = jnp.concatenate([above[:-1], zero])
    rows = below[1:], main[1:], above[1:], rhs[1:]
    (a, b, r), done = jax.lax.scan(step, (main[0], above[0], rhs[0]), rows)
    last = (a, b, jnp.zeros_like(b), r)
    first, second, third, side = (jnp.concatenate([d, x[None]]) for d, x in zip(done, last, strict=True))
    return (first, second, third), side


def _substituted(pivots: tuple[Array, ...], sides: Array) -> Any:
    def step(after: tuple[Array, ...], row: tuple[tuple[Array, ...], Array]) -> Any:
        (first, second, third), side = row
        x = (side - second * after[0] - third * after[1]) / first
        return (x, after[0]), x

    zero = np.zeros(sides.shape[1:], sides.dtype)
    return jax.lax.scan(step, (zero, zero), (pivots, sides), reverse=True)[1]


@TridiagonalSolve.gradient
def _(op: Operation, grad: Tensor) -> Any:
    diagonals, solution = op.inputs[0], op.outputs[0]
    above, main, below = (_column(conj(diagonals[..., i, :])) for i in range(3))
    columns = (_from_next(below), main, _from_previous(above))
    adjoint = raw.Pack([raw.Squeeze(column, squeeze_dims=[-1]) for column in columns], axis=-2)
    grad_rhs = TridiagonalSolve(adjoint, grad, partial_pivoting=op.attrs["partial_pivoting"])
    return raw.Neg(raw.Pack(_by_diagonals(grad_rhs, solution), axis=-2)), grad_rhs
