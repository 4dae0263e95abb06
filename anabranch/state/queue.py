"""Queues: bounded sequences of elements between steps, with back-pressure  (§3.1, §4.1, WP4.5).

One machine serves all kinds of queues; the kinds differ in the store that holds the elements and in how elements
become batches.

    request             can be served when                          effect
    enqueue of k        open, and there is room                     elements go into the store as room appears; granted
                                                                    when all are in; a closed queue refuses it
    close               all enqueues before it are done             open -> closed; a closed queue refuses it
    close and cancel    always                                      open -> closed; all waiting enqueues are refused
    dequeue of n        elements are available                      elements are set aside for it as they appear;
                                                                    granted when it has n
                        closed and too few will ever come           `up_to` with at least one: granted with those;
                                                                    else those set aside go back, and it is refused

**Invariants** (whenever the lock is free)::

    elements put in == elements granted + elements in the store + elements set aside for the first dequeue
    an enqueue waits => the store is full;  a dequeue waits => no element is available to it
    only the first dequeue that waits has elements set aside

Requests of one kind are served strictly in the order in which they came, so that nobody starves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.core.pending import Pending
from anabranch.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from anabranch.state.components import Components, Element
from anabranch.state.element_stores import ElementStore
from anabranch.state.requests import Request, SharedObject, WaitQueue, Withdraw

#: the capacity of a queue without bounds
UNBOUNDED = 1 << 62


class Enqueue(Request):
    """Elements that wait for room."""

    __slots__ = ("elements", "next")

    def __init__(self, by: str, on_cancel: Withdraw, elements: Sequence[Element]) -> None:
        super().__init__(by, on_cancel)
        self.elements = elements
        self.next = 0


class Close(Request):
    """A regular end, which waits for the enqueues before it."""

    __slots__ = ()


class Dequeue(Request):
    """Wants `count` elements; as a batch, or a single one. `taken`: set aside for it."""

    __slots__ = ("batch", "components", "count", "taken", "up_to")

    def __init__(
        self, by: str, on_cancel: Withdraw, components: Components, count: int, batch: bool, up_to: bool
    ) -> None:
        super().__init__(by, on_cancel)
        self.components = components
        self.count = count
        self.batch = batch
        self.up_to = up_to
        self.taken: list[Element] = []

    def results(self) -> Sequence[Any]:
        return self.components.batch(self.taken) if self.batch else self.taken[0]


class Queue(SharedObject):
    """See the module docstring. Thread-safe; never blocks.

    Args:
        name: of the resource.
        kind: the type of queue, in messages.
        components: what an element is made of.
        capacity: how many elements it holds; 0 or less: any number.
        store: the elements.
    """

    def __init__(self, name: str, kind: str, components: Components, capacity: int, store: ElementStore) -> None:
        super().__init__(name)
        self.title = kind
        self.components = components
        self.capacity = capacity if capacity > 0 else UNBOUNDED
        self._store = store
        self._enqueues: WaitQueue[Enqueue | Close] = WaitQueue()
        self._dequeues: WaitQueue[Dequeue] = WaitQueue()
        self._closed_by: str | None = None
        self._ever_enqueued = 0

    # ------------------------------------------------------------------ requests
    def enqueue(self, arrays: Sequence[Any], by: str = "enqueue") -> Pending:
        """Puts in one element, given as one array per component; waits for room.

        Raises:
            InvalidArgumentError: it is no element of this queue.
        """
        return self._submit(Enqueue(by, self._withdraw, (self.components.element(arrays),)), self._enqueues)

    def enqueue_many(self, arrays: Sequence[Any], by: str = "enqueue_many") -> Pending:
        """Puts in the elements along the first dimension of the arrays, in order, one by one as there is room.

        Raises:
            InvalidArgumentError: they are no elements of this queue.
        """
        elements = self.components.elements(arrays)
        # nothing to wait for: it need not stand in the line, where it would be refused once the queue is closed
        if not elements:
            return Pending.completed(())
        return self._submit(Enqueue(by, self._withdraw, elements), self._enqueues)

    def dequeue(self, by: str = "dequeue") -> Pending:
        """Takes the next element; waits for one. The result is one array per component."""
        return self._submit(Dequeue(by, self._withdraw, self.components, 1, False, False), self._dequeues)

    def dequeue_many(self, count: int, up_to: bool = False, by: str = "dequeue_many") -> Pending:
        """Takes `count` elements and makes them one batch; waits for them.

        Args:
            up_to: whether a closed queue may give fewer, but at least one.

        Raises:
            InvalidArgumentError: the shapes of components are not known, or `count` is negative.
        """
        # before it waits: whether elements become a batch does not depend on which they are
        self.components.require_shapes("DequeueMany and DequeueUpTo")
        if count < 0:
            raise InvalidArgumentError(
                None, None, f"{by!r} requested {count} < 0 elements of {self.title} {self.name!r}; ask for 0 or more"
            )
        # also from a queue that is empty, or closed
        if count == 0:
            return Pending.completed(self.components.batch(()))
        return self._submit(Dequeue(by, self._withdraw, self.components, count, True, up_to), self._dequeues)

    def request_close(self, cancel_pending_enqueues: bool = False, by: str = "close") -> Pending:
        """Ends the queue: nothing more comes in; what is in it can still be taken.

        Args:
            cancel_pending_enqueues: refuse the enqueues that wait for room, instead of waiting for them.
        """
        if not cancel_pending_enqueues:
            # in one line with the enqueues, so that it comes to its turn when all before it are in
            return self._submit(Close(by, self._withdraw), self._enqueues)
        with self._alone():
            # errors name who closed it first
            self._closed_by = self._closed_by or by
            while self._enqueues:
                waiting = self._enqueues.first
                message = (
                    f"Enqueue operation was cancelled: {by!r} closed {self.title} {self.name!r} while {waiting.by!r} "
                    f"waited for room ({len(self._store)} elements of {self.capacity})"
                )
                self._refuse(self._enqueues, CancelledError(None, None, message))
        return Pending.completed(())

    # ------------------------------------------------------------------ questions
    def _wanted(self, request: Request) -> str:
        if isinstance(request, Dequeue):
            return f"{request.count} elements of {self.title} {self.name!r}, which holds {len(self._store)}"
        return f"room in {self.title} {self.name!r} ({len(self._store)} elements of {self.capacity})"

    def size(self) -> int:
        """How many elements are in it."""
        with self._alone():
            return len(self._store)

    @property
    def waits(self) -> int:
        """How many dequeues wait for elements."""
        with self._alone():
            return len(self._dequeues)

    @property
    def is_closed(self) -> bool:
        with self._alone():
            return self._closed_by is not None

    # ------------------------------------------------------------------ the machine
    def _wait_queues(self) -> Sequence[WaitQueue[Any]]:
        return (self._enqueues, self._dequeues)

    def _serve(self) -> None:
        # elements that come in serve dequeues, and these make room: each as long as the other has changed something
        self._serve_enqueues()
        while self._serve_dequeues() and self._serve_enqueues():
            pass

    def _serve_enqueues(self) -> bool:
        """Returns whether anything changed that a dequeue may wait for."""
        progress = False
        enqueues = self._enqueues
        while enqueues:
            request = enqueues.first
            # it stood behind the close: what came before that is in, or was refused by it
            if self._closed_by is not None:
                self._refuse(enqueues, self._refusal_of_enqueue(request))
                continue
            if isinstance(request, Close):
                self._closed_by = request.by
                self._grant(enqueues)
                progress = True
                continue
            # the first enqueue waits, and with it all behind it, in the order in which they came
            if not self._put_in(request):
                return progress
            progress = True
            # some of it is in; it stays first, so that no other enqueue comes between
            if request.next < len(request.elements):
                return progress
            self._grant(enqueues)
        return progress

    def _put_in(self, request: Enqueue) -> int:
        # negative where a dequeue that was given up has put its elements back into a queue that was full again
        room = min(self.capacity - len(self._store), len(request.elements) - request.next)
        if room <= 0:
            return 0
        # one by one as there is room: `enqueue_many` may have more elements than the queue has places
        for element in request.elements[request.next : request.next + room]:
            self._store.add(element)
        request.next += room
        self._ever_enqueued += room
        return room

    def _serve_dequeues(self) -> bool:
        """Returns whether anything changed that an enqueue may wait for."""
        progress = False
        dequeues = self._dequeues
        # nothing here closes it, so that one look is enough
        closed = self._closed_by is not None
        while dequeues:
            request = dequeues.first
            count = self._ready(request, closed)
            if count > 0:
                # set aside as they come: more elements than the queue has places are never in it at once
                request.taken.extend(self._store.take() for _ in range(count))
                progress = True
            if len(request.taken) == request.count or (closed and request.up_to and request.taken):
                self._grant(dequeues)
            elif closed:
                # before the error is made, which counts them
                self._store.put_back(request.taken)
                request.taken = []
                self._refuse(dequeues, self._insufficient(request))
            else:
                break
        return progress

    def _ready(self, request: Dequeue, closed: bool) -> int:
        """How many elements a dequeue takes now."""
        wanted = request.count - len(request.taken)
        there = self._store.available(closed)
        # the first of all can only be told when as many are there; more than the queue has places never are
        if self._store.is_ordered and there < wanted and request.count <= self.capacity and not closed:
            return 0
        return min(there, wanted)

    def _give_back(self, request: Request) -> None:
        # what an enqueue has put in stays in: others may have taken it already
        if isinstance(request, Dequeue) and request.taken:
            self._store.put_back(request.taken)
            request.taken = []

    # ------------------------------------------------------------------ errors
    def _refusal_of_enqueue(self, request: Request) -> CancelledError:
        if isinstance(request, Close):
            message = f"{self.title} {self.name!r} is already closed: {self._closed_by!r} did it"
        else:
            message = (
                f"{self.title} {self.name!r} is closed, by {self._closed_by!r}, so {request.by!r} cannot put elements "
                "in; enqueue before it is closed"
            )
        return CancelledError(None, None, message)

    def _insufficient(self, request: Dequeue) -> OutOfRangeError:
        return OutOfRangeError(
            None,
            None,
            f"{self.title} {self.name!r} is closed and has insufficient elements (requested {request.count}, "
            f"current size {len(self._store)}). {self._closed_by!r} closed it; {self._ever_enqueued} elements had "
            "been put in",
        )
