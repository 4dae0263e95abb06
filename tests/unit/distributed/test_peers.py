"""Peers without a network: what becomes of what waits when two of them prove to be one process, or seem to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.distributed.connections import HandlerOfTask
from anabranch.distributed.links import PeerState
from anabranch.distributed.peer_table import PeerTable
from anabranch.distributed.peers import Peer
from anabranch.distributed.wire import Header, Hello, Lane, Limits, MessageKind, encode_header, encode_hello
from anabranch.errors import OpError, ResourceExhaustedError
from anabranch.runtime.messages import Buffer, Frames


class Silent:
    """A connection that nothing comes out of."""

    def send(self, parts: Sequence[Buffer]) -> None: ...

    def close(self, *, is_farewell: bool) -> None: ...


class Noting:
    """Notes who was lost; no message comes. See `RequestHandler`."""

    def __init__(self) -> None:
        self.lost_ones: list[tuple[str, str]] = []

    def message(self, sender: str, frames: Frames) -> None: ...

    def request(self, sender: str, frames: Frames, reply: Callable[[Frames], None]) -> None: ...

    def lost(self, sender: str, task: str) -> None:
        self.lost_ones.append((sender, task))


class Table(PeerTable):
    hello = Hello("", "test", "127.0.0.1:1", 2)

    def connect(self, peer: Peer, lane: Lane, channel: int) -> Silent:
        return Silent()

    def refuse_receiver(self, what: str) -> None: ...


def test_who_waits_at_an_address_is_told_if_the_process_behind_it_has_no_room() -> None:
    # nobody calls the handler: no message ever comes
    table = Table(None, Limits(waiting_bytes=1000), lambda: 0.0)  # type: ignore[arg-type]
    alias, peer = table.peer("127.0.0.1:10"), table.peer("127.0.0.1:11")
    outcomes: dict[str, Frames | OpError] = {}
    peer.send([b"x" * 500])
    for name, size in (("fits", 100), ("too much", 600), ("fits, too", 100)):
        alias.request([b"y" * size], lambda reply, name=name: outcomes.__setitem__(name, reply))
    alias.merge(peer)
    assert list(outcomes) == ["too much"]
    assert isinstance(outcomes["too much"], ResourceExhaustedError)
    assert alias.merged is peer
    table.stop_links()
    assert set(outcomes) == {"fits", "too much", "fits, too"}


def test_an_answer_to_the_process_that_had_the_address_before_proves_nothing() -> None:
    """Channels of both have the same numbers. Found by the simulated cluster, seed 21671."""
    table = Table(None, Limits(), lambda: 0.0)  # type: ignore[arg-type]
    one, other = table.peer("127.0.0.1:10"), table.peer("127.0.0.1:11")
    one.send([b"x"])
    other.send([b"x"])

    def welcome(answers: int, receiver: int, sequence: int) -> None:
        """From the process at port 11."""
        body = encode_hello(Hello("", "other", "127.0.0.1:11", 1, answers))
        kind, lane = MessageKind.WELCOME, Lane.CONTROL
        header = Header(kind, lane, 77, receiver, 5, sequence, 0, 1, len(body))
        table.take_message(encode_header(header), [body], lane)

    welcome(other.channel, table.incarnation, 0)
    assert (one.state, other.state) == (PeerState.CONNECTING, PeerState.UP)
    welcome(one.channel, 1234, 1)
    assert one.merged is one
    assert table.peer("127.0.0.1:10") is one
    # to this process, it does prove that both addresses are one process's
    welcome(one.channel, table.incarnation, 1)
    assert one.merged is other
    assert table.peer("127.0.0.1:10") is other
    table.stop_links()


def test_who_takes_this_process_for_the_one_before_it_is_told() -> None:
    table = Table(None, Limits(), lambda: 0.0)  # type: ignore[arg-type]
    body = encode_hello(Hello("", "other", "127.0.0.1:10", 1, 3))
    header = Header(MessageKind.WELCOME, Lane.CONTROL, 77, 1234, 5, 0, 0, 1, len(body))
    table.take_message(encode_header(header), [body], Lane.CONTROL)
    assert [(peer.address, peer.state) for peer in table._known_peers()] == [("127.0.0.1:10", PeerState.CONNECTING)]
    table.stop_links()


def test_who_is_lost_has_its_own_name_though_another_has_its_address_already() -> None:
    """Or a master would hear that the one which has just come was lost, and never of the one that was."""
    handler = Noting()
    table = Table(HandlerOfTask(handler), Limits(), lambda: 0.0)

    def hello(name: str, incarnation: int) -> None:
        body = encode_hello(Hello("", name, "127.0.0.1:10", 1))
        header = Header(MessageKind.HELLO, Lane.CONTROL, incarnation, 0, 1, 0, 0, 1, len(body))
        table.take_message(encode_header(header), [body], Lane.CONTROL)

    hello("first", 77)
    hello("second", 78)
    (peer,) = table._known_peers()
    assert peer.name == "second"
    assert handler.lost_ones == [("127.0.0.1:10", "first")]
    table.stop_links()
