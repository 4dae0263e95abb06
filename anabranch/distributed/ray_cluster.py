"""Clusters on Ray: an actor for each task, which Ray places on a machine and which supervises the task's process there.

Ray places, and starts actors again elsewhere in time; it never carries a step (D9). The actor runs the local engine for
one task (`distributed.process_engine`): that learns of a killed process in milliseconds, starts it again with growing
pauses, and the process ends with its actor. What is left for the engine here is the loss of an actor.

| state of an actor | event | what follows |
|---|---|---|
| wanted | placed where the task was | it is told the program, and is asked for news |
| wanted | placed elsewhere: another machine, or its port was taken | likewise; all machines are told the new address |
| asked | news | statuses and output are passed on, and it is asked for more |
| asked, wanted | lost, its task was not over | WAITING, then another actor in the same place (`distributed.restarts`) |
| asked | lost, its task was over | the task's last state stands |
| asked | its machine will be taken away | leaving: its task is told to end, as it is when a user stops it |
| leaving | news: its task has ended | it is ended, and counts as lost: the next waits until Ray has room elsewhere |
| wanted | placed on a machine where the task cannot be reached, since there are no keys | as lost |

Only this file and `distributed.ray_machines` know Ray.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from anabranch.distributed.addresses import Address, parse_address
from anabranch.distributed.cluster_files import MOVED_TASKS
from anabranch.distributed.cluster_spec import ClusterSpec
from anabranch.distributed.keys import FILE_VARIABLE
from anabranch.distributed.own_folders import OwnFolder, sweep
from anabranch.distributed.ray_machines import RAY_FOLDERS, KeeperActor, connect, given_back, reserved, this_machine
from anabranch.distributed.restarts import ENDED, RestartLimits, RestartRule, Restarts, Start, TaskState
from anabranch.distributed.task_engine import OutputReader, PlanWishes, TaskProgram, TaskStatus, TaskStatuses, log_name
from anabranch.distributed.task_keeper import FOLDERS, News
from anabranch.distributed.task_places import MapFile, TaskPlaces
from anabranch.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)

_LOCALHOST: Final = "localhost"
#: how long (s) an actor may take beyond the grace of its task to end
_END_WITHIN: Final = 10.0
_KILLED: Final = -9


@dataclass(frozen=True)
class TaskResources:
    """What each task reserves on its machine, as Ray counts it.

    Attributes:
        cpus: processors of a task.
        gpus: graphics processors of a task that is no parameter server. A task sees those alone that it has reserved.
    """

    cpus: float = 1.0
    gpus: float = 0.0

    def of(self, job: str) -> dict[str, float]:
        """A task's share, without what it has nothing of."""
        shares = {"CPU": self.cpus, "GPU": 0.0 if job == "ps" else self.gpus}
        return {name: share for name, share in shares.items() if share}


