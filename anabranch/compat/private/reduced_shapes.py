"""What libraries ask of `tensorflow.python.ops.math_ops`: the shape of a reduction that keeps its axes."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.core.values import TensorLike


def reduced_shape(input_shape: TensorLike, axes: TensorLike) -> tf.Tensor:
    """A shape, int32 [rank], with ones along axes.

    Args:
        input_shape: integers [rank].
        axes: an axis or several, which may be negative.
    """
    shape: Any = tf.cast(input_shape, tf.int32)
    reduced: Any = tf.cast(axes, tf.int32)
    rank = tf.size(shape)
    reduced = (reduced + rank) % rank
    result: tf.Tensor = tf.dynamic_stitch([tf.range(rank), reduced], [shape, tf.ones_like(reduced)])
    return result
