"""Ragged versions of reductions, over dimensions and over segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.values import TensorLike, TensorOrRagged
from anabranch.frontend.arguments import one_of
from anabranch.frontend.arithmetic import math, reduction
from anabranch.frontend.arrays import constants, segments, strings
from anabranch.frontend.framework import name_scope
from anabranch.frontend.ragged import partitions
from anabranch.frontend.ragged.conversion import convert_to_ragged, is_ragged, match_row_splits_dtypes
from anabranch.frontend.ragged.levels import picked, ranges
from anabranch.frontend.ragged.partitions import positive_axis
from anabranch.frontend.ragged.tensor import RaggedTensor
from anabranch.graph.constants import constant_value
from anabranch.graph.dispatch import version_of
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: a function of (data, segment_ids, num_segments)
_Aggregate = Callable[[Any, Any, Any], Any]
#: a function of (input, axis)
_Reduce = Callable[[Any, Any], Any]


# ---------------------------------------------------------------------- over segments
def _by_segment(aggregate: _Aggregate, data: TensorLike, segment_ids: TensorLike, count: TensorLike) -> Any:
    """The slices of each segment, combined: place j of a segment combines places j of its rows, as far as they go."""
    data, segment_ids = match_row_splits_dtypes(
        convert_to_ragged(data, name="data"), convert_to_ragged(segment_ids, name="segment_ids")
    )
    if segment_ids.dtype not in (dtypes.int32, dtypes.int64):
        raise ValueError("segment_ids must have dtype int32 or int64.")
    if is_ragged(segment_ids):
        if not is_ragged(data):
            raise ValueError(
                "segment_ids.shape must be a prefix of data.shape, but segment_ids is ragged and data is not."
            )
        message = "segment_ids.shape must be a prefix of data.shape"
        checks = partitions.require_same_splits([[segment_ids.row_splits], [data.row_splits]], message)
        values = data.values
        if is_ragged(values):
            values = values.with_flat_values(partitions.after(checks, values.flat_values))
        else:
            values = partitions.after(checks, values)
        return _by_segment(aggregate, values, segment_ids.values, count)
    if not is_ragged(data):
        return aggregate(data, segment_ids, count)
    lengths = data.row_lengths()
    longest = raw.UnsortedSegmentMax(lengths, segment_ids, count)
    splits = partitions.splits_of_lengths(raw.Maximum(longest, np.zeros((), lengths.dtype.as_numpy_dtype)))
    starts = picked(splits, segment_ids)
    places = ranges(starts, raw.AddV2(starts, lengths))
    return RaggedTensor(_by_segment(aggregate, data.values, places, splits[-1]), splits, internal=True)


def _plain_segments(original: Callable[..., Any]) -> None:
    name = original.__name__

    @version_of(original)
    def _(data: TensorLike, segment_ids: TensorLike, num_segments: TensorLike, name: str | None = name) -> Any:
        with name_scope(name, original.__name__):
            return _by_segment(original, data, segment_ids, num_segments)


for _function in (
    segments.unsorted_segment_sum,
    segments.unsorted_segment_prod,
    segments.unsorted_segment_min,
    segments.unsorted_segment_max,
):
    _plain_segments(_function)


def _mean_segments(original: Callable[..., Any], divisor: Callable[[Any], Any]) -> None:
    @version_of(original)
    def _(data: TensorLike, segment_ids: TensorLike, num_segments: TensorLike, name: str | None = None) -> Any:
        with name_scope(name, original.__name__):
            values = convert_to_ragged(data)
            total = _by_segment(segments.unsorted_segment_sum, values, segment_ids, num_segments)
            count = _by_segment(segments.unsorted_segment_sum, _ones_like(values), segment_ids, num_segments)
            return _quotient(total, count, divisor)


def _ones_like(value: TensorLike) -> Any:
    if is_ragged(value):
        return value.with_flat_values(constants.ones_like(value.flat_values))
    return constants.ones_like(value)


def _quotient(total: TensorLike, count: TensorLike, divisor: Callable[[Any], Any]) -> Any:
    if is_ragged(total):
        return total.with_flat_values(math.truediv(total.flat_values, divisor(count.flat_values)))
    return math.truediv(total, divisor(count))


def _same(count: Tensor) -> Tensor:
    return count


_mean_segments(segments.unsorted_segment_mean, _same)
_mean_segments(segments.unsorted_segment_sqrt_n, raw.Sqrt)


# ---------------------------------------------------------------------- over dimensions
def _reduced(reduce: _Reduce, aggregate: _Aggregate, value: TensorLike, axis: TensorLike) -> Any:
    """A ragged tensor reduced along an axis, several, or (None) all."""
    if axis is None:
        return reduce(value.flat_values, None)
    if isinstance(axis, list | tuple):
        for place in sorted({positive_axis(a, value.shape.ndims) for a in axis}, reverse=True):
            value = _reduced(reduce, aggregate, value, place) if is_ragged(value) else reduce(value, place)
        return value
    at = positive_axis(axis, value.shape.ndims)
    if at == 0:
        lengths = value.row_lengths()
        zero = np.zeros((), lengths.dtype.as_numpy_dtype)
        longest = raw.Max(partitions.zero_and(lengths), [0])
        places = ranges(raw.Mul(lengths, zero), lengths)
        return _by_segment(aggregate, value.values, places, longest)
    if at == 1:
        return _by_segment(aggregate, value.values, value.value_rowids(), value.nrows())
    if is_ragged(value.values):
        return value.with_values(_reduced(reduce, aggregate, value.values, at - 1))
    return value.with_values(reduce(value.values, at - 1))


def _axes(axis: TensorLike | None) -> Any:
    """An argument `axis`, as None, a number, or a list of numbers.

    Raises:
        ValueError: it is a tensor that is not known.
    """
    if axis is None or isinstance(axis, int):
        return axis
    if isinstance(axis, Tensor):
        known = constant_value(axis)
        if known is None:
            raise ValueError("axis must be known at graph construction time.")
        return known.tolist()
    return np.asarray(axis).tolist()


def _arguments(
    axis: TensorLike | None, keepdims: bool | None, reduction_indices: TensorLike | None, keep_dims: bool | None
) -> Any:
    if one_of("keepdims", keepdims, "keep_dims", keep_dims):
        raise ValueError("keepdims=True is not supported for RaggedTensors.")
    return _axes(one_of("axis", axis, "reduction_indices", reduction_indices))


def _reduction(original: Callable[..., Any], apply: Callable[[Any, Any], Any]) -> None:
    """Gives a reduction its ragged version: `apply` of a ragged tensor and the axes."""

    @version_of(original)
    def _(
        input_tensor: TensorLike,
        axis: TensorLike | None = None,
        keepdims: bool | None = None,
        name: str | None = None,
        reduction_indices: TensorLike | None = None,
        keep_dims: bool | None = None,
    ) -> Any:
        axes = _arguments(axis, keepdims, reduction_indices, keep_dims)
        with name_scope(name, "RaggedReduce"):
            return apply(convert_to_ragged(input_tensor), axes)


def _by(reduce: Callable[..., Any], aggregate: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return lambda value, axes: _reduced(reduce, aggregate, value, axes)


_sum = _by(reduction.reduce_sum, segments.unsorted_segment_sum)
_least = _by(reduction.reduce_min, segments.unsorted_segment_min)
_largest = _by(reduction.reduce_max, segments.unsorted_segment_max)


def _mean(value: TensorLike, axes: TensorLike) -> Any:
    return _quotient(_sum(value, axes), _sum(_ones_like(value), axes), _same)


def _of_truth(apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A reduction of truth values, by one of the numbers 0 and 1; of no values that gives a least or largest number."""

    def reduce(value: TensorLike, axes: TensorLike) -> TensorOrRagged:
        found = apply(value.with_flat_values(raw.Cast(value.flat_values, DstT=dtypes.int32)), axes)
        if is_ragged(found):
            return found.with_flat_values(raw.Greater(found.flat_values, 0))
        return raw.Greater(found, 0)

    return reduce


