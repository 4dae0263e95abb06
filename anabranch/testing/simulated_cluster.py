"""Clusters whose network, time and faults are simulated: `run(seed)` is one life of a cluster, and checks it.

Two parameter servers and two workers serve two clients, which run steps over all of them. Everything between the
network and the kernels is what real clusters run: links, peers, sessions and leases of the tasks, rendezvous, the
master of a session. Kernels are replaced by waits; now and then one fails. Meanwhile processes are killed and started
again, stopped for a while, cut off, slowed down; connections break, messages are lost or come twice, old greetings come
late.

What is checked in every run:

#: A (session, step) starts at most once on a task.
#: A step ends once, with its values or with a cause that is true: what was injected, or the loss of somebody.
#: A message is delivered once at most, and never behind one of its lane that was lost; nor to a process that it is not
#: meant for, nor from one that was replaced by a process heard since.
#: What a step computes with is its own: no value of another step, or of before a restart, gets into it.
#: What a task is asked to do is meant for that task.
#: After the end of a step nothing of it runs on a task that the master was not separated from.
#: Every step ends: there is no wait without end, whatever happened. Once nothing fails any more, steps succeed.
#: In the end nothing is kept: no steps, sessions, values, requests.

`python -m anabranch.testing.simulated_cluster --seeds 0:1000` runs many; a seed that fails replays exactly.
"""

from __future__ import annotations

import argparse
import functools
import gc
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.core.values import TensorValue
from anabranch.distributed.cluster_master import ClusterMaster
from anabranch.distributed.cluster_step import ClusterRun, ClusterStep
from anabranch.distributed.connections import HandlerOfTask
from anabranch.distributed.task import Task
from anabranch.errors import (
    AbortedError,
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    UnavailableError,
)
from anabranch.graph.graph import Graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.pipeline import Plan, plan_step
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.runtime.messages import Frames
from anabranch.runtime.served_sessions import Asked, ServedTask
from anabranch.testing.simulated_network import SimulatedPlace, SimulatedTasks, SimulatedTime
from anabranch.testing.simulated_steps import INJECTED, SimulatedSession

TASKS = tuple(f"/job:{job}/replica:0/task:{i}" for job in ("ps", "worker") for i in (0, 1))
ADDRESSES = {name: f"task{i}:1" for i, name in enumerate(TASKS)}
CLIENTS = ("client0:1", "client1:1")
#: how long things fail (s), and how long everything may take to be well after that
TROUBLE = 30.0
RECOVERY = 120.0
#: of the errors that steps may fail with, those that are nobody's fault but the network's
LOSSES = (UnavailableError, AbortedError, DeadlineExceededError)


class Broken(AssertionError):
    """What must hold does not."""


class SimulatedTask:
    """A process that is a task; at its address, or at that of another."""

    def __init__(self, cluster: SimulatedCluster, name: str, address: str | None = None) -> None:
        self.name = name
        self.process = cluster.simulation.process(address or ADDRESSES[name])

        def open_(session: str, task: ServedTask, asked: Asked) -> SimulatedSession:
            return SimulatedSession(cluster, self.place, session, task, asked)

        self.task = Task(name, ADDRESSES, ConfigProto(), 1, open_, self.process.soon)
        self.place = SimulatedPlace(self.process, name, HandlerOfTask(self.task))
        self.task.join(SimulatedTasks(self.place))


