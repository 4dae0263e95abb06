"""Scattering, partitioning and stitching, distinct values, search in sorted rows, edit distance."""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import TensorLike
from anabranch.frontend.framework import name_scope
from anabranch.graph.composite import SparseTensor, SparseTensorLike, SparseTensorValue
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.dispatch import dispatched
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


# ---------------------------------------------------------------------- scattering
def scatter_nd(indices: TensorLike, updates: TensorLike, shape: TensorLike, name: str | None = None) -> Tensor:
    """A tensor of zeros of `shape` with `updates` added at the index vectors in `indices`.

    Args:
        indices: integers; the last dimension holds the index vectors.
        updates: shape indices.shape[:-1] + shape[indices.shape[-1]:].
        shape: of the result, an integer vector.
        name: of the operation.

    Returns:
        A tensor of the dtype of `updates`, of shape `shape`; updates at one position add up.

    Raises:
        ValueError: the shapes do not go together.

    Raises (in the step):
        InvalidArgumentError: an index is out of range.

    Example:
        >>> sess.run(tf.scatter_nd([[1], [3], [1]], [9, 10, 11], [5]))
        array([ 0, 20,  0, 10,  0], dtype=int32)
    """
    result: Tensor = raw.ScatterNd(indices, updates, shape, name=name)
    return result


def tensor_scatter_update(
    tensor: TensorLike, indices: TensorLike, updates: TensorLike, name: str | None = None
) -> Tensor:
    """`tensor` with `updates` in place of the elements or slices that the index vectors name."""
    result: Tensor = raw.TensorScatterUpdate(tensor, indices, updates, name=name)
    return result


def tensor_scatter_add(tensor: TensorLike, indices: TensorLike, updates: TensorLike, name: str | None = None) -> Tensor:
    """`tensor` with `updates` added to the elements or slices that the index vectors name."""
    result: Tensor = raw.TensorScatterAdd(tensor, indices, updates, name=name)
    return result


def tensor_scatter_sub(tensor: TensorLike, indices: TensorLike, updates: TensorLike, name: str | None = None) -> Tensor:
    """`tensor` with `updates` subtracted from the elements or slices that the index vectors name."""
    result: Tensor = raw.TensorScatterSub(tensor, indices, updates, name=name)
    return result


tensor_scatter_nd_update = tensor_scatter_update
tensor_scatter_nd_add = tensor_scatter_add
tensor_scatter_nd_sub = tensor_scatter_sub


# ---------------------------------------------------------------------- partitions
@dispatched
def dynamic_partition(
    data: TensorLike, partitions: TensorLike, num_partitions: int, name: str | None = None
) -> list[Tensor]:
    """Distributes the rows of `data` over `num_partitions` tensors, as `partitions` says for each.

    Args:
        partitions: int32 in [0, num_partitions); its shape is the beginning of that of `data`.
    """
    result: list[Tensor] = raw.DynamicPartition(data, partitions, num_partitions=num_partitions, name=name)
    return result


def dynamic_stitch(indices: TensorLike, data: TensorLike, name: str | None = None) -> Tensor:
    """Puts row j of data[i] at position indices[i][j]; where a position occurs twice the later row counts."""
    result: Tensor = raw.DynamicStitch(indices, data, name=name)
    return result


def parallel_dynamic_stitch(indices: TensorLike, data: TensorLike, name: str | None = None) -> Tensor:
    """Like `dynamic_stitch`, without a promise which of two rows for one position counts."""
    result: Tensor = raw.ParallelDynamicStitch(indices, data, name=name)
    return result


# ---------------------------------------------------------------------- distinct values
class UniqueValues(NamedTuple):
    """Distinct values, and for each element the position of its value among them."""

    y: Tensor
    idx: Tensor


def unique(x: TensorLike, out_idx: DTypeLike = dtypes.int32, name: str | None = None) -> UniqueValues:
    """The distinct values of a vector in the order of their first occurrence.

    Returns:
        a named tuple: `y` the values, `idx` for each element of `x` the position of its value in `y`.
    """
    return UniqueValues(*raw.Unique(x, out_idx=out_idx, name=name))


