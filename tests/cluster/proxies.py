"""Clusters for tests of what networks do: tasks of this process behind proxies, reached over real sockets only.

A proxy stands before each task, at another loopback address and the same ports. It passes on what comes, and can be
told to hold what comes from somebody (a cut in one direction), to delay it, to pass on so many bytes a second, or to
break the connection after so many bytes: by a reset, or cleanly in the middle of a frame. It knows whom bytes come from
by the incarnation in the first header of a connection.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from anabranch.distributed.cluster_master import ClusterMaster
from anabranch.distributed.connections import EndpointNetwork, HandlerOfTask
from anabranch.distributed.described_tasks import reset_task
from anabranch.distributed.masters import schemes
from anabranch.distributed.task import Task
from anabranch.distributed.transport import Endpoint
from anabranch.errors import InvalidArgumentError
from anabranch.placement.policy import PlacementPolicy
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.runtime.messages import Frames

_schemes = itertools.count(1)
#: the hosts of proxies; any address of 127.0.0.0/8 is this machine
_PROXY_HOST = "127.0.0.2"


class Proxy:
    """Passes on what comes to the ports of a task.

    Attributes:
        delay: seconds that each piece is held.
        bytes_per_second: how much is passed on; None: as much as comes.
        break_after: bytes from now on after which the connection that passes them on is broken; None: never.
        breaks: the incarnation whose bytes count for that; None: all.
        when_broken: called when so many bytes have been passed on, before the connection is broken.
        resets: whether it is broken by a reset, and not cleanly.
        broken: how many connections were broken.
        passed: bytes that were passed on.
        passed_from: those of each incarnation.
        held: how many pieces had to wait for a cut.
        delayed: how many pieces were held for the delay.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self.delay = 0.0
        self.bytes_per_second: float | None = None
        self.break_after: int | None = None
        self.breaks: int | None = None
        self.when_broken: Callable[[], None] = lambda: None
        self.resets = False
        self.broken = self.passed = self.held = self.delayed = 0
        self.passed_from: collections.Counter[int | None] = collections.Counter()
        self._cut: set[int] = set()
        self._all_cut = False
        self._changed = threading.Condition()
        self._closed = False
        self._sockets: set[socket.socket] = set()
        for port in ports:
            listener = socket.create_server((_PROXY_HOST, port))
            self._sockets.add(listener)
            threading.Thread(target=self._accept, args=(listener, port), daemon=True).start()

    def cut(self, *sources: Endpoint) -> None:
        """Holds what comes from these, or from all, until `heal`."""
        with self._changed:
            self._cut |= {source.incarnation for source in sources}
            self._all_cut = not sources

    def heal(self) -> None:
        """Passes on everything again."""
        with self._changed:
            self._cut.clear()
            self._all_cut = False
            self._changed.notify_all()

    def close(self) -> None:
        """Ends it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def _accept(self, listener: socket.socket, port: int) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                if self._closed:
                    return
                continue
            try:
                far = socket.create_connection(("127.0.0.1", port))
            except OSError:
                near.close()  # nobody listens behind: who connects is told
                continue
            with self._changed:
                is_late = self._closed
                self._sockets |= set() if is_late else {near, far}
            if is_late:
                self._end(near, far)
                return
            threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()
            threading.Thread(target=self._pass_back, args=(far, near), daemon=True).start()

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        source, beginning = None, b""
        with contextlib.suppress(OSError):
            while data := near.recv(1 << 16):
                if source is None:
                    beginning = (beginning + data)[:4096]
                    at = beginning.find(b"anab")
                    if 0 <= at <= len(beginning) - 16:
                        (source,) = struct.unpack_from("<Q", beginning, at + 8)
                if not self._wait(source, len(data)):
                    break
                left = self._left(source, len(data))
                # before: who gets it may look here at once
                with self._changed:
                    self.passed += left
                    self.passed_from[source] += left
                far.sendall(data[:left])
                if left < len(data):
                    self.when_broken()
                    self._break(near, far)
                    break
        self._end(near, far)

    def _wait(self, source: int | None, size: int) -> bool:
        """Waits until a piece may be passed on; whether it ever may."""
        # on purpose: these are the faults that a proxy is there for
        if self.delay:
            time.sleep(self.delay)
            self.delayed += 1
        if self.bytes_per_second is not None:
            time.sleep(size / self.bytes_per_second)
        with self._changed:
            while not self._closed and (self._all_cut or source in self._cut):
                self.held += 1
                self._changed.wait()
            return not self._closed

    def _left(self, source: int | None, size: int) -> int:
        """How much of a piece is passed on before the connection breaks."""
        with self._changed:
            if self.break_after is None or self.breaks not in (None, source):
                return size
            if self.break_after >= size:
                self.break_after -= size
                return size
            left, self.break_after = self.break_after, None
            self.broken += 1
            return left

    def _break(self, near: socket.socket, far: socket.socket) -> None:
        if self.resets:
            for one in (near, far):
                # to linger for no time is to reset
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _pass_back(self, far: socket.socket, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(1 << 16):
                near.sendall(data)
        self._end(near, far)

    def _end(self, *ends: socket.socket) -> None:
        with self._changed:
            for one in ends:
                self._sockets.discard(one)
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()


class ProxiedTask:
    """A task of this process that others reach through its proxy only."""

    def __init__(self, name: str, port: int = 0) -> None:
        self.name = name
        self.handler = _Late()
        self.endpoint = Endpoint(f"127.0.0.1:{port}", name=name, cluster="proxied", handler=HandlerOfTask(self.handler))
        # as on another host: what is large goes by the proxy as well
        self.endpoint.memory = None
        #: of the control inbox, here and at the proxy
        self.port = int(self.endpoint.address.rpartition(":")[2])
        self.endpoint.hello = self.endpoint.hello._replace(address=f"{_PROXY_HOST}:{self.port}")
        self.task: Task | None = None

    def begin(self, addresses: dict[str, str]) -> None:
        """Begins to serve."""
        self.task = self.handler.task = Task(self.name, addresses, ConfigProto(), self.endpoint.incarnation)
        self.task.join(EndpointNetwork(self.endpoint))

    @property
    def steps(self) -> int:
        """How many steps are under way."""
        assert self.task is not None
        return self.task.state.containers.rendezvous.steps

    def kill(self) -> None:
        """Ends it without a goodbye, as if its process were killed."""
        for peer in list(self.endpoint._peers.values()):
            peer.hang_up_hard()
            peer.answer = lambda *_: None  # type: ignore[method-assign, misc]
            peer.take = lambda event: False  # type: ignore[method-assign]
        self.endpoint.close()
        assert self.task is not None
        self.task.close()


class _Late:
    """A task that is there after its address is known, or none. See `distributed.network.RequestHandler`.

    Attributes:
        task: the task, once it is there.
        losses: the names of the processes whose links have failed, one after the other.
    """

    def __init__(self) -> None:
        self.task: Task | None = None
        self.losses: list[str] = []

    def message(self, sender: str, frames: Frames) -> None:
        if self.task is not None:
            self.task.message(sender, frames)

    def request(self, sender: str, frames: Frames, reply: object) -> None:
        if self.task is None:
            raise InvalidArgumentError(None, None, "this is no task")
        self.task.request(sender, frames, reply)  # type: ignore[arg-type]

    def lost(self, sender: str, task: str) -> None:
        self.losses.append(task)
        if self.task is not None:
            self.task.lost(sender, task)


class ProxiedCluster:
    """Tasks behind proxies, and a client. See `distributed.masters.TargetScheme`.

    Attributes:
        tasks: by "job/index".
        addresses: of all, by their full names.
        proxies: what stands before them.
        client: the endpoint of the sessions.
    """

    def __init__(self, jobs: Mapping[str, int], others: Mapping[str, str]) -> None:
        self.scheme = f"proxied{next(_schemes)}"
        names = [f"{job}/{i}" for job, count in jobs.items() for i in range(count)]
        self.tasks = {name: ProxiedTask(_full(name)) for name in names}
        self.proxies: dict[str, Proxy] = {}
        self.addresses = {_full(name): address for name, address in others.items()}
        for name, task in self.tasks.items():
            self.proxies[name] = Proxy([task.port, task.endpoint.hello.bulk_port])
            self.addresses[_full(name)] = f"{_PROXY_HOST}:{task.port}"
        for task in self.tasks.values():
            task.begin(self.addresses)
        self.client = Endpoint("127.0.0.1:0", name="client", cluster="proxied", handler=HandlerOfTask(_Late()))

    def target(self, name: str) -> str:
        """What `tf.Session` takes to reach a task."""
        return f"{self.scheme}://{self.addresses[_full(name)]}"

    def master(
        self, address: str, config: ConfigProto | None, placement: PlacementPolicy | str | os.PathLike[str] | None
    ) -> ClusterMaster:
        client = f"{self.client.incarnation:016x}"
        return ClusterMaster(address, config, placement, EndpointNetwork(self.client), client)

    def reset(self, address: str, containers: Sequence[str]) -> None:
        reset_task(EndpointNetwork(self.client), address, containers)

    def close(self) -> None:
        for proxy in self.proxies.values():
            proxy.close()
        self.client.close()
        for task in self.tasks.values():
            task.endpoint.close()
            assert task.task is not None
            task.task.close()


def _full(name: str) -> str:
    job, _, index = name.partition("/")
    return f"/job:{job}/replica:0/task:{index}"


@contextlib.contextmanager
def proxied(others: Mapping[str, str] | None = None, /, **jobs: int) -> Iterator[ProxiedCluster]:
    """A cluster behind proxies, which is ended afterwards.

    Args:
        others: the addresses of tasks that are processes, and have no proxy, by "job/index".
        jobs: how many tasks of this process each job has.
    """
    cluster = ProxiedCluster(jobs, others or {})
    schemes[cluster.scheme] = cluster
    try:
        yield cluster
    finally:
        del schemes[cluster.scheme]
        cluster.close()
