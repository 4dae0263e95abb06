"""A ragged tensor level by level: which slices of each level a result takes, as vectors of their numbers.

A result that repeats, reorders or stretches slices (a gather, a tile, a broadcast) is made by going from the outermost
level inwards: `at[i]` is the number of the slice of this level that slice i of the result is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.core.dtypes import DType
from anabranch.core.values import TensorLike
from anabranch.frontend.ragged import partitions
from anabranch.frontend.ragged.conversion import is_ragged
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


def numbers_to(limit: TensorLike, dtype: DType) -> Tensor:
    """0, 1, ... up to `limit`."""
    result: Tensor = raw.Range(np.zeros((), dtype.as_numpy_dtype), limit, np.ones((), dtype.as_numpy_dtype))
    return result


def picked(tensor: Tensor, at: Tensor) -> Tensor:
    """The rows of a tensor at these places."""
    rows: Tensor = raw.GatherV2(tensor, at, 0)
    return rows


def each_repeated(tensor: Tensor, times: Tensor) -> Tensor:
    """Each element of a vector several times, one after another: [a, a, b, b]."""
    rows = raw.Tile(raw.ExpandDims(tensor, 1), raw.Pack([np.ones((), times.dtype.as_numpy_dtype), times]))
    flat: Tensor = raw.Reshape(rows, [-1])
    return flat


def ranges(starts: Tensor, limits: Tensor) -> Tensor:
    """The integers from each start up to its limit, one range after another."""
    one = np.ones((), starts.dtype.as_numpy_dtype)
    values: Tensor = raw.RaggedRange(starts, limits, one, Tsplits=starts.dtype).rt_dense_values
    return values


class Operand(NamedTuple):
    """A tensor as one of several that broadcast.

    Attributes:
        sizes: for each dimension down to the innermost level the splits (a vector), or its size (a scalar).
        values: what lies below, of shape [slices of the innermost level, ...].
        at: the slices of the current level that the result takes.
    """

    sizes: list[Tensor]
    values: Tensor
    at: Tensor


def operand(value: TensorLike, leading: int, depth: int, dtype: DType) -> Operand:
    """A tensor or ragged tensor as an operand.

    Args:
        leading: how many dimensions of size 1 come before its own.
        depth: the number of dimensions above `values`, the leading ones counted.
    """
    sizes = [convert_to_tensor(np.ones((), dtype.as_numpy_dtype))] * leading
    flat = value.flat_values if is_ragged(value) else value
    if is_ragged(value):
        sizes += [value.nrows(), *value.nested_row_splits]
    inner = raw.Shape(flat, out_type=dtype)
    above = max(depth - len(sizes), 0)
    first = 1 if is_ragged(value) else 0
    sizes += [inner[first + i] for i in range(above)]
    below = inner[first + above :]
    values = raw.Reshape(flat, raw.ConcatV2([np.array([-1], dtype.as_numpy_dtype), below], 0))
    rank = flat.shape.ndims
    if rank is not None:
        values.set_shape([None, *flat.shape.as_list()[first + above :]])
    return Operand(sizes, values, convert_to_tensor(np.zeros(1, dtype.as_numpy_dtype)))


def stretched(x: Operand, y: Operand, axis: int) -> tuple[Operand, Operand, Tensor, list[Operation]]:
    """Both operands one level further inwards, the lengths of the result's slices there, and what must hold."""
    of_x, of_y = x.sizes[axis], y.sizes[axis]
    ragged_x, ragged_y = of_x.shape.ndims == 1, of_y.shape.ndims == 1
    message = f"Unable to broadcast: dimension size mismatch in dimension {axis}"
    if not ragged_x and not ragged_y:
        return _both_uniform(x, y, axis, message)
    if ragged_x and ragged_y:
        starts, limits = _bounds(x, axis)
        others, other_limits = _bounds(y, axis)
        lengths = raw.Sub(limits, starts)
        ok = partitions.require(raw.Equal(lengths, raw.Sub(other_limits, others)), message)
        return x._replace(at=ranges(starts, limits)), y._replace(at=ranges(others, other_limits)), lengths, [ok]
    if ragged_y:
        y, x, lengths, checks = stretched(y, x, axis)
        return x, y, lengths, checks
    starts, limits = _bounds(x, axis)
    lengths = raw.Sub(limits, starts)
    ok = partitions.require(raw.Equal(of_y, np.ones((), lengths.dtype.as_numpy_dtype)), message)
    splits = partitions.splits_of_lengths(lengths)
    repeated = picked(y.at, partitions.row_numbers(splits))
    return x._replace(at=ranges(starts, limits)), y._replace(at=repeated), lengths, [ok]


def _bounds(x: Operand, axis: int) -> tuple[Tensor, Tensor]:
    splits = x.sizes[axis]
    return picked(splits, x.at), picked(splits, raw.AddV2(x.at, np.ones((), splits.dtype.as_numpy_dtype)))


def _both_uniform(x: Operand, y: Operand, axis: int, message: str) -> tuple[Operand, Operand, Tensor, list[Operation]]:
    of_x, of_y = x.sizes[axis], y.sizes[axis]
    one = raw.OnesLike(of_x)
    size = raw.SelectV2(raw.Equal(of_x, one), of_y, of_x)
    fits = raw.LogicalOr(raw.Equal(of_y, one), raw.Equal(of_y, size))
    ok = partitions.require(fits, message)
    columns = numbers_to(size, size.dtype)
    lengths = raw.Mul(raw.OnesLike(x.at), size)

    def inner(which: Operand) -> Operand:
        own = which.sizes[axis]
        column = raw.Mul(columns, raw.Cast(raw.NotEqual(own, one), DstT=size.dtype))
        places = raw.AddV2(raw.ExpandDims(raw.Mul(which.at, own), 1), column)
        return which._replace(at=raw.Reshape(places, [-1]))

    return inner(x), inner(y), lengths, [ok]
