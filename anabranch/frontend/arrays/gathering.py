"""Elements by position and by condition: gathering, masking, choosing."""

from __future__ import annotations

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import TensorLike
from anabranch.frontend.arrays.casting import cast
from anabranch.frontend.arrays.shapes import reshape, shape as shape_of
from anabranch.frontend.framework import name_scope
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.dispatch import dispatched
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


# ---------------------------------------------------------------------- gathering
@dispatched
def gather(
    params: TensorLike,
    indices: TensorLike,
    validate_indices: bool | None = None,
    name: str | None = None,
    axis: TensorLike | None = None,
    batch_dims: int | None = 0,
) -> Tensor:
    """The slices of `params` along dimension `axis` that `indices` names.

    Args:
        params: a tensor, or a variable, of which then only the rows that are asked for are read.
        indices: integers of any shape, in [0, params.shape[axis]).
        validate_indices: ignored: indices are always checked.
        name: of the operation.
        axis: default: `batch_dims`.
        batch_dims: how many leading dimensions `params` and `indices` share.

    Returns:
        shape params.shape[:axis] + indices.shape[batch_dims:] + params.shape[axis + 1:].

    Raises:
        ValueError: the shapes, `axis` and `batch_dims` do not go together.

    Raises (in the step):
        InvalidArgumentError: an index is out of range; the message says which.

    Example:
        >>> sess.run(tf.gather([10, 20, 30], [2, 0]))
        array([30, 10], dtype=int32)
        >>> sess.run(tf.gather([[1, 2], [3, 4]], [1], axis=1))
        array([[2],
               [4]], dtype=int32)
    """
    batch_dims = batch_dims or 0
    if batch_dims < 0:
        rank_indices = convert_to_tensor(indices).shape.ndims
        if rank_indices is None:
            raise ValueError("a negative batch_dims needs indices of known rank")
        batch_dims += rank_indices
    at = batch_dims if axis is None else axis
    sparse_read = getattr(params, "sparse_read", None)
    known = at if isinstance(at, int) else constant_value(convert_to_tensor(at))
    if sparse_read is not None and batch_dims == 0 and known is not None and int(known) == 0:
        rows: Tensor = sparse_read(indices, name=name)
        return rows
    result: Tensor = raw.GatherV2(params, indices, at, batch_dims=batch_dims, name=name)
    return result


@dispatched
def batch_gather(params: TensorLike, indices: TensorLike, name: str | None = None) -> Tensor:
    """`gather` where all dimensions of `indices` but the last are shared with `params`."""
    with name_scope(name, "BatchGather", [params] if isinstance(params, Tensor) else None):
        picked = convert_to_tensor(indices, name="indices")
        if picked.shape.ndims is None:
            raise ValueError("batch_gather does not allow indices with unknown shape.")
        return gather(params, picked, batch_dims=picked.shape.ndims - 1)


@dispatched
def gather_nd(params: TensorLike, indices: TensorLike, name: str | None = None, batch_dims: int = 0) -> Tensor:
    """The elements, or slices, that the index vectors in the last dimension of `indices` name.

    Args:
        params: a tensor of any dtype and shape.
        indices: integers of shape [..., depth], where depth is at most the rank of `params`.
        name: of the operation.
        batch_dims: how many leading dimensions `params` and `indices` share; a number, or a constant of one element.

    Returns:
        shape indices.shape[:-1] + params.shape[batch_dims + indices.shape[-1]:].

    Raises:
        ValueError: the index vectors are longer than the rank of `params`.

    Raises (in the step):
        InvalidArgumentError: an index is out of range.

    Example:
        >>> sess.run(tf.gather_nd([[1, 2], [3, 4]], [[0, 1], [1, 0]]))
        array([2, 3], dtype=int32)
    """
    given = constant_value(convert_to_tensor(batch_dims))
    if given is None or given.size != 1:
        raise ValueError(f"batch_dims must be an integer that is known when the graph is built, got {batch_dims!r}")
    batch_dims = int(given.reshape(()))
    if batch_dims == 0:
        read = getattr(params, "gather_nd", None)
        result: Tensor = raw.GatherNd(params, indices, name=name) if read is None else read(indices, name=name)
        return result
    with name_scope(name, "BatchGatherND", None):
        return _batch_gather_nd(convert_to_tensor(params), convert_to_tensor(indices), batch_dims)


