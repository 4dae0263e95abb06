"""Checkpoints in the format that TensorFlow had before 2017 (V1): one table that holds the tensors themselves.

The entry under the empty key lists the tensors: name, shape, dtype, and the boxes in which they were saved. Each box
has an entry of its own, under the key that it has in a bundle's index too; its value is a message with the numbers one
by one, as TensorProto lists them. A checkpoint that several tasks saved is several such files.
"""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from anabranch import errors
from anabranch.core import dtypes
from anabranch.io import durable, os_errors, remote, slices, sstable, tensor_reader
from anabranch.io.checkpoint_manifest import Entry, Piece
from anabranch.io.message_fields import bytes_field, number_field
from anabranch.io.slices import SliceInfo
from anabranch.io.tensor_bundle import (
    bytes_of,
    message_fields,
    number_of,
    parse_extent,
    parse_shape,
    resolve_slice,
    slice_key,
)
from anabranch.proto.graph_pb2 import TensorProto
from anabranch.proto.tensors import dtype_to_proto, make_ndarray, shape_to_proto

Array = npt.NDArray[Any]

_WHOLE: Final = -1
#: dtype -> the field of TensorProto that lists its numbers
_FIELDS: Final[Mapping[dtypes.DType, str]] = {
    dtypes.float32: "float_val",
    dtypes.float64: "double_val",
    **dict.fromkeys((dtypes.int32, dtypes.int16, dtypes.int8, dtypes.uint8), "int_val"),
    dtypes.int64: "int64_val",
    dtypes.bool: "bool_val",
    dtypes.string: "string_val",
    dtypes.complex64: "scomplex_val",
    dtypes.complex128: "dcomplex_val",
    dtypes.float16: "half_val",
}

#: per dimension: start and length, -1 for a whole dimension
_Box = tuple[tuple[int, int], ...]


class OlderCheckpointReader(tensor_reader.TensorReader):
    """A checkpoint of that format, read as one of ours.

    Args:
      prefix: the file, or a pattern that several files match, as `Restore` takes it.
      verify_checksums: accepted; the checksums of a table are always checked.

    Raises:
      NotFoundError: there is no such file.
      DataLossError: a file is damaged.
    """

    def __init__(self, prefix: str | os.PathLike[str], *, verify_checksums: bool = True) -> None:
        super().__init__(prefix, verify_checksums)
        remote.refuse(self._prefix, "checkpoints")
        self._data: dict[str, bytes] = {}
        self._entries: dict[str, Entry] = {}
        files = [self._prefix] if os.path.isfile(self._prefix) else sorted(glob.glob(self._prefix))
        if not files:
            raise errors.NotFoundError(
                None, None, f"Unsuccessful TensorSliceReader constructor: Failed to find any files matching {prefix}"
            )
        for path in files:
            try:
                self._read_file(path)
            except (sstable.SSTableError, UnicodeDecodeError) as error:
                raise errors.DataLossError(
                    None, None, f"Checkpoint file {path!r} is damaged: {error}. Restore another checkpoint."
                ) from error

    def close(self) -> None:
        """Gives the file's contents up."""
        self._data = {}

    @property
    def _tensors(self) -> Mapping[str, Entry]:
        return self._entries

    def _forget_verified(self) -> None:
        """There is nothing to forget: every block was checked when it was read."""

    # ---- the tables
    def _read_file(self, path: str) -> None:
        with os_errors.translated("read", path), open(path, "rb") as file:
            table = sstable.read_table(file.read())
        if b"" not in table:
            raise sstable.SSTableError("it has no list of tensors")
        for number, meta in message_fields(table[b""]):
            for inner, tensor in message_fields(bytes_of(meta)) if number == 1 else ():
                if inner == 1:
                    self._add(*_described(bytes_of(tensor)), table)

    def _add(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: dtypes.DType,
        boxes: Sequence[_Box],
        table: Mapping[bytes, bytes],
    ) -> None:
        known = self._entries.get(name, Entry(dtype, shape, ()))
        if (known.dtype, known.shape) != (dtype, shape):
            raise sstable.SSTableError(f"tensor {name!r} has several dtypes or shapes")
        pieces = list(known.pieces)
        for box in boxes:
            offsets, lengths = resolve_slice(name, box, shape)
            key = slice_key(name, box)
            if key not in table:
                raise sstable.SSTableError(f"a slice of tensor {name!r} is missing")
            label = f"{name} {SliceInfo(name, shape, offsets, lengths).spec}"
            self._data[label] = table[key]
            pieces.append(Piece(0, label, offsets, lengths, 0))
        entry = Entry(dtype, shape, tuple(pieces))
        overlap = slices.find_overlap([entry.box(name, piece) for piece in pieces])
        if overlap is not None:
            raise sstable.SSTableError(f"slices {overlap[0].spec!r} and {overlap[1].spec!r} of {name!r} overlap")
        self._entries[name] = entry

    def _decoded(self, name: str, entry: Entry, piece: Piece, verify: bool) -> Array:
        try:
            return _numbers(self._data[piece.key], name, entry.dtype, piece.shape)
        except (sstable.SSTableError, ValueError) as error:
            raise errors.DataLossError(
                None, None, f"Checkpoint file {self._prefix!r} is damaged: tensor {name!r}: {error}"
            ) from error


