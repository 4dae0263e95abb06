"""Endpoints over real sockets: which process is at which address, also where two addresses are one process's."""

from __future__ import annotations

import pytest

from anabranch.distributed.links import PeerState
from anabranch.distributed.peers import Peer
from anabranch.errors import AbortedError, InvalidArgumentError, OpError, UnavailableError
from tests.cluster.places import DEADLINE, Places, until
from tests.cluster.proxies import Proxy


def test_localhost_is_this_machine(places: Places) -> None:
    a, _ = places.make("a")
    b, _ = places.make("b", bind="localhost:0")
    assert b.address.startswith("localhost:")
    peer = a.peer(b.address)
    assert a.peer(b.address.replace("localhost", "127.0.0.1")) is peer
    assert peer.call([b"x"], DEADLINE) == [b"x"]


def test_two_addresses_of_one_process_share_a_link(places: Places) -> None:
    b, received = places.make("b")
    port = b.address.rpartition(":")[2]
    a, _ = places.make("a")
    first = a.peer(b.address)
    assert first.wait_until_up(DEADLINE)
    # for the system's resolver this is the same address
    second = a.peer(f"127.1:{port}")
    told: list[OpError] = []
    withdraw = second.on_lost(told.append)
    assert second.wait_until_up(DEADLINE)
    assert second.call([b"x"], DEADLINE) == [b"x"]
    assert first.call([b"y"], DEADLINE) == [b"y"]
    assert second.incarnation == first.incarnation == b.incarnation
    assert a.peer(f"127.1:{port}") is first
    assert received.losses.empty()
    b.close()
    until(lambda: len(told) == 1, "the news of the loss")
    withdraw()


def test_who_asks_for_news_while_two_addresses_become_one_is_told(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merger may come between the question who stands for a peer and the note of who wants to know."""
    b, _ = places.make("b")
    a, _ = places.make("a")
    first = a.peer(b.address)
    assert first.wait_until_up(DEADLINE)
    second = Peer(a, b.address.replace("127.0.0.1", "127.1"))

    def asked(peer: Peer) -> Peer:
        found = peer if peer._same is None else peer._same
        if peer is second and peer._same is None:
            second.merge(first)
        return found

    monkeypatch.setattr(Peer, "merged", property(asked))
    told: list[OpError] = []
    second.on_lost(told.append)
    b.close()
    until(lambda: len(told) == 1, "the news of the loss")


def test_two_addresses_of_one_process_come_apart_when_another_says_it_is_at_one(places: Places) -> None:
    b, _ = places.make("b")
    port = int(b.address.rpartition(":")[2])
    a, _ = places.make("a")
    other_address = f"127.0.0.2:{port}"
    proxy = Proxy([port])
    first, second = a.peer(b.address), a.peer(other_address)
    assert first.wait_until_up(DEADLINE)
    assert second.wait_until_up(DEADLINE)
    lost_first: list[OpError] = []
    lost_second: list[OpError] = []
    first.on_lost(lost_first.append)
    second.on_lost(lost_second.append)
    until(lambda: a.peer(other_address).merged is first.merged, "the merger")
    proxy.close()
    c, _ = places.make("c", bind=other_address)
    assert c.peer(a.address).call([b"hello"], DEADLINE) == [b"hello"]
    assert (second.name, second.incarnation) == ("c", c.incarnation)
    assert (first.name, first.incarnation) == ("b", b.incarnation)
    assert first.call([b"x"], DEADLINE) == second.call([b"x"], DEADLINE) == [b"x"]
    # only who took the one for the other has lost something
    assert lost_first == []
    (error,) = lost_second
    assert isinstance(error, AbortedError)
    assert "c is at" in str(error)


def test_two_addresses_of_one_process_are_asked_apart_after_its_end(places: Places) -> None:
    b, _ = places.make("b")
    port = int(b.address.rpartition(":")[2])
    a, _ = places.make("a")
    other_address = f"127.0.0.2:{port}"
    proxy = Proxy([port])
    first, second = a.peer(b.address), a.peer(other_address)
    assert first.wait_until_up(DEADLINE)
    assert second.wait_until_up(DEADLINE)
    lost: list[OpError] = []
    second.on_lost(lost.append)
    proxy.close()
    b.close()
    until(lambda: len(lost) == 1, "the news of the loss")
    back, _ = places.make("b", bind=b.address)
    c, _ = places.make("c", bind=other_address)
    for peer, expected in ((second, c), (first, back)):
        assert peer.wait_until_up(DEADLINE)
        assert peer.call([b"x"], DEADLINE) == [b"x"]
        assert peer.incarnation == expected.incarnation
    # what was given to the second address still is
    c.close()
    until(lambda: len(lost) == 2, "the news of the second loss")
    assert first.call([b"y"], DEADLINE) == [b"y"]


def test_who_is_taken_for_another_is_known_again_by_its_own_address(places: Places) -> None:
    """A process that was reached by the address of another, which it does not give itself."""
    b, _ = places.make("b")
    port = int(b.address.rpartition(":")[2])
    a, _ = places.make("a")
    proxy = Proxy([port])
    peer = a.peer(f"127.0.0.2:{port}")
    assert peer.wait_until_up(DEADLINE)
    assert peer.incarnation == b.incarnation
    proxy.close()
    # who heard of it after the newcomer's greeting would open the new link anew, and so end what was asked on it
    until(lambda: peer.state is not PeerState.UP, "the end of the connection")
    c, _ = places.make("c", bind=f"127.0.0.2:{port}")
    newcomer = c.peer(a.address)
    # both greet, and a greeting that crosses the other opens the link anew: nothing is asked before they agree
    until(lambda: peer.state is PeerState.UP and peer.incarnation == c.incarnation, "the newcomer's link")
    assert newcomer.wait_until_up(DEADLINE)
    assert newcomer.call([b"hello"], DEADLINE) == [b"hello"]
    again = a.peer(b.address)
    assert again.wait_until_up(DEADLINE)
    assert again.incarnation == b.incarnation
    assert peer.call([b"x"], DEADLINE) == again.call([b"x"], DEADLINE) == [b"x"]


def test_bad_addresses_are_refused(places: Places) -> None:
    a, _ = places.make("a")
    for address in ("here", "127.0.0.1:", "127.0.0.1:port", ":12", "127.0.0.1:65536", "127.0.0.1:-1", "*:1", "a;b:1"):
        with pytest.raises(InvalidArgumentError, match="host:port"):
            a.peer(address)
    with pytest.raises(UnavailableError, match=f"cannot listen at {a.address}"):
        places.make("b", bind=a.address)
    with pytest.raises(UnavailableError, match="no address of this machine"):
        places.make("b", bind="no.such.host.invalid:0")
