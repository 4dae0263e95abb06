"""The peers of one place, and what is done with the messages that come there.

A `PeerTable` takes messages as bytes and the time, gives them to the links of the peers that they come from, and hands
over what the links deliver. It has no sockets and starts no threads: `distributed.transport` is the place whose
messages come from sockets, and `testing.simulated_network` has places whose messages and time are simulated.

#: One thread takes messages and tells the time. It alone touches the tables of who sends what.
#: The lock guards the table of peers only, and nothing is called under it.
"""

from __future__ import annotations

import abc
import itertools
import logging
import secrets
import threading
from collections.abc import Callable
from typing import Final

from anabranch.distributed import wire
from anabranch.distributed.answers import Answer
from anabranch.distributed.flows import Assembly
from anabranch.distributed.links import Link, PeerState
from anabranch.distributed.peers import Peer, guarded
from anabranch.distributed.place import Connection, MessageHandler, StreamConnection
from anabranch.distributed.segments import SECRET_BYTES, Mapped, Memory, decode_offer, decode_shared
from anabranch.distributed.wire import Header, Hello, Lane, Limits, MalformedMessageError, MessageKind
from anabranch.errors import (
    AbortedError,
    CancelledError,
    InternalError,
    InvalidArgumentError,
    OpError,
    UnknownError,
    exception_type_from_error_code,
)
from anabranch.runtime.messages import Buffer, Frames
from anabranch.runtime.protocols import LinkTraffic

_LOGGER: Final = logging.getLogger(__name__)
#: what goes to handlers, or to who waits for an answer
_DELIVERED: Final = frozenset((MessageKind.MESSAGE, MessageKind.REQUEST, MessageKind.REPLY))
_OF_LINKS: Final = frozenset((MessageKind.BEAT, MessageKind.GOODBYE))
#: what only processes of one host say to each other, but for the offer
_OF_HOST: Final = (MessageKind.OFFER, MessageKind.TOKEN, MessageKind.SHARED, MessageKind.STREAM)
#: of an address that a peer of this host tells (`sockaddr_un` of Linux)
_MOST_ADDRESS_BYTES: Final = 108
#: seconds between two looks at the time
TICK: Final = 0.25
#: longer than that between two ticks, and this process itself was held up
_PAUSE: Final = 2.0
#: for how many ticks a lost peer that only dialed this process is remembered: its late messages are told apart
_REMEMBERED_TICKS: Final = 480
#: of how many senders of malformed messages it is remembered that they were complained of
_COMPLAINED: Final = 1000


