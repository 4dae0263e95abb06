"""Requests that wait at a shared object, and how they are answered without losing anything.

An object decides about requests under its lock and answers them after it has released it, because an answer runs
callbacks of the step that waits. Between the two a step may be given up. Who is right then is settled here:

    state       event                          next        what happens
    ARRIVED     somebody holds the lock        WAITING     it joins its queue
    WAITING     the object can serve it        DECIDED     it leaves the queue; what it gets is noted in it
    WAITING     its step is cancelled          WITHDRAWN   it leaves the queue; what it had got already goes back
    DECIDED     the lock is released           answered    `Pending.complete` or `fail`
    DECIDED     its step is cancelled          answered    the cancellation comes too late: `cancel` answers the request
                                                           itself, with what was decided, and so has no effect

So a value is either in the object or in the hands of exactly one step, and values are given in the order decided.

**No thread waits for the lock in order to submit a request.** It leaves the request among the arrived ones and tries
the lock; a holder looks for arrived requests after it has released the lock, so that whoever does not get it may leave:
if the request arrived before the holder looked, the holder serves it; if after, the lock was free when it was tried.
(A thread that did wait would be given the lock while another one runs Python code, and would hold it until its own turn
to run came: from the first such meeting on, all threads would take turns at every request.)

So the lock is a part of the protocol, and stands here rather than around the machines, as it does around
`runtime.rendezvous_table.RendezvousTable`. What is pure is what a subclass adds: `_serve` changes the object and
decides about requests, under a lock that it does not see; it calls nobody and answers nobody.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from anabranch.core.pending import Pending
from anabranch.errors import CancelledError, OpError

#: told of a request that is given up, which its object is to forget
Withdraw: TypeAlias = Callable[[Pending], object]


class Request(Pending):
    """A request to a shared object: the result that is not there yet, and where it stands.

    Args:
        by: the name of the operation that asks.
        on_cancel: as for `Pending`.
    """

    __slots__ = ("by", "decided", "error_given", "withdrawn")

    def __init__(self, by: str, on_cancel: Callable[[Pending], object] | None = None) -> None:
        super().__init__(on_cancel)
        self.by = by
        self.decided = False
        self.withdrawn = False
        self.error_given: BaseException | None = None

    @property
    def waiting(self) -> bool:
        return not (self.decided or self.withdrawn)

    def grant(self) -> None:
        """Decides for the request; `results` must be able to say what it gets. Under the object's lock."""
        self.decided = True

    def refuse(self, error: BaseException) -> None:
        """Decides against the request. Under the object's lock."""
        self.decided, self.error_given = True, error

    def results(self) -> Sequence[Any]:
        """What a granted request gets. Called without the lock, and perhaps twice."""
        return ()

    def answer(self) -> None:
        """Settles a decided request; not under the object's lock."""
        if self.error_given is not None:
            self.fail(self.error_given)
            return
        try:
            results = self.results()
        # it fails this request, and not the step on whose thread it happens to be answered
        except (OpError, MemoryError, ValueError, TypeError) as error:
            self.fail(error)
        else:
            self.complete(results)


R = TypeVar("R", bound=Request)


class WaitQueue(deque[R]):
    """Requests in the order in which they came."""

    @property
    def first(self) -> R:
        return self[0]

    def leave(self, request: R) -> None:
        """Takes a request out, wherever it stands, if it does."""
        if self and self[0] is request:
            self.popleft()
        elif request in self:
            self.remove(request)


#: the arguments of one attempt to take a lock
_WITHOUT_WAITING: Final = (False,)


