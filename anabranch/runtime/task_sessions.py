"""The sessions that a task works for: leases of the processes that their masters live in (§3.3; design D8).

`TaskSessions` is a pure state machine: a master asks, a session has begun or ended, a process is lost; what comes out
are instructions. `runtime.worker_service` carries them out. Sessions are known by name, and a master that was lost to
the task and is back asks for the same name again. What is done for the one that is over (its steps are cancelled, its
queues closed) must not hit the one that comes after. So each asking is a lease of its own, and of one name there is one
at a time; another waits until that one has ended.

    =============  ===========  ====================  ====================  ====================  ===============
    event          no lease     opening               open                  ending                one waits
    =============  ===========  ====================  ====================  ====================  ===============
    asked          begin        -> ending,            end -> ending,        the new one waits     refuse that one
                   -> opening   the new one waits     the new one waits
    begun          -            -> open               -                     end                   -
    not begun      -            -> no lease           -                     -> no lease (*)       -
    given up,      -            -> ending             end -> ending         -                     refuse that one
    owner lost
    ended          -            -                     -                     -> no lease (*)       -
    task lost      -            noted                 tell, or noted        -                     -
    watched        -            -                     tell, if noted        -                     -
    task leaves    -            -                     tell, or noted        -                     -
    =============  ===========  ====================  ====================  ====================  ===============

    (*) the one that waits begins

#: Of one name one lease at most is opening, open or ending, and one waits at most.
#: Each lease that has begun ends; each end is asked for once, after the beginning.
#: Who watches is told once, of tasks that were lost or that the lease is over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")

#: told the names of the tasks that were lost; none where the lease is over. That of the task itself: it leaves soon
Watcher = Callable[[Sequence[str]], None]


class LeaseState(Enum):
    """See the table of the module."""

    WAITING = "waits for one of the same name to end"
    OPENING = "being opened"
    OPEN = "open"
    ENDING = "ending"
    OVER = "over"


@dataclass(eq=False, slots=True)
class SessionLease(Generic[T]):
    """A session of a master.

    Attributes:
        name: the session's.
        owner: the process whose end is its end too.
        addresses: of the tasks that work for it, by their full names.
        held: what the task has for it, once it has begun.
    """

    name: str
    owner: str
    addresses: Mapping[str, str]
    state: LeaseState = LeaseState.WAITING
    held: T | None = None
    watcher: Watcher | None = None
    lost_tasks: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BeginLease(Generic[T]):
    """An instruction: open the session, then say `begun` or `not_begun`."""

    lease: SessionLease[T]


@dataclass(frozen=True, slots=True)
class EndLease(Generic[T]):
    """An instruction: end the session, its steps first, then say `ended`."""

    lease: SessionLease[T]


@dataclass(frozen=True, slots=True)
class Refuse(Generic[T]):
    """An instruction: a lease that waited will not begin."""

    lease: SessionLease[T]


@dataclass(frozen=True, slots=True)
class Tell:
    """An instruction: call a watcher."""

    watcher: Watcher
    tasks: tuple[str, ...]


Instruction = BeginLease[T] | EndLease[T] | Refuse[T] | Tell


class TaskSessions(Generic[T]):
    """See the module docstring. Not thread-safe, and it calls nobody."""

    def __init__(self) -> None:
        self._leases: dict[str, SessionLease[T]] = {}
        self._waiting: dict[str, SessionLease[T]] = {}

    def __len__(self) -> int:
        return len(self._leases) + len(self._waiting)

    @property
    def open(self) -> list[SessionLease[T]]:
        """The leases that are open."""
        return [lease for lease in self._leases.values() if lease.state is LeaseState.OPEN]

    def at(self, name: str) -> T | None:
        """What the task has for an open session of that name."""
        lease = self._leases.get(name)
        return lease.held if lease is not None and lease.state is LeaseState.OPEN else None

    def asked(self, lease: SessionLease[T]) -> list[Instruction[T]]:
        """A master asks for a session."""
        current = self._leases.get(lease.name)
        if current is None:
            return [self._begin(lease)]
        done = [*self._drop_waiting(lease.name), *self._over(current)]
        self._waiting[lease.name] = lease
        return done

    def begun(self, lease: SessionLease[T], held: T) -> list[Instruction[T]]:
        """A session was opened."""
        lease.held = held
        if lease.state is LeaseState.OPENING:
            lease.state = LeaseState.OPEN
            return []
        return [EndLease(lease)]

    def not_begun(self, lease: SessionLease[T]) -> list[Instruction[T]]:
        """A session could not be opened."""
        return self._next(lease)

    def ended(self, lease: SessionLease[T]) -> list[Instruction[T]]:
        """A session has ended, and nothing of its steps runs any more."""
        return self._next(lease)

    def give_up(self, name: str) -> list[Instruction[T]]:
        """Nobody wants a session any more."""
        lease = self._leases.get(name)
        return [] if lease is None else [*self._drop_waiting(name), *self._over(lease)]

    def lost(self, owner: str, task: str) -> list[Instruction[T]]:
        """A process is lost, or the link to it.

        Args:
            owner: its address.
            task: the full name of the task that it was, if it was one.
        """
        done: list[Instruction[T]] = []
        for waiting in [one for one in self._waiting.values() if one.owner == owner]:
            done += self._drop_waiting(waiting.name)
        for lease in list(self._leases.values()):
            done += self._over(lease) if lease.owner == owner else self._task_lost(lease, owner, task)
        return done

    def relocate(self, name: str, task: str, address: str) -> T | None:
        """A task of an open session has another address; what the task has for the session."""
        held = self.at(name)
        if held is not None:
            lease = self._leases[name]
            lease.addresses = {**lease.addresses, task: address}
        return held

    def watch(self, name: str, watcher: Watcher) -> list[Instruction[T]]:
        """A master wants to know of tasks of its session that are lost to this one."""
        lease = self._leases.get(name)
        if lease is None or lease.state is not LeaseState.OPEN:
            return [Tell(watcher, ())]
        before, lease.watcher = lease.watcher, watcher
        done: list[Instruction[T]] = [] if before is None else [Tell(before, ())]
        return [*done, *self._tell(lease)] if lease.lost_tasks else done

    def leaving(self, task: str) -> list[Instruction[T]]:
        """The task itself, of this name, is about to end."""
        done: list[Instruction[T]] = []
        for lease in self.open:
            lease.lost_tasks[task] = None
            done += self._tell(lease)
        return done

    def _task_lost(self, lease: SessionLease[T], address: str, task: str) -> list[Instruction[T]]:
        names = [name for name, known in lease.addresses.items() if name == task or known == address]
        if not names or lease.state is LeaseState.ENDING:
            return []
        lease.lost_tasks.update(dict.fromkeys(names))
        return self._tell(lease)

    def _tell(self, lease: SessionLease[T]) -> list[Instruction[T]]:
        watcher, lease.watcher = lease.watcher, None
        if watcher is None:
            return []
        tasks = tuple(lease.lost_tasks)
        lease.lost_tasks.clear()
        return [Tell(watcher, tasks)]

    def _begin(self, lease: SessionLease[T]) -> Instruction[T]:
        self._leases[lease.name] = lease
        lease.state = LeaseState.OPENING
        return BeginLease(lease)

    def _over(self, lease: SessionLease[T]) -> list[Instruction[T]]:
        if lease.state is LeaseState.ENDING:
            return []
        # one that is being opened holds nothing yet that could be ended: `begun` finds it ENDING, and says so then
        was_open = lease.state is LeaseState.OPEN
        lease.state = LeaseState.ENDING
        lease.lost_tasks.clear()
        return [*self._tell(lease), EndLease(lease)] if was_open else []

    def _drop_waiting(self, name: str) -> list[Instruction[T]]:
        waiting = self._waiting.pop(name, None)
        if waiting is None:
            return []
        waiting.state = LeaseState.OVER
        return [Refuse(waiting)]

    def _next(self, lease: SessionLease[T]) -> list[Instruction[T]]:
        lease.state = LeaseState.OVER
        del self._leases[lease.name]
        waiting = self._waiting.pop(lease.name, None)
        return [] if waiting is None else [self._begin(waiting)]
