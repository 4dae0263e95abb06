"""The master of a session on a cluster: it plans whole steps, and gives each task its partition (§3.3, WP2).

It lives in the client's process (docs/decisions/0037-clusters.md). A step is one message to each task that has a part
in it and one answer from each; tensors go from task to task without the master.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.core.bounded import ticks
from anabranch.core.device import DeviceSpec
from anabranch.core.interrupts import admitted
from anabranch.core.values import TensorValue
from anabranch.distributed.cluster_spec import matches_filters, parse_task_name
from anabranch.distributed.network import TaskConnection, TaskNetwork
from anabranch.distributed.step_protocol import GRACE, Abort, Instruction, StepProtocol
from anabranch.distributed.task_descriptions import DescribableTask, WaitingForTasks, described
from anabranch.errors import (
    AbortedError,
    CancelledError,
    DeadlineExceededError,
    OpError,
    UnavailableError,
)
from anabranch.graph.operation import Operation, Tensor
from anabranch.pipeline import Plan, plan_step
from anabranch.placement.cost_model import CostModel
from anabranch.placement.policy import PlacementPolicy, policy_of
from anabranch.proto.config_pb2 import ConfigProto
from anabranch.proto.step_plan_pb2 import WorkerRequest
from anabranch.runtime.deadlines import deadlines
from anabranch.runtime.devices import DeviceAttributes, RemoteDevice
from anabranch.runtime.item_call import Recorder
from anabranch.runtime.local_worker import placer_for
from anabranch.runtime.measurement import measure_step
from anabranch.runtime.messages import error_from_proto
from anabranch.runtime.protocols import OnDone, RegisteredPartition, Step, WorkerSession
from anabranch.runtime.worker_service import RemoteWorkerSession, WorkerService, read_reply
from anabranch.xla.partitions import Partition

_log = logging.getLogger(__name__)

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

    Raises:
        InvalidArgumentError: the configuration or the policy is wrong, or the filters leave no task.
        DeadlineExceededError: `operation_timeout_in_ms` is over, and tasks do not answer.
    """

    def __init__(
        self,
        target: str,
        config: ConfigProto | None,
        placement: PlacementPolicy | str | os.PathLike[str] | None,
        network: TaskNetwork,
        client: str,
        here: Callable[[str], WorkerService | None] = lambda _: None,
    ) -> None:
        self._config = config or ConfigProto()
        self._policy = policy_of(placement)
        self._network, self._here = network, here
        self.name = f"{client}.{next(_session_numbers)}"
        seconds = self._config.operation_timeout_in_ms / 1000
        waiting = WaitingForTasks(time.monotonic() + seconds if seconds else None)
        (first,) = waiting.describe([self._describing(target)])
        addresses = dict(first.address)
        visible = [
            name for name in addresses if name == first.task or matches_filters(name, self._config.device_filters)
        ]
        # that of the target first: its devices are preferred
        visible.sort(key=lambda name: (name != first.task, *parse_task_name(name)))
        self._addresses = {name: addresses[name] for name in visible}
        descriptions = waiting.describe([self._describing(address) for address in self._addresses.values()])
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
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._running: set[_ClusterRun] = set()
        self._closed = False
        self._tasks: dict[str, _TaskOfSession] = {}
        try:
            for name in visible:
                self._tasks[name] = _TaskOfSession(self, name, self._addresses[name], incarnations[name])
        except BaseException:
            # tasks keep a session for as long as its client lives
            self.forget()
            raise

    def _describing(self, address: str) -> DescribableTask:
        service = self._here(address)
        if service is not None:
            return DescribableTask(address, service.description)
        connection = self._network.connect(address)
        return DescribableTask(address, lambda: described(connection))

    def devices(self) -> list[DeviceAttributes]:
        """The devices that steps can use."""
        return list(self._attributes)

    def measure(self, model: CostModel, step: Step, feeds: Sequence[TensorValue], runs: int) -> None:
        """Adds to a model what a step costs."""
        measure_step(model, step, feeds, runs, {d.name: d.device_type for d in self._attributes})

    def prepare(self, fetches: Sequence[Tensor], targets: Sequence[Operation], feeds: Sequence[Tensor]) -> ClusterStep:
        """Plans a kind of step, and gives each task its partition.

        Raises:
            OpError: the graph cannot be run or not placed, or a task refuses its partition or does not answer.
        """
        plan = plan_step(fetches, targets, feeds, self.placer)
        step = ClusterStep(self, plan)
        step.register()
        return step

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
    def task(self, name: str) -> _TaskOfSession:
        """What the session knows of a task."""
        return self._tasks[name]

    def open_on(self, address: str) -> WorkerSession:
        """Opens the session on a task."""
        service = self._here(address)
        if service is not None:
            return service.open(self.name, self._config, self._policy, self._addresses)
        connection = self._network.connect(address)
        return RemoteWorkerSession(connection, self.name, None, self._policy, self._config, self._addresses)

    def incarnation_at(self, address: str) -> int:
        """Which process the task is now.

        Raises:
            UnavailableError: it cannot be reached.
        """
        said = self._describing(address).describe()
        if said is None:
            raise UnavailableError(None, None, f"the task at {address} does not answer; it was lost, and is not back")
        return said.incarnation

    def connection(self, address: str) -> TaskConnection | None:
        """The way to a task; None where it is this process."""
        return None if self._here(address) is not None else self._network.connect(address)

    def next_number(self) -> int:
        """The number of a new step."""
        return next(self._numbers)

    def began(self, run: _ClusterRun) -> None:
        """Notes a run that is under way."""
        with self._lock:
            self._running.add(run)
        if self._closed:
            self._cancel_all()

    def ended(self, run: _ClusterRun) -> None:
        """Notes its end."""
        with self._lock:
            self._running.discard(run)

    def _cancel_all(self) -> None:
        with self._lock:
            runs = list(self._running)
        for run in runs:
            run.give_up(CancelledError(None, None, "the step was cancelled: its session was closed"))


