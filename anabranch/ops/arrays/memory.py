"""Tensors by where they are in memory: room without values, copies, what a file holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InternalError
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.io import gfile
from anabranch.ops import shape_rules
from anabranch.ops.arrays.filling import zero_of

Empty = define_op(
    "Empty",
    "shape: int32 -> output: dtype",
    "dtype: any, init: bool = False",
    stateful=True,
    unnoticed=True,
    static=("shape",),
    ranks={"shape": 1},
)
Empty.not_differentiable()


@Empty.shape
def _(shape: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    found: TensorShape = ctx.constant_as_shape("shape")
    return found


@Empty.kernel
def _(shape: Array, *, dtype: DType, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    """Zeros, whatever `init` says: no memory is shown that was another's."""
    sizes = [int(d) for d in np.asarray(shape)]
    ctx.check(min(sizes, default=0) >= 0, f"the dimensions of a tensor must not be negative, got {sizes}")
    return xp.full(sizes, zero_of(dtype.as_numpy_dtype), dtype=dtype.as_numpy_dtype)


DeepCopy = define_op("DeepCopy", "x: T -> y: T", "T: any", stateful=True, unnoticed=True)
DeepCopy.shape(shape_rules.same_as_first)


@DeepCopy.kernel
def _(x: Array, *, xp: ArrayLibrary) -> Any:
    return xp.array(x)


DebugGradientIdentity = define_op("DebugGradientIdentity", "input: T -> output: T", "T: any")
DebugGradientIdentity.shape(shape_rules.same_as_first)


@DebugGradientIdentity.kernel
def _(input: Array, *, xp: ArrayLibrary) -> Any:
    return xp.asarray(input)


for _op in (DeepCopy, DebugGradientIdentity):

    @_op.gradient
    def _(op: Operation, grad: Tensor) -> Any:
        return grad


ImmutableConst = define_op("ImmutableConst", "-> tensor: dtype", "dtype: any, shape: shape, memory_region_name: string")
ImmutableConst.not_differentiable()


@ImmutableConst.shape
def _(*, shape: TensorShape) -> TensorShape:
    return shape


@ImmutableConst.host_kernel
def _(*, dtype: DType, shape: TensorShape, memory_region_name: bytes, ctx: OperationContext) -> Any:
    """The first bytes of a file."""
    ctx.check(dtype.name != "string", "a tensor of strings lies in no memory region; use tf.constant")
    ctx.check(shape.is_fully_defined(), f"the shape of an ImmutableConst must be fully known, got {shape}")
    path, dims = memory_region_name.decode(), shape.sizes()
    with gfile.GFile(path, "rb") as file:
        data = file.read()
    wanted = (shape.num_elements() or 0) * dtype.size
    if len(data) < wanted:
        message = f"Readonly memory region {path!r} has wrong length ({len(data)}) when allocating {wanted}"
        raise InternalError(None, ctx.op, message)
    return np.frombuffer(data[:wanted], dtype.as_numpy_dtype).reshape(dims)