class CountedValues(NamedTuple):
    """Distinct values, for each element the position of its value among them, and how often each occurs."""

    y: Tensor
    idx: Tensor
    count: Tensor  # type: ignore[assignment]  # tuples have a method of that name


def unique_with_counts(x: TensorLike, out_idx: DTypeLike = dtypes.int32, name: str | None = None) -> CountedValues:
    """Like `unique`; the result also has `count`: how often each value occurs."""
    return CountedValues(*raw.UniqueWithCounts(x, out_idx=out_idx, name=name))


class ListDifference(NamedTuple):
    """The elements of a list that another one lacks, and their positions."""

    out: Tensor
    idx: Tensor


def setdiff1d(
    x: TensorLike, y: TensorLike, index_dtype: DTypeLike = dtypes.int32, name: str | None = None
) -> ListDifference:
    """The elements of the vector `x` that are not in `y`.

    Returns:
        a named tuple: `out` the elements, `idx` their positions in `x`.
    """
    return ListDifference(*raw.ListDiff(x, y, out_idx=index_dtype, name=name))


def searchsorted(
    sorted_sequence: TensorLike,
    values: TensorLike,
    side: str = "left",
    out_type: DTypeLike = dtypes.int32,
    name: str | None = None,
) -> Tensor:
    """The places in sorted rows where each value would be inserted.

    Args:
        sorted_sequence: [..., n], ascending along the last dimension.
        values: [..., m], with the same leading dimensions.
        side: "left": before equal elements; "right": after them.

    Raises:
        ValueError: another `side`.
    """
    if side not in {"left", "right"}:
        raise ValueError(f"side must be either 'right' or 'left'. Saw: {side}.")
    op = raw.LowerBound if side == "left" else raw.UpperBound
    with name_scope(name, "SearchSorted"):
        rows = convert_to_tensor(sorted_sequence, name="sorted_sequence")
        wanted = convert_to_tensor(values, rows.dtype, name="values")
        places = op(_as_matrix(rows), _as_matrix(wanted), out_type=out_type)
        result: Tensor = raw.Reshape(places, raw.Shape(wanted))
        result.set_shape(wanted.shape)
        return result


def _as_matrix(tensor: Tensor) -> Tensor:
    last = raw.StridedSlice(raw.Shape(tensor), [-1], [0], [1], end_mask=1)
    result: Tensor = raw.Reshape(tensor, raw.ConcatV2([[-1], last], 0))
    return result


def unravel_index(indices: TensorLike, dims: TensorLike, name: str | None = None) -> Tensor:
    """The positions, one column per index, that flat indices have in a tensor of shape `dims`."""
    result: Tensor = raw.UnravelIndex(indices, dims, name=name)
    return result


# ---------------------------------------------------------------------- edit distance
def edit_distance(
    hypothesis: SparseTensorLike, truth: SparseTensorLike, normalize: bool = True, name: str = "edit_distance"
) -> Tensor:
    """The Levenshtein distance between the sequences of two sparse tensors.

    Args:
        hypothesis, truth: `SparseTensor`s of one dtype and rank; the last dimension is the position in a sequence.
        normalize: whether to divide by the length of the true sequence.

    Returns:
        float32, the shape of the leading dimensions.

    Raises:
        TypeError: an argument is not sparse.
    """
    for value, what in ((hypothesis, "Hypothesis"), (truth, "Truth")):
        if not isinstance(value, SparseTensor | SparseTensorValue):
            raise TypeError(f"{what} must be a SparseTensor.")
    said, meant = SparseTensor.from_value(hypothesis), SparseTensor.from_value(truth)
    result: Tensor = raw.EditDistance(
        said.indices,
        said.values,
        said.dense_shape,
        meant.indices,
        meant.values,
        meant.dense_shape,
        normalize=normalize,
        name=name,
    )
    return result
