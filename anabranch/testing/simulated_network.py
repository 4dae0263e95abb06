"""Processes, their connections and their time, simulated in one thread: the same seed replays the same run.

What runs on it is the real thing: links and peers, `distributed.peer_table` in place of an endpoint, and whatever is
built on these. Only sockets, threads and clocks are simulated. A process may crash, or do nothing for a while; the way
from one process to another may be slow, or be cut, in one direction or both; a connection may break with messages in
it, lose one, or carry one twice; and a copy of an old greeting may come late.

    >>> simulation = SimulatedTime(seed=1)
    >>> process = simulation.process("a:1")
    >>> said = []
    >>> cancel = process.call_at(2.0, lambda: said.append(simulation.now))
    >>> simulation.run_until(lambda: bool(said), seconds=10)
    True
    >>> said
    [2.0]
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import struct
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from anabranch.distributed.connections import ANSWER_WITHIN, PeerConnection
from anabranch.distributed.links import Instruction, Link
from anabranch.distributed.peer_table import TICK, PeerTable
from anabranch.distributed.peers import Peer
from anabranch.distributed.place import MessageHandler
from anabranch.distributed.wire import Hello, Lane, Limits, MessageKind
from anabranch.errors import DeadlineExceededError, OpError
from anabranch.runtime.messages import Buffer, Frames
from anabranch.runtime.protocols import LinkTraffic

#: offsets in a header; see `distributed.wire`
_KIND_AT: Final = 6
_RECEIVER_AT: Final = 16
_GREETINGS: Final = (MessageKind.HELLO, MessageKind.WELCOME, MessageKind.REFUSAL)
#: of the hellos and welcomes that were sent the last so many are kept, to come again
_GREETINGS_KEPT: Final = 50
#: seconds between two attempts to connect
_DIAL_EVERY = 0.2


class ProcessDied(BaseException):
    """Ends what a simulated process was doing when it crashed."""


class SimulatedTime:
    """The time, and what is to happen. Not thread-safe.

    Attributes:
        now: the time, in seconds.
        dice: whatever is random comes from here.
        trace: a checksum of all that has happened.
        events: how much that was.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0.0
        self.dice = random.Random(seed)
        self.trace = 0
        self.events = 0
        self.network = SimulatedNetwork(self)
        self._heap: list[tuple[float, int, SimulatedProcess | None, Callable[[], None]]] = []
        self._numbers = itertools.count(1)

    def process(self, address: str) -> SimulatedProcess:
        """A new process."""
        return SimulatedProcess(self, address)

    def at(self, when: float, process: SimulatedProcess | None, call: Callable[[], None]) -> None:
        """Something happens in a process, unless it is dead by then; where it does nothing for a while, later."""
        heapq.heappush(self._heap, (max(when, self.now), next(self._numbers), process, call))

    def run_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Lets time pass until something holds, or so many seconds are over; whether it holds."""
        until = self.now + seconds
        while not condition():
            if not self._heap or self._heap[0][0] > until:
                self.now = until
                return condition()
            self._next()
        return True

    def _next(self) -> None:
        when, number, process, call = heapq.heappop(self._heap)
        self.now = when
        if process is not None and not process.is_alive:
            return
        if process is not None and process.sleeps_until > when:
            # with its number: what was to happen first still does
            heapq.heappush(self._heap, (process.sleeps_until, number, process, call))
            return
        self.events += 1
        self.note(f"{when:.9f} {process.address if process is not None else ''}")
        with contextlib.suppress(ProcessDied):
            call()

    def note(self, what: str) -> None:
        """Makes something part of the trace."""
        self.trace = zlib.crc32(what.encode(), self.trace)


class SimulatedProcess:
    """A process: what happens in it happens no more once it is dead. See `distributed.network.Timing`."""

    def __init__(self, simulation: SimulatedTime, address: str) -> None:
        self.simulation = simulation
        self.address = address
        self.is_alive = True
        self.sleeps_until = 0.0

    def now(self) -> float:
        """See `distributed.network.Timing`."""
        return self.simulation.now

    def call_at(self, when: float, function: Callable[[], None]) -> Callable[[], None]:
        """See `distributed.network.Timing`."""
        wanted = [function]

        def call() -> None:
            if wanted:
                wanted.pop()()

        self.simulation.at(when, self, call)
        return wanted.clear

    def pause(self, seconds: float) -> None:
        """See `distributed.network.Timing`."""
        self.wait(lambda: False, seconds)

    def soon(self, call: Callable[[], None]) -> None:
        """Runs something as another thread would: at some time."""
        dice = self.simulation.dice
        most = dice.choice((0.0, 0.001, 0.02, 0.5)) if dice.random() < 0.85 else 4.0
        self.simulation.at(self.simulation.now + most * dice.random(), self, call)

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Lets time pass for one that waits inside of the process.

        Raises:
            ProcessDied: it has died meanwhile.
        """
        simulation = self.simulation
        done = simulation.run_until(lambda: not self.is_alive or condition(), seconds)
        if self.is_alive and self.sleeps_until > simulation.now:
            simulation.run_until(lambda: not self.is_alive, self.sleeps_until - simulation.now)
        if not self.is_alive:
            raise ProcessDied
        return done or condition()


