"""CRC-32C (Castagnoli), and the mask that record files put over it.

The package `google-crc32c` computes it where it is installed with its compiled part (the extra `crc`); elsewhere NumPy
does, at memory-like speed for long messages, as follows.

A CRC is the remainder of the message, read as a polynomial over GF(2), modulo the generator P. Two facts make it fast
without a loop over bytes:

1. *Folding.* P divides a polynomial of only four terms, x^(8·5685) + x^(8·1362) + x^(8·426) + 1. Modulo P, hence, a
   byte may be removed if it is XORed into the bytes that lie 4323, 5259 and 5685 places after it. As no distance is
   below 4323, that many bytes are folded at once: three XORs of arrays. Squaring a polynomial over GF(2) doubles its
   exponents, so the distances times any power of two serve as well: long messages are folded in large blocks.
   (Sparse multiples of a CRC's generator: K. Russell, "Chorba", 2024. The multiple here was found by search: among the
   powers x^8j, j < 8192, three that sum to 1 modulo P. `tests/unit/io/test_crc32c.py` checks it.)
2. *Linearity.* What remains, a few kilobytes, is cut into rows of 256 bytes. The remainder of a row is the XOR of one
   table entry per byte, chosen by the byte's position and value, so all rows are looked up at once.

>>> hex(crc32c(b"123456789"))
'0xe3069283'
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Buffer: TypeAlias = "bytes | bytearray | memoryview | npt.NDArray[np.uint8]"
_Bytes: TypeAlias = "npt.NDArray[np.uint8]"

_GENERATOR: Final = 0x82F63B78  # P without its top term; the lowest bit is the highest power, as the CRC reads bytes.
_FOLD_DISTANCES: Final = (4323, 5259, 5685)
_ROW: Final = 256
_BYTEWISE_BELOW: Final = 48  # Under this many bytes a Python loop beats NumPy's call overhead.
_COARSE: Final = 8  # Long messages are folded with distances this many times larger: 34 KB to a block ...
_SEGMENT_BLOCKS: Final = 6  # ... and this many blocks to a segment, which with its tail stays within a 256 KB cache.
_MASK_DELTA: Final = 0xA282EAD8
_UINT32: Final = 0xFFFFFFFF


def crc32c(data: Buffer, crc: int = 0) -> int:
    """The CRC-32C of `data`, or of what was summed before followed by `data`.

    Args:
      data: any contiguous bytes.
      crc: the result for the bytes that precede `data`; 0 at the beginning.

    Returns:
      The checksum, 0 <= crc < 2**32.
    """
    compiled = _compiled()
    if compiled is not None:
        return int(compiled(crc, data if isinstance(data, bytes) else _read_only(data)))
    state = (crc ^ _UINT32) & _UINT32
    length = data.nbytes if isinstance(data, (memoryview, np.ndarray)) else len(data)
    if length < _BYTEWISE_BELOW:
        return _advance_bytewise(bytes(data), state) ^ _UINT32
    message = np.frombuffer(data, np.uint8)
    return _advance(message, state) ^ _UINT32


@functools.cache
def _compiled() -> Callable[[int, Any], int] | None:
    """`google_crc32c.extend`; None where there is none, or only its slow version in Python."""
    try:
        module = importlib.import_module("google_crc32c")
    except ImportError:
        return None
    return module.extend if module.implementation == "c" else None


def _read_only(data: Buffer) -> _Bytes:
    """The same bytes, as the compiled function wants them."""
    view = np.frombuffer(data, np.uint8)
    view.flags.writeable = False
    return view


def mask(crc: int) -> int:
    """`crc` rotated and shifted, as record files store it: the CRC of bytes that hold their own CRC is degenerate."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _UINT32


def unmask(masked: int) -> int:
    """The inverse of `mask`."""
    rotated = (masked - _MASK_DELTA) & _UINT32
    return ((rotated >> 17) | (rotated << 15)) & _UINT32


def masked_crc32c(data: Buffer) -> int:
    """`mask(crc32c(data))`."""
    return mask(crc32c(data))


