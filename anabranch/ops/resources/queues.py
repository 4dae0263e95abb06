"""Queues and barriers  (§3.1, §4.1; WP4.5-4.6). The objects themselves: `state.queue`, `state.barrier`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType, int64
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules
from anabranch.ops.resources.shared_objects import Plan, object_behind, open_object, outcome
from anabranch.state.barrier import SharedBarrier
from anabranch.state.components import Components
from anabranch.state.element_stores import ElementStore, FifoStore, PriorityStore, ShuffleStore
from anabranch.state.queue import Queue

_UINT64 = 0xFFFFFFFFFFFFFFFF
_CONTAINER = "container: string = '', shared_name: string = ''"


def _components(ctx: OperationContext, title: str, dtypes: list[DType], shapes: list[TensorShape]) -> Components:
    if shapes and len(shapes) != len(dtypes):
        raise InvalidArgumentError(
            None,
            ctx.op,
            f"{ctx.op.name!r} has {len(dtypes)} component types but {len(shapes)} shapes; give one for each",
        )
    return Components(tuple(dtypes), tuple(shapes), title)


def _open_queue(
    ctx: StepHostContext,
    kind: str,
    store: Callable[[], ElementStore],
    first: list[DType] | None = None,
    **more_facts: object,
) -> ResourceHandle:
    """Opens a queue; `first`: types of scalar components before those that the attributes name."""
    attrs = ctx.op.attrs

    def plan(handle: ResourceHandle) -> Plan:
        types = [*(first or ()), *attrs["component_types"]]
        shapes = list(attrs["shapes"])
        if first:  # their shapes are known, even if those of the others are not
            shapes = [*(TensorShape([]) for _ in first), *(shapes or [TensorShape(None)] * (len(types) - len(first)))]
        components = _components(ctx, f"{kind} {handle.name!r}", types, shapes)
        facts = {
            "queue type": kind,
            "capacity": attrs["capacity"],
            "component types": components.dtypes,
            "component shapes": tuple(str(s) for s in shapes),
            **more_facts,
        }
        return facts, lambda: Queue(handle.name, kind, components, attrs["capacity"], store())

    return open_object(ctx, "queue", plan)


# ---------------------------------------------------------------------- making queues
_QUEUE_ATTRS = f"component_types: list(type) >= 1, shapes: list(shape) >= 0 = [], capacity: int = -1, {_CONTAINER}"

FIFOQueueV2 = define_op("FIFOQueueV2", "-> handle: resource", _QUEUE_ATTRS, stateful=True)


@FIFOQueueV2.host_kernel
def _(*, ctx: StepHostContext) -> ResourceHandle:
    return _open_queue(ctx, "FIFOQueue", FifoStore)


PaddingFIFOQueueV2 = define_op("PaddingFIFOQueueV2", "-> handle: resource", _QUEUE_ATTRS, stateful=True)


@PaddingFIFOQueueV2.host_kernel
def _(*, component_types: list[DType], shapes: list[TensorShape], ctx: StepHostContext) -> ResourceHandle:
    if len(shapes) != len(component_types) or any(s.ndims is None for s in shapes):
        raise InvalidArgumentError(
            None,
            ctx.op,
            f"{ctx.op.name!r} needs a shape of known rank for each component, got {[str(s) for s in shapes]}",
        )
    return _open_queue(ctx, "PaddingFIFOQueue", FifoStore)


RandomShuffleQueueV2 = define_op(
    "RandomShuffleQueueV2",
    "-> handle: resource",
    "component_types: list(type) >= 1, shapes: list(shape) >= 0 = [], capacity: int = -1, min_after_dequeue: int = 0, "
    f"seed: int = 0, seed2: int = 0, {_CONTAINER}",
    stateful=True,
)


@RandomShuffleQueueV2.host_kernel
def _(*, capacity: int, min_after_dequeue: int, seed: int, seed2: int, ctx: StepHostContext) -> ResourceHandle:
    if not (min_after_dequeue >= 0 and (capacity <= 0 or min_after_dequeue < capacity)):
        raise InvalidArgumentError(
            None,
            ctx.op,
            f"min_after_dequeue {min_after_dequeue} must be >= 0 and less than capacity {capacity} of {ctx.op.name!r}",
        )
    seeds = None if seed == 0 and seed2 == 0 else (seed & _UINT64, seed2 & _UINT64)
    facts: dict[str, Any] = {
        "min_after_dequeue": min_after_dequeue,
        "random seeds": None if seeds is None else (seed, seed2),
    }
    return _open_queue(ctx, "RandomShuffleQueue", lambda: ShuffleStore(min_after_dequeue, seeds), **facts)


PriorityQueueV2 = define_op(
    "PriorityQueueV2",
    "-> handle: resource",
    f"component_types: list(type) >= 0 = [], shapes: list(shape) >= 0, capacity: int = -1, {_CONTAINER}",
    stateful=True,
)


@PriorityQueueV2.host_kernel
def _(*, ctx: StepHostContext) -> ResourceHandle:
    return _open_queue(ctx, "PriorityQueue", PriorityStore, [int64])


for _op in (FIFOQueueV2, PaddingFIFOQueueV2, RandomShuffleQueueV2, PriorityQueueV2):
    _op.shape(shape_rules.scalar)
    _op.not_differentiable()


# ---------------------------------------------------------------------- using queues
def _queue(ctx: StepHostContext, handle: ResourceHandle) -> Queue:
    queue: Queue = object_behind(ctx, handle, "queue")
    return queue


_ENQUEUE = ("handle: resource, components: Tcomponents ->", "Tcomponents: list(type) >= 1, timeout_ms: int = -1")

QueueEnqueueV2 = define_op("QueueEnqueueV2", *_ENQUEUE, stateful=True, asynchronous=True)
QueueEnqueueV2.shape(shape_rules.no_outputs)
QueueEnqueueV2.not_differentiable()


@QueueEnqueueV2.host_kernel
def _(handle: ResourceHandle, components: list[Any], *, ctx: StepHostContext) -> Any:
    return outcome(_queue(ctx, handle).enqueue(components, ctx.op.name))


QueueEnqueueManyV2 = define_op("QueueEnqueueManyV2", *_ENQUEUE, stateful=True, asynchronous=True)
QueueEnqueueManyV2.shape(shape_rules.no_outputs)
QueueEnqueueManyV2.not_differentiable()


@QueueEnqueueManyV2.host_kernel
def _(handle: ResourceHandle, components: list[Any], *, ctx: StepHostContext) -> Any:
    return outcome(_queue(ctx, handle).enqueue_many(components, ctx.op.name))


_DEQUEUED = "component_types: list(type) >= 1, timeout_ms: int = -1"

QueueDequeueV2 = define_op(
    "QueueDequeueV2", "handle: resource -> components: component_types", _DEQUEUED, stateful=True, asynchronous=True
)
QueueDequeueV2.not_differentiable()


def _shapes_of_queue(ctx: ShapeContext) -> list[TensorShape]:
    """The shapes of a queue's components as the operation that makes it states them."""
    count = ctx.output_count
    op = ctx.tensor("handle").op
    while op.type == "Identity":
        op = op.inputs[0].op
    shapes: list[TensorShape] = list(op.attrs.get("shapes", ()))
    if op.type == "PriorityQueueV2":
        shapes = [TensorShape([]), *shapes]
    return shapes if len(shapes) == count else [TensorShape(None)] * count


