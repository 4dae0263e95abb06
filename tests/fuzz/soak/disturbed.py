"""A run of `anabranch cluster run` that is disturbed: its tasks are killed, stopped, restarted, and counted."""

from __future__ import annotations

import contextlib
import io
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, Self

from anabranch.distributed.cluster_files import ClusterFolder
from anabranch.tools import command_line
from tests import quick_compilation

NAME: Final = "soak"
#: seconds within which something has to happen that was waited for. A task that ends often is started again after 30,
#: a worker is missed for 60, and others use the machine: whatever takes longer hangs.
PATIENCE: Final = 240.0
_LOOK_EVERY: Final = 0.05
_ROOT: Final = Path(__file__).resolve().parents[3]
#: is in the environment of all processes of a run
_MARK: Final = "ANABRANCH_SOAK"


class Event(NamedTuple):
    """Something that has really happened to a task, so many seconds after the begin."""

    at: float
    what: str
    task: str

    def __str__(self) -> str:
        return f"{self.at:.1f} s {self.what} {self.task}"


class Hung(AssertionError):
    """Something did not happen that had to."""


class Disturbed:
    """See the module. A context: what it has started ends with it.

    Args:
        folder: where it runs; there is nothing.
        options: of `anabranch cluster run`, the program included.
    """

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self.folder, self.events = folder, list[Event]()
        self._began = time.monotonic()
        self._token = secrets.token_hex(8)
        self._temporary = folder / "tmp"
        self._temporary.mkdir(parents=True)
        # the commands that are called here look there as well
        os.environ["XDG_RUNTIME_DIR"] = str(folder / "run")
        environment = os.environ | quick_compilation.environment()
        environment |= {"PYTHONPATH": str(_ROOT), "TMPDIR": str(self._temporary), _MARK: self._token}
        command = [sys.executable, "-m", "anabranch", "cluster", "run", "--name", NAME, *options]
        with (folder / "output").open("wb") as output:
            self._process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        self._cluster = ClusterFolder(NAME)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE)
        for process in self.left_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait()

    # ------------------------------------------------------------------ what can be seen
    def steps(self) -> int:
        """How many steps workers have noted."""
        return sum(file.read_bytes().count(b"\n") for file in self.folder.glob("*.notes"))

    def process(self, task: str) -> int | None:
        """The process of a task that runs now."""
        for each in self._cluster.state()["tasks"]:
            if each["name"] == task:
                return each["pid"] if each["state"] == "running" else None
        return None

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for something.

        Raises:
            Hung: it does not come about, or the run ends meanwhile.
        """
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self._process.poll() is not None and not condition():
                raise Hung(f"{what} did not come about: the run has ended with {self._process.returncode}")
            if time.monotonic() > deadline:
                self._hangs(what)
            time.sleep(_LOOK_EVERY)

    def goes_on(self, steps: int = 1) -> None:
        """Waits for so many steps more."""
        wanted = self.steps() + steps
        self.until(lambda: self.steps() >= wanted, f"{steps} more steps")

    def _hangs(self, what: str) -> NoReturn:
        # programs write where their threads are
        for each in self._cluster.state()["tasks"]:
            if each["pid"] and not each["name"].startswith("ps/"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each["pid"], signal.SIGUSR1)
        time.sleep(1)  # they write on their own time, and the folder is read when this ends
        raise Hung(f"{what} did not come about within {PATIENCE:g} s; where threads are stands in the output")

    # ------------------------------------------------------------------ what is done to it
    def _happened(self, what: str, task: str) -> None:
        self.events.append(Event(time.monotonic() - self._began, what, task))

    def kill(self, task: str) -> None:
        """Sends SIGKILL to a task's process, if it has one."""
        process = self.process(task)
        if process is not None and _signalled(process, signal.SIGKILL):
            self._happened("killed", task)

    def stop(self, task: str, seconds: float) -> None:
        """Stops a task's process for so long, if it has one."""
        process = self.process(task)
        if process is None or not _signalled(process, signal.SIGSTOP):
            return
        time.sleep(seconds)
        if _state(process) == "T" and _signalled(process, signal.SIGCONT):
            self._happened(f"stopped for {seconds:g} s", task)

    def restart(self, task: str) -> None:
        """Has a task end and start again."""
        process = self.process(task)
        self._command("restart", task)
        if process is not None:
            self.until(lambda: self.process(task) not in (None, process), f"another process of {task}")
            self._happened("restarted", task)

    def scale(self, workers: int) -> None:
        """Has so many workers run."""
        if self._command("scale", f"worker={workers}").startswith("st"):
            self._happened("scaled to", f"worker={workers}")

    def _command(self, *words: str) -> str:
        written = io.StringIO()
        with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
            status = command_line.main(["cluster", *words, "--name", NAME])
        if status and self._process.poll() is None:
            raise AssertionError(f"anabranch cluster {' '.join(words)}: {written.getvalue()}")
        return written.getvalue()

    # ------------------------------------------------------------------ the end
    def ends(self) -> None:
        """Waits for the end; it is a good one, and leaves nothing.

        Raises:
            AssertionError: it is not.
        """
        try:
            status = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._hangs("the end of the run")
        assert status == 0, f"the run ended with {status}"
        assert "Traceback" not in self.output(), "a task wrote a traceback"
        assert not self.left_processes(), f"processes are left: {self.left_processes()}"
        left = [file for file in self._temporary.iterdir() if file.name != "anabranch-cache"]
        assert not left, f"temporary files are left: {left}"
        sockets = [line for line in Path("/proc/net/unix").read_text().splitlines() if str(self.folder) in line]
        assert not sockets, f"sockets are left: {sockets}"
        assert not self._cluster.is_running
        assert not self._cluster.control.exists()

    def output(self) -> str:
        """What the run and its tasks have written."""
        return (self.folder / "output").read_text("utf-8", "replace")

    def left_processes(self) -> list[int]:
        """The run's processes that are there, those of its tasks included."""
        mark, found = f"{_MARK}={self._token}".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes() and _state(int(folder.name)) not in "ZX":
                    found.append(int(folder.name))
        return found

    def summary(self) -> str:
        """What has happened how often."""
        counts = Counter(f"{event.what} {event.task}" for event in self.events)
        return ", ".join(f"{what} {count} x" for what, count in sorted(counts.items()))


