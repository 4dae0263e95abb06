"""What optimizers do with rows of variables: the cost is that of the rows, whatever the size of the variable."""

from __future__ import annotations

import anabranch as tf
from anabranch.contrib.arguments import TensorLike


def like(value: TensorLike, var: tf.Variable) -> tf.Tensor:
    """A number that an optimizer computes with, in the dtype of the variable that it is used for."""
    tensor: tf.Tensor = tf.cast(value, var.dtype.base_dtype)
    return tensor


def set_rows(var: tf.Variable, indices: tf.Tensor, rows: tf.Tensor) -> tf.Operation:
    """Replaces the rows at `indices`."""
    operation: tf.Operation = tf.raw_ops.ResourceScatterUpdate(resource=var.handle, indices=indices, updates=rows)
    return operation


def add_to_rows(var: tf.Variable, indices: tf.Tensor, rows: tf.Tensor) -> tf.Operation:
    """Adds to the rows at `indices`."""
    operation: tf.Operation = tf.raw_ops.ResourceScatterAdd(resource=var.handle, indices=indices, updates=rows)
    return operation


def as_whole(rows: tf.Tensor, indices: tf.Tensor, var: tf.Variable) -> tf.Tensor:
    """The dense gradient of a variable that has these rows and is zero elsewhere."""
    return tf.math.unsorted_segment_sum(rows, indices, tf.shape(var)[0])
