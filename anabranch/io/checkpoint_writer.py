"""Saves checkpoints: shards written aside, fsynced, renamed; then the manifest, whose rename commits the save.

Why a crash leaves the old checkpoint or the new one, whole: a save writes only files that no manifest refers to yet,
makes them and their names durable, and then replaces the manifest in one rename. Shards of the manifest that was
replaced go only afterwards. Readers open all shards of the manifest they read before they use any (see
`checkpoint_reader`), and what is open outlives its name.

Why two saves of one prefix do not harm one another: each keeps its shards locked until its manifest is in place, and
nobody removes a shard that is locked or that the manifest of the moment refers to. The later commit wins, whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import os
import re
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from anabranch import errors
from anabranch.core import dtypes
from anabranch.io import (
    checkpoint_encoding,
    checkpoint_manifest,
    crc32c,
    durable,
    os_errors,
    remote,
    safetensors_file,
    slices,
)
from anabranch.io.checkpoint_manifest import Entry, Manifest, Piece, Shard

Array = npt.NDArray[Any]

DEFAULT_SHARD_BYTES: Final = 4 << 30
_TENSORS_PER_SHARD: Final = 100_000  # Keeps a shard's header well under what safetensors allows.
_WRITE_PIECE: Final = 8 << 20  # Checksummed and written while it is still in the cache.


def write_checkpoint(
    prefix: str | os.PathLike[str],
    tensors: Mapping[str, Array],
    *,
    slices: Mapping[str, slices.SliceInfo] | None = None,
    shard_bytes: int = DEFAULT_SHARD_BYTES,
    step: int | None = None,
) -> None:
    """Saves tensors as the checkpoint `prefix`, replacing one of that prefix atomically.

    Paper section 4.3. When this returns, the checkpoint is on the disk; if it raises, or the process or the machine
    dies on the way, a checkpoint that was there before is as it was.

    Args:
      prefix: directory and name, such as `"logs/model.ckpt-100"`. The directory is made if only its last level is
        missing.
      tensors: by name. Any dtype but resource and variant; strings are arrays of objects, `bytes` or `str`.
      slices: for the names that are pieces of partitioned variables, where they lie. Such a tensor's own name only has
        to be unique: it is found again under `full_name`, and pieces with one `full_name` make up one tensor.
      shard_bytes: a file is closed when it has reached this size, so that it exceeds it by less than one tensor.
      step: the global step. By default the number after the last `-` of `prefix`, if there is one.

    Raises:
      InvalidArgumentError: a name, a dtype or a slice that cannot be saved; pieces that overlap or disagree.
      NotFoundError: the directory above that of `prefix` does not exist.
      PermissionDeniedError: the user may not write there.
      ResourceExhaustedError: the disk is full.
    """
    prefix = os.fsdecode(prefix)
    checked = _check_tensors(prefix, tensors, slices or {})
    groups = _plan_shards(checked, shard_bytes)
    directory = os.path.dirname(prefix)
    make_directory(directory)
    durable.sweep(directory)
    with _Save(prefix) as save:
        for index, group in enumerate(groups):
            save.write_shard(index, len(groups), [checked[key] for key in group])
        save.commit(step)


def merge_checkpoints(
    prefixes: Sequence[str | os.PathLike[str]], destination: str | os.PathLike[str], *, delete_old: bool = True
) -> None:
    """Makes one checkpoint of several that were saved side by side, as the tasks of a sharded save do.

    No tensor is copied where the file system has hard links. The commit is as atomic as that of `write_checkpoint`.

    Args:
      prefixes: the parts. A partitioned variable may have its pieces in several of them.
      destination: the prefix of the whole.
      delete_old: whether to remove the parts once the whole is committed.

    Raises:
      NotFoundError: a part does not exist.
      InvalidArgumentError: two parts hold the same tensor, or pieces that overlap or disagree.
      DataLossError: a part's manifest is damaged.
      OpError: as `write_checkpoint`.
    """
    destination = os.fsdecode(destination)
    names = [os.fsdecode(prefix) for prefix in prefixes]
    parts = [(name, checkpoint_manifest.load(name)) for name in names]
    make_directory(os.path.dirname(destination))
    count = sum(len(manifest.shards) for _, manifest in parts)
    with _Save(destination) as save:
        for prefix, manifest in parts:
            save.adopt(prefix, manifest, count)
        save.commit(next((manifest.step for _, manifest in parts if manifest.step is not None), None))
    if delete_old:
        for prefix, _ in parts:
            if prefix != destination:
                remove_checkpoint(prefix)


def remove_checkpoint(prefix: str | os.PathLike[str]) -> None:
    """Removes a checkpoint: first its manifest, so that it is gone at once, then its shards. No error if it is absent.

    Shards of a save of that prefix that is going on stay.

    Raises:
      PermissionDeniedError: the user may not.
    """
    prefix = os.fsdecode(prefix)
    path = checkpoint_manifest.manifest_path(prefix)
    with os_errors.translated("remove", path), contextlib.suppress(FileNotFoundError):
        os.unlink(path)
        durable.fsync_directory(os.path.dirname(prefix))
    _remove_unreferenced(prefix)


@dataclasses.dataclass(frozen=True)
class _Item:
    """A tensor to be saved: the key in its shard, the name and shape of the whole, its place there."""

    key: str
    array: Array
    box: slices.SliceInfo

    dtype: dtypes.DType

    def entry(self, shard: int, crc: int) -> Entry:
        """What the manifest says of it."""
        piece = Piece(shard, self.key, self.box.var_offset, self.box.var_shape, crc)
        return Entry(self.dtype, self.box.full_shape, (piece,))

    @functools.cached_property
    def storage(self) -> checkpoint_encoding.Storage:
        return checkpoint_encoding.storage_of_array(self.array)


class _Save:
    """One save on its way. Leaving the block without a commit removes all it wrote."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._generation = uuid.uuid4().hex[:12]
        self._locked: list[int] = []
        self._shards: list[Shard] = []
        self._entries: dict[str, list[Entry]] = {}
        self._committed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if not self._committed:
            self._remove_own_shards()
        for descriptor in self._locked:
            durable.release(descriptor)
        _remove_unreferenced(self._prefix)

    def _remove_own_shards(self) -> None:
        with contextlib.suppress(errors.OpError):
            if checkpoint_manifest.load(self._prefix).generation == self._generation:
                return  # The rename happened; what failed was to make it durable.
        for shard in self._shards:
            with contextlib.suppress(OSError):
                os.unlink(self._prefix + shard.suffix)

    def write_shard(self, index: int, count: int, items: Sequence[_Item]) -> None:
        """Writes a shard, durably, under its final name, which nothing refers to yet."""
        suffix = checkpoint_manifest.shard_suffix(index, count, self._generation)
        with os_errors.translated("write", self._prefix + suffix):
            with durable.placing_locked(self._prefix + suffix) as descriptor:
                size = self._write_items(descriptor, items)
            self._locked.append(descriptor)
        self._shards.append(Shard(suffix, size))

    def _write_items(self, descriptor: int, items: Sequence[_Item]) -> int:
        """Returns the size of the file in bytes."""
        ordered = sorted(items, key=lambda item: (-item.storage.dtype.itemsize, item.key))
        metadata = {"format": checkpoint_manifest.FORMAT, "generation": self._generation}
        table = [(item.key, item.storage.dtype, item.storage.shape) for item in ordered]
        try:
            header, size = safetensors_file.make_header(table, metadata)
        except safetensors_file.SafetensorsError as error:
            raise _invalid(self._prefix, f"{error}: shorten the variables' names") from error
        durable.write_all(descriptor, header)
        for item in ordered:
            crc = 0
            data = checkpoint_encoding.encode(item.array)
            for begin in range(0, len(data), _WRITE_PIECE):
                crc = crc32c.crc32c(data[begin : begin + _WRITE_PIECE], crc)
                durable.write_all(descriptor, data[begin : begin + _WRITE_PIECE])
            self._entries.setdefault(item.box.full_name, []).append(item.entry(len(self._shards), crc))
        return size

    def adopt(self, prefix: str, manifest: Manifest, count: int) -> None:
        """Takes over the shards and tensors of another checkpoint."""
        first = len(self._shards)
        for shard in manifest.shards:
            suffix = checkpoint_manifest.shard_suffix(len(self._shards), count, self._generation)
            with os_errors.translated("link", self._prefix + suffix):
                os.close(checkpoint_manifest.open_shard(prefix, shard))
                source = checkpoint_manifest.locate_shard(prefix, shard)
                self._locked.append(_link_locked(source, self._prefix + suffix))
            self._shards.append(Shard(suffix, shard.nbytes))
        for name, entry in manifest.tensors.items():
            pieces = tuple(dataclasses.replace(piece, shard=piece.shard + first) for piece in entry.pieces)
            self._entries.setdefault(name, []).append(Entry(entry.dtype, entry.shape, pieces))

    def commit(self, step: int | None) -> None:
        """Makes the shards' names durable, then replaces the manifest."""
        tensors = {name: _join(self._prefix, name, parts) for name, parts in sorted(self._entries.items())}
        with os_errors.translated("save checkpoint", self._prefix):
            durable.fsync_directory(os.path.dirname(self._prefix))
        manifest = Manifest(
            self._generation,
            f"anabranch {_version()}",
            time.time(),
            _step_of(self._prefix) if step is None else step,
            tuple(self._shards),
            tensors,
        )
        checkpoint_manifest.save(self._prefix, manifest)
        self._committed = True