class SimulatedClient:
    """A process with a session, which runs steps one after the other, or two at once."""

    def __init__(self, cluster: SimulatedCluster, address: str) -> None:
        self.cluster = cluster
        self.process = cluster.simulation.process(address)
        self.place = SimulatedPlace(self.process, f"client {address}", HandlerOfTask(_Nothing()))
        self.master: NotingMaster | None = None
        self.under_way: dict[int, float] = {}
        self.succeeded = 0
        self.outcomes: dict[str, int] = {}
        self._number = 0
        self._steps: list[ClusterStep] = []
        self._is_busy = False
        self.process.soon(self._open)

    def _open(self) -> None:
        dice = self.cluster.simulation.dice
        config = ConfigProto(operation_timeout_in_ms=20_000)
        self._is_busy = True
        try:
            target = ADDRESSES[dice.choice(TASKS)]
            name = f"{self.place.incarnation:016x}"
            tasks = SimulatedTasks(self.place)
            master = NotingMaster(target, config, None, tasks, name, timing=self.process)
        except LOSSES:
            self.process.call_at(self.process.now() + 0.5, self._open)
            return
        finally:
            self._is_busy = False
        # what is made of its number says nothing of the run
        self.master = master
        self._steps = [ClusterStep(master, plan) for plan in plans(master)]
        for _ in range(2):
            self.process.soon(self._next)

    def _next(self) -> None:
        if self.master is None or self.cluster.is_closing:
            return
        simulation = self.cluster.simulation
        if not self._is_busy:
            self._is_busy = True
            try:
                self._run(simulation.dice.choice(self._steps), simulation.dice.choice((None, None, 3.0)))
            finally:
                self._is_busy = False
        self.process.call_at(simulation.now + simulation.dice.choice((0.01, 0.5, 2.0)), self._next)

    def run_each_once(self) -> None:
        """Runs each kind of step."""
        for step in self._steps:
            self._run(step, None)

    def _run(self, step: ClusterStep, timeout: float | None) -> None:
        master = self.master
        assert master is not None
        self._number += 1
        number, began = self._number, self.process.now()
        self.under_way[number] = began
        epochs = {name: master.task(name).epoch for name in TASKS}
        numbers = master.numbers = []

        def on_done(outcome: Sequence[TensorValue] | BaseException) -> None:
            if not self.process.is_alive:
                return
            if number not in self.under_way:
                self.cluster.fail("a step ended twice")
            del self.under_way[number]
            self.cluster.ended(self, epochs, numbers[0], outcome, timeout)

        step.start([], on_done, timeout)


class NotingMaster(ClusterMaster):
    """Notes the numbers of the steps that begin.

    Attributes:
        numbers: of the last, one after the other.
    """

    numbers: list[int]

    def began(self, run: ClusterRun) -> int:
        """As of `ClusterMaster`."""
        number = super().began(run)
        self.numbers.append(number)
        return number


class _Nothing:
    """A client is asked for nothing."""

    def message(self, sender: str, frames: Frames) -> None:
        pass

    def request(self, sender: str, frames: Frames, reply: Callable[[Frames], None]) -> None:
        raise InvalidArgumentError(None, None, "this process is no task")

    def lost(self, sender: str, task: str) -> None:
        pass


