"""Trainings of which each task is a process, a worker `training_worker.py`: what they have learned is known exactly."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import anabranch as tf
from anabranch.train.replica_status import STEPS, TABLE_NAME, WorkerStatus, as_status
from anabranch.train.replicas import MAX_WORKERS
from tests.cluster.processes import DEADLINE, Process


class Learned(NamedTuple):
    """What parameter servers hold.

    Attributes:
        step: the global step.
        counts: of each variable, what was added for each worker.
        workers: what has been measured of each.
    """

    step: int
    counts: list[list[float]]
    workers: dict[int, WorkerStatus]


class Training:
    """Tasks that are processes, by names such as "ps/0"; workers are meant by their numbers alone, too.

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
        self.running: dict[str, Process] = {}

    def start(self, *names: str) -> None:
        """Starts tasks side by side; returns when parameter servers serve, and workers have a session."""
        with ThreadPoolExecutor(len(names)) as pool:
            started = {name: pool.submit(self._process, name) for name in names}
        # where one fails, the others are still this training's, which ends them
        self.running |= {name: future.result() for name, future in started.items() if future.exception() is None}
        for future in started.values():
            future.result()

    def _process(self, name: str) -> Process:
        job, _, index = name.partition("/")
        if job == "ps":
            return Process("task_process.py", json.dumps(self.addresses), job, index, environment=self._environment)
        arguments = json.dumps(self.addresses), index, json.dumps(self.options)
        return Process("training_worker.py", *arguments, environment=self._environment)

    def worker(self, index: int) -> Process:
        return self.running[f"worker/{index}"]

    def begin(self, times: int, *indices: int) -> None:
        """Has workers take so many steps."""
        for index in indices:
            self.worker(index).tell(f"run {times}")

    def ended(self, *indices: int) -> list[int]:
        """Waits until they have; how many steps each of these processes has taken."""
        return [int(self.worker(index).line().removeprefix("ran ")) for index in indices]

    def run(self, times: int, *indices: int) -> list[int]:
        self.begin(times, *indices)
        return self.ended(*indices)

    def ask(self, index: int, question: str) -> str:
        self.worker(index).tell(question)
        return self.worker(index).line()

    def hold(self, index: int, part: int | None = None) -> None:
        """Has a worker begin a step; returns when it is in compute, where it stays until it is told something.

        Where a part is given, it computes the gradients of all other variables, and hands them in.
        """
        self.worker(index).tell("hold" if part is None else f"hold {part}", "run 1")
        assert self.worker(index).line() == "compute"

    def kill(self, *names: str) -> None:
        """Sends SIGKILL to tasks, one right after the other."""
        processes = [self.running.pop(name) for name in names]
        for process in processes:
            assert process.is_running
            process.signal(signal.SIGKILL)
        for process in processes:
            process.kill()

    def end(self, name: str) -> None:
        """Tells a task to end, as whoever restarts it or takes its machine away does; returns when it has."""
        process = self.running.pop(name)
        try:
            process.signal(signal.SIGTERM)
            assert process.wait() == 0
        finally:
            process.kill()

    def leave(self, index: int) -> None:
        """Has a worker end its training; returns when its process has ended."""
        worker = self.running.pop(f"worker/{index}")
        worker.tell("leave")
        try:
            assert worker.wait() == 0
        finally:
            worker.kill()

    def close(self) -> None:
        for process in self.running.values():
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
            for part in range(options.get("parts", options["ps"])):
                with tf.device(f"/job:ps/task:{part % options['ps']}"):
                    counts.append(tf.get_variable(f"counts{part}", shape, use_resource=True))
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
        workers = {worker: as_status(worker, row) for worker, row in enumerate(table) if row[STEPS]}
        return Learned(int(step), [of_rows(values) for values in counts], workers)


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
