"""Rows for image files: JPEG, GIF, BMP, and whatever a file may be."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from anabranch import errors
from anabranch.testing.op_cases import OpCase

SMOOTH = np.stack([np.add.outer(np.arange(16), np.arange(24)) * 3] * 3, -1).astype(np.uint8)


def scalar(value: bytes) -> Any:
    out = np.empty((), np.object_)
    out[()] = value
    return out


def saved(pixels: Any, kind: str) -> Any:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return scalar(out.getvalue())


def _decodes(outputs: list[Any]) -> None:
    with Image.open(io.BytesIO(outputs[0].item())) as image:
        assert image.format == "JPEG"
        assert np.abs(np.asarray(image).astype(int) - SMOOTH).max() < 12


NOISE = np.random.default_rng(1).integers(0, 256, (7, 5, 4), np.uint8)
COLOUR, GREY = NOISE[..., :3], NOISE[..., 0]
#: two pictures of a few colours each, which a GIF keeps as they are
FRAMES = np.array([[[[255, 0, 0], [0, 0, 255]]] * 3, [[[0, 255, 0], [0, 0, 0]]] * 3], np.uint8)
OPAQUE = np.full((7, 5, 1), 255, np.uint8)


def animation(frames: Any) -> Any:
    out = io.BytesIO()
    first, *others = (Image.fromarray(f) for f in frames)
    first.save(out, "GIF", save_all=True, append_images=others)
    return scalar(out.getvalue())


def _bmp_rows(op: str) -> list[OpCase]:
    grey3 = np.repeat(GREY[..., None], 3, 2)
    kinds: list[tuple[str, Any, int, Any]] = [
        ("24", COLOUR, 0, COLOUR),
        ("24 to 4", COLOUR, 4, np.concatenate([COLOUR, OPAQUE], -1)),
        ("32", NOISE, 0, NOISE),
        ("32 to 3", NOISE, 3, COLOUR),
        ("8", GREY, 0, GREY[..., None]),
        ("8 to 3", GREY, 3, grey3),
        ("8 to 4", GREY, 4, np.concatenate([grey3, OPAQUE], -1)),
    ]
    return [
        OpCase(op, (saved(pixels, "BMP"),), {"channels": channels}, expected=[expected], label=f"BMP of {label} bits")
        for label, pixels, channels, expected in kinds
    ]


def _cut(data: Any, length: int) -> Any:
    return scalar(data.item()[:length])


BAD = errors.InvalidArgumentError
JPEG = saved(SMOOTH, "JPEG")
ANY_FORMAT = [
    OpCase("DecodeImage", (saved(NOISE, "PNG"),), expected=[NOISE], label="PNG"),
    OpCase("DecodeImage", (saved(GREY, "PNG"),), {"channels": 3, "dtype": "uint16"}, label="PNG of 16 bits",
           expected=[np.repeat(GREY[..., None], 3, 2).astype(np.uint16) * 257]),
    OpCase("DecodeImage", (saved(COLOUR, "PNG"),), {"dtype": "float"}, label="PNG of floats",
           expected=[COLOUR.astype(np.float32) / 255]),
    OpCase("DecodeImage", (saved(COLOUR, "BMP"),), {"dtype": "uint16"}, label="BMP of 16 bits",
           expected=[COLOUR.astype(np.uint16) * 256]),
    OpCase("DecodeImage", (saved(COLOUR, "BMP"),), {"dtype": "float"}, label="BMP of floats",
           expected=[COLOUR.astype(np.float32) / 255]),
    OpCase("DecodeImage", (animation(FRAMES),), expected=[FRAMES], label="animation"),
    OpCase("DecodeImage", (animation(FRAMES),), {"expand_animations": False}, expected=[FRAMES[0]], label="one frame"),
    OpCase("DecodeImage", (JPEG,), {"channels": 3}, label="JPEG", verify=lambda out: np.testing.assert_allclose(
        out[0].astype(float), SMOOTH, atol=12)),
    *_bmp_rows("DecodeImage"),
    OpCase("DecodeImage", (saved(COLOUR, "BMP"),), {"channels": 1}, error=BAD, label="grey BMP"),
    OpCase("DecodeImage", (animation(FRAMES),), {"channels": 1}, error=BAD, label="grey GIF"),
    OpCase("DecodeImage", (JPEG,), {"channels": 4}, error=BAD, label="JPEG of 4"),
    OpCase("DecodeImage", (JPEG,), {"channels": 2}, error=BAD, label="two channels"),
    OpCase("DecodeImage", (scalar(b""),), error=BAD, label="empty"),
    OpCase("DecodeImage", (scalar(b"text"),), error=BAD, label="text"),
    OpCase("DecodeImage", (_cut(saved(NOISE, "PNG"), 80),), error=BAD, label="cut PNG"),
    OpCase("DecodeImage", (_cut(animation(FRAMES), 20),), error=BAD, label="cut GIF"),
    OpCase("DecodeImage", (_cut(JPEG, 100),), error=BAD, label="cut JPEG"),
    OpCase("DecodeImage", (_cut(saved(COLOUR, "BMP"), 60),), error=BAD, label="cut BMP"),
    OpCase("DecodeImage", (scalar(b"BM"),), error=BAD, label="cut header"),
    OpCase("DecodeGif", (animation(FRAMES),), expected=[FRAMES]),
    OpCase("DecodeGif", (animation(FRAMES[:1]),), expected=[FRAMES[:1]], label="one frame"),
    OpCase("DecodeGif", (saved(COLOUR, "PNG"),), expected=[COLOUR[None]], label="PNG"),
    OpCase("DecodeGif", (saved(COLOUR, "BMP"),), error=BAD, label="BMP"),
    *_bmp_rows("DecodeBmp"),
    OpCase("DecodeBmp", (saved(COLOUR, "BMP"),), {"channels": 1}, error=BAD, label="grey"),
    OpCase("DecodeBmp", (saved(COLOUR, "PNG"),), error=BAD, label="PNG"),
    OpCase("DecodeAndCropJpeg", (JPEG, np.array([2, 3, 5, 7], np.int32)), verify=lambda out: np.testing.assert_allclose(
        out[0].astype(float), SMOOTH[2:7, 3:10], atol=12)),
    OpCase("DecodeAndCropJpeg", (JPEG, np.array([0, 0, 8, 12], np.int32)), {"ratio": 2, "channels": 1}, label="small",
           verify=lambda out: np.testing.assert_equal(out[0].shape, (8, 12, 1))),
    OpCase("DecodeAndCropJpeg", (JPEG, np.array([0, 0, 17, 2], np.int32)), error=BAD, label="outside"),
    OpCase("DecodeAndCropJpeg", (JPEG, np.array([0, 0, 0, 2], np.int32)), error=BAD, label="no rows"),
    OpCase("DecodeAndCropJpeg", (JPEG, np.array([-1, 0, 2, 2], np.int32)), error=BAD, label="negative"),
    OpCase("DecodeAndCropJpeg", (JPEG, np.array([0, 0, 2], np.int32)), error=BAD, label="three numbers"),
    OpCase("DecodeAndCropJpeg", (saved(COLOUR, "PNG"), np.array([0, 0, 2, 2], np.int32)), error=BAD, label="PNG"),
    OpCase("ExtractJpegShape", (JPEG,), expected=[np.array([16, 24, 3], np.int32)]),
    OpCase("ExtractJpegShape", (saved(SMOOTH[..., 0], "JPEG"),), {"output_type": "int64"}, label="grey",
           expected=[np.array([16, 24, 1])]),
    OpCase("ExtractJpegShape", (scalar(b""),), error=BAD, label="empty"),
]  # fmt: skip
CASES = [
    *ANY_FORMAT,
    OpCase("DecodePng", (saved(NOISE[..., :3], "PNG"),), expected=[NOISE[..., :3]], label="colour by Pillow"),
    OpCase("DecodePng", (saved(NOISE, "PNG"),), expected=[NOISE], label="with transparency"),
    OpCase("DecodePng", (saved(NOISE, "PNG"),), {"channels": 3}, expected=[NOISE[..., :3]], label="without"),
    OpCase("DecodePng", (saved(NOISE[..., 0], "PNG"),), expected=[NOISE[..., :1]], label="grey"),
    OpCase("DecodePng", (saved(NOISE[..., 0], "PNG"),), {"channels": 3}, label="grey as colour",
           expected=[np.repeat(NOISE[..., :1], 3, 2)]),
    OpCase("DecodePng", (scalar(saved(NOISE, "PNG").item()[:80]),), error=errors.InvalidArgumentError, label="cut"),
    OpCase("DecodeJpeg", (saved(SMOOTH, "JPEG"),), verify=lambda out: np.testing.assert_allclose(
        out[0].astype(float), SMOOTH, atol=12)),
    OpCase("DecodeJpeg", (saved(SMOOTH, "JPEG"),), {"channels": 1, "ratio": 2}, label="small",
           verify=lambda out: np.testing.assert_equal(out[0].shape, (8, 12, 1))),
    OpCase("DecodeJpeg", (scalar(b""),), error=errors.InvalidArgumentError, label="empty"),
    OpCase("EncodeJpeg", (SMOOTH,), verify=_decodes),
    OpCase("EncodeJpeg", (np.zeros((2, 2, 2), np.uint8),), error=errors.InvalidArgumentError, label="two channels"),
]  # fmt: skip
