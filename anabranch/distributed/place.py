"""What a peer needs of the place that it is a peer of, and what a place hands messages to. See `distributed.peers`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from anabranch.distributed.segments import Memory
from anabranch.distributed.wire import Hello, Lane, Limits
from anabranch.errors import OpError
from anabranch.runtime.messages import Buffer, Frames

if TYPE_CHECKING:
    from anabranch.distributed.peers import Peer

#: is given the reply to a request, or what it failed with
OnReply = Callable[[Frames | OpError], None]


class MessageHandler(Protocol):
    """What an endpoint hands messages to.

    It is called on the receiving thread, in the order in which the messages of a lane came. It must be quick: whatever
    waits or computes belongs on another thread. What it raises is logged, and answers a request as an error.
    """

    def message(self, sender: Peer, frames: Frames) -> None:
        """A message that is not to be answered."""

    def request(self, sender: Peer, frames: Frames, reply: Callable[[Frames], None]) -> None:
        """A request; `reply` may be called from any thread, once. It is dropped if the link failed meanwhile."""

    def lost(self, sender: Peer, error: OpError, was: Hello) -> None:
        """A link failed that was up, or that messages waited for: what was sent may be lost, in both directions.

        What comes next is new. Who was lost is in `was`: the peer may be another process, with another name, by now.
        """


class Connection(Protocol):
    """Carries messages to a peer's inbox of one lane, in order, until it breaks."""

    def send(self, parts: Sequence[Buffer]) -> None:
        """Sends one message; it does not block."""

    def close(self, *, is_farewell: bool) -> None:
        """Closes it, without waiting; what was sent just before still leaves if it is a farewell."""


class StreamConnection(Connection, Protocol):
    """One that begins with a number, by which its receiver knows it. See `distributed.local_streams`."""

    number: bytes


class Place(Protocol):
    """What a peer needs of the place that it is a peer of."""

    hello: Hello
    incarnation: int
    limits: Limits
    handler: MessageHandler
    #: numbers that grow: of channels, and of requests
    channels: itertools.count[int]
    requests: itertools.count[int]
    #: how many messages it has handed over
    handed_over: int
    #: what it shares memory with; None: nothing
    memory: Memory | None

    @property
    def local_address(self) -> bytes:
        """Where processes of this host connect to say what is urgent; empty: nowhere."""

    def now(self) -> float:
        """The time, in seconds."""

    def connect(self, peer: Peer, lane: Lane, channel: int) -> Connection:
        """A new connection to a peer's inbox; what becomes of it is told to the peer's link, by its channel."""

    def connect_locally(self, peer: Peer, address: bytes, channel: int) -> StreamConnection | None:
        """A connection to where a peer of this host listens, for control messages; None where that is not to be."""

    def dialed(self, peer: Peer, channel: int) -> None:
        """A channel to a peer was opened: answers name it."""

    def hung_up(self, channel: int) -> None:
        """A channel was closed."""

    def attach(self, peer: Peer, incarnation: int, channel: int) -> None:
        """What comes on this channel is the peer's."""

    def came_apart(self, alias: Peer) -> None:
        """A peer for which another one stood is one of its own again."""

    def has_left(self, name: str, address: str) -> bool:
        """Whether a task has moved from an address, as far as is known."""

    def refuse_closed(self) -> None:
        """Raises `CancelledError` if the place is closed."""

    def refuse_receiver(self, what: str) -> None:
        """Raises `InternalError` on the thread that receives, which must not wait."""
