"""PNG files, against Pillow's reader and writer."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from anabranch.io.png import SIGNATURE, decode_png, encode_png

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)
MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def pixels(channels: int, dtype: Any = np.uint8) -> Array:
    return RNG.integers(0, np.iinfo(dtype).max, size=(13, 17, channels), endpoint=True).astype(dtype)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(header: bytes, data: bytes) -> bytes:
    return SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def written_by_pillow(image: Any, **how: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "png", **how)
    return file.getvalue()


@pytest.mark.parametrize("channels", MODES)
def test_pillow_reads_what_is_written(channels: int) -> None:
    image = pixels(channels)
    read = Image.open(io.BytesIO(encode_png(image)))
    assert read.mode == MODES[channels]
    assert np.array_equal(np.asarray(read).reshape(image.shape), image)


@pytest.mark.parametrize("channels", MODES)
def test_what_pillow_writes_is_read(channels: int) -> None:
    # A smooth image, for which Pillow chooses every kind of filter.
    smooth = (np.cumsum(np.cumsum(pixels(channels) % 5, axis=0), axis=1) % 256).astype(np.uint8)
    contents = written_by_pillow(Image.fromarray(smooth.squeeze(), MODES[channels]))
    assert np.array_equal(decode_png(contents), smooth)


@pytest.mark.parametrize("channels", MODES)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_there_and_back(channels: int, dtype: Any) -> None:
    image = pixels(channels, dtype)
    for compression in (-1, 0, 9):
        assert np.array_equal(decode_png(encode_png(image, compression), dtype=dtype), image)


def test_palettes_and_bits() -> None:
    coloured = Image.fromarray(pixels(3)).quantize(7)
    assert np.array_equal(decode_png(written_by_pillow(coloured)), np.asarray(coloured.convert("RGB")))
    clear = decode_png(written_by_pillow(coloured, transparency=2))
    assert np.array_equal(clear[..., 3] == 0, np.asarray(coloured) == 2)
    black_and_white = Image.fromarray(pixels(1)[..., 0]).convert("1")
    assert np.array_equal(decode_png(written_by_pillow(black_and_white))[..., 0], 255 * np.asarray(black_and_white))


def test_interlaced_images() -> None:
    image = pixels(3)
    passes = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
    lines = [b"\0" + row.tobytes() for y, x, dy, dx in passes for row in image[y::dy, x::dx]]
    contents = png(struct.pack(">IIBBBBB", 17, 13, 8, 2, 0, 0, 1), b"".join(lines))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(contents))), image)
    assert np.array_equal(decode_png(contents), image)


def test_other_channels_and_depths() -> None:
    image = pixels(3)
    contents = encode_png(image)
    assert np.array_equal(decode_png(contents, 4), np.insert(image, 3, 255, axis=2))
    grey = image @ np.array([0.299, 0.587, 0.114])
    assert np.all(np.abs(decode_png(contents, 1)[..., 0] - grey) <= 1)
    assert np.array_equal(decode_png(encode_png(image[..., :1]), 3), np.repeat(image[..., :1], 3, axis=2))
    assert np.array_equal(decode_png(contents, dtype=np.uint16), image.astype(np.uint16) * 257)
    assert np.array_equal(decode_png(encode_png(image.astype(np.uint16) * 257)), image)


@pytest.mark.parametrize(
    "image",
    [np.zeros((2, 2, 3)), np.zeros((2, 2, 5), np.uint8), np.zeros((2, 2), np.uint8), np.zeros((0, 2, 1), np.uint8)],
)
def test_what_cannot_be_written(image: Array) -> None:
    with pytest.raises(ValueError):
        encode_png(image)


def test_damaged_files() -> None:
    contents = encode_png(pixels(3))
    for length in range(0, len(contents) - 1, 7):
        with pytest.raises(ValueError):
            decode_png(contents[:length])
    for at in range(8, len(contents) - 12, 11):
        flipped = contents[:at] + bytes([contents[at] ^ 16]) + contents[at + 1 :]
        with pytest.raises(ValueError):
            decode_png(flipped)


def test_absurd_headers_are_refused_before_memory_is_taken() -> None:
    with pytest.raises(ValueError, match="more than is read"):
        decode_png(png(struct.pack(">IIBBBBB", 1 << 30, 1 << 30, 8, 2, 0, 0, 0), b""))
    with pytest.raises(ValueError, match="makes no sense"):
        decode_png(png(struct.pack(">IIBBBBB", 4, 4, 3, 2, 0, 0, 0), b""))
    with pytest.raises(ValueError, match="truncated"):
        decode_png(png(struct.pack(">IIBBBBB", 9, 9, 8, 2, 0, 0, 0), b"\0" * 9))
    with pytest.raises(ValueError, match="unknown filter"):
        decode_png(png(struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0), b"\x07\0"))