class SharedObject:
    """What several steps use at once: one lock, requests that wait, and answers given outside the lock.

    A subclass defines `_serve`, which decides about as many waiting requests as it can, and `_give_back`.

    #: `_lock` is held in `_serve`, `_give_back` and every method that ends in `_locked`; never while a request is
    #: answered, so that an answer may ask the same object again.
    #: Whoever gets the lock lets in what has arrived, and takes what is decided along before releasing it: `_decided`
    #: is empty whenever the lock is free. Whoever has released it calls `_work_off`, so that nothing stays arrived.

    Args:
        name: of the resource; a part of messages.
    """

    #: what the object is called in messages
    title = "resource"

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        #: requests, and their wait queues, that no holder of the lock has seen yet
        self._arrived: deque[tuple[Request, WaitQueue[Any]]] = deque()
        self._decided: list[Request] = []
        self._abandoned = False

    # ------------------------------------------------------------------ for subclasses
    def _serve(self) -> None:
        """Decides about the requests that can be decided now."""
        raise NotImplementedError

    def _wait_queues(self) -> Sequence[WaitQueue[Any]]:
        """All wait queues in which requests wait."""
        raise NotImplementedError

    def _wanted(self, request: Request) -> str:
        """What a request waits for, for messages. Under the lock."""
        return f"{self.title} {self.name!r}"

    def _give_back(self, request: Request) -> None:
        """Takes back what a withdrawn request had got."""

    def _submit(self, request: Request, queue: WaitQueue[Any]) -> Pending:
        """Lets a request join a queue and answers what can be answered now."""
        # left first and worked off then: in the other order it could arrive when every holder has looked already
        try:
            self._arrived.append((request, queue))
            self._work_off()
        # thrown by another thread: nobody will take what the request gets, and nobody else would cancel it
        except BaseException:
            self._withdraw(request)
            raise
        return request

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Inside, nobody else uses the object; after it, what the block made possible is decided and answered."""
        decided: list[Request] = []
        try:
            # this waits for the lock, unlike `_work_off`: who asks a question, or changes the object, needs it
            # done on return
            with self._lock:
                try:
                    self._let_in()
                    yield
                    self._serve()
                finally:
                    # after an exception as well: what was decided before it has to be answered
                    decided = self._take_decided()
        finally:
            answer_all(decided)
            self._work_off()

    def _work_off(self) -> None:
        """Decides and answers what has arrived, unless another thread is at it, which then does this as well."""
        while self._arrived:
            held: list[bool] = []
            try:
                # one call, after which the lock is noted: an exception that another thread throws comes after calls
                held.extend(map(self._lock.acquire, _WITHOUT_WAITING))
                if not held[0]:
                    return
                self._let_in()
                decided = self._take_decided()
            finally:
                if held == [True]:
                    self._lock.release()
            answer_all(decided)

    def _take_decided(self) -> list[Request]:
        decided, self._decided = self._decided, []
        return decided

    def _let_in(self) -> None:
        """Lets arrived requests join their wait queues. Under the lock."""
        while self._arrived:
            request, queue = self._arrived.popleft()
            # its container is gone: nobody else will ever serve it
            if self._abandoned:
                request.refuse(self._abandonment(request))
                self._decided.append(request)
                continue
            queue.append(request)
            self._serve()
            if request.waiting:
                # only of one that has to wait: most are served at once, and the words cost more than that
                request.waiting_for = self._wanted(request)

    def _grant(self, queue: WaitQueue[Any]) -> None:
        """Decides for the first request of a queue. Under the lock."""
        request = queue.popleft()
        request.grant()
        self._decided.append(request)

    def _refuse(self, queue: WaitQueue[Any], error: BaseException) -> None:
        """Decides against the first request of a queue. Under the lock."""
        request = queue.popleft()
        request.refuse(error)
        self._decided.append(request)

    def _withdraw(self, pending: Pending) -> None:
        """Called when a step gives a request up: see the table in the module's docstring."""
        assert isinstance(pending, Request)
        with self._alone():
            # it may have been decided between the cancellation and the lock
            if pending.waiting:
                for queue in self._wait_queues():
                    queue.leave(pending)
                pending.withdrawn = True
                self._give_back(pending)
        # it was decided before the lock was got: the cancellation comes too late
        if pending.decided:
            pending.answer()

    def _abandonment(self, request: Request) -> BaseException:
        return CancelledError(
            None, None, f"{request.by!r} was cancelled: {self.title} {self.name!r} was released with its session"
        )

    # ------------------------------------------------------------------ for everybody
    def close(self) -> None:
        """Called when the container of the object goes away: whatever waits is cancelled, now and later."""
        with self._alone():
            # before those that wait are refused, and under the same lock: whatever arrives from now on is refused
            # in `_let_in`
            self._abandoned = True
            for queue in self._wait_queues():
                # a copy, for each refusal takes the first one out
                for request in list(queue):
                    self._give_back(request)
                    self._refuse(queue, self._abandonment(request))

    def waiting(self) -> dict[str, list[str]]:
        """Who waits at this object: names of operations by kind of request."""
        with self._alone():
            waiters: dict[str, list[str]] = {}
            for queue in self._wait_queues():
                for request in queue:
                    waiters.setdefault(type(request).__name__, []).append(request.by)
            return waiters


def answer_all(requests: Sequence[Request]) -> None:
    """Answers decided requests in the order in which they were decided."""
    for request in requests:
        request.answer()
