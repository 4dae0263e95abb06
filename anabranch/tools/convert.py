"""Convert a checkpoint: to TensorFlow's format, to our own, or to one safetensors file.

Takes the prefix of a checkpoint in any of these formats, one of its files, or the directory of a SavedModel, whose
variables are converted. What exists is never replaced.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Final

from anabranch import errors
from anabranch.core.trackables import OBJECT_GRAPH_PROTO_KEY
from anabranch.io import checkpoint_store, checkpoint_writer, plain_safetensors, remote, tensor_bundle_writer
from anabranch.io.tensor_reader import TensorReader
from anabranch.serving import constants

_BUNDLE, _OWN, _PLAIN = "tensorflow", "anabranch", "safetensors"
_FORMATS: Final = (_BUNDLE, _OWN, _PLAIN)


def main(arguments: Sequence[str]) -> int:
    """`anabranch convert source target`"""
    parser = argparse.ArgumentParser(
        prog="anabranch convert",
        description="Converts a checkpoint to another format. What exists is never replaced.",
    )
    parser.add_argument("source", help="a checkpoint's prefix or file, a safetensors file, a SavedModel's directory")
    parser.add_argument("target", help="the prefix to write, or a path that ends in .safetensors")
    parser.add_argument("--to", choices=_FORMATS, help="the format; default: safetensors if the target ends so")
    options = parser.parse_args(arguments)
    plain = options.target.endswith(plain_safetensors.SUFFIX)
    wanted = options.to or (_PLAIN if plain else None)
    if wanted is None:
        parser.error(f"say --to {_BUNDLE} or --to {_OWN}, or let the target end in {plain_safetensors.SUFFIX}")
    if plain != (wanted == _PLAIN):
        parser.error(f"--to {wanted} and the target {options.target!r} contradict each other")
    count = convert(options.source, options.target, wanted)
    print(f"{options.target}: {count} tensors")
    return 0


def convert(source: str, target: str, wanted: str) -> int:
    """Writes the checkpoint `source` as `target` in a format; returns the number of tensors.

    Raises:
        NotFoundError: there is no checkpoint `source`.
        AlreadyExistsError: there is a checkpoint `target`.
        DataLossError: the source is damaged; nothing remains of the target.
        InvalidArgumentError: the format does not know the dtype of a tensor.
    """
    remote.refuse(target, "checkpoints")
    present = checkpoint_store.entry_file(target)
    if present is not None:
        raise errors.AlreadyExistsError(
            None, None, f"{present!r} exists: remove that checkpoint, or take another name for the target."
        )
    with _opened(source) as reader:
        names = reader.names()
        if wanted == _PLAIN:
            # other frameworks know nothing of the program's objects
            names = [name for name in names if name != OBJECT_GRAPH_PROTO_KEY]
            plain_safetensors.write_plain_file(target, reader, names)
        elif wanted == _BUNDLE:
            tensor_bundle_writer.write_bundle(target, ((name, reader.read_tensor(name, copy=False)) for name in names))
        else:
            tensors = {name: reader.read_tensor(name, copy=False) for name in names}
            checkpoint_writer.write_checkpoint(target, tensors, step=reader.step)
    return len(names)


def _opened(source: str) -> TensorReader:
    if os.path.isdir(source):
        source = os.path.join(source, constants.VARIABLES_DIRECTORY, constants.VARIABLES_FILENAME)
    prefix = source if checkpoint_store.checkpoint_exists(source) else checkpoint_store.prefix_of(source)
    if not checkpoint_store.checkpoint_exists(prefix):
        raise errors.NotFoundError(
            None, None, f"There is no checkpoint {prefix!r}; `anabranch inspect DIRECTORY` shows those of a directory."
        )
    return checkpoint_store.open_checkpoint(prefix)
