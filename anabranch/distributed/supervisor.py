"""A cluster that is supervised from here: its tasks, the folder where others find it, and what they may ask of it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from anabranch.distributed.cluster_control import ControlSocket, Request
from anabranch.distributed.cluster_files import ClusterFolder
from anabranch.distributed.cluster_spec import ClusterSpec
from anabranch.distributed.restarts import ENDED, RestartLimits, TaskState
from anabranch.distributed.shard_recovery import DIRECTORY_VARIABLE
from anabranch.distributed.task_engine import (
    ClusterPlan,
    OutputReader,
    TaskProgram,
    TaskStatus,
    log_name,
    shown_state,
)
from anabranch.distributed.tf_config import TF_CONFIG_VARIABLE
from anabranch.errors import DeadlineExceededError, InvalidArgumentError, NotFoundError

#: the job of a task that a cluster is told nothing of: it reads what others save, and nobody connects to it
EVALUATOR: Final = "evaluator"
#: states of a task that is not to run
_ENDING: Final = ENDED | {TaskState.STOPPING}
#: seconds within which an engine does what it is asked
_HEARD_WITHIN: Final = 10.0


def training_tasks(spec: ClusterSpec) -> ClusterSpec:
    """A cluster as its tasks are told of it."""
    return ClusterSpec({job: addresses for job, addresses in spec.as_dict().items() if job != EVALUATOR})


def task_key(job: str, index: int) -> str:
    """How people name a task: "ps/0"."""
    return f"{job}/{index}"


def task_program(spec: ClusterSpec, job: str, index: int, checkpoints: str | None = None) -> TaskProgram:
    """A task that only serves.

    Args:
        spec: the cluster's.
        job: the task's.
        index: its number in the job.
        checkpoints: the directory where it finds its variables when it comes back.
    """
    command = [sys.executable, "-m", "anabranch.tools.task", "--job", job, "--index", str(index)]
    environment = tf_config(spec, job, index) | checkpoints_at(checkpoints)
    return TaskProgram(task_key(job, index), command, environment, announces=True)


def checkpoints_at(directory: str | None) -> dict[str, str]:
    """The variable that tells tasks where a training's checkpoints are."""
    return {} if directory is None else {DIRECTORY_VARIABLE: os.path.abspath(directory)}


def tf_config(spec: ClusterSpec, job: str, index: int) -> dict[str, str]:
    """The variable by which programs are told of their cluster and of the task that they are."""
    content = {"cluster": spec.as_dict(), "task": {"type": job, "index": index}}
    return {TF_CONFIG_VARIABLE: json.dumps(content)}


