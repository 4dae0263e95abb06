"""What keeps one task running for somebody on another machine: ports, the map of addresses, news."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from anabranch.distributed.addresses import ADDRESS_MAP_VARIABLE
from anabranch.distributed.own_folders import sweep
from anabranch.distributed.restarts import RestartLimits, RestartRule, TaskState
from anabranch.distributed.task_engine import TaskProgram, TaskStatus
from anabranch.distributed.task_keeper import FOLDERS, TaskKeeper
from anabranch.distributed.task_places import MapEdition

DEADLINE = 20.0
QUICK = asdict(RestartLimits(first_pause=0.01, grace=5.0))
#: says what its map says, whenever it is asked by a signal
READING = f"""
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
path = os.environ["{ADDRESS_MAP_VARIABLE}"]
while True:
    print(path, open(path).read().strip(), flush=True)
    signal.sigwait([signal.SIGUSR1])
"""


@pytest.fixture
def keeper() -> Iterator[TaskKeeper]:
    keeper = TaskKeeper()
    try:
        yield keeper
    finally:
        keeper.close()


class Heard:
    """What a keeper has told so far."""

    def __init__(self, keeper: TaskKeeper) -> None:
        self._keeper = keeper
        self.output = ""
        self.status: TaskStatus | None = None

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not holds():
            assert time.monotonic() < deadline, (self.output, self.status)
            news = self._keeper.news()
            self.output += news.output.decode()
            self.status = news.status or self.status


def test_a_port_that_somebody_else_has_is_replaced_by_another(keeper: TaskKeeper) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = keeper.port(other.getsockname()[1])
        assert port != other.getsockname()[1]
        # it stays the task's, also if it is asked for again
        assert keeper.port(None) == keeper.port(other.getsockname()[1]) == port
    keeper.close()
    again = TaskKeeper()
    try:
        assert again.port(port) == port
    finally:
        again.close()


def test_a_task_reads_the_latest_map_also_after_it_was_started_again(keeper: TaskKeeper) -> None:
    heard = Heard(keeper)
    # what was told before the task begins is not lost, and what comes late is dropped
    keeper.tell(MapEdition(2, "a:1 = a:3"))
    program = asdict(TaskProgram("a/0", ["python", "-I", "-S", "-c", READING])) | {"rule": RestartRule.ALWAYS.value}
    keeper.begin(program, QUICK, MapEdition(1, "a:1 = a:2"))
    heard.until(lambda: "a:1 = a:3" in heard.output)
    path = Path(heard.output.split()[0])
    keeper.tell(MapEdition(3, "a:1 = a:4"))
    assert heard.status is not None
    assert heard.status.pid is not None
    os.kill(heard.status.pid, signal.SIGUSR1)
    heard.until(lambda: "a:1 = a:4" in heard.output)
    os.kill(heard.status.pid, signal.SIGKILL)
    heard.until(lambda: heard.output.count("a:1 = a:4") == 2)
    assert "a:2" not in heard.output
    keeper.stop_task()
    heard.until(lambda: heard.status is not None and heard.status.state is TaskState.STOPPED)
    keeper.close()
    assert not path.exists()


_KILLED = """
import sys
from anabranch.distributed.task_keeper import TaskKeeper

keeper = TaskKeeper()
print(keeper._folder.path, flush=True)
sys.stdin.read()
"""


def test_the_folder_of_a_keeper_that_was_killed_is_removed_by_the_next_and_by_whoever_ends(keeper: TaskKeeper) -> None:
    for removed_by in ("the next", "whoever ends"):
        with subprocess.Popen(
            [sys.executable, "-c", _KILLED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as other:
            assert other.stdout is not None
            folder = Path(other.stdout.readline().strip())
            sweep(FOLDERS)
            assert folder.is_dir(), "somebody holds it"
            other.kill()
        assert folder.is_dir()
        if removed_by == "the next":
            TaskKeeper().close()
        else:
            keeper.close()
        assert not folder.exists()


def test_a_map_that_cannot_be_written_is_said_in_the_tasks_output(keeper: TaskKeeper) -> None:
    heard = Heard(keeper)
    program = asdict(TaskProgram("a/0", ["python", "-I", "-S", "-c", READING])) | {"rule": RestartRule.ALWAYS.value}
    keeper.begin(program, QUICK, MapEdition(0, "a:1 = a:2"))
    heard.until(lambda: "a:1 = a:2" in heard.output)
    folder = Path(heard.output.split()[0]).parent
    folder.rename(folder.with_suffix(".gone"))
    try:
        keeper.tell(MapEdition(1, ""))
        heard.until(lambda: "the addresses of tasks stay as they were" in heard.output)
    finally:
        folder.with_suffix(".gone").rename(folder)
