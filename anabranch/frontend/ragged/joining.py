"""Ragged versions of `concat` and `stack`."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.values import TensorLike, TensorOrRagged
from anabranch.frontend.arrays import joining, shapes
from anabranch.frontend.framework import name_scope
from anabranch.frontend.ragged import partitions
from anabranch.frontend.ragged.conversion import convert_to_ragged, is_ragged, match_row_splits_dtypes, splits_dtype_of
from anabranch.frontend.ragged.gathering import gather
from anabranch.frontend.ragged.levels import numbers_to
from anabranch.frontend.ragged.partitions import positive_axis
from anabranch.frontend.ragged.tensor import RaggedTensor
from anabranch.graph.constants import constant_value
from anabranch.graph.dispatch import version_of
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


@version_of(joining.concat)
def concat(values: TensorLike, axis: TensorLike, name: str | None = None) -> TensorOrRagged:
    """Tensors and ragged tensors joined along dimension `axis`, which may be a ragged one."""
    return _joined(values, axis, name, new=False)


def stack(values: TensorLike, axis: int = 0, name: str | None = None) -> TensorOrRagged:
    """Tensors or ragged tensors as the rows of a new dimension, whose slices may have different shapes.

    Args:
        values: a list of tensors and ragged tensors of one rank and dtype.
        axis: where the new dimension goes.

    Returns:
        A RaggedTensor of one rank more; a Tensor of scalars that are stacked.

    Raises:
        ValueError: there are no values, or `axis` is out of range.

    Example:
        >>> sess.run(tf.ragged.stack([[1, 2], [3]])).to_list()
        [[1, 2], [3]]
    """
    return _joined(values, axis, name, new=True)


version_of(joining.stack)(stack)


def _joined(values: TensorLike, axis: TensorLike, name: str | None, new: bool) -> Any:
    parts = list(values) if isinstance(values, list | tuple) else [values]
    if not parts:
        raise ValueError("rt_inputs may not be empty.")
    with name_scope(name, "RaggedConcat"):
        tensors = match_row_splits_dtypes(*(convert_to_ragged(part, name="rt_input") for part in parts))
        ndims = tensors[0].shape.ndims
        for tensor in tensors:
            tensor.shape.assert_has_rank(ndims) if ndims is not None else None
        at = constant_value(axis) if isinstance(axis, Tensor) else axis
        if at is None:
            raise ValueError("axis must be known at graph construction time.")
        at = at.item() if isinstance(at, np.ndarray | np.generic) else at
        out = ndims + 1 if new and ndims is not None else ndims
        return _along(tensors, positive_axis(at, out), new)


def _along(tensors: list[Any], axis: int, new: bool) -> Any:
    """Joins tensors along an axis counted from the front."""
    if len(tensors) == 1 and not new:
        return tensors[0]
    if not any(is_ragged(t) for t in tensors):
        if len(tensors) == 1:
            return shapes.expand_dims(tensors[0], axis)
        if new and tensors[0].shape.ndims == 1 and axis == 0:
            return _vectors_as_rows(tensors)
        if _stays_dense(tensors[0].shape.ndims, axis, new):
            return joining.stack(tensors, axis) if new else joining.concat(tensors, axis)
    dtype = splits_dtype_of(*tensors)
    rank = max(1, *(t.ragged_rank for t in tensors if is_ragged(t)), 1)
    tensors = [_raised(t, rank, dtype) for t in tensors]
    if axis == 0:
        return _rows_after_rows(tensors, new)
    if axis == 1:
        return _rows_beside_rows(tensors, new)
    first = tensors[0].row_splits
    checks = partitions.require_same_splits([[t.row_splits] for t in tensors])
    with get_default_graph().control_dependencies(checks):
        return RaggedTensor(_along([t.values for t in tensors], axis - 1, new), first, internal=True)


def _stays_dense(ndims: int | None, axis: int, new: bool) -> bool:
    """Whether tensors without ragged dimensions, joined along an axis, give one without."""
    return ndims is not None and axis in (ndims - 1, ndims - 1 + new)


def _vectors_as_rows(vectors: list[Tensor]) -> RaggedTensor:
    lengths = raw.Pack([raw.Shape(vector, out_type=dtypes.int64)[0] for vector in vectors])
    return RaggedTensor.from_row_lengths(joining.concat(vectors, 0), lengths, validate=False)


def _raised(tensor: TensorLike, rank: int, dtype: TensorLike) -> Any:
    """The tensor with `rank` ragged dimensions, the missing ones made of uniform ones."""
    if rank == 0:
        return tensor
    if not is_ragged(tensor):
        return RaggedTensor.from_tensor(tensor, ragged_rank=rank, row_splits_dtype=dtype)
    return tensor.with_values(_raised(tensor.values, rank - 1, dtype))


def _rows_after_rows(tensors: list[RaggedTensor], new: bool) -> Any:
    flat = joining.concat([t.flat_values for t in tensors], 0)
    nested = [_one_after_another(list(level)) for level in zip(*(t.nested_row_splits for t in tensors), strict=True)]
    if new:
        nested.insert(0, partitions.splits_of_lengths(raw.Pack([t.nrows() for t in tensors])))
    return RaggedTensor.from_nested_row_splits(flat, nested, validate=False)


def _one_after_another(splits: list[Tensor]) -> Tensor:
    pieces, end = [splits[0]], splits[0][-1]
    for part in splits[1:]:
        pieces.append(raw.AddV2(part[1:], end))
        end = raw.AddV2(end, part[-1])
    return joining.concat(pieces, 0)


def _rows_beside_rows(tensors: list[RaggedTensor], new: bool) -> RaggedTensor:
    """Row i of the result is made of row i of each tensor."""
    count, rows = len(tensors), tensors[0].nrows()
    message = "Input tensors have incompatible shapes."
    checks = [partitions.require(raw.Equal(t.nrows(), rows), message) for t in tensors[1:]]
    all_rows = _rows_after_rows(tensors, new=False)
    dtype = rows.dtype.as_numpy_dtype
    numbers = numbers_to(raw.Mul(partitions.after(checks, rows), np.array(count, dtype)), rows.dtype)
    by_row = raw.Reshape(raw.Transpose(raw.Reshape(numbers, [count, -1]), [1, 0]), [-1])
    together = gather(all_rows, by_row)
    known = next((t.row_splits.shape for t in tensors if t.row_splits.shape.is_fully_defined()), None)
    if new:
        ends = numbers_to(raw.AddV2(rows, np.ones((), dtype)), rows.dtype)
        splits, values = raw.Mul(ends, np.array(count, dtype)), together
    else:
        splits, values = together.row_splits[::count], together.values
    if known is not None:
        splits.set_shape(known)
    return RaggedTensor(values, splits, internal=True)
