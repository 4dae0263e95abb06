"""Barriers: elements whose components come from different steps, put together by key  (WP4.6).

    key        event                                        next
    unknown    a component is inserted                      incomplete (unless the barrier is closed: refused)
    incomplete its last component is inserted               ready: it joins the ready elements
    ready      `take_many` has enough                       taken

A closed barrier still completes what is incomplete; closed with cancellation it forgets it. Ready elements are taken in
the order of the insertion that first mentioned their key. A take that may be given fewer gets what is ready when the
barrier is closed, or the first that is ready after that. TensorFlow's has it wait for as many as it wants, as long as
anything is incomplete; where the step that takes is the one that completes the rest, as with the states of sequences,
it waits for itself.

**Invariants** (whenever the lock is free): a key is incomplete or ready, never both (a key that was taken may come
again); a take waits => fewer ready elements than it wants, and more may come.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import HostArray
from anabranch.core.pending import Pending
from anabranch.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from anabranch.state.components import Components, owned
from anabranch.state.requests import Request, SharedObject, WaitQueue, Withdraw


class Take(Request):
    """Wants `count` ready elements. `late`: it came when the barrier was closed, and waits for nothing."""

    __slots__ = ("components", "count", "late", "taken", "up_to")

    def __init__(
        self, by: str, on_cancel: Withdraw, components: Components, count: int, up_to: bool, late: bool
    ) -> None:
        super().__init__(by, on_cancel)
        self.late = late
        self.components = components
        self.count = count
        self.up_to = up_to
        self.taken: list[_Ready] = []

    def results(self) -> Sequence[Any]:
        indices = np.array([index for index, _, _, _ in self.taken], np.int64)
        keys = np.empty(len(self.taken), np.object_)
        keys[:] = [key for _, _, key, _ in self.taken]
        return [indices, keys, *self.components.batch([tuple(values) for _, _, _, values in self.taken])]


#: (insertion, number, key, components): a heap of these gives them in the order of insertions
_Ready = tuple[int, int, bytes, list[Any]]


class SharedBarrier(SharedObject):
    """See the module docstring. Thread-safe; never blocks.

    Args:
        name: of the resource.
        components: what the values are made of.
    """

    title = "Barrier"

    def __init__(self, name: str, components: Components) -> None:
        super().__init__(name)
        self.components = components
        self._incomplete: dict[bytes, tuple[int, list[Any]]] = {}
        self._ready: list[_Ready] = []
        self._takes: WaitQueue[Take] = WaitQueue()
        # where TensorFlow's barriers begin as well: programs see the numbers, as the indices of what they take
        self._insertion = np.iinfo(np.int64).min
        # decides between elements of one insertion before the heap would compare their keys and arrays
        self._numbers = itertools.count()
        self._closed_by: str | None = None
        self._cancelled = False

    # ------------------------------------------------------------------ requests
    def insert_many(self, index: int, keys: Sequence[bytes], values: HostArray, by: str = "insert_many") -> None:
        """Gives component `index` of the elements named by `keys`: one row of `values` for each.

        Raises:
            InvalidArgumentError: a key has this component already, or the shapes do not fit.
            CancelledError: the barrier is closed, and a key is new (or it was closed with cancellation).
        """
        self._check(index, keys, values, by)
        # before the lock, which a copy of much data would hold for long
        mine = owned(values)
        with self._alone():
            self._check_open(keys, by)
            for key in keys:
                present = self._incomplete.get(key)
                if present is not None and present[1][index] is not None:
                    raise InvalidArgumentError(
                        None,
                        None,
                        f"Key {key.decode(errors='replace')} already has a value for component {index} in barrier "
                        f"{self.name}; each component of a key is inserted once",
                    )
            self._insert(index, keys, mine)

    def _check(self, index: int, keys: Sequence[bytes], values: HostArray, by: str) -> None:
        if not 0 <= index < len(self.components.dtypes):
            raise InvalidArgumentError(
                None,
                None,
                f"The component ID is out of range {index} > num_components (= {len(self.components.dtypes)}) of "
                f"barrier {self.name!r}",
            )
        if values.ndim == 0 or values.shape[0] != len(keys):
            raise InvalidArgumentError(
                None,
                None,
                f"{by!r}: {len(keys)} keys need {len(keys)} rows of values, but their shape is {list(values.shape)}",
            )
        if len(keys) and values.size == 0:
            raise InvalidArgumentError(
                None,
                None,
                f"Tensors with no elements are not supported by barrier {self.name!r}: received shape "
                f"{list(values.shape)}",
            )
        # a barrier is given one component at a time: the check of whole elements, with that component for all
        one = Components(
            self.components.dtypes[index : index + 1], self.components.shapes[index : index + 1], self.components.title
        )
        one.elements([values])

    def _check_open(self, keys: Sequence[bytes], by: str) -> None:
        if self._closed_by is None:
            return
        story = (
            f"Pending enqueues cancelled: {int(self._cancelled)}. Number of new insertions: {len(keys)}. Number of "
            f"incomplete keys: {len(self._incomplete)}"
        )
        # a closed barrier takes components of keys that it knows, and knows of none any more
        if self._cancelled or (keys and not self._incomplete):
            raise CancelledError(
                None, None, f"Barrier {self.name} is closed, by {self._closed_by!r}, when {by!r} inserts. {story}"
            )
        for key in keys:
            if key not in self._incomplete:
                raise CancelledError(
                    None,
                    None,
                    f"Barrier {self.name} is closed, but attempted to insert a brand new key: "
                    f"{key.decode(errors='replace')}. {story}",
                )

    def _insert(self, index: int, keys: Sequence[bytes], values: HostArray) -> None:
        new = False
        for row, key in enumerate(keys):
            if key not in self._incomplete:
                self._incomplete[key] = (self._insertion, [None] * len(self.components.dtypes))
                new = True
            insertion, parts = self._incomplete[key]
            # an array also where it has no dimensions: an index alone would take the object out of an array of strings
            parts[index] = values[row, ...]
            if all(part is not None for part in parts):
                del self._incomplete[key]
                heapq.heappush(self._ready, (insertion, next(self._numbers), key, parts))
        # keys that one insertion mentions first share its number, by which they are taken
        if new:
            self._insertion += 1

    def take_many(self, count: int, up_to: bool = False, by: str = "take_many") -> Pending:
        """Takes `count` ready elements; waits for them. Results: insertion indices, keys, one batch per component.

        Args:
            up_to: whether a closed barrier may give fewer, but at least one: what is ready when it is asked, or closed.

        Raises:
            InvalidArgumentError: `count` is negative.
        """
        if count < 0:
            raise InvalidArgumentError(
                None, None, f"{by!r} asks barrier {self.name!r} for {count} elements, fewer than 0"
            )
        # read without the lock: a close at this very moment may come before the request or after it
        is_closed = self._closed_by is not None
        return self._submit(Take(by, self._withdraw, self.components, count, up_to, is_closed), self._takes)

    def request_close(self, cancel_pending_enqueues: bool = False, by: str = "close") -> None:
        """No new keys from now on; with cancellation, no components for incomplete ones either.

        Raises:
            CancelledError: it is closed already (closing once more with cancellation is allowed).
        """
        with self._alone():
            # to close again is no mistake if it does more than the first time
            if self._closed_by is not None and (self._cancelled or not cancel_pending_enqueues):
                message = f"Barrier {self.name!r} is already closed: {self._closed_by!r} did it"
                raise CancelledError(None, None, message)
            self._closed_by, self._cancelled = by, cancel_pending_enqueues
            if cancel_pending_enqueues:
                self._incomplete.clear()

    # ------------------------------------------------------------------ questions
    def ready_size(self) -> int:
        """How many elements are complete."""
        with self._alone():
            return len(self._ready)

    def incomplete_size(self) -> int:
        """How many keys lack a component."""
        with self._alone():
            return len(self._incomplete)

    # ------------------------------------------------------------------ the machine
    def _wait_queues(self) -> Sequence[WaitQueue[Any]]:
        return (self._takes,)

    def _serve(self) -> None:
        takes = self._takes
        while takes:
            request = takes.first
            ready, closed = len(self._ready), self._closed_by is not None
            may_be_fewer = closed and request.up_to
            # whether nothing is ready later that this take might get
            final = may_be_fewer and (request.late or not self._incomplete)
            if ready >= request.count or (may_be_fewer and ready):
                request.taken = [heapq.heappop(self._ready) for _ in range(min(ready, request.count))]
                self._grant(takes)
            # not enough even if all that is incomplete is completed: no insertion that is still allowed helps this take
            elif final or (closed and not request.up_to and ready + len(self._incomplete) < request.count):
                self._refuse(takes, self._insufficient(request, ready + (0 if final else len(self._incomplete))))
            else:
                # the first take that has to wait holds up those behind it, although they may want fewer: order
                # comes first
                return

    def _insufficient(self, request: Take, total: int) -> OutOfRangeError:
        return OutOfRangeError(
            None,
            None,
            f"Barrier {self.name!r} is closed and has insufficient elements (requested {request.count}, total size "
            f"{total}). {self._closed_by!r} closed it",
        )