def remove_parts(prefix: str | os.PathLike[str]) -> None:
    """Removes the parts that a sharded save of `prefix` left which was not merged. Never raises: it is housekeeping.

    The checkpoint `prefix` itself stays, and so do files that are being written.
    """
    directory, base = os.path.split(os.fsdecode(prefix))
    _remove_parts(directory, re.escape(base))


def _remove_parts(directory: str, base: str) -> None:
    """Removes the parts of the saves whose names match `base`."""
    part = re.compile(rf"({base}-\d{{5}}-of-\d{{5}})(\.index\.json|{checkpoint_manifest.SHARD.pattern})")
    with contextlib.suppress(OSError):
        parts = {match[1] for name in os.listdir(directory or ".") if (match := part.fullmatch(name))}
        for name in parts:
            with contextlib.suppress(errors.OpError):
                remove_checkpoint(os.path.join(directory, name))


def sweep_uncommitted(prefix: str | os.PathLike[str]) -> None:
    """Removes what saves of `prefix`, with any step after it, left when their process died before they committed.

    Never raises: it is housekeeping. Saves that are going on are not touched.
    """
    directory, base = os.path.split(os.fsdecode(prefix))
    durable.sweep(directory)
    _remove_parts(directory, rf"{re.escape(base)}(?:-\d+)?")
    with contextlib.suppress(OSError):
        names = os.listdir(directory or ".")
        prefixes = {name[: shard.start()] for name in names if (shard := checkpoint_manifest.SHARD.search(name))}
        for name in prefixes:
            saved = os.path.join(directory, name)
            is_own = name == base or re.fullmatch(r"-\d+", name.removeprefix(base))
            if is_own and not os.path.exists(checkpoint_manifest.manifest_path(saved)):
                _remove_unreferenced(saved)


