"""Messages between processes over ZeroMQ: the sockets and the thread around `distributed.peers` and its links.

An `Endpoint` is one place in a cluster: a server's task, or a client's session. It has an inbox for each lane, and one
thread that receives, decodes and hands over. To each peer it has one connection for each lane, opened when first used,
on which any thread sends. Control messages do not wait for bulk ones: they have connections of their own, and the
receiving thread takes one bulk message only when no control message is there. Those of one host that talk much say what
is urgent by streams of the system's (`distributed.local_streams`).

The receiving thread waits by the descriptors of its sockets (`distributed.descriptors`), and not by ZeroMQ's poller,
which asks each socket at each look: that took most of what a message takes here where there were many peers.

#: The receiving thread alone touches the inboxes, the streams and the monitors of connections. See also
#: `distributed.peer_table`. It waits only when each socket was found empty since its descriptor told last: a descriptor
#: tells only of what comes after that. Whatever may be left is in `_unread`.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import ipaddress
import logging
import os
import select
import socket as sockets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from anabranch.distributed import wire
from anabranch.distributed.descriptors import Descriptors
from anabranch.distributed.keys import CurveKeys
from anabranch.distributed.links import Instruction, Link
from anabranch.distributed.local_streams import LocalListener, LocalReader, LocalWriter, local_listener
from anabranch.distributed.peer_table import TICK, PeerTable, address_key, split_address
from anabranch.distributed.peers import Peer, guarded
from anabranch.distributed.place import Connection, MessageHandler
from anabranch.distributed.shared_memory import shared_memory
from anabranch.distributed.wire import Hello, Lane, Limits, MalformedMessageError
from anabranch.errors import (
    InternalError,
    InvalidArgumentError,
    UnauthenticatedError,
    UnavailableError,
)
from anabranch.runtime.messages import Buffer, Frames
from anabranch.runtime.pace import take_short_turns_here

_LOGGER: Final = logging.getLogger(__name__)
#: frames below are copied when they are received: they are bytes, and keep no message alive
_COPIED_BELOW: Final = 1 << 16
#: how many bulk messages, pieces mostly, wait in an inbox for each sender before TCP holds the sender up
_BULK_MARK: Final = 16
#: how many control messages are handed over before time is looked at
_CONTROL_AT_ONCE: Final = 256
#: how long a farewell may take to leave
_LINGER_MS: Final = 500
#: sockets in one process: six for each peer
_MAX_SOCKETS: Final = 1 << 15
_LIMITS: Final = Limits()
#: the environment variable that can be "plain": processes of one host speak as those of two, and nobody looks for a
#: message where none has come (`distributed.short_waits`)
NETWORK_VARIABLE: Final = "ANABRANCH_NETWORK"
_ZAP: Final = "inproc://zeromq.zap.01"
_MONITORED: Final = (
    zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_MONITOR_STOPPED
)
_KEYS_DIFFER: Final = (zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)

_Socket = zmq.Socket[bytes]


class Endpoint(PeerTable):
    """One place in a cluster, which other places send to and are sent to from. Thread-safe.

    Args:
        bind: where the control inbox is, "host:port"; port 0 takes a free one.
        name: of the task or client, for messages of errors.
        cluster: processes of other clusters are refused.
        handler: is given what comes.
        keys: the cluster's; only processes that hold them are listened to. Needed where others than this machine's
            processes can connect.
        clock: in seconds; never goes back.
        limits: of messages, and of what waits.
        announced: the address that peers are told, where that is not `bind`: a host that is bound as 0.0.0.0 has none.

    Raises:
        UnavailableError: the address is taken, or none of this machine's.
        UnauthenticatedError: others than this machine's processes can connect, and there are no keys.
        InvalidArgumentError: `bind` is not host:port, or the environment has another network than there is.
    """

    def __init__(
        self,
        bind: str,
        *,
        name: str,
        cluster: str,
        handler: MessageHandler,
        keys: CurveKeys | None = None,
        clock: Callable[[], float] = time.monotonic,
        limits: Limits = _LIMITS,
        announced: str | None = None,
    ) -> None:
        host, port = split_address(bind)
        ip = _resolved(host)
        if keys is None and not ip.is_loopback:
            raise UnauthenticatedError(
                None,
                None,
                f"{bind} can be reached from other machines, and whoever connects can run graphs; make keys for the "
                "cluster with `anabranch cluster keys`, or listen at 127.0.0.1",
            )
        self._is_plain = _is_plain()
        super().__init__(handler, limits, clock)
        self._keys = keys
        self._context = zmq.Context[_Socket]()
        self._context.set(zmq.MAX_SOCKETS, _MAX_SOCKETS)
        # -- of the receiving thread
        self._new_monitors: deque[tuple[str, Peer, int, Lane]] = deque()
        self._new_events: deque[tuple[Peer, _ConnectionEvent]] = deque()
        self._held_up: deque[LocalWriter] = deque()
        self._watched: set[LocalWriter] = set()
        self._monitors: dict[_Socket, tuple[Peer, int, Lane]] = {}
        self._descriptors = Descriptors(looks=not self._is_plain)
        self._unread = set(Lane)
        self._streams: dict[Peer, LocalReader] = {}
        self._listener: LocalListener | None = None
        self._woken, self._waker = sockets.socketpair()
        try:
            self._judge = self._make_judge() if keys is not None else None
            self._inboxes = [
                self._make_inbox(ip, port, bind, 0),
                self._make_inbox(ip, 0, bind, _BULK_MARK),
            ]
        except BaseException:
            self._close_sockets()
            raise
        own_port, bulk_port = (_port_of(inbox) for inbox in self._inboxes)
        self.address = announced if announced is not None else f"{bind.rpartition(':')[0]}:{own_port}"
        self.hello = Hello(cluster, name, self.address, bulk_port)
        self._shared_memory = self.memory = None if self._is_plain else shared_memory()
        self._listener = None if self._is_plain else local_listener()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._descriptors.add(self._woken.fileno(), self._watch_connections)
        self._thread = threading.Thread(target=self._receive, name=f"anabranch endpoint {name}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Endpoint {self.hello.name} at {self.address}>"

    def close(self) -> None:
        """Says goodbye to all peers, fails what waits with `CancelledError`, and lets go of the address. Idempotent."""
        self._is_closed = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # ------------------------------------------------------------------ what peers need (`place.Place`)
    def connect(self, peer: Peer, lane: Lane, channel: int) -> Connection:
        """A new connection to a peer's inbox."""
        host, port = split_address(peer.address)
        if lane is Lane.BULK:
            port = peer.bulk_port
        monitor = f"inproc://monitor-{channel}-{int(lane)}"
        connection = _SocketConnection(self._context, self._keys)
        connection.open(host, port, monitor)
        self._new_monitors.append((monitor, peer, channel, lane))
        self._wake()
        return connection

    @property
    def local_address(self) -> bytes:
        """See `distributed.place.Place`."""
        listener = self._listener
        return b"" if listener is None else listener.address

    def connect_locally(self, peer: Peer, address: bytes, channel: int) -> LocalWriter | None:
        """A connection to where a peer of this host listens; None where it was to be reached by another address than
        its own, such as a proxy's, or cannot be.
        """
        if address_key(peer.address) != address_key(peer.announced):
            return None
        broken = _ConnectionEvent(channel, Lane.CONTROL, zmq.EVENT_DISCONNECTED)

        def tell() -> None:
            # under the peer's lock: the receiving thread is the one that asks the link
            self._new_events.append((peer, broken))
            self._wake()

        try:
            return LocalWriter(address, self._watch_written, tell)
        except OSError:
            return None

    def _watch_written(self, connection: LocalWriter) -> None:
        self._held_up.append(connection)
        self._wake()

    def take_stream(self, peer: Peer, number: bytes) -> None:
        """All further control messages of a peer come by the stream of this number."""
        try:
            stream = None if self._listener is None else self._listener.accept(number, self.limits)
        except OSError:
            stream = None
        if stream is None:
            # what fails now might fail after the next hello as well: from now on nobody is told to try
            self._close_listener()
            raise MalformedMessageError("a stream was to come, and does not")
        self._drop_stream(peer)
        self._streams[peer] = stream
        self._descriptors.add(stream.fileno(), functools.partial(self._read_stream, peer, stream))

    def expect(self) -> None:
        """See `distributed.network.TaskNetwork`."""
        if self._descriptors.is_to_be_woken:
            self._wake()

    def refuse_receiver(self, what: str) -> None:
        """Raises `InternalError` on the thread that receives, which must not wait."""
        if threading.current_thread() is self._thread:
            raise InternalError(None, None, f"{what} would wait on the thread that receives the answer; use `request`")

    # ------------------------------------------------------------------ the receiving thread
    def _receive(self) -> None:
        take_short_turns_here()
        try:
            while not self._is_closed:
                for look in self._descriptors.ready(0.0) if self._unread else self._descriptors.wait(TICK):
                    look()
                if Lane.CONTROL in self._unread:
                    self._take_control()
                if Lane.BULK in self._unread:
                    self._take_bulk()
                self.tick()
        except Exception:
            _LOGGER.exception("%r stops, since its receiving thread failed", self)
        finally:
            self._is_closed = True
            self._end()

    def _read_stream(self, peer: Peer, stream: LocalReader) -> None:
        try:
            messages = stream.read()
        except MalformedMessageError as error:
            self._drop_stream(peer)
            self._complain(peer, str(error))
            return
        if messages is None:
            self._drop_stream(peer)
            return
        for message in messages:
            self.take_message(message, Frames(), Lane.CONTROL)

    def _drop_stream(self, peer: Peer) -> None:
        stream = self._streams.pop(peer, None)
        if stream is not None:
            self._descriptors.remove(stream.fileno())
            stream.close()

    def _take_control(self) -> None:
        """Takes control messages as long as there are any, or very many."""
        control = self._inboxes[Lane.CONTROL]
        for _ in range(_CONTROL_AT_ONCE):
            if not _has_message(control):
                self._unread.discard(Lane.CONTROL)
                return
            self._take_message(control, Lane.CONTROL)

    def _take_bulk(self) -> None:
        """Takes one bulk message, since control messages may have come meanwhile."""
        bulk = self._inboxes[Lane.BULK]
        if _has_message(bulk):
            self._take_message(bulk, Lane.BULK)
        else:
            self._unread.discard(Lane.BULK)

    def _take_message(self, inbox: _Socket, lane: Lane) -> None:
        part = inbox.recv(zmq.NOBLOCK, copy=False)
        data, frames = part.bytes if len(part) <= wire.JOINED_BYTES else b"", Frames()
        while part.more:
            part = inbox.recv(zmq.NOBLOCK, copy=False)
            if len(frames) <= self.limits.frames:  # one more than is allowed shows that there are too many
                frames.append(part.bytes if len(part) < _COPIED_BELOW else part.buffer)
        self.take_message(data, frames, lane)

    def _watch_connections(self) -> None:
        """Another thread has woken this one: connections were made or are held up, or the endpoint is closed."""
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        while self._new_events:
            peer, event = self._new_events.popleft()
            guarded(peer.take, event)
        while self._held_up:
            writer = self._held_up.popleft()
            self._watched.add(writer)
            self._descriptors.add(writer.fileno(), functools.partial(self._write_held_up, writer), select.POLLOUT)
        while self._new_monitors:
            address, peer, channel, lane = self._new_monitors.popleft()
            monitor = self._context.socket(zmq.PAIR)
            monitor.linger = 0
            monitor.connect(address)
            self._monitors[monitor] = peer, channel, lane
            self._descriptors.add(monitor.fileno(), functools.partial(self._take_monitored, monitor))
            # what came before is told by no descriptor
            self._take_monitored(monitor)

    def _write_held_up(self, writer: LocalWriter) -> None:
        if writer.flush():
            self._descriptors.remove(writer.fileno())
            self._watched.remove(writer)
            writer.let_go()

    def _take_monitored(self, monitor: _Socket) -> None:
        peer, channel, lane = self._monitors[monitor]
        while True:
            try:
                event = parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK))["event"]
            except zmq.Again:
                return
            if event == zmq.EVENT_MONITOR_STOPPED:
                self._descriptors.remove(monitor.fileno())
                del self._monitors[monitor]
                monitor.close()
                return
            guarded(peer.take, _ConnectionEvent(channel, lane, event))

    # ------------------------------------------------------------------ beginning and end
    def _make_inbox(self, ip: _Address, port: int, bind: str, mark: int) -> _Socket:
        inbox = self._context.socket(zmq.PULL)
        inbox.linger = 0
        inbox.set(zmq.RCVHWM, mark)
        inbox.set(zmq.IPV6, int(ip.version == 6))
        inbox.set(zmq.MAXMSGSIZE, self.limits.message_bytes)
        if self._keys is not None:
            inbox.curve_server = True
            inbox.curve_secretkey = z85.encode(self._keys.secret)
            inbox.zap_domain = b"anabranch"
        try:
            inbox.bind(f"tcp://{_bracketed(ip)}:{port or '*'}")
        except zmq.ZMQError as error:
            inbox.close()
            raise UnavailableError(
                None, None, f"cannot listen at {bind}: {error.strerror}; take another port, or stop what holds it"
            ) from None
        lane = Lane.BULK if mark else Lane.CONTROL
        self._descriptors.add(inbox.fileno(), functools.partial(self._unread.add, lane))
        return inbox

    def _make_judge(self) -> _Socket:
        """The socket that libzmq asks whether a key is accepted (ZAP, rfc.zeromq.org/spec/27)."""
        judge = self._context.socket(zmq.REP)
        judge.linger = 0
        judge.bind(_ZAP)
        self._descriptors.add(judge.fileno(), self._judge_keys)
        return judge

    def _judge_keys(self) -> None:
        """Answers whether those who connect hold the cluster's keys."""
        if self._judge is None or self._keys is None:
            return
        public = z85.decode(zmq.curve_public(z85.encode(self._keys.secret)))
        while True:
            try:
                asked = self._judge.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            is_accepted = len(asked) == 7 and asked[5] == b"CURVE" and hmac.compare_digest(asked[6], public)
            status = (b"200", b"OK") if is_accepted else (b"400", b"not of this cluster")
            self._judge.send_multipart([b"1.0", asked[1], *status, b"", b""])

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it wakes anyway; closed: it has ended
            self._waker.send(b"x")

    def _end(self) -> None:
        self.stop_links()
        if self._shared_memory is not None:
            self._shared_memory.close()
        for peer in list(self._streams):
            self._drop_stream(peer)
        # their links have closed them
        for writer in (*self._watched, *self._held_up):
            writer.let_go()
        self._close_listener()
        self._close_sockets()

    def _close_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _close_sockets(self) -> None:
        # those that say farewell were closed before, and leave within their own time
        self._descriptors.close()
        self._context.destroy(linger=0)
        self._woken.close()
        self._waker.close()


