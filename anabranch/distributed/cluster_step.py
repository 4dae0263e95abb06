"""A step that runs on the tasks of a cluster, and one run of it (§3.3).

What a run does with answers, errors and time is decided by `distributed.step_protocol`; here it is carried out.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from anabranch.core.bounded import ticks
from anabranch.core.interrupts import admitted
from anabranch.core.values import TensorValue
from anabranch.distributed.network import TaskConnection, Timing
from anabranch.distributed.read_ahead import ReadAhead
from anabranch.distributed.session_tasks import Part, Registered, TaskOfSession, link_failed, nothing
from anabranch.distributed.step_protocol import GRACE, Abort, Instruction, StepProtocol
from anabranch.errors import (
    CancelledError,
    DeadlineExceededError,
    NotFoundError,
    OpError,
)
from anabranch.pipeline import Plan
from anabranch.runtime.bound_partition import BoundPartition
from anabranch.runtime.held_start import HeldStart
from anabranch.runtime.item_call import Recorder
from anabranch.runtime.protocols import OnDone
from anabranch.runtime.published_values import PublishedReads
from anabranch.runtime.rendezvous import Rendezvous
from anabranch.runtime.rendezvous_table import StepId
from anabranch.runtime.worker_service import WorkerService
from anabranch.xla.partitions import Partition


class MasterOfSteps(Protocol):
    """What a step needs of the master of its session.

    Attributes:
        name: of the session.
        timing: by which steps wait.
    """

    name: str
    timing: Timing

    def task(self, name: str) -> TaskOfSession:
        """What the session knows of a task."""

    def connection(self, address: str) -> TaskConnection | None:
        """The way to a task; None where it is this process."""

    def service(self, address: str) -> WorkerService | None:
        """What serves a task of this process; None where an address is another's."""

    def next_number(self) -> int:
        """The number of a new step of which no other task hears."""

    def began(self, run: ClusterRun) -> int:
        """Notes a run that is under way; returns its number."""

    def ended(self, run: ClusterRun) -> None:
        """Notes its end."""

    def expect(self) -> None:
        """The calling thread waits from now on."""


class ClusterStep:
    """A step that runs on the tasks of a cluster. See `runtime.protocols.Step`."""

    def __init__(self, master: MasterOfSteps, plan: Plan) -> None:
        self.plan = plan
        self.used = 0
        self._master = master
        self._parts = [
            Part(master.task(partition.task), partition) for partition in plan.partitions if _runs(partition)
        ]
        #: the one part of a step that does not leave this process
        self._only = self._parts[0] if len(self._parts) == 1 and self._parts[0].task.is_here else None
        self._ahead = ReadAhead(self._parts, master.connection)
        self._tasks = tuple([part.task.name for part in self._parts])

    def register(self) -> None:
        """Gives each task its partition."""
        for part in self._parts:
            part.ready()

    def release(self) -> None:
        """Releases executables; a run that comes later compiles anew."""
        for part in self._parts:
            if part.registered is not None:
                part.registered.partition.release()

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
            own = self._only.own_feeds(feeds)
            return self._only.ready().partition.run(self._master.next_number(), own, record, timeout)
        self._ahead.count()
        # a recorded step tells what each task does
        ahead = self._ahead if record is None else None
        run = ClusterRun(self._master, self._parts, self._tasks, len(self.plan.step.fetches), ahead)
        # a lock that the end of the step releases: an event is a dozen calls of Python functions
        ended = threading.Lock()
        ended.acquire()
        run_local = run.start(feeds, lambda _: ended.release(), timeout, record, leaves_here=True)
        try:
            if run_local is not None:
                # on this thread, which would only wait for another
                run_local()
            self._master.expect()
            with admitted():
                ended.acquire()
        except BaseException as error:
            run.give_up(error)
            # until the tasks have ended it, or the grace is over: nothing of the step runs when this returns
            if not run.has_ended:
                ended.acquire()
            raise
        if isinstance(run.outcome, BaseException):
            raise run.outcome
        return run.outcome

    def start(self, feeds: Sequence[TensorValue], on_done: OnDone, timeout: float | None = None) -> None:
        """Starts one step."""
        self.used = next(ticks)
        run = ClusterRun(self._master, self._parts, self._tasks, len(self.plan.step.fetches))
        run.start(feeds, on_done, timeout, None)


def _runs(partition: Partition) -> bool:
    return bool(partition.items or partition.fetches)


