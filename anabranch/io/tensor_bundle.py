"""Reads the checkpoints that TensorFlow writes (format V2, a "tensor bundle"), for fine-tuning what it trained.

A bundle with prefix P is the table `P.index` and the files `P.data-00000-of-00002`, which hold nothing but the bytes of
tensors. The table's entry under the empty key is a BundleHeaderProto, the one under a tensor's name a BundleEntryProto.
A partitioned variable has an entry without data that lists its slices; each slice has an entry of its own, whose key is
made of name, offsets and lengths so that keys sort as what they are made of does.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import mmap
import os
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from anabranch import errors
from anabranch.core import dtypes
from anabranch.io import (
    checkpoint_encoding,
    crc32c,
    durable,
    os_errors,
    safetensors_file,
    slices,
    sstable,
    tensor_reader,
)
from anabranch.io.checkpoint_manifest import Entry, Piece

Array = npt.NDArray[Any]

_MAX_SHARDS: Final = 99_999  # What the five digits of a file's name can tell apart.
_FULL_EXTENT: Final = -1
_DATA: Final = re.compile(r"\.data-\d{5}-of-\d{5}")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # Wire types of protocol buffers.
#: By its length in bytes, what is XORed over the first two bytes of a signed number in a key.
_SIGNED_HEADERS: Final = (
    *((0, 0), (0x80, 0), (0xC0, 0), (0xE0, 0), (0xF0, 0), (0xF8, 0)),
    *((0xFC, 0), (0xFE, 0), (0xFF, 0), (0xFF, 0x80), (0xFF, 0xC0)),
)


def bundle_exists(prefix: str | os.PathLike[str]) -> bool:
    """Whether TensorFlow saved a checkpoint under `prefix`."""
    return os.path.isfile(os.fsdecode(prefix) + ".index")


def bundle_files(prefix: str) -> list[str]:
    """The paths of such a checkpoint's files: its index, then those that hold its data."""
    directory, base = os.path.split(prefix)
    data = (name for name in os.listdir(directory or ".") if name.startswith(base) and _DATA.fullmatch(name, len(base)))
    return [f"{prefix}.index", *sorted(os.path.join(directory, name) for name in data)]


@dataclasses.dataclass(frozen=True)
class _Stored:
    """A BundleEntryProto: the fields that say what a tensor is, and where."""

    dtype: dtypes.DType
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    boxes: tuple[tuple[tuple[int, int], ...], ...]  # per slice and dimension: start, length


