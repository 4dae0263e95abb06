"""Diagonals and bands of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules

_DIAG_TYPES = "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}"


# ---------------------------------------------------------------------- one diagonal of the whole tensor
Diag = define_op("Diag", "diagonal: T -> output: T", _DIAG_TYPES)


@Diag.shape
def _(diagonal: TensorShape) -> TensorShape:
    return diagonal.with_rank_at_least(1).concatenate(diagonal)


@Diag.kernel
def _(diagonal: Array, *, xp: ArrayLibrary) -> Any:
    size = int(np.prod(np.shape(diagonal), dtype=np.int64))
    shape = np.shape(diagonal) * 2
    return xp.reshape(xp.where(np.eye(size, dtype=np.bool_), xp.reshape(diagonal, (-1,)), _zero(diagonal)), shape)


@Diag.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return DiagPart(grad)


DiagPart = define_op("DiagPart", "input: T -> diagonal: T", _DIAG_TYPES)


@DiagPart.shape
def _(input: TensorShape) -> TensorShape:
    if input.ndims is None:
        return input
    if input.ndims % 2 or input.ndims == 0:
        raise ValueError(f"the rank must be even and positive, got shape {input}")
    half = input.ndims // 2
    return input[:half].merge_with(input[half:])


@DiagPart.kernel
def _(input: Array, *, xp: ArrayLibrary) -> Any:
    shape = np.shape(input)[: len(np.shape(input)) // 2]
    size = int(np.prod(shape, dtype=np.int64))
    return xp.reshape(xp.diagonal(xp.reshape(input, (size, size))), shape)


@DiagPart.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return Diag(grad)


def _zero(like: Array) -> Any:
    return np.zeros((), like.dtype)


# ---------------------------------------------------------------------- of each matrix of a batch
MatrixDiag = define_op("MatrixDiag", "diagonal: T -> output: T", "T: any")


@MatrixDiag.shape
def _(diagonal: TensorShape) -> TensorShape:
    return diagonal.with_rank_at_least(1).concatenate(diagonal[-1:] if diagonal.ndims else None)


@MatrixDiag.kernel
def _(diagonal: Array, *, xp: ArrayLibrary) -> Any:
    size = np.shape(diagonal)[-1]
    return xp.where(np.eye(size, dtype=np.bool_), xp.expand_dims(diagonal, -1), _zero(diagonal))


@MatrixDiag.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return MatrixDiagPart(grad)


MatrixDiagPart = define_op("MatrixDiagPart", "input: T -> diagonal: T", "T: any")


def _matrix_diagonal_shape(shape: TensorShape) -> TensorShape:
    """[..., m, n] -> [..., min(m, n)]"""
    dims = shape.with_rank_at_least(2).dims_tuple
    if dims is None:
        return shape
    rows, columns = dims[-2:]
    return TensorShape([*dims[:-2], None if rows is None or columns is None else min(rows, columns)])


@MatrixDiagPart.shape
def _(input: TensorShape) -> TensorShape:
    return _matrix_diagonal_shape(input)


@MatrixDiagPart.kernel
def _(input: Array, *, xp: ArrayLibrary) -> Any:
    return xp.diagonal(input, axis1=-2, axis2=-1)


@MatrixDiagPart.gradient
def _(op: Operation, grad: Tensor) -> Any:
    source = op.inputs[0]
    if source.shape[-2:].is_fully_defined() and source.shape[-2] == source.shape[-1]:
        return MatrixDiag(grad)
    return MatrixSetDiag(raw.ZerosLike(source), grad)


MatrixSetDiag = define_op("MatrixSetDiag", "input: T, diagonal: T -> output: T", "T: any")


@MatrixSetDiag.shape
def _(input: TensorShape, diagonal: TensorShape) -> TensorShape:
    wanted = _matrix_diagonal_shape(input)
    if None not in (wanted.ndims, diagonal.ndims):
        shape_rules.with_rank(diagonal, wanted.ndims or 0, "the diagonal")
        shape_rules.merged(wanted[-1:], diagonal[-1:])
    shape_rules.late(shape_rules.merged, wanted, diagonal)
    return input


@MatrixSetDiag.kernel
def _(input: Array, diagonal: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    *batch, rows, columns = np.shape(input)
    wanted = (*batch, min(rows, columns))
    ctx.check(np.shape(diagonal) == wanted, f"the diagonal must have shape {wanted}, got {np.shape(diagonal)}")
    wide = diagonal if rows >= columns else _widened(diagonal, columns, xp)
    return xp.where(np.eye(rows, columns, dtype=np.bool_), xp.expand_dims(wide, -2), input)


def _widened(diagonal: Array, columns: int, xp: ArrayLibrary) -> Any:
    missing = columns - np.shape(diagonal)[-1]
    return xp.pad(diagonal, [(0, 0)] * (len(np.shape(diagonal)) - 1) + [(0, missing)])


@MatrixSetDiag.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return MatrixSetDiag(grad, raw.ZerosLike(op.inputs[1])), MatrixDiagPart(grad)


MatrixBandPart = define_op(
    "MatrixBandPart",
    "input: T, num_lower: Tindex, num_upper: Tindex -> band: T",
    "T: any, Tindex: {int32, int64} = int64",
    late_ranks={"num_lower": 0, "num_upper": 0},
)


@MatrixBandPart.shape
def _(input: TensorShape, num_lower: TensorShape, num_upper: TensorShape) -> TensorShape:
    return input.with_rank_at_least(2)


@MatrixBandPart.kernel
def _(input: Array, num_lower: Array, num_upper: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    rows, columns = np.shape(input)[-2:]
    ctx.check(
        num_lower <= rows, f"num_lower must be negative or at most {rows}, the number of rows, got {{0}}", num_lower
    )
    ctx.check(
        num_upper <= columns,
        f"num_upper must be negative or at most {columns}, the number of columns, got {{0}}",
        num_upper,
    )
    below = np.arange(rows)[:, None] - np.arange(columns)[None, :]
    inside = ((num_lower < 0) | (below <= num_lower)) & ((num_upper < 0) | (-below <= num_upper))
    return xp.where(inside, input, _zero(input))


@MatrixBandPart.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return MatrixBandPart(grad, op.inputs[1], op.inputs[2]), None, None
