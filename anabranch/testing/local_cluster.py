"""A cluster in one process, without sockets: every message is copied through bytes, and tasks can be lost.

For tests of what master and tasks do together. What sockets do is tested with `distributed.transport`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from anabranch.distributed.cluster_master import ClusterMaster
from anabranch.distributed.described_tasks import reset_task
from anabranch.distributed.masters import schemes
from anabranch.distributed.task import Task
from anabranch.errors import OpError, UnavailableError
from anabranch.placement.policy import PlacementPolicy
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.runtime.messages import Frames
from anabranch.testing.copied_messages import copied

_incarnations = itertools.count(1)
_clusters = itertools.count(1)


class LocalCluster:
    """Tasks of one process. See `distributed.network.TaskNetwork`.

    Args:
        jobs: how many tasks each job has.

    Attributes:
        tasks: by their full names.
        messages: how many messages have been carried.
        bytes_carried: how many bytes they and the answers had.
    """

    def __init__(self, jobs: Mapping[str, int]) -> None:
        self.scheme = f"copied{next(_clusters)}"
        names = [f"/job:{job}/replica:0/task:{i}" for job, count in jobs.items() for i in range(count)]
        self.addresses = {name: f"{name}.example:1" for name in names}
        self.tasks: dict[str, Task] = {}
        self._by_address: dict[str, Task] = {}
        self._connections: dict[str, LocalConnection] = {}
        self._lock = threading.Lock()
        self.counting = threading.Lock()
        self.messages = 0
        self.bytes_carried = 0
        for name in names:
            self.begin(name)

    def begin(self, name: str, instead: str | None = None) -> Task:
        """Starts a task, perhaps one that was lost, at its address or at that of the one that it has got instead."""
        place = instead or name
        task = self.tasks[place] = Task(name, self.addresses, ConfigProto(), next(_incarnations))
        task.join(self)
        self._by_address[self.addresses[place]] = task
        return task

    def lose(self, name: str) -> None:
        """Ends a task as a crash does: nobody gets an answer any more."""
        address = self.addresses[name]
        task = self._by_address.pop(address)
        self.connect(address).break_off()
        task.close()

    def connect(self, address: str) -> LocalConnection:
        """See `distributed.network.TaskNetwork`."""
        with self._lock:
            return self._connections.setdefault(address, LocalConnection(self, address))

    def traffic(self) -> tuple[()]:
        """See `distributed.network.TaskNetwork`: nothing leaves the process."""
        return ()

    def expect(self) -> None:
        """See `distributed.network.TaskNetwork`: nobody sleeps here."""

    def make_board(self) -> None:
        """See `distributed.network.TaskNetwork`: nothing is shared here."""

    def has_left(self, name: str, address: str) -> bool:
        """See `distributed.network.TaskNetwork`: no task moves."""
        return False

    def task_at(self, address: str) -> Task:
        """The task that answers there.

        Raises:
            UnavailableError: none does.
        """
        self.messages += 1
        task = self._by_address.get(address)
        if task is None:
            raise UnavailableError(None, None, f"the task at {address} does not answer")
        return task

    def target(self, job: str = "worker", index: int = 0) -> str:
        """What `tf.Session` takes to reach a task."""
        return f"{self.scheme}:///job:{job}/replica:0/task:{index}"

    def master(self, job: str = "worker", index: int = 0, config: ConfigProto | None = None) -> ClusterMaster:
        """A master whose operations go to a task unless they ask for another."""
        target = self.addresses[f"/job:{job}/replica:0/task:{index}"]
        return ClusterMaster(target, config, None, self, "client")

    def close(self) -> None:
        """Ends all tasks."""
        for task in self.tasks.values():
            task.close()


class LocalConnection:
    """See `distributed.network.TaskConnection`."""

    def __init__(self, cluster: LocalCluster, address: str) -> None:
        self._cluster, self.address = cluster, address
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[int, Callable[[Frames | OpError], None]] = {}
        self._callbacks: dict[int, Callable[[OpError], None]] = {}

    def call(self, frames: Frames) -> Frames:
        """See `runtime.messages.Transport`."""
        answered, outcome = threading.Event(), list[Frames | OpError]()

        def on_reply(reply: Frames | OpError) -> None:
            outcome.append(reply)
            answered.set()

        self.start(frames, on_reply)
        answered.wait()
        (reply,) = outcome
        if isinstance(reply, OpError):
            raise reply
        return reply

    def start(self, frames: Frames, on_reply: Callable[[Frames | OpError], None]) -> None:
        """See `runtime.messages.Transport`."""
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = on_reply
        try:
            task = self._cluster.task_at(self.address)
        except OpError as error:
            self._answer(number, error)
            return
        task.request("client", self._carried(frames), lambda reply: self._answer(number, self._carried(reply)))

    @property
    def shares_memory(self) -> bool:
        """See `distributed.network.TaskConnection`."""
        return False

    def board(self, process: int, descriptor: int, number: int) -> None:
        """See `distributed.network.TaskConnection`."""

    def reader(self, process: int, number_at: int, number: int) -> None:
        """See `distributed.network.TaskConnection`."""

    def post(self, frames: Frames) -> None:
        """See `runtime.messages.Transport`."""
        self._cluster.task_at(self.address).message("client", self._carried(frames))

    def _carried(self, frames: Frames) -> Frames:
        copies = copied(frames)
        with self._cluster.counting:
            self._cluster.bytes_carried += sum(map(len, copies))
        return copies

    def on_lost(self, callback: Callable[[OpError], None]) -> Callable[[], None]:
        """See `distributed.network.TaskConnection`."""
        with self._lock:
            number = next(self._numbers)
            self._callbacks[number] = callback

        def withdraw() -> None:
            self._callbacks.pop(number, None)

        return withdraw

    def break_off(self) -> None:
        """Tells all who wait that there will be no answer."""
        error = UnavailableError(None, None, f"the task at {self.address} was lost")
        for callback in list(self._callbacks.values()):
            callback(error)
        for number in list(self._waiting):
            self._answer(number, error)

    def _answer(self, number: int, reply: Frames | OpError) -> None:
        with self._lock:
            on_reply = self._waiting.pop(number, None)
        if on_reply is not None:
            on_reply(reply)


class _Targets:
    """See `distributed.masters.TargetScheme`."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    def master(
        self, address: str, config: ConfigProto | None, placement: PlacementPolicy | str | os.PathLike[str] | None
    ) -> ClusterMaster:
        return ClusterMaster(self._cluster.addresses[address], config, placement, self._cluster, "client")

    def reset(self, address: str, containers: Sequence[str]) -> None:
        reset_task(self._cluster, self._cluster.addresses[address], containers)


@contextlib.contextmanager
def local_cluster(**jobs: int) -> Iterator[LocalCluster]:
    """A cluster that is ended afterwards. Inside, sessions reach it at `LocalCluster.target`."""
    cluster = LocalCluster(jobs)
    schemes[cluster.scheme] = _Targets(cluster)
    try:
        yield cluster
    finally:
        del schemes[cluster.scheme]
        cluster.close()
