"""`tf.contrib.framework`: checks of shapes, sums of several tensors, Python functions with structures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike


def assert_scalar_int(tensor: TensorLike, name: str | None = None) -> tf.Tensor:
    """The tensor, which must be one integer.

    Raises:
        ValueError: it is of another dtype, or no scalar.
    """
    given = tf.convert_to_tensor(tensor)
    if not given.dtype.is_integer:
        raise ValueError(f"Expected integer type for {given.name}, received type: {given.dtype.name}.")
    result: tf.Tensor = tf.assert_scalar(given, name=name)
    return result


def reduce_sum_n(tensors: Sequence[tf.Tensor], name: str | None = None) -> tf.Tensor:
    """The sum of all elements of tensors of one dtype.

    Raises:
        ValueError: there is none.

    Example:
        >>> sess.run(tf.contrib.framework.reduce_sum_n([tf.constant([1, 2]), tf.constant([[3]])]))
        np.int32(6)
    """
    if not tensors:
        raise ValueError("No tensors provided.")
    with tf.name_scope(name, "reduce_sum_n", tensors) as scope:
        sums = [tf.reduce_sum(tensor, name=f"{tensor.op.name}/sum") for tensor in tensors]
        return sums[0] if len(sums) == 1 else tf.add_n(sums, name=scope)


def remove_squeezable_dimensions(
    predictions: TensorLike, labels: TensorLike, name: str | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The one of two tensors that has a dimension more, which is 1 and the last, without it.

    Args:
        predictions, labels: tensors.
        name: of the operations.

    Returns:
        (predictions, labels), of one rank where they could be made so.
    """
    with tf.name_scope(name, "remove_squeezable_dimensions", [predictions, labels]):
        first, second = tf.convert_to_tensor(predictions), tf.convert_to_tensor(labels)
        ranks = first.shape.ndims, second.shape.ndims
        if ranks[0] is not None and ranks[1] is not None:
            return _squeezed(first, ranks[0] - ranks[1] == 1), _squeezed(second, ranks[1] - ranks[0] == 1)
        more = tf.rank(first) - tf.rank(second)
        return _squeezed(first, tf.equal(more, 1)), _squeezed(second, tf.equal(more, -1))


def _squeezed(tensor: tf.Tensor, has_more: tf.Tensor | bool) -> tf.Tensor:
    """Without its last dimension, where it has one more than the other, and that can be 1."""
    if tensor.shape.ndims is not None and not tensor.shape[-1:].is_compatible_with([1]):
        return tensor
    if isinstance(has_more, bool):
        return tf.squeeze(tensor, [-1]) if has_more else tensor
    result: tf.Tensor = tf.cond(has_more, lambda: tf.squeeze(tensor, [-1]), lambda: tensor)
    return result


def with_shape(expected_shape: PassedOn, tensor: PassedOn) -> tf.Tensor:
    """The tensor, which must have a shape: checked while the graph is built where that is known, else in the step.

    Args:
        expected_shape: a list of ints, an int32 array or an int32 tensor. A tensor of one element may be a scalar.
        tensor: what is checked.

    Raises:
        ValueError: the shape is another one, or is no vector of int32, or the tensor is sparse.
        InvalidArgumentError: (in the step) the shape is another one.
    """
    if isinstance(tensor, tf.SparseTensor):
        raise ValueError("SparseTensor not supported.")
    known = tensor.shape
    if isinstance(expected_shape, tf.Tensor):
        if expected_shape.dtype != tf.int32:
            raise ValueError(f"Invalid dtype {expected_shape.dtype} for the shape expected of tensor {tensor.name}.")
        return _checked(tensor, expected_shape)
    wanted = (
        expected_shape if isinstance(expected_shape, tf.TensorShape) else _static_shape(expected_shape, tensor.name)
    )
    if wanted.ndims == 0 and known.ndims != 0 and known.is_compatible_with([1] * (known.ndims or 0)):
        return tf.reshape(tensor, [])
    if not known.is_fully_defined() and wanted.is_fully_defined():
        checked = _checked(tensor, tf.constant(wanted.as_list(), tf.int32))
        checked.set_shape(wanted)
        return checked
    if not known.is_compatible_with(wanted):
        raise ValueError(f"Invalid shape for tensor {tensor.name}, expected {wanted}, got {known}.")
    result: tf.Tensor = tensor
    return result


