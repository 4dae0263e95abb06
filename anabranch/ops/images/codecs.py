"""JPEG images, through simplejpeg and Pillow (the extra `image`), and PNG images of the most common kinds.

PNG needs no library (see `ops.images.image`), but Pillow decodes it faster, and imagecodecs (the extra `png`) twice as
fast again.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import math
import struct
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError, UnimplementedError
from anabranch.graph.building import define_op
from anabranch.graph.constants import constant_value
from anabranch.io.png import MAX_SAMPLES
from anabranch.ops import shape_rules

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def pillow(ctx: OperationContext) -> Any:
    """Pillow's Image module; an optional dependency, hence looked for when an image is met."""
    module = _find_pillow()
    if module is None:
        raise UnimplementedError(
            None, ctx.op, f"{ctx.op.type} needs Pillow, which is not installed: pip install 'anabranch[image]'"
        )
    return module


@functools.cache
def _find_pillow() -> Any:
    """Pillow's Image module, or None.

    It warns of images that are large, or have odd metadata. That is silenced here, once: a filter per image would
    change the list of filters under the feet of the other threads that decode.
    """
    try:
        module = importlib.import_module("PIL.Image")
    except ImportError:
        return None
    warnings.filterwarnings("ignore", module=r"PIL\.")
    return module


@functools.cache
def _find_simplejpeg() -> Any:
    """The module simplejpeg, or None."""
    try:
        return importlib.import_module("simplejpeg")
    except ImportError:
        return None


@functools.cache
def _find_libpng() -> Any:
    """The function of imagecodecs that decodes PNG images by libpng, or None."""
    try:
        module = importlib.import_module("imagecodecs")
    except ImportError:
        return None
    return module.png_decode if module.PNG.available else None


#: PNG's number of a kind of pixels -> how many channels it has
_PLAIN_PNG = {0: 1, 2: 3, 6: 4}
#: a byte of a PNG's compressed data stands for at most so many bytes of pixels
_DEFLATED = 1032


def plain_png_pixels(data: bytes, channels: int) -> Any:
    """The pixels of a PNG image of the most common kinds, which libraries decode many times as fast as `io.png`.

    Those are 8-bit grey and colour images that need no conversion but to leave out or repeat channels.

    Returns:
        uint8 [height, width, channels]; None for other images, damaged ones, and where there is no library.
    """
    if len(data) < 29 or data[24] != 8 or data[28] != 0 or data[25] not in _PLAIN_PNG:
        return None
    own = _PLAIN_PNG[data[25]]
    if channels not in (0, own, 3) or data[:8] != b"\x89PNG\r\n\x1a\n" or data[-8:-4] != b"IEND":
        return None
    pixels = _png_by_libpng(data, own) if _find_libpng() is not None else _png_by_pillow(data, own)
    if pixels is None:
        return None
    pixels = pixels.reshape(*pixels.shape[:2], own)
    return pixels if channels in (0, own) else pixels[..., :3] if own == 4 else np.repeat(pixels, 3, axis=2)


def _png_by_libpng(data: bytes, channels: int) -> Any:
    """uint8 [height, width, channels], [height, width] of one channel; None where they do not decode so."""
    width, height = struct.unpack_from(">II", data, 16)
    size = width * height * channels
    if not 0 < size <= min(MAX_SAMPLES, _DEFLATED * len(data)) or b"tRNS" in data[: data.find(b"IDAT")]:
        return None
    try:
        pixels = _find_libpng()(data)
    except (RuntimeError, ValueError):
        return None
    return pixels if pixels.size == size else None


def _png_by_pillow(data: bytes, channels: int) -> Any:
    """uint8 [height, width, channels], [height, width] of one channel; None where they do not decode so."""
    module = _find_pillow()
    if module is None:
        return None
    try:
        with module.open(io.BytesIO(data)) as image:
            pixels = np.asarray(image)
            plain = image.mode == _MODES[channels] and "transparency" not in image.info
    except (OSError, ValueError, SyntaxError, module.DecompressionBombError):
        return None
    return pixels if plain else None


def check_size(*sizes: int) -> None:
    """
    Raises:
        ValueError: an image claims so many pixels that no memory is to be taken for them.
    """
    if math.prod(sizes) > MAX_SAMPLES:
        claim = "x".join(map(str, sizes))
        raise ValueError(f"the image claims {claim} samples, more than the {MAX_SAMPLES} that are read")


#: What Pillow raises at damaged data.
_DAMAGES = (OSError, ValueError, SyntaxError, EOFError, IndexError, OverflowError, TypeError, struct.error)


def origin(ctx: OperationContext) -> str:
    """Where the bytes of an image come from: " of the file ..." where a ReadFile of a constant name gives them."""
    source = ctx.op.inputs[0].op if ctx.op is not None and len(ctx.op.inputs) else None
    if source is None or source.type != "ReadFile":
        return ""
    name = constant_value(source.inputs[0])
    return "" if name is None else f" of the file {name.item().decode('utf-8', 'replace')!r}"


@contextlib.contextmanager
def opened(data: bytes, ctx: OperationContext) -> Iterator[Any]:
    """An image of Pillow's.

    Raises:
        InvalidArgumentError: the data do not decode, when the image is opened or in the body.
        UnimplementedError: Pillow is not installed.
    """
    module = pillow(ctx)
    try:
        with module.open(io.BytesIO(data)) as image:
            yield image
    except (*_DAMAGES, module.DecompressionBombError) as error:
        what = f"{len(data)} bytes{origin(ctx)} do not decode as an image"
        raise InvalidArgumentError(None, ctx.op, f"{what}: {error}; they are damaged or of another format") from error


