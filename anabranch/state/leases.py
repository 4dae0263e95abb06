"""Leases: something that one of several holds for a time, and that goes to another if the holder is not heard of.

Four kinds, all pure state machines: what happens comes in as calls that say the time, in seconds of a monotonic clock.

A `Lease` has one holder. Whoever asks gets it if it is free, if its time is over, or if he holds it; asking again
renews it. Each change of hands has a greater *term*.

| state | asked by | answer | new state |
|---|---|---|---|
| free | anyone | his, a new term | held |
| held, its time is not over | the holder | his, the same term | held for longer |
| held, its time is not over | another | the holder's, for how long | |
| held, its time is over | the holder | his, the same term | held |
| held, its time is over | another | his, a new term | held |
| held | the holder, for no time | nobody's | free |

`Membership` is a lease for everybody: whoever renews his in time is there.

`Attendance` is one for each of so many workers, whom others wait for. A worker is *expected* or *away*:

| state | event | new state |
|---|---|---|
| (never heard of) | anyone asks | expected, for as long as if it had come then |
| any | it comes, or renews its lease; the training begins anew | expected |
| expected | it leaves; its time is over | away |
| expected | nobody has been heard of for half a lease | expected, for as much longer: not the workers were away |

`RangeLeases` deals out the examples of a data set in ranges, each once in an epoch. A range is *open*, *leased* or
*done*. A worker has at most one: asking for another it says that the last is done; a worker that asks without saying
so (its step failed, or it was started again) gets the same one again. A range whose worker is not heard of in time is
open again. An epoch ends when all its ranges are done, so that none is given out of the next one while a dead worker
may still have had one of this.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, NamedTuple

#: of the state of `RangeLeases` as a vector: what stands in front of the ranges that are not done
_HEADER: Final = 4


class Held(NamedTuple):
    """Who has a lease.

    Attributes:
        holder: "" for nobody.
        term: grows with each change of hands.
        seconds: how long it is still his.
    """

    holder: str
    term: int
    seconds: float


class Lease:
    """See the module. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder = ""
        self._term = 0
        self._until = 0.0

    def ask(self, holder: str, seconds: float, now: float) -> Held:
        """Asks for the lease, renews it, or (for 0 seconds) gives it back.

        Args:
            holder: who asks.
            seconds: for how long.
            now: the time.
        """
        with self._lock:
            # whoever asks for no time, and is not the holder, only looks
            if holder == self._holder and seconds <= 0:
                self._holder = ""
            # nobody watches the clock here: a lease is over when another asks for it after its time, and not before
            elif seconds > 0 and (holder == self._holder or not self._holder or now >= self._until):
                if holder != self._holder:
                    # not where it is renewed: by its term a holder sees whether another has had the lease in between
                    self._term += 1
                self._holder, self._until = holder, now + seconds
            return Held(self._holder, self._term, max(0.0, self._until - now) if self._holder else 0.0)


