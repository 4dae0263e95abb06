"""What `tensorflow.python.ops.random_ops` has beside public names."""

from __future__ import annotations

import anabranch as tf
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import TensorLike
from anabranch.frontend.framework import get_seed


def parameterized_truncated_normal(
    shape: TensorLike,
    means: TensorLike = 0.0,
    stddevs: TensorLike = 1.0,
    minvals: TensorLike = -2.0,
    maxvals: TensorLike = 2.0,
    dtype: DTypeLike = tf.float32,
    seed: int | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """Numbers of normal distributions that are cut off at given bounds.

    Args:
        shape: an integer vector, of which the first element counts the distributions where there are several.
        means, stddevs: of the distributions before they are cut off: scalars, or one for each distribution.
        minvals, maxvals: the bounds.
        dtype, seed, name: as of `tf.truncated_normal`.
    """
    with tf.name_scope(name, "parameterized_truncated_normal", [shape, means, stddevs, minvals, maxvals]):
        numbers = [tf.convert_to_tensor(one, dtype) for one in (means, stddevs, minvals, maxvals)]
        graph_seed, op_seed = get_seed(seed)
        result: tf.Tensor = tf.raw_ops.ParameterizedTruncatedNormal(
            shape=tf.convert_to_tensor(shape, tf.int32 if not isinstance(shape, tf.Tensor) else None),
            means=numbers[0],
            stdevs=numbers[1],
            minvals=numbers[2],
            maxvals=numbers[3],
            seed=graph_seed or 0,
            seed2=op_seed or 0,
        )
        return result