class TensorBundleReader(tensor_reader.TensorReader):
    """A checkpoint of TensorFlow's, read as one of ours.

    Data files are mapped when they are first needed; strings are copied, all else can be read without a copy.

    Args:
      prefix: as TensorFlow's Saver returned it.
      verify_checksums: False to read without checking what is read against its checksum.

    Raises:
      NotFoundError: there is no such checkpoint.
      DataLossError: its index is damaged.
      UnimplementedError: it was written on a big-endian machine.
    """

    def __init__(self, prefix: str | os.PathLike[str], *, verify_checksums: bool = True) -> None:
        super().__init__(prefix, verify_checksums)
        self._index_path = self._prefix + ".index"
        self._maps: dict[int, memoryview] | None = {}
        self._verified: set[str] = set()
        self._stored: dict[str, _Stored] = {}
        table = self._read_index()
        try:
            self._shard_count = self._read_header(table)
            self._entries = {
                key.decode(): self._read_entry(key.decode(), value, table)
                for key, value in table.items()
                if key and not key.startswith(b"\0")
            }
        except (sstable.SSTableError, UnicodeDecodeError) as error:
            raise self._index_damaged(str(error)) from error

    def close(self) -> None:
        """Closes the files; arrays that are views of them stay valid. Reading afterwards is an error."""
        self._maps = None

    @property
    def _tensors(self) -> Mapping[str, Entry]:
        return self._entries

    def _forget_verified(self) -> None:
        self._verified.clear()

    # ------------------------------------------------------------------------------------------------ the index
    def _read_index(self) -> dict[bytes, bytes]:
        try:
            with open(self._index_path, "rb") as file:
                return sstable.read_table(file.read())
        except FileNotFoundError as error:
            raise errors.NotFoundError(
                None,
                None,
                f"There is no TensorFlow checkpoint with prefix {self._prefix!r}: {self._index_path!r} does not exist.",
            ) from error
        except OSError as error:
            raise os_errors.from_os_error(error, "read", self._index_path) from error
        except sstable.SSTableError as error:
            raise self._index_damaged(str(error)) from error

    def _read_header(self, table: Mapping[bytes, bytes]) -> int:
        """The number of data files."""
        if b"" not in table:
            raise sstable.SSTableError("it has no header")
        header = dict(message_fields(table[b""]))
        if number_of(header.get(2, 0)) != 0:
            raise errors.UnimplementedError(
                None, None, f"Checkpoint {self._prefix!r} was written on a big-endian machine: save it on another one."
            )
        shard_count = number_of(header.get(1, 0))
        if not 0 < shard_count <= _MAX_SHARDS:
            raise sstable.SSTableError(f"it claims {shard_count} data files")
        return shard_count

    def _read_entry(self, name: str, value: bytes, table: Mapping[bytes, bytes]) -> Entry:
        stored = self._parse_stored(name, value)
        if not stored.boxes:
            self._stored[name] = stored
            return Entry(stored.dtype, stored.shape, (_piece(name, stored, (0,) * len(stored.shape)),))
        pieces = []
        for box in stored.boxes:
            key = slice_key(name, box)
            if key not in table:
                raise sstable.SSTableError(f"a slice of tensor {name!r} is missing")
            offsets, shape = resolve_slice(name, box, stored.shape)
            part = self._parse_stored(name, table[key])
            if part.shape != shape or part.dtype != stored.dtype:
                raise sstable.SSTableError(
                    f"a slice of tensor {name!r} has another dtype or shape than the tensor says"
                )
            label = slices.SliceInfo(name, stored.shape, offsets, shape).spec
            self._stored[f"{name} {label}"] = part
            pieces.append(_piece(f"{name} {label}", part, offsets))
        entry = Entry(stored.dtype, stored.shape, tuple(pieces))
        self._check_pieces(name, entry)
        return entry

    def _check_pieces(self, name: str, entry: Entry) -> None:
        """Pieces overlap neither in the tensor nor in the files, else a small file could stand for any tensor."""
        overlap = slices.find_overlap([entry.box(name, piece) for piece in entry.pieces])
        if overlap is not None:
            raise sstable.SSTableError(f"slices {overlap[0].spec!r} and {overlap[1].spec!r} of {name!r} overlap")
        stored = sorted((part.shard, part.offset, part.size) for part in (self._stored[p.key] for p in entry.pieces))
        for (shard, offset, size), (next_shard, next_offset, _) in itertools.pairwise(stored):
            if shard == next_shard and offset + size > next_offset:
                raise sstable.SSTableError(f"slices of tensor {name!r} share bytes of data file {shard}")

    def _parse_stored(self, name: str, value: bytes) -> _Stored:
        numbers, shape, boxes = dict[int, int](), tuple[int, ...](), []
        for number, content in message_fields(value):
            if number == 2:
                shape = parse_shape(bytes_of(content))
            elif number == 7:
                boxes.append(tuple(parse_extent(bytes_of(extent)) for _, extent in message_fields(bytes_of(content))))
            else:
                numbers[number] = number_of(content)
        try:
            dtype = dtypes.as_dtype(numbers.get(1, 0)).base_dtype
        except TypeError as error:
            raise sstable.SSTableError(f"tensor {name!r} has dtype number {numbers.get(1, 0)}") from error
        shard = numbers.get(3, 0)
        if not 0 <= shard < self._shard_count:
            raise sstable.SSTableError(f"tensor {name!r} lies in data file {shard} of {self._shard_count}")
        size = numbers.get(5, 0)
        if not boxes and dtype.is_numpy_compatible and dtype != dtypes.string and size != math.prod(shape) * dtype.size:
            raise sstable.SSTableError(f"tensor {name!r} claims {dtype.name} of shape {list(shape)} in {size} bytes")
        return _Stored(dtype, shape, shard, numbers.get(4, 0), size, crc32c.unmask(numbers.get(6, 0)), tuple(boxes))

    # ------------------------------------------------------------------------------------------------- the data
    def _decoded(self, name: str, entry: Entry, piece: Piece, verify: bool) -> Array:
        if not entry.dtype.is_numpy_compatible:
            raise errors.UnimplementedError(
                None, None, f"Tensor {name!r} of checkpoint {self._prefix!r} has dtype {entry.dtype.name}: skip it."
            )
        stored = self._stored[piece.key]
        data = self._mapped(name, stored.shard)[stored.offset : stored.offset + stored.size]
        if len(data) != stored.size:
            raise self._damaged(name, stored.shard, f"it ends before byte {stored.offset + stored.size}")
        verify = verify and piece.key not in self._verified
        if entry.dtype == dtypes.string:
            array, crc = self._decode_strings(name, stored, data)
        else:
            crc = crc32c.crc32c(data) if verify else stored.crc
            array = self._decode_numbers(name, stored, data)
        if verify and crc != stored.crc:
            raise self._damaged(name, stored.shard, "its checksum does not match")
        self._verified.add(piece.key)
        return array

    def _decode_numbers(self, name: str, stored: _Stored, data: memoryview) -> Array:
        try:
            return checkpoint_encoding.decode(data, stored.dtype, stored.shape)
        except checkpoint_encoding.DecodeError as error:
            raise self._damaged(name, stored.shard, str(error)) from error

    def _decode_strings(self, name: str, stored: _Stored, data: memoryview) -> tuple[Array, int]:
        """The strings and their checksum.

        They are stored as lengths (varints), a checksum of the lengths, and the text. The tensor's checksum covers the
        lengths as numbers of fixed size, then the rest as it is stored.
        """
        count, content = math.prod(stored.shape), bytes(data)
        try:
            if count > len(content):  # Each length takes a byte.
                raise sstable.SSTableError(f"{len(content)} bytes cannot hold {count} strings")
            lengths, position = list[int](), 0
            for _ in range(count):
                length, position = sstable.read_varint(content, position)
                lengths.append(length)
        except sstable.SSTableError as error:
            raise self._damaged(name, stored.shard, str(error)) from error
        text_at = position + 4
        if text_at + sum(lengths) != len(content):
            raise self._damaged(name, stored.shard, f"its {count} strings do not fill its {len(content)} bytes")
        widths = (struct.pack("<I" if length < 1 << 32 else "<Q", length) for length in lengths)
        strings = np.empty(count, object)
        for index, length in enumerate(lengths):
            strings[index] = content[text_at : text_at + length]
            text_at += length
        strings.flags.writeable = False
        return strings.reshape(stored.shape), crc32c.crc32c(content[position:], crc32c.crc32c(b"".join(widths)))

    def _mapped(self, name: str, shard: int) -> memoryview:
        if self._maps is None:
            raise errors.FailedPreconditionError(
                None, None, f"The reader of checkpoint {self._prefix!r} is closed: make a new one."
            )
        if shard not in self._maps:
            self._maps[shard] = self._map(name, shard)
        return self._maps[shard]

    def _map(self, name: str, shard: int) -> memoryview:
        path = self._data_path(shard)
        try:
            descriptor = durable.open_regular(path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise self._damaged(name, shard, "the file is missing") from error
        except OSError as error:
            raise os_errors.from_os_error(error, "read", path) from error
        try:
            if os.fstat(descriptor).st_size == 0:  # Which cannot be mapped.
                return memoryview(b"")
            with os_errors.translated("map", path):
                return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
        finally:
            os.close(descriptor)

    def _data_path(self, shard: int) -> str:
        return f"{self._prefix}.data-{shard:05d}-of-{self._shard_count:05d}"

    def _damaged(self, name: str, shard: int, reason: str) -> errors.DataLossError:
        return errors.DataLossError(
            None,
            None,
            f"Tensor {name!r} in checkpoint file {self._data_path(shard)!r} is damaged: {reason}. Restore another "
            "checkpoint.",
        )

    def _index_damaged(self, reason: str) -> errors.DataLossError:
        return errors.DataLossError(
            None, None, f"Checkpoint index {self._index_path!r} is damaged: {reason}. Restore another checkpoint."
        )


def _piece(key: str, stored: _Stored, offsets: tuple[int, ...]) -> Piece:
    return Piece(stored.shard, key, offsets, stored.shape, stored.crc)


def resolve_slice(
    name: str, box: tuple[tuple[int, int], ...], full_shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Offsets and shape of a slice, in which a whole dimension has no length."""
    if len(box) != len(full_shape):
        raise sstable.SSTableError(f"a slice of tensor {name!r} has {len(box)} dimensions, not {len(full_shape)}")
    pairs = zip(box, full_shape, strict=True)
    lengths = tuple(size if length == _FULL_EXTENT else length for (_, length), size in pairs)
    offsets = tuple(start for start, _ in box)
    try:
        slices.SliceInfo(name, full_shape, offsets, lengths)
    except errors.InvalidArgumentError as error:
        raise sstable.SSTableError(error.message) from error
    return offsets, lengths


# ----------------------------------------------------------------------------------------------- keys of slices
def slice_key(name: str, box: tuple[tuple[int, int], ...]) -> bytes:
    """The key of a slice: 0, the name, the rank, then start and length of each dimension, in sortable encodings."""
    escaped = name.encode().replace(b"\0", b"\0\xff")  # A byte of 255, which is escaped too, is not in UTF-8.
    parts = [_unsigned_key(0), escaped, b"\0\x01", _unsigned_key(len(box))]
    for start, length in box:
        parts += [_signed_key(start), _signed_key(length)]
    return b"".join(parts)


def _unsigned_key(value: int) -> bytes:
    """How many bytes, then the bytes, highest first."""
    content = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([len(content)]) + content


def _signed_key(value: int) -> bytes:
    """Encodes a number in as many bytes as 7 bits each and a sign need; the number of leading ones is the length."""
    bits = (~value if value < 0 else value).bit_length()
    length = bits // 7 + 1
    content = bytearray(value.to_bytes(length, "big", signed=True))
    first, second = _SIGNED_HEADERS[length]
    content[0] ^= first
    if length > 1:
        content[1] ^= second
    return bytes(content)


# ------------------------------------------------------------------------------------------ protocol buffers
def message_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: number, and an unsigned number or the bytes of a string or message."""
    position = 0
    while position < len(data):
        tag, position = sstable.read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = sstable.read_varint(data, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            size, position = sstable.read_varint(data, position)
        elif wire_type in (_FIXED32, _FIXED64):
            size = 4 if wire_type == _FIXED32 else 8
        else:
            raise sstable.SSTableError(f"a message has a field of wire type {wire_type}")
        content, position = data[position : position + size], position + size
        if position > len(data):
            raise sstable.SSTableError("a message ends within a field")
        yield number, content if wire_type == _BYTES else int.from_bytes(content, "little")


def number_of(content: int | bytes) -> int:
    """The number that a field of a message holds; raises SSTableError where it holds bytes."""
    if isinstance(content, bytes):
        raise sstable.SSTableError("a message has bytes where a number was expected")
    return content


def bytes_of(content: int | bytes) -> bytes:
    """The bytes that a field of a message holds; raises SSTableError where it holds a number."""
    if isinstance(content, int):
        raise sstable.SSTableError("a message has a number where bytes were expected")
    return content


def parse_shape(data: bytes) -> tuple[int, ...]:
    """A TensorShapeProto."""
    shape = [
        number_of(dict(message_fields(bytes_of(content))).get(1, 0))
        for number, content in message_fields(data)
        if number == 2
    ]
    if not safetensors_file.fits_memory(shape):
        raise sstable.SSTableError(f"a shape is {shape}")
    return tuple(shape)


def parse_extent(data: bytes) -> tuple[int, int]:
    """A TensorSliceProto.Extent: start and length, the latter missing for a whole dimension."""
    fields = dict(message_fields(data))
    length = number_of(fields[2]) if 2 in fields else _FULL_EXTENT
    return number_of(fields.get(1, 0)), length