class _TaskOfSession:
    """A task as one session knows it: the session's part there, which is opened anew where the task has come back.

    A session learns once of each process that takes a task over, by an AbortedError: what the task held is gone, or is
    what a checkpoint had, so that the program should know before it goes on.

    Attributes:
        epoch: grows whenever the task was lost: what was registered before is not there any more.
        is_here: whether the task is this process.
    """

    def __init__(self, master: ClusterMaster, name: str, address: str, incarnation: int) -> None:
        self.name, self.address = name, address
        self._incarnation = incarnation
        self.epoch = 0
        self._master = master
        self._lock = threading.Lock()
        self._session: WorkerSession | None = None
        connection = master.connection(address)
        self.is_here = connection is None
        # before the session is opened: a task that is lost right after that must be known to be
        self._withdraw = _nothing if connection is None else connection.on_lost(self._lost)
        try:
            self.session()
        except BaseException:
            self._withdraw()
            raise

    def _lost(self, _: OpError) -> None:
        # without the lock: whoever opens a session holds it while it waits for an answer
        self.epoch += 1
        self._session = None

    def session(self) -> tuple[int, WorkerSession]:
        """The session's part on the task, and the epoch that it belongs to.

        Raises:
            AbortedError: another process has become the task; what it is asked next, it does.
            OpError: the task does not answer, or refuses.
        """
        with self._lock:
            epoch, session = self.epoch, self._session
            if session is None:
                if epoch > 0:
                    self._check_incarnation()
                session = self._master.open_on(self.address)
                if self.epoch == epoch:
                    self._session = session
            return epoch, session

    def _check_incarnation(self) -> None:
        now = self._master.incarnation_at(self.address)
        if now != self._incarnation:
            self._incarnation = now
            raise AbortedError(
                None,
                None,
                f"{self.name} has come back as another process: its variables have no values, or those of a "
                "checkpoint. Restore them and run the step again (tf.train.MonitoredTrainingSession does)",
            )

    def abort(self, number: int, error: OpError) -> None:
        """Gives a step up there."""
        session = self._session
        if session is None:
            return
        try:
            session.abort(number, error)
        except OpError:
            _log.debug("could not tell %s that step %d is given up", self.name, number, exc_info=True)

    def close(self) -> None:
        """Ends the session there; a task that is lost has none."""
        self._withdraw()
        session = self._session
        if session is None:
            return
        try:
            session.close()
            session.forget()
        except (UnavailableError, AbortedError, DeadlineExceededError, CancelledError):
            _log.debug("could not close the session on %s", self.name, exc_info=True)

    def forget(self) -> None:
        """Likewise, without waiting for an answer."""
        self._withdraw()
        session = self._session
        if session is not None:
            try:
                session.forget()
            except OpError:
                _log.debug("could not end the session on %s", self.name, exc_info=True)


