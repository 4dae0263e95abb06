"""Lists of tensors as values: what `TensorArray` is made of, and what loops record for their gradients  (§3.4, WP4.5).

Every operation gives a new list; the compiler updates dense lists in place where the old one is not used any more.
See `ops.lists.values` for the two forms of a list. Elements that were never written are zeros. Here stand new lists,
sizes and sums; `ops.lists.items` has the operations on one element, `ops.lists.rows` those on many.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.composite import Gradient, IndexedSlices
from anabranch.graph.constants import ShapeContext
from anabranch.graph.kernel_contexts import StepTracingContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.ops.known_shapes import tail_shape
from anabranch.ops.lists.values import Declared, TensorList, check_element_shape, sum_of_lists, unwritten

#: the attribute of operations that take the shape of elements
SHAPE_ATTR = "shape_type: {int32, int64}"
_SCALAR = TensorShape([])


def list_shape(*_: TensorShape | list[TensorShape]) -> TensorShape:
    """The shape of a list as a tensor: that of a scalar."""
    return _SCALAR


def described_shape(ctx: ShapeContext) -> TensorShape:
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
    f"element_dtype: any, {SHAPE_ATTR}",
    static=("element_shape", "num_elements"),
)
TensorListReserve.not_differentiable()
TensorListReserve.shape(list_shape)


@TensorListReserve.kernel
def _(shape: Array, num_elements: Array, *, element_dtype: DType, ctx: OperationContext) -> TensorList:
    length = list_length(ctx, num_elements)
    made = TensorList(None, length, element_dtype.as_numpy_dtype, Declared.by(shape))
    known = made.known_shape(None)
    return made if known is None or made.dtype == np.object_ else made.of_shape(known)


@TensorListReserve.host_kernel
def _(shape: Array, num_elements: Array, *, element_dtype: DType, ctx: OperationContext) -> TensorList:
    length = list_length(ctx, num_elements)
    return TensorList(unwritten(length), length, element_dtype.as_numpy_dtype, Declared.by(shape))


def list_length(ctx: OperationContext, value: Array) -> int:
    length = int(np.asarray(value))
    ctx.check(length >= 0, f"the number of elements of a list must not be negative, it is {length}")
    return length


EmptyTensorList = define_op(
    "EmptyTensorList",
    "element_shape: shape_type, max_num_elements: int32 -> handle: variant",
    f"element_dtype: any, {SHAPE_ATTR}",
    static=("max_num_elements",),
    ranks={"max_num_elements": 0},
)
EmptyTensorList.not_differentiable()
EmptyTensorList.shape(list_shape)


@EmptyTensorList.host_kernel
def _(shape: Array, max_num_elements: Array, *, element_dtype: DType) -> TensorList:
    return TensorList([], 0, element_dtype.as_numpy_dtype, Declared.by(shape, _limit(max_num_elements)))


@EmptyTensorList.kernel
def _(shape: Array, max_num_elements: Array, *, element_dtype: DType) -> TensorList:
    return TensorList(None, 0, element_dtype.as_numpy_dtype, Declared.by(shape, _limit(max_num_elements)))


def _limit(max_num_elements: Array) -> int | None:
    """How many elements a list grows to; a negative number stands for any."""
    limit = int(np.asarray(max_num_elements))
    return None if limit < 0 else limit


TensorListFromTensor = define_op(
    "TensorListFromTensor",
    "tensor: element_dtype, element_shape: shape_type -> output_handle: variant",
    f"element_dtype: any, {SHAPE_ATTR}",
)
TensorListFromTensor.shape(list_shape)


@TensorListFromTensor.kernel
def _(tensor: Array, shape: Array) -> TensorList:
    check_element_shape(shape, tensor.shape[1:])
    return TensorList(jnp.asarray(tensor), tensor.shape[0], tensor.dtype, Declared.by(shape))


@TensorListFromTensor.host_kernel
def _(tensor: Array, shape: Array) -> TensorList:
    check_element_shape(shape, tensor.shape[1:])
    return TensorList(list(tensor), tensor.shape[0], tensor.dtype, Declared.by(shape))


@TensorListFromTensor.gradient
def _(op: Operation, grad: Gradient) -> Any:
    tensor = op.inputs[0]
    list_grad = as_list_gradient(grad, op.outputs[0])
    return raw.TensorListStack(list_grad, tail_shape(tensor), element_dtype=tensor.dtype), None


# ---------------------------------------------------------------------- size and shape
TensorListLength = define_op("TensorListLength", "input_handle: variant -> length: int32", shape_valued=True)
TensorListLength.not_differentiable()
TensorListLength.shape(list_shape)


@TensorListLength.kernel
def _(handle: Array, *, xp: ArrayLibrary) -> Any:
    return np.int32(handle.length)


TensorListElementShape = define_op(
    "TensorListElementShape", "input_handle: variant -> element_shape: shape_type", SHAPE_ATTR, shape_valued=True
)
TensorListElementShape.not_differentiable()


@TensorListElementShape.shape
def _(handle: TensorShape) -> TensorShape:
    return TensorShape(None)


@TensorListElementShape.kernel
def _(handle: Array, *, shape_type: DType, xp: ArrayLibrary) -> Any:
    if handle.declared is not None:
        shape = handle.declared.dims
    elif handle.on_host:
        shape = next((np.shape(e) for e in handle.elements if e is not None), None)
    else:
        shape = handle.element_shape
    dims = -1 if shape is None else [-1 if d is None else d for d in shape]
    return np.array(dims, shape_type.as_numpy_dtype)


TensorListResize = define_op(
    "TensorListResize", "input_handle: variant, size: int32 -> output_handle: variant", static=("size",)
)
TensorListResize.shape(list_shape)


def resized(handle: TensorList, length: int) -> TensorList:
    """A list of another length: elements are dropped at the end, or unwritten ones added."""
    if handle.on_host:
        kept = handle.elements[:length]
        return handle.replaced([*kept, *unwritten(length - len(kept))], length)
    if handle.elements is None or length == handle.length:
        return handle.replaced(handle.elements, length)
    kept = handle.elements[:length]
    padding = jnp.zeros((length - kept.shape[0], *kept.shape[1:]), kept.dtype)
    return handle.replaced(jnp.concatenate([kept, padding]), length)


@TensorListResize.kernel
def _(handle: Array, size: Array, *, ctx: OperationContext) -> TensorList:
    return resized(handle, list_length(ctx, size))


@TensorListResize.host_kernel
def _(handle: Array, size: Array, *, ctx: OperationContext) -> TensorList:
    return resized(handle.to_host(), list_length(ctx, size))


@TensorListResize.gradient
def _(op: Operation, grad: Gradient) -> Any:
    list_grad = as_list_gradient(grad, op.outputs[0])
    return TensorListResize(list_grad, TensorListLength(op.inputs[0])), None


def check_index(ctx: OperationContext, index: Array, length: int, use: str = "read from") -> None:
    """Fails the step unless all indices are those of elements."""
    to_do = "access" if use == "read from" else "modify"
    ctx.check(
        (index >= 0) & (index < length),
        f"Tried to {use} index {{0}} but array size is: {length} (Trying to {to_do} element {{0}} in a list with "
        f"{length} elements.)",
        index,
    )


# ---------------------------------------------------------------------- sums
TensorListAdd = define_op("_TensorListAdd", "a: variant, b: variant -> sum: variant")
TensorListAdd.shape(list_shape)


@TensorListAdd.kernel
def _(a: Array, b: Array, *, ctx: StepTracingContext) -> TensorList:
    return sum_of_lists(a, b, ctx)


@TensorListAdd.host_kernel
def _(a: Array, b: Array) -> TensorList:
    return a + b  # type: ignore[no-any-return]


@TensorListAdd.gradient
def _(op: Operation, grad: Gradient) -> Any:
    return grad, grad


TensorListAddItems = define_op(
    "_TensorListAddItems",
    "list: variant, indices: Tindices, values: element_dtype -> sum: variant",
    "element_dtype: any, Tindices: {int32, int64}",
)
TensorListAddItems.shape(list_shape)


@TensorListAddItems.kernel
def _(handle: TensorList, indices: Array, values: Array, *, ctx: StepTracingContext) -> TensorList:
    handle = handle.of_shape(np.shape(values)[1:])
    if handle.element_shape != np.shape(values)[1:]:
        raise ctx.needs_host("elements of different shapes are added to a list")
    return handle.replaced(jnp.asarray(handle.elements).at[indices].add(values))


@TensorListAddItems.host_kernel
def _(handle: TensorList, indices: Array, values: Array, *, ctx: OperationContext) -> TensorList:
    elements = list(handle.to_host().elements)
    for index, row in zip(indices, values, strict=True):
        elements[int(index)] = _with_added(elements[int(index)], row, int(index), ctx)
    return handle.replaced(elements)


def _with_added(old: Array, row: Array, index: int, ctx: OperationContext) -> Any:
    """An element with `row` added to it; one that was not written to is zero, of whatever shape."""
    if old is None or (np.shape(old) != np.shape(row) and not np.any(old)):
        return row
    if np.shape(old) != np.shape(row):
        raise InvalidArgumentError(
            None,
            ctx.op,
            f"Could not aggregate to TensorArray index {index} because the existing shape is {list(np.shape(old))} but "
            f"the new input shape is {list(np.shape(row))}",
        )
    return old + row


@TensorListAddItems.gradient
def _(op: Operation, grad: Gradient) -> Any:
    _, indices, values = op.inputs
    list_grad = as_list_gradient(grad, op.outputs[0])
    positions = indices if indices.dtype is dtypes.int32 else raw.Cast(indices, DstT=dtypes.int32)
    return list_grad, None, raw.TensorListGather(list_grad, positions, tail_shape(values), element_dtype=values.dtype)


TensorListZeros = define_op("_TensorListZeros", "like: variant -> zeros: variant", shape_valued=True)
TensorListZeros.not_differentiable()
TensorListZeros.shape(list_shape)


@TensorListZeros.kernel
def _(like: Array) -> Any:
    return like.zeros()


@TensorListZeros.host_kernel
def _(like: Array) -> Any:
    return like.zeros()


TensorListZerosLike = define_op("_TensorListZerosLike", "like: variant -> zeros: variant", shape_valued=True)
TensorListZerosLike.not_differentiable()
TensorListZerosLike.shape(list_shape)


@TensorListZerosLike.kernel
def _(like: Array) -> TensorList:
    return like.zeroed()  # type: ignore[no-any-return]


@TensorListZerosLike.host_kernel
def _(like: Array) -> TensorList:
    return like.to_host().zeroed()  # type: ignore[no-any-return]


def as_list_gradient(grad: Gradient, like: Tensor) -> Tensor:
    """The gradient of a list as a list: the elements of IndexedSlices are added to a list of zeros."""
    if isinstance(grad, IndexedSlices):
        return TensorListAddItems(TensorListZeros(like), grad.indices, grad.values)  # type: ignore[no-any-return]
    return grad
