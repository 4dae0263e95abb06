"""`tf.contrib.image`: colours are turned and scaled as the signals of television, Y of brightness, I, Q of colour."""

from __future__ import annotations

from typing import Final

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import TensorLike

#: from red, green, blue to Y, I, Q and back, with the digits that TensorFlow computes with
_TO_YIQ: Final = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]], np.float32)
_FROM_YIQ: Final = np.array(
    [[1, 0.95617069, 0.62143257], [1, -0.2726886, -0.64681324], [1, -1.103744, 1.70062309]], np.float32
)


def adjust_hsv_in_yiq(
    image: TensorLike,
    delta_hue: TensorLike = 0,
    scale_saturation: TensorLike = 1,
    scale_value: TensorLike = 1,
    name: str | None = None,
) -> tf.Tensor:
    """Turns the colours of pictures, and scales colour and brightness.

    Args:
        image: [..., height, width, 3], red, green and blue; integers stand for fractions of the largest.
        delta_hue: by how much colours are turned, in radians.
        scale_saturation: what the two signals of colour are multiplied by.
        scale_value: what all three are multiplied by.
        name: of the operations.

    Returns:
        The same dtype and shape as `image`.

    Raises:
        ValueError: `image` has less than three dimensions.
        InvalidArgumentError: the last one is not 3.

    Example:
        >>> sess.run(tf.contrib.image.adjust_hsv_in_yiq([[[1.0, 0.0, 0.0]]], scale_saturation=0.0)).round(2)
        array([[[0.3, 0.3, 0.3]]], dtype=float32)
    """
    with tf.name_scope(name, "adjust_hsv_in_yiq", [image]):
        image = tf.convert_to_tensor(image, name="image")
        if image.shape.ndims is not None and image.shape.ndims < 3:
            raise ValueError(f"Shape must be at least rank 3 but is rank {image.shape.ndims}: {image.shape}")
        channels = image.shape[-1].value
        if channels not in (3, None):
            message = f"input must have 3 channels but instead has {channels} channels."
            raise tf.errors.InvalidArgumentError(None, None, message)
        hue, saturation, value = (
            tf.cast(tf.convert_to_tensor(number), tf.float32) for number in (delta_hue, scale_saturation, scale_value)
        )
        cosine, sine, zero = tf.cos(hue) * saturation, tf.sin(hue) * saturation, tf.zeros([])
        turned = tf.stack([[tf.ones([]), zero, zero], [zero, cosine, -sine], [zero, sine, cosine]]) * value
        matrix = tf.matmul(_FROM_YIQ, tf.matmul(turned, _TO_YIQ))
        pixels = tf.image.convert_image_dtype(image, tf.float32)
        result = tf.tensordot(pixels, matrix, [[-1], [1]])
        result.set_shape(image.shape)
        return tf.image.convert_image_dtype(result, image.dtype)


def random_hsv_in_yiq(
    image: TensorLike,
    max_delta_hue: float = 0,
    lower_saturation: float = 1,
    upper_saturation: float = 1,
    lower_value: float = 1,
    upper_value: float = 1,
    seed: int | None = None,
) -> tf.Tensor:
    """`adjust_hsv_in_yiq` with numbers drawn in each step.

    Args:
        image: [..., height, width, 3].
        max_delta_hue: colours are turned by at most so much to either side, in radians.
        lower_saturation, upper_saturation, lower_value, upper_value: between what the factors are drawn.
        seed: see `tf.set_random_seed`.

    Raises:
        ValueError: a bound is negative, or a lower one above the upper one.
    """
    for name, low in (
        ("max_delta", max_delta_hue),
        ("lower_saturation", lower_saturation),
        ("lower_value", lower_value),
    ):
        if low < 0:
            raise ValueError(f"{name} must be non-negative.")
    if lower_saturation > upper_saturation:
        raise ValueError("lower_saturation must be < upper_saturation.")
    if lower_value > upper_value:
        raise ValueError("lower_value must be < upper_value.")
    return adjust_hsv_in_yiq(
        image,
        _between(-max_delta_hue, max_delta_hue, seed),
        _between(lower_saturation, upper_saturation, seed),
        _between(lower_value, upper_value, seed),
    )


def _between(low: float, high: float, seed: int | None) -> TensorLike:
    return low if low == high else tf.random_uniform([], low, high, seed=seed)