_reduction(reduction.reduce_sum, _sum)
_reduction(reduction.reduce_prod, _by(reduction.reduce_prod, segments.unsorted_segment_prod))
_reduction(reduction.reduce_min, _least)
_reduction(reduction.reduce_max, _largest)
_reduction(reduction.reduce_mean, _mean)
_reduction(reduction.reduce_all, _of_truth(_least))
_reduction(reduction.reduce_any, _of_truth(_largest))


@version_of(strings.reduce_join)
def reduce_join(
    inputs: TensorLike,
    axis: TensorLike | None = None,
    keep_dims: bool | None = None,
    separator: str = "",
    name: str | None = None,
    reduction_indices: TensorLike | None = None,
    keepdims: bool | None = None,
) -> TensorOrRagged:
    """The strings of dimensions joined, the innermost dimension first."""
    axes = _arguments(axis, keepdims, reduction_indices, keep_dims)

    def reduce(value: TensorLike, at: TensorLike) -> TensorOrRagged:
        return strings.reduce_join(value, at, separator=separator)

    def aggregate(data: TensorLike, segment_ids: TensorLike, count: TensorLike) -> TensorOrRagged:
        return strings.unsorted_segment_join(data, segment_ids, count, separator=separator)

    with name_scope(name, "RaggedSegmentJoin"):
        return _reduced(reduce, aggregate, convert_to_ragged(inputs), axes)
