"""Summing the gradients that meet at one tensor; sparse ones stay sparse where all are (§4.1)."""

from __future__ import annotations

from typing import Any

from anabranch.core import dtypes
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.ops.lists.tensor_list import TensorListAdd, TensorListAddItems, TensorListZeros


class AggregationMethod:
    """How gradients are summed. The compiler fuses the sum in every case; the names are accepted for programs' sake."""

    ADD_N = 0
    DEFAULT = ADD_N
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


def aggregate(terms: list[Any], method: int = AggregationMethod.DEFAULT, of: Tensor | None = None) -> Any:
    """The sum of gradients: IndexedSlices when all of them are, else a tensor.

    Args:
        method: accepted.
        of: what they are gradients of, if that is at hand. Elements of a list of tensors may differ in shape, so that
            they become no IndexedSlices.

    Raises:
        ValueError: `method` is not one of `AggregationMethod`'s values.
    """
    if method not in (0, 1, 2):
        raise ValueError(f"Invalid aggregation_method specified {method}.")
    if all(isinstance(t, IndexedSlices) for t in terms):
        if of is not None and of.dtype is dtypes.variant and not _same_elements(terms):
            return _sum_of_lists([TensorListZeros(of), *terms])
        return _concatenated(terms)
    if any(not isinstance(t, IndexedSlices) and t.dtype is dtypes.variant for t in terms):
        return _sum_of_lists(terms)
    return raw.AddN([convert_to_tensor(t) for t in terms])


def _same_elements(slices: list[IndexedSlices]) -> bool:
    """Whether the elements that gradients of a list stand for may have one shape."""
    first, *others = (s.values.shape[1:] for s in slices)
    return all(shape.is_compatible_with(first) for shape in others)


def _sum_of_lists(terms: list[Any]) -> Any:
    """The sum of lists of tensors (gradients of tensor arrays) and of single elements of such lists."""
    lists = [t for t in terms if not isinstance(t, IndexedSlices)]
    total = lists[0]
    for other in lists[1:]:
        total = TensorListAdd(total, other)
    for rows in terms:
        if isinstance(rows, IndexedSlices):
            total = TensorListAddItems(total, rows.indices, rows.values)
    return total


def _concatenated(slices: list[IndexedSlices]) -> IndexedSlices:
    index_type = dtypes.int64 if any(s.indices.dtype is dtypes.int64 for s in slices) else dtypes.int32
    indices = [s.indices if s.indices.dtype is index_type else raw.Cast(s.indices, DstT=index_type) for s in slices]
    shape = next((s.dense_shape for s in slices if s.dense_shape is not None), None)
    return IndexedSlices(raw.ConcatV2([s.values for s in slices], 0), raw.ConcatV2(indices, 0), shape)
