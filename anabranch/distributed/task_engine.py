"""What engines start and watch: the programs of tasks, how a task is, and what an engine can be asked (WP3.2).

There are two: processes of this machine (`distributed.process_engine`), and Ray (`distributed.ray_cluster`), which puts
one of the former on a machine for each task.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from anabranch.distributed.cluster_spec import ClusterSpec
from anabranch.distributed.restarts import ENDED, RestartLimits, RestartRule, TaskState
from anabranch.errors import DeadlineExceededError

#: the environment variable with the number of the descriptor on which a task says that it can be reached
READY_VARIABLE: Final = "ANABRANCH_READY_DESCRIPTOR"


@dataclass(frozen=True)
class TaskProgram:
    """What a task's process runs.

    Attributes:
        name: the task's, such as "ps/0".
        command: what is run, and its arguments.
        environment: what its environment has beside that of the process that starts it.
        rule: after which ends it is started again.
        announces: whether it says on `READY_VARIABLE`'s descriptor when it can be reached.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    rule: RestartRule = RestartRule.ALWAYS
    announces: bool = False


@dataclass(frozen=True)
class TaskStatus:
    """How a task is.

    Attributes:
        name: the task's.
        state: see `restarts.TaskState`.
        is_ready: whether its process has announced itself, or does not do that.
        pid: of its process, on its machine; None: it has none.
        started: when its process started, in seconds since 1970.
        restarts: how often it was started again.
        status: what its last process that ended returned, or the negative number of its signal.
        address: where it is, if that is not where the cluster's specification has it.
    """

    name: str
    state: TaskState
    is_ready: bool = False
    pid: int | None = None
    started: float | None = None
    restarts: int = 0
    status: int | None = None
    address: str | None = None


class OutputReader(Protocol):
    """Is handed what tasks write, line by line, on the engine's thread."""

    def __call__(self, task: str, line: bytes, /) -> None: ...


class TaskEngine(Protocol):
    """Runs the tasks of a cluster. Thread-safe."""

    def start(self) -> None:
        """Starts all tasks; returns before they are ready."""

    def statuses(self) -> list[TaskStatus]:
        """How each task is."""

    def stop_task(self, task: str) -> None:
        """Lets a task end, and not be started again.

        Raises:
            NotFoundError: there is no such task.
        """

    def restart_task(self, task: str) -> None:
        """Lets a task end and be started again.

        Raises:
            NotFoundError: there is no such task.
        """

    def wait(
        self, condition: Callable[[list[TaskStatus]], bool], timeout: float | None = None, what: str = "the tasks"
    ) -> list[TaskStatus]:
        """Waits until a condition of the tasks' state holds; returns that state.

        Raises:
            DeadlineExceededError: it does not within `timeout` seconds.
        """

    def close(self) -> None:
        """Ends all tasks; returns when none is left. Idempotent."""


@dataclass(frozen=True)
class PlanWishes:
    """What a user says of the places of tasks; None where nothing was said.

    Attributes:
        port: the first of the ports where tasks listen.
        address: of what places them, such as the head of a Ray cluster.
        cpus: processors that a task reserves.
        gpus: graphics processors of a task that is no parameter server.
    """

    port: int | None = None
    address: str | None = None
    cpus: float | None = None
    gpus: float | None = None


class ClusterPlan(Protocol):
    """Where the tasks of a cluster are, and what runs them there.

    Attributes:
        spec: their addresses.
    """

    @property
    def spec(self) -> ClusterSpec: ...

    def engine(
        self,
        programs: Sequence[TaskProgram],
        logs: Path,
        limits: RestartLimits | None = None,
        output: OutputReader | None = None,
        changed: Callable[[list[TaskStatus]], None] | None = None,
    ) -> TaskEngine:
        """What runs them.

        Args:
            programs: what the tasks run.
            logs: the folder where each task's output goes, `ps-0.log` for ps/0, appended.
            limits: how often and when tasks are started again.
            output: is handed each line that tasks write, too.
            changed: see `TaskStatuses`.
        """


class TaskStatuses:
    """How the tasks of an engine are, for any thread.

    Args:
        changed: is called, on the thread that calls `put`, whenever a state has changed. It must return soon, and must
            not wait for the engine.
    """

    def __init__(self, changed: Callable[[list[TaskStatus]], None] | None = None) -> None:
        self._changed = changed
        self._news = threading.Condition()
        self._latest: list[TaskStatus] = []

    def put(self, statuses: list[TaskStatus]) -> None:
        """Notes how they are now; one thread calls it."""
        if statuses == self._latest:
            return
        if self._changed is not None:
            # first: who waits for a state finds it noted
            self._changed(statuses)
        with self._news:
            self._latest = statuses
            self._news.notify_all()

    def latest(self) -> list[TaskStatus]:
        """How they are."""
        with self._news:
            return list(self._latest)

    def wait(self, condition: Callable[[list[TaskStatus]], bool], timeout: float | None, what: str) -> list[TaskStatus]:
        """Waits until a condition holds; returns the state for which it does.

        Raises:
            DeadlineExceededError: it does not within `timeout` seconds.
        """
        with self._news:
            if not self._news.wait_for(lambda: bool(self._latest) and condition(self._latest), timeout):
                shown = ", ".join(f"{each.name} {shown_state(each)}" for each in self._latest)
                raise DeadlineExceededError(None, None, f"waited {timeout} s for {what}: {shown}")
            return list(self._latest)


def log_name(task: str) -> str:
    """The name of the file with a task's output."""
    return f"{task.replace('/', '-')}.log"


def shown_state(status: TaskStatus) -> str:
    """A task's state as a reader is told of it: how it ended, whether it is only starting."""
    if status.state is TaskState.RUNNING and not status.is_ready:
        return "starting"
    if status.state in ENDED - {TaskState.STOPPED} and status.status is not None:
        return f"{status.state.value} ({shown_end(status.status)})"
    return status.state.value


def shown_end(status: int) -> str:
    """What ended a process: its exit status, or the signal's name."""
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
