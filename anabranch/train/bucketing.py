"""Examples distributed over several queues, so that a batch holds examples of one kind only."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch import errors
from anabranch.core.dtypes import float32, int32
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.arrays.casting import cast
from anabranch.frontend.arrays.gathering import where_v2
from anabranch.frontend.control_flow.conditionals import cond
from anabranch.frontend.control_flow.grouping import group, no_op
from anabranch.frontend.framework import get_static_value, name_scope
from anabranch.frontend.layers.utils import smart_cond
from anabranch.frontend.resources.queues import FIFOQueue, PaddingFIFOQueue, QueueBase
from anabranch.frontend.storage import summary
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.train.input_producers import fraction_full
from anabranch.train.queue_runner import QueueRunner, add_queue_runner
from anabranch.train.queued_examples import Examples

_ENDS = (errors.OutOfRangeError, errors.CancelledError)


def bucket(
    tensors: Structure,
    which_bucket: TensorLike,
    batch_size: TensorLike,
    num_buckets: int,
    num_threads: int = 1,
    capacity: int = 32,
    bucket_capacities: Sequence[int] | None = None,
    shapes: Structure | None = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    keep_input: TensorLike = True,
    shared_name: str | None = None,
    name: str | None = None,
) -> tuple[Tensor, Any]:
    """Batches of examples from one bucket each.

    Args:
        tensors: list or dictionary of tensors: one example.
        which_bucket: int32 scalar in [0, num_buckets): where it belongs.
        batch_size: of all buckets, or a list with one for each.
        num_buckets: at least two.
        num_threads: how many threads put examples in.
        capacity: of the queue of batches, and of each bucket if `bucket_capacities` is not given.
        bucket_capacities: of each bucket.
        shapes: of an example's tensors; default: as far as they are known.
        dynamic_pad: whether tensors may have open dimensions, which are padded to the largest of a batch.
        allow_smaller_final_batch: whether the last batch of a bucket may be smaller, rather than being dropped.
        keep_input: a bool: whether to take the example.
        shared_name: of the queues in the task.
        name: of the operations.

    Returns:
        The bucket (int32) and its batches in the form of `tensors`. When it runs: `OutOfRangeError` at the end.

    Raises:
        ValueError: there are fewer than two buckets, a list is of another length, or `keep_input` is not a scalar.
    """
    if num_buckets < 2:
        raise ValueError("num_buckets must be >= 2")
    sizes = list(batch_size) if isinstance(batch_size, list | tuple) else [batch_size] * num_buckets
    if len(sizes) != num_buckets:
        raise ValueError(f"If batch_size is a list it must have num_buckets elements, got {len(sizes)}")
    capacities = [capacity] * num_buckets if bucket_capacities is None else list(bucket_capacities)
    if len(capacities) != num_buckets:
        raise ValueError(
            f"The list bucket_capacities ({capacities}) must have exactly num_buckets ({num_buckets}) elements."
        )
    with name_scope(name, "bucket", [t for t in _tensors(tensors) if isinstance(t, Tensor)]):
        examples = Examples([tensors], many=False, shapes=shapes)
        keep = convert_to_tensor(keep_input)
        if keep.shape.ndims not in (None, 0):
            raise ValueError("`keep_input` must be a scalar")
        queues = _bucket_queues(examples, capacities, dynamic_pad, shared_name)
        varying = allow_smaller_final_batch or isinstance(batch_size, list | tuple)
        top = _top_queue(
            queues[0], None if varying else get_static_value(convert_to_tensor(sizes[0])), capacity, shared_name
        )
        number = convert_to_tensor(which_bucket, int32, name="which_bucket")
        _fill_buckets(examples, number, keep, queues, top, num_threads)
        _fill_top(queues, top, sizes, allow_smaller_final_batch)
        for queue in queues:
            summary.scalar(f"bucket/{queue.name}/size", cast(top.size(), float32))
        summary.scalar(f"bucket/{top.name}/fraction_of_{capacity}_full", fraction_full(top, capacity))
        taken = top.dequeue(name="dequeue_top")
        rest = taken[1:]
        return taken[0], examples.restored(rest if len(rest) > 1 else rest[0])


def _tensors(tensors: Structure) -> list[Any]:
    return list(tensors.values()) if isinstance(tensors, dict) else list(tensors)


def _bucket_queues(
    examples: Examples, capacities: list[int], dynamic_pad: bool, shared_name: str | None
) -> list[QueueBase]:
    kind = PaddingFIFOQueue if dynamic_pad else FIFOQueue
    types = [c.stored_dtype for c in examples.components]
    shapes = [c.shape for c in examples.components]
    return [
        kind(
            capacity,
            types,
            shapes,
            shared_name=None if shared_name is None else f"{shared_name}_{i}",
            name=f"bucket_queue_{i}",
        )
        for i, capacity in enumerate(capacities)
    ]


def _top_queue(one: QueueBase, batch_size: TensorLike, capacity: int, shared_name: str | None) -> QueueBase:
    """The queue of batches, which may be of different sizes."""
    first = TensorShape([None if batch_size is None else int(batch_size)])
    shapes = [TensorShape([]), *(first.concatenate(s) for s in one.shapes)]
    return PaddingFIFOQueue(capacity, [int32, *one.dtypes], shapes, shared_name=shared_name, name="top_queue")


def _fill_buckets(
    examples: Examples, number: Tensor, keep: Tensor, queues: list[QueueBase], top: QueueBase, threads: int
) -> None:
    tensors = examples.sets[0]

    def put(queue: QueueBase) -> Callable[[], Operation]:
        return lambda: queue.enqueue(examples.stored(tensors))

    def put_where_it_belongs() -> Operation:
        puts = [cond(raw.Equal(number, i), put(queue), no_op) for i, queue in enumerate(queues)]
        return group(*puts, name="group_enqueues")

    operation = smart_cond(keep, put_where_it_belongs, no_op)
    close = group(*[q.close() for q in queues])
    cancel = group(*[q.close(cancel_pending_enqueues=True) for q in queues])
    add_queue_runner(QueueRunner(top, [operation] * threads, close, cancel, _ENDS))


def _fill_top(queues: list[QueueBase], top: QueueBase, sizes: list[Any], smaller_final: bool) -> None:
    operations = []
    for i, (queue, size) in enumerate(zip(queues, sizes, strict=True)):
        take = queue.dequeue_up_to if smaller_final else queue.dequeue_many
        taken = take(size, name=f"read_bucket_{i}")
        parts = taken if isinstance(taken, list) else [taken]
        operations.append(top.enqueue([np.int32(i), *parts], name=f"enqueue_from_bucket_{i}"))
    runner = QueueRunner(queues[0], operations, top.close(), top.close(cancel_pending_enqueues=True), _ENDS)
    add_queue_runner(runner)


def bucket_by_sequence_length(
    input_length: TensorLike,
    tensors: Structure,
    batch_size: TensorLike,
    bucket_boundaries: Sequence[int],
    num_threads: int = 1,
    capacity: int = 32,
    bucket_capacities: Sequence[int] | None = None,
    shapes: Structure | None = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    keep_input: TensorLike = True,
    shared_name: str | None = None,
    name: str | None = None,
) -> tuple[Tensor, Any]:
    """Batches of examples of like length.

    Args:
        input_length: int32 scalar: the length of the example.
        bucket_boundaries: increasing lengths: a bucket reaches from one up to the next, without it; one more lies
            before the first and one after the last.
        others: as for `bucket`.

    Returns:
        The lengths of a batch's examples, and the batches in the form of `tensors`.

    Raises:
        TypeError: the boundaries are no list of integers.
        ValueError: there are none, or they do not increase.
    """
    if not isinstance(bucket_boundaries, list | tuple):
        raise TypeError(f"bucket_boundaries must be a list or tuple, but received: {bucket_boundaries}")
    if not bucket_boundaries:
        raise ValueError("bucket_boundaries must not be empty")
    for one, following in itertools.pairwise(bucket_boundaries):
        if not isinstance(one, int) or not isinstance(following, int):
            raise TypeError(f"bucket boundaries must be integers, but saw: {one} and {following}")
        if one >= following:
            raise ValueError(f"Buckets must contain sequential increasing lengths, but saw: {one} before {following}")
    with name_scope(name, "bucket_by_sequence_length", [input_length]):
        length = convert_to_tensor(input_length, int32, name="input_length")
        lowest = np.array([np.iinfo(np.int32).min, *bucket_boundaries], np.int32)
        highest = np.array([*bucket_boundaries, np.iinfo(np.int32).max], np.int32)
        inside = raw.LogicalAnd(raw.LessEqual(lowest, length), raw.Less(length, highest))
        number = cast(raw.Squeeze(where_v2(inside)), int32)
        like = dict(tensors) if isinstance(tensors, dict) else list(tensors)
        keys = sorted(like, key=str) if isinstance(like, dict) else list(range(len(like)))
        _, taken = bucket(
            [length, *(like[k] for k in keys)],
            number,
            batch_size,
            len(bucket_boundaries) + 1,
            num_threads,
            capacity,
            bucket_capacities,
            None if shapes is None else [TensorShape([]), *shapes],
            dynamic_pad,
            allow_smaller_final_batch,
            keep_input,
            shared_name,
        )
        if isinstance(tensors, dict):
            return taken[0], dict(zip(keys, taken[1:], strict=True))
        return taken[0], taken[1] if len(taken) == 2 else list(taken[1:])