def _remove_unreferenced(prefix: str) -> None:
    """Removes the shards of `prefix` that nobody writes and the manifest of the moment does not refer to.

    Never raises: a shard too many is found by the next save.
    """
    with contextlib.suppress(OSError):
        for path in checkpoint_manifest.shard_files(prefix):
            with durable.removable(path) as free:
                # The manifest is read under the lock: a save that released it before has committed before.
                if free and path.removeprefix(prefix) not in _referenced(prefix):
                    os.unlink(path)


def _referenced(prefix: str) -> set[str]:
    """The suffixes of the shards that the manifest of the moment refers to.

    Raises:
      OSError: it cannot be found out.
    """
    try:
        return {shard.suffix for shard in checkpoint_manifest.load(prefix).shards}
    except errors.NotFoundError:
        return set()
    except errors.OpError as error:  # Damaged: what it refers to may still be of use to someone.
        raise OSError(error.message) from error


def _check_tensors(
    prefix: str, tensors: Mapping[str, Array], boxes: Mapping[str, slices.SliceInfo]
) -> dict[str, _Item]:
    """Everything that can be wrong with the arguments, found before the disk is touched."""
    if not prefix:
        raise _invalid(prefix, "the prefix is empty: give a name, such as 'model.ckpt'")
    for key in boxes:
        if key not in tensors:
            raise _invalid(prefix, f"slices name {key!r}, which is none of the tensors")
    items = {key: _check_tensor(prefix, key, np.asarray(array), boxes.get(key)) for key, array in tensors.items()}
    wholes: dict[str, list[_Item]] = {}
    for item in items.values():
        wholes.setdefault(item.box.full_name, []).append(item)
    for name, parts in wholes.items():
        _join(prefix, name, [part.entry(shard=0, crc=0) for part in parts])
    return items