class SimulatedCluster:
    """Tasks and clients, what fails, and what must hold all the same."""

    def __init__(self, seed: int) -> None:
        self.simulation = SimulatedTime(seed)
        self.simulation.network.fail = self.fail
        #: how likely it is that an operation fails
        self.failing = self.simulation.dice.choice((0.0, 0.02))
        #: how much longer things fail than in most lives, so that what is silent is given up
        self.scale = self.simulation.dice.choice((1, 1, 1, 4))
        self.sessions: list[SimulatedSession] = []
        self.is_closing = False
        self.faults: dict[str, int] = {}
        self._starts: dict[tuple[int, str, str, int], None] = {}
        self._broken: list[str] = []
        self.tasks = {name: SimulatedTask(self, name) for name in TASKS}
        self.clients = {address: SimulatedClient(self, address) for address in CLIENTS}
        self.gone: list[SimulatedClient] = []
        self.outlived: list[SimulatedTask] = []

    def fail(self, what: str) -> None:
        """Something does not hold."""
        self._broken.append(f"at {self.simulation.now:.3f} s: {what}")

    # ------------------------------------------------------------------ what must hold
    def began(self, session: SimulatedSession, number: int) -> None:
        """A step starts on a task."""
        key = session.place.incarnation, session.task, session.name, number
        if key in self._starts:
            self.fail(f"step {number} of {session.name} started twice on {session.task}")
        self._starts[key] = None

    def ended(
        self,
        client: SimulatedClient,
        epochs: dict[str, int],
        number: int,
        outcome: Sequence[TensorValue] | BaseException,
        timeout: float | None,
    ) -> None:
        """A step has ended for its master."""
        master = client.master
        assert master is not None
        kind = type(outcome).__name__ if isinstance(outcome, BaseException) else "success"
        client.outcomes[kind] = client.outcomes.get(kind, 0) + 1
        self.simulation.note(f"{kind} {number}")
        if not isinstance(outcome, BaseException):
            client.succeeded += 1
            if any(int(value) != number for value in outcome):
                self.fail(f"step {number} has values {outcome}")
        elif isinstance(outcome, InvalidArgumentError):
            if f"{INJECTED} step {number}" not in str(outcome):
                self.fail(f"step {number} failed with what is not its own: {outcome}")
        elif isinstance(outcome, DeadlineExceededError):
            if timeout is None and "did not answer" not in str(outcome):
                self.fail(f"step {number} has no deadline, and failed with {outcome!r}")
        elif not isinstance(outcome, LOSSES) and not (isinstance(outcome, CancelledError) and self.is_closing):
            self.fail(f"step {number} failed with {outcome!r}")
        notes = " ".join(getattr(outcome, "__notes__", ()))
        for session in self.sessions:
            if session.name != master.name or number not in session.running or not session.process.is_alive:
                continue
            if master.task(session.task).epoch == epochs[session.task] and session.task not in notes:
                self.fail(f"step {number} still runs on {session.task} after its end by {outcome!r}")

    def check(self) -> None:
        """Raises what does not hold."""
        if self._broken:
            raise Broken(f"seed {self.simulation.seed}: " + "; ".join(self._broken[:5]))

    # ------------------------------------------------------------------ what fails
    def trouble(self) -> None:
        """Something fails, and later something else does."""
        simulation = self.simulation
        if simulation.now >= TROUBLE * self.scale:
            return
        fault = simulation.dice.choice(FAULTS)
        self.faults[fault.__name__] = self.faults.get(fault.__name__, 0) + 1
        fault(self)
        pause = self.scale * simulation.dice.choice((0.3, 2.0, 6.0)) * simulation.dice.random()
        simulation.at(simulation.now + pause, None, self.trouble)

    def addresses(self) -> list[str]:
        """Of all processes."""
        return [*ADDRESSES.values(), *CLIENTS]

    def crash_task(self) -> None:
        """A task is killed, and is started again soon, or later."""
        dice = self.simulation.dice
        name = dice.choice(TASKS)
        if self.tasks[name].process.is_alive:
            self.simulation.network.crash(self.tasks[name].place)
            seconds = dice.choice((0.05, 3.0, 15.0)) * dice.random()
            self.simulation.at(self.simulation.now + seconds, None, functools.partial(self._start_task, name))

    def _start_task(self, name: str) -> None:
        self.tasks[name] = SimulatedTask(self, name)

    def replace_task(self) -> None:
        """A task is stopped, and another process takes its place; the first goes on later, and knows nothing."""
        simulation, name = self.simulation, self.simulation.dice.choice(TASKS)
        old = self.tasks[name]
        if old.process.is_alive:
            seconds = simulation.dice.choice((0.0, 1.0, 8.0, 40.0)) * simulation.dice.random()
            old.process.sleeps_until = max(old.process.sleeps_until, simulation.now + seconds)
            simulation.network.move_away(old.place)
            self.outlived.append(old)
            self._start_task(name)

    def mistake_task(self) -> None:
        """A task is killed, and another task gets its address for a while."""
        simulation, dice = self.simulation, self.simulation.dice
        name, other = dice.sample(TASKS, 2)
        if self.tasks[name].process.is_alive:
            simulation.network.crash(self.tasks[name].place)
            begins = simulation.now + dice.choice((0.0, 3.0)) * dice.random()
            simulation.at(begins, None, functools.partial(self._start_other, name, other))

    def _start_other(self, name: str, other: str) -> None:
        simulation = self.simulation
        place = SimulatedTask(self, other, ADDRESSES[name]).place
        ends = simulation.now + simulation.dice.choice((1.0, 15.0)) * simulation.dice.random()
        simulation.at(ends, None, functools.partial(simulation.network.crash, place))
        simulation.at(ends, None, functools.partial(self._start_task, name))

    def crash_client(self) -> None:
        """A client is killed, and another comes at its address."""
        address = self.simulation.dice.choice(CLIENTS)
        client = self.clients[address]
        self.simulation.network.crash(client.place)
        self.gone.append(client)
        self.clients[address] = SimulatedClient(self, address)

    def stop_process(self) -> None:
        """A process does nothing for a while, as after SIGSTOP."""
        dice = self.simulation.dice
        place = self.simulation.network.places[dice.choice(list(self.simulation.network.places))]
        seconds = dice.choice((1.0, 8.0, 40.0)) * dice.random()
        place.process.sleeps_until = max(place.process.sleeps_until, self.simulation.now + seconds)

    def cut_off(self) -> None:
        """Nothing goes between two processes for a while."""
        self._cut(both=True)

    def cut_one_way(self) -> None:
        """Nothing goes from one process to another for a while."""
        self._cut(both=False)

    def _cut(self, both: bool) -> None:
        dice, network = self.simulation.dice, self.simulation.network
        source, destination = dice.sample(self.addresses(), 2)
        seconds = self.scale * dice.choice((1.0, 8.0, 45.0)) * dice.random()
        for way in [(source, destination), (destination, source)] if both else [(source, destination)]:
            network.set_cut(*way, True)
            self.simulation.at(self.simulation.now + seconds, None, functools.partial(network.set_cut, *way, False))

    def slow_down(self) -> None:
        """The way between two processes is slow for a while."""
        dice, network = self.simulation.dice, self.simulation.network
        source, destination = dice.sample(self.addresses(), 2)
        network.slow[source, destination] = dice.choice((0.1, 2.0))
        end = self.simulation.now + 10 * dice.random()
        self.simulation.at(end, None, functools.partial(network.speed_up, source, destination))

    def _connection(self) -> Any:
        connections = list(self.simulation.network.connections)
        return self.simulation.dice.choice(connections) if connections else None

    def break_connection(self) -> None:
        """A connection breaks, with messages in it."""
        connection = self._connection()
        if connection is not None:
            connection.break_off()

    def lose_message(self) -> None:
        """A message is lost, and nobody is told."""
        connection = self._connection()
        if connection is not None:
            connection.lose_one()

    def repeat_message(self) -> None:
        """A message comes twice."""
        connection = self._connection()
        if connection is not None:
            connection.repeat_next()

    def repeat_greeting(self) -> None:
        """A copy of an old hello or welcome comes late."""
        self.simulation.network.repeat_greeting()

    # ------------------------------------------------------------------ its life
    def live(self) -> None:
        """Runs it from beginning to end.

        Raises:
            Broken: what must hold does not.
        """
        simulation = self.simulation
        simulation.at(2.0 * simulation.dice.random(), None, self.trouble)
        simulation.run_until(lambda: bool(self._broken), TROUBLE * self.scale)
        self.check()
        # nothing fails any more
        for task in self.outlived:
            simulation.network.crash(task.place)
        for way in list(simulation.network.cut):
            simulation.network.set_cut(*way, False)
        simulation.network.slow.clear()
        self.failing = 0.0
        healed = simulation.now
        for client in self.clients.values():
            client.succeeded = 0

        def is_well() -> bool:
            return bool(self._broken) or all(
                client.succeeded > 3 and all(began > healed for began in client.under_way.values())
                for client in self.clients.values()
            )

        if not simulation.run_until(is_well, RECOVERY):
            self.fail(f"steps do not succeed, or do not end: {self._story(healed)}")
        self.check()
        self._close()

    def _story(self, healed: float) -> str:
        return "; ".join(
            f"{address}: {client.succeeded} steps since, waits since {list(client.under_way.values())}, "
            f"{client.outcomes}"
            for address, client in self.clients.items()
        )

    def _close(self) -> None:
        """Ends all sessions: nothing may be left."""
        simulation = self.simulation
        self.is_closing = True
        if not simulation.run_until(lambda: not any(client.under_way for client in self.clients.values()), 60.0):
            self.fail(f"steps do not end: {self._story(0)}")
        simulation.run_until(lambda: False, 5.0)
        # the next step tells tasks which have ended
        for client in self.clients.values():
            client.run_each_once()
        if not simulation.run_until(lambda: not any(client.under_way for client in self.clients.values()), 60.0):
            self.fail(f"steps do not end: {self._story(0)}")
        for task in self.tasks.values():
            states = task.task.state.containers.rendezvous._table._steps
            over = [step for step, state in states.items() if state.begun or state.sent]
            if over:
                self.fail(f"{task.name} keeps values of {over}, which are over")
        for client in self.clients.values():
            if client.master is not None:
                client.master.forget()
        simulation.run_until(lambda: False, 35.0)
        for task in self.tasks.values():
            table = task.task.state.containers.rendezvous._table
            kept = {
                "sessions": len(task.task.service._sessions),
                "steps": table.steps,
                "bytes": table._early_bytes,
                "early steps": table._early_steps,
            }
            if any(kept.values()):
                self.fail(f"{task.name} has kept {kept}")
        for place in simulation.network.places.values():
            waiting = {peer.address: len(peer._waiting) + len(peer._pending) for peer in place._known_peers()}
            if any(waiting.values()):
                self.fail(f"{place.hello.name} waits for answers of {waiting}")
        self.check()


