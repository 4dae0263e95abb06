"""Bands of matrices: several neighbouring diagonals at once, packed into the rows of a smaller matrix.

A band is given by `k` = [lowest, highest]: 0 is the main diagonal, positive numbers lie above it. Row m of the packed
form is diagonal highest - m; shorter diagonals are padded at the left or the right, as `align` says for those above and
those below the main diagonal. The second version of these operations pads at the right always.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arrays.layout import int_list, scalar_int

_ALIGN = "align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'"


@dataclass(frozen=True, slots=True)
class _Band:
    """The diagonals `low` to `high` of [rows, columns] matrices."""

    low: int
    high: int
    rows: int
    columns: int
    align: str

    @classmethod
    def of(cls, k: Array, rows: int, columns: int, align: bytes) -> _Band:
        """Raises ValueError for a band that the matrices do not have."""
        low, high = _bounds(k)
        if any(not -rows < bound < columns and bound for bound in (low, high)):  # an empty matrix has its main diagonal
            raise ValueError(f"diagonals {low} to {high} do not lie within matrices of shape [{rows}, {columns}]")
        return cls(low, high, rows, columns, align.decode())

    def length(self, diagonal: int) -> int:
        return min(self.rows + min(diagonal, 0), self.columns - max(diagonal, 0))

    @property
    def width(self) -> int:
        """The length of the longest diagonal."""
        return min(self.rows + min(self.high, 0), self.columns - max(self.low, 0))

    @property
    def packed_shape(self) -> list[int]:
        return [self.width] if self.low == self.high else [self.high - self.low + 1, self.width]

    def offsets(self, diagonals: Array) -> Any:
        """How far the first element of each diagonal stands from the left in its packed row."""
        above, below = self.align.split("_")
        left = ((diagonals >= 0) & (above == "LEFT")) | ((diagonals <= 0) & (below == "LEFT"))
        lengths = np.minimum(self.rows + np.minimum(diagonals, 0), self.columns - np.maximum(diagonals, 0))
        return np.where(left, 0, self.width - lengths)

    def packed_from(self) -> tuple[Any, Any, Any]:
        """Row and column in the matrix for each place of the packed form, and whether there is one."""
        diagonals = np.arange(self.high, self.low - 1, -1)[:, None]
        step = np.arange(self.width)[None, :] - self.offsets(diagonals)
        row, column = step + np.maximum(-diagonals, 0), step + np.maximum(diagonals, 0)
        inside = (step >= 0) & (row < self.rows) & (column < self.columns)
        return np.where(inside, row, 0), np.where(inside, column, 0), inside

    def matrix_from(self) -> tuple[Any, Any, Any]:
        """Row and place in the packed form for each element of the matrix, and whether there is one."""
        row, column = np.arange(self.rows)[:, None], np.arange(self.columns)[None, :]
        diagonal = column - row
        inside = (diagonal >= self.low) & (diagonal <= self.high)
        place = np.minimum(row, column) + self.offsets(np.where(inside, diagonal, self.high))
        return np.where(inside, self.high - diagonal, 0), np.where(inside, place, 0), inside


def _bounds(k: Array) -> tuple[int, int]:
    """The lowest and the highest diagonal; raises ValueError where `k` does not say them."""
    bounds = int_list(k) if np.ndim(k) <= 1 else []
    if len(bounds) not in (1, 2) or bounds[0] > bounds[-1]:
        raise ValueError(f"k must be one number or [lowest, highest], got {np.asarray(k).tolist()}")
    return bounds[0], bounds[-1]


def _packed(diagonal: Array, band: _Band, xp: ArrayLibrary) -> Any:
    """The packed form with one row per diagonal."""
    return xp.expand_dims(diagonal, -2) if band.low == band.high else diagonal


def _with_numbers(k: TensorShape) -> None:
    """Raises ValueError where `k` is known to be neither a number nor a vector."""
    if k.ndims is not None and k.ndims > 1:
        raise ValueError(f"Shape must be at most rank 1 but is rank {k.ndims}: k has shape {k}")


# ---------------------------------------------------------------------- reading a band
def _part_shape(input: TensorShape, k: Array, align: bytes) -> TensorShape:
    dims = input.with_rank_at_least(2).dims_tuple
    if dims is None or k is None or None in dims[-2:]:
        return TensorShape(None)
    rows, columns = (d or 0 for d in dims[-2:])
    return TensorShape([*dims[:-2], *_Band.of(k, rows, columns, align).packed_shape])


def _part(input: Array, k: Array, padding_value: Array, align: bytes, xp: ArrayLibrary) -> Any:
    band = _Band.of(k, np.shape(input)[-2], np.shape(input)[-1], align)
    row, column, inside = band.packed_from()
    diagonals = xp.where(inside, xp.asarray(input)[..., row, column], padding_value)
    return diagonals[..., 0, :] if band.low == band.high else diagonals


def _part_gradient(op: Operation, grad: Tensor) -> Any:
    align = op.attrs.get("align", b"LEFT_LEFT")
    return MatrixSetDiagV3(raw.ZerosLike(op.inputs[0]), grad, op.inputs[1], align=align), None, None


MatrixDiagPartV2 = define_op(
    "MatrixDiagPartV2",
    "input: T, k: int32, padding_value: T -> diagonal: T",
    "T: any",
    static=("k",),
    ranks={"padding_value": 0},
)
MatrixDiagPartV2.gradient(_part_gradient)


@MatrixDiagPartV2.shape
def _(input: TensorShape, k: TensorShape, padding_value: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    _with_numbers(k)
    return _part_shape(input, ctx.constant("k"), b"LEFT_LEFT")


@MatrixDiagPartV2.kernel
def _(input: Array, k: Array, padding_value: Array, *, xp: ArrayLibrary) -> Any:
    return _part(input, k, padding_value, b"LEFT_LEFT", xp)


MatrixDiagPartV3 = define_op(
    "MatrixDiagPartV3",
    "input: T, k: int32, padding_value: T -> diagonal: T",
    f"T: any, {_ALIGN}",
    static=("k",),
    ranks={"padding_value": 0},
)
MatrixDiagPartV3.gradient(_part_gradient)


@MatrixDiagPartV3.shape
def _(
    input: TensorShape, k: TensorShape, padding_value: TensorShape, *, align: bytes, ctx: ShapeContext
) -> TensorShape:
    _with_numbers(k)
    return _part_shape(input, ctx.constant("k"), align)


@MatrixDiagPartV3.kernel
def _(input: Array, k: Array, padding_value: Array, *, align: bytes, xp: ArrayLibrary) -> Any:
    return _part(input, k, padding_value, align, xp)


# ---------------------------------------------------------------------- matrices that have a band
def _sizes(width: int, low: int, high: int, num_rows: Array, num_cols: Array) -> tuple[int, int]:
    """Rows and columns of the matrices whose longest diagonal has `width` elements.

    -1 stands for as few as the diagonals need (both: square). The band must reach the last row or the last column.
    """
    rows, columns = scalar_int(num_rows), scalar_int(num_cols)
    least_rows, least_columns = width - min(high, 0), width + max(low, 0)
    if rows == columns == -1:
        return (max(least_rows, least_columns),) * 2
    rows, columns = least_rows if rows == -1 else rows, least_columns if columns == -1 else columns
    if rows < least_rows or columns < least_columns or (rows > least_rows and columns > least_columns):
        raise ValueError(
            f"diagonals {low} to {high}, the longest of {width} elements, belong to matrices of {least_rows} rows and "
            f"at least {least_columns} columns, or the other way round, not to [{rows}, {columns}]"
        )
    return rows, columns


def _diag_shape(diagonal: TensorShape, known: list[Any]) -> TensorShape:
    dims = diagonal.with_rank_at_least(1).dims_tuple
    if dims is None or known[0] is None:
        return TensorShape(None)
    low, high = _bounds(known[0])
    packed = [dims[-1]] if low == high else [high - low + 1, dims[-1]]
    batch = dims[: -len(packed)]
    shape_rules.merged(diagonal, TensorShape([*batch, *packed]))
    if known[1] is None or known[2] is None or dims[-1] is None:
        return TensorShape([*batch, None, None])
    return TensorShape([*batch, *_sizes(dims[-1], low, high, known[1], known[2])])


def _diag(diagonal: Array, sizes: list[Any], padding_value: Array, align: bytes, xp: ArrayLibrary) -> Any:
    _diag_shape(TensorShape(np.shape(diagonal)), sizes)
    rows, columns = _sizes(np.shape(diagonal)[-1], *_bounds(sizes[0]), sizes[1], sizes[2])
    band = _Band.of(sizes[0], rows, columns, align)
    row, place, inside = band.matrix_from()
    return xp.where(inside, xp.asarray(_packed(diagonal, band, xp))[..., row, place], padding_value)


def _diag_gradient(op: Operation, grad: Tensor) -> Any:
    zero = np.zeros((), grad.dtype.as_numpy_dtype)
    align = op.attrs.get("align", b"LEFT_LEFT")
    return MatrixDiagPartV3(grad, op.inputs[1], zero, align=align), None, None, None, None


_DIAG_INPUTS = "diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T -> output: T"
_DIAG_STATIC = ("k", "num_rows", "num_cols")

MatrixDiagV2 = define_op(
    "MatrixDiagV2",
    _DIAG_INPUTS,
    "T: any",
    static=_DIAG_STATIC,
    ranks={"num_rows": 0, "num_cols": 0, "padding_value": 0},
)
MatrixDiagV2.gradient(_diag_gradient)


@MatrixDiagV2.shape
def _(
    diagonal: TensorShape,
    k: TensorShape,
    num_rows: TensorShape,
    num_cols: TensorShape,
    padding_value: TensorShape,
    *,
    ctx: ShapeContext,
) -> TensorShape:
    _with_numbers(k)
    return _diag_shape(diagonal, [ctx.constant(name) for name in _DIAG_STATIC])


@MatrixDiagV2.kernel
def _(diagonal: Array, k: Array, num_rows: Array, num_cols: Array, padding_value: Array, *, xp: ArrayLibrary) -> Any:
    return _diag(diagonal, [k, num_rows, num_cols], padding_value, b"LEFT_LEFT", xp)


MatrixDiagV3 = define_op(
    "MatrixDiagV3",
    _DIAG_INPUTS,
    f"T: any, {_ALIGN}",
    static=_DIAG_STATIC,
    ranks={"num_rows": 0, "num_cols": 0, "padding_value": 0},
)
MatrixDiagV3.gradient(_diag_gradient)


@MatrixDiagV3.shape
def _(
    diagonal: TensorShape,
    k: TensorShape,
    num_rows: TensorShape,
    num_cols: TensorShape,
    padding_value: TensorShape,
    *,
    ctx: ShapeContext,
) -> TensorShape:
    _with_numbers(k)
    return _diag_shape(diagonal, [ctx.constant(name) for name in _DIAG_STATIC])


@MatrixDiagV3.kernel
def _(
    diagonal: Array, k: Array, num_rows: Array, num_cols: Array, padding_value: Array, *, align: bytes, xp: ArrayLibrary
) -> Any:
    return _diag(diagonal, [k, num_rows, num_cols], padding_value, align, xp)


# ---------------------------------------------------------------------- replacing a band
def _set_shape(input: TensorShape, diagonal: TensorShape, k: Array) -> TensorShape:
    """The input's shape; of `diagonal` the batch's, then that of the band's packed form."""
    dims = input.with_rank_at_least(2).dims_tuple
    if dims is None or k is None:
        return input
    rows, columns = dims[-2:]
    if rows is None or columns is None:
        low, high = _bounds(k)
        form: list[int | None] = [None] if low == high else [high - low + 1, None]
    else:
        form = [*_Band.of(k, rows, columns, b"LEFT_LEFT").packed_shape]
    whole = shape_rules.merged(diagonal, TensorShape([*dims[:-2], *form]))
    return whole[: len(dims) - 2].concatenate([rows, columns])


