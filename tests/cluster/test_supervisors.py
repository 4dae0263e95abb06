"""`tf.train.Supervisor` on a cluster: a chief and a worker, whose parameter server is lost and comes back."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.testing.local_cluster import LocalCluster, local_cluster
from tests.cluster.places import until

DEADLINE = 30.0
PS = [f"/job:ps/replica:0/task:{i}" for i in range(2)]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(ps=2, worker=2) as tasks:
        yield tasks


class Supervised:
    """A worker as older programs write it; a step adds 1 to `a` on one server, to `b` on the other, and to the step."""

    def __init__(self, cluster: LocalCluster, directory: Path, index: int) -> None:
        self.target = cluster.target("worker", index)
        with tf.Graph().as_default():
            with tf.device(tf.train.replica_device_setter(2, worker_device=f"/job:worker/task:{index}")):
                step = tf.train.get_or_create_global_step()
                a = tf.get_variable("a", initializer=np.zeros(3, np.float32))
                b = tf.get_variable("b", initializer=np.zeros(2, np.float32))
                loss = -tf.reduce_sum(a) - tf.reduce_sum(b)
                tf.summary.scalar("loss", loss)
                self.train = tf.train.GradientDescentOptimizer(1.0).minimize(loss, step)
            assert len({v.device for v in tf.global_variables()}) == 2
            self._values = [step, a[0], b[0]]
            self.supervisor = tf.train.Supervisor(
                is_chief=index == 0,
                logdir=str(directory),
                save_model_secs=0,
                save_summaries_secs=0,
                recovery_wait_secs=0.05,
            )
        self._open = contextlib.ExitStack()

    def open(self) -> None:
        config = tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))
        self.session = self._open.enter_context(self.supervisor.managed_session(self.target, config))

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            assert not self.supervisor.should_stop()
            self.session.run(self.train)

    def values(self) -> list[int]:
        return [int(value) for value in self.session.run(self._values)]

    def save(self) -> str:
        supervisor: Any = self.supervisor
        return str(supervisor.saver.save(self.session, supervisor.save_path, supervisor.global_step))

    def close(self) -> None:
        self._open.close()
        assert self.supervisor.should_stop()


def waited(caplog: pytest.LogCaptureFixture) -> int:
    """How often a worker has said that the model is not ready."""
    return sum("Waiting for model to be ready" in record.getMessage() for record in list(caplog.records))


def test_a_worker_waits_until_the_chief_has_restored_what_a_parameter_server_has_lost(
    cluster: LocalCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    chief, worker = Supervised(cluster, tmp_path, 0), Supervised(cluster, tmp_path, 1)
    early = threading.Thread(target=worker.open, daemon=True)
    told = waited(caplog)
    early.start()
    until(lambda: waited(caplog) > told, "a look of the worker at the model", DEADLINE)
    assert early.is_alive(), "nobody has initialized the model"
    chief.open()
    early.join(DEADLINE)
    chief.run(3)
    worker.run(2)
    assert chief.save() == str(tmp_path / "model.ckpt-5")
    worker.run(2)
    chief.run()
    assert chief.values() == worker.values() == [8, 8, 8]
    for lost, last in ((PS[1], 7), (PS[0], 9)):
        cluster.lose(lost)
        for one in (worker, chief):
            with pytest.raises((tf.errors.UnavailableError, tf.errors.AbortedError), match=lost):
                one.run()
            one.close()
        cluster.begin(lost)
        again = threading.Thread(target=worker.open, daemon=True)
        told = waited(caplog)
        again.start()
        until(lambda told=told: waited(caplog) > told, "a look of the worker at the model", DEADLINE)
        assert again.is_alive(), "nobody has restored the model"
        chief.open()
        # all that the checkpoint has, as in TensorFlow: also what the other server had not lost
        assert chief.values() == [last - 2] * 3
        again.join(DEADLINE)
        assert not again.is_alive()
        worker.run()
        chief.run()
        assert chief.values() == worker.values() == [last] * 3
        assert chief.save() == str(tmp_path / f"model.ckpt-{last}")
    supervisor = chief.supervisor
    supervisor.summary_computed(chief.session, chief.session.run(supervisor.summary_op))
    worker.close()
    chief.close()
    # and a chief that is another process
    other = Supervised(cluster, tmp_path, 0)
    other.open()
    assert other.values() == [9] * 3
    other.close()
    steps = [
        event.step
        for path in sorted(tmp_path.glob("events.*"))
        for event in tf.train.summary_iterator(str(path))
        if event.summary.value and event.summary.value[0].tag == "loss"
    ]
    assert steps == [9]


def test_a_basic_loop_goes_on_when_a_parameter_server_has_come_back(cluster: LocalCluster, tmp_path: Path) -> None:
    chief = Supervised(cluster, tmp_path, 0)
    seen: list[int] = []

    def step(session: tf.Session) -> None:
        chief.session = session
        chief.run()
        seen.append(chief.values()[0])
        match len(seen):
            case 2:
                chief.save()
            case 4:
                cluster.lose(PS[0])
                cluster.begin(PS[0])
            case 6:
                chief.supervisor.request_stop()

    tf.train.basic_train_loop(chief.supervisor, step, master=chief.target)
    assert seen == [1, 2, 3, 4, 3, 4]
