"""Sets in tensors: differences, intersections, unions, sizes. The last dimension holds the elements of each set."""

from __future__ import annotations

from typing import Any

from anabranch.core.values import TensorLike
from anabranch.graph.composite import SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def set_difference(
    a: TensorLike | SparseTensor, b: TensorLike | SparseTensor, aminusb: bool = True, validate_indices: bool = True
) -> SparseTensor:
    """The elements of each set of `a` that are not in that of `b`, or the other way round, in ascending order.

    Args:
        a, b: integers or strings; tensors of the same shape but for the last dimension, or sparse tensors.
        aminusb: False gives the elements of `b` that are not in `a`.
        validate_indices: whether the indices of sparse tensors must be in order.

    Raises:
        InvalidArgumentError: in a step: the shapes do not go together, or indices are out of order or bounds.

    Example:
        >>> left = tf.sets.difference([[1, 2, 2], [3, 4, 5]], [[2, 0], [5, 9]])
        >>> sess.run(tf.sparse.to_dense(left))
        array([[1, 0],
               [3, 4]], dtype=int32)
    """
    return _operation(a, b, "a-b" if aminusb else "b-a", validate_indices)


def set_intersection(
    a: TensorLike | SparseTensor, b: TensorLike | SparseTensor, validate_indices: bool = True
) -> SparseTensor:
    """The elements that each set of `a` shares with that of `b`; arguments and errors as of `set_difference`.

    Example:
        >>> sess.run(tf.sets.intersection([[3, 1, 2]], [[2, 3, 9]]).values)
        array([2, 3], dtype=int32)
    """
    return _operation(a, b, "intersection", validate_indices)


def set_union(
    a: TensorLike | SparseTensor, b: TensorLike | SparseTensor, validate_indices: bool = True
) -> SparseTensor:
    """The elements of each set of `a` and of that of `b`; arguments and errors as of `set_difference`.

    Example:
        >>> sess.run(tf.sets.union([[3, 1]], [[3, 9]]).values)
        array([1, 3, 9], dtype=int32)
    """
    return _operation(a, b, "union", validate_indices)


def set_size(a: SparseTensor, validate_indices: bool = True) -> Tensor:
    """How many different elements each set has: int32 in the shape of `a` without its last dimension.

    Raises:
        TypeError: `a` is not sparse.

    Example:
        >>> sets = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], [7, 7, 8], [2, 2])
        >>> sess.run(tf.sets.size(sets))
        array([1, 1], dtype=int32)
    """
    if not isinstance(a, SparseTensor):
        raise TypeError(f"Expected `SparseTensor`, got {a!r}; tf.sparse.from_dense makes one")
    size: Tensor = raw.SetSize(a.indices, a.values, a.dense_shape, validate_indices=validate_indices)
    return size


_OTHER_WAY = {"a-b": "b-a", "b-a": "a-b"}


def _operation(
    a: TensorLike | SparseTensor, b: TensorLike | SparseTensor, operation: str, validate: bool
) -> SparseTensor:
    if isinstance(a, SparseTensor) and not isinstance(b, SparseTensor):
        a, b, operation = b, a, _OTHER_WAY.get(operation, operation)
    attrs: dict[str, Any] = {"set_operation": operation, "validate_indices": validate}
    if isinstance(a, SparseTensor) and isinstance(b, SparseTensor):
        parts = (a.indices, a.values, a.dense_shape, b.indices, b.values, b.dense_shape)
        return SparseTensor(*raw.SparseToSparseSetOperation(*parts, **attrs))
    if isinstance(b, SparseTensor):
        first = convert_to_tensor(a, dtype=b.values.dtype)
        return SparseTensor(*raw.DenseToSparseSetOperation(first, b.indices, b.values, b.dense_shape, **attrs))
    first = convert_to_tensor(a)
    second = convert_to_tensor(b, dtype=first.dtype)
    return SparseTensor(*raw.DenseToDenseSetOperation(first, second, **attrs))
