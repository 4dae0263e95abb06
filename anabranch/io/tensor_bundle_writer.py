"""Writes the checkpoints that TensorFlow reads (format V2, a "tensor bundle"): one index, one data file.

`tensor_bundle` says what the files hold. The data file and then the index are written aside, fsynced and renamed, so
that a bundle is there whole or not at all. The name of a data file says how many there are. So a bundle that replaces
another has its data in a file of another name: the rename of the index changes from one to the other, and what the
former one left goes afterwards. `docs/decisions/0002-checkpoint-format.md` says what savers write instead.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from anabranch import errors
from anabranch.core import dtypes
from anabranch.core.compat import as_bytes
from anabranch.io import (
    checkpoint_encoding,
    crc32c,
    durable,
    os_errors,
    remote,
    safetensors_file,
    sstable,
    tensor_bundle,
)
from anabranch.io.message_fields import bytes_field, number_field

Array = npt.NDArray[Any]

_WRITE_PIECE: Final = 1 << 22  # Bytes that are in the processor's cache when they are written after their checksum.
_UINT32: Final = struct.Struct("<I")
#: the rest of a BundleHeaderProto, after the number of data files: little-endian (which is 0, and left out), version
#: with producer 1
_HEADER: Final = b"\x1a\x02\x08\x01"


def write_bundle(
    prefix: str | os.PathLike[str], tensors: Iterable[tuple[str, npt.ArrayLike]], *, replace: bool = False
) -> None:
    """Saves tensors as a checkpoint of TensorFlow's, durably.

    Args:
      prefix: directory and name, such as `"export/variables/variables"`. The directory must be there.
      tensors: name and value, one after the other; only one has to be in memory at a time. Any dtype but resource and
        variant; strings are arrays of objects, `bytes` or `str`.
      replace: whether a checkpoint of TensorFlow's that is there already gives way, as a whole and at once.

    Raises:
      AlreadyExistsError: there is such a checkpoint, and it is not to be replaced.
      InvalidArgumentError: a name or a dtype that cannot be saved, or two tensors of one name.
      NotFoundError: the directory does not exist.
      PermissionDeniedError: the user may not write there.
      ResourceExhaustedError: the disk is full.
    """
    prefix = os.fsdecode(prefix)
    remote.refuse(prefix, "checkpoints")
    if os.path.lexists(f"{prefix}.index") and not replace:
        raise errors.AlreadyExistsError(
            None, None, f"{prefix + '.index'!r} exists: TensorFlow's checkpoints cannot be replaced; take another name."
        )
    count = _count_of_files(prefix)
    data_path = f"{prefix}.data-00000-of-{count:05d}"
    with os_errors.translated("write", data_path), durable.replacing(data_path) as descriptor:
        entries = _write_data(prefix, descriptor, tensors)
    for number in range(1, count):
        durable.replace_file(f"{prefix}.data-{number:05d}-of-{count:05d}", b"")
    entries[b""] = _number(1, count) + _HEADER
    durable.replace_file(f"{prefix}.index", sstable.write_table(entries))
    for path in tensor_bundle.bundle_files(prefix)[1:]:
        if not path.endswith(f"-of-{count:05d}"):
            with os_errors.translated("remove", path), contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _count_of_files(prefix: str) -> int:
    """In how many data files to write: one, or two where a checkpoint that is there has one."""
    present = tensor_bundle.bundle_files(prefix)[1:] if os.path.lexists(f"{prefix}.index") else []
    return 2 if f"{prefix}.data-00000-of-00001" in present else 1


def remove_bundle(prefix: str | os.PathLike[str]) -> None:
    """Removes a checkpoint of TensorFlow's: first its index, so that it is gone at once. No error if it is absent.

    Raises:
      PermissionDeniedError: the user may not.
    """
    prefix = os.fsdecode(prefix)
    if not os.path.isdir(os.path.dirname(prefix) or "."):
        return
    for path in tensor_bundle.bundle_files(prefix):
        with os_errors.translated("remove", path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _write_data(prefix: str, descriptor: int, tensors: Iterable[tuple[str, npt.ArrayLike]]) -> dict[bytes, bytes]:
    """Writes the bytes of all tensors; returns the entries of the index."""
    entries = dict[bytes, bytes]()
    offset = 0
    for name, value in tensors:
        array = np.asarray(value)
        if not safetensors_file.is_valid_name(name) or "\0" in name:
            raise _invalid(prefix, name, "that is no name; give it another one")
        if name.encode() in entries:
            raise _invalid(prefix, name, "there is one of that name already; give it another one")
        try:
            dtype = checkpoint_encoding.logical_dtype(array)
        except TypeError as error:
            raise _invalid(prefix, name, f"{error}; leave it out") from error
        if not checkpoint_encoding.is_storable(dtype):
            raise _invalid(prefix, name, f"dtype {dtype.name} cannot be saved; leave it out")
        if dtype == dtypes.string:
            size, crc = _write_strings(descriptor, array)
        else:
            size, crc = _write_numbers(descriptor, array)
        entries[name.encode()] = _entry(dtype, array.shape, offset, size, crc)
        offset += size
    return entries


def _write_numbers(descriptor: int, array: Array) -> tuple[int, int]:
    """Writes an array; returns its size in bytes and its checksum."""
    data, crc = checkpoint_encoding.encode(array), 0
    for begin in range(0, len(data), _WRITE_PIECE):
        piece = data[begin : begin + _WRITE_PIECE]
        crc = crc32c.crc32c(piece, crc)
        durable.write_all(descriptor, piece)
    return len(data), crc


def _write_strings(descriptor: int, array: Array) -> tuple[int, int]:
    """Writes lengths, their checksum and the text; returns size and checksum.

    The checksum of the lengths, and with it the tensor's, is that of numbers of fixed size, not of the varints.
    """
    items = [as_bytes(item) for item in array.flat]
    fixed = b"".join(struct.pack("<I" if len(item) < 1 << 32 else "<Q", len(item)) for item in items)
    crc = crc32c.crc32c(fixed)
    rest = b"".join((_UINT32.pack(crc32c.mask(crc)), *items))
    lengths = b"".join(sstable.varint(len(item)) for item in items)
    durable.write_all(descriptor, lengths + rest)
    return len(lengths) + len(rest), crc32c.crc32c(rest, crc)


def _entry(dtype: dtypes.DType, shape: tuple[int, ...], offset: int, size: int, crc: int) -> bytes:
    """A BundleEntryProto of a tensor in the first data file."""
    dimensions = b"".join(bytes_field(2, _number(1, length)) for length in shape)
    checksum = sstable.varint(6 << 3 | 5) + _UINT32.pack(crc32c.mask(crc))
    place = _number(4, offset) + _number(5, size)
    return _number(1, dtype.as_datatype_enum) + bytes_field(2, dimensions) + place + checksum


def _number(field: int, value: int) -> bytes:
    """A field of a protocol buffer; zero is the default, which is left out."""
    return number_field(field, value) if value else b""


def _invalid(prefix: str, name: str, problem: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(None, None, f"Tensor {name!r} cannot be saved as part of {prefix!r}: {problem}.")