class PeerTable(abc.ABC):
    """See the module docstring and `distributed.place.Place`. What `peer` does is thread-safe.

    Args:
        handler: is given what comes.
        limits: of messages, and of what waits.
        clock: in seconds; never goes back.

    Attributes:
        hello: who this place is; set before the first message or peer.
        incarnation: tells this run of the place from others.
        handed_over: how many messages were handed over.
        memory: what large frames are shared by with other processes of this host; None: they are sent.
    """

    hello: Hello

    def __init__(self, handler: MessageHandler, limits: Limits, clock: Callable[[], float]) -> None:
        self.handler = handler
        self.limits = limits
        self.now = clock
        # at random: processes that know nothing of each other, and earlier runs, have others; 0 means nobody in a
        # header
        self.incarnation = secrets.randbits(64) or 1
        self.channels = itertools.count(1)
        self.requests = itertools.count(1)
        self.handed_over = 0
        self.memory: Memory | None = None
        self._lock = threading.Lock()
        self._peers: dict[str, Peer] = {}
        #: by their addresses, the peers for which others stand (`_merge`)
        self._aliases: dict[str, Peer] = {}
        self._dialed: dict[int, Peer] = {}
        #: of tasks that have moved: their names, with the addresses that they had, and where they are
        self._left: dict[tuple[str, str], str] = {}
        self._is_closed = False
        # -- of the thread that takes messages
        self._senders: dict[tuple[int, int], Peer] = {}
        self._incarnations: dict[int, Peer] = {}
        self._attached: dict[Peer, tuple[int, int]] = {}
        self._assemblies: dict[int, tuple[int, Assembly]] = {}
        self._mapped: dict[int, tuple[int, Mapped]] = {}
        self._lost_ticks: dict[Peer, int] = {}
        self._complained: set[str] = set()
        self._ticked_at = clock()

    def peer(self, address: str) -> Peer:
        """The peer at an address; the same object for the same address. The connection is opened in the background.

        Raises:
            InvalidArgumentError: the address is not host:port.
            CancelledError: the place is closed.
        """
        peer = self._peer(address)
        # never forgotten from now on (`_forget_lost`)
        peer.is_wanted = True
        peer.open()
        return peer

    def moved(self, name: str, before: str, now: str) -> None:
        """A task has moved to another address: a process that says it is that task at the one before is shut out."""
        with self._lock:
            self._left.pop((name, address_key(now)), None)
            self._left[name, address_key(before)] = now
        for peer in self._known_peers():
            if peer.name == name and address_key(before) in (address_key(peer.address), address_key(peer.announced)):
                peer.take(lambda link, _: link.fence(f"{name} is at {now} now"))

    def has_left(self, name: str, address: str) -> bool:
        """Whether a task has moved from an address: a process that says there that it is that task is shut out."""
        # under a peer's lock, too: one operation of a dictionary needs none of the table's
        return (name, address_key(address)) in self._left

    def _where_instead(self, hello: Hello) -> str | None:
        """Where the task is that a process says it is, if that has moved."""
        with self._lock:
            return self._left.get((hello.name, address_key(hello.address))) if self._left else None

    # ------------------------------------------------------------------ what peers need (`place.Place`)
    @abc.abstractmethod
    def connect(self, peer: Peer, lane: Lane, channel: int) -> Connection:
        """A new connection to a peer's inbox."""

    @property
    def local_address(self) -> bytes:
        """Where processes of this host connect to say what is urgent; empty, as here: nowhere."""
        return b""

    def connect_locally(self, peer: Peer, address: bytes, channel: int) -> StreamConnection | None:
        """A connection to where a peer of this host listens; None, as here: none is to be used."""
        return None

    def take_stream(self, peer: Peer, number: bytes) -> None:
        """All further control messages of a peer come by the stream of this number.

        Raises:
            MalformedMessageError: as here, where no address was told.
        """
        raise MalformedMessageError("a stream comes that was not agreed on")

    def dialed(self, peer: Peer, channel: int) -> None:
        """A channel to a peer was opened."""
        # from any thread, under the peer's lock; one operation of a dictionary needs none of the table's
        self._dialed[channel] = peer

    def hung_up(self, channel: int) -> None:
        """A channel was closed."""
        self._dialed.pop(channel, None)

    def attach(self, peer: Peer, incarnation: int, channel: int) -> None:
        """What comes on this channel is the peer's."""
        # on the receiving thread, like all that comes from what a peer says
        before = self._attached.get(peer)
        if before is not None:
            # what still comes on the channel before finds no sender, and is dropped without asking its link
            self._senders.pop(before, None)
            if self._incarnations.get(before[0]) is peer:
                del self._incarnations[before[0]]
            self._mapped.pop(before[0], None)
            # of the same process the assembly is replaced with the first piece of the new channel (`_assembly`)
            if before[0] != incarnation:
                self._assemblies.pop(before[0], None)
        self._attached[peer] = incarnation, channel
        self._senders[incarnation, channel] = peer
        self._incarnations[incarnation] = peer
        own = {address_key(peer.address), address_key(peer.announced)}
        with self._lock:
            if before is not None and before[0] != incarnation:
                # another process: the one before may live at the address that it gave itself
                for address in [address for address, known in self._peers.items() if known is peer]:
                    if address not in own and address not in self._aliases:
                        del self._peers[address]
            # whoever is given the address that the peer gives itself gets this peer
            self._peers.setdefault(address_key(peer.announced), peer)

    def came_apart(self, alias: Peer) -> None:
        """A peer for which another one stood is one of its own again."""
        with self._lock:
            for address in [address for address, known in self._aliases.items() if known is alias]:
                del self._aliases[address]
                self._peers[address] = alias

    def refuse_closed(self) -> None:
        """Raises `CancelledError` if the place is closed."""
        if self._is_closed:
            raise CancelledError(None, None, f"{self.hello.name} at {self.hello.address} is closed")

    @abc.abstractmethod
    def refuse_receiver(self, what: str) -> None:
        """Raises `InternalError` where nothing may wait."""

    # ------------------------------------------------------------------ messages
    def take_message(self, data: Buffer, frames: Frames, lane: Lane) -> None:
        """Takes a message that came by a lane: its first part, and what follows."""
        sender: Peer | None = None
        try:
            is_joined = len(data) > wire.HEADER_BYTES and not frames
            if is_joined:
                header, frames = wire.split_joined(data, self.limits)
            else:
                header = wire.decode_header(data, self.limits)
            sender = self._senders.get((header.sender, header.channel))
            # each lane has an inbox of its own, and a sequence that only that inbox keeps in order
            if header.lane is not lane:
                raise MalformedMessageError(f"it came by the lane {lane.name.lower()}, and says another")
            if not is_joined:
                wire.check_frames(header, frames)
            if sender is not None and header.kind in _DELIVERED:
                # `_take_from`, written out for the messages that come in each step
                if sender.take(Link.heard, header, header.bytes + wire.HEADER_BYTES):
                    self.handed_over += 1
                    self._deliver(header, frames, sender)
            else:
                self._hand_over(header, frames, sender)
        except MalformedMessageError as error:
            self._complain(sender, str(error))
        except Exception:  # such as too many open files; whatever it is, the others' messages are to be taken
            _LOGGER.exception("%s could not take a message", self.hello.name)

    def _hand_over(self, header: Header, frames: Frames, sender: Peer | None) -> None:
        match header.kind:
            case MessageKind.HELLO:
                hello = wire.decode_hello(frames)
                instead = self._where_instead(hello)
                if instead is not None:
                    reason = f"{hello.name} is at {instead} now"
                    self._greeting(header, hello).take(lambda link, now: link.heard_fenced(header, reason, now))
                    return
                self._greeting(header, hello).take(lambda link, now: link.heard_hello(header, hello, now))
            # meant for the process that had this address before, whose channels had the same numbers
            case MessageKind.REFUSAL if header.receiver not in (0, self.incarnation):
                return
            case MessageKind.WELCOME if header.receiver not in (0, self.incarnation):
                hello = wire.decode_hello(frames)
                self._greeting(header, hello).take(lambda link, now: link.heard_mistaken(header, now))
            case MessageKind.WELCOME:
                welcome = wire.decode_hello(frames)
                answered = self._dialed.get(welcome.answers)
                # who is known by its channel comes before who is named in the answer, which may be another
                # address of it
                known = sender or answered
                instead = self._where_instead(welcome)
                if known is not None and instead is not None:
                    known.take(lambda link, now: link.fence(f"{welcome.name} is at {instead} now"))
                    return
                if known is not None:
                    known.take(lambda link, now: link.heard_welcome(header, welcome, now))
                if sender is not None and answered not in (None, sender) and answered.state is PeerState.CONNECTING:
                    self._merge(answered, sender)
            case MessageKind.REFUSAL:
                refusal = wire.decode_refusal(frames)
                refused = self._dialed.get(refusal.answers)
                if refused is not None:
                    refused.take(lambda link, now: link.heard_refusal(refusal.answers, refusal.reason))
            # from nobody that a link knows: dropped
            case _ if sender is not None:
                self._take_from(header, frames, sender)

    def _take_from(self, header: Header, frames: Frames, sender: Peer) -> None:
        """Hands over a message of a channel that is open, if its link finds it in order."""
        is_own = header.kind in _OF_LINKS
        # what is counted as sent (`Peer._number`) has to be counted as taken, and nothing else
        size = 0 if is_own else header.bytes + wire.HEADER_BYTES
        # the link decides before anything of it is looked at
        if sender.take(Link.heard, header, size):
            self.handed_over += 1
            self._deliver(header, frames, sender)

    def _deliver(self, header: Header, frames: Frames, sender: Peer) -> None:
        if header.kind is MessageKind.PIECE:
            self._assembly(header).take(header.request, frames)
            return
        if header.kind not in _DELIVERED and header.kind in _OF_HOST:
            self._take_of_host(header, frames, sender)
            return
        # also one without large frames: then it must not stand behind pieces
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
                    # who refuses a request tells the asker why, and that is all
                    if not isinstance(error, OpError) or isinstance(error, InternalError):
                        _LOGGER.exception("the handler of requests failed")
                    answer.fail(error)
            case MessageKind.MESSAGE:
                guarded(self.handler.message, sender, frames)
            case MessageKind.BEAT:
                beat = wire.decode_beat(frames)
                sender.take(lambda link, now: link.heard_beat(beat))
            case MessageKind.FAILURE:
                sender.answered(header.request, _error(wire.decode_failure(frames)))

    def _take_of_host(self, header: Header, frames: Frames, sender: Peer) -> None:
        sizes = list(map(len, frames))
        match header.kind:
            case MessageKind.SHARED:
                self._take_shared(header, frames)
                sender.received_shared_bytes += header.request
            case MessageKind.OFFER:
                self._take_offer(header, frames, sender)
            case MessageKind.TOKEN if len(sizes) == 2 and sizes[0] == SECRET_BYTES and sizes[1] <= _MOST_ADDRESS_BYTES:
                sender.share_memory(bytes(frames[0]), bytes(frames[1]))
            case MessageKind.STREAM if sizes == [wire.STREAM_NUMBER_BYTES]:
                self.take_stream(sender, bytes(frames[0]))
            case _:
                raise MalformedMessageError("a token, or what tells of a stream, has frames of other sizes")

    def _take_offer(self, header: Header, frames: Frames, sender: Peer) -> None:
        """The sender would share memory: it is told whether this process can read it, by what stands there."""
        offer = decode_offer(frames)
        secret = None if self.memory is None else self.memory.secret(offer)
        if self.memory is not None and secret is not None:
            mapped = Mapped(self.memory, offer.process, self.limits.waiting_bytes)
            self._mapped[header.sender] = header.channel, mapped
            sender.answer_offer(secret)

    def _take_shared(self, header: Header, frames: Frames) -> None:
        channel, mapped = self._mapped.get(header.sender, (0, None))
        if mapped is None or channel != header.channel:
            raise MalformedMessageError("shared memory comes that was not agreed on")
        shared = decode_shared(frames)
        try:
            self._assembly(header).take_whole(header.request, lambda: mapped.frame(shared, header.request))
        except MalformedMessageError:
            # what cannot be mapped now could not be after the next hello either: from now on all is sent
            self.memory = None
            raise

    def _assembly(self, header: Header) -> Assembly:
        """Where the large frames of a channel are put together; those of the sender's channels before are dropped."""
        known = self._assemblies.get(header.sender)
        # one for each incarnation: pieces of a channel that failed are of no use to the next
        if known is None or known[0] != header.channel:
            known = self._assemblies[header.sender] = header.channel, Assembly(self.limits.message_bytes)
        return known[1]

    def _greeting(self, header: Header, hello: Hello) -> Peer:
        """Whom a hello is from: who has its incarnation, whatever address was dialed, or else its address."""
        known = self._incarnations.get(header.sender)
        if known is not None:
            return known
        with self._lock:
            alias = self._aliases.get(address_key(hello.address))
        if alias is not None:
            # the process that had this address as well has another incarnation
            error = f"{hello.name} is at {hello.address} now, where {alias.name} was; try again from where you can"
            alias.merged.part(alias, AbortedError(None, None, error))
        return self._peer(hello.address)

    def _peer(self, address: str) -> Peer:
        key = address_key(address)
        with self._lock:
            self.refuse_closed()
            peer = self._peers.get(key)
            if peer is None:
                peer = self._peers[key] = Peer(self, address)
            return peer

    def _merge(self, alias: Peer, peer: Peer) -> None:
        """Two addresses have proved to be those of one process: its link is used for both."""
        with self._lock:
            # values are replaced while the dictionary is walked, which its keys allow
            for address, known in self._peers.items():
                if known is alias:
                    self._peers[address] = peer
                    self._aliases[address] = self._aliases.get(address, alias)
            peer.is_wanted |= alias.is_wanted
        # not under the lock of the table: the alias posts what waited for it, under the locks of peers
        alias.merge(peer)

    def _complain(self, sender: Peer | None, reason: str) -> None:
        """Closes the link of whom a malformed message came from, and says so once."""
        who = "an unknown process" if sender is None else f"{sender.name} at {sender.address}"
        # once for each, and for so many at most: whoever can reach the port could fill the log and the memory
        if who not in self._complained and len(self._complained) < _COMPLAINED:
            self._complained.add(who)
            _LOGGER.warning("%s got a malformed message from %s: %s", self.hello.name, who, reason)
        if sender is not None:
            sender.take(lambda link, now: link.heard_malformed(reason))

    # ------------------------------------------------------------------ time
    def tick(self) -> None:
        """Time went by; to be called several times a second."""
        now = self.now()
        passed = now - self._ticked_at
        # the receiving thread comes here after each look at its sockets
        if passed < TICK:
            return
        self._ticked_at = now
        for peer in self._known_peers():
            if passed > _PAUSE:
                # before the link looks at the time, or it would find everybody silent
                peer.take(lambda link, _: link.paused(passed - TICK))
            # one peer whose link cannot be opened again must not keep the others from being looked at
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
                    self._aliases.pop(address, None)
            self._lost_ticks.pop(peer, None)
            attached = self._attached.pop(peer, None)
            if attached is not None:
                self._senders.pop(attached, None)
                self._incarnations.pop(attached[0], None)
                self._assemblies.pop(attached[0], None)
                self._mapped.pop(attached[0], None)

    def traffic(self) -> list[LinkTraffic]:
        """What went between this process and each other that it knows. From any thread."""
        return [peer.traffic for peer in self._known_peers()]

    # ------------------------------------------------------------------ the end
    def stop_links(self) -> None:
        """Says goodbye to all peers; what waits for them fails with `CancelledError`."""
        for peer in self._known_peers():
            guarded(peer.take, lambda link, now: link.stop())

    def _known_peers(self) -> list[Peer]:
        """Each once, in the order in which they became known."""
        with self._lock:
            return list(dict.fromkeys(self._peers.values()))


def address_key(address: str) -> str:
    """The same for two ways to write an address."""
    host, port = split_address(address)
    return f"{'127.0.0.1' if host == 'localhost' else host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    try:
        return wire.split_address(address)
    except MalformedMessageError:
        raise InvalidArgumentError(
            None, None, f"an address is host:port, such as 127.0.0.1:2222, and not {address!r}"
        ) from None


def _error(failure: wire.Failure) -> OpError:
    try:
        return exception_type_from_error_code(failure.code)(None, None, failure.message)
    except KeyError:
        return UnknownError(None, None, failure.message, failure.code)