@QueueDequeueV2.shape
def _(handle: TensorShape, *, ctx: ShapeContext) -> list[TensorShape]:
    return _shapes_of_queue(ctx)


@QueueDequeueV2.host_kernel
def _(handle: ResourceHandle, *, component_types: list[DType], ctx: StepHostContext) -> Any:
    queue = _queue(ctx, handle)
    _check_types(ctx, queue, component_types)
    return outcome(queue.dequeue(ctx.op.name))


def _check_types(ctx: OperationContext, queue: Queue, types: list[DType]) -> None:
    if tuple(types) != queue.components.dtypes:
        raise InvalidArgumentError(
            None,
            ctx.op,
            f"{ctx.op.name!r} wants components of types {[t.name for t in types]}, but {queue.title} {queue.name!r} "
            f"holds {[t.name for t in queue.components.dtypes]}",
        )


def _dequeue_batch(name: str, up_to: bool) -> Any:
    op = define_op(
        name, "handle: resource, n: int32 -> components: component_types", _DEQUEUED, stateful=True, asynchronous=True
    )

    @op.shape
    def _(handle: TensorShape, n: TensorShape, *, ctx: ShapeContext) -> list[TensorShape]:
        count = None if up_to else ctx.constant("n")
        if count is not None and count < 0:
            raise ValueError(f"Input 'n' must be >= 0, but is {count}")
        first = TensorShape([None if count is None else int(count)])
        return [first.concatenate(s) for s in _shapes_of_queue(ctx)]

    @op.host_kernel
    def _(handle: ResourceHandle, n: Array, *, component_types: list[DType], ctx: StepHostContext) -> Any:
        queue = _queue(ctx, handle)
        _check_types(ctx, queue, component_types)
        return outcome(queue.dequeue_many(int(n), up_to, ctx.op.name))

    return op.not_differentiable()


