"""Servers: the tasks that this process is, and how sessions of this process reach those of others (§3.3, WP2)."""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from anabranch.core.interrupts import admitted
from anabranch.distributed.address_book import AddressBook
from anabranch.distributed.addresses import Address, address_map, address_map_file, parse_address
from anabranch.distributed.cluster_files import read_cluster
from anabranch.distributed.cluster_master import ClusterMaster
from anabranch.distributed.cluster_spec import ClusterLike, ClusterSpec, task_name
from anabranch.distributed.connections import EndpointNetwork, HandlerOfTask
from anabranch.distributed.described_tasks import reset_task
from anabranch.distributed.keys import CurveKeys
from anabranch.distributed.shard_loading import load_shard
from anabranch.distributed.shard_recovery import DIRECTORY_VARIABLE
from anabranch.distributed.task import Task
from anabranch.distributed.transport import Endpoint
from anabranch.errors import InvalidArgumentError, UnavailableError
from anabranch.io import checkpoint_state
from anabranch.placement.policy import PlacementPolicy
from anabranch.proto.config_pb2 import ConfigProto, ServerDef
from anabranch.runtime.messages import Frames
from anabranch.runtime.worker_service import WorkerService

#: environment variable that names the cluster: processes that say another name are refused
CLUSTER_VARIABLE: Final = "ANABRANCH_CLUSTER"
DEFAULT_CLUSTER: Final = "anabranch"
_SCHEME: Final = "grpc"
#: A thread that computes keeps others waiting for as long as this (s), and messages with them. Python's own 5 ms
#: are most of what a short step takes.
_SWITCH_INTERVAL: Final = 0.0005
#: How long (s) a task that is told to end waits for a training to save. Clouds give half a minute and more.
LEAVE_WITHIN: Final = 20.0
_LOOK_FOR_SAVE: Final = 0.1