def _static_shape(shape: PassedOn, name: str) -> tf.TensorShape:
    array = np.asarray(shape)
    if array.ndim > 1:
        raise ValueError(f"Invalid rank {array.ndim} for shape {shape} expected of tensor {name}.")
    if array.size and array.dtype != np.int32 and not (isinstance(shape, list | tuple) and array.dtype == np.int64):
        raise ValueError(f"Invalid dtype {array.dtype} for shape {shape} expected of tensor {name}.")
    return tf.TensorShape([int(size) for size in array])


def _checked(tensor: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    with tf.name_scope(f"{tensor.op.name}/"):
        found = tf.shape(tensor, name="actual_shape")
        is_right = tf.cond(
            tf.equal(tf.size(found), tf.size(shape)), lambda: tf.reduce_all(tf.equal(found, shape)), lambda: False
        )
        words = [f"Wrong shape for {tensor.name} [expected] [actual].", shape, found]
        with tf.control_dependencies([tf.Assert(is_right, words)]):
            return tf.identity(tensor)


def with_same_shape(expected_tensor: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    """The tensor, which must have the shape of another; see `with_shape`."""
    known = expected_tensor.shape
    return with_shape(known.as_list() if known.is_fully_defined() else tf.shape(expected_tensor), tensor)


def zero_initializer(ref: tf.Variable, use_locking: bool = True, name: str = "zero_initializer") -> PassedOn:
    """Sets a variable to zeros, without a tensor of zeros as an initial value.

    Args:
        ref: the variable, of a known shape.
        use_locking: accepted; updates are in sequence.
        name: of the operation.

    Returns:
        The variable afterwards.
    """
    del use_locking
    return tf.assign(ref, tf.zeros(ref.shape, ref.dtype.base_dtype), name=name)


def get_placeholders(graph: tf.Graph) -> list[tf.Tensor]:
    """The placeholders of a graph.

    Raises:
        TypeError: it is no graph.
    """
    if not isinstance(graph, tf.Graph):
        raise TypeError(f"Input graph needs to be a Graph: {graph!r}")
    return [op.outputs[0] for op in graph.get_operations() if op.type == "Placeholder"]


def py_func(
    func: Callable[..., Any],
    args: Sequence[PassedOn] = (),
    kwargs: Mapping[str, PassedOn] | None = None,
    output_types: PassedOn = None,
    output_shapes: PassedOn = None,
    stateful: bool = True,
    name: str | None = None,
) -> PassedOn:
    """`tf.py_func` with structures of arguments and results.

    Args:
        func: takes arrays in the structures of `args` and `kwargs`; returns them in that of `output_types`.
        args, kwargs: structures of tensors.
        output_types: a structure of dtypes, or a function that gives it for the tensors.
        output_shapes: that of their shapes, or such a function; None: not known.
        stateful: whether the function may give other results for the same arguments.
        name: of the operation.

    Raises:
        TypeError: `args` is no list, or `kwargs` no dictionary.
    """
    named = {} if kwargs is None else kwargs
    if not isinstance(args, list | tuple):
        raise TypeError(f"args must be list and not {type(args)}. args: {args}")
    if not isinstance(named, dict):
        raise TypeError(f"kwargs must be dict and not {type(kwargs)}. args: {kwargs}")
    asks = callable(output_types) and not isinstance(output_types, tf.DType | type)
    kinds = output_types(*args, **named) if asks else output_types
    shapes = output_shapes(*args, **named) if callable(output_shapes) else output_shapes
    given = (tuple(args), named)

    def flat(*values: PassedOn) -> list[Any]:
        positional, keyword = tf.nest.pack_sequence_as(given, values)
        return tf.nest.flatten(func(*positional, **keyword))

    found = tf.py_func(flat, tf.nest.flatten(given), tf.nest.flatten(kinds), stateful=stateful, name=name)
    results = found if isinstance(found, list) else [found]
    if shapes is not None:
        listed = [shapes] if not tf.nest.is_nested(kinds) else tf.contrib.framework.nest.flatten_up_to(kinds, shapes)
        for result, shape in zip(results, listed, strict=True):
            result.set_shape(tf.TensorShape(shape))
    return tf.nest.pack_sequence_as(kinds, results)
