"""Endpoints that exchange messages over real sockets of this machine."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading

import numpy as np
import pytest

from anabranch.distributed.keys import CurveKeys
from anabranch.distributed.links import PeerState
from anabranch.distributed.local_streams import LocalWriter
from anabranch.distributed.peers import Peer
from anabranch.distributed.short_waits import ShortWaits
from anabranch.distributed.transport import Endpoint
from anabranch.distributed.wire import Lane, Limits
from anabranch.errors import (
    CancelledError,
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
    UnknownError,
)
from anabranch.runtime.messages import Frames
from tests.cluster.places import (
    DEADLINE,
    Asked,
    Places,
    Stranger,
    closing,
    descriptors_of_this_process,
    kill,
    threads_of_this_process,
    until,
)


def test_a_request_is_answered(places: Places) -> None:
    a, _ = places.make("a")
    b, _ = places.make("b")
    peer = a.peer(b.address)
    assert peer.wait_until_up(DEADLINE)
    assert peer.call([b"one", b"", b"three"], DEADLINE) == [b"one", b"", b"three"]
    assert (peer.name, peer.address, peer.incarnation, peer.state) == ("b", b.address, b.incarnation, PeerState.UP)
    assert a.peer(b.address) is peer
    assert a.incarnation not in (0, b.incarnation)


def test_what_is_sent_before_the_link_is_up_arrives_in_order(places: Places) -> None:
    a, _ = places.make("a")
    b, received = places.make("b")
    peer = a.peer(b.address)
    for number in range(2000):
        peer.send([str(number).encode()])
    assert [received.next_message() for _ in range(2000)] == [[str(number).encode()] for number in range(2000)]


def test_who_was_called_can_call_back(places: Places) -> None:
    a, received = places.make("a")
    b, asked = places.make("b")
    a.peer(b.address).send([b"hello"])
    sender, _ = asked.messages.get(timeout=DEADLINE)
    assert (sender.name, sender.address, sender.incarnation) == ("a", a.address, a.incarnation)
    assert b.peer(a.address) is sender
    sender.send([b"back"])
    assert received.next_message() == [b"back"]


def test_both_may_call_at_once(places: Places) -> None:
    ends = [places.make(name)[0] for name in "abcd"]
    peers = [one.peer(other.address) for one in ends for other in ends]
    asked = [Asked(peer, str(n).encode()) for n, peer in enumerate(peers)]
    assert [one.outcome() for one in asked] == [[str(n).encode()] for n in range(16)]


def test_a_reply_may_come_later_from_another_thread(places: Places) -> None:
    a, _ = places.make("a")
    b, handler = places.make("b")
    replies = []
    handler.respond = lambda frames, reply: replies.append((frames, reply))
    peer = a.peer(b.address)
    first, second = Asked(peer, b"first"), Asked(peer, b"second")
    until(lambda: len(replies) == 2, "two requests")
    for frames, reply in reversed(replies):
        threading.Thread(target=reply, args=(frames,)).start()
    assert first.outcome() == [b"first"]
    assert second.outcome() == [b"second"]
    with pytest.raises(InternalError, match="answered twice"):
        replies[0][1]([])


@pytest.mark.parametrize("lane", list(Lane))
def test_large_frames_arrive_as_they_were(places: Places, lane: Lane) -> None:
    a, _ = places.make("a")
    b, _ = places.make("b")
    values = np.arange(50 << 17, dtype=np.float64)
    (reply,) = a.peer(b.address).call([memoryview(values)], DEADLINE, lane)
    np.testing.assert_array_equal(np.frombuffer(reply, np.float64), values)


def test_large_frames_go_through_shared_memory_once_the_receiver_has_proved_to_read_it(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = places.make("a")
    b, _ = places.make("b")
    if a.memory is None:
        pytest.skip("this system has no files in memory")
    make, made = a.memory.make, list[int]()
    monkeypatch.setattr(a.memory, "make", lambda capacity: (made.append(capacity), make(capacity))[1])
    peer, values = a.peer(b.address), np.arange(3 << 17, dtype=np.float64)
    replies = [peer.call([memoryview(values)], DEADLINE, Lane.BULK) for _ in range(10)]
    for (reply,) in replies:
        np.testing.assert_array_equal(np.frombuffer(reply, np.float64), values)
    assert 0 < sum(made) <= 3 * values.nbytes  # the peer may hold one for a moment longer
    assert [type(memoryview(reply).obj.base).__name__ for (reply,) in replies[-2:]] == ["_Use", "_Use"]
    # who cannot read it gets it by the wire
    made.clear()
    c, _ = places.make("c")
    c.memory = None
    for _ in range(3):
        a.peer(c.address).call([memoryview(values)], DEADLINE, Lane.BULK)
    assert made == []


def test_control_does_not_wait_for_bulk(places: Places) -> None:
    a, _ = places.make("a")
    b, received = places.make("b")
    peer = a.peer(b.address)
    assert peer.wait_until_up(DEADLINE)
    all_sent, note = threading.Event(), received.message

    def message(sender: Peer, frames: Frames) -> None:
        # the receiver is held in the first one: what it takes while the last is not sent yet proves nothing
        assert all_sent.wait(DEADLINE)
        note(sender, frames)

    received.message = message  # type: ignore[method-assign]
    piece = memoryview(bytes(1 << 20))
    for _ in range(100):
        peer.send([b"bulk", piece], Lane.BULK)
    peer.send([b"control"])
    all_sent.set()
    kinds = [bytes(received.messages.get(timeout=DEADLINE)[1][0]) for _ in range(101)]
    assert kinds.index(b"control") < 50


def test_many_threads_send(places: Places) -> None:
    a, _ = places.make("a")
    b, received = places.make("b")
    peer = a.peer(b.address)

    def work(worker: int) -> None:
        for number in range(2500):
            peer.send([b"%d" % worker, b"%d" % number], Lane(worker % 2))

    workers = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    last = [-1] * 8
    for _ in range(20_000):
        who, number = map(int, received.next_message())
        assert number == last[who] + 1
        last[who] = number
    for worker in workers:
        worker.join(DEADLINE)


def test_a_process_can_be_its_own_peer(places: Places) -> None:
    a, _ = places.make("a")
    assert a.peer(a.address).call([b"x"], DEADLINE) == [b"x"]


def test_what_a_handler_raises_answers_the_request(places: Places, caplog: pytest.LogCaptureFixture) -> None:
    a, _ = places.make("a")
    b, handler = places.make("b")
    errors: list[Exception] = [InvalidArgumentError(None, None, "no such thing"), ZeroDivisionError("by nothing")]

    def respond(frames: object, reply: object) -> None:
        raise errors.pop(0)

    handler.respond = respond
    peer = a.peer(b.address)
    with pytest.raises(InvalidArgumentError, match="no such thing"):
        peer.call([b"x"], DEADLINE)
    # whoever refuses knows why
    assert not caplog.records
    with pytest.raises(UnknownError, match="ZeroDivisionError: by nothing"):
        peer.call([b"x"], DEADLINE)
    assert "handler of requests failed" in caplog.text


def test_a_call_has_a_deadline(places: Places) -> None:
    a, _ = places.make("a")
    b, handler = places.make("b")
    replies = []
    handler.respond = lambda frames, reply: replies.append(reply)
    peer = a.peer(b.address)
    assert peer.wait_until_up(DEADLINE)
    with pytest.raises(DeadlineExceededError, match=rf"b at {b.address} did not answer the weather within 0\.05 s"):
        peer.call([b"x"], 0.05, what="the weather")
    replies[0]([b"late"])
    handler.respond = lambda frames, reply: reply(frames)
    assert peer.call([b"y"], DEADLINE) == [b"y"]


def test_a_call_on_the_receiving_thread_is_refused(places: Places, caplog: pytest.LogCaptureFixture) -> None:
    a, _ = places.make("a")
    b, handler = places.make("b")
    handler.respond = lambda frames, reply: reply(b.peer(a.address).call([b"back"], 1))
    with pytest.raises(InternalError, match="use `request`"):
        a.peer(b.address).call([b"x"], DEADLINE)
    assert "would wait" in caplog.text


def test_a_closed_endpoint_refuses_and_fails_what_waits(places: Places) -> None:
    a, _ = places.make("a")
    b, handler = places.make("b")
    handler.respond = lambda frames, reply: None
    peer, never = a.peer(b.address), a.peer(places.free_address())
    assert peer.wait_until_up(DEADLINE)
    asked = [Asked(peer, b"x"), Asked(never, b"x")]
    outcomes = list[BaseException]()

    def wait(peer: Peer, method: str) -> None:
        try:
            peer.call([b"x"], DEADLINE) if method == "call" else peer.wait_until_up(DEADLINE)
        except BaseException as error:
            outcomes.append(error)

    waiters = [threading.Thread(target=wait, args=pair) for pair in ((peer, "call"), (never, "wait"), (never, "call"))]
    for waiter in waiters:
        waiter.start()
    until(lambda: len(peer._waiting) == 2 and len(never._waiting) == 2, "all to wait")
    a.close()
    a.close()
    for waiter in waiters:
        waiter.join(DEADLINE)
    assert all(isinstance(one.outcome(), CancelledError) for one in asked)
    assert [type(error) for error in outcomes] == [CancelledError] * 3
    for use in (lambda: peer.send([b"x"]), lambda: a.peer(b.address), lambda: never.wait_until_up(1)):
        with pytest.raises(CancelledError, match="is closed"):
            use()
    assert isinstance(handler.next_loss(), UnavailableError)


def test_limits_are_kept_by_the_sender(places: Places) -> None:
    limits = Limits(message_bytes=1000, frames=3, waiting_bytes=5000)
    a, _ = places.make("a", limits=limits)
    b, handler = places.make("b")
    peer = a.peer(b.address)
    with pytest.raises(ResourceExhaustedError, match="send it in pieces"):
        peer.send([bytes(1001)])
    with pytest.raises(ResourceExhaustedError, match="4 frames"):
        peer.send([b""] * 4)
    never = a.peer(places.free_address())
    for _ in range(5):
        never.send([bytes(900)])
    with pytest.raises(ResourceExhaustedError, match="wait until it has taken some"):
        never.send([bytes(900)])
    # what the peer has taken makes room again
    for _ in range(8):
        until(lambda: _is_sent(peer, bytes(900)), "room")
    assert [handler.next_message() for _ in range(8)] == [[bytes(900)]] * 8


def test_a_reply_beyond_the_limits_is_an_error(places: Places) -> None:
    a, _ = places.make("a")
    b, handler = places.make("b", limits=Limits(message_bytes=1000))
    handler.respond = lambda frames, reply: reply([bytes(1000)])
    with pytest.raises(ResourceExhaustedError, match="larger than the limits"):
        a.peer(b.address).call([b"x"], DEADLINE)


def _is_sent(peer: Peer, frame: bytes) -> bool:
    try:
        peer.send([frame])
    except ResourceExhaustedError:
        return False
    return True


def test_a_handler_may_close_its_endpoint(places: Places) -> None:
    a, _ = places.make("a")
    b, handler = places.make("b")
    handler.respond = lambda frames, reply: b.close()
    with pytest.raises(UnavailableError, match="has stopped"):
        a.peer(b.address).call([b"x"], DEADLINE)


def test_a_failure_while_a_message_is_taken_ends_nothing(
    places: Places, stranger: Stranger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a, _ = places.make("a")
    b, _ = places.make("b")
    peer = b.peer(a.address)
    assert peer.wait_until_up(DEADLINE)

    def fail(*_: object) -> None:
        raise OSError("too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(a, "connect", fail)
        stranger.hello(stranger.connect(a.address))
        until(lambda: "too many open files" in caplog.text, "the failure")
    assert peer.call([b"x"], DEADLINE) == [b"x"]


def test_nothing_is_left_behind() -> None:
    def use() -> None:
        with closing() as places:
            a, handler = places.make("a", keys=CurveKeys.generate())
            b, _ = places.make("b", keys=a._keys)
            peer = a.peer(b.address)
            assert peer.call([bytes(1 << 20)], DEADLINE, Lane.BULK)
            for _ in range(100):
                peer.call([b"x"], DEADLINE)
            a.peer(places.free_address())
            kill(b)
            handler.next_loss()

    use()  # the library's own thread for buffers starts with the first large one, and stays
    threads, descriptors = threads_of_this_process(), descriptors_of_this_process()
    for _ in range(3):
        use()
    until(lambda: threads_of_this_process() <= threads, "the end of all threads")
    until(lambda: descriptors_of_this_process() <= descriptors, "the closing of all descriptors")


def test_sent_memory_is_let_go(places: Places) -> None:
    a, _ = places.make("a")
    b, received = places.make("b")
    values = np.zeros(1 << 20, np.uint8)
    before = sys.getrefcount(values)
    a.peer(b.address).send([memoryview(values)], Lane.BULK)
    assert len(received.next_message()[0]) == 1 << 20
    until(lambda: sys.getrefcount(values) == before, "the end of the reference")


def test_clients_that_are_gone_are_forgotten(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.distributed.peer_table._REMEMBERED_TICKS", 1)
    a, handler = places.make("a")
    for _ in range(3):
        client, _ = places.make("client")
        client.peer(a.address).send([b"x"])
        handler.next_message()
        client.close()
    until(lambda: not a._peers and not a._senders and not a._incarnations, "their being forgotten")


def talk(peer: Peer, times: int = 100) -> None:
    for number in range(times):
        assert peer.call([b"%d" % number], DEADLINE) == [b"%d" % number]


def has_stream(receiver: Endpoint, sender: Endpoint) -> bool:
    """Whether what is urgent comes by a stream, as far as is known."""
    return any(peer.incarnation == sender.incarnation for peer in receiver._streams)


needs_streams = pytest.mark.skipif(sys.platform != "linux", reason="such streams are Linux's")


@needs_streams
def test_who_talks_much_on_one_host_uses_streams_in_both_directions(places: Places) -> None:
    a, of_a = places.make("a")
    b, of_b = places.make("b")
    peer = a.peer(b.address)
    peer.send([b"first"])
    assert of_b.next_message() == [b"first"]
    assert not has_stream(b, a)
    talk(peer)
    assert has_stream(b, a)
    assert has_stream(a, b)
    # whatever its size, and behind what came before
    large = bytes(range(256)) * (1 << 14)
    for number in range(20):
        peer.send([b"%d" % number, large] if number % 3 == 1 else [b"%d" % number])
    for number in range(20):
        assert of_b.next_message() == ([b"%d" % number, large] if number % 3 == 1 else [b"%d" % number])
    assert peer.call([large], DEADLINE, Lane.BULK) == [large]
    b.close()
    assert "has stopped" in str(of_a.next_loss())
    until(lambda: not a._streams, "the end of the stream")


@needs_streams
def test_a_process_that_is_killed_is_lost_and_the_next_one_has_streams_of_its_own(places: Places) -> None:
    a, of_a = places.make("a")
    b, _ = places.make("b")
    talk(a.peer(b.address))
    assert has_stream(a, b)
    kill(b)
    assert "broke" in str(of_a.next_loss())
    again, _ = places.make("b", b.address)
    talk(a.peer(b.address))
    until(lambda: has_stream(again, a) and has_stream(a, again) and len(a._streams) == 1, "the new streams")


@needs_streams
def test_a_stream_that_breaks_alone_fails_what_was_sent_and_the_link_opens_anew(places: Places) -> None:
    a, of_a = places.make("a")
    b, of_b = places.make("b")
    peer = a.peer(b.address)
    talk(peer)
    of_b.respond = lambda frames, reply: None
    asked = Asked(peer, b"never answered")
    ((_, stream),) = b._streams.items()
    stream._socket.shutdown(socket.SHUT_RD)

    def lost() -> bool:
        # who only listens does not find out
        with contextlib.suppress(UnavailableError):
            peer.send([b"x"])
        return not of_a.losses.empty()

    until(lost, "the loss")
    assert isinstance(asked.outcome(), UnavailableError)
    of_b.respond = lambda frames, reply: reply(frames)
    talk(peer)
    until(lambda: has_stream(b, a), "the new stream")


@needs_streams
def test_nonsense_on_a_stream_closes_the_link_and_nothing_else(
    places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    a, of_a = places.make("a")
    b, of_b = places.make("b")
    c, _ = places.make("c")
    peer, other = a.peer(b.address), c.peer(b.address)
    talk(peer)
    talk(other)
    writer = peer._lanes._connections[Lane.CONTROL]
    assert isinstance(writer, LocalWriter)
    writer._socket.sendall(b"nonsense" * 20)
    assert "malformed" in str(of_b.next_loss())
    assert "got a malformed message from a" in caplog.text
    talk(other)

    def lost() -> bool:
        with contextlib.suppress(UnavailableError):
            peer.send([b"to who does not listen"])
        return not of_a.losses.empty()

    until(lost, "the loss")
    until(lambda: peer.wait_until_up(DEADLINE), "the new link")
    talk(peer)


@needs_streams
def test_a_stream_that_was_announced_and_is_not_there_closes_the_link_and_none_is_used_again(places: Places) -> None:
    a, _ = places.make("a")
    b, of_b = places.make("b")
    peer = a.peer(b.address)
    listener = b._listener
    assert listener is not None
    listener.accept = lambda number, limits: None  # type: ignore[method-assign]
    with contextlib.suppress(UnavailableError):
        talk(peer)
    assert "malformed" in str(of_b.next_loss())
    assert b.local_address == b""
    until(lambda: peer.wait_until_up(DEADLINE), "the new link")
    talk(peer)
    assert not b._streams
    listener.close()


@needs_streams
def test_who_is_reached_by_way_of_another_address_is_spoken_to_there_only(places: Places) -> None:
    a, _ = places.make("a")
    address = places.free_address()
    b, _ = places.make("b", address, announced=address.replace("127.0.0.1", "127.0.0.3"))
    # a proxy, say: what it does to messages is to happen to all of them
    talk(a.peer(address))
    assert not b._streams
    assert has_stream(a, b)


def test_a_thread_that_begins_to_wait_wakes_the_receiving_one_where_waits_are_short(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = places.make("a")
    woken: list[None] = []
    monkeypatch.setattr(a, "_wake", lambda: woken.append(None))
    monkeypatch.setattr(a._descriptors, "_short_waits", ShortWaits())
    until(lambda: a._descriptors._sleeps, "sleep")
    a.expect()
    assert not woken
    for _ in range(8):
        a._descriptors._short_waits.ended(0.0)
    until(lambda: a._descriptors.is_to_be_woken, "sleep")
    a.expect()
    assert len(woken) == 1


def test_a_plain_network_has_no_ways_of_one_host(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    a, _ = places.make("a")
    monkeypatch.setenv("ANABRANCH_NETWORK", "plain")
    b, _ = places.make("b")
    assert (b.memory, b.local_address, b._descriptors._short_waits) == (None, b"", None)
    values = bytes(3 << 20)
    for peer in (a.peer(b.address), b.peer(a.address)):
        talk(peer)
        assert peer.call([values], DEADLINE, Lane.BULK) == [values]
        assert peer._lanes.shared_bytes == peer.received_shared_bytes == 0
    assert not a._streams
    assert not b._streams
    monkeypatch.setenv("ANABRANCH_NETWORK", "fast")
    with pytest.raises(InvalidArgumentError, match=r"ANABRANCH_NETWORK is 'fast'; set it to \"plain\""):
        places.make("c")
