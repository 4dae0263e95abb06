"""Many elements of a list of tensors at a time, as rows of one tensor or as pieces of it  (§3.4, WP4.5).

See `ops.lists.tensor_list`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, boxed
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
from anabranch.ops import raw, shape_rules
from anabranch.ops.known_shapes import tail_shape
from anabranch.ops.lists.tensor_list import (
    SHAPE_ATTR,
    TensorListAdd,
    TensorListFromTensor,
    TensorListLength,
    TensorListResize,
    TensorListZerosLike,
    as_list_gradient,
    check_index,
    described_shape,
    list_shape,
    resized,
)
from anabranch.ops.lists.values import Declared, TensorList, check_element_shape, stated_shape, unwritten

# ---------------------------------------------------------------------- all elements
TensorListStack = define_op(
    "TensorListStack",
    "input_handle: variant, element_shape: int32 -> tensor: element_dtype",
    "element_dtype: any, num_elements: int = -1",
    static=("element_shape",),
)


@TensorListStack.shape
def _(handle: TensorShape, shape: TensorShape, *, num_elements: int, ctx: ShapeContext) -> TensorShape:
    count = TensorShape([None if num_elements < 0 else num_elements])
    return count.concatenate(described_shape(ctx))


@TensorListStack.kernel
def _(handle: Array, shape: Array, *, element_dtype: DType, num_elements: int, ctx: StepTracingContext) -> Any:
    ctx.check(num_elements in (-1, handle.length), f"{num_elements} elements expected, the list has {handle.length}")
    if handle.of_type(ctx).elements is not None:
        check_element_shape(shape, handle.element_shape)
        return jnp.asarray(handle.elements)
    known = handle.known_shape(shape)
    known = handle.known_shape(ctx.output_shape()[1:]) if known is None else known
    if known is None:  # an error only where it runs: a branch may not be taken
        raise ctx.needs_host("the shape of the elements of an empty list is not known")
    return jnp.zeros((handle.length, *known), element_dtype.as_numpy_dtype)


@TensorListStack.host_kernel
def _(handle: Array, shape: Array, *, element_dtype: DType, num_elements: int, ctx: OperationContext) -> Any:
    ctx.check(num_elements in (-1, handle.length), f"{num_elements} elements expected, the list has {handle.length}")
    if handle.of_type(ctx).length == 0:
        stated = [known for known in map(handle.known_shape, (shape, ctx.output_shape()[1:])) if known is not None]
        ctx.check(
            bool(stated),
            f"Tried to stack elements of an empty list with non-fully-defined element_shape: "
            f"{handle.merged_shape(shape)}",
        )
        return np.zeros((0, *stated[0]), element_dtype.as_numpy_dtype)
    return _stacked(handle.to_host(), range(handle.length), shape, ctx)


def _stacked(handle: TensorList, indices: Array, shape: TensorShape | TensorValue, ctx: OperationContext) -> Any:
    items = [np.asarray(item) for item in handle.items([int(i) for i in indices], shape)]
    shapes = sorted({item.shape for item in items})
    ctx.check(len(shapes) <= 1, f"elements of different shapes cannot be stacked: {shapes[:4]}; use concat()")
    if shapes:
        check_element_shape(shape, shapes[0])
    return np.stack(items) if items else np.zeros((0, *(handle.known_shape(shape) or ())), handle.dtype)


@TensorListStack.gradient
def _(op: Operation, grad: Gradient) -> Any:
    return TensorListFromTensor(convert_to_tensor(grad), tail_shape(op.outputs[0])), None


TensorListGather = define_op(
    "TensorListGather",
    "input_handle: variant, indices: int32, element_shape: int32 -> values: element_dtype",
    "element_dtype: any",
)


@TensorListGather.shape
def _(handle: TensorShape, indices: TensorShape, shape: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    return indices.with_rank(1).concatenate(described_shape(ctx))


@TensorListGather.kernel
def _(handle: Array, indices: Array, shape: Array, *, element_dtype: DType, ctx: OperationContext) -> Any:
    check_index(ctx, indices, handle.length)
    if handle.of_type(ctx).elements is not None and handle.length:
        check_element_shape(shape, handle.element_shape)
        return jnp.take(jnp.asarray(handle.elements), indices, axis=0, mode="clip")
    known = handle.known_shape(shape)
    known = handle.known_shape(ctx.output_shape()[1:]) if known is None else known
    ctx.check(known is not None, "nothing was written into the list that is gathered from")
    return jnp.zeros((indices.shape[0], *(known or ())), element_dtype.as_numpy_dtype)


@TensorListGather.host_kernel
def _(handle: Array, indices: Array, shape: Array, *, ctx: OperationContext) -> Any:
    check_index(ctx, indices, handle.length)
    return _stacked(handle.of_type(ctx).to_host(), indices, shape, ctx)


@TensorListGather.gradient
def _(op: Operation, grad: Gradient) -> Any:
    return IndexedSlices(convert_to_tensor(grad), op.inputs[1]), None, None


#: an attribute of an operation that writes to a list which must not become longer
FIXED_SIZE = "_fixed_size"

TensorListScatterIntoExistingList = define_op(
    "TensorListScatterIntoExistingList",
    "input_handle: variant, tensor: element_dtype, indices: int32 -> output_handle: variant",
    "element_dtype: any",
    ranks={"indices": 1},
)


def scattered_shape(tensor: TensorShape, indices: TensorShape) -> TensorShape:
    """Of a list of the rows of `tensor`, one for each of `indices`."""
    rows, count = tensor.with_rank_at_least(1), shape_rules.with_rank(indices, 1, "indices")
    if not rows[:1].is_compatible_with(count):
        raise ValueError(f"Expected len(indices) == tensor.shape[0], but saw: {count[0]} and {rows[0]}")
    return list_shape()


@TensorListScatterIntoExistingList.shape
def _(handle: TensorShape, tensor: TensorShape, indices: TensorShape) -> TensorShape:
    return scattered_shape(tensor, indices)


def _with_room(handle: TensorList, indices: Array, ctx: OperationContext) -> TensorList:
    """The list, lengthened to the greatest index that is written to, unless it is that of an array of fixed size."""
    if FIXED_SIZE not in ctx.op.attrs:
        handle = resized(handle, max(handle.length, int(np.max(indices, initial=-1)) + 1))
    check_index(ctx, indices, handle.length, "write to")
    return handle


@TensorListScatterIntoExistingList.kernel
def _(handle: TensorList, tensor: Array, indices: Array, *, ctx: StepTracingContext) -> TensorList:
    if FIXED_SIZE not in ctx.op.attrs and not isinstance(indices, np.ndarray):
        raise ctx.needs_host("a list grows with indices that only the device knows")
    handle = _with_room(handle, indices, ctx).of_type(ctx).of_shape(np.shape(tensor)[1:])
    if handle.element_shape != np.shape(tensor)[1:]:
        raise ctx.needs_host(f"elements of shapes {handle.element_shape} and {np.shape(tensor)[1:]} in one list")
    return handle.replaced(jnp.asarray(handle.elements).at[indices].set(tensor))


@TensorListScatterIntoExistingList.host_kernel
def _(handle: TensorList, tensor: Array, indices: Array, *, ctx: OperationContext) -> TensorList:
    handle = _with_room(handle.to_host(), indices, ctx)
    elements = list(handle.of_type(ctx).elements)
    for index, row in zip(indices, tensor, strict=True):
        elements[int(index)] = row
    return handle.replaced(elements)


@TensorListScatterIntoExistingList.gradient
def _(op: Operation, grad: Gradient) -> Any:
    _, tensor, indices = op.inputs
    list_grad = as_list_gradient(grad, op.outputs[0])
    kept = convert_to_tensor(TensorListScatterIntoExistingList(list_grad, raw.ZerosLike(tensor), indices))
    kept.op._set_attr(FIXED_SIZE, True)
    if FIXED_SIZE not in op.attrs:
        kept = TensorListResize(kept, TensorListLength(op.inputs[0]))
    return kept, TensorListGather(list_grad, indices, tail_shape(tensor), element_dtype=tensor.dtype), None


TensorListScatterV2 = define_op(
    "TensorListScatterV2",
    "tensor: element_dtype, indices: int32, element_shape: shape_type, num_elements: int32 -> output_handle: variant",
    f"element_dtype: any, {SHAPE_ATTR}",
    static=("num_elements",),
)


@TensorListScatterV2.late_shape
def _(tensor: TensorShape, indices: TensorShape, shape: TensorShape, num_elements: TensorShape) -> TensorShape:
    return scattered_shape(tensor, indices)


def _scattered_length(num_elements: Array, ctx: OperationContext) -> int:
    """How many elements the list has; -1: as many as the largest index says."""
    length = int(np.asarray(num_elements))
    ctx.check(length >= -1, f"TensorListScatter expects num_elements >= -1, found: {length}")
    return length


@TensorListScatterV2.kernel
def _(tensor: Array, indices: Array, shape: Array, num_elements: Array, *, ctx: StepTracingContext) -> TensorList:
    return scattered(tensor, indices, shape, _scattered_length(num_elements, ctx), ctx)


def scattered(tensor: Array, indices: Array, shape: Array, length: int, ctx: StepTracingContext) -> TensorList:
    """A list with rows at some places, in a compiled program; of length -1: as long as the largest index says."""
    if length < 0:
        if not isinstance(indices, np.ndarray):
            raise ctx.needs_host("the indices decide the length of the list")
        length = int(indices.max(initial=-1)) + 1
    check_element_shape(shape, tensor.shape[1:])
    check_index(ctx, indices, length, "write to")
    elements = jnp.zeros((length, *tensor.shape[1:]), tensor.dtype).at[indices].set(tensor)
    return TensorList(elements, length, tensor.dtype, Declared.by(shape))


@TensorListScatterV2.host_kernel
def _(tensor: Array, indices: Array, shape: Array, num_elements: Array, *, ctx: OperationContext) -> TensorList:
    return scattered_on_host(tensor, indices, shape, _scattered_length(num_elements, ctx), ctx)


def scattered_on_host(tensor: Array, indices: Array, shape: Array, length: int, ctx: OperationContext) -> TensorList:
    """The same on the host."""
    length = int(indices.max(initial=-1)) + 1 if length < 0 else length
    check_element_shape(shape, tensor.shape[1:])
    check_index(ctx, indices, length, "write to")
    elements = unwritten(length)
    for index, row in zip(indices, tensor, strict=True):
        elements[int(index)] = row
    return TensorList(elements, length, tensor.dtype, Declared.by(shape))


@TensorListScatterV2.gradient
def _(op: Operation, grad: Gradient) -> Any:
    tensor, indices = op.inputs[:2]
    list_grad = as_list_gradient(grad, op.outputs[0])
    return TensorListGather(list_grad, indices, tail_shape(tensor), element_dtype=tensor.dtype), None, None, None


# ---------------------------------------------------------------------- pieces of different lengths
TensorListSplit = define_op(
    "TensorListSplit",
    "tensor: element_dtype, element_shape: shape_type, lengths: int64 -> output_handle: variant",
    f"element_dtype: any, {SHAPE_ATTR}",
    static=("lengths",),
)
TensorListSplit.shape(list_shape)


def _check_lengths(lengths: Array, tensor: Array, ctx: OperationContext) -> None:
    """Fails the step unless the rows of pieces of these lengths are those of the tensor."""
    if lengths.ndim != 1:
        raise ValueError(f"Expected lengths to be a vector, received shape: {list(lengths.shape)}")
    total = int(lengths.sum())
    ctx.check(lengths.min(initial=0) >= 0, f"the lengths must not be negative, got {lengths.tolist()}")
    ctx.check(
        total == tensor.shape[0],
        f"Expected sum of lengths to be equal to values.shape[0], but sum of lengths is {total} and value's shape is: "
        f"{list(tensor.shape)} (Unused values in tensor. Length of tensor: {tensor.shape[0]} Values used: {total})",
    )


@TensorListSplit.kernel
def _(tensor: Array, shape: Array, lengths: Array, *, ctx: StepTracingContext) -> TensorList:
    _check_lengths(lengths, tensor, ctx)
    if len(set(lengths.tolist())) > 1:
        raise ctx.needs_host("a list of elements of different lengths")
    rows = int(lengths[0]) if len(lengths) else 0
    check_element_shape(stated_shape(shape)[1:], tensor.shape[1:])
    pieces = jnp.reshape(tensor, (len(lengths), rows, *tensor.shape[1:]))
    return TensorList(pieces, len(lengths), tensor.dtype, Declared.by(shape))


@TensorListSplit.host_kernel
def _(tensor: Array, shape: Array, lengths: Array, *, ctx: OperationContext) -> TensorList:
    _check_lengths(lengths, tensor, ctx)
    check_element_shape(stated_shape(shape)[1:], tensor.shape[1:])
    pieces = np.split(tensor, np.cumsum(lengths)[:-1]) if len(lengths) else []
    return TensorList(pieces, len(lengths), tensor.dtype, Declared.by(shape))


@TensorListSplit.gradient
def _(op: Operation, grad: Gradient) -> Any:
    tensor, _, lengths = op.inputs
    list_grad = as_list_gradient(grad, op.outputs[0])
    # what nobody read of the list has no gradient yet: zeros make its shape known
    filled = TensorListAdd(list_grad, TensorListZerosLike(op.outputs[0]))
    joined = TensorListConcatV2(filled, -1, lengths, element_dtype=tensor.dtype).tensor
    joined.set_shape(tensor.shape)
    return joined, None, None


TensorListConcatV2 = define_op(
    "TensorListConcatV2",
    "input_handle: variant, element_shape: shape_type, leading_dims: int64 -> tensor: element_dtype, lengths: int64",
    f"element_dtype: any, {SHAPE_ATTR}",
)


@TensorListConcatV2.shape
def _(
    handle: TensorShape, shape: TensorShape, dims: TensorShape, *, ctx: ShapeContext
) -> tuple[TensorShape, TensorShape]:
    element = described_shape(ctx)
    rows = TensorShape(None) if element.ndims is None else TensorShape([None]).concatenate(element[1:])
    return rows, TensorShape([None])


def _no_rows(handle: TensorList, shape: TensorShape | TensorValue, ctx: OperationContext) -> Any:
    """What the elements of an empty list are together, where their shape but for the first length is known."""
    handle.of_type(ctx)
    wanted = handle.merged_shape(shape)
    rows = wanted[1:] if wanted.ndims else TensorShape(None)
    ctx.check(
        rows.is_fully_defined(),
        f"the elements of the list that is concatenated, of which there are none, have shape {wanted}",
    )
    return np.zeros((0, *rows.sizes()), handle.dtype)


def _check_pieces(handle: TensorList, stated: TensorShape | TensorValue, shapes: Sequence[Any]) -> None:
    """Raises ValueError unless elements have the shape that the input states, or all are declared with one shape."""
    wanted = handle.merged_shape(stated)
    if handle.declared is None or not handle.declared.shape.is_fully_defined():
        for shape in shapes:
            check_element_shape(wanted, shape)


_SCALARS = "Concat saw a scalar shape at index 0 but requires at least vectors; use stack()"


@TensorListConcatV2.kernel
def _(handle: Array, shape: Array, dims: Array, *, ctx: OperationContext) -> Any:
    return joined_rows(handle, shape, ctx)


def joined_rows(handle: TensorList, shape: TensorShape | TensorValue, ctx: OperationContext) -> Any:
    """The elements of a list one after the other, and how many rows each has, in a compiled program."""
    if handle.length == 0:
        return _no_rows(handle, shape, ctx), np.zeros((0,), np.int64)
    known = handle.of_type(ctx).known_shape(shape)
    if handle.elements is None:
        ctx.check(known is not None, "nothing was written into the list that is concatenated")
        handle = handle.of_shape(known or ())
    _check_pieces(handle, shape, [handle.element_shape])
    elements = jnp.asarray(handle.elements)
    ctx.check(elements.ndim > 1, _SCALARS)
    lengths = np.full(handle.length, elements.shape[1], np.int64)
    return elements.reshape(-1, *elements.shape[2:]), lengths


@TensorListConcatV2.host_kernel
def _(handle: Array, shape: Array, dims: Array, *, ctx: OperationContext) -> Any:
    return joined_rows_on_host(handle, shape, ctx)


def joined_rows_on_host(handle: TensorList, shape: TensorShape | TensorValue, ctx: OperationContext) -> Any:
    """The same on the host, where elements may have different numbers of rows."""
    if handle.length == 0:
        return _no_rows(handle, shape, ctx), np.zeros((0,), np.int64)
    handle = handle.of_type(ctx).to_host()
    items = [np.asarray(item) for item in handle.items(range(handle.length), shape)]
    ctx.check(all(item.ndim for item in items), _SCALARS)
    _check_pieces(handle, shape, [item.shape for item in items])
    ranks = [item.ndim for item in items]
    ctx.check(len(set(ranks)) == 1, f"Incompatible ranks: the elements that are concatenated have the ranks {ranks}")
    joined = np.concatenate(items)
    return joined, np.array([len(item) for item in items], np.int64)


@TensorListConcatV2.gradient
def _(op: Operation, grad: Tensor | None, _: Tensor | None) -> Any:
    return TensorListSplit(convert_to_tensor(grad), -1, op.outputs[1]), None, None


# ---------------------------------------------------------------------- a row for each of several lists
TensorListPushBackBatch = define_op(
    "TensorListPushBackBatch",
    "input_handles: variant, tensor: element_dtype -> output_handles: variant",
    "element_dtype: any",
)
TensorListPushBackBatch.not_differentiable()


@TensorListPushBackBatch.shape
def _(handles: TensorShape, tensor: TensorShape) -> TensorShape:
    if handles.ndims is None or tensor.ndims is None:
        return handles
    if tensor.ndims < handles.ndims or not tensor[: handles.ndims].is_compatible_with(handles):
        raise ValueError(f"Shapes must be equal: the lists are {handles}, and the first dimensions of {tensor} are not")
    return tensor[: handles.ndims].merge_with(handles)


@TensorListPushBackBatch.host_kernel
def _(handles: Array, tensor: Array, *, ctx: OperationContext) -> Any:
    lists, rows = as_batch(handles), np.asarray(tensor)
    fits = rows.shape[: lists.ndim] == lists.shape
    ctx.check(fits, f"Invalid shape of {list(rows.shape)}: its first dimensions must be those of the lists, "
              f"{list(lists.shape)}")  # fmt: skip
    longer = np.empty(lists.shape, np.object_)
    for at in np.ndindex(lists.shape) if fits else ():
        one = lists[at]
        ctx.check(isinstance(one, TensorList), f"a list of tensors is appended to, got {type(one).__name__}")
        one.check_room()
        one.of_type(ctx).check_item(rows[at].shape, "append")
        longer[at] = one.replaced([*one.to_host().elements, rows[at]], one.length + 1)
    return longer


def as_batch(handles: Array) -> Any:
    """Lists of tensors as an array of objects."""
    return handles if isinstance(handles, np.ndarray) else boxed(handles)
