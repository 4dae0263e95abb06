"""How images differ, and how rough they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.frontend.control_flow.checks import assert_greater_equal
from anabranch.frontend.framework import control_dependencies, name_scope
from anabranch.frontend.images.adjust import convert_image_dtype
from anabranch.frontend.images.geometry import as_batch, from_batch
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def psnr(a: TensorLike, b: TensorLike, max_val: TensorLike, name: str | None = None) -> Tensor:
    """The peak signal-to-noise ratio of images, 20 log10(max_val / sqrt(mean squared difference)), float32.

    Args:
        a, b: [..., height, width, channels], any dtype.
        max_val: the range of the pixels (1.0, 255, ...).

    Returns:
        One number per image, shape [...].
    """
    with name_scope(name, "PSNR", [a, b]):
        a, b = (convert_to_tensor(t) for t in (a, b))
        top = convert_image_dtype(raw.Cast(convert_to_tensor(max_val), DstT=a.dtype), dtypes.float32)
        x, y = (convert_image_dtype(t, dtypes.float32) for t in (a, b))
        error = raw.Mean(raw.SquaredDifference(x, y), np.array([-3, -2, -1], np.int32))
        decibel = np.float32(10 / np.log(10))
        result: Tensor = raw.Mul(raw.Sub(raw.Mul(np.float32(2), raw.Log(top)), raw.Log(error)), decibel, name="psnr")
        return result


def ssim(
    img1: TensorLike,
    img2: TensorLike,
    max_val: TensorLike,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
) -> Tensor:
    """The structural similarity of images (Wang et al., 2004): the mean over positions of a Gaussian window, float32.

    Args:
        img1, img2: [..., height, width, channels], any dtype, at least filter_size pixels wide and high.
        max_val: the range of the pixels.

    Returns:
        One number per image, shape [...].
    """
    with name_scope(None, "SSIM", [img1, img2]):
        first = convert_to_tensor(img1, name="img1")
        top = convert_image_dtype(raw.Cast(convert_to_tensor(max_val), DstT=first.dtype), dtypes.float32)
        x = convert_image_dtype(first, dtypes.float32)
        y = convert_image_dtype(convert_to_tensor(img2, name="img2"), dtypes.float32)
        per_channel, _ = _similarity(x, y, top, _gaussian(filter_size, filter_sigma), k1, k2)
        result: Tensor = raw.Mean(per_channel, np.array([-1], np.int32))
        return result


def _gaussian(size: int, sigma: float) -> Any:
    at = np.arange(size) - (size - 1) / 2
    line = np.exp(-0.5 * (at / sigma) ** 2)
    window = np.outer(line, line)
    return (window / window.sum()).astype(np.float32)[:, :, None, None]


def _similarity(x: Tensor, y: Tensor, top: Tensor, window: TensorLike, k1: float, k2: float) -> list[Tensor]:
    """Of each channel of each image, [..., channels]: the similarity, and its part of contrast and structure."""
    shape = raw.Shape(x)
    size = raw.Slice(shape, raw.Pack([raw.Sub(raw.Rank(x), np.int32(3))]), np.array([3], np.int32))
    batched = raw.ConcatV2([np.array([-1], np.int32), size], np.int32(0))
    channels = x.shape[-1].value
    if channels is None:
        raise ValueError("ssim needs a known number of channels; use set_shape")
    filters = np.tile(window, (1, 1, channels, 1))

    def blurred(t: Tensor) -> Tensor:
        flat = raw.Reshape(t, batched)
        result: Tensor = raw.DepthwiseConv2dNative(flat, filters, strides=[1, 1, 1, 1], padding="VALID")
        return result

    low, high = (raw.Square(raw.Mul(top, np.float32(k))) for k in (k1, k2))
    mean_x, mean_y = blurred(x), blurred(y)
    both = raw.Mul(raw.Mul(mean_x, mean_y), np.float32(2))
    squares = raw.Add(raw.Square(mean_x), raw.Square(mean_y))
    luminance = raw.RealDiv(raw.Add(both, low), raw.Add(squares, low))
    crossed = raw.Sub(raw.Mul(blurred(raw.Mul(x, y)), np.float32(2)), both)
    spread = raw.Sub(blurred(raw.Add(raw.Square(x), raw.Square(y))), squares)
    structure = raw.RealDiv(raw.Add(crossed, high), raw.Add(spread, high))
    outer = raw.Slice(shape, np.array([0], np.int32), raw.Pack([raw.Sub(raw.Rank(x), np.int32(3))]))
    per_channel = raw.ConcatV2([outer, np.array([channels], np.int32)], np.int32(0))
    means = (raw.Mean(part, np.array([1, 2], np.int32)) for part in (raw.Mul(luminance, structure), structure))
    return [raw.Reshape(mean, per_channel) for mean in means]


def ssim_multiscale(
    img1: TensorLike,
    img2: TensorLike,
    max_val: TensorLike,
    power_factors: Sequence[float] = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333),
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
) -> Tensor:
    """The structural similarity of images at several scales, each half of the one before (Wang et al., 2003), float32.

    Args:
        img1, img2: [..., height, width, channels], any dtype. At the last scale they must still be as wide and as high
            as the filter; the number of channels must be known.
        max_val: the range of the pixels.
        power_factors: the weights of the scales, the finest first.
        filter_size, filter_sigma, k1, k2: as of `ssim`.

    Returns:
        One number per image, shape [...].

    Raises:
        ValueError: the number of channels is not known, or there is no scale.
        InvalidArgumentError: the images are smaller than the filter at a scale.
    """
    if not len(power_factors):
        raise ValueError("ssim_multiscale needs at least one power factor; each stands for a scale")
    with name_scope(None, "MS-SSIM", [img1, img2]):
        first = convert_to_tensor(img1, name="img1")
        top = convert_image_dtype(raw.Cast(convert_to_tensor(max_val), DstT=first.dtype), dtypes.float32)
        pair = [convert_image_dtype(t, dtypes.float32) for t in (first, convert_to_tensor(img2, name="img2"))]
        window = _gaussian(filter_size, filter_sigma)
        parts: list[Any] = []
        for scale in range(len(power_factors)):
            if scale:
                pair = [_half_as_large(image) for image in pair]
            checks = [_at_least(image, filter_size) for image in pair]
            with control_dependencies(checks):
                whole, structure = _similarity(raw.Identity(pair[0]), pair[1], top, window, k1, k2)
            parts.append(raw.Relu(structure if scale < len(power_factors) - 1 else whole))
        powers = raw.Pow(raw.Pack(parts, axis=-1), np.array(power_factors, np.float32))
        result: Tensor = raw.Mean(raw.Prod(powers, np.array([-1], np.int32)), np.array([-1], np.int32))
        return result


def _height_and_width(image: Tensor) -> Any:
    return raw.Slice(raw.Shape(image), raw.Pack([raw.Sub(raw.Rank(image), np.int32(3))]), np.array([2], np.int32))


def _at_least(image: Tensor, size: int) -> Any:
    return assert_greater_equal(_height_and_width(image), np.int32(size), message="image smaller than the filter: ")


def _half_as_large(image: Tensor) -> Tensor:
    """Means of two by two pixels; of an odd number, the last counts twice."""
    channels = image.shape[-1].value
    shape, sizes = raw.Shape(image), _height_and_width(image)
    before = raw.Slice(shape, np.array([0], np.int32), raw.Pack([raw.Sub(raw.Rank(image), np.int32(3))]))
    last = np.array([-1 if channels is None else channels], np.int32)
    flat = raw.Reshape(image, raw.ConcatV2([np.array([-1], np.int32), sizes, last], np.int32(0)))
    odd = raw.Pad(raw.ExpandDims(raw.FloorMod(sizes, np.int32(2)), np.int32(1)), np.array([[1, 1], [1, 0]], np.int32))
    even = raw.MirrorPad(flat, odd, mode="SYMMETRIC")
    half = raw.AvgPool(even, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
    inner = raw.Slice(raw.Shape(half), np.array([1], np.int32), np.array([2], np.int32))
    result: Tensor = raw.Reshape(half, raw.ConcatV2([before, inner, last], np.int32(0)))
    if image.shape.ndims is not None:
        result.set_shape([*image.shape.as_list()[:-3], None, None, channels])
    return result


def total_variation(images: TensorLike, name: str | None = None) -> Tensor:
    """The sum of the absolute differences of neighbouring pixels: a scalar, or one number per image of a batch."""
    with name_scope(name, "total_variation", [images]):
        images = convert_to_tensor(images, name="images")
        _, single = as_batch(images)
        axes = np.arange(3, dtype=np.int32) + (0 if single else 1)
        down, right = (_difference(images, int(axes[i])) for i in (0, 1))
        result: Tensor = raw.Add(*(raw.Sum(raw.Abs(d), axes) for d in (down, right)))
        return result


def _difference(images: Tensor, axis: int) -> Tensor:
    """x[i + 1] - x[i] along an axis, which becomes shorter by one."""
    rank = images.shape.ndims or 0
    begin = np.array([1 if a == axis else 0 for a in range(rank)], np.int32)
    size = raw.Sub(raw.Shape(images), begin)
    result: Tensor = raw.Sub(raw.Slice(images, begin, size), raw.Slice(images, np.zeros(rank, np.int32), size))
    return result


def image_gradients(image: TensorLike) -> tuple[Tensor, Tensor]:
    """Differences to the pixel below and to the right, of the images' shape; zero in the last row or column.

    Raises:
        ValueError: not a batch of images.
    """
    image = convert_to_tensor(image)
    if image.shape.ndims != 4:
        raise ValueError(f"image_gradients expects a 4D tensor [batch_size, h, w, d], not {image.shape}.")
    grads = []
    for axis in (1, 2):
        after = np.zeros((4, 2), np.int32)
        after[axis, 1] = 1
        grad = raw.Pad(_difference(image, axis), after)
        grad.set_shape(image.shape)
        grads.append(grad)
    return grads[0], grads[1]


def sobel_edges(image: TensorLike) -> Tensor:
    """Sobel's estimates of the vertical and the horizontal slope, [batch, height, width, channels, 2]; float32."""
    image = convert_to_tensor(image)
    batch, single = as_batch(image)
    channels = batch.shape[3].value
    if channels is None:
        raise ValueError("sobel_edges needs a known number of channels; use set_shape")
    slope = np.array([[-1, -2, -1], [0, 0, 0], [1, 2, 1]], np.float32)
    filters = np.tile(np.stack([slope, slope.T], axis=-1)[:, :, None, :], (1, 1, channels, 1))
    mirrored = raw.MirrorPad(batch, np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32), mode="REFLECT")
    edges = raw.DepthwiseConv2dNative(mirrored, filters, strides=[1, 1, 1, 1], padding="VALID")
    shape = raw.ConcatV2([raw.Shape(batch), np.array([2], np.int32)], np.int32(0))
    return from_batch(raw.Reshape(edges, shape), single)
