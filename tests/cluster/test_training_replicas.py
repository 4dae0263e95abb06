"""Replicas over real sockets, a thread for each worker: all rules learn, the synchronous one also without a worker."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.cluster.places import held_addresses

DEADLINE = 30.0
WORKERS = 3
WEIGHTS = np.array([[1.0], [-2.0], [0.5]], np.float32)


@contextlib.contextmanager
def servers() -> Iterator[dict[str, list[tf.train.Server]]]:
    with contextlib.ExitStack() as stack:
        addresses = stack.enter_context(held_addresses("localhost", ps=1, worker=WORKERS))
        yield {
            job: [stack.enter_context(tf.train.Server(addresses, job, index)) for index in range(len(of_job))]
            for job, of_job in addresses.items()
        }


class Training:
    """Workers that learn `WEIGHTS` for `until` global steps or more; the last may stop for good, ten before the end."""

    def __init__(
        self, make: Callable[[], Any], cluster: dict[str, list[tf.train.Server]], until: int, stops_at: int | None
    ) -> None:
        self.make, self.cluster, self.until, self.stops_at = make, cluster, until, stops_at
        self.errors: dict[int, BaseException] = {}
        self.learned = np.zeros(1)
        self.steps = 0
        self.stopped_at: int | None = None
        self.status: dict[int, Any] = {}
        self.ended = threading.Event()
        self.stopped = threading.Event()
        if stops_at is None:
            self.stopped.set()

    def run(self) -> None:
        threads = [threading.Thread(target=self._guarded, args=(i,), daemon=True) for i in range(WORKERS)]
        for thread in threads:
            thread.start()
        assert self.ended.wait(DEADLINE), self.errors
        # the chief closes its session while there is a server that it can use
        threads[0].join(DEADLINE)
        assert not threads[0].is_alive()
        for server in self.cluster["worker"]:
            server.stop()
        for thread in threads:
            thread.join(DEADLINE)
            assert not thread.is_alive()

    def _guarded(self, index: int) -> None:
        try:
            self._work(index)
        except Exception as error:  # looked at by the test
            self.errors[index] = error
            if index == 0:
                self.ended.set()

    def _enough(self, step: int) -> bool:
        if self.stopped_at is None and self.stopped.is_set():
            self.stopped_at = step
        return step >= self.until and self.stopped_at is not None and step >= self.stopped_at + 10

    def _work(self, index: int) -> None:
        with tf.Graph().as_default():
            with tf.device(tf.train.replica_device_setter(1, worker_device=f"/job:worker/task:{index}")):
                optimizer = self.make()
                with getattr(optimizer, "local_copies", contextlib.nullcontext)():
                    x, y = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [None, 1])
                    w = tf.get_variable("w", initializer=np.zeros((3, 1), np.float32))
                    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
                step = tf.train.get_or_create_global_step()
                train = optimizer.minimize(loss, step)
                (shared,) = (v for v in tf.global_variables() if v.op.name == "w")
            rng = np.random.default_rng(index)
            hook = optimizer.make_session_run_hook(is_chief=index == 0)
            config = tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))
            target = self.cluster["worker"][index].target
            with tf.train.MonitoredTrainingSession(target, index == 0, hooks=[hook], config=config) as session:
                count = 0
                while not self.ended.is_set():
                    if index == WORKERS - 1 and count == self.stops_at:
                        self.stopped.set()
                        return
                    batch = rng.normal(size=(16, 3)).astype(np.float32)
                    session.run(train, {x: batch, y: batch @ WEIGHTS})
                    count += 1
                    if index == 0 and self._enough(steps := int(session.run(step))):
                        self.learned, self.steps = session.run(shared), steps
                        self.status = {row.worker: row for row in optimizer.status(session)}
                        self.ended.set()


def descent(rate: float = 0.1) -> Any:
    return tf.train.GradientDescentOptimizer(rate)


@pytest.mark.parametrize(
    ("make", "until", "stops_at"),
    [
        (lambda: tf.train.replicas.asynchronous(descent()), 120, None),
        (lambda: tf.train.replicas.synchronous(descent(), aggregate=2, backups=1), 60, 5),
        (lambda: tf.train.replicas.synchronous(descent(), aggregate=3, reissue_after=0.1), 30, 5),
        (lambda: tf.train.replicas.averaging(tf.train.AdamOptimizer(0.05), every=10, workers=3), 20, None),
        (lambda: tf.train.replicas.downpour(descent(0.02), fetch=3, push=2, local=descent(0.02)), 150, None),
    ],
    ids=["asynchronous", "a backup takes over", "a token is issued again", "averaging", "downpour"],
)
def test_workers_learn(make: Callable[[], Any], until: int, stops_at: int | None) -> None:
    with servers() as cluster:
        training = Training(make, cluster, until, stops_at)
        training.run()
        assert 0 not in training.errors, training.errors
        assert training.steps >= until
        np.testing.assert_allclose(training.learned, WEIGHTS, atol=0.05)
        assert set(training.status) <= set(range(WORKERS))
        assert all(row.mean_step_seconds > 0 for row in training.status.values())
        if stops_at is not None:
            # the last one's steps ended there
            assert training.status[WORKERS - 1].steps == stops_at
