"""A private function of `tensorflow.python.ops.rnn_cell_impl` that libraries call."""

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
