"""What a task has for a session that it works for: the worker's session, its partitions, the other tasks' addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from anabranch.core.devices import task_of
from anabranch.placement.policy import PlacementPolicy
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.runtime.devices import session_devices
from anabranch.runtime.local_worker import LocalTask, LocalWorkerSession, placer_for
from anabranch.runtime.protocols import RegisteredPartition, WorkerSession
from anabranch.runtime.rendezvous import Rendezvous


@dataclass(frozen=True, slots=True)
class ServedTask:
    """The task of a cluster that a process is.

    Attributes:
        name: its full name.
        state: what it holds.
        addresses: of all tasks of the cluster, by their full names.
        config: what sessions get that are opened without a configuration.
        incarnation: tells it from tasks that had the same name before.
    """

    name: str
    state: LocalTask
    addresses: Mapping[str, str]
    config: ConfigProto
    incarnation: int


class TaskSession(WorkerSession, Protocol):
    """What a worker has for a session of several tasks."""

    @property
    def name(self) -> str:
        """The session's."""

    @property
    def rendezvous(self) -> Rendezvous:
        """Where its tensors meet those who receive them."""


class Asked(NamedTuple):
    """What a master asks for when it opens a session.

    Attributes:
        config, policy: the session's.
        first_step: steps below have ended.
        is_remote: whether the master is another process.
    """

    config: ConfigProto
    policy: PlacementPolicy
    first_step: int = 0
    is_remote: bool = False


#: opens a session of a task: its name, the task that the process is, what the master asks for
SessionOpener = Callable[[str, ServedTask, Asked], TaskSession]


def open_here(name: str, task: ServedTask, asked: Asked) -> LocalWorkerSession:
    """A session of the worker of this process. See `SessionOpener`."""
    placer = placer_for(asked.config, asked.policy, session_devices(asked.config, task.name))
    state = None if asked.config.isolate_session_state else task.state
    return LocalWorkerSession(
        name, state, placer, is_shared=True, first_step=asked.first_step, is_remote=asked.is_remote
    )


class ServedSession:
    """What is held for a session: its partitions, by the numbers that the master knows them by.

    Attributes:
        addresses: of the tasks that work for it, by their full names.
        halves: whether float32 tensors go to other tasks as bfloat16.
        is_closed: whether no step begins any more.
    """

    def __init__(self, session: TaskSession, addresses: Mapping[str, str], halves: bool = False) -> None:
        self.session = session
        self.addresses = addresses
        self.halves = halves
        self._of_devices: dict[str, str] = {}
        self.partitions: dict[int, RegisteredPartition] = {}
        self.is_closed = False

    def address_of(self, device: str) -> str:
        """Where the task is that has a device, by its full name."""
        known = self._of_devices.get(device)
        if known is None:
            known = self._of_devices[device] = self.addresses[task_of(device)]
        return known

    def relocate(self, task: str, address: str) -> None:
        """A task has another address."""
        self.addresses = {**self.addresses, task: address}
        # in this order: who looks a device up in between finds the new one
        self._of_devices = {}

    def close(self) -> None:
        """Cancels its steps. Its partitions go at once, they hold its variables; who runs one later is told why."""
        self.is_closed = True
        self.session.close()
        partitions, self.partitions = self.partitions, {}
        for partition in partitions.values():
            partition.release()

    def end(self, on_ended: Callable[[], None]) -> None:
        """Cancels its steps, and ends it when nothing of them runs any more."""

        def forget() -> None:
            self.session.forget()
            on_ended()

        # before: a session with a task of its own has another after
        rendezvous = self.session.rendezvous
        self.close()
        rendezvous.when_idle(self.session.name, forget)
