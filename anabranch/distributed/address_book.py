"""Where the tasks of a cluster are: what files say of that is read again when they change.

A task that comes back on another machine has another address. Who runs a cluster says so in the file that
ANABRANCH_ADDRESS_MAP names, or in the description that `anabranch task --cluster` was given; the tasks that run look at
these files, and nobody has to be restarted. Masters ask tasks (`ClusterMaster.find`).

    ======================================  ==========================================================
    event                                   what follows
    ======================================  ==========================================================
    a file is as it was                     nothing
    a file has changed, and can be read     each task whose address has changed has moved
    a file has changed, and is malformed    what was known stands; it is said once for each change
    a file is gone                          what was known stands
    ======================================  ==========================================================
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from anabranch.errors import InvalidArgumentError

_log = logging.getLogger(__name__)

#: seconds between two looks at the files
LOOK_EVERY: Final = 1.0


class Move(NamedTuple):
    """A task that has another address now."""

    task: str
    before: str
    now: str


class AddressBook(Mapping[str, str]):
    """The addresses of tasks, by their full names. Thread-safe.

    Args:
        read: reads them anew.
        files: that `read` reads. A task that they name no more keeps its address.
        own: the task whose address never changes, since it is this process.

    Raises:
        whatever `read` raises.
    """

    def __init__(self, read: Callable[[], Mapping[str, str]], files: Sequence[str] = (), own: str = "") -> None:
        self._read, self._files, self._own = read, tuple(files), own
        self._lock = threading.Lock()
        # before it is read: what changes meanwhile is read again
        self._seen = self._stamps()
        self._addresses = dict(read())
        self._stop = threading.Event()

    def __getitem__(self, task: str) -> str:
        return self._addresses[task]

    def __iter__(self) -> Iterator[str]:
        return iter(self._addresses)

    def __len__(self) -> int:
        return len(self._addresses)

    def look(self) -> list[Move]:
        """Reads the files again if they have changed; which tasks have moved."""
        with self._lock:
            stamps = self._stamps()
            # a file that is being replaced is looked at again
            if stamps == self._seen or None in stamps:
                return []
            self._seen = stamps
            try:
                read = self._read()
            except (OSError, ValueError, InvalidArgumentError) as error:
                _log.warning("addresses stay as they were: %s", error)
                return []
            known = self._addresses
            moves = [
                Move(task, known[task], now)
                for task, now in read.items()
                if task in known and task != self._own and known[task] != now
            ]
            # replaced as a whole: who reads it meanwhile has one or the other
            self._addresses = {**known, **{move.task: move.now for move in moves}}
            return moves

    def watch(self, on_move: Callable[[Move], None]) -> None:
        """Looks at the files, if there are any, again and again until `close`, on a thread of its own."""
        if self._files:
            threading.Thread(target=self._watch, args=(on_move,), name="address book", daemon=True).start()

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()

    def _watch(self, on_move: Callable[[Move], None]) -> None:
        while not self._stop.wait(LOOK_EVERY):
            for move in self.look():
                _log.warning("%s has moved from %s to %s", *move)
                on_move(move)

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(file) for file in self._files]


def _stamp(file: str) -> tuple[int, int, int] | None:
    """What changes when a file is written or replaced; None: it is not there."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
