"""The network of a cluster's master and tasks, by way of the peers of one endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.distributed.network import RequestHandler
from anabranch.distributed.peers import Peer
from anabranch.distributed.process_reads import let_others_read, process_reader
from anabranch.distributed.transport import Endpoint
from anabranch.distributed.wire import Hello, Lane
from anabranch.errors import OpError, UnavailableError
from anabranch.runtime.messages import Frames
from anabranch.runtime.protocols import LinkTraffic
from anabranch.runtime.published_rows import ReadMemory
from anabranch.runtime.published_values import BOARD_BYTES, BoardMemory

#: how long (s) a task may take to answer what it does at once: it opens a session, binds a partition
ANSWER_WITHIN: Final = 60.0
#: messages of more bytes go by the bulk lane
_BULK_ABOVE: Final = 1 << 16


class PeerConnection:
    """See `distributed.network.TaskConnection`."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    @property
    def address(self) -> str:
        """Where the task listens."""
        return self._peer.address

    def call(self, frames: Frames) -> Frames:
        """Sends a request, and waits for the reply."""
        if not self._peer.wait_until_up(_CONNECT_WITHIN):
            error = self._peer.error
            raise error or UnavailableError(None, None, f"the task at {self.address} cannot be reached; start it")
        return self._peer.call(frames, ANSWER_WITHIN, _lane(frames))

    def start(self, frames: Frames, on_reply: Callable[[Frames | OpError], None]) -> None:
        """Sends a request, and returns."""
        self._peer.request(frames, on_reply, _lane(frames))

    @property
    def shares_memory(self) -> bool:
        """Whether the task has proved to be on this host."""
        return self._peer.shares_memory

    def board(self, process: int, descriptor: int, number: int) -> memoryview | None:
        """Where the task shows values; None where that cannot be mapped."""
        view = self._peer.mapped(process, descriptor, number, BOARD_BYTES)
        return None if view is None else view.contents

    def reader(self, process: int, number_at: int, number: int) -> ReadMemory | None:
        """Reads the memory of the task that shows a board of this number; None where that cannot be."""
        return process_reader(process, number_at, number)

    def post(self, frames: Frames) -> None:
        """Sends a message that is not answered."""
        self._peer.send(frames, _lane(frames))

    def on_lost(self, callback: Callable[[OpError], None]) -> Callable[[], None]:
        """Calls back whenever the task is lost."""
        return self._peer.on_lost(callback)


#: how long (s) one attempt to reach a task may take; who waits for a task makes several
_CONNECT_WITHIN: Final = 2.0


def _lane(frames: Frames) -> Lane:
    return Lane.BULK if sum(map(len, frames)) > _BULK_ABOVE else Lane.CONTROL


class EndpointNetwork:
    """See `distributed.network.TaskNetwork`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def connect(self, address: str) -> PeerConnection:
        """The connection to a task."""
        return PeerConnection(self.endpoint.peer(address))

    def traffic(self) -> list[LinkTraffic]:
        """What went between this process and each other that it knows."""
        return self.endpoint.traffic()

    def make_board(self) -> BoardMemory | None:
        """See `distributed.network.TaskNetwork`."""
        memory = self.endpoint.memory
        if memory is None:
            return None
        # rows of what is too large for the board are read where they are
        let_others_read()
        return memory.make(BOARD_BYTES)

    def expect(self) -> None:
        """See `distributed.network.TaskNetwork`."""
        self.endpoint.expect()

    def has_left(self, name: str, address: str) -> bool:
        """See `distributed.network.TaskNetwork`."""
        return self.endpoint.has_left(name, address)


class HandlerOfTask:
    """Hands what an endpoint receives to a task. See `distributed.place.MessageHandler`."""

    def __init__(self, task: RequestHandler) -> None:
        self._task = task

    def message(self, sender: Peer, frames: Frames) -> None:
        """A message that is not answered."""
        # one that is started again at the same address is heard only after `lost` was called for the one before
        self._task.message(sender.announced, frames)

    def request(self, sender: Peer, frames: Frames, reply: Callable[[Frames], None]) -> None:
        """A request."""
        self._task.request(sender.announced, frames, reply)

    def lost(self, sender: Peer, error: OpError, was: Hello) -> None:
        """The link to a peer failed."""
        self._task.lost(was.address, was.name)
