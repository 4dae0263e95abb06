"""Batches made in a queue from examples that other steps give  (§4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.core import nest
from anabranch.core.dtypes import DType
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.arrays.casting import cast
from anabranch.frontend.control_flow.grouping import no_op
from anabranch.frontend.framework import name_scope
from anabranch.frontend.layers.utils import smart_cond
from anabranch.frontend.resources.queues import FIFOQueue, PaddingFIFOQueue, QueueBase, RandomShuffleQueue
from anabranch.frontend.storage import summary
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.train.input_producers import fraction_full
from anabranch.train.queue_runner import QueueRunner, add_queue_runner
from anabranch.train.queued_examples import Examples, in_order


# ---------------------------------------------------------------------- queues of examples
def _checked_keep(keep_input: TensorLike, many: bool) -> Tensor:
    keep = convert_to_tensor(keep_input)
    if keep.shape.ndims is None:
        raise ValueError("`keep_input` dimensions must be known at graph construction.")
    if not many and keep.shape.ndims == 1:
        raise ValueError("`keep_input` cannot be a vector when `enqueue_many=False`.")
    if keep.shape.ndims > 1:
        raise ValueError("`keep_input` must be 0 or 1 dimensions.")
    return keep


def _enqueue(queue: QueueBase, examples: Examples, keep: Tensor, threads: int) -> None:
    """Adds a queue runner with `threads` threads for each set of examples."""
    put = queue.enqueue_many if examples.many else queue.enqueue

    def enqueue(tensors: list[Any]) -> Operation:
        if keep.shape.ndims == 1:
            return put(examples.stored(tensors, keep))
        result: Operation = smart_cond(keep, lambda: put(examples.stored(tensors)), no_op)
        return result

    operations = [op for tensors in examples.sets for op in [enqueue(tensors)] * threads]
    add_queue_runner(QueueRunner(queue, operations))


@dataclass(frozen=True, slots=True)
class InOrder:
    """The queue of batches that keep the order of the examples; with `dynamic_pad`, of examples of varying size."""

    capacity: int
    dynamic_pad: bool
    shared_name: str | None

    def make(self, types: list[DType], shapes: list[TensorShape]) -> QueueBase:
        """The queue for examples of such components."""
        kind = PaddingFIFOQueue if self.dynamic_pad else FIFOQueue
        return kind(self.capacity, types, shapes, shared_name=self.shared_name)

    def report(self, queue: QueueBase) -> None:
        """Adds a summary of how full it is."""
        summary.scalar(f"fraction_of_{self.capacity}_full", fraction_full(queue, self.capacity))


@dataclass(frozen=True, slots=True)
class Shuffled:
    """The queue of batches that mix each example with at least `min_after_dequeue` others."""

    capacity: int
    min_after_dequeue: int
    seed: int | None
    shared_name: str | None

    def make(self, types: list[DType], shapes: list[TensorShape]) -> QueueBase:
        """The queue for examples of such components."""
        return RandomShuffleQueue(
            self.capacity, self.min_after_dequeue, types, shapes, seed=self.seed, shared_name=self.shared_name
        )

    def report(self, queue: QueueBase) -> None:
        """Adds a summary of how many more examples than the least there are, as a share of the room for them."""
        room = self.capacity - self.min_after_dequeue
        above = raw.Maximum(0, raw.Sub(queue.size(), self.min_after_dequeue))
        summary.scalar(f"fraction_over_{self.min_after_dequeue}_of_{room}_full", cast(above, "float32") * (1.0 / room))


def _batches(
    scope_name: str,
    sets: Sequence[Any],
    keep_input: TensorLike,
    batch_size: TensorLike,
    kind: InOrder | Shuffled,
    *,
    threads: int = 1,
    many: bool,
    shapes: Structure,
    smaller_final: bool,
    name: str | None,
) -> Any:
    """What all functions below do: `sets` of tensors go through a queue of some kind and come out as batches."""
    values = [v for s in sets for v in in_order(s)]
    with name_scope(name, scope_name, [*(v for v in values if isinstance(v, Tensor)), keep_input]) as scope:
        examples = Examples(sets, many, shapes)
        keep = _checked_keep(keep_input, many)
        queue = kind.make([c.stored_dtype for c in examples.components], [c.shape for c in examples.components])
        _enqueue(queue, examples, keep, threads)
        kind.report(queue)
        take = queue.dequeue_up_to if smaller_final else queue.dequeue_many
        return examples.restored(take(batch_size, name=scope))


# ---------------------------------------------------------------------- what users call
def batch(
    tensors: Structure,
    batch_size: TensorLike,
    num_threads: int = 1,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Structure | None = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> nest.Structure:
    """Batches of examples, made in a queue that a queue runner fills.

    Args:
        tensors: list or dictionary of tensors (dense or sparse): one example.
        batch_size: how many examples make a batch.
        num_threads: how many threads put examples in.
        capacity: of the queue.
        enqueue_many: whether each tensor holds several examples, along its first dimension.
        shapes: of an example's tensors; default: as far as they are known.
        dynamic_pad: whether tensors may have open dimensions, which are padded to the largest of a batch.
        allow_smaller_final_batch: whether the last batch may be smaller, rather than being dropped.
        shared_name: of the queue in the task.
        name: of the operations.

    Returns:
        The batches in the form of `tensors`. When it runs: `OutOfRangeError` at the end of the input.

    Raises:
        ValueError: shapes are not known.

    Example:
        >>> number, = tf.train.slice_input_producer([[1, 2, 3, 4]], shuffle=False)
        >>> numbers = tf.train.batch([number], batch_size=4)
        >>> coordinator = tf.train.Coordinator()
        >>> threads = tf.train.start_queue_runners(sess, coordinator)
        >>> sess.run(numbers)
        array([1, 2, 3, 4], dtype=int32)
        >>> coordinator.request_stop()
        >>> coordinator.join(threads)
    """
    return _batches(
        "batch", [tensors], True, batch_size, InOrder(capacity, dynamic_pad, shared_name), threads=num_threads,
        many=enqueue_many, shapes=shapes, smaller_final=allow_smaller_final_batch, name=name,
    )  # fmt: skip


def maybe_batch(
    tensors: Structure,
    keep_input: TensorLike,
    batch_size: TensorLike,
    num_threads: int = 1,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Structure | None = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> nest.Structure:
    """`batch` of the examples for which `keep_input`, a bool (a vector if `enqueue_many`), is true."""
    return _batches(
        "batch", [tensors], keep_input, batch_size, InOrder(capacity, dynamic_pad, shared_name), threads=num_threads,
        many=enqueue_many, shapes=shapes, smaller_final=allow_smaller_final_batch, name=name,
    )  # fmt: skip


def batch_join(
    tensors_list: Structure,
    batch_size: TensorLike,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Structure | None = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> nest.Structure:
    """`batch` of examples from several places: one thread for each element of `tensors_list`."""
    return _batches(
        "batch_join", tensors_list, True, batch_size, InOrder(capacity, dynamic_pad, shared_name),
        many=enqueue_many, shapes=shapes, smaller_final=allow_smaller_final_batch, name=name,
    )  # fmt: skip


def maybe_batch_join(
    tensors_list: Structure,
    keep_input: TensorLike,
    batch_size: TensorLike,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Structure | None = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> nest.Structure:
    """`batch_join` of the examples for which `keep_input` is true."""
    return _batches(
        "batch_join", tensors_list, keep_input, batch_size, InOrder(capacity, dynamic_pad, shared_name),
        many=enqueue_many, shapes=shapes, smaller_final=allow_smaller_final_batch, name=name,
    )  # fmt: skip


def shuffle_batch(
    tensors: Structure,
    batch_size: TensorLike,
    capacity: int,
    min_after_dequeue: int,
    num_threads: int = 1,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Structure | None = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> nest.Structure:
    """Batches of examples in random order.

    Args:
        tensors: list or dictionary of tensors (dense or sparse): one example.
        batch_size: how many examples make a batch.
        capacity: of the queue.
        min_after_dequeue: how many examples stay in the queue to be mixed with.
        num_threads: how many threads put examples in.
        seed: of the random order.
        enqueue_many: whether each tensor holds several examples, along its first dimension.
        shapes: of an example's tensors; default: as far as they are known.
        allow_smaller_final_batch: whether the last batch may be smaller, rather than being dropped.
        shared_name: of the queue in the task.
        name: of the operation.

    Returns:
        The batches in the form of `tensors`: [batch_size, ...]. When it runs: `OutOfRangeError` at the end of the
        input.

    Raises:
        ValueError: shapes are not known.

    Example:
        >>> number, = tf.train.slice_input_producer([[1, 2, 3, 4]], num_epochs=1)
        >>> numbers = tf.train.shuffle_batch([number], batch_size=4, capacity=10, min_after_dequeue=4)
        >>> sess.run(tf.local_variables_initializer())
        >>> threads = tf.train.start_queue_runners(sess)
        >>> sorted(sess.run(numbers).tolist())
        [1, 2, 3, 4]
    """
    return _batches(
        "shuffle_batch", [tensors], True, batch_size,
        Shuffled(capacity, min_after_dequeue, seed, shared_name),
        threads=num_threads,
        many=enqueue_many, shapes=shapes, smaller_final=allow_smaller_final_batch, name=name,
    )  # fmt: skip


def maybe_shuffle_batch(
    tensors: Structure,
    batch_size: TensorLike,
    capacity: int,
    min_after_dequeue: int,
    keep_input: TensorLike,
    num_threads: int = 1,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Structure | None = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> nest.Structure:
    """`shuffle_batch` of the examples for which `keep_input` is true."""
    return _batches(
        "shuffle_batch", [tensors], keep_input, batch_size,
        Shuffled(capacity, min_after_dequeue, seed, shared_name),
        threads=num_threads,
        many=enqueue_many, shapes=shapes, smaller_final=allow_smaller_final_batch, name=name,
    )  # fmt: skip


def shuffle_batch_join(
    tensors_list: Structure,
    batch_size: TensorLike,
    capacity: int,
    min_after_dequeue: int,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Structure | None = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> nest.Structure:
    """`shuffle_batch` of examples from several places: one thread for each element of `tensors_list`."""
    return _batches(
        "shuffle_batch_join", tensors_list, True, batch_size,
        Shuffled(capacity, min_after_dequeue, seed, shared_name),
        many=enqueue_many, shapes=shapes, smaller_final=allow_smaller_final_batch, name=name,
    )  # fmt: skip


def maybe_shuffle_batch_join(
    tensors_list: Structure,
    batch_size: TensorLike,
    capacity: int,
    min_after_dequeue: int,
    keep_input: TensorLike,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Structure | None = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> nest.Structure:
    """`shuffle_batch_join` of the examples for which `keep_input` is true."""
    return _batches(
        "shuffle_batch_join", tensors_list, keep_input, batch_size,
        Shuffled(capacity, min_after_dequeue, seed, shared_name),
        many=enqueue_many, shapes=shapes, smaller_final=allow_smaller_final_batch, name=name,
    )  # fmt: skip
