"""Operations on lists of tensors that have newer versions, and lists one after the other  (§3.4, WP4.5).

See `ops.lists.tensor_list`.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.composite import Gradient
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.kernel_contexts import StepTracingContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops.known_shapes import tail_shape
from anabranch.ops.lists.rows import (
    TensorListGather,
    TensorListSplit,
    joined_rows,
    joined_rows_on_host,
    scattered,
    scattered_on_host,
    scattered_shape,
)
from anabranch.ops.lists.tensor_list import SHAPE_ATTR, as_list_gradient
from anabranch.ops.lists.values import TensorList, common_declaration

_AS_NEEDED = -1

TensorListScatter = define_op(
    "TensorListScatter",
    "tensor: element_dtype, indices: int32, element_shape: shape_type -> output_handle: variant",
    f"element_dtype: any, {SHAPE_ATTR}",
)


@TensorListScatter.late_shape
def _(tensor: TensorShape, indices: TensorShape, shape: TensorShape) -> TensorShape:
    return scattered_shape(tensor, indices)


@TensorListScatter.kernel
def _(tensor: Array, indices: Array, shape: Array, *, ctx: StepTracingContext) -> TensorList:
    return scattered(tensor, indices, shape, _AS_NEEDED, ctx)


@TensorListScatter.host_kernel
def _(tensor: Array, indices: Array, shape: Array, *, ctx: OperationContext) -> TensorList:
    return scattered_on_host(tensor, indices, shape, _AS_NEEDED, ctx)


@TensorListScatter.gradient
def _(op: Operation, grad: Gradient) -> Any:
    tensor, indices = op.inputs[:2]
    list_grad = as_list_gradient(grad, op.outputs[0])
    return TensorListGather(list_grad, indices, tail_shape(tensor), element_dtype=tensor.dtype), None, None


TensorListConcat = define_op(
    "TensorListConcat",
    "input_handle: variant -> tensor: element_dtype, lengths: int64",
    "element_dtype: any, element_shape: shape = unknown",
)


@TensorListConcat.shape
def _(handle: TensorShape, *, element_shape: TensorShape) -> tuple[TensorShape, TensorShape]:
    unknown = element_shape.ndims is None
    return TensorShape(None) if unknown else TensorShape([None]).concatenate(element_shape[1:]), TensorShape([None])


@TensorListConcat.kernel
def _(handle: Array, *, element_shape: TensorShape, ctx: OperationContext) -> Any:
    return joined_rows(handle, element_shape, ctx)


@TensorListConcat.host_kernel
def _(handle: Array, *, element_shape: TensorShape, ctx: OperationContext) -> Any:
    return joined_rows_on_host(handle, element_shape, ctx)


@TensorListConcat.gradient
def _(op: Operation, grad: Tensor | None, _: Tensor | None) -> Any:
    return TensorListSplit(convert_to_tensor(grad), -1, op.outputs[1])


TensorListConcatLists = define_op(
    "TensorListConcatLists", "input_a: variant, input_b: variant -> output: variant", "element_dtype: any"
)
TensorListConcatLists.shape(lambda input_a, input_b: input_a.merge_with(input_b))
TensorListConcatLists.not_differentiable()


@TensorListConcatLists.kernel
def _(input_a: TensorList, input_b: TensorList, *, ctx: StepTracingContext) -> TensorList:
    a, b = input_a.of_type(ctx), input_b.of_type(ctx)
    shapes = {a.element_shape, b.element_shape}
    if None in shapes or len(shapes) > 1 or isinstance(a.elements, TensorList):
        raise ctx.needs_host("lists of elements of different shapes are joined")
    joined = jnp.concatenate([jnp.asarray(a.elements), jnp.asarray(b.elements)])
    return _declared(a, b).replaced(joined, a.length + b.length)


@TensorListConcatLists.host_kernel
def _(input_a: TensorList | Array, input_b: TensorList | Array, *, ctx: OperationContext) -> Any:
    if isinstance(input_a, TensorList) and isinstance(input_b, TensorList):
        return _joined(input_a, input_b, ctx)
    a, b = np.asarray(input_a, object), np.asarray(input_b, object)
    if a.shape != b.shape:
        raise InvalidArgumentError(None, ctx.op, f"arrays of lists have shapes {a.shape} and {b.shape}")
    lists = np.empty(a.shape, object)
    for at in np.ndindex(a.shape):
        lists[at] = _joined(a[at], b[at], ctx)
    return lists


def _joined(input_a: TensorList, input_b: TensorList, ctx: OperationContext) -> TensorList:
    a, b = input_a.of_type(ctx).to_host(), input_b.of_type(ctx).to_host()
    return _declared(a, b).replaced([*a.elements, *b.elements], a.length + b.length)


def _declared(a: TensorList, b: TensorList) -> TensorList:
    """The first list, declared with what both are.

    Raises:
        ValueError: they are declared with different shapes.
    """
    if a.declared is not None and b.declared is not None:
        a.declared.shape.assert_is_compatible_with(b.declared.shape)
    return a.declared_as(common_declaration(a.declared, b.declared))