class _SocketConnection:
    """A connection as a ZeroMQ socket. Used under its peer's lock."""

    def __init__(self, context: zmq.Context[_Socket], keys: CurveKeys | None) -> None:
        self._socket = context.socket(zmq.PUSH)
        self._socket.set(zmq.SNDHWM, 0)
        self._socket.set(zmq.RECONNECT_IVL, 50)
        self._socket.set(zmq.RECONNECT_IVL_MAX, 400)
        self._socket.set(zmq.CONNECT_TIMEOUT, 5_000)
        self._socket.set(zmq.HEARTBEAT_IVL, 5_000)
        self._socket.set(zmq.HEARTBEAT_TIMEOUT, 30_000)
        if keys is not None:
            secret = z85.encode(keys.secret)
            public = zmq.curve_public(secret)
            self._socket.curve_secretkey, self._socket.curve_publickey = secret, public
            self._socket.curve_serverkey = public

    def open(self, host: str, port: int, monitor: str) -> None:
        """Begins to connect; `monitor` is where what becomes of it is told."""
        self._socket.set(zmq.IPV6, int(":" in host))
        self._socket.monitor(monitor, _MONITORED)
        # one to which no connection can be tried drops what is sent: the peer is silent, and is lost for that
        with contextlib.suppress(zmq.ZMQError):
            self._socket.connect(f"tcp://{f'[{host}]' if ':' in host else host}:{port}")

    def send(self, parts: Sequence[Buffer]) -> None:
        """Sends one message; it does not block, since there is no mark that the queue could reach."""
        try:
            if len(parts) == 1:
                self._socket.send(parts[0], zmq.NOBLOCK)
                return
            for part in parts[:-1]:
                self._socket.send(part, zmq.SNDMORE | zmq.NOBLOCK, copy=False)
            self._socket.send(parts[-1], zmq.NOBLOCK, copy=False)
        except zmq.Again:
            # closing: what is sent now would be lost as well
            return

    def close(self, *, is_farewell: bool) -> None:
        """Closes it, without waiting."""
        self._socket.close(linger=_LINGER_MS if is_farewell else 0)


