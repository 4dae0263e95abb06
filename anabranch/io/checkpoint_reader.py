"""Reads checkpoints: memory-mapped, lazily, and never two versions at once.

A reader maps all shards of the manifest it read before it uses one of them. If a shard is gone by then, a save has put
a newer manifest in place in the meantime, and the reader begins again with that. Once mapped, shards may be removed:
the system keeps them until the reader is gone.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from anabranch import errors
from anabranch.core import dtypes
from anabranch.io import checkpoint_encoding, checkpoint_manifest, crc32c, os_errors, safetensors_file, slices
from anabranch.io.checkpoint_manifest import Entry, Manifest, Piece

Array = npt.NDArray[Any]

_MAX_OVERTAKEN: Final = 1000  # So many saves in a row may overtake a reader that is opening its shards.
_MAX_DAMAGES_TOLD: Final = 10


class CheckpointReader:
    """The checkpoint `prefix` as it was when the reader was made, also if it is overwritten or removed afterwards.

    The tensors of a partitioned variable appear as one, under its full name. Each stored tensor's checksum is checked
    when it is first read. A context manager; several threads may read at once.

    Args:
      prefix: as it was saved, such as `"logs/model.ckpt-100"`.
      verify_checksums: False to read without checking what is read against its checksum.

    Raises:
      NotFoundError: there is no such checkpoint.
      DataLossError: its manifest is damaged, or a shard is missing or has another size.
      InvalidArgumentError: its manifest leads out of its directory, or has a newer format.
    """

    def __init__(self, prefix: str | os.PathLike[str], *, verify_checksums: bool = True) -> None:
        self._prefix = os.fspath(prefix)
        self._verify_checksums = verify_checksums
        self._manifest, self._maps = _open_consistently(self._prefix)
        self._headers: dict[int, dict[str, safetensors_file.StoredTensor]] = {}
        self._verified: set[tuple[int, str]] = set()

    @property
    def prefix(self) -> str:
        """The checkpoint's prefix."""
        return self._prefix

    @property
    def step(self) -> int | None:
        """The global step, if the checkpoint knows it."""
        return self._manifest.step

    @property
    def wall_time(self) -> float:
        """When it was saved, in seconds since 1970."""
        return self._manifest.wall_time

    @property
    def writer(self) -> str:
        """Name and version of the program that saved it."""
        return self._manifest.writer

    def names(self) -> list[str]:
        """The names of all tensors, sorted."""
        return sorted(self._manifest.tensors)

    def has_tensor(self, tensor_str: str) -> bool:
        """Whether there is a tensor of that name."""
        return tensor_str in self._manifest.tensors

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """The shapes of all tensors."""
        return {name: list(entry.shape) for name, entry in self._manifest.tensors.items()}

    def get_variable_to_dtype_map(self) -> dict[str, dtypes.DType]:
        """The dtypes of all tensors."""
        return {name: entry.dtype for name, entry in self._manifest.tensors.items()}

    def debug_string(self) -> bytes:
        """A line with name, dtype and shape for each tensor."""
        lines = (
            f"{name} ({entry.dtype.name}) {list(entry.shape)}" for name, entry in sorted(self._manifest.tensors.items())
        )
        return "\n".join(lines).encode()

    def get_tensor(self, tensor_str: str, *, copy: bool = True) -> Array:
        """A tensor, whole.

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
          copy: as for `get_tensor`.

        Raises:
          InvalidArgumentError: the box is not one of this tensor.
          OpError: as `get_tensor`.
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
        for name, entry in sorted(self._manifest.tensors.items()):
            for piece in entry.pieces:
                try:
                    self._verified.discard((piece.shard, piece.key))
                    self._decoded(name, entry, piece, verify=True)
                except errors.DataLossError as error:
                    damages.append(error.message)
        if damages:
            more = len(damages) - _MAX_DAMAGES_TOLD
            told = damages[:_MAX_DAMAGES_TOLD] + ([f"... and {more} more"] if more > 0 else [])
            raise errors.DataLossError(None, None, "\n".join(told))

    def close(self) -> None:
        """Lets the files go; arrays that are views of them stay valid. Reading afterwards is an error."""
        self._maps = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _entry(self, name: str) -> Entry:
        entry = self._manifest.tensors.get(name)
        if entry is None:
            raise errors.NotFoundError(
                None,
                None,
                f"Tensor {name!r} not found in checkpoint {self._prefix!r}, which has {len(self._manifest.tensors)} "
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
        """A box that several pieces make up."""
        target = np.empty(box.var_shape, entry.dtype.as_numpy_dtype)
        filled = 0
        for piece in entry.pieces:
            stored = entry.box(name, piece)
            common = box.intersection(stored)
            if common is not None:
                source = self._decoded(name, entry, piece, self._verify_checksums)
                target[common.relative_to(box)] = source[common.relative_to(stored)]
                filled += int(np.prod(common.var_shape))
        if filled != target.size:
            raise errors.InvalidArgumentError(
                None,
                None,
                f"Checkpoint {self._prefix!r} holds only {filled} of the {target.size} elements of slice {box.spec!r} "
                f"of tensor {name!r}: pieces of the partitioned variable were not saved.",
            )
        return target

    def _decoded(self, name: str, entry: Entry, piece: Piece, verify: bool) -> Array:
        """A stored piece: read-only, a view of the file where it can be."""
        data = self._stored_bytes(name, entry, piece)
        identity = (piece.shard, piece.key)
        if verify and identity not in self._verified:
            if crc32c.crc32c(data) != piece.crc:
                raise self._damaged(name, piece, "its checksum does not match")
            self._verified.add(identity)
        try:
            return checkpoint_encoding.decode(data, entry.dtype, piece.shape)
        except checkpoint_encoding.DecodeError as error:
            raise self._damaged(name, piece, str(error)) from error

    def _stored_bytes(self, name: str, entry: Entry, piece: Piece) -> memoryview:
        stored = self._header(name, piece).get(piece.key)
        if stored is None:
            raise self._damaged(name, piece, f"the file has no tensor {piece.key!r}")
        expected = checkpoint_encoding.storage_of(entry.dtype, piece.shape)
        if expected is None:
            expected = checkpoint_encoding.Storage(np.dtype(np.uint8), (stored.end - stored.begin,))
        if (stored.dtype, stored.shape) != (expected.dtype, expected.shape):
            raise self._damaged(
                name,
                piece,
                f"the file holds {stored.dtype.name} of shape {list(stored.shape)}, the manifest says "
                f"{expected.dtype.name} of shape {list(expected.shape)}",
            )
        return self._maps[piece.shard][stored.begin : stored.end]

    def _header(self, name: str, piece: Piece) -> dict[str, safetensors_file.StoredTensor]:
        if not self._maps:
            raise errors.FailedPreconditionError(
                None, None, f"The reader of checkpoint {self._prefix!r} is closed: make a new one."
            )
        header = self._headers.get(piece.shard)
        if header is None:
            try:
                header = safetensors_file.parse_header(self._maps[piece.shard])
            except safetensors_file.FormatError as error:
                raise self._damaged(name, piece, str(error)) from error
            self._headers[piece.shard] = header
        return header

    def _damaged(self, name: str, piece: Piece, reason: str) -> errors.DataLossError:
        path = self._prefix + self._manifest.shards[piece.shard].suffix
        return errors.DataLossError(
            None,
            None,
            f"Tensor {name!r} in checkpoint shard {path!r} is damaged: {reason}. Restore another checkpoint.",
        )


def _open_consistently(prefix: str) -> tuple[Manifest, tuple[memoryview, ...]]:
    """A manifest and all its shards, mapped."""
    missing_before = ""
    for _ in range(_MAX_OVERTAKEN):
        manifest = checkpoint_manifest.load(prefix)
        try:
            return manifest, tuple(_map(prefix, shard) for shard in manifest.shards)
        except FileNotFoundError as error:
            if manifest.generation == missing_before:  # No newer save took it away: it is lost.
                raise errors.DataLossError(
                    None,
                    None,
                    f"Checkpoint shard {error.filename!r} is missing: its manifest is there, but not all of its files. "
                    "Copy the files of a checkpoint together, or restore another one.",
                ) from error
            missing_before = manifest.generation
    raise errors.UnavailableError(
        None, None, f"Checkpoint {prefix!r} was overwritten {_MAX_OVERTAKEN} times while it was opened: try again."
    )


def _map(prefix: str, shard: checkpoint_manifest.Shard) -> memoryview:
    descriptor = checkpoint_manifest.open_shard(prefix, shard)
    try:
        if shard.nbytes == 0:  # Which cannot be mapped; the missing header is reported like any damage.
            return memoryview(b"")
        with os_errors.translated("map", prefix + shard.suffix):
            return memoryview(mmap.mmap(descriptor, shard.nbytes, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)
