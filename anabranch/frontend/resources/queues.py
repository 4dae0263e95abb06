"""Queues and barriers as users see them  (§3.1, §4.1; WP4.5-4.6)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from anabranch.core import dtypes, nest
from anabranch.core.dtypes import DType, DTypeLike
from anabranch.core.nest import Structure
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import DTypes, Names, Shapes
from anabranch.frontend.framework import get_seed, get_static_value, name_scope
from anabranch.frontend.resources.components import (
    arranged,
    as_name_list,
    as_shape_list,
    as_type_list,
    common_shape,
    in_order,
)
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


class QueueBase:
    """A line of elements that steps put in and take out; a full queue makes the one wait, an empty one the other.

    An element is a tuple of tensors, its components. Do not make objects of this class; use a subclass.

    Args:
        dtypes: one per component.
        shapes: one per component, or None: then elements may have any shape, and cannot be taken in batches.
        names: one per component, or None: with names, elements are dictionaries.
        queue_ref: the handle.

    Raises:
        ValueError: the lists have different lengths.
    """

    def __init__(
        self,
        dtypes: Sequence[DTypeLike],
        shapes: Sequence[ShapeLike] | None,
        names: Sequence[str] | None,
        queue_ref: Tensor,
    ) -> None:
        self._dtypes: list[DType] = as_type_list(list(dtypes))
        if shapes is None or len(shapes) == 0:
            self._shapes = [TensorShape(None) for _ in self._dtypes]
        else:
            if len(shapes) != len(self._dtypes):
                raise ValueError(
                    "Queue shapes must have the same length as dtypes, "
                    f"received {len(shapes)} shapes, {len(self._dtypes)} dtypes"
                )
            self._shapes = [TensorShape(s) for s in shapes]
        if names is not None and len(names) != len(self._dtypes):
            raise ValueError(
                f"Queue names must have the same length as dtypes, received len {len(names)} names, len "
                f"{len(self._dtypes)} dtypes"
            )
        self._names = list(names) if names is not None else None
        self._queue_ref = queue_ref
        self._name = queue_ref.op.name.split("/")[-1]

    @staticmethod
    def from_list(index: TensorLike, queues: Sequence[Any]) -> QueueBase:
        """The queue of a list that an integer tensor chooses when the step runs.

        Raises:
            TypeError: `queues` are no queues, or differ in dtypes or names.
        """
        if not queues or not isinstance(queues, list) or not all(isinstance(q, QueueBase) for q in queues):
            raise TypeError("A list of queues expected")
        first = queues[0]
        if not all(first.dtypes == q.dtypes for q in queues[1:]):
            raise TypeError("Queues do not have matching component dtypes.")
        if not all(first.names == q.names for q in queues[1:]):
            raise TypeError("Queues do not have matching component names.")
        shapes = first.shapes
        for queue in queues[1:]:
            shapes = [common_shape(a, b) for a, b in zip(shapes, queue.shapes, strict=True)]
        chosen = raw._SelectHandle(convert_to_tensor(index, dtypes.int32), [q.queue_ref for q in queues])
        return QueueBase(first.dtypes, shapes, first.names, chosen)

    # ------------------------------------------------------------------ what it is
    @property
    def queue_ref(self) -> Tensor:
        """The handle."""
        return self._queue_ref

    @property
    def name(self) -> str:
        """The name of the operation that makes the queue."""
        return self._queue_ref.op.name

    @property
    def dtypes(self) -> list[DType]:
        """One per component."""
        return self._dtypes

    @property
    def shapes(self) -> list[TensorShape]:
        """One per component."""
        return self._shapes

    @property
    def names(self) -> list[str] | None:
        """One per component, or None."""
        return self._names

    # ------------------------------------------------------------------ putting in
    def enqueue(self, vals: Structure, name: str | None = None) -> Operation:
        """An operation that puts in one element and waits for room.

        When it runs: `CancelledError` if the queue is closed.

        Args:
            vals: a tensor, a list of them, or a dictionary.
            name: of the operation.

        Returns:
            An operation.

        Raises:
            ValueError: `vals` do not have the queue's shapes, or another number of parts.

        Example:
            >>> queue = tf.FIFOQueue(10, tf.int32, shapes=[[]])
            >>> sess.run(queue.enqueue(7))
            >>> sess.run(queue.size())
            np.int32(1)
        """
        with name_scope(name, f"{self._name}_enqueue", self._scope_values(vals)) as scope:
            tensors = self._components(vals)
            for tensor, shape in zip(tensors, self._shapes, strict=True):
                tensor.shape.assert_is_compatible_with(shape)
            result: Operation = raw.QueueEnqueueV2(self._queue_ref, tensors, name=scope)
            return result

    def enqueue_many(self, vals: Structure, name: str | None = None) -> Operation:
        """An operation that puts in the elements along the first dimension of tensors, in order.

        When it runs: `CancelledError` if the queue is closed.
        """
        with name_scope(name, f"{self._name}_EnqueueMany", self._scope_values(vals)) as scope:
            tensors = self._components(vals)
            count = tensors[0].shape.with_rank_at_least(1)[0]
            for tensor, shape in zip(tensors, self._shapes, strict=True):
                count = count.merge_with(tensor.shape.with_rank_at_least(1)[0])
                tensor.shape[1:].assert_is_compatible_with(shape)
            result: Operation = raw.QueueEnqueueManyV2(self._queue_ref, tensors, name=scope)
            return result

    def _scope_values(self, vals: Structure) -> list[Any]:
        if isinstance(vals, dict):
            return list(vals.values())
        return list(vals) if isinstance(vals, list | tuple) else [vals]

    def _components(self, vals: Structure) -> list[Tensor]:
        values = in_order(vals, self._names, "Queue")
        if len(values) != len(self._dtypes):
            raise ValueError(f"queue {self._name!r} has {len(self._dtypes)} components, but {len(values)} were given")
        return [
            convert_to_tensor(value, dtype, name=f"component_{i}")
            for i, (value, dtype) in enumerate(zip(values, self._dtypes, strict=True))
        ]

    # ------------------------------------------------------------------ taking out
    def dequeue(self, name: str | None = None) -> nest.Structure:
        """The next element; waits for one.

        When it runs: `OutOfRangeError` if the queue is closed and empty.

        Args:
            name: of the operation.

        Returns:
            A tensor, a list of them, or a dictionary, as the queue's elements are.

        Raises:
            nothing

        Example:
            >>> queue = tf.FIFOQueue(10, tf.int32, shapes=[[]])
            >>> sess.run(queue.enqueue(7))
            >>> sess.run(queue.dequeue())
            np.int32(7)
        """
        name = f"{self._name}_Dequeue" if name is None else name
        components = raw.QueueDequeueV2(self._queue_ref, component_types=self._dtypes, name=name)
        return self._arranged(components, self._shapes)

    def dequeue_many(self, n: TensorLike, name: str | None = None) -> nest.Structure:
        """The next `n` elements as one batch: a first dimension of `n` is added to each component; waits for all.

        When it runs: `OutOfRangeError` if the queue is closed and has fewer.
        """
        name = f"{self._name}_DequeueMany" if name is None else name
        components = raw.QueueDequeueManyV2(self._queue_ref, n=n, component_types=self._dtypes, name=name)
        first = TensorShape([get_static_value(components[0].op.inputs[1])])
        return self._arranged(components, [first.concatenate(s) for s in self._shapes])

    def dequeue_up_to(self, n: TensorLike, name: str | None = None) -> nest.Structure:
        """Like `dequeue_many`, but a closed queue gives what it has, if that is anything.

        When it runs: `OutOfRangeError` if the queue is closed and empty.
        """
        name = f"{self._name}_DequeueUpTo" if name is None else name
        components = raw.QueueDequeueUpToV2(self._queue_ref, n=n, component_types=self._dtypes, name=name)
        return self._arranged(components, [TensorShape([None]).concatenate(s) for s in self._shapes])

    def _arranged(self, tensors: list[Tensor], shapes: list[TensorShape]) -> Any:
        for tensor, shape in zip(tensors, shapes, strict=True):
            tensor.set_shape(shape)
        if len(tensors) == 1 and not self._names:
            return tensors[0]
        return arranged(tensors, self._names)

    # ------------------------------------------------------------------ the rest
    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Operation:
        """An operation that ends the queue: nothing more comes in, what is in it can still be taken.

        Args:
            cancel_pending_enqueues: whether enqueues that wait for room fail, or are waited for.
        """
        name = f"{self._name}_Close" if name is None else name
        result: Operation = raw.QueueCloseV2(
            self._queue_ref, cancel_pending_enqueues=cancel_pending_enqueues, name=name
        )
        return result

    def is_closed(self, name: str | None = None) -> Tensor:
        """Whether the queue is closed, a bool."""
        result: Tensor = raw.QueueIsClosedV2(self._queue_ref, name=name or f"{self._name}_Is_Closed")
        return result

    def size(self, name: str | None = None) -> Tensor:
        """How many elements are in the queue, an int32."""
        result: Tensor = raw.QueueSizeV2(self._queue_ref, name=name or f"{self._name}_Size")
        return result


class FIFOQueue(QueueBase):
    """A queue that gives elements out in the order in which they came in.

    Args:
        capacity: how many elements it holds; negative: any number.
        dtypes: one per component.
        shapes: fully known, one per component; needed to take batches.
        names: one per component.
        shared_name: of the queue in the task, for several graphs or sessions.
        name: of the operation.

    Raises:
        ValueError: the numbers of dtypes, shapes and names differ.

    Example:
        >>> queue = tf.FIFOQueue(10, tf.int32, shapes=[[]])
        >>> sess.run(queue.enqueue_many([[1, 2, 3]]))
        >>> sess.run(queue.dequeue_many(2))
        array([1, 2], dtype=int32)
    """

    def __init__(
        self,
        capacity: int,
        dtypes: DTypes,
        shapes: Shapes | None = None,
        names: Names | None = None,
        shared_name: str | None = None,
        name: str = "fifo_queue",
    ) -> None:
        types = as_type_list(dtypes)
        known = as_shape_list(shapes)
        handle = raw.FIFOQueueV2(
            component_types=types, shapes=known, capacity=capacity, shared_name=_text(shared_name), name=name
        )
        super().__init__(types, known, as_name_list(names, types), handle)


class RandomShuffleQueue(QueueBase):
    """A queue that gives elements out in random order.

    Args:
        capacity: how many elements it holds; negative: any number.
        min_after_dequeue: how many elements stay in the open queue, so that there is something to choose from.
        dtypes, shapes, names, shared_name, name: as for `FIFOQueue`.
        seed: of the random order.
    """

    def __init__(
        self,
        capacity: int,
        min_after_dequeue: int,
        dtypes: DTypes,
        shapes: Shapes | None = None,
        names: Names | None = None,
        seed: int | None = None,
        shared_name: str | None = None,
        name: str = "random_shuffle_queue",
    ) -> None:
        types = as_type_list(dtypes)
        known = as_shape_list(shapes)
        seed1, seed2 = get_seed(seed)
        if seed1 is None and seed2 is None:
            seed1, seed2 = 0, 0
        elif seed is None and shared_name is not None:
            # all graphs that share the queue must agree on its seeds, whatever operations they have made before
            digest = hashlib.md5(f"{seed1}{shared_name}".encode(), usedforsecurity=False).hexdigest()
            seed2 = int(digest[:8], 16) & 0x7FFFFFFF
        handle = raw.RandomShuffleQueueV2(
            component_types=types,
            shapes=known,
            capacity=capacity,
            min_after_dequeue=min_after_dequeue,
            seed=seed1,
            seed2=seed2,
            shared_name=_text(shared_name),
            name=name,
        )
        super().__init__(types, known, as_name_list(names, types), handle)


class PaddingFIFOQueue(QueueBase):
    """A `FIFOQueue` whose shapes may have open dimensions: in a batch, these are padded with zeros to the largest.

    Args:
        capacity, dtypes, names, shared_name, name: as for `FIFOQueue`.
        shapes: of known rank, one per component.

    Raises:
        ValueError: there is not one shape for each dtype.
    """

    def __init__(
        self,
        capacity: int,
        dtypes: DTypes,
        shapes: Shapes | None,
        names: Names | None = None,
        shared_name: str | None = None,
        name: str = "padding_fifo_queue",
    ) -> None:
        types = as_type_list(dtypes)
        known = as_shape_list(shapes, unknown_dim_allowed=True)
        if known is None or len(known) != len(types):
            raise ValueError(
                f"Shapes must be provided for all components, but received {len(types)} dtypes and "
                f"{0 if known is None else len(known)} shapes."
            )
        handle = raw.PaddingFIFOQueueV2(
            component_types=types, shapes=known, capacity=capacity, shared_name=_text(shared_name), name=name
        )
        super().__init__(types, known, as_name_list(names, types), handle)


class PriorityQueue(QueueBase):
    """A queue that gives the element with the smallest priority out first.

    Its elements have one component more than `types`, the first: the priority, an int64.

    Args:
        capacity: how many elements it holds; negative: any number.
        types: one per component, without the priority.
        shapes, names, shared_name, name: as for `FIFOQueue`; names include one for the priority.
    """

    def __init__(
        self,
        capacity: int,
        types: DTypes,
        shapes: Shapes | None = None,
        names: Names | None = None,
        shared_name: str | None = None,
        name: str = "priority_queue",
    ) -> None:
        values = as_type_list(types)
        known = as_shape_list(shapes)
        handle = raw.PriorityQueueV2(
            component_types=values, shapes=known or [], capacity=capacity, shared_name=_text(shared_name), name=name
        )
        all_types = [dtypes.int64, *values]
        all_shapes = [TensorShape([]), *known] if known else known
        super().__init__(all_types, all_shapes, as_name_list(names, all_types), handle)


def _text(shared_name: str | bytes | None) -> str:
    if shared_name is None:
        return ""
    if isinstance(shared_name, bytes):
        return shared_name.decode()
    if not isinstance(shared_name, str):
        raise ValueError(f"shared_name must be a string, got {shared_name!r}")
    return shared_name


class Barrier:
    """Elements by key whose components different steps give; an element that is complete can be taken.

    Args:
        types: one per component.
        shapes: fully known, one per component; None: whatever the first elements have.
        shared_name: of the barrier in the task.
        name: of the operation.

    Raises:
        ValueError: a shape is not known, or has no elements.
    """

    def __init__(
        self, types: DTypes, shapes: Shapes | None = None, shared_name: str | None = None, name: str = "barrier"
    ) -> None:
        self._types = as_type_list(types)
        known = as_shape_list(shapes)
        if known is not None:
            for i, shape in enumerate(known):
                if shape.num_elements() == 0:
                    raise ValueError(f"Empty tensors are not supported, but received shape '{shape}' at index {i}")
        self._shapes = known or [TensorShape(None) for _ in self._types]
        self._barrier_ref: Tensor = raw.Barrier(
            component_types=self._types, shapes=known or [], shared_name=_text(shared_name), name=name
        )
        self._name = self._barrier_ref.op.name.split("/")[-1]

    @property
    def barrier_ref(self) -> Tensor:
        """The handle."""
        return self._barrier_ref

    @property
    def name(self) -> str:
        """The name of the operation that makes the barrier."""
        return self._barrier_ref.op.name

    def insert_many(
        self, component_index: int, keys: TensorLike, values: Structure, name: str | None = None
    ) -> Operation:
        """An operation that gives one component of the elements that `keys` name.

        Args:
            component_index: which component.
            keys: a vector of strings.
            values: one row for each key.
        """
        name = f"{self._name}_BarrierInsertMany" if name is None else name
        result: Operation = raw.BarrierInsertMany(
            self._barrier_ref, keys, values, component_index=component_index, name=name
        )
        return result

    def take_many(
        self,
        num_elements: TensorLike,
        allow_small_batch: bool = False,
        timeout: int | None = None,
        name: str | None = None,
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Complete elements, oldest keys first; waits for them.

        Args:
            allow_small_batch: whether a closed barrier may give fewer, but at least one; who waits when it is closed
                is not kept waiting for more.
            timeout: ignored.

        Returns:
            The indices of insertion, the keys, and a list with one batch for each component.
        """
        name = f"{self._name}_BarrierTakeMany" if name is None else name
        result: tuple[Tensor, Tensor, list[Tensor]] = raw.BarrierTakeMany(
            self._barrier_ref,
            num_elements,
            component_types=self._types,
            allow_small_batch=allow_small_batch,
            timeout_ms=-1 if timeout is None else timeout,
            name=name,
        )
        return result

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Operation:
        """An operation after which no new keys are taken; with cancellation incomplete elements are forgotten."""
        name = f"{self._name}_BarrierClose" if name is None else name
        result: Operation = raw.BarrierClose(
            self._barrier_ref, cancel_pending_enqueues=cancel_pending_enqueues, name=name
        )
        return result

    def ready_size(self, name: str | None = None) -> Tensor:
        """How many elements are complete, an int32."""
        result: Tensor = raw.BarrierReadySize(self._barrier_ref, name=name or f"{self._name}_BarrierReadySize")
        return result

    def incomplete_size(self, name: str | None = None) -> Tensor:
        """How many elements lack components, an int32."""
        result: Tensor = raw.BarrierIncompleteSize(
            self._barrier_ref, name=name or f"{self._name}_BarrierIncompleteSize"
        )
        return result
