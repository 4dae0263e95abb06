"""PNG images as arrays, on zlib alone  (W3C Portable Network Graphics, second edition).

Writes greyscale, greyscale with alpha, RGB and RGBA with 8 or 16 bits; reads these, palettes and 1, 2 and 4 bits too,
interlaced or not.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from anabranch.core.arrays import ElementType, HostArray

Array = np.ndarray[Any, Any]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
#: channels -> PNG's colour type
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
#: colour type -> samples per pixel as stored
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
#: first row, first column, row step, column step of the passes of an interlaced image
_ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
#: an image that claims more samples than this is refused before any memory is taken
MAX_SAMPLES = 1 << 30


def encode_png(image: HostArray, compression: int = -1) -> bytes:
    """The PNG file of an image.

    Args:
        image: uint8 or uint16, shape [height, width, channels], channels 1 to 4 (grey, grey + alpha, RGB, RGBA).
        compression: zlib's level, 0 to 9, or -1 for its default.

    Raises:
        ValueError: another dtype or shape, or no pixels.
    """
    array = np.asarray(image)
    if array.dtype not in (np.uint8, np.uint16):
        raise ValueError(f"a PNG holds uint8 or uint16 samples, got {array.dtype}")
    if array.ndim != 3 or array.shape[2] not in _COLOUR_TYPES or 0 in array.shape:
        raise ValueError(f"an image must have shape [height, width, 1 to 4], none of them 0; got {array.shape}")
    height, width, channels = array.shape
    depth = 8 * array.dtype.itemsize
    header = struct.pack(">IIBBBBB", width, height, depth, _COLOUR_TYPES[channels], 0, 0, 0)
    data = zlib.compress(_filtered(array), compression)
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _filtered(array: Array) -> bytes:
    """Scan lines, each after its filter's number: `Sub` on the first line, `Up` (differences between lines) below."""
    height = array.shape[0]
    step = array.shape[2] * array.dtype.itemsize
    lines = np.ascontiguousarray(array.astype(array.dtype.newbyteorder(">"))).view(np.uint8).reshape(height, -1)
    out = np.empty((height, lines.shape[1] + 1), np.uint8)
    out[0, 0], out[1:, 0] = 1, 2
    out[0, 1:] = lines[0]
    out[0, 1 + step :] -= lines[0, :-step]
    np.subtract(lines[1:], lines[:-1], out=out[1:, 1:])
    return out.tobytes()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def decode_png(contents: bytes, channels: int = 0, dtype: ElementType = np.uint8) -> Array:
    """The pixels of a PNG file.

    Args:
        contents: the file's bytes.
        channels: how many to return: 1 grey, 2 grey + alpha, 3 RGB, 4 RGBA; 0 for what the file has.
        dtype: uint8 or uint16; samples of the other depth are scaled.

    Returns:
        An array of shape [height, width, channels].

    Raises:
        ValueError: not a PNG file, a damaged or truncated one.
    """
    header, palette, transparency, data = _read_chunks(contents)
    width, height, depth, colour, interlaced = header
    try:
        raw = zlib.decompressobj().decompress(data, _raw_size(header) + 1)
    except zlib.error as error:
        raise ValueError(f"the PNG file's pixels cannot be decompressed: {error}") from error
    samples = _SAMPLES[colour]
    image = np.zeros((height, width, samples), np.uint16)
    at = 0
    for row, column, row_step, column_step in _passes(interlaced):
        rows, columns = -(-(height - row) // row_step), -(-(width - column) // column_step)
        if rows <= 0 or columns <= 0:
            continue
        stride = (columns * samples * depth + 7) // 8
        size = rows * (stride + 1)
        if len(raw) < at + size:
            raise ValueError(f"the PNG file is truncated: {len(raw)} bytes of pixels, at least {at + size} expected")
        lines = np.frombuffer(raw, np.uint8, size, at).reshape(rows, stride + 1)
        pixels = _unpacked(_unfiltered(lines, max(1, samples * depth // 8)), depth, columns * samples)
        image[row::row_step, column::column_step] = pixels.reshape(rows, columns, samples)
        at += size
    image, depth = _coloured(image, depth, colour, palette, transparency)
    return _with_channels(_with_dtype(image, depth, np.dtype(dtype)), channels)


def _passes(interlaced: int) -> tuple[tuple[int, int, int, int], ...]:
    return _ADAM7 if interlaced else ((0, 0, 1, 1),)


def _raw_size(header: tuple[int, int, int, int, int]) -> int:
    width, height, depth, colour, _ = header
    # Interlacing rounds up each pass's lines: never more than twice the plain size plus the small passes.
    return 2 * height * ((width * _SAMPLES[colour] * depth + 7) // 8 + 2) + 64


def _read_chunks(contents: bytes) -> tuple[tuple[int, int, int, int, int], bytes, bytes, bytes]:
    """Header, palette, transparency and compressed pixels."""
    if not contents.startswith(SIGNATURE):
        raise ValueError("not a PNG file: its signature is missing")
    header, parts = None, {b"PLTE": b"", b"tRNS": b"", b"IDAT": b""}
    for kind, data in _chunks(contents):
        if kind == b"IHDR":
            header = _read_header(data)
        elif kind in parts:
            parts[kind] += data
    if header is None:
        raise ValueError("the PNG file has no header (IHDR)")
    return header, parts[b"PLTE"], parts[b"tRNS"], parts[b"IDAT"]


def _chunks(contents: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at + 12 <= len(contents):
        (size,) = struct.unpack_from(">I", contents, at)
        kind, end = contents[at + 4 : at + 8], at + 8 + size
        if end + 4 > len(contents):
            break
        data = contents[at + 8 : end]
        if zlib.crc32(kind + data) != struct.unpack_from(">I", contents, end)[0]:
            raise ValueError(f"the PNG file is damaged: the checksum of its chunk {kind!r} at byte {at} does not match")
        yield kind, data
        if kind == b"IEND":
            return
        at = end + 4
    raise ValueError(f"the PNG file is truncated at byte {at}: its end (IEND) is missing")


def _read_header(data: bytes) -> tuple[int, int, int, int, int]:
    if len(data) != 13:
        raise ValueError(f"the PNG file's header has {len(data)} bytes, not 13")
    width, height, depth, colour, compression, filtering, interlaced = struct.unpack(">IIBBBBB", data)
    if depth not in _DEPTHS.get(colour, ()) or compression or filtering or interlaced > 1 or not width or not height:
        raise ValueError(f"the PNG file's header makes no sense: {width}x{height}, {depth} bits, colour type {colour}")
    if width * height * _SAMPLES[colour] > MAX_SAMPLES:
        raise ValueError(f"the PNG file claims {width}x{height} pixels, more than is read ({MAX_SAMPLES} samples)")
    return width, height, depth, colour, interlaced


def _unfiltered(lines: Array, step: int) -> Array:
    """Undoes each line's filter. `step`: bytes from a sample to the same sample of the pixel on its left."""
    out = np.zeros((lines.shape[0], lines.shape[1] - 1), np.uint8)
    above = np.zeros(out.shape[1], np.uint8)
    for i, line in enumerate(lines):
        kind, current = line[0], out[i]
        current[:] = line[1:]
        if kind == 1:
            _undo_sub(current, step)
        elif kind == 2:
            current += above
        elif kind == 3:
            _undo_average(current, above, step)
        elif kind == 4:
            _undo_paeth(current, above, step)
        elif kind != 0:
            raise ValueError(f"the PNG file is damaged: line {i} has the unknown filter {kind}")
        above = current
    return out


def _undo_sub(current: Array, step: int) -> None:
    for first in range(step):
        current[first::step] = np.cumsum(current[first::step], dtype=np.uint8)


def _undo_average(current: Array, above: Array, step: int) -> None:
    values, up = current.tolist(), above.tolist()
    for i in range(len(values)):
        left = values[i - step] if i >= step else 0
        values[i] = (values[i] + (left + up[i]) // 2) & 255
    current[:] = values


def _undo_paeth(current: Array, above: Array, step: int) -> None:
    values, up = current.tolist(), above.tolist()
    for i in range(len(values)):
        left, corner = (values[i - step], up[i - step]) if i >= step else (0, 0)
        to_left, to_up = abs(up[i] - corner), abs(left - corner)
        to_corner = abs(left + up[i] - 2 * corner)
        if to_left <= to_up and to_left <= to_corner:
            nearest = left
        else:
            nearest = up[i] if to_up <= to_corner else corner
        values[i] = (values[i] + nearest) & 255
    current[:] = values


def _unpacked(lines: Array, depth: int, count: int) -> Array:
    """Samples of any depth as uint16, `count` per line."""
    if depth == 16:
        return np.ascontiguousarray(lines).view(">u2").astype(np.uint16)[:, :count]
    if depth == 8:
        return lines.astype(np.uint16)[:, :count]
    bits = np.unpackbits(lines, axis=1).reshape(lines.shape[0], -1, depth)
    weights = 1 << np.arange(depth - 1, -1, -1)
    samples: Array = (bits * weights).sum(axis=2).astype(np.uint16)[:, :count]
    return samples


def _coloured(image: Array, depth: int, colour: int, palette: bytes, transparency: bytes) -> tuple[Array, int]:
    """Looks up palette colours and adds the alpha channel that a tRNS chunk stands for."""
    if colour == 3:
        colours = np.frombuffer(palette[: len(palette) // 3 * 3], np.uint8)
        table: Array = colours.reshape(-1, 3).astype(np.uint16)
        if image.max() >= len(table):
            raise ValueError(f"the PNG file is damaged: pixel value {image.max()} in a palette of {len(table)}")
        if transparency:
            alpha = np.full((len(table), 1), 255, np.uint16)
            given = np.frombuffer(transparency, np.uint8)[: len(table)]
            alpha[: len(given), 0] = given
            table = np.concatenate([table, alpha], axis=1)
        return table[image[..., 0]], 8
    if transparency and colour in (0, 2) and len(transparency) == 2 * image.shape[2]:
        clear = np.frombuffer(transparency, ">u2")
        opaque = np.any(image != clear, axis=2, keepdims=True)
        image = np.concatenate([image, opaque.astype(np.uint16) * np.uint16((1 << depth) - 1)], axis=2)
    return image, depth


def _with_dtype(image: Array, depth: int, dtype: np.dtype[Any]) -> Array:
    if dtype not in (np.uint8, np.uint16):
        raise ValueError(f"PNG pixels are read as uint8 or uint16, not {dtype}")
    if depth < 8:
        image = image * np.uint16(255 // ((1 << depth) - 1))
    if dtype == np.uint8:
        return (image >> 8 if depth == 16 else image).astype(np.uint8)
    return image if depth == 16 else image * np.uint16(257)


def _with_channels(image: Array, channels: int) -> Array:
    have = image.shape[2]
    if channels in (0, have):
        return image
    if channels not in (1, 2, 3, 4):
        raise ValueError(f"channels must be 0, 1, 2, 3 or 4, got {channels}")
    full = np.iinfo(image.dtype).max
    alpha = image[..., -1:] if have in (2, 4) else np.full((*image.shape[:2], 1), full, image.dtype)
    colours = image[..., : 1 if have < 3 else 3]
    if channels < 3 and have >= 3:
        # Rec. 601 luma in 15-bit fixed point, as libpng computes it: 16-bit samples are rounded, 8-bit ones cut off.
        weighted: Array = colours.astype(np.int64) @ np.array([9798, 19235, 3735])
        grey: Array = (weighted + (16384 if image.dtype == np.uint16 else 0)) >> 15
        colours = grey[..., None].astype(image.dtype)
    elif channels >= 3 and have < 3:
        colours = np.repeat(colours, 3, axis=2)
    return np.concatenate([colours, alpha], axis=2) if channels in (2, 4) else colours
