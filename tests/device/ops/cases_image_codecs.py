"""Rows for JPEG images."""

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


CASES = [
    OpCase("DecodeJpeg", (saved(SMOOTH, "JPEG"),), verify=lambda out: np.testing.assert_allclose(
        out[0].astype(float), SMOOTH, atol=12)),
    OpCase("DecodeJpeg", (saved(SMOOTH, "JPEG"),), {"channels": 1, "ratio": 2}, label="small",
           verify=lambda out: np.testing.assert_equal(out[0].shape, (8, 12, 1))),
    OpCase("DecodeJpeg", (scalar(b""),), error=errors.InvalidArgumentError, label="empty"),
    OpCase("EncodeJpeg", (SMOOTH,), verify=_decodes),
    OpCase("EncodeJpeg", (np.zeros((2, 2, 2), np.uint8),), error=errors.InvalidArgumentError, label="two channels"),
]  # fmt: skip
