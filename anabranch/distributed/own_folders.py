"""Folders for temporary files that end with their process, whatever ends it.

Who makes one holds its lock as long as it lives. Who is killed leaves it behind: the next who makes one of the same
kind removes those that nobody holds.

| folder | event | what follows |
|---|---|---|
| is made | another process, which sweeps, had its lock first | that one removes it; another is made |
| held | its process closes it | is removed |
| held | its process is killed | held by nobody |
| held by nobody | one of its kind is made, or they are swept | is removed |
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path


class OwnFolder:
    """A folder that only this user can enter.

    Args:
        kind: what its name begins with; others of this kind that were left behind are removed.

    Attributes:
        path: of the folder.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        sweep(kind)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=kind))
            self._lock: int | None = _locked(self.path)
            # before it was locked, it was one that nobody held
            if self._lock is not None:
                return

    def close(self) -> None:
        """Removes it, with what is in it; also what of its kind was left meanwhile. Idempotent."""
        if self._lock is None:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        self._lock = None
        sweep(self._kind)


def _locked(path: Path) -> int | None:
    """What locks a folder; None where it was removed before that."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    fcntl.flock(lock, fcntl.LOCK_EX)
    if path.exists():
        return lock
    os.close(lock)
    return None


def sweep(kind: str) -> None:
    """Removes the folders of a kind that nobody holds, as far as they are this user's."""
    for path in Path(tempfile.gettempdir()).glob(f"{kind}*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # another user's, no folder, or gone
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass  # somebody holds it
        finally:
            os.close(lock)