class SimulatedNetwork:
    """All places, and the ways between them.

    Attributes:
        places: those that are alive, by their addresses.
        slow: the seconds that messages take at least, by (from, to).
        cut: the ways that nothing goes by, by (from, to).
        connections: those that are not closed.
        fail: told what does not hold of the links.
        greetings: hellos and welcomes that were sent, the last ones, and where to.
    """

    def __init__(self, simulation: SimulatedTime) -> None:
        self.simulation = simulation
        self.fail: Callable[[str], None] = _nobody
        #: processes are numbered in the order in which they start
        self.births = itertools.count(1)
        self.places: dict[str, SimulatedPlace] = {}
        self.slow: dict[tuple[str, str], float] = {}
        self.cut: dict[tuple[str, str], None] = {}
        self.connections: dict[SimulatedConnection, None] = {}
        self.greetings: deque[tuple[str, bytes, Frames]] = deque(maxlen=_GREETINGS_KEPT)

    def repeat_greeting(self) -> None:
        """A late copy of a hello or welcome comes to whoever has the address now that it was sent to."""
        if self.greetings:
            address, header, frames = self.simulation.dice.choice(self.greetings)
            place = self.places.get(address)
            if place is not None:
                self.simulation.at(
                    self.simulation.now, place.process, lambda: place.take_message(header, list(frames), Lane.CONTROL)
                )

    def crash(self, place: SimulatedPlace) -> None:
        """A process is killed: what it has sent just now may be lost, and others find its connections broken."""
        place.process.is_alive = False
        self.move_away(place)
        for connection in list(self.connections):
            if connection.place is place:
                connection.lose_last()
                del self.connections[connection]

    def move_away(self, place: SimulatedPlace) -> None:
        """A process cannot be reached any more at its address, which another may take; it does not know that."""
        if self.places.get(place.hello.address) is place:
            del self.places[place.hello.address]
        for connection in list(self.connections):
            if connection.goes_to(place):
                connection.break_off()

    def set_cut(self, source: str, destination: str, is_cut: bool) -> None:
        """Cuts the way from one address to another, or opens it again: what waited then goes on."""
        if is_cut:
            self.cut[source, destination] = None
        else:
            self.cut.pop((source, destination), None)
            for connection in list(self.connections):
                connection.go_on()

    def speed_up(self, source: str, destination: str) -> None:
        """Messages from one address to another take no longer than elsewhere again."""
        self.slow.pop((source, destination), None)


