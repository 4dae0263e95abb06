"""Saves versions `start`, `start + 2`, ... of a checkpoint. Arguments: prefix, start, how many. Run by the tests."""

from __future__ import annotations

import sys

import numpy as np

from anabranch.io.checkpoint_writer import write_checkpoint


def main(prefix: str, start: int, count: int) -> None:
    for version in range(start, start + 2 * count, 2):
        write_checkpoint(prefix, {f"v{i}": np.full(2000, version) for i in range(4)}, shard_bytes=1, step=version)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
