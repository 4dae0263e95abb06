"""Training with parameter servers, simulated event by event: what a cluster of hundreds of workers would do (§6).

A step of a worker fetches the model from all parameter servers at once, computes, and pushes its update to all. What
it takes of each is given (`Costs`), and measured by `benchmarks.simulation` on real runs of one worker: processor time
of each thread, the time that messages are under way, the bandwidth of a machine. What is simulated is how all that is
waited for (`tools.simulated_machines`).

What decides is what decides in real clusters: the machine of a step as its master sees it
(`distributed.step_protocol`), those of the links that its messages go by (`distributed.links`), the accumulator that
takes the first m gradients and drops stale ones (`state.accumulators`), and the queue of tokens (`state.queue`), with
the rules of `train.sync_replicas`.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch.core import dtypes
from anabranch.core.pending import Pending
from anabranch.core.shapes import TensorShape
from anabranch.distributed.step_protocol import GRACE, Abort, Instruction, StepProtocol
from anabranch.distributed.wire import MessageKind
from anabranch.errors import CancelledError, DeadlineExceededError, OpError
from anabranch.state.accumulators import DenseAccumulator
from anabranch.state.components import Components
from anabranch.state.element_stores import FifoStore
from anabranch.state.queue import Queue
from anabranch.tools.linked_places import LinkedPlace, MessageCosts
from anabranch.tools.simulated_machines import Call, Events, Machine, MachineThread, differing

#: threads of a task: the program's, the one that receives, the network's
_THREADS = 3
#: bytes of a message that starts a part of a step, gives it up, or says that it is done
_SMALL = 64.0

#: yields what it waits for
Process = Generator[Pending, None, None]


# ---------------------------------------------------------------------- what is given
@dataclass(frozen=True, slots=True)
class Costs:
    """What a step takes.

    Attributes:
        program: seconds of the thread of a worker's program for a step, whatever the number of parameter servers.
        program_per_server: the same, for each parameter server.
        worker: of messages, at a worker.
        server: at a parameter server.
        wake: seconds until a thread runs on a core that was idle.
        spread: of what a thread takes for a message or a step, in parts of that.
    """

    program: float = 0.0
    program_per_server: float = 0.0
    worker: MessageCosts = field(default_factory=MessageCosts)
    server: MessageCosts = field(default_factory=MessageCosts)
    wake: float = 0.0
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class Model:
    """What is trained.

    Attributes:
        fetched, pushed: bytes of a step of a worker, of all parameter servers together.
        compute: seconds of a step of a worker, given the dice.
        timeout: seconds after which a worker gives its step up; None: never.
    """

    fetched: float = 0.0
    pushed: float = 0.0
    compute: Callable[[random.Random], float] = lambda dice: 0.0
    timeout: float | None = None


@dataclass(slots=True)
class TrainingOutcome:
    """What was measured.

    Attributes:
        steps: when each step ended: of a worker where they are asynchronous, of all where they are synchronous.
        dropped: gradients that came too late.
        failed: steps of workers that ended with an error, by its type; they were run again.
        seconds: how long it lasted, without the beginning.
    """

    steps: list[float] = field(default_factory=list)
    dropped: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Steps per second."""
        return len(self.steps) / self.seconds

    @property
    def durations(self) -> list[float]:
        """Between one step's end and the next."""
        return [after - before for before, after in itertools.pairwise(self.steps)]


# ---------------------------------------------------------------------- tasks
class ParameterServer:
    """Sends its part of the model to whoever starts a step, and takes the update.

    Attributes:
        running: the steps that have begun here, and not ended, each with this server's position in it.
    """

    def __init__(self, cluster: Cluster, place: LinkedPlace) -> None:
        self.place = place
        self._cluster = cluster
        self.running: dict[WorkerStep, int] = {}

    def start(self, step: WorkerStep, position: int) -> None:
        """A step begins here."""
        self.running[step] = position
        size = self._cluster.fetched_of_one
        self.place.send(step.worker.place, MessageKind.MESSAGE, size, step.fetched)

    def update(self, step: WorkerStep) -> None:
        """What belongs to a step comes; it is dropped where the step was given up."""
        if step in self.running:
            self._end(step, None)

    def abort(self, step: WorkerStep, error: BaseException) -> None:
        """A step is given up."""
        if step in self.running:
            self._end(step, error)

    def forget(self, place: LinkedPlace) -> None:
        """A worker is lost, and its steps with it."""
        for step in [step for step in self.running if step.worker.place is place]:
            del self.running[step]

    def _end(self, step: WorkerStep, error: BaseException | None) -> None:
        position = self.running.pop(step)
        answer = functools.partial(step.answered, position, error)
        self.place.send(step.worker.place, MessageKind.REPLY, _SMALL, answer)


