"""Starts the tasks of a cluster as processes of this machine, and keeps them running (WP3.2).

One thread does all of it: it waits at once for deaths (a descriptor per process becomes readable), output, readiness,
the end of pauses, and what others ask; it polls nothing. What is to be done is decided by `distributed.restarts`.

- A process is its own process group; when it ends, what is left of its group is killed before it is reaped, while
  nobody else can have the group's number.
- A process dies with its supervisor (`distributed.dies_with_parent`).
- A task that announces itself writes a line to the descriptor that `READY_VARIABLE` numbers when it can be reached.
"""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from anabranch.distributed import dies_with_parent
from anabranch.distributed.restarts import Kill, RestartInstruction, RestartLimits, Restarts, Start, Terminate
from anabranch.distributed.task_engine import (
    READY_VARIABLE,
    OutputReader,
    TaskProgram,
    TaskStatus,
    TaskStatuses,
    log_name,
)
from anabranch.errors import NotFoundError

#: what a shell returns for a command that cannot be run
_NO_COMMAND: Final = 127
_CHUNK: Final = 1 << 16
#: a line of output longer than this is handed on in parts
_MAX_LINE: Final = 1 << 16


@dataclass
class _Running:
    """A task's process.

    #: `descriptor` (of the process) is registered with the selector until the process was reaped.
    """

    process: subprocess.Popen[bytes]
    descriptor: int
    started: float
    is_ready: bool


class ProcessEngine:
    """Runs tasks as processes. Thread-safe; `close` it, or use it as a context.

    Args:
        programs: what the tasks run.
        logs: the folder where each task's output goes, `ps-0.log` for ps/0, appended.
        limits: how often and when tasks are started again.
        output: is handed each line that tasks write, too.
        changed: is called, on the engine's thread, with the state of all tasks whenever one has changed. It must
            return soon, and must not wait for the engine.
    """

    def __init__(
        self,
        programs: Sequence[TaskProgram],
        logs: Path,
        limits: RestartLimits | None = None,
        output: OutputReader | None = None,
        changed: Callable[[list[TaskStatus]], None] | None = None,
    ) -> None:
        self._programs = {program.name: program for program in programs}
        self._logs = logs
        self._machine = Restarts(limits or RestartLimits())
        self._output = output
        self._running: dict[str, _Running] = {}
        self._selector = selectors.DefaultSelector()
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake_up, self._woken = os.pipe()
        os.set_blocking(self._wake_up, False)
        self._selector.register(self._wake_up, selectors.EVENT_READ, self._be_asked)
        self._statuses = TaskStatuses(changed)
        self._is_closing = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="process engine", daemon=True)

    # ------------------------------------------------------------------------------------------- for any thread
    def start(self) -> None:
        """Starts all tasks; returns before they are ready."""
        self._ask(self._add_all)
        self._thread.start()

    def statuses(self) -> list[TaskStatus]:
        """How each task is."""
        return self._statuses.latest()

    def stop_task(self, task: str) -> None:
        """Lets a task end, and not be started again.

        Raises:
            NotFoundError: there is no such task.
        """
        self._check_name(task)
        self._ask(lambda: self._follow(self._machine.ask_stop(task, time.monotonic())))

    def restart_task(self, task: str) -> None:
        """Lets a task end and be started again.

        Raises:
            NotFoundError: there is no such task.
        """
        self._check_name(task)
        self._ask(lambda: self._follow(self._machine.ask_restart(task, time.monotonic())))

    def wait(
        self, condition: Callable[[list[TaskStatus]], bool], timeout: float | None = None, what: str = "the tasks"
    ) -> list[TaskStatus]:
        """Waits until a condition of the tasks' state holds; returns that state.

        Raises:
            DeadlineExceededError: it does not within `timeout` seconds.
        """
        return self._statuses.wait(condition, timeout, what)

    def close(self) -> None:
        """Ends all tasks, those that do not end within the grace by force; returns when none is left. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._ask(self._end_all)
        if not self._thread.ident:
            self._thread.start()
        self._thread.join()
        self._selector.close()
        os.close(self._wake_up)
        os.close(self._woken)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def log_of(self, task: str) -> Path:
        """The file with a task's output."""
        return self._logs / log_name(task)

    def _check_name(self, task: str) -> None:
        if task not in self._programs:
            raise NotFoundError(None, None, f"there is no task {task}; there are {', '.join(self._programs)}")

    def _ask(self, what: Callable[[], None]) -> None:
        self._asked.put(what)
        os.write(self._woken, b"x")

    # ------------------------------------------------------------------------------------- on the engine's thread
    def _run(self) -> None:
        while not (self._is_closing and self._machine.is_over):
            for key, _ in self._selector.select(self._time_left()):
                key.data()
            self._follow(self._machine.time_passed(time.monotonic()))
            self._statuses.put([self._status(task) for task in self._machine.tasks()])
        for key in list(self._selector.get_map().values()):
            # output of processes that have left their group, and outlive the task
            if key.fd != self._wake_up:
                self._forget(key.fd)

    def _time_left(self) -> float | None:
        until = self._machine.next_time()
        return None if until is None else max(0.0, until - time.monotonic())

    def _be_asked(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_up, _CHUNK)
        while not self._asked.empty():
            self._asked.get_nowait()()

    def _add_all(self) -> None:
        for program in self._programs.values():
            self._follow(self._machine.add(program.name, program.rule))

    def _end_all(self) -> None:
        self._is_closing = True
        for task in self._machine.tasks():
            self._follow(self._machine.ask_stop(task, time.monotonic()))

    def _follow(self, instructions: Sequence[RestartInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Start(task):
                    self._start(self._programs[task])
                case Terminate(task):
                    self._signal(task, signal.SIGTERM)
                case Kill(task):
                    self._signal(task, signal.SIGKILL)

    def _signal(self, task: str, number: signal.Signals) -> None:
        """To the whole group: a program may have started others that do its work."""
        if task in self._running:
            process = self._running[task].process
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            if number is signal.SIGTERM:
                # one that is stopped would only hear of it when it goes on
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGCONT)

    def _start(self, program: TaskProgram) -> None:
        try:
            self._launch(program)
        except OSError as error:
            with self.log_of(program.name).open("ab") as log:
                log.write(f"{program.command[0]} cannot be started: {error}\n".encode())
            self._follow(self._machine.exited(program.name, _NO_COMMAND, time.monotonic()))

    def _launch(self, program: TaskProgram) -> None:
        environment = os.environ | program.environment
        passed: list[int] = []
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(self.log_of(program.name).open("ab"))
            ready: int | None = None
            if program.announces:
                ready, passed = _pipe_for_child(stack)
                environment[READY_VARIABLE] = str(passed[0])
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", dies_with_parent.__file__, str(os.getpid()), *program.command],
                stdin=subprocess.DEVNULL,
                stdout=log if self._output is None else subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=passed,
                process_group=0,
            )
        descriptor = _descriptor_of_process(process)
        running = _Running(process, descriptor, time.time(), is_ready=not program.announces)
        self._running[program.name] = running
        if ready is not None:
            at = ready
            self._selector.register(at, selectors.EVENT_READ, lambda: self._announced(running, at))
        if process.stdout is not None:
            # what the process and its children write; it ends when the last of them has closed it
            output = os.dup(process.stdout.fileno())
            process.stdout.close()
            reader = _lines(program.name, self.log_of(program.name), self._output)
            self._selector.register(output, selectors.EVENT_READ, lambda: self._read(output, reader))
        self._selector.register(descriptor, selectors.EVENT_READ, lambda: self._ended(program.name, running))

    def _announced(self, running: _Running, descriptor: int) -> None:
        # nothing to read: it ended before it was ready
        running.is_ready = bool(os.read(descriptor, _CHUNK))
        self._forget(descriptor)

    def _read(self, descriptor: int, reader: Callable[[bytes], None]) -> None:
        data = os.read(descriptor, _CHUNK)
        reader(data)
        if not data:
            self._forget(descriptor)

    def _ended(self, task: str, running: _Running) -> None:
        self._forget(running.descriptor)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(running.process.pid, signal.SIGKILL)
        status = running.process.wait()
        del self._running[task]
        self._follow(self._machine.exited(task, status, time.monotonic()))

    def _forget(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)

    def _status(self, task: str) -> TaskStatus:
        running = self._running.get(task)
        return TaskStatus(
            name=task,
            state=self._machine.state(task),
            is_ready=running is not None and running.is_ready,
            pid=None if running is None else running.process.pid,
            started=None if running is None else running.started,
            restarts=self._machine.restarts(task),
            status=self._machine.status(task),
        )


