"""What libraries make of common PNG images is what our own decoder makes of them, damaged ones included."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from anabranch.io.png import decode_png
from anabranch.ops.images import codecs

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_HEADER = 8 + 25  # the signature, and the header with its length, kind and checksum

Array = np.ndarray[Any, Any]


@pytest.fixture(params=["imagecodecs", "pillow"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The library that decodes; Pillow does where imagecodecs is not installed."""
    if request.param == "imagecodecs":
        pytest.importorskip("imagecodecs")
    else:
        monkeypatch.setattr(codecs, "_find_libpng", lambda: None)
    return str(request.param)


def written(pixels: Array, **options: Any) -> bytes:
    """A PNG file that Pillow writes, with the filters that suit each line."""
    out = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(out, "png", **options)
    return out.getvalue()


def picture(random: np.random.Generator, channels: int) -> Array:
    """Waves with noise, of random size."""
    height, width = random.integers(1, 40, 2)
    y, x = np.mgrid[:height, :width, :1][:2]
    waves = 127 + 100 * np.sin(x / 5 + y / 7 + np.arange(channels)) + random.normal(0, 5, (height, width, channels))
    return np.asarray(np.clip(waves, 0, 255).astype(np.uint8))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pixels_are_the_same(library: str, channels: int) -> None:
    random = np.random.default_rng(channels)
    for _ in range(20):
        pixels = picture(random, channels)
        data = written(pixels)
        for wanted in (0, channels, 3):
            found = codecs.plain_png_pixels(data, wanted)
            np.testing.assert_array_equal(found, decode_png(data, wanted), err_msg=library)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_damaged_image_is_left_to_our_decoder_or_read_alike(library: str, channels: int) -> None:
    random = np.random.default_rng(channels)
    read = 0
    for _ in range(150):
        data = bytearray(written(picture(random, channels)))
        for at in random.integers(_HEADER, len(data), random.integers(1, 4)):
            data[at] ^= 1 << random.integers(8)
        found = codecs.plain_png_pixels(bytes(data), channels)
        if found is None:
            continue
        read += 1
        assert found.dtype == np.uint8
        assert found.ndim == 3
        try:
            wanted = decode_png(bytes(data), channels)
        except ValueError:
            continue  # a library may forgive what ours does not, such as what stands behind the pixels
        np.testing.assert_array_equal(found, wanted, err_msg=library)
    assert read < 75


def test_transparency_is_left_to_our_decoder(library: str) -> None:
    data = written(picture(np.random.default_rng(0), 3), transparency=(1, 2, 3))
    assert b"tRNS" in data
    assert codecs.plain_png_pixels(data, 3) is None, library


def test_a_size_that_the_data_cannot_hold_takes_no_memory(library: str) -> None:
    data = written(np.zeros((4, 4, 3), np.uint8))
    header = b"IHDR" + struct.pack(">II", 30_000, 30_000) + data[24:29]
    huge = data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[_HEADER:]
    assert codecs.plain_png_pixels(huge, 3) is None, library
