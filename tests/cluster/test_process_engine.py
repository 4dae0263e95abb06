"""Processes that are started, killed, started again and ended: real ones, mostly as small as a process can be."""

from __future__ import annotations

import os
import queue
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from anabranch.distributed.held_ports import HeldPorts
from anabranch.distributed.process_engine import ProcessEngine
from anabranch.distributed.restarts import RestartLimits, RestartRule, TaskState
from anabranch.distributed.task_engine import TaskProgram, TaskStatus
from anabranch.errors import DeadlineExceededError, NotFoundError

ROOT = Path(__file__).resolve().parent.parent.parent
#: for whatever a test waits for, in seconds
DEADLINE = 20.0
QUICK = RestartLimits(first_pause=0.01, restarts=3, grace=5.0)
#: says that it is ready, and waits
WAITING = """
import os, time
ready = os.environ.get("ANABRANCH_READY_DESCRIPTOR")
print("begins", flush=True)
if ready: os.write(int(ready), b"x")
time.sleep(600)
"""
#: does not end when it is asked to
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITING
#: starts another process, which does not end with it
WITH_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def program(
    code: str, name: str = "a/0", rule: RestartRule = RestartRule.ALWAYS, announces: bool = False
) -> TaskProgram:
    return TaskProgram(name, [sys.executable, "-I", "-S", "-c", code], {}, rule, announces)


class Lines:
    """Notes what tasks write."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []
        self.coming: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def __call__(self, task: str, line: bytes, /) -> None:
        self.seen.append((task, line))
        self.coming.put(line)


def state(statuses: Sequence[TaskStatus], index: int = 0) -> TaskState:
    return statuses[index].state


def pid(engine: ProcessEngine) -> int:
    found = engine.wait(lambda all: all[0].pid is not None and all[0].is_ready, DEADLINE)[0].pid
    assert found is not None
    return found


def is_alive(process: int) -> bool:
    """Whether a process runs; one that has ended and was not reaped does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(process: int) -> None:
    try:
        ends = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        # readable as soon as it has ended, whoever reaps it
        assert select.select([ends], [], [], DEADLINE)[0], f"the process {process} is still there"
    finally:
        os.close(ends)
    assert not is_alive(process)


@pytest.fixture
def no_descriptor_is_left() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.usefixtures("no_descriptor_is_left")
def test_a_killed_task_is_started_again_at_once(tmp_path: Path) -> None:
    with ProcessEngine([program(WAITING, announces=True)], tmp_path, QUICK) as engine:
        engine.start()
        first = pid(engine)
        killed = time.monotonic()
        os.kill(first, signal.SIGKILL)
        engine.wait(lambda all: all[0].pid not in (None, first), DEADLINE)
        assert time.monotonic() - killed < 5  # it is some 0.05 s where nothing else runs
        (after,) = engine.wait(lambda all: all[0].is_ready, DEADLINE)
        assert (after.restarts, after.status, after.state) == (1, -signal.SIGKILL, TaskState.RUNNING)
        second = after.pid
        assert engine.log_of("a/0").read_text() == "begins\nbegins\n"
    assert second is not None
    assert not is_alive(first)
    assert not is_alive(second)
    assert engine.statuses()[0].state is TaskState.STOPPED


def test_a_task_that_fails_again_and_again_is_given_up(tmp_path: Path) -> None:
    with ProcessEngine([program("raise SystemExit(3)")], tmp_path, QUICK) as engine:
        engine.start()
        (given_up,) = engine.wait(lambda all: state(all) is TaskState.FAILED, DEADLINE)
        assert (given_up.restarts, given_up.status, given_up.pid) == (QUICK.restarts, 3, None)


def test_a_task_that_finishes_is_left_alone_and_its_output_is_handed_on(tmp_path: Path) -> None:
    lines = Lines()
    code = "import sys; print('one'); print('two', end='', file=sys.stderr)"
    with ProcessEngine([program(code, rule=RestartRule.ON_FAILURE)], tmp_path, QUICK, lines) as engine:
        engine.start()
        engine.wait(lambda all: state(all) is TaskState.FINISHED, DEADLINE)
        assert sorted(engine.log_of("a/0").read_bytes()) == sorted(b"one\ntwo")
    assert sorted(line for _, line in lines.seen) in ([b"one", b"two"], [b"twoone"])


