"""Clocks of machines that somebody sets, by days, while steps, leases and saves go on."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

import anabranch as tf
from anabranch.testing.local_cluster import LocalCluster, local_cluster
from anabranch.train import chief_lease
from tests.cluster.places import DEADLINE, until

DAY = 86_400.0
PS = "/job:ps/replica:0/task:0"


class Clock:
    """The machine's clock, which a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real, self._ahead = time.time, 0.0
        monkeypatch.setattr(time, "time", lambda: self._real() + self._ahead)

    def jump(self, seconds: float) -> None:
        before = time.time()
        self._ahead += seconds
        assert abs(time.time() - before) > abs(seconds) / 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(ps=1, worker=2) as tasks:
        yield tasks


def test_training_goes_on_saves_and_keeps_its_chief_while_clocks_jump(
    cluster: LocalCluster, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chief_lease, "LEASE_SECONDS", 1.5)
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(1, worker_device="/job:worker/task:0")):
            step = tf.train.get_or_create_global_step()
            weight = tf.get_variable("weight", initializer=0.0, use_resource=True)
            optimizer = tf.train.replicas.asynchronous(tf.train.GradientDescentOptimizer(1.0))
            train = optimizer.minimize(-weight, step)
        with tf.train.MonitoredTrainingSession(
            cluster.target("worker", 0),
            checkpoint_dir=str(tmp_path),
            save_checkpoint_secs=0.2,
            save_summaries_steps=None,
            log_step_count_steps=None,
            hooks=[optimizer.make_session_run_hook(True)],
            config=tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000)),
        ) as session:
            steps = 0
            for jump in (0.0, -3 * DAY, 2 * DAY, 5 * DAY, -4 * DAY):
                clock.jump(jump)
                latest = tf.train.latest_checkpoint(str(tmp_path))

                def saves_again(latest: str | None = latest) -> bool:
                    nonlocal steps
                    session.run(train)
                    steps += 1
                    return tf.train.latest_checkpoint(str(tmp_path)) != latest

                until(saves_again, f"a checkpoint after a jump of {jump / DAY:.0f} days")
            assert session.run(step) == steps
            assert session.run(weight) == steps
            (status,) = optimizer.status(session)
        assert status.steps == steps
        assert 0 < status.mean_step_seconds < DEADLINE, "no step took a day, and none ended before it began"


@pytest.mark.parametrize("jump", [-DAY, DAY])
def test_a_deadline_passes_when_its_seconds_do_and_says_who_waited_how_long(
    cluster: LocalCluster, clock: Clock, jump: float
) -> None:
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            waits = tf.FIFOQueue(1, [tf.int32], shapes=[()]).dequeue()
            answers = tf.constant(1) + 1
        with tf.Session(cluster.target("worker", 0)) as session:
            assert session.run(answers) == 2
            ended: Future[None] = Future()

            def wait() -> None:
                try:
                    session.run(waits, options=tf.RunOptions(timeout_in_ms=1000))
                except tf.errors.DeadlineExceededError as error:
                    ended.set_exception(error)

            threading.Thread(target=wait, daemon=True).start()
            until(lambda: cluster.tasks[PS].state.containers.rendezvous.steps == 1, "the step's beginning")
            clock.jump(jump)
            caught = ended.exception(DEADLINE)
            waited = [float(seconds) for seconds in re.findall(r"\((-?[\d.]+) s so far\)", str(caught))]
            assert waited
            assert all(0 <= seconds < DEADLINE for seconds in waited)
            assert session.run(answers) == 2, "nobody is taken for dead"
