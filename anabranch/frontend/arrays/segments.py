"""Reductions over segments: rows that carry the same number."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.core.values import TensorLike
from anabranch.frontend.framework import name_scope
from anabranch.graph.building import OpFunction
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.dispatch import dispatched
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.ops.arithmetic import math as arithmetic
from anabranch.ops.arrays import segment


# ---------------------------------------------------------------------- over segments
def _sorted(name: str, op: OpFunction, what: str) -> Callable[..., Tensor]:
    def function(data: TensorLike, segment_ids: TensorLike, name: str | None = None) -> Tensor:
        result: Tensor = op(data, segment_ids, name=name)
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{what} of the rows of each segment.

    Args:
        data: shape [n, ...].
        segment_ids: the segment of each row, sorted, shape [n], int32 or int64.

    Returns:
        Shape [last id + 1, ...].
    """
    return function


segment_sum = _sorted("segment_sum", segment.SegmentSum, "The sum (0 for none)")
segment_mean = _sorted("segment_mean", segment.SegmentMean, "The mean (0 for none)")
segment_prod = _sorted("segment_prod", segment.SegmentProd, "The product (1 for none)")
segment_max = _sorted("segment_max", segment.SegmentMax, "The maximum (0 for none)")
segment_min = _sorted("segment_min", segment.SegmentMin, "The minimum (0 for none)")


def _unsorted(name: str, op: OpFunction, what: str) -> Callable[..., Tensor]:
    def function(
        data: TensorLike, segment_ids: TensorLike, num_segments: TensorLike, name: str | None = None
    ) -> Tensor:
        result: Tensor = op(data, segment_ids, num_segments, name=name)
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{what} of the rows of each segment.

    Args:
        data: shape [ids' shape, ...].
        segment_ids: the segment of each row, in any order; rows with a negative one are left out.
        num_segments: a scalar above all ids.

    Returns:
        Shape [num_segments, ...].
    """
    return dispatched(function)


unsorted_segment_sum = _unsorted("unsorted_segment_sum", segment.UnsortedSegmentSum, "The sum (0 for none)")
unsorted_segment_prod = _unsorted("unsorted_segment_prod", segment.UnsortedSegmentProd, "The product (1 for none)")
unsorted_segment_max = _unsorted(
    "unsorted_segment_max", segment.UnsortedSegmentMax, "The maximum (the least number of the dtype for none)"
)
unsorted_segment_min = _unsorted(
    "unsorted_segment_min", segment.UnsortedSegmentMin, "The minimum (the greatest number of the dtype for none)"
)


def _unsorted_counts(data: Tensor, segment_ids: Tensor, num_segments: Tensor) -> Tensor:
    """The number of rows of each segment, at least 1, in a shape that broadcasts against the sums of `data`."""
    ones = raw.Fill(raw.Shape(segment_ids), raw.Cast(1, DstT=data.dtype.base_dtype))
    counts = segment.UnsortedSegmentSum(ones, segment_ids, num_segments)
    missing = arithmetic.Sub(raw.Rank(data), raw.Rank(segment_ids))
    shape = raw.ConcatV2([raw.Shape(counts), raw.Fill(raw.ExpandDims(missing, 0), 1)], 0)
    result: Tensor = raw.Reshape(arithmetic.Maximum(counts, 1), shape)
    return result


@dispatched
def unsorted_segment_mean(
    data: TensorLike, segment_ids: TensorLike, num_segments: TensorLike, name: str | None = None
) -> Tensor:
    """The mean (0 for none) of the rows of each segment; see `unsorted_segment_sum`."""
    with name_scope(name, "UnsortedSegmentMean"):
        data, segment_ids = convert_to_tensor(data), convert_to_tensor(segment_ids)
        total = segment.UnsortedSegmentSum(data, segment_ids, num_segments)
        result: Tensor = arithmetic.RealDiv(total, _unsorted_counts(data, segment_ids, num_segments))
        return result


@dispatched
def unsorted_segment_sqrt_n(
    data: TensorLike, segment_ids: TensorLike, num_segments: TensorLike, name: str | None = None
) -> Tensor:
    """The sum of the rows of each segment over the square root of their number; see `unsorted_segment_sum`."""
    with name_scope(name, "UnsortedSegmentSqrtN"):
        data, segment_ids = convert_to_tensor(data), convert_to_tensor(segment_ids)
        total = segment.UnsortedSegmentSum(data, segment_ids, num_segments)
        counts = _unsorted_counts(data, segment_ids, num_segments)
        result: Tensor = arithmetic.RealDiv(total, arithmetic.Sqrt(counts))
        return result


def _chosen(name: str, op: OpFunction, counted: OpFunction, what: str) -> Callable[..., Tensor]:
    def function(
        data: TensorLike,
        indices: TensorLike,
        segment_ids: TensorLike,
        name: str | None = None,
        num_segments: TensorLike | None = None,
    ) -> Tensor:
        if num_segments is None:
            result: Tensor = op(data, indices, segment_ids, name=name)
        else:
            result = counted(data, indices, segment_ids, num_segments, name=name)
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{what} over segments of chosen rows of `data`.

    Args:
        data: shape [rows, ...].
        indices: the rows chosen, shape [n], int32 or int64.
        segment_ids: the segment of each chosen row, sorted, shape [n].
        num_segments: the number of segments; default: the last id + 1.
    """
    return function


sparse_segment_sum = _chosen(
    "sparse_segment_sum", segment.SparseSegmentSum, segment.SparseSegmentSumWithNumSegments, "The sum"
)
sparse_segment_mean = _chosen(
    "sparse_segment_mean", segment.SparseSegmentMean, segment.SparseSegmentMeanWithNumSegments, "The mean"
)
sparse_segment_sqrt_n = _chosen(
    "sparse_segment_sqrt_n",
    segment.SparseSegmentSqrtN,
    segment.SparseSegmentSqrtNWithNumSegments,
    "The sum, over the square root of the number of rows,",
)
