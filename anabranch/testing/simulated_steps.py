"""Steps of simulated tasks: what takes the place of kernels is waits, and now and then a failure.

A step receives and sends as a real one does, through the rendezvous of its task; see `testing.simulated_cluster`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from anabranch.core.values import TensorValue
from anabranch.errors import CancelledError, DeadlineExceededError, InvalidArgumentError, OpError
from anabranch.runtime.item_call import Recorder
from anabranch.runtime.protocols import OnDone
from anabranch.runtime.rendezvous import Rendezvous
from anabranch.runtime.rendezvous_table import StepId
from anabranch.runtime.served_sessions import Asked, ServedTask
from anabranch.testing.simulated_network import SimulatedPlace
from anabranch.xla.between_tasks import crosses_tasks
from anabranch.xla.islands import HostCall
from anabranch.xla.partitions import Partition

INJECTED = "injected into"


class Watching(Protocol):
    """What watches over the steps of a simulated cluster; see `SimulatedCluster`."""

    #: how probable it is that a kernel fails
    failing: float
    #: those of all tasks
    sessions: list[SimulatedSession]

    def began(self, session: SimulatedSession, number: int) -> None:
        """A step began on a session's task."""

    def fail(self, what: str) -> None:
        """What must hold does not."""


class SimulatedRun:
    """A part of a step that runs on a task: it receives, computes for a while, and sends, item by item."""

    def __init__(
        self, session: SimulatedSession, partition: Partition, number: int, on_done: OnDone, timeout: float | None
    ) -> None:
        self._session, self._number, self._on_done = session, number, on_done
        self._partition = partition
        self._items = iter(partition.items)
        self._error: OpError | None = None
        self._ended = False
        self._cluster = session.cluster
        # a step that was given up before it began does not
        self._exchange = session.rendezvous.begin(StepId(session.name, number))
        self._cluster.began(session, number)
        session.running[number] = self
        if timeout is not None:
            session.process.call_at(session.process.now() + timeout, self._too_late)
        session.process.soon(self._go_on)

    def cancel(self, error: OpError) -> None:
        """Ends it as soon as it does not compute."""
        self._error = self._error or error
        self._exchange.abort(error)

    def _too_late(self) -> None:
        if not self._ended:
            self.cancel(DeadlineExceededError(None, None, "the step did not end within its time"))

    def _go_on(self) -> None:
        if self._error is not None:
            self._end(self._error)
            return
        for item in self._items:
            if isinstance(item, HostCall) and crosses_tasks(item.operation):
                source, destination, name = (
                    item.operation.attrs[what].decode() for what in ("send_device", "recv_device", "tensor_name")
                )
                if item.operation.outputs:
                    pending = self._exchange.receive(source, destination, name)
                    pending.when_settled(
                        lambda settled: self._session.process.soon(
                            functools.partial(self._received, settled.values, settled.error)
                        )
                    )
                    return
                try:
                    self._exchange.send_away(source, destination, name, np.array([self._number]))
                except OpError as error:
                    self._end(error)
                    return
            else:
                self._compute()
                return
        self._end(None)

    def _compute(self) -> None:
        process = self._session.process
        dice = process.simulation.dice
        seconds = dice.choice((0.001, 0.01, 0.1)) if dice.random() > 0.02 else 8.0
        if dice.random() < self._cluster.failing:
            error = InvalidArgumentError(None, None, f"{INJECTED} step {self._number}")
            process.call_at(process.now() + seconds, lambda: self._end(self._error or error))
        else:
            process.call_at(process.now() + seconds, self._go_on)

    def _received(self, values: Sequence[Any], error: BaseException | None) -> None:
        if error is not None:
            assert isinstance(error, OpError)
            self._end(self._error or error)
            return
        (value,) = values
        if int(value[0]) != self._number:
            self._cluster.fail(f"step {self._number} got a value of step {int(value[0])}")
        self._go_on()

    def _end(self, error: OpError | None) -> None:
        self._ended = True
        if error is not None:
            self._exchange.abort(error)
        self._session.running.pop(self._number, None)
        self._exchange.finish()
        self._on_done([np.int64(self._number) for _ in self._partition.fetches] if error is None else error)


class SimulatedPartition:
    """See `runtime.protocols.RegisteredPartition`."""

    def __init__(self, session: SimulatedSession, partition: Partition) -> None:
        self._session, self._partition = session, partition

    def run(
        self, number: int, feeds: Sequence[TensorValue], record: Recorder | None = None, timeout: float | None = None
    ) -> list[TensorValue]:
        """Nobody waits in a simulated process."""
        raise NotImplementedError

    def run_on_device(
        self, number: int, feeds: Sequence[TensorValue], record: Recorder | None = None, timeout: float | None = None
    ) -> list[TensorValue]:
        """See `run`."""
        raise NotImplementedError

    def start(
        self,
        number: int,
        feeds: Sequence[TensorValue],
        on_done: OnDone,
        timeout: float | None = None,
        record: Recorder | None = None,
    ) -> None:
        """Begins a part of a step."""
        try:
            if self._session.is_over:
                raise CancelledError(None, None, "the session was closed")
            SimulatedRun(self._session, self._partition, number, on_done, timeout)
        except OpError as error:
            on_done(error)

    def release(self) -> None:
        """There is nothing to release."""


class SimulatedSession:
    """See `runtime.worker_service.TaskSession`."""

    def __init__(self, cluster: Watching, place: SimulatedPlace, name: str, task: ServedTask, asked: Asked):
        self.cluster, self.place, self.process = cluster, place, place.process
        self.name, self.task = name, task.name
        self.rendezvous: Rendezvous = task.state.containers.rendezvous
        self.rendezvous.open_session(name, asked.first_step)
        self.running: dict[int, SimulatedRun] = {}
        self.is_over = False
        cluster.sessions.append(self)

    def register(self, partition: Partition) -> SimulatedPartition:
        """Keeps a partition, which must be this task's."""
        if partition.task != self.task:
            self.cluster.fail(f"{self.task} got what {partition.task} is to do")
        return SimulatedPartition(self, partition)

    def abort(self, number: int, error: OpError) -> None:
        """As `runtime.local_worker` does it."""
        self.rendezvous.abort(StepId(self.name, number), error)
        run = self.running.get(number)
        if run is not None:
            run.cancel(error)

    def close(self) -> None:
        """Cancels its steps."""
        self.is_over = True
        for run in list(self.running.values()):
            run.cancel(CancelledError(None, None, "the step was cancelled: its session was closed"))

    def forget(self) -> None:
        """Drops what is kept for it."""
        if self.running:
            self.cluster.fail(f"session {self.name} was forgotten on {self.task} while steps of it run")
        self.rendezvous.forget_session(self.name)
