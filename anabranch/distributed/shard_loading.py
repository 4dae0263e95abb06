"""A task that comes back takes the variables that it had from the last checkpoint, before it answers (§4.3).

Beside the checkpoints of a training lies the file `SHARDS_FILE`, a `ShardMap`: it says which variables are whose. A
task that is told the directory (`DIRECTORY_VARIABLE`) needs nobody else to get its values back.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Final

import numpy as np

from anabranch.core.arrays import HostArray
from anabranch.core.resources import ResourceHandle
from anabranch.distributed.shard_recovery import ShardMap, TaskShard
from anabranch.errors import OpError
from anabranch.io import checkpoint_state, checkpoint_store, durable
from anabranch.io.tensor_reader import TensorReader
from anabranch.runtime.containers import Containers

#: in a directory of checkpoints
SHARDS_FILE: Final = "shards.json"

_log = logging.getLogger(__name__)


def write_shard_map(directory: str, shards: ShardMap) -> None:
    """Puts the map in place, atomically, and only if it is not there already.

    Raises:
        OpError: of the class of the system's refusal.
    """
    text, path = shards.to_json(), os.path.join(directory, SHARDS_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return
    except (OSError, UnicodeDecodeError):
        pass
    durable.replace_file(path, text.encode())


def load_shard(containers: Containers, task: str, tasks: Sequence[str], directory: str) -> str | None:
    """Gives the variables of a task the values of the latest checkpoint.

    All values are read, and their checksums looked at, before the first variable gets one.

    Args:
        containers: of the task.
        task: its full name.
        tasks: the full names of all tasks of its cluster.
        directory: where the checkpoints are.

    Returns:
        The prefix of the checkpoint; None where there is nothing to load, or it cannot be: then whoever trains next
        gives the task its values. Why it cannot be is logged.
    """
    try:
        with open(os.path.join(directory, SHARDS_FILE), encoding="utf-8") as file:
            shard_map = ShardMap.from_json(file.read())
        state = checkpoint_state.read_checkpoint_state(directory)
        shard = shard_map.shard_of(task, tasks)
        if shard is None or state is None:
            return None
        prefix = state.model_checkpoint_path
        with checkpoint_store.open_checkpoint(prefix) as reader:
            values = _values(reader, shard)
    except FileNotFoundError:
        return None
    except (OSError, OpError, ValueError) as error:
        _log.warning("%s begins without values: those in %s cannot be loaded: %s", task, directory, error)
        return None
    for handle, value in values:
        containers.write(handle, value)
    containers.write(ResourceHandle("", shard.mark, "variable", task=task), np.int64(shard_map.mark))
    _log.info("%s has %d variables from %s", task, len(values), prefix)
    return prefix


def _values(reader: TensorReader, shard: TaskShard) -> list[tuple[ResourceHandle, HostArray]]:
    return [
        (
            ResourceHandle(v.container, v.resource, "variable"),
            reader.get_slice(v.name, v.slice_spec) if v.slice_spec else reader.read_tensor(v.name),
        )
        for v in shard.variables
    ]
