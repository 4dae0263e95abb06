"""What reading a checkpoint has in common, whatever its format: tensors by name, whole or in slices."""

from __future__ import annotations

import abc
import math
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from anabranch import errors
from anabranch.core import dtypes
from anabranch.core.quantised_arrays import as_integers
from anabranch.io import slices
from anabranch.io.checkpoint_manifest import Entry, Piece

Array = npt.NDArray[Any]

_MAX_DAMAGES_SHOWN: Final = 10


class TensorReader(abc.ABC):
    """The tensors of a checkpoint. The pieces of a partitioned variable appear as one, under its full name.

    A context manager; several threads may read at once.
    """

    #: whether what is read can be checked
    has_checksums = True

    def __init__(self, prefix: str | os.PathLike[str], verify_checksums: bool) -> None:
        self._prefix = os.fsdecode(prefix)
        self._verify_checksums = verify_checksums

    @property
    @abc.abstractmethod
    def _tensors(self) -> Mapping[str, Entry]:
        """What there is, by name."""

    @abc.abstractmethod
    def _decoded(self, name: str, entry: Entry, piece: Piece, verify: bool) -> Array:
        """A stored piece: read-only, a view of the file where it can be.

        With `verify`, its checksum is checked when it is first read. Raises DataLossError.
        """

    @abc.abstractmethod
    def _forget_verified(self) -> None:
        """Lets `_decoded` check all checksums anew."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the files; arrays that are views of them stay valid. Reading afterwards is an error."""

    @property
    def step(self) -> int | None:
        """The global step, if the checkpoint knows it: that of the scalar `global_step`, if there is one."""
        entry = self._tensors.get("global_step")
        return int(self.read_tensor("global_step")) if entry and entry.dtype.is_integer and not entry.shape else None

    @property
    def prefix(self) -> str:
        """The checkpoint's prefix."""
        return self._prefix

    def names(self) -> list[str]:
        """The names of all tensors, sorted."""
        return sorted(self._tensors)

    def has_tensor(self, tensor_str: str) -> bool:
        """Whether there is a tensor of that name."""
        return tensor_str in self._tensors

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """The shapes of all tensors."""
        return {name: list(entry.shape) for name, entry in self._tensors.items()}

    def get_variable_to_dtype_map(self) -> dict[str, dtypes.DType]:
        """The dtypes of all tensors."""
        return {name: entry.dtype for name, entry in self._tensors.items()}

    def debug_string(self) -> bytes:
        """A line with name, dtype and shape for each tensor."""
        lines = (f"{name} ({entry.dtype.name}) {list(entry.shape)}" for name, entry in sorted(self._tensors.items()))
        return "\n".join(lines).encode()

    def get_tensor(self, tensor_str: str) -> Any:
        """A tensor, whole: an array, or for a scalar what a session gives: NumPy's scalar, or bytes.

        Of quantised numbers it has the integers, as what a session gives.

        Args:
          tensor_str: its name.

        Raises:
          OpError: as `read_tensor`.
        """
        return as_integers(self.read_tensor(tensor_str))[()]

    def read_tensor(self, tensor_str: str, *, copy: bool = True) -> Array:
        """A tensor, whole, as an array also where it is a scalar.

        Args:
          tensor_str: its name.
          copy: False for an array that is read-only and, where it can be, a view of the mapped file. Do not give such
            memory to anything that may write to it.

        Raises:
          NotFoundError: there is no such tensor.
          DataLossError: what is stored is damaged; the message names the file and the tensor.
          InvalidArgumentError: pieces of a partitioned variable are missing.
        """
        entry = self._entry(tensor_str)
        return self._read(tensor_str, entry, slices.SliceInfo.from_slices(tensor_str, entry.shape, ()), copy)

    def get_slice(self, name: str, part: str | slices.SliceInfo | Sequence[slice], *, copy: bool = True) -> Array:
        """A box of a tensor; only the parts of the file that it needs are read once they were verified.

        Args:
          name: of the whole tensor.
          part: the box: as Restore ops write it (`"10 4 0,5:-"`, or `""` for the whole), as a `SliceInfo`, or as
            Python slices.
          copy: as for `read_tensor`.

        Raises:
          InvalidArgumentError: the box is not one of this tensor.
          OpError: as `read_tensor`.
        """
        entry = self._entry(name)
        if isinstance(part, str) and part:
            box = slices.SliceInfo.from_spec(name, part)
        elif isinstance(part, slices.SliceInfo):
            box = part
        else:
            box = slices.SliceInfo.from_slices(name, entry.shape, part or ())
        if box.full_shape != entry.shape:
            raise errors.InvalidArgumentError(
                None,
                None,
                f"Tensor {name!r} of checkpoint {self._prefix!r} has shape {list(entry.shape)}, but the slice "
                f"{box.spec!r} is one of shape {list(box.full_shape)}.",
            )
        return self._read(name, entry, box, copy)

    def verify(self) -> None:
        """Reads everything and checks all checksums.

        Raises:
          DataLossError: something is damaged; the message names the first few files and tensors.
        """
        damages = []
        self._forget_verified()
        for name, entry in sorted(self._tensors.items()):
            for piece in entry.pieces:
                try:
                    self._decoded(name, entry, piece, verify=True)
                except errors.DataLossError as error:
                    damages.append(error.message)
        if damages:
            more = len(damages) - _MAX_DAMAGES_SHOWN
            shown = damages[:_MAX_DAMAGES_SHOWN] + ([f"... and {more} more"] if more > 0 else [])
            raise errors.DataLossError(None, None, "\n".join(shown))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _entry(self, name: str) -> Entry:
        entry = self._tensors.get(name)
        if entry is None:
            raise errors.NotFoundError(
                None,
                None,
                f"Tensor {name!r} not found in checkpoint {self._prefix!r}, which has {len(self._tensors)} "
                "tensors: see names().",
            )
        return entry

    def _read(self, name: str, entry: Entry, box: slices.SliceInfo, copy: bool) -> Array:
        for piece in entry.pieces:
            stored = entry.box(name, piece)
            if box == stored or box.intersection(stored) == box:
                array = self._decoded(name, entry, piece, self._verify_checksums)[box.relative_to(stored)]
                return array.copy() if copy else array
        return self._assemble(name, entry, box)

    def _assemble(self, name: str, entry: Entry, box: slices.SliceInfo) -> Array:
        """A box that several pieces make up. They are known not to overlap, and are there before memory is taken."""
        parts = []
        for piece in entry.pieces:
            stored = entry.box(name, piece)
            common = box.intersection(stored)
            if common is not None:
                parts.append((common, stored, self._decoded(name, entry, piece, self._verify_checksums)))
        filled = sum(math.prod(common.var_shape) for common, _, _ in parts)
        wanted = math.prod(box.var_shape)
        if filled != wanted:
            raise errors.InvalidArgumentError(
                None,
                None,
                f"Checkpoint {self._prefix!r} holds only {filled} of the {wanted} elements of slice {box.spec!r} "
                f"of tensor {name!r}: pieces of the partitioned variable were not saved.",
            )
        target = np.empty(box.var_shape, entry.dtype.as_numpy_dtype)
        for common, stored, source in parts:
            target[common.relative_to(box)] = source[common.relative_to(stored)]
        return target
