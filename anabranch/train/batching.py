"""Batches made in a queue from examples that other steps give  (§4.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.core.dtypes import DType, int32, int64
from anabranch.core.shapes import TensorShape
from anabranch.frontend import summary
from anabranch.frontend.casting import cast
from anabranch.frontend.components import common_shape
from anabranch.frontend.data_flow import dynamic_partition
from anabranch.frontend.framework import convert_to_tensor, convert_to_tensor_or_sparse_tensor, name_scope
from anabranch.frontend.grouping import no_op
from anabranch.frontend.layers.utils import smart_cond
from anabranch.frontend.queues import FIFOQueue, PaddingFIFOQueue, QueueBase, RandomShuffleQueue
from anabranch.frontend.sparse import sparse_retain
from anabranch.graph.composite import SparseTensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.train.input_producers import fraction_full
from anabranch.train.queue_runner import QueueRunner, add_queue_runner

__all__ = [
    "batch",
    "batch_join",
    "maybe_batch",
    "maybe_batch_join",
    "maybe_shuffle_batch",
    "maybe_shuffle_batch_join",
    "shuffle_batch",
    "shuffle_batch_join",
]


# ---------------------------------------------------------------------- examples
@dataclass(frozen=True, slots=True)
class Component:
    """A component of the examples: what the queue holds of it.

    Attributes:
        map_name: of the map that keeps it where it is sparse, and the queue its numbers; else "".
        rank: of one example's tensor, where it is sparse.
    """

    dtype: DType
    shape: TensorShape
    map_name: str = ""
    rank: int | None = None

    @property
    def is_sparse(self) -> bool:
        return bool(self.map_name)

    @property
    def stored_dtype(self) -> DType:
        return int64 if self.is_sparse else self.dtype


class Examples:
    """The tensors of one or several examples that go into one queue.

    Args:
        sets: lists or dictionaries of tensors, one for each enqueue operation.
        many: whether each tensor holds several examples, along its first dimension.
        shapes: of the components; default: those of the tensors.

    Raises:
        ValueError: there are none, they differ, or a rank is not known.
        TypeError: they differ in types.
    """

    def __init__(self, sets: Sequence[Any], many: bool, shapes: Any) -> None:
        if not sets:
            raise ValueError("Expected at least one set of tensors")
        self.many = many
        self._like = sets[0]
        if isinstance(self._like, dict) and any(set(s) != set(self._like) for s in sets[1:]):
            raise ValueError("All dictionaries in tensors_list must have the same keys")
        self.sets = [[convert_to_tensor_or_sparse_tensor(t) for t in _in_order(s)] for s in sets]
        if not all(self.sets):
            raise ValueError("Expected at least one tensor in batch().")
        self.components = self._find_components(shapes)

    def _find_components(self, shapes: Any) -> list[Component]:
        first = self.sets[0]
        for other in self.sets[1:]:
            if [t.dtype for t in other] != [t.dtype for t in first]:
                raise TypeError(
                    f"Expected types to be consistent: {', '.join(t.dtype.name for t in first)} vs. "
                    f"{', '.join(t.dtype.name for t in other)}."
                )
            if [isinstance(t, SparseTensor) for t in other] != [isinstance(t, SparseTensor) for t in first]:
                raise ValueError(f"Inconsistent SparseTensors list: {first} vs. {other}")
        found = []
        for i, tensor in enumerate(first):
            if isinstance(tensor, SparseTensor):
                rank = tensor.dense_shape.shape.with_rank(1)[0].value
                rank = rank - 1 if rank is not None and self.many else rank
                name = get_default_graph().unique_name(f"sparse_map_{i}")
                found.append(Component(tensor.dtype, TensorShape([1]), name, rank))
            else:
                shape = self._shape_of(i) if shapes is None else TensorShape(shapes[i])
                found.append(Component(tensor.dtype.base_dtype, shape))
        return found

    def _shape_of(self, index: int) -> TensorShape:
        shape: TensorShape | None = None
        for tensors in self.sets:
            one: TensorShape = tensors[index].shape
            if one.ndims is None:
                raise ValueError(f"Cannot infer Tensor's rank: {tensors[index]}")
            one = one.with_rank_at_least(1)[1:] if self.many else one
            shape = one if shape is None else _wider(shape, one)
        assert shape is not None
        return shape

    def stored(self, tensors: Sequence[Any], keep: Tensor | None = None) -> list[Tensor]:
        """What is put into the queue for a set of tensors. `keep`: of several examples, which."""
        found = []
        for tensor, component in zip(tensors, self.components, strict=True):
            if component.is_sparse:
                kept = tensor if keep is None else sparse_retain(tensor, _kept_values(tensor, keep))
                add = raw.AddManySparseToTensorsMap if self.many else raw.AddSparseToTensorsMap
                number = add(kept.indices, kept.values, kept.dense_shape, shared_name=component.map_name)
                found.append(raw.ExpandDims(number, -1))
            else:
                found.append(tensor)
        if keep is not None:
            which = cast(keep, int32)
            found = [dynamic_partition(t, which, 2)[1] for t in found]
        return found

    def restored(self, dequeued: Any) -> Any:
        """What comes out of the queue, in the form in which the examples were given."""
        tensors = list(dequeued) if isinstance(dequeued, list | tuple) else [dequeued]
        found: list[Any] = [
            _sparse_batch(t, c) if c.is_sparse else t for t, c in zip(tensors, self.components, strict=True)
        ]
        if isinstance(self._like, dict):
            return dict(zip(sorted(self._like, key=str), found, strict=True))
        return found if len(found) > 1 else found[0]


def _in_order(tensors: Any) -> list[Any]:
    return [tensors[k] for k in sorted(tensors, key=str)] if isinstance(tensors, dict) else list(tensors)


def _wider(first: TensorShape, second: TensorShape) -> TensorShape:
    first.assert_is_compatible_with(second)
    return common_shape(first, second)


def _kept_values(tensor: SparseTensor, keep: Tensor) -> Tensor:
    rows = raw.StridedSlice(tensor.indices, [0, 0], [0, 1], [1, 1], begin_mask=1, end_mask=1, shrink_axis_mask=2)
    kept: Tensor = raw.GatherV2(keep, rows, 0)
    return kept


def _sparse_batch(numbers: Tensor, component: Component) -> SparseTensor:
    flat = raw.Squeeze(numbers, squeeze_dims=[1])
    indices, values, shape = raw.TakeManySparseFromTensorsMap(
        flat, dtype=component.dtype, shared_name=component.map_name
    )
    rank = None if component.rank is None else component.rank + 1
    indices.set_shape([None, rank])
    shape.set_shape([rank])
    return SparseTensor(indices, values, shape)


# ---------------------------------------------------------------------- queues of examples
def _checked_keep(keep_input: Any, many: bool) -> Tensor:
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


def _batches(
    scope_name: str,
    sets: Sequence[Any],
    batch_size: Any,
    keep_input: Any,
    make_queue: Callable[[list[DType], list[TensorShape]], QueueBase],
    capacity: int,
    threads: int,
    many: bool,
    shapes: Any,
    smaller_final: bool,
    name: str | None,
    fraction: Callable[[QueueBase], None] | None = None,
) -> Any:
    values = [v for s in sets for v in _in_order(s)]
    with name_scope(name, scope_name, [*(v for v in values if isinstance(v, Tensor)), keep_input]) as scope:
        examples = Examples(sets, many, shapes)
        keep = _checked_keep(keep_input, many)
        types = [c.stored_dtype for c in examples.components]
        queue = make_queue(types, [c.shape for c in examples.components])
        _enqueue(queue, examples, keep, threads)
        if fraction is None:
            summary.scalar(f"fraction_of_{capacity}_full", fraction_full(queue, capacity))
        else:
            fraction(queue)
        take = queue.dequeue_up_to if smaller_final else queue.dequeue_many
        return examples.restored(take(batch_size, name=scope))


def _line(dynamic_pad: bool, capacity: int, shared_name: str | None) -> Callable[..., QueueBase]:
    kind = PaddingFIFOQueue if dynamic_pad else FIFOQueue
    return lambda types, shapes: kind(capacity, types, shapes, shared_name=shared_name)


def _shuffling(
    capacity: int, min_after_dequeue: int, seed: int | None, shared_name: str | None
) -> tuple[Callable[..., QueueBase], Callable[[QueueBase], None]]:
    def make(types: Any, shapes: Any) -> QueueBase:
        return RandomShuffleQueue(capacity, min_after_dequeue, types, shapes, seed=seed, shared_name=shared_name)

    def fraction(queue: QueueBase) -> None:
        above = raw.Maximum(0, raw.Sub(queue.size(), min_after_dequeue))
        full = cast(above, "float32") * (1.0 / (capacity - min_after_dequeue))
        summary.scalar(f"fraction_over_{min_after_dequeue}_of_{capacity - min_after_dequeue}_full", full)

    return make, fraction


def batch(
    tensors: Any,
    batch_size: Any,
    num_threads: int = 1,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
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
    """
    return maybe_batch(
        tensors, True, batch_size, num_threads, capacity, enqueue_many, shapes, dynamic_pad, allow_smaller_final_batch,
        shared_name, name,
    )  # fmt: skip