class SimulatedPlace(PeerTable):
    """A place in the simulated network; see `distributed.peer_table`."""

    def __init__(self, process: SimulatedProcess, name: str, handler: MessageHandler) -> None:
        super().__init__(handler, Limits(), process.now)
        self.process = process
        self.network = process.simulation.network
        self.incarnation = process.simulation.dice.getrandbits(63) + 1
        self.hello = Hello("simulated", name, process.address, 1)
        self.network.places[process.address] = self
        self.birth = next(self.network.births)
        #: of each address, the last process whose message was delivered here
        self._heard: dict[str, int] = {}
        #: the newest channel of each process that was believed here, by address and incarnation
        self._believed: dict[str, dict[int, int]] = {}
        #: processes that were replaced here by one that was heard
        self._replaced: dict[int, None] = {}
        self._tick_later()

    def _tick_later(self) -> None:
        self.process.simulation.at(self.now() + TICK, self.process, self._ticks)

    def _ticks(self) -> None:
        if not self._is_closed:
            self.tick()
            self._tick_later()

    def attach(self, peer: Peer, incarnation: int, channel: int) -> None:
        """A channel was opened: it must be newer than those before, and of no process that was replaced."""
        believed = self._believed.setdefault(peer.announced, {})
        if channel <= believed.get(incarnation, 0):
            self.network.fail(f"{self.hello.name} went back to an older channel of {peer.announced}")
        if incarnation in self._replaced:
            self.network.fail(f"{self.hello.name} went back to a process that was replaced at {peer.announced}")
        believed[incarnation] = channel
        super().attach(peer, incarnation, channel)

    def takes(self, data: bytes, frames: Frames, lane: Lane) -> bool:
        """Takes a message; whether it was delivered."""
        before = self.handed_over
        self.take_message(data, frames, lane)
        return self.handed_over > before

    def delivered(self, data: bytes, sender: SimulatedPlace) -> None:
        """A message was delivered here: it must be meant for this process, and of no process that was replaced."""
        address = sender.hello.address
        if struct.unpack_from("<Q", data, _RECEIVER_AT)[0] != self.incarnation:
            self.network.fail(f"{self.hello.name} took a message for a process that was here before")
        if sender.birth < self._heard.get(address, 0):
            self.network.fail(f"{self.hello.name} took a message of a process that was replaced at {address}")
        self._heard[address] = sender.birth
        for incarnation in self._believed[address]:
            if incarnation != sender.incarnation:
                self._replaced[incarnation] = None

    def connect(self, peer: Peer, lane: Lane, channel: int) -> SimulatedConnection:
        """See `distributed.place.Place`."""
        return SimulatedConnection(self, peer, lane, channel)

    def refuse_receiver(self, what: str) -> None:
        """See `distributed.place.Place`: here, who waits lets time pass."""

    def close(self) -> None:
        """Says goodbye, and takes no more."""
        self.stop_links()
        self._is_closed = True
        self.network.places.pop(self.hello.address, None)


class SimulatedConnection:
    """Carries messages from a place to another; see `distributed.place.Connection`.

    As ZeroMQ does, it connects again when it broke, and goes on with what was not under way: the receiver then finds a
    gap.
    """

    def __init__(self, place: SimulatedPlace, peer: Peer, lane: Lane, channel: int) -> None:
        self.place, self.peer, self.lane, self.channel = place, peer, lane, channel
        self._network, self._simulation = place.network, place.process.simulation
        self._way = place.hello.address, peer.address
        self._target: SimulatedPlace | None = None
        self._waiting: list[tuple[bytes, Frames]] = []
        #: numbers of messages under way; those that are taken out are lost
        self._under_way: dict[int, None] = {}
        #: numbers of those that were lost, or have come before: neither they nor what follows may be delivered
        self._lost: dict[int, None] = {}
        #: of which message another is a copy
        self._copies: dict[int, int] = {}
        self._numbers = itertools.count(1)
        self._arrives = 0.0
        self._is_closing = self._repeats = self._loses = False
        self._network.connections[self] = None
        self._after(self._latency(), self._dial)

    def send(self, parts: Sequence[Buffer]) -> None:
        """Sends one message."""
        self._waiting.append((bytes(parts[0]), [bytes(part) for part in parts[1:]]))
        self.go_on()

    def close(self, *, is_farewell: bool) -> None:
        """Closes it; what was sent just before still leaves if it is a farewell."""
        if is_farewell:
            self._is_closing = True
            self._simulation.at(self._simulation.now + 0.5, None, self._forget)
        else:
            self.lose_last()
            self._forget()

    def _forget(self) -> None:
        self._waiting.clear()
        self._network.connections.pop(self, None)

    @property
    def _is_open(self) -> bool:
        return self in self._network.connections

    def lose_last(self) -> None:
        """The last of what is under way never arrives."""
        keep = self._simulation.dice.randrange(len(self._under_way) + 1)
        for number in list(self._under_way)[keep:]:
            self._lose(number)

    def _lose(self, number: int) -> None:
        # a message and its copy are lost together: one that is lost has nothing behind it, and a copy harms nobody then
        original = self._copies.get(number, number)
        is_lost = original in self._under_way
        for one in (original, *(copy for copy, of in self._copies.items() if of == original)):
            self._under_way.pop(one, None)
            self._lost.pop(one, None)
        if is_lost:
            self._lost[original] = None

    def lose_one(self) -> None:
        """One message never arrives: of those that are under way, or else the next."""
        if self._under_way:
            self._lose(self._simulation.dice.choice(list(self._under_way)))
        else:
            # at most times nothing is under way: links are quick
            self._loses = True

    def repeat_next(self) -> None:
        """The next message arrives twice."""
        self._repeats = True

    def goes_to(self, place: SimulatedPlace) -> bool:
        """Whether it has reached a place."""
        return self._target is place

    def break_off(self) -> None:
        """The connection breaks."""
        if self._target is None or not self._is_open:
            return
        self.lose_last()
        self._target = None
        self._after(self._latency(), lambda: self._tell(lambda link, now: link.broken(self.channel, now)))
        self._after(_DIAL_EVERY, self._dial)

    def go_on(self) -> None:
        """Sends what waits, if nothing is in the way."""
        while self._waiting and self._target is not None and self._way not in self._network.cut:
            header, frames = self._waiting.pop(0)
            number = self._put_on_its_way(header, frames)
            if self._repeats:
                self._copies[self._put_on_its_way(header, frames, again=True)] = number
            if self._loses:
                self._lose(number)
            self._loses = self._repeats = False

    def _put_on_its_way(self, header: bytes, frames: Frames, again: bool = False) -> int:
        number, target = next(self._numbers), self._target
        assert target is not None
        self._under_way[number] = None
        if header[_KIND_AT] in (MessageKind.HELLO, MessageKind.WELCOME):
            self._network.greetings.append((self._way[1], header, frames))
        # a hello or welcome that comes again says nothing new, and does no harm
        if again and header[_KIND_AT] not in _GREETINGS:
            self._lost[number] = None
        # order holds: none overtakes the one before
        self._arrives = max(self._arrives, self._simulation.now + self._latency())

        def arrive() -> None:
            if self._under_way.pop(number, 0) is not None or target._is_closed:
                return
            if target.takes(header, list(frames), self.lane):
                target.delivered(header, self.place)
                if self._lost and min(self._lost) <= number:
                    self._network.fail(f"a message was delivered behind one of {self._way} that was lost, or twice")

        self._simulation.at(self._arrives, target.process, arrive)
        return number

    def _dial(self) -> None:
        if not self._is_open or self._target is not None:
            return
        backward = self._way[1], self._way[0]
        if self._way in self._network.cut or backward in self._network.cut:
            self._after(_DIAL_EVERY, self._dial)
            return
        target = self._network.places.get(self._way[1])
        if target is None or not target.process.is_alive:
            self._tell(lambda link, now: link.refused(self.channel, self.lane, now))
            self._after(_DIAL_EVERY, self._dial)
            return
        self._target = target
        self._tell(lambda link, now: link.connected(self.channel, self.lane))
        self.go_on()

    def _tell(self, event: Callable[[Link, float], list[Instruction]]) -> None:
        if self._is_open and not self._is_closing:
            self.peer.take(event)

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self._simulation.at(self._simulation.now + seconds, self.place.process, call)

    def _latency(self) -> float:
        dice = self._simulation.dice
        return self._network.slow.get(self._way, 0.0) * dice.random() + dice.choice((0.0001, 0.001, 0.01)) * (
            0.5 + dice.random()
        )