def _nothing() -> None:
    """Withdraws what was never given."""


class _Part:
    """A partition of a step, where it is registered."""

    __slots__ = ("epoch", "partition", "registered", "task")

    def __init__(self, task: _TaskOfSession, partition: Partition) -> None:
        self.task, self.partition = task, partition
        self.epoch = -1
        self.registered: RegisteredPartition | None = None

    def ready(self) -> RegisteredPartition:
        """The partition at the task; registered anew where the task has come back.

        Raises:
            OpError: the task refuses it, or does not answer.
        """
        if self.registered is None or self.epoch != self.task.epoch:
            self.epoch, session = self.task.session()
            self.registered = session.register(self.partition)
        return self.registered


class ClusterStep:
    """A step that runs on the tasks of a cluster. See `runtime.protocols.Step`."""

    def __init__(self, master: ClusterMaster, plan: Plan) -> None:
        self.plan = plan
        self.used = 0
        self._master = master
        self._parts = [
            _Part(master.task(partition.task), partition) for partition in plan.partitions if _runs(partition)
        ]
        #: the one part of a step that does not leave this process
        self._only = self._parts[0] if len(self._parts) == 1 and self._parts[0].task.is_here else None

    def register(self) -> None:
        """Gives each task its partition."""
        for part in self._parts:
            part.ready()

    def release(self) -> None:
        """Releases executables; a run that comes later compiles anew."""
        for part in self._parts:
            if part.registered is not None and part.epoch == part.task.epoch:
                part.registered.release()

    def run(
        self, feeds: Sequence[TensorValue], record: Recorder | None = None, timeout: float | None = None
    ) -> list[TensorValue]:
        """Runs one step.

        Raises:
            OpError: what the first task failed with that did; UnavailableError or AbortedError: a task was lost.
            BaseException: an interrupt of this thread; the step is given up on all tasks.
        """
        self.used = next(ticks)
        if self._only is not None:
            return self._only.ready().run(self._master.next_number(), feeds, record, timeout)
        run = _ClusterRun(self._master, self._parts, len(self.plan.step.fetches))
        ended = threading.Event()
        here = run.start(feeds, lambda _: ended.set(), timeout, record, leaves_here=True)
        try:
            if here is not None:
                # on this thread, which would only wait for another
                here()
            with admitted():
                ended.wait()
        except BaseException as error:
            run.give_up(error)
            # until the tasks have ended it, or the grace is over: nothing of the step runs when this returns
            ended.wait()
            raise
        if isinstance(run.outcome, BaseException):
            raise run.outcome
        return run.outcome

    def start(self, feeds: Sequence[TensorValue], on_done: OnDone, timeout: float | None = None) -> None:
        """Starts one step."""
        self.used = next(ticks)
        _ClusterRun(self._master, self._parts, len(self.plan.step.fetches)).start(feeds, on_done, timeout, None)


def _runs(partition: Partition) -> bool:
    return bool(partition.items or partition.fetches)


