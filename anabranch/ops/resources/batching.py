"""Batches of what several steps give: `Batch`, `Unbatch`, `BatchFunction`. The objects: `state.batching`."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.core.attrs import FuncAttr
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.core.thread_starts import start_thread
from anabranch.errors import FailedPreconditionError
from anabranch.graph.building import define_op
from anabranch.graph.composite import Gradient
from anabranch.graph.constants import ShapeContext
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.ops.resources.shared_objects import Plan, object_behind, open_object, outcome
from anabranch.state.batching import BatchGatherer, BatchLimits, BatchTask, ClosedBatch, GradientGatherer, PieceExchange

_NAMES: Final = "container: string = '', shared_name: string = ''"
_KEY_BITS: Final = 63


def _after(seconds: float, function: Callable[[], None]) -> Callable[[], None]:
    """Calls a function later, on a thread that ends with the process; gives what prevents it."""
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.name = "anabranch-batch-time"
    timer.start()
    return timer.cancel


def _opened(ctx: StepHostContext, kind: str, make: Callable[[str], object]) -> Any:
    def plan(handle: ResourceHandle) -> Plan:
        return {}, lambda: make(handle.name)

    return object_behind(ctx, open_object(ctx, kind, plan), kind)


def _rows(shape: TensorShape) -> TensorShape:
    """The shape of any number of rows like those of a tensor."""
    tail = shape.with_rank_at_least(1)
    return TensorShape(None) if tail.ndims is None else TensorShape([None]).concatenate(tail[1:])


# ---------------------------------------------------------------------- tensors
Batch = define_op(
    "Batch",
    "in_tensors: T -> batched_tensors: T, batch_index: int64, id: int64",
    "num_batch_threads: int, max_batch_size: int, max_enqueued_batches: int = 10, batch_timeout_micros: int, "
    f"allowed_batch_sizes: list(int) = [], grad_timeout_micros: int, {_NAMES}, batching_queue: string = '', "
    "T: list(type) >= 1",
    stateful=True,
    asynchronous=True,
)


@Batch.shape
def _(in_tensors: list[TensorShape]) -> list[TensorShape]:
    return [*map(_rows, in_tensors), TensorShape([None, 3]), TensorShape([])]


@Batch.host_kernel
def _(in_tensors: list[Any], *, batching_queue: bytes, ctx: StepHostContext) -> Any:
    def made(name: str) -> BatchGatherer:
        gatherer = BatchGatherer(
            name, BatchLimits.of(ctx.op.attrs), lambda batch: _give_to_last(gatherer, batch), _after
        )
        return gatherer

    gatherer: BatchGatherer = _opened(ctx, "batch", made)
    return outcome(gatherer.add(BatchTask(in_tensors, secrets.randbits(_KEY_BITS), ctx.op.name), batching_queue))


def _give_to_last(gatherer: BatchGatherer, batch: ClosedBatch) -> None:
    """The last task gets the batch and its index, all others nothing but their key."""
    gatherer.processed()
    tasks = batch.tasks
    keys = np.array([task.context for task in tasks], np.int64)
    try:
        joined = batch.joined()
    except Exception as error:  # whatever it is, it belongs to the steps that wait
        batch.fail(error)
        return
    index = np.stack([keys, np.array(batch.bounds[:-1]), np.array(batch.bounds[1:])], axis=1)
    for task, key in zip(tasks[:-1], keys, strict=False):
        task.complete([*(a[:0] for a in task.inputs), index[:0], key])
    tasks[-1].complete([*joined, index, keys[-1]])


@Batch.gradient
def _(op: Operation, *grads: Gradient) -> Any:
    """Each run gets its own part of the gradient of the batch."""
    index, key = op.outputs[-2], op.outputs[-1]
    parts = [
        raw.ZerosLike(tensor) if grad is None else convert_to_tensor(grad)
        for tensor, grad in zip(op.outputs[:-2], grads, strict=False)
    ]
    timeout = op.attrs["grad_timeout_micros"]
    return [raw.Unbatch(part, index, key, timeout_micros=timeout) for part in parts]


Unbatch = define_op(
    "Unbatch",
    "batched_tensor: T, batch_index: int64, id: int64 -> unbatched_tensor: T",
    f"timeout_micros: int, {_NAMES}, T: any",
    stateful=True,
    asynchronous=True,
)


@Unbatch.shape
def _(batched_tensor: TensorShape, batch_index: TensorShape, id: TensorShape) -> TensorShape:
    return _rows(batched_tensor)


@Unbatch.host_kernel
def _(batched_tensor: Array, batch_index: Array, id: Array, *, timeout_micros: int, ctx: StepHostContext) -> Any:
    seconds = max(0, timeout_micros) * 1e-6
    exchange: PieceExchange = _opened(ctx, "pieces of batches", lambda name: PieceExchange(name, seconds, _after))
    return outcome(exchange.exchange(batched_tensor, batch_index, int(id)))


@Unbatch.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return raw.UnbatchGrad(op.inputs[0], op.inputs[1], grad, op.inputs[2]), None, None


UnbatchGrad = define_op(
    "UnbatchGrad",
    "original_input: T, batch_index: int64, grad: T, id: int64 -> batched_grad: T",
    f"{_NAMES}, T: any",
    stateful=True,
    asynchronous=True,
)
UnbatchGrad.not_differentiable()


@UnbatchGrad.shape
def _(original_input: TensorShape, batch_index: TensorShape, grad: TensorShape, id: TensorShape) -> TensorShape:
    return original_input


@UnbatchGrad.host_kernel
def _(original_input: Array, batch_index: Array, grad: Array, id: Array, *, ctx: StepHostContext) -> Any:
    gatherer: GradientGatherer = _opened(ctx, "gradients of batches", GradientGatherer)
    return outcome(gatherer.gather(original_input, batch_index, grad, int(id)))


# ---------------------------------------------------------------------- functions
BatchFunction = define_op(
    "BatchFunction",
    "in_tensors: Tin, captured_tensors: Tcaptured -> out_tensors: Tout",
    "f: func, num_batch_threads: int, max_batch_size: int, batch_timeout_micros: int, max_enqueued_batches: int = 10, "
    f"allowed_batch_sizes: list(int) = [], {_NAMES}, batching_queue: string = '', Tin: list(type) >= 1, "
    "Tcaptured: list(type) >= 0, Tout: list(type) >= 1",
    stateful=True,
    asynchronous=True,
    defers_bodies=True,
)
BatchFunction.not_differentiable()


@BatchFunction.shape
def _(in_tensors: list[TensorShape], captured_tensors: list[TensorShape], *, ctx: ShapeContext) -> list[TensorShape]:
    for shape in in_tensors:
        shape.with_rank_at_least(1)
    return [TensorShape(None)] * ctx.output_count


@BatchFunction.host_kernel
def _(
    in_tensors: list[Any], captured_tensors: list[Any], *, f: FuncAttr, batching_queue: bytes, ctx: StepHostContext
) -> Any:
    def made(name: str) -> BatchGatherer:
        attrs = ctx.op.attrs
        threads = _BatchThreads(attrs["num_batch_threads"])
        gatherer = BatchGatherer(name, BatchLimits.of(attrs), lambda batch: threads.begin(gatherer, batch), _after)
        return gatherer

    gatherer: BatchGatherer = _opened(ctx, "batch function", made)
    body = ctx.op.function(f.name)

    def called(batched: Sequence[HostArray]) -> list[Any]:
        return ctx.call(body, [*batched, *captured_tensors])

    return outcome(gatherer.add(BatchTask(in_tensors, called, ctx.op.name), batching_queue))


class _BatchThreads:
    """Up to `count` threads that call functions for batches; each ends when nothing is left.

    #: `_waiting` and `_running` are only touched under `_lock`; functions are called without it.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._waiting: deque[tuple[BatchGatherer, ClosedBatch]] = deque()
        self._running = 0

    def begin(self, gatherer: BatchGatherer, batch: ClosedBatch) -> None:
        """Lets a thread process a batch as soon as one is free."""
        with self._lock:
            self._waiting.append((gatherer, batch))
            if self._running == self._count:
                return
            self._running += 1
        start_thread(threading.Thread(target=self._run, name="anabranch-batch", daemon=True))

    def _run(self) -> None:
        with np.errstate(all="ignore"):
            while True:
                with self._lock:
                    if not self._waiting:
                        self._running -= 1
                        return
                    gatherer, batch = self._waiting.popleft()
                _process(batch, gatherer)


def _process(batch: ClosedBatch, gatherer: BatchGatherer) -> None:
    gatherer.processed()
    try:
        outputs = [np.asarray(out) for out in batch.tasks[0].context(batch.joined())]
        _check_rows(outputs, batch.rows)
    except BaseException as error:  # whatever it is, it belongs to the steps that wait
        batch.fail(error)
        return
    for task, begin, end in zip(batch.tasks, batch.bounds, batch.bounds[1:], strict=False):
        task.complete([out[begin:end] for out in outputs])


def _check_rows(outputs: Sequence[HostArray], rows: int) -> None:
    for out in outputs:
        if out.ndim == 0:
            raise FailedPreconditionError(None, None, "Batched output tensor has 0 dimensions; return one row for each")
        if len(out) != rows:
            raise FailedPreconditionError(
                None,
                None,
                f"Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the input "
                f"tensors: {len(out)} vs. {rows}",
            )
