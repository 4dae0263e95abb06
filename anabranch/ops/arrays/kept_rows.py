"""Rows that a mask keeps, and rows at places of which some are none: what passes make of several operations.

Both are for the host, where each operation of a small step costs more than its work (`passes.fused_rows`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.ops.arrays.gather_scatter import gathered_rows

#: `places`: where the mask is true, and of each of `rows` the rows there. `gathers`: the operations that they were.
KeptRows = define_op(
    "_KeptRows",
    "mask: bool, rows: T -> places: int64, kept: T",
    "T: list(type) >= 1, gathers: list(string)",
    ranks={"mask": 1},
)
KeptRows.not_differentiable()


@KeptRows.shape
def _(mask: TensorShape, rows: list[TensorShape]) -> Any:
    return TensorShape([None]), [TensorShape([None]).concatenate(shape[1:]) for shape in rows]


@KeptRows.host_kernel
def _(mask: Array, rows: list[Array], *, gathers: list[bytes], ctx: OperationContext) -> Any:
    keeps_all = bool(np.logical_and.reduce(mask))
    places = np.arange(len(mask)) if keeps_all else mask.nonzero()[0]
    kept = []
    for value, name in zip(rows, gathers, strict=True):
        if keeps_all and len(value) == len(mask):
            kept.append(value)
            continue
        if len(places) and places[-1] >= len(value) and 0 not in value.shape[1:]:
            raise InvalidArgumentError(
                None,
                ctx.op,
                f"operation {name.decode()!r} takes rows up to {places[-1]} of a tensor of shape {value.shape}; the "
                "mask must have as many elements as the tensor has rows",
            )
        kept.append(gathered_rows(value, places, ctx))
    return places, kept


RowsOrZeros = define_op(
    "_RowsOrZeros",
    "params: T, indices: Tindices -> output: T",
    "T: any, Tindices: {int32, int64}",
    sized_by={"params": "rest", "indices": "shape"},
)
RowsOrZeros.not_differentiable()


@RowsOrZeros.shape
def _(params: TensorShape, indices: TensorShape) -> TensorShape:
    return indices.concatenate(params.with_rank_at_least(1)[1:])


@RowsOrZeros.kernel
def _(params: Array, indices: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    """params[indices], and zeros where an index is negative."""
    if xp is np and isinstance(params, np.ndarray):
        if not indices.size or indices.min() >= 0:
            return gathered_rows(params, indices, ctx)
        rows = gathered_rows(params, np.maximum(indices, 0), ctx)
    else:
        rows = gathered_rows(params, xp.maximum(indices, 0), ctx, xp)
    valid = xp.reshape(indices >= 0, (*np.shape(indices), *[1] * (len(np.shape(params)) - 1)))
    return xp.where(valid, rows, np.zeros((), params.dtype))
