"""Containers: the named stores of variables and other stateful objects that outlive steps and sessions (WP4.7)."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeVar

import jax
import numpy as np
import numpy.typing as npt

from anabranch.core.arrays import HostArray
from anabranch.core.host_memory import array_at
from anabranch.core.resources import ResourceHandle
from anabranch.core.values import TensorValue
from anabranch.errors import CancelledError
from anabranch.runtime.published_values import Board, BoardMemory, PublishedValue, is_on_host
from anabranch.runtime.rendezvous import Rendezvous
from anabranch.runtime.turns import Turns
from anabranch.xla.jax_settings import in_wide_types

T = TypeVar("T")

DEFAULT_CONTAINER = "localhost"
#: of so many sessions that ended it is known that what was private to them is gone
MAX_ENDED: Final = 256
#: what is small enough to be told to whoever watches a task
_SMALL_BYTES: Final = 1 << 16
#: how long (s) whoever watches waits for one that is writing a variable
_WRITTEN_WITHIN: Final = 0.05


class VariableState:
    """The current value of one variable.

    #: `value` is a device array, or None while the variable is not initialised.
    #: `lock` is held while an island that writes the variable runs; an island that only reads takes it for the
    #: moment in which it pins the value.
    #: `pins` has an element for each dispatch that uses `value` without holding the lock: while there is one, a writer
    #: gives the executable a copy instead of the buffer itself, so nobody ever waits for a reader.
    #: `turns` says whose turn it is of threads whose islands write it, and others of which it is the first.
    #: `published` is where other processes see the value. Whoever changes that withdraws it first, under the lock.
    """

    __slots__ = ("_memory", "handle", "lock", "pins", "published", "turns", "value")

    def __init__(self, handle: ResourceHandle) -> None:
        self.handle = handle
        self.lock = threading.Lock()
        self.pins: list[None] = []
        self.value: Any = None
        self.published: PublishedValue | None = None
        self.turns = Turns(self.lock.locked)
        #: a value that lay in the host's memory, of which it keeps nothing alive, and that memory
        self._memory: tuple[Callable[[], Any], HostArray] | None = None

    def on_host(self, value: object) -> HostArray:
        """The value, for whoever holds the lock, as an array that is not to be kept: its memory, or a copy of it."""
        # to ask a value where it lies takes as long as to take a few rows of it, and most are changed where they lie
        memory = self._memory
        if memory is not None and memory[0]() is value and not value.is_deleted():
            return memory[1]
        if not is_on_host(value):
            return np.asarray(value)
        value.block_until_ready()
        array = array_at(value.unsafe_buffer_pointer(), value.shape, value.dtype)
        self._memory = weakref.ref(value), array
        return array

    def withdraw(self) -> None:
        """Other processes do not see the value any more, which is about to change; under the lock."""
        if self.published is not None:
            self.published.withdraw()

    def change(self, value: object) -> None:
        """Gives the variable, which is locked, another value, or none (None)."""
        self.withdraw()
        self.value = value

    def __repr__(self) -> str:
        return f"<VariableState {self.handle.name} {'uninitialised' if self.value is None else self.value.shape}>"


class Containers:
    """All resources of one task, by container and name, and its rendezvous. Thread-safe."""

    def __init__(self) -> None:
        self.rendezvous = Rendezvous()
        # reentrant: the garbage collector may close these containers on a thread that holds the lock
        self._lock = threading.RLock()
        self._variables: dict[tuple[str, str], VariableState] = {}
        self._objects: dict[tuple[str, str, str], Any] = {}
        #: whether the session that they belong to is closed: nothing is made in them any more
        self.is_closed = False
        #: how the names began that were private to sessions which were closed last
        self._ended: deque[str] = deque(maxlen=MAX_ENDED)
        #: where other processes of the host see values of small variables, once one of them asks
        self.board: Board | None = None

    def share(self, make: Callable[[], BoardMemory | None]) -> Board | None:
        """The board, made of shared memory when it is first asked for; None where there is none."""
        with self._lock:
            if self.board is None and not self.is_closed:
                memory = make()
                self.board = None if memory is None else Board(memory)
            return self.board

    def variable(self, handle: ResourceHandle) -> VariableState:
        """The state behind a variable handle; the same object for as long as the task lives."""
        key = (handle.container or DEFAULT_CONTAINER, handle.name)
        with self._lock:
            state = self._variables.get(key)
            if state is None:
                state = self._variables[key] = VariableState(handle)
            return state

    def write(self, handle: ResourceHandle, value: TensorValue) -> None:
        """Gives a variable a copy of a host array as its value.

        Raises:
            InvalidArgumentError: the variable was declared with another shape.
        """
        state = self.variable(handle)
        # a copy: the value belongs to whoever gives it, and the variable outlives that
        host = np.array(value)
        handle.check_fits(host.shape)
        stays = host.dtype == np.object_ or host.dtype.fields  # strings and quantised numbers, which XLA does not know
        array = host if stays else in_wide_types(jax.device_put, host)
        # with the array made before: steps that use the variable wait for this lock, and not for the transfer
        with state.lock:
            state.change(array)

    def object(self, handle: ResourceHandle, make: Callable[[], T]) -> T:
        """The object behind a handle (a queue, a table, a reader), made on first use.

        Raises:
            CancelledError: the session was closed meanwhile.
        """
        key = (handle.container or DEFAULT_CONTAINER, handle.kind, handle.name)
        with self._lock:
            existing: T | None = self._objects.get(key)
            if existing is None:
                if self.is_closed:
                    raise CancelledError(None, None, f"the session was closed before the {handle} could be made")
                existing = self._objects[key] = make()
            return existing

    def find_object(self, handle: ResourceHandle) -> Any:
        """The object behind a handle, or None. Takes no lock: every operation on a queue comes here."""
        return self._objects.get((handle.container or DEFAULT_CONTAINER, handle.kind, handle.name))

    def remove_object(self, handle: ResourceHandle) -> bool:
        """Drops the object behind a handle; False where there is none."""
        with self._lock:
            return (
                self._objects.pop((handle.container or DEFAULT_CONTAINER, handle.kind, handle.name), None) is not None
            )

    def reset(self, containers: Iterable[str] = ()) -> None:
        """Empties the named containers (default: the default container).

        Variables become uninitialised; steps that run at this moment finish with the values they hold.
        """
        names = set(containers) or {DEFAULT_CONTAINER}
        with self._lock:
            states = [s for (container, _), s in self._variables.items() if container in names]
        self.close_objects(names)
        # not under the lock of the containers: an island holds that of a variable for as long as it runs
        for state in states:
            with state.lock:
                state.change(None)

    def close(self) -> None:
        """Drops all objects, cancels what waits for them, and what a step that is still running asks for later."""
        # first: an object that a running step made after the others are dropped would never be closed
        with self._lock:
            self.is_closed = True
            board, self.board = self.board, None
        self.close_objects()
        if board is not None:
            board.memory.close()

    def close_objects(self, containers: Iterable[str] | None = None) -> None:
        """Drops the queues, tables and readers of some containers (default: all) and cancels what waits."""
        names = None if containers is None else set(containers)
        self._close_objects(lambda container, _: names is None or container in names)

    def is_gone(self, handle: ResourceHandle) -> bool:
        """Whether there is nothing behind a handle since the session that it belonged to is closed."""
        return self.is_closed or handle.name.startswith(tuple(self._ended))

    def close_private(self, prefix: str) -> None:
        """The same for those whose names begin with the prefix of a session that has ended."""
        # first: a step that is still running finds them gone
        self._ended.append(prefix)
        self._close_objects(lambda _, name: name.startswith(prefix))

    def _close_objects(self, chosen: Callable[[str, str], bool]) -> None:
        """Drops the objects of which `chosen` says so, by container and name."""
        with self._lock:
            keys = [key for key in self._objects if chosen(key[0], key[2])]
            # taken out before they are closed, so that nobody finds one that has cancelled its requests
            closed = [self._objects.pop(key) for key in keys]
        for item in closed:  # outside the lock: the steps that wait there go on, and may look for other objects
            closing = getattr(item, "close", None)
            if callable(closing):
                closing()

    def live_variables(self) -> list[VariableState]:
        """The initialised variables."""
        with self._lock:
            return [s for s in self._variables.values() if s.value is not None]

    def small_values(self, names: Collection[str]) -> list[tuple[str, npt.NDArray[Any]]]:
        """Copies of variables with these names, whatever the scopes before; of small ones that nobody is writing."""
        values = []
        for state in self.live_variables():
            if state.handle.name.rpartition("/")[2] not in names:
                continue
            # not waited for: a step holds the lock for as long as an island runs that writes the variable
            if not state.lock.acquire(timeout=_WRITTEN_WITHIN):
                continue
            try:
                value = state.value
                if value is not None and value.nbytes <= _SMALL_BYTES:
                    # copied under the lock: whoever writes next gives the buffer away
                    values.append((state.handle.name, np.array(value)))
            finally:
                state.lock.release()
        return values
