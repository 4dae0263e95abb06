"""Ragged versions of functions that take slices by their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.values import TensorLike, TensorOrRagged
from anabranch.frontend.arrays import gathering
from anabranch.frontend.framework import name_scope
from anabranch.frontend.ragged import partitions
from anabranch.frontend.ragged.conversion import convert_to_ragged, is_ragged, match_row_splits_dtypes
from anabranch.frontend.ragged.levels import picked
from anabranch.frontend.ragged.tensor import RaggedTensor
from anabranch.graph.dispatch import version_of
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def gather(params: TensorLike, indices: TensorLike) -> TensorOrRagged:
    """The rows of `params` at `indices`, in the shape of `indices`; either may be ragged."""
    rows, at = match_row_splits_dtypes(
        convert_to_ragged(params, name="params"), convert_to_ragged(indices, name="indices")
    )
    if is_ragged(at):
        return at.with_values(gather(rows, at.values))
    if not is_ragged(rows):
        return gathering.gather(rows, at)
    if at.shape.ndims is None:
        raise ValueError("indices.shape.ndims must be known statically")
    rank = at.shape.ndims + rows.ragged_rank - 1
    result = raw.RaggedGather(list(rows.nested_row_splits), rows.flat_values, at, OUTPUT_RAGGED_RANK=rank)
    splits = list(result.output_nested_splits)
    if splits and at.shape.ndims:
        dims = at.shape.as_list()
        splits[0].set_shape([None if dims[0] is None else dims[0] + 1])
    return RaggedTensor.from_nested_row_splits(result.output_dense_values, splits, validate=False)


@version_of(gathering.gather)
def _gather(
    params: TensorLike,
    indices: TensorLike,
    validate_indices: bool | None = None,
    name: str | None = None,
    axis: int | None = None,
    batch_dims: int | None = 0,
) -> Any:
    if axis not in (None, 0):
        raise ValueError("axis != 0 is not supported for ragged gather yet.")
    if batch_dims not in (None, 0):
        raise ValueError("batch_dims != 0 is not supported for ragged gather yet.")
    with name_scope(name, "RaggedGather"):
        return gather(params, indices)


@version_of(gathering.batch_gather)
def batch_gather(params: TensorLike, indices: TensorLike, name: str | None = None) -> TensorOrRagged:
    """`gather` within each row, for rows that both share."""
    with name_scope(name, "RaggedBatchGather"):
        rows, at = match_row_splits_dtypes(
            convert_to_ragged(params, name="params"), convert_to_ragged(indices, name="indices")
        )
        if not is_ragged(rows) and not is_ragged(at):
            return gathering.batch_gather(rows, at)
        rank = at.shape.ndims
        if rank is None:
            raise ValueError("batch_gather does not allow indices with unknown shape.")
        if rank == 0:
            raise ValueError("indices.rank must be at least 1.")
        if is_ragged(at):
            return _ragged_batch_gather(rows, at, rank)
        if rank == 1:
            return gather(rows, at)
        if rank > 2:
            raise ValueError("batch shape from indices does not match params shape")
        starts = raw.ExpandDims(rows.row_starts(), 1)
        return gather(rows.values, raw.AddV2(_as_type(at, starts), starts))


def _ragged_batch_gather(rows: TensorLike, at: RaggedTensor, rank: int) -> Any:
    if rank > 2:
        if not is_ragged(rows):
            raise ValueError("batch shape from indices does not match params shape")
        checks = partitions.require_same_splits([[rows.row_splits], [at.row_splits]])
        with get_default_graph().control_dependencies(checks):
            return at.with_values(batch_gather(rows.values, at.values))
    if not is_ragged(rows):
        if rows.shape.ndims is not None and rows.shape.ndims < 2:
            raise ValueError("batch shape from indices does not match params shape")
        rows = RaggedTensor.from_tensor(rows, row_splits_dtype=at.row_splits.dtype)
    rows.row_splits.shape.assert_is_compatible_with(at.row_splits.shape)
    message = "batch shape from indices does not match params shape"
    same = partitions.require(raw.Equal(raw.Size(rows.row_splits), raw.Size(at.row_splits)), message)
    starts = picked(partitions.after([same], rows.row_starts()), at.value_rowids())
    return at.with_values(gather(rows.values, raw.AddV2(_as_type(at.values, starts), starts)))


def _as_type(tensor: Tensor, like: Tensor) -> Tensor:
    found: Tensor = tensor if tensor.dtype is like.dtype else raw.Cast(tensor, DstT=like.dtype)
    return found


# ---------------------------------------------------------------------- by index vectors
@version_of(gathering.gather_nd)
def gather_nd(params: TensorLike, indices: TensorLike, name: str | None = None, batch_dims: int = 0) -> TensorOrRagged:
    """The slices that the index vectors in the last dimension of `indices` name."""
    if batch_dims != 0:
        raise ValueError("batch_dims != 0 is not supported for ragged gather yet.")
    with name_scope(name, "RaggedGatherNd"):
        rows, at = match_row_splits_dtypes(
            convert_to_ragged(params, name="params"), convert_to_ragged(indices, name="indices")
        )
        rank = at.shape.ndims
        if rank is None:
            raise ValueError("indices.rank be statically known.")
        if rank == 0:
            raise ValueError("indices.rank must be at least 1.")
        if is_ragged(at) and rank == at.ragged_rank + 1:
            raise ValueError("The innermost dimension of indices may not be ragged")
        length = at.shape.as_list()[-1]
        if length is None:
            raise ValueError("indices.shape[-1] must be statically known.")
        if rank <= 2:
            return _by_vectors(rows, at, length)
        outer = at
        if not is_ragged(at):
            dtype = rows.row_splits.dtype
            outer = RaggedTensor.from_tensor(at, ragged_rank=rank - 2, row_splits_dtype=dtype)
        flat = outer.flat_values
        flat.set_shape([None, length])
        inner = _by_vectors(rows, flat, length) if is_ragged(rows) else gathering.gather_nd(rows, flat)
        result = outer.with_flat_values(inner)
        uniform = not is_ragged(at) and result.ragged_rank == rank - 2
        return result.to_tensor() if uniform else result


def _by_vectors(rows: RaggedTensor, at: Tensor, length: int) -> Any:
    """`gather_nd` of a ragged tensor by the rows of a matrix, or by one vector."""
    if at.shape.ndims == 1:
        found = _by_vectors(rows, raw.ExpandDims(at, 0), length)
        return found[0]
    if length == 0:
        whole = partitions.count_rows(at, rows.row_splits.dtype)
        repeated = raw.Fill(raw.Reshape(whole, [1]), np.zeros((), rows.row_splits.dtype.as_numpy_dtype))
        one = RaggedTensor.from_row_lengths(rows, raw.Reshape(rows.nrows(), [1]), validate=False)
        return gather(one, repeated)
    if length == 1:
        return gather(rows, raw.Reshape(at, [-1]))
    at = _as_type(at, rows.row_splits)
    places, below = at[:, 0], rows
    for i in range(1, length):
        if not is_ragged(below):
            rest = raw.ConcatV2([raw.ExpandDims(places, 1), at[:, i:]], 1)
            return gathering.gather_nd(below, rest)
        lengths = picked(below.row_lengths(), places)
        inside = raw.LogicalAnd(raw.GreaterEqual(at[:, i], raw.ZerosLike(lengths)), raw.Less(at[:, i], lengths))
        checks = [partitions.require(inside, f"indices[..., {i}] is out of the range of its row")]
        places = partitions.after(checks, raw.AddV2(picked(below.row_starts(), places), at[:, i]))
        below = below.values
    return gather(below, places)
