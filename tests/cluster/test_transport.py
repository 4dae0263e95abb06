"""Endpoints that exchange messages over real sockets of this machine."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import zmq

from anabranch.distributed import wire
from anabranch.distributed.keys import CurveKeys
from anabranch.distributed.links import PeerState
from anabranch.distributed.peers import Peer
from anabranch.distributed.transport import Endpoint
from anabranch.distributed.wire import Lane, Limits, MessageKind
from anabranch.errors import (
    AbortedError,
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnknownError,
)
from tests.cluster.places import (
    DEADLINE,
    Asked,
    Places,
    Stranger,
    closing,
    descriptors_of_this_process,
    threads_of_this_process,
    until,
)
from tests.cluster.proxies import Proxy


@pytest.fixture
def places() -> Iterator[Places]:
    with closing() as places:
        yield places


def free_address() -> str:
    """An address of this machine at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def kill(endpoint: Endpoint) -> None:
    """Ends an endpoint without a goodbye, as if its process were killed."""
    for peer in list(endpoint._peers.values()):
        peer.hang_up_hard()
        peer.take = lambda event: False  # type: ignore[method-assign]
    endpoint.close()


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    made = Stranger()
    yield made
    made.close()


# ---------------------------------------------------------------------- messages
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


def test_large_frames_go_through_shared_memory_once_the_receiver_has_proved_to_read_it(places: Places) -> None:
    a, _ = places.make("a")
    b, _ = places.make("b")
    if a.memory is None:
        pytest.skip("this system has no files in memory")
    peer, values = a.peer(b.address), np.arange(3 << 17, dtype=np.float64)
    replies = [peer.call([memoryview(values)], DEADLINE, Lane.BULK) for _ in range(10)]
    for (reply,) in replies:
        np.testing.assert_array_equal(np.frombuffer(reply, np.float64), values)
    assert peer._lanes._pool is not None
    assert peer._lanes._pool._bytes <= 3 * values.nbytes  # the peer may hold one for a moment longer
    assert [type(memoryview(reply).obj.base).__name__ for (reply,) in replies[-2:]] == ["_Use", "_Use"]
    # who cannot read it gets it by the wire
    c, _ = places.make("c")
    c.memory = None
    for _ in range(3):
        a.peer(c.address).call([memoryview(values)], DEADLINE, Lane.BULK)
    assert a.peer(c.address)._lanes._pool is None


def test_control_does_not_wait_for_bulk(places: Places) -> None:
    a, _ = places.make("a")
    b, received = places.make("b")
    peer = a.peer(b.address)
    assert peer.wait_until_up(DEADLINE)
    piece = memoryview(bytes(1 << 20))
    for _ in range(100):
        peer.send([b"bulk", piece], Lane.BULK)
    peer.send([b"control"])
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
    c, _ = places.make("c", bind=f"127.0.0.2:{port}")
    assert c.peer(a.address).call([b"hello"], DEADLINE) == [b"hello"]
    assert peer.incarnation == c.incarnation
    again = a.peer(b.address)
    assert again.wait_until_up(DEADLINE)
    assert again.incarnation == b.incarnation
    assert peer.call([b"x"], DEADLINE) == again.call([b"x"], DEADLINE) == [b"x"]


# ---------------------------------------------------------------------- what fails
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


def test_nobody_at_an_address_is_noticed_soon(places: Places) -> None:
    a, handler = places.make("a")
    address = free_address()
    peer = a.peer(address)
    with pytest.raises(UnavailableError, match=f"nobody can connect to the process at {address}"):
        peer.call([b"x"], DEADLINE)
    assert peer.state is PeerState.LOST
    assert not peer.wait_until_up(0.01)
    assert handler.losses.empty()  # it never was up


def test_a_process_may_start_after_it_was_asked_for(places: Places) -> None:
    a, _ = places.make("a")
    address = free_address()
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


def test_a_closed_endpoint_refuses_and_fails_what_waits(places: Places) -> None:
    a, _ = places.make("a")
    b, handler = places.make("b")
    handler.respond = lambda frames, reply: None
    peer, never = a.peer(b.address), a.peer(free_address())
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
    never = a.peer(free_address())
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


# ---------------------------------------------------------------------- who is let in
def test_keys_are_needed_beyond_this_machine(places: Places) -> None:
    with pytest.raises(UnauthenticatedError, match="`anabranch cluster keys`"):
        places.make("a", bind="0.0.0.0:0")
    a, _ = places.make("a", bind="0.0.0.0:0", announced="127.0.0.1:1", keys=CurveKeys.generate())
    a.close()


def test_bad_addresses_are_refused(places: Places) -> None:
    a, _ = places.make("a")
    for address in ("here", "127.0.0.1:", "127.0.0.1:port", ":12", "127.0.0.1:65536", "127.0.0.1:-1", "*:1", "a;b:1"):
        with pytest.raises(InvalidArgumentError, match="host:port"):
            a.peer(address)
    with pytest.raises(UnavailableError, match=f"cannot listen at {a.address}"):
        places.make("b", bind=a.address)
    with pytest.raises(UnavailableError, match="no address of this machine"):
        places.make("b", bind="no.such.host.invalid:0")


