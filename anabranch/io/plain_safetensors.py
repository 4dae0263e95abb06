"""Reads a `.safetensors` file that stands alone, as other frameworks write them, as if it were a checkpoint; writes it.

The file's path is the prefix. It holds neither a step, nor checksums, nor pieces of partitioned variables; a tensor is
read under the name that the file gives it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from anabranch import errors
from anabranch.core import dtypes
from anabranch.io import checkpoint_encoding, durable, os_errors, safetensors_file, tensor_reader
from anabranch.io.checkpoint_manifest import Entry, Piece

Array = npt.NDArray[Any]

SUFFIX: Final = ".safetensors"
_MAX_NAMES_SHOWN: Final = 10


def is_plain_file(path: str | os.PathLike[str]) -> bool:
    """Whether `path` names a safetensors file that is there."""
    name = os.fsdecode(path)
    return name.endswith(SUFFIX) and os.path.isfile(name)


def write_plain_file(
    path: str | os.PathLike[str], reader: tensor_reader.TensorReader, names: Sequence[str] | None = None
) -> None:
    """Writes tensors of a checkpoint as one safetensors file: durably, and whole or not at all.

    Args:
      path: the file.
      reader: of the checkpoint.
      names: of the tensors; None for all.

    Raises:
      AlreadyExistsError: there is such a file.
      InvalidArgumentError: some tensors have dtypes that such files do not know (strings, complex and quantised
        numbers); the message names the first few.
      OpError: the checkpoint is damaged, or the file cannot be written.
    """
    name = os.fsdecode(path)
    if os.path.lexists(name):
        raise errors.AlreadyExistsError(None, None, f"{name!r} exists: remove it, or take another name.")
    table = _plain_table(name, reader, reader.names() if names is None else names)
    try:
        header, _ = safetensors_file.make_header(table, {})
    except safetensors_file.SafetensorsError as error:
        raise errors.InvalidArgumentError(None, None, f"{name!r} cannot be written: {error}.") from error
    with os_errors.translated("write", name):
        with durable.replacing(name) as descriptor:
            durable.write_all(descriptor, header)
            for key, _, _ in table:
                durable.write_all(descriptor, checkpoint_encoding.encode(reader.read_tensor(key, copy=False)))
        durable.fsync_directory(os.path.dirname(name))


def _plain_table(
    path: str, reader: tensor_reader.TensorReader, names: Sequence[str]
) -> list[tuple[str, np.dtype[Any], tuple[int, ...]]]:
    """Name, dtype and shape of each tensor in the order of the file: the largest elements first."""
    types, shapes = reader.get_variable_to_dtype_map(), reader.get_variable_to_shape_map()
    kinds = {
        name: np.dtype(dtype.as_numpy_dtype) if dtype.is_numpy_compatible and dtype != dtypes.string else None
        for name, dtype in ((name, types[name]) for name in names)
    }
    strange = [name for name in names if (kind := kinds[name]) is None or not safetensors_file.is_storable(kind)]
    if strange:
        shown = ", ".join(f"{name!r} ({types[name].name})" for name in strange[:_MAX_NAMES_SHOWN])
        more = f" and {len(strange) - _MAX_NAMES_SHOWN} more" if len(strange) > _MAX_NAMES_SHOWN else ""
        raise errors.InvalidArgumentError(
            None,
            None,
            f"{path!r} cannot be written: a safetensors file has no such dtypes as those of {shown}{more}. Convert to "
            "another format.",
        )
    table = [(name, kind, tuple(shapes[name])) for name, kind in kinds.items() if kind is not None]
    return sorted(table, key=lambda row: (-row[1].itemsize, row[0]))


class PlainSafetensorsReader(tensor_reader.TensorReader):
    """The tensors of one safetensors file. It is mapped, and stays as it was if it is removed or replaced meanwhile.

    Args:
      path: the file.

    Raises:
      NotFoundError: there is no such file.
      InvalidArgumentError: it is not a regular file.
      DataLossError: it is no safetensors file, or damaged: every offset and size was checked against the rest.
    """

    has_checksums = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, verify_checksums=False)
        self._data: memoryview | None = _mapped(self._prefix)
        try:
            self._stored = safetensors_file.parse_header(self._data)
        except safetensors_file.SafetensorsError as error:
            raise errors.DataLossError(
                None,
                None,
                f"{self._prefix!r} is no safetensors file, or damaged: {error}. Copy or convert it again.",
            ) from error
        self._entries = {name: _entry(name, stored) for name, stored in self._stored.items()}

    @property
    def step(self) -> int | None:
        """None: such a file does not tell."""
        return None

    def close(self) -> None:
        """Closes the file; arrays that are views of it stay valid. Reading afterwards is an error."""
        self._data = None

    @property
    def _tensors(self) -> Mapping[str, Entry]:
        return self._entries

    def _forget_verified(self) -> None:
        """Nothing to forget: there are no checksums."""

    def _decoded(self, name: str, entry: Entry, piece: Piece, verify: bool) -> Array:
        if self._data is None:
            raise errors.FailedPreconditionError(
                None, None, f"The reader of {self._prefix!r} is closed: make a new one."
            )
        stored = self._stored[name]
        data = self._data[stored.begin : stored.end]
        if entry.dtype == dtypes.bool and (np.frombuffer(data, np.uint8) > 1).any():
            raise errors.DataLossError(
                None, None, f"Tensor {name!r} of {self._prefix!r} is damaged: a byte of it is neither 0 nor 1."
            )
        array = checkpoint_encoding.decode(data, entry.dtype, entry.shape)
        return array if array.flags.aligned else array.copy()


def _mapped(path: str) -> memoryview:
    with os_errors.translated("read", path):
        descriptor = durable.open_regular(path, os.O_RDONLY)
        try:
            if os.fstat(descriptor).st_size == 0:  # which cannot be mapped; the missing header is reported
                return memoryview(b"")
            return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
        finally:
            os.close(descriptor)


def _entry(name: str, stored: safetensors_file.StoredTensor) -> Entry:
    whole = Piece(0, name, (0,) * len(stored.shape), stored.shape, 0)
    return Entry(dtypes.as_dtype(stored.dtype), stored.shape, (whole,))
