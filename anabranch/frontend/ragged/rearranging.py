"""Ragged versions of functions that choose, repeat or reorder elements, or add and drop dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.values import TensorLike, TensorOrRagged
from anabranch.errors import InvalidArgumentError
from anabranch.frontend.arrays import constants, data_flow, gathering, layout, shapes
from anabranch.frontend.framework import name_scope
from anabranch.frontend.ragged import partitions as cuts
from anabranch.frontend.ragged.conversion import convert_to_ragged, is_ragged, match_row_splits_dtypes, splits_dtype_of
from anabranch.frontend.ragged.gathering import gather
from anabranch.frontend.ragged.joining import concat
from anabranch.frontend.ragged.levels import each_repeated, numbers_to, picked, ranges
from anabranch.frontend.ragged.partitions import positive_axis
from anabranch.frontend.ragged.tensor import RaggedTensor
from anabranch.graph.constants import constant_value
from anabranch.graph.dispatch import version_of
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


# ---------------------------------------------------------------------- dimensions
def expand_dims(input: TensorLike, axis: int, name: str | None = None) -> TensorOrRagged:
    """A dimension of size 1 before dimension `axis`; ragged where `axis` is at most the ragged_rank."""
    with name_scope(name, "RaggedExpandDims"):
        tensor = convert_to_ragged(input, name="input")
        if not is_ragged(tensor):
            return shapes.expand_dims(tensor, axis)
        ndims = tensor.shape.ndims
        axis = positive_axis(axis, None if ndims is None else ndims + 1)
        rows = tensor.nrows()
        if axis == 0:
            splits = raw.Pack([np.zeros((), rows.dtype.as_numpy_dtype), rows])
            return RaggedTensor(tensor, splits, internal=True)
        if axis == 1:
            splits = numbers_to(raw.AddV2(rows, np.ones((), rows.dtype.as_numpy_dtype)), rows.dtype)
            splits.set_shape(tensor.row_splits.shape)
            return RaggedTensor(tensor, splits, internal=True)
        return tensor.with_values(expand_dims(tensor.values, axis - 1))


@version_of(shapes.expand_dims)
def _expand_dims(input: TensorLike, axis: int | None = None, name: str | None = None, dim: int | None = None) -> Any:
    at = axis if dim is None else dim
    if at is None:
        raise ValueError("axis must be given")
    return expand_dims(input, at, name)


@version_of(shapes.squeeze)
def squeeze(
    input: TensorLike,
    axis: int | list[int] | None = None,
    name: str | None = None,
    squeeze_dims: int | list[int] | None = None,
) -> TensorOrRagged:
    """Without the dimensions `axis`; of a ragged one all slices have to have the length 1."""
    tensor, dims = convert_to_ragged(input), squeeze_dims if axis is None else axis
    if not is_ragged(tensor):
        return shapes.squeeze(tensor, dims, name)
    if dims is None:
        raise ValueError("Ragged.squeeze must have an axis argument.")
    if isinstance(dims, int):
        dims = [dims]
    if not isinstance(dims, list | tuple) or not all(isinstance(d, int) for d in dims):
        raise TypeError("Axis must be a list or tuple of integers.")
    places = {positive_axis(d, tensor.shape.ndims) for d in dims}
    with name_scope(name, "RaggedSqueeze"):
        checks = [
            cuts.require(raw.Equal(lengths, np.ones((), lengths.dtype.as_numpy_dtype)), _NOT_ONE.format(i))
            for i, lengths in enumerate(tensor.nested_row_lengths(), 1)
            if i in places
        ]
        if 0 in places:
            rows = tensor.nrows()
            checks.append(cuts.require(raw.Equal(rows, np.ones((), rows.dtype.as_numpy_dtype)), _NOT_ONE.format(0)))
        rank = tensor.ragged_rank
        flat = cuts.after(checks, tensor.flat_values) if checks else tensor.flat_values
        dense = sorted(d - rank for d in places if d > rank)
        if dense:
            flat = raw.Squeeze(flat, squeeze_dims=dense)
        left = [splits for i, splits in enumerate(tensor.nested_row_splits, 1) if i not in places]
        if left and 0 in places:
            left = left[1:]
        elif not left and len([d for d in places if d <= rank]) == rank + 1:
            return raw.Squeeze(flat, squeeze_dims=[0])
        return RaggedTensor.from_nested_row_splits(flat, left, validate=False)


_NOT_ONE = "the given axis (axis = {}) is not squeezable!"


@version_of(shapes.size)
def size(input: TensorLike, name: str | None = None, out_type: DTypeLike = dtypes.int32) -> Tensor:
    """How many innermost elements there are."""
    result: Tensor = raw.Size(convert_to_ragged(input).flat_values, out_type=out_type, name=name)
    return result


@version_of(shapes.rank)
def rank(input: TensorLike, name: str | None = None) -> TensorOrRagged:
    """The number of dimensions, ragged and uniform ones; a number where it is known, as in TensorFlow a tensor else."""
    tensor = convert_to_ragged(input)
    with name_scope(name, "RaggedRank"):
        return raw.AddV2(tensor.ragged_rank, raw.Rank(tensor.flat_values))


@version_of(constants.one_hot)
def one_hot(
    indices: TensorLike,
    depth: TensorLike,
    on_value: TensorLike | None = None,
    off_value: TensorLike | None = None,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> RaggedTensor:
    """One-hot rows of the innermost values; `axis` is one of theirs and, as in TensorFlow, not below ragged_rank."""
    tensor = convert_to_ragged(indices)
    if axis is not None:
        axis = positive_axis(axis, tensor.shape.ndims)
        if axis < tensor.ragged_rank:
            raise ValueError("axis may not be less than indices.ragged_rank.")
    hot = constants.one_hot(tensor.flat_values, depth, on_value, off_value, axis, dtype, name)
    result: RaggedTensor = tensor.with_flat_values(hot)
    return result


# ---------------------------------------------------------------------- repeating
@version_of(layout.tile)
def tile(input: TensorLike, multiples: TensorLike, name: str | None = None) -> RaggedTensor:
    """Several copies side by side; `multiples` has one number per dimension, ragged ones counted."""
    tensor = convert_to_ragged(input)
    dtype = tensor.row_splits.dtype
    with name_scope(name, "RaggedTile"):
        times = cuts.as_lengths(multiples, dtype, "multiples")
        times.shape.assert_has_rank(1)
        at = raw.Tile(numbers_to(tensor.nrows(), dtype), times[:1])
        nested = []
        for axis, splits in enumerate(tensor.nested_row_splits, 1):
            starts = picked(splits, at)
            limits = picked(splits, raw.AddV2(at, np.ones((), dtype.as_numpy_dtype)))
            nested.append(cuts.splits_of_lengths(raw.Mul(raw.Sub(limits, starts), times[axis])))
            at = ranges(each_repeated(starts, times[axis]), each_repeated(limits, times[axis]))
        one = np.ones(1, dtype.as_numpy_dtype)
        inner = raw.ConcatV2([one, times[tensor.ragged_rank + 1 :]], 0)
        values = raw.Tile(picked(tensor.flat_values, at), inner)
        values.set_shape([None, *[None] * ((tensor.flat_values.shape.ndims or 1) - 1)])
        found: RaggedTensor = RaggedTensor.from_nested_row_splits(values, nested, validate=False)
        return found


# ---------------------------------------------------------------------- choosing
def boolean_mask(data: TensorLike, mask: TensorLike, name: str | None = None) -> TensorOrRagged:
    """The elements of `data` where `mask` is true; rows of a mask of rank 2 or more stay rows.

    Args:
        data: a tensor or ragged tensor.
        mask: bool, of known rank; its shape is that of the first dimensions of `data`.

    Returns:
        Of the rank of `data`; ragged where `mask` has rank 2 or more, or `data` is.

    Raises:
        ValueError: the rank of `mask` is 0, or not known.

    Raises (in the step):
        InvalidArgumentError: the rows of both differ.

    Example:
        >>> sess.run(tf.ragged.boolean_mask([[1, 2], [3, 4]], [[True, False], [True, True]])).to_list()
        [[1], [3, 4]]
    """
    with name_scope(name, "RaggedMask"):
        values, keep = convert_to_ragged(data, name="data"), convert_to_ragged(mask, dtypes.bool, name="mask")
        values, keep = match_row_splits_dtypes(values, keep)
        if keep.shape.ndims is None:
            raise ValueError("mask.shape.ndims must be known statically.")
        if keep.shape.ndims == 0:
            raise ValueError("mask cannot be scalar.")
        if keep.shape.ndims == 1:
            return gather(values, raw.Where(keep)[:, 0]) if is_ragged(values) else gathering.boolean_mask(values, keep)
        dtype = splits_dtype_of(values, keep)
        depth = keep.shape.ndims - 1
        keep, values = with_ragged_rank(keep, depth, dtype), with_ragged_rank(values, depth, dtype)
        nested, below = keep.nested_row_splits, values
        checks = cuts.require_same_splits([nested, values.nested_row_splits[:depth]])
        for _ in range(depth):
            below = below.values
        flat = cuts.after(checks, keep.flat_values)
        kept = cuts.splits_of_lengths(raw.Cast(flat, DstT=dtype))
        places = raw.Where(flat)[:, 0]
        chosen = gather(below, places) if is_ragged(below) else picked(below, places)
        return RaggedTensor.from_nested_row_splits(chosen, [*nested[:-1], picked(kept, nested[-1])], validate=False)


def with_ragged_rank(tensor: TensorLike, wanted: int, dtype: DTypeLike) -> TensorOrRagged:
    """The tensor with at least so many ragged dimensions, made of uniform ones."""
    if not is_ragged(tensor):
        return RaggedTensor.from_tensor(tensor, ragged_rank=wanted, row_splits_dtype=dtype) if wanted else tensor
    missing = wanted - tensor.ragged_rank
    if missing <= 0:
        return tensor
    inner = RaggedTensor.from_tensor(tensor.flat_values, ragged_rank=missing, row_splits_dtype=dtype)
    return tensor.with_flat_values(inner)


@version_of(gathering.where)
def where(
    condition: TensorLike, x: TensorLike | None = None, y: TensorLike | None = None, name: str | None = None
) -> TensorOrRagged:
    """The places of true values, or `x` where `condition` is true and `y` elsewhere: by element, or by row."""
    if (x is None) != (y is None):
        raise ValueError("x and y must be either both None or both non-None")
    with name_scope(name, "RaggedWhere"):
        chosen = convert_to_ragged(condition, name="condition")
        if x is None:
            return _places(chosen)
        one, other = convert_to_ragged(x, name="x"), convert_to_ragged(y, name="y")
        chosen, one, other = match_row_splits_dtypes(chosen, one, other)
        if not any(map(is_ragged, (chosen, one, other))):
            return gathering.where(chosen, one, other)
        if is_ragged(chosen) and is_ragged(one) and is_ragged(other):
            nested = [part.nested_row_splits for part in (chosen, one, other)]
            with get_default_graph().control_dependencies(cuts.require_same_splits(nested)):
                flat = gathering.where(chosen.flat_values, one.flat_values, other.flat_values)
            return chosen.with_flat_values(flat)
        if is_ragged(chosen):
            raise ValueError("Input shapes do not match.")
        chosen.shape.assert_has_rank(1)
        both = concat([one, other], axis=0)
        dtype = both.row_splits.dtype
        rows = _rows(one, dtype)
        first = numbers_to(rows, dtype)
        second = raw.AddV2(rows, numbers_to(_rows(other, dtype), dtype))
        return gather(both, gathering.where(chosen, first, second))


def _rows(tensor: TensorLike, dtype: TensorLike) -> Tensor:
    found: Tensor = tensor.nrows(dtype) if is_ragged(tensor) else cuts.count_rows(tensor, dtype)
    return found


def _places(condition: TensorLike) -> Tensor:
    """The coordinates of true values, int64."""
    if not is_ragged(condition):
        places: Tensor = raw.Where(condition)
        return places
    below = _places(condition.values)
    condition = condition.with_row_splits_dtype(dtypes.int64)
    rows = picked(condition.value_rowids(), below[:, 0])
    columns = raw.Sub(below[:, 0], picked(condition.row_splits, rows))
    ahead = raw.Pack([rows, columns], axis=1)
    found: Tensor = raw.ConcatV2([ahead, below[:, 1:]], 1)
    return found


# ---------------------------------------------------------------------- partitions by number
def stack_dynamic_partitions(
    data: TensorLike, partitions: TensorLike, num_partitions: TensorLike, name: str | None = None
) -> RaggedTensor:
    """Rows of the elements of `data` by the number of their partition, in their order.

    Args:
        data: a tensor or ragged tensor.
        partitions: int32 or int64, whose shape is that of the first dimensions of `data`.
        num_partitions: how many rows there are to be.

    Raises:
        ValueError: the rank of `partitions` is not known.

    Raises (in the step):
        InvalidArgumentError: a partition is not below `num_partitions`.

    Example:
        >>> sess.run(tf.ragged.stack_dynamic_partitions([1, 2, 3], [1, 0, 1], 2)).to_list()
        [[2], [1, 3]]
    """
    with name_scope(name, "SegmentStack"):
        values = convert_to_ragged(data, name="data")
        own = values.row_splits.dtype if is_ragged(values) else None
        rows = convert_to_ragged(partitions, name="partitions", preferred_dtype=own)
        count = _as(_tensor(num_partitions, rows.dtype), rows.dtype)
        if own is not None:
            rows = rows.with_flat_values(_as(rows.flat_values, own)) if is_ragged(rows) else _as(rows, own)
            count = _as(count, own)
        if rows.shape.ndims is None:
            raise ValueError("partitions must have known rank.")
        count.shape.assert_has_rank(0)
        rows.shape.assert_is_compatible_with(values.shape[: rows.shape.ndims])
        return _stacked(values, rows, count)


def _stacked(values: TensorLike, rows: TensorLike, count: Tensor) -> RaggedTensor:
    rank = rows.shape.ndims
    if rank == 0:
        outer = expand_dims(values, 0) if is_ragged(values) else raw.ExpandDims(values, 0)
        return RaggedTensor.from_value_rowids(outer, raw.Reshape(rows, [1]), nrows=count, validate=False)
    if rank > 1:
        dtype = splits_dtype_of(values, rows)
        values, rows = with_ragged_rank(values, 1, dtype), with_ragged_rank(rows, 1, dtype)
        message = "data and partitions have incompatible ragged shapes"
        checks = cuts.require_same_splits([[values.row_splits], [rows.row_splits]], message)
        with get_default_graph().control_dependencies(checks):
            return _stacked(values.values, rows.values, count)
    known, limit = constant_value(rows), constant_value(count)
    if known is not None and limit is not None and (known >= limit).any():
        raise InvalidArgumentError(None, None, "partitions must be less than num_partitions")
    order = _order(rows)
    sorted_rows = picked(rows, order)
    inside = raw.Less(sorted_rows[-1:], count)
    checked = cuts.after([cuts.require(inside, "partitions must be less than num_partitions")], sorted_rows)
    return RaggedTensor.from_value_rowids(gather(values, order), checked, nrows=count, validate=False)


def _order(rows: Tensor) -> Tensor:
    """The order in which integers do not decrease, equal ones as they came."""
    zero = np.zeros((), rows.dtype.as_numpy_dtype)
    found: Tensor = raw.TopKV2(raw.Sub(zero, rows), raw.Size(rows)).indices
    return found


def _tensor(value: TensorLike, dtype: TensorLike) -> Tensor:
    found: Tensor = convert_to_ragged(value, preferred_dtype=dtype)
    return found


def _as(tensor: Tensor, dtype: DTypeLike) -> Tensor:
    wanted = as_dtype(dtype)
    found: Tensor = tensor if tensor.dtype is wanted else raw.Cast(tensor, DstT=wanted)
    return found


@version_of(data_flow.dynamic_partition)
def dynamic_partition(
    data: TensorLike, partitions: TensorLike, num_partitions: int, name: str | None = None
) -> list[Any]:
    """The elements of each partition, as a list."""
    if not isinstance(num_partitions, int) or num_partitions < 0:
        raise TypeError("num_partitions must be a non-negative integer")
    rows = stack_dynamic_partitions(data, partitions, num_partitions, name)
    return [rows[i] for i in range(num_partitions)]
