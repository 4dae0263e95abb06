"""How a checkpoint stores each dtype: as itself where safetensors has it, otherwise as something it has.

    complex64, complex128   floats, with a last dimension of 2: real part, imaginary part
    qint8, quint16, ...     the integers they wrap
    string                  bytes: n + 1 little-endian int64 offsets, then the strings' bytes end to end

The manifest holds the dtype and shape that were saved; the shard holds the stored ones.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from anabranch.core import dtypes
from anabranch.io import safetensors_file

Array = npt.NDArray[Any]

_OFFSET: Final = np.dtype("<i8")


class DecodeError(ValueError):
    """Stored bytes that are not what the encoding makes. The message says why, without naming file or tensor."""


@dataclasses.dataclass(frozen=True)
class Storage:
    """How a tensor of some dtype and shape is stored."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The stored size."""
        return math.prod(self.shape) * self.dtype.itemsize


def logical_dtype(array: Array) -> dtypes.DType:
    """The dtype under which `array` is saved.

    Raises:
      TypeError: the array's dtype is none of a tensor, or it holds objects other than `bytes` and `str`.
    """
    dtype = dtypes.as_dtype(array.dtype)
    if dtype == dtypes.string and array.dtype.kind == "O":
        for item in array.flat:
            if not isinstance(item, (bytes, str)):
                raise TypeError(f"expected strings, got an object of type {type(item).__name__}")
    return dtype


def storage_of(dtype: dtypes.DType, shape: tuple[int, ...]) -> Storage | None:
    """How a tensor of this dtype and shape is stored; None for strings, whose size their shape does not tell."""
    if dtype == dtypes.string:
        return None
    if dtype.is_complex:
        return Storage(np.dtype(dtype.real_dtype.as_numpy_dtype), (*shape, 2))
    return Storage(_unwrapped(np.dtype(dtype.as_numpy_dtype)), shape)


def storage_of_array(array: Array) -> Storage:
    """How `array` is stored."""
    storage = storage_of(dtypes.as_dtype(array.dtype), array.shape)
    if storage is None:
        length = sum(len(_as_bytes(item)) for item in array.flat)
        storage = Storage(np.dtype(np.uint8), ((array.size + 1) * _OFFSET.itemsize + length,))
    return storage


def encode(array: Array) -> memoryview:
    """The bytes of `array` as they are stored; a view of it where its layout allows."""
    if dtypes.as_dtype(array.dtype) == dtypes.string:
        return memoryview(_encode_strings(array))
    little_endian = array.dtype.newbyteorder("<")
    contiguous = np.ascontiguousarray(array, little_endian)
    return contiguous.reshape(-1).view(np.uint8).data


def decode(data: memoryview, dtype: dtypes.DType, shape: tuple[int, ...]) -> Array:
    """The array that `encode` stored; read-only, and a view of `data` unless it holds strings.

    Raises:
      DecodeError: `data` is not the encoding of such an array.
    """
    if dtype == dtypes.string:
        return _decode_strings(data, shape)
    try:
        array = np.frombuffer(data, np.dtype(dtype.as_numpy_dtype)).reshape(shape)
    except ValueError as error:
        raise DecodeError(f"{len(data)} bytes are no {dtype.name} of shape {list(shape)}: {error}") from error
    array.flags.writeable = False
    return array


def is_storable(dtype: dtypes.DType) -> bool:
    """Whether tensors of this dtype can be saved."""
    if not dtype.is_numpy_compatible:
        return False
    storage = storage_of(dtype, ())
    return storage is None or safetensors_file.is_storable(storage.dtype)


def _unwrapped(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The element of a one-field record, which is what quantised types are in NumPy; any other dtype itself."""
    if dtype.fields is None:
        return dtype
    ((inner, *_),) = dtype.fields.values()
    return np.dtype(inner)


def _as_bytes(item: str | bytes) -> bytes:
    return item.encode() if isinstance(item, str) else bytes(item)


def _encode_strings(array: Array) -> bytes:
    items = [_as_bytes(item) for item in array.flat]
    offsets = np.zeros(len(items) + 1, _OFFSET)
    np.cumsum([len(item) for item in items], out=offsets[1:])
    return b"".join((offsets.tobytes(), *items))


def _decode_strings(data: memoryview, shape: tuple[int, ...]) -> Array:
    count = math.prod(shape)
    table_end = (count + 1) * _OFFSET.itemsize
    if table_end > len(data):
        raise DecodeError(f"{len(data)} bytes cannot hold the offsets of {count} strings")
    offsets = np.frombuffer(data[:table_end], _OFFSET)
    if offsets[0] != 0 or offsets[-1] != len(data) - table_end or (np.diff(offsets) < 0).any():
        raise DecodeError(f"the offsets of its {count} strings do not fit its {len(data) - table_end} bytes of text")
    text = bytes(data[table_end:])
    bounds = offsets.tolist()
    strings = np.empty(count, object)
    strings[:] = [text[begin:end] for begin, end in itertools.pairwise(bounds)]
    strings.flags.writeable = False
    return strings.reshape(shape)
