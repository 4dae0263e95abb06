"""JPEG images: decoding and encoding through Pillow (the extra `image`). PNG needs no library: see `ops.image`."""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np

from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError, UnimplementedError
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def _pillow(ctx: Any) -> Any:
    """Pillow's Image module; an optional dependency, hence looked for when an image is met."""
    try:
        return importlib.import_module("PIL.Image")
    except ImportError:
        raise UnimplementedError(
            None, ctx.op, f"{ctx.op.type} needs Pillow, which is not installed: pip install 'anabranch[image]'"
        ) from None


def _image_shape(contents: TensorShape, *, channels: int) -> TensorShape:
    shape_rules.with_rank(contents, 0, "argument 'contents'")
    return TensorShape([None, None, channels or None])


def _decoded(contents: Any, channels: int, ratio: int, ctx: Any) -> Any:
    if channels not in (0, *_MODES):
        raise InvalidArgumentError(None, ctx.op, f"channels must be 0, 1, 3 or 4, got {channels}")
    module = _pillow(ctx)
    data: bytes = contents.item()
    try:
        with module.open(io.BytesIO(data)) as image:
            if ratio > 1:
                image.draft(None, (image.width // ratio, image.height // ratio))
            mode = _MODES.get(channels) or (image.mode if image.mode in _MODES.values() else "RGB")
            pixels = np.asarray(image.convert(mode))
    except (OSError, ValueError, SyntaxError) as error:
        raise InvalidArgumentError(
            None, ctx.op, f"{len(data)} bytes do not decode as an image: {error}; they are damaged or of another format"
        ) from error
    return pixels if pixels.ndim == 3 else pixels[..., np.newaxis]


DecodeJpeg = define_op(
    "DecodeJpeg",
    "contents: string -> image: uint8",
    "channels: int = 0, ratio: int = 1, fancy_upscaling: bool = True, try_recover_truncated: bool = False, "
    "acceptable_fraction: float = 1.0, dct_method: string = ''",
)
DecodeJpeg.shape(_image_shape)
DecodeJpeg.not_differentiable()


@DecodeJpeg.host_kernel
def _(contents: Any, *, channels: int, ratio: int, ctx: Any) -> Any:
    return _decoded(contents, channels, ratio, ctx)


EncodeJpeg = define_op(
    "EncodeJpeg",
    "image: uint8 -> contents: string",
    "format: {'', 'grayscale', 'rgb'} = '', quality: int = 95, progressive: bool = False, optimize_size: bool = False, "
    "chroma_downsampling: bool = True, density_unit: {'in', 'cm'} = 'in', x_density: int = 300, y_density: int = 300, "
    "xmp_metadata: string = ''",
)
EncodeJpeg.not_differentiable()


@EncodeJpeg.shape
def _(image: TensorShape) -> TensorShape:
    shape_rules.with_rank(image, 3, "argument 'image'")
    return shape_rules.SCALAR


@EncodeJpeg.host_kernel
def _(
    image: Any, *, quality: int, progressive: bool, optimize_size: bool, chroma_downsampling: bool, ctx: Any
) -> bytes:
    if image.shape[-1] not in (1, 3):
        raise InvalidArgumentError(None, ctx.op, f"a JPEG image has 1 or 3 channels, got shape {image.shape}")
    picture = _pillow(ctx).fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    out = io.BytesIO()
    picture.save(
        out,
        "JPEG",
        quality=quality,
        progressive=progressive,
        optimize=optimize_size,
        subsampling=2 if chroma_downsampling else 0,
    )
    return out.getvalue()
