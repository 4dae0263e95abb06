"""What libraries ask of `tensorflow.python.framework.constant_op` beside `constant`."""

from __future__ import annotations

import anabranch as tf
from anabranch.core.dtypes import DTypeLike


def _tensor_shape_tensor_conversion_function(
    s: tf.TensorShape, dtype: DTypeLike | None = None, name: str | None = None, as_ref: bool = False
) -> tf.Tensor:
    """A shape whose lengths are all known, as a vector.

    Args:
        dtype: int32 or int64; None: int64 where a length is too large for int32, otherwise int32.
        as_ref: not used: a constant is no variable.

    Raises:
        ValueError: a length is not known.
        TypeError: another dtype.
    """
    if not s.is_fully_defined():
        raise ValueError(f"Cannot convert a partially known TensorShape to a Tensor: {s}")
    lengths = [length for length in s.as_list() if length is not None]
    kind = tf.as_dtype(dtype or (tf.int64 if max(lengths, default=0) > tf.int32.max else tf.int32))
    if kind not in (tf.int32, tf.int64):
        raise TypeError(f"Cannot convert a TensorShape to dtype: {kind.name}")
    return tf.constant(lengths, dtype=kind, name=name or "shape_as_tensor")
