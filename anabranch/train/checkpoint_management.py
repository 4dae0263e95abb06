"""Which checkpoints a directory has, and which is the latest  (§4.3).

A directory of checkpoints has a small text file, `checkpoint`, that names the latest one and those that are kept.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from anabranch.frontend.platform import logging
from anabranch.io import checkpoint_state, checkpoint_store, checkpoint_writer, gfile, tensor_bundle_writer
from anabranch.proto.training_pb2 import CheckpointState, SaverDef


def generate_checkpoint_state_proto(
    save_dir: str,
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Sequence[str] | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> CheckpointState:
    """The message that `update_checkpoint_state` writes.

    Args:
        save_dir: the directory; if it is relative, relative paths are made relative to it.
        model_checkpoint_path: prefix of the latest checkpoint.
        all_model_checkpoint_paths: prefixes of all that are kept, oldest first; the latest is added if it is not last.
        all_model_checkpoint_timestamps: when each was saved, in seconds since 1970.
        last_preserved_timestamp: when the last one was saved that is kept for ever.

    Raises:
        ValueError: not as many timestamps as paths.
    """
    return checkpoint_state.generate_checkpoint_state_proto(
        save_dir,
        model_checkpoint_path,
        all_model_checkpoint_paths,
        all_model_checkpoint_timestamps,
        last_preserved_timestamp,
    )


def update_checkpoint_state(
    save_dir: str,
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Sequence[str] | None = None,
    latest_filename: str | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> None:
    """Replaces a directory's `checkpoint` file, atomically.

    Args:
        latest_filename: the file's name; default "checkpoint".
        save_dir, model_checkpoint_path, all_model_checkpoint_paths, all_model_checkpoint_timestamps,
            last_preserved_timestamp: see `generate_checkpoint_state_proto`.

    Raises:
        RuntimeError: the checkpoint has the path of that file.
        ValueError: not as many timestamps as paths.
        OpError: the file cannot be written.
    """
    checkpoint_state.write_checkpoint_state(
        save_dir,
        model_checkpoint_path,
        all_model_checkpoint_paths,
        latest_filename,
        all_model_checkpoint_timestamps,
        last_preserved_timestamp,
    )


def get_checkpoint_state(checkpoint_dir: str, latest_filename: str | None = None) -> CheckpointState | None:
    """What a directory's `checkpoint` file says; None if there is none, or it cannot be read, which is logged.

    Args:
        checkpoint_dir: the directory.
        latest_filename: of the file in it; default: "checkpoint".

    Returns:
        A `CheckpointState` message, whose `model_checkpoint_path` is the latest checkpoint; or None.

    Raises:
        ValueError: the file names no latest checkpoint.

    Example:
        >>> v = tf.get_variable("v", initializer=1.0)
        >>> sess.run(v.initializer)
        >>> path = tf.train.Saver().save(sess, "runs/model")
        >>> tf.train.get_checkpoint_state("runs").model_checkpoint_path
        'runs/model'
    """
    return checkpoint_state.read_checkpoint_state(os.fsdecode(checkpoint_dir), latest_filename)


def latest_checkpoint(checkpoint_dir: str, latest_filename: str | None = None) -> str | None:
    """The prefix of a directory's latest checkpoint, or None if there is none.

    Args:
        checkpoint_dir: the directory.
        latest_filename: of the file that names it; default: "checkpoint".

    Returns:
        The prefix, which `Saver.restore` takes; or None.

    Raises:
        nothing

    Example:
        >>> v = tf.get_variable("v", initializer=1.0)
        >>> sess.run(v.initializer)
        >>> path = tf.train.Saver().save(sess, "runs/model", global_step=5)
        >>> tf.train.latest_checkpoint("runs")
        'runs/model-5'
    """
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    if state is None or not state.model_checkpoint_path:
        return None
    prefix = state.model_checkpoint_path
    if checkpoint_exists(prefix):
        return prefix
    logging.error("Couldn't match files for checkpoint %s", prefix)
    return None


def checkpoint_exists(checkpoint_prefix: str) -> bool:
    """Whether there is a checkpoint of that prefix. A save that is not committed yet does not count.

    Args:
        checkpoint_prefix: what `Saver.save` returned, or a pattern.

    Returns:
        A bool.

    Raises:
        nothing

    Example:
        >>> tf.train.checkpoint_exists("runs/model")
        False
    """
    return checkpoint_store.checkpoint_exists(checkpoint_prefix)


def get_checkpoint_mtimes(checkpoint_prefixes: Sequence[str]) -> list[float]:
    """When the checkpoints were committed, in seconds since 1970; those that do not exist are left out."""
    times = []
    for prefix in checkpoint_prefixes:
        entry = checkpoint_store.entry_file(prefix)
        with contextlib.suppress(FileNotFoundError):
            if entry is not None:
                times.append(os.stat(entry).st_mtime)
    return times


def remove_checkpoint(
    checkpoint_prefix: str, checkpoint_format_version: int = SaverDef.V2, meta_graph_suffix: str = "meta"
) -> None:
    """Removes a checkpoint and its meta graph. No error if they are gone already.

    Args:
        checkpoint_prefix: as it was saved.
        checkpoint_format_version: ignored: there is one format.
        meta_graph_suffix: of the meta graph's file.

    Raises:
        PermissionDeniedError: the user may not.
    """
    meta_graph = meta_graph_filename(checkpoint_prefix, meta_graph_suffix)
    if gfile.exists(meta_graph):
        gfile.remove(meta_graph)
    checkpoint_writer.remove_checkpoint(checkpoint_prefix)
    tensor_bundle_writer.remove_bundle(checkpoint_prefix)


def meta_graph_filename(checkpoint_filename: str, meta_graph_suffix: str = "meta") -> str:
    """The path of the meta graph of a checkpoint (or of all shards of one)."""
    directory, name = os.path.split(checkpoint_filename)
    whole, dash, shards = name.partition("-?????-of-")
    base = whole if dash and shards.isdigit() else name
    return os.path.join(directory, f"{base}.{meta_graph_suffix}")
