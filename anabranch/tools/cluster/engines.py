"""Which engine runs a cluster's tasks, as the command line says it."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final, cast

from anabranch import distributed
from anabranch.distributed.task_engine import ClusterPlan, PlanWishes
from anabranch.errors import UnimplementedError

LOCAL, RAY = "local", "ray"
#: the modules of `distributed` whose `cluster_plan` makes plans
_MODULES: Final = {LOCAL: "local_plan", RAY: "ray_cluster"}


def add_ray_options(parser: argparse.ArgumentParser) -> None:
    """The options of clusters on Ray."""
    group = parser.add_argument_group("on Ray", "Each task is a process on the machine where Ray finds room for it.")
    group.add_argument(
        "--address", metavar="A", help='of a Ray cluster, or "auto" (one of its own, on this machine, while it runs)'
    )
    group.add_argument("--cpus", type=float, metavar="N", help="processors that a task reserves (1)")
    group.add_argument(
        "--gpus", type=float, metavar="N", help="graphics processors of each task but ps, and all that it sees (0)"
    )


def plan_of(engine: str, counts: Mapping[str, int], options: argparse.Namespace) -> AbstractContextManager[ClusterPlan]:
    """Where so many tasks of each job are to run.

    Args:
        engine: `LOCAL` or `RAY`.
        counts: how many tasks of which job.
        options: of the command: `port`, and those of `add_ray_options`.

    Raises:
        InvalidArgumentError: the options do not fit the engine, or there are no tasks.
        UnimplementedError: the package for Ray is not installed.
    """
    # only the chosen one: Ray is an extra, and takes a second to import
    try:
        module = importlib.import_module(f"{distributed.__name__}.{_MODULES[engine]}")
    except ImportError as error:
        if engine != RAY:
            raise
        raise UnimplementedError(
            None, None, "clusters on Ray need the extra `cluster`: pip install 'anabranch[cluster]'"
        ) from error
    wishes = PlanWishes(options.port, options.address, options.cpus, options.gpus)
    return cast("AbstractContextManager[ClusterPlan]", module.cluster_plan(counts, wishes))
