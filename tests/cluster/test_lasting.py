"""Trainings that go on when parameter servers come back, saves that fail or are interrupted, and who is chief then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.distributed.shard_loading import load_shard
from anabranch.testing.local_cluster import LocalCluster, local_cluster
from anabranch.train.save_interval import SaveInterval

#: seconds; no wait of a test lasts longer
DEADLINE = 30.0
PS = [f"/job:ps/replica:0/task:{i}" for i in range(2)]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(ps=2, worker=2) as tasks:
        yield tasks


class Trainer:
    """A worker whose step adds 1 to `a` on one parameter server and `b` on the other, and counts."""

    def __init__(self, cluster: LocalCluster, directory: Path, index: int = 0, save: Any = "auto") -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            with tf.device(tf.train.replica_device_setter(2, worker_device=f"/job:worker/task:{index}")):
                self.step = tf.train.get_or_create_global_step()
                self.a = tf.get_variable("a", initializer=np.zeros(3, np.float32), use_resource=True)
                self.b = tf.get_variable("b", initializer=np.zeros(2, np.float32), use_resource=True)
                self.train = tf.group(
                    self.a.assign_add(np.ones(3)), self.b.assign_add(np.ones(2)), self.step.assign_add(1)
                )
            self.session = tf.train.MonitoredTrainingSession(
                cluster.target("worker", index),
                index == 0,
                str(directory),
                save_checkpoint_secs=save,
                config=tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000)),
                log_step_count_steps=None,
                save_summaries_steps=None,
            )

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            self.session.run(self.train)

    def values(self) -> list[float]:
        step, a, b = self.session.run([self.step, self.a, self.b])
        return [int(step), float(a[0]), float(b[0])]

    def close(self) -> None:
        self.session.close()


@pytest.fixture(autouse=True)
def when_asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Checkpoints are saved when a test puts something into this list."""
    wanted: list[bool] = []
    monkeypatch.setattr(SaveInterval, "is_due", lambda *_: bool(wanted) and wanted.pop())
    return wanted


def saved(trainer: Trainer, directory: Path, when_asked: list[bool]) -> int:
    """Has a checkpoint saved; its step."""
    when_asked.append(True)
    before = tf.train.latest_checkpoint(str(directory))
    trainer.run()
    deadline = time.monotonic() + DEADLINE
    while (latest := tf.train.latest_checkpoint(str(directory))) == before:
        assert time.monotonic() < deadline
    trainer.run()
    assert latest is not None
    return int(latest.rpartition("-")[2])


def comes_back(cluster: LocalCluster, name: str, directory: Path | None) -> None:
    """A parameter server is killed, and another process takes its place, as `tf.train.Server` does."""
    cluster.lose(name)
    task = cluster.begin(name)
    if directory is not None:
        assert load_shard(task.state.containers, name, list(cluster.tasks), str(directory))


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_shard_comes_back_and_the_others_keep_what_they_learned(
    cluster: LocalCluster, tmp_path: Path, when_asked: list[bool], by_itself: bool
) -> None:
    chief, other = Trainer(cluster, tmp_path), Trainer(cluster, tmp_path, 1)
    chief.run(3)
    commit = saved(chief, tmp_path, when_asked)
    other.run(4)
    step = chief.values()[0]
    assert step > commit + 3
    comes_back(cluster, PS[1], tmp_path if by_itself else None)
    if by_itself:
        # nobody needs the chief
        other.run(2)
        assert other.values() == [step + 2, commit + 2, step + 2]
        chief.run(1)
    else:
        chief.run(3)
        other.run(0)
    assert chief.values() == other.values() == [step + 3, commit + 3, step + 3]
    chief.close()
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / f"model.ckpt-{step + 3}")
