"""Conditional accumulators of gradients  (§4.4: synchronous replica coordination). See `state.accumulators`."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import OutOfRangeError
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules
from anabranch.ops.resources.shared_objects import Plan, object_behind, open_object, outcome
from anabranch.state.accumulators import (
    Accumulator,
    DenseAccumulator,
    SparseAccumulator,
)

_ATTRS = (
    "dtype: numbers, shape: shape, container: string = '', shared_name: string = '', "
    "reduction_type: {'MEAN', 'SUM'} = 'MEAN'"
)


def _open(
    kind: type[Accumulator], dtype: DType, shape: TensorShape, reduction_type: bytes, ctx: StepHostContext
) -> Any:
    reduction = reduction_type.decode()

    def plan(handle: ResourceHandle) -> Plan:
        facts = {"accumulator type": kind.__name__, "dtype": dtype, "shape": str(shape), "reduction_type": reduction}
        return facts, lambda: kind(handle.name, dtype, shape, reduction)

    return open_object(ctx, "accumulator", plan)


def _making(name: str, handle_type: str, kind: type[Accumulator]) -> Any:
    op = define_op(name, f"-> handle: {handle_type}", _ATTRS, stateful=True)
    op.shape(shape_rules.scalar)

    @op.host_kernel
    def _(*, dtype: DType, shape: TensorShape, reduction_type: bytes, ctx: StepHostContext) -> ResourceHandle:
        handle: ResourceHandle = _open(kind, dtype, shape, reduction_type, ctx)
        return handle

    return op.not_differentiable()


ConditionalAccumulator = _making("ConditionalAccumulator", "string", DenseAccumulator)
ResourceConditionalAccumulator = _making("ResourceConditionalAccumulator", "resource", DenseAccumulator)
SparseConditionalAccumulator = _making("SparseConditionalAccumulator", "string", SparseAccumulator)


def _spec(ctx: ShapeContext) -> TensorShape:
    """The shape of an accumulator's gradients, where the handle comes from what makes it and not through a branch."""
    maker = ctx.tensor("handle").op
    makes = maker.type in (ConditionalAccumulator.name, ResourceConditionalAccumulator.name)
    shape: TensorShape = maker.attrs["shape"] if makes else shape_rules.UNKNOWN
    return shape


def _applying(name: str, handle_type: str) -> Any:
    op = define_op(
        name, f"handle: {handle_type}, local_step: int64, gradient: dtype ->", "dtype: numbers", stateful=True
    )

    @op.shape
    def _(handle: TensorShape, local_step: TensorShape, gradient: TensorShape) -> tuple[()]:
        return ()

    @op.host_kernel
    def _(handle: ResourceHandle, local_step: Array, gradient: Array, *, ctx: StepHostContext) -> None:
        object_behind(ctx, handle, "accumulator").apply_gradient(int(local_step), gradient)

    return op.not_differentiable()


AccumulatorApplyGradient = _applying("AccumulatorApplyGradient", "string")
ResourceAccumulatorApplyGradient = _applying("ResourceAccumulatorApplyGradient", "resource")


HandInGradient = define_op(
    "_HandInGradient",
    "handle: string, local_step: int64, gradient: dtype -> time: int64",
    "dtype: numbers, most: int",
    stateful=True,
)
HandInGradient.shape(shape_rules.scalar)
HandInGradient.not_differentiable()


@HandInGradient.host_kernel
def _(handle: ResourceHandle, local_step: Array, gradient: Array, *, most: int, ctx: StepHostContext) -> np.int64:
    """`AccumulatorApplyGradient` that says by which time of the accumulator the gradient counts, or came too late.

    It comes too late, too, where `most` gradients have come for the step.
    """
    return np.int64(object_behind(ctx, handle, "accumulator").apply_gradient(int(local_step), gradient, most))


ExpectGradients = define_op(
    "_ExpectGradients", "handle: string, expected: int32, version: int64 ->", stateful=True, ranks={"expected": 0}
)
ExpectGradients.shape(shape_rules.no_outputs)
ExpectGradients.not_differentiable()


@ExpectGradients.host_kernel
def _(handle: ResourceHandle, expected: Array, version: Array, *, ctx: StepHostContext) -> None:
    """Tells an accumulator how many replicas there are that can hand in a gradient."""
    object_behind(ctx, handle, "accumulator").expect(int(expected), int(version))


AccumulatorTime = define_op("_AccumulatorTime", "handle: string -> time: int64", stateful=True)
AccumulatorTime.shape(shape_rules.scalar)
AccumulatorTime.not_differentiable()


@AccumulatorTime.host_kernel
def _(handle: ResourceHandle, *, ctx: StepHostContext) -> np.int64:
    """The number of the step that an accumulator takes gradients of; a mean that is taken moves it on."""
    return np.int64(object_behind(ctx, handle, "accumulator").time)


LatestToken = define_op("_LatestToken", "tokens: int64 -> number: int64, is_last: bool", stateful=True)
LatestToken.not_differentiable()


@LatestToken.shape
def _(tokens: TensorShape) -> list[TensorShape]:
    return [TensorShape([]), TensorShape([])]