def _check_tensor(prefix: str, key: str, array: Array, box: slices.SliceInfo | None) -> _Item:
    if box is None:
        box = slices.SliceInfo(key, array.shape, (0,) * array.ndim, array.shape)
    for name in (key, box.full_name):
        if not isinstance(name, str) or not safetensors_file.is_valid_name(name):
            raise _invalid(prefix, f"{name!r} cannot be the name of a tensor: rename the variable")
    if box.var_shape != array.shape:
        raise _invalid(prefix, f"tensor {key!r} has shape {array.shape}, but its slice has shape {box.var_shape}")
    try:
        dtype = checkpoint_encoding.logical_dtype(array)
    except TypeError as error:
        raise _invalid(prefix, f"tensor {key!r} of dtype {array.dtype} cannot be saved: {error}") from error
    if not checkpoint_encoding.is_storable(dtype):
        raise _invalid(prefix, f"tensor {key!r} has dtype {dtype.name}, which cannot be saved")
    return _Item(key, array, box, dtype)


def _join(prefix: str, name: str, entries: Sequence[Entry]) -> Entry:
    """One entry of those for several pieces of a tensor.

    Raises:
      InvalidArgumentError: they disagree on what they are pieces of, or overlap.
    """
    first = entries[0]
    if len(entries) == 1:
        return first
    for entry in entries:
        if entry.dtype != first.dtype or entry.shape != first.shape:
            raise _invalid(
                prefix,
                f"pieces of {name!r} disagree: {first.dtype.name} of full shape {first.shape}, and "
                f"{entry.dtype.name} of full shape {entry.shape}",
            )
    overlap = slices.find_overlap([entry.box(name, piece) for entry in entries for piece in entry.pieces])
    if overlap is not None:
        raise _invalid(prefix, f"tensor {name!r} is saved twice: pieces overlap at {overlap[1].spec!r}")
    return Entry(first.dtype, first.shape, tuple(piece for entry in entries for piece in entry.pieces))


def _plan_shards(items: Mapping[str, _Item], shard_bytes: int) -> list[list[str]]:
    """Which tensors go into which shard, in the order given; at least one shard."""
    groups: list[list[str]] = [[]]
    size = 0
    for key, item in items.items():
        if groups[-1] and (size >= shard_bytes or len(groups[-1]) >= _TENSORS_PER_SHARD):
            groups.append([])
            size = 0
        groups[-1].append(key)
        size += item.storage.nbytes
    return groups


def make_directory(directory: str) -> None:
    """Makes the last level of a directory, as TensorFlow does."""
    remote.refuse(directory, "checkpoints")
    if directory and not os.path.isdir(directory):
        with os_errors.translated("make directory", directory), contextlib.suppress(FileExistsError):
            os.mkdir(directory)


def _link_locked(source: str, target: str) -> int:
    """Gives a finished shard a second name, and locks it. A copy where there are no hard links."""
    descriptor = durable.open_locked(source)
    try:
        os.link(source, target)
    except OSError:
        durable.release(descriptor)
        return _copy_locked(source, target)
    return descriptor


def _copy_locked(source: str, target: str) -> int:
    descriptor = durable.create_locked(target)
    try:
        with open(source, "rb") as reader, open(descriptor, "wb", closefd=False) as writer:
            shutil.copyfileobj(reader, writer, _WRITE_PIECE)
        os.fsync(descriptor)
    except BaseException:
        os.unlink(target)
        durable.release(descriptor)
        raise
    return descriptor


def _step_of(prefix: str) -> int | None:
    match = re.search(r"-(\d{1,18})$", prefix)
    return int(match[1]) if match else None


@functools.cache
def _version() -> str:
    try:
        return importlib.metadata.version("anabranch")
    except importlib.metadata.PackageNotFoundError:  # Run from a source tree that was never installed.
        return "unknown"


def _invalid(prefix: str, problem: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(None, None, f"Cannot save checkpoint {prefix!r}: {problem}.")
