"""One-sided reads while somebody dies or stops: who reads in another's memory, and what has not started there yet."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.runtime.published_values import PublishedReads, keeps_order
from anabranch.runtime.remote_worker import RemotePartition
from tests.cluster.places import held_addresses, until
from tests.cluster.processes import DEADLINE, Process, one_ps

pytestmark = pytest.mark.skipif(not keeps_order(), reason="processes of this machine do not read each other's boards")

CONFIG = tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))
LOST = tf.errors.UnavailableError, tf.errors.AbortedError


class Worker:
    """A worker in this process, whose step adds half of what is missing to 1.

    It can be held where it has computed, and is about to send the update, with what starts the server's part.

    Attributes:
        session: of the worker.
        v: the variable, which is the parameter server's.
        step: adds to it.
    """

    def __init__(self, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._holds = False
        self._is_held, self._goes_on = threading.Event(), threading.Event()
        self._taken: list[Any] = []
        read = PublishedReads.values

        def noted(reads: PublishedReads) -> Any:
            self._taken.append(read(reads))
            return self._taken[-1]

        monkeypatch.setattr(PublishedReads, "values", noted)
        request = RemotePartition._request

        def held(*args: Any, **options: Any) -> Any:
            if options.get("read_ahead") and options.get("sent") and self._holds:
                self._is_held.set()
                assert self._goes_on.wait(DEADLINE)
            return request(*args, **options)

        monkeypatch.setattr(RemotePartition, "_request", held)
        with tf.device("/job:ps/task:0"):
            self.v = tf.get_variable("v", [3], initializer=tf.zeros_initializer(), use_resource=True)
        with tf.device("/job:worker/task:0"):
            self.rounds = tf.placeholder(tf.int32, [])
            # as long as it is told to
            _, value = tf.while_loop(
                lambda i, _: i < self.rounds, lambda i, x: (i + 1, x + 0.0 * x), [0, self.v.read_value()]
            )
            missing = (1.0 - value) / 2.0
        self.step = self.v.assign_add(missing).op
        self.session = tf.Session(target, config=CONFIG)
        self._pool = ThreadPoolExecutor(1)

    def run(self, rounds: int = 0, **options: Any) -> None:
        self.session.run(self.step, {self.rounds: rounds}, **options)

    def run_until_read(self) -> int:
        """Runs steps until one has read ahead; how many."""
        self._taken.clear()
        steps = 0
        deadline = time.monotonic() + DEADLINE
        while not any(values is not None for values in self._taken):
            assert time.monotonic() < deadline
            self.run()
            steps += 1
        return steps

    def hold(self, **options: Any) -> Future[Any]:
        """Begins a step; returns when it has read ahead and computed, and is held."""
        self._holds = True
        self._taken.clear()
        begun = self._pool.submit(self.run, **options)
        assert self._is_held.wait(DEADLINE)
        assert self.has_read, "it has read by a message"
        return begun

    @property
    def has_read(self) -> bool:
        """Whether the last step has read in the server's memory."""
        return bool(self._taken) and self._taken[-1] is not None

    def go_on(self) -> None:
        self._holds = False
        self._goes_on.set()

    def close(self) -> None:
        self.go_on()
        self._pool.shutdown()
        self.session.close()


@pytest.fixture
def of_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[Worker, dict[str, list[str]], list[Process]]]:
    """A worker that reads ahead, where its cluster is, and the process of the parameter server."""
    with one_ps() as (addresses, server, processes):
        worker = Worker(server.target, monkeypatch)
        try:
            worker.session.run(worker.v.initializer)
            worker.run_until_read()
            yield worker, addresses, processes
        finally:
            worker.close()


def values(worker: Worker, target: str) -> Any:
    with tf.Session(target, graph=worker.session.graph, config=CONFIG) as session:
        return session.run(worker.v)


def test_a_server_that_came_back_while_a_worker_computed_gets_no_late_update(of_processes: Any) -> None:
    worker, addresses, processes = of_processes
    step = worker.hold()
    processes[0].kill()
    processes.append(Process("task_process.py", json.dumps(addresses), "ps", "0"))
    target = f"grpc://{addresses['ps'][0]}"
    with tf.Session(target, graph=worker.session.graph, config=CONFIG) as other:
        other.run(worker.v.initializer)
    # what it computes is of a value of the process before
    worker.go_on()
    with pytest.raises(LOST, match="/job:ps/replica:0/task:0"):
        step.result(DEADLINE)
    with contextlib.suppress(*LOST):
        worker.session.run(worker.v)
    np.testing.assert_array_equal(worker.session.run(worker.v), np.zeros(3))
    steps = worker.run_until_read()
    np.testing.assert_allclose(values(worker, target), np.full(3, 1 - 0.5**steps), rtol=1e-6)


def test_a_stopped_server_is_named_and_its_update_comes_once_or_not_at_all(of_processes: Any) -> None:
    worker, addresses, processes = of_processes
    worker.session.run(worker.v.initializer)
    step = worker.hold(options=tf.RunOptions(timeout_in_ms=1000))
    processes[0].signal(signal.SIGSTOP)
    try:
        worker.go_on()
        with pytest.raises(tf.errors.DeadlineExceededError, match="/job:ps/replica:0/task:0"):
            step.result(DEADLINE)
    finally:
        processes[0].signal(signal.SIGCONT)
    # whatever it finds in its sockets when it wakes comes before this
    after = values(worker, f"grpc://{addresses['ps'][0]}")
    assert after.tolist() in ([0.0] * 3, [0.5] * 3)
    for count in range(1, 4):
        worker.run()
        np.testing.assert_allclose(worker.session.run(worker.v), 1 - (1 - after) / 2**count)


def test_a_deadline_that_passes_while_the_worker_computes_changes_nothing(of_processes: Any) -> None:
    worker, addresses, _ = of_processes
    worker.session.run(worker.v.initializer)
    # it may take a hundredth of that
    with pytest.raises(tf.errors.DeadlineExceededError, match="was running"):
        worker.run(1 << 28, options=tf.RunOptions(timeout_in_ms=20))
    assert worker.has_read, "the server's part waited for its start to come along"
    np.testing.assert_array_equal(values(worker, f"grpc://{addresses['ps'][0]}"), np.zeros(3))
    worker.run()
    np.testing.assert_array_equal(worker.session.run(worker.v), np.full(3, 0.5))


def test_a_worker_that_is_killed_before_its_step_has_started_on_the_server_leaves_nothing_there() -> None:
    with held_addresses(ps=1, worker=1) as addresses, tf.train.Server(addresses, "ps", 0) as ps:
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", [3], initializer=tf.zeros_initializer(), use_resource=True)
        config = tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000), device_filters=["/job:ps"])
        with tf.Session(ps.target, config=config) as session:
            rendezvous, sessions = ps._task.state.containers.rendezvous, ps._task.service._sessions
            session.run(v.initializer)
            own = set(sessions.open)
            worker = Process("computing_worker.py", json.dumps(addresses))
            try:
                session.run(v.initializer)
                worker.tell("read")
                steps = int(worker.line().removeprefix("read "))
                np.testing.assert_allclose(session.run(v), np.full(3, 1 - 0.5**steps), rtol=1e-6)
                session.run(v.initializer)
                worker.tell("hold")
                assert worker.line() == "held"
                assert rendezvous.steps == 0, "what starts the server's part is kept"
                assert worker.is_running
            finally:
                worker.kill()
            until(lambda: set(sessions.open) == own, "the end of the worker's session")
            assert rendezvous.steps == 0
            np.testing.assert_array_equal(session.run(v), np.zeros(3))