@LatestToken.host_kernel
def _(tokens: Array) -> tuple[np.int64, np.bool_]:
    """Of the tokens that a replica has waited for, the number of the latest step, and whether none follows it.

    A negative token says that. Where it is the only one, there is no step that the replica could join.
    """
    latest = tokens.max()
    if latest < 0:
        raise OutOfRangeError(None, None, "the chief has ended the training: no step follows that could be joined")
    return latest, tokens.min() < 0


def _taking(name: str, handle_type: str) -> Any:
    op = define_op(
        name,
        f"handle: {handle_type}, num_required: int32 -> average: dtype",
        "dtype: numbers",
        stateful=True,
        asynchronous=True,
    )

    @op.shape
    def _(handle: TensorShape, num_required: TensorShape, *, ctx: ShapeContext) -> TensorShape:
        return _spec(ctx)

    @op.host_kernel
    def _(handle: ResourceHandle, num_required: Array, *, ctx: StepHostContext) -> Any:
        return outcome(object_behind(ctx, handle, "accumulator").take_gradient(int(num_required), ctx.op.name))

    return op.not_differentiable()


AccumulatorTakeGradient = _taking("AccumulatorTakeGradient", "string")
ResourceAccumulatorTakeGradient = _taking("ResourceAccumulatorTakeGradient", "resource")


def _stepping(name: str, handle_type: str) -> Any:
    op = define_op(name, f"handle: {handle_type}, new_global_step: int64 ->", stateful=True)
    op.shape(shape_rules.no_outputs)

    @op.host_kernel
    def _(handle: ResourceHandle, new_global_step: Array, *, ctx: StepHostContext) -> None:
        object_behind(ctx, handle, "accumulator").set_global_step(int(new_global_step))

    return op.not_differentiable()


AccumulatorSetGlobalStep = _stepping("AccumulatorSetGlobalStep", "string")
ResourceAccumulatorSetGlobalStep = _stepping("ResourceAccumulatorSetGlobalStep", "resource")


def _counting(name: str, handle_type: str) -> Any:
    op = define_op(name, f"handle: {handle_type} -> num_accumulated: int32", stateful=True)
    op.shape(shape_rules.scalar)

    @op.host_kernel
    def _(handle: ResourceHandle, *, ctx: StepHostContext) -> int:
        count: int = object_behind(ctx, handle, "accumulator").count
        return count

    return op.not_differentiable()


AccumulatorNumAccumulated = _counting("AccumulatorNumAccumulated", "string")
ResourceAccumulatorNumAccumulated = _counting("ResourceAccumulatorNumAccumulated", "resource")


# ---------------------------------------------------------------------- sparse gradients
SparseAccumulatorApplyGradient = define_op(
    "SparseAccumulatorApplyGradient",
    "handle: string, local_step: int64, gradient_indices: int64, gradient_values: dtype, gradient_shape: int64 ->",
    "dtype: numbers, has_known_shape: bool",
    stateful=True,
)
SparseAccumulatorApplyGradient.shape(shape_rules.no_outputs)
SparseAccumulatorApplyGradient.not_differentiable()


@SparseAccumulatorApplyGradient.host_kernel
def _(
    handle: ResourceHandle,
    local_step: Array,
    gradient_indices: Array,
    gradient_values: Array,
    gradient_shape: Array,
    *,
    has_known_shape: bool,
    ctx: StepHostContext,
) -> None:
    accumulator = object_behind(ctx, handle, "accumulator")
    accumulator.apply_gradient(int(local_step), gradient_indices, gradient_values, gradient_shape, has_known_shape)


HandInSparseGradient = define_op(
    "_HandInSparseGradient",
    "handle: string, local_step: int64, indices: int64, values: dtype, dense_shape: int64 -> time: int64",
    "dtype: numbers, has_known_shape: bool, most: int",
    stateful=True,
)
HandInSparseGradient.shape(shape_rules.scalar)
HandInSparseGradient.not_differentiable()


@HandInSparseGradient.host_kernel
def _(
    handle: ResourceHandle,
    local_step: Array,
    indices: Array,
    values: Array,
    dense_shape: Array,
    *,
    has_known_shape: bool,
    most: int,
    ctx: StepHostContext,
) -> np.int64:
    """See `_HandInGradient`."""
    accumulator = object_behind(ctx, handle, "accumulator")
    return np.int64(accumulator.apply_gradient(int(local_step), indices, values, dense_shape, has_known_shape, most))


SparseAccumulatorTakeGradient = define_op(
    "SparseAccumulatorTakeGradient",
    "handle: string, num_required: int32 -> indices: int64, values: dtype, shape: int64",
    "dtype: numbers",
    stateful=True,
    asynchronous=True,
)
SparseAccumulatorTakeGradient.not_differentiable()


@SparseAccumulatorTakeGradient.shape
def _(handle: TensorShape, num_required: TensorShape, *, ctx: ShapeContext) -> list[TensorShape]:
    return [
        TensorShape([None]),
        shape_rules.UNKNOWN,
        TensorShape([None]),
    ]


@SparseAccumulatorTakeGradient.host_kernel
def _(handle: ResourceHandle, num_required: Array, *, ctx: StepHostContext) -> Any:
    return outcome(object_behind(ctx, handle, "accumulator").take_gradient(int(num_required), ctx.op.name))