QueueDequeueManyV2 = _dequeue_batch("QueueDequeueManyV2", up_to=False)
QueueDequeueUpToV2 = _dequeue_batch("QueueDequeueUpToV2", up_to=True)


QueueCloseV2 = define_op(
    "QueueCloseV2", "handle: resource ->", "cancel_pending_enqueues: bool = False", stateful=True, asynchronous=True
)
QueueCloseV2.shape(shape_rules.no_outputs)
QueueCloseV2.not_differentiable()


@QueueCloseV2.host_kernel
def _(handle: ResourceHandle, *, cancel_pending_enqueues: bool, ctx: StepHostContext) -> Any:
    return outcome(_queue(ctx, handle).request_close(cancel_pending_enqueues, ctx.op.name))


QueueIsClosedV2 = define_op("QueueIsClosedV2", "handle: resource -> is_closed: bool", stateful=True)
QueueIsClosedV2.shape(shape_rules.scalar)
QueueIsClosedV2.not_differentiable()


@QueueIsClosedV2.host_kernel
def _(handle: ResourceHandle, *, ctx: StepHostContext) -> bool:
    return _queue(ctx, handle).is_closed


QueueSizeV2 = define_op("QueueSizeV2", "handle: resource -> size: int32", stateful=True)
QueueSizeV2.shape(shape_rules.scalar)
QueueSizeV2.not_differentiable()


@QueueSizeV2.host_kernel
def _(handle: ResourceHandle, *, ctx: StepHostContext) -> int:
    return _queue(ctx, handle).size()


DequeuesWaiting = define_op("_DequeuesWaiting", "handle: resource -> count: int32", stateful=True)
DequeuesWaiting.shape(shape_rules.scalar)
DequeuesWaiting.not_differentiable()


@DequeuesWaiting.host_kernel
def _(handle: ResourceHandle, *, ctx: StepHostContext) -> int:
    """How many dequeues wait for elements of a queue."""
    return _queue(ctx, handle).waits


_SelectHandle = define_op(
    "_SelectHandle", "index: int32, handles: N * resource -> handle: resource", "N: int >= 1", stateful=True
)
_SelectHandle.shape(shape_rules.scalar)
_SelectHandle.not_differentiable()


@_SelectHandle.host_kernel
def _(index: Array, handles: list[ResourceHandle], *, ctx: OperationContext) -> ResourceHandle:
    chosen = int(index)
    ctx.check(0 <= chosen < len(handles), f"index {chosen} is not in [0, {len(handles)}): there is no such queue")
    return handles[chosen]