def _nobody(what: str) -> None:
    """Is told what does not hold where nobody watches."""


class SimulatedTasks:
    """Reaches tasks from a place; see `distributed.network.TaskNetwork`."""

    def __init__(self, place: SimulatedPlace) -> None:
        self.place = place

    def connect(self, address: str) -> TaskCaller:
        """See `distributed.network.TaskNetwork`."""
        return TaskCaller(self.place, self.place.peer(address))

    def traffic(self) -> list[LinkTraffic]:
        """See `distributed.network.TaskNetwork`."""
        return self.place.traffic()

    def expect(self) -> None:
        """See `distributed.network.TaskNetwork`: nobody sleeps here."""

    def make_board(self) -> None:
        """See `distributed.network.TaskNetwork`: nothing is shared here."""

    def has_left(self, name: str, address: str) -> bool:
        """See `distributed.network.TaskNetwork`."""
        return self.place.has_left(name, address)


class TaskCaller(PeerConnection):
    """The way to a task: who calls it lets time pass until it answers."""

    def __init__(self, place: SimulatedPlace, peer: Peer) -> None:
        super().__init__(peer)
        self._place, self._peer_of_call = place, peer

    def call(self, frames: Frames) -> Frames:
        """See `runtime.messages.Transport`."""
        outcome: list[Frames | OpError] = []
        number = self._peer_of_call.request(frames, outcome.append)
        if not self._place.process.wait(lambda: bool(outcome), ANSWER_WITHIN):
            self._peer_of_call.forget(number)
            raise DeadlineExceededError(None, None, f"{self._peer_of_call!r} did not answer")
        (reply,) = outcome
        if isinstance(reply, OpError):
            raise reply
        return reply
