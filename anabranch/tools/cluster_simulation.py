"""Training with parameter servers, simulated event by event: what a cluster of hundreds of workers would do (§6).

A step of a worker fetches the model from all parameter servers at once, computes, and pushes its update to all. What
it takes of each is given (`Costs`), and measured by `benchmarks.simulation` on real clusters of 1-8 workers: processor
time of a worker and of a parameter server for each message and each byte, the time that messages are under way, the
bandwidth of a machine. What is simulated is how all that is waited for: processors and links serve one after the other.

Replicas that train in step do so by the machines that really do it: the accumulator that takes the first m gradients
and drops stale ones (`state.accumulators`), and the queue of tokens (`state.queue`), with the rules of
`train.sync_replicas`.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch.core import dtypes
from anabranch.core.pending import Pending
from anabranch.core.shapes import TensorShape
from anabranch.state.accumulators import DenseAccumulator
from anabranch.state.components import Components
from anabranch.state.element_stores import FifoStore
from anabranch.state.queue import Queue


# ---------------------------------------------------------------------- events
class Resource:
    """Serves one after the other, in the order in which they come, so many at a time."""

    def __init__(self, capacity: int = 1) -> None:
        self.free_at = [0.0] * capacity


@dataclass(frozen=True, slots=True)
class Use:
    """What a process yields to be served by resources, all at the same time, for so many seconds."""

    resources: tuple[Resource, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class All:
    """What a process yields to wait for processes of its own."""

    processes: tuple[Process, ...]


#: yields seconds to wait for, a `Use`, an `All`, or a `Pending`
Process = Generator["float | Use | All | Pending", None, None]


class Events:
    """The time, and what is to happen at some.

    Example:
        >>> events, desk, done = Events(), Resource(), []
        >>> def customer(name):
        ...     yield Use((desk,), 2.0)
        ...     done.append((name, events.now))
        >>> for name in "ab":
        ...     events.start(customer(name))
        >>> events.run(until=10)
        >>> done
        [('a', 2.0), ('b', 4.0)]
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Something happens."""
        heapq.heappush(self._heap, (when, next(self._numbers), call))

    def run(self, until: float = float("inf"), stop: Callable[[], bool] = lambda: False) -> None:
        """Lets time pass until then, until nothing happens any more, or until it is told to stop."""
        while self._heap and self._heap[0][0] <= until and not stop():
            self.now, _, call = heapq.heappop(self._heap)
            call()

    def start(self, process: Process, on_end: Callable[[], None] = lambda: None) -> None:
        """Starts a process now."""
        self._go_on(process, on_end)

    def _go_on(self, process: Process, on_end: Callable[[], None]) -> None:
        wanted = next(process, None)
        go_on = functools.partial(self._go_on, process, on_end)
        match wanted:
            case None:
                on_end()
            case Use(resources, seconds):
                begin = max(self.now, *(resource.free_at[0] for resource in resources))
                for resource in resources:
                    heapq.heapreplace(resource.free_at, begin + seconds)
                self.at(begin + seconds, go_on)
            case All(processes):
                left = list(processes)

                def one_ended() -> None:
                    left.pop()
                    if not left:
                        go_on()

                for one in processes:
                    self.start(one, one_ended)
            case Pending():
                wanted.when_settled(lambda _: self.at(self.now, go_on))
            case _:
                self.at(self.now + wanted, go_on)


# ---------------------------------------------------------------------- the cluster
@dataclass(frozen=True, slots=True)
class Costs:
    """What a step takes.

    Attributes:
        worker: processor seconds of a worker for a step, whatever the number of parameter servers.
        worker_per_server: the same, for each parameter server.
        server: processor seconds of a parameter server for each step of a worker.
        under_way: seconds of a step in which messages are under way and nobody computes.
        worker_per_byte: processor seconds of a worker for each byte of the model, fetched and pushed.
        server_per_byte: of a parameter server.
        bytes_per_second: of a machine's link, in each direction.
    """

    worker: float
    worker_per_server: float
    server: float
    under_way: float
    worker_per_byte: float = 0.0
    server_per_byte: float = 0.0
    bytes_per_second: float = 1.25e9


@dataclass(frozen=True, slots=True)
class Model:
    """What is trained.

    Attributes:
        fetched, pushed: bytes of a step of a worker, of all parameter servers together.
        compute: seconds of a step of a worker, given the dice.
    """

    fetched: float = 0.0
    pushed: float = 0.0
    compute: Callable[[random.Random], float] = lambda dice: 0.0


@dataclass(slots=True)
class TrainingOutcome:
    """What was measured.

    Attributes:
        steps: when each step ended: of a worker where they are asynchronous, of all where they are synchronous.
        dropped: gradients that came too late.
        seconds: how long it lasted, without the beginning.
    """

    steps: list[float] = field(default_factory=list)
    dropped: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Steps per second."""
        return len(self.steps) / self.seconds

    @property
    def durations(self) -> list[float]:
        """Between one step's end and the next."""
        return [after - before for before, after in itertools.pairwise(self.steps)]


