"""Staging areas: small buffers between steps, so that one step's input is there before it begins  (WP4.6).

A `StagedLine` is a line; a `StagedMap` finds elements by number, and may take them component by component. Both
are bounded by a number of elements and of bytes, if asked to be.

**Invariant** (whenever the lock is free): a put waits => its element does not fit; a get waits => what it wants is not
there. Puts of a line are served in the order in which they came; any other request that can be served is, whoever else
waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from anabranch.core.pending import Pending
from anabranch.errors import InvalidArgumentError, ResourceExhaustedError
from anabranch.state.components import Element, owned
from anabranch.state.requests import Request, SharedObject, WaitQueue, Withdraw


class Put(Request):
    """Components that wait for room; `places`: which components of the element they are."""

    __slots__ = ("count", "key", "places", "size", "values_put")

    def __init__(self, by: str, on_cancel: Withdraw, key: int, places: Sequence[int], values: Element) -> None:
        super().__init__(by, on_cancel)
        self.key = key
        self.places = places
        self.values_put = values
        self.count = len(values)
        self.size = sum(v.nbytes for v in values)


class Get(Request):
    """Wants an element (or some of its components): taken out, or only looked at."""

    __slots__ = ("key", "picked", "places", "remove")

    def __init__(
        self, by: str, on_cancel: Withdraw, key: int | None, places: Sequence[int] | None, remove: bool
    ) -> None:
        super().__init__(by, on_cancel)
        self.key = key
        self.places = places
        self.remove = remove
        self.picked: Sequence[Any] = ()

    def results(self) -> Sequence[Any]:
        return self.picked


class _Area(SharedObject):
    title = "staging area"

    def __init__(self, name: str, capacity: int, memory_limit: int) -> None:
        super().__init__(name)
        self.capacity = capacity
        self.memory_limit = memory_limit
        self._bytes = 0
        self._puts: WaitQueue[Put] = WaitQueue()
        self._gets: WaitQueue[Get] = WaitQueue()

    def _wait_queues(self) -> Sequence[WaitQueue[Any]]:
        return (self._puts, self._gets)

    def _check_size(self, request: Put) -> None:
        # it would wait for ever
        if self.memory_limit and request.size > self.memory_limit:
            raise ResourceExhaustedError(
                None,
                None,
                f"Attempted to insert tensors with combined size of '{request.size}' bytes into Staging Area with a "
                f"memory limit of '{self.memory_limit}'.",
            )

    def _room_for(self, request: Put, elements: int) -> bool:
        if self.memory_limit and self._bytes + request.size > self.memory_limit:
            return False
        return not self.capacity or elements < self.capacity

    def _serve(self) -> None:
        progress = True
        # what comes in may serve a get, and what is taken out makes room for a put
        while progress:
            # both in each round, hence no `or`
            progress = self._serve_puts() | self._serve_gets()

    def _serve_puts(self) -> bool:
        raise NotImplementedError

    def _serve_gets(self) -> bool:
        progress = False
        # in order, but one that must wait holds up no other: they may want different elements
        for request in list(self._gets):
            if self._try_get(request):
                self._gets.leave(request)
                request.grant()
                self._decided.append(request)
                # what is only looked at makes no room
                progress = progress or request.remove
        return progress

    def _try_get(self, request: Get) -> bool:
        raise NotImplementedError


class StagedLine(_Area):
    """A line of elements. See the module docstring. Thread-safe; never blocks.

    Args:
        name: of the resource.
        capacity: how many elements it holds; 0: any number.
        memory_limit: how many bytes it holds; 0: any number.
    """

    def __init__(self, name: str, capacity: int, memory_limit: int) -> None:
        super().__init__(name, capacity, memory_limit)
        self._elements: deque[tuple[Element, int]] = deque()

    def put(self, values: Sequence[Any], by: str = "put") -> Pending:
        """Adds an element; waits for room.

        Raises:
            ResourceExhaustedError: it is larger than the whole area.
        """
        # owned: the values stay for a later step, and may show memory of this one
        request = Put(by, self._withdraw, 0, (), tuple(owned(v) for v in values))
        self._check_size(request)
        return self._submit(request, self._puts)

    def get(self, by: str = "get") -> Pending:
        """Takes the oldest element out; waits for one."""
        return self._submit(Get(by, self._withdraw, 0, None, True), self._gets)

    def peek(self, index: int, by: str = "peek") -> Pending:
        """Looks at the element at a position; waits for it.

        Raises:
            InvalidArgumentError: the position is negative.
        """
        if index < 0:
            raise InvalidArgumentError(None, None, f"{by!r} looks at position {index} of {self.name!r}; count from 0")
        return self._submit(Get(by, self._withdraw, index, None, False), self._gets)

    def size(self) -> int:
        """How many elements are in it."""
        with self._alone():
            return len(self._elements)

    def clear(self) -> None:
        """Forgets all elements."""
        with self._alone():
            self._elements.clear()
            self._bytes = 0

    def _serve_puts(self) -> bool:
        progress = False
        while self._puts and self._room_for(self._puts.first, len(self._elements)):
            request = self._puts.first
            self._elements.append((request.values_put, request.size))
            self._bytes += request.size
            self._grant(self._puts)
            progress = True
        return progress

    def _try_get(self, request: Get) -> bool:
        index = request.key or 0
        if index >= len(self._elements):
            return False
        if request.remove:
            # a get, which wants position 0; only a peek names another
            request.picked, size = self._elements.popleft()
            self._bytes -= size
        else:
            request.picked = self._elements[index][0]
        return True


class StagedMap(_Area):
    """Elements by number, put and taken whole or component by component. Thread-safe; never blocks.

    Args:
        name: of the resource.
        ordered: whether `get_any` takes the smallest number first, or the oldest complete element.
        capacity: how many numbers it holds, complete or not; 0: any number.
        memory_limit: how many bytes it holds; 0: any number.
    """

    def __init__(self, name: str, ordered: bool, capacity: int, memory_limit: int) -> None:
        super().__init__(name, capacity, memory_limit)
        self.ordered = ordered
        # both count for the capacity: an element that lacks a component holds memory as well
        self._incomplete: dict[int, list[Any]] = {}
        self._complete: dict[int, list[Any]] = {}

    def put(self, key: int, places: Sequence[int], values: Sequence[Any], count: int, by: str = "put") -> Pending:
        """Gives components of an element; waits for room.

        Args:
            places: which components `values` are.
            count: how many components the whole element has.

        Raises:
            InvalidArgumentError: there is no such component; and (in the result) the element has it already.
            ResourceExhaustedError: they are larger than the whole area.
        """
        if any(not 0 <= p < count for p in places) or len(set(places)) != len(places):
            raise InvalidArgumentError(
                None, None, f"{by!r}: components {list(places)} of an element that has {count}; name each once"
            )
        request = Put(by, self._withdraw, key, tuple(places), tuple(owned(v) for v in values))
        # of the whole element, and not of what this put gives of it
        request.count = count
        self._check_size(request)
        return self._submit(request, self._puts)

    def get(self, key: int, places: Sequence[int] | None = None, by: str = "get") -> Pending:
        """Takes an element, or some of its components, out; waits until it is complete.

        Raises:
            InvalidArgumentError: a component is named twice; and (in the result) the element lacks one.
        """
        self._check_taken_once(places, by)
        return self._submit(Get(by, self._withdraw, key, places, True), self._gets)

    def get_any(self, places: Sequence[int] | None = None, by: str = "get") -> Pending:
        """Takes some complete element, or some of its components, out; the first result is its number.

        Raises:
            InvalidArgumentError: as `get`.
        """
        self._check_taken_once(places, by)
        return self._submit(Get(by, self._withdraw, None, places, True), self._gets)

    def peek(self, key: int, places: Sequence[int] | None = None, by: str = "peek") -> Pending:
        """Looks at an element, or some of its components; waits until it is complete."""
        return self._submit(Get(by, self._withdraw, key, places, False), self._gets)

    def _check_taken_once(self, places: Sequence[int] | None, by: str) -> None:
        if places is not None and len(set(places)) != len(places):
            raise InvalidArgumentError(
                None, None, f"{by!r} takes components {list(places)} of an element of {self.name!r}; name each once"
            )

    def size(self) -> int:
        """How many elements are complete."""
        with self._alone():
            return len(self._complete)

    def incomplete_size(self) -> int:
        """How many elements lack a component."""
        with self._alone():
            return len(self._incomplete)

    def clear(self) -> None:
        """Forgets all elements."""
        with self._alone():
            self._incomplete.clear()
            self._complete.clear()
            self._bytes = 0

    def _serve_puts(self) -> bool:
        progress = False
        for request in list(self._puts):  # one that waits for room must not hold up what completes another element
            # whenever one is looked at, since another that waited for room as well may have put the component in
            problem = self._problem(request)
            if problem is not None:
                self._puts.leave(request)
                request.refuse(problem)
                self._decided.append(request)
                continue
            # a component of an element that is there already needs room for its bytes only
            elements = len(self._complete) + len(self._incomplete) - (request.key in self._incomplete)
            if self._room_for(request, elements):
                self._store(request)
                self._puts.leave(request)
                request.grant()
                self._decided.append(request)
                progress = True
        return progress

    def _problem(self, request: Put) -> InvalidArgumentError | None:
        """Why components can never be a part of their element."""
        parts = self._incomplete.get(request.key)
        # operations that share the area by its name need not agree on what an element is
        if parts is not None and len(parts) != request.count:
            problem = (
                f"{request.by!r} gives components {list(request.places)} of an element that has {request.count}, but "
                f"the element for key {request.key} in {self.name!r} was begun with {len(parts)}; use another key, or "
                "one list of dtypes"
            )
        elif request.key in self._complete or (parts is not None and any(parts[p] is not None for p in request.places)):
            problem = (
                f"The tensor for key {request.key} at indices {list(request.places)} has already been inserted in "
                f"{self.name!r}; take it out first"
            )
        else:
            return None
        return InvalidArgumentError(None, None, problem)

    def _store(self, request: Put) -> None:
        parts = self._incomplete.setdefault(request.key, [None] * request.count)
        for place, value in zip(request.places, request.values_put, strict=True):
            parts[place] = value
        self._bytes += request.size
        if all(p is not None for p in parts):
            self._complete[request.key] = self._incomplete.pop(request.key)

    def _try_get(self, request: Get) -> bool:
        key = request.key
        if key is None:
            if not self._complete:
                return False
            # a dictionary keeps the order in which elements became complete
            key = min(self._complete) if self.ordered else next(iter(self._complete))
        parts = self._complete.get(key)
        if parts is None:
            return False
        places = range(len(parts)) if request.places is None else request.places
        # waiting would not help: what was taken out comes back only with a whole new element
        missing = [p for p in places if not 0 <= p < len(parts) or parts[p] is None]
        if missing:
            self._gets.leave(request)
            message = (
                f"Tensor at index '{missing[0]}' for key '{key}' has already been removed. The elements of "
                f"{self.name!r} have {len(parts)} components"
            )
            request.refuse(InvalidArgumentError(None, None, message))
            self._decided.append(request)
            return False
        picked = [parts[p] for p in places]
        request.picked = picked if request.key is not None else [key, *picked]
        if request.remove:
            self._remove(key, parts, places)
        return True

    def _remove(self, key: int, parts: list[Any], places: Sequence[int]) -> None:
        for place in places:
            self._bytes -= parts[place].nbytes
            parts[place] = None
        # what is left of an element keeps its place in the area until all of it was taken
        if all(p is None for p in parts):
            del self._complete[key]