class Server:
    """A task of a cluster, in this process.

    Sessions of any process of the cluster can be opened at its `target`; all that name the same variables, queues and
    tables of the task share them. A process may be several tasks.

    A task listens at the address that the cluster's specification gives it (or, by an address map, another:
    `distributed.addresses`). One that other machines can reach needs the cluster's keys (`anabranch cluster keys`).

    Args:
        server_or_cluster_def: a `ServerDef`; or a `ClusterDef`, a `ClusterSpec` or a dictionary that makes one.
        job_name: the task's job; default: that of the `ServerDef`, or the only job.
        task_index: the task's number; default: that of the `ServerDef`, or that of the only task of the job.
        protocol: "grpc", which is how TensorFlow's programs name the transport; default: that of the `ServerDef`.
        config: a `ConfigProto`, for sessions that bring none.
        start: whether it starts at once.
        cluster_file: from where the cluster was read (`anabranch task --cluster`). It is read again when it changes, as
            is the file that ANABRANCH_ADDRESS_MAP names: other tasks may come back at other addresses.

    Raises:
        ValueError: the task is not told, or the cluster has none of that name.
        InvalidArgumentError: another protocol is asked for.
        UnavailableError: the address is taken, or none of this machine's.
        UnauthenticatedError: other machines can reach it, and there are no keys.

    Example:
        >>> server = tf.train.Server({"worker": ["localhost:0"]})
        >>> with tf.Session(server.target) as session:
        ...     print(session.run(tf.constant(6) * 7))
        42
        >>> server.stop()
    """

    def __init__(
        self,
        server_or_cluster_def: ServerDef | ClusterLike,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: ConfigProto | None = None,
        start: bool = True,
        *,
        cluster_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._def = _server_def(server_or_cluster_def, job_name, task_index, protocol, config)
        spec = ClusterSpec(self._def.cluster)
        spec.check()
        self._name = task_name(self._def.job_name, self._def.task_index)
        written = parse_address(spec.task_address(self._def.job_name, self._def.task_index))
        listening = address_map(os.environ).real(written)
        self._gate = _Gate(self._name)
        self._endpoint = Endpoint(
            str(listening),
            name=self._name,
            cluster=os.environ.get(CLUSTER_VARIABLE, DEFAULT_CLUSTER),
            handler=HandlerOfTask(self._gate),
            keys=CurveKeys.load(),
        )
        own = parse_address(self._endpoint.address)
        #: where sessions find the task: its port is known now, also where the specification leaves it open
        self._address = str(Address(listening.host, own.port))
        self._book = self._address_book(spec, cluster_file)
        self._task = Task(self._name, self._book, self._def.default_session_config, self._endpoint.incarnation)
        self._task.join(EndpointNetwork(self._endpoint))
        self._tasks = list(self._book)
        self._stopped = threading.Event()
        if start:
            self.start()

    def _address_book(self, spec: ClusterSpec, cluster_file: str | os.PathLike[str] | None) -> AddressBook:
        """Where the tasks are; read again when files change that say so."""

        def read() -> dict[str, str]:
            latest = spec if cluster_file is None else read_cluster(cluster_file)
            real = address_map(os.environ)
            names = [name for name in latest.task_names() if name != self._name]
            return {self._name: self._address, **{name: str(latest.address_of(name, real)) for name in names}}

        named = (cluster_file, address_map_file(os.environ))
        return AddressBook(read, [os.fspath(file) for file in named if file is not None], self._name)

    @staticmethod
    def create_local_server(config: ConfigProto | None = None, start: bool = True) -> Server:
        """A cluster of one task, at a free port of this machine.

        Args:
            config: a `ConfigProto`, for sessions that bring none.
            start: whether it starts at once.

        Returns:
            The server.

        Raises:
            UnavailableError: the machine has no free port.

        Example:
            >>> server = tf.train.Server.create_local_server()
            >>> server.target.startswith("grpc://localhost:")
            True
            >>> server.stop()
        """
        return Server({"local": ["localhost:0"]}, protocol="grpc", config=config, start=start)

    @property
    def server_def(self) -> ServerDef:
        """The `ServerDef` of this task."""
        return self._def

    @property
    def target(self) -> str:
        """What `tf.Session` takes to reach this task."""
        return f"{_SCHEME}://{self._address}"

    def start(self) -> None:
        """Starts the server: from now on it answers. Does nothing if it runs.

        Where the environment variable ANABRANCH_CHECKPOINT names the directory of a training's automatic checkpoints,
        the task first takes from the latest one the variables that it had (docs/decisions/0038-lasting.md).

        Raises:
            UnavailableError: it was stopped.
        """
        if self._stopped.is_set():
            raise UnavailableError(None, None, f"the server of {self._name} was stopped; make another")
        if self._gate.task is None:
            directory = os.environ.get(DIRECTORY_VARIABLE)
            if directory:
                load_shard(self._task.state.containers, self._name, self._tasks, directory)
            sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL))
            self._gate.task = self._task
            self._book.watch(lambda move: self._endpoint.moved(*move))
            _here.add(self._address, self._task, self._endpoint)

    def leave(self, within: float = LEAVE_WITHIN) -> None:
        """Lets a training save what this task holds, before the task ends.

        Where ANABRANCH_CHECKPOINT names the directory of a training's automatic checkpoints, and sessions are open, its
        chief is told, which saves after its step. This returns when that is done, at the latest after `within` seconds.
        `stop` comes after that. `anabranch task` does so at SIGTERM.
        """
        directory = os.environ.get(DIRECTORY_VARIABLE)
        if not directory or self._gate.task is None:
            return
        before, deadline = checkpoint_state.read_checkpoint_state(directory), time.monotonic() + within
        service = self._task.service
        service.leaving()
        while (
            service.has_sessions
            and checkpoint_state.read_checkpoint_state(directory) == before
            and time.monotonic() < deadline
        ):
            # no event tells of what other processes do in a folder
            self._stopped.wait(_LOOK_FOR_SAVE)

    def join(self) -> None:
        """Blocks until the server is stopped, which nothing but `stop` or the end of the process does."""
        with admitted():
            self._stopped.wait()

    def stop(self) -> None:
        """Stops the server: its steps fail with CancelledError, and what it holds is dropped. Idempotent."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._book.close()
            _here.remove(self._address, self._task)
            self._task.close()
            self._endpoint.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Server {self._name} at {self._address}>"


def _server_def(
    given: ServerDef | ClusterLike,
    job_name: str | None,
    task_index: int | None,
    protocol: str | None,
    config: ConfigProto | None,
) -> ServerDef:
    """What TensorFlow makes of the arguments of a server.

    Raises:
        ValueError: the task is not told, or the cluster has none of that name.
        InvalidArgumentError: another protocol is asked for.
    """
    made = ServerDef()
    if isinstance(given, ServerDef):
        made.CopyFrom(given)
    else:
        made.cluster.CopyFrom(ClusterSpec(given).as_cluster_def())
        made.task_index = -1
    made.job_name = job_name if job_name is not None else made.job_name
    made.task_index = task_index if task_index is not None else made.task_index
    made.protocol = protocol or made.protocol or _SCHEME
    if config is not None:
        made.default_session_config.MergeFrom(config)
    spec = ClusterSpec(made.cluster)
    if not made.job_name:
        if len(spec.jobs) != 1:
            raise ValueError("Must specify an explicit `job_name`: the cluster has several jobs")
        made.job_name = spec.jobs[0]
    if made.task_index < 0:
        indices = spec.task_indices(made.job_name)
        if len(indices) != 1:
            raise ValueError("Must specify an explicit `task_index`: the job has several tasks")
        made.task_index = indices[0]
    spec.task_address(made.job_name, made.task_index)
    if made.protocol != _SCHEME:
        raise InvalidArgumentError(
            None, None, f"there is no protocol {made.protocol!r}; use 'grpc', which names the transport of anabranch"
        )
    return made


class _Gate:
    """Lets requests through to a task that has started. See `distributed.network.RequestHandler`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.task: Task | None = None

    def message(self, sender: str, frames: Frames) -> None:
        if self.task is not None:
            self.task.message(sender, frames)

    def request(self, sender: str, frames: Frames, reply: Callable[[Frames], None]) -> None:
        if self.task is None:
            raise UnavailableError(None, None, f"the server of {self._name} has not started")
        self.task.request(sender, frames, reply)

    def lost(self, sender: str, task: str) -> None:
        if self.task is not None:
            self.task.lost(sender, task)


