"""Trainings whose processes are all killed for real, the chief's too, two at once, again and again: they go on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.distributed.shard_recovery import DIRECTORY_VARIABLE
from tests.cluster.places import free_address
from tests.cluster.processes import DEADLINE
from tests.cluster.training_worker import FEATURES, examples
from tests.cluster.trainings import Learned, Reader, Training, training

#: seconds; a chief that is not heard of for so long is replaced
LEASE = 1.0


@contextlib.contextmanager
def of_processes(directory: Path, ps: int, workers: int, **options: Any) -> Iterator[Training]:
    """A training with automatic checkpoints, all of whose tasks run."""
    addresses = {"ps": [free_address() for _ in range(ps)], "worker": [free_address() for _ in range(workers)]}
    options = {"directory": str(directory), "lease": LEASE} | options
    with training(addresses, options, {DIRECTORY_VARIABLE: str(directory)}) as trained:
        trained.start(*(f"{job}/{index}" for job, of_job in addresses.items() for index in range(len(of_job))))
        yield trained


def look(trained: Training) -> Learned:
    """What was learned, as a session sees it that was opened just now."""
    reader = Reader(f"grpc://{trained.addresses['ps'][0]}", trained.options)
    with reader.session:
        return reader.read()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about"


def chief_of(trained: Training, *indices: int) -> int:
    """Which worker is chief; they take steps until one is."""
    found: list[int] = []

    def is_there() -> bool:
        trained.run(1, *indices)
        found[:] = [index for index in indices if trained.ask(index, "chief") == "chief"]
        return bool(found)

    until(is_there, "another chief")
    (chief,) = found
    return chief


def saved(trained: Training, chief: int) -> int:
    """Has the chief save; the step of the checkpoint."""
    directory = trained.options["directory"]
    before = tf.train.latest_checkpoint(directory)
    trained.worker(chief).tell("save")

    def is_there() -> bool:
        trained.run(1, chief)
        return tf.train.latest_checkpoint(directory) != before

    until(is_there, "a checkpoint")
    return int(tf.train.load_variable(tf.train.latest_checkpoint(directory), "global_step"))


@pytest.mark.parametrize("aggregate", [None, 1], ids=["asynchronous", "synchronous"])
def test_the_others_go_on_when_the_chief_is_killed(tmp_path: Path, aggregate: int | None) -> None:
    with of_processes(tmp_path, ps=1, workers=3, aggregate=aggregate) as trained:
        trained.run(2, 0, 1, 2)
        commit = saved(trained, 0)
        before = look(trained)
        # in the midst of steps
        trained.begin(1000, 0)
        trained.begin(20, 1, 2)
        trained.kill("worker/0")
        assert trained.ended(1, 2) == [22, 22]
        chief = chief_of(trained, 1, 2)
        after = look(trained)
        if aggregate is None:
            assert after.step >= before.step + 40
            assert after.counts[0][1:] == [after.workers[i].steps for i in (1, 2)]
        else:
            # the dead chief may have been in the midst of an update: back to the last checkpoint
            assert after.step >= commit
        assert after.step == pytest.approx(sum(after.counts[0]))
        assert saved(trained, chief) >= after.step
        # it comes back as a worker
        trained.start("worker/0")
        trained.run(1, 0, 1, 2)
        assert [trained.ask(index, "chief") == "chief" for index in range(3)] == [index == chief for index in range(3)]
        last = look(trained)
        assert last.step == pytest.approx(sum(last.counts[0]))


def test_two_tasks_killed_at_once_again_and_again(tmp_path: Path) -> None:
    with of_processes(tmp_path, ps=2, workers=3, aggregate=1) as trained:
        chief = 0
        for round_, victims in enumerate((("ps/0", "ps/1"), ("worker/0", "ps/1"), ("worker/1", "worker/2"))):
            commit = saved(trained, chief)
            left = [index for index in range(3) if f"worker/{index}" not in victims]
            trained.begin(1000, *(index for index in range(3) if index not in left))
            trained.begin(30, *left)
            trained.kill(*victims)
            assert not {*victims} & {*trained.running}
            trained.start(*victims)
            ended = trained.ended(*left)
            print(round_, ended)
            trained.run(2, 0, 1, 2)
            chief = chief_of(trained, 0, 1, 2)
            learned = look(trained)
            assert learned.step > commit
            # whole rounds only, the same on both
            for counts in learned.counts:
                assert sum(counts) == pytest.approx(learned.step)
