"""The master of a session on a cluster: it plans whole steps, and gives each task its partition (§3.3, WP2).

It lives in the client's process (docs/decisions/0037-clusters.md). A step is one message to each task that has a part
in it and one answer from each; tensors go from task to task without the master.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from anabranch.core.device import DeviceSpec
from anabranch.core.values import TensorValue
from anabranch.distributed.cluster_spec import matches_filters, parse_task_name
from anabranch.distributed.cluster_step import ClusterRun, ClusterStep
from anabranch.distributed.described_tasks import Describing, TasksToCome, check_task, described, tasks_of_session
from anabranch.distributed.network import TaskConnection, TaskNetwork, Timing
from anabranch.distributed.session_tasks import TaskOfSession
from anabranch.errors import (
    AbortedError,
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    OpError,
    UnavailableError,
    UnimplementedError,
)
from anabranch.graph.operation import Operation, Tensor
from anabranch.pipeline import plan_step
from anabranch.placement.cost_model import CostModel
from anabranch.placement.policy import PlacementPolicy, policy_of
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.proto.step_plan_pb2 import WorkerRequest
from anabranch.runtime.deadlines import deadlines
from anabranch.runtime.devices import DeviceAttributes, RemoteDevice
from anabranch.runtime.half_precision import half_request
from anabranch.runtime.lent_tensors import DlpackTensor, lent_to_host
from anabranch.runtime.local_worker import placer_for
from anabranch.runtime.measurement import measure_step
from anabranch.runtime.protocols import Step, WorkerSession
from anabranch.runtime.remote_worker import RemoteWorkerSession, read_reply
from anabranch.runtime.served_sessions import Asked
from anabranch.runtime.task_sessions import Watcher
from anabranch.runtime.worker_service import WorkerService

_log = logging.getLogger(__name__)

#: how often (s) a session that is being made says whom it waits for
TELL_EVERY: Final = 10.0
#: the longest pause (s) between two attempts to reach a task
_LONGEST_PAUSE: Final = 1.0
#: how many tasks are asked where another one is that is lost
_ASKED_FOR_ADDRESSES: Final = 3

_NOBODY: Final = frozenset[str]()

_session_numbers = itertools.count(1)


class ClusterMaster:
    """See the module docstring and `runtime.protocols.Master`.

    Args:
        target: the address of the task that operations go to that ask for none. It says which other tasks there are.
        config: the session's `ConfigProto`.
        placement: the session's placement policy, or the path of its file.
        network: reaches the tasks.
        client: names this process among the clients of the cluster.
        here: the tasks that this process is, by their addresses; steps go to them without messages.
        timing: by which it waits.

    Attributes:
        reopens: see `session_tasks.MasterOfTasks`.

    Raises:
        InvalidArgumentError: the configuration or the policy is wrong, or the filters leave no task.
        DeadlineExceededError: `operation_timeout_in_ms` is over, and tasks do not answer.
        UnavailableError: another task is at the address of one.
    """

    def __init__(
        self,
        target: str,
        config: ConfigProto | None,
        placement: PlacementPolicy | str | os.PathLike[str] | None,
        network: TaskNetwork,
        client: str,
        here: Callable[[str], WorkerService | None] = lambda _: None,
        timing: Timing = deadlines,
    ) -> None:
        self._config = config or ConfigProto()
        self.reopens = True
        self._policy = policy_of(placement)
        self._network, self._here, self.timing = network, here, timing
        self.name = f"{client}.{next(_session_numbers)}"
        seconds = self._config.operation_timeout_in_ms / 1000
        waiting = TasksToCome(timing, timing.now() + seconds if seconds else None)
        (first,) = waiting.describe([self._describing(target)])
        addresses = tasks_of_session(self._config, first)
        visible = [
            name for name in addresses if name == first.task or matches_filters(name, self._config.device_filters)
        ]
        # that of the target first: its devices are preferred
        visible.sort(key=lambda name: (name != first.task, *parse_task_name(name)))
        self._addresses = {name: addresses[name] for name in visible}
        descriptions = waiting.describe([self._describing(address) for address in self._addresses.values()])
        for name, said in zip(visible, descriptions, strict=True):
            check_task(name, self._addresses[name], said)
        incarnations = {said.task: said.incarnation for said in descriptions}
        devices = [
            RemoteDevice(d.device_type, DeviceSpec.from_string(d.name).device_index or 0, d.memory_limit, said.task)
            for said in descriptions
            for d in said.device
        ]
        self._attributes = [
            DeviceAttributes(d.name, d.device_type, d.memory_limit, d.incarnation)
            for said in descriptions
            for d in said.device
        ]
        self.placer = placer_for(config, self._policy, devices)
        self._half = half_request(config, self.placer.devices)
        self._last_number = 0
        self._lock = threading.Lock()
        #: in the order in which they began
        self._running: dict[ClusterRun, None] = {}
        self._closed = False
        #: grows only: a session has one notice of each task
        self._leaving: set[str] = set()
        self._tasks: dict[str, TaskOfSession] = {}
        try:
            for name in visible:
                self._tasks[name] = TaskOfSession(self, name, self._addresses[name], incarnations[name])
        except BaseException:
            # tasks keep a session for as long as its client lives
            self.forget()
            raise

    def _describing(self, address: str) -> Describing:
        service = self._here(address)
        if service is not None:
            return Describing(address, service.description)
        connection = self._network.connect(address)
        return Describing(address, lambda: described(connection))

    def devices(self) -> list[DeviceAttributes]:
        """The devices that steps can use."""
        return list(self._attributes)

    def measure(self, model: CostModel, step: Step, feeds: Sequence[TensorValue], runs: int) -> None:
        """Adds to a model what a step costs."""
        measure_step(model, step, feeds, runs, {d.name: d.device_type for d in self._attributes})

    def prepare(
        self,
        fetches: Sequence[Tensor],
        targets: Sequence[Operation],
        feeds: Sequence[Tensor],
        kept: Mapping[int, str] | None = None,
    ) -> ClusterStep:
        """Plans a kind of step, and gives each task its partition.

        Raises:
            OpError: the graph cannot be run or not placed, or a task refuses its partition or does not answer.
            UnimplementedError: fetches are to stay on devices, as in TensorFlow.
        """
        if kept:
            raise UnimplementedError(
                None, None, "what a session on a cluster fetches comes to the client's host; leave out fetch_devices"
            )
        plan = plan_step(fetches, targets, feeds, self.placer, self._half)
        step = ClusterStep(self, plan)
        step.register()
        return step

    def lend(self, value: DlpackTensor) -> TensorValue | None:
        """See `runtime.protocols.Master`: what goes to other tasks goes by way of the host."""
        return lent_to_host(value)

    def stay_lost(self) -> None:
        """See `runtime.protocols.Master`."""
        self.reopens = False

    def leaving(self) -> frozenset[str]:
        """See `runtime.protocols.Master`."""
        return frozenset(self._leaving) if self._leaving else _NOBODY

    def close(self) -> None:
        """Cancels the steps that wait, and releases what belongs to the session alone."""
        self._closed = True
        self._cancel_all()
        for task in self._tasks.values():
            task.close()

    def forget(self) -> None:
        """Ends what works for a session that nobody holds any more, and hence no step is running in."""
        for task in self._tasks.values():
            task.forget()

    # ---- for the steps
    def task(self, name: str) -> TaskOfSession:
        """What the session knows of a task."""
        return self._tasks[name]

    def open_on(self, address: str, watcher: Watcher) -> WorkerSession:
        """Opens the session on a task.

        Args:
            watcher: see `runtime.worker_service.WorkerService.watch`.
        """
        service = self._here(address)
        if service is not None:
            session = service.open(self.name, Asked(self._config, self._policy, self._first_step()), self._addresses)
            service.watch(self.name, watcher)
            return session
        connection = self._network.connect(address)
        remote = RemoteWorkerSession(
            connection, self.name, None, self._policy, self._config, self._addresses, self._first_step
        )
        remote.watch(watcher)
        return remote

    def find(self, name: str, address: str, left: Collection[int]) -> tuple[str, int]:
        """See `session_tasks.MasterOfTasks`: where other tasks of the session know it, or else where it was."""
        problem: OpError | None = None
        # who is where the task was is shut out: to look there, while the new one starts, would be in vain. Tasks that
        # have not heard of the move yet go on to tell that address
        told = (*self._told_addresses(name, address), address)
        candidates = [candidate for candidate in told if not self._network.has_left(name, candidate)]
        for candidate in candidates:
            try:
                return candidate, self._incarnation_at(name, candidate, left)
            # refused: by who has heard that it is elsewhere, or because the one that is there is shut out
            except (UnavailableError, FailedPreconditionError) as error:
                # what was heard of a move meanwhile is no answer of the task's
                if not self._network.has_left(name, candidate):
                    problem = problem or error
        raise problem or UnavailableError(
            None, None, f"{name} has moved from {address}, and no task says where it is now; run the step again"
        )

    def _incarnation_at(self, name: str, address: str, left: Collection[int]) -> int:
        said = self._describing(address).describe()
        if said is None:
            raise UnavailableError(None, None, f"the task at {address} does not answer; it was lost, and is not back")
        check_task(name, address, said)
        if said.incarnation in left:
            problem = f"the process at {address} was {name} until another process took over"
            raise UnavailableError(None, None, f"{problem}; end it, and look whether the other one runs")
        return said.incarnation

    def _told_addresses(self, name: str, known: str) -> list[str]:
        """Where other tasks say that a task is, if not where it was. See `distributed.address_book`."""
        told: dict[str, None] = {}
        asked = 0
        for task in self._tasks.values():
            if task.name != name and task.is_open and asked < _ASKED_FOR_ADDRESSES:
                said = self._describing(task.address).describe()
                asked += said is not None
                address = None if said is None else said.address.get(name)
                if address is not None and address != known:
                    told[address] = None
        return list(told)

    def moved(self, name: str, address: str) -> None:
        """See `session_tasks.MasterOfTasks`."""
        self._addresses = {**self._addresses, name: address}
        request = WorkerRequest(session=self.name)
        request.relocate.task, request.relocate.address = name, address
        for task in self._tasks.values():
            service = self._here(task.address)
            if service is not None:
                service.relocate(self.name, name, address)
            elif task.name != name and task.is_open:
                # one that is lost is told when the session is opened there again
                with contextlib.suppress(UnavailableError, AbortedError, DeadlineExceededError):
                    read_reply(self._network.connect(task.address).call([request.SerializeToString()]))

    def connection(self, address: str) -> TaskConnection | None:
        """The way to a task; None where it is this process."""
        return None if self._here(address) is not None else self._network.connect(address)

    def service(self, address: str) -> WorkerService | None:
        """What serves a task of this process; None where an address is another's."""
        return self._here(address)

    def _first_step(self) -> int:
        """The number below which steps have ended: they begin in the order of their numbers."""
        with self._lock:
            first = next(iter(self._running), None)
            return self._last_number + 1 if first is None else first.number

    def next_number(self) -> int:
        """The number of a new step of which no other task hears."""
        with self._lock:
            self._last_number += 1
            return self._last_number

    def began(self, run: ClusterRun) -> int:
        """Notes a run that is under way; returns its number."""
        with self._lock:
            self._last_number += 1
            run.number = self._last_number
            self._running[run] = None
        if self._closed:
            self._cancel_all()
        return run.number

    def ended(self, run: ClusterRun) -> None:
        """Notes its end."""
        with self._lock:
            self._running.pop(run, None)

    def lost(self, task: str, error: OpError) -> None:
        """Gives up the steps that a task has a part in: what it sent to others may be lost, also if it has answered."""
        for run in self._under_way():
            if task in run.tasks:
                run.give_up(error)

    def parted(self, task: str, others: Sequence[str]) -> None:
        """Two tasks were lost to each other, as one of them says: what one sent to the other may be lost.

        A task that names itself is about to leave.
        """
        for other in others:
            if other == task:
                self._leaving.add(task)
                continue
            for run in self._under_way():
                if task in run.tasks and other in run.tasks:
                    error = f"the link between {task} and {other} failed, and what was sent may be lost"
                    run.give_up(UnavailableError(None, None, f"{error}; run the step again"))

    def expect(self) -> None:
        """The calling thread waits from now on."""
        self._network.expect()

    def _under_way(self) -> list[ClusterRun]:
        with self._lock:
            return list(self._running)

    def _cancel_all(self) -> None:
        for run in self._under_way():
            run.give_up(CancelledError(None, None, "the step was cancelled: its session was closed"))
