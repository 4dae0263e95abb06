"""Endpoints over real sockets: who is let in, by keys, cluster, version and form."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import zmq

from anabranch.distributed import server, wire
from anabranch.distributed.keys import FILE_VARIABLE, CurveKeys
from anabranch.distributed.wire import Lane, Limits, MessageKind
from anabranch.errors import FailedPreconditionError, UnauthenticatedError, UnavailableError
from tests.cluster.places import DEADLINE, Places, Stranger


def test_keys_are_needed_beyond_this_machine(places: Places) -> None:
    with pytest.raises(UnauthenticatedError, match="`anabranch cluster keys`"):
        places.make("a", bind="0.0.0.0:0")
    a, _ = places.make("a", bind="0.0.0.0:0", announced="127.0.0.1:1", keys=CurveKeys.generate())
    a.close()


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


def test_clients_with_other_keys_have_another_endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process may have spoken to tasks without keys before it is given some."""
    reached = server._ReachedServers()
    try:
        monkeypatch.delenv(FILE_VARIABLE, raising=False)
        without = reached._endpoint_for("127.0.0.1:1")
        CurveKeys.generate().save(tmp_path / "keys")
        monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "keys"))
        among = reached._endpoint_for("127.0.0.1:1")
        assert among is not without
        assert reached._endpoint_for("127.0.0.2:1") is among
    finally:
        reached.close()