class _Here:
    """The tasks that this process is. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[str, tuple[Task, Endpoint]] = {}

    def add(self, address: str, task: Task, endpoint: Endpoint) -> None:
        with self._lock:
            self._tasks[address] = task, endpoint

    def remove(self, address: str, task: Task) -> None:
        with self._lock:
            if address in self._tasks and self._tasks[address][0] is task:
                del self._tasks[address]

    def at(self, address: str) -> tuple[Task, Endpoint] | None:
        with self._lock:
            return self._tasks.get(address)


_here: Final = _Here()


class _NoTask:
    """A client is asked for nothing. See `distributed.network.RequestHandler`."""

    def message(self, sender: str, frames: Frames) -> None:
        pass

    def request(self, sender: str, frames: Frames, reply: Callable[[Frames], None]) -> None:
        raise InvalidArgumentError(None, None, "this process is a client of the cluster, and no task of it")

    def lost(self, sender: str, task: str) -> None:
        pass


def client_endpoint(host: str) -> Endpoint:
    """An endpoint of this process that is no task, at an address of this machine.

    Raises:
        UnauthenticatedError: other machines can reach the address, and there are no keys.
    """
    return Endpoint(
        str(Address(host, 0)),
        name=f"client {os.getpid()}",
        cluster=os.environ.get(CLUSTER_VARIABLE, DEFAULT_CLUSTER),
        handler=HandlerOfTask(_NoTask()),
        keys=CurveKeys.load(),
    )


class _ReachedServers:
    """Sessions at servers: of this process, or reached through an endpoint. See `distributed.masters.TargetScheme`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: by the address of this machine, the cluster's name, and the keys that there were then
        self._clients: dict[tuple[str, str | None, CurveKeys | None], Endpoint] = {}

    def master(
        self, address: str, config: ConfigProto | None, placement: PlacementPolicy | str | os.PathLike[str] | None
    ) -> ClusterMaster:
        """The master of a session at the task with this address."""
        address = _real(address)
        endpoint = self._endpoint_for(address)
        client = f"{endpoint.incarnation:016x}"
        return ClusterMaster(address, config, placement, EndpointNetwork(endpoint), client, _service_at)

    def reset(self, address: str, containers: Sequence[str]) -> None:
        """Empties containers on all tasks of the cluster."""
        address = _real(address)
        reset_task(EndpointNetwork(self._endpoint_for(address)), address, containers)

    def close(self) -> None:
        """Says goodbye to the tasks, so that they need not find out that this process has ended."""
        with self._lock:
            clients = list(self._clients.values())
            self._clients.clear()
        for endpoint in clients:
            endpoint.close()

    def _endpoint_for(self, address: str) -> Endpoint:
        """The endpoint by which this process reaches a task: the task's own, if it is one of this process."""
        served = _here.at(address)
        if served is not None:
            return served[1]
        host = own_host(parse_address(address))
        key = host, os.environ.get(CLUSTER_VARIABLE), CurveKeys.load()
        with self._lock:
            endpoint = self._clients.get(key)
            if endpoint is None:
                endpoint = self._clients[key] = client_endpoint(host)
            return endpoint


def _service_at(address: str) -> WorkerService | None:
    served = _here.at(address)
    return None if served is None else served[0].service


def _real(address: str) -> str:
    return str(address_map(os.environ).real(parse_address(address)))


def own_host(address: Address) -> str:
    """The address of this machine from which a task is reached, and which it can send to in its turn."""
    if address.is_loopback:
        return "127.0.0.1"
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # nothing is sent: the system only chooses the way
            probe.connect((address.host, address.port or 1))
        except OSError as error:
            raise UnavailableError(
                None, None, f"{address} cannot be reached from this machine: {error}; look at the address"
            ) from error
        host: str = probe.getsockname()[0]
        return host


reached_servers: Final = _ReachedServers()
atexit.register(reached_servers.close)
