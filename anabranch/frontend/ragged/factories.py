"""`tf.ragged`: ragged tensors from Python lists, placeholders, ranges; row splits and the numbers of segments."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import TensorLike, TensorOrRagged
from anabranch.frontend.arrays.constants import constant as constant_tensor, placeholder as placeholder_tensor
from anabranch.frontend.framework import name_scope
from anabranch.frontend.ragged import partitions
from anabranch.frontend.ragged.conversion import is_ragged
from anabranch.frontend.ragged.tensor import RaggedTensor
from anabranch.frontend.ragged.values import RaggedTensorValue
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: makes values of a list, with a dtype and a shape
_Inner = Callable[[Any, Any, Any], Any]
_RANGE_TYPES = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)


# ---------------------------------------------------------------------- from lists
def constant(
    pylist: TensorLike,
    dtype: DTypeLike | None = None,
    ragged_rank: int | None = None,
    inner_shape: Sequence[int] | None = None,
    name: str | None = None,
    row_splits_dtype: DTypeLike = dtypes.int64,
) -> TensorOrRagged:
    """A ragged tensor of a nested list, or a tensor where nothing in it is ragged.

    Args:
        pylist: nested lists, in which all numbers (or strings) are equally deep.
        dtype: default: what the values say.
        ragged_rank: how many dimensions are ragged; default: all but the first and those of `inner_shape`.
        inner_shape: the shape of the innermost values; default: scalars.
        name: of the operations.
        row_splits_dtype: int32 or int64.

    Returns:
        A RaggedTensor, or a Tensor where `ragged_rank` is 0.

    Raises:
        ValueError: the depths differ, or do not go with `ragged_rank` and `inner_shape`.

    Example:
        >>> sess.run(tf.ragged.constant([[1, 2], [3]])).to_list()
        [[1, 2], [3]]
    """
    wanted = partitions.splits_dtype(row_splits_dtype)

    def inner(values: TensorLike, dtype: TensorLike, shape: TensorLike) -> Tensor:
        return constant_tensor(values, dtype, shape)

    def ragged(values: TensorLike, splits: list[int]) -> RaggedTensor:
        return RaggedTensor(values, constant_tensor(splits, wanted), internal=True)

    with name_scope(name, "RaggedConstant"):
        return _from_list(ragged, inner, pylist, dtype, ragged_rank, inner_shape)


def constant_value(
    pylist: TensorLike,
    dtype: DTypeLike | None = None,
    ragged_rank: int | None = None,
    inner_shape: Sequence[int] | None = None,
    row_splits_dtype: DTypeLike = "int64",
) -> TensorOrRagged:
    """A RaggedTensorValue of a nested list, to be fed; the arguments are those of `constant`."""
    element = None if dtype is None else as_dtype(dtype).as_numpy_dtype
    splits_type = partitions.splits_dtype(row_splits_dtype).as_numpy_dtype

    def inner(values: TensorLike, dtype: TensorLike, shape: TensorLike) -> TensorOrRagged:
        array = np.array(values, dtype)
        return array if shape is None else array.reshape(shape)

    def ragged(values: TensorLike, splits: list[int]) -> RaggedTensorValue:
        return RaggedTensorValue(values, np.array(splits, splits_type))

    return _from_list(ragged, inner, pylist, element, ragged_rank, inner_shape)


def _from_list(
    make: Callable[[Any, list[int]], Any],
    make_inner: _Inner,
    pylist: TensorLike,
    dtype: TensorLike,
    ragged_rank: int | None,
    inner_shape: Sequence[int] | None,
) -> Any:
    if is_ragged(pylist):
        raise TypeError("pylist may not be a RaggedTensor or RaggedTensorValue.")
    if not _is_list(pylist):
        if ragged_rank:
            raise ValueError(f"Invalid pylist={pylist!r}: incompatible with ragged_rank={ragged_rank}")
        if inner_shape:
            raise ValueError(f"Invalid pylist={pylist!r}: incompatible with dim(inner_shape)={len(inner_shape)}")
        return make_inner(pylist, dtype, ())
    if ragged_rank is not None and ragged_rank < 0:
        raise ValueError(f"Invalid ragged_rank={ragged_rank!r}: must be nonnegative")
    scalar_depth, depth = _depths(pylist)
    if scalar_depth is not None and depth > scalar_depth:
        raise ValueError(f"Invalid pylist={pylist!r}: empty list nesting is greater than scalar value nesting")
    _check_ranks(pylist, ragged_rank, inner_shape, scalar_depth, depth)
    inner_rank = 0 if inner_shape is None else len(inner_shape)
    if ragged_rank == 0 or (ragged_rank is None and depth - inner_rank < 2):
        return make_inner(pylist, dtype, None if inner_shape is None else tuple(inner_shape))
    if ragged_rank is None:
        known = depth if scalar_depth is None else scalar_depth - inner_rank
        ragged_rank = max(1, known - 1)
        inner_shape = inner_shape or ()
    elif inner_shape is None:
        inner_shape = _inner_shape(pylist, ragged_rank)
    nested: list[list[int]] = []
    values: Any = pylist
    for _ in builtins.range(ragged_rank):
        nested.append(np.cumsum([0, *map(len, values)]).tolist())
        values = [element for row in values for element in row]
    result = make_inner(values, dtype, (len(values), *inner_shape))
    for splits in reversed(nested):
        result = make(result, splits)
    return result


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _check_ranks(
    pylist: TensorLike,
    ragged_rank: int | None,
    inner_shape: Sequence[int] | None,
    scalar_depth: int | None,
    depth: int,
) -> None:
    if inner_shape is None or ragged_rank is None:
        return
    expected = ragged_rank + len(inner_shape) + 1
    if expected != scalar_depth if scalar_depth is not None else expected < depth:
        raise ValueError(
            f"Invalid pylist={pylist!r}: incompatible with ragged_rank={ragged_rank} and "
            f"dim(inner_shape)={len(inner_shape)}"
        )


def _depths(pylist: TensorLike) -> tuple[int | None, int]:
    """How deep the scalars are (None: there are none), and how deep lists are nested.

    Raises:
        ValueError: scalars are not all equally deep.
    """
    if not _is_list(pylist):
        return 0, 0
    scalar_depth, depth = None, 1
    for child in pylist:
        of_child, depth_of_child = _depths(child)
        if of_child is not None:
            if scalar_depth is not None and scalar_depth != of_child + 1:
                raise ValueError("all scalar values must have the same nesting depth")
            scalar_depth = of_child + 1
        depth = max(depth, depth_of_child + 1)
    return scalar_depth, depth


def _inner_shape(pylist: TensorLike, ragged_rank: int) -> tuple[int, ...]:
    """The shape of what lies below the ragged dimensions.

    Raises:
        ValueError: it differs, or scalars lie above.
    """
    values = list(pylist)
    for depth in builtins.range(ragged_rank):
        if not all(_is_list(value) for value in values):
            raise ValueError(
                f"pylist has scalar values depth {depth + 1}, but ragged_rank={ragged_rank} requires scalar value "
                f"depth greater than {ragged_rank}"
            )
        values = [element for row in values for element in row]
    shape = _shape_of(values)
    _check_shape(values, shape)
    return shape[1:]


def _shape_of(item: TensorLike) -> tuple[int, ...]:
    if not _is_list(item):
        return ()
    return (len(item), *_shape_of(item[0])) if len(item) else (0,)


def _check_shape(item: TensorLike, shape: tuple[int, ...]) -> None:
    if _is_list(item) != bool(shape) or (shape and shape[0] != len(item)):
        raise ValueError("inner values have inconsistent shape")
    for child in item if shape else ():
        _check_shape(child, shape[1:])


# ---------------------------------------------------------------------- placeholders, ranges
def placeholder(
    dtype: DTypeLike, ragged_rank: int, value_shape: ShapeLike | None = None, name: str | None = None
) -> TensorOrRagged:
    """A ragged tensor that a step is fed with; see `constant_value` for what to feed.

    Args:
        ragged_rank: the number of ragged dimensions; 0 gives a placeholder of shape `value_shape`.
        value_shape: the shape of the innermost values, without their first dimension; default: unknown.
    """
    if ragged_rank == 0:
        return placeholder_tensor(dtype, value_shape, name)
    with name_scope(name, "RaggedPlaceholder"):
        result: Any = placeholder_tensor(dtype, TensorShape([None]).concatenate(value_shape), "flat_values")
        for i in reversed(builtins.range(ragged_rank)):
            splits = placeholder_tensor(dtypes.int64, [None], f"row_splits_{i}")
            result = RaggedTensor(result, splits, internal=True)
        return result


_range = range


def range(
    starts: TensorLike,
    limits: TensorLike | None = None,
    deltas: TensorLike = 1,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    row_splits_dtype: DTypeLike = dtypes.int64,
) -> RaggedTensor:
    """Rows of numbers: row i goes from `starts[i]` up to `limits[i]` by steps of `deltas[i]`.

    Args:
        starts, limits, deltas: scalars, which serve all rows, or vectors of one length. `range(limits)` starts at 0.
        dtype: default: that of the arguments; of several the widest.

    Raises (in the step):
        InvalidArgumentError: a step is 0, or the lengths differ.

    Example:
        >>> sess.run(tf.ragged.range([2, 0, 3])).to_list()
        [[0, 1], [], [0, 1, 2]]
    """
    if limits is None:
        starts, limits = 0, starts
    with name_scope(name, "RaggedRange"):
        parts = [
            convert_to_tensor(value, dtype, name=part)
            for value, part in ((starts, "starts"), (limits, "limits"), (deltas, "deltas"))
        ]
        if dtype is None:
            parts = _widest(parts)
        result = raw.RaggedRange(*parts, Tsplits=partitions.splits_dtype(row_splits_dtype))
        return RaggedTensor(result.rt_dense_values, result.rt_nested_splits, internal=True)


def _widest(parts: list[Tensor]) -> list[Tensor]:
    known = [part.dtype for part in parts if part.dtype in _RANGE_TYPES]
    if len(known) < len(parts):
        return parts
    wide = max(known, key=_RANGE_TYPES.index)
    return [part if part.dtype is wide else raw.Cast(part, DstT=wide) for part in parts]


# ---------------------------------------------------------------------- segments
def row_splits_to_segment_ids(splits: TensorLike, name: str | None = None, out_type: DTypeLike | None = None) -> Tensor:
    """For each value the number of its row: [0, 2, 2, 5] gives [0, 0, 2, 2, 2].

    Args:
        splits: int32 or int64, shape [rows + 1].
        out_type: int32 or int64; default: that of `splits`.

    Raises:
        ValueError: `splits` has another rank or dtype, or is empty.
    """
    with name_scope(name, "RaggedSplitsToSegmentIds"):
        cuts = convert_to_tensor(splits, name="splits", preferred_dtype=dtypes.int64)
        if cuts.dtype not in (dtypes.int32, dtypes.int64):
            raise ValueError(f"splits must have dtype int32 or int64, got {cuts.dtype.name}")
        cuts.shape.assert_has_rank(1)
        if cuts.shape.dims_tuple == (0,):
            raise ValueError("Invalid row_splits: []")
        numbers = partitions.row_numbers(cuts)
        wanted = cuts.dtype if out_type is None else partitions.splits_dtype(out_type)
        found: Tensor = numbers if numbers.dtype is wanted else raw.Cast(numbers, DstT=wanted)
        return found


def segment_ids_to_row_splits(
    segment_ids: TensorLike,
    num_segments: TensorLike | None = None,
    out_type: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The splits of the rows in which values are that have these row numbers, in whatever order.

    Args:
        segment_ids: int32 or int64, shape [n].
        num_segments: the number of rows; default: the largest number and one.
        out_type: int32 or int64; default: that of `segment_ids`, int64 for Python numbers.
    """
    with name_scope(name, "SegmentIdsToRowSplits"):
        typed = [value.dtype for value in (segment_ids, num_segments) if isinstance(value, Tensor)]
        numbers = convert_to_tensor(segment_ids, name="segment_ids", preferred_dtype=dtypes.int64)
        if not numbers.dtype.is_integer:
            raise TypeError(f"segment_ids must be an integer tensor, got {numbers.dtype.name}; use tf.cast")
        numbers.shape.assert_has_rank(1)
        one = np.ones((), numbers.dtype.as_numpy_dtype)
        if num_segments is None:
            largest = raw.Max(raw.ConcatV2([np.array([-1], one.dtype), numbers], 0), [0])
            rows = raw.AddV2(largest, one)
        else:
            rows = partitions.as_lengths(num_segments, numbers.dtype, "num_segments")
            rows.shape.assert_has_rank(0)
        splits = partitions.splits_of_lengths(raw.UnsortedSegmentSum(raw.OnesLike(numbers), numbers, rows))
        wanted = partitions.splits_dtype(out_type or (typed[0] if typed else dtypes.int64))
        found: Tensor = splits if splits.dtype is wanted else raw.Cast(splits, DstT=wanted)
        return found
