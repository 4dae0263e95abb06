"""Shapes, joining and splitting, transposing, padding."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.shapes import Dimension, ShapeLike, TensorShape, broadcast_shape as _broadcast_shape
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import PerAxis, one_of
from anabranch.frontend.arrays.casting import cast
from anabranch.frontend.arrays.constants import constant
from anabranch.frontend.framework import name_scope
from anabranch.graph.composite import SparseTensor, SparseTensorValue
from anabranch.graph.conversion import constant_of, convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


# ---------------------------------------------------------------------- identities
def identity(input: TensorLike, name: str | None = None) -> Tensor:
    """A new tensor (or `IndexedSlices`) with the value of `input`.

    Args:
        input: a tensor or variable of any dtype and shape, or an `IndexedSlices`.
        name: of the operation.

    Returns:
        A tensor of the same dtype and shape.

    Raises:
        TypeError: `input` cannot be converted to a tensor.

    Example:
        >>> v = tf.get_variable("v", initializer=2.0)
        >>> with tf.control_dependencies([tf.assign_add(v, 1.0)]):
        ...     after = tf.identity(v)
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(after)
        np.float32(3.0)
    """
    result: Tensor = raw.Identity(input, name=name)
    return result


def identity_n(input: TensorLike, name: str | None = None) -> list[Tensor]:
    """New tensors with the values of the tensors of a list."""
    result: list[Tensor] = raw.IdentityN(input, name=name)
    return result


def stop_gradient(input: TensorLike, name: str | None = None) -> Tensor:
    """The value of `input`, through which no gradient flows.

    Args:
        input: a tensor of any dtype and shape.
        name: of the operation.

    Returns:
        A tensor of the same dtype, shape and value.

    Raises:
        TypeError: `input` cannot be converted to a tensor.

    Example:
        >>> x = tf.constant(3.0)
        >>> sess.run(tf.gradients(x * tf.stop_gradient(x), x))
        [np.float32(3.0)]
    """
    result: Tensor = raw.StopGradient(input, name=name)
    return result


def guarantee_const(input: TensorLike, name: str | None = None) -> Tensor:
    """The value of `input`, with the caller's promise that it never changes."""
    result: Tensor = raw.GuaranteeConst(input, name=name)
    return result


def ensure_shape(x: TensorLike, shape: ShapeLike, name: str | None = None) -> Tensor:
    """The value of `x`; the step fails if its shape is not compatible with `shape`."""
    result: Tensor = raw.EnsureShape(x, shape=TensorShape(shape), name=name)
    return result


# ---------------------------------------------------------------------- shapes
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


# ---------------------------------------------------------------------- joining and splitting
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

    Example:
        >>> sess.run(tf.stack([[1, 4], [2, 5]], axis=1))
        array([[1, 2],
               [4, 5]], dtype=int32)
    """
    if axis == 0:
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


# ---------------------------------------------------------------------- transposing, tiling, padding
def transpose(
    a: TensorLike, perm: TensorLike | None = None, name: str = "transpose", conjugate: bool = False
) -> Tensor:
    """Permutes the dimensions: dimension i of the result is dimension `perm[i]` of `a`; by default reversed.

    Args:
        a: a tensor of any dtype and shape.
        perm: a permutation of the dimensions, an integer vector; default: the last dimension first.
        name: of the operation.
        conjugate: whether to conjugate complex elements as well.

    Returns:
        A tensor of the dtype of `a`, of shape ``[a.shape[p] for p in perm]``.

    Raises:
        ValueError: `perm` is known to be no permutation of the dimensions.

    Example:
        >>> sess.run(tf.transpose([[1, 2, 3], [4, 5, 6]]))
        array([[1, 4],
               [2, 5],
               [3, 6]], dtype=int32)
    """
    with name_scope(name, "transpose", [a] if isinstance(a, Tensor) else None) as scope:
        tensor = convert_to_tensor(a, name="a")
        op = raw.ConjugateTranspose if conjugate and tensor.dtype.is_complex else raw.Transpose
        if perm is None:
            known = tensor.shape.ndims
            perm = np.arange(known - 1, -1, -1, dtype=np.int32) if known is not None else _reversed_axes(tensor)
        result: Tensor = op(tensor, perm, name=scope)
        return result


def _reversed_axes(tensor: Tensor) -> Tensor:
    count = raw.Rank(tensor)
    result: Tensor = raw.Range(raw.Sub(count, 1), -1, -1)
    return result


def matrix_transpose(a: TensorLike, name: str = "matrix_transpose", conjugate: bool = False) -> Tensor:
    """Swaps the last two dimensions.

    Raises:
        ValueError: the rank is known and smaller than 2.
    """
    with name_scope(name, values=[a] if isinstance(a, Tensor) else None):
        tensor = convert_to_tensor(a, name="a")
        known = tensor.shape.ndims
        if known is not None and known < 2:
            raise ValueError(f"Argument 'a' should be a (batch) matrix, with rank >= 2. Found: {tensor.shape}")
        if known is not None:
            perm: Any = np.array([*range(known - 2), known - 1, known - 2], np.int32)
        else:
            count = raw.Rank(tensor)
            last = raw.Pack([raw.Sub(count, 1), raw.Sub(count, 2)])
            perm = raw.ConcatV2([raw.Range(0, raw.Sub(count, 2), 1), last], 0)
        return transpose(tensor, perm, conjugate=conjugate)


def tile(input: TensorLike, multiples: TensorLike, name: str | None = None) -> Tensor:
    """Repeats a tensor `multiples[i]` times along dimension i.

    Args:
        input: a tensor of any dtype and shape.
        multiples: an integer vector with one number per dimension.
        name: of the operation.

    Returns:
        A tensor of shape ``input.shape * multiples``.

    Raises:
        ValueError: the lengths of `multiples` and of the shape are known to differ.

    Example:
        >>> sess.run(tf.tile([1, 2], [2]))
        array([1, 2, 1, 2], dtype=int32)
    """
    result: Tensor = raw.Tile(input, multiples, name=name)
    return result


def pad(
    tensor: TensorLike,
    paddings: TensorLike,
    mode: str = "CONSTANT",
    name: str | None = None,
    constant_values: TensorLike = 0,
) -> Tensor:
    """Pads a tensor.

    Args:
        tensor: a tensor of any dtype and shape.
        paddings: [rank, 2]: how much goes before and after each dimension.
        mode: "CONSTANT"; "REFLECT" mirrors without the edge, "SYMMETRIC" with it.
        name: of the operation.
        constant_values: the scalar to pad with.

    Returns:
        A tensor of the dtype of `tensor`, larger by the paddings in each dimension.

    Raises:
        ValueError: unknown mode, or paddings that do not fit.

    Example:
        >>> sess.run(tf.pad([1, 2], [[1, 2]]))
        array([0, 1, 2, 0, 0], dtype=int32)
        >>> sess.run(tf.pad([1, 2, 3], [[2, 0]], mode="REFLECT"))
        array([3, 2, 1, 2, 3], dtype=int32)
    """
    kind = mode.upper()
    result: Tensor
    if kind in {"REFLECT", "SYMMETRIC"}:
        result = raw.MirrorPad(tensor, paddings, mode=kind, name=name)
    elif kind != "CONSTANT":
        raise ValueError(f"Unknown padding mode: {mode}")
    elif isinstance(constant_values, Tensor) or np.any(constant_values != 0):
        result = raw.PadV2(tensor, paddings, constant_values, name=name)
    else:
        result = raw.Pad(tensor, paddings, name=name)
    return result


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
