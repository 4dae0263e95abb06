"""Places of a simulated cluster: messages go by the links of real ones (`distributed.links`), and take their time.

A `LinkedPlace` carries out what its links say: it dials, says hello and welcome, numbers what is sent, gives signs of
life, and hands over what a link finds in order. Messages have sizes and no bytes. What a thread of the process has to
say is sent by the thread of its network; it goes by a wire to the other's, and is taken by the thread that receives.

#: Order holds within a lane on the whole way, as between real processes: a link that found a gap would fail.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.distributed.links import DELIVER, Deliver, Dial, FailAll, Instruction, Link, PeerState, Ready, Say
from anabranch.distributed.peer_table import TICK
from anabranch.distributed.wire import HEADER_BYTES, Beat, Header, Hello, Lane, MessageKind
from anabranch.errors import OpError
from anabranch.tools.simulated_machines import Call, Events, Machine, MachineThread, PythonLock, Wire

#: a message of more bytes goes by the bulk lane
_BULK_ABOVE: Final = 1 << 16
#: longer than that between two ticks, and the process itself was held up
_PAUSE: Final = 2.0
_NO_BYTES: Final = frozenset((MessageKind.HELLO, MessageKind.WELCOME, MessageKind.BEAT, MessageKind.GOODBYE))


@dataclass(frozen=True, slots=True)
class MessageCosts:
    """What messages take.

    Attributes:
        receive: seconds of the receiving thread for each that it takes, with what it does about it.
        network: seconds of the network's thread for each that is sent or comes.
        rest: the share of both that comes after what they are for: nobody waits for it.
        under_way: seconds between two processes.
        receive_per_byte: seconds of the receiving thread for each byte, with what it takes to send one.
        bytes_per_second: of a machine's link, in each direction; 0: as many as there are.
    """

    receive: float = 0.0
    network: float = 0.0
    rest: float = 0.0
    under_way: float = 0.0
    receive_per_byte: float = 0.0
    bytes_per_second: float = 0.0


class _Said(NamedTuple):
    """A message."""

    header: Header
    #: what the link's own say; of others, what is done where it is delivered
    body: Hello | Beat | Call


class LinkedPlace:
    """See the module docstring.

    Args:
        name: of its task.
        machine: that its threads run on.
        lost: told whose link has failed, and why.

    Attributes:
        threads: of Python in its process share this lock.
        links: to other places.
    """

    _incarnations = itertools.count(1)

    def __init__(
        self,
        events: Events,
        name: str,
        machine: Machine,
        costs: MessageCosts,
        lost: Callable[[LinkedPlace, OpError], None],
    ) -> None:
        self.name, self.machine = name, machine
        self._events, self._costs, self._lost = events, costs, lost
        self.lock = PythonLock()
        self._receiver, self._network = MachineThread(machine, self.lock), MachineThread(machine)
        self._incarnation = next(self._incarnations)
        self._channels = itertools.count(1)
        self._hello = Hello("simulated", name, f"{name}:1", 1)
        self.links: dict[LinkedPlace, Link] = {}
        #: of each other place, what is sent when the link is up
        self._pending: dict[LinkedPlace, list[tuple[MessageKind, float, Call]]] = {}
        #: for each lane; what is small does not wait for what is large
        self._out = [Wire(events, costs.bytes_per_second, costs.under_way) for _ in Lane]
        self._in = Wire(events, costs.bytes_per_second)
        self._delivered = 0
        self._ticked_at = 0.0
        events.after(TICK, self._tick_later)

    def send(self, to: LinkedPlace, kind: MessageKind, size: float, done: Call) -> None:
        """Sends a message of so many bytes; `done` is called where it is delivered, once at most."""
        link = self._link(to)
        if link.is_up:
            self._write(to, kind, size, done)
        else:
            # first: an instruction may be to send what waits
            self._pending.setdefault(to, []).append((kind, size, done))
            self._follow(to, link.open(self._events.now))

    def _link(self, to: LinkedPlace) -> Link:
        link = self.links.get(to)
        if link is None:
            link = self.links[to] = Link(self._hello, self._incarnation, to._hello.address, self._channels.__next__)
        return link

    # ------------------------------------------------------------------ what links say
    def _follow(self, to: LinkedPlace, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Dial(channel):
                    self._events.after(self._costs.under_way, functools.partial(self._connected, to, channel))
                case Say(kind, answers):
                    self._say(to, kind, answers)
                case Ready():
                    for message in self._pending.pop(to, ()):
                        self._write(to, *message)
                case FailAll(error):
                    self._pending.pop(to, None)
                    self._lost(to, error)
                # what comes of a channel is told by its header; connections that are hung up have no other end here

    def _connected(self, to: LinkedPlace, channel: int) -> None:
        for lane in Lane:
            self._follow(to, self.links[to].connected(channel, lane))

    def _say(self, to: LinkedPlace, kind: MessageKind, answers: int) -> None:
        link, now = self.links[to], self._events.now
        is_beat = kind is MessageKind.BEAT
        body = link.next_beat(self._delivered, now) if is_beat else self._hello._replace(answers=answers)
        self._carry(to, kind, Lane.CONTROL, link.next_sequence(Lane.CONTROL, 0, now), 0, body)

    def _write(self, to: LinkedPlace, kind: MessageKind, size: float, done: Call) -> None:
        lane = Lane.BULK if size > _BULK_ABOVE else Lane.CONTROL
        sequence = self.links[to].next_sequence(lane, int(size) + HEADER_BYTES, self._events.now)
        self._carry(to, kind, lane, sequence, int(size), done)

    # ------------------------------------------------------------------ the way of a message
    def _carry(
        self, to: LinkedPlace, kind: MessageKind, lane: Lane, sequence: int, size: int, body: Hello | Beat | Call
    ) -> None:
        link = self.links[to]
        header = Header(kind, lane, self._incarnation, link.incarnation or 0, link.channel, sequence, 0, 1, size)
        said, costs = _Said(header, body), self._costs
        network, rest = costs.network * (1 - costs.rest), costs.network * costs.rest
        self._network.do(network, lambda: self._out[lane].carry(size, lambda: to._arrives(said, self)), rest)

    def _arrives(self, said: _Said, sender: LinkedPlace) -> None:
        costs, header = self._costs, said.header
        # what the links say is read, and nothing is done about it
        is_own = header.kind in _NO_BYTES
        receive = 0.0 if is_own else costs.receive + header.bytes * costs.receive_per_byte
        network, share = costs.network * (1 - costs.rest), 1 - costs.rest

        def take() -> None:
            self._receiver.do(receive * share, lambda: self._take(said, sender), receive * costs.rest)

        if header.lane is Lane.BULK:
            self._in.carry(header.bytes, lambda: self._network.do(network, take, costs.network * costs.rest))
        else:
            self._network.do(network, take, costs.network * costs.rest)

    def _take(self, said: _Said, sender: LinkedPlace) -> None:
        header, body = said
        link, now = self._link(sender), self._events.now
        if isinstance(body, Hello):
            heard = link.heard_hello if header.kind is MessageKind.HELLO else link.heard_welcome
            self._follow(sender, heard(header, body, now))
            return
        size = 0 if header.kind in _NO_BYTES else header.bytes + HEADER_BYTES
        instructions = link.heard(header, size, now)
        # the very list that most messages have: there is nothing to follow
        if instructions is not DELIVER:
            self._follow(sender, instructions)
            if not any(isinstance(instruction, Deliver) for instruction in instructions):
                return
        self._delivered += 1
        if isinstance(body, Beat):
            self._follow(sender, link.heard_beat(body))
        else:
            body()

    # ------------------------------------------------------------------ time
    def _tick_later(self) -> None:
        # by the thread that receives: a machine that is stopped looks at the time when it goes on
        self._receiver.do(0.0, self._tick)

    def _tick(self) -> None:
        now = self._events.now
        passed, self._ticked_at = now - self._ticked_at, now
        for to, link in list(self.links.items()):
            if passed > _PAUSE:
                self._follow(to, link.paused(passed - TICK))
            instructions = link.tick(now)
            if instructions:
                self._follow(to, instructions)
        self._events.after(TICK, self._tick_later)

    def suspects(self) -> list[str]:
        """Whom it has not heard for long."""
        return [to.name for to, link in self.links.items() if link.state is PeerState.SUSPECT]