class TrainingWorker:
    """Runs steps one after the other; the master of its session lives here."""

    def __init__(self, cluster: Cluster, place: LinkedPlace) -> None:
        self.place, self.cluster = place, cluster
        self.program = MachineThread(place.machine, place.lock)
        self.step: WorkerStep | None = None

    def run(self) -> Pending:
        """Begins a step; settled when it has ended."""
        self.step = WorkerStep(self)
        return self.step.ended

    def lost(self, error: OpError) -> None:
        """A parameter server is lost to it."""
        if self.step is not None:
            self.step.give_up(error)


class WorkerStep:
    """One step of a worker: carries out what its `StepProtocol` says, as `distributed.cluster_master` does.

    Attributes:
        ended: settled with the end of the step.
    """

    def __init__(self, worker: TrainingWorker) -> None:
        cluster = worker.cluster
        self.worker, self._servers, self._costs = worker, cluster.servers, cluster.costs
        self._protocol = StepProtocol((worker.place.name, *cluster.server_names))
        self._missing = len(self._servers)
        self._events, self._model = cluster.events, cluster.model
        self.ended = Pending()
        if self._model.timeout is not None:
            self._events.after(self._model.timeout, self._too_late)
        worker.program.do(self._costs.program, self._begin)

    def _begin(self) -> None:
        # the part of the worker's own task, which waits for what the servers send
        self._protocol.begin(0)
        for position, server in enumerate(self._servers, 1):
            self.worker.program.do(self._costs.program_per_server, functools.partial(self._start, position, server))

    def _start(self, position: int, server: ParameterServer) -> None:
        if self._protocol.begin(position):
            start = functools.partial(server.start, self, position)
            self.worker.place.send(server.place, MessageKind.REQUEST, _SMALL, start)

    def fetched(self) -> None:
        """A part of the model has come."""
        self._missing -= 1
        if self._missing == 0:
            seconds = self._model.compute(self.worker.cluster.dice)
            if seconds:
                self._events.after(seconds, self._push)
            else:
                self._push()

    def _push(self) -> None:
        if self._protocol.has_ended:
            return
        size = self.worker.cluster.pushed_to_one
        for server in self._servers:
            update = functools.partial(server.update, self)
            self.worker.place.send(server.place, MessageKind.MESSAGE, size, update)
        self.answered(0, None)

    def answered(self, position: int, error: BaseException | None) -> None:
        """A task says that its part of the step has ended."""
        self._follow(self._protocol.answered(position, error))

    def give_up(self, error: BaseException) -> None:
        """The step is to end with an error."""
        self._follow(self._protocol.give_up(error))

    def _too_late(self) -> None:
        if not self._protocol.has_ended:
            silent = ", ".join(self._protocol.unanswered)
            self.give_up(DeadlineExceededError(None, None, f"{silent} did not answer in time"))

    def _follow(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Abort):
                self._abort(instruction)
            elif instruction.error is None:
                self.ended.complete(())
            else:
                self.ended.fail(instruction.error)

    def _abort(self, abort: Abort) -> None:
        self._events.after(GRACE, lambda: self._follow(self._protocol.grace_is_over()))
        for position in abort.tasks:
            if position == 0:
                # soon: the protocol is in the midst of saying what to do
                cancelled = functools.partial(self.answered, 0, CancelledError(None, None, "the step was given up"))
                self._events.after(0.0, cancelled)
            else:
                server = self._servers[position - 1]
                abort_there = functools.partial(server.abort, self, abort.error)
                self.worker.place.send(server.place, MessageKind.MESSAGE, _SMALL, abort_there)