# ---------------------------------------------------------------------- barriers
Barrier = define_op("Barrier", "-> handle: string", _QUEUE_ATTRS, stateful=True)
Barrier.shape(shape_rules.scalar)
Barrier.not_differentiable()


@Barrier.host_kernel
def _(*, component_types: list[DType], shapes: list[TensorShape], ctx: StepHostContext) -> ResourceHandle:
    def plan(handle: ResourceHandle) -> Plan:
        wanted = shapes or [TensorShape(None)] * len(component_types)
        components = _components(ctx, f"Barrier {handle.name!r}", component_types, wanted)
        facts = {"component types": components.dtypes, "component shapes": tuple(str(s) for s in shapes)}
        return facts, lambda: SharedBarrier(handle.name, components)

    return open_object(ctx, "barrier", plan)


def _barrier(ctx: StepHostContext, handle: ResourceHandle) -> SharedBarrier:
    barrier: SharedBarrier = object_behind(ctx, handle, "barrier")
    return barrier


BarrierInsertMany = define_op(
    "BarrierInsertMany", "handle: string, keys: string, values: T ->", "T: any, component_index: int", stateful=True
)
BarrierInsertMany.shape(shape_rules.no_outputs)
BarrierInsertMany.not_differentiable()


@BarrierInsertMany.host_kernel
def _(handle: ResourceHandle, keys: Array, values: Array, *, component_index: int, ctx: StepHostContext) -> None:
    _barrier(ctx, handle).insert_many(component_index, keys.reshape(-1).tolist(), values, ctx.op.name)


BarrierTakeMany = define_op(
    "BarrierTakeMany",
    "handle: string, num_elements: int32 -> indices: int64, keys: string, values: component_types",
    "component_types: list(type) >= 1, allow_small_batch: bool = False, wait_for_incomplete: bool = False, "
    "timeout_ms: int = -1",
    stateful=True,
    asynchronous=True,
)
BarrierTakeMany.not_differentiable()


@BarrierTakeMany.shape
def _(
    handle: TensorShape, num_elements: TensorShape, *, allow_small_batch: bool, ctx: ShapeContext
) -> list[TensorShape]:
    count = ctx.constant("num_elements")
    first = TensorShape([None if allow_small_batch or count is None or int(count) < 0 else int(count)])
    shapes = ctx.tensor("handle").op.attrs.get("shapes") or [TensorShape(None)] * (ctx.output_count - 2)
    return [first, first, *(first.concatenate(s) for s in shapes)]


@BarrierTakeMany.host_kernel
def _(handle: ResourceHandle, num_elements: Array, *, allow_small_batch: bool, ctx: StepHostContext) -> Any:
    return outcome(_barrier(ctx, handle).take_many(int(num_elements), allow_small_batch, ctx.op.name))


BarrierClose = define_op("BarrierClose", "handle: string ->", "cancel_pending_enqueues: bool = False", stateful=True)
BarrierClose.shape(shape_rules.no_outputs)
BarrierClose.not_differentiable()


@BarrierClose.host_kernel
def _(handle: ResourceHandle, *, cancel_pending_enqueues: bool, ctx: StepHostContext) -> None:
    _barrier(ctx, handle).request_close(cancel_pending_enqueues, ctx.op.name)


BarrierReadySize = define_op("BarrierReadySize", "handle: string -> size: int32", stateful=True)
BarrierReadySize.shape(shape_rules.scalar)
BarrierReadySize.not_differentiable()


@BarrierReadySize.host_kernel
def _(handle: ResourceHandle, *, ctx: StepHostContext) -> int:
    return _barrier(ctx, handle).ready_size()


BarrierIncompleteSize = define_op("BarrierIncompleteSize", "handle: string -> size: int32", stateful=True)
BarrierIncompleteSize.shape(shape_rules.scalar)
BarrierIncompleteSize.not_differentiable()


@BarrierIncompleteSize.host_kernel
def _(handle: ResourceHandle, *, ctx: StepHostContext) -> int:
    return _barrier(ctx, handle).incomplete_size()