def _batch_gather_nd(params: Tensor, indices: Tensor, batch_dims: int) -> Tensor:
    """Puts the position in the batch in front of every index vector."""
    known = indices.shape.ndims
    if known is None:
        return _flat_batch_gather_nd(params, indices, batch_dims)
    batch_dims += known if batch_dims < 0 else 0
    if not 0 <= batch_dims < known:
        raise ValueError(f"batch_dims = {batch_dims} must be less than rank(indices) = {known}")
    sizes = raw.Shape(indices)
    vectors = raw.ConcatV2([raw.StridedSlice(sizes, [0], [-1], [1], begin_mask=1), [1]], 0)
    columns = []
    for axis in range(batch_dims):
        length = raw.StridedSlice(sizes, [axis], [axis + 1], [1], shrink_axis_mask=1)
        position = raw.Reshape(raw.Range(0, length, 1), [-1 if i == axis else 1 for i in range(known)])
        columns.append(raw.Cast(raw.BroadcastTo(position, vectors), DstT=indices.dtype))
    result: Tensor = raw.GatherNd(params, raw.ConcatV2([*columns, indices], -1))
    return result


def _flat_batch_gather_nd(params: Tensor, indices: Tensor, batch_dims: int) -> Tensor:
    """The same for indices of unknown rank: the dimensions of the batch become one, those of the positions another."""
    if batch_dims < 0:
        raise ValueError("a negative batch_dims needs indices of known rank")
    sizes, rows = raw.Shape(indices), raw.Shape(params)
    batch = raw.Prod(raw.StridedSlice(sizes, [0], [batch_dims], [1]), [0], keep_dims=True)
    positions = raw.Prod(raw.StridedSlice(sizes, [batch_dims], [-1], [1]), [0], keep_dims=True)
    depth = raw.StridedSlice(sizes, [-1], [0], [1], end_mask=1)
    inner = raw.StridedSlice(rows, [batch_dims], [0], [1], end_mask=1)
    picked = raw.Reshape(indices, raw.ConcatV2([batch, positions, depth], 0))
    picked.set_shape([None, None, None])
    gathered = _batch_gather_nd(raw.Reshape(params, raw.ConcatV2([batch, inner], 0)), picked, 1)
    leading = raw.StridedSlice(sizes, [0], [-1], [1], begin_mask=1)
    result: Tensor = raw.Reshape(
        gathered, raw.ConcatV2([leading, raw.StridedSlice(inner, depth, [0], [1], end_mask=1)], 0)
    )
    return result


# ---------------------------------------------------------------------- masking
def boolean_mask(tensor: TensorLike, mask: TensorLike, name: str = "boolean_mask", axis: int | None = None) -> Tensor:
    """The elements (or slices) of `tensor` where `mask` is true.

    Args:
        tensor: a tensor of any dtype and shape.
        mask: booleans of known rank, whose shape is that of `tensor` from dimension `axis` on.
        name: of the operation.
        axis: default: 0.

    Returns:
        the masked dimensions become one, whose size depends on the mask.

    Raises:
        ValueError: a scalar mask, one of unknown rank, or a shape that does not fit.

    Example:
        >>> sess.run(tf.boolean_mask([1, 2, 3], [True, False, True]))
        array([1, 3], dtype=int32)
    """
    with name_scope(name, values=[t for t in (tensor, mask) if isinstance(t, Tensor)]):
        values = convert_to_tensor(tensor, name="tensor")
        chosen = convert_to_tensor(mask, dtypes.bool if not isinstance(mask, Tensor) else None, name="mask")
        depth = chosen.shape.ndims
        if depth == 0:
            raise ValueError("mask cannot be scalar.")
        if depth is None:
            raise ValueError(
                "Number of mask dimensions must be specified, even if some dimensions are None. "
                "E.g. shape=[None] is ok, but shape=None is not."
            )
        at = 0 if axis is None else axis
        if at < 0:
            at += len(values.shape)
        values.shape[at : at + depth].assert_is_compatible_with(chosen.shape)
        flat = reshape(values, _merged_dimensions(values, at, depth)) if depth > 1 else values
        if values.shape.ndims is not None:
            merged = values.shape[at : at + depth].num_elements()
            flat.set_shape([*values.shape[:at], merged, *values.shape[at + depth :]])
        positions = raw.Squeeze(raw.Where(reshape(chosen, [-1])), squeeze_dims=[1])
        return gather(flat, positions, axis=at)


