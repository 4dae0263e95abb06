"""The manifest of a checkpoint: which tensors it has, in which shards, with which checksums.

A checkpoint with prefix P is the manifest `P.index.json` and the shards it lists, which lie beside it and are called
`P.data-00000-of-00002-<generation>.safetensors`. The manifest names a shard by what follows P, so the files of a
checkpoint may be moved and renamed together, and cannot point elsewhere. Each save has its own generation, hence new
shard names: an overwriting save touches nothing that the manifest of the moment refers to.

The manifest's last entry is the CRC-32C of all bytes before it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from typing import Any, Final

from anabranch import errors
from anabranch.core import dtypes
from anabranch.io import checkpoint_encoding, crc32c, durable, os_errors, safetensors_file, slices
from anabranch.io.safetensors_file import JsonValue

FORMAT: Final = "anabranch.checkpoint"
FORMAT_VERSION: Final = 1
_SUFFIX: Final = ".index.json"
#: what the name of a shard adds to the prefix
SHARD: Final = re.compile(r"\.data-\d{5}-of-\d{5}-([0-9a-f]{12})\.safetensors$")
_SEAL: Final = b',\n"manifest_crc32c": "'
_CRC: Final = re.compile(r"[0-9a-f]{8}")


@dataclasses.dataclass(frozen=True)
class Shard:
    """A file of a checkpoint: what its name adds to the prefix, and its size in bytes."""

    suffix: str
    nbytes: int


@dataclasses.dataclass(frozen=True)
class Piece:
    """A stored part of a tensor: the whole of it, or a box of a partitioned variable.

    Attributes:
      shard: index into the manifest's shards.
      key: the name within the shard.
      offsets, shape: where the box lies in the tensor.
      crc: the CRC-32C of the stored bytes.
    """

    shard: int
    key: str
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    crc: int


@dataclasses.dataclass(frozen=True)
class Entry:
    """A tensor: dtype, shape of the whole, and the pieces that make it up."""

    dtype: dtypes.DType
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]

    def box(self, name: str, piece: Piece) -> slices.SliceInfo:
        """The place of `piece` in the tensor."""
        return slices.SliceInfo(name, self.shape, piece.offsets, piece.shape)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What `P.index.json` says.

    Attributes:
      generation: twelve hexadecimal digits that no two saves share.
      writer: name and version of the program that wrote it.
      wall_time: when, in seconds since 1970.
      step: the global step, or None if unknown.
      shards, tensors: see there.
    """

    generation: str
    writer: str
    wall_time: float
    step: int | None
    shards: tuple[Shard, ...]
    tensors: dict[str, Entry]


def manifest_path(prefix: str) -> str:
    """The file whose presence makes the checkpoint exist."""
    return prefix + _SUFFIX


def shard_suffix(index: int, count: int, generation: str) -> str:
    """What the name of shard `index` of `count` adds to the prefix."""
    return f".data-{index:05d}-of-{count:05d}-{generation}.safetensors"


def shard_files(prefix: str) -> list[str]:
    """The paths of all shards of `prefix` in its directory, of whatever generation, committed or not. Sorted."""
    directory, base = os.path.split(prefix)
    try:
        names = os.listdir(directory or ".")
    except OSError:
        return []
    shards = (name for name in names if name.startswith(base) and SHARD.fullmatch(name, len(base)))
    return sorted(os.path.join(directory, name) for name in shards)


def save(prefix: str, manifest: Manifest) -> None:
    """Commits a checkpoint: one atomic rename puts the manifest in place.

    Raises:
      OpError: as `durable.replace_file`.
    """
    durable.replace_file(manifest_path(prefix), _serialize(manifest))


def load(prefix: str) -> Manifest:
    """Reads and checks the manifest of `prefix`.

    Raises:
      NotFoundError: there is no such checkpoint.
      DataLossError: the manifest is damaged.
      InvalidArgumentError: it names a shard outside its directory, or a newer format.
    """
    path = manifest_path(prefix)
    try:
        with open(path, "rb", opener=durable.open_regular) as file:
            data = file.read()
    except FileNotFoundError as error:
        raise errors.NotFoundError(
            None,
            None,
            f"There is no checkpoint with prefix {prefix!r}: {path!r} does not exist. Pass the prefix that was saved, "
            "such as 'dir/model.ckpt-100', or let tf.train.latest_checkpoint find it.",
        ) from error
    except OSError as error:
        raise os_errors.from_os_error(error, "read", path) from error
    try:
        return _parse(_unseal(data), path)
    except _DamageError as error:
        raise errors.DataLossError(
            None, None, f"Checkpoint manifest {path!r} is damaged: {error}. Restore another checkpoint."
        ) from error


