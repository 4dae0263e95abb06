"""What this process knows of one other process, its *peer*, and of the connection to it (WP3.3).

`Link` is a pure state machine: events go in (somebody wants to send, a message came, a connection broke, time went by),
instructions come out. It has no sockets, threads or clocks; the time is an argument, in seconds of one monotonic clock.
`distributed.transport` carries the instructions out, and `testing` does so over a simulated network.

A link has two directions. Each process dials the other and sends on a *channel*: a number of its own that grows with
every opening. Each message carries the sender's incarnation and channel, and its place in the sequence of its lane. The
first message of a channel is a hello, or a welcome where a hello was heard before. So a process that was started again,
a link that was opened again, and a message that was lost are all told apart from what is in order.

    ============  =============  ==============  ==============  ================  ==============  ==============
    event         new            connecting      up              suspect           lost            after 30 s, too
    ============  =============  ==============  ==============  ================  ==============  ==============
    open          dial, hello    -               -               -                 dial, hello
                  -> connecting                                                    -> connecting
    hello (3)     dial, welcome  welcome         fail, dial,     fail, dial,       dial, welcome
                  -> up          -> up           welcome -> up   welcome -> up     -> up
    hello of one  dial, refuse   dial, refuse    dropped         dropped           dial, refuse
    not allowed   -> lost        -> lost                                           -> lost
    refusal       -              fail -> lost    -               -                 -
    welcome       dropped        -> up           (counts)        -> up             dropped
    in order      dropped        dropped         deliver         deliver -> up     dropped (2)
    welcome for   dial, hello    -               fail, dial,     fail, dial,       dial, hello
    another (4)   -> connecting                  hello           hello             -> connecting
                                                 -> connecting   -> connecting
    gap, repeat   dropped        dropped         fail, dial,     fail, dial,       dropped
                                                 hello           hello
                                                 -> connecting   -> connecting
    malformed     -              fail -> lost    fail -> lost    fail -> lost      -
    broken        -              dial anew (1)   fail, dial,     fail, dial,       -
                                                 hello           hello
                                                 -> connecting   -> connecting
    refused       -              fail -> lost    fail -> lost    fail -> lost      -
                                 (1)             (1)
    goodbye       dropped        dropped         fail -> lost    fail -> lost      dropped
    silent 5 s    -              -               -> suspect      -                 -
    silent 30 s   -              fail -> lost    fail -> lost    fail -> lost      -
    stop          -> lost        fail -> lost    goodbye, fail   goodbye, fail     -
                                                 -> lost         -> lost
    ============  =============  ==============  ==============  ================  ==============  ==============

    (1) once the connection was refused, or broke before a welcome, for a second: a peer may just be starting
    (2) a peer that goes on sending does not know that it was given up: it is told by a hello, after half a second
    (3) late ones, of channels and incarnations that were replaced, are dropped; one that does not name this process,
        and comes from a peer whose link is up, is for a second address: it is welcomed on the link that there is

#: What waits for an answer has one, or the peer took it on this link, which is up or suspect, or it waits to be sent.
#: A message is delivered if it is the next of its lane on the channel that was welcomed last; all others are dropped.
#: Of the channels of one incarnation, each is newer than those before; an incarnation that was replaced by one that has
#: proved to live never returns.
#: Nothing is sent again: what a link that failed had taken may or may not have been delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from anabranch.distributed.wire import VERSION, Beat, Header, Hello, Lane, MessageKind
from anabranch.errors import (
    AbortedError,
    CancelledError,
    FailedPreconditionError,
    OpError,
    UnauthenticatedError,
    UnavailableError,
)

# seconds; several signs of life fit into the silence after which a peer is suspected
BEAT_EVERY: Final = 1.0
SUSPECT_AFTER: Final = 5.0
# for peers whose connections stand and that say nothing: a machine that is cut off, a process that is stopped. One that
# has ended is found out by its connections, long before
LOST_AFTER: Final = 30.0
#: how long connections may be refused before that is believed
REFUSED_FOR: Final = 1.0
#: before a connection that broke without a welcome is tried again
DIAL_AGAIN_AFTER: Final = 0.1
#: how long a peer that does not know that it was given up may go on sending before it is told
TELL_LATE_AFTER: Final = 0.5
#: a sign of life is sent at once where the peer may wait for room
TAKEN_BEFORE_BEAT: Final = 8 << 20
# of the incarnations that were replaced the last so many are remembered, to know their late messages
_FENCED: Final = 64


class PeerState(Enum):
    """See the table of the module."""

    NEW = "not connected yet"
    CONNECTING = "being connected"
    UP = "up"
    SUSPECT = "silent"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Dial:
    """An instruction: connect to the peer; what is said and sent from now on goes by this channel."""

    channel: int


@dataclass(frozen=True, slots=True)
class HangUp:
    """An instruction: close the connections of a channel, once what was said is out if it is a farewell."""

    channel: int
    is_farewell: bool = False


@dataclass(frozen=True, slots=True)
class Say:
    """An instruction: send a message of the link's own; a welcome or refusal answers a channel.

    It goes by this side's channel, or by the one that is named if that is closed next.
    """

    kind: MessageKind
    answers: int = 0
    reason: str = ""
    channel: int = 0


@dataclass(frozen=True, slots=True)
class Attach:
    """An instruction: messages of this incarnation and channel belong to this link, and those of no other."""

    incarnation: int
    channel: int


@dataclass(frozen=True, slots=True)
class Ready:
    """An instruction: send what waits for the link to be up."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """An instruction: hand the message that came to whom it is for."""


@dataclass(frozen=True, slots=True)
class FailAll:
    """An instruction: fail what waits for the peer, and tell who wants to know that it is lost.

    It says who that was, since another process may have taken its place already.
    """

    error: OpError
    was: Hello | None = None


Instruction: TypeAlias = Dial | HangUp | Say | Attach | Ready | Deliver | FailAll
#: the instructions for a message in order, which most are
DELIVER: Final[list[Instruction]] = [Deliver()]
_DROP: Final[list[Instruction]] = []


class Link:
    """The state machine; see the module docstring. Not thread-safe, and it calls nobody.

    Args:
        me: this process.
        incarnation: this process's.
        address: the peer's.
        next_channel: numbers that grow, of this process.
    """

    def __init__(self, me: Hello, incarnation: int, address: str, next_channel: Callable[[], int]) -> None:
        self._me = me
        self._own_incarnation = incarnation
        self._next_channel = next_channel
        self._fenced: deque[int] = deque(maxlen=_FENCED)
        #: those that were replaced by one that has not proved to live, and the newest channel of each
        self._rivals: dict[int, int] = {}
        self.address = address
        self.state = PeerState.NEW
        #: what the last hello or welcome of the peer said
        self.hello: Hello | None = None
        self.incarnation: int | None = None
        #: why the link failed last
        self.error: OpError | None = None
        #: what the peer says of its own progress
        self.progress = 0
        # -- this side's direction: 0 while there is no connection
        self.channel = 0
        self._connected = [False, False]
        self._sequence = [0, 0]
        self._sent_bytes = 0
        self._taken_bytes = 0
        self._sent_at = 0.0
        # -- the peer's direction: 0 while no channel of it was welcomed
        self._heard_channel = 0
        self._newest_channel = 0
        self._expected = [0, 0]
        self._heard_bytes = 0
        self._told_bytes = 0
        self._told_at = 0.0
        # -- of the channels before
        self._sent_before = 0
        self._heard_before = 0
        # -- times
        self._since = 0.0
        self._heard_at = 0.0
        self._dial_at: float | None = None
        self._failing_since: float | None = None
        self._late_since: float | None = None

    def __str__(self) -> str:
        name = self.hello.name if self.hello is not None else ""
        return f"{name or 'the process'} at {self.address}"

    @property
    def is_up(self) -> bool:
        """Whether messages can be sent."""
        return self.state in (PeerState.UP, PeerState.SUSPECT)

    @property
    def in_flight(self) -> int:
        """How many bytes were sent that the peer has not taken yet, as far as is known."""
        return self._sent_bytes - self._taken_bytes

    @property
    def traffic(self) -> tuple[int, int]:
        """How many bytes were sent, and heard, since this process knows the peer."""
        return self._sent_before + self._sent_bytes, self._heard_before + self._heard_bytes

    # ------------------------------------------------------------------ what this process wants
    def open(self, now: float) -> list[Instruction]:
        """Somebody wants to send."""
        if self.state not in (PeerState.NEW, PeerState.LOST):
            return []
        return self._connect(now)

    def next_sequence(self, lane: Lane, size: int, now: float) -> int:
        """The sequence number of a message that is sent now, on this side's channel."""
        sequence = self._sequence[lane]
        # each lane counts for itself: they are different connections, and order holds within one only
        self._sequence[lane] = sequence + 1
        self._sent_bytes += size
        self._sent_at = now
        return sequence

    def next_beat(self, progress: int, now: float) -> Beat:
        """What the sign of life says that is sent now."""
        self._told_bytes, self._told_at = self._heard_bytes, now
        return Beat(progress, self._heard_channel, self._heard_bytes)

    def stop(self) -> list[Instruction]:
        """This process stops."""
        if self.state is PeerState.LOST:
            return []
        farewell: list[Instruction] = [Say(MessageKind.GOODBYE, channel=self.channel)] if self.is_up else []
        error = CancelledError(None, None, f"this process has closed its connection to {self}")
        return farewell + self._lose(error, is_farewell=self.is_up)

    def fence(self, reason: str) -> list[Instruction]:
        """The task that the peer says it is has moved to another address: whoever is at this one is not to be heard."""
        if self.state in (PeerState.NEW, PeerState.LOST):
            return []
        # also where the link was not up yet: the task is elsewhere, and whoever asked for it may try again
        error = UnavailableError(None, None, f"{self} is not that task any more: {reason}")
        farewell = [Say(MessageKind.GOODBYE, channel=self.channel)] if self.is_up else []
        return [*farewell, *self._lose(error, is_farewell=self.is_up)]

    # ------------------------------------------------------------------ what connections do
    def connected(self, channel: int, lane: Lane) -> list[Instruction]:
        """A connection of a channel stands."""
        # what a connection says that was closed since is no news; so in all that follows
        if channel == self.channel:
            self._connected[lane] = True
            self._failing_since = None
        return []

    def refused(self, channel: int, lane: Lane, now: float) -> list[Instruction]:
        """An attempt to connect failed; the next is under way."""
        # a lane that stood once is broken, and not refused, when it ends
        if channel != self.channel or self._connected[lane]:
            return []
        # one refusal proves nothing: the peer may be about to listen
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since < REFUSED_FOR:
            return []
        return self._lose(
            UnavailableError(
                None, None, f"nobody can connect to {self}: is it running, and is this the address that it listens at?"
            )
        )

    def broken(self, channel: int, now: float) -> list[Instruction]:
        """A connection that stood is gone, perhaps with messages in it."""
        if channel != self.channel:
            return []
        if self.is_up:
            return self._reopen(now, f"the connection to {self} broke: it has stopped, or the network between failed")
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= REFUSED_FOR:
            return self._lose(
                UnavailableError(
                    None,
                    None,
                    f"{self} accepts connections and closes them again: is it a task of anabranch, with the same keys?",
                )
            )
        self._dial_at = now + DIAL_AGAIN_AFTER
        # without a channel until then: what was said on this one may have been half heard
        return [HangUp(self._dropped_channel())]

    def unauthenticated(self, channel: int) -> list[Instruction]:
        """The handshake of a connection failed."""
        if channel != self.channel:
            return []
        return self._lose(
            UnauthenticatedError(
                None,
                None,
                f"{self} and this process do not accept each other's keys; all processes of a cluster "
                "need the same file of `anabranch cluster keys`",
            )
        )

    # ------------------------------------------------------------------ what the peer says
    def heard_hello(self, header: Header, hello: Hello, now: float) -> list[Instruction]:
        """The peer says who it is, and asks for a welcome."""
        if header.version != VERSION:
            return self._refuse(header, f"it speaks version {VERSION} of the format, not {header.version}", now)
        if hello.cluster != self._me.cluster:
            reason = f"it belongs to the cluster {self._me.cluster!r}, not {hello.cluster!r}"
            return self._refuse(header, reason, now)
        if self._is_late(header):
            return []
        # before the link is taken for replaced: who opens it anew because it failed names this process
        if self.is_up and header.sender == self.incarnation and not header.receiver:
            # a process that does not know that it knows this one, by another address: it is told, and uses one link
            return [Say(MessageKind.WELCOME, header.channel)]
        done = self._replace(header)
        self._know(header.sender)
        # both may have dialed at the same time: a channel that is open already carries the welcome, too
        if not self.channel:
            done += self._dial(now)
        done += self._welcomed(header, hello, now)
        # the welcome first: what waits is in order behind it, and the peer delivers nothing before it
        return [*done, Say(MessageKind.WELCOME, header.channel), Ready()]

    def heard_fenced(self, header: Header, reason: str, now: float) -> list[Instruction]:
        """Likewise, of a peer that says hello."""
        return [*self.fence(reason), *self._refuse(header, reason, now)]

    def heard_welcome(self, header: Header, hello: Hello, now: float) -> list[Instruction]:
        """The peer has heard the hello of this side's channel."""
        if header.channel == self._heard_channel and header.sender == self.incarnation:
            # it comes behind the hello with which the peer opened the channel itself
            # it has a place in the sequence, and no bytes: neither side counts those of the link's own messages
            return [done for done in self.heard(header, 0, now) if not isinstance(done, Deliver)]
        # a welcome to a hello of an earlier channel says nothing about this one
        if self.state is not PeerState.CONNECTING or hello.answers != self.channel or header.sender in self._fenced:
            return []
        if hello.cluster != self._me.cluster:
            return self._lose(self._foreign(f"it belongs to the cluster {hello.cluster!r}, not {self._me.cluster!r}"))
        self._know(header.sender)
        self._fence_rivals()
        if header.sequence != 0:
            # the peer takes it for a second address of a link that is gone: a hello that names it opens a new one
            return [HangUp(self._dropped_channel()), *self._dial(now), Say(MessageKind.HELLO)]
        return [*self._welcomed(header, hello, now), Ready()]

    def heard_mistaken(self, header: Header, now: float) -> list[Instruction]:
        """A welcome came that is for another process at this address: the peer does not know who is here now."""
        if header.sender in self._fenced:
            return []
        if not self.is_up:
            return self.open(now)
        if header.sender != self.incarnation or header.channel <= self._newest_channel:
            return []
        # the channel that was open until then is closed for the peer: what was sent by it since is lost
        self._newest_channel = header.channel
        return self._reopen(now, f"{self} took this process for the one that had its address before")

    def heard_refusal(self, answers: int, reason: str) -> list[Instruction]:
        """The peer does not take the hello of this side's channel."""
        if answers != self.channel or self.state is not PeerState.CONNECTING:
            return []
        return self._lose(self._foreign(reason))

    def heard(self, header: Header, size: int, now: float) -> list[Instruction]:
        """A message of any other kind came: deliver it if that is among the instructions.

        Args:
            size: its bytes, the header's included.
        """
        if header.sender != self.incarnation or header.channel != self._heard_channel:
            return self._heard_late(header, now)
        # meant for the process that had this address before
        if header.receiver != self._own_incarnation:
            return _DROP
        expected = self._expected[header.lane]
        if header.sequence != expected:
            what = "is missing" if header.sequence > expected else "came twice"
            # what was lost is not known, and nothing is sent again: all who wait are told, and both sides begin anew
            return self._reopen(
                now, f"message {min(expected, header.sequence)} of the {header.lane.name.lower()} lane of {self} {what}"
            )
        # from here on it is in order: it counts as a sign of life, whatever it is
        if self._rivals:
            self._fence_rivals()
        self._expected[header.lane] = expected + 1
        self._heard_bytes += size
        self._heard_at = now
        if self.state is PeerState.SUSPECT:
            self.state = PeerState.UP
        if header.kind is MessageKind.GOODBYE:
            return self._lose(UnavailableError(None, None, f"{self} has stopped; start it again, or use another task"))
        if self._heard_bytes - self._told_bytes >= TAKEN_BEFORE_BEAT:
            return [*DELIVER, Say(MessageKind.BEAT)]
        return DELIVER

    def heard_beat(self, beat: Beat) -> list[Instruction]:
        """A sign of life, which came in order."""
        self.progress = beat.progress
        # a count of an earlier channel would make room for bytes that are on their way still
        if beat.channel == self.channel:
            # it never falls, and never passes what was sent: the number comes from outside
            self._taken_bytes = min(max(self._taken_bytes, beat.taken), self._sent_bytes)
        return []

    def heard_malformed(self, reason: str) -> list[Instruction]:
        """A message that cannot be what it should came by the peer's channel."""
        if self.state is PeerState.LOST or self.state is PeerState.NEW:
            return []
        return self._lose(
            UnavailableError(
                None, None, f"{self} sent a malformed message: {reason}; all processes must be of one version"
            )
        )

    # ------------------------------------------------------------------ time
    def tick(self, now: float) -> list[Instruction]:
        """Time went by; to be called several times a second."""
        if self.state is PeerState.CONNECTING:
            if now - self._since >= LOST_AFTER:
                return self._lose(self._silent(self._since, now))
            if self._dial_at is not None and now >= self._dial_at:
                return [*self._dial(now), Say(MessageKind.HELLO)]
        elif self.is_up:
            if now - self._heard_at >= LOST_AFTER:
                return self._lose(self._silent(self._heard_at, now))
            if now - self._heard_at >= SUSPECT_AFTER:
                self.state = PeerState.SUSPECT
            # the peer's room depends on what it hears was taken, and other messages to it do not say that
            is_owed = self._heard_bytes > self._told_bytes and now - self._told_at >= BEAT_EVERY
            if is_owed or now - self._sent_at >= BEAT_EVERY:
                return [Say(MessageKind.BEAT)]
        return []

    def paused(self, seconds: float) -> list[Instruction]:
        """This process itself did nothing for a while: the peer is not to blame for that."""
        # what came meanwhile waits to be read, and time that nobody looked at is no silence
        self._heard_at += seconds
        self._since += seconds
        return []

    def silent_for(self, now: float) -> float:
        """For how many seconds nothing came from the peer, while the link is up."""
        return now - self._heard_at if self.is_up else 0.0

    # ------------------------------------------------------------------ transitions
    def _connect(self, now: float) -> list[Instruction]:
        self.state = PeerState.CONNECTING
        self._since = now
        self._failing_since = None
        return [*self._dial(now), Say(MessageKind.HELLO)]

    def _dial(self, now: float) -> list[Instruction]:
        self.channel = self._next_channel()
        self._connected = [False, False]
        self._dial_at = None
        self._sequence = [0, 0]
        self._sent_before += self._sent_bytes
        self._sent_bytes = self._taken_bytes = 0
        self._sent_at = now
        return [Dial(self.channel)]

    def _dropped_channel(self) -> int:
        channel, self.channel = self.channel, 0
        return channel

    def _welcomed(self, header: Header, hello: Hello, now: float) -> list[Instruction]:
        """The peer's channel is the one that counts from now on."""
        self.hello = hello
        self._heard_channel = self._newest_channel = header.channel
        self._expected = [0, 0]
        # the hello or welcome was number 0
        self._expected[header.lane] = 1
        self._heard_before += self._heard_bytes
        self._heard_bytes = self._told_bytes = 0
        self._heard_at = self._told_at = now
        self.state = PeerState.UP
        return [Attach(header.sender, header.channel)]

    def _is_late(self, header: Header) -> bool:
        """Whether a hello or welcome is no news: of an incarnation or a channel that was replaced."""
        # a hello is the first message of its channel; another place in it is not one that a link would give it
        if header.sequence != 0 or header.lane is not Lane.CONTROL or header.sender in self._fenced:
            return True
        # the numbers of channels grow, so that of two hellos the later one is known, whichever comes first
        known = self._newest_channel if header.sender == self.incarnation else self._rivals.get(header.sender, 0)
        return header.channel <= known

    def _know(self, incarnation: int) -> None:
        """Notes who the peer is; one that it replaces may still prove to be the one that lives."""
        if incarnation == self.incarnation:
            return
        if self.incarnation is not None:
            self._rivals[self.incarnation] = self._newest_channel
            # as many as are fenced: who sends many hellos must not fill the memory
            if len(self._rivals) > _FENCED:
                del self._rivals[next(iter(self._rivals))]
        self.incarnation = incarnation
        self._newest_channel = self._rivals.pop(incarnation, 0)

    def _fence_rivals(self) -> None:
        """The peer lives: whoever it replaced never returns, since two cannot listen at one address at one time."""
        self._fenced.extend(self._rivals)
        self._rivals.clear()

    def _replace(self, header: Header) -> list[Instruction]:
        """Ends what a hello shows to be over."""
        known, is_up = self.incarnation, self.is_up
        error: OpError = UnavailableError(
            None, None, f"{self} has opened its connection anew; what was sent may be lost"
        )
        if known is not None and header.sender != known:
            error = AbortedError(
                None, None, f"{self} was started again, and has lost what it was doing; try again from where you can"
            )
        # what waits for a link that is not up was not sent yet, and can go to whoever has come
        return self._fail(error) if is_up else []

    def _reopen(self, now: float, reason: str) -> list[Instruction]:
        error = UnavailableError(
            None, None, f"{reason}; what was sent may be lost: try again when it is up, or start it again"
        )
        return [*self._fail(error), *self._connect(now)]

    def _lose(self, error: OpError, is_farewell: bool = False) -> list[Instruction]:
        done = self._fail(error, is_farewell)
        self.state = PeerState.LOST
        self._late_since = None
        return done

    def _fail(self, error: OpError, is_farewell: bool = False) -> list[Instruction]:
        self.error = error
        # `_newest_channel` stays: a late hello of the channel that has failed must not open it again
        self._heard_channel = 0
        self._dial_at = None
        hung_up: list[Instruction] = [HangUp(self._dropped_channel(), is_farewell)] if self.channel else []
        return [*hung_up, FailAll(error, self.hello)]

    def _refuse(self, header: Header, reason: str, now: float) -> list[Instruction]:
        if self.is_up:
            return []
        done: list[Instruction] = [HangUp(self._dropped_channel())] if self.channel else []
        done += self._dial(now)
        reply = Say(MessageKind.REFUSAL, header.channel, f"{self._me.name or 'the process'}: {reason}", self.channel)
        self.error = self._foreign(f"its hello was refused, since {reason}")
        self.state = PeerState.LOST
        self._late_since = None
        # the channel carries nothing but the refusal
        return [*done, reply, HangUp(self._dropped_channel(), is_farewell=True), FailAll(self.error, self.hello)]

    def _heard_late(self, header: Header, now: float) -> list[Instruction]:
        """Tells a peer that does not know it that its channel is closed."""
        if self.state is not PeerState.LOST or header.sender != self.incarnation or header.kind is MessageKind.GOODBYE:
            return _DROP
        if self._late_since is None:
            self._late_since = now
        # not at the first: most of what comes late was on its way when the link failed
        return self._connect(now) if now - self._late_since >= TELL_LATE_AFTER else _DROP

    def _foreign(self, reason: str) -> OpError:
        return FailedPreconditionError(None, None, f"{self} and this process cannot work together: {reason}")

    def _silent(self, since: float, now: float) -> OpError:
        return UnavailableError(
            None,
            None,
            f"{self} has been silent for {now - since:.0f} s; look whether it still runs and can be reached, "
            "and start it again if not",
        )
