"""What starts a part of a step on another task, kept until there are tensors to go along (§4.4).

    =======  =================================================  ================================  ==============
    state    a tensor is sent there                             `begin`                           begun
    =======  =================================================  ================================  ==============
    held     its indices' rows are taken (`published_rows`);    sends what starts the part and    -> begun
             it is kept if anybody there needs it; where it     what is kept, -> begun
             is the last, or must not wait: as `begin`
    begun    left to its sender                                 nothing                           -
    =======  =================================================  ================================  ==============

#: What starts the part says of which variables rows have been taken: those, and only those, are not sent from there.
#: Once a part has begun its tensors go by themselves, so that nothing is kept for ever.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from anabranch.core.values import TensorValue
from anabranch.runtime.published_rows import PublishedRows
from anabranch.runtime.rendezvous_table import Key

#: a tensor; None in place of its value: it is dead
Sent = tuple[Key, TensorValue | None]
#: a tensor of more bytes waits for no others
_MOST_BYTES: Final = 1 << 16
#: tensors wait for each other so long (s) from the beginning of the step
_PATIENCE: Final = 0.005


class Offered(NamedTuple):
    """What became of a tensor.

    Attributes:
        is_taken: whether its sender has nothing more to do with it.
        rows: what was taken for it, and has arrived.
    """

    is_taken: bool
    rows: Sequence[tuple[PublishedRows, np.ndarray[Any, Any]]]


_BEGUN: Final = Offered(False, ())
_TAKEN: Final = Offered(True, ())


class HeldStart:
    """See the module docstring. Thread-safe.

    Args:
        send: starts the part; it is given the tensors that go along, and a bit for each number of rows that were taken.
        rows: those that are taken for tensors, by the names of these transfers.
        count: how many tensors will be sent there in all.
        waits: whether tensors wait for each other. None does where somebody may wait for what the part does.
        clock: in seconds.
    """

    __slots__ = ("_clock", "_count", "_kept", "_lock", "_rows", "_send", "_taken", "_until")

    def __init__(
        self,
        send: Callable[[Sequence[Sent], int], None],
        rows: Mapping[str, Sequence[PublishedRows]],
        count: int,
        waits: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send, self._rows, self._count = send, rows, count
        self._clock = clock
        #: when tensors do not wait any more: in a long step the part has something to do while others are computed
        self._until = clock() + _PATIENCE if waits else -math.inf
        self._lock = threading.Lock()
        #: None: it has begun
        self._kept: list[Sent] | None = []
        self._taken = 0

    def offer(self, key: Key, value: TensorValue | None) -> Offered:
        """A tensor is sent to the part; without a value: a dead one."""
        rows: list[tuple[PublishedRows, np.ndarray[Any, Any]]] = []
        # it leaves the process as an array of the host in any case
        value = np.asarray(value) if isinstance(value, jax.Array) else value
        with self._lock:
            if self._kept is None:
                return _BEGUN
            self._count -= 1
            takers = self._rows.get(key.tensor, ())
            is_needed, must_begin = not takers, value is None or getattr(value, "nbytes", 0) > _MOST_BYTES
            for taker in takers:
                taken = None if must_begin else taker.take(np.asarray(value))
                if taken is None:
                    must_begin = True
                    continue
                self._taken |= 1 << taker.number
                rows.append((taker, taken))
                is_needed |= not taker.is_alone
            if is_needed or must_begin:
                self._kept.append((key, value))
            if not (must_begin or self._count <= 0 or (is_needed and self._clock() >= self._until)):
                return Offered(True, rows) if rows else _TAKEN
            kept, self._kept = self._kept, None
        self._send(kept, self._taken)
        return Offered(True, rows) if rows else _TAKEN

    def begin(self) -> None:
        """Starts the part, if it has not begun."""
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None:
            self._send(kept, self._taken)
