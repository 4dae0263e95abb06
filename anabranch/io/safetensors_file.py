"""The safetensors container: a length, a JSON header, then the tensors' bytes, without gaps.

    uint64 length of the header | header | bytes of the tensors
    header: {name: {"dtype": code, "shape": [...], "data_offsets": [begin, end]}, ...}

The `safetensors` package reads what is written here and the other way round; it is not used because a checkpoint needs
its bytes fsynced, streamed without a second copy in memory, checksummed on the way, and read with errors that say
which tensor of which file is damaged.
"""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np

_LENGTH: Final = struct.Struct("<Q")
_ALIGNMENT: Final = 64  # Where the tensors begin: a multiple of a cache line.
_MAX_HEADER: Final = 100_000_000  # The safetensors package refuses longer ones.
_RESERVED: Final = "__metadata__"
_MAX_RANK: Final = 64  # NumPy's.
_MAX_ELEMENTS: Final = 1 << 58  # Of up to 32 bytes each: NumPy counts an array's bytes with 63 bits.

_CODES: Final[dict[str, np.dtype[Any]]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "U16": np.dtype(np.uint16),
    "I16": np.dtype(np.int16),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "U32": np.dtype(np.uint32),
    "I32": np.dtype(np.int32),
    "F32": np.dtype(np.float32),
    "U64": np.dtype(np.uint64),
    "I64": np.dtype(np.int64),
    "F64": np.dtype(np.float64),
}
_CODE_OF_DTYPE: Final = {dtype: code for code, dtype in _CODES.items()}


#: what a JSON text holds: numbers, strings, lists, objects; nothing is known of it before it was checked
JsonValue: TypeAlias = Any


class SafetensorsError(ValueError):
    """The bytes are no safetensors file, or not the one expected. The message says why, without the file's name."""


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """A tensor's place in a file: `begin` and `end` in bytes from the start of the file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


def is_storable(dtype: np.dtype[Any]) -> bool:
    """Whether safetensors has a code for `dtype`."""
    return dtype in _CODE_OF_DTYPE


def is_valid_name(name: str) -> bool:
    """Whether a tensor may have this name: not empty, not reserved, and UTF-8 can hold it."""
    try:
        return bool(name.encode()) and name != _RESERVED
    except UnicodeEncodeError:
        return False


def make_header(
    tensors: Iterable[tuple[str, np.dtype[Any], tuple[int, ...]]], metadata: Mapping[str, str]
) -> tuple[bytes, int]:
    """The header of a file that holds these tensors in this order.

    For elements to be aligned, tensors with larger elements come first.

    Args:
      tensors: name, dtype and shape of each.
      metadata: free text, for people and tools.

    Returns:
      The bytes before the first tensor, and the size of the whole file in bytes.
    """
    header: dict[str, Any] = {_RESERVED: dict(metadata)}
    end = 0
    for name, dtype, shape in tensors:
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _CODE_OF_DTYPE[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(len(text) + _LENGTH.size) % _ALIGNMENT)
    if len(text) > _MAX_HEADER:
        raise SafetensorsError(f"a header of {len(text)} bytes exceeds the {_MAX_HEADER} that safetensors allows")
    prelude = _LENGTH.pack(len(text)) + text
    return prelude, len(prelude) + end


def parse_header(data: memoryview) -> dict[str, StoredTensor]:
    """The tensors of a file, whose bytes are `data`. Every offset, size and dtype has been checked against the rest.

    Raises:
      SafetensorsError: the header is damaged, or claims what the file does not hold.
    """
    if len(data) < _LENGTH.size:
        raise SafetensorsError(f"only {len(data)} bytes long")
    length = _LENGTH.unpack_from(data)[0]
    start = _LENGTH.size + length
    if length > _MAX_HEADER or start > len(data):
        raise SafetensorsError(f"the header claims {length} bytes, but {len(data) - _LENGTH.size} bytes follow")
    try:
        header = json.loads(bytes(data[_LENGTH.size : start]))
    except (ValueError, RecursionError) as error:
        raise SafetensorsError(f"the header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise SafetensorsError("the header is no JSON object")
    header.pop(_RESERVED, None)
    tensors = {name: _parse_entry(name, entry, start) for name, entry in header.items()}
    _check_no_gaps(tensors, start, len(data))
    return tensors


def _parse_entry(name: str, entry: JsonValue, start: int) -> StoredTensor:
    try:
        dtype = _CODES[entry["dtype"]]
        shape = entry["shape"]
        begin, end = entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise SafetensorsError(f"the header's entry for tensor {name!r} is damaged: {error!r}") from error
    places = type(begin) is int and type(end) is int and 0 <= begin <= end
    if not places or not is_shape(shape) or end - begin != math.prod(shape) * dtype.itemsize:
        raise SafetensorsError(f"tensor {name!r} claims {dtype.name} of shape {shape} in bytes {begin} to {end}")
    return StoredTensor(dtype, tuple(shape), start + begin, start + end)


def _check_no_gaps(tensors: Mapping[str, StoredTensor], start: int, size: int) -> None:
    position = start
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != position:
            raise SafetensorsError(f"tensor {name!r} begins at byte {tensor.begin}, where {position} was expected")
        position = tensor.end
    if position != size:
        raise SafetensorsError(f"its tensors end at byte {position}, but the file has {size} bytes")


def is_shape(value: JsonValue) -> bool:
    """Whether a JSON value is a list of sizes that NumPy can have."""
    return isinstance(value, list) and all(type(size) is int for size in value) and fits_memory(value)


def fits_memory(shape: Sequence[int]) -> bool:
    """Whether these are sizes of an array, counting only those that are not zero, as NumPy does."""
    return (
        len(shape) <= _MAX_RANK
        and all(size >= 0 for size in shape)
        and math.prod(size for size in shape if size) < _MAX_ELEMENTS
    )
