"""Messages between processes over ZeroMQ: the sockets and the thread around `distributed.peers` and its links.

An `Endpoint` is one place in a cluster: a server's task, or a client's session. It has an inbox for each lane, and one
thread that receives, decodes and hands over. To each peer it has one connection for each lane, opened when first used,
on which any thread sends. Control messages do not wait for bulk ones: they have connections of their own, and the
receiving thread takes one bulk message only when no control message is there.

#: The receiving thread alone touches the inboxes, the monitors of connections, and the tables of who sends what.
#: The endpoint's lock guards its table of peers only, and nothing is called under it.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import itertools
import logging
import secrets
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
from anabranch.distributed.flows import Assembly
from anabranch.distributed.keys import CurveKeys
from anabranch.distributed.links import Instruction, Link, PeerState
from anabranch.distributed.peers import Answer, Connection, MessageHandler, Peer, guarded
from anabranch.distributed.wire import Header, Hello, Lane, Limits, MalformedMessageError, MessageKind
from anabranch.errors import (
    CancelledError,
    InternalError,
    InvalidArgumentError,
    OpError,
    UnauthenticatedError,
    UnavailableError,
    UnknownError,
    exception_type_from_error_code,
)
from anabranch.runtime.messages import Buffer, Frames

_LOGGER: Final = logging.getLogger(__name__)
#: frames below are copied when they are received: they are bytes, and keep no message alive
_COPIED_BELOW: Final = 1 << 16
#: how many bulk messages, pieces mostly, wait in an inbox for each sender before TCP holds the sender up
_BULK_MARK: Final = 16
_TICK_MS: Final = 250
_TICK: Final = _TICK_MS / 1000
#: longer than that between two ticks, and this process itself was held up
_PAUSE: Final = 2.0
#: how many control messages are handed over before time is looked at
_CONTROL_AT_ONCE: Final = 256
#: how long a farewell may take to leave
_LINGER_MS: Final = 500
#: for how many ticks a lost peer that only dialed this process is remembered: its late messages are told apart
_REMEMBERED_TICKS: Final = 480
#: sockets in one process: six for each peer
_MAX_SOCKETS: Final = 1 << 15
_LIMITS: Final = Limits()
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

#: as plain numbers: what is asked with each message takes an enumeration's time else
_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)

_Socket = zmq.Socket[bytes]


class Endpoint:
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
        InvalidArgumentError: `bind` is not host:port.
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
        host, port = _split(bind)
        ip = _resolved(host)
        if keys is None and not ip.is_loopback:
            raise UnauthenticatedError(
                None,
                None,
                f"{bind} can be reached from other machines, and whoever connects can run graphs; make keys for the "
                "cluster with `anabranch cluster keys`, or listen at 127.0.0.1",
            )
        self.handler = handler
        self.limits = limits
        self.now = clock
        self.incarnation = secrets.randbits(64) or 1
        self.channels = itertools.count(1)
        self.requests = itertools.count(1)
        self.handed_over = 0
        self._keys = keys
        self._lock = threading.Lock()
        self._peers: dict[str, Peer] = {}
        self._dialed: dict[int, Peer] = {}
        self._is_closed = False
        self._context = zmq.Context[_Socket]()
        self._context.set(zmq.MAX_SOCKETS, _MAX_SOCKETS)
        # -- of the receiving thread
        self._senders: dict[tuple[int, int], Peer] = {}
        self._incarnations: dict[int, Peer] = {}
        self._attached: dict[Peer, tuple[int, int]] = {}
        self._assemblies: dict[int, tuple[int, Assembly]] = {}
        self._lost_ticks: dict[Peer, int] = {}
        self._new_monitors: deque[tuple[str, Peer, int, Lane]] = deque()
        self._monitors: dict[_Socket, tuple[Peer, int, Lane]] = {}
        self._complained: set[str] = set()
        self._ticked_at = clock()
        self._poller = zmq.Poller()
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
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._poller.register(self._woken.fileno(), zmq.POLLIN)
        self._thread = threading.Thread(target=self._receive, name=f"anabranch endpoint {name}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Endpoint {self.hello.name} at {self.address}>"

    def peer(self, address: str) -> Peer:
        """The peer at an address; the same object for the same address. The connection is opened in the background.

        Raises:
            InvalidArgumentError: the address is not host:port.
            CancelledError: the endpoint is closed.
        """
        peer = self._peer(address)
        peer.is_wanted = True
        peer.open()
        return peer

    def close(self) -> None:
        """Says goodbye to all peers, fails what waits with `CancelledError`, and lets go of the address. Idempotent."""
        self._is_closed = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # ------------------------------------------------------------------ what peers need (`peers.Place`)
    def connect(self, peer: Peer, lane: Lane, channel: int) -> Connection:
        """A new connection to a peer's inbox."""
        host, port = _split(peer.address)
        if lane is Lane.BULK:
            port = peer.bulk_port
        monitor = f"inproc://monitor-{channel}-{int(lane)}"
        connection = _SocketConnection(self._context, self._keys)
        connection.open(host, port, monitor)
        self._new_monitors.append((monitor, peer, channel, lane))
        self._wake()
        return connection

    def dialed(self, peer: Peer, channel: int) -> None:
        """A channel to a peer was opened."""
        self._dialed[channel] = peer

    def hung_up(self, channel: int) -> None:
        """A channel was closed."""
        self._dialed.pop(channel, None)

    def attach(self, peer: Peer, incarnation: int, channel: int) -> None:
        """What comes on this channel is the peer's."""
        before = self._attached.get(peer)
        if before is not None:
            self._senders.pop(before, None)
            if self._incarnations.get(before[0]) is peer:
                del self._incarnations[before[0]]
            if before[0] != incarnation:
                self._assemblies.pop(before[0], None)
        self._attached[peer] = incarnation, channel
        self._senders[incarnation, channel] = peer
        self._incarnations[incarnation] = peer
        with self._lock:
            # whoever is given the address that the peer gives itself gets this peer
            self._peers.setdefault(_key(peer.announced), peer)

    def refuse_closed(self) -> None:
        """Raises `CancelledError` if the endpoint is closed."""
        if self._is_closed:
            raise CancelledError(None, None, f"{self.hello.name} at {self.address} is closed")

    def refuse_receiver(self, what: str) -> None:
        """Raises `InternalError` on the thread that receives, which must not wait."""
        if threading.current_thread() is self._thread:
            raise InternalError(None, None, f"{what} would wait on the thread that receives the answer; use `request`")

    # ------------------------------------------------------------------ the receiving thread
    def _receive(self) -> None:
        try:
            while not self._is_closed:
                ready = self._poller.poll(_TICK_MS)
                self._take_messages()
                for source, _ in ready:
                    self._look_at(source)
                self._tick()
        except Exception:
            _LOGGER.exception("%r stops, since its receiving thread failed", self)
        finally:
            self._is_closed = True
            self._end()

    def _look_at(self, source: _Socket | int) -> None:
        """Something that is no message came."""
        if source is self._judge:
            self._judge_keys()
        elif isinstance(source, int):
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
            self._watch_connections()
        elif source in self._monitors:
            self._take_monitored(source)

    def _take_messages(self) -> None:
        """Takes what came: control messages as long as there are any, then a bulk message, and so on."""
        control, bulk = self._inboxes
        for _ in range(_CONTROL_AT_ONCE):
            if not self._take_message(control, Lane.CONTROL) and not self._take_message(bulk, Lane.BULK):
                return

    def _take_message(self, inbox: _Socket, lane: Lane) -> bool:
        # asked first: an exception takes as long as a message
        if not _events_of(inbox) & _POLLIN:
            return False
        part = inbox.recv(zmq.NOBLOCK, copy=False)
        data, frames = part.bytes if len(part) <= wire.HEADER_BYTES else b"", Frames()
        while part.more:
            part = inbox.recv(zmq.NOBLOCK, copy=False)
            if len(frames) <= self.limits.frames:  # one more than is allowed shows that there are too many
                frames.append(part.bytes if len(part) < _COPIED_BELOW else part.buffer)
        sender: Peer | None = None
        try:
            header = wire.decode_header(data, self.limits)
            sender = self._senders.get((header.sender, header.channel))
            if header.lane is not lane:
                raise MalformedMessageError(f"it came by the lane {lane.name.lower()}, and says another")
            wire.check_frames(header, frames)
            self._hand_over(header, frames, sender)
        except MalformedMessageError as error:
            self._complain(sender, str(error))
        except Exception:  # such as too many open files; whatever it is, the others' messages are to be taken
            _LOGGER.exception("%s could not take a message", self.hello.name)
        return True

    def _hand_over(self, header: Header, frames: Frames, sender: Peer | None) -> None:
        match header.kind:
            case MessageKind.HELLO:
                hello = wire.decode_hello(frames)
                self._greeting(header, hello).take(lambda link, now: link.heard_hello(header, hello, now))
            case MessageKind.WELCOME:
                welcome = wire.decode_hello(frames)
                answered = self._dialed.get(welcome.answers)
                known = sender or answered
                if known is not None:
                    known.take(lambda link, now: link.heard_welcome(header, welcome, now))
                if sender is not None and answered not in (None, sender) and answered.state is PeerState.CONNECTING:
                    self._merge(answered, sender)
            case MessageKind.REFUSAL:
                refusal = wire.decode_refusal(frames)
                refused = self._dialed.get(refusal.answers)
                if refused is not None:
                    refused.take(lambda link, now: link.heard_refusal(refusal.answers, refusal.reason))
            case _ if sender is not None:
                is_own = header.kind in (MessageKind.BEAT, MessageKind.GOODBYE)
                size = 0 if is_own else header.bytes + wire.HEADER_BYTES
                if sender.take(lambda link, now: link.heard(header, size, now)):
                    self.handed_over += 1
                    self._deliver(header, frames, sender)

    def _deliver(self, header: Header, frames: Frames, sender: Peer) -> None:
        if header.kind is MessageKind.PIECE:
            self._assembly(header).take(header.request, frames)
            return
        if header.lane is Lane.BULK:
            frames = self._assembly(header).complete(frames)
        match header.kind:
            case MessageKind.REPLY:
                sender.answered(header.request, frames)
            case MessageKind.REQUEST:
                answer = Answer(sender, header)
                try:
                    self.handler.request(sender, frames, answer)
                except Exception as error:
                    _LOGGER.exception("the handler of requests failed")
                    answer.fail(error)
            case MessageKind.MESSAGE:
                guarded(self.handler.message, sender, frames)
            case MessageKind.BEAT:
                beat = wire.decode_beat(frames)
                sender.take(lambda link, now: link.heard_beat(beat))
            case MessageKind.FAILURE:
                sender.answered(header.request, _error(wire.decode_failure(frames)))

    def _assembly(self, header: Header) -> Assembly:
        """Where the large frames of a channel are put together; those of the sender's channels before are dropped."""
        known = self._assemblies.get(header.sender)
        if known is None or known[0] != header.channel:
            known = self._assemblies[header.sender] = header.channel, Assembly(self.limits.message_bytes)
        return known[1]

    def _greeting(self, header: Header, hello: Hello) -> Peer:
        """Whom a hello is from: who has its incarnation, whatever address was dialed, or else its address."""
        return self._incarnations.get(header.sender) or self._peer(hello.address)

    def _peer(self, address: str) -> Peer:
        key = _key(address)
        with self._lock:
            self.refuse_closed()
            peer = self._peers.get(key)
            if peer is None:
                peer = self._peers[key] = Peer(self, address)
            return peer

    def _merge(self, alias: Peer, peer: Peer) -> None:
        """Two addresses have proved to be those of one process: its link is used for both."""
        with self._lock:
            for address, known in self._peers.items():
                if known is alias:
                    self._peers[address] = peer
            peer.is_wanted |= alias.is_wanted
        alias.merge(peer)

    def _complain(self, sender: Peer | None, reason: str) -> None:
        """Closes the link of whom a malformed message came from, and says so once."""
        who = "an unknown process" if sender is None else f"{sender.name} at {sender.address}"
        if who not in self._complained:
            self._complained.add(who)
            _LOGGER.warning("%s got a malformed message from %s: %s", self.hello.name, who, reason)
        if sender is not None:
            sender.take(lambda link, now: link.heard_malformed(reason))

    def _watch_connections(self) -> None:
        while self._new_monitors:
            address, peer, channel, lane = self._new_monitors.popleft()
            monitor = self._context.socket(zmq.PAIR)
            monitor.linger = 0
            monitor.connect(address)
            self._monitors[monitor] = peer, channel, lane
            self._poller.register(monitor, zmq.POLLIN)

    def _take_monitored(self, monitor: _Socket) -> None:
        peer, channel, lane = self._monitors[monitor]
        while True:
            try:
                event = parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK))["event"]
            except zmq.Again:
                return
            if event == zmq.EVENT_MONITOR_STOPPED:
                self._poller.unregister(monitor)
                del self._monitors[monitor]
                monitor.close()
                return
            guarded(peer.take, _ConnectionEvent(channel, lane, event))

    def _tick(self) -> None:
        now = self.now()
        passed = now - self._ticked_at
        if passed < _TICK:
            return
        self._ticked_at = now
        with self._lock:
            peers = set(self._peers.values())
        for peer in peers:
            if passed > _PAUSE:
                peer.take(lambda link, _: link.paused(passed - _TICK))
            guarded(peer.take, Link.tick)
            self._forget_lost(peer)

    def _forget_lost(self, peer: Peer) -> None:
        """Forgets a peer that this process never asked for, such as a client, some time after it was lost."""
        if peer.is_wanted or peer.state is not PeerState.LOST:
            self._lost_ticks.pop(peer, None)
            return
        ticks = self._lost_ticks[peer] = self._lost_ticks.get(peer, 0) + 1
        if ticks > _REMEMBERED_TICKS:
            with self._lock:
                for address in [address for address, known in self._peers.items() if known is peer]:
                    del self._peers[address]
            self._lost_ticks.pop(peer, None)
            attached = self._attached.pop(peer, None)
            if attached is not None:
                self._senders.pop(attached, None)
                self._incarnations.pop(attached[0], None)
                self._assemblies.pop(attached[0], None)

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
        self._poller.register(inbox, zmq.POLLIN)
        return inbox

    def _make_judge(self) -> _Socket:
        """The socket that libzmq asks whether a key is accepted (ZAP, rfc.zeromq.org/spec/27)."""
        judge = self._context.socket(zmq.REP)
        judge.linger = 0
        judge.bind(_ZAP)
        self._poller.register(judge, zmq.POLLIN)
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
        with self._lock:
            peers = set(self._peers.values())
        for peer in peers:
            guarded(peer.take, lambda link, now: link.stop())
        self._close_sockets()

    def _close_sockets(self) -> None:
        # those that say farewell were closed before, and leave within their own time
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
        with contextlib.suppress(zmq.Again):
            for part in parts[:-1]:
                self._socket.send(part, zmq.SNDMORE | zmq.NOBLOCK, copy=False)
            self._socket.send(parts[-1], zmq.NOBLOCK, copy=False)

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


