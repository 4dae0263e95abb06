"""Time, and machines whose cores threads wait for, simulated event by event.

A thread has work that comes to it piece by piece, and sleeps when there is none. Each core has threads of its own that
wait for it, as Linux has it: a thread that is woken takes the core that it ran on last, or another one that is idle, or
waits for one. A core that has nothing to do takes a thread that waits for another core, unless that has just run there:
then its caches are warm, and it goes on to wait although a core is idle. That is why processes that talk much to each
other do not get all of a machine. Python's threads share the lock of their process: one of them runs at a time.

    ========  ================  =====================  =======================  =====================
    thread    work comes        a core is free         and another thread has   a piece is done
                                                       Python's lock
    ========  ================  =====================  =======================  =====================
    asleep    -> ready          -                      -                        -
    ready     queued            -> runs                -> blocked               -
    runs      queued            -                      -                        -> asleep if it was the
                                                                                last; -> ready where
                                                                                its slice is over and
                                                                                others are ready
    blocked   queued            -                      -                        of the one that has the
                                                                                lock: -> ready
    ========  ================  =====================  =======================  =====================
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

#: how long (s) a thread runs, if it has so much to do, while others are ready (Linux's `base_slice`, of two cores)
SLICE: Final = 0.0014
#: a thread that waits for a core is not taken to another one until so long (s) after it ran (Linux's `migration_cost`)
WARM: Final = 0.0005
#: so many numbers, and then they come again
_FACTORS: Final = 4093

Call = Callable[[], None]


class Events:
    """The time, and what is to happen at some.

    Example:
        >>> events, done = Events(), []
        >>> machine = Machine(events, cores=1)
        >>> for name in "ab":
        ...     MachineThread(machine).do(2.0, lambda name=name: done.append((name, events.now)))
        >>> events.run(until=10)
        >>> done
        [('a', 2.0), ('b', 4.0)]
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Call]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, call: Call) -> None:
        """Something happens in so many seconds."""
        heapq.heappush(self._heap, (self.now + seconds, next(self._numbers), call))

    def run(self, until: float = float("inf"), stop: Callable[[], bool] = lambda: False) -> None:
        """Lets time pass until then, until nothing happens any more, or until it is told to stop."""
        heap = self._heap
        while heap and heap[0][0] <= until and not stop():
            self.now, _, call = heapq.heappop(heap)
            call()


class WorkPiece(NamedTuple):
    """What a thread has to do.

    Attributes:
        seconds: of a core, until it has a result.
        then: called with the result.
        after: seconds of a core, in which it clears up.
    """

    seconds: float
    then: Call
    after: float


class PythonLock:
    """The lock that threads of one process hold while they run Python code. Each piece of work takes it anew."""

    def __init__(self) -> None:
        self.holder: MachineThread | None = None
        self.waiting: deque[MachineThread] = deque()


class MachineThread:
    """See the table of the module.

    Args:
        machine: whose cores it runs on.
        lock: of its process, if it runs Python code.
    """

    def __init__(self, machine: Machine, lock: PythonLock | None = None) -> None:
        self._machine, self.lock = machine, lock
        self.work: deque[WorkPiece] = deque()
        self.is_awake = False
        #: the core that it runs on, or ran on last
        self.core = machine.any_core()
        #: when it got that core, and when it left it
        self.since = self.ran_at = 0.0

    def do(self, seconds: float, then: Call, after: float = 0.0) -> None:
        """It has something to do, behind what it has to do already; see `WorkPiece`."""
        self.work.append(WorkPiece(seconds, then, after))
        if not self.is_awake:
            self.is_awake = True
            self._machine.take_in(self)


class Core:
    """A core, and the threads that wait for it."""

    def __init__(self) -> None:
        self.running: MachineThread | None = None
        self.ready: deque[MachineThread] = deque()

    @property
    def load(self) -> int:
        """How many threads run there or wait."""
        return len(self.ready) + (self.running is not None)