class ClusterRun:
    """One run of a step: carries out what its `StepProtocol` says.

    Attributes:
        number: the step's, which the master gives it when it is under way.
        tasks: the names of those that have a part in it.
        outcome: the values of the fetches, or what the step failed with; set when it has ended.

    Args:
        ahead: what is read here before the step begins; only where a part of it is left to the caller of `start`.
    """

    def __init__(
        self,
        master: MasterOfSteps,
        parts: Sequence[Part],
        tasks: Sequence[str],
        fetches: int,
        ahead: ReadAhead | None = None,
    ) -> None:
        self._master, self._parts, self._timing = master, parts, master.timing
        self._ahead = ahead
        #: what starts other parts along with tensors for them, by the devices that these go to; and where it is kept
        #: until the part here begins
        self._held: dict[str, HeldStart] = {}
        self._kept: Rendezvous | None = None
        self.number = 0
        self.tasks = tasks
        self._protocol = StepProtocol(self.tasks)
        self._lock = threading.Lock()
        self._values: list[Any] = [None] * fetches
        self._on_done: OnDone | None = None
        self._forget_deadline: Callable[[], None] = nothing
        self._forget_grace: Callable[[], None] = nothing
        self.outcome: list[Any] | BaseException = []

    @property
    def has_ended(self) -> bool:
        """Whether it is over, or about to be told that it is."""
        return self._protocol.has_ended

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
        if not self._parts:
            self._end(None)
            return None
        if timeout is not None:
            # the tasks end it themselves, and say who waits for what; this is for those that do not answer
            deadline = self._timing.now() + timeout + GRACE / 2
            self._forget_deadline = self._timing.call_at(deadline, lambda: self._too_late(timeout))
        run_local: Callable[[], None] | None = None
        begun: int | None = None
        read: list[tuple[PublishedReads, list[Any]]] = []
        try:
            # all before any begins: a task that has no session yet would drop what the others send it
            registered = [part.ready() for part in self._parts]
            for position, part in enumerate(self._parts):
                own = part.own_feeds(feeds)
                if leaves_here and run_local is None and part.task.is_here:
                    run_local = functools.partial(
                        self._run_here, position, registered[position], own, timeout, record, read
                    )
                    continue
                if not self._begins(position):
                    self._let_go()
                    return None
                begun, (epoch, partition) = position, registered[position]
                answered = functools.partial(self._answered, position, epoch)
                shown = None if self._ahead is None else self._ahead.at(position, partition)
                if shown is not None and shown.reads.ends:
                    values = shown.reads.values()
                    if values is None:
                        shown = None
                    else:
                        read.append((shown.reads, values))
                if shown is None:
                    partition.start(self.number, own, answered, timeout, record)
                    continue
                send = shown.partition.start_later(self.number, own, answered, timeout)
                self._held.update(shown.held(send))
            if self._held:
                self._hold()
        except BaseException as error:
            # it ends if it cannot begin everywhere
            self.give_up(error) if begun is None else self._answered(begun, 0, error)
            return None
        return run_local

    def _hold(self) -> None:
        """Lets what is sent from here start other parts."""
        for part in self._parts:
            service = self._master.service(part.task.address) if part.task.is_here else None
            if service is not None:
                self._kept = service.rendezvous_of(self._master.name)
                self._kept.hold(StepId(self._master.name, self.number), self._held)

    def _let_go(self) -> None:
        """Starts what was not started yet: the part here has ended, or the step is given up."""
        if not self._held:
            return
        if self._kept is not None:
            self._kept.let_go(StepId(self._master.name, self.number))
        # another thread may put one there at this moment: it finds out that the step has failed, and comes here too
        for start in list(self._held.values()):
            start.begin()

    def _begins(self, position: int) -> bool:
        with self._lock:
            return self._protocol.begin(position)

    def _run_here(
        self,
        position: int,
        registered: Registered,
        feeds: Sequence[TensorValue],
        timeout: float | None,
        record: Recorder | None,
        read: Sequence[tuple[PublishedReads, Sequence[TensorValue]]],
    ) -> None:
        if not self._begins(position):
            self._let_go()
            return
        epoch, partition = registered
        if isinstance(partition, BoundPartition) and partition.is_short:
            # what comes for it is dealt with where it comes, and this thread woken once, by the end of the step
            partition.start_here(
                self.number, feeds, functools.partial(self._answered, position, epoch), timeout, record, read
            )
            return
        try:
            if isinstance(partition, BoundPartition):
                partition.arrive(self.number, read)
            outcome: Sequence[TensorValue] | BaseException = partition.run(self.number, feeds, record, timeout)
        except BaseException as error:  # also an interrupt: the other tasks are told, and then the caller
            outcome = error
        self._answered(position, epoch, outcome)

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

    def _answered(self, position: int, epoch: int, outcome: Sequence[TensorValue] | BaseException) -> None:
        task = self._parts[position].task
        if isinstance(outcome, NotFoundError) and epoch != task.epoch:
            # the link failed, and is up again, between what was registered and the beginning of the step
            outcome = link_failed(task.name)
        error = outcome if isinstance(outcome, BaseException) else None
        if task.is_here:
            self._let_go()
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
        # who has begun has to answer
        self._let_go()
        self._forget_grace = self._timing.call_at(self._timing.now() + GRACE, self._grace_is_over)
        cause = abort.error
        if not isinstance(cause, OpError):
            cause = CancelledError(None, None, f"the step was given up by its client: {type(cause).__name__}: {cause}")
        for position in abort.tasks:
            self._parts[position].task.abort(self.number, cause)

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
