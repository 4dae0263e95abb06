"""Colours and brightness of images: conversions, adjustments, random distortions."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DType, DTypeLike, as_dtype
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.random import random_uniform
from anabranch.frontend.framework import name_scope
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: how much each colour contributes to luminance (Rec. 601)
_LUMA = np.array([0.2989, 0.5870, 0.1140], np.float32)
_TO_YIQ = np.array(
    [[0.299, 0.59590059, 0.2115], [0.587, -0.27455667, -0.52273617], [0.114, -0.32134392, 0.31119955]], np.float32
)
_FROM_YIQ = np.array(
    [[1, 1, 1], [0.95598634, -0.27201283, -1.10674021], [0.6208248, -0.64720424, 1.70423049]], np.float32
)
_TO_YUV = np.array(
    [[0.299, -0.14714119, 0.61497538], [0.587, -0.28886916, -0.51496512], [0.114, 0.43601035, -0.10001026]], np.float32
)
_FROM_YUV = np.array([[1, 1, 1], [0, -0.394642334, 2.03206185], [1.13988303, -0.58062185, 0]], np.float32)


# ---------------------------------------------------------------------- dtypes
def convert_image_dtype(image: TensorLike, dtype: DTypeLike, saturate: bool = False, name: str | None = None) -> Tensor:
    """The image with another dtype and scale: floating point images lie in [0, 1], integers fill their range.

    Args:
        image: a tensor of any shape and real dtype.
        dtype: of the result.
        saturate: clip what does not fit (only matters for values outside [0, 1] or of a larger integer type).
        name: of the operation.

    Returns:
        A tensor of the shape of `image`.

    Raises:
        TypeError: a dtype is not real.

    Example:
        >>> sess.run(tf.image.convert_image_dtype(np.array([0, 51, 255], np.uint8), tf.float32))
        array([0.        , 0.20000002, 1.        ], dtype=float32)
    """
    image = convert_to_tensor(image, name="image")
    wanted = as_dtype(dtype)
    if wanted is image.dtype:
        same: Tensor = raw.Identity(image, name=name)
        return same
    with name_scope(name, "convert_image", [image]) as scope:
        if image.dtype.is_integer and wanted.is_integer:
            return _between_integers(image, wanted, saturate, scope)
        if image.dtype.is_floating and wanted.is_floating:
            return _cast(image, wanted, scope)
        if image.dtype.is_integer:
            scaled: Tensor = raw.Mul(_cast(image, wanted), _like(1.0 / image.dtype.max, wanted), name=scope)
            return scaled
        # Slightly more than the largest number, so that all intervals that are cut to an integer are equally wide.
        factor = _like(float(wanted.max) + 0.5, image.dtype)
        return _narrowed(raw.Mul(image, factor), wanted, saturate, scope)


def _between_integers(image: Tensor, wanted: DType, saturate: bool, scope: str) -> Tensor:
    have, want = int(image.dtype.max), int(wanted.max)
    if have > want:
        smaller = raw.FloorDiv(image, _like((have + 1) // (want + 1), image.dtype))
        return _narrowed(smaller, wanted, saturate, scope)
    larger: Tensor = raw.Mul(
        _narrowed(image, wanted, saturate, None), _like((want + 1) // (have + 1), wanted), name=scope
    )
    return larger


def _like(value: TensorLike, dtype: DType) -> Any:
    return np.asarray(value, dtype.as_numpy_dtype)


def _cast(x: Tensor, dtype: DType, name: str | None = None) -> Tensor:
    result: Tensor = raw.Cast(x, DstT=dtype, name=name)
    return result


def _narrowed(x: Tensor, dtype: DType, saturate: bool, name: str | None) -> Tensor:
    if saturate:
        if x.dtype.min < dtype.min:
            x = raw.Maximum(x, _like(dtype.min, x.dtype))
        if x.dtype.max > dtype.max:
            x = raw.Minimum(x, _like(dtype.max, x.dtype))
    return _cast(x, dtype, name)


def _in_float(image: Tensor) -> tuple[Tensor, DType]:
    """The image in floating point, and the dtype that it came in."""
    if image.dtype in (dtypes.float16, dtypes.float32):
        return image, image.dtype
    return convert_image_dtype(image, dtypes.float32), image.dtype


# ---------------------------------------------------------------------- adjustments
def adjust_brightness(image: TensorLike, delta: TensorLike) -> Tensor:
    """Adds `delta`, given on the scale [0, 1] of floating point images; any dtype."""
    with name_scope(None, "adjust_brightness", [image, delta]) as scope:
        image = convert_to_tensor(image, name="image")
        x, dtype = _in_float(image)
        moved = raw.Add(x, _cast(convert_to_tensor(delta), x.dtype))
        return convert_image_dtype(moved, dtype, saturate=True, name=scope)


def adjust_contrast(images: TensorLike, contrast_factor: TensorLike) -> Tensor:
    """Scales each channel's distance from its mean over the image; any dtype.

    Args:
        contrast_factor: a scalar float.
    """
    with name_scope(None, "adjust_contrast", [images, contrast_factor]) as scope:
        images = convert_to_tensor(images, name="images")
        x, dtype = _in_float(images)
        return convert_image_dtype(raw.AdjustContrastv2(x, contrast_factor), dtype, saturate=True, name=scope)


def adjust_gamma(image: TensorLike, gamma: TensorLike = 1, gain: TensorLike = 1) -> Tensor:
    """Gamma correction, gain * image ** gamma, on the scale [0, 1]; any dtype.

    Raises:
        ValueError: a negative gamma.
    """
    with name_scope(None, "adjust_gamma", [image, gamma, gain]) as scope:
        image = convert_to_tensor(image, name="image")
        x, dtype = _in_float(image)
        if not isinstance(gamma, Tensor) and gamma < 0:
            raise ValueError("Gamma should be a non-negative real number.")
        power = raw.Pow(x, _cast(convert_to_tensor(gamma), x.dtype))
        scaled = raw.Mul(power, _cast(convert_to_tensor(gain), x.dtype))
        return convert_image_dtype(scaled, dtype, saturate=True, name=scope)


def adjust_hue(image: TensorLike, delta: TensorLike, name: str | None = None) -> Tensor:
    """Turns the hue of RGB images by `delta`, a scalar in [-1, 1], where 1 is a full turn; any dtype."""
    return _adjust_colour("AdjustHue", "adjust_hue", image, delta, name)


def adjust_saturation(image: TensorLike, saturation_factor: TensorLike, name: str | None = None) -> Tensor:
    """Multiplies the saturation of RGB images by a scalar, and clips it to [0, 1]; any dtype."""
    return _adjust_colour("AdjustSaturation", "adjust_saturation", image, saturation_factor, name)


def _adjust_colour(op_type: str, scope_name: str, image: TensorLike, amount: TensorLike, name: str | None) -> Tensor:
    with name_scope(name, scope_name, [image]):
        image = convert_to_tensor(image, name="image")
        x, dtype = _in_float(image)
        return convert_image_dtype(getattr(raw, op_type)(x, amount), dtype)


def per_image_standardization(image: TensorLike) -> Tensor:
    """Each image with mean 0 and variance 1, float32: (x - mean) / max(deviation, 1 / sqrt(number of elements)).

    Args:
        image: [height, width, channels], or a batch of them; real numbers.

    Returns:
        float32, of the shape of `image`.

    Raises:
        ValueError: `image` has less than three dimensions.

    Example:
        >>> sess.run(tf.image.per_image_standardization([[[1.0], [3.0]]]))[:, :, 0]
        array([[-1.,  1.]], dtype=float32)
    """
    with name_scope(None, "per_image_standardization", [image]) as scope:
        image = convert_to_tensor(image, name="image")
        axes = np.array([-1, -2, -3], np.int32)
        x = image if image.dtype in (dtypes.float16, dtypes.float32) else _cast(image, dtypes.float32)
        chosen = raw.GatherV2(raw.Shape(x), raw.Add(raw.Rank(x), axes), np.int32(0))
        count = _cast(raw.Prod(chosen, np.array([0], np.int32)), x.dtype)
        mean = raw.Mean(x, axes, keep_dims=True)
        variance = raw.Mean(raw.SquaredDifference(x, mean), axes, keep_dims=True)
        deviation = raw.Maximum(raw.Sqrt(variance), raw.Rsqrt(count))
        result: Tensor = raw.RealDiv(raw.Sub(x, mean), deviation, name=scope)
        return result


# ---------------------------------------------------------------------- random distortions
def random_brightness(image: TensorLike, max_delta: float, seed: int | None = None) -> Tensor:
    """`adjust_brightness` by a random amount in [-max_delta, max_delta).

    Args:
        image: images of any shape, of any real dtype.
        max_delta: the greatest change, not negative; of images of integers as a part of their range.
        seed: of the random amount.

    Returns:
        A tensor of the shape and dtype of `image`.

    Raises:
        ValueError: a negative bound.

    Example:
        >>> image = sess.run(tf.image.random_brightness(tf.zeros([2, 2, 3]), max_delta=0.3))
        >>> bool((abs(image) <= 0.3).all())
        True
    """
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return adjust_brightness(image, random_uniform([], -max_delta, max_delta, seed=seed))


def random_contrast(image: TensorLike, lower: float, upper: float, seed: int | None = None) -> Tensor:
    """`adjust_contrast` by a random factor in [lower, upper).

    Args:
        image: [..., height, width, channels], any real dtype.
        lower, upper: bounds of the factor, with 0 <= lower < upper.
        seed: of the random factor.

    Returns:
        A tensor of the shape and dtype of `image`.

    Raises:
        ValueError: the bounds are negative or not in order.

    Example:
        >>> sess.run(tf.image.random_contrast(tf.ones([2, 2, 1]), 0.5, 1.5))[:, :, 0]
        array([[1., 1.],
               [1., 1.]], dtype=float32)
    """
    _check_range(lower, upper)
    return adjust_contrast(image, random_uniform([], lower, upper, seed=seed))


def random_saturation(image: TensorLike, lower: float, upper: float, seed: int | None = None) -> Tensor:
    """`adjust_saturation` by a random factor in [lower, upper).

    Args:
        image: RGB images, [..., 3].
        lower, upper: bounds of the factor, with 0 <= lower < upper.
        seed: of the random factor.

    Returns:
        A tensor of the shape and dtype of `image`.

    Raises:
        ValueError: the bounds are negative or not in order.

    Example:
        >>> grey = tf.fill([1, 1, 3], 0.5)
        >>> sess.run(tf.image.random_saturation(grey, 0.5, 1.5))
        array([[[0.5, 0.5, 0.5]]], dtype=float32)
    """
    _check_range(lower, upper)
    return adjust_saturation(image, random_uniform([], lower, upper, seed=seed))


def random_hue(image: TensorLike, max_delta: float, seed: int | None = None) -> Tensor:
    """`adjust_hue` by a random amount in [-max_delta, max_delta), at most half a turn.

    Args:
        image: RGB images, [..., 3].
        max_delta: the greatest change of the hue, in [0, 0.5]; 1 is a whole turn.
        seed: of the random amount.

    Returns:
        A tensor of the shape and dtype of `image`.

    Raises:
        ValueError: a bound outside [0, 0.5].

    Example:
        >>> grey = tf.fill([1, 1, 3], 0.5)
        >>> sess.run(tf.image.random_hue(grey, 0.2))
        array([[[0.5, 0.5, 0.5]]], dtype=float32)
    """
    if max_delta > 0.5:
        raise ValueError("max_delta must be <= 0.5.")
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return adjust_hue(image, random_uniform([], -max_delta, max_delta, seed=seed))


def _check_range(lower: float, upper: float) -> None:
    if upper <= lower:
        raise ValueError("upper must be > lower.")
    if lower < 0:
        raise ValueError("lower must be non-negative.")


# ---------------------------------------------------------------------- colour spaces
def rgb_to_grayscale(images: TensorLike, name: str | None = None) -> Tensor:
    """The luminance as a single channel; any dtype."""
    with name_scope(name, "rgb_to_grayscale", [images]) as scope:
        images = convert_to_tensor(images, name="images")
        x = convert_image_dtype(images, dtypes.float32)
        grey = raw.Sum(raw.Mul(x, _LUMA), np.array([-1], np.int32), keep_dims=True)
        return convert_image_dtype(grey, images.dtype, name=scope)


def grayscale_to_rgb(images: TensorLike, name: str | None = None) -> Tensor:
    """The single channel three times.

    Raises:
        ValueError: there are several channels.
    """
    with name_scope(name, "grayscale_to_rgb", [images]) as scope:
        images = convert_to_tensor(images, name="images")
        rank = images.shape.with_rank_at_least(1).ndims
        if rank is None:
            raise ValueError("A grayscale image must be at least two-dimensional; its rank is not known.")
        images.shape[-1:].assert_is_compatible_with([1])
        result: Tensor = raw.Tile(images, np.array([1] * (rank - 1) + [3], np.int32), name=scope)
        return result


def rgb_to_hsv(images: TensorLike, name: str | None = None) -> Tensor:
    """Hue, saturation and value of RGB images, all in [0, 1]; floating point."""
    result: Tensor = raw.RGBToHSV(images, name=name)
    return result


def hsv_to_rgb(images: TensorLike, name: str | None = None) -> Tensor:
    """RGB images from hue, saturation and value."""
    result: Tensor = raw.HSVToRGB(images, name=name)
    return result


def _mixed(images: TensorLike, matrix: TensorLike) -> Tensor:
    images = convert_to_tensor(images, name="images")
    return_shape = raw.Shape(images)
    flat = raw.Reshape(images, np.array([-1, 3], np.int32))
    result: Tensor = raw.Reshape(raw.MatMul(flat, matrix.astype(images.dtype.as_numpy_dtype)), return_shape)
    result.set_shape(images.shape)
    return result


def rgb_to_yiq(images: TensorLike) -> Tensor:
    """NTSC luminance and chrominance of RGB images in floating point."""
    return _mixed(images, _TO_YIQ)


def yiq_to_rgb(images: TensorLike) -> Tensor:
    """Undoes `rgb_to_yiq`."""
    return _mixed(images, _FROM_YIQ)


def rgb_to_yuv(images: TensorLike) -> Tensor:
    """PAL luminance and chrominance of RGB images in floating point."""
    return _mixed(images, _TO_YUV)


def yuv_to_rgb(images: TensorLike) -> Tensor:
    """Undoes `rgb_to_yuv`."""
    return _mixed(images, _FROM_YUV)