def _built_set_shape(input: TensorShape, diagonal: TensorShape, k: TensorShape, known: Array) -> TensorShape:
    """Ranks are refused when the operation is made, sizes when it runs."""
    _with_numbers(k)
    input, diagonal = input.with_rank_at_least(2), diagonal.with_rank_at_least(1)
    if input.ndims is not None and diagonal.ndims is not None:
        one, several = input.ndims - 1, input.ndims
        if known is not None:
            low, high = _bounds(known)
            one, several = (one, one) if low == high else (several, several)
        if not one <= diagonal.ndims <= several:
            raise ValueError(
                f"Shape must be of rank {one}, for one diagonal, or {several}, for several, but is rank "
                f"{diagonal.ndims}: diagonal has shape {diagonal}, input {input}"
            )
    return shape_rules.late(_set_shape, input, diagonal, known)


def _set_diag(input: Array, diagonal: Array, k: Array, align: bytes, xp: ArrayLibrary) -> Any:
    _set_shape(TensorShape(np.shape(input)), TensorShape(np.shape(diagonal)), k)
    band = _Band.of(k, np.shape(input)[-2], np.shape(input)[-1], align)
    row, place, inside = band.matrix_from()
    return xp.where(inside, xp.asarray(_packed(diagonal, band, xp))[..., row, place], input)


