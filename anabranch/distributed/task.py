"""A task of a cluster: what messages ask of it, done by the worker of its process (§3.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anabranch.distributed.network import TaskConnection, TaskNetwork
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.runtime.local_worker import LocalTask
from anabranch.runtime.messages import Frames
from anabranch.runtime.protocols import LinkTraffic
from anabranch.runtime.published_values import BoardMemory
from anabranch.runtime.served_sessions import ServedTask, SessionOpener, open_here
from anabranch.runtime.worker_service import Submit, WorkerService
from anabranch.runtime.worker_threads import worker_threads


class Task:
    """See `distributed.network.RequestHandler`.

    Args:
        name: the task's full name.
        addresses: of all tasks of the cluster, by their full names.
        config: what sessions get that are opened without a configuration.
        incarnation: of this process.
        opener: opens its sessions.
        submit: where sessions are opened and ended, and partitions bound.

    Attributes:
        service: does what is asked.
        state: what the task holds: variables, queues, tables.
    """

    def __init__(
        self,
        name: str,
        addresses: Mapping[str, str],
        config: ConfigProto,
        incarnation: int,
        opener: SessionOpener = open_here,
        submit: Submit = worker_threads.submit,
    ) -> None:
        self.name = name
        self.state = LocalTask(name)
        self.service = WorkerService(
            ServedTask(name, self.state, addresses, config, incarnation),
            self._post,
            opener,
            submit,
            self._traffic,
            self._make_board,
        )
        self._network: TaskNetwork | None = None
        #: to the tasks that something was sent to, by their addresses
        self._connections: dict[str, TaskConnection] = {}

    def join(self, network: TaskNetwork) -> None:
        """Lets the task reach the others."""
        self._network = network

    def message(self, sender: str, frames: Frames) -> None:
        self.service.accept(frames)

    def request(self, sender: str, frames: Frames, reply: Callable[[Frames], None]) -> None:
        self.service.start(frames, reply, sender)

    def lost(self, sender: str, task: str) -> None:
        self.service.lost(sender, task)

    def close(self) -> None:
        """Cancels all steps, and drops what the task holds."""
        self.service.close()
        self.state.containers.close()

    def _traffic(self) -> Sequence[LinkTraffic]:
        return () if self._network is None else self._network.traffic()

    def _make_board(self) -> BoardMemory | None:
        return None if self._network is None else self._network.make_board()

    def _post(self, address: str, frames: Frames) -> None:
        # a step sends many tensors: to look for the peer of an address takes longer than to send one
        connection = self._connections.get(address)
        if connection is None:
            assert self._network is not None
            connection = self._connections[address] = self._network.connect(address)
        connection.post(frames)