def _signalled(process: int, number: signal.Signals) -> bool:
    """Sends a signal; whether there was somebody to get it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)
        return True
    return False


def _state(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


# ---------------------------------------------------------------------- what is done at random
class Blows:
    """What is done to a run, one blow after the other.

    Args:
        run: it is done to that.
        rng: says what, to whom and when.
        tasks: their names.
        hits: "all", or the job whose tasks are hit.
        one_ps_at_a_time: whether what a parameter server has may be lost with another one.
    """

    def __init__(
        self, run: Disturbed, rng: random.Random, tasks: Sequence[str], hits: str, one_ps_at_a_time: bool
    ) -> None:
        self._run, self._rng, self._gently = run, rng, one_ps_at_a_time
        self._tasks = [task for task in tasks if hits in ("all", task.partition("/")[0])]
        self._workers = sum(task.startswith("worker/") for task in tasks)
        self._blows: list[Callable[[], None]] = [self.single] * 6 + [self.two_at_once, self.in_recovery, self.rolling]
        if hits != "ps":
            self._blows += [self.scaled] * 2

    def next(self) -> str:
        """Does something; its name."""
        blow = self._rng.choice(self._blows)
        blow()
        return blow.__name__

    def single(self) -> None:
        self._hit(self._rng.choice(self._tasks))

    def two_at_once(self) -> None:
        for task in self._two():
            self._run.kill(task)

    def in_recovery(self) -> None:
        """The second one while the training recovers from the first."""
        first, second = self._two()
        before = self._run.process(first)
        self._run.kill(first)
        self._run.until(lambda: self._run.process(first) not in (None, before), f"another process of {first}")
        time.sleep(self._rng.uniform(0, 4))
        self._hit(second if self._rng.random() < 0.5 else first)

    def rolling(self) -> None:
        """A restart of all, one after the other."""
        for task in self._tasks:
            self._run.restart(task)
            self._settle(task)

    def scaled(self) -> None:
        self._run.scale(self._rng.randint(1, self._workers - 1))
        time.sleep(self._rng.choice([0.0, 0.5, 3.0]))
        self._run.scale(self._workers)

    def _hit(self, task: str) -> None:
        match self._rng.choice(["kill", "restart", "restart", "stop"]):
            case "kill":
                self._run.kill(task)
            case "restart":
                self._run.restart(task)
            case "stop":
                self._run.stop(task, self._rng.choice([0.2, 2.0, 7.0]))
        self._settle(task)

    def _settle(self, task: str) -> None:
        # of two neighbours that are lost at once, one goes back to the checkpoint, and that is no fault
        if self._gently and task.startswith("ps/"):
            self._run.goes_on(20)

    def _two(self) -> list[str]:
        if not self._gently:
            return self._rng.sample(self._tasks, 2) if len(self._tasks) > 1 else self._tasks * 2
        workers = [task for task in self._tasks if task.startswith("worker/")]
        return [self._rng.choice(self._tasks), self._rng.choice(workers or self._tasks)]