def _set_gradient(op: Operation, grad: Tensor) -> Any:
    _, diagonal, k = op.inputs
    align = op.attrs.get("align", b"LEFT_LEFT")
    kept = MatrixSetDiagV3(grad, raw.ZerosLike(diagonal), k, align=align)
    return kept, MatrixDiagPartV3(grad, k, np.zeros((), grad.dtype.as_numpy_dtype), align=align), None


MatrixSetDiagV2 = define_op("MatrixSetDiagV2", "input: T, diagonal: T, k: int32 -> output: T", "T: any", static=("k",))
MatrixSetDiagV2.gradient(_set_gradient)


@MatrixSetDiagV2.shape
def _(input: TensorShape, diagonal: TensorShape, k: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    return _built_set_shape(input, diagonal, k, ctx.constant("k"))


@MatrixSetDiagV2.kernel
def _(input: Array, diagonal: Array, k: Array, *, xp: ArrayLibrary) -> Any:
    return _set_diag(input, diagonal, k, b"LEFT_LEFT", xp)


MatrixSetDiagV3 = define_op(
    "MatrixSetDiagV3", "input: T, diagonal: T, k: int32 -> output: T", f"T: any, {_ALIGN}", static=("k",)
)
MatrixSetDiagV3.gradient(_set_gradient)


@MatrixSetDiagV3.shape
def _(input: TensorShape, diagonal: TensorShape, k: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    return _built_set_shape(input, diagonal, k, ctx.constant("k"))


@MatrixSetDiagV3.kernel
def _(input: Array, diagonal: Array, k: Array, *, align: bytes, xp: ArrayLibrary) -> Any:
    return _set_diag(input, diagonal, k, align, xp)
