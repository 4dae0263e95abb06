"""Reads and writes sorted string tables, LevelDB's file format, in which TensorFlow keeps the index of a checkpoint.

blocks | metaindex block | index block | footer (48 bytes)
footer:  handle of the metaindex | handle of the index | padding | magic number
handle:  varint offset | varint size
block:   entries | uint32 restart offsets | uint32 how many | type (0: not compressed) | masked CRC-32C
entry:   varint bytes shared with the key before | varint key bytes | varint value bytes | key bytes | value
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from anabranch.io import crc32c

_FOOTER_SIZE: Final = 48
_MAGIC: Final = struct.pack("<Q", 0xDB4775248B80FB57)
_TRAILER: Final = struct.Struct("<BI")
_NOT_COMPRESSED: Final = 0
_BLOCK_BYTES: Final = 1 << 18  # A block is closed when its entries have reached this size; TensorFlow's default.
_RESTART_INTERVAL: Final = 16  # Every so many entries a key is written in full, so that readers can search a block.


class SSTableError(ValueError):
    """The bytes are no such table. The message says why, without the file's name."""


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A base-128 number of at most 64 bits, and the position after it.

    Raises:
      SSTableError: the data ends first, or the number is longer.
    """
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise SSTableError(f"a number at byte {position} has no end")


def varint(value: int) -> bytes:
    """A base-128 number: 7 bits to a byte, the lowest first; all but the last have their highest bit set."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def is_table(path: str) -> bool:
    """Whether a file is there that ends as such tables do."""
    try:
        with open(path, "rb") as file:
            file.seek(-len(_MAGIC), os.SEEK_END)
            return file.read() == _MAGIC
    except OSError:
        return False  # none, a directory, or shorter than that


def read_table(data: bytes) -> dict[bytes, bytes]:
    """All entries of a table, in its order; every block's checksum is checked.

    Raises:
      SSTableError: the table is damaged, or compressed.
    """
    if len(data) < _FOOTER_SIZE or not data.endswith(_MAGIC):
        raise SSTableError(f"its {len(data)} bytes do not end as those of a table do")
    footer = data[-_FOOTER_SIZE:]
    metaindex, position = _read_handle(footer, 0)
    _block(data, metaindex)  # It holds nothing for us, but reading it detects damage.
    index, _ = _read_handle(footer, position)
    entries: dict[bytes, bytes] = {}
    for _, value in _entries(_block(data, index)):
        handle, _ = _read_handle(value, 0)
        entries.update(_entries(_block(data, handle)))
    return entries


def _read_handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = read_varint(data, position)
    size, position = read_varint(data, position)
    return (offset, size), position


def _block(data: bytes, handle: tuple[int, int]) -> bytes:
    offset, size = handle
    end = offset + size
    if end + _TRAILER.size > len(data) - _FOOTER_SIZE:
        raise SSTableError(f"a block claims bytes {offset} to {end} of {len(data)}")
    kind, crc = _TRAILER.unpack_from(data, end)
    if crc32c.masked_crc32c(data[offset : end + 1]) != crc:
        raise SSTableError(f"the checksum of the block at byte {offset} does not match")
    if kind != _NOT_COMPRESSED:
        raise SSTableError(f"the block at byte {offset} is compressed (type {kind}), which TensorFlow never does")
    return data[offset:end]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(block) < 4:
        raise SSTableError(f"a block has only {len(block)} bytes")
    restarts = struct.unpack_from("<I", block, len(block) - 4)[0]
    end = len(block) - 4 * (restarts + 1)
    position, key = 0, b""
    while position < end:
        shared, position = read_varint(block, position)
        key_length, position = read_varint(block, position)
        value_length, position = read_varint(block, position)
        value_at = position + key_length
        if shared > len(key) or value_at + value_length > end:
            raise SSTableError(f"an entry after key {key!r} leaves its block")
        key = key[:shared] + block[position:value_at]
        position = value_at + value_length
        yield key, block[value_at:position]
    if position != end:
        raise SSTableError("the entries of a block do not fill it")


def write_table(entries: Mapping[bytes, bytes]) -> bytes:
    """The file that holds these entries, sorted by key and not compressed."""
    data = bytearray()
    blocks = _blocks(sorted(entries.items()))
    # For each block its last key, and its handle.
    index = [(block[-1][0], _append_block(data, _encoded_block(block, _RESTART_INTERVAL))) for block in blocks]
    metaindex = _append_block(data, _encoded_block([], 1))
    footer = metaindex + _append_block(data, _encoded_block(index, 1))
    return bytes(data) + footer.ljust(_FOOTER_SIZE - len(_MAGIC), b"\0") + _MAGIC


def _blocks(entries: Iterable[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    """The entries of each data block in turn; none is empty."""
    block: list[tuple[bytes, bytes]] = []
    size = 0
    for key, value in entries:
        block.append((key, value))
        size += len(key) + len(value)
        if size >= _BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _encoded_block(entries: Iterable[tuple[bytes, bytes]], restart_interval: int) -> bytes:
    block = bytearray()
    restarts, previous = [0], b""
    for number, (key, value) in enumerate(entries):
        shared = 0
        if number % restart_interval:
            while shared < min(len(key), len(previous)) and key[shared] == previous[shared]:
                shared += 1
        elif number:
            restarts.append(len(block))
        block += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        previous = key
    return bytes(block) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def _append_block(data: bytearray, block: bytes) -> bytes:
    """Appends a block and its trailer; returns its handle."""
    offset = len(data)
    data += block
    data += _TRAILER.pack(_NOT_COMPRESSED, crc32c.masked_crc32c(block + bytes([_NOT_COMPRESSED])))
    return varint(offset) + varint(len(block))
