"""Reads a `.safetensors` file that stands alone, as other frameworks write them, as if it were a checkpoint.

The file's path is the prefix. It holds neither a step, nor checksums, nor pieces of partitioned variables; a tensor is
read under the name that the file gives it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from anabranch import errors
from anabranch.core import dtypes
from anabranch.io import checkpoint_encoding, durable, os_errors, safetensors_file, tensor_reader
from anabranch.io.checkpoint_manifest import Entry, Piece

Array = npt.NDArray[Any]

SUFFIX: Final = ".safetensors"


def is_plain_file(path: str | os.PathLike[str]) -> bool:
    """Whether `path` names a safetensors file that is there."""
    name = os.fspath(path)
    return name.endswith(SUFFIX) and os.path.isfile(name)


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
