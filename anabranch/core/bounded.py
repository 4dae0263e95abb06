"""Caches of a process, which are bounded: the least recently used entries are dropped first."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Hashable, MutableMapping
from typing import Any, Final, Protocol

#: the order of uses; `used = next(ticks)` is cheap and needs no lock
ticks: Final = itertools.count(1)


class Kept(Protocol):
    """Something that a table holds under a key.

    Attributes:
        used: when it was last used, by `ticks`.
    """

    used: int

    def release(self) -> None:
        """Frees what it holds. Whoever is using it at this moment can go on."""


class Table(dict[Any, Any]):
    """A dictionary of kept items. (Ordinary ones cannot be referred to weakly.)"""

    __slots__ = ("__weakref__",)


class LeastRecentlyUsed:
    """Bounds what many tables of a process hold in all. Thread-safe.

    #: A table holds its items, not this object: an item whose table is gone, or has dropped it, does not count.

    Args:
        limit: how many items there may be; asked whenever one is added.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._lock = threading.RLock()  # reentrant: the garbage collector may run code of ours on the same thread
        self._entries: list[tuple[weakref.ref[Any], Any, weakref.ref[Any]]] = []

    def __len__(self) -> int:
        with self._lock:
            self._entries = [entry for entry in self._entries if _item(entry) is not None]
            return len(self._entries)

    def add(self, table: MutableMapping[Any, Any], key: Hashable, item: Kept) -> None:
        """Puts an item into a table, and drops the least recently used items of all tables above the limit."""
        item.used = next(ticks)
        table[key] = item
        evicted: list[Kept] = []
        with self._lock:
            self._entries.append((weakref.ref(table), key, weakref.ref(item)))
            while len(self) > max(self._limit(), 1):
                evicted += self._evict()
        for left in evicted:
            left.release()

    def _evict(self) -> list[Kept]:
        entry = min(self._entries, key=_last_use)
        item = entry[2]()
        self._entries.remove(entry)
        holder = entry[0]()
        if holder is not None:
            holder.pop(entry[1], None)
        return [] if item is None else [item]


def _item(entry: tuple[weakref.ref[Any], Any, weakref.ref[Any]]) -> Any:
    """The item of an entry, if its table still has it."""
    table, item = entry[0](), entry[2]()
    return item if table is not None and item is not None and table.get(entry[1]) is item else None


def _last_use(entry: tuple[weakref.ref[Any], Any, weakref.ref[Any]]) -> int:
    item = entry[2]()
    return 0 if item is None else item.used


def limit_from(variable: str, default: int) -> int:
    """A limit that an environment variable may set.

    Raises:
        ValueError: it is not a positive number.
    """
    text = os.environ.get(variable, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{variable} must be a positive number, got {text!r}")
    return int(text)