#: what may happen; often what is likely to leave something half done
FAULTS = (
    SimulatedCluster.crash_task,
    SimulatedCluster.crash_client,
    SimulatedCluster.stop_process,
    SimulatedCluster.cut_off,
    SimulatedCluster.cut_one_way,
    SimulatedCluster.slow_down,
    *[SimulatedCluster.cut_one_way] * 1,
    *[SimulatedCluster.break_connection] * 4,
    *[SimulatedCluster.lose_message] * 3,
    SimulatedCluster.repeat_message,
    *[SimulatedCluster.repeat_greeting] * 2,
    SimulatedCluster.replace_task,
    SimulatedCluster.mistake_task,
)

_plans: list[Plan] = []


def plans(master: ClusterMaster) -> list[Plan]:
    """The kinds of steps: a chain through three tasks, one that meets on a worker, one of a single task."""
    if not _plans:
        with Graph().as_default() as graph:
            with graph.device(TASKS[0]):
                first = _changing()
            with graph.device(TASKS[2]):
                doubled = first * 2
            with graph.device(TASKS[1]):
                second = _changing()
            with graph.device(TASKS[0]):
                back = doubled * 3
            with graph.device(TASKS[1]):
                chain = back + second
            with graph.device(TASKS[3]):
                meeting, alone = first + second, _changing()
        _plans.extend(plan_step([fetch], [], [], master.placer) for fetch in (chain, meeting, alone))
    return _plans