def _described(data: bytes) -> tuple[str, tuple[int, ...], dtypes.DType, list[_Box]]:
    """A SavedSliceMeta: name, shape, dtype, and the boxes that the tensor was saved in."""
    name, shape, dtype, boxes = "", tuple[int, ...](), 0, []
    for number, content in message_fields(data):
        if number == 1:
            name = bytes_of(content).decode()
        elif number == 2:
            shape = parse_shape(bytes_of(content))
        elif number == 3:
            dtype = number_of(content)
        elif number == 4:
            boxes.append(_box(bytes_of(content)))
    try:
        return name, shape, dtypes.as_dtype(dtype).base_dtype, boxes
    except TypeError as error:
        raise sstable.SSTableError(f"tensor {name!r} has dtype number {dtype}") from error


def _box(data: bytes) -> _Box:
    return tuple(parse_extent(bytes_of(extent)) for number, extent in message_fields(data) if number == 1)


def _numbers(data: bytes, name: str, dtype: dtypes.DType, shape: tuple[int, ...]) -> Array:
    """The numbers of a box: a SavedTensorSlices message with a SavedSlice, which names the tensor."""
    saved = dict(message_fields(data)).get(2)
    fields = dict(message_fields(bytes_of(saved))) if saved is not None else {}
    if bytes_of(fields.get(1, b"")).decode() != name or 3 not in fields:
        raise sstable.SSTableError("its entry holds another tensor")
    try:
        proto = TensorProto.FromString(bytes_of(fields[3]))
    except DecodeError as error:
        raise sstable.SSTableError(f"its numbers cannot be read: {error}") from error
    field = _FIELDS.get(dtype)
    if field is None:
        raise errors.UnimplementedError(None, None, f"Tensor {name!r} has dtype {dtype.name}: skip it.")
    per_element = 2 if dtype.is_complex else 1
    if len(getattr(proto, field)) != per_element * math.prod(map(int, shape)):
        raise sstable.SSTableError(f"it holds {len(getattr(proto, field))} numbers, which are not those of {shape}")
    proto.dtype = dtype_to_proto(dtype)
    proto.tensor_shape.CopyFrom(shape_to_proto(shape))
    return make_ndarray(proto)


# ---------------------------------------------------------------------- writing
def write_older_checkpoint(path: str, tensors: Sequence[tuple[SliceInfo, Array]]) -> None:
    """Writes one file of that format, whole or not at all; one of that name is replaced.

    Args:
      tensors: boxes, and the values in them.

    Raises:
      InvalidArgumentError: a box is given twice, boxes of one tensor differ in the tensor's shape or dtype, or the
        dtype is none that the format has.
    """
    remote.refuse(path, "checkpoints")
    table: dict[bytes, bytes] = {}
    described: dict[str, tuple[tuple[int, ...], dtypes.DType, list[bytes]]] = {}
    for box, values in tensors:
        name, dtype = box.full_name, dtypes.as_dtype(values.dtype)
        if dtype not in _FIELDS:
            problem = f"tensor {name!r} has dtype {dtype.name}, which this format cannot hold; use SaveV2"
            raise errors.InvalidArgumentError(None, None, problem)
        shape, stated, boxes = described.setdefault(name, (box.full_shape, dtype, []))
        extents = _extents(box)
        key = slice_key(name, extents)
        if (shape, stated) != (box.full_shape, dtype) or key in table:
            problem = f"tensor {name!r} is given twice to the checkpoint {path!r}, or with several shapes or dtypes"
            raise errors.InvalidArgumentError(None, None, problem)
        message = _slice_message(extents)
        boxes.append(message)
        saved = bytes_field(1, name.encode()) + bytes_field(2, message) + bytes_field(3, _listed(values, dtype))
        table[key] = bytes_field(2, saved)
    metas = b"".join(bytes_field(1, _meta(name, *described[name])) for name in sorted(described))
    table[b""] = bytes_field(1, metas + bytes_field(2, number_field(1, 1)))
    with os_errors.translated("write", path):
        durable.replace_file(path, sstable.write_table(table))


def _extents(box: SliceInfo) -> _Box:
    pairs = zip(box.var_offset, box.var_shape, box.full_shape, strict=True)
    return tuple((0, _WHOLE) if (start, length) == (0, full) else (start, length) for start, length, full in pairs)


def _meta(name: str, shape: tuple[int, ...], dtype: dtypes.DType, boxes: Sequence[bytes]) -> bytes:
    stated = bytes_field(1, name.encode()) + bytes_field(2, shape_to_proto(shape).SerializeToString())
    stated += number_field(3, dtype.as_datatype_enum)
    return stated + b"".join(bytes_field(4, box) for box in boxes)


def _slice_message(box: _Box) -> bytes:
    extents = (
        b"" if length == _WHOLE else (number_field(1, start) if start else b"") + number_field(2, length)
        for start, length in box
    )
    return b"".join(bytes_field(1, extent) for extent in extents)


def _listed(values: Array, dtype: dtypes.DType) -> bytes:
    flat: Array = np.ravel(values)
    if dtype is dtypes.float16:
        flat = flat.view(np.uint16)
    elif dtype.is_complex:
        flat = flat.view(flat.real.dtype)
    proto = TensorProto()
    getattr(proto, _FIELDS[dtype]).extend(flat.tolist())
    return proto.SerializeToString()
