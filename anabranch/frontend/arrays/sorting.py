"""Sorting along an axis, by the order that TopKV2 finds."""

from __future__ import annotations

import numpy as np

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.frontend.framework import name_scope
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def sort(values: TensorLike, axis: TensorLike = -1, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    """The elements in order along an axis; shape and dtype of `values`.

    Args:
        values: numbers.
        axis: known while the graph is built.
        direction: "ASCENDING" or "DESCENDING".

    Raises:
        ValueError: another direction, an axis that is not known or not there.
    """
    with name_scope(name, "sort"):
        return _sorted(values, axis, direction, 0)


def argsort(
    values: TensorLike,
    axis: TensorLike = -1,
    direction: str = "ASCENDING",
    stable: bool = False,
    name: str | None = None,
) -> Tensor:
    """The int32 indices that put the elements in order along an axis; equal elements keep their order; see `sort`."""
    with name_scope(name, "argsort"):
        return _sorted(values, axis, direction, 1)


def _sorted(values: TensorLike, axis: TensorLike, direction: str, which: int) -> Tensor:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f"`direction` should be one of ASCENDING, DESCENDING, got {direction!r}")
    x = convert_to_tensor(values, name="values")
    at = constant_value(convert_to_tensor(axis, name="axis"))
    if at is None:
        raise ValueError("`axis` must be known while the graph is built, so that the values can be transposed")
    if at.ndim:
        raise ValueError(f"`axis` must be a scalar, got {at}")
    rank = x.shape.ndims
    if int(at) == -1 or (rank is not None and int(at) + 1 == rank):
        return _along_last(x, direction, which)
    if rank is None:
        raise ValueError("the rank of `values` must be known to sort along another axis than the last")
    if not -rank <= int(at) < rank:
        raise ValueError(f"axis = {int(at)} is not in [{-rank}, {rank})")
    order = np.arange(rank)
    order[[int(at) % rank, -1]] = order[[-1, int(at) % rank]]
    transposition = convert_to_tensor(order, dtypes.int32, name="transposition")
    result: Tensor = raw.Transpose(_along_last(raw.Transpose(x, transposition), direction, which), transposition)
    return result


def _along_last(x: Tensor, direction: str, which: int) -> Tensor:
    length = x.shape.as_list()[-1] if x.shape.ndims else None
    size = raw.StridedSlice(raw.Shape(x), [-1], [0], [1], end_mask=1, shrink_axis_mask=1) if length is None else length
    if direction == "DESCENDING":
        sorted_part: Tensor = raw.TopKV2(x, size)[which]
        return sorted_part
    if x.dtype.is_unsigned or x.dtype.is_integer:
        # the bitwise complement reverses the order of integers, also of the least one, which has no negative
        position = raw.TopKV2(raw.Invert(x), size)
        result: Tensor = position[1] if which else raw.Invert(position[0])
        return result
    position = raw.TopKV2(raw.Neg(x), size)
    reversed_back: Tensor = position[1] if which else raw.Neg(position[0])
    return reversed_back
