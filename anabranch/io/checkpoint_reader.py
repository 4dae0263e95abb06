"""Reads checkpoints: memory-mapped, lazily, and never two versions at once.

A reader maps all shards of the manifest it read before it uses one of them. If a shard is gone by then, a save has put
a newer manifest in place in the meantime, and the reader begins again with that. Once mapped, shards may be removed:
the system keeps them until the reader is gone.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from anabranch import errors
from anabranch.io import checkpoint_encoding, checkpoint_manifest, crc32c, os_errors, safetensors_file, tensor_reader
from anabranch.io.checkpoint_manifest import Entry, Manifest, Piece

Array = npt.NDArray[Any]

_MAX_OVERTAKEN: Final = 1000  # So many saves in a row may overtake a reader that is opening its shards.


class CheckpointReader(tensor_reader.TensorReader):
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
        super().__init__(prefix, verify_checksums)
        self._manifest, self._maps = _open_consistently(self._prefix)
        self._headers: dict[int, dict[str, safetensors_file.StoredTensor]] = {}
        self._verified: set[tuple[int, str]] = set()

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

    def close(self) -> None:
        """Closes the files; arrays that are views of them stay valid. Reading afterwards is an error."""
        self._maps = ()

    @property
    def _tensors(self) -> Mapping[str, Entry]:
        return self._manifest.tensors

    def _forget_verified(self) -> None:
        self._verified.clear()

    def _decoded(self, name: str, entry: Entry, piece: Piece, verify: bool) -> Array:
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
            except safetensors_file.SafetensorsError as error:
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
