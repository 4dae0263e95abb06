"""Lists of tensors as values: what `TensorArray` is made of, and what loops record for their gradients  (§3.4, WP4.5).

Every operation gives a new list; the compiler updates dense lists in place where the old one is not used any more.
See `ops.list_values` for the two forms of a list. Elements that were never written are zeros.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anabranch.core import dtypes
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.ops.list_values import TensorList, element_shape as _known_shape

_SHAPE = "shape_type: {int32, int64}"
_SCALAR = TensorShape([])


def _list_shape(*_: Any) -> TensorShape:
    return _SCALAR


def _described(ctx: Any) -> TensorShape:
    """The element shape that an input states, as far as it is known while the graph is built."""
    try:
        shape: TensorShape = ctx.constant_as_shape("element_shape")
    except ValueError:
        return TensorShape(None)
    return shape


# ---------------------------------------------------------------------- making lists
TensorListReserve = define_op(
    "TensorListReserve",
    "element_shape: shape_type, num_elements: int32 -> handle: variant",
    f"element_dtype: any, {_SHAPE}",
    static=("element_shape", "num_elements"),
)
TensorListReserve.not_differentiable()
TensorListReserve.shape(_list_shape)


@TensorListReserve.kernel
def _(shape: Any, num_elements: Any, *, element_dtype: Any, ctx: Any) -> TensorList:
    length = _length(ctx, num_elements)
    made = TensorList(None, length, element_dtype.as_numpy_dtype)
    known = _known_shape(shape)
    return made if known is None else made.of_shape(known)


@TensorListReserve.host_kernel
def _(shape: Any, num_elements: Any, *, element_dtype: Any, ctx: Any) -> TensorList:
    length = _length(ctx, num_elements)
    return TensorList([None] * length, length, element_dtype.as_numpy_dtype)


def _length(ctx: Any, value: Any) -> int:
    length = int(np.asarray(value))
    ctx.check(length >= 0, f"the number of elements of a list must not be negative, it is {length}")
    return length


EmptyTensorList = define_op(
    "EmptyTensorList",
    "element_shape: shape_type, max_num_elements: int32 -> handle: variant",
    f"element_dtype: any, {_SHAPE}",
)
EmptyTensorList.not_differentiable()
EmptyTensorList.shape(_list_shape)


@EmptyTensorList.host_kernel
def _(shape: Any, max_num_elements: Any, *, element_dtype: Any) -> TensorList:
    return TensorList([], 0, element_dtype.as_numpy_dtype)


@EmptyTensorList.kernel
def _(shape: Any, max_num_elements: Any, *, element_dtype: Any) -> TensorList:
    return TensorList(None, 0, element_dtype.as_numpy_dtype)


TensorListFromTensor = define_op(
    "TensorListFromTensor",
    "tensor: element_dtype, element_shape: shape_type -> output_handle: variant",
    f"element_dtype: any, {_SHAPE}",
)
TensorListFromTensor.shape(_list_shape)


@TensorListFromTensor.kernel
def _(tensor: Any, shape: Any) -> TensorList:
    return TensorList(jnp.asarray(tensor), tensor.shape[0], tensor.dtype)


@TensorListFromTensor.host_kernel
def _(tensor: Any, shape: Any) -> TensorList:
    return TensorList(list(tensor), tensor.shape[0], tensor.dtype)


@TensorListFromTensor.gradient
def _(op: Operation, grad: Any) -> Any:
    tensor = op.inputs[0]
    found = as_list_gradient(grad, op.outputs[0])
    return raw.TensorListStack(found, _tail_shape(tensor), element_dtype=tensor.dtype), None


def _tail_shape(tensor: Tensor) -> Any:
    """The shape of the rows of a tensor, as an int32 vector."""
    rows = tensor.shape[1:]
    if rows.is_fully_defined():
        return np.array(rows.as_list(), np.int32)
    return raw.StridedSlice(raw.Shape(tensor), [1], [0], [1], end_mask=1)


def _full_shape(tensor: Tensor) -> Any:
    if tensor.shape.is_fully_defined():
        return np.array(tensor.shape.as_list(), np.int32)
    return raw.Shape(tensor)


# ---------------------------------------------------------------------- size and shape
TensorListLength = define_op("TensorListLength", "input_handle: variant -> length: int32", shape_valued=True)
TensorListLength.not_differentiable()
TensorListLength.shape(_list_shape)


@TensorListLength.kernel
def _(handle: Any, *, xp: Any) -> Any:
    return np.int32(handle.length)


TensorListElementShape = define_op(
    "TensorListElementShape", "input_handle: variant -> element_shape: shape_type", _SHAPE, shape_valued=True
)
TensorListElementShape.not_differentiable()


@TensorListElementShape.shape
def _(handle: TensorShape) -> TensorShape:
    return TensorShape(None)


@TensorListElementShape.kernel
def _(handle: Any, *, shape_type: Any, xp: Any) -> Any:
    shape = (
        next((np.shape(e) for e in handle.elements if e is not None), None) if handle.on_host else handle.element_shape
    )
    return np.array(-1 if shape is None else shape, shape_type.as_numpy_dtype)


TensorListResize = define_op(
    "TensorListResize", "input_handle: variant, size: int32 -> output_handle: variant", static=("size",)
)
TensorListResize.shape(_list_shape)


def _resized(handle: TensorList, length: int) -> TensorList:
    if handle.on_host:
        kept = handle.elements[:length]
        return TensorList([*kept, *[None] * (length - len(kept))], length, handle.dtype)
    if handle.elements is None or length == handle.length:
        return TensorList(handle.elements, length, handle.dtype)
    kept = handle.elements[:length]
    padding = jnp.zeros((length - kept.shape[0], *kept.shape[1:]), kept.dtype)
    return TensorList(jnp.concatenate([kept, padding]), length, handle.dtype)


@TensorListResize.kernel
def _(handle: Any, size: Any, *, ctx: Any) -> TensorList:
    return _resized(handle, _length(ctx, size))


@TensorListResize.host_kernel
def _(handle: Any, size: Any, *, ctx: Any) -> TensorList:
    return _resized(handle.to_host(), _length(ctx, size))


@TensorListResize.gradient
def _(op: Operation, grad: Any) -> Any:
    found = as_list_gradient(grad, op.outputs[0])
    return TensorListResize(found, TensorListLength(op.inputs[0])), None


# ---------------------------------------------------------------------- one element
TensorListGetItem = define_op(
    "TensorListGetItem",
    "input_handle: variant, index: int32, element_shape: Tshape -> item: element_dtype",
    "element_dtype: any, Tshape: {int32, int64} = int32",
)


@TensorListGetItem.shape
def _(handle: TensorShape, index: TensorShape, shape: TensorShape, *, ctx: Any) -> TensorShape:
    return _described(ctx)


def _check_index(ctx: Any, index: Any, length: int) -> None:
    ctx.check((index >= 0) & (index < length), f"Tried to access element {{0}} of a list of {length} elements", index)


@TensorListGetItem.kernel
def _(handle: Any, index: Any, shape: Any, *, element_dtype: Any, ctx: Any) -> Any:
    _check_index(ctx, index, handle.length)
    if handle.elements is not None and handle.length:
        return jax.tree.map(lambda e: lax.dynamic_index_in_dim(jnp.asarray(e), index, keepdims=False), handle.elements)
    if element_dtype is dtypes.variant:
        return TensorList(None, 0, np.float32)
    known = _known_shape(shape) if isinstance(shape, np.ndarray) else None
    known = _known_shape(ctx.output_shape()) if known is None else known
    ctx.check(known is not None, "nothing was written into the list, and the shape of its elements is not known")
    return jnp.zeros(known, element_dtype.as_numpy_dtype)


@TensorListGetItem.host_kernel
def _(handle: Any, index: Any, shape: Any, *, ctx: Any) -> Any:
    _check_index(ctx, index, handle.length)
    return handle.to_host().item(int(index), shape)


@TensorListGetItem.gradient
def _(op: Operation, grad: Any) -> Any:
    if op.attrs["element_dtype"] is dtypes.variant:
        item = as_list_gradient(grad, op.outputs[0])
        return TensorListSetItem(TensorListZeros(op.inputs[0]), op.inputs[1], item), None, None
    rows = IndexedSlices(raw.ExpandDims(convert_to_tensor(grad), 0), raw.ExpandDims(op.inputs[1], 0))
    return rows, None, None


TensorListSetItem = define_op(
    "TensorListSetItem",
    "input_handle: variant, index: int32, item: element_dtype -> output_handle: variant",
    "element_dtype: any, resize_if_index_out_of_bounds: bool = False",
)
TensorListSetItem.shape(_list_shape)


@TensorListSetItem.kernel
def _(handle: Any, index: Any, item: Any, *, resize_if_index_out_of_bounds: bool, ctx: Any) -> TensorList:
    if resize_if_index_out_of_bounds:
        if not isinstance(index, np.ndarray | np.generic):
            raise ctx.needs_host("a list grows with an index that only the device knows")
        if int(index) >= handle.length:
            handle = _resized(handle, int(index) + 1)
    _check_index(ctx, index, handle.length)
    handle = handle.of_item(item)
    if handle.element_shape != _form(item):
        raise ctx.needs_host(f"elements of shapes {handle.element_shape} and {_form(item)} in one list")
    if handle.length == 0:
        return handle  # type: ignore[no-any-return]

    def update(room: Any, value: Any) -> Any:
        return lax.dynamic_update_index_in_dim(jnp.asarray(room), jnp.asarray(value), index, 0)

    return TensorList(jax.tree.map(update, handle.elements, item), handle.length, handle.dtype)


def _form(item: Any) -> Any:
    """What `TensorList.element_shape` is of a list of such elements."""
    return item.shape[1:] if isinstance(item, TensorList) else np.shape(item)


@TensorListSetItem.host_kernel
def _(handle: Any, index: Any, item: Any, *, resize_if_index_out_of_bounds: bool, ctx: Any) -> TensorList:
    handle = handle.to_host()
    if resize_if_index_out_of_bounds and int(index) >= handle.length:
        handle = _resized(handle, int(index) + 1)
    _check_index(ctx, index, handle.length)
    elements = list(handle.elements)
    elements[int(index)] = item
    return TensorList(elements, handle.length, handle.dtype)


@TensorListSetItem.gradient
def _(op: Operation, grad: Any) -> Any:
    handle, index, item = op.inputs
    found = as_list_gradient(grad, op.outputs[0])
    if item.dtype is dtypes.variant:
        kept = TensorListSetItem(found, index, TensorListZeros(item))
        return kept, None, TensorListGetItem(found, index, -1, element_dtype=item.dtype)
    kept = TensorListSetItem(found, index, raw.ZerosLike(item))
    if op.attrs["resize_if_index_out_of_bounds"]:
        kept = TensorListResize(kept, TensorListLength(handle))
    return kept, None, TensorListGetItem(found, index, _full_shape(item), element_dtype=item.dtype)


TensorListPushBack = define_op(
    "TensorListPushBack",
    "input_handle: variant, tensor: element_dtype -> output_handle: variant",
    "element_dtype: any",
)
TensorListPushBack.shape(_list_shape)


@TensorListPushBack.kernel
def _(handle: Any, tensor: Any, *, ctx: Any) -> TensorList:
    longer = _resized(handle, handle.length + 1).of_shape(np.shape(tensor))
    if longer.element_shape != np.shape(tensor):
        raise ctx.needs_host(f"elements of shapes {longer.element_shape} and {np.shape(tensor)} in one list")
    return TensorList(jnp.asarray(longer.elements).at[-1].set(tensor), longer.length, longer.dtype)


@TensorListPushBack.host_kernel
def _(handle: Any, tensor: Any) -> TensorList:
    return TensorList([*handle.to_host().elements, tensor], handle.length + 1, handle.dtype)


@TensorListPushBack.gradient
def _(op: Operation, grad: Any) -> Any:
    item = op.inputs[1]
    popped = TensorListPopBack(as_list_gradient(grad, op.outputs[0]), _full_shape(item), element_dtype=item.dtype)
    return list(popped)


TensorListPopBack = define_op(
    "TensorListPopBack",
    "input_handle: variant, element_shape: int32 -> output_handle: variant, tensor: element_dtype",
    "element_dtype: any",
)


@TensorListPopBack.shape
def _(handle: TensorShape, shape: TensorShape, *, ctx: Any) -> tuple[TensorShape, TensorShape]:
    return _SCALAR, _described(ctx)


@TensorListPopBack.kernel
def _(handle: Any, shape: Any, *, element_dtype: Any, ctx: Any) -> Any:
    ctx.check(handle.length > 0, "Trying to pop from an empty list")
    known = _known_shape(shape) if isinstance(shape, np.ndarray) else None
    ctx.check(handle.elements is not None or known is not None, "the shape of the list's elements is not known")
    full = handle.of_shape(known or ())
    return TensorList(full.elements[:-1], full.length - 1, full.dtype), full.elements[-1]


@TensorListPopBack.host_kernel
def _(handle: Any, shape: Any, *, ctx: Any) -> Any:
    ctx.check(handle.length > 0, "Trying to pop from an empty list")
    handle = handle.to_host()
    return TensorList(handle.elements[:-1], handle.length - 1, handle.dtype), handle.item(handle.length - 1, shape)


@TensorListPopBack.gradient
def _(op: Operation, list_grad: Any, grad: Any) -> Any:
    found = TensorListZeros(op.outputs[0]) if list_grad is None else as_list_gradient(list_grad, op.outputs[0])
    return TensorListPushBack(found, grad), None


# ---------------------------------------------------------------------- all elements
TensorListStack = define_op(
    "TensorListStack",
    "input_handle: variant, element_shape: int32 -> tensor: element_dtype",
    "element_dtype: any, num_elements: int = -1",
    static=("element_shape",),
)


@TensorListStack.shape
def _(handle: TensorShape, shape: TensorShape, *, num_elements: int, ctx: Any) -> TensorShape:
    count = TensorShape([None if num_elements < 0 else num_elements])
    return count.concatenate(_described(ctx))


@TensorListStack.kernel
def _(handle: Any, shape: Any, *, element_dtype: Any, num_elements: int, ctx: Any) -> Any:
    ctx.check(num_elements in (-1, handle.length), f"{num_elements} elements expected, the list has {handle.length}")
    if handle.elements is not None:
        return jnp.asarray(handle.elements)
    known = _known_shape(shape)
    known = _known_shape(ctx.output_shape()[1:]) if known is None else known
    ctx.check(known is not None or handle.length == 0, "nothing was written into the list that is stacked")
    return jnp.zeros((handle.length, *(known or ())), element_dtype.as_numpy_dtype)


@TensorListStack.host_kernel
def _(handle: Any, shape: Any, *, element_dtype: Any, num_elements: int, ctx: Any) -> Any:
    ctx.check(num_elements in (-1, handle.length), f"{num_elements} elements expected, the list has {handle.length}")
    if handle.length == 0:
        known = _known_shape(ctx.output_shape()[1:]) or _known_shape(shape) or ()
        return np.zeros((0, *known), element_dtype.as_numpy_dtype)
    return _stacked(handle.to_host(), range(handle.length), shape, ctx)


def _stacked(handle: TensorList, indices: Any, shape: Any, ctx: Any) -> Any:
    items = [np.asarray(handle.item(int(i), shape)) for i in indices]
    shapes = sorted({item.shape for item in items})
    ctx.check(len(shapes) <= 1, f"elements of different shapes cannot be stacked: {shapes[:4]}; use concat()")
    return np.stack(items) if items else np.zeros((0, *(_known_shape(shape) or ())), handle.dtype)


@TensorListStack.gradient
def _(op: Operation, grad: Any) -> Any:
    return TensorListFromTensor(convert_to_tensor(grad), _tail_shape(op.outputs[0])), None


TensorListGather = define_op(
    "TensorListGather",
    "input_handle: variant, indices: int32, element_shape: int32 -> values: element_dtype",
    "element_dtype: any",
)


@TensorListGather.shape
def _(handle: TensorShape, indices: TensorShape, shape: TensorShape, *, ctx: Any) -> TensorShape:
    return indices.with_rank(1).concatenate(_described(ctx))


@TensorListGather.kernel
def _(handle: Any, indices: Any, shape: Any, *, element_dtype: Any, ctx: Any) -> Any:
    _check_index(ctx, indices, handle.length)
    if handle.elements is not None and handle.length:
        return jnp.take(jnp.asarray(handle.elements), indices, axis=0, mode="clip")
    known = _known_shape(shape) if isinstance(shape, np.ndarray) else None
    known = _known_shape(ctx.output_shape()[1:]) if known is None else known
    ctx.check(known is not None, "nothing was written into the list that is gathered from")
    return jnp.zeros((indices.shape[0], *(known or ())), element_dtype.as_numpy_dtype)


@TensorListGather.host_kernel
def _(handle: Any, indices: Any, shape: Any, *, ctx: Any) -> Any:
    _check_index(ctx, indices, handle.length)
    return _stacked(handle.to_host(), indices, shape, ctx)


@TensorListGather.gradient
def _(op: Operation, grad: Any) -> Any:
    return IndexedSlices(convert_to_tensor(grad), op.inputs[1]), None, None


TensorListScatterIntoExistingList = define_op(
    "TensorListScatterIntoExistingList",
    "input_handle: variant, tensor: element_dtype, indices: int32 -> output_handle: variant",
    "element_dtype: any",
)
TensorListScatterIntoExistingList.shape(_list_shape)


@TensorListScatterIntoExistingList.kernel
def _(handle: Any, tensor: Any, indices: Any, *, ctx: Any) -> TensorList:
    _check_index(ctx, indices, handle.length)
    handle = handle.of_shape(np.shape(tensor)[1:])
    if handle.element_shape != np.shape(tensor)[1:]:
        raise ctx.needs_host(f"elements of shapes {handle.element_shape} and {np.shape(tensor)[1:]} in one list")
    return TensorList(jnp.asarray(handle.elements).at[indices].set(tensor), handle.length, handle.dtype)


@TensorListScatterIntoExistingList.host_kernel
def _(handle: Any, tensor: Any, indices: Any, *, ctx: Any) -> TensorList:
    _check_index(ctx, indices, handle.length)
    elements = list(handle.to_host().elements)
    for index, row in zip(indices, tensor, strict=True):
        elements[int(index)] = row
    return TensorList(elements, handle.length, handle.dtype)


@TensorListScatterIntoExistingList.gradient
def _(op: Operation, grad: Any) -> Any:
    _, tensor, indices = op.inputs
    found = as_list_gradient(grad, op.outputs[0])
    kept = TensorListScatterIntoExistingList(found, raw.ZerosLike(tensor), indices)
    return kept, TensorListGather(found, indices, _tail_shape(tensor), element_dtype=tensor.dtype), None


TensorListScatterV2 = define_op(
    "TensorListScatterV2",
    "tensor: element_dtype, indices: int32, element_shape: shape_type, num_elements: int32 -> output_handle: variant",
    f"element_dtype: any, {_SHAPE}",
    static=("num_elements",),
)
TensorListScatterV2.shape(_list_shape)


@TensorListScatterV2.kernel
def _(tensor: Any, indices: Any, shape: Any, num_elements: Any, *, ctx: Any) -> TensorList:
    length = int(np.asarray(num_elements))
    if length < 0:
        if not isinstance(indices, np.ndarray):
            raise ctx.needs_host("the indices decide the length of the list")
        length = int(indices.max(initial=-1)) + 1
    _check_index(ctx, indices, length)
    elements = jnp.zeros((length, *tensor.shape[1:]), tensor.dtype).at[indices].set(tensor)
    return TensorList(elements, length, tensor.dtype)


@TensorListScatterV2.host_kernel
def _(tensor: Any, indices: Any, shape: Any, num_elements: Any, *, ctx: Any) -> TensorList:
    length = int(num_elements)
    length = int(indices.max(initial=-1)) + 1 if length < 0 else length
    _check_index(ctx, indices, length)
    elements: list[Any] = [None] * length
    for index, row in zip(indices, tensor, strict=True):
        elements[int(index)] = row
    return TensorList(elements, length, tensor.dtype)


@TensorListScatterV2.gradient
def _(op: Operation, grad: Any) -> Any:
    tensor, indices = op.inputs[:2]
    found = as_list_gradient(grad, op.outputs[0])
    return TensorListGather(found, indices, _tail_shape(tensor), element_dtype=tensor.dtype), None, None, None


# ---------------------------------------------------------------------- pieces of different lengths
TensorListSplit = define_op(
    "TensorListSplit",
    "tensor: element_dtype, element_shape: shape_type, lengths: int64 -> output_handle: variant",
    f"element_dtype: any, {_SHAPE}",
    static=("lengths",),
)
TensorListSplit.shape(_list_shape)


@TensorListSplit.kernel
def _(tensor: Any, shape: Any, lengths: Any, *, ctx: Any) -> TensorList:
    total = int(lengths.sum())
    ctx.check(total == tensor.shape[0], f"the lengths sum to {total}, the tensor has {tensor.shape[0]} rows")
    if len(set(lengths.tolist())) > 1:
        raise ctx.needs_host("a list of elements of different lengths")
    rows = int(lengths[0]) if len(lengths) else 0
    return TensorList(jnp.reshape(tensor, (len(lengths), rows, *tensor.shape[1:])), len(lengths), tensor.dtype)


@TensorListSplit.host_kernel
def _(tensor: Any, shape: Any, lengths: Any, *, ctx: Any) -> TensorList:
    total = int(lengths.sum())
    ctx.check(total == tensor.shape[0], f"the lengths sum to {total}, the tensor has {tensor.shape[0]} rows")
    return TensorList(np.split(tensor, np.cumsum(lengths)[:-1]) if len(lengths) else [], len(lengths), tensor.dtype)


@TensorListSplit.gradient
def _(op: Operation, grad: Any) -> Any:
    tensor, _, lengths = op.inputs
    found = as_list_gradient(grad, op.outputs[0])
    # what nobody read of the list has no gradient yet: zeros make its shape known
    filled = TensorListAdd(found, TensorListZerosLike(op.outputs[0]))
    joined = TensorListConcatV2(filled, -1, lengths, element_dtype=tensor.dtype).tensor
    joined.set_shape(tensor.shape)
    return joined, None, None


TensorListConcatV2 = define_op(
    "TensorListConcatV2",
    "input_handle: variant, element_shape: shape_type, leading_dims: int64 -> tensor: element_dtype, lengths: int64",
    f"element_dtype: any, {_SHAPE}",
)


@TensorListConcatV2.shape
def _(handle: TensorShape, shape: TensorShape, dims: TensorShape, *, ctx: Any) -> tuple[TensorShape, TensorShape]:
    element = _described(ctx)
    rows = TensorShape(None) if element.ndims is None else TensorShape([None]).concatenate(element[1:])
    return rows, TensorShape([None])


@TensorListConcatV2.kernel
def _(handle: Any, shape: Any, dims: Any, *, ctx: Any) -> Any:
    if handle.elements is None:
        known = _known_shape(shape) if isinstance(shape, np.ndarray) else None
        ctx.check(known is not None, "nothing was written into the list that is concatenated")
        handle = handle.of_shape(known)
    elements = jnp.asarray(handle.elements)
    ctx.check(elements.ndim > 1, "scalars cannot be concatenated; use stack()")
    lengths = np.full(handle.length, elements.shape[1], np.int64)
    return elements.reshape(-1, *elements.shape[2:]), lengths


@TensorListConcatV2.host_kernel
def _(handle: Any, shape: Any, dims: Any, *, element_dtype: Any, ctx: Any) -> Any:
    handle = handle.to_host()
    items = [np.asarray(handle.item(i, shape)) for i in range(handle.length)]
    ctx.check(all(item.ndim for item in items), "scalars cannot be concatenated; use stack()")
    joined = np.concatenate(items) if items else np.zeros((0,), element_dtype.as_numpy_dtype)
    return joined, np.array([len(item) for item in items], np.int64)


@TensorListConcatV2.gradient
def _(op: Operation, grad: Any, _: Any) -> Any:
    return TensorListSplit(convert_to_tensor(grad), -1, op.outputs[1]), None, None


# ---------------------------------------------------------------------- sums
TensorListAdd = define_op("_TensorListAdd", "a: variant, b: variant -> sum: variant")
TensorListAdd.shape(_list_shape)


@TensorListAdd.kernel
def _(a: Any, b: Any, *, ctx: Any) -> TensorList:
    if None not in (a.element_shape, b.element_shape) and a.shape != b.shape:
        raise ctx.needs_host("lists of elements of different shapes are added")
    return a + b  # type: ignore[no-any-return]


@TensorListAdd.host_kernel
def _(a: Any, b: Any) -> TensorList:
    return a + b  # type: ignore[no-any-return]


@TensorListAdd.gradient
def _(op: Operation, grad: Any) -> Any:
    return grad, grad


TensorListAddItems = define_op(
    "_TensorListAddItems",
    "list: variant, indices: Tindices, values: element_dtype -> sum: variant",
    "element_dtype: any, Tindices: {int32, int64}",
)
TensorListAddItems.shape(_list_shape)


@TensorListAddItems.kernel
def _(handle: Any, indices: Any, values: Any, *, ctx: Any) -> TensorList:
    handle = handle.of_shape(np.shape(values)[1:])
    if handle.element_shape != np.shape(values)[1:]:
        raise ctx.needs_host("elements of different shapes are added to a list")
    return TensorList(jnp.asarray(handle.elements).at[indices].add(values), handle.length, handle.dtype)


@TensorListAddItems.host_kernel
def _(handle: Any, indices: Any, values: Any) -> TensorList:
    elements = list(handle.to_host().elements)
    for index, row in zip(indices, values, strict=True):
        old = elements[int(index)]
        elements[int(index)] = row if old is None else old + row
    return TensorList(elements, handle.length, handle.dtype)


@TensorListAddItems.gradient
def _(op: Operation, grad: Any) -> Any:
    _, indices, values = op.inputs
    found = as_list_gradient(grad, op.outputs[0])
    positions = indices if indices.dtype is dtypes.int32 else raw.Cast(indices, DstT=dtypes.int32)
    return found, None, TensorListGather(found, positions, _tail_shape(values), element_dtype=values.dtype)


TensorListZeros = define_op("_TensorListZeros", "like: variant -> zeros: variant", shape_valued=True)
TensorListZeros.not_differentiable()
TensorListZeros.shape(_list_shape)


@TensorListZeros.kernel
def _(like: Any) -> Any:
    return like.zeros()


@TensorListZeros.host_kernel
def _(like: Any) -> Any:
    return like.zeros()


TensorListZerosLike = define_op("_TensorListZerosLike", "like: variant -> zeros: variant", shape_valued=True)
TensorListZerosLike.not_differentiable()
TensorListZerosLike.shape(_list_shape)


@TensorListZerosLike.kernel
def _(like: Any) -> TensorList:
    return jax.tree.map(jnp.zeros_like, like)  # type: ignore[no-any-return]


@TensorListZerosLike.host_kernel
def _(like: Any) -> TensorList:
    elements = [None if e is None else np.zeros_like(e) for e in like.to_host().elements]
    return TensorList(elements, like.length, like.dtype)


def as_list_gradient(grad: Any, like: Tensor) -> Tensor:
    """The gradient of a list as a list: the elements of IndexedSlices are added to a list of zeros."""
    if isinstance(grad, IndexedSlices):
        return TensorListAddItems(TensorListZeros(like), grad.indices, grad.values)  # type: ignore[no-any-return]
    tensor: Tensor = grad
    return tensor
