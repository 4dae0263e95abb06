"""Linear algebra on matrices in NumPy's arrays, for the first calls of small graphs (docs/decisions/0046).

What is here has one answer, so that later calls, which are compiled, give the same but for rounding. Singular vectors
have several: they come from the very function of LAPACK that compiled programs call, which gives the same to the last
bit. Eigenvectors and QR, which have several as well, are always compiled.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
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
    letter = matrix.dtype.char.lower() if matrix.dtype.kind == "f" else {8: "c", 16: "z"}[matrix.dtype.itemsize]
    letter = {"f": "s"}.get(letter, letter)
    lapack, (rows, columns) = _lapack(), matrix.shape[-2:]
    kind = {"compute_uv": int(vectors), "full_matrices": int(full)}
    work, _ = getattr(lapack, f"{letter}gesdd_lwork")(rows, columns, **kind)
    compute = getattr(lapack, f"{letter}gesdd")
    found = []
    for each in matrix.reshape(-1, rows, columns):
        u, s, vh, failed = compute(each, lwork=int(work.real), **kind)
        of_one = [u, s, vh] if vectors else [s]
        found.append([np.full_like(part, np.nan) for part in of_one] if failed else of_one)
    batch = matrix.shape[:-2]
    return [np.stack(parts).reshape(*batch, *parts[0].shape) for parts in zip(*found, strict=True)]


@functools.cache
def _lapack() -> ModuleType:
    # when it is needed: scipy.linalg takes its time
    return importlib.import_module("scipy.linalg.lapack")