_DCT_METHODS: Final = ("", "INTEGER_FAST", "INTEGER_ACCURATE")


@dataclass(frozen=True, slots=True)
class JpegReading:
    """How a JPEG image is decoded; the attributes of the operations of the same names.

    Attributes:
        ratio: 1, 2, 4 or 8: the image is made that much smaller.
        fancy_upscaling: whether colours are interpolated where the file has fewer of them.
        try_recover_truncated: whether an image whose end is missing is taken as it is.
        dct_method: "INTEGER_ACCURATE", or "INTEGER_FAST", which "" stands for.
    """

    ratio: int = 1
    fancy_upscaling: bool = True
    try_recover_truncated: bool = False
    dct_method: str = ""


_AS_TENSORFLOW_READS: Final = JpegReading()


def decoded(data: bytes, channels: int, ctx: OperationContext, reading: JpegReading = _AS_TENSORFLOW_READS) -> Any:
    """The pixels of an image, uint8 [height, width, channels].

    Raises:
        InvalidArgumentError: `channels` is not 0, 1, 3 or 4, `reading` is none, or the data do not decode.
    """
    if channels not in (0, *_MODES):
        raise InvalidArgumentError(None, ctx.op, f"channels must be 0, 1, 3 or 4, got {channels}")
    if reading.ratio not in (1, 2, 4, 8):
        raise InvalidArgumentError(None, ctx.op, f"ratio must be 1, 2, 4 or 8, got {reading.ratio}")
    if reading.dct_method not in _DCT_METHODS:
        raise InvalidArgumentError(
            None, ctx.op, f"dct_method must be one of {_DCT_METHODS}, got {reading.dct_method!r}"
        )
    pixels = _plain_jpeg_pixels(data, channels, reading)
    return _pillow_pixels(data, channels, reading.ratio, ctx) if pixels is None else pixels


#: channels, or how the file keeps them -> what simplejpeg calls them
_JPEG_COLOURS: Final = {1: "GRAY", 3: "RGB", "Gray": "GRAY", "YCbCr": "RGB", "RGB": "RGB"}


def _plain_jpeg_pixels(data: bytes, channels: int, reading: JpegReading) -> Any:
    """The pixels of a grey or coloured JPEG image, bit for bit TensorFlow's.

    Returns:
        uint8 [height, width, channels]; None for other images, damaged ones, and where there is no simplejpeg.
    """
    module = _find_simplejpeg()
    if module is None or not data.startswith(b"\xff\xd8\xff"):
        return None
    try:
        height, width, kept, _ = module.decode_jpeg_header(data)
        colours = _JPEG_COLOURS.get(channels or kept)
        if colours is None or kept not in _JPEG_COLOURS or height * width * 3 > MAX_SAMPLES:
            return None
        smaller = {"min_height": -(-height // reading.ratio), "min_width": -(-width // reading.ratio)}
        return module.decode_jpeg(
            data,
            colours,
            fastdct=reading.dct_method != "INTEGER_ACCURATE",
            fastupsample=not reading.fancy_upscaling,
            strict=not reading.try_recover_truncated,
            **(smaller if reading.ratio > 1 else {}),
        )
    except ValueError:
        return None


def _pillow_pixels(data: bytes, channels: int, ratio: int, ctx: OperationContext) -> Any:
    """
    Raises:
        InvalidArgumentError: the data do not decode.
    """
    with opened(data, ctx) as image:
        check_size(image.height, image.width, 3)
        if ratio > 1:
            image.draft(None, (image.width // ratio, image.height // ratio))
        mode = _MODES.get(channels) or (image.mode if image.mode in _MODES.values() else "RGB")
        pixels = np.asarray(image if image.mode == mode else image.convert(mode))
    return pixels if pixels.ndim == 3 else pixels[..., np.newaxis]


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
    image: Array,
    *,
    quality: int,
    progressive: bool,
    optimize_size: bool,
    chroma_downsampling: bool,
    ctx: OperationContext,
) -> bytes:
    if image.shape[-1] not in (1, 3):
        raise InvalidArgumentError(None, ctx.op, f"a JPEG image has 1 or 3 channels, got shape {image.shape}")
    picture = pillow(ctx).fromarray(image[..., 0] if image.shape[-1] == 1 else image)
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


EncodeJpegVariableQuality = define_op("EncodeJpegVariableQuality", "images: uint8, quality: int32 -> contents: string")
EncodeJpegVariableQuality.not_differentiable()


@EncodeJpegVariableQuality.shape
def _(images: TensorShape, quality: TensorShape) -> TensorShape:
    shape_rules.with_rank(images, 3, "argument 'images'")
    shape_rules.with_rank(quality, 0, "argument 'quality'")
    return shape_rules.SCALAR


@EncodeJpegVariableQuality.host_kernel
def _(images: Array, quality: Array, *, ctx: OperationContext) -> bytes:
    if images.shape[-1] not in (1, 3):
        raise InvalidArgumentError(None, ctx.op, f"a JPEG image has 1 or 3 channels, got shape {images.shape}")
    ctx.check(0 <= quality <= 100, f"quality must be in [0,100], got {int(quality)}")
    out = io.BytesIO()
    picture = pillow(ctx).fromarray(images[..., 0] if images.shape[-1] == 1 else images)
    picture.save(out, "JPEG", quality=int(quality), subsampling=2)
    return out.getvalue()
