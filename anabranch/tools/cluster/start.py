"""`anabranch cluster start`."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn

from rich.console import Console
from rich.live import Live

from anabranch.distributed.cluster_files import ClusterFolder
from anabranch.distributed.supervisor import ClusterSupervisor, all_ready, task_program
from anabranch.distributed.task_engine import TaskStatus, shown_state
from anabranch.errors import UnavailableError
from anabranch.tools.cluster.engines import LOCAL, RAY, add_ray_options, plan_of
from anabranch.tools.cluster.names import DEFAULT_NAME
from anabranch.tools.cluster.tables import cluster_table

#: how long (s) the tasks may take to start, all together, on a machine that is busy
READY_WITHIN: Final = 120.0


def main(arguments: Sequence[str]) -> int:
    """`anabranch cluster start local 2 ps 3 workers`"""
    parser = argparse.ArgumentParser(
        prog="anabranch cluster start",
        description="Starts the tasks of a cluster, and starts those again that end. The tasks end with this command, "
        "whatever ends it.",
    )
    parser.add_argument(
        "engine", choices=(LOCAL, RAY), help="local: processes of this machine; ray: of the machines of a Ray cluster"
    )
    parser.add_argument("tasks", nargs="*", metavar="COUNT JOB", help="such as: 2 ps 3 workers (1 ps 2 workers)")
    parser.add_argument("--name", default=DEFAULT_NAME, help=f"the cluster's name ({DEFAULT_NAME})")
    parser.add_argument("--port", type=int, metavar="P", help="tasks listen at P, P + 1, ... (at free ports)")
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="where a training saves: tasks that are started again go on from there"
    )
    parser.add_argument("--detach", action="store_true", help="return when the tasks are ready, and let them run")
    add_ray_options(parser)
    parser.add_argument("--announce", type=int, metavar="DESCRIPTOR", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        counts = parse_counts(options.tasks or ["1", "ps", "2", "workers"])
    except ValueError as error:
        parser.error(str(error))
    if options.detach:
        return _detached(arguments, options.name)
    folder = ClusterFolder(options.name)
    with plan_of(options.engine, counts, options) as plan, ended_by_signals():
        programs = [task_program(plan.spec, job, index, options.checkpoint) for job, index, _ in plan.spec.tasks()]
        _supervise(ClusterSupervisor(folder, plan, programs), options.announce)
    return 0


def _supervise(started: ClusterSupervisor, announce: int | None) -> None:
    with started as supervisor:
        if announce is not None:
            supervisor.wait_until_ready(READY_WITHIN)
            with open(announce, "w", encoding="ascii") as file:
                file.write("ready\n")
            while supervisor.next_change(None) is not None:
                pass
        else:
            _watch(supervisor, Console())


def parse_counts(words: Sequence[str]) -> dict[str, int]:
    """How many tasks of which job: {"ps": 2, "worker": 3} from 2 ps 3 workers.

    Raises:
        ValueError: the words are not pairs of a number and a job, or a job comes twice.
    """
    if len(words) % 2:
        raise ValueError("tasks are given as pairs of a number and a job, such as: 2 ps 3 workers")
    counts: dict[str, int] = {}
    for count, plural in zip(words[::2], words[1::2], strict=True):
        job = plural[:-1] if plural.endswith("s") and plural != "ps" else plural
        if not (count.isascii() and count.isdigit()) or len(count) > 5 or not job.isidentifier():
            raise ValueError(f"'{count} {plural}' is not a number and a job, such as: 3 workers")
        if job in counts:
            raise ValueError(f"the job {job!r} is given twice")
        counts[job] = int(count)
    return counts


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """What ends this process in an orderly way ends its tasks so, too."""
    numbers = [signal.SIGTERM, signal.SIGHUP]
    before = [signal.signal(number, _end) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _end(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _watch(supervisor: ClusterSupervisor, console: Console) -> None:
    """Shows the tasks until the cluster is asked to stop; Ctrl-C asks it."""
    console.print(f"starting {supervisor.folder.name}; Ctrl-C ends it", highlight=False)
    try:
        if console.is_terminal:
            _show_live(supervisor, console)
        else:
            _print_changes(supervisor, console)
    except KeyboardInterrupt:
        console.print("ending the tasks")


def _show_live(supervisor: ClusterSupervisor, console: Console) -> None:
    with Live(console=console, auto_refresh=False) as live:
        while (statuses := supervisor.next_change(1.0)) is not None:
            live.update(cluster_table(supervisor.state(statuses)), refresh=True)


def _print_changes(supervisor: ClusterSupervisor, console: Console) -> None:
    """For a file or a pipe: the table once, when all tasks are ready, then a line for each change."""
    shown: dict[str, str] = {}
    is_complete = False
    while (statuses := supervisor.next_change(None)) is not None:
        if not is_complete and all_ready(statuses):
            console.print(cluster_table(supervisor.state(statuses)))
            is_complete = True
        elif is_complete:
            for status in statuses:
                if shown[status.name] != _line(status):
                    console.print(_line(status), highlight=False)
        shown = {status.name: _line(status) for status in statuses}


def _line(status: TaskStatus) -> str:
    more = f", restarts {status.restarts}" if status.restarts else ""
    return f"{status.name} {shown_state(status)}{more}"


def _detached(arguments: Sequence[str], name: str) -> int:
    """Lets another process, which belongs to no terminal, supervise the tasks."""
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "anabranch", "cluster", "start"]
    command += [*(word for word in arguments if word != "--detach"), "--announce", str(writing)]
    # a file rather than a pipe, which would break when this process has gone
    with open(reading, encoding="ascii") as announced, tempfile.TemporaryFile() as errors:
        supervisor = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=[writing],
            start_new_session=True,
        )
        os.close(writing)
        is_ready = announced.read() == "ready\n"
        if not is_ready:
            supervisor.wait(READY_WITHIN)
        errors.seek(0)
        lines = errors.read().decode("utf-8", "replace").strip().splitlines() or ["no reason was given"]
    if not is_ready:
        raise UnavailableError(
            None, None, f"the cluster {name!r} was not started: {lines[-1].removeprefix('anabranch: ')}"
        )
    supervisor.returncode = 0  # it is left running, which Python would warn of
    Console().print(cluster_table(ClusterFolder(name).state()))
    print(f"`anabranch cluster stop --name {name}` ends it")
    return 0