class ClusterSupervisor:
    """Runs the tasks of a cluster; a context. Whatever ends its process ends the tasks.

    Args:
        folder: the cluster's.
        plan: the addresses of the tasks, and who runs them.
        programs: what they run.
        limits: how often and when they are started again.
        output: is handed what they write, too.

    Attributes:
        engine: their processes.

    Raises:
        AlreadyExistsError: a cluster of this name is running.
    """

    def __init__(
        self,
        folder: ClusterFolder,
        plan: ClusterPlan,
        programs: Sequence[TaskProgram],
        limits: RestartLimits | None = None,
        output: OutputReader | None = None,
    ) -> None:
        self.folder = folder
        self._news: queue.SimpleQueue[list[TaskStatus] | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        spec = training_tasks(plan.spec)
        self._addresses = {task_key(job, index): address for job, index, address in spec.tasks()}
        with contextlib.ExitStack() as stack:
            stack.enter_context(folder.take())
            stack.callback(folder.forget)
            folder.write(folder.description.name, {"cluster": spec.as_dict()})
            self.engine = plan.engine(programs, folder.path, limits, output, self._changed)
            stack.callback(self.engine.close)
            stack.callback(ControlSocket(folder.control, self._answer).close)
            self.engine.start()
            self._ending = stack.pop_all()

    def close(self) -> None:
        """Ends the tasks, and forgets the cluster. Idempotent."""
        with self._closing:
            self._ending.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def next_change(self, timeout: float | None) -> list[TaskStatus] | None:
        """Waits for a change of a task's state; returns the state of all, or None if the cluster was asked to stop.

        When `timeout` seconds pass without a change, it returns how things are.
        """
        try:
            return self._news.get(timeout=timeout)
        except queue.Empty:
            return self.engine.statuses()

    def wait_until_ready(self, timeout: float) -> list[TaskStatus]:
        """Waits until every task can be reached, or has ended for good.

        Raises:
            DeadlineExceededError: one is not within `timeout` seconds.
        """
        return self.engine.wait(all_ready, timeout, "the tasks to be ready")

    def state(self, statuses: Sequence[TaskStatus]) -> dict[str, Any]:
        """What is written of the cluster."""
        return {
            "name": self.folder.name,
            "supervisor": os.getpid(),
            "written": time.time(),
            "tasks": [self._task_state(status) for status in statuses],
        }

    def _task_state(self, status: TaskStatus) -> dict[str, Any]:
        address = status.address or self._addresses.get(status.name, "")
        return {
            "name": status.name,
            "address": address,  # empty where nothing listens
            "target": address and f"grpc://{address}",
            "pid": status.pid,
            "state": shown_state(status),
            "restarts": status.restarts,
            "status": status.status,
            "started": status.started,
            "log": log_name(status.name),
        }

    # ---------------------------------------------------------------------------------------- on other threads
    def _changed(self, statuses: list[TaskStatus]) -> None:
        # a full disk does not end the tasks; others then find an old state
        with contextlib.suppress(OSError):
            self.folder.write("state.json", self.state(statuses))
        self._news.put(statuses)

    def _answer(self, request: Request) -> Mapping[str, Any]:
        match request:
            case {"do": "stop"}:
                self._news.put(None)
            case {"do": "restart", "task": str(task)}:
                self.engine.restart_task(task)
            case {"do": "scale", "job": str(job), "count": int(count)}:
                return self._scale(job, count)
            case _:
                raise InvalidArgumentError(None, None, f"the supervisor cannot do {request.get('do')!r}")
        return {}

    def _scale(self, job: str, count: int) -> Mapping[str, Any]:
        own = [name for name in self._addresses if name.partition("/")[0] == job]
        if not own:
            raise NotFoundError(None, None, f"the cluster has no job {job!r}")
        if count < 0:
            raise InvalidArgumentError(None, None, f"there cannot be {count} tasks of {job!r}")
        if job == "ps":
            raise InvalidArgumentError(
                None,
                None,
                "parameter servers cannot be added or taken away while a cluster runs: they hold the variables",
            )
        if count > len(own):
            raise InvalidArgumentError(
                None,
                None,
                f"the cluster was started with {len(own)} tasks of {job!r}, and those that run know no others; stop it "
                f"and start it again with {count}",
            )
        before = {status.name: status for status in self.engine.statuses()}
        # one that still ends, because fewer were wanted, is started again as well
        started = [name for name in own[:count] if before[name].state in _ENDING]
        stopped = [name for name in own[count:] if before[name].state not in _ENDING]
        for name in started:
            self.engine.restart_task(name)
        for name in stopped:
            self.engine.stop_task(name)

        def is_heard(status: TaskStatus) -> bool:
            is_ending = status.state in _ENDING
            if status.name in started:
                return not is_ending or status.restarts > before[status.name].restarts
            return is_ending or status.name not in stopped

        # before this is answered: whoever then wants another number finds these as they are to be; a task that moves
        # to another machine takes its time, and hears of it then
        with contextlib.suppress(DeadlineExceededError):
            self.engine.wait(lambda all_tasks: all(map(is_heard, all_tasks)), _HEARD_WITHIN)
        return {"started": started, "stopped": stopped}


def all_ready(statuses: Sequence[TaskStatus]) -> bool:
    """Whether every task can be reached, or has ended for good."""
    return all(each.state in ENDED or (each.state is TaskState.RUNNING and each.is_ready) for each in statuses)
