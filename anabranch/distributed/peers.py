"""Other processes, as one process sees them: what waits for their answers, and what is sent to them.

A `Peer` is the lock and the tables around a `distributed.links.Link`; it carries out what the link says, by
`distributed.lanes.Lanes` whose connections its place makes. `distributed.transport` has the place whose connections are
sockets.

#: No lock is held while what others gave is called: a handler, the receiver of a reply, who wants to know of a loss.
#: A peer's lanes are written to and closed under its lock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from anabranch.distributed import wire
from anabranch.distributed.lanes import Lanes, Outgoing
from anabranch.distributed.links import (
    DELIVER,
    Attach,
    Deliver,
    Dial,
    FailAll,
    HangUp,
    Instruction,
    Link,
    PeerState,
    Ready,
    Say,
)
from anabranch.distributed.place import OnReply, Place
from anabranch.distributed.segments import View
from anabranch.distributed.wire import Hello, Lane, MessageKind
from anabranch.errors import (
    CancelledError,
    DeadlineExceededError,
    OpError,
    ResourceExhaustedError,
    UnavailableError,
)
from anabranch.runtime.messages import Buffer, Frames
from anabranch.runtime.protocols import LinkTraffic

_LOGGER: Final = logging.getLogger(__name__)
#: a reply above goes by the bulk lane, whichever lane its request came by
_BULK_ABOVE: Final = 1 << 16


# ---------------------------------------------------------------------- one other process
class Peer:
    """Another process, as this one sees it. Thread-safe; nothing but `call` and `wait_until_up` blocks.

    Made by `Endpoint.peer`, or when the other process says hello. Frames that are sent must not be changed until they
    were answered: large ones are not copied.
    """

    def __init__(self, place: Place, address: str) -> None:
        self._place = place
        self._link, self._lanes = self._new_link(address)
        # guards the link and all tables of the peer; notified when the link is up, has failed, or another peer
        # took over
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: dict[int, OnReply] = {}
        self._pending: deque[Outgoing] = deque()
        self._pending_bytes = 0
        #: with the peer that each was given to: this one, or one of `_aliases`
        self._callbacks: dict[int, tuple[Peer, Callable[[OpError], None]]] = {}
        self._was_up = False
        self._same: Peer | None = None
        #: those that this one stands for, as long as its link stands by which they proved to be the same process
        self._aliases: list[Peer] = []
        #: whether this process asked for it, rather than it for this process
        self.is_wanted = False
        #: counted by the thread that takes messages
        self.received_shared_bytes = 0

    def __repr__(self) -> str:
        return f"<Peer {self._link}, {self.state.value}>"

    @property
    def merged(self) -> Peer:
        """The peer itself, or the one that has proved to be the same process under another address."""
        # read once, without a lock: it may come apart at any time
        same = self._same
        return self if same is None else same.merged

    @property
    def address(self) -> str:
        """Where its control inbox is, as "host:port"."""
        return self._link.address

    @property
    def announced(self) -> str:
        """The address that it gives itself; the one that it was asked for by until its first hello."""
        hello = self._link.hello
        return self.address if hello is None else hello.address

    @property
    def name(self) -> str | None:
        """What it calls itself; None until its first hello or welcome."""
        hello = self.merged._link.hello
        return None if hello is None else hello.name

    @property
    def incarnation(self) -> int | None:
        """Which run of it was heard last; None before."""
        return self.merged._link.incarnation

    @property
    def state(self) -> PeerState:
        """See the table in `distributed.links`."""
        return self.merged._link.state

    @property
    def bulk_port(self) -> int:
        """Where its bulk inbox is, once it has said hello."""
        hello = self._link.hello
        return 0 if hello is None else hello.bulk_port

    @property
    def channel(self) -> int:
        """The number of this opening of the link."""
        return self._link.channel

    @property
    def progress(self) -> int:
        """How many messages it had handed over when it last gave a sign of life."""
        return self.merged._link.progress

    @property
    def error(self) -> OpError | None:
        """Why its link failed last."""
        return self.merged._link.error

    @property
    def traffic(self) -> LinkTraffic:
        """What went between this process and the peer."""
        sent, received = self._link.traffic
        return LinkTraffic(
            self.name or "",
            self.announced,
            self.state.value,
            sent + self._lanes.shared_bytes,
            received + self.received_shared_bytes,
        )

    def request(self, frames: Sequence[Buffer], on_reply: OnReply, lane: Lane = Lane.CONTROL) -> int:
        """Sends a request, and returns its number.

        Args:
            on_reply: is called once, with the reply or an error, on the receiving thread or the one that closes the
                place. It must be quick.

        Raises:
            ResourceExhaustedError: the message, or what waits for this peer, is larger than the limits.
            UnavailableError: the peer is a task that has moved from here.
            CancelledError: the endpoint is closed.
        """
        number = next(self._place.requests)
        self._post(MessageKind.REQUEST, lane, number, frames, on_reply)
        return number

    @property
    def shares_memory(self) -> bool:
        """Whether it has proved to be on this host, and of this user."""
        return self.merged._lanes.shares_memory

    def mapped(self, process: int, descriptor: int, number: int, capacity: int) -> View | None:
        """Memory of the peer's process; None where it cannot be mapped, or is not what it should be."""
        memory = self._place.memory
        if memory is None or not self.shares_memory:
            return None
        return memory.map(process, descriptor, number, capacity)

    def forget(self, request: int) -> bool:
        """Gives up waiting for a reply; whether it was still to come."""
        peer = self.merged
        with peer._changed:
            # whoever takes it out is the one to tell: a reply that comes now finds nobody, and is dropped
            return peer._waiting.pop(request, None) is not None

    def call(
        self, frames: Sequence[Buffer], timeout: float, lane: Lane = Lane.CONTROL, *, what: str = "a request"
    ) -> Frames:
        """Sends a request, and waits for its reply.

        Args:
            timeout: in seconds.
            what: is asked for, for messages of errors.

        Raises:
            DeadlineExceededError: there was no reply in that time.
            OpError: the request failed, or the peer was lost.
        """
        self._place.refuse_receiver(f"{what} to {self._link}")
        answered, outcome = threading.Event(), list[Frames | OpError]()

        def on_reply(reply: Frames | OpError) -> None:
            outcome.append(reply)
            answered.set()

        number = self.request(frames, on_reply, lane)
        # where it was not there to be forgotten the reply has just come, and is about to be noted
        if not answered.wait(timeout) and self.forget(number):
            raise DeadlineExceededError(
                None, None, f"{self._link} did not answer {what} within {timeout:g} s; it is {self._told_state()}"
            )
        answered.wait()
        (reply,) = outcome
        if isinstance(reply, OpError):
            raise reply
        return reply

    def send(self, frames: Sequence[Buffer], lane: Lane = Lane.CONTROL) -> None:
        """Sends a message that is delivered at most once, and not answered.

        Raises:
            ResourceExhaustedError: the message, or what waits for this peer, is larger than the limits.
            UnavailableError: the peer is a task that has moved from here.
            CancelledError: the endpoint is closed.
        """
        self._post(MessageKind.MESSAGE, lane, 0, frames, None)

    def wait_until_up(self, timeout: float) -> bool:
        """Waits until messages reach the peer, connecting again and again; whether they do.

        It returns early where the peer refuses this process, for its cluster, version or keys: `error` says so.

        Raises:
            CancelledError: the endpoint is closed, before or meanwhile.
        """
        self._place.refuse_receiver(f"waiting for {self._link}")
        deadline = time.monotonic() + timeout
        with self._changed:
            self._open()
            while not self._link.is_up:
                self._place.refuse_closed()
                if self._same is not None:
                    break
                # what is unavailable may come up yet; keys, version and cluster stay what they are
                is_refused = self._link.state is PeerState.LOST and not isinstance(self._link.error, UnavailableError)
                remaining = deadline - time.monotonic()
                if is_refused or remaining <= 0:
                    return False
                self._open()
                self._changed.wait(remaining)
            else:
                return True
        # the lock is not held any more: two peers' locks are never held together
        return self.merged.wait_until_up(deadline - time.monotonic())

    def on_lost(self, callback: Callable[[OpError], None]) -> Callable[[], None]:
        """Calls back each time that the link fails or cannot be opened; returns what withdraws that.

        The callback runs on the receiving thread or the one that closes the endpoint, and must be quick.
        """
        number, is_noted = next(self._place.requests), False
        while not is_noted:
            peer = self.merged
            with peer._changed:
                # else it was merged since it was asked who stands for it, or came apart
                is_noted = peer._same is None if peer is self else self in peer._aliases
                if is_noted:
                    peer._callbacks[number] = self, callback

        def withdraw() -> None:
            # it may have gone over to another peer meanwhile
            for peer in (self, self.merged):
                with peer._changed:
                    peer._callbacks.pop(number, None)

        return withdraw

    def _new_link(self, address: str) -> tuple[Link, Lanes]:
        place = self._place
        link = Link(place.hello, place.incarnation, address, place.channels.__next__)
        return link, Lanes(place, link, partial(place.connect, self), partial(place.connect_locally, self))

    # ------------------------------------------------------------------ sending
    def _told_state(self) -> str:
        link = self.merged._link
        silent = link.silent_for(self._place.now())
        return f"{link.state.value}, and was last heard {silent:.1f} s ago" if link.is_up else link.state.value

    def _post(
        self, kind: MessageKind, lane: Lane, request: int, frames: Sequence[Buffer], on_reply: OnReply | None
    ) -> None:
        if lane is Lane.CONTROL and self._send_briefly(kind, request, frames, on_reply):
            return
        flat = [frame if type(frame) is bytes else wire.flat(frame) for frame in frames]
        size = sum(map(len, flat)) + wire.HEADER_BYTES
        self._check_size(len(flat), size)
        lent = self.merged._lanes.lend(flat) if lane is Lane.BULK else None
        message = Outgoing(kind, lane, request, flat, size, lent)
        try:
            # a peer may prove to be the same as another at any time before its lock is held
            while not self.merged._enqueue(message, on_reply):
                pass
        except OpError:
            if lent is not None:
                lent.give_back()
            raise

    def _send_briefly(
        self,
        kind: MessageKind,
        request: int,
        frames: Sequence[Buffer],
        on_reply: OnReply | None,
        channel: int | None = None,
    ) -> bool:
        """Sends what is one small frame by the control lane, if that can be done at once; False: nothing has been done.

        Args:
            channel: this side's, by which an answer is to go.
        """
        frame = frames[0] if len(frames) == 1 else None
        if type(frame) is not bytes or len(frame) > wire.BRIEF_BYTES:
            return False
        size, link = len(frame) + wire.HEADER_BYTES, self._link
        if size > self._place.limits.message_bytes:
            return False
        with self._lock:
            if self._same is not None or link is not self._link or not link.is_up:
                return False
            if channel is None:
                self._place.refuse_closed()
            elif channel != link.channel:
                return False
            self._check_room(size)
            self._lanes.write_brief(kind, request, frame)
            # an answer that comes already waits for the lock
            if on_reply is not None:
                self._waiting[request] = on_reply
            return True

    def _enqueue(self, message: Outgoing, on_reply: OnReply | None) -> bool:
        """Sends a message, or keeps it until the link is up; False if another peer is the one to do that."""
        # the condition's lock, without its Python functions: so wherever each message comes along
        with self._lock:
            if self._same is not None:
                return False
            self._place.refuse_closed()
            # before it is sent or kept: a message that is refused has changed nothing
            self._check_room(message.size)
            if self._link.is_up:
                self._lanes.write(message)
            else:
                self._refuse_moved()
                self._open()
                self._pending.append(message)
                self._pending_bytes += message.size
            # an answer that comes already waits for the lock
            if on_reply is not None:
                self._waiting[message.request] = on_reply
            return True

    def _refuse_moved(self) -> None:
        """What is for a task must not wait where the task was: for whoever has its address, or a process that hangs."""
        hello = self._link.hello
        if hello is None or self._link.state is not PeerState.LOST:
            return
        if any(self._place.has_left(hello.name, address) for address in (self.address, hello.address)):
            raise UnavailableError(None, None, f"{self._link} has moved to another address; run the step again")

    def merge(self, peer: Peer) -> None:
        """Lets another peer, which is the same process under another address, do all that this one was asked for."""
        with self._changed:
            self._same = peer
            pending, waiting, callbacks = list(self._pending), dict(self._waiting), dict(self._callbacks)
            self._pending.clear()
            aliases = [self, *self._aliases]
            self._waiting.clear()
            self._callbacks.clear()
            self._aliases.clear()
            self._hang_up(self._link.channel, is_farewell=False)
            self._changed.notify_all()
        with peer._changed:
            peer._callbacks.update(callbacks)
            peer._aliases += aliases
        # a link that is merged is still being connected: whoever waits is among what was not sent yet
        for message in pending:
            on_reply = waiting.get(message.request)
            try:
                peer._post(message.kind, message.lane, message.request, message.frames, on_reply)
            except OpError as error:
                # no room at the other peer: the rest is tried all the same, since nobody else will ever answer it
                if on_reply is not None:
                    guarded(on_reply, error)

    def part(self, alias: Peer, error: OpError) -> None:
        """Another process proves to be at an address for which this peer stood."""
        with self._changed:
            if alias not in self._aliases:
                return
            self._aliases.remove(alias)
            callbacks = self._take_callbacks(alias)
        alias.come_apart(callbacks)
        for _, callback in callbacks.values():
            guarded(callback, error)

    def come_apart(self, callbacks: Mapping[int, tuple[Peer, Callable[[OpError], None]]]) -> None:
        """Is a peer of its own again, which may be the same process still: that shows when it is asked."""
        with self._changed:
            self._link, self._lanes = self._new_link(self.address)
            self._callbacks.update(callbacks)
            self._same = None
        self._place.came_apart(self)

    def _take_callbacks(self, alias: Peer) -> dict[int, tuple[Peer, Callable[[OpError], None]]]:
        """Takes out what was given to an alias."""
        taken = {number: entry for number, entry in self._callbacks.items() if entry[0] is alias}
        for number in taken:
            del self._callbacks[number]
        return taken

    def answer(self, kind: MessageKind, lane: Lane, request: int, frames: Sequence[Buffer], channel: int) -> None:
        """Sends a reply, unless the link was opened anew since the request came."""
        is_small = kind is MessageKind.REPLY and lane is Lane.CONTROL
        if is_small and self._send_briefly(kind, request, frames, None, channel):
            return
        flat = [frame if type(frame) is bytes else wire.flat(frame) for frame in frames]
        size = sum(map(len, flat)) + wire.HEADER_BYTES
        self._check_size(len(flat), size)
        lent = self._lanes.lend(flat) if size > _BULK_ABOVE else None
        try:
            with self._lock:
                # this side's channel: another one means that whoever asked was told that its request failed
                if self._link.is_up and self._link.channel == channel:
                    if kind is MessageKind.REPLY:  # a failure is small, and has nobody else to be told to
                        self._check_room(size)
                    lane = Lane.BULK if size > _BULK_ABOVE else lane
                    self._lanes.write(Outgoing(kind, lane, request, flat, size, lent))
                    lent = None
        finally:
            if lent is not None:
                lent.give_back()

    def _check_size(self, frames: int, size: int) -> None:
        limits = self._place.limits
        if frames > limits.frames or size > limits.message_bytes:
            raise ResourceExhaustedError(
                None,
                None,
                f"a message of {frames} frames and {size} bytes to {self._link} is larger than the limits of "
                f"{limits.frames} frames and {limits.message_bytes} bytes; send it in pieces",
            )

    def _check_room(self, size: int) -> None:
        waiting = self._pending_bytes + self._link.in_flight
        # a message that is larger than the limit all by itself may go where nothing else waits; it would never go
        # otherwise
        if waiting and waiting + size > self._place.limits.waiting_bytes:
            raise ResourceExhaustedError(
                None,
                None,
                f"{waiting} bytes wait for {self._link} already, and {size} more pass the limit of "
                f"{self._place.limits.waiting_bytes}; wait until it has taken some",
            )

    def answer_offer(self, secret: bytes) -> None:
        """Tells that the peer's memory can be read here."""
        with self._changed:
            self._lanes.answer_offer(secret)

    def share_memory(self, token: bytes, address: bytes) -> None:
        """See `Lanes.share_memory`."""
        with self._changed:
            self._lanes.share_memory(token, address)

    # ------------------------------------------------------------------ what the link says
    def open(self) -> None:
        """Begins to connect, if it is not connected."""
        with self._changed:
            self._open()

    def _open(self) -> None:
        if self._same is not None:
            return
        self._place.refuse_closed()
        for instruction in self._link.open(self._place.now()):
            self._carry_out(instruction, [])

    def take(self, event: Callable[..., list[Instruction]], *said: object) -> bool:
        """Lets the link take an event, and does what it says; whether the message that came is to be delivered.

        Args:
            event: gets the link, what was `said`, and the time.
        """
        after: list[Callable[[], None]] = []
        try:
            with self._lock:
                if self._same is not None:
                    return False
                instructions = event(self._link, *said, self._place.now())
                # the very list that `Link.heard` gives for a message in order, which most are: nothing is to be
                # carried out
                if instructions is DELIVER:
                    return True
                for instruction in instructions:
                    self._carry_out(instruction, after)
        finally:
            # also where no connection could be made: who waits has to know
            for call in after:
                call()
        return any(isinstance(instruction, Deliver) for instruction in instructions)

    def _carry_out(self, instruction: Instruction, after: list[Callable[[], None]]) -> None:
        match instruction:
            case Dial(channel):
                self._place.dialed(self, channel)
            case HangUp(channel, is_farewell):
                self._hang_up(channel, is_farewell)
            case Say():
                self._lanes.say(instruction)
            case Attach(incarnation, channel):
                self._was_up = True
                self._place.attach(self, incarnation, channel)
            case Ready():
                while self._pending:
                    self._lanes.write(self._pending.popleft())
                self._pending_bytes = 0
                self._changed.notify_all()
            case FailAll(error, was):
                # who is told may send again, to this peer, whose lock is held here
                after.append(self._failing(error, was or Hello("", "", self.address, 0)))
                self._changed.notify_all()

    def _hang_up(self, channel: int, is_farewell: bool) -> None:
        self._place.hung_up(channel)
        self._lanes.hang_up(is_farewell=is_farewell)

    def _failing(self, error: OpError, was: Hello) -> Callable[[], None]:
        """Takes out all that wait; returns what tells them."""
        waiting = list(self._waiting.values())
        callbacks = [callback for _, callback in self._callbacks.values()]
        apart = [(alias, self._take_callbacks(alias)) for alias in self._aliases]
        self._aliases.clear()
        # who sent a message that nobody answers has to know as well
        is_told = self._was_up or any(message.kind is MessageKind.MESSAGE for message in self._pending)
        self._was_up = False
        self._waiting.clear()
        self._pending.clear()
        self._pending_bytes = 0

        def tell() -> None:
            # before anybody tries again: at each address there may be another process now
            for alias, given in apart:
                alias.come_apart(given)
            # who is failed may try again at once: what knows of the loss comes first
            for callback in callbacks:
                guarded(callback, error)
            for on_reply in waiting:
                guarded(on_reply, error)
            if is_told and not isinstance(error, CancelledError):
                guarded(self._place.handler.lost, self, error, was)

        return tell

    def answered(self, request: int, reply: Frames | OpError) -> None:
        """A reply came; one that nobody waits for any more is dropped."""
        with self._lock:
            on_reply = self._waiting.pop(request, None)
        if on_reply is not None:
            guarded(on_reply, reply)

    def hang_up_hard(self) -> None:
        """Closes the connections without a word, as a process that is killed does."""
        with self._changed:
            self._hang_up(self._link.channel, is_farewell=False)


def guarded(call: Callable[..., object], *arguments: object) -> None:
    """Calls what others gave: whatever it raises must not end the thread that receives."""
    try:
        call(*arguments)
    except Exception:
        _LOGGER.exception("what was called about a message or a lost peer failed")
