"""Where the tasks of a cluster are that an engine moves, and the files that tell processes so (0066, 0074).

The address with which a task was started at first is its *written* address: programs and TF_CONFIG go on to say it. Who
moves tasks counts editions of the map from written addresses to real ones, and sends each to every machine, where it
replaces the one before. `distributed.address_book` reads them.

    ==================================  ================================================
    edition                             what becomes of it
    ==================================  ================================================
    later than that of the file         it is the file, written aside and renamed
    of the file, or earlier             dropped: messages may overtake each other
    ==================================  ================================================
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from anabranch.io import durable


class MapEdition(NamedTuple):
    """An address map (`addresses.AddressMap`) as a text, and how many there were before it."""

    number: int
    text: str


class TaskPlaces:
    """The addresses of tasks, of which some have moved. Not thread-safe.

    Args:
        written: the address of each task as programs know it.
    """

    def __init__(self, written: Mapping[str, str]) -> None:
        self._written, self._now = dict(written), dict(written)
        self._number = 0

    def address(self, task: str) -> str:
        """Where a task is."""
        return self._now[task]

    def moved(self, task: str) -> str | None:
        """Where a task is that is not where programs know it; None: it is there."""
        now = self._now[task]
        return None if now == self._written[task] else now

    def move(self, task: str, address: str) -> bool:
        """A task is at an address; whether that is another one than before."""
        if self._now[task] == address:
            return False
        self._now[task] = address
        self._number += 1
        return True

    @property
    def edition(self) -> MapEdition:
        """The map as it is now."""
        lines = [f"{self._written[task]} = {now}\n" for task, now in self._now.items() if self.moved(task)]
        return MapEdition(self._number, "".join(lines))


class MapFile:
    """A file with the latest edition of a map. Thread-safe.

    Args:
        path: where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = -1
        self._lock = threading.Lock()

    def write(self, edition: MapEdition) -> None:
        """Replaces the file, as a whole, by a later edition.

        Raises:
            OSError: it cannot be written; it is as it was.
        """
        with self._lock:
            if edition.number <= self._number:
                return
            with durable.replacing(os.fspath(self.path)) as descriptor:
                durable.write_all(descriptor, edition.text.encode())
            self._number = edition.number
