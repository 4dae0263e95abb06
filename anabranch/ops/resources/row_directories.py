"""Growing tables: which row of some variables belongs to which key (`state.row_directory`); see `train.growing_tables`.

The rows are in ordinary variables, so that look-ups and updates are compiled, and optimizers need not know. Here is
what runs on the host: to find rows, and to let the variables grow, all of one directory in one moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, boxed
from anabranch.core.attrs import FuncAttr
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.constants import ShapeContext
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arrays.gather_scatter import check_indices
from anabranch.ops.resources.shared_objects import Plan, object_behind, open_object
from anabranch.ops.resources.variables import handle_shape, variable_shape
from anabranch.state.row_directory import UNREAD_ROW, RowDirectory, split_keys

_KIND: Final = "row directory"
_FRESH: Final = "directory: resource, rows_of: resource"


def _fresh(ctx: StepHostContext, f: FuncAttr) -> Callable[[int], Any]:
    body = ctx.op.function(f.name)
    return lambda count: ctx.call(body, [np.int64(count)])[0]


def _constant(row: Array) -> Callable[[int], Any]:
    return lambda count: np.broadcast_to(row, (count, *row.shape))


def _everything(directory: RowDirectory, rows_of: ResourceHandle, fresh: Callable[[int], Any]) -> dict[Any, Any]:
    """What makes fresh rows of each variable of a directory."""
    return {rows_of: fresh, **{slot: _constant(row) for slot, row in list(directory.slots.items())}}


OpenRowDirectory = define_op(
    "_RowDirectory",
    "-> directory: resource",
    "admission: int >= 1, grace: float = 0.0, container: string = '', shared_name: string = ''",
    stateful=True,
)
OpenRowDirectory.shape(shape_rules.scalar)
OpenRowDirectory.not_differentiable()


@OpenRowDirectory.host_kernel
def _(*, admission: int, grace: float, container: bytes, shared_name: bytes, ctx: StepHostContext) -> ResourceHandle:
    def plan(handle: ResourceHandle) -> Plan:
        facts = {"admission": admission, "grace": grace}
        return facts, lambda: RowDirectory(handle.name, admission, grace)

    return open_object(ctx, _KIND, plan)


# ---------------------------------------------------------------------- looking up
SplitKeys = define_op(
    "_SplitKeys", "keys: int64 -> split: parts * int64, places: int64", "parts: int >= 1, buckets: int >= 1"
)
SplitKeys.not_differentiable()


@SplitKeys.shape
def _(keys: TensorShape, *, parts: int) -> list[TensorShape]:
    return [*[TensorShape([None])] * parts, keys]


@SplitKeys.host_kernel
def _(keys: Array, *, parts: int, buckets: int) -> Any:
    split, places = split_keys(keys, parts, buckets)
    return [*split, places]


FindRows = define_op(
    "_FindRows",
    f"{_FRESH}, keys: int64, now: float64 -> rows: int64, targets: int64, hold: variant",
    "counts: bool, f: func",
    stateful=True,
    defers_bodies=True,
    ranks={"now": 0},
)
FindRows.not_differentiable()


@FindRows.shape
def _(directory: TensorShape, rows_of: TensorShape, keys: TensorShape, now: TensorShape) -> list[TensorShape]:
    return [keys, keys, TensorShape([])]


@FindRows.host_kernel
def _(
    directory: ResourceHandle,
    rows_of: ResourceHandle,
    keys: Array,
    now: Array,
    *,
    counts: bool,
    f: FuncAttr,
    ctx: StepHostContext,
) -> Any:
    table: RowDirectory = object_behind(ctx, directory, _KIND)
    lookup = table.find(np.ravel(keys), float(now), counts)
    ctx.extend(table.capacity, _everything(table, rows_of, _fresh(ctx, f)))
    shape = np.shape(keys)
    return [lookup.rows.reshape(shape), lookup.targets.reshape(shape), boxed(lookup.hold)]


GatherFoundRows = define_op(
    "_GatherFoundRows",
    "resource: resource, rows: int64, targets: int64 -> output: dtype",
    "dtype: any",
    stateful=True,
    reads=("resource",),
)


@GatherFoundRows.shape
def _(resource: TensorShape, rows: TensorShape, targets: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    return rows.concatenate(handle_shape(ctx.tensor("resource")).with_rank_at_least(1)[1:])


@GatherFoundRows.kernel
def _(resource: ResourceHandle, rows: Array, targets: Array, *, ctx: OperationContext) -> Any:
    table = jnp.asarray(ctx.read(resource))
    check_indices(ctx, rows, table.shape[0], jnp)
    return jnp.take(table, rows, axis=0, mode="clip")


@GatherFoundRows.gradient
def _(op: Operation, grad: Tensor) -> Any:
    handle, _, targets = op.inputs
    shape = variable_shape(handle)
    row = raw.StridedSlice(shape, [1], [0], [1], end_mask=1)
    flat = raw.Reshape(targets, [-1])
    values = raw.Reshape(grad, raw.ConcatV2([raw.Shape(flat), row], 0))
    # what keys without a row read is a constant: it has no gradient
    known = raw.NotEqual(flat, np.int64(UNREAD_ROW))
    return IndexedSlices(raw.Select(known, values, raw.ZerosLike(values)), flat, shape), None, None


AttachSlot = define_op(
    "_AttachSlot",
    f"{_FRESH}, slot: resource, row: dtype ->",
    "dtype: any, f: func",
    stateful=True,
    defers_bodies=True,
)
AttachSlot.shape(shape_rules.no_outputs)
AttachSlot.not_differentiable()


@AttachSlot.host_kernel
def _(
    directory: ResourceHandle,
    rows_of: ResourceHandle,
    slot: ResourceHandle,
    row: Array,
    *,
    f: FuncAttr,
    ctx: StepHostContext,
) -> None:
    table: RowDirectory = object_behind(ctx, directory, _KIND)
    # first, so that it grows with the others from the moment in which it is as long as they are
    table.slots.setdefault(slot, row)
    ctx.extend(table.capacity, _everything(table, rows_of, _fresh(ctx, f)))


# ---------------------------------------------------------------------- keys that go
EvictRows = define_op(
    "_EvictRows",
    f"{_FRESH}, unseen_for: float64, now: float64 -> evicted: int64",
    "f: func",
    stateful=True,
    defers_bodies=True,
    ranks={"unseen_for": 0, "now": 0},
)
EvictRows.shape(shape_rules.scalar)
EvictRows.not_differentiable()


@EvictRows.host_kernel
def _(
    directory: ResourceHandle,
    rows_of: ResourceHandle,
    unseen_for: Array,
    now: Array,
    *,
    f: FuncAttr,
    ctx: StepHostContext,
) -> Any:
    table: RowDirectory = object_behind(ctx, directory, _KIND)
    evicted = table.evict(float(unseen_for), float(now))
    rows = table.bury(float(now))
    if rows:
        everything = _everything(table, rows_of, _fresh(ctx, f))
        ctx.extend(table.capacity, everything)
        ctx.replace_rows(np.array(rows, np.int64), everything)
        table.buried(rows)
    return np.int64(evicted)


CountRows = define_op("_CountRows", "directory: resource -> size: int64", stateful=True)
CountRows.shape(shape_rules.scalar)
CountRows.not_differentiable()


@CountRows.host_kernel
def _(directory: ResourceHandle, *, ctx: StepHostContext) -> Any:
    table: RowDirectory = object_behind(ctx, directory, _KIND)
    return np.int64(table.size())


# ---------------------------------------------------------------------- in checkpoints
ExportRows = define_op(
    "_ExportRows",
    "directory: resource -> keys: int64, seen: float64, rows: int64, counted: int64, hold: variant",
    "bucket: int >= 0, buckets: int >= 1",
    stateful=True,
)
ExportRows.not_differentiable()


@ExportRows.shape
def _(directory: TensorShape) -> list[TensorShape]:
    vector = TensorShape([None])
    return [vector, vector, vector, TensorShape([None, 2]), TensorShape([])]


@ExportRows.host_kernel
def _(directory: ResourceHandle, *, bucket: int, buckets: int, ctx: StepHostContext) -> Any:
    table: RowDirectory = object_behind(ctx, directory, _KIND)
    exported = table.export(bucket, buckets)
    return [exported.keys, exported.seen, exported.rows, exported.counted, boxed(exported.hold)]


ImportRows = define_op(
    "_ImportRows",
    "directory: resource, keys: int64, seen: float64, counted: int64 -> free: int64",
    stateful=True,
    ranks={"keys": 1, "seen": 1, "counted": 2},
)
ImportRows.shape(shape_rules.scalar)
ImportRows.not_differentiable()


@ImportRows.host_kernel
def _(directory: ResourceHandle, keys: Array, seen: Array, counted: Array, *, ctx: StepHostContext) -> Any:
    table: RowDirectory = object_behind(ctx, directory, _KIND)
    try:
        table.restore(keys, seen, counted)
    except ValueError as error:
        raise InvalidArgumentError(None, ctx.op, f"these are no keys of a growing table: {error}") from error
    return np.int64(table.rows_left)
