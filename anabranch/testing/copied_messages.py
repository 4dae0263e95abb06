"""A transport that copies every message through bytes, in one process: the worker shares nothing with its master.

For tests: whatever runs inside `over_bytes` shows that it needs nothing but messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from anabranch.placement.placer import Placer
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.runtime.local_master import worker_session_openers
from anabranch.runtime.local_worker import LocalTask
from anabranch.runtime.messages import Frames
from anabranch.runtime.protocols import WorkerSession
from anabranch.runtime.remote_worker import RemoteWorkerSession
from anabranch.runtime.worker_service import WorkerService


class CopiedMessages:
    """Carries messages to a service in this process, as copies.

    Attributes:
        service: to which they go.
        count: how many have been carried.
    """

    def __init__(self, service: WorkerService) -> None:
        self.service = service
        self.count = 0

    def call(self, frames: Frames) -> Frames:
        """See `runtime.messages.Transport`."""
        self.count += 1
        return copied(self.service.handle(copied(frames)))

    def start(self, frames: Frames, on_reply: Callable[[Frames], None]) -> None:
        """See `runtime.messages.Transport`."""
        self.count += 1
        self.service.start(copied(frames), lambda reply: on_reply(copied(reply)))

    def post(self, frames: Frames) -> None:
        """See `runtime.messages.Transport`."""
        self.count += 1
        self.service.accept(copied(frames))


def copied(frames: Frames) -> Frames:
    """Frames whose bytes nobody else has."""
    return [bytes(bytearray(frame)) for frame in frames]


@contextlib.contextmanager
def over_bytes() -> Iterator[CopiedMessages]:
    """Local sessions that are opened inside reach their worker by copied messages."""
    transport = CopiedMessages(WorkerService())

    def open_remotely(name: str, task: LocalTask | None, placer: Placer, config: ConfigProto | None) -> WorkerSession:
        task_name = None if task is None else task.name
        return RemoteWorkerSession(transport, name, task_name, placer.policy, config or ConfigProto())

    worker_session_openers.append(open_remotely)
    try:
        yield transport
    finally:
        worker_session_openers.remove(open_remotely)
