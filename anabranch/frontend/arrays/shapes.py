"""The shape, size and rank of a tensor, and tensors of the same elements in another shape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dimensions import Dimension
from anabranch.core.dtypes import DTypeLike
from anabranch.core.shapes import TensorShape, broadcast_shape as _broadcast_shape
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import PerAxis, one_of
from anabranch.frontend.arrays.casting import cast
from anabranch.frontend.arrays.constants import constant
from anabranch.frontend.framework import name_scope
from anabranch.graph.composite import SparseTensor, SparseTensorValue
from anabranch.graph.conversion import constant_of, convert_to_tensor
from anabranch.graph.dispatch import dispatched
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def shape(input: TensorLike, name: str | None = None, out_type: DTypeLike = dtypes.int32) -> Tensor:
    """The shape of a tensor as a vector; a constant where it is fully known while the graph is built.

    Args:
        input: a tensor or `SparseTensor` of any dtype and shape.
        name: of the operation.
        out_type: int32 or int64.

    Returns:
        A vector with one size per dimension, of dtype `out_type`.

    Raises:
        TypeError: `input` cannot be converted to a tensor.

    Example:
        >>> x = tf.placeholder(tf.float32, [None, 3])
        >>> sess.run(tf.shape(x), {x: np.zeros([2, 3])})
        array([2, 3], dtype=int32)
    """
    return shape_internal(input, name, optimize=True, out_type=out_type)


def shape_internal(
    input: TensorLike, name: str | None = None, optimize: bool = True, out_type: DTypeLike = dtypes.int32
) -> Tensor:
    """Like `shape`; without `optimize` always an operation."""
    with name_scope(name, "Shape", [input] if isinstance(input, Tensor) else None) as scope:
        if isinstance(input, SparseTensor | SparseTensorValue):
            return cast(SparseTensor.from_value(input).dense_shape, out_type, scope)
        tensor = convert_to_tensor(input, name="input")
        if optimize and tensor.shape.is_fully_defined():
            return constant(tensor.shape.as_list(), out_type, name=scope)
        result: Tensor = raw.Shape(tensor, out_type=out_type, name=scope)
        return result


def shape_n(input: Iterable[TensorLike], out_type: DTypeLike = dtypes.int32, name: str | None = None) -> list[Tensor]:
    """The shapes of several tensors."""
    result: list[Tensor] = raw.ShapeN(input, out_type=out_type, name=name)
    return result


@dispatched
def size(input: TensorLike, name: str | None = None, out_type: DTypeLike = dtypes.int32) -> Tensor:
    """The number of elements of a tensor; of a sparse tensor, of its dense form.

    Args:
        input: a tensor or `SparseTensor` of any shape.
        name: of the operation.
        out_type: int32 or int64.

    Returns:
        A scalar of dtype `out_type`.

    Raises:
        TypeError: `input` cannot be converted to a tensor.

    Example:
        >>> sess.run(tf.size([[1, 2, 3], [4, 5, 6]]))
        np.int32(6)
    """
    with name_scope(name, "Size", [input] if isinstance(input, Tensor) else None) as scope:
        if isinstance(input, SparseTensor | SparseTensorValue):
            dense = cast(SparseTensor.from_value(input).dense_shape, out_type)
            product: Tensor = raw.Prod(dense, [0], name=scope)
            return product
        tensor = convert_to_tensor(input, name="input")
        known = tensor.shape.num_elements()
        if known is not None:
            return constant(known, out_type, name=scope)
        result: Tensor = raw.Size(tensor, out_type=out_type, name=scope)
        return result


@dispatched
def rank(input: TensorLike, name: str | None = None) -> Tensor:
    """The number of dimensions of a tensor."""
    with name_scope(name, "Rank", [input] if isinstance(input, Tensor) else None) as scope:
        result: Tensor
        if isinstance(input, SparseTensor | SparseTensorValue):
            result = raw.Size(SparseTensor.from_value(input).dense_shape, name=scope)
        else:
            tensor = convert_to_tensor(input, name="input")
            known = tensor.shape.ndims
            result = raw.Rank(tensor, name=scope) if known is None else constant(known, dtypes.int32, name=scope)
        return result


def reshape(tensor: TensorLike, shape: TensorLike, name: str | None = None) -> Tensor:
    """The elements of `tensor` in another shape; one size may be -1 and follows from the others.

    Args:
        tensor: of any dtype and shape.
        shape: an integer vector (a list or a tensor).
        name: of the operation.

    Returns:
        A tensor of the dtype of `tensor` and of shape `shape`.

    Raises:
        ValueError: the numbers of elements are known to differ, or several sizes are -1.

    Raises (in the step):
        InvalidArgumentError: the numbers of elements differ.

    Example:
        >>> x = tf.constant([1, 2, 3, 4, 5, 6])
        >>> sess.run(tf.reshape(x, [2, -1]))
        array([[1, 2, 3],
               [4, 5, 6]], dtype=int32)
    """
    result: Tensor = raw.Reshape(tensor, _shape_argument(shape), name=name)
    return result


def _shape_argument(shape: TensorLike) -> Any:
    """A shape given as Dimensions becomes a list of numbers, an unknown one -1."""
    if isinstance(shape, TensorShape) and shape.dims_tuple is not None:
        return [-1 if d is None else d for d in shape.dims_tuple] or constant_of(np.zeros(0, np.int32), "shape")
    if isinstance(shape, list | tuple):
        if not shape:
            return constant_of(np.zeros(0, np.int32), "shape")
        return [(-1 if d.value is None else d.value) if isinstance(d, Dimension) else d for d in shape]
    return shape


@dispatched
def expand_dims(
    input: TensorLike, axis: TensorLike | None = None, name: str | None = None, dim: TensorLike | None = None
) -> Tensor:
    """Adds a dimension of size 1 before dimension `axis`; `dim` is its deprecated name.

    Args:
        input: a tensor of any dtype and shape.
        axis: an integer in [-rank - 1, rank]; -1 adds the last dimension.
        name: of the operation.
        dim: deprecated name of `axis`.

    Returns:
        A tensor of the same elements, whose shape has one dimension of size 1 more.

    Raises:
        ValueError: both or neither are given.
        ValueError: `axis` is out of range.

    Example:
        >>> tf.expand_dims(tf.zeros([2, 3]), axis=1).shape
        TensorShape([Dimension(2), Dimension(1), Dimension(3)])
    """
    axis = one_of("axis", axis, "dim", dim)
    if axis is None:
        raise ValueError("Must specify an axis argument to tf.expand_dims()")
    result: Tensor = raw.ExpandDims(input, axis, name=name)
    return result


@dispatched
def squeeze(
    input: TensorLike, axis: PerAxis | None = None, name: str | None = None, squeeze_dims: PerAxis | None = None
) -> Tensor:
    """Removes dimensions of size 1.

    Args:
        input: a tensor of any dtype and shape.
        axis: which ones, a number or a list, counted from the end where negative; default: all that have size 1.
        name: of the operation.
        squeeze_dims: deprecated name of `axis`.

    Returns:
        A tensor of the same elements without these dimensions.

    Raises:
        ValueError: a dimension in `axis` has another size or is not there (or InvalidArgumentError, in the step).

    Example:
        >>> tf.squeeze(tf.zeros([1, 3, 1]), axis=0).shape
        TensorShape([Dimension(3), Dimension(1)])
    """
    given = one_of("axis", axis, "squeeze_dims", squeeze_dims)
    axes = given if given is None or isinstance(given, list | tuple) else [int(given)]
    result: Tensor = raw.Squeeze(input, squeeze_dims=axes, name=name)
    return result


def broadcast_to(input: TensorLike, shape: TensorLike, name: str | None = None) -> Tensor:
    """Repeats a tensor along dimensions of size 1 so that it has `shape`.

    Args:
        input: of any dtype; its rank is at most that of `shape`, with whose last dimensions it is lined up.
        shape: int32 or int64 vector.

    Raises:
        ValueError: a dimension is neither 1 nor that of `shape` (or InvalidArgumentError, in the step).
    """
    result: Tensor = raw.BroadcastTo(input, _shape_argument(shape), name=name)
    return result


def broadcast_static_shape(shape_x: TensorShape, shape_y: TensorShape) -> TensorShape:
    """The static shape to which two static shapes broadcast; raises ValueError if they do not."""
    return _broadcast_shape(shape_x, shape_y)


def broadcast_dynamic_shape(shape_x: TensorLike, shape_y: TensorLike) -> Tensor:
    """The shape, a vector, to which two shapes given as vectors broadcast."""
    result: Tensor = raw.BroadcastArgs(shape_x, shape_y)
    return result
