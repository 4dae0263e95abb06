"""What lanes write to the connections of a peer: in one message, in pieces, or through shared memory."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence

import pytest

from anabranch.distributed.flows import PIECE_BYTES
from anabranch.distributed.lanes import Lanes, Outgoing
from anabranch.distributed.links import Link
from anabranch.distributed.peer_table import PeerTable
from anabranch.distributed.peers import Peer
from anabranch.distributed.segments import Mapped, decode_offer, decode_shared
from anabranch.distributed.shared_memory import ProcessMemory, shared_memory
from anabranch.distributed.wire import (
    HEADER_BYTES,
    STREAM_NUMBER_BYTES,
    Header,
    Hello,
    Lane,
    Limits,
    MessageKind,
    decode_header,
    split_joined,
)
from anabranch.runtime.messages import Buffer

LARGE = bytes(range(256)) * (3 * PIECE_BYTES // 256) + b"end"


class Inbox:
    """A connection that notes what is sent by it. See `Connection`."""

    def __init__(self) -> None:
        self.messages: list[tuple[Header, list[bytes]]] = []
        self.closed: bool | None = None

    def send(self, parts: Sequence[Buffer]) -> None:
        if len(parts[0]) > HEADER_BYTES:
            header, frames = split_joined(parts[0], Limits())
        else:
            header, frames = decode_header(parts[0], Limits()), list(parts[1:])
        self.messages.append((header, [bytes(frame) for frame in frames]))

    def close(self, *, is_farewell: bool) -> None:
        self.closed = is_farewell


class NumberedInbox(Inbox):
    number = b"n" * STREAM_NUMBER_BYTES


class Here(PeerTable):
    hello = Hello("c", "here", "127.0.0.1:1", 2)

    def connect(self, peer: Peer, lane: Lane, channel: int) -> Inbox:
        raise AssertionError("these lanes have their own connections")

    def refuse_receiver(self, what: str) -> None: ...


class Way:
    """A link that is up, and its lanes."""

    def __init__(self, memory: ProcessMemory | None) -> None:
        place = Here(None, Limits(), lambda: 0.0)  # type: ignore[arg-type]
        self.memory = place.memory = memory
        channels = itertools.count(1)
        self.link = Link(place.hello, place.incarnation, "127.0.0.1:3", lambda: next(channels))
        self.inboxes: dict[Lane, Inbox] = {}
        #: what was connected to on this host, and where that goes; None: it cannot be
        self.local: list[tuple[bytes, int]] = []
        self.stream: NumberedInbox | None = NumberedInbox()
        self.lanes = Lanes(place, self.link, self.connect, self.connect_locally)
        self.come_up(place)

    def come_up(self, place: Here) -> None:
        self.link.open(0.0)
        welcome = Header(MessageKind.WELCOME, Lane.CONTROL, 77, place.incarnation, 5, 0, 0, 1, 0)
        self.link.heard_welcome(welcome, Hello("c", "there", "127.0.0.1:3", 4, self.link.channel), 0.0)
        assert self.link.is_up

    def connect(self, lane: Lane, channel: int) -> Inbox:
        assert channel == self.link.channel
        assert lane not in self.inboxes, "a lane has one connection"
        self.inboxes[lane] = Inbox()
        return self.inboxes[lane]

    def connect_locally(self, address: bytes, channel: int) -> NumberedInbox | None:
        self.local.append((address, channel))
        return self.stream

    def write(self, *frames: bytes, lane: Lane = Lane.BULK) -> None:
        lent = self.lanes.lend(frames) if lane is Lane.BULK else None
        size = sum(map(len, frames))
        self.lanes.write(Outgoing(MessageKind.MESSAGE, lane, 9, frames, size, lent))

    def kinds(self, lane: Lane = Lane.BULK) -> list[MessageKind]:
        return [header.kind for header, _ in self.inboxes[lane].messages]

    def token(self) -> bytes:
        """What a process of this host and user answers to the offer."""
        (_, frames) = next(m for m in self.inboxes[Lane.CONTROL].messages if m[0].kind is MessageKind.OFFER)
        assert self.memory is not None
        secret = self.memory.secret(decode_offer(frames))
        assert secret is not None
        return secret


@pytest.fixture
def memory() -> Iterator[ProcessMemory]:
    made = shared_memory()
    if made is None:
        pytest.skip("this system has no files in memory")
    yield made
    made.close()


def test_messages_of_a_lane_are_numbered_and_go_by_a_connection_of_its_own() -> None:
    way = Way(None)
    way.write(b"a", b"", lane=Lane.CONTROL)
    way.write(b"b", lane=Lane.CONTROL)
    way.write(b"c")
    control, bulk = way.inboxes[Lane.CONTROL].messages, way.inboxes[Lane.BULK].messages
    assert [frames for _, frames in control] == [[b"a", b""], [b"b"]]
    assert [frames for _, frames in bulk] == [[b"c"]]
    first = control[0][0].sequence
    assert [header.sequence for header, _ in control] == [first, first + 1]
    for header, frames in (*control, *bulk):
        assert (header.receiver, header.channel, header.request) == (77, way.link.channel, 9)
        assert header.bytes == sum(map(len, frames))


def test_large_frames_of_the_bulk_lane_go_in_pieces_before_their_message() -> None:
    way = Way(None)
    way.write(b"small", LARGE)
    *pieces, (message, frames) = way.inboxes[Lane.BULK].messages
    assert way.kinds() == [MessageKind.PIECE] * 4 + [MessageKind.MESSAGE]
    assert b"".join(piece for _, (piece,) in pieces) == LARGE
    assert {header.request for header, _ in pieces} == {len(LARGE)}
    assert message.request == 9
    assert frames == [b"small", (1).to_bytes(4, "little")]
    # control messages are never cut up: they would wait for each other
    way.write(LARGE, lane=Lane.CONTROL)
    assert way.inboxes[Lane.CONTROL].messages[-1][1] == [LARGE]
    assert way.lanes.shared_bytes == 0


def test_memory_is_offered_with_the_first_large_frame_and_used_when_the_secret_has_come_back(
    memory: ProcessMemory,
) -> None:
    way = Way(memory)
    way.write(b"small")
    assert Lane.CONTROL not in way.inboxes
    # who only says something else cannot read it
    way.write(LARGE)
    way.lanes.share_memory(b"x" * 32, b"here")
    way.write(LARGE)
    assert MessageKind.SHARED not in way.kinds()
    assert way.kinds(Lane.CONTROL) == [MessageKind.OFFER]
    way.lanes.share_memory(way.token(), b"")
    way.inboxes[Lane.BULK].messages.clear()
    way.write(b"small", LARGE, LARGE)
    assert way.kinds() == [MessageKind.SHARED, MessageKind.SHARED, MessageKind.MESSAGE]
    mapped = Mapped(memory, os.getpid(), 1 << 30)
    for _, frames in way.inboxes[Lane.BULK].messages[:2]:
        assert bytes(mapped.frame(decode_shared(frames), len(LARGE))) == LARGE
    assert way.lanes.shared_bytes == 2 * len(LARGE)
    way.lanes.hang_up(is_farewell=False)


def test_a_link_that_is_opened_anew_offers_anew_and_sends_nothing_of_what_was_lent_before(
    memory: ProcessMemory,
) -> None:
    way = Way(memory)
    way.write(LARGE)
    way.lanes.share_memory(way.token(), b"")
    lent = way.lanes.lend([LARGE])
    inboxes = dict(way.inboxes)
    way.lanes.hang_up(is_farewell=True)
    assert [inbox.closed for inbox in inboxes.values()] == [True, True]
    way.inboxes.clear()
    assert way.lanes.lend([LARGE]) is None
    way.lanes.write(Outgoing(MessageKind.MESSAGE, Lane.BULK, 9, [LARGE], len(LARGE), lent))
    assert way.kinds() == [MessageKind.PIECE] * 4 + [MessageKind.MESSAGE]
    assert way.kinds(Lane.CONTROL) == [MessageKind.OFFER]


def test_who_says_much_to_a_process_of_this_host_says_it_by_a_stream(memory: ProcessMemory) -> None:
    way = Way(memory)
    said = [b"%d" % number for number in range(100)]
    way.write(said[0], lane=Lane.CONTROL)
    assert way.kinds(Lane.CONTROL) == [MessageKind.MESSAGE]
    for text in said[1:50]:
        way.write(text, lane=Lane.CONTROL)
    inbox = way.inboxes[Lane.CONTROL]
    assert way.kinds(Lane.CONTROL).count(MessageKind.OFFER) == 1
    way.lanes.share_memory(b"x" * 32, b"here")
    assert way.local == []
    way.lanes.share_memory(way.token(), b"here")
    assert way.local == [(b"here", way.link.channel)]
    for text in said[50:]:
        way.write(text, lane=Lane.CONTROL)
    assert way.stream is not None
    # which stream it is stands behind all that came before, and the numbers go on
    (told, frames), later = inbox.messages[-1], way.stream.messages
    assert (told.kind, frames) == (MessageKind.STREAM, [NumberedInbox.number])
    assert [frames for header, frames in inbox.messages + later if header.kind is MessageKind.MESSAGE] == [
        [text] for text in said
    ]
    numbers = [header.sequence for header, _ in inbox.messages + later]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    way.write(b"bulk")
    assert way.kinds(Lane.BULK) == [MessageKind.MESSAGE]
    way.lanes.hang_up(is_farewell=True)
    assert [end.closed for end in (inbox, way.stream, way.inboxes[Lane.BULK])] == [True] * 3


@pytest.mark.parametrize("why", ["it listens nowhere", "it cannot be connected to"])
def test_without_a_stream_control_messages_go_on_as_before(memory: ProcessMemory, why: str) -> None:
    way = Way(memory)
    for _ in range(40):
        way.write(b"x", lane=Lane.CONTROL)
    if why == "it cannot be connected to":
        way.stream = None
        way.lanes.share_memory(way.token(), b"here")
    else:
        way.lanes.share_memory(way.token(), b"")
        assert way.local == []
    way.write(b"y", lane=Lane.CONTROL)
    assert way.kinds(Lane.CONTROL) == [MessageKind.MESSAGE] * 31 + [MessageKind.OFFER] + [MessageKind.MESSAGE] * 10
    way.write(LARGE)
    assert MessageKind.SHARED in way.kinds()


def test_a_link_that_is_opened_anew_speaks_by_zeromq_first(memory: ProcessMemory) -> None:
    way = Way(memory)
    for _ in range(40):
        way.write(b"x", lane=Lane.CONTROL)
    way.lanes.share_memory(way.token(), b"here")
    way.lanes.hang_up(is_farewell=False)
    way.inboxes.clear()
    way.write(b"y", lane=Lane.CONTROL)
    assert way.kinds(Lane.CONTROL) == [MessageKind.MESSAGE]
    for _ in range(40):
        way.write(b"x", lane=Lane.CONTROL)
    assert way.kinds(Lane.CONTROL).count(MessageKind.OFFER) == 1
