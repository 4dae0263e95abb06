"""When to start which task again, and how to end one: events in, instructions out (WP3.2).

Nothing here knows a clock, a thread or a process. The times that events carry are of one monotonic clock.

| state | event | new state | instruction |
|---|---|---|---|
| (new) | added | RUNNING | Start |
| RUNNING | exited, is started again, fewer than `restarts` within `within` s | WAITING until the pause is over | |
| RUNNING | exited, is started again, too often | FAILED | |
| RUNNING | exited, and its rule does not start it again | FINISHED if with status 0, else FAILED | |
| RUNNING | asked to stop | STOPPING | Terminate |
| RUNNING | asked to restart | RESTARTING | Terminate |
| WAITING | the pause is over, or asked to restart | RUNNING | Start |
| WAITING | asked to stop | STOPPED | |
| STOPPING | exited | STOPPED | |
| RESTARTING | exited | RUNNING | Start |
| STOPPING, RESTARTING | the grace is over | the same | Kill, once |
| STOPPING | asked to restart | RESTARTING | |
| RESTARTING | asked to stop | STOPPING | |
| FINISHED, FAILED, STOPPED | asked to restart | RUNNING | Start; earlier restarts are forgotten |

All other pairs change nothing. The pause before a restart is `first_pause`, and doubles with each restart that the last
`within` seconds have seen, up to `longest_pause`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias


class TaskState(Enum):
    """What a task is doing. Those of `WITH_PROCESS` have a process, the others have none."""

    RUNNING = "running"
    WAITING = "waiting"
    STOPPING = "stopping"
    RESTARTING = "restarting"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


WITH_PROCESS: Final = frozenset({TaskState.RUNNING, TaskState.STOPPING, TaskState.RESTARTING})
#: nothing happens to such a task any more unless somebody asks for it
ENDED: Final = frozenset({TaskState.FINISHED, TaskState.FAILED, TaskState.STOPPED})


class RestartRule(Enum):
    """After which ends a task is started again."""

    #: whatever it ended with: parameter servers, and other tasks that only serve
    ALWAYS = "always"
    #: it ended with another status than 0, or by a signal: workers and the chief, which come to an end by themselves
    ON_FAILURE = "on failure"
    NEVER = "never"


@dataclass(frozen=True)
class RestartLimits:
    """How often and when tasks are started again; times in seconds.

    Attributes:
        first_pause: before the first restart.
        longest_pause: before any restart.
        restarts: so many of a task within `within`; the next end is final.
        within: how long a restart is remembered.
        grace: how long a task that is asked to end may take.
    """

    first_pause: float = 0.1
    longest_pause: float = 30.0
    restarts: int = 10
    within: float = 600.0
    grace: float = 10.0

    def pause(self, earlier: int) -> float:
        """The pause before a restart that follows so many."""
        # bounded before it is a power: the number of restarts is the user's, and a float has an end
        return float(min(self.longest_pause, self.first_pause * 2.0 ** min(earlier, 60)))


@dataclass(frozen=True, slots=True)
class Start:
    """Start a process for the task: it has none."""

    task: str


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask the task's process to end (SIGTERM)."""

    task: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End the task's process (SIGKILL)."""

    task: str


RestartInstruction: TypeAlias = Start | Terminate | Kill


@dataclass
class _Supervised:
    """What is known of one task.

    #: `until` is set in WAITING (the end of the pause), and in STOPPING and RESTARTING until Kill was said (the end
    #: of the grace); else it is None.
    """

    name: str
    rule: RestartRule
    state: TaskState = TaskState.RUNNING
    until: float | None = None
    recent: list[float] = field(default_factory=list)
    restarts: int = 0
    status: int | None = None


