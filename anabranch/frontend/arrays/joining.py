"""Joining tensors along an axis, and taking them apart."""

from __future__ import annotations

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dimensions import Dimension
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.arrays.identities import identity
from anabranch.frontend.framework import name_scope
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.dispatch import dispatched
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


@dispatched
def stack(values: TensorLike, axis: int = 0, name: str = "stack") -> Tensor:
    """Packs tensors of one shape along a new dimension `axis`.

    Args:
        values: a list of tensors of one dtype and shape.
        axis: where the new dimension goes, in [-rank - 1, rank].
        name: of the operation.

    Returns:
        A tensor of one rank more: shape [n, ...] for n values with `axis` 0.

    Raises:
        ValueError: the shapes differ, or `axis` is out of range.
        TypeError: the dtypes differ.

    Example:
        >>> sess.run(tf.stack([[1, 4], [2, 5]], axis=1))
        array([[1, 2],
               [4, 5]], dtype=int32)
    """
    given = values if isinstance(values, list | tuple) else ()
    if axis == 0 and len({part.dtype.base_dtype for part in given if isinstance(part, Tensor)}) < 2:
        try:
            return convert_to_tensor(values, name=name)
        except (TypeError, ValueError):
            pass  # what Pack says about the mistake is clearer
    parts = list(values) if not isinstance(values, Tensor) else unstack(values)
    first = convert_to_tensor(parts[0], name=f"{name}_0" if name else None).shape.ndims
    if first is not None and not -first - 1 <= axis <= first:
        raise ValueError(f"axis = {axis} not in [{-first - 1}, {first + 1})")
    result: Tensor = raw.Pack(parts, axis=axis, name=name)
    return result


def unstack(value: TensorLike, num: int | None = None, axis: int = 0, name: str = "unstack") -> list[Tensor]:
    """The tensors along dimension `axis`, as a list.

    Args:
        value: a tensor of rank 1 or more.
        num: how many there are; needed where the size of the dimension is not known.
        axis: an integer, counted from the end where negative.
        name: of the operation.

    Returns:
        A list of `num` tensors, of the shape of `value` without `axis`.

    Raises:
        ValueError: `axis` is out of range, or `num` cannot be inferred.

    Example:
        >>> x, y = tf.unstack([[1, 2], [3, 4]])
        >>> sess.run(y)
        array([3, 4], dtype=int32)
    """
    tensor = convert_to_tensor(value, name="value")
    if num is None:
        dims = tensor.shape.dims_tuple
        if dims is not None and not -len(dims) <= axis < len(dims):
            raise ValueError(f"axis = {axis} not in [{-len(dims)}, {len(dims)})")
        num = None if dims is None else dims[axis]
    if num is None:
        raise ValueError(f"Cannot infer num from shape {tensor.shape}")
    result: list[Tensor] = raw.Unpack(tensor, num=num, axis=axis, name=name)
    return result


def parallel_stack(values: TensorLike, name: str = "parallel_stack") -> Tensor:
    """Packs tensors of one known shape along a new first dimension."""
    with name_scope(name) as scope:
        first = convert_to_tensor(values[0])
        whole = TensorShape([len(values)]).concatenate(first.shape)
        result: Tensor = raw.ParallelConcat([raw.ExpandDims(v, 0) for v in values], shape=whole, name=scope)
        return result


@dispatched
def concat(values: TensorLike, axis: TensorLike, name: str = "concat") -> Tensor:
    """Joins tensors along dimension `axis`, in which alone they may differ in size.

    Args:
        values: a list of tensors of one dtype and rank.
        axis: an integer scalar, counted from the end where negative.
        name: of the operation.

    Returns:
        A tensor of the shape of the values, with their sizes along `axis` added up.

    Raises:
        ValueError: the shapes differ elsewhere, or `axis` is out of range.

    Example:
        >>> sess.run(tf.concat([[[1, 2]], [[3, 4], [5, 6]]], axis=0))
        array([[1, 2],
               [3, 4],
               [5, 6]], dtype=int32)
    """
    if not isinstance(values, list | tuple):
        values = [values]
    if len(values) == 1:
        with name_scope(name):
            at = convert_to_tensor(axis, dtypes.int32, name="concat_dim")
            at.shape.assert_is_compatible_with([])
            return identity(values[0], name=name)
    result: Tensor = raw.ConcatV2(list(values), axis, name=name)
    return result


def split(
    value: TensorLike, num_or_size_splits: TensorLike, axis: TensorLike = 0, num: int | None = None, name: str = "split"
) -> list[Tensor]:
    """The parts of a tensor along dimension `axis`.

    Args:
        value: a tensor of any dtype and shape.
        num_or_size_splits: a number of equal parts, or a vector of sizes, one of which may be -1.
        axis: the dimension to cut, an integer.
        num: the number of parts, where it cannot be inferred from a vector.
        name: of the operation.

    Returns:
        A list of tensors of the dtype and rank of `value`.

    Raises:
        ValueError: the parts do not add up, or their number cannot be inferred.

    Example:
        >>> first, second = tf.split([[1, 2, 3], [4, 5, 6]], [1, 2], axis=1)
        >>> sess.run(second)
        array([[2, 3],
               [5, 6]], dtype=int32)
    """
    if isinstance(num_or_size_splits, int | np.integer | Dimension):
        return list(raw.Split(axis, value, num_split=int(num_or_size_splits), name=name))
    sizes = convert_to_tensor(num_or_size_splits)
    if sizes.shape.ndims == 0:
        raise ValueError("Rank-0 tensors are not supported as the num_or_size_splits argument.")
    if num is None:
        num = None if sizes.shape.ndims is None else sizes.shape[0].value
    if num is None:
        raise ValueError(f"Cannot infer num from shape {num_or_size_splits}")
    return list(raw.SplitV(value, sizes, axis, num_split=num, name=name))
