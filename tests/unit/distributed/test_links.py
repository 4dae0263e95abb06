"""Links between two processes over a network that loses, cuts and repeats, and whose ends are started again."""

from __future__ import annotations

import itertools
import random
from collections import deque

import pytest

from anabranch.distributed.links import (
    BEAT_EVERY,
    DIAL_AGAIN_AFTER,
    LOST_AFTER,
    REFUSED_FOR,
    SUSPECT_AFTER,
    TAKEN_BEFORE_BEAT,
    TELL_LATE_AFTER,
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
from anabranch.distributed.wire import Beat, Header, Hello, Lane, MessageKind
from anabranch.errors import (
    AbortedError,
    CancelledError,
    FailedPreconditionError,
    OpError,
    UnauthenticatedError,
    UnavailableError,
)

ADDRESSES = ("a:1", "b:1")


class Message:
    """A message under way; `number` tells the messages of a program apart."""

    def __init__(self, header: Header, said: Say | None = None, number: int = 0, body: object = None) -> None:
        self.header, self.said, self.number, self.body = header, said, number, body


class End:
    """One process, with its link to the other."""

    def __init__(self, network: Network, side: int, incarnation: int, cluster: str = "c") -> None:
        self.network, self.side, self.incarnation = network, side, incarnation
        self.me = Hello(cluster, f"p{side}", ADDRESSES[side], 2)
        self.link = Link(self.me, incarnation, ADDRESSES[1 - side], itertools.count(1).__next__)
        self.pending: deque[int] = deque()
        self.sent: list[tuple[int, int, int]] = []  # (incarnation, channel, number)
        self.delivered: list[tuple[int, int, int]] = []
        self.failures: list[OpError] = []

    def do(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Dial(channel):
                    self.network.channels[self.side, self.incarnation, channel] = deque()
                case HangUp(channel, is_farewell):
                    if not is_farewell:
                        self.network.close(self, channel)
                case Say():
                    self.say(instruction)
                case Ready():
                    while self.pending:
                        self.transmit(self.pending.popleft())
                case FailAll(error):
                    self.failures.append(error)
                    self.pending.clear()

    def header(self, kind: MessageKind, channel: int, size: int) -> Header:
        sequence = self.link.next_sequence(Lane.CONTROL, size, self.network.now)
        receiver = self.link.incarnation or 0
        return Header(kind, Lane.CONTROL, self.incarnation, receiver, channel, sequence, 0, 0, size)

    def say(self, said: Say) -> None:
        channel = said.channel or self.link.channel
        body: object = self.me._replace(answers=said.answers)
        if said.kind is MessageKind.BEAT:
            body = self.link.next_beat(0, self.network.now)
        self.network.put(self, channel, Message(self.header(said.kind, channel, 0), said, body=body))

    def transmit(self, number: int) -> None:
        channel = self.link.channel
        assert channel
        self.sent.append((self.incarnation, channel, number))
        self.network.put(self, channel, Message(self.header(MessageKind.MESSAGE, channel, 1), number=number))

    def send(self, number: int) -> None:
        if self.link.is_up:
            self.transmit(number)
        else:
            self.do(self.link.open(self.network.now))
            self.pending.append(number)

    def hear(self, message: Message) -> None:
        link, now, header, body = self.link, self.network.now, message.header, message.body
        if header.kind is MessageKind.HELLO:
            assert isinstance(body, Hello)
            self.do(link.heard_hello(header, body, now))
        elif header.kind is MessageKind.WELCOME and header.receiver not in (0, self.incarnation):
            self.do(link.heard_mistaken(header, now))
        elif header.kind is MessageKind.WELCOME:
            assert isinstance(body, Hello)
            self.do(link.heard_welcome(header, body, now))
        elif header.kind is MessageKind.REFUSAL:
            assert message.said is not None
            self.do(link.heard_refusal(message.said.answers, message.said.reason))
        else:
            done = link.heard(header, header.bytes, now)
            if any(isinstance(one, Deliver) for one in done):
                if isinstance(body, Beat):
                    self.do(link.heard_beat(body))
                elif header.kind is MessageKind.MESSAGE:
                    self.delivered.append((header.sender, header.channel, message.number))
            self.do(done)


class Network:
    """Two ends, what is under way between them, and the time."""

    def __init__(self, clusters: tuple[str, str] = ("c", "c")) -> None:
        self.now = 100.0
        self.channels: dict[tuple[int, int, int], deque[Message]] = {}
        self.incarnations = itertools.count(1001)
        self.ends = [End(self, side, next(self.incarnations), clusters[side]) for side in (0, 1)]
        self.ended: list[End] = []
        self.greetings: list[tuple[int, Message]] = []

    def put(self, end: End, channel: int, message: Message) -> None:
        if message.header.kind in (MessageKind.HELLO, MessageKind.WELCOME):
            self.greetings.append((1 - end.side, message))
        self.channels.setdefault((end.side, end.incarnation, channel), deque()).append(message)

    def close(self, end: End, channel: int) -> None:
        self.channels.pop((end.side, end.incarnation, channel), None)

    def step(self, key: tuple[int, int, int]) -> None:
        """One message arrives."""
        side, incarnation, channel = key
        sender = self.ends[side]
        if incarnation == sender.incarnation and channel == sender.link.channel:
            sender.do(sender.link.connected(channel, Lane.CONTROL))
        self.ends[1 - side].hear(self.channels[key].popleft())

    def settle(self) -> None:
        """All that is under way arrives."""
        for _ in range(1000):
            busy = [key for key, queue in self.channels.items() if queue]
            if not busy:
                return
            self.step(busy[0])
        raise AssertionError("they talk without end")

    def pass_time(self, seconds: float, silent: bool = False) -> None:
        for _ in range(round(seconds / 0.25)):
            self.now += 0.25
            for end in self.ends:
                end.do(end.link.tick(self.now))
            if not silent:
                self.settle()

    def cut(self, end: End, lost: int) -> None:
        """The connection of one end breaks; the last messages in it are lost."""
        channel = end.link.channel
        queue = self.channels.get((end.side, end.incarnation, channel))
        if queue is not None:
            for _ in range(min(lost, len(queue))):
                queue.pop()
            end.do(end.link.broken(channel, self.now))

    def restart(self, side: int) -> None:
        old = self.ends[side]
        self.ended.append(old)
        self.ends[side] = End(self, side, next(self.incarnations))


@pytest.fixture
def network() -> Network:
    return Network()


def up(network: Network) -> tuple[End, End]:
    a, b = network.ends
    a.do(a.link.open(network.now))
    network.settle()
    assert a.link.state is b.link.state is PeerState.UP
    return a, b


# ---------------------------------------------------------------------- single transitions
def test_a_hello_is_welcomed(network: Network) -> None:
    a, b = up(network)
    assert (a.link.incarnation, b.link.incarnation) == (b.incarnation, a.incarnation)
    assert str(a.link) == "p1 at b:1"
    assert not a.failures
    assert not b.failures


def test_both_may_open_at_once(network: Network) -> None:
    a, b = network.ends
    for end in network.ends:
        end.do(end.link.open(network.now))
    a.send(1)
    b.send(2)
    network.settle()
    assert [end.link.state for end in network.ends] == [PeerState.UP] * 2
    assert [end.link.channel for end in network.ends] == [1, 1]
    assert [n for *_, n in a.delivered + b.delivered] == [2, 1]


def test_signs_of_life_keep_a_link_up(network: Network) -> None:
    a, b = up(network)
    network.pass_time(100)
    assert a.link.state is b.link.state is PeerState.UP
    assert not a.failures
    assert a.link.silent_for(network.now) <= BEAT_EVERY


def test_silence(network: Network) -> None:
    a, _ = up(network)
    network.pass_time(SUSPECT_AFTER - 0.25, silent=True)
    assert a.link.state is PeerState.UP
    network.pass_time(0.25, silent=True)
    assert a.link.state is PeerState.SUSPECT
    network.settle()
    assert a.link.state is PeerState.UP
    network.pass_time(LOST_AFTER, silent=True)
    assert a.link.state is PeerState.LOST
    (error,) = a.failures
    assert isinstance(error, UnavailableError)
    assert error.message.startswith("p1 at b:1 has been silent for 30 s; look whether")


def test_who_was_held_up_itself_does_not_blame_the_peer(network: Network) -> None:
    a, _ = up(network)
    network.now += 60
    a.do(a.link.paused(60))
    a.do(a.link.tick(network.now))
    assert a.link.state is PeerState.UP


def test_a_peer_that_never_answers_is_lost(network: Network) -> None:
    a, _ = network.ends
    a.do(a.link.open(network.now))
    network.pass_time(LOST_AFTER, silent=True)
    assert a.link.state is PeerState.LOST
    assert "the process at b:1 has been silent" in a.failures[0].message


def test_refused_connections_are_believed_after_a_second(network: Network) -> None:
    a, _ = network.ends
    a.do(a.link.open(network.now))
    a.do(a.link.refused(1, Lane.CONTROL, network.now))
    network.now += REFUSED_FOR - 0.1
    a.do(a.link.refused(1, Lane.CONTROL, network.now))
    assert a.link.state is PeerState.CONNECTING
    network.now += 0.1
    a.do(a.link.refused(7, Lane.CONTROL, network.now))
    assert a.link.state is PeerState.CONNECTING
    a.do(a.link.refused(1, Lane.CONTROL, network.now))
    assert a.link.state is PeerState.LOST
    # the next use dials anew
    assert a.link.open(network.now)[0] == Dial(2)


def test_a_connection_that_breaks_at_once_is_dialed_again(network: Network) -> None:
    a, _ = network.ends
    a.do(a.link.open(network.now))
    while a.link.state is PeerState.CONNECTING:
        a.do(a.link.broken(a.link.channel, network.now))
        network.now += DIAL_AGAIN_AFTER
        a.do(a.link.tick(network.now))
    assert 3 < a.link._next_channel() < 15
    assert "accepts connections and closes them again" in a.failures[0].message


def test_keys_that_differ_are_told(network: Network) -> None:
    a, _ = network.ends
    a.do(a.link.open(network.now))
    a.do(a.link.unauthenticated(1))
    assert isinstance(a.failures[0], UnauthenticatedError)


def test_a_broken_link_is_opened_again_and_what_waited_fails(network: Network) -> None:
    a, b = up(network)
    network.cut(a, 0)
    assert isinstance(a.failures[0], UnavailableError)
    network.settle()
    assert a.link.state is b.link.state is PeerState.UP
    assert "opened its connection anew" in b.failures[0].message


def test_an_incarnation_that_was_replaced_does_not_return(network: Network) -> None:
    a, b = up(network)
    network.restart(1)
    new = network.ends[1]
    new.do(new.link.open(network.now))
    network.settle()
    assert a.link.incarnation == new.incarnation
    assert isinstance(a.failures[0], AbortedError)
    # it proves to live: a hello alone may be late
    new.send(1)
    network.settle()
    late = Header(MessageKind.HELLO, Lane.CONTROL, b.incarnation, 0, 9, 0, 0, 1, 0)
    assert a.link.heard_hello(late, b.me, network.now) == []
    late = late._replace(kind=MessageKind.WELCOME)
    assert a.link.heard_welcome(late, b.me, network.now) == []


def late_hello(network: Network) -> tuple[End, End, Header]:
    """Ends that are up, and a hello that the process which was at the second's address has left under way."""
    a, b = up(network)
    network.restart(1)
    a.do(a.link.broken(a.link.channel, network.now))
    network.settle()
    new = network.ends[1]
    new.send(1)
    network.settle()
    assert a.link.incarnation == new.incarnation
    # one that the first has never heard of
    return a, new, Header(MessageKind.HELLO, Lane.CONTROL, b.incarnation + 1000, 0, 1, 0, 0, 1, 0)


def test_a_late_hello_of_one_that_is_gone_does_not_end_the_one_that_lives(network: Network) -> None:
    a, b, late = late_hello(network)
    a.do(a.link.heard_hello(late, b.me, network.now))
    # its welcome comes to the one that lives, which says who it is
    network.settle()
    assert (a.link.incarnation, a.link.state, b.link.state) == (b.incarnation, PeerState.UP, PeerState.UP)
    a.send(2)
    b.send(3)
    network.settle()
    assert [number for *_, number in b.delivered] == [2]
    assert [number for *_, number in a.delivered] == [1, 3]
    # another copy of it is no news now, whatever its channel
    assert a.link.heard_hello(late._replace(channel=9), b.me, network.now) == []


def test_a_late_hello_after_which_nobody_says_anything_costs_the_silence(network: Network) -> None:
    a, b, late = late_hello(network)
    a.do(a.link.heard_hello(late, b.me, network.now))
    network.channels.clear()
    network.pass_time(LOST_AFTER, silent=True)
    assert a.link.state is PeerState.LOST
    a.send(2)
    network.settle()
    assert (a.link.incarnation, a.link.state) == (b.incarnation, PeerState.UP)


def test_an_older_channel_does_not_return_behind_a_late_hello(network: Network) -> None:
    a, b, late = late_hello(network)
    channel = b.link.channel
    a.do(a.link.heard_hello(late, b.me, network.now))
    again = Header(MessageKind.HELLO, Lane.CONTROL, b.incarnation, 0, channel, 0, 0, 1, 0)
    assert a.link.heard_hello(again, b.me, network.now) == []
    assert a.link.heard_hello(again._replace(channel=channel + 1), b.me, network.now) != []
    assert a.link.incarnation == b.incarnation


def test_a_welcome_for_another_opens_the_link_once(network: Network) -> None:
    a, b = up(network)
    mistaken = Header(MessageKind.WELCOME, Lane.CONTROL, b.incarnation, 1, b.link.channel + 1, 0, 0, 1, 0)
    assert a.link.heard_mistaken(mistaken._replace(channel=b.link.channel), network.now) == []
    assert a.link.heard_mistaken(mistaken._replace(sender=1), network.now) == []
    done = a.link.heard_mistaken(mistaken, network.now)
    assert [type(one) for one in done] == [HangUp, FailAll, Dial, Say]
    assert "took this process for the one that had its address before" in str(a.link.error)
    assert a.link.heard_mistaken(mistaken, network.now) == []


def test_who_was_welcomed_by_another_process_hears_its_first_channels(network: Network) -> None:
    """The channels of a process begin at 1, however many the one before it had."""
    a, b = up(network)
    for _ in range(5):
        network.cut(b, 0)
        network.settle()
    a.do(a.link.broken(a.link.channel, network.now))
    # in the middle of its channel: it takes this link for a second address
    welcome = Header(MessageKind.WELCOME, Lane.CONTROL, 5000, a.incarnation, 1, 3, 0, 1, 0)
    a.do(a.link.heard_welcome(welcome, b.me._replace(answers=a.link.channel), network.now))
    hello = Header(MessageKind.HELLO, Lane.CONTROL, 5000, a.incarnation, 2, 0, 0, 1, 0)
    assert a.link.heard_hello(hello, b.me, network.now) != []
    assert (a.link.incarnation, a.link.state) == (5000, PeerState.UP)


def test_many_late_hellos_take_no_more_room(network: Network) -> None:
    a, b, late = late_hello(network)
    for number in range(1000):
        a.do(a.link.heard_hello(late._replace(sender=5000 + number), b.me, network.now))
        network.channels.clear()
    assert len(a.link._rivals) <= 64


def test_an_older_channel_does_not_return(network: Network) -> None:
    a, b = up(network)
    network.cut(b, 0)
    network.settle()
    assert a.link.is_up
    late = Header(MessageKind.HELLO, Lane.CONTROL, b.incarnation, a.incarnation, 1, 0, 0, 1, 0)
    assert a.link.heard_hello(late, b.me, network.now) == []


def test_what_comes_for_another_incarnation_is_dropped(network: Network) -> None:
    a, b = up(network)
    header = b.header(MessageKind.MESSAGE, b.link.channel, 1)
    assert a.link.heard(header._replace(receiver=1), 1, network.now) == []
    assert a.link.heard(header, 1, network.now) == [Deliver()]


@pytest.mark.parametrize("change", [-1, 1])
def test_a_gap_or_repeat_closes_the_link(network: Network, change: int) -> None:
    a, b = up(network)
    header = b.header(MessageKind.MESSAGE, b.link.channel, 1)
    done = a.link.heard(header._replace(sequence=header.sequence + change), 1, network.now)
    assert [type(one) for one in done] == [HangUp, FailAll, Dial, Say]
    assert "came twice" in str(a.link.error) if change < 0 else "is missing" in str(a.link.error)


def test_a_peer_that_was_given_up_and_goes_on_is_told(network: Network) -> None:
    a, b = up(network)
    a.do(a.link.heard_malformed("nonsense"))
    assert a.link.state is PeerState.LOST
    b.send(1)
    network.settle()
    assert a.link.state is PeerState.LOST
    network.now += TELL_LATE_AFTER
    b.send(2)
    network.settle()
    assert a.link.state is b.link.state is PeerState.UP
    assert len(b.failures) == 1
    assert a.delivered == []


def test_a_goodbye(network: Network) -> None:
    a, b = up(network)
    b.do(b.link.stop())
    network.settle()
    assert isinstance(b.failures[0], CancelledError)
    assert "has stopped" in a.failures[0].message
    assert b.link.stop() == []


def test_a_foreign_cluster_is_refused() -> None:
    network = Network(("c", "d"))
    a, b = network.ends
    a.do(a.link.open(network.now))
    network.settle()
    assert [end.link.state for end in (a, b)] == [PeerState.LOST] * 2
    assert isinstance(a.failures[0], FailedPreconditionError)
    assert "p1: it belongs to the cluster 'd', not 'c'" in a.failures[0].message


def test_a_second_address_of_a_process_changes_nothing(network: Network) -> None:
    a, b = up(network)
    alias = Header(MessageKind.HELLO, Lane.CONTROL, a.incarnation, 0, 2, 0, 0, 1, 0)
    assert b.link.heard_hello(alias, a.me, network.now) == [Say(MessageKind.WELCOME, 2)]
    # one that names this process opens the link anew
    done = b.link.heard_hello(alias._replace(receiver=b.incarnation), a.me, network.now)
    assert [type(one) for one in done] == [HangUp, FailAll, Dial, Attach, Say, Ready]


def test_what_the_peer_has_taken_is_known(network: Network) -> None:
    a, b = up(network)
    for number in range(5):
        a.send(number)
    assert a.link.in_flight == 5
    network.settle()
    network.pass_time(BEAT_EVERY)
    assert a.link.in_flight == 0
    # much at once is told of at once
    header = a.header(MessageKind.MESSAGE, a.link.channel, TAKEN_BEFORE_BEAT)
    done = b.link.heard(header, TAKEN_BEFORE_BEAT, network.now)
    assert done == [Deliver(), Say(MessageKind.BEAT)]


# ---------------------------------------------------------------------- whatever happens
def check(network: Network) -> None:
    """What was delivered is a beginning of what was sent, for each channel; nothing comes from who was replaced."""
    sent: dict[tuple[int, int], list[int]] = {}
    for end in [*network.ends, *network.ended]:
        for incarnation, channel, number in end.sent:
            sent.setdefault((incarnation, channel), []).append(number)
        assert not (end.link.is_up and end.pending)
        assert end.link.channel or end.link.state in (PeerState.NEW, PeerState.LOST, PeerState.CONNECTING)
    for end in [*network.ends, *network.ended]:
        received: dict[tuple[int, int], list[int]] = {}
        order = []
        for incarnation, channel, number in end.delivered:
            received.setdefault((incarnation, channel), []).append(number)
            if not order or order[-1] != (incarnation, channel):
                order.append((incarnation, channel))
        for key, numbers in received.items():
            assert numbers == sent[key][: len(numbers)]
        assert len(order) == len(set(order)), "a channel went on after it was replaced"
        seen = [incarnation for incarnation, _ in order]
        assert len(list(itertools.groupby(seen))) == len(set(seen)), "an incarnation returned"


def act(network: Network, dice: random.Random, number: int) -> None:
    """Something happens."""
    end = dice.choice(network.ends)
    busy = [key for key, queue in network.channels.items() if queue]
    action = dice.random()
    if action < 0.30:
        end.send(number)
    elif action < 0.75:
        if busy:
            network.step(dice.choice(busy))
    elif action < 0.85:
        network.now += dice.choice([0.05, 0.3, 1.0, 6.0, 31.0]) * dice.random()
        end.do(end.link.tick(network.now))
    elif action < 0.90:
        network.cut(end, dice.randrange(3))
    elif action < 0.93 and busy:
        queue = network.channels[dice.choice(busy)]
        del queue[dice.randrange(len(queue))]
    elif action < 0.95 and busy:
        queue = network.channels[dice.choice(busy)]
        queue.insert(dice.randrange(len(queue) + 1), dice.choice(queue))
    elif action < 0.96 and network.greetings:
        side, message = dice.choice(network.greetings)
        network.ends[side].hear(message)
    elif action < 0.97:
        network.restart(end.side)
    elif action < 0.98:
        end.do(end.link.heard_malformed("nonsense"))
    elif end.link.channel:
        end.do(end.link.refused(end.link.channel, Lane.CONTROL, network.now))


@pytest.mark.parametrize("seeds", [range(start, start + 100) for start in range(0, 400, 100)], ids=str)
def test_random_events(seeds: range) -> None:
    reopened = 0
    for seed in seeds:
        network, dice = Network(), random.Random(seed)
        for number in range(150):
            act(network, dice, number)
            check(network)
        reopened += sum(len(end.failures) for end in network.ends)
        # once nothing fails any more, a link that is used comes up on both sides, and all that is sent arrives
        network.settle()
        for _ in range(8):
            for end in network.ends:
                end.do(end.link.open(network.now))
            network.pass_time(5)
        a, b = network.ends
        assert (a.link.state, b.link.state) == (PeerState.UP, PeerState.UP), seed
        for end in network.ends:
            end.delivered.clear()
            end.sent.clear()
        for number in range(5):
            a.send(number)
            b.send(number)
        network.settle()
        assert [[n for *_, n in end.delivered] for end in network.ends] == [list(range(5))] * 2, seed
    assert reopened > len(seeds)


@pytest.mark.parametrize("is_up", [True, False])
def test_who_waits_for_a_task_that_has_moved_may_try_again(network: Network, is_up: bool) -> None:
    """Also while the link to where it was is still being opened: the task is elsewhere, and no message is at fault."""
    one, _ = network.ends
    one.send(1)
    if is_up:
        network.settle()
        assert one.link.is_up
    one.do(one.link.fence("p1 is at c:1 now"))
    assert one.link.state is PeerState.LOST
    (error,) = one.failures
    assert isinstance(error, UnavailableError)
    assert "p1 is at c:1 now" in str(error)