class Restarts:
    """The tasks of a cluster on one machine, and what becomes of them. Not thread-safe.

    Args:
        limits: how often and when tasks are started again.
    """

    def __init__(self, limits: RestartLimits) -> None:
        self._limits = limits
        self._tasks: dict[str, _Supervised] = {}

    # ------------------------------------------------------------------------------------------------ events
    def add(self, task: str, rule: RestartRule) -> list[RestartInstruction]:
        """A new task.

        Raises:
            ValueError: there is a task of this name.
        """
        if task in self._tasks:
            raise ValueError(f"there is a task {task} already")
        self._tasks[task] = _Supervised(task, rule)
        return [Start(task)]

    def exited(self, task: str, status: int, now: float) -> list[RestartInstruction]:
        """The process of a task ended.

        Args:
            task: its name.
            status: what it returned; the negative number of the signal that ended it, if one did.
            now: the time.
        """
        entry = self._tasks[task]
        # noted in each state: how a process ended is asked for afterwards
        entry.status = status
        return self._EXITED[entry.state](self, entry, now)

    def ask_stop(self, task: str, now: float) -> list[RestartInstruction]:
        """A task is to end, and not to be started again."""
        entry = self._tasks[task]
        if entry.state is TaskState.RUNNING:
            return self._terminate(entry, TaskState.STOPPING, now)
        # it was told to end already, and the grace runs on: what changes is what follows
        if entry.state is TaskState.RESTARTING:
            entry.state = TaskState.STOPPING
        elif entry.state is TaskState.WAITING:
            _end(entry, TaskState.STOPPED)
        return []

    def ask_restart(self, task: str, now: float) -> list[RestartInstruction]:
        """A task is to end and to be started again, or to be started if it has ended."""
        entry = self._tasks[task]
        if entry.state is TaskState.RUNNING:
            return self._terminate(entry, TaskState.RESTARTING, now)
        if entry.state is TaskState.STOPPING:
            entry.state = TaskState.RESTARTING
        elif entry.state is TaskState.WAITING:
            return _start(entry)
        elif entry.state in ENDED:
            # somebody has looked at it, and thinks that it will run now
            entry.recent.clear()
            entry.restarts += 1
            return _start(entry)
        return []

    def time_passed(self, now: float) -> list[RestartInstruction]:
        """The time is `now`: pauses and graces may be over."""
        said: list[RestartInstruction] = []
        for task in self._tasks.values():
            if task.until is None or task.until > now:
                continue
            if task.state is TaskState.WAITING:
                said += _start(task)
            else:
                # said once; the process ends when the system says so, which is another event
                task.until = None
                said.append(Kill(task.name))
        return said

    # ----------------------------------------------------------------------------------------------- questions
    def next_time(self) -> float | None:
        """When `time_passed` will have something to say; None: not before another event."""
        return min((task.until for task in self._tasks.values() if task.until is not None), default=None)

    def tasks(self) -> list[str]:
        """The names of all tasks, in the order in which they were added."""
        return list(self._tasks)

    def state(self, task: str) -> TaskState:
        """The state of a task."""
        return self._tasks[task].state

    def restarts(self, task: str) -> int:
        """How often a task was started again, for whatever reason."""
        return self._tasks[task].restarts

    def status(self, task: str) -> int | None:
        """What the last process of a task that ended returned, or the negative number of its signal."""
        return self._tasks[task].status

    @property
    def is_over(self) -> bool:
        """Whether no task has a process or will get one by itself."""
        return all(task.state in ENDED for task in self._tasks.values())

    # ---------------------------------------------------------------------------------------------- transitions
    def _ended_by_itself(self, task: _Supervised, now: float) -> list[RestartInstruction]:
        if not _is_started_again(task):
            _end(task, TaskState.FAILED if task.status else TaskState.FINISHED)
            return []
        # what has run well for long starts afresh, with short pauses
        task.recent = [time for time in task.recent if time > now - self._limits.within]
        if len(task.recent) >= self._limits.restarts:
            _end(task, TaskState.FAILED)
            return []
        # before this restart is noted: the pause follows those that came before
        task.state, task.until = TaskState.WAITING, now + self._limits.pause(len(task.recent))
        task.recent.append(now)
        task.restarts += 1
        return []

    def _stopped(self, task: _Supervised, _: float) -> list[RestartInstruction]:
        _end(task, TaskState.STOPPED)
        return []

    def _ended_for_restart(self, task: _Supervised, _: float) -> list[RestartInstruction]:
        # not among the recent ones, and without a pause: it was asked for, and is no sign that the task cannot run
        task.restarts += 1
        return _start(task)

    def _without_process(self, task: _Supervised, _: float) -> list[RestartInstruction]:
        # whoever starts processes starts none without a `Start`, and reports each end once
        raise AssertionError(f"{task.name} is {task.state.value}, and has no process that could end")

    def _terminate(self, task: _Supervised, state: TaskState, now: float) -> list[RestartInstruction]:
        task.state, task.until = state, now + self._limits.grace
        return [Terminate(task.name)]

    _EXITED: Final[Mapping[TaskState, Callable[[Restarts, _Supervised, float], list[RestartInstruction]]]] = {
        TaskState.RUNNING: _ended_by_itself,
        TaskState.STOPPING: _stopped,
        TaskState.RESTARTING: _ended_for_restart,
        # every state has an entry, so that a new one cannot be forgotten in silence
    } | dict.fromkeys((*ENDED, TaskState.WAITING), _without_process)


def _is_started_again(task: _Supervised) -> bool:
    return task.rule is RestartRule.ALWAYS or (task.rule is RestartRule.ON_FAILURE and task.status != 0)


def _start(task: _Supervised) -> list[RestartInstruction]:
    task.state, task.until = TaskState.RUNNING, None
    return [Start(task.name)]


def _end(task: _Supervised, state: TaskState) -> None:
    task.state, task.until = state, None
