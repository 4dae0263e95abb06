"""Two parameter servers and three workers train at once; one worker is killed before your eyes, and joins again.

All are processes of this machine; the workers run `asynchronous_digits.py`. What you see: steps and loss of each worker
go on while one of them is gone, since nobody waits for it (§4.4), and the newcomer finds the variables where the others
have brought them.

    python cluster_demo.py [--seconds 12] [--ps 2] [--workers 3]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from anabranch.distributed.cluster_files import ClusterFolder
from anabranch.distributed.cluster_spec import ClusterSpec
from anabranch.distributed.local_plan import LocalPlan
from anabranch.distributed.restarts import RestartRule
from anabranch.distributed.supervisor import ClusterSupervisor, task_key, task_program
from anabranch.distributed.task_engine import TaskProgram, TaskStatus, shown_state

WORKER = Path(__file__).with_name("asynchronous_digits.py")
#: for all to start, and for one to join again, on a machine that is busy
PATIENCE = 90.0  # s
BARS = "▁▂▃▄▅▆▇█"
CURVE = 16  # reports
HIGHEST_LOSS = 2.4  # little more than of one who guesses
_REPORT = re.compile(rb"worker \d+ steps (\d+) of (\d+) loss ([\d.]+) accuracy ([\d.]+)")


@dataclass
class Progress:
    """What a worker has told of itself since its process started."""

    reports: int = 0
    steps: int = 0
    rate: float = 0.0
    at: float = 0.0
    accuracy: float = 0.0
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=CURVE))

    def take(self, steps: int, loss: float, accuracy: float, now: float) -> None:
        if steps < self.steps:
            self.reports = self.steps = 0
        elif self.reports:
            self.rate = (steps - self.steps) / (now - self.at)
        self.reports += 1
        self.steps, self.accuracy, self.at = steps, accuracy, now
        self.losses.append(loss)


class Watch:
    """Reads what the workers print."""

    def __init__(self, workers: Sequence[str]) -> None:
        self.news = threading.Condition()
        self.workers = {name: Progress() for name in workers}
        self.total = 0

    def __call__(self, task: str, line: bytes, /) -> None:
        report = _REPORT.search(line)
        if report and task in self.workers:
            with self.news:
                steps, self.total = int(report[1]), max(self.total, int(report[2]))
                self.workers[task].take(steps, float(report[3]), float(report[4]), time.monotonic())
                self.news.notify_all()

    def forget(self, worker: str) -> None:
        """The worker is gone; its curve stays."""
        with self.news:
            self.workers[worker] = Progress(losses=self.workers[worker].losses)


def curve(losses: Sequence[float]) -> str:
    heights = (min(loss / HIGHEST_LOSS, 1.0) * (len(BARS) - 1) for loss in losses)
    return "".join(BARS[round(height)] for height in heights)


def table(statuses: Sequence[TaskStatus], watch: Watch, said: str) -> Table:
    drawn = Table(box=None, pad_edge=False, caption=said, caption_justify="left", caption_style="")
    for name in ("task", "process", "state", "restarts", "steps", "steps/s", "loss", ""):
        drawn.add_column(name, justify="right" if name in ("restarts", "steps", "steps/s", "loss") else "left")
    for status in statuses:
        own = watch.workers.get(status.name, Progress())
        progress = [f"{own.steps}", f"{own.rate:.0f}", f"{own.losses[-1]:.3f}"] if own.reports else ["", "", ""]
        state = shown_state(status) if own.reports or status.name not in watch.workers else "joins"
        style = "green" if state == "running" else "bold red"
        line = [status.name, str(status.pid or "–"), f"[{style}]{state}[/]", str(status.restarts or ""), *progress]
        drawn.add_row(*line, curve(own.losses))
    return drawn


class Demonstration:
    """Shows the cluster while it waits for something."""

    def __init__(self, supervisor: ClusterSupervisor, watch: Watch, live: Live) -> None:
        self._supervisor, self.watch, self._live = supervisor, watch, live

    def until(self, condition: Callable[[], bool], within: float, said: str) -> float:
        """Waits for a condition of what the workers tell; returns how long it took."""
        started = time.monotonic()
        with self.watch.news:
            while not condition():
                left = started + within - time.monotonic()
                if left <= 0:
                    raise SystemExit(f"waited {within:.0f} s: {said}")
                self._live.update(table(self._supervisor.engine.statuses(), self.watch, said), refresh=True)
                self.watch.news.wait(min(0.25, left))
        return time.monotonic() - started

    def go_on(self, seconds: float, said: str) -> None:
        """Lets them train."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > end, seconds + 1, said)


