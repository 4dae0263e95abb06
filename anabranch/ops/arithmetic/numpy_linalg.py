"""Linear algebra on matrices in NumPy's arrays, for the first calls of small graphs (docs/decisions/0046).

What is here has one answer, so that later calls, which are compiled, give the same but for rounding. Singular vectors,
eigenvectors and QR have several: they come from the very functions of LAPACK that compiled programs call, with as much
memory to work in, which gives the same to the last bit.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from anabranch.core.kernel_context import OperationContext

NumpyArray = np.ndarray[Any, Any]


def cholesky(ctx: OperationContext, matrix: NumpyArray, failure: str) -> NumpyArray:
    """The lower factor; of a matrix that has none, NaN if it holds numbers that are not finite, else an error."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        is_finite = np.isfinite(np.tril(matrix)).all(axis=(-2, -1))
        ctx.check(not is_finite.all(), failure)
    factor = np.empty_like(matrix)
    for place in np.ndindex(is_finite.shape):
        try:
            factor[place] = np.linalg.cholesky(matrix[place])
        except np.linalg.LinAlgError:
            ctx.check(not is_finite[place], failure)
            factor[place] = np.tril(np.full(matrix.shape[-2:], np.nan))
    return factor


def solution(ctx: OperationContext, matrix: NumpyArray, rhs: NumpyArray | None, failure: str) -> NumpyArray:
    """The x with matrix x = rhs, or the inverse where that is None; the step fails where a matrix is singular.

    As in compiled programs, NaN among what may be the first pivot counts as singular, and is let through elsewhere.
    """
    ctx.check(not np.isnan(matrix[..., :1]).any(), failure)
    try:
        return np.linalg.inv(matrix) if rhs is None else np.linalg.solve(matrix, rhs)
    except np.linalg.LinAlgError:
        ctx.check(False, failure)
        raise


def log_determinant(matrix: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
    """The sign (NaN where there is none) and the logarithm of the absolute value."""
    sign, logarithm = np.linalg.slogdet(matrix)
    return np.where(np.isnan(logarithm), logarithm, sign), logarithm


def triangular_solution(matrix: NumpyArray, rhs: NumpyArray, lower: bool) -> NumpyArray:
    """The x with matrix x = rhs, one row after the other; the other triangle is not read.

    Args:
        matrix: shape [..., n, n].
        rhs: shape [..., n, k], with the same batch.
    """
    size = matrix.shape[-1]
    x = np.empty(rhs.shape, rhs.dtype)
    for i in range(size) if lower else reversed(range(size)):
        known = slice(0, i) if lower else slice(i + 1, size)
        of_known = matrix[..., i : i + 1, known] @ x[..., known, :]
        x[..., i, :] = (rhs[..., i, :] - of_known[..., 0, :]) / matrix[..., i, i, None]
    return x


def singular_values(matrix: NumpyArray, vectors: bool, full: bool) -> list[NumpyArray]:
    """The singular values, and with `vectors` u and v^H before and behind them; NaN where LAPACK finds none.

    Args:
        matrix: shape [..., m, n], not empty, in float32, float64, complex64 or complex128.
        full: u and v^H are square.
    """
    letter, (rows, columns) = _letter(matrix), matrix.shape[-2:]
    kind = {"compute_uv": int(vectors), "full_matrices": int(full)}
    work, _ = _lapack(f"{letter}gesdd_lwork")(rows, columns, **kind)
    compute = _lapack(f"{letter}gesdd")
    found = []
    for each in matrix.reshape(-1, rows, columns):
        u, s, vh, failed = compute(each, lwork=int(work.real), **kind)
        of_one = [u, s, vh] if vectors else [s]
        found.append([np.full_like(part, np.nan) for part in of_one] if failed else of_one)
    return _stacked(found, matrix.shape[:-2])


def qr(matrix: NumpyArray, full: bool) -> list[NumpyArray]:
    """Orthonormal columns and the upper triangle, whose product a matrix is.

    Args:
        matrix: shape [..., m, n], in float32, float64, complex64 or complex128.
        full: the columns are a basis of the whole space: q has shape [..., m, m], and r that of the matrix.
    """
    letter, (rows, columns) = _letter(matrix), matrix.shape[-2:]
    inner = rows if full else min(rows, columns)
    if not matrix.size:
        batch = matrix.shape[:-2]
        identity = np.broadcast_to(np.eye(rows, inner, dtype=matrix.dtype), (*batch, rows, inner))
        return [identity, np.zeros((*batch, inner, columns), matrix.dtype)]
    factor = _lapack(f"{letter}geqrf")
    expand = _lapack(f"{letter}{'or' if matrix.dtype.kind == 'f' else 'un'}gqr")
    found = []
    for each in matrix.reshape(-1, rows, columns):
        reflections, scales, *_ = factor(each, lwork=_best_size(factor(each, lwork=-1)[2]))
        held = np.zeros((rows, inner), matrix.dtype, order="F")
        held[:, : min(inner, columns)] = reflections[:, : min(inner, columns)]
        q = expand(held, scales, lwork=_best_size(expand(held, scales, lwork=-1)[1]))[0]
        found.append([q, np.triu(reflections[:inner])])
    return _stacked(found, matrix.shape[:-2])


def eigenvectors(matrix: NumpyArray) -> list[NumpyArray]:
    """The eigenvalues, ascending, and eigenvectors of self-adjoint matrices; NaN where LAPACK finds none.

    Args:
        matrix: shape [..., n, n], in float32, float64, complex64 or complex128; the lower triangle is read.
    """
    size, batch = matrix.shape[-1], matrix.shape[:-2]
    if not matrix.size:
        return [np.zeros((*batch, size), matrix.real.dtype), np.zeros(matrix.shape, matrix.dtype)]
    compute = _lapack(f"{_letter(matrix)}{'sy' if matrix.dtype.kind == 'f' else 'he'}evd")
    found = []
    for each in matrix.reshape(-1, size, size):
        values, vectors, failed = compute(each, lower=1)
        found.append([np.full_like(part, np.nan) for part in (values, vectors)] if failed else [values, vectors])
    return _stacked(found, batch)


def _letter(matrix: NumpyArray) -> str:
    """What LAPACK's functions for a type begin with."""
    return {"f": "s", "d": "d", "F": "c", "D": "z"}[matrix.dtype.char]


def _best_size(answer: NumpyArray) -> int:
    """How much memory a function asks for that was called to tell that."""
    return int(answer[0].real)


def _stacked(found: list[list[NumpyArray]], batch: tuple[int, ...]) -> list[NumpyArray]:
    return [np.stack(parts).reshape(*batch, *parts[0].shape) for parts in zip(*found, strict=True)]


@functools.cache
def _lapack(function: str) -> Callable[..., Any]:
    # when it is needed: scipy.linalg takes its time
    found: Callable[..., Any] = getattr(importlib.import_module("scipy.linalg.lapack"), function)
    return found
