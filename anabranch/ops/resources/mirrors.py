"""What keeps the mirror of a variable: values with numbers, of which the newest stay  (see `train.shard_mirrors`).

Values come from many workers and overtake each other. A value whose number is not above that of what is kept is
dropped, in one operation, so that nothing comes between the comparison and the assignment.
"""

from __future__ import annotations

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.kernel_contexts import StepTracingContext
from anabranch.ops.arrays.gather_scatter import check_indices
from anabranch.ops.resources.rows import guarded, library_of, write_rows
from anabranch.ops.resources.variables import handle_shape

_HANDLES = ("mirror", "numbers")

AssignNewer = define_op(
    "_AssignNewer",
    "mirror: resource, numbers: resource, value: dtype, number: int64 ->",
    "dtype: any",
    stateful=True,
    reads=_HANDLES,
    writes=_HANDLES,
    ranks={"number": 0},
    takes_numpy=True,
)
AssignNewer.not_differentiable()


@AssignNewer.shape
def _(
    mirror: TensorShape, numbers: TensorShape, value: TensorShape, number: TensorShape, *, ctx: ShapeContext
) -> tuple[()]:
    handle_shape(ctx.tensor("mirror")).assert_is_compatible_with(value)
    return ()


@AssignNewer.kernel
def _(mirror: ResourceHandle, numbers: ResourceHandle, value: Array, number: Array, *, ctx: OperationContext) -> None:
    kept, last = ctx.read(mirror), ctx.read(numbers)
    if np.shape(kept) != np.shape(value):
        raise ValueError(f"the mirror has shape {[*np.shape(kept)]}, the value {[*np.shape(value)]}")
    xp = library_of(kept, last, value, number)
    # numbers of rows go with the first dimension
    newer = xp.reshape(number > last, (*np.shape(last), *[1] * (np.ndim(kept) - np.ndim(last))))
    ctx.write(mirror, xp.where(newer, value, kept))
    ctx.write(numbers, xp.maximum(number, last))


ScatterNewer = define_op(
    "_ScatterNewer",
    "mirror: resource, numbers: resource, indices: Tindices, rows: dtype, number: int64 ->",
    "dtype: any, Tindices: index",
    stateful=True,
    reads=_HANDLES,
    writes=_HANDLES,
    ranks={"number": 0, "indices": 1},
    takes_numpy=True,
)
ScatterNewer.not_differentiable()


@ScatterNewer.shape
def _(
    mirror: TensorShape,
    numbers: TensorShape,
    indices: TensorShape,
    rows: TensorShape,
    number: TensorShape,
    *,
    ctx: ShapeContext,
) -> tuple[()]:
    table = handle_shape(ctx.tensor("mirror")).with_rank_at_least(1)
    if table.ndims is not None:
        indices.concatenate(table[1:]).assert_is_compatible_with(rows)
    return ()


@ScatterNewer.kernel
def _(
    mirror: ResourceHandle,
    numbers: ResourceHandle,
    indices: Array,
    rows: Array,
    number: Array,
    *,
    ctx: StepTracingContext,
) -> None:
    table, last = ctx.read(mirror), ctx.read(numbers)
    if np.shape(rows) != (*np.shape(indices), *np.shape(table)[1:]):
        raise ValueError(f"rows of shape {[*np.shape(rows)]} do not fit a mirror of shape {[*np.shape(table)]}")
    xp = library_of(table, last, indices, rows, number)
    table, last, size = xp.asarray(table), xp.asarray(last), np.shape(table)[0]
    check_indices(ctx, indices, size, xp)
    at = guarded(ctx, indices, size)
    before = xp.take(last, at, mode="clip")
    # it is the indices of what is not newer that are moved beyond the end: nothing computes on the table as a whole
    newer = xp.where(number > before, at, np.int64(size))
    write_rows(ctx, mirror, table, "set", newer, rows)
    write_rows(ctx, numbers, last, "max", newer, xp.broadcast_to(number, np.shape(newer)))
