"""`tf.contrib.resampler.resampler`: values of a picture between its pixels."""

from __future__ import annotations

import anabranch as tf
from anabranch.contrib.arguments import TensorLike


def resampler(data: TensorLike, warp: TensorLike, name: str = "resampler") -> tf.Tensor:
    """The values of pictures at places between their pixels, from the four around each.

    Args:
        data: floats, [batch, height, width, channels].
        warp: floats, [batch, ..., 2]: the place in x (columns) and y (rows); outside of the picture all is 0.
        name: of the operations.

    Returns:
        [batch, ..., channels].

    Example:
        >>> picture = [[[[0.0], [1.0]], [[2.0], [3.0]]]]
        >>> sess.run(tf.contrib.resampler.resampler(picture, [[[0.5, 0.5]]])).tolist()
        [[[1.5]]]
    """
    with tf.name_scope(name, "resampler", [data, warp]):
        data, warp = tf.convert_to_tensor(data), tf.convert_to_tensor(warp)
        size = tf.shape(data)
        x, y = tf.unstack(warp, 2, axis=-1)
        left, top = tf.floor(x), tf.floor(y)
        total: tf.Tensor | None = None
        for column, across in ((left, 1 - (x - left)), (left + 1, x - left)):
            for row, down in ((top, 1 - (y - top)), (top + 1, y - top)):
                values = _pixels(data, size, tf.cast(column, tf.int32), tf.cast(row, tf.int32))
                part = tf.expand_dims(across * down, -1) * values
                total = part if total is None else total + part
        assert total is not None
        if data.shape.ndims is not None and warp.shape.ndims is not None:
            total.set_shape(warp.shape[:-1].concatenate(data.shape[-1:]))
        return total


def _pixels(data: tf.Tensor, size: tf.Tensor, column: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
    """The pixels at places, and zeros where there are none."""
    is_inside = (column >= 0) & (row >= 0) & (column < size[2]) & (row < size[1])
    nearest_row = tf.clip_by_value(row, 0, size[1] - 1)
    nearest_column = tf.clip_by_value(column, 0, size[2] - 1)
    batch = tf.range(size[0])
    for _ in range((column.shape.ndims or 1) - 1):
        batch = tf.expand_dims(batch, -1)
    places = tf.stack([batch + tf.zeros_like(row), nearest_row, nearest_column], -1)
    values: tf.Tensor = tf.gather_nd(data, places) * tf.expand_dims(tf.cast(is_inside, data.dtype), -1)
    return values
