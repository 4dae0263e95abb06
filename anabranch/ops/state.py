"""Variables as resources: handles, reads, assignments  (§3.1; design D5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.operation import Tensor
from anabranch.ops import shape_rules

VarHandleOp = define_op(
    "VarHandleOp",
    "-> resource: resource",
    "container: string = '', shared_name: string = '', dtype: any, shape: shape, allowed_devices: list(string) = []",
    stateful=True,
)
VarHandleOp.shape(shape_rules.scalar)
VarHandleOp.not_differentiable()


@VarHandleOp.kernel
def _(*, container: bytes, shared_name: bytes, ctx: Any, xp: Any) -> ResourceHandle:
    return ResourceHandle(container.decode(), shared_name.decode() or ctx.op.name, "variable")


def handle_shape(handle: Tensor) -> TensorShape:
    """The (partial) shape of the variable behind a handle, as its `VarHandleOp` states it."""
    op = handle.op
    while op.type == "Identity":
        op = op.inputs[0].op
    origin = handle.get_attribute("handle_of")
    if origin is not None:
        return handle_shape(origin)
    shape: TensorShape = op.attrs.get("shape", shape_rules.UNKNOWN) if op.type == "VarHandleOp" else shape_rules.UNKNOWN
    return shape


ReadVariableOp = define_op(
    "ReadVariableOp", "resource: resource -> value: dtype", "dtype: any", stateful=True, reads=("resource",)
)


@ReadVariableOp.shape
def _(resource: TensorShape, *, ctx: Any) -> TensorShape:
    return handle_shape(ctx.tensor("resource"))


@ReadVariableOp.kernel
def _(resource: ResourceHandle, *, ctx: Any) -> Any:
    return ctx.read(resource)


@ReadVariableOp.gradient
def _(op: Any, grad: Tensor) -> Any:
    return grad


AssignVariableOp = define_op(
    "AssignVariableOp",
    "resource: resource, value: dtype ->",
    "dtype: any, validate_shape: bool = False",
    stateful=True,
    writes=("resource",),
)
AssignVariableOp.not_differentiable()


@AssignVariableOp.shape
def _(resource: TensorShape, value: TensorShape, *, ctx: Any) -> tuple[()]:
    handle_shape(ctx.tensor("resource")).assert_is_compatible_with(value)
    return ()


@AssignVariableOp.kernel
def _(resource: ResourceHandle, value: Any, *, ctx: Any) -> None:
    ctx.write(resource, value)


def _assign_update(name: str, update: Any) -> Any:
    op = define_op(
        name,
        "resource: resource, value: dtype ->",
        "dtype: numbers",
        stateful=True,
        reads=("resource",),
        writes=("resource",),
    )

    @op.shape
    def _(resource: TensorShape, value: TensorShape, *, ctx: Any) -> tuple[()]:
        handle_shape(ctx.tensor("resource")).assert_is_compatible_with(value)
        return ()

    @op.kernel
    def _(resource: ResourceHandle, value: Any, *, ctx: Any) -> None:
        ctx.write(resource, update(ctx.read(resource), value))

    return op.not_differentiable()


AssignAddVariableOp = _assign_update("AssignAddVariableOp", lambda old, value: old + value)
AssignSubVariableOp = _assign_update("AssignSubVariableOp", lambda old, value: old - value)


VarIsInitializedOp = define_op("VarIsInitializedOp", "resource: resource -> is_initialized: bool", stateful=True)
VarIsInitializedOp.shape(shape_rules.scalar)
VarIsInitializedOp.not_differentiable()


@VarIsInitializedOp.host_kernel
def _(resource: ResourceHandle, *, ctx: Any) -> bool:
    found: bool = ctx.is_initialized(resource)
    return found


VariableShape = define_op(
    "VariableShape",
    "input: resource -> output: out_type",
    "out_type: {int32, int64} = int32",
    stateful=True,
    reads=("input",),
)
VariableShape.not_differentiable()


@VariableShape.shape
def _(input: TensorShape, *, ctx: Any) -> TensorShape:
    return TensorShape([handle_shape(ctx.tensor("input")).ndims])


@VariableShape.kernel
def _(input: ResourceHandle, *, out_type: Any, ctx: Any, xp: Any) -> Any:
    return np.array(ctx.read(input).shape, out_type.as_numpy_dtype)
