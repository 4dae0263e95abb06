"""Trainings of which each worker is a process, `training_worker.py`: what they have learned is known exactly."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import anabranch as tf
from anabranch.train.replica_status import TABLE_NAME, WorkerStatus, statuses
from anabranch.train.replicas import MAX_WORKERS
from tests.cluster.processes import DEADLINE, Process


class Learned(NamedTuple):
    """What parameter servers hold.

    Attributes:
        step: the global step.
        counts: of each server, what was added for each worker.
        workers: what has been measured of each.
    """

    step: int
    counts: list[list[float]]
    workers: dict[int, WorkerStatus]


class Training:
    """Workers, by their numbers.

    Args:
        addresses: of all tasks, by job.
        options: of `training_worker.py`; those that say how many there are of what, are added.
        environment: of the processes.
    """

    def __init__(
        self, addresses: Mapping[str, list[str]], options: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        self.addresses = addresses
        sizes = {"workers": len(addresses["worker"]), "ps": len(addresses["ps"])}
        self.options = {"columns": 4} | dict(options) | sizes
        self._environment = environment
        self.workers: dict[int, Process] = {}

    def start(self, *indices: int) -> None:
        """Starts workers side by side; returns when all have a session."""

        def process(index: int) -> Process:
            arguments = json.dumps(self.addresses), str(index), json.dumps(self.options)
            return Process("training_worker.py", *arguments, environment=self._environment)

        with ThreadPoolExecutor(len(indices)) as pool:
            self.workers |= dict(zip(indices, pool.map(process, indices), strict=True))

    def begin(self, times: int, *indices: int) -> None:
        """Has workers take so many steps."""
        for index in indices:
            self.workers[index].tell(f"run {times}")

    def ended(self, *indices: int) -> list[int]:
        """Waits until they have; how many steps each of these processes has taken."""
        return [int(self.workers[index].line().removeprefix("ran ")) for index in indices]

    def run(self, times: int, *indices: int) -> list[int]:
        self.begin(times, *indices)
        return self.ended(*indices)

    def ask(self, index: int, question: str) -> str:
        self.workers[index].tell(question)
        return self.workers[index].line()

    def hold(self, index: int) -> None:
        """Has a worker begin a step; returns when it is in compute, where it stays until it is told something."""
        self.workers[index].tell("hold", "run 1")
        assert self.workers[index].line() == "compute"

    def kill(self, *indices: int) -> None:
        for index in indices:
            assert self.workers[index].is_running
        for index in indices:
            self.workers.pop(index).kill()

    def close(self) -> None:
        for process in self.workers.values():
            process.kill()


class Reader:
    """A session that reads what was learned, and takes no part."""

    def __init__(self, target: str, options: Mapping[str, Any]) -> None:
        shape = [options["workers"], options["columns"]]
        with tf.Graph().as_default():
            with tf.device("/job:ps/task:0"):
                step = tf.get_variable("global_step", [], tf.int64, use_resource=True)
                table = tf.get_variable(TABLE_NAME, [MAX_WORKERS, 7], tf.float64, use_resource=True)
            counts = []
            for shard in range(options["ps"]):
                with tf.device(f"/job:ps/task:{shard}"):
                    counts.append(tf.get_variable(f"counts{shard}", shape, use_resource=True))
            self._fetches = [step, table, counts]
            # it does not wait for workers
            config = tf.ConfigProto(operation_timeout_in_ms=int(1000 * DEADLINE), device_filters=["/job:ps"])
            self.session = tf.Session(target, config=config)

    def read(self) -> Learned:
        """What has been learned; no step may be under way that changes it.

        Raises:
            AssertionError: an update is there by a part.
        """
        step, table, counts = self.session.run(self._fetches)
        return Learned(int(step), [of_rows(values) for values in counts], {w.worker: w for w in statuses(table)})


def of_rows(values: npt.NDArray[np.float32]) -> list[float]:
    """The one value of each row."""
    assert not np.ptp(values, axis=1).any(), f"an update is there by half: {values}"
    return [float(value) for value in values[:, 0]]


@contextlib.contextmanager
def training(
    addresses: Mapping[str, list[str]],
    options: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Training]:
    """A training without workers, which ends with all that it has then."""
    made = Training(addresses, options or {}, environment or {})
    try:
        yield made
    finally:
        made.close()