def locate_shard(prefix: str, shard: Shard) -> str:
    """The path of a shard's file, links resolved.

    Raises:
      InvalidArgumentError: it is a link that leads out of the checkpoint's directory.
    """
    path = prefix + shard.suffix
    if not os.path.islink(path):
        return path
    target = os.path.realpath(path)
    if os.path.dirname(target) != os.path.realpath(os.path.dirname(prefix)):
        raise errors.InvalidArgumentError(
            None,
            None,
            f"Checkpoint shard {path!r} is a link that leads out of its directory, to {target!r}: copy the file there.",
        )
    return target


def open_shard(prefix: str, shard: Shard) -> int:
    """A descriptor of a shard's file, for reading.

    Raises:
      FileNotFoundError: it is not there.
      DataLossError: its size is not the manifest's.
      InvalidArgumentError: it is a link that leads out of the checkpoint's directory, or not a regular file.
      OpError: the class of the system's refusal.
    """
    path = locate_shard(prefix, shard)
    try:
        descriptor = durable.open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise os_errors.from_os_error(error, "read", path) from error
    size = os.fstat(descriptor).st_size
    if size != shard.nbytes:
        os.close(descriptor)
        raise errors.DataLossError(
            None,
            None,
            f"Checkpoint shard {path!r} has {size} bytes, its manifest says {shard.nbytes}: it is truncated or was "
            "replaced. Restore another checkpoint.",
        )
    return descriptor


def _serialize(manifest: Manifest) -> bytes:
    head = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "writer": manifest.writer,
        "wall_time": manifest.wall_time,
        "step": manifest.step,
        "generation": manifest.generation,
        "shards": [{"suffix": shard.suffix, "bytes": shard.nbytes} for shard in manifest.shards],
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    tensors = (f"{json.dumps(name)}: {json.dumps(_entry_json(entry))}" for name, entry in manifest.tensors.items())
    body = "{\n" + ",\n".join([*lines, '"tensors": {\n' + ",\n".join(tensors) + "\n}"])
    data = body.encode()
    return data + _SEAL + f'{crc32c.crc32c(data):08x}"\n}}\n'.encode()


def _entry_json(entry: Entry) -> dict[str, Any]:
    pieces = [
        {
            "shard": piece.shard,
            "key": piece.key,
            "offsets": piece.offsets,
            "shape": piece.shape,
            "crc32c": f"{piece.crc:08x}",
        }
        for piece in entry.pieces
    ]
    return {"dtype": entry.dtype.name, "shape": entry.shape, "pieces": pieces}


class _DamageError(Exception):
    """Why a manifest is not one."""


def _unseal(data: bytes) -> dict[str, Any]:
    body, seal, _ = data.rpartition(_SEAL)
    if not seal:
        raise _DamageError(f"its {len(data)} bytes do not end with a checksum, so it is truncated or no manifest")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _DamageError(f"it is no JSON: {error}") from error
    expected = f"{crc32c.crc32c(body):08x}"
    if not isinstance(content, dict) or content.get("manifest_crc32c") != expected:
        raise _DamageError("its checksum does not match")
    return content


