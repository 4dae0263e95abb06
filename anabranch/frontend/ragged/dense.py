"""The rows of dense tensors: whole, up to given lengths, or without the padding at their ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anabranch.core.dtypes import DType
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.ragged import partitions
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def rows_of_dense(
    dense: Tensor, lengths: TensorLike | None, padding: TensorLike | None, ragged_rank: int, dtype: DType
) -> tuple[Tensor, list[Tensor]]:
    """The values, and the nested splits, of a dense tensor as a ragged one.

    Args:
        dense: of rank `ragged_rank + 1` or more.
        lengths: how much of each row to take, a vector; or a list of nested row lengths.
        padding: the element that ends each row; at most one of both is given.
        dtype: of the splits.
    """
    if isinstance(lengths, list | tuple) and lengths and not isinstance(lengths[0], int | float):
        return _by_nested_lengths(dense, lengths, dtype)
    shape = raw.Shape(dense, out_type=dtype)
    rows = dense
    if ragged_rank > 1:
        rows = raw.Reshape(dense, raw.ConcatV2([np.array([-1], dtype.as_numpy_dtype), shape[ragged_rank:]], 0))
        rows.set_shape(TensorShape([None]).concatenate(dense.shape[ragged_rank:]))
    values, inner = _by_lengths(rows, lengths, padding, dtype)
    outer = [partitions.uniform_splits(shape, i) for i in range(1, ragged_rank)]
    dims = dense.shape.dims_tuple
    if outer and dims is not None and dims[0] is not None:
        outer[0].set_shape([dims[0] + 1])
    return values, [*outer, inner]


def _by_lengths(
    rows: Tensor, lengths: TensorLike | None, padding: TensorLike | None, dtype: DType
) -> tuple[Tensor, Tensor]:
    """Of a tensor of rank 2 or more."""
    shape = raw.Shape(rows, out_type=dtype)
    merged = raw.ConcatV2([np.array([-1], dtype.as_numpy_dtype), shape[2:]], 0)
    values: Tensor = raw.Reshape(rows, merged)
    if rows.shape.ndims is not None:
        values.set_shape(TensorShape([None]).concatenate(rows.shape[2:]))
    if lengths is None and padding is None:
        splits = partitions.uniform_splits(shape, 1)
        dims = rows.shape.dims_tuple
        splits.set_shape([None if dims is None or dims[0] is None else dims[0] + 1])
        return values, splits
    if padding is not None:
        kept = partitions.lengths_before_padding(rows, padding, dtype)
    else:
        kept = partitions.as_lengths(lengths, dtype)
        kept.shape.assert_has_rank(1)
        kept = raw.Maximum(raw.Minimum(kept, shape[1]), np.zeros((), dtype.as_numpy_dtype))
    zero, one = np.zeros((), dtype.as_numpy_dtype), np.ones((), dtype.as_numpy_dtype)
    starts = raw.Mul(raw.Range(zero, shape[0], one), shape[1])
    places = raw.RaggedRange(starts, raw.AddV2(starts, kept), one, Tsplits=dtype).rt_dense_values
    return raw.GatherV2(values, places, 0), partitions.splits_of_lengths(kept)


def _by_nested_lengths(dense: Tensor, lengths: Sequence[TensorLike], dtype: DType) -> tuple[Tensor, list[Tensor]]:
    nested = [partitions.as_lengths(part, dtype, "lengths") for part in lengths]
    dense.shape.with_rank_at_least(len(nested) + 1)
    splits = [partitions.splits_of_lengths(part) for part in nested]
    true = raw.Fill(raw.Reshape(raw.Sum(nested[-1], [0]), [1]), True)
    whole = raw.Shape(dense, out_type=dtype)[: len(nested) + 1]
    types = ["ROW_SPLITS"] * len(nested)
    # where the values lie in the dense tensor
    room = raw.RaggedTensorToTensor(whole, true, False, splits, row_partition_types=types)
    places = raw.Where(raw.Reshape(room, [-1]))[:, 0]
    below = raw.Shape(dense, out_type=dtype)[len(nested) + 1 :]
    flat = raw.Reshape(dense, raw.ConcatV2([np.array([-1], dtype.as_numpy_dtype), below], 0))
    return raw.GatherV2(flat, places, 0), splits
