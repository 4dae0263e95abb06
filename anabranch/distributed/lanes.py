"""How messages are written to one peer: numbered, in pieces or through shared memory, by a connection for each lane.

A `Lanes` belongs to one `distributed.peers.Peer` and one `distributed.links.Link`: the link numbers what is written,
the peer says when. What it decides is how the bytes travel. Large frames of the bulk lane go before the message that
they belong to: as SHARED where the peer can map this process's memory, else as PIECEs. All the rest goes in one
message, with its header. Where much is said to a peer of this host, its control messages go by a stream of the system's
(`distributed.local_streams`).

#: Everything but `lend` is called under the peer's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from anabranch.distributed import wire
from anabranch.distributed.flows import is_large, pieces_of, without_large
from anabranch.distributed.links import Link, Say
from anabranch.distributed.place import Connection, Place, StreamConnection
from anabranch.distributed.segments import LentFrames, Pool, encode_offer, encode_shared
from anabranch.distributed.wire import Header, Lane, MessageKind
from anabranch.runtime.messages import Buffer

#: so many control messages are much: a process that says less has no use for another connection
_MUCH: Final = 32


class Outgoing(NamedTuple):
    """A message to a peer, which may wait for its link."""

    kind: MessageKind
    lane: Lane
    request: int
    frames: Sequence[Buffer]
    #: with its header
    size: int
    lent: LentFrames | None = None


class Lanes:
    """The connections to a peer's inboxes, and the memory that it shares.

    Args:
        link: numbers the messages.
        connect: makes a connection to the inbox of a lane, for a channel.
        connect_locally: makes one to an address of this host that the peer has told; None where that is not to be.
    """

    def __init__(
        self,
        place: Place,
        link: Link,
        connect: Callable[[Lane, int], Connection],
        connect_locally: Callable[[bytes, int], StreamConnection | None],
    ) -> None:
        self._place, self._link = place, link
        self._connect, self._connect_locally = connect, connect_locally
        self._connections: dict[Lane, Connection] = {}
        #: one whose lane goes by another connection since
        self._left: list[Connection] = []
        self._said = 0
        self._is_offered = False
        self._pool: Pool | None = None
        #: what went through shared memory
        self.shared_bytes = 0

    @property
    def shares_memory(self) -> bool:
        """Whether the peer has proved to be on this host, for this opening of the link."""
        return self._pool is not None

    def lend(self, frames: Sequence[Buffer]) -> LentFrames | None:
        """Copies large frames to shared memory, where the peer can read that; under no lock of the peer's."""
        pool = self._pool
        return None if pool is None else pool.lend_large(frames)

    def write(self, message: Outgoing) -> None:
        """Writes a message; the link is up."""
        kind, lane, request, frames, _, shared = message
        if lane is Lane.BULK and any(map(is_large, frames)):
            self._offer_memory()
            # what was lent for another opening of the link is lost with that one's pool
            lent = shared.lent if shared is not None and shared.pool is self._pool else {}
            for position, frame in enumerate(frames):
                if position in lent and self._pool is not None:
                    where = encode_shared(self._pool.described(lent[position]))
                    self._write_numbered(MessageKind.SHARED, lane, len(frame), [where])
                    self.shared_bytes += len(frame)
                elif is_large(frame):
                    for piece in pieces_of(frame):
                        self._write_numbered(MessageKind.PIECE, lane, len(frame), [piece])
            frames = without_large(frames)
        elif lane is Lane.CONTROL:
            self._said += 1
            if self._said == _MUCH:
                self._offer_memory()
        self._write_numbered(kind, lane, request, frames)

    def write_brief(self, kind: MessageKind, request: int, frame: bytes) -> None:
        """Writes a control message of one frame, of at most `wire.BRIEF_BYTES`; the link is up."""
        self._said += 1
        if self._said == _MUCH:
            self._offer_memory()
        link, place = self._link, self._place
        channel = link.channel
        sequence = link.next_sequence(Lane.CONTROL, len(frame) + wire.HEADER_BYTES, place.now())
        message = wire.brief(kind, place.incarnation, link.incarnation or 0, channel, sequence, request, frame)
        connection = self._connections.get(Lane.CONTROL)
        (self._connection(Lane.CONTROL, channel) if connection is None else connection).send((message,))

    def say(self, said: Say) -> None:
        """Writes what the link itself has to say."""
        link, place = self._link, self._place
        match said.kind:
            case MessageKind.HELLO | MessageKind.WELCOME:
                body = wire.encode_hello(place.hello._replace(answers=said.answers))
            case MessageKind.REFUSAL:
                body = wire.encode_refusal(wire.Refusal(said.answers, said.reason))
            case MessageKind.BEAT:
                body = wire.encode_beat(link.next_beat(place.handed_over, place.now()))
            case _:
                body = b""
        header = Header(
            said.kind,
            Lane.CONTROL,
            place.incarnation,
            link.incarnation or 0,
            said.channel or link.channel,
            # the link's own messages count no bytes: nobody would say that they were taken
            link.next_sequence(Lane.CONTROL, 0, place.now()),
            0,
            1,
            len(body),
        )
        self._connection(Lane.CONTROL, header.channel).send([wire.encode_header(header), body])

    def answer_offer(self, secret: bytes) -> None:
        """Tells that the peer's memory can be read here."""
        if self._link.is_up:
            self._write_numbered(MessageKind.TOKEN, Lane.CONTROL, 0, [secret, self._place.local_address])

    def share_memory(self, token: bytes, address: bytes) -> None:
        """The peer has answered the offer; it can map this process's memory if the token is the secret.

        Args:
            address: where it listens on this host; empty: nowhere.
        """
        memory = self._place.memory
        if memory is not None and self._is_offered and self._pool is None and memory.is_secret(token):
            self._pool = Pool(memory)
            if address:
                self._use_stream(address)

    def hang_up(self, *, is_farewell: bool) -> None:
        """Closes the connections, and gives back what was shared; what was sent just before still leaves if it is a
        farewell.
        """
        self._is_offered = False
        self._said = 0
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        while self._connections:
            self._connections.popitem()[1].close(is_farewell=is_farewell)
        while self._left:
            self._left.pop().close(is_farewell=is_farewell)

    def _offer_memory(self) -> None:
        """Offers to share memory, once for each opening of the link; what is sent first does not wait for that."""
        memory = self._place.memory
        if memory is not None and not self._is_offered:
            self._is_offered = True
            self._write_numbered(MessageKind.OFFER, Lane.CONTROL, 0, [encode_offer(memory.offer())])

    def _use_stream(self, address: bytes) -> None:
        """Lets all further control messages go by a stream, and says so behind those before."""
        stream = self._connect_locally(address, self._link.channel)
        if stream is not None:
            self._write_numbered(MessageKind.STREAM, Lane.CONTROL, 0, [stream.number])
            self._left.append(self._connections[Lane.CONTROL])
            self._connections[Lane.CONTROL] = stream

    def _write_numbered(self, kind: MessageKind, lane: Lane, request: int, frames: Sequence[Buffer]) -> None:
        """Writes a message as the next of its lane."""
        link, place = self._link, self._place
        size = sum(map(len, frames))
        # under the lock, as is what follows: numbers are given in the order in which messages are written
        sequence = link.next_sequence(lane, size + wire.HEADER_BYTES, place.now())
        channel = link.channel
        packed = wire.packed_header(
            kind, lane, place.incarnation, link.incarnation or 0, channel, sequence, request, len(frames), size
        )
        parts = wire.joined(packed, frames)
        connection = self._connections.get(lane)
        (self._connection(lane, channel) if connection is None else connection).send(parts)

    def _connection(self, lane: Lane, channel: int) -> Connection:
        """A lane's connection, which is made when something is to be sent by it."""
        connection = self._connections.get(lane)
        if connection is None:
            # not before: the port of the bulk lane is known only from the peer's hello
            connection = self._connections[lane] = self._connect(lane, channel)
        return connection