class Machine:
    """Cores, and the threads that run on them.

    Args:
        wake: seconds until a thread runs on a core that was idle.
        factors: how much longer or shorter than usual each piece of work takes.
    """

    def __init__(self, events: Events, cores: int, wake: float = 0.0, factors: Iterator[float] | None = None) -> None:
        self._events, self._wake = events, wake
        self._factors = itertools.repeat(1.0) if factors is None else factors
        self._cores = [Core() for _ in range(cores)]
        self._given = itertools.cycle(self._cores)
        #: the core of the thread that does what is done now, if one does
        self._here: Core | None = None
        self._stopped_until = 0.0

    def any_core(self) -> Core:
        """Where a new thread is."""
        return next(self._given)

    def stop(self, seconds: float) -> None:
        """It does nothing for a while: what is under way ends, and nothing begins."""
        self._stopped_until = self._events.now + seconds

    def _stops_for(self) -> float:
        return max(self._stopped_until - self._events.now, 0.0)

    def take_in(self, thread: MachineThread) -> None:
        """A thread is woken."""
        last, here = thread.core, self._here or thread.core
        if last.running is not None:
            idle = next((core for core in self._cores if core.running is None), None)
            last = idle or (here if here.load < last.load else last)
        if last.running is None:
            self._begin(thread, last, self._wake)
        else:
            last.ready.append(thread)

    def _begin(self, thread: MachineThread, core: Core, seconds: float) -> None:
        """A thread has a core, and runs in so many seconds."""
        core.running, thread.core = thread, core
        thread.since = self._events.now + seconds
        self._run(thread, seconds)

    def _run(self, thread: MachineThread, later: float = 0.0) -> None:
        lock = thread.lock
        if lock is not None:
            if lock.holder is not None:
                lock.waiting.append(thread)
                self._leave(thread)
                return
            lock.holder = thread
        piece, factor = thread.work.popleft(), next(self._factors)

        def tell() -> None:
            before, self._here = self._here, thread.core
            piece.then()
            self._here = before
            if piece.after:
                self._events.after(piece.after * factor, lambda: self._ended(thread))
            else:
                self._ended(thread)

        self._events.after(later + self._stops_for() + piece.seconds * factor, tell)

    def _ended(self, thread: MachineThread) -> None:
        """A piece of work is done."""
        lock = thread.lock
        if lock is not None:
            lock.holder = None
            if lock.waiting:
                self._here = thread.core
                self.take_in(lock.waiting.popleft())
                self._here = None
        if not thread.work:
            thread.is_awake = False
            self._leave(thread)
        elif thread.core.ready and self._events.now - thread.since > SLICE:
            thread.core.ready.append(thread)
            self._leave(thread)
        else:
            self._run(thread)

    def _leave(self, thread: MachineThread) -> None:
        """A thread leaves its core, which goes to another that waits for it; or to one of another core, if its caches
        have nothing of it any more.
        """
        core, now = thread.core, self._events.now
        thread.ran_at = now
        core.running = None
        if core.ready:
            self._begin(core.ready.popleft(), core, 0.0)
            return
        for other in self._cores:
            for waiting in other.ready:
                if now - waiting.ran_at >= WARM:
                    other.ready.remove(waiting)
                    self._begin(waiting, core, 0.0)
                    return


def differing(spread: float, dice: random.Random) -> Iterator[float]:
    """Numbers of mean 1, whose logarithms are normal; their deviation is `spread`."""
    deviation = math.sqrt(math.log(1 + spread * spread))
    # to throw dice takes as long as all the rest
    return itertools.cycle([math.exp(dice.gauss(-deviation * deviation / 2, deviation)) for _ in range(_FACTORS)])


class Wire:
    """A way for messages: they take their time one after the other, and all the same time on top.

    Args:
        bytes_per_second: 0: as many as there are.
        under_way: seconds of each message.
    """

    def __init__(self, events: Events, bytes_per_second: float, under_way: float = 0.0) -> None:
        self._events, self._bytes_per_second, self._under_way = events, bytes_per_second, under_way
        self._free_at = 0.0

    def carry(self, size: float, then: Call) -> None:
        """Carries a message."""
        begin = max(self._events.now, self._free_at)
        self._free_at = begin + (size / self._bytes_per_second if self._bytes_per_second else 0.0)
        seconds = self._free_at + self._under_way - self._events.now
        if seconds:
            self._events.after(seconds, then)
        else:
            then()
