"""Operations on tensor arrays that are changed in place, as graphs of TensorFlow 1 contain them  (§3.4, WP4.5).

`tf.TensorArray` does not use these: it is a value, made of the operations in `ops.lists.tensor_list`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
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


def _defined(name: str, signature: str, attrs: str = "") -> OpFunction:
    return define_op(name, signature, attrs, stateful=True)


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
TensorArrayGradWithShape = _defined(
    "TensorArrayGradWithShape",
    "handle: resource, flow_in: float32, shape_to_prepend: int32 -> grad_handle: resource, flow_out: float32",
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
for _op in (TensorArrayV3, TensorArrayGradV3, TensorArrayGradWithShape):
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


@TensorArrayGradWithShape.host_kernel
def _(
    handle: Array, flow: Array, shape_to_prepend: Array, *, source: bytes, ctx: OperationContext
) -> tuple[ResourceHandle, Any]:
    array = _array(ctx, handle).gradient(source, tuple(int(n) for n in shape_to_prepend))
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


# ---------------------------------------------------------------------- gradients
#: the scopes in which `tf.gradients` builds, of which each has its own arrays of gradients
_SCOPE: Final = "gradients"


def _source(grad: Tensor) -> str:
    """The name of the call of `tf.gradients` that a gradient belongs to, as TensorFlow tells it.

    In the body of a loop it is the scope in which the loop's gradient is built.
    """
    outermost = grad.graph
    while outermost.outer_graph is not None:
        outermost = outermost.outer_graph
    scopes = (outermost.get_name_scope().split("/") if outermost is not grad.graph else [], grad.op.name.split("/"))
    found = ((names, i) for names in scopes for i, name in enumerate(names) if name.startswith(_SCOPE))
    names, at = next(found, ([], None))
    if at is None:
        raise ValueError(
            f"the gradient {grad.name} of a tensor array is not in a scope called 'gradients', by which calls are told "
            "apart; let the name given to tf.gradients begin so"
        )
    return "/".join(names[: at + 1])


def _gradients_of(op: Operation, grad: Tensor, flow: Tensor) -> Any:
    """The array of gradients; what uses it waits for all that `flow` says was done to the array before."""
    return raw.TensorArrayGradV3(op.inputs[0], flow, source=_source(grad))


def _read_gradient(op: Operation, grad: Tensor) -> list[Any]:
    array = _gradients_of(op, grad, op.inputs[2])
    return [None, None, raw.TensorArrayWriteV3(array.grad_handle, op.inputs[1], grad, array.flow_out)]


def _write_gradient(op: Operation, flow: Tensor) -> list[Any]:
    array = _gradients_of(op, flow, flow)
    value = raw.TensorArrayReadV3(array.grad_handle, op.inputs[1], array.flow_out, dtype=op.inputs[2].dtype)
    value.set_shape(op.inputs[2].shape)
    return [None, None, value, flow]


def _gather_gradient(op: Operation, grad: Tensor) -> list[Any]:
    array = _gradients_of(op, grad, op.inputs[2])
    return [None, None, raw.TensorArrayScatterV3(array.grad_handle, op.inputs[1], grad, array.flow_out)]


def _scatter_gradient(op: Operation, flow: Tensor) -> list[Any]:
    array = _gradients_of(op, flow, flow)
    value = raw.TensorArrayGatherV3(
        array.grad_handle,
        op.inputs[1],
        array.flow_out,
        dtype=op.inputs[2].dtype,
        element_shape=op.inputs[2].shape[1:],
    )
    return [None, None, value, flow]


def _concat_gradient(op: Operation, grad: Tensor, _: Tensor | None) -> list[Any]:
    array = _gradients_of(op, grad, op.inputs[1])
    return [None, raw.TensorArraySplitV3(array.grad_handle, grad, op.outputs[1], array.flow_out)]


def _split_gradient(op: Operation, flow: Tensor) -> list[Any]:
    array = _gradients_of(op, flow, flow)
    value = raw.TensorArrayConcatV3(
        array.grad_handle,
        array.flow_out,
        dtype=op.inputs[1].dtype,
        element_shape_except0=op.inputs[1].shape[1:],
    ).value
    value.set_shape(op.inputs[1].shape)
    return [None, value, None, flow]


TensorArrayReadV3.gradient(_read_gradient)
TensorArrayWriteV3.gradient(_write_gradient)
TensorArrayGatherV3.gradient(_gather_gradient)
TensorArrayScatterV3.gradient(_scatter_gradient)
TensorArrayConcatV3.gradient(_concat_gradient)
TensorArraySplitV3.gradient(_split_gradient)
for _op in (TensorArrayV3, TensorArrayGradV3, TensorArrayGradWithShape, TensorArraySizeV3, TensorArrayCloseV3):
    _op.not_differentiable()