def _pipe_for_child(stack: contextlib.ExitStack) -> tuple[int, list[int]]:
    """The end to read, and the end to pass on, which is closed here when the stack is left."""
    reading, writing = os.pipe()
    stack.callback(os.close, writing)
    return reading, [writing]


def _descriptor_of_process(process: subprocess.Popen[bytes]) -> int:
    """A descriptor that becomes readable when the process ends."""
    if sys.platform == "linux":
        return os.pidfd_open(process.pid)
    reading, writing = os.pipe()

    def wait() -> None:
        # it stays unreaped, and its group's number taken, until the engine has looked
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        os.close(writing)

    threading.Thread(target=wait, name="process end", daemon=True).start()
    return reading


def _lines(task: str, log: Path, output: OutputReader | None) -> Callable[[bytes], None]:
    """Takes pieces of output, the last of them empty; notes them in a file, and hands on lines."""
    whole = _split_lines()
    next(whole)

    def take(data: bytes) -> None:
        # a full disk does not end the task
        with contextlib.suppress(OSError), log.open("ab") as file:
            file.write(data)
        for line in whole.send(data):
            if output is not None:
                output(task, line)

    return take


def _split_lines() -> Generator[list[bytes], bytes, None]:
    rest = b""
    lines: list[bytes] = []
    while True:
        data = yield lines
        *lines, rest = (rest + data).split(b"\n")
        if rest and (not data or len(rest) > _MAX_LINE):
            lines, rest = [*lines, rest], b""
