"""Endpoints for tests: on free ports of this machine, with a handler that notes what it is given; and a stranger."""

from __future__ import annotations

import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import zmq

from anabranch.distributed import wire
from anabranch.distributed.held_ports import HeldPorts
from anabranch.distributed.peers import Peer
from anabranch.distributed.transport import Endpoint
from anabranch.distributed.wire import Header, Hello, Lane, Limits, MessageKind
from anabranch.errors import OpError
from anabranch.runtime.messages import Frames

#: for whatever a test waits for, in seconds
DEADLINE = 20.0


class Handler:
    """Notes messages and losses, and answers a request by its own frames, or as it is told."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[tuple[Peer, Frames]] = queue.SimpleQueue()
        self.losses: queue.SimpleQueue[OpError] = queue.SimpleQueue()
        self.respond: Callable[[Frames, Callable[[Frames], None]], None] = lambda frames, reply: reply(frames)

    def message(self, sender: Peer, frames: Frames) -> None:
        self.messages.put((sender, frames))

    def request(self, sender: Peer, frames: Frames, reply: Callable[[Frames], None]) -> None:
        self.respond(frames, reply)

    def lost(self, sender: Peer, error: OpError, was: Hello) -> None:
        self.losses.put(error)

    def next_message(self) -> list[bytes]:
        return [bytes(frame) for frame in self.messages.get(timeout=DEADLINE)[1]]

    def next_loss(self) -> OpError:
        return self.losses.get(timeout=DEADLINE)


class Asked:
    """The outcome of one request."""

    def __init__(self, peer: Peer, *frames: bytes) -> None:
        self._outcome: queue.SimpleQueue[Frames | OpError] = queue.SimpleQueue()
        self.number = peer.request(list(frames), self._outcome.put)

    def outcome(self) -> Frames | OpError:
        return self._outcome.get(timeout=DEADLINE)

    @property
    def is_answered(self) -> bool:
        return not self._outcome.empty()


class Places:
    """Makes endpoints, and closes them when the test ends."""

    def __init__(self) -> None:
        self.made: list[Endpoint] = []
        self._held: list[HeldPorts] = []

    def make(self, name: str = "a", bind: str = "127.0.0.1:0", **arguments: Any) -> tuple[Endpoint, Handler]:
        handler = Handler()
        arguments = {"cluster": "test", "handler": handler} | arguments
        self.made.append(Endpoint(bind, name=name, **arguments))
        return self.made[-1], handler

    def free_address(self) -> str:
        """An address of this machine at which nobody listens, and nobody will who does not ask for it."""
        self._held.append(HeldPorts(1))
        return f"127.0.0.1:{self._held[-1].ports[0]}"

    def close(self) -> None:
        for endpoint in self.made:
            endpoint.close()
        for held in self._held:
            held.close()


class Stranger:
    """A process that speaks the format, or nonsense, through bare sockets."""

    def __init__(self, cluster: str = "test", version: int = wire.VERSION) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.inbox = self.context.socket(zmq.PULL)
        self.bulk = self.context.socket(zmq.PULL)
        self.port = self.inbox.bind_to_random_port("tcp://127.0.0.1")
        self.bulk_port = self.bulk.bind_to_random_port("tcp://127.0.0.1")
        self.address = f"127.0.0.1:{self.port}"
        self.incarnation = secrets.randbits(63) + 1
        self.cluster, self.version = cluster, version
        self.sockets: list[zmq.Socket[bytes]] = []

    def connect(self, address: str) -> zmq.Socket[bytes]:
        push = self.context.socket(zmq.PUSH)
        push.connect(f"tcp://{address}")
        self.sockets.append(push)
        return push

    def header(self, kind: MessageKind, sequence: int, frames: list[bytes], **fields: int) -> bytes:
        header = Header(kind, Lane.CONTROL, self.incarnation, 0, 1, sequence, 0, len(frames), sum(map(len, frames)))
        return wire.encode_header(header._replace(version=self.version, **fields))

    def hello(self, push: zmq.Socket[bytes], **fields: int) -> None:
        body = wire.encode_hello(Hello(self.cluster, "stranger", self.address, self.bulk_port))
        push.send_multipart([self.header(MessageKind.HELLO, 0, [body], **fields), body])

    def receive(self) -> tuple[Header, list[bytes]]:
        assert self.inbox.poll(DEADLINE * 1000)
        first, *frames = self.inbox.recv_multipart()
        if len(first) > wire.HEADER_BYTES:
            header, joined = wire.split_joined(first, Limits())
            return header, [bytes(frame) for frame in joined]
        return wire.decode_header(first, Limits()), frames

    def close(self) -> None:
        self.context.destroy(linger=0)


@contextmanager
def held_addresses(host: str = "127.0.0.1", /, **jobs: int) -> Iterator[dict[str, list[str]]]:
    """Addresses of this machine for so many tasks of each job, which nobody else gets meanwhile."""
    with HeldPorts(sum(jobs.values())) as held:
        ports = iter(held.ports)
        yield {job: [f"{host}:{next(ports)}" for _ in range(count)] for job, count in jobs.items() if count}


def kill(endpoint: Endpoint) -> None:
    """Ends an endpoint without a goodbye, as if its process were killed."""
    for peer in list(endpoint._peers.values()):
        peer.hang_up_hard()
        peer.take = lambda event: False  # type: ignore[method-assign]
    endpoint.close()


def until(condition: Callable[[], bool], what: str, within: float = DEADLINE) -> None:
    """Waits for what no event tells of."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about"
        threading.Event().wait(0.005)


def threads_of_this_process() -> int:
    """How many threads there are, those of libraries included."""
    return len(os.listdir("/proc/self/task"))


def descriptors_of_this_process() -> int:
    """How many descriptors are open."""
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def closing() -> Iterator[Places]:
    """Endpoints that are closed at the end."""
    places = Places()
    try:
        yield places
    finally:
        places.close()