def demonstrate(shown: Demonstration, supervisor: ClusterSupervisor, seconds: float) -> list[str]:
    """Lets the workers train, kills one, waits until it is back; returns what there is to tell."""
    watch = shown.watch
    victim = list(watch.workers)[-1]
    others = [name for name in watch.workers if name != victim]
    ready = shown.until(
        lambda: all(each.reports for each in watch.workers.values()), PATIENCE, "the tasks start; workers join"
    )
    shown.go_on(seconds / 3, "all workers train, each at its own pace")
    (before,) = (status for status in supervisor.engine.statuses() if status.name == victim)
    assert before.pid is not None
    steps_before, killed = {name: watch.workers[name].steps for name in others}, time.monotonic()
    watch.forget(victim)
    os.kill(before.pid, signal.SIGKILL)
    supervisor.engine.wait(lambda all: any(s.name == victim and s.pid not in (None, before.pid) for s in all), PATIENCE)
    replaced = time.monotonic() - killed
    said = f"{victim} was killed (process {before.pid}); its replacement joins, and the others go on"
    shown.until(lambda: watch.workers[victim].reports > 0, PATIENCE, said)
    joined = time.monotonic() - killed
    went_on = {name: watch.workers[name].steps - steps_before[name] for name in others}
    shown.go_on(seconds / 3, f"{victim} is back, and has found the variables as the others have brought them")
    accuracy = max(each.accuracy for each in watch.workers.values())
    return [
        f"all {len(watch.workers)} workers trained {ready:.1f} s after the start",
        f"{victim} was killed; a new process took its place after {replaced:.2f} s and trained after {joined:.1f} s",
        *(f"meanwhile {name} made {steps} steps" for name, steps in went_on.items()),
        f"{watch.total} steps in all; {accuracy:.1%} of the held-out digits are recognized",
    ]


def worker_program(spec: ClusterSpec, index: int) -> TaskProgram:
    command = [sys.executable, str(WORKER), "--job_name=worker", f"--task_index={index}", "--steps=1000000000"]
    command += [f"--{job}_hosts={','.join(filter(None, spec.job_tasks(job)))}" for job in ("ps", "worker")]
    return TaskProgram(task_key("worker", index), command, rule=RestartRule.ON_FAILURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=12.0, help="how long they train beside starting (12)")
    parser.add_argument("--ps", type=int, default=2, help="how many parameter servers (2)")
    parser.add_argument("--workers", type=int, default=3, help="how many workers, at least two (3)")
    options = parser.parse_args()
    if options.ps < 1 or options.workers < 2:
        parser.error("it takes a parameter server and two workers")
    console = Console()
    folder = ClusterFolder(f"demo-{os.getpid()}")
    watch = Watch([task_key("worker", index) for index in range(options.workers)])
    try:
        with LocalPlan.of({"ps": options.ps, "worker": options.workers}) as plan:
            programs = [task_program(plan.spec, "ps", index) for index in range(options.ps)]
            programs += [worker_program(plan.spec, index) for index in range(options.workers)]
            supervisor = ClusterSupervisor(folder, plan, programs, output=watch)
            with supervisor, Live(console=console, auto_refresh=False) as live:
                lines = demonstrate(Demonstration(supervisor, watch, live), supervisor, options.seconds)
        console.print()
        for line in lines:
            console.print(line, highlight=False, soft_wrap=True)
    except KeyboardInterrupt:
        console.print("interrupted; all processes are ended")
    finally:
        shutil.rmtree(folder.path, ignore_errors=True)


if __name__ == "__main__":
    main()