def _parse(content: dict[str, Any], path: str) -> Manifest:
    _check(content.get("format") == FORMAT, f"its format is {content.get('format')!r}, expected {FORMAT!r}")
    version = content.get("format_version")
    _check(type(version) is int and version >= 1, f"its format version is {version!r}")
    if version != FORMAT_VERSION:
        raise errors.InvalidArgumentError(
            None,
            None,
            f"Checkpoint manifest {path!r} has format version {version}, this program reads {FORMAT_VERSION}: "
            "use a newer version of anabranch.",
        )
    generation, writer, step = content.get("generation"), content.get("writer"), content.get("step")
    wall_time = content.get("wall_time")
    _check(isinstance(generation, str) and isinstance(writer, str), "it does not say who wrote it")
    _check(isinstance(wall_time, (int, float)), "it does not say when it was written")
    _check(step is None or type(step) is int, f"its step is {step!r}")
    raw_shards, raw_tensors = content.get("shards"), content.get("tensors")
    _check(isinstance(raw_shards, list) and isinstance(raw_tensors, dict), "it lists no shards or no tensors")
    shards = tuple(_parse_shard(shard, path) for shard in raw_shards or ())
    tensors = {name: _parse_entry(name, entry, len(shards)) for name, entry in (raw_tensors or {}).items()}
    _check_stored_once(tensors)
    return Manifest(str(generation), str(writer), float(wall_time or 0), step, shards, tensors)


def _parse_shard(shard: JsonValue, path: str) -> Shard:
    _check(isinstance(shard, dict), f"a shard is {shard!r}")
    suffix, nbytes = shard.get("suffix"), shard.get("bytes")
    _check(isinstance(suffix, str) and type(nbytes) is int and nbytes >= 0, f"a shard is {shard!r}")
    if not SHARD.fullmatch(suffix):
        raise errors.InvalidArgumentError(
            None,
            None,
            f"Checkpoint manifest {path!r} refers to a shard by {suffix!r}, which is not the name of a shard beside "
            "it. A manifest may not lead to other files: do not trust this checkpoint.",
        )
    return Shard(suffix, nbytes)


def _parse_entry(name: str, entry: JsonValue, shard_count: int) -> Entry:
    _check(isinstance(entry, dict), f"the entry of tensor {name!r} is no object")
    shape, pieces = entry.get("shape"), entry.get("pieces")
    try:
        dtype = dtypes.as_dtype(str(entry.get("dtype")))
    except TypeError as error:
        raise _DamageError(f"tensor {name!r} has dtype {entry.get('dtype')!r}, which does not exist") from error
    _check(checkpoint_encoding.is_storable(dtype), f"tensor {name!r} has dtype {dtype.name}, which cannot be saved")
    _check(safetensors_file.is_shape(shape), f"tensor {name!r} has shape {shape!r}")
    _check(isinstance(pieces, list) and bool(pieces), f"tensor {name!r} has no pieces")
    parsed = Entry(dtype, tuple(shape), tuple(_parse_piece(name, piece, shard_count) for piece in pieces))
    try:
        overlap = slices.find_overlap([parsed.box(name, piece) for piece in parsed.pieces])
    except errors.InvalidArgumentError as error:
        raise _DamageError(error.message) from error
    if overlap is not None:
        raise _DamageError(f"pieces {overlap[0].spec!r} and {overlap[1].spec!r} of tensor {name!r} overlap")
    return parsed


def _check_stored_once(tensors: dict[str, Entry]) -> None:
    """A stored tensor is a piece of one tensor: else a small file could stand for any amount of memory."""
    used: set[tuple[int, str]] = set()
    for name, entry in tensors.items():
        for piece in entry.pieces:
            place = (piece.shard, piece.key)
            _check(place not in used, f"tensor {name!r} is to be made of {piece.key!r}, which is used already")
            used.add(place)


def _parse_piece(name: str, piece: JsonValue, shard_count: int) -> Piece:
    _check(isinstance(piece, dict), f"a piece of tensor {name!r} is no object")
    shard, key, crc = piece.get("shard"), piece.get("key"), piece.get("crc32c")
    offsets, shape = piece.get("offsets"), piece.get("shape")
    _check(type(shard) is int and 0 <= shard < shard_count, f"tensor {name!r} lies in shard {shard!r}")
    _check(isinstance(key, str), f"a piece of tensor {name!r} has key {key!r}")
    _check(isinstance(crc, str) and bool(_CRC.fullmatch(crc)), f"a piece of tensor {name!r} has checksum {crc!r}")
    _check(
        safetensors_file.is_shape(offsets) and safetensors_file.is_shape(shape),
        f"a piece of tensor {name!r} has offsets {offsets!r} and shape {shape!r}",
    )
    return Piece(shard, key, tuple(offsets), tuple(shape), int(crc, 16))


def _check(condition: bool, damage: str) -> None:
    if not condition:
        raise _DamageError(damage)
