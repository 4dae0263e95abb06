"""Reading and changing rows and elements of a tensor by index.

An index out of range is an error, as on TensorFlow's CPU, not clamped or dropped as XLA would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary, HostArray
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import LateShapeError, TensorShape
from anabranch.core.values import TensorLike
from anabranch.graph.building import define_op
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.constants import ShapeContext, constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.step_nodes import StepNode
from anabranch.ops import raw
from anabranch.ops.arrays.filling import zero_of
from anabranch.ops.arrays.layout import int_list, normal_axis, scalar_int

#: so many numbers are compared one by one in the time in which NumPy begins to look for the largest
_FEW: Final = 64


def check_indices(ctx: OperationContext, indices: Array, size: int, xp: ArrayLibrary, what: str = "indices") -> None:
    """Makes the step fail unless all `indices` are in [0, size); the message shows the first that is not."""
    if isinstance(indices, np.ndarray):  # known indices are checked here and now
        xp, flat = np, indices.reshape(-1)
        if not flat.size or (flat.dtype.kind in "iu" and are_below(flat, size)):
            return
    elif np.size(indices) == 0:
        return
    else:
        flat = xp.reshape(indices, (-1,))
    valid = (flat >= 0) & (flat < size)
    at = xp.argmin(valid)
    dims = np.shape(indices)
    place = ",".join(f"{{{i + 1}}}" for i in range(len(dims)))
    where = f"{what}[{place}]" if dims else what
    message = f"{where} = {{0}} is not in [0, {size}); keep indices in range, as tf.clip_by_value does"
    ctx.check(valid, message, xp.take(flat, at), *xp.unravel_index(at, dims))


def are_below(integers: HostArray, size: int) -> bool:
    """Whether integers, of which there are some, are in [0, size)."""
    if len(integers) <= _FEW:
        few: list[int] = integers.tolist()
        return min(few) >= 0 and max(few) < size
    # as unsigned numbers, of which negative ones are the largest
    return int(integers.view(f"u{integers.dtype.itemsize}").max()) < size


def hold_elements(shape: Sequence[int], axis: int) -> bool:
    """Whether the slices along an axis hold elements; TensorFlow reads none of others, wherever indices point."""
    return 0 not in (*shape[:axis], *shape[axis + 1 :])


# ---------------------------------------------------------------------- rows along an axis
def _gather_shape(
    params: TensorShape, indices: TensorShape, axis: HostArray | int | None, batch_dims: int
) -> TensorShape:
    if params.dims_tuple is None or indices.dims_tuple is None:
        if params.dims_tuple is not None and axis is not None:
            normal_axis(scalar_int(axis), len(params.dims_tuple))
        return TensorShape(None)
    if axis is None:
        return TensorShape([None] * (len(params.dims_tuple) - 1 + len(indices.dims_tuple) - max(batch_dims, 0)))
    rows, picked = params.dims_tuple, indices.dims_tuple
    batch = normal_axis(batch_dims, len(picked) + 1, "batch_dims")
    at = normal_axis(scalar_int(axis), len(rows))
    if at < batch:
        raise ValueError(f"batch_dims = {batch} must be less than or equal to axis = {at}")
    TensorShape(rows[:batch]).assert_is_compatible_with(picked[:batch])
    return TensorShape([*rows[:at], *picked[batch:], *rows[at + 1 :]])


def _gather(params: Array, indices: Array, axis: int, batch_dims: int, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    if (
        xp is np
        and batch_dims == 0 == axis
        and type(params) is np.ndarray
        and type(indices) is np.ndarray
        and params.ndim
    ):
        return _host_rows(params, indices, ctx)
    rank, rank_indices = len(np.shape(params)), len(np.shape(indices))
    at, batch = normal_axis(axis, rank), normal_axis(batch_dims, rank_indices + 1, "batch_dims")
    shape = np.shape(params)
    if not hold_elements(shape, at):
        return xp.zeros((*shape[:at], *np.shape(indices)[batch:], *shape[at + 1 :]), params.dtype)
    check_indices(ctx, indices, shape[at], xp)
    if batch == 0:
        return xp.take(params, indices, axis=at, mode="clip")
    rows = xp.moveaxis(xp.asarray(params), at, batch)
    leading = [
        np.arange(n).reshape([-1] + [1] * (rank_indices - i - 1)) for i, n in enumerate(np.shape(indices)[:batch])
    ]
    gathered = rows[(*leading, indices)]
    # [batch, picked, between, after] -> [batch, between, picked, after]
    order = [*range(batch), *range(rank_indices, rank_indices + at - batch), *range(batch, rank_indices)]
    return xp.transpose(gathered, [*order, *range(len(order), len(np.shape(gathered)))])


def _host_rows(params: HostArray, indices: HostArray, ctx: OperationContext) -> HostArray:
    """The rows of an array of the host at these indices."""
    if not hold_elements(params.shape, 0):
        return np.zeros(indices.shape + params.shape[1:], params.dtype)
    check_indices(ctx, indices, len(params), np)
    if params.ndim == 2 and indices.ndim == 1 and params.flags.fnc:
        # a sparse tensor's coordinates often lie so: NumPy would lay out all rows anew before it takes some
        return params.T.take(indices, axis=1, mode="clip").T
    return params.take(indices, axis=0, mode="clip")


def gathered_rows(params: Array, indices: Array, ctx: OperationContext, xp: ArrayLibrary = np) -> Any:
    """The rows of an array at indices, which are checked."""
    return _gather(params, indices, 0, 0, ctx, xp)


def _rows_gradient(params: Tensor, indices: Tensor, grad: Tensor) -> IndexedSlices:
    """The gradient for the rows of `params`: sparse, so that its cost does not depend on their number."""
    shape = raw.Shape(params)
    if are_rows(grad, indices, params.shape):
        return IndexedSlices(convert_to_tensor(grad), indices, shape)
    row = raw.StridedSlice(shape, [1], [0], [1], end_mask=1)
    values = raw.Reshape(grad, raw.ConcatV2([raw.Reshape(raw.Size(indices), [1]), row], 0))
    return IndexedSlices(values, raw.Reshape(indices, [-1]), shape)


def are_rows(grad: Tensor, indices: Tensor, table: TensorShape) -> bool:
    """Whether the gradient of rows that were gathered is one row for each of a vector of indices, as it stands.

    To make it so takes five operations, which are most of what a look-up whose number of rows changes has to do.
    """
    row = table[1:]
    if indices.shape.ndims != 1 or not row.is_fully_defined() or grad.shape.ndims != (row.ndims or 0) + 1:
        return False
    return grad.shape[1:].dims_tuple == row.dims_tuple and grad.shape[:1].is_compatible_with(indices.shape)


def _axis_gradient(params: Tensor, indices: Tensor, axis: Tensor, batch_dims: int, grad: Tensor) -> Tensor:
    """The dense gradient for a gather along another axis than the first, or with batch dimensions; of any rank."""
    shape, picked = raw.Shape(params), raw.Shape(indices)
    at = raw.FloorMod(raw.Cast(axis, DstT="int32"), raw.Rank(params))
    own = np.int32(np.clip(batch_dims, -(2**31), 2**31 - 1))  # beyond that the gather itself is refused
    batch = own if batch_dims >= 0 else raw.AddV2(own, raw.Rank(indices))
    groups, between, after = _count(shape, 0, batch), _count(shape, batch, at), _count(shape, raw.AddV2(at, 1), None)
    size, picks = raw.GatherV2(shape, at, 0), _count(picked, batch, None)
    # [batch, between, picked, after] -> [batch, picked, between, after]
    values = raw.Transpose(raw.Reshape(grad, raw.Pack([groups, between, picks, after])), [0, 2, 1, 3])
    rows = raw.Reshape(raw.Cast(indices, DstT="int32"), raw.Pack([groups, picks]))
    rows = raw.AddV2(rows, raw.ExpandDims(raw.Mul(raw.Range(0, groups, 1), size), 1))
    summed = raw.UnsortedSegmentSum(
        raw.Reshape(values, raw.Pack([raw.Mul(groups, picks), between, after])),
        raw.Reshape(rows, [-1]),
        raw.Mul(groups, size),
    )
    whole = raw.Transpose(raw.Reshape(summed, raw.Pack([groups, size, between, after])), [0, 2, 1, 3])
    return raw.Reshape(whole, shape)  # type: ignore[no-any-return]


def _count(shape: Tensor, start: TensorLike, end: TensorLike) -> Tensor:
    """How many elements the dimensions from `start` to `end` have; None: to the last."""
    bounds = [raw.Reshape(bound, [1]) for bound in (start, 0 if end is None else end)]
    part = raw.StridedSlice(shape, *bounds, [1], end_mask=int(end is None))
    return raw.Prod(part, [0])  # type: ignore[no-any-return]


Gather = define_op(
    "Gather",
    "params: Tparams, indices: Tindices -> output: Tparams",
    "validate_indices: bool = True, Tparams: any, Tindices: {int32, int64}",
)


@Gather.shape
def _(params: TensorShape, indices: TensorShape) -> TensorShape:
    return _gather_shape(params.with_rank_at_least(1), indices, 0, 0)


@Gather.kernel
def _(params: Array, indices: Array, *, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    return _gather(params, indices, 0, 0, ctx, xp)


@Gather.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return _rows_gradient(op.inputs[0], op.inputs[1], grad), None


GatherV2 = define_op(
    "GatherV2",
    "params: Tparams, indices: Tindices, axis: Taxis -> output: Tparams",
    "batch_dims: int = 0, Tparams: any, Tindices: {int16, int32, int64}, Taxis: {int32, int64}",
    static=("axis",),
    ranks={"axis": 0},
)


@GatherV2.shape
def _(
    params: TensorShape, indices: TensorShape, axis: TensorShape, *, batch_dims: int, ctx: ShapeContext
) -> TensorShape:
    return _gather_shape(params.with_rank_at_least(1), indices, ctx.constant("axis"), batch_dims)


@GatherV2.sized_when
def _(op: StepNode) -> dict[str, str]:
    """As many rows as there are indices, where rows are gathered."""
    axis = op.inputs[2].known if op.inputs[2].is_known else None
    is_of_rows = isinstance(axis, np.ndarray) and axis.size == 1 and int(axis.item()) == 0
    return {"params": "rest", "indices": "shape"} if is_of_rows and op.attrs["batch_dims"] == 0 else {}


@GatherV2.kernel
def _(params: Array, indices: Array, axis: Array, *, batch_dims: int, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    return _gather(params, indices, scalar_int(axis), batch_dims, ctx, xp)


@GatherV2.gradient
def _(op: Operation, grad: Tensor) -> Any:
    params, indices, axis = op.inputs
    known, batch_dims = constant_value(axis), op.attrs["batch_dims"]
    if known is not None and batch_dims == 0 and scalar_int(known) in (0, -(params.shape.ndims or 0)):
        return _rows_gradient(params, indices, grad), None, None
    return _axis_gradient(params, indices, axis, batch_dims, grad), None, None


# ---------------------------------------------------------------------- elements by full or partial index
_POLICY = "bad_indices_policy: string = ''"
_IGNORE = b"IGNORE"


def _check_nd(
    ctx: OperationContext, indices: Array, dims: tuple[int, ...], what: str, policy: bytes, xp: ArrayLibrary
) -> Any:
    """Checks index vectors against the leading `dims`; with the policy IGNORE says instead which are valid."""
    depth = np.shape(indices)[-1]
    flat = xp.reshape(indices, (int(np.prod(np.shape(indices)[:-1], dtype=np.int64)), depth))
    valid = xp.all((flat >= 0) & (flat < np.array(dims[:depth], np.int64)), axis=-1)
    if policy != _IGNORE and np.shape(flat)[0]:
        at, places = xp.argmin(valid), np.shape(indices)[:-1]
        position = ",".join(f"{{{i}}}" for i in range(1, len(places) + 1))
        shape = f"[{','.join(map(str, dims))}]"
        message = f"indices[{position}] = {{0}} does not index into {what} {shape}"
        if what == "param shape" and 0 in dims:
            message = f"Requested more than 0 entries, but params is empty.  Params shape: {shape}"
        ctx.check(valid, message, xp.take(flat, at, axis=0), *(xp.unravel_index(at, places) if places else ()))
    return xp.reshape(valid, np.shape(indices)[:-1])


def _columns(indices: Array) -> tuple[Any, ...]:
    return tuple(indices[..., i] for i in range(np.shape(indices)[-1]))


GatherNd = define_op(
    "GatherNd",
    "params: Tparams, indices: Tindices -> output: Tparams",
    f"Tparams: any, Tindices: {{int16, int32, int64}}, {_POLICY}",
)


@GatherNd.shape
def _(params: TensorShape, indices: TensorShape) -> TensorShape:
    rows, picked = params.dims_tuple, indices.with_rank_at_least(1).dims_tuple
    if rows is None or picked is None or picked[-1] is None:
        return TensorShape(None)
    if picked[-1] > len(rows):
        raise ValueError(f"index vectors of {picked[-1]} elements are too long for params of rank {len(rows)}")
    return TensorShape([*picked[:-1], *rows[picked[-1] :]])


@GatherNd.kernel
def _(params: Array, indices: Array, *, bad_indices_policy: bytes, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    dims, depth = np.shape(params), np.shape(indices)[-1]
    ctx.check(depth <= len(dims), f"index vectors of {depth} elements are too long for params of rank {len(dims)}")
    valid = _check_nd(ctx, indices, dims, "param shape", bad_indices_policy, xp)
    if depth == 0:
        return xp.broadcast_to(params, (*np.shape(indices)[:-1], *dims))
    if bad_indices_policy != _IGNORE:
        return xp.asarray(params)[_columns(indices)]
    inside = xp.where(xp.expand_dims(valid, -1), indices, 0)
    gathered = xp.asarray(params)[_columns(inside)]
    return xp.where(xp.reshape(valid, (*np.shape(valid), *[1] * (len(dims) - depth))), gathered, zero_of(params.dtype))


@GatherNd.gradient
def _(op: Operation, grad: Tensor) -> Any:
    params, indices = op.inputs
    policy = op.attrs["bad_indices_policy"]
    if indices.shape.ndims == 2 and indices.shape[1].value == 1 and policy != _IGNORE:
        return IndexedSlices(grad, raw.Squeeze(indices, squeeze_dims=[-1]), raw.Shape(params)), None
    wide = raw.Cast(indices, DstT="int32") if indices.dtype.name == "int16" else indices
    return ScatterNd(wide, grad, raw.Shape(params, out_type=wide.dtype), bad_indices_policy=policy), None


# ---------------------------------------------------------------------- changing elements
def _scatter(
    target: Array, indices: Array, updates: Array, how: str, policy: bytes, ctx: OperationContext, xp: ArrayLibrary
) -> Any:
    """`target` with `updates` put ("set") or accumulated ("add", "sub") at the index vectors `indices`."""
    dims = np.shape(target)
    check_updates(TensorShape(dims), TensorShape(np.shape(indices)), TensorShape(np.shape(updates)))
    valid = _check_nd(ctx, indices, dims, "shape", policy, xp)
    if policy == _IGNORE:
        indices = xp.where(xp.expand_dims(valid, -1), indices, np.array(dims[: np.shape(indices)[-1]], np.int64))
    if np.shape(indices)[-1] == 0:
        whole = (xp.zeros(np.shape(indices)[:-1], np.int64),)
        return _apply(xp.asarray(target)[None], whole, updates, how, xp)[0]
    return _apply(target, _columns(indices), updates, how, xp)


def _apply(target: Array, at: tuple[Any, ...], updates: Array, how: str, xp: ArrayLibrary) -> Any:
    if xp is not np:
        reference = xp.asarray(target).at[at]
        updates = -updates if how == "sub" else updates
        # the sum of truth values is whether any of them holds
        add = reference.max if updates.dtype == bool else reference.add
        return (reference.set if how == "set" else add)(updates, mode="drop")
    inside = np.logical_and.reduce([i < n for i, n in zip(at, np.shape(target), strict=False)])
    rows = tuple(i[inside] for i in at)
    result = np.array(target)
    if how == "set":
        result[rows] = updates[inside]
    else:
        (np.add if how == "add" else np.subtract).at(result, rows, updates[inside])
    return result


def check_updates(target: TensorShape, indices: TensorShape, updates: TensorShape) -> None:
    """Raises ValueError unless updates.shape = indices.shape[:-1] + target.shape[depth of the index vectors:].

    A target without elements takes no index vectors. Updates have one dimension at least. Where TensorFlow lets it pass
    until the operation runs, the error is a LateShapeError.
    """
    picked, rows = indices.with_rank_at_least(1).dims_tuple, target.dims_tuple
    if rows is not None and 0 in rows and (indices.num_elements() or updates.num_elements()):
        raise ValueError(f"Indices and updates specified for empty output shape {target}: indices of shape {indices}")
    if updates.ndims == 0:
        raise LateShapeError("updates must have at least one dimension, got shape ()")
    if picked is None or picked[-1] is None:
        return
    if rows is None:
        # where they fit says nothing of the rest
        outer = len(picked) - 1
        if not updates[:outer].is_compatible_with(indices[:outer]):
            raise ValueError(
                f"The outer {outer} dimensions of indices.shape={indices} must match the outer {outer} dimensions of "
                f"updates.shape={updates}"
            )
        return
    if picked[-1] > len(rows):
        raise LateShapeError(f"index vectors of {picked[-1]} elements are too long for a tensor of rank {len(rows)}")
    wanted = TensorShape([*picked[:-1], *rows[picked[-1] :]])
    if not updates.is_compatible_with(wanted):
        outer, inner = len(picked) - 1, len(rows) - picked[-1]
        rule = (
            f"The inner {inner} dimensions of input.shape={target} must match the inner {inner} dimensions"
            if updates[:outer].is_compatible_with(indices[:outer])
            else f"The outer {outer} dimensions of indices.shape={indices} must match the outer {outer} dimensions"
        )
        raise ValueError(f"{rule} of updates.shape={updates}; updates must have shape {wanted}")


ScatterNd = define_op(
    "ScatterNd",
    "indices: Tindices, updates: T, shape: Tindices -> output: T",
    f"T: any, Tindices: {{int16, int32, int64}}, {_POLICY}",
    static=("shape",),
    ranks={"shape": 1},
    sized_by={"shape": "values"},
)


@ScatterNd.shape
def _(indices: TensorShape, updates: TensorShape, shape: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    target: TensorShape = ctx.constant_as_shape("shape")
    check_updates(target, indices, updates.with_rank_at_least(1))
    return target


@ScatterNd.kernel
def _(
    indices: Array, updates: Array, shape: Array, *, bad_indices_policy: bytes, ctx: OperationContext, xp: ArrayLibrary
) -> Any:
    target = xp.full(int_list(shape), zero_of(updates.dtype), dtype=updates.dtype)
    return _scatter(target, indices, updates, "add", bad_indices_policy, ctx, xp)


def _gathered(op: Operation, grad: Tensor, indices: Tensor) -> Any:
    """What flows back to the updates of an operation; nothing to those that it ignores."""
    wide = raw.Cast(indices, DstT="int32") if indices.dtype.name == "uint16" else indices
    return GatherNd(grad, wide, bad_indices_policy=op.attrs["bad_indices_policy"])


@ScatterNd.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return None, _gathered(op, grad, op.inputs[0]), None


def _scatter_into(
    name: str,
    how: str,
    gradient: Callable[[Operation, Any], Any],
    source: str = "tensor",
    indices: str = "int32, int64",
) -> Any:
    op = define_op(
        name,
        f"{source}: T, indices: Tindices, updates: T -> output: T",
        f"T: any, Tindices: {{{indices}}}, {_POLICY}",
    )

    @op.shape
    def _(target: TensorShape, indices: TensorShape, updates: TensorShape) -> TensorShape:
        check_updates(target, indices, updates)
        return target

    @op.kernel
    def _(
        target: Array,
        indices: Array,
        updates: Array,
        *,
        bad_indices_policy: bytes,
        ctx: OperationContext,
        xp: ArrayLibrary,
    ) -> Any:
        return _scatter(target, indices, updates, how, bad_indices_policy, ctx, xp)

    op.gradient(gradient)
    return op


def _update_gradient(op: Operation, grad: Tensor) -> Any:
    policy = op.attrs["bad_indices_policy"]
    kept = TensorScatterUpdate(grad, op.inputs[1], raw.ZerosLike(op.inputs[2]), bad_indices_policy=policy)
    return kept, None, _gathered(op, grad, op.inputs[1])


def _add_gradient(op: Operation, grad: Tensor) -> Any:
    return grad, None, _gathered(op, grad, op.inputs[1])


def _sub_gradient(op: Operation, grad: Tensor) -> Any:
    return grad, None, raw.Neg(_gathered(op, grad, op.inputs[1]))


TensorScatterUpdate = _scatter_into(
    "TensorScatterUpdate", "set", _update_gradient, indices="int16, int32, int64, uint16"
)
TensorScatterAdd = _scatter_into("TensorScatterAdd", "add", _add_gradient)
TensorScatterSub = _scatter_into("TensorScatterSub", "sub", _sub_gradient)
ScatterNdNonAliasingAdd = _scatter_into("ScatterNdNonAliasingAdd", "add", _add_gradient, "input")