class Cluster:
    """Parameter servers and workers.

    Args:
        workers, servers: how many there are.
        costs: what a step takes.
        model: what is trained.
        cores: of the one machine that all run on; None: each has a machine of its own.
        seed: of the dice.
    """

    def __init__(
        self, workers: int, servers: int, costs: Costs, model: Model, cores: int | None = None, seed: int = 0
    ) -> None:
        self.events = Events()
        self._costs, self._model = costs, model
        self._dice = random.Random(seed)
        machine = None if cores is None else Resource(cores)
        self._cores = () if machine is None else (machine,)
        self._servers = [Resource() for _ in range(servers)]
        #: links: out of and into each server, and each worker
        self._out, self._in = [Resource() for _ in range(servers)], [Resource() for _ in range(servers)]
        self._workers = [(Resource(), Resource(), Resource()) for _ in range(workers)]

    # ------------------------------------------------------------------ a step
    def _fetch(self, worker: int, server: int) -> Process:
        costs, size = self._costs, self._model.fetched / len(self._servers)
        yield Use((self._servers[server], *self._cores), costs.server / 2 + size * costs.server_per_byte)
        yield from self._carry(size, self._out[server], self._workers[worker][1])

    def _push(self, worker: int, server: int) -> Process:
        costs, size = self._costs, self._model.pushed / len(self._servers)
        yield from self._carry(size, self._workers[worker][2], self._in[server])
        yield Use((self._servers[server], *self._cores), costs.server / 2 + size * costs.server_per_byte)

    def _carry(self, size: float, out: Resource, into: Resource) -> Process:
        seconds = size / self._costs.bytes_per_second
        if self._cores:
            # within one machine nothing but its processors is needed, which the costs per byte have
            yield self._costs.under_way / 2
            return
        yield Use((out,), seconds)
        yield self._costs.under_way / 2
        yield Use((into,), seconds)

    def _worked(self, worker: int, share: float) -> Use:
        costs, servers = self._costs, len(self._servers)
        size = self._model.fetched + self._model.pushed
        seconds = share * (costs.worker + servers * costs.worker_per_server + size * costs.worker_per_byte)
        return Use((self._workers[worker][0], *self._cores), seconds)

    def _step(self, worker: int) -> Process:
        servers = range(len(self._servers))
        yield self._worked(worker, 0.5)
        yield All(tuple(self._fetch(worker, server) for server in servers))
        yield self._model.compute(self._dice)
        yield self._worked(worker, 0.5)
        yield All(tuple(self._push(worker, server) for server in servers))

    # ------------------------------------------------------------------ training
    def asynchronous(self, seconds: float) -> TrainingOutcome:
        """Each worker goes on at once, for so many seconds after a beginning of a tenth of that."""
        outcome, beginning = TrainingOutcome(seconds=seconds), seconds / 10

        def train(worker: int) -> Process:
            while True:
                yield from self._step(worker)
                if self.events.now > beginning:
                    outcome.steps.append(self.events.now)

        for worker in range(len(self._workers)):
            self.events.start(train(worker))
        self.events.run(beginning + seconds)
        return outcome

    def synchronous(self, aggregate: int, steps: int) -> TrainingOutcome:
        """The first `aggregate` gradients make up a step; see `train.sync_replicas`."""
        count, outcome = len(self._workers), TrainingOutcome()
        gradients = DenseAccumulator("gradients", dtypes.float32, TensorShape([]), "MEAN")
        components = Components((dtypes.int64,), (TensorShape([]),), "queue of tokens")
        tokens = Queue("tokens", "FIFOQueue", components, -1, FifoStore())
        handed_in = 0

        def train(worker: int) -> Process:
            nonlocal handed_in
            local_step = 0
            while True:
                yield from self._step(worker)
                handed_in += 1
                gradients.apply_gradient(local_step, np.ones((), np.float32))
                token = tokens.dequeue()
                yield token
                local_step = int(token.values[0])

        def chief() -> Process:
            for step in range(1, steps + 1):
                yield gradients.take_gradient(aggregate)
                outcome.steps.append(self.events.now)
                gradients.set_global_step(step)
                tokens.enqueue_many([np.full(max(aggregate, count), step, np.int64)])

        for worker in range(count):
            self.events.start(train(worker))
        ended: list[bool] = []
        self.events.start(chief(), lambda: ended.append(True))
        self.events.run(stop=lambda: bool(ended))
        outcome.dropped = handed_in - aggregate * steps
        outcome.seconds = outcome.steps[-1]
        return outcome


def percentile(values: Sequence[float], share: float) -> float:
    """The value that so large a share of them is below."""
    return float(np.quantile(np.asarray(values), share))