class Membership:
    """Who is there: whoever has said so in time, and has not left. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}
        self._changes = 0

    def renew(self, who: str, seconds: float, now: float) -> tuple[list[str], int]:
        """Joins, stays, or (for 0 seconds) leaves.

        Args:
            who: does so.
            seconds: after which it counts as gone unless it says so again.
            now: the time.

        Returns:
            Who is there, sorted, and how often that has changed.
        """
        with self._lock:
            before = set(self._until)
            # all whose time is over go, whoever asks; there is nobody else to notice
            self._until = {name: until for name, until in self._until.items() if now < until and name != who}
            if seconds > 0:
                self._until[who] = now + seconds
            self._changes += len(before ^ set(self._until))
            return sorted(self._until), self._changes


class Attendance:
    """How many of so many workers are to be waited for; see the module. Thread-safe.

    Args:
        life: any number below 2 ** 30 that differs from that of other objects.
    """

    def __init__(self, life: int = 0) -> None:
        self._lock = threading.Lock()
        self._life = life
        self._until: dict[int, float] = {}
        self._away: set[int] = set()
        self._changes = 0
        self._last = 0.0

    def attend(self, worker: int, workers: int, seconds: float, anew: bool, now: float) -> tuple[int, int]:
        """Comes, stays, or (for a negative number of seconds) leaves.

        Args:
            worker: does so.
            workers: how many there are, those that have not come yet included.
            seconds: after which it is away unless it says something; negative: at once, and the others keep theirs.
            anew: whether a training begins: nobody is away any more who has left another one.
            now: the time.

        Returns:
            How many workers are not away, and a number that is greater after each change of that, from one object.
        """
        with self._lock:
            pause, self._last = now - self._last, now
            lease = abs(seconds)
            if anew:
                self._until = {}
            elif self._until and pause > lease / 2:
                # each asks thrice in a lease: where nobody did, this task or the network stood still
                self._until = {name: until + pause for name, until in self._until.items()}
            for name in range(workers):
                self._until.setdefault(name, now + lease)
            self._until[worker] = now + seconds
            away = {name for name in range(workers) if self._until[name] <= now}
            self._changes += away != self._away
            self._away = away
            return workers - len(away), (self._life << 32) + self._changes


class Range(NamedTuple):
    """What a worker is told.

    Attributes:
        epoch: which pass over the examples, from 0; as many as there are: all are over.
        ticket: says that the worker has done the range, with its begin.
        begin, end: the range, the end excluded; both are -1 where there is none now, but may be one later.
    """

    epoch: int
    ticket: int
    begin: int
    end: int


class _Leased(NamedTuple):
    begin: int
    until: float


class RangeLeases:
    """See the module. Thread-safe.

    #: in an epoch each range is at exactly one place: not given out yet (from `_next` on), in `_returned`, leased, done

    Args:
        examples: how many there are.
        size: how many examples make up a range; the last one may have fewer.
        epochs: how often all are dealt out.
        life: any number below 2 ** 30 that differs from that of other objects and of other restores: what was done
            with a range that came before a restore, was lost by it.

    Raises:
        ValueError: a number is not positive.
    """

    def __init__(self, examples: int, size: int, epochs: int, life: int = 0) -> None:
        if min(examples, size, epochs) < 1:
            raise ValueError(f"examples, size and epochs must be positive, got {examples}, {size} and {epochs}")
        self._lock = threading.Lock()
        self._examples, self._size, self._epochs = examples, size, epochs
        self._life = life
        self._epoch = 0
        self._next = 0
        self._returned: list[int] = []
        self._leased: dict[str, _Leased] = {}

    def ask(self, worker: str, done: tuple[int, int] | None, seconds: float, now: float) -> Range:
        """Says that a worker has done a range, and gives it the next.

        Args:
            worker: who asks.
            done: ticket and begin of the range that it has done, if any.
            seconds: how long the next one is its; 0: it wants none, and gives back what it has not done.
            now: the time.
        """
        with self._lock:
            # what was done counts before leases end: a worker that says so just after its time was up has done it
            if done is not None:
                self._done(worker, *done)
            self._expire(now)
            own = self._leased.get(worker)
            if seconds <= 0:
                if own is not None:
                    del self._leased[worker]
                    self._returned.append(own.begin)
                return Range(self._epoch, self._ticket, -1, -1)
            # the same one again: the step that was to fetch it, or to use it, may have failed
            begin = own.begin if own is not None else self._free()
            if begin is None:
                return Range(self._epoch, self._ticket, -1, -1)
            self._leased[worker] = _Leased(begin, now + seconds)
            return Range(self._epoch, self._ticket, begin, min(begin + self._size, self._examples))

    @property
    def _ticket(self) -> int:
        # one int64 of a graph holds both: below 2 ** 62, since a life is below 2 ** 30
        return (self._life << 32) + self._epoch

    def _done(self, worker: str, ticket: int, begin: int) -> None:
        """What is late, of a range that was given to somebody else meanwhile, counts there: the first wins."""
        # of an epoch that is over, or from before a restore, which took back what the range was used for
        if ticket != self._ticket:
            return
        own = self._leased.get(worker)
        if own is not None and own.begin == begin:
            del self._leased[worker]
        # its time was over, and nobody has it yet: it need not be dealt out again
        elif begin in self._returned:
            self._returned.remove(begin)
        # here and not when somebody asks: whoever did the last range is told of the new epoch in the same answer
        if not self._leased and not self._returned and self._next >= self._examples and self._epoch < self._epochs:
            self._epoch, self._next = self._epoch + 1, 0

    def _expire(self, now: float) -> None:
        for worker, leased in list(self._leased.items()):
            if now >= leased.until:
                del self._leased[worker]
                self._returned.append(leased.begin)

    def _free(self) -> int | None:
        if self._epoch >= self._epochs:
            return None
        if self._returned:
            # the one that was given back first, before new ones: an epoch ends only when the last of its ranges is done
            return self._returned.pop(0)
        if self._next >= self._examples:
            return None
        begin, self._next = self._next, self._next + self._size
        return begin

    # ------------------------------------------------------------------ in checkpoints
    def export(self) -> list[int]:
        """The state: examples, size, epoch, where the ranges begin that nobody had yet, and which others are open.

        A leased range counts as open: who restores this has lost what it was used for.
        """
        with self._lock:
            # sorted below, so that equal states are equal vectors, whoever has asked in whatever order
            open_ranges = [*self._returned, *(leased.begin for leased in self._leased.values())]
            return [self._examples, self._size, self._epoch, self._next, *sorted(open_ranges)]

    def restore(self, state: Sequence[int], life: int = 0) -> None:
        """Goes on from what `export` gave; leases end.

        Args:
            state: an exported one; empty: the beginning.
            life: see the class.

        Raises:
            ValueError: it is of other data, or malformed.
        """
        state = list(state) or [self._examples, self._size, 0, 0]
        if len(state) < _HEADER or state[0] != self._examples or state[1] != self._size:
            raise ValueError(
                f"the positions are of {list(state[:2])} examples and examples a range, and these are "
                f"{[self._examples, self._size]}: input that changes has to begin anew"
            )
        _, _, epoch, following, *open_ranges = (int(number) for number in state)
        # a range that is open twice, or that is also still to come, would be dealt out twice
        given_before = all(0 <= begin < following and begin % self._size == 0 for begin in open_ranges)
        is_new = len(set(open_ranges)) == len(open_ranges)
        if epoch < 0 or following < 0 or following % self._size or not (given_before and is_new):
            raise ValueError(f"these are no positions: {list(state)}")
        with self._lock:
            # tickets of the life before are known by it, so that what they say was done does not count
            self._life = life
            self._epoch, self._next, self._returned, self._leased = epoch, following, list(open_ranges), {}