def _changing() -> Tensor:
    """What is not known before the step runs."""
    changing: Tensor = raw.RandomUniform(shape=[1], dtype=np.float32)
    return changing


def run(seed: int) -> SimulatedCluster:
    """One life of a cluster.

    Raises:
        Broken: what must hold does not.
    """
    # objects that are collected may send messages: not at a time that the seed does not say
    gc.disable()
    try:
        cluster = SimulatedCluster(seed)
        cluster.live()
        return cluster
    finally:
        gc.enable()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs many seeds; the status is 1 if one fails."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", default="0:100", help="FIRST:LAST, or one")
    first, _, last = parser.parse_args(arguments).seeds.partition(":")
    began, failed, events, outcomes, faults = time.process_time(), 0, 0, dict[str, int](), dict[str, int]()
    for seed in range(int(first), int(last) if last else int(first) + 1):
        try:
            cluster = run(seed)
        except Broken as error:
            failed += 1
            sys.stdout.write(f"{error}\n")
            sys.stdout.flush()
            continue
        events += cluster.simulation.events
        for counts, more in [(faults, cluster.faults)] + [
            (outcomes, client.outcomes) for client in [*cluster.clients.values(), *cluster.gone]
        ]:
            for kind, count in more.items():
                counts[kind] = counts.get(kind, 0) + count
    seconds = time.process_time() - began
    sys.stdout.write(f"{failed} failed; {events} events in {seconds:.1f} s; {outcomes}; {faults}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
