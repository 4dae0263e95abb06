"""`anabranch cluster status` and `logs`."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from rich.console import Console

from anabranch.distributed.cluster_files import ClusterFolder
from anabranch.distributed.probe import answering
from anabranch.errors import NotFoundError
from anabranch.tools.cluster.names import chosen, cluster_parser
from anabranch.tools.cluster.tables import cluster_table, is_silent

_LOOK_AGAIN: Final = 0.2  # s


def status(arguments: Sequence[str]) -> int:
    """`anabranch cluster status`"""
    parser = cluster_parser(
        "status", "Lists the tasks of a cluster; exits with status 1 when one is not running, or does not answer."
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument(
        "--within", type=float, default=2.0, metavar="S", help="how long a task may take to answer (2 s)"
    )
    options = parser.parse_args(arguments)
    folder = chosen(options.name)
    state = folder.state()
    running = [task for task in state["tasks"] if task["state"] == "running"]
    serving = [task["address"] for task in running if task["address"]]
    answering_tasks = answering(serving, options.within)
    silent = [task["name"] for task in state["tasks"] if is_silent(task, answering_tasks)]
    if options.json:
        print(json.dumps(state | {"silent": silent}, indent=2))
    else:
        Console().print(cluster_table(state, answering_tasks))
        for name in silent:
            print(
                f"{name} runs, but has not answered within {options.within:g} s: look at `anabranch cluster logs "
                f"{name}`, or `anabranch cluster restart {name}`",
                file=sys.stderr,
            )
    return int(bool(silent) or len(running) < len(state["tasks"]))


def logs(arguments: Sequence[str]) -> int:
    """`anabranch cluster logs -f ps/0`"""
    parser = cluster_parser("logs", "Prints what a task has written.")
    parser.add_argument("task", metavar="TASK", help="the task, such as ps/0")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the cluster ends, or Ctrl-C")
    options = parser.parse_args(arguments)
    folder = chosen(options.name) if options.name is None else ClusterFolder(options.name)
    path = folder.path / f"{options.task.replace('/', '-')}.log"
    if Path(path).parent != folder.path or not path.exists():
        known = ", ".join(sorted(log.stem.replace("-", "/") for log in folder.path.glob("*.log"))) or "none"
        raise NotFoundError(None, None, f"the cluster {folder.name} has no task {options.task}; there are: {known}")
    with path.open("rb") as log:
        _copy(log)
        while options.follow and folder.is_running:
            time.sleep(_LOOK_AGAIN)
            _copy(log)
    return 0


def _copy(log: IO[bytes]) -> None:
    shutil.copyfileobj(log, sys.stdout.buffer)
    sys.stdout.flush()