def test_a_command_that_does_not_exist_fails_as_in_a_shell(tmp_path: Path) -> None:
    missing = TaskProgram("a/0", [os.fspath(tmp_path / "missing")], rule=RestartRule.NEVER)
    with ProcessEngine([missing], tmp_path, QUICK) as engine:
        engine.start()
        (failed,) = engine.wait(lambda all: state(all) is TaskState.FAILED, DEADLINE)
        assert failed.status
        assert "missing" in engine.log_of("a/0").read_text()


def test_one_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    impatient = RestartLimits(grace=0.2)
    with ProcessEngine([program(STUBBORN, announces=True)], tmp_path, impatient) as engine:
        engine.start()
        first = pid(engine)
        engine.restart_task("a/0")
        (after,) = engine.wait(lambda all: all[0].pid not in (None, first) and all[0].is_ready, DEADLINE)
        assert (after.status, after.restarts) == (-signal.SIGKILL, 1)
        engine.stop_task("a/0")
        engine.wait(lambda all: state(all) is TaskState.STOPPED, DEADLINE)
    assert not is_alive(first)


def test_a_task_that_is_stopped_by_a_signal_is_ended_too(tmp_path: Path) -> None:
    with ProcessEngine([program(WAITING, announces=True)], tmp_path, QUICK) as engine:
        engine.start()
        process = pid(engine)
        os.kill(process, signal.SIGSTOP)
        started = time.monotonic()
    assert not is_alive(process)
    assert time.monotonic() - started < QUICK.grace


def test_what_a_task_started_ends_with_it(tmp_path: Path) -> None:
    lines = Lines()
    with ProcessEngine([program(WITH_CHILD, rule=RestartRule.NEVER)], tmp_path, QUICK, lines) as engine:
        engine.start()
        child = int(lines.coming.get(timeout=DEADLINE))
        os.kill(pid(engine), signal.SIGKILL)
        wait_until_gone(child)


_SUPERVISOR = f"""
import pathlib, sys, time
sys.path.insert(0, {str(ROOT)!r})
from anabranch.distributed.process_engine import ProcessEngine
from anabranch.distributed.task_engine import TaskProgram
programs = [TaskProgram(f"a/{{i}}", [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]) for i in (0, 1)]
engine = ProcessEngine(programs, pathlib.Path(sys.argv[1]))
engine.start()
print(*[each.pid for each in engine.wait(lambda all: all[0].pid and all[1].pid, 20)], flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_tasks_end_with_their_supervisor(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", _SUPERVISOR, os.fspath(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        tasks = [int(word) for word in supervisor.stdout.readline().split()]
        assert len(tasks) == 2
        assert all(map(is_alive, tasks))
        supervisor.send_signal(number)
    for task in tasks:
        wait_until_gone(task)


def test_asking_about_tasks_that_do_not_exist(tmp_path: Path) -> None:
    with ProcessEngine([program(WAITING)], tmp_path, QUICK) as engine:
        with pytest.raises(NotFoundError, match="no task b/0; there are a/0"):
            engine.restart_task("b/0")
        engine.start()
        with pytest.raises(DeadlineExceededError, match="waited 0.01 s for a miracle: a/0 running|a miracle: $"):
            engine.wait(lambda all: False, 0.01, "a miracle")


def test_a_held_port_is_given_to_nobody_but_the_one_who_asks_for_it() -> None:
    with HeldPorts(3) as held:
        assert len(set(held.ports)) == 3
        for _ in range(2):  # a task, and the one that is started again
            with socket.socket() as task:
                task.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                task.bind(("127.0.0.1", held.ports[0]))
                task.listen()
    with pytest.raises(ConnectionRefusedError), socket.socket() as client:
        client.connect(("127.0.0.1", held.ports[0]))
