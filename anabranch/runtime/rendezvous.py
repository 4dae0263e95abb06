"""The rendezvous of a task and its steps (§3.3, WP3.2.2).

`Rendezvous` puts a lock around the state machine of `runtime.rendezvous_table`, and settles the receivers' `Pending`
results; `Exchange` is the view that one step, or one iteration of one of its loops, has of it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.core.pending import Pending
from anabranch.core.values import TensorValue
from anabranch.runtime.held_start import HeldStart
from anabranch.runtime.rendezvous_table import NOTHING, Dead, Delivery, Key, RendezvousTable, StepId

_new: Final = tuple.__new__


class Rendezvous:
    """The rendezvous of one task. Thread-safe; never blocks.

    #: The lock is never held while a result is settled: settling may run whatever waits for it.

    Attributes:
        outlet: takes what is sent to other tasks; None where there are none.
    """

    def __init__(self) -> None:
        self._table = RendezvousTable()
        self._lock = threading.Lock()
        self._idle: dict[str, list[Callable[[], None]]] = {}
        #: of steps that have not begun here; one assignment, look or pop each
        self._held: dict[StepId, Mapping[str, HeldStart]] = {}
        self.outlet: Callable[[Key, TensorValue | Dead], None] | None = None

    def begin(self, step: StepId, sent: Sequence[tuple[Key, TensorValue | Dead]] = ()) -> Exchange:
        """Starts a step; the caller ends it with `Exchange.finish`, after `Exchange.abort` if it failed.

        Args:
            sent: values of it that have come along.
        """
        with self._lock:
            self._table.begin(step, sent)
        return Exchange(self, step, held=self._held.pop(step, None))

    def hold(self, step: StepId, starts: Mapping[str, HeldStart]) -> None:
        """Parts of a step on other tasks are started along with tensors for them, which the step here sends.

        Args:
            starts: by the full names of the devices to which tensors go.
        """
        self._held[step] = starts

    def let_go(self, step: StepId) -> None:
        """Nothing more is started so: the step does not begin here."""
        self._held.pop(step, None)

    def begin_turn(self, session: str, number: int, first: int) -> bool:
        """See `RendezvousTable.begin_turn`; where it is true, `end_turn` has to follow."""
        with self._lock:
            return self._table.begin_turn(session, number, first)

    def end_turn(self, session: str) -> None:
        """It is over."""
        with self._lock:
            self._table.end_turn(session)
            idle = self._take_idle(session) if self._idle else ()
        for call in idle:
            # outside the lock, as in `when_idle`
            call()

    @contextlib.contextmanager
    def step(self, step: StepId) -> Iterator[Exchange]:
        """The exchange of a step that runs inside; if it fails, whoever still waits in it is told."""
        exchange = self.begin(step)
        try:
            yield exchange
        except BaseException as error:
            # before `finish`, which would tell those who still wait only that nobody sent, and not why
            exchange.abort(error)
            raise
        finally:
            exchange.finish()

    @property
    def steps(self) -> int:
        """How many steps are under way."""
        return self._table.steps

    @property
    def ended_steps(self) -> int:
        """How many steps have ended, failed ones too."""
        return self._table.ended_steps

    def send(self, key: Key, value: TensorValue | Dead) -> None:
        """Gives a value to whoever asked for it, or keeps it for whoever will."""
        with self._lock:
            deliveries = self._table.send(key, value)
        if deliveries:
            _settle(deliveries)

    def arrive(self, key: Key, value: TensorValue | Dead, size: int) -> None:
        """Takes a value of `size` bytes that has come from another task."""
        with self._lock:
            deliveries = self._table.arrive(key, value, size)
        _settle(deliveries)

    def arrive_all(self, values: Mapping[Key, TensorValue], size: int) -> None:
        """Takes values of one step, of `size` bytes in all, that were read on another task."""
        deliveries: list[Delivery] = []
        with self._lock:
            for key, value in values.items():
                deliveries += self._table.arrive(key, value, size // len(values))
        if deliveries:
            _settle(deliveries)

    def open_session(self, session: str, first: int = 0) -> None:
        """Keeps from now on what comes for steps of a session before they begin; until `forget_session`.

        Args:
            first: the steps below have ended; nothing is kept for them.
        """
        with self._lock:
            self._table.open_session(session, first)

    def end_below(self, session: str, first: int) -> None:
        """Drops what is kept for the steps of a session below a number, which have ended."""
        with self._lock:
            self._table.end_below(session, first)

    def when_idle(self, session: str, call: Callable[[], None]) -> None:
        """Calls, once, when no step of a session is under way: on this thread, or on the one that ends the last."""
        with self._lock:
            if not self._table.is_idle(session):
                self._idle.setdefault(session, []).append(call)
                return
        # outside the lock, which is not reentrant: what is called here may be what forgets the session, which takes it
        call()

    def forget_session(self, session: str) -> None:
        """Drops what is kept for a session that has ended."""
        with self._lock:
            self._table.forget_session(session)

    def receive(self, key: Key) -> Pending:
        """The value of a key, when it is there: a `Pending` of one output."""
        pending = Pending(on_cancel=lambda waiter: self._forget(key, waiter), waiting_for=key)
        with self._lock:
            deliveries = self._table.receive(key, pending)
        _settle(deliveries)
        return pending

    def ask(self, key: Key) -> Any:
        """The value of a key if it was sent already, else what `receive` gives."""
        with self._lock:
            value = self._table.take(key)
        return self.receive(key) if value is NOTHING else value

    def abort(self, step: StepId, error: BaseException) -> None:
        """Wakes all who wait in a step with an error."""
        with self._lock:
            deliveries = self._table.abort(step, error)
        _settle(deliveries)

    def finish(self, step: StepId) -> None:
        """Ends a step."""
        with self._lock:
            deliveries = self._table.finish(step)
            idle = self._take_idle(step.session) if self._idle else ()
        _settle(deliveries)
        for call in idle:
            # outside the lock, as in `when_idle`
            call()

    def _take_idle(self, session: str) -> Sequence[Callable[[], None]]:
        """What is to be called if no step of a session is under way."""
        return self._idle.pop(session, ()) if self._table.is_idle(session) else ()

    def waiting(self, step: StepId) -> list[Key]:
        """What is asked for in a step and not sent yet."""
        with self._lock:
            return self._table.waiting(step)

    def _forget(self, key: Key, waiter: Pending) -> None:
        # the table checks that the waiter is still there: a value may have come between
        with self._lock:
            self._table.forget(key, waiter)


def _settle(deliveries: list[Delivery]) -> None:
    for waiter, value, error in deliveries:
        if error is None:
            waiter.complete([value])
        else:
            waiter.fail(error)


@dataclass(slots=True, eq=False)
class Exchange:
    """The rendezvous as one step sees it, in one iteration of one frame of it (the root frame has the name "").

    Attributes:
        held: what starts other parts along with tensors for them, by the devices to which they go; None: nothing.
        taken: what was taken on other tasks for tensors that were sent there, by source, destination and name.
    """

    rendezvous: Rendezvous
    step: StepId
    frame: str = ""
    iteration: int = 0
    held: Mapping[str, HeldStart] | None = None
    taken: dict[tuple[str, str, str], TensorValue] = field(default_factory=dict)

    def within(self, frame: str, iteration: int) -> Exchange:
        """The same step's exchange in an iteration of a frame that is entered in this iteration."""
        outer = f"{self.frame};{self.iteration}/" if self.frame else ""
        return Exchange(self.rendezvous, self.step, outer + frame, iteration)

    def send(self, source: str, destination: str, tensor: str, value: TensorValue | Dead) -> None:
        """Sends a value, or `DEAD`."""
        self.rendezvous.send(self._key(source, destination, tensor), value)

    def send_away(self, source: str, destination: str, tensor: str, value: TensorValue | Dead) -> None:
        """Sends a value, or `DEAD`, to another task.

        Raises:
            OpError: it cannot be sent.
        """
        # as `Key(...)`, without the call of a Python function
        key = _new(Key, (self.step, source, destination, tensor, self.frame, self.iteration))
        start = None if self.held is None else self.held.get(destination)
        if start is not None:
            offered = start.offer(key, None if isinstance(value, Dead) else value)
            for rows, taken in offered.rows:
                self.taken[rows.way] = taken
            if offered.is_taken:
                return
        assert self.rendezvous.outlet is not None
        self.rendezvous.outlet(key, value)

    def receive(self, source: str, destination: str, tensor: str) -> Pending:
        """Asks for a value."""
        return self.rendezvous.receive(self._key(source, destination, tensor))

    def ask(self, source: str, destination: str, tensor: str) -> Any:
        """The value if it was sent already, else a `Pending` of it."""
        return self.rendezvous.ask(self._key(source, destination, tensor))

    def abort(self, error: BaseException) -> None:
        """Gives the step up."""
        self.rendezvous.abort(self.step, error)

    def finish(self) -> None:
        """Ends the step."""
        self.rendezvous.finish(self.step)

    def _key(self, source: str, destination: str, tensor: str) -> Key:
        # as `Key(...)`, without the call of a Python function
        return _new(Key, (self.step, source, destination, tensor, self.frame, self.iteration))