# ---------------------------------------------------------------------- the cluster
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
        self.costs, self.model = costs, model
        self.dice = random.Random(seed)
        self.fetched_of_one, self.pushed_to_one = model.fetched / servers, model.pushed / servers
        self._factors = differing(costs.spread, self.dice) if costs.spread else None
        self._shared = None if cores is None else self._machine(cores)
        self.server_names = tuple(f"/job:ps/replica:0/task:{index}" for index in range(servers))
        self.servers = [
            ParameterServer(self, self._place(name, costs.server, self._server_lost)) for name in self.server_names
        ]
        self._workers = [
            TrainingWorker(self, self._place(f"/job:worker/replica:0/task:{index}", costs.worker, self._worker_lost))
            for index in range(workers)
        ]

    def _place(
        self, name: str, costs: MessageCosts, lost: Callable[[LinkedPlace, LinkedPlace, OpError], None]
    ) -> LinkedPlace:
        machine = self._shared or self._machine(_THREADS)
        place: LinkedPlace = LinkedPlace(
            self.events, name, machine, costs, lambda other, error: lost(place, other, error)
        )
        return place

    def _machine(self, cores: int) -> Machine:
        return Machine(self.events, cores, self.costs.wake, self._factors)

    def _server_lost(self, place: LinkedPlace, other: LinkedPlace, error: OpError) -> None:
        for server in self.servers:
            if server.place is place:
                server.forget(other)

    def _worker_lost(self, place: LinkedPlace, other: LinkedPlace, error: OpError) -> None:
        for worker in self._workers:
            if worker.place is place:
                worker.lost(error)

    def stop_server(self, index: int, when: float, seconds: float) -> None:
        """A parameter server does nothing for a while, as after SIGSTOP."""
        self.events.after(when - self.events.now, lambda: self.servers[index].place.machine.stop(seconds))

    # ------------------------------------------------------------------ training
    def _start(self, process: Process, on_end: Call = lambda: None) -> None:
        wanted = next(process, None)
        if wanted is None:
            on_end()
        else:
            # not at once: whoever settles it is in the midst of something
            wanted.when_settled(lambda _: self.events.after(0.0, lambda: self._start(process, on_end)))

    def _succeeding(self, worker: TrainingWorker, outcome: TrainingOutcome) -> Process:
        """A step, which is run again where it fails."""
        while True:
            ended = worker.run()
            yield ended
            if ended.error is None:
                return
            kind = type(ended.error).__name__
            outcome.failed[kind] = outcome.failed.get(kind, 0) + 1

    def asynchronous(self, seconds: float) -> TrainingOutcome:
        """Each worker goes on at once, for so many seconds after a beginning of a tenth of that."""
        outcome, beginning = TrainingOutcome(seconds=seconds), seconds / 10

        def train(worker: TrainingWorker) -> Process:
            while True:
                yield from self._succeeding(worker, outcome)
                if self.events.now > beginning:
                    outcome.steps.append(self.events.now)

        for worker in self._workers:
            self._start(train(worker))
        self.events.run(beginning + seconds)
        return outcome

    def synchronous(self, aggregate: int, steps: int) -> TrainingOutcome:
        """The first `aggregate` gradients make up a step; see `train.sync_replicas`."""
        count, outcome = len(self._workers), TrainingOutcome()
        gradients = DenseAccumulator("gradients", dtypes.float32, TensorShape([]), "MEAN")
        components = Components((dtypes.int64,), (TensorShape([]),), "queue of tokens")
        tokens = Queue("tokens", "FIFOQueue", components, -1, FifoStore())
        handed_in = 0

        def train(worker: TrainingWorker) -> Process:
            nonlocal handed_in
            local_step = 0
            while True:
                yield from self._succeeding(worker, outcome)
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

        for worker in self._workers:
            self._start(train(worker))
        ended: list[bool] = []
        self._start(chief(), lambda: ended.append(True))
        self.events.run(stop=lambda: bool(ended))
        outcome.dropped = handed_in - aggregate * steps
        outcome.seconds = outcome.steps[-1]
        return outcome


def percentile(values: Sequence[float], share: float) -> float:
    """The value that so large a share of them is below."""
    return float(np.quantile(np.asarray(values), share))
