"""What kernels were measured to cost, kept on disk between processes: one small JSON file for each key.

A file is written aside and renamed, so that processes that measure at the same time need no lock and lose nothing. What
cannot be read, or is not what it should be, counts as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from anabranch.errors import OpError
from anabranch.io import durable

_FORMAT: Final = "anabranch kernel costs 1"
_SUFFIX: Final = ".json"
#: files kept; when there are more, the oldest go until three quarters are left
MAX_FILES: Final = 4096
#: larger files are not ours (bytes)
_MAX_BYTES: Final = 1 << 16


class CostMemory:
    """Measured costs: key -> name of a kernel -> seconds.

    Args:
        directory: where the files are; it is made when something is stored.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, key: str) -> Path:
        """The file of a key."""
        return self._directory / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}{_SUFFIX}"

    def load(self, key: str) -> dict[str, float]:
        """The costs stored for a key; empty where there are none."""
        with contextlib.suppress(OSError, ValueError, RecursionError), self.path(key).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
            return _checked(json.loads(data), key) if len(data) <= _MAX_BYTES else {}
        return {}

    def store(self, key: str, seconds: Mapping[str, float]) -> None:
        """Adds costs to those stored for a key. Where the disk refuses, nothing is kept."""
        content = {"format": _FORMAT, "key": key, "seconds": {**self.load(key), **seconds}}
        with contextlib.suppress(OSError, OpError):
            self._directory.mkdir(parents=True, exist_ok=True)
            durable.replace_file(str(self.path(key)), json.dumps(content, indent=1).encode())
            self._trim()

    def clear(self) -> int:
        """Removes all files; returns how many there were."""
        return self._remove_but(0)

    def _trim(self) -> None:
        durable.sweep(str(self._directory))
        with os.scandir(self._directory) as entries:
            count = sum(entry.name.endswith(_SUFFIX) for entry in entries)
        if count > MAX_FILES:
            self._remove_but(MAX_FILES * 3 // 4)

    def _remove_but(self, kept: int) -> int:
        """Removes the files that were written first."""
        aged = []
        with contextlib.suppress(OSError), os.scandir(self._directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # another process may be removing it
                    if entry.name.endswith(_SUFFIX):
                        aged.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.path))
        removed = 0
        for _, path in sorted(aged)[: max(len(aged) - kept, 0)]:
            with contextlib.suppress(OSError):
                os.unlink(path)
                removed += 1
        return removed


def _checked(content: object, key: str) -> dict[str, float]:
    """The costs in a file, if it is one of this format, and of that key.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(content, dict) or (content.get("format"), content.get("key")) != (_FORMAT, key):
        raise ValueError("a file of another kind, version or key")
    seconds = content.get("seconds")
    if not isinstance(seconds, dict):
        raise ValueError("no costs")
    for value in seconds.values():
        if not isinstance(value, float) or not math.isfinite(value) or value <= 0:
            raise ValueError(f"{value!r} is not a time")
    return seconds