def _merged_dimensions(tensor: Tensor, axis: int, count: int) -> Tensor:
    """The shape of `tensor` with `count` dimensions from `axis` on merged into one."""
    sizes = shape_of(tensor)
    before = raw.StridedSlice(sizes, [0], [axis], [1], begin_mask=1)
    after = raw.StridedSlice(sizes, [axis + count], [0], [1], end_mask=1)
    middle = raw.Prod(raw.StridedSlice(sizes, [axis], [axis + count], [1]), [0], keep_dims=True)
    merged: Tensor = raw.ConcatV2([before, middle, after], 0)
    return merged


@dispatched
def where(
    condition: TensorLike, x: TensorLike | None = None, y: TensorLike | None = None, name: str | None = None
) -> Tensor:
    """The positions where `condition` is true, or elements of `x` where it is true and of `y` elsewhere.

    Args:
        condition: booleans (with positions: any numbers, which are true unless 0).
        x, y: of one shape; `condition` has that shape, or is a vector that chooses among rows.
        name: of the operation.

    Returns:
        Positions: int64 [number of true elements, rank of `condition`]. With `x` and `y`: a tensor of their shape and
        dtype.

    Raises:
        ValueError: only one of `x` and `y` is given.

    Example:
        >>> sess.run(tf.where([True, False, True]))
        array([[0],
               [2]])
        >>> sess.run(tf.where([True, False], [1, 2], [10, 20]))
        array([ 1, 20], dtype=int32)
    """
    if (x is None) != (y is None):
        raise ValueError("x and y must both be non-None or both be None.")
    result: Tensor = raw.Where(condition, name=name) if x is None else raw.Select(condition, x, y, name=name)
    return result


@dispatched
def where_v2(
    condition: TensorLike, x: TensorLike | None = None, y: TensorLike | None = None, name: str | None = None
) -> Tensor:
    """Like `where`, with condition, x and y broadcast against each other."""
    if (x is None) != (y is None):
        raise ValueError("x and y must both be non-None or both be None.")
    result: Tensor = raw.Where(condition, name=name) if x is None else raw.SelectV2(condition, x, y, name=name)
    return result


def sequence_mask(
    lengths: TensorLike, maxlen: TensorLike | None = None, dtype: DTypeLike = dtypes.bool, name: str | None = None
) -> Tensor:
    """Marks the first `lengths[...]` of `maxlen` positions of each sequence.

    Args:
        lengths: integers of any shape.
        maxlen: scalar; default: the largest length.
        dtype: of the result.
        name: of the operation.

    Returns:
        shape lengths.shape + [maxlen], true (1) at positions below the length.

    Raises:
        ValueError: `maxlen` is not a scalar.

    Example:
        >>> sess.run(tf.sequence_mask([1, 3], maxlen=3))
        array([[ True, False, False],
               [ True,  True,  True]])
    """
    with name_scope(name, "SequenceMask", [t for t in (lengths, maxlen) if isinstance(t, Tensor)]):
        counts = convert_to_tensor(lengths, name="lengths")
        if maxlen is None:
            axes = (
                np.arange(counts.shape.ndims, dtype=np.int32) if counts.shape.ndims is not None else _all_axes(counts)
            )
            bound = raw.Maximum(raw.Max(counts, axes), np.zeros((), counts.dtype.as_numpy_dtype))
        else:
            bound = convert_to_tensor(maxlen, name="maxlen")
        if bound.shape.ndims not in (None, 0):
            raise ValueError("maxlen must be scalar for sequence_mask")
        zero, one = (np.array(v, bound.dtype.as_numpy_dtype) for v in (0, 1))
        positions = raw.Range(zero, bound, one)
        marked: Tensor = raw.Less(positions, cast(raw.ExpandDims(counts, -1), bound.dtype))
        return marked if dtype is None else cast(marked, dtype)


def _all_axes(tensor: Tensor) -> Tensor:
    axes: Tensor = raw.Range(0, raw.Rank(tensor), 1)
    return axes
