"""What is measured of replicas: the columns of their table, and a row as users see it. See `replicas`."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

#: the name of the table, which has a row for each worker
TABLE_NAME: Final = "replica_status"
#: a straggler's steps take so many times as long as those of the others, or longer
_SLOWER: Final = 1.5
STEPS, DROPPED, STALENESS, STALENESS_SUM, SECONDS, SECONDS_SUM, WAITS_IN = range(7)


class WorkerStatus(NamedTuple):
    """What has been measured of a worker.

    Attributes:
        worker: the number of its task.
        steps: how many gradients (or copies) it has handed in.
        dropped: how many of them came too late to count.
        staleness: global steps between reading and handing in, of the last one.
        mean_staleness: the same, on average.
        step_seconds: how long its last step took, without waiting for others.
        mean_step_seconds: the same, on average.
        is_straggler: whether its steps take half as long again as those of the other workers usually do, or longer.
    """

    worker: int
    steps: int
    dropped: int
    staleness: int
    mean_staleness: float
    step_seconds: float
    mean_step_seconds: float
    is_straggler: bool = False


def as_status(worker: int, row: npt.NDArray[np.float64]) -> WorkerStatus:
    steps = int(row[STEPS])
    staleness, seconds = float(row[STALENESS_SUM]) / steps, float(row[SECONDS_SUM]) / steps
    return WorkerStatus(worker, steps, int(row[DROPPED]), int(row[STALENESS]), staleness, float(row[SECONDS]), seconds)


def statuses(table: npt.NDArray[np.float64]) -> list[WorkerStatus]:
    """Of each worker that has handed in anything, the slowest first."""
    rows = [as_status(worker, row) for worker, row in enumerate(table) if row[STEPS]]
    rows.sort(key=lambda row: -row.mean_step_seconds)
    return [row._replace(is_straggler=_is_straggler(row, rows)) for row in rows]


def _is_straggler(row: WorkerStatus, rows: list[WorkerStatus]) -> bool:
    others = [other.mean_step_seconds for other in rows if other is not row]
    # the median of the others: of two workers, each is compared with the other
    return bool(others) and row.mean_step_seconds >= _SLOWER * float(np.median(others)) > 0.0