@functools.cache
def _byte_table() -> list[int]:
    """Entry b: the register after it held b and moved on by one byte."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_GENERATOR if value & 1 else 0)
        table.append(value)
    return table


@functools.cache
def _row_table() -> npt.NDArray[np.uint32]:
    """Flat `[_ROW * 256]` uint32. Entry 256 * i + b: what byte b at position i adds to the remainder of its row."""
    byte_table = np.array(_byte_table(), np.uint32)
    table = np.empty((_ROW, 256), np.uint32)
    table[-1] = byte_table
    for position in range(_ROW - 2, -1, -1):
        after = table[position + 1]
        table[position] = (after >> np.uint32(8)) ^ byte_table[after & np.uint32(255)]
    return table.reshape(-1)


@functools.cache
def _row_shift_tables() -> tuple[list[int], list[int], list[int], list[int]]:
    """What each byte of the register becomes after a row: the register acts as the first four bytes of that row."""
    first, second, third, fourth = _row_table()[: 4 * 256].reshape(4, 256).tolist()
    return first, second, third, fourth


def _advance_bytewise(data: bytes, state: int) -> int:
    table = _byte_table()
    for byte in data:
        state = (state >> 8) ^ table[(state ^ byte) & 255]
    return state


def _advance(message: _Bytes, state: int) -> int:
    """The register after `message`, which has at least four bytes, if it held `state` before."""
    start = np.array([state], "<u4").view(np.uint8)
    coarse_span = _FOLD_DISTANCES[-1] * _COARSE
    if message.size > 2 * coarse_span:
        message = _fold(message, start, _COARSE)
        start = np.zeros(4, np.uint8)
    if message.size > 2 * _FOLD_DISTANCES[-1]:
        message = _fold(message, start, 1)
        start = np.zeros(4, np.uint8)
    return _advance_by_rows(message, start)


def _fold(message: _Bytes, start: _Bytes, scale: int) -> _Bytes:
    """The last `_FOLD_DISTANCES[-1] * scale` bytes of `message`, into which all bytes before them were folded.

    `start` is XORed into the first bytes. `message` itself is not changed.
    """
    near, middle, span = (distance * scale for distance in _FOLD_DISTANCES)
    folded_end = message.size - span
    segment = near * _SEGMENT_BLOCKS
    scratch = np.empty(segment + span, np.uint8)
    carry = np.zeros(span, np.uint8)  # what the bytes folded so far add to the `span` bytes that follow them
    carry[: start.size] = start
    for begin in range(0, folded_end, segment):
        length = min(segment, folded_end - begin)
        scratch[:length] = message[begin : begin + length]
        scratch[length : length + span] = 0
        scratch[:span] ^= carry
        for block in range(0, length, near):
            end = min(block + near, length)
            source = scratch[block:end]
            for distance in (near, middle, span):
                target = scratch[block + distance : end + distance]
                np.bitwise_xor(target, source, out=target)
        carry[:] = scratch[length : length + span]
    return np.bitwise_xor(message[folded_end:], carry)


def _advance_by_rows(message: _Bytes, start: _Bytes) -> int:
    """The register after `message`, with `start` XORed into its first bytes, beginning from zero."""
    row_count = -(-message.size // _ROW)
    padding = row_count * _ROW - message.size
    padded = np.zeros(row_count * _ROW, np.intp)  # Zeros in front of a message do not change a register of zero.
    padded[padding:] = message
    padded[padding : padding + start.size] ^= start
    indices = padded.reshape(row_count, _ROW)
    indices += _row_offsets()
    remainders = np.bitwise_xor.reduce(_row_table().take(indices), axis=1).tolist()
    first, second, third, fourth = _row_shift_tables()
    state = 0
    for remainder in remainders:
        state = (
            first[state & 255]
            ^ second[(state >> 8) & 255]
            ^ third[(state >> 16) & 255]
            ^ fourth[state >> 24]
            ^ remainder
        )
    return int(state)


@functools.cache
def _row_offsets() -> npt.NDArray[np.intp]:
    return np.arange(_ROW, dtype=np.intp) * 256
