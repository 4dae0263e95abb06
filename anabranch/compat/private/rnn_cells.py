"""Private functions of `tensorflow.python.ops.rnn_cell_impl` that libraries call."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.core.dtypes import DTypeLike
from anabranch.core.nest import Structure
from anabranch.core.shapes import ShapeLike
from anabranch.core.values import TensorLike


def _zero_state_tensors(state_size: Structure, batch_size: TensorLike, dtype: DTypeLike) -> Any:
    """Zeros in the shapes of a cell's state: (batch, size), or (batch, ...) where a size is a shape."""

    def zeros(size: ShapeLike) -> tf.Tensor:
        lengths = tf.TensorShape(size).as_list()
        made = tf.zeros(tf.stack([batch_size, *lengths]), dtype)
        made.set_shape([tf.get_static_value(batch_size), *lengths])
        return made

    if isinstance(state_size, tf.TensorShape) or not tf.nest.is_nested(state_size):
        return zeros(state_size)
    return tf.nest.map_structure(zeros, state_size)


def _concat(prefix: TensorLike, suffix: TensorLike, static: bool = False) -> Any:
    """The shape that begins with one part and goes on with another: a batch's size, say, and that of a state.

    Args:
        prefix, suffix: sizes: numbers, shapes or tensors.
        static: whether the result is a list with None for what is not known, instead of a tensor; None where not even
            the number of dimensions is known.

    Raises:
        ValueError: a tensor is neither a scalar nor a vector; or a size is not known and the result is to be a tensor.
    """
    parts = [_sizes(part, name) for part, name in ((prefix, "prefix"), (suffix, "suffix"))]
    if static:
        shape = parts[0][0].concatenate(parts[1][0])
        return None if shape.ndims is None else shape.as_list()
    if any(tensor is None for _, tensor in parts):
        raise ValueError(f"Provided a prefix or suffix of None: {prefix} and {suffix}")
    return tf.concat([tensor for _, tensor in parts], 0)


def _sizes(part: TensorLike, name: str) -> tuple[tf.TensorShape, tf.Tensor | None]:
    """What is known of some sizes, and a vector of them."""
    if isinstance(part, tf.Tensor):
        known = tf.get_static_value(part)
        if part.shape.ndims not in (0, 1):
            raise ValueError(f"{name} tensor must be either a scalar or vector, but saw tensor: {part}")
        shape = tf.TensorShape(None if known is None else known.reshape(-1).tolist())
        return shape, tf.expand_dims(part, 0) if part.shape.ndims == 0 else part
    shape = tf.TensorShape([part] if part is not None and not isinstance(part, tf.TensorShape | list | tuple) else part)
    return shape, tf.constant(shape.as_list(), tf.int32) if shape.is_fully_defined() else None


def assert_like_rnncell(cell_name: str, cell: object) -> None:
    """Checks that something can be used as a cell of a recurrent network.

    Raises:
        TypeError: it lacks something; the message says what.
    """
    missing = [f"'{name}' property is missing" for name in ("output_size", "state_size") if not hasattr(cell, name)]
    if not (hasattr(cell, "zero_state") or hasattr(cell, "get_initial_state")):
        missing.append("either 'zero_state' or 'get_initial_state' method is required")
    if not callable(cell):
        missing.append("is not callable")
    if missing:
        raise TypeError(f"The argument {cell_name!r} ({cell}) is not an RNNCell: {', '.join(missing)}.")
