"""Staging areas, critical sections and stacks. The objects: `state.staging`, `state.mutex`, `state.stack`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.pending import Pending
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules
from anabranch.ops.resources.shared_objects import Plan, object_behind, open_object, outcome
from anabranch.state.mutex import Hold, Mutex
from anabranch.state.stack import Stack
from anabranch.state.staging import StagedLine, StagedMap

_SIZES = "capacity: int >= 0 = 0, memory_limit: int >= 0 = 0"
_NAMES = "container: string = '', shared_name: string = ''"
_SOME = f"{_SIZES}, dtypes: list(type) >= 1, {_NAMES}"
_ANY = f"{_SIZES}, dtypes: list(type), {_NAMES}"


def _unknown_shapes(*_: TensorShape, ctx: ShapeContext) -> list[TensorShape]:
    return [TensorShape(None)] * ctx.output_count


# ---------------------------------------------------------------------- lines
def _area(ctx: StepHostContext) -> StagedLine:
    """The area that the operation names by its shared name (else its own name): there is no operation that makes it."""
    attrs = ctx.op.attrs

    def plan(handle: ResourceHandle) -> Plan:
        return {}, lambda: StagedLine(handle.name, attrs["capacity"], attrs["memory_limit"])

    area: StagedLine = object_behind(ctx, open_object(ctx, "staging area", plan, by_node_name=True), "staging area")
    return area


Stage = define_op("Stage", "values: dtypes ->", _SOME, stateful=True, asynchronous=True)
Stage.shape(shape_rules.no_outputs)
Stage.not_differentiable()


@Stage.host_kernel
def _(values: list[Any], *, ctx: StepHostContext) -> Any:
    return outcome(_area(ctx).put(values, ctx.op.name))


Unstage = define_op("Unstage", "-> values: dtypes", _SOME, stateful=True, asynchronous=True)
Unstage.shape(_unknown_shapes)
Unstage.not_differentiable()


@Unstage.host_kernel
def _(*, ctx: StepHostContext) -> Any:
    return outcome(_area(ctx).get(ctx.op.name))


StagePeek = define_op("StagePeek", "index: int32 -> values: dtypes", _SOME, stateful=True, asynchronous=True)
StagePeek.shape(_unknown_shapes)
StagePeek.not_differentiable()


@StagePeek.host_kernel
def _(index: Array, *, ctx: StepHostContext) -> Any:
    return outcome(_area(ctx).peek(int(index), ctx.op.name))


StageSize = define_op("StageSize", "-> size: int32", _ANY, stateful=True)
StageSize.shape(shape_rules.scalar)
StageSize.not_differentiable()


@StageSize.host_kernel
def _(*, ctx: StepHostContext) -> int:
    return _area(ctx).size()


StageClear = define_op("StageClear", "->", _ANY, stateful=True)
StageClear.shape(shape_rules.no_outputs)
StageClear.not_differentiable()


@StageClear.host_kernel
def _(*, ctx: StepHostContext) -> None:
    _area(ctx).clear()


# ---------------------------------------------------------------------- maps
def _map_area(ctx: StepHostContext, ordered: bool) -> StagedMap:
    attrs = ctx.op.attrs

    def plan(handle: ResourceHandle) -> Plan:
        return {}, lambda: StagedMap(handle.name, ordered, attrs["capacity"], attrs["memory_limit"])

    kind = "ordered map staging area" if ordered else "map staging area"
    area: StagedMap = object_behind(ctx, open_object(ctx, kind, plan, by_node_name=True), kind)
    return area


def _put_in_map(name: str, ordered: bool) -> Any:
    op = define_op(
        name,
        "key: int64, indices: int32, values: fake_dtypes ->",
        f"{_SIZES}, dtypes: list(type), fake_dtypes: list(type) >= 1, {_NAMES}",
        stateful=True,
        asynchronous=True,
    )
    op.shape(shape_rules.no_outputs)

    @op.host_kernel
    def _(key: Array, indices: Array, values: list[Any], *, ctx: StepHostContext) -> Any:
        places = indices.reshape(-1).tolist()
        if len(places) != len(values):
            raise InvalidArgumentError(
                None, ctx.op, f"{ctx.op.name!r} names {len(places)} components but gives {len(values)} values"
            )
        count = len(ctx.op.attrs["dtypes"])
        return outcome(_map_area(ctx, ordered).put(int(key), places, values, count, ctx.op.name))

    return op.not_differentiable()


MapStage = _put_in_map("MapStage", ordered=False)
OrderedMapStage = _put_in_map("OrderedMapStage", ordered=True)


def _get_from_map(name: str, ordered: bool, remove: bool) -> Any:
    op = define_op(name, "key: int64, indices: int32 -> values: dtypes", _SOME, stateful=True, asynchronous=True)
    op.shape(_unknown_shapes)

    @op.host_kernel
    def _(key: Array, indices: Array, *, ctx: StepHostContext) -> Any:
        area = _map_area(ctx, ordered)
        get = area.get if remove else area.peek
        return outcome(get(int(key), indices.reshape(-1).tolist(), ctx.op.name))

    return op.not_differentiable()


MapUnstage = _get_from_map("MapUnstage", ordered=False, remove=True)
OrderedMapUnstage = _get_from_map("OrderedMapUnstage", ordered=True, remove=True)
MapPeek = _get_from_map("MapPeek", ordered=False, remove=False)
OrderedMapPeek = _get_from_map("OrderedMapPeek", ordered=True, remove=False)


def _get_any_from_map(name: str, ordered: bool) -> Any:
    op = define_op(name, "indices: int32 -> key: int64, values: dtypes", _SOME, stateful=True, asynchronous=True)

    @op.shape
    def _(indices: TensorShape, *, ctx: ShapeContext) -> list[TensorShape]:
        return [TensorShape([]), *[TensorShape(None)] * (ctx.output_count - 1)]

    @op.host_kernel
    def _(indices: Array, *, ctx: StepHostContext) -> Any:
        return outcome(_map_area(ctx, ordered).get_any(indices.reshape(-1).tolist(), ctx.op.name))

    return op.not_differentiable()


MapUnstageNoKey = _get_any_from_map("MapUnstageNoKey", ordered=False)
OrderedMapUnstageNoKey = _get_any_from_map("OrderedMapUnstageNoKey", ordered=True)


def _ask_map(name: str, ordered: bool, question: str) -> Any:
    op = define_op(name, "-> size: int32", _ANY, stateful=True)
    op.shape(shape_rules.scalar)

    @op.host_kernel
    def _(*, ctx: StepHostContext) -> int:
        size: int = getattr(_map_area(ctx, ordered), question)()
        return size

    return op.not_differentiable()


MapSize = _ask_map("MapSize", ordered=False, question="size")
OrderedMapSize = _ask_map("OrderedMapSize", ordered=True, question="size")
MapIncompleteSize = _ask_map("MapIncompleteSize", ordered=False, question="incomplete_size")
OrderedMapIncompleteSize = _ask_map("OrderedMapIncompleteSize", ordered=True, question="incomplete_size")


def _clear_map(name: str, ordered: bool) -> Any:
    op = define_op(name, "->", _ANY, stateful=True)
    op.shape(shape_rules.no_outputs)

    @op.host_kernel
    def _(*, ctx: StepHostContext) -> None:
        _map_area(ctx, ordered).clear()

    return op.not_differentiable()


MapClear = _clear_map("MapClear", ordered=False)
OrderedMapClear = _clear_map("OrderedMapClear", ordered=True)


# ---------------------------------------------------------------------- critical sections
MutexV2 = define_op("MutexV2", "-> resource: resource", _NAMES, stateful=True)
MutexV2.shape(shape_rules.scalar)
MutexV2.not_differentiable()


@MutexV2.host_kernel
def _(*, ctx: StepHostContext) -> ResourceHandle:
    return open_object(ctx, "mutex", lambda handle: ({}, lambda: Mutex(handle.name)))


MutexLock = define_op(
    "MutexLock", "mutex: resource -> mutex_lock: variant", stateful=True, asynchronous=True, locks=True
)
MutexLock.shape(shape_rules.scalar)
MutexLock.not_differentiable()


@MutexLock.host_kernel
def _(mutex: ResourceHandle, *, ctx: StepHostContext) -> Any:
    acquired = outcome(object_behind(ctx, mutex, "mutex").acquire(ctx.op.name))
    return acquired if isinstance(acquired, Pending) else acquired[0]


ConsumeMutexLock = define_op("ConsumeMutexLock", "mutex_lock: variant ->", stateful=True, locks=True)
ConsumeMutexLock.shape(shape_rules.no_outputs)
ConsumeMutexLock.not_differentiable()


@ConsumeMutexLock.host_kernel
def _(mutex_lock: Array, *, ctx: OperationContext) -> None:
    hold = mutex_lock[()]
    if not isinstance(hold, Hold):
        raise InvalidArgumentError(
            None, ctx.op, f"{ctx.op.name!r} needs what MutexLock returned, got {type(hold).__name__}"
        )
    hold.release()


# ---------------------------------------------------------------------- stacks
@dataclass(frozen=True, slots=True)
class StackHandle(ResourceHandle):
    """The handle of a stack holds the stack itself: it lives as long as the step that made it."""

    stack: Stack = field(compare=False)


_stack_numbers = itertools.count()


def _made_stack(ctx: OperationContext, elem_type: DType, stack_name: bytes, max_size: int) -> StackHandle:
    name = f"{stack_name.decode() or ctx.op.name}_{next(_stack_numbers)}"
    return StackHandle("", name, "stack", Stack(name, elem_type, max_size))


StackV2 = define_op(
    "StackV2", "max_size: int32 -> handle: resource", "elem_type: any, stack_name: string = ''", stateful=True
)
StackV2.shape(shape_rules.scalar)
StackV2.not_differentiable()


@StackV2.host_kernel
def _(max_size: Array, *, elem_type: DType, stack_name: bytes, ctx: OperationContext) -> ResourceHandle:
    return _made_stack(ctx, elem_type, stack_name, int(max_size))


Stack_ = define_op("Stack", "-> handle: string", "elem_type: any, stack_name: string = ''", stateful=True)
Stack_.shape(shape_rules.scalar)
Stack_.not_differentiable()


@Stack_.host_kernel
def _(*, elem_type: DType, stack_name: bytes, ctx: OperationContext) -> ResourceHandle:
    return _made_stack(ctx, elem_type, stack_name, -1)


def _stack(ctx: OperationContext, handle: ResourceHandle) -> Stack:
    if not isinstance(handle, StackHandle):
        raise InvalidArgumentError(None, ctx.op, f"{ctx.op.name!r} needs the handle of a stack, got {handle}")
    return handle.stack


def _push(name: str, handle_type: str) -> Any:
    op = define_op(
        name, f"handle: {handle_type}, elem: T -> output: T", "T: any, swap_memory: bool = False", stateful=True
    )

    @op.shape
    def _(handle: TensorShape, elem: TensorShape) -> TensorShape:
        return elem

    @op.host_kernel
    def _(handle: ResourceHandle, elem: Array, *, ctx: OperationContext) -> Any:
        _stack(ctx, handle).push(elem)
        return elem

    return op.not_differentiable()


StackPushV2 = _push("StackPushV2", "resource")
StackPush = _push("StackPush", "string")


def _pop(name: str, handle_type: str) -> Any:
    op = define_op(name, f"handle: {handle_type} -> elem: elem_type", "elem_type: any", stateful=True)

    @op.shape
    def _(handle: TensorShape) -> TensorShape:
        return shape_rules.UNKNOWN

    @op.host_kernel
    def _(handle: ResourceHandle, *, ctx: OperationContext) -> Any:
        return _stack(ctx, handle).pop()

    return op.not_differentiable()


StackPopV2 = _pop("StackPopV2", "resource")
StackPop = _pop("StackPop", "string")


def _close(name: str, handle_type: str) -> Any:
    op = define_op(name, f"handle: {handle_type} ->", stateful=True)
    op.shape(shape_rules.no_outputs)

    @op.host_kernel
    def _(handle: ResourceHandle, *, ctx: OperationContext) -> None:
        _stack(ctx, handle).close()

    return op.not_differentiable()


StackCloseV2 = _close("StackCloseV2", "resource")
StackClose = _close("StackClose", "string")
