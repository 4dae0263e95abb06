"""Singular values and vectors of the matrices in the last two dimensions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arithmetic.linalg import (
    add_all,
    adjoint,
    last,
    least_of,
    matrices,
    product,
    row,
    safe_reciprocal,
    transposed,
    widened,
)
from anabranch.ops.arithmetic.numpy_linalg import singular_values

_TYPES = "{double, float, half, complex64, complex128}"

Svd = define_op(
    "Svd", "input: T -> s: T, u: T, v: T", f"compute_uv: bool = True, full_matrices: bool = False, T: {_TYPES}"
)


@Svd.shape
def _(input: TensorShape, *, compute_uv: bool, full_matrices: bool) -> list[TensorShape]:
    shape = matrices(input)
    empty = TensorShape([0])
    if shape.ndims is None:
        return [shape_rules.UNKNOWN] * 3 if compute_uv else [shape_rules.UNKNOWN, empty, empty]
    batch, rows, columns = shape[:-2], shape[-2].value, shape[-1].value
    least = least_of(rows, columns)
    s = batch.concatenate([least])
    if not compute_uv:
        return [s, empty, empty]
    left, right = (rows, columns) if full_matrices else (least, least)
    return [s, batch.concatenate([rows, left]), batch.concatenate([columns, right])]


@Svd.kernel
def _(input: Array, *, compute_uv: bool, full_matrices: bool, xp: ArrayLibrary) -> Any:
    """The decomposition input = u diag(s) v^H, s descending."""
    wide = widened(input)
    if xp is np and input.size:
        parts: Any = singular_values(wide, compute_uv, full_matrices)
    elif compute_uv:
        parts = jnp.linalg.svd(wide, full_matrices=full_matrices)
    else:
        parts = [jnp.linalg.svd(wide, compute_uv=False)]
    if not compute_uv:
        empty = xp.zeros((0,), input.dtype)
        return parts[0].astype(input.dtype), empty, empty
    u, s, vh = parts
    return s.astype(input.dtype), u.astype(input.dtype), transposed(vh, xp if input.size else jnp).astype(input.dtype)


@Svd.gradient
def _(op: Operation, grad_s: Tensor | None, grad_u: Tensor | None, grad_v: Tensor | None) -> Any:
    """Where u or v matter, the singular values must differ and be positive."""
    a = op.inputs[0]
    if not op.attrs["compute_uv"]:
        if grad_s is None:
            return None
        _, u, v = Svd(a, compute_uv=True)
        return product(raw.Mul(u, row(grad_s)), v, adj_b=True)
    s, u, v = op.outputs
    u_beside = v_beside = None
    if op.attrs["full_matrices"]:
        rows, columns = _sizes_beside(op)
        if rows > columns:
            u, grad_u, *u_beside = _without_last(u, grad_u)
        elif columns > rows:
            v, grad_v, *v_beside = _without_last(v, grad_v)
    middle = None if grad_s is None else raw.MatrixDiag(grad_s)
    outside = []
    # s_j^2 - s_i^2; a difference of squares that are rounded apart (in fused operations) would not vanish for i = j
    gaps = safe_reciprocal(raw.Mul(raw.Sub(row(s), last(s)), raw.AddV2(row(s), last(s))))
    if grad_u is not None:
        turn = raw.Mul(gaps, _skew(product(u, grad_u, adj_a=True)))
        middle = add_all(middle, raw.Mul(turn, row(s)))
        beyond = _beyond(u, grad_u, u_beside)
        outside.append(product(raw.Mul(beyond, row(safe_reciprocal(s))), v, adj_b=True))
    if grad_v is not None:
        turn = raw.Mul(gaps, _skew(product(v, grad_v, adj_a=True)))
        middle = add_all(middle, raw.Mul(turn, last(s)))
        beyond = _beyond(v, grad_v, v_beside)
        outside.append(product(raw.Mul(u, row(safe_reciprocal(s))), beyond, adj_b=True))
    inside = None if middle is None else product(product(u, middle), v, adj_b=True)
    return add_all(inside, *outside)


def _skew(x: Tensor) -> Tensor:
    return raw.Sub(x, adjoint(x))  # type: ignore[no-any-return]


def _sizes_beside(op: Operation) -> tuple[int, int]:
    """Rows and columns of matrices whose gradient exists: at most one vector beside those of the singular values.

    It is orthogonal to all of them, which leaves its sign alone open; two or more may turn in their plane.
    """
    shape = op.inputs[0].shape
    rows, columns = (None, None) if shape.ndims is None else (shape[-2].value, shape[-1].value)
    if rows is None or columns is None or abs(rows - columns) > 1:
        raise NotImplementedError(
            f"the gradient of {op.name} with full_matrices=True needs matrices of as many rows as columns, or one "
            f"more or less; the input has shape {shape}; use full_matrices=False"
        )
    return rows, columns


def _without_last(vectors: Tensor, grad: Tensor | None) -> list[Any]:
    """The vectors without the last one, their gradient, the last one, and its gradient."""
    sizes = [int(vectors.shape[-1]) - 1, 1]
    inside, beside = raw.SplitV(vectors, sizes, -1, num_split=2)
    grads = [None, None] if grad is None else raw.SplitV(grad, sizes, -1, num_split=2)
    return [inside, grads[0], beside, grads[1]]


def _beyond(vectors: Tensor, grad: Tensor, beside: list[Any] | None) -> Tensor:
    """The gradient of the vectors outside of what they span.

    The vector beside them stays orthogonal: it turns towards them as far as they turn towards it.
    """
    outside = raw.Sub(grad, product(vectors, product(vectors, grad, adj_a=True)))
    if beside is not None:
        vector, vector_grad = beside
        outside = raw.Sub(outside, product(vector, product(vector_grad, vectors, adj_a=True)))
    return outside  # type: ignore[no-any-return]
