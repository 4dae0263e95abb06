"""Image files for users: tf.image.decode_image, decode_jpeg, decode_gif, decode_bmp, encode_jpeg."""

from __future__ import annotations

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import TensorLike
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

_CHANNELS = (None, 0, 1, 3, 4)
_IMAGE_TYPES = (dtypes.uint8, dtypes.uint16, dtypes.float32)


def decode_image(
    contents: TensorLike,
    channels: int | None = None,
    dtype: DTypeLike = dtypes.uint8,
    name: str | None = None,
    expand_animations: bool = True,
) -> Tensor:
    """An image file in the format PNG, JPEG, GIF or BMP.

    Args:
        contents: string scalar.
        channels: 1, 3, 4, or 0 or None for what the image has. GIF images have 3; BMP images cannot be read with 1,
            JPEG images not with 4.
        dtype: uint8, uint16, or float32 for values in [0, 1].
        expand_animations: whether GIF images are [frames, height, width, 3]; otherwise their first picture is taken.

    Returns:
        [height, width, channels], of an unknown static shape where there may be frames.

    Raises:
        ValueError: `channels` or `dtype` is none of these.
        InvalidArgumentError (in the step): the data do not decode; the message names the file where a `tf.read_file`
            of a constant name gave them.
        UnimplementedError (in the step): Pillow is not installed, for JPEG and GIF.
    """
    if channels not in _CHANNELS:
        raise ValueError("channels must be in (None, 0, 1, 3, 4)")
    if dtypes.as_dtype(dtype) not in _IMAGE_TYPES:
        raise ValueError(f"dtype must be uint8, uint16 or float32, got {dtypes.as_dtype(dtype).name}")
    result: Tensor = raw.DecodeImage(
        contents, channels=channels or 0, dtype=dtype, expand_animations=expand_animations, name=name or "decode_image"
    )
    return result


def decode_gif(contents: TensorLike, name: str | None = None) -> Tensor:
    """The pictures of a GIF file as uint8 [frames, height, width, 3]; a PNG or JPEG file is one frame.

    Raises:
        InvalidArgumentError (in the step): the data do not decode.
    """
    result: Tensor = raw.DecodeGif(contents, name=name)
    return result


def decode_bmp(contents: TensorLike, channels: int = 0, name: str | None = None) -> Tensor:
    """An uncompressed BMP file as uint8 [height, width, channels].

    Args:
        channels: 3, 4, or 0 for what the image has: 1 at 8 bits per pixel, 3 at 24, 4 at 32.

    Raises:
        InvalidArgumentError (in the step): the data do not decode.
    """
    result: Tensor = raw.DecodeBmp(contents, channels=channels, name=name)
    return result


def decode_and_crop_jpeg(
    contents: TensorLike,
    crop_window: TensorLike,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> Tensor:
    """A part of a JPEG image: `crop_window` is [y, x, height, width] in pixels, int32; else as `decode_jpeg`.

    Raises:
        InvalidArgumentError (in the step): the data do not decode, or the window lies not in the image.
    """
    result: Tensor = raw.DecodeAndCropJpeg(
        contents,
        crop_window,
        channels=channels,
        ratio=ratio,
        fancy_upscaling=fancy_upscaling,
        try_recover_truncated=try_recover_truncated,
        acceptable_fraction=acceptable_fraction,
        dct_method=dct_method,
        name=name,
    )
    return result


def extract_jpeg_shape(contents: TensorLike, output_type: DTypeLike = dtypes.int32, name: str | None = None) -> Tensor:
    """[height, width, channels] of a JPEG file, from its header."""
    result: Tensor = raw.ExtractJpegShape(contents, output_type=output_type, name=name)
    return result


def is_jpeg(contents: TensorLike, name: str | None = None) -> Tensor:
    """Whether a file's contents begin as a JPEG file does; bool, of the shape of `contents`."""
    result: Tensor = raw.Equal(raw.Substr(contents, 0, 3), b"\xff\xd8\xff", name=name or "is_jpeg")
    return result


def decode_jpeg(
    contents: TensorLike,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> Tensor:
    """A JPEG (or other) image as uint8 [height, width, channels].

    Args:
        contents: string scalar.
        channels: 1, 3, 4, or 0 for what the image has.
        ratio: 1, 2, 4 or 8: a smaller image, decoded faster.
        fancy_upscaling: whether the colours of pixels are interpolated.
        try_recover_truncated: whether a file that ends early gives the part that is there.
        acceptable_fraction: how large that part must be.
        dct_method: accepted: the decoder chooses.
        name: of the operation.

    Returns:
        uint8 [height, width, channels].

    Raises:
        InvalidArgumentError (in the step): the data do not decode.
        UnimplementedError (in the step): Pillow is not installed.

    Example:
        >>> file = tf.image.encode_jpeg(np.full([8, 8, 3], 200, np.uint8))
        >>> sess.run(tf.shape(tf.image.decode_jpeg(file)))
        array([8, 8, 3], dtype=int32)
    """
    result: Tensor = raw.DecodeJpeg(
        contents,
        channels=channels,
        ratio=ratio,
        fancy_upscaling=fancy_upscaling,
        try_recover_truncated=try_recover_truncated,
        acceptable_fraction=acceptable_fraction,
        dct_method=dct_method,
        name=name,
    )
    return result


def encode_jpeg(
    image: TensorLike,
    format: str = "",
    quality: int = 95,
    progressive: bool = False,
    optimize_size: bool = False,
    chroma_downsampling: bool = True,
    density_unit: str = "in",
    x_density: int = 300,
    y_density: int = 300,
    xmp_metadata: str = "",
    name: str | None = None,
) -> Tensor:
    """A uint8 image [height, width, 1 or 3] as a JPEG file, a string scalar."""
    result: Tensor = raw.EncodeJpeg(
        image,
        format=format,
        quality=quality,
        progressive=progressive,
        optimize_size=optimize_size,
        chroma_downsampling=chroma_downsampling,
        density_unit=density_unit,
        x_density=x_density,
        y_density=y_density,
        xmp_metadata=xmp_metadata,
        name=name,
    )
    return result