def maybe_batch(
    tensors: Any,
    keep_input: Any,
    batch_size: Any,
    num_threads: int = 1,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """`batch` of the examples for which `keep_input`, a bool (a vector if `enqueue_many`), is true."""
    return _batches(
        "batch", [tensors], batch_size, keep_input, _line(dynamic_pad, capacity, shared_name), capacity, num_threads,
        enqueue_many, shapes, allow_smaller_final_batch, name,
    )  # fmt: skip


def batch_join(
    tensors_list: Any,
    batch_size: Any,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """`batch` of examples from several places: one thread for each element of `tensors_list`."""
    return maybe_batch_join(
        tensors_list, True, batch_size, capacity, enqueue_many, shapes, dynamic_pad, allow_smaller_final_batch,
        shared_name, name,
    )  # fmt: skip


def maybe_batch_join(
    tensors_list: Any,
    keep_input: Any,
    batch_size: Any,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """`batch_join` of the examples for which `keep_input` is true."""
    return _batches(
        "batch_join", tensors_list, batch_size, keep_input, _line(dynamic_pad, capacity, shared_name), capacity, 1,
        enqueue_many, shapes, allow_smaller_final_batch, name,
    )  # fmt: skip


def shuffle_batch(
    tensors: Any,
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    num_threads: int = 1,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batches of examples in random order.

    Args:
        min_after_dequeue: how many examples stay in the queue to be mixed with.
        seed: of the random order.
        others: as for `batch`.
    """
    return maybe_shuffle_batch(
        tensors, batch_size, capacity, min_after_dequeue, True, num_threads, seed, enqueue_many, shapes,
        allow_smaller_final_batch, shared_name, name,
    )  # fmt: skip


def maybe_shuffle_batch(
    tensors: Any,
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    keep_input: Any,
    num_threads: int = 1,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """`shuffle_batch` of the examples for which `keep_input` is true."""
    make, fraction = _shuffling(capacity, min_after_dequeue, seed, shared_name)
    return _batches(
        "shuffle_batch", [tensors], batch_size, keep_input, make, capacity, num_threads, enqueue_many, shapes,
        allow_smaller_final_batch, name, fraction,
    )  # fmt: skip


def shuffle_batch_join(
    tensors_list: Any,
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """`shuffle_batch` of examples from several places: one thread for each element of `tensors_list`."""
    return maybe_shuffle_batch_join(
        tensors_list, batch_size, capacity, min_after_dequeue, True, seed, enqueue_many, shapes,
        allow_smaller_final_batch, shared_name, name,
    )  # fmt: skip


def maybe_shuffle_batch_join(
    tensors_list: Any,
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    keep_input: Any,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """`shuffle_batch_join` of the examples for which `keep_input` is true."""
    make, fraction = _shuffling(capacity, min_after_dequeue, seed, shared_name)
    return _batches(
        "shuffle_batch_join", tensors_list, batch_size, keep_input, make, capacity, 1, enqueue_many, shapes,
        allow_smaller_final_batch, name, fraction,
    )  # fmt: skip
