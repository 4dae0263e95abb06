"""Products and systems of equations with tridiagonal matrices."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.linear_operator import conjugate
from anabranch.frontend.arrays.layout import matrix_transpose
from anabranch.frontend.framework import name_scope
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.ops.arithmetic.tridiagonal import TridiagonalMatMul, TridiagonalSolve

_FORMATS = ("compact", "sequence", "matrix")


def tridiagonal_solve(
    diagonals: TensorLike | Sequence[TensorLike],
    rhs: TensorLike,
    diagonals_format: str = "compact",
    transpose_rhs: bool = False,
    conjugate_rhs: bool = False,
    name: str | None = None,
    partial_pivoting: bool = True,
) -> Tensor:
    """The solutions of tridiagonal systems of equations; the step fails where a matrix is not invertible.

    Args:
        diagonals: as 'compact', [..., 3, m]: the diagonal above the main one, whose last element is not read, the main
            one, and the one below, whose first element is not read. As 'sequence' the same three, [..., m] each; those
            beside the main one may leave out what is not read. As 'matrix', [..., m, m].
        rhs: [..., m], or [..., m, k]; float32, float64, complex64 or complex128, as the diagonals.
        diagonals_format: 'compact', 'sequence' or 'matrix'.
        transpose_rhs, conjugate_rhs: what is done to `rhs` first; a vector is not transposed.
        name: of the operation.
        partial_pivoting: whether rows are exchanged, for matrices where a pivot may be zero, or nearly so.

    Returns:
        A tensor of the shape and dtype of `rhs`.

    Raises:
        ValueError: the format is unknown, or the shapes do not go together.
    """
    with name_scope(name, "tridiagonal_solve"):
        compact = raw.Pack(_diagonals(diagonals, diagonals_format), axis=-2)
        right = convert_to_tensor(rhs, compact.dtype, name="rhs")
        right = conjugate(right) if conjugate_rhs else right
        rank = _ranks(compact, right)
        if rank == -1:
            column = raw.ExpandDims(right, -1)
            solution = TridiagonalSolve(compact, column, partial_pivoting=partial_pivoting)
            return raw.Squeeze(solution, squeeze_dims=[-1])  # type: ignore[no-any-return]
        right = matrix_transpose(right) if transpose_rhs else right
        return TridiagonalSolve(compact, right, partial_pivoting=partial_pivoting)  # type: ignore[no-any-return]


def tridiagonal_matmul(
    diagonals: TensorLike | Sequence[TensorLike],
    rhs: TensorLike,
    diagonals_format: str = "compact",
    name: str | None = None,
) -> Tensor:
    """The products of tridiagonal matrices with matrices.

    Args:
        diagonals: as `tridiagonal_solve` takes them.
        rhs: [..., m, k].
        diagonals_format: 'compact', 'sequence' or 'matrix'.
        name: of the operation.

    Returns:
        A tensor of the shape and dtype of `rhs`.

    Raises:
        ValueError: the format is unknown, or the shapes do not go together.
    """
    with name_scope(name, "tridiagonal_matmul"):
        rows = [raw.ExpandDims(diagonal, -2) for diagonal in _diagonals(diagonals, diagonals_format)]
        return TridiagonalMatMul(*rows, rhs)  # type: ignore[no-any-return]


def _ranks(compact: Tensor, rhs: Tensor) -> int:
    """How many dimensions `rhs` has more than the diagonals: -1 or 0, where both are known."""
    if None in (compact.shape.ndims, rhs.shape.ndims):
        return 0
    more = (rhs.shape.ndims or 0) - (compact.shape.ndims or 0)
    if more not in (-1, 0):
        raise ValueError(f"right-hand sides of shape {rhs.shape} do not go with diagonals of shape {compact.shape}")
    return more


def _diagonals(diagonals: TensorLike | Sequence[TensorLike], diagonals_format: str) -> list[Tensor]:
    """The diagonals above, on and below the main one, [..., m] each."""
    if diagonals_format not in _FORMATS:
        raise ValueError(f"Unrecognized diagonals_format: {diagonals_format}; it is one of {', '.join(_FORMATS)}")
    if diagonals_format == "sequence":
        return _padded(diagonals)
    given = convert_to_tensor(diagonals, name="diagonals")
    shape = given.shape.with_rank_at_least(2)
    if diagonals_format == "matrix":
        shape[-1].assert_is_compatible_with(shape[-2])
        given = raw.MatrixDiagPartV3(given, [-1, 1], raw.Cast(0, DstT=given.dtype), align="LEFT_RIGHT")
    elif not shape[-2].is_compatible_with(3):
        raise ValueError(f"Expected 3 diagonals, got {shape[-2]} in a tensor of shape {shape}")
    return [given[..., i, :] for i in range(3)]


def _padded(diagonals: TensorLike | Sequence[TensorLike]) -> list[Tensor]:
    if not isinstance(diagonals, list | tuple) or len(diagonals) != 3:
        raise ValueError(f"Expected diagonals to be a sequence of length 3, got {diagonals!r}")
    main = convert_to_tensor(diagonals[1], name="maindiag")
    above, below = (
        convert_to_tensor(diagonal, main.dtype, name=what)
        for diagonal, what in ((diagonals[0], "superdiag"), (diagonals[2], "subdiag"))
    )
    return [_with_unread(above, main, False), main, _with_unread(below, main, True)]


def _with_unread(diagonal: Tensor, main: Tensor, at_front: bool) -> Tensor:
    """The diagonal, lengthened to the length of the main one."""
    length, wanted = (t.shape.with_rank_at_least(1)[-1].value for t in (diagonal, main))
    if length is None or wanted is None or length == wanted:
        return diagonal
    if length != wanted - 1:
        raise ValueError(f"Expected a diagonal of length {wanted} or {wanted - 1}, got {length}")
    nothing = raw.ZerosLike(main[..., :1])
    return raw.ConcatV2([nothing, diagonal] if at_front else [diagonal, nothing], -1)  # type: ignore[no-any-return]