@dataclass(frozen=True, slots=True)
class _ConnectionEvent:
    """What became of a connection, for its peer's link."""

    channel: int
    lane: Lane
    event: int

    def __call__(self, link: Link, now: float) -> list[Instruction]:
        if self.event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            return link.connected(self.channel, self.lane)
        if self.event == zmq.EVENT_CONNECT_RETRIED:
            return link.refused(self.channel, self.lane, now)
        if self.event in _KEYS_DIFFER:
            return link.unauthenticated(self.channel)
        return link.broken(self.channel, now)


def _is_plain() -> bool:
    value = os.environ.get(NETWORK_VARIABLE, "")
    if value not in ("", "plain"):
        raise InvalidArgumentError(None, None, f'{NETWORK_VARIABLE} is {value!r}; set it to "plain", or not at all')
    return value == "plain"


def _has_message(inbox: _Socket) -> bool:
    # an exception for each time that there is none would cost more than the message did, and so would the socket's
    # option EVENTS, whose name and value pyzmq makes members of enumerations
    return bool(zmq.zmq_poll([(inbox, zmq.POLLIN)], 0))


def _port_of(inbox: _Socket) -> int:
    bound = inbox.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(bound, bytes)
    return int(bound.rstrip(b"\0").rpartition(b":")[2])


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _resolved(host: str) -> _Address:
    """The address of this machine that a name stands for."""
    try:
        addresses = [
            ipaddress.ip_address(one[4][0]) for one in sockets.getaddrinfo(host, None, type=sockets.SOCK_STREAM)
        ]
        # who connects to a name connects by IPv4
        return min(addresses, key=lambda ip: ip.version)
    except (OSError, ValueError) as error:
        raise UnavailableError(None, None, f"cannot listen at {host!r}, which is no address of this machine") from error


def _bracketed(ip: _Address) -> str:
    return f"[{ip}]" if ip.version == 6 else str(ip)
