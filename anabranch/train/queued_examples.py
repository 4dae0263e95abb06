"""Examples on their way through a queue: what is stored of them, and how they come out again  (§4.2).

Sparse tensors stay in a map of the task; the queue holds their numbers in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.core.dtypes import DType, int32, int64
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.frontend.arrays.casting import cast
from anabranch.frontend.arrays.data_flow import dynamic_partition
from anabranch.frontend.framework import convert_to_tensor_or_sparse_tensor
from anabranch.frontend.resources.components import common_shape
from anabranch.frontend.sparse.form import sparse_retain
from anabranch.graph.composite import SparseTensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


@dataclass(frozen=True, slots=True)
class ExampleComponent:
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

    def __init__(self, sets: Sequence[Any], many: bool, shapes: Structure) -> None:
        if not sets:
            raise ValueError("Expected at least one set of tensors")
        self.many = many
        self._like = sets[0]
        if isinstance(self._like, dict) and any(set(s) != set(self._like) for s in sets[1:]):
            raise ValueError("All dictionaries in tensors_list must have the same keys")
        self.sets = [[convert_to_tensor_or_sparse_tensor(t) for t in in_order(s)] for s in sets]
        if not all(self.sets):
            raise ValueError("Expected at least one tensor in batch().")
        self.components = self._find_components(shapes)

    def _find_components(self, shapes: Structure) -> list[ExampleComponent]:
        first = self.sets[0]
        for other in self.sets[1:]:
            if [t.dtype for t in other] != [t.dtype for t in first]:
                raise TypeError(
                    f"Expected types to be consistent: {', '.join(t.dtype.name for t in first)} vs. "
                    f"{', '.join(t.dtype.name for t in other)}."
                )
            if [isinstance(t, SparseTensor) for t in other] != [isinstance(t, SparseTensor) for t in first]:
                raise ValueError(f"Inconsistent SparseTensors list: {first} vs. {other}")
        components = []
        for i, tensor in enumerate(first):
            if isinstance(tensor, SparseTensor):
                rank = tensor.dense_shape.shape.with_rank(1)[0].value
                rank = rank - 1 if rank is not None and self.many else rank
                name = get_default_graph().unique_name(f"sparse_map_{i}")
                components.append(ExampleComponent(tensor.dtype, TensorShape([1]), name, rank))
            else:
                shape = self._shape_of(i) if shapes is None else TensorShape(shapes[i])
                components.append(ExampleComponent(tensor.dtype.base_dtype, shape))
        return components

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
        flat = []
        for tensor, component in zip(tensors, self.components, strict=True):
            if component.is_sparse:
                kept = tensor if keep is None else sparse_retain(tensor, _kept_values(tensor, keep))
                add = raw.AddManySparseToTensorsMap if self.many else raw.AddSparseToTensorsMap
                number = add(kept.indices, kept.values, kept.dense_shape, shared_name=component.map_name)
                flat.append(raw.ExpandDims(number, -1))
            else:
                flat.append(tensor)
        if keep is not None:
            which = cast(keep, int32)
            flat = [dynamic_partition(t, which, 2)[1] for t in flat]
        return flat

    def restored(self, dequeued: Structure) -> Any:
        """What comes out of the queue, in the form in which the examples were given."""
        tensors = list(dequeued) if isinstance(dequeued, list | tuple) else [dequeued]
        restored: list[Any] = [
            _sparse_batch(t, c) if c.is_sparse else t for t, c in zip(tensors, self.components, strict=True)
        ]
        if isinstance(self._like, dict):
            return dict(zip(sorted(self._like, key=str), restored, strict=True))
        return restored if len(restored) > 1 else restored[0]


def in_order(tensors: Structure) -> list[Any]:
    """The tensors of a list, or of a dictionary in the order of its keys."""
    return [tensors[k] for k in sorted(tensors, key=str)] if isinstance(tensors, dict) else list(tensors)


def _wider(first: TensorShape, second: TensorShape) -> TensorShape:
    first.assert_is_compatible_with(second)
    return common_shape(first, second)


def _kept_values(tensor: SparseTensor, keep: Tensor) -> Tensor:
    rows = raw.StridedSlice(tensor.indices, [0, 0], [0, 1], [1, 1], begin_mask=1, end_mask=1, shrink_axis_mask=2)
    kept: Tensor = raw.GatherV2(keep, rows, 0)
    return kept


def _sparse_batch(numbers: Tensor, component: ExampleComponent) -> SparseTensor:
    flat = raw.Squeeze(numbers, squeeze_dims=[1])
    indices, values, shape = raw.TakeManySparseFromTensorsMap(
        flat, dtype=component.dtype, shared_name=component.map_name
    )
    rank = None if component.rank is None else component.rank + 1
    indices.set_shape([None, rank])
    shape.set_shape([rank])
    return SparseTensor(indices, values, shape)
