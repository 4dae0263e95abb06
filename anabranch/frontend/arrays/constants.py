"""Constants, placeholders, and tensors filled with one value or with one-hot rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dimensions import Dimension
from anabranch.core.dtypes import DType, DTypeLike, as_dtype
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import TensorLike, to_array
from anabranch.frontend.framework import name_scope
from anabranch.graph.composite import SparseTensor, SparseTensorValue
from anabranch.graph.constants import constant_value_as_shape
from anabranch.graph.conversion import constant_array, constant_of, convert_to_tensor
from anabranch.graph.dispatch import dispatched
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: larger constants of one value are computed by a Fill operation instead of stored in the graph
_MAX_STORED_ELEMENTS = 1000


def constant(
    value: TensorLike,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    name: str = "Const",
    verify_shape: bool = False,
) -> Tensor:
    """A tensor that has the same value in every step.

    Args:
        value: a number, text, an array, or a nested list.
        dtype: default: that of an array; float32, int32 (int64 where needed), bool, string for Python values.
        shape: the result's shape; a value with fewer elements is continued with its last element, and a shape
            of no elements takes any value.
        name: of the operation.
        verify_shape: whether the value must have `shape` exactly.

    Returns:
        A tensor of the value's shape, or of `shape`.

    Raises:
        TypeError: the value does not fit the dtype, or with `verify_shape` has another shape.
        ValueError: the value has more elements than `shape`.

    Example:
        >>> sess.run(tf.constant([[1, 2], [3, 4]]))
        array([[1, 2],
               [3, 4]], dtype=int32)
        >>> tf.constant(0.5, shape=[2, 3]).shape
        TensorShape([Dimension(2), Dimension(3)])
    """
    array = constant_array(value, None if dtype is None else as_dtype(dtype).base_dtype)
    if shape is not None:
        array = _fitted(array, tuple(int(d) for d in TensorShape(shape)), verify_shape)
    return constant_of(array, name=name)


def _fitted(array: np.ndarray[Any, Any], dims: tuple[int, ...], verify_shape: bool) -> np.ndarray[Any, Any]:
    if array.shape == dims:
        return array
    if verify_shape:
        raise TypeError(f"Expected Tensor's shape: {dims}, got {array.shape}.")
    size = int(np.prod(dims, dtype=np.int64))
    if size == 0:
        return np.empty(dims, array.dtype)
    if array.size > size:
        raise ValueError(f"Too many elements provided. Needed at most {size}, but received {array.size}")
    flat = array.reshape(-1)
    if array.size < size:
        if array.size == 0:
            raise ValueError(f"a constant of shape {dims} needs at least one element, got none")
        last, first = flat[-1], flat
        flat = np.full(size, last, dtype=array.dtype)
        flat[: first.size] = first
    return flat.reshape(dims)


def placeholder(dtype: DTypeLike, shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """A tensor whose value must be fed in every step that needs it.

    Args:
        dtype: element type of what is fed.
        shape: what is known of its shape; default: nothing.
        name: of the operation.

    Returns:
        A tensor that can be fed, and cannot be computed.

    Raises (in the step):
        InvalidArgumentError: the step needs it and it was not fed.

    Example:
        >>> x = tf.placeholder(tf.float32, [None, 2], name="x")
        >>> sess.run(x * 2.0, feed_dict={x: [[1.0, 2.0]]})
        array([[2., 4.]], dtype=float32)
    """
    tensor: Tensor = raw.Placeholder(dtype=dtype, shape=TensorShape(shape), name=name)
    return tensor


def placeholder_with_default(input: TensorLike, shape: ShapeLike, name: str | None = None) -> Tensor:
    """A tensor that has the value of `input` in steps that do not feed it.

    Args:
        input: the default.
        shape: the (partial) shape of what may be fed; that of `input` must be compatible.
        name: of the operation.

    Returns:
        A tensor of the dtype of `input` and of shape `shape`, which can be fed.

    Raises:
        ValueError: `shape` and that of `input` contradict each other.

    Example:
        >>> training = tf.placeholder_with_default(False, [])
        >>> rate = tf.cond(training, lambda: tf.constant(0.5), lambda: tf.constant(0.0))
        >>> sess.run(rate), sess.run(rate, {training: True})
        (np.float32(0.0), np.float32(0.5))
    """
    tensor: Tensor = raw.PlaceholderWithDefault(input, shape=TensorShape(shape), name=name)
    return tensor


# ---------------------------------------------------------------------- one value everywhere
def zeros(shape: TensorLike, dtype: DTypeLike = dtypes.float32, name: str | None = None) -> Tensor:
    """A tensor of zeros (False for bool, empty strings for string).

    Args:
        shape: an integer vector (a list or a tensor).
        dtype: of the result.
        name: of the operation.

    Returns:
        A tensor of shape `shape`.

    Raises:
        TypeError: `shape` is no vector of integers.

    Example:
        >>> sess.run(tf.zeros([2, 2]))
        array([[0., 0.],
               [0., 0.]], dtype=float32)
    """
    base_dtype = as_dtype(dtype).base_dtype
    zero: Any = "" if base_dtype is dtypes.string else np.zeros((), base_dtype.as_numpy_dtype)
    return _filled("zeros", shape, zero, base_dtype, name)


def ones(shape: TensorLike, dtype: DTypeLike = dtypes.float32, name: str | None = None) -> Tensor:
    """A tensor of ones (True for bool).

    Args:
        shape: an integer vector (a list or a tensor).
        dtype: of the result.
        name: of the operation.

    Returns:
        A tensor of shape `shape`.

    Raises:
        TypeError: `shape` is no vector of integers.

    Example:
        >>> sess.run(tf.ones([3], tf.int32))
        array([1, 1, 1], dtype=int32)
    """
    base_dtype = as_dtype(dtype).base_dtype
    return _filled("ones", shape, np.ones((), base_dtype.as_numpy_dtype), base_dtype, name)


def _filled(kind: str, shape: TensorLike, value: TensorLike, dtype: DType, name: str | None) -> Tensor:
    with name_scope(name, kind, [shape] if isinstance(shape, Tensor) else None) as scope:
        if not isinstance(shape, Tensor):
            known = _known_shape(shape)
            if known is not None and math.prod(known) < _MAX_STORED_ELEMENTS:
                array = np.full(known, to_array(value, dtype)[()], dtype=dtype.as_numpy_dtype)
                return constant_of(array, name=scope)
            of_dimensions = isinstance(shape, TensorShape) or (
                isinstance(shape, list | tuple) and any(isinstance(size, Dimension) for size in shape)
            )
            if known is not None:
                shape = known  # a program may have halved a size by `/`
            shape = convert_to_tensor(shape, dtypes.int32 if of_dimensions else None, "shape_as_tensor")
        if shape.shape.ndims == 0:
            shape = raw.Reshape(shape, [-1])  # a scalar is a vector's length
        return fill(shape, constant(value, dtype), name=scope)


def _known_shape(shape: TensorLike) -> list[int] | None:
    """The sizes of a shape that is known."""
    try:
        dims = TensorShape(shape).dims_tuple
    except (TypeError, ValueError):
        return None
    known = [d for d in dims or () if d is not None]
    return None if dims is None or len(known) < len(dims) else known


def fill(dims: TensorLike, value: TensorLike, name: str | None = None) -> Tensor:
    """A tensor of shape `dims` (a vector) with the scalar `value` everywhere.

    Args:
        dims: an integer vector.
        value: a scalar of any dtype.
        name: of the operation.

    Returns:
        A tensor of the dtype of `value`.

    Raises:
        ValueError: `dims` is known to be no vector, or `value` to be no scalar.

    Example:
        >>> sess.run(tf.fill([2, 3], 7))
        array([[7, 7, 7],
               [7, 7, 7]], dtype=int32)
    """
    result: Tensor = raw.Fill(dims, value, name=name)
    if not result.shape.is_fully_defined() and not isinstance(dims, Tensor):
        result.set_shape(constant_value_as_shape(result.op.inputs[0]))
    return result


@dispatched
def zeros_like(
    tensor: TensorLike, dtype: DTypeLike | None = None, name: str | None = None, optimize: bool = True
) -> Tensor:
    """Zeros of the shape of `tensor`, and of its dtype unless another is given.

    Args:
        tensor: a tensor of any dtype and shape.
        dtype: of the result; default: that of `tensor`.
        name: of the operation.
        optimize: whether to use what is known of the shape while the graph is built.

    Returns:
        A tensor of the shape of `tensor`.

    Raises:
        TypeError: `tensor` cannot be converted to a tensor.

    Example:
        >>> sess.run(tf.zeros_like([[1, 2], [3, 4]]))
        array([[0, 0],
               [0, 0]], dtype=int32)
    """
    return _like("zeros_like", tensor, dtype, name, optimize)


@dispatched
def ones_like(
    tensor: TensorLike, dtype: DTypeLike | None = None, name: str | None = None, optimize: bool = True
) -> Tensor:
    """Ones of the shape of `tensor`, and of its dtype unless another is given.

    Args:
        tensor: a tensor of any shape; numbers or bool.
        dtype: of the result; default: that of `tensor`.
        name: of the operation.
        optimize: whether to use what is known of the shape while the graph is built.

    Returns:
        A tensor of the shape of `tensor`.

    Raises:
        TypeError: `tensor` cannot be converted to a tensor.

    Example:
        >>> sess.run(tf.ones_like([2.5, 3.5]))
        array([1., 1.], dtype=float32)
    """
    return _like("ones_like", tensor, dtype, name, optimize)


def _like(kind: str, tensor: TensorLike, dtype: DTypeLike | None, name: str | None, optimize: bool) -> Tensor:
    with name_scope(name, kind, [tensor] if isinstance(tensor, Tensor) else None) as scope:
        if isinstance(tensor, SparseTensor | SparseTensorValue):
            tensor, shape = SparseTensor.from_value(tensor), None
            dims = raw.Cast(tensor.dense_shape, DstT="int32")
        else:
            tensor = convert_to_tensor(tensor, name="tensor")
            shape, dims = tensor.shape, None
        wanted = tensor.dtype.base_dtype if dtype is None else as_dtype(dtype).base_dtype
        make = zeros if kind == "zeros_like" else ones
        if optimize and shape is not None and shape.is_fully_defined() and wanted is not dtypes.variant:
            return make(shape, wanted, name=scope)
        if kind == "zeros_like" and dims is None and wanted is tensor.dtype.base_dtype:
            result: Tensor = raw.ZerosLike(tensor, name=scope)
            return result
        result = make(raw.Shape(tensor) if dims is None else dims, wanted, name=scope)
        if shape is not None:
            result.set_shape(shape)
        return result


# ---------------------------------------------------------------------- one value at an index
@dispatched
def one_hot(
    indices: TensorLike,
    depth: TensorLike,
    on_value: TensorLike | None = None,
    off_value: TensorLike | None = None,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """A new dimension of size `depth` with `on_value` at each index and `off_value` elsewhere.

    Args:
        indices: integers of any shape; those outside [0, depth) give `off_value` everywhere.
        depth: an integer scalar.
        on_value, off_value: scalars; default: 1 and 0.
        axis: where the new dimension goes; default: last.
        dtype: default: that of the values, else float32.
        name: of the operation.

    Returns:
        A tensor of shape ``indices.shape + [depth]`` where `axis` is the default.

    Raises:
        TypeError: the dtypes of the values, or a value and `dtype`, differ.

    Example:
        >>> sess.run(tf.one_hot([0, 2, -1], depth=3))
        array([[1., 0., 0.],
               [0., 0., 1.],
               [0., 0., 0.]], dtype=float32)
    """
    with name_scope(name, "one_hot", [indices] if isinstance(indices, Tensor) else None) as scope:
        wanted = None if dtype is None else as_dtype(dtype).base_dtype
        given = [
            convert_to_tensor(v, dtype_hint=wanted).dtype.base_dtype for v in (on_value, off_value) if v is not None
        ]
        if wanted is None:
            wanted = given[0] if given else dtypes.float32
        if any(actual is not wanted for actual in given):
            raise TypeError(
                f"dtype {wanted.name} of one_hot does not match the dtypes {[g.name for g in given]} of its values"
            )
        on = convert_to_tensor(1 if on_value is None else on_value, wanted, name="on_value")
        off = convert_to_tensor(0 if off_value is None else off_value, wanted, name="off_value")
        result: Tensor = raw.OneHot(indices, depth, on, off, axis=-1 if axis is None else axis, name=scope)
        return result
