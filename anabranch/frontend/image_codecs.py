"""JPEG images for users: tf.image.decode_jpeg, tf.image.encode_jpeg."""

from __future__ import annotations

from typing import Any

from anabranch.ops import raw

__all__ = ["decode_jpeg", "encode_jpeg"]


def decode_jpeg(
    contents: Any,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> Any:
    """A JPEG (or other) image as uint8 [height, width, channels].

    Args:
        contents: string scalar.
        channels: 1, 3, 4, or 0 for what the image has.
        ratio: 1, 2, 4 or 8: a smaller image, decoded faster.

    Raises:
        InvalidArgumentError (in the step): the data do not decode.
        UnimplementedError (in the step): Pillow is not installed.
    """
    return raw.DecodeJpeg(
        contents,
        channels=channels,
        ratio=ratio,
        fancy_upscaling=fancy_upscaling,
        try_recover_truncated=try_recover_truncated,
        acceptable_fraction=acceptable_fraction,
        dct_method=dct_method,
        name=name,
    )


def encode_jpeg(
    image: Any,
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
) -> Any:
    """A uint8 image [height, width, 1 or 3] as a JPEG file, a string scalar."""
    return raw.EncodeJpeg(
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
