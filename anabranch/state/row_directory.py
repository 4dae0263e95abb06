"""Which row of a growing table belongs to which key: admission, eviction, tombstones, rows that steps hold  (§4.2).

A table of vectors by key has its rows in variables; this says which row is whose. Keys that are seen for the first time
are only counted. A key seen often enough is *admitted*: it gets a row. A key that was not seen for long is *evicted*:
its row becomes a *tombstone*, which takes what late gradients bring and is read by nobody. When its time is over the
row is *buried*: whoever has the variables gives it fresh values, and then it is free for another key.

| state of a key or row | what happens | new state |
|---|---|---|
| unknown | looked up | counted; or admitted, if once is enough |
| counted | looked up again, often enough | admitted, in a free row or in a new one |
| counted | not looked up for long when keys are evicted | unknown |
| admitted | looked up | admitted; a step holds the row until the step ends |
| admitted | not looked up for long when keys are evicted, held by a step | admitted |
| admitted | not looked up for long when keys are evicted, held by none | the key unknown; the row a tombstone |
| tombstone | its time is over when rows are buried | in burial |
| in burial | whoever buries says that the row has fresh values | free |
| in burial | rows are buried again: whoever did it failed | in burial, and buried by that one as well |

Rows that are free, or beyond all that were ever given out, always have fresh values. So a key that is admitted finds
its row initialized, and a look-up writes nothing.

Two rows belong to no key: what keys read that have no row, and where their gradients go, which nobody reads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np

from anabranch.core.arrays import HostArray

#: what keys without a row read, and where their gradients go
DEFAULT_ROW: Final = 0
UNREAD_ROW: Final = 1
#: the first row that may belong to a key
FIRST_ROW: Final = 2
#: how many rows a table has at first; it doubles
_LEAST_ROWS: Final = 64

#: the numbers of keys that are looked up at once are multiples of this
_LEAST_STEP: Final = 8

#: the golden ratio in 64 bits, which spreads keys that are multiples of a number
_KEY_FACTOR: Final = np.int64(-7046029254386353131)


def bucket_of(keys: HostArray, buckets: int) -> np.ndarray[Any, Any]:
    """The bucket of each key, int64; the same for every number of shards, so that shards can be made anew of buckets.

    Args:
        keys: int64.
        buckets: how many there are.
    """
    with np.errstate(over="ignore"):
        mixed = np.asarray(keys, np.int64) * _KEY_FACTOR
    bucket: np.ndarray[Any, Any] = np.mod(mixed ^ (mixed >> 32), np.int64(buckets))
    return bucket


def split_keys(keys: HostArray, parts: int, buckets: int) -> tuple[list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """The distinct keys of each part, and where each key stands among those of all parts one after the other.

    So that programs need not be compiled for each number of keys, there are only four numbers of them between a power
    of two and the next; the last key is repeated.

    Args:
        keys: int64, of any shape.
        parts, buckets: of the table.

    Returns:
        int64 [n] for each part; int64, of the shape of `keys`.
    """
    distinct, places = np.unique(keys, return_inverse=True)
    part = bucket_of(distinct, buckets) % parts
    position, begin = np.empty(len(distinct), np.int64), 0
    split = []
    for number in range(parts):
        mine = np.flatnonzero(part == number)
        padded = np.pad(distinct[mine], (0, _rounded(len(mine)) - len(mine)), "edge") if mine.size else distinct[mine]
        position[mine] = begin + np.arange(len(mine))
        begin += len(padded)
        split.append(padded)
    return split, position[places.reshape(-1)].reshape(np.shape(keys))


def _rounded(count: int) -> int:
    step = max(_LEAST_STEP, (1 << (count - 1).bit_length()) >> 3)
    return -(-count // step) * step


class HeldRows:
    """Rows that a step holds: they are not evicted until this is given back, or nobody refers to it any more."""

    __slots__ = ("_released", "_rows")

    def __init__(self, rows: np.ndarray[Any, Any], released: deque[np.ndarray[Any, Any]]) -> None:
        self._rows, self._released = rows, released

    def release(self) -> None:
        """Gives the rows back; again: nothing happens."""
        rows, self._rows = self._rows, self._rows[:0]
        if rows.size:
            # takes no lock: the garbage collector may come here in the midst of anything
            self._released.append(rows)

    def __del__(self) -> None:
        self.release()


class Found(NamedTuple):
    """What a look-up gives.

    Attributes:
        rows: int64 [n]: the row that each key reads.
        targets: int64 [n]: the row that takes each key's gradient.
        hold: keeps the rows.
    """

    rows: np.ndarray[Any, Any]
    targets: np.ndarray[Any, Any]
    hold: HeldRows


class Exported(NamedTuple):
    """The keys of a bucket.

    Attributes:
        keys: int64 [n], ascending.
        seen: float64 [n]: when each was last seen.
        rows: int64 [n].
        counted: int64 [m, 2]: keys that have no row yet, and how often they were seen.
        hold: keeps the rows.
    """

    keys: np.ndarray[Any, Any]
    seen: np.ndarray[Any, Any]
    rows: np.ndarray[Any, Any]
    counted: np.ndarray[Any, Any]
    hold: HeldRows


class RowDirectory:
    """See the module. Thread-safe; nothing waits.

    #: each row from `FIRST_ROW` up to `_next` is at exactly one place: in `_rows` (of a key), `_graves`, `_burying`,
    #: `_free`. `_seen` is infinite for rows of no key.

    Args:
        name: of the resource.
        admission: how many look-ups must have named a key before it gets a row, >= 1.
        grace: for how long a tombstone takes late gradients, in units of the clock that calls state.

    Raises:
        ValueError: a number is out of its range.
    """

    def __init__(self, name: str, admission: int = 1, grace: float = 0.0) -> None:
        if admission < 1 or grace < 0:
            raise ValueError(f"admission must be 1 or more and grace 0 or more, got {admission} and {grace}")
        self.name = name
        self._lock = threading.Lock()
        self._admission, self._grace = admission, grace
        #: the variables beside the rows, and with which values their rows begin
        self.slots: dict[Any, np.ndarray[Any, Any]] = {}
        self._begin()

    def _begin(self) -> None:
        self._rows: dict[int, int] = {}
        self._counted: dict[int, tuple[int, float]] = {}
        self._next = FIRST_ROW
        self._free: list[int] = []
        self._graves: deque[tuple[float, int]] = deque()
        self._burying: list[int] = []
        self._keys: np.ndarray[Any, Any] = np.zeros(_LEAST_ROWS, np.int64)
        self._seen = np.full(_LEAST_ROWS, np.inf)
        self._holders: np.ndarray[Any, Any] = np.zeros(_LEAST_ROWS, np.int64)
        # holds of rows as they were numbered before go on to a queue that nobody looks at
        self._released: deque[np.ndarray[Any, Any]] = deque()
        self._now = -np.inf

    # ------------------------------------------------------------------ sizes
    @property
    def capacity(self) -> int:
        """How many rows the variables must have: a power of two."""
        return len(self._keys)

    @property
    def rows_left(self) -> int:
        """How many rows were never given out of those that the variables have."""
        with self._lock:
            return len(self._keys) - self._next

    def size(self) -> int:
        """How many keys have a row."""
        with self._lock:
            return len(self._rows)

    # ------------------------------------------------------------------ steps
    def find(self, keys: HostArray, now: float, counts: bool = True) -> Found:
        """The rows of keys, which are held.

        Args:
            keys: int64 [n]; a key that comes several times counts once.
            now: the time; never before that of an earlier call: it counts as that then.
            counts: whether the keys are seen by this, and may get rows.
        """
        listed = keys.tolist()
        with self._lock:
            self._take_back()
            rows = self._rows_of(listed)
            if counts:
                now = self._time(now)
                without = np.flatnonzero(rows == DEFAULT_ROW)
                if without.size:
                    missing = keys[without].tolist()
                    for key in dict.fromkeys(missing):
                        self._count(key, now)
                    rows[without] = self._rows_of(missing)
                known = rows[rows != DEFAULT_ROW]
                self._seen[known] = now
            held = np.unique(rows)
            held = held[held != DEFAULT_ROW]
            self._holders[held] += 1
            return Found(rows, np.where(rows == DEFAULT_ROW, UNREAD_ROW, rows), HeldRows(held, self._released))

    def _rows_of(self, keys: list[int]) -> np.ndarray[Any, Any]:
        return np.fromiter(map(self._rows.get, keys, repeat(DEFAULT_ROW)), np.int64, len(keys))

    def _time(self, now: float) -> float:
        self._now = max(self._now, now)
        return self._now

    def _count(self, key: int, now: float) -> None:
        count = self._counted.get(key, (0, now))[0] + 1
        if count < self._admission:
            self._counted[key] = count, now
            return
        self._counted.pop(key, None)
        row = self._free.pop() if self._free else self._new_row()
        self._rows[key], self._keys[row] = row, key

    def _new_row(self) -> int:
        row, self._next = self._next, self._next + 1
        self._grow(self._next)
        return row

    def _grow(self, rows: int) -> None:
        size = len(self._keys)
        while size < rows:
            size *= 2
        more = size - len(self._keys)
        if more:
            self._keys = np.concatenate([self._keys, np.zeros(more, np.int64)])
            self._seen = np.concatenate([self._seen, np.full(more, np.inf)])
            self._holders = np.concatenate([self._holders, np.zeros(more, np.int64)])

    def _take_back(self) -> None:
        while self._released:
            # no row is twice in one of them
            self._holders[self._released.popleft()] -= 1

    # ------------------------------------------------------------------ eviction
    def evict(self, unseen_for: float, now: float) -> int:
        """Evicts the keys that were not seen for longer than that and are held by no step; how many that were.

        Args:
            unseen_for, now: in the units of the clock.
        """
        with self._lock:
            self._take_back()
            now = self._time(now)
            before = now - unseen_for
            evicted = np.flatnonzero((self._seen < before) & (self._holders == 0))
            for row in evicted.tolist():
                del self._rows[int(self._keys[row])]
                self._graves.append((now, row))
            self._seen[evicted] = np.inf
            self._counted = {key: entry for key, entry in self._counted.items() if entry[1] >= before}
            return int(evicted.size)

    def bury(self, now: float) -> list[int]:
        """The rows of tombstones whose time is over; whoever calls gives them fresh values and says `buried`."""
        with self._lock:
            now = self._time(now)
            while self._graves and self._graves[0][0] + self._grace <= now:
                self._burying.append(self._graves.popleft()[1])
            return list(self._burying)

    def buried(self, rows: Sequence[int]) -> None:
        """Rows of `bury` have fresh values: they are free."""
        with self._lock:
            done = set(rows) & set(self._burying)
            self._burying = [row for row in self._burying if row not in done]
            self._free.extend(sorted(done, reverse=True))

    # ------------------------------------------------------------------ in checkpoints
    def export(self, bucket: int, buckets: int) -> Exported:
        """The keys of one bucket (`bucket_of`), whose rows are held."""
        with self._lock:
            self._take_back()
            every = np.flatnonzero(np.isfinite(self._seen))
            mine = every[bucket_of(self._keys[every], buckets) == bucket]
            rows = mine[np.argsort(self._keys[mine], kind="stable")]
            self._holders[rows] += 1
            counts = np.array([(k, n) for k, (n, _) in sorted(self._counted.items())], np.int64).reshape(-1, 2)
            counted = counts[bucket_of(counts[:, 0], buckets) == bucket]
            return Exported(self._keys[rows], self._seen[rows], rows, counted, HeldRows(rows, self._released))

    def restore(self, keys: HostArray, seen: HostArray, counted: HostArray) -> None:
        """Replaces all keys: they have the rows from `FIRST_ROW` on, in their order.

        What steps held until now is not held any more, tombstones are gone, and slots are to be told anew.

        Args:
            keys: int64 [n].
            seen: float64 [n]: when each was last seen.
            counted: int64 [m, 2]: keys without a row, and how often they were seen.

        Raises:
            ValueError: the shapes do not fit, or a key comes twice; nothing has changed then.
        """
        if keys.ndim != 1 or seen.shape != keys.shape or counted.ndim != 2 or counted.shape[1] != 2:
            raise ValueError(
                f"keys [n], times [n] and counted keys [m, 2] were expected, got {[*keys.shape]}, {[*seen.shape]} "
                f"and {[*counted.shape]}"
            )
        rows = {key: row for row, key in enumerate(keys.tolist(), FIRST_ROW)}
        others = dict(counted.tolist())
        if len(rows) != len(keys) or len(others) != len(counted) or rows.keys() & others.keys():
            raise ValueError("a key comes twice")
        if not np.isfinite(seen).all():
            raise ValueError("the time at which a key was seen is no number")
        with self._lock:
            self._begin()
            self._next = FIRST_ROW + len(keys)
            self._grow(self._next)
            self._rows = rows
            self._keys[FIRST_ROW : self._next], self._seen[FIRST_ROW : self._next] = keys, seen
            self._now = float(seen.max(initial=-np.inf))
            self._counted = {key: (count, self._now) for key, count in others.items()}
            self.slots = {}
