"""Saves over a checkpoint again and again, killed with SIGKILL before each system call that changes the disk in turn.

Run by `test_checkpoint_crash.py` in a process without threads, since it forks. Argument: an empty directory.
After each death it checks that one whole version can be read, and that the next save leaves no file behind. Prints
how many points there were at which the saver was killed.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import numpy as np

from anabranch.io.checkpoint_reader import CheckpointReader
from anabranch.io.checkpoint_store import list_files
from anabranch.io.checkpoint_writer import write_checkpoint

CHANGING_CALLS = ("open", "write", "fsync", "rename", "replace", "unlink", "link", "mkdir")
NAMES = ("a", "b", "c")


def save(prefix: str, version: int) -> None:
    write_checkpoint(prefix, {name: np.full(5000, version) for name in NAMES}, shard_bytes=1)


def version_of(prefix: str) -> int:
    reader = CheckpointReader(prefix)
    reader.verify()
    versions = {int(value) for name in NAMES for value in reader.get_tensor(name)}
    assert len(versions) == 1, f"a mixture: {versions}"
    return versions.pop()


def kill_before_call(number: int) -> None:
    """Ends this process, as `kill -9` does, when it is about to make its `number`-th call that changes the disk."""
    count = 0

    def wrap(call: Any) -> Any:
        def counting(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counting

    for name in CHANGING_CALLS:
        setattr(os, name, wrap(getattr(os, name)))


def survives(prefix: str, point: int) -> bool:
    """Whether the saver was through before it came to `point`."""
    child = os.fork()
    if child == 0:
        kill_before_call(point)
        save(prefix, 2)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        assert os.waitstatus_to_exitcode(status) == 0
        return True
    return False


def main(directory: str) -> None:
    prefix = os.path.join(directory, "ckpt")
    outcomes = []
    for point in range(1, 1000):
        save(prefix, 1)
        finished = survives(prefix, point)
        outcomes.append(version_of(prefix))
        assert outcomes == sorted(outcomes), "once committed, it stays committed"
        if finished:
            break
        save(prefix, 3)
        assert version_of(prefix) == 3
        left = sorted(os.path.join(directory, name) for name in os.listdir(directory))
        assert left == sorted(list_files(prefix)), f"killed before call {point}, files were left: {left}"
    assert outcomes[0] == 1
    assert outcomes[-1] == 2
    print(len(outcomes) - 1)


if __name__ == "__main__":
    main(sys.argv[1])