class RayPlan:
    """Tasks on the machines of a Ray cluster, one actor each, spread over them; a context, which ends the actors.

    Args:
        counts: how many tasks of which job.
        address: of a Ray cluster that runs, or "auto" for the one of this machine; None: one is started here, for as
            long as the plan lasts.
        resources: what a task reserves.
        within: how long (s) machines with room for the tasks are waited for; Ray's autoscaler may have to start them.

    Attributes:
        spec: the addresses of the tasks, as the cluster was started. Without keys they are at localhost.
        keepers: the actors of the tasks that have not begun, by the tasks' names.
        places: where the tasks are now.

    Raises:
        InvalidArgumentError: there are no tasks.
        FailedPreconditionError: tasks are on several machines, and there are no keys.
        UnavailableError: there is no such Ray cluster.
        DeadlineExceededError: it had no room in time.
    """

    def __init__(
        self,
        counts: Mapping[str, int],
        address: str | None = None,
        resources: TaskResources | None = None,
        within: float = 600.0,
    ) -> None:
        tasks = [(job, index) for job, count in counts.items() for index in range(count)]
        if not tasks or min(counts.values()) < 0:
            raise InvalidArgumentError(None, None, "a cluster has at least one task")
        shares = [(resources or TaskResources()).of(job) for job, _ in tasks]
        with contextlib.ExitStack() as stack:
            # actors that were killed have left theirs on this machine; on others the next actor removes them
            stack.callback(sweep, FOLDERS)
            folder = None
            if address is None:
                folder = OwnFolder(RAY_FOLDERS)
                stack.callback(folder.close)
            connect(address, sum(share.get("CPU", 0) for share in shares), folder)
            stack.callback(ray.shutdown)
            self._shares = shares
            self._group = reserved([share or {"CPU": 0.001} for share in shares], within)
            stack.callback(given_back, self._group)
            self._numbers = {f"{job}/{index}": number for number, (job, index) in enumerate(tasks)}
            self.keepers: dict[str, Any] = {name: self.keeper(name) for name in self._numbers}
            placed = ray.get([keeper.place.remote(None) for keeper in self.keepers.values()], timeout=within)
            #: the machine (its number, its address) where tasks have to be, at localhost; None: with keys, anywhere
            self._only: tuple[str, str] | None = None
            if FILE_VARIABLE not in os.environ:
                self._only = this_machine()
            jobs: dict[str, list[str]] = {}
            written = {}
            for (job, _), name, place in zip(tasks, self._numbers, placed, strict=True):
                written[name] = self.address_at(place)
                jobs.setdefault(job, []).append(written[name])
            self.spec = ClusterSpec(jobs)
            self.places = TaskPlaces(written)
            self._ending = stack.pop_all()

    def address_at(self, place: tuple[str, str, int]) -> str:
        """How others reach a task that is at a place.

        Raises:
            FailedPreconditionError: it is on another machine than this one, and there are no keys.
        """
        node, host, port = place
        if self._only is None:
            return str(Address(host, port))
        if node != self._only[0]:
            raise FailedPreconditionError(
                None,
                None,
                f"Ray has put a task on {host}, and tasks on several machines need keys: `anabranch cluster keys` makes"
                f" them; copy the file to the same path on each machine, and let {FILE_VARIABLE} name it",
            )
        return str(Address(_LOCALHOST, port))

    def environment_of(self, name: str) -> dict[str, str]:
        """What a task's environment has beside that of its program."""
        # Ray says to an actor with graphics processors which they are, and nothing to others. A process of JAX takes
        # most of the memory of each that it sees
        return {} if "GPU" in self._shares[self._numbers[name]] else {"CUDA_VISIBLE_DEVICES": ""}

    def place_of(self, name: str) -> tuple[str, int]:
        """Where a task is: its machine's address, and its port."""
        address = parse_address(self.places.address(name))
        return address.host if self._only is None else self._only[1], address.port

    def keeper(self, name: str) -> Any:
        """Another actor in a task's place."""
        number = self._numbers[name]
        share = self._shares[number]
        keys = {FILE_VARIABLE: os.environ[FILE_VARIABLE]} if FILE_VARIABLE in os.environ else {}
        actor = ray.remote(KeeperActor).options(
            num_cpus=share.get("CPU", 0),
            num_gpus=share.get("GPU", 0),
            max_concurrency=5,
            max_restarts=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=number),
            runtime_env={"env_vars": keys} if keys else None,
        )
        return actor.remote()

    def engine(
        self,
        programs: Sequence[TaskProgram],
        logs: Path,
        limits: RestartLimits | None = None,
        output: OutputReader | None = None,
        changed: Callable[[list[TaskStatus]], None] | None = None,
    ) -> RayEngine:
        """What runs the tasks."""
        return RayEngine(self, programs, logs, limits, output, changed)

    def close(self) -> None:
        """Ends the actors, and what was started of Ray. Idempotent."""
        self._ending.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass
class _Kept:
    """A task as the engine knows it.

    #: `generation` counts its actors: what an earlier one says is too late. `earlier` counts restarts that earlier
    #: actors have made. `is_leaving`: its machine will be taken away, and its task was told to end.
    """

    program: TaskProgram
    keeper: Any = None
    generation: int = 0
    status: TaskStatus | None = None
    earlier: int = 0
    is_leaving: bool = False


