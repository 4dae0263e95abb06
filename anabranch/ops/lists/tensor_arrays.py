"""Operations on tensor arrays that are changed in place, as graphs of TensorFlow 1 contain them  (§3.4, WP4.5).

`tf.TensorArray` does not use these: it is a value, made of the operations in `ops.lists.tensor_list`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, NoReturn

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError, UnimplementedError
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import shape_rules
from anabranch.state.tensor_array import InPlaceTensorArray


@dataclass(frozen=True, slots=True)
class TensorArrayHandle(ResourceHandle):
    """The handle of a tensor array holds the array itself: it lives as long as the step that made it."""

    array: InPlaceTensorArray = field(compare=False)


_numbers = itertools.count()


def _array(ctx: OperationContext, handle: Array) -> InPlaceTensorArray:
    if not isinstance(handle, TensorArrayHandle):
        raise InvalidArgumentError(None, ctx.op, f"{ctx.op.name!r} needs the handle of a tensor array, got {handle}")
    return handle.array


def _no_gradient(op: Operation, *_: Tensor | None) -> NoReturn:
    raise UnimplementedError(
        None,
        op,
        f"no gradient can be built through {op.name!r} ({op.type}), which changes an array in place, as an older "
        "program wrote it. Let that program write the gradient too, or use tf.TensorArray",
    )


def _defined(name: str, signature: str, attrs: str = "") -> OpFunction:
    op = define_op(name, signature, attrs, stateful=True)
    op.gradient(_no_gradient)
    return op


TensorArrayV3 = _defined(
    "TensorArrayV3",
    "size: int32 -> handle: resource, flow: float32",
    "dtype: any, element_shape: shape = unknown, dynamic_size: bool = False, clear_after_read: bool = True, "
    "identical_element_shapes: bool = False, tensor_array_name: string = ''",
)
TensorArrayGradV3 = _defined(
    "TensorArrayGradV3",
    "handle: resource, flow_in: float32 -> grad_handle: resource, flow_out: float32",
    "source: string",
)
TensorArrayWriteV3 = _defined(
    "TensorArrayWriteV3", "handle: resource, index: int32, value: T, flow_in: float32 -> flow_out: float32", "T: any"
)
TensorArrayReadV3 = _defined(
    "TensorArrayReadV3", "handle: resource, index: int32, flow_in: float32 -> value: dtype", "dtype: any"
)
TensorArrayGatherV3 = _defined(
    "TensorArrayGatherV3",
    "handle: resource, indices: int32, flow_in: float32 -> value: dtype",
    "dtype: any, element_shape: shape = unknown",
)
TensorArrayScatterV3 = _defined(
    "TensorArrayScatterV3",
    "handle: resource, indices: int32, value: T, flow_in: float32 -> flow_out: float32",
    "T: any",
)
TensorArrayConcatV3 = _defined(
    "TensorArrayConcatV3",
    "handle: resource, flow_in: float32 -> value: dtype, lengths: int64",
    "dtype: any, element_shape_except0: shape = unknown",
)
TensorArraySplitV3 = _defined(
    "TensorArraySplitV3", "handle: resource, value: T, lengths: int64, flow_in: float32 -> flow_out: float32", "T: any"
)
TensorArraySizeV3 = _defined("TensorArraySizeV3", "handle: resource, flow_in: float32 -> size: int32")
TensorArrayCloseV3 = _defined("TensorArrayCloseV3", "handle: resource ->")

_SCALAR = TensorShape([])
for _op in (TensorArrayV3, TensorArrayGradV3):
    _op.shape(lambda *_: (_SCALAR, _SCALAR))
for _op in (TensorArrayWriteV3, TensorArrayScatterV3, TensorArraySplitV3, TensorArraySizeV3):
    _op.shape(lambda *_: _SCALAR)
TensorArrayReadV3.shape(lambda *_: TensorShape(None))
TensorArrayCloseV3.shape(shape_rules.no_outputs)


@TensorArrayGatherV3.shape
def _(handle: TensorShape, indices: TensorShape, flow: TensorShape, *, element_shape: TensorShape) -> TensorShape:
    return indices.concatenate(element_shape)


@TensorArrayConcatV3.shape
def _(handle: TensorShape, flow: TensorShape, *, element_shape_except0: TensorShape) -> tuple[TensorShape, TensorShape]:
    return TensorShape([None]).concatenate(element_shape_except0), TensorShape([None])


@TensorArrayV3.host_kernel
def _(
    size: Array,
    *,
    dtype: DType,
    element_shape: TensorShape,
    dynamic_size: bool,
    clear_after_read: bool,
    tensor_array_name: bytes,
    ctx: OperationContext,
) -> tuple[ResourceHandle, float]:
    name = f"{tensor_array_name.decode() or ctx.op.name}_{next(_numbers)}"
    array = InPlaceTensorArray(name, dtype, int(size), element_shape, dynamic_size, clear_after_read)
    return TensorArrayHandle("", name, "tensor array", array), 0.0


@TensorArrayGradV3.host_kernel
def _(handle: Array, flow: Array, *, source: bytes, ctx: OperationContext) -> tuple[ResourceHandle, Any]:
    array = _array(ctx, handle).gradient(source)
    return TensorArrayHandle("", array.name, "tensor array", array), flow


@TensorArrayWriteV3.host_kernel
def _(handle: Array, index: Array, value: Array, flow: Array, *, ctx: OperationContext) -> Any:
    _array(ctx, handle).write(int(index), value)
    return flow


@TensorArrayReadV3.host_kernel
def _(handle: Array, index: Array, flow: Array, *, ctx: OperationContext) -> Any:
    return _array(ctx, handle).read(int(index))


@TensorArrayGatherV3.host_kernel
def _(handle: Array, indices: Array, flow: Array, *, element_shape: TensorShape, ctx: OperationContext) -> Any:
    return _array(ctx, handle).gather(indices, element_shape)


@TensorArrayScatterV3.host_kernel
def _(handle: Array, indices: Array, value: Array, flow: Array, *, ctx: OperationContext) -> Any:
    _array(ctx, handle).scatter(indices, value)
    return flow


@TensorArrayConcatV3.host_kernel
def _(handle: Array, flow: Array, *, element_shape_except0: TensorShape, ctx: OperationContext) -> Any:
    return _array(ctx, handle).concat(element_shape_except0)


@TensorArraySplitV3.host_kernel
def _(handle: Array, value: Array, lengths: Array, flow: Array, *, ctx: OperationContext) -> Any:
    _array(ctx, handle).split(value, [int(n) for n in lengths])
    return flow


@TensorArraySizeV3.host_kernel
def _(handle: Array, flow: Array, *, ctx: OperationContext) -> Any:
    return len(_array(ctx, handle))


@TensorArrayCloseV3.host_kernel
def _(handle: Array, *, ctx: OperationContext) -> None:
    _array(ctx, handle).close()
