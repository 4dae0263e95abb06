"""Checkpoints: what there is to do with them, by prefix. See `docs/decisions/0002-checkpoint-format.md`.

A prefix is a directory and a name, such as `"logs/model.ckpt-100"`; the files of a checkpoint begin with it. The path
of a safetensors file that stands alone may be given in its place, to be read.

    write_checkpoint, merge_checkpoints, remove_checkpoint,
    sweep_uncommitted                                         checkpoint_writer
    CheckpointReader, TensorReader                            checkpoint_reader, tensor_reader
    TensorBundleReader                                        tensor_bundle (what TensorFlow saved)
    write_bundle                                              tensor_bundle_writer (what TensorFlow reads)
    OlderCheckpointReader, write_older_checkpoint             older_checkpoint (of TensorFlow before 2017: one file)
    PlainSafetensorsReader, write_plain_file                  plain_safetensors (one file of another framework)
    SliceInfo                                                 slices
"""

from __future__ import annotations

import os
import re
from typing import Final

from anabranch.io import checkpoint_manifest, remote, sstable
from anabranch.io.checkpoint_reader import CheckpointReader
from anabranch.io.older_checkpoint import OlderCheckpointReader
from anabranch.io.plain_safetensors import PlainSafetensorsReader, is_plain_file
from anabranch.io.tensor_bundle import TensorBundleReader, bundle_exists, bundle_files
from anabranch.io.tensor_reader import TensorReader

#: how the files of a checkpoint continue its prefix
_PARTS: Final = re.compile(r"\.(index|index\.json|data-\d{5}-of-\d{5}(-[0-9a-f]+\.safetensors)?)$")


def prefix_of(path: str) -> str:
    """The prefix of the checkpoint that a path would be a file of; any other path itself."""
    return _PARTS.sub("", path)


def entry_file(prefix: str | os.PathLike[str]) -> str | None:
    """The file whose presence makes a checkpoint exist: our manifest, TensorFlow's index, or the file itself.

    None if there is none. The checkpoint may still be damaged.

    Raises:
      UnimplementedError: `prefix` is an address (gs://, ...).
    """
    name = os.fsdecode(prefix)
    remote.refuse(name, "checkpoints")
    manifest = checkpoint_manifest.manifest_path(name)
    if os.path.isfile(manifest):
        return manifest
    if bundle_exists(name):
        return f"{name}.index"
    return name if is_plain_file(name) or sstable.is_table(name) else None


def checkpoint_exists(prefix: str | os.PathLike[str]) -> bool:
    """Whether a checkpoint was committed under `prefix`, by us or by TensorFlow, or is that file. It may be damaged."""
    return entry_file(prefix) is not None


def open_checkpoint(prefix: str | os.PathLike[str]) -> TensorReader:
    """A reader of the checkpoint `prefix`: ours or, where there is none, TensorFlow's (of either format), or a plain
    safetensors file.

    Raises:
      OpError: as `CheckpointReader`.
    """
    name = os.fsdecode(prefix)
    entry = entry_file(name)
    if entry == f"{name}.index":
        return TensorBundleReader(name)
    if entry == name:
        return PlainSafetensorsReader(name) if is_plain_file(name) else OlderCheckpointReader(name)
    return CheckpointReader(name)


def list_files(prefix: str | os.PathLike[str]) -> list[str]:
    """The paths of a checkpoint's files: its manifest (or index), then its shards.

    Raises:
      NotFoundError: there is no such checkpoint.
      DataLossError: its manifest is damaged.
    """
    name = os.fsdecode(prefix)
    entry = entry_file(name)
    if entry == f"{name}.index":
        return bundle_files(name)
    if entry == name:
        return [name]
    shards = checkpoint_manifest.load(name).shards
    return [checkpoint_manifest.manifest_path(name), *(name + shard.suffix for shard in shards)]
