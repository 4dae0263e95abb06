"""Uncompressed BMP images of 8, 24 or 32 bits per pixel, read without a library."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

SIGNATURE = b"BM"
#: Bytes up to and including the number of bits per pixel.
_HEADER_SIZE = 32


def decode_bmp(contents: bytes, channels: int = 0) -> Array:
    """The pixels of a BMP image, uint8 [height, width, channels].

    Pixels of 8 bits are grey values: a palette, if there is one, is not looked at.

    Args:
        channels: 3, 4, or 0 for what the image has: 1, 3 or 4.

    Raises:
        ValueError: `channels` is another number, or the data are not such an image.
    """
    if channels not in (0, 3, 4):
        raise ValueError(f"channels must be 0, 3 or 4 for BMP, got {channels}")
    width, height, own, start = _read_header(contents)
    stride = (width * own + 3) // 4 * 4
    needed = start + stride * abs(height)
    if len(contents) < needed:
        raise ValueError(f"the BMP file is truncated: {len(contents)} bytes, {needed} expected")
    rows = np.frombuffer(contents, np.uint8, stride * abs(height), start).reshape(abs(height), stride)
    pixels = rows[:, : width * own].reshape(abs(height), width, own)
    upright = pixels if height < 0 else pixels[::-1]  # the lowest row comes first, unless the height is negative
    return np.ascontiguousarray(_with_channels(_in_rgb_order(upright), channels or own))


def _read_header(contents: bytes) -> tuple[int, int, int, int]:
    """(width, height, bytes per pixel, where the pixels start)."""
    if contents[:2] != SIGNATURE:
        raise ValueError("not a BMP file: its signature is missing")
    if len(contents) < _HEADER_SIZE:
        raise ValueError(f"the BMP file's header is truncated: {len(contents)} bytes, {_HEADER_SIZE} expected")
    start, width, height = struct.unpack_from("<I4xii", contents, 10)
    (bits,) = struct.unpack_from("<H", contents, 28)
    if bits not in (8, 24, 32):
        raise ValueError(f"the BMP file has {bits} bits per pixel; 8, 24 and 32 are read")
    if width <= 0 or height == 0:
        raise ValueError(f"the BMP file's size makes no sense: {width}x{height}")
    return width, height, bits // 8, start


def _in_rgb_order(pixels: Array) -> Array:
    count = pixels.shape[-1]
    return pixels if count == 1 else pixels[..., [2, 1, 0, 3][:count]]


def _with_channels(pixels: Array, channels: int) -> Array:
    own = pixels.shape[-1]
    if own == channels:
        return pixels
    colours = np.repeat(pixels, 3, axis=-1) if own == 1 else pixels[..., :3]
    if channels == 3:
        return colours
    opaque = np.full((*colours.shape[:2], 1), 255, np.uint8)
    return np.concatenate([colours, opaque], axis=-1)
