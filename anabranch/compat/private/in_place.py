"""What libraries ask of `tensorflow.python.ops.inplace_ops`: rows of a tensor that are replaced, added to, taken from.

The result is a tensor of its own, whatever the names say; memory is shared where XLA finds that it can be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.core.values import TensorLike


def _changed(operation: Callable[..., Any], x: TensorLike, i: TensorLike | None, v: TensorLike) -> tf.Tensor:
    """Applies an operation to the rows `i` of `x`: all of it (None), one row (a scalar), or several."""
    x = tf.convert_to_tensor(x)
    v = tf.convert_to_tensor(v, x.dtype)
    result: tf.Tensor
    if i is None:
        result = operation(x=tf.reshape(x, [1, -1]), i=[0], v=tf.reshape(v, [1, -1]))
        return tf.reshape(result, tf.shape(x))
    rows = tf.cast(i, tf.int32)
    if rows.shape.ndims == 0:
        rows, v = tf.reshape(rows, [1]), tf.expand_dims(v, 0)
    result = operation(x=x, i=rows, v=v)
    return result


def inplace_update(x: TensorLike, i: TensorLike | None, v: TensorLike) -> tf.Tensor:
    """`x` with `v` in the rows `i`.

    Args:
        i: None (`v` has the shape of `x`), one row's number (`v` has a dimension less than `x`), or a vector of them.
    """
    return _changed(tf.raw_ops.InplaceUpdate, x, i, v)


def inplace_add(x: TensorLike, i: TensorLike | None, v: TensorLike) -> tf.Tensor:
    """`x` with `v` added to the rows `i`; see `inplace_update`."""
    return _changed(tf.raw_ops.InplaceAdd, x, i, v)


def inplace_sub(x: TensorLike, i: TensorLike | None, v: TensorLike) -> tf.Tensor:
    """`x` with `v` subtracted from the rows `i`; see `inplace_update`."""
    return _changed(tf.raw_ops.InplaceSub, x, i, v)


alias_inplace_update = inplace_update
alias_inplace_add = inplace_add
alias_inplace_sub = inplace_sub


def empty_like(x: TensorLike, init: bool | None = None) -> tf.Tensor:
    """A tensor of the shape and dtype of `x`; zeros, whatever `init` asks for."""
    x = tf.convert_to_tensor(x)
    result: tf.Tensor = tf.raw_ops.Empty(shape=tf.shape(x), dtype=x.dtype, init=True)
    return result