class _ClusterRun:
    """One run of a step: carries out what its `StepProtocol` says.

    Attributes:
        outcome: the values of the fetches, or what the step failed with; set when it has ended.
    """

    def __init__(self, master: ClusterMaster, parts: Sequence[_Part], fetches: int) -> None:
        self._master, self._parts = master, parts
        self._number = master.next_number()
        self._protocol = StepProtocol([part.task.name for part in parts])
        self._lock = threading.Lock()
        self._values: list[Any] = [None] * fetches
        self._on_done: OnDone | None = None
        self._forget_deadline: Callable[[], None] = _nothing
        self._forget_grace: Callable[[], None] = _nothing
        self.outcome: list[Any] | BaseException = []

    def start(
        self,
        feeds: Sequence[TensorValue],
        on_done: OnDone,
        timeout: float | None,
        record: Recorder | None,
        leaves_here: bool = False,
    ) -> Callable[[], None] | None:
        """Starts the step on all of its tasks.

        Args:
            leaves_here: whether the part of a task that is this process is left to the caller.

        Returns:
            What runs that part; None where there is none.
        """
        self._on_done = on_done
        self._master.began(self)
        here: Callable[[], None] | None = None
        here_at: int | None = None
        if not self._parts:
            self._end(None)
            return None
        if timeout is not None:
            # the tasks end it themselves, and say who waits for what; this is for those that do not answer
            deadline = time.monotonic() + timeout + GRACE / 2
            self._forget_deadline = deadlines.call_at(deadline, lambda: self._too_late(timeout))
        try:
            # all before the first begins: a task that is not there is known before another has changed anything
            ready = [part.ready() for part in self._parts]
        except BaseException as error:
            self._begins_not(0, None, error)
            return None
        for position, (part, registered) in enumerate(zip(self._parts, ready, strict=True)):
            own = [feeds[i] for i in part.partition.feed_positions]
            try:
                if leaves_here and here is None and part.task.is_here:
                    here, here_at = (
                        functools.partial(self._run_here, position, registered, own, timeout, record),
                        position,
                    )
                    continue
                registered.start(self._number, own, functools.partial(self._answered, position), timeout, record)
            except BaseException as error:
                self._begins_not(position, here_at, error)
                return None
        return here

    def _begins_not(self, position: int, here_at: int | None, error: BaseException) -> None:
        """A part could not begin: those before it that have are told, the others never hear of the step.

        Args:
            position: of the part.
            here_at: of a part before it that was left to the caller.
        """
        for later in range(position + 1, len(self._parts)):
            self._answered(later, [])
        if here_at is not None:
            self._answered(here_at, [])
        self._answered(position, error)

    def _run_here(
        self,
        position: int,
        registered: RegisteredPartition,
        feeds: Sequence[TensorValue],
        timeout: float | None,
        record: Recorder | None,
    ) -> None:
        try:
            outcome: Sequence[TensorValue] | BaseException = registered.run(self._number, feeds, record, timeout)
        except BaseException as error:  # also an interrupt: the other tasks are told, and then the caller
            outcome = error
        self._answered(position, outcome)

    def give_up(self, error: BaseException) -> None:
        """Ends the step with an error."""
        with self._lock:
            instructions = self._protocol.give_up(error)
        self._follow(instructions)

    def _too_late(self, timeout: float) -> None:
        with self._lock:
            silent = ", ".join(self._protocol.unanswered)
            error = DeadlineExceededError(
                None,
                None,
                f"Timed out waiting for notification: the step did not end within {timeout} s, and {silent} did not "
                "say why; give it more time (timeout_in_ms), or look at that task",
            )
            instructions = self._protocol.give_up(error)
        self._follow(instructions)

    def _answered(self, position: int, outcome: Sequence[TensorValue] | BaseException) -> None:
        error = outcome if isinstance(outcome, BaseException) else None
        with self._lock:
            if not isinstance(outcome, BaseException):
                for at, value in zip(self._parts[position].partition.fetch_positions, outcome, strict=False):
                    self._values[at] = value
            instructions = self._protocol.answered(position, error)
        self._follow(instructions)

    def _follow(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Abort):
                self._abort(instruction)
            else:
                self._end(instruction.error)

    def _abort(self, abort: Abort) -> None:
        self._forget_grace = deadlines.call_at(time.monotonic() + GRACE, self._grace_is_over)
        told = abort.error
        if not isinstance(told, OpError):
            told = CancelledError(None, None, f"the step was given up by its client: {type(told).__name__}: {told}")
        for position in abort.tasks:
            self._parts[position].task.abort(self._number, told)

    def _grace_is_over(self) -> None:
        with self._lock:
            instructions = self._protocol.grace_is_over()
        self._follow(instructions)

    def _end(self, error: BaseException | None) -> None:
        self._forget_deadline()
        self._forget_grace()
        self._master.ended(self)
        self.outcome = self._values if error is None else error
        assert self._on_done is not None
        self._on_done(self.outcome)


def reset_task(network: TaskNetwork, address: str, containers: Sequence[str]) -> None:
    """Empties containers of all tasks of a cluster, one of which has this address (`tf.Session.reset`).

    Raises:
        OpError: a task does not answer.
    """
    connection = network.connect(address)
    (first,) = WaitingForTasks(None).describe([DescribableTask(address, lambda: described(connection))])
    for other in dict(first.address).values():
        request = WorkerRequest()
        request.reset.container.extend(containers)
        reply, _ = read_reply(network.connect(other).call([request.SerializeToString()]))
        if reply.HasField("error"):
            raise error_from_proto(reply.error, {})
