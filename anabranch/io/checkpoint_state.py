"""The file `checkpoint` in a directory of checkpoints: which there are, oldest first, and which is the latest.

It is a CheckpointState in protocol-buffer text format, as TensorFlow writes it, and is replaced atomically.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from google.protobuf import text_format

from anabranch.io import durable, remote
from anabranch.proto.training_pb2 import CheckpointState

DEFAULT_FILENAME = "checkpoint"

_log = logging.getLogger(__name__)


def generate_checkpoint_state_proto(
    save_dir: str,
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Sequence[str] | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> CheckpointState:
    """A CheckpointState.

    Args:
      save_dir: the directory the state is about. If it is relative, relative paths are made relative to it.
      model_checkpoint_path: the prefix of the latest checkpoint.
      all_model_checkpoint_paths: the prefixes of all, oldest first. The latest is appended if it is not the last.
      all_model_checkpoint_timestamps: when each was saved, in seconds since 1970.
      last_preserved_timestamp: when the last one was saved that is kept for ever.

    Raises:
      ValueError: not as many timestamps as paths.
    """
    paths = list(all_model_checkpoint_paths or ())
    if not paths or paths[-1] != model_checkpoint_path:
        paths.append(model_checkpoint_path)
    timestamps = list(all_model_checkpoint_timestamps or ())
    if timestamps and len(timestamps) != len(paths):
        raise ValueError(
            f"all_model_checkpoint_timestamps has {len(timestamps)} entries but there are {len(paths)} checkpoints: "
            "give one for each path, or none."
        )
    if not os.path.isabs(save_dir):
        paths = [path if os.path.isabs(path) else os.path.relpath(path, save_dir) for path in paths]
    return CheckpointState(
        model_checkpoint_path=paths[-1],
        all_model_checkpoint_paths=paths,
        all_model_checkpoint_timestamps=timestamps,
        last_preserved_timestamp=last_preserved_timestamp or 0.0,
    )


def write_checkpoint_state(
    save_dir: str,
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Sequence[str] | None = None,
    latest_filename: str | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
    *,
    save_relative_paths: bool = False,
) -> None:
    """Puts a directory's checkpoint state in place, atomically.

    Args:
      save_relative_paths: write all paths relative to `save_dir`, so that the directory can be moved.
      latest_filename: the file's name, `"checkpoint"` by default.
      save_dir, model_checkpoint_path, all_model_checkpoint_paths, all_model_checkpoint_timestamps,
        last_preserved_timestamp: see `generate_checkpoint_state_proto`.

    Raises:
      RuntimeError: the checkpoint has the path of this file.
      ValueError: not as many timestamps as paths.
      OpError: the class of the system's refusal, such as `PermissionDeniedError`.
    """
    target = _state_path(save_dir, latest_filename)
    state = generate_checkpoint_state_proto(
        save_dir,
        model_checkpoint_path,
        all_model_checkpoint_paths,
        all_model_checkpoint_timestamps,
        last_preserved_timestamp,
    )
    if target == state.model_checkpoint_path:
        raise RuntimeError(
            f"Save path {model_checkpoint_path!r} conflicts with path used for checkpoint state. "
            "Please use a different save path."
        )
    if save_relative_paths:
        paths = [os.path.relpath(p, save_dir) if os.path.isabs(p) else p for p in state.all_model_checkpoint_paths]
        state.model_checkpoint_path = paths[-1]
        state.all_model_checkpoint_paths[:] = paths
    durable.replace_file(target, text_format.MessageToString(state).encode())


def read_checkpoint_state(checkpoint_dir: str, latest_filename: str | None = None) -> CheckpointState | None:
    """The state of a directory of checkpoints, its relative paths resolved against the directory.

    Returns:
      None if the directory has no such file, or it cannot be read or parsed, which is logged.

    Raises:
      ValueError: the file names no latest checkpoint.
    """
    remote.refuse(checkpoint_dir, "checkpoints")
    source = _state_path(checkpoint_dir, latest_filename)
    state = CheckpointState()
    try:
        with open(source, encoding="utf-8") as file:
            text_format.Parse(file.read(), state, allow_unknown_field=True)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        _log.warning("%s: %s. Checkpoint state ignored.", source, error)
        return None
    if not state.model_checkpoint_path:
        raise ValueError(f"Invalid checkpoint state loaded from {source!r}: it has no model_checkpoint_path.")
    state.model_checkpoint_path = os.path.join(checkpoint_dir, state.model_checkpoint_path)
    state.all_model_checkpoint_paths[:] = [os.path.join(checkpoint_dir, p) for p in state.all_model_checkpoint_paths]
    return state


def _state_path(directory: str, latest_filename: str | None) -> str:
    return os.path.join(directory, latest_filename or DEFAULT_FILENAME)
