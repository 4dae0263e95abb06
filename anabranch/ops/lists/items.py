"""One element of a list of tensors: read, written, added at the end, taken from there  (§3.4, WP4.5).

See `ops.lists.tensor_list`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorValue
from anabranch.graph.building import define_op
from anabranch.graph.composite import Gradient, IndexedSlices
from anabranch.graph.constants import ShapeContext
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.kernel_contexts import StepTracingContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.ops.known_shapes import full_shape
from anabranch.ops.lists.tensor_list import (
    TensorListLength,
    TensorListResize,
    TensorListZeros,
    as_list_gradient,
    check_index,
    described_shape,
    list_shape,
    resized,
)
from anabranch.ops.lists.values import TensorList

TensorListGetItem = define_op(
    "TensorListGetItem",
    "input_handle: variant, index: int32, element_shape: Tshape -> item: element_dtype",
    "element_dtype: any, Tshape: {int32, int64} = int32",
)


@TensorListGetItem.shape
def _(handle: TensorShape, index: TensorShape, shape: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    return described_shape(ctx)


@TensorListGetItem.kernel
def _(handle: Array, index: Array, shape: Array, *, element_dtype: DType, ctx: OperationContext) -> Any:
    check_index(ctx, index, handle.length)
    handle.of_type(ctx).merged_shape(shape)
    if handle.elements is not None and handle.length:
        return jax.tree.map(lambda e: lax.dynamic_index_in_dim(jnp.asarray(e), index, keepdims=False), handle.elements)
    if element_dtype is dtypes.variant:
        return TensorList(None, 0, np.float32)
    known = handle.known_shape(shape)
    known = handle.known_shape(ctx.output_shape()) if known is None else known
    ctx.check(known is not None, "nothing was written into the list, and the shape of its elements is not known")
    return jnp.zeros(known, element_dtype.as_numpy_dtype)


@TensorListGetItem.host_kernel
def _(handle: Array, index: Array, shape: Array, *, ctx: OperationContext) -> Any:
    check_index(ctx, index, handle.length)
    handle.of_type(ctx).merged_shape(shape)
    return handle.to_host().item(int(index), shape)


@TensorListGetItem.gradient
def _(op: Operation, grad: Gradient) -> Any:
    if op.attrs["element_dtype"] is dtypes.variant:
        item = as_list_gradient(grad, op.outputs[0])
        return TensorListSetItem(TensorListZeros(op.inputs[0]), op.inputs[1], item), None, None
    rows = IndexedSlices(raw.ExpandDims(convert_to_tensor(grad), 0), raw.ExpandDims(op.inputs[1], 0))
    return rows, None, None


TensorListSetItem = define_op(
    "TensorListSetItem",
    "input_handle: variant, index: int32, item: element_dtype -> output_handle: variant",
    "element_dtype: any, resize_if_index_out_of_bounds: bool = False",
    knows_objects=True,
)
TensorListSetItem.shape(list_shape)


@TensorListSetItem.kernel
def _(
    handle: TensorList, index: Array, item: Array, *, resize_if_index_out_of_bounds: bool, ctx: StepTracingContext
) -> TensorList:
    if resize_if_index_out_of_bounds and not (handle.declared is not None and handle.declared.has_room):
        if not isinstance(index, np.ndarray | np.generic):
            raise ctx.needs_host("a list grows with an index that only the device knows")
        if int(index) >= handle.length:
            handle = resized(handle, int(index) + 1)
    check_index(ctx, index, handle.length, "write to")
    handle.of_type(ctx).check_item(_shape_of(item), "set")
    handle = handle.of_item(item)
    if handle.element_shape != _form(item):
        raise ctx.needs_host(f"elements of shapes {handle.element_shape} and {_form(item)} in one list")
    if handle.length == 0:
        return handle

    def update(room: Array, value: Array) -> Any:
        return lax.dynamic_update_index_in_dim(jnp.asarray(room), jnp.asarray(value), index, 0)

    if isinstance(item, TensorList):
        item = item.declared_as(handle.elements.declared)
    return handle.replaced(jax.tree.map(update, handle.elements, item))


def _shape_of(item: TensorValue) -> tuple[int, ...]:
    """The shape of an item: a list, like a handle, is a scalar."""
    return () if isinstance(item, TensorList) else np.shape(item)


def _form(item: TensorValue) -> Any:
    """What `TensorList.element_shape` is of a list of such elements."""
    return item.declared_as(None).shape[1:] if isinstance(item, TensorList) else np.shape(item)


@TensorListSetItem.host_kernel
def _(
    handle: TensorList, index: Array, item: Array, *, resize_if_index_out_of_bounds: bool, ctx: OperationContext
) -> TensorList:
    handle = handle.to_host()
    if resize_if_index_out_of_bounds and int(index) >= handle.length:
        handle = resized(handle, int(index) + 1)
    check_index(ctx, index, handle.length, "write to")
    handle.of_type(ctx).check_item(_shape_of(item), "set")
    elements = list(handle.elements)
    elements[int(index)] = item
    return handle.replaced(elements)


@TensorListSetItem.gradient
def _(op: Operation, grad: Gradient) -> Any:
    handle, index, item = op.inputs
    list_grad = as_list_gradient(grad, op.outputs[0])
    if item.dtype is dtypes.variant:
        kept = TensorListSetItem(list_grad, index, TensorListZeros(item))
        return kept, None, TensorListGetItem(list_grad, index, -1, element_dtype=item.dtype)
    kept = TensorListSetItem(list_grad, index, raw.ZerosLike(item))
    if op.attrs["resize_if_index_out_of_bounds"]:
        kept = TensorListResize(kept, TensorListLength(handle))
    return kept, None, TensorListGetItem(list_grad, index, full_shape(item), element_dtype=item.dtype)


TensorListPushBack = define_op(
    "TensorListPushBack",
    "input_handle: variant, tensor: element_dtype -> output_handle: variant",
    "element_dtype: any",
    knows_objects=True,
)
TensorListPushBack.shape(list_shape)


@TensorListPushBack.kernel
def _(handle: Array, tensor: Array, *, ctx: StepTracingContext) -> TensorList:
    if isinstance(tensor, TensorList):
        raise ctx.needs_host("a list of lists grows")
    if handle.is_full:  # an error only where it runs: a loop may make no iteration
        raise ctx.needs_host("an element is added to a full list")
    handle.of_type(ctx).check_item(_shape_of(tensor), "append")
    longer = resized(handle, handle.length + 1).of_shape(np.shape(tensor))
    if longer.element_shape != np.shape(tensor):
        raise ctx.needs_host(f"elements of shapes {longer.element_shape} and {np.shape(tensor)} in one list")
    return longer.replaced(jnp.asarray(longer.elements).at[-1].set(tensor))


@TensorListPushBack.host_kernel
def _(handle: TensorList, tensor: Array, *, ctx: OperationContext) -> TensorList:
    handle.check_room()
    handle.of_type(ctx).check_item(_shape_of(tensor), "append")
    return handle.replaced([*handle.to_host().elements, tensor], handle.length + 1)


@TensorListPushBack.gradient
def _(op: Operation, grad: Gradient) -> Any:
    item = op.inputs[1]
    shape = -1 if item.dtype is dtypes.variant else full_shape(item)
    popped = TensorListPopBack(as_list_gradient(grad, op.outputs[0]), shape, element_dtype=item.dtype)
    return list(popped)


TensorListPopBack = define_op(
    "TensorListPopBack",
    "input_handle: variant, element_shape: int32 -> output_handle: variant, tensor: element_dtype",
    "element_dtype: any",
)


@TensorListPopBack.shape
def _(handle: TensorShape, shape: TensorShape, *, ctx: ShapeContext) -> tuple[TensorShape, TensorShape]:
    return TensorShape([]), described_shape(ctx)


@TensorListPopBack.kernel
def _(handle: Array, shape: Array, *, element_dtype: DType, ctx: StepTracingContext) -> Any:
    if handle.length == 0:  # an error only where it runs: a loop may make no iteration
        raise ctx.needs_host("an empty list is popped from")
    if element_dtype is dtypes.variant:
        raise ctx.needs_host("a list of lists shrinks")
    known = handle.known_shape(shape) if handle.of_type(ctx).elements is None else ()
    if known is None:
        raise ctx.needs_host("the shape of the list's elements is not known")
    full = handle.of_shape(known)
    return full.replaced(full.elements[:-1], full.length - 1), full.elements[-1]


@TensorListPopBack.host_kernel
def _(handle: Array, shape: Array, *, ctx: OperationContext) -> Any:
    ctx.check(handle.length > 0, "Trying to pop from an empty list")
    handle = handle.of_type(ctx).to_host()
    return handle.replaced(handle.elements[:-1], handle.length - 1), handle.item(handle.length - 1, shape)


@TensorListPopBack.gradient
def _(op: Operation, list_grad: Tensor | None, grad: Tensor | None) -> Any:
    grads = TensorListZeros(op.outputs[0]) if list_grad is None else as_list_gradient(list_grad, op.outputs[0])
    return TensorListPushBack(grads, grad), None
