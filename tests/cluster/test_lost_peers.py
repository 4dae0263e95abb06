"""Endpoints over real sockets: processes that are not there yet, end, come back, fall silent, or lose messages."""

from __future__ import annotations

import pytest

from anabranch.distributed.links import PeerState
from anabranch.distributed.transport import Endpoint
from anabranch.distributed.wire import MessageKind
from anabranch.errors import AbortedError, OpError, UnavailableError
from tests.cluster.places import DEADLINE, Asked, Places, Stranger, kill, until


def test_nobody_at_an_address_is_noticed_soon(places: Places) -> None:
    a, handler = places.make("a")
    address = places.free_address()
    peer = a.peer(address)
    with pytest.raises(UnavailableError, match=f"nobody can connect to the process at {address}"):
        peer.call([b"x"], DEADLINE)
    assert peer.state is PeerState.LOST
    assert not peer.wait_until_up(0.01)
    assert handler.losses.empty()  # it never was up


def test_a_process_may_start_after_it_was_asked_for(places: Places) -> None:
    a, _ = places.make("a")
    address = places.free_address()
    peer = a.peer(address)
    asked = Asked(peer, b"x")
    places.make("b", bind=address)
    assert asked.outcome() == [b"x"]
    assert peer.wait_until_up(DEADLINE)


@pytest.mark.parametrize("end", [kill, Endpoint.close])
def test_the_end_of_a_process_fails_what_waits_for_it(places: Places, end: object) -> None:
    a, handler = places.make("a")
    b, respondent = places.make("b")
    respondent.respond = lambda frames, reply: reply(frames) if frames[0] == b"y" else None
    peer = a.peer(b.address)
    told: list[OpError] = []
    peer.on_lost(told.append)
    peer.on_lost(told.append)()
    assert peer.wait_until_up(DEADLINE)
    asked = Asked(peer, b"x")
    assert peer.call([b"y"], DEADLINE) == [b"y"]
    assert not asked.is_answered
    assert callable(end)
    end(b)
    error = asked.outcome()
    assert isinstance(error, UnavailableError)
    assert f"b at {b.address}" in error.message
    assert isinstance(handler.next_loss(), UnavailableError)
    until(lambda: peer.state is PeerState.LOST, "the loss")
    assert told[0] is error


def test_a_process_comes_back_as_another_incarnation(places: Places) -> None:
    a, handler = places.make("a")
    b, _ = places.make("b")
    peer = a.peer(b.address)
    assert peer.wait_until_up(DEADLINE)
    kill(b)
    handler.next_loss()
    again, received = places.make("b", bind=b.address)
    assert peer.wait_until_up(DEADLINE)
    assert peer.incarnation == again.incarnation != b.incarnation
    assert peer.call([b"x"], DEADLINE) == [b"x"]
    assert received.losses.empty()


def test_a_hello_of_another_incarnation_aborts_what_waits(places: Places, stranger: Stranger) -> None:
    a, handler = places.make("a")
    push = stranger.connect(a.address)
    stranger.hello(push)
    assert stranger.receive()[0].kind is MessageKind.WELCOME
    peer = a.peer(stranger.address)
    asked = Asked(peer, b"x")
    assert stranger.receive()[0].kind is MessageKind.REQUEST
    before, stranger.incarnation = stranger.incarnation, stranger.incarnation - 1
    stranger.hello(push)
    error = asked.outcome()
    assert isinstance(error, AbortedError)
    assert "stranger at " in error.message
    assert isinstance(handler.next_loss(), AbortedError)
    until(lambda: peer.incarnation == stranger.incarnation, "the new incarnation")
    push.send_multipart([stranger.header(MessageKind.MESSAGE, 1, [b"lives"], receiver=a.incarnation), b"lives"])
    assert handler.next_message() == [b"lives"]
    # what the old one sent late is dropped, even a hello: the new one has proved to live
    stranger.incarnation = before
    push.send_multipart([stranger.header(MessageKind.MESSAGE, 1, [b"late"], receiver=a.incarnation), b"late"])
    stranger.hello(push, channel=9)
    stranger.incarnation -= 1
    push.send_multipart([stranger.header(MessageKind.MESSAGE, 2, [b"new"], receiver=a.incarnation), b"new"])
    assert handler.next_message() == [b"new"]


@pytest.mark.parametrize("sequence", [0, 3], ids=["repeated", "missing"])
def test_a_gap_or_repeat_closes_the_link(places: Places, stranger: Stranger, sequence: int) -> None:
    a, handler = places.make("a")
    push = stranger.connect(a.address)
    stranger.hello(push)
    stranger.receive()
    asked = Asked(a.peer(stranger.address), b"x")
    push.send_multipart([stranger.header(MessageKind.MESSAGE, 1, [b"1"], receiver=a.incarnation), b"1"])
    push.send_multipart([stranger.header(MessageKind.MESSAGE, sequence, [b"?"], receiver=a.incarnation), b"?"])
    error = asked.outcome()
    assert isinstance(error, UnavailableError)
    assert "of the control lane of stranger" in error.message
    assert handler.next_message() == [b"1"]
    assert handler.messages.empty()
    # the other side is told by a hello on a new channel
    kinds = [stranger.receive()[0].kind for _ in range(2)]
    assert kinds == [MessageKind.REQUEST, MessageKind.HELLO]


def test_silence_makes_a_peer_suspect_and_then_lost(places: Places, stranger: Stranger) -> None:
    time = [0.0]
    a, _ = places.make("a", clock=lambda: time[0])
    push = stranger.connect(a.address)
    stranger.hello(push)
    stranger.receive()
    peer = a.peer(stranger.address)
    asked = Asked(peer, b"x")

    def passes() -> None:
        """Half a second goes by, which the endpoint sees."""
        time[0] += 0.5
        a._wake()
        until(lambda: a._ticked_at == time[0], "a tick")

    states = [peer.state]
    while states[-1] is not PeerState.LOST:
        passes()
        states.append(peer.state)
    assert [states.count(state) for state in (PeerState.UP, PeerState.SUSPECT)] == [10, 50]
    error = asked.outcome()
    assert isinstance(error, UnavailableError)
    assert "has been silent for" in error.message
