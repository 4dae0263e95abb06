"""Variables as resources: handles, reads, assignments  (§3.1; design D5)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import NotFoundError, OutOfRangeError
from anabranch.graph.building import define_op
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.constants import ShapeContext
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.kernel_contexts import StepHostContext, StepTracingContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.step_nodes import AnyTensor, StepTensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.arrays.gather_scatter import are_rows, check_indices, check_updates
from anabranch.ops.resources.rows import changes_rows, combined_rows, guarded, library_of, with_rows, write_rows

VarHandleOp = define_op(
    "VarHandleOp",
    "-> resource: resource",
    "container: string = '', shared_name: string = '', dtype: any, shape: shape, allowed_devices: list(string) = []",
    stateful=True,
    unnoticed=True,
)
VarHandleOp.shape(shape_rules.scalar)
VarHandleOp.not_differentiable()


@VarHandleOp.kernel
def _(
    *, container: bytes, shared_name: bytes, shape: TensorShape, ctx: OperationContext, xp: ArrayLibrary
) -> ResourceHandle:
    name = shared_name.decode() or ctx.op.name
    return ResourceHandle(container.decode(), name, "variable", task=ctx.task, shape=shape)


def handle_shape(handle: AnyTensor) -> TensorShape:
    """The (partial) shape of the variable behind a handle, as its `VarHandleOp` states it."""
    if isinstance(handle, StepTensor):
        return handle.known.shape if isinstance(handle.known, ResourceHandle) else shape_rules.UNKNOWN
    shape: TensorShape = _stated(handle, "shape", shape_rules.UNKNOWN)
    return shape


def _stated(handle: Tensor, attribute: str, default: TensorShape | None) -> Any:
    """What the `VarHandleOp` behind a handle of a graph says of its variable."""
    op = handle.op
    while op.type in ("Identity", "IdentityN"):
        handle = op.inputs[handle.value_index]
        op = handle.op
    origin = handle.get_attribute("handle_of")
    if origin is not None:
        return _stated(origin, attribute, default)
    return op.attrs.get(attribute, default) if op.type == "VarHandleOp" else default


ReadVariableOp = define_op(
    "ReadVariableOp",
    "resource: resource -> value: dtype",
    "dtype: any",
    stateful=True,
    reads=("resource",),
    takes_numpy=True,
)


@ReadVariableOp.shape
def _(resource: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    return handle_shape(ctx.tensor("resource"))


@ReadVariableOp.kernel
def _(resource: ResourceHandle, *, ctx: OperationContext) -> Any:
    return ctx.read(resource)


@ReadVariableOp.host_kernel
def _(resource: ResourceHandle, *, ctx: OperationContext) -> Any:
    return ctx.read(resource)


@ReadVariableOp.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return grad


AssignVariableOp = define_op(
    "AssignVariableOp",
    "resource: resource, value: dtype ->",
    "dtype: any, validate_shape: bool = False",
    stateful=True,
    writes=("resource",),
    takes_numpy=True,
)
AssignVariableOp.not_differentiable()


@AssignVariableOp.shape
def _(resource: TensorShape, value: TensorShape, *, ctx: ShapeContext) -> tuple[()]:
    handle = ctx.tensor("resource")
    handle_shape(handle).assert_is_compatible_with(value)
    dtype = _stated(handle, "dtype", None) if isinstance(handle, Tensor) else None
    given = ctx.tensor("value").dtype.base_dtype
    if dtype is not None and dtype is not given:
        raise ValueError(f"Trying to assign variable with wrong dtype. Expected {dtype.name} got {given.name}")
    return ()


@AssignVariableOp.kernel
def _(resource: ResourceHandle, value: Array, *, ctx: OperationContext) -> None:
    ctx.write(resource, value)


@AssignVariableOp.host_kernel
def _(resource: ResourceHandle, value: Array, *, ctx: OperationContext) -> None:
    ctx.write(resource, value)


def _assign_update(name: str, update: Callable[[Array, Array], Array]) -> Any:
    op = define_op(
        name,
        "resource: resource, value: dtype ->",
        "dtype: any",
        stateful=True,
        reads=("resource",),
        writes=("resource",),
        takes_numpy=True,
    )

    @op.shape
    def _(resource: TensorShape, value: TensorShape, *, ctx: ShapeContext) -> tuple[()]:
        handle_shape(ctx.tensor("resource")).assert_is_compatible_with(value)
        return ()

    @op.kernel
    def _(resource: ResourceHandle, value: Array, *, ctx: OperationContext) -> None:
        old = ctx.read(resource)
        if old.shape != np.shape(value):
            raise ValueError(f"{resource} has shape {[*old.shape]}, the value {[*np.shape(value)]}; they must agree")
        ctx.write(resource, update(old, value))

    return op.not_differentiable()


AssignAddVariableOp = _assign_update("AssignAddVariableOp", lambda old, value: old + value)
AssignSubVariableOp = _assign_update("AssignSubVariableOp", lambda old, value: old - value)


VarIsInitializedOp = define_op("VarIsInitializedOp", "resource: resource -> is_initialized: bool", stateful=True)
VarIsInitializedOp.shape(shape_rules.scalar)
VarIsInitializedOp.not_differentiable()


@VarIsInitializedOp.host_kernel
def _(resource: ResourceHandle, *, ctx: StepHostContext) -> bool:
    initialized: bool = ctx.is_initialized(resource)
    return initialized


VariableShape = define_op(
    "VariableShape",
    "input: resource -> output: out_type",
    "out_type: {int32, int64} = int32",
    stateful=True,
    reads=("input",),
)
VariableShape.not_differentiable()


@VariableShape.shape
def _(input: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    return TensorShape([handle_shape(ctx.tensor("input")).ndims])


@VariableShape.kernel
def _(input: ResourceHandle, *, out_type: DType, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    return np.array(ctx.read(input).shape, out_type.as_numpy_dtype)


def variable_shape(handle: Tensor) -> Tensor:
    """The shape of the variable behind a handle, an int32 vector; a constant where it is known statically."""
    shape = handle_shape(handle)
    if shape.is_fully_defined():
        dims = np.array(shape.as_list(), np.int32)
        return raw.Const(value=dims, dtype="int32")  # type: ignore[no-any-return]
    return VariableShape(handle)  # type: ignore[no-any-return]


DestroyResourceOp = define_op(
    "DestroyResourceOp", "resource: resource ->", "ignore_lookup_error: bool = True", stateful=True
)
DestroyResourceOp.shape(shape_rules.no_outputs)
DestroyResourceOp.not_differentiable()


@DestroyResourceOp.host_kernel
def _(resource: ResourceHandle, *, ignore_lookup_error: bool, ctx: StepHostContext) -> None:
    if not ctx.destroy(resource) and not ignore_lookup_error:
        raise NotFoundError(None, ctx.op, f"{resource} does not exist, so it cannot be destroyed")


#: TensorFlow's variables may share a buffer with what has read them, until this; here readers pin buffers always (0012)
DisableCopyOnRead = define_op("DisableCopyOnRead", "resource: resource ->", stateful=True, takes_numpy=True)
DisableCopyOnRead.shape(shape_rules.no_outputs)
DisableCopyOnRead.not_differentiable()


@DisableCopyOnRead.kernel
def _(resource: ResourceHandle) -> None:
    return None


ResourceCountUpTo = define_op(
    "ResourceCountUpTo",
    "resource: resource -> output: T",
    "limit: int, T: index",
    stateful=True,
    reads=("resource",),
    writes=("resource",),
    takes_numpy=True,
)
ResourceCountUpTo.shape(shape_rules.scalar)
ResourceCountUpTo.not_differentiable()


@ResourceCountUpTo.kernel
def _(resource: ResourceHandle, *, limit: int, ctx: OperationContext) -> Any:
    count = ctx.read(resource)
    ctx.check(count < limit, f"Reached limit of {limit}", error=OutOfRangeError)
    ctx.write(resource, count + np.ones((), count.dtype))
    return count


# ---------------------------------------------------------------------- reading rows
ResourceGather = define_op(
    "ResourceGather",
    "resource: resource, indices: Tindices -> output: dtype",
    "batch_dims: int = 0, validate_indices: bool = True, dtype: any, Tindices: index",
    stateful=True,
    reads=("resource",),
    takes_numpy=True,
)


@ResourceGather.shape
def _(resource: TensorShape, indices: TensorShape, *, batch_dims: int, ctx: ShapeContext) -> TensorShape:
    table = handle_shape(ctx.tensor("resource")).with_rank_at_least(batch_dims + 1)
    if table.ndims is None or indices.ndims is None:
        return shape_rules.UNKNOWN
    batch = table[:batch_dims].merge_with(indices[:batch_dims])
    return batch.concatenate(indices[batch_dims:]).concatenate(table[batch_dims + 1 :])


@ResourceGather.host_kernel
@ResourceGather.kernel
def _(resource: ResourceHandle, indices: Array, *, batch_dims: int, ctx: OperationContext) -> Any:
    return ctx.look(resource, lambda table: _rows(table, indices, batch_dims, ctx))


def _rows(table: Array, indices: Array, batch_dims: int, ctx: OperationContext) -> Any:
    xp = library_of(table, indices)
    table = xp.asarray(table)
    check_indices(ctx, indices, table.shape[batch_dims], xp)
    if batch_dims == 0:
        return xp.take(table, indices, axis=0, mode="clip")
    leading = np.ix_(*(np.arange(n) for n in np.shape(indices)[:batch_dims]))
    ones = (1,) * (np.ndim(indices) - batch_dims)
    return table[(*(i.reshape(i.shape + ones) for i in leading), indices)]


@ResourceGather.gradient
def _(op: Operation, grad: Tensor) -> Any:
    handle, indices = op.inputs
    batch_dims = op.attrs["batch_dims"]
    shape = variable_shape(handle)
    if batch_dims == 0 and are_rows(grad, indices, handle_shape(handle)):
        # here, with the worker that computes it: it may be rows of its own, of which several are for one of these
        return IndexedSlices(convert_to_tensor(grad), indices, shape), None
    row = raw.Reshape(raw.StridedSlice(shape, [batch_dims + 1], [0], [1], end_mask=1), [-1])
    values = raw.Reshape(grad, raw.ConcatV2([raw.Reshape(raw.Size(indices), [1]), row], 0))
    if batch_dims == 0:
        return IndexedSlices(values, raw.Reshape(indices, [-1]), shape), None
    # with batch dimensions nearly every row is touched: a dense gradient over the flattened batches
    rows = raw.StridedSlice(shape, [batch_dims], [batch_dims + 1], [1], shrink_axis_mask=1)
    batches = raw.Prod(raw.StridedSlice(shape, [0], [batch_dims], [1], begin_mask=1), 0)
    flat = raw.Reshape(raw.Cast(indices, DstT="int32"), raw.Pack([batches, np.int32(-1)]))
    offsets = raw.ExpandDims(raw.Mul(raw.Range(0, batches, 1), rows), 1)
    where = raw.Reshape(raw.AddV2(flat, offsets), [-1])
    return raw.Reshape(raw.UnsortedSegmentSum(values, where, raw.Mul(batches, rows)), shape), None


ResourceGatherNd = define_op(
    "ResourceGatherNd",
    "resource: resource, indices: Tindices -> output: dtype",
    "dtype: any, Tindices: index",
    stateful=True,
    reads=("resource",),
    takes_numpy=True,
)


@ResourceGatherNd.shape
def _(resource: TensorShape, indices: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    table = handle_shape(ctx.tensor("resource"))
    picked = indices.with_rank_at_least(1).dims_tuple
    if table.ndims is None or picked is None or picked[-1] is None:
        return shape_rules.UNKNOWN
    if picked[-1] > table.ndims:
        raise ValueError(f"index vectors of {picked[-1]} elements are too long for a variable of rank {table.ndims}")
    return TensorShape(picked[:-1]).concatenate(table[picked[-1] :])


@ResourceGatherNd.host_kernel
@ResourceGatherNd.kernel
def _(resource: ResourceHandle, indices: Array, *, ctx: OperationContext) -> Any:
    return ctx.look(resource, lambda table: _elements(table, indices, ctx))


def _elements(table: Array, indices: Array, ctx: OperationContext) -> Any:
    library = library_of(table, indices)
    table = library.asarray(table)
    if not np.shape(indices)[-1]:  # each vector of no numbers names the whole
        return library.array(library.broadcast_to(table, (*np.shape(indices)[:-1], *table.shape)))
    _check_index_vectors(ctx, indices, table.shape, "param shape")
    return table[tuple(indices[..., i] for i in range(np.shape(indices)[-1]))]


@ResourceGatherNd.gradient
def _(op: Operation, grad: Tensor) -> Any:
    handle, indices = op.inputs
    shape = variable_shape(handle)
    if indices.shape.ndims == 2 and indices.shape[-1].value == 1:
        return IndexedSlices(grad, raw.Squeeze(indices, squeeze_dims=[-1]), shape), None
    return raw.ScatterNd(indices, grad, raw.Cast(shape, DstT=indices.dtype)), None


def _check_index_vectors(ctx: OperationContext, indices: Array, dims: tuple[int, ...], what: str = "shape") -> None:
    """Makes the step fail unless every vector in the last axis of `indices` points into the leading `dims`."""
    depth = np.shape(indices)[-1]
    if depth > len(dims):
        raise ValueError(f"index vectors of {depth} elements are too long for a variable of shape {list(dims)}")
    xp = library_of(indices)  # known indices are checked here and now
    flat = xp.reshape(indices, (-1, depth))
    if flat.size == 0:
        return
    valid = xp.all((flat >= 0) & (flat < np.array(dims[:depth], np.int64)), axis=-1)
    at = xp.argmin(valid)
    ctx.check(valid, f"indices[{{0}}] = {{1}} does not index into {what} {list(dims)}", at, flat[at])


# ---------------------------------------------------------------------- changing rows
#: how an update changes the rows of a table: as `with_rows` says it
_Change: TypeAlias = tuple[str, Any, Any, bool]


def _divided(table: Array, indices: Array, updates: Array) -> _Change:
    """Repeated rows are divided by the product of their updates; the rest of the table is not touched."""
    rows, divisors = combined_rows(indices, updates, table.shape[0], jnp.multiply)
    xp = library_of(table, rows)
    quotients = _quotient(xp.take(table, rows, axis=0, mode="clip"), divisors)
    return "set", rows, quotients, True


def _quotient(values: Array, divisors: Array) -> Any:
    if jnp.issubdtype(values.dtype, jnp.integer):
        xp = library_of(values, divisors)
        return xp.sign(values) * xp.sign(divisors) * (abs(values) // abs(divisors))
    return values / divisors


def _plainly(how: str, table: Array, at: Array | tuple[Array, ...], updates: Array) -> _Change:
    return how, at, updates, False


#: what each scatter does with the rows of a table: (table, indices, updates) -> the change
_ROW_UPDATES: dict[str, Callable[[Any, Any, Any], _Change]] = {
    "Update": partial(_plainly, "set"),
    "Add": partial(_plainly, "add"),
    "Sub": lambda table, at, updates: ("add", at, -updates, False),
    "Mul": partial(_plainly, "multiply"),
    "Min": partial(_plainly, "min"),
    "Max": partial(_plainly, "max"),
    "Div": _divided,
}


#: what those scatters do with a row and its update that can do so one row after the other; None: nothing
_ROW_BY_ROW: dict[str, np.ufunc | None] = {
    "Update": None,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Min": np.minimum,
    "Max": np.maximum,
}


def _row_scatter(how: str) -> Any:
    types = "any" if how == "Update" else "numbers"
    op = define_op(
        f"ResourceScatter{how}",
        "resource: resource, indices: Tindices, updates: dtype ->",
        f"dtype: {types}, Tindices: index",
        stateful=True,
        reads=("resource",),
        writes=("resource",),
        takes_numpy=True,
        changes_rows=how in _ROW_BY_ROW,
    )

    @op.shape
    def _(resource: TensorShape, indices: TensorShape, updates: TensorShape, *, ctx: ShapeContext) -> tuple[()]:
        table = handle_shape(ctx.tensor("resource")).with_rank_at_least(1)
        wanted = indices.concatenate(table[1:]) if table.ndims is not None else shape_rules.UNKNOWN
        if updates.ndims != 0 and not updates.is_compatible_with(wanted):
            raise ValueError(
                f"updates must be a scalar or have shape {wanted} = indices.shape + row shape, got {updates}"
            )
        return ()

    @op.kernel
    def _(resource: ResourceHandle, indices: Array, updates: Array, *, ctx: StepTracingContext) -> None:
        table = ctx.read(resource)
        xp = library_of(table, indices, updates)
        table = xp.asarray(table)
        check_indices(ctx, indices, table.shape[0], xp)
        if how in _ROW_BY_ROW and changes_rows(ctx, table, _ROW_BY_ROW[how], indices, updates):
            return
        at = guarded(ctx, xp.ravel(indices), table.shape[0])
        wanted = (*np.shape(indices), *table.shape[1:])
        if np.shape(updates) not in ((), wanted):
            raise ValueError(
                f"updates must be a scalar or have shape {[*wanted]} = indices.shape + row shape, "
                f"got {[*np.shape(updates)]}"
            )
        rows = xp.broadcast_to(updates, wanted).reshape((-1, *table.shape[1:]))
        write_rows(ctx, resource, table, *_ROW_UPDATES[how](table, at, rows))

    if how == "Update":

        @op.host_kernel
        def _(resource: ResourceHandle, indices: Array, updates: Array, *, ctx: OperationContext) -> None:
            table = np.array(ctx.read(resource))
            check_indices(ctx, indices, table.shape[0], np)
            table[indices] = updates
            ctx.write(resource, table)

    return op.not_differentiable()


ResourceScatterUpdate = _row_scatter("Update")
ResourceScatterAdd = _row_scatter("Add")
ResourceScatterSub = _row_scatter("Sub")
ResourceScatterMul = _row_scatter("Mul")
ResourceScatterDiv = _row_scatter("Div")
ResourceScatterMin = _row_scatter("Min")
ResourceScatterMax = _row_scatter("Max")


def _element_scatter(how: str) -> Any:
    op = define_op(
        f"ResourceScatterNd{how}",
        "ref: resource, indices: Tindices, updates: T ->",
        "T: any, Tindices: index, use_locking: bool = True, bad_indices_policy: string = ''",
        stateful=True,
        reads=("ref",),
        writes=("ref",),
        takes_numpy=True,
    )

    @op.shape
    def _(ref: TensorShape, indices: TensorShape, updates: TensorShape, *, ctx: ShapeContext) -> tuple[()]:
        check_updates(handle_shape(ctx.tensor("ref")), indices, updates)
        return ()

    @op.kernel
    def _(
        ref: ResourceHandle, indices: Array, updates: Array, *, bad_indices_policy: bytes, ctx: StepTracingContext
    ) -> None:
        table = ctx.read(ref)
        xp = library_of(table, indices, updates)
        table = xp.asarray(table)
        if bad_indices_policy != b"IGNORE":
            _check_index_vectors(ctx, indices, table.shape)
        check_updates(TensorShape(table.shape), TensorShape(np.shape(indices)), TensorShape(np.shape(updates)))
        columns = [xp.asarray(indices[..., i]) for i in range(np.shape(indices)[-1])]
        # negative indices, which JAX would count from the end, go beyond the end, where they are dropped
        beyond = [xp.where(c < 0, n, c) for c, n in zip(columns, table.shape, strict=False)]
        if not beyond:
            whole = table[None]
            change, *change_with = _ROW_UPDATES[how](whole, xp.zeros(updates.shape[:1], np.int32), updates)
            ctx.write(ref, with_rows(change, whole, *change_with)[0])
            return
        at = (guarded(ctx, beyond[0], table.shape[0]), *beyond[1:])
        write_rows(ctx, ref, table, *_ROW_UPDATES[how](table, at, updates))

    return op.not_differentiable()


ResourceScatterNdUpdate = _element_scatter("Update")
ResourceScatterNdAdd = _element_scatter("Add")
ResourceScatterNdSub = _element_scatter("Sub")
ResourceScatterNdMin = _element_scatter("Min")
ResourceScatterNdMax = _element_scatter("Max")