def _events_of(inbox: _Socket) -> int:
    events = inbox.getsockopt(_EVENTS)
    assert isinstance(events, int)
    return events


def _port_of(inbox: _Socket) -> int:
    bound = inbox.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(bound, bytes)
    return int(bound.rstrip(b"\0").rpartition(b":")[2])


def _error(failure: wire.Failure) -> OpError:
    try:
        return exception_type_from_error_code(failure.code)(None, None, failure.message)
    except KeyError:
        return UnknownError(None, None, failure.message, failure.code)


def _split(address: str) -> tuple[str, int]:
    try:
        return wire.split_address(address)
    except MalformedMessageError:
        raise InvalidArgumentError(
            None, None, f"an address is host:port, such as 127.0.0.1:2222, and not {address!r}"
        ) from None


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _key(address: str) -> str:
    host, port = _split(address)
    return f"{'127.0.0.1' if host == 'localhost' else host}:{port}"


def _resolved(host: str) -> _Address:
    """The address of this machine that a name stands for."""
    try:
        found = [ipaddress.ip_address(one[4][0]) for one in sockets.getaddrinfo(host, None, type=sockets.SOCK_STREAM)]
        # who connects to a name connects by IPv4
        return min(found, key=lambda ip: ip.version)
    except (OSError, ValueError) as error:
        raise UnavailableError(None, None, f"cannot listen at {host!r}, which is no address of this machine") from error


def _bracketed(ip: _Address) -> str:
    return f"[{ip}]" if ip.version == 6 else str(ip)
