"""Images of whatever format: PNG, JPEG, GIF or BMP; animations; parts of JPEG images (WP4.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.io import bmp, png
from anabranch.ops import shape_rules
from anabranch.ops.images.codecs import JpegReading, check_size, decoded, opened, origin
from anabranch.ops.images.image import png_pixels

_JPEG, _GIFS = b"\xff\xd8\xff", (b"GIF87a", b"GIF89a")


def _format(data: bytes, ctx: OperationContext) -> str:
    """
    Raises:
        InvalidArgumentError: the data are of no format that is read.
    """
    for start, name in ((png.SIGNATURE, "PNG"), (_JPEG, "JPEG"), (bmp.SIGNATURE, "BMP"), *((g, "GIF") for g in _GIFS)):
        if data.startswith(start):
            return name
    what = f"begin with {data[:4]!r}" if data else "are empty"
    message = f"{len(data)} bytes{origin(ctx)} are no image: they {what}; PNG, JPEG, GIF and BMP are read"
    raise InvalidArgumentError(None, ctx.op, message)


def _bmp(data: bytes, channels: int, ctx: OperationContext) -> Any:
    try:
        return bmp.decode_bmp(data, channels)
    except ValueError as error:
        message = f"{len(data)} bytes{origin(ctx)} do not decode as an image: {error}"
        raise InvalidArgumentError(None, ctx.op, message) from error


def _frames(data: bytes, ctx: OperationContext, most: int | None = None) -> Any:
    """The pictures of an animation, uint8 [frames, height, width, 3]."""
    with opened(data, ctx) as image:
        count = getattr(image, "n_frames", 1)  # as many as the file has, whatever it says
        count = count if most is None else min(count, most)
        check_size(count, image.height, image.width, 3)
        frames = np.empty((count, image.height, image.width, 3), np.uint8)
        for i in range(count):
            image.seek(i)
            frames[i] = np.asarray(image.convert("RGB"))
        return frames


def _still(data: bytes, channels: int, dtype: DType, ctx: OperationContext, reading: JpegReading | None = None) -> Any:
    """The pixels of one picture: decode_png and decode_jpeg take PNG, JPEG and GIF alike."""
    kind = _format(data, ctx)
    if kind == "BMP":
        raise InvalidArgumentError(None, ctx.op, f"the image{origin(ctx)} is a BMP; use decode_bmp or decode_image")
    if kind == "PNG":
        return _png(data, channels, dtype, ctx)
    _check_channels(kind, channels, ctx)
    if kind == "JPEG":
        return _converted(decoded(data, channels, ctx, reading or JpegReading()), dtype)
    frames = _frames(data, ctx, 2)
    if len(frames) > 1:
        message = f"the GIF image{origin(ctx)} has several frames; use decode_gif or decode_image"
        raise InvalidArgumentError(None, ctx.op, message)
    return _converted(frames[0], dtype)


def _check_channels(kind: str, channels: int, ctx: OperationContext) -> None:
    if channels == 4 or (kind == "GIF" and channels == 1):
        raise InvalidArgumentError(None, ctx.op, f"a {kind} image{origin(ctx)} cannot be read with {channels} channels")


# ---------------------------------------------------------------------- any format
DecodeImage = define_op(
    "DecodeImage",
    "contents: string -> image: dtype",
    "channels: int = 0, dtype: {uint8, uint16, float} = uint8, expand_animations: bool = True",
)
DecodeImage.not_differentiable()


@DecodeImage.shape
def _(contents: TensorShape, *, channels: int, expand_animations: bool) -> TensorShape:
    shape_rules.with_rank(contents, 0, "argument 'contents'")
    return TensorShape(None) if expand_animations else TensorShape([None, None, channels or None])


@DecodeImage.host_kernel
def _(contents: Array, *, channels: int, dtype: DType, expand_animations: bool, ctx: OperationContext) -> Any:
    data: bytes = contents.item()
    if channels not in (0, 1, 3, 4):
        raise InvalidArgumentError(None, ctx.op, f"channels must be 0, 1, 3 or 4, got {channels}")
    kind = _format(data, ctx)
    if kind == "PNG":
        return _png(data, channels, dtype, ctx)
    if kind == "BMP":
        return _converted(_bmp(data, channels, ctx), dtype)
    _check_channels(kind, channels, ctx)
    if kind == "JPEG":
        return _converted(decoded(data, channels, ctx), dtype)
    return _converted(_frames(data, ctx) if expand_animations else _frames(data, ctx, 1)[0], dtype)


def _png(data: bytes, channels: int, dtype: DType, ctx: OperationContext) -> Any:
    if dtype is not dtypes.float32:
        return png_pixels(data, channels, dtype, ctx)
    return png_pixels(data, channels, dtypes.uint16, ctx).astype(np.float32) / np.float32(65535)


def _converted(pixels: Array, dtype: DType) -> Any:
    """Eight bits as `tf.image.convert_image_dtype` converts them."""
    if dtype is dtypes.uint8:
        return pixels
    if dtype is dtypes.uint16:
        return pixels.astype(np.uint16) * np.uint16(256)
    return pixels.astype(np.float32) * np.float32(1 / 255)


# ---------------------------------------------------------------------- one picture
def _picture_shape(contents: TensorShape, *, channels: int) -> TensorShape:
    shape_rules.with_rank(contents, 0, "argument 'contents'")
    return TensorShape([None, None, channels or None])


DecodePng = define_op(
    "DecodePng", "contents: string -> image: dtype", "channels: int = 0, dtype: {uint8, uint16} = uint8"
)
DecodePng.shape(_picture_shape)
DecodePng.not_differentiable()


@DecodePng.host_kernel
def _(contents: Array, *, channels: int, dtype: DType, ctx: OperationContext) -> Any:
    return _still(contents.item(), channels, dtype, ctx)


DecodeJpeg = define_op(
    "DecodeJpeg",
    "contents: string -> image: uint8",
    "channels: int = 0, ratio: int = 1, fancy_upscaling: bool = True, try_recover_truncated: bool = False, "
    "acceptable_fraction: float = 1.0, dct_method: string = ''",
)
DecodeJpeg.shape(_picture_shape)
DecodeJpeg.not_differentiable()


@DecodeJpeg.host_kernel
def _(
    contents: Array,
    *,
    channels: int,
    ratio: int,
    fancy_upscaling: bool,
    try_recover_truncated: bool,
    dct_method: bytes,
    ctx: OperationContext,
) -> Any:
    reading = JpegReading(ratio, fancy_upscaling, try_recover_truncated, dct_method.decode())
    return _still(contents.item(), channels, dtypes.uint8, ctx, reading)


# ---------------------------------------------------------------------- one format
DecodeGif = define_op("DecodeGif", "contents: string -> image: uint8")
DecodeGif.not_differentiable()


@DecodeGif.shape
def _(contents: TensorShape) -> TensorShape:
    shape_rules.with_rank(contents, 0, "argument 'contents'")
    return TensorShape([None, None, None, 3])


@DecodeGif.host_kernel
def _(contents: Array, *, ctx: OperationContext) -> Any:
    data: bytes = contents.item()
    if _format(data, ctx) == "GIF":
        return _frames(data, ctx)
    return _still(data, 3, dtypes.uint8, ctx)[np.newaxis]


DecodeBmp = define_op("DecodeBmp", "contents: string -> image: uint8", "channels: int = 0")
DecodeBmp.not_differentiable()


DecodeBmp.shape(_picture_shape)


@DecodeBmp.host_kernel
def _(contents: Array, *, channels: int, ctx: OperationContext) -> Any:
    return _bmp(contents.item(), channels, ctx)


# ---------------------------------------------------------------------- parts of JPEG images
DecodeAndCropJpeg = define_op(
    "DecodeAndCropJpeg",
    "contents: string, crop_window: int32 -> image: uint8",
    "channels: int = 0, ratio: int = 1, fancy_upscaling: bool = True, try_recover_truncated: bool = False, "
    "acceptable_fraction: float = 1.0, dct_method: string = ''",
)
DecodeAndCropJpeg.not_differentiable()


@DecodeAndCropJpeg.shape
def _(contents: TensorShape, crop_window: TensorShape, *, channels: int, ctx: ShapeContext) -> TensorShape:
    shape_rules.with_rank(contents, 0, "argument 'contents'")
    shape_rules.merged(shape_rules.with_rank(crop_window, 1, "argument 'crop_window'"), TensorShape([4]))
    window = ctx.constant("crop_window")
    # one that holds nothing is refused with what is decoded
    sizes = [None, None] if window is None else [int(n) if n > 0 else None for n in window[2:]]
    return TensorShape([*sizes, channels or None])


@DecodeAndCropJpeg.host_kernel
def _(
    contents: Array,
    crop_window: Array,
    *,
    channels: int,
    ratio: int,
    fancy_upscaling: bool,
    try_recover_truncated: bool,
    dct_method: bytes,
    ctx: OperationContext,
) -> Any:
    data: bytes = contents.item()
    _check_jpeg(data, ctx)
    reading = JpegReading(ratio, fancy_upscaling, try_recover_truncated, dct_method.decode())
    pixels = decoded(data, channels, ctx, reading)
    y, x, height, width = (int(v) for v in crop_window)
    if min(y, x) < 0 or min(height, width) < 1 or y + height > pixels.shape[0] or x + width > pixels.shape[1]:
        message = (
            f"the crop window {[y, x, height, width]} lies not in the image{origin(ctx)} of {pixels.shape[:2]} pixels"
        )
        raise InvalidArgumentError(None, ctx.op, message)
    return np.ascontiguousarray(pixels[y : y + height, x : x + width])


def _check_jpeg(data: bytes, ctx: OperationContext) -> None:
    if not data.startswith(_JPEG):
        message = f"{len(data)} bytes{origin(ctx)} are not a JPEG image: they begin with {data[:4]!r}"
        raise InvalidArgumentError(None, ctx.op, message)


ExtractJpegShape = define_op(
    "ExtractJpegShape", "contents: string -> image_shape: output_type", "output_type: {int32, int64} = int32"
)
ExtractJpegShape.not_differentiable()


@ExtractJpegShape.shape
def _(contents: TensorShape) -> TensorShape:
    shape_rules.with_rank(contents, 0, "argument 'contents'")
    return TensorShape([3])


@ExtractJpegShape.host_kernel
def _(contents: Array, *, output_type: DType, ctx: OperationContext) -> Any:
    data: bytes = contents.item()
    _check_jpeg(data, ctx)
    with opened(data, ctx) as image:  # which reads the header, and no pixels
        return np.array([image.height, image.width, len(image.getbands())], output_type.as_numpy_dtype)