def test_processes_with_the_keys_work_together(places: Places) -> None:
    keys = CurveKeys.generate()
    a, _ = places.make("a", keys=keys)
    b, _ = places.make("b", keys=keys)
    peer = a.peer(b.address)
    assert peer.call([b"x"], DEADLINE) == [b"x"]
    assert peer.call([bytes(1 << 20)], DEADLINE, Lane.BULK) == [bytes(1 << 20)]


@pytest.mark.parametrize("keys", [None, CurveKeys(bytes(range(32)))], ids=["without", "other"])
@pytest.mark.parametrize("is_server", [False, True], ids=["client", "server"])
def test_processes_without_the_keys_are_kept_out(places: Places, keys: CurveKeys | None, is_server: bool) -> None:
    holder, handler = places.make("a", keys=CurveKeys.generate())
    other, others = places.make("b", keys=keys)
    asker, asked = (other, holder) if not is_server else (holder, other)
    with pytest.raises((UnauthenticatedError, UnavailableError), match="keys"):
        asker.peer(asked.address).call([b"x"], DEADLINE)
    assert handler.messages.empty()
    assert others.messages.empty()


def test_a_client_with_the_servers_public_key_alone_is_kept_out(places: Places) -> None:
    keys = CurveKeys.generate()
    a, handler = places.make("a", keys=keys)
    with Intruder(keys) as push:
        push.connect(f"tcp://{a.address}")
        monitor = push.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        assert monitor.poll(DEADLINE * 1000)
        event = zmq.utils.monitor.recv_monitor_message(monitor)["event"]  # type: ignore[attr-defined]
        assert event == zmq.EVENT_HANDSHAKE_FAILED_AUTH
        push.disable_monitor()
    assert handler.messages.empty()


class Intruder:
    """A socket that knows the public key of a cluster, and has a key pair of its own."""

    def __init__(self, keys: CurveKeys) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._push = self._context.socket(zmq.PUSH)
        self._push.curve_publickey, self._push.curve_secretkey = zmq.curve_keypair()
        self._push.curve_serverkey = zmq.curve_public(zmq.utils.z85.encode(keys.secret))  # type: ignore[attr-defined]

    def __enter__(self) -> zmq.Socket[bytes]:
        return self._push

    def __exit__(self, *_: object) -> None:
        self._context.destroy(linger=0)


def test_a_foreign_cluster_is_refused(places: Places) -> None:
    a, _ = places.make("a", cluster="one")
    b, handler = places.make("b", cluster="two")
    peer = a.peer(b.address)
    with pytest.raises(FailedPreconditionError, match="cluster 'two', not 'one'"):
        peer.call([b"x"], DEADLINE)
    assert not peer.wait_until_up(DEADLINE)
    assert handler.messages.empty()
    assert handler.losses.empty()


def test_a_foreign_version_is_refused(places: Places) -> None:
    a, handler = places.make("a")
    foreign = Stranger(version=7)
    try:
        push = foreign.connect(a.address)
        foreign.hello(push)
        header, frames = foreign.receive()
        assert header.kind is MessageKind.REFUSAL
        assert f"version {wire.VERSION} of the format, not 7" in wire.decode_refusal(frames).reason
        push.send_multipart([foreign.header(MessageKind.MESSAGE, 1, []), b""])
    finally:
        foreign.close()
    assert handler.messages.empty()


def test_garbage_is_survived(places: Places, stranger: Stranger, caplog: pytest.LogCaptureFixture) -> None:
    a, handler = places.make("a", limits=Limits(frames=10))
    b, _ = places.make("b")
    peer = b.peer(a.address)
    assert peer.wait_until_up(DEADLINE)
    push, random = stranger.connect(a.address), np.random.default_rng(0)
    with caplog.at_level(logging.WARNING):
        for size in range(0, 200, 3):
            push.send_multipart([random.bytes(size)] * (1 + size % 15))
        push.send_multipart([stranger.header(MessageKind.HELLO, 0, [b"secret"]), b"secret"])
        stranger.hello(push)
        push.send_multipart([stranger.header(MessageKind.MESSAGE, 1, [b"ok"], receiver=a.incarnation), b"ok"])
        assert handler.next_message() == [b"ok"]
        push.send_multipart([stranger.header(MessageKind.MESSAGE, 2, [b"ok"]), b"other", b"frames"])
        assert "malformed message" in handler.next_loss().message
    assert peer.call([b"x"], DEADLINE) == [b"x"]
    assert caplog.text.count("from an unknown process") == 1
    assert caplog.text.count("from stranger at") == 1
    assert "secret" not in caplog.text


# ---------------------------------------------------------------------- what is left behind
def test_nothing_is_left_behind() -> None:
    def use() -> None:
        with closing() as places:
            a, handler = places.make("a", keys=CurveKeys.generate())
            b, _ = places.make("b", keys=a._keys)
            peer = a.peer(b.address)
            assert peer.call([bytes(1 << 20)], DEADLINE, Lane.BULK)
            a.peer(free_address())
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