class RayEngine:
    """Keeps the tasks of a plan running. Thread-safe; `close` it.

    One thread does all of it: it waits for what actors answer, for what others ask, and for the end of pauses.

    Args:
        plan: where the tasks are.
        programs: what they run.
        logs: the folder where each task's output goes, `ps-0.log` for ps/0, appended, and the map of
            tasks that have moved.
        limits: how often and when tasks, and their actors, are started again.
        output: is handed each line that tasks write, too.
        changed: see `TaskStatuses`.
    """

    def __init__(
        self,
        plan: RayPlan,
        programs: Sequence[TaskProgram],
        logs: Path,
        limits: RestartLimits | None = None,
        output: OutputReader | None = None,
        changed: Callable[[list[TaskStatus]], None] | None = None,
    ) -> None:
        self._plan = plan
        self._logs = logs
        self._map = MapFile(logs / MOVED_TASKS)
        self._limits = limits or RestartLimits()
        # a lost actor comes back even where a task that fails does not
        self._actors = Restarts(RestartLimits(restarts=max(self._limits.restarts, RestartLimits().restarts)))
        self._tasks = {program.name: _Kept(program) for program in programs}
        self._output = output
        self._statuses = TaskStatuses(changed)
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._is_closing = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="ray engine", daemon=True)

    # ------------------------------------------------------------------------------------------- for any thread
    def start(self) -> None:
        """Starts all tasks; returns before they are ready."""
        self._events.put(self._add_all)
        self._thread.start()

    def statuses(self) -> list[TaskStatus]:
        """How each task is."""
        return self._statuses.latest()

    def stop_task(self, task: str) -> None:
        """Lets a task end, and not be started again.

        Raises:
            NotFoundError: there is no such task.
        """
        kept = self._named(task)
        self._events.put(lambda: self._stop(kept))

    def restart_task(self, task: str) -> None:
        """Lets a task end and be started again.

        Raises:
            NotFoundError: there is no such task.
        """
        kept = self._named(task)
        self._events.put(lambda: self._restart(kept))

    def wait(
        self, condition: Callable[[list[TaskStatus]], bool], timeout: float | None = None, what: str = "the tasks"
    ) -> list[TaskStatus]:
        """Waits until a condition of the tasks' state holds; returns that state.

        Raises:
            DeadlineExceededError: it does not within `timeout` seconds.
        """
        return self._statuses.wait(condition, timeout, what)

    def close(self) -> None:
        """Ends all tasks; returns when none is left. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._events.put(self._end)
        if self._thread.ident:
            self._thread.join()
        keepers = [kept.keeper for kept in self._tasks.values() if kept.keeper is not None]
        endings = [keeper.close.remote() for keeper in keepers]
        if endings:
            ray.wait(endings, num_returns=len(endings), timeout=self._limits.grace + _END_WITHIN)
        for keeper in keepers:
            ray.kill(keeper)

    def _named(self, task: str) -> _Kept:
        if task not in self._tasks:
            raise NotFoundError(None, None, f"there is no task {task}; there are {', '.join(self._tasks)}")
        return self._tasks[task]

    # ------------------------------------------------------------------------------------- on the engine's thread
    def _run(self) -> None:
        while not self._is_closing:
            until = self._actors.next_time()
            with contextlib.suppress(queue.Empty):
                self._events.get(timeout=None if until is None else max(0.0, until - time.monotonic()))()
            self._follow(self._actors.time_passed(time.monotonic()))
            self._statuses.put([self._status(kept) for kept in self._tasks.values()])

    def _end(self) -> None:
        self._is_closing = True

    def _add_all(self) -> None:
        self._tell_all()
        for name in self._tasks:
            self._follow(self._actors.add(name, RestartRule.ALWAYS))

    def _follow(self, instructions: Sequence[object]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Start):
                self._begin(self._tasks[instruction.task])

    def _begin(self, kept: _Kept) -> None:
        name = kept.program.name
        is_first = name in self._plan.keepers
        kept.keeper = self._plan.keepers.pop(name) if is_first else self._plan.keeper(name)
        kept.generation += 1
        kept.is_leaving = False
        if kept.status is not None:
            kept.earlier += kept.status.restarts
            kept.status = None
        if is_first:
            self._start(kept)
        else:
            place = kept.keeper.place.remote(self._plan.place_of(name))
            self._when_answered(kept, place, lambda place: self._placed(kept, place))

    def _placed(self, kept: _Kept, place: tuple[str, str, int]) -> None:
        try:
            address = self._plan.address_at(place)
        except FailedPreconditionError as error:
            ray.kill(kept.keeper)
            self._lost(kept, error)
            return
        places, name = self._plan.places, kept.program.name
        before = places.address(name)
        if places.move(name, address):
            self._write(kept, f"{name} has moved from {before} to {address}\n".encode())
            self._tell_all()
        self._start(kept)

    def _tell_all(self) -> None:
        """Tells each machine, this one too, where the tasks are."""
        edition = self._plan.places.edition
        # a full disk does not end the tasks; clients then find an old map here, and ask tasks
        with contextlib.suppress(OSError):
            self._map.write(edition)
        for kept in self._tasks.values():
            if kept.keeper is not None:
                kept.keeper.tell.remote(edition)

    def _start(self, kept: _Kept) -> None:
        environment = {**self._plan.environment_of(kept.program.name), **kept.program.environment}
        program = asdict(kept.program) | {"rule": kept.program.rule.value, "environment": environment}
        if program["command"][0] == sys.executable:
            program["command"] = ["python", *program["command"][1:]]  # that of its machine
        begun = kept.keeper.begin.remote(program, asdict(self._limits), self._plan.places.edition)
        self._when_answered(kept, begun, lambda _: self._begun(kept))

    def _begun(self, kept: _Kept) -> None:
        self._ask(kept)
        self._ask_for_notice(kept)

    def _ask_for_notice(self, kept: _Kept) -> None:
        self._when_answered(kept, kept.keeper.notice.remote(), lambda is_given: self._noticed(kept, is_given))

    def _noticed(self, kept: _Kept, is_given: bool) -> None:
        if not is_given:
            self._ask_for_notice(kept)
        elif not self._is_over(kept):
            self._write(kept, f"{kept.program.name} leaves its machine, which will be taken away\n".encode())
            kept.is_leaving = True
            kept.keeper.stop_task.remote()

    def _ask(self, kept: _Kept) -> None:
        self._when_answered(kept, kept.keeper.news.remote(), lambda news: self._heard(kept, news))

    def _when_answered(self, kept: _Kept, answer: ray.ObjectRef[Any], then: Callable[[Any], None]) -> None:
        generation = kept.generation

        def handle(future: Future[Any]) -> None:
            def on_thread() -> None:
                if kept.generation != generation or kept.keeper is None:
                    return
                error = future.exception()
                if error is None:
                    then(future.result())
                else:
                    self._lost(kept, error)

            self._events.put(on_thread)

        answer.future().add_done_callback(handle)

    def _heard(self, kept: _Kept, news: News) -> None:
        kept.status = news.status or kept.status
        if news.output:
            self._write(kept, news.output)
        if kept.is_leaving and self._is_over(kept):
            # one that has finished by itself meanwhile is over
            kept.is_leaving = kept.status is not None and kept.status.state is TaskState.STOPPED
        if kept.is_leaving and self._is_over(kept):
            ray.kill(kept.keeper)
            self._lost(kept, "its task has left the machine")
        else:
            self._ask(kept)

    def _write(self, kept: _Kept, data: bytes) -> None:
        # a full disk does not end the task
        with contextlib.suppress(OSError), (self._logs / log_name(kept.program.name)).open("ab") as log:
            log.write(data)
        if self._output is not None:
            for line in data.split(b"\n")[:-1]:
                self._output(kept.program.name, line)

    def _lost(self, kept: _Kept, error: BaseException | str) -> None:
        reason = str(getattr(error, "cause", None) or error).strip().splitlines()[0]
        self._write(kept, f"the actor of {kept.program.name} was lost: {reason}\n".encode())
        kept.keeper = None
        name = kept.program.name
        if self._is_over(kept) and not kept.is_leaving:
            self._actors.ask_stop(name, time.monotonic())
        self._follow(self._actors.exited(name, _KILLED, time.monotonic()))

    def _stop(self, kept: _Kept) -> None:
        kept.is_leaving = False
        if kept.keeper is not None:
            kept.keeper.stop_task.remote()
        else:
            self._actors.ask_stop(kept.program.name, time.monotonic())

    def _restart(self, kept: _Kept) -> None:
        if kept.keeper is not None:
            if not kept.is_leaving:
                kept.keeper.restart_task.remote()
        else:
            self._follow(self._actors.ask_restart(kept.program.name, time.monotonic()))

    def _is_over(self, kept: _Kept) -> bool:
        return kept.status is not None and kept.status.state in ENDED

    def _status(self, kept: _Kept) -> TaskStatus:
        name = kept.program.name
        restarts, address = kept.earlier + self._actors.restarts(name), self._plan.places.moved(name)
        if kept.status is not None and (kept.keeper is not None or (self._is_over(kept) and not kept.is_leaving)):
            return replace(kept.status, restarts=kept.status.restarts + restarts, address=address)
        state = self._actors.state(name)
        restarts += 0 if kept.status is None else kept.status.restarts
        status = self._actors.status(name) if state is TaskState.FAILED else None
        return TaskStatus(name, state, restarts=restarts, status=status, address=address)


def cluster_plan(counts: Mapping[str, int], wishes: PlanWishes) -> RayPlan:
    """So many tasks of each job on machines that Ray has.

    Raises:
        InvalidArgumentError: a port is wished for.
        OpError: see `RayPlan`.
    """
    if wishes.port is not None:
        raise InvalidArgumentError(None, None, "tasks on Ray listen at free ports of their machines: leave out --port")
    cpus = 1.0 if wishes.cpus is None else wishes.cpus
    return RayPlan(counts, wishes.address, TaskResources(cpus, wishes.gpus or 0.0))
