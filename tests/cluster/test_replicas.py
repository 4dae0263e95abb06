"""Replicas that train together: exact values in an order that the test says, and workers that stop for good."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.testing.local_cluster import LocalCluster, local_cluster
from tests.cluster.places import until

#: seconds; no wait of a test lasts longer
DEADLINE = 30.0
RATE = 0.25


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(ps=1, worker=3) as tasks:
        yield tasks


def config() -> Any:
    return tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))


class Worker:
    """A worker with a graph and a session of its own, whose step stops between its gradients and their use.

    The loss is ``sum(w * x)``, so that the gradient of `w` is what is fed; and ``sum(table[rows] * y)``.
    """

    def __init__(self, target: str, index: int, make: Callable[[], Any]) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            setter = tf.train.replica_device_setter(1, worker_device=f"/job:worker/task:{index}")
            with tf.device(setter):
                self.optimizer = make()
                local = getattr(self.optimizer, "local_copies", None)
                if local is None:
                    self._model()
                else:
                    with local():
                        self._model()
                self.step = tf.train.get_or_create_global_step()
                pairs = self.optimizer.compute_gradients(self.loss)
                self.has_read, go = tf.FIFOQueue(10, [tf.int32], shapes=[()]), tf.FIFOQueue(10, [tf.int32], shapes=[()])
                with tf.control_dependencies([getattr(g, "values", g) for g, _ in pairs]):
                    read = self.has_read.enqueue(0)
                with tf.control_dependencies([read]), tf.control_dependencies([go.dequeue()]):
                    pairs = [(held(g), v) for g, v in pairs]
                self.train = self.optimizer.apply_gradients(pairs, self.step)
                self.was_read, self.go = self.has_read.dequeue(), go.enqueue(0)
                self.hook = self.optimizer.make_session_run_hook(index == 0)
                self.hook.begin()
                self.initialize = [tf.global_variables_initializer(), tf.local_variables_initializer()]
                self.shared = {v.op.name: v for v in tf.global_variables()}
        self.session = tf.Session(target, graph=self.graph, config=config())
        self.thread: threading.Thread | None = None
        self.error: BaseException | None = None

    def _model(self) -> None:
        self.x, self.y = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.float32, [2])
        self.w = tf.get_variable("w", initializer=np.zeros(2, np.float32))
        self.table = tf.get_variable("table", initializer=np.zeros((3, 1), np.float32))
        rows = tf.gather(self.table, [1, 1])
        self.loss = tf.reduce_sum(self.w * self.x) + tf.reduce_sum(rows[:, 0] * self.y)

    def begin(self, initialize: bool) -> None:
        if initialize:
            self.session.run(self.initialize[0])
        self.session.run(self.initialize[1])
        self.coord = tf.train.Coordinator()
        self.hook.after_create_session(self.session, self.coord)

    def read(self, *gradient: float) -> None:
        """Begins a step: returns when the variables have been read."""

        def run() -> None:
            try:
                self.session.run(self.train, {self.x: gradient, self.y: gradient})
            except tf.errors.OpError as error:
                self.error = error

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        self.session.run(self.was_read)

    def hand_in(self) -> None:
        self.session.run(self.go)

    def done(self) -> None:
        assert self.thread is not None
        self.thread.join(DEADLINE)
        assert not self.thread.is_alive()
        if self.error is not None:
            raise self.error

    def whole_step(self, *gradient: float) -> None:
        self.read(*gradient)
        self.hand_in()
        self.done()

    def values(self) -> tuple[list[float], float, int]:
        """The shared `w`, row 1 of the shared table, and the global step."""
        shared = [self.shared["w"], self.shared["table"], self.step]
        w, table, step = self.session.run(shared)
        assert table[0, 0] == table[2, 0] == 0
        return list(w), float(table[1, 0]), int(step)

    def status(self) -> dict[int, Any]:
        return {row.worker: row for row in self.optimizer.status(self.session)}


def held(gradient: Any) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(tf.identity(gradient.values), gradient.indices, gradient.dense_shape)
    return tf.identity(gradient)


def started(cluster: LocalCluster, make: Callable[[], Any]) -> list[Worker]:
    workers = [Worker(cluster.target("worker", i), i, make) for i in range(3)]
    for index, worker in enumerate(workers):
        worker.begin(initialize=index == 0)
    return workers


def descent() -> Any:
    return tf.train.GradientDescentOptimizer(RATE)


class HeldUpdate(tf.train.GradientDescentOptimizer):  # type: ignore[misc]
    """An update that has counted its step, and is not over before the test says so."""

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        with tf.device("/job:ps/task:0"):
            updated = tf.FIFOQueue(10, [tf.int32], shapes=[()], shared_name="updated")
            gate = tf.FIFOQueue(10, [tf.int32], shapes=[()], shared_name="gate")
            self.wait_for_update, self.open_gate = updated.dequeue(), gate.enqueue(0)
            with tf.control_dependencies([super().apply_gradients(grads_and_vars, global_step)]):
                says = updated.enqueue(0)
            with tf.control_dependencies([says]):
                return tf.group(gate.dequeue())


def test_a_worker_that_comes_between_an_update_and_its_tokens_counts_once_in_the_round(cluster: LocalCluster) -> None:
    gated = list[HeldUpdate]()

    def make() -> Any:
        gated.append(HeldUpdate(RATE))
        return tf.train.replicas.synchronous(gated[-1], aggregate=2, backups=1)

    a, b, c = workers = [Worker(cluster.target("worker", i), i, make) for i in range(3)]
    for worker in (a, b):
        worker.begin(initialize=worker is a)
        worker.read(4, 4)
    for worker in (a, b):
        worker.hand_in()
    ask = tf.Session(cluster.target("worker", 0), graph=a.graph, config=config())
    ask.run(gated[0].wait_for_update)
    assert a.values()[2] == 1
    c.begin(initialize=False)
    ask.run(gated[0].open_gate)
    for worker in (a, b):
        worker.done()
    # its gate is open from now on
    for _ in range(5):
        ask.run(gated[0].open_gate)
    c.whole_step(100, 100)  # for the round that was over when it came
    c.read(2, 2)
    c.hand_in()
    a.whole_step(6, 6)
    c.done()
    assert a.values() == ([-RATE * (4 + 4)] * 2, -RATE * 2 * (4 + 4), 2)
    assert [c.session.run(c.optimizer._local_step) for c in (a, c)] == [2, 2]
    assert {index: row.dropped for index, row in a.status().items()} == {0: 0, 1: 0, 2: 1}
    for worker in workers:
        worker.coord.request_stop()


def test_asynchronous_gradients_are_applied_at_once_and_staleness_is_measured(cluster: LocalCluster) -> None:
    a, b, c = started(cluster, lambda: tf.train.replicas.asynchronous(descent()))
    a.read(1, 2)
    b.read(4, 8)
    for times in (1, 2):
        b.hand_in()
        b.done()
        assert a.values() == ([-RATE * 4 * times, -RATE * 8 * times], -RATE * 12 * times, times)
        b.read(4, 8)
    a.hand_in()
    a.done()
    c.whole_step(1, 1)
    assert a.values() == ([-RATE * 10, -RATE * 19], -RATE * 29, 4)
    status = a.status()
    assert {i: (row.steps, row.staleness, row.dropped) for i, row in status.items()} == {
        0: (1, 2, 0),
        1: (2, 0, 0),
        2: (1, 0, 0),
    }
    assert status[0].step_seconds >= 0
    assert status[0].mean_staleness == 2
    b.hand_in()
    b.done()
    assert a.status()[1].staleness == 2
    assert a.status()[1].mean_staleness == pytest.approx(2 / 3)


def test_the_first_of_all_workers_make_a_step_and_the_late_one_is_dropped(cluster: LocalCluster) -> None:
    a, b, late = started(cluster, lambda: tf.train.replicas.synchronous(descent(), aggregate=2, backups=1))
    for worker, gradient in ((a, 1), (b, 3), (late, 100)):
        worker.read(gradient, gradient)
    for worker in (a, b):
        worker.hand_in()
    for worker in (a, b):
        worker.done()
    # the mean of 1 and 3; two rows of the table are one row, and add up
    assert a.values() == ([-RATE * 2] * 2, -RATE * 4, 1)
    late.hand_in()
    late.done()
    assert a.values() == ([-RATE * 2] * 2, -RATE * 4, 1)
    assert {i: (row.steps, row.staleness, row.dropped) for i, row in a.status().items()} == {
        0: (1, 0, 0),
        1: (1, 0, 0),
        2: (1, 1, 1),
    }
    # the late one is in the second step now, and counts
    for worker, gradient in ((b, 5), (late, 7)):
        worker.read(gradient, gradient)
        worker.hand_in()
    for worker in (b, late):
        worker.done()
    assert a.values() == ([-RATE * 8] * 2, -RATE * 16, 2)


class SmallWorker(Worker):
    """A worker with one variable, so that what it hands in counts whole or not at all."""

    def _model(self) -> None:
        self.x, self.y = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.float32, [2])
        self.w = tf.get_variable("w", initializer=np.zeros(2, np.float32))
        self.loss = tf.reduce_sum(self.w * self.x)


def test_those_that_come_too_late_are_counted_and_nobody_else(cluster: LocalCluster) -> None:
    rounds = 25
    workers = [
        SmallWorker(
            cluster.target("worker", i), i, lambda: tf.train.replicas.synchronous(descent(), aggregate=2, backups=1)
        )
        for i in range(3)
    ]
    for index, worker in enumerate(workers):
        worker.begin(initialize=index == 0)
    for _ in range(rounds):
        for worker in workers:
            worker.read(1, 1)
        # at once: whoever comes second ends the round while the first one's step is still under way
        for worker in workers:
            worker.hand_in()
        for worker in workers:
            worker.done()
    assert int(workers[0].session.run(workers[0].step)) == rounds
    rows = workers[0].status().values()
    assert [row.steps for row in rows] == [rounds] * 3
    assert sum(row.dropped for row in rows) == rounds


def test_what_comes_while_the_chief_is_busy_is_late_if_there_is_enough(cluster: LocalCluster) -> None:
    a, b, late = started(cluster, lambda: tf.train.replicas.synchronous(descent(), aggregate=2, backups=1))
    goes_on, is_busy = threading.Event(), threading.Event()

    def is_held() -> None:
        is_busy.set()
        goes_on.wait(DEADLINE)

    a.optimizer._chief_runner.between_rounds(is_held)
    for worker in (a, b):
        worker.read(1, 1)
        worker.hand_in()
    for worker in (a, b):
        worker.done()
    late.whole_step(100, 100)
    assert is_busy.wait(DEADLINE), "the chief has ended a round, and does not take the next mean yet"
    for worker, gradient in ((a, 2), (b, 4), (late, 100)):
        worker.read(gradient, gradient)
        worker.hand_in()
        at = int(worker.optimizer.worker)
        until(lambda at=at: a.status()[at].steps == 2, "its gradient", DEADLINE)
    goes_on.set()
    for worker in (a, b, late):
        worker.done()
    assert a.values() == ([-RATE * 4] * 2, -RATE * 8, 2)
    assert [row.dropped for _, row in sorted(a.status().items())] == [0, 0, 2]


def test_the_token_of_a_dead_worker_is_issued_again_and_it_comes_back(cluster: LocalCluster) -> None:
    def make() -> Any:
        return tf.train.replicas.synchronous(descent(), aggregate=3)

    a, b, dead = started(cluster, make)
    a.read(1, 1)
    b.read(2, 2)
    dead.read(100, 100)
    a.hand_in()
    b.hand_in()
    until(lambda: set(a.status()) == {0, 1}, "the gradients of two", DEADLINE)
    assert a.session.run(a.optimizer._is_awaited)
    cluster.lose("/job:worker/replica:0/task:2")
    with pytest.raises(tf.errors.OpError):
        dead.done()
    a.session.run(a.optimizer.reissue_op)
    # both may go on, within the same step: the one that hands in first takes the dead one's place
    a.done()
    b.done()
    assert a.values()[2] == 0
    assert not a.session.run(a.optimizer._is_awaited)
    a.whole_step(6, 6)
    assert a.values() == ([-RATE * 3] * 2, -RATE * 6, 1)
    cluster.begin("/job:worker/replica:0/task:2")
    back = Worker(cluster.target("worker", 2), 2, make)
    back.begin(initialize=False)
    b.whole_step(50, 50)  # of the step that has ended
    assert a.status()[1].dropped == 1
    workers = {a: 1, b: 2, back: 3}
    for worker, gradient in workers.items():
        worker.read(gradient, gradient)
        worker.hand_in()
    for worker in workers:
        worker.done()
    assert a.values() == ([-RATE * 5] * 2, -RATE * 10, 2)


def leaves(worker: Worker) -> None:
    worker.hook.before_end(worker.session)
    worker.hook.end(worker.session)
    worker.coord.request_stop()


def test_a_worker_that_leaves_is_not_waited_for_and_one_that_joins_is(cluster: LocalCluster) -> None:
    """No token is issued again: that takes longer than a test may."""

    def make() -> Any:
        return tf.train.replicas.synchronous(descent(), aggregate=3, reissue_after=10 * DEADLINE)

    def a_round(gradients: dict[Worker, float]) -> None:
        for worker, gradient in gradients.items():
            worker.read(gradient, gradient)
            worker.hand_in()
        for worker in gradients:
            worker.done()

    a, b, c = started(cluster, make)
    a_round({a: 1, b: 2, c: 6})
    assert a.values() == ([-RATE * 3] * 2, -RATE * 6, 1)
    # it leaves while the others wait for it
    for worker, gradient in ((a, 1), (b, 3)):
        worker.read(gradient, gradient)
        worker.hand_in()
    until(lambda: {i: row.steps for i, row in a.status().items()} == {0: 2, 1: 2, 2: 1}, "two gradients", DEADLINE)
    assert a.values()[2] == 1
    leaves(c)
    a.done()
    b.done()
    assert a.values() == ([-RATE * 5] * 2, -RATE * 10, 2)
    a_round({a: 2, b: 4})
    assert a.values() == ([-RATE * 8] * 2, -RATE * 16, 3)
    leaves(b)
    a_round({a: 1})
    assert a.values() == ([-RATE * 9] * 2, -RATE * 18, 4)
    # they come back: rounds are of three
    for worker in (b, c):
        worker.begin(initialize=False)
    a_round({a: 1, b: 2, c: 6})
    assert a.values() == ([-RATE * 12] * 2, -RATE * 24, 5)
    assert [row.dropped for row in a.status().values()] == [0, 0, 0]
    # of a worker whose session ended by an error nobody expects anything either
    c.hook.abandoned()
    a_round({a: 1, b: 3})
    assert a.values()[2] == 6


def test_a_mean_of_copies_is_of_those_that_are_there(cluster: LocalCluster) -> None:
    def make() -> Any:
        return tf.train.replicas.averaging(descent(), every=1, workers=3, reissue_after=10 * DEADLINE)

    a, b, c = workers = started(cluster, make)
    for index, worker in enumerate(workers):
        worker.whole_step(index, index)
    leaves(b)
    running = [
        threading.Thread(target=worker.session.run, args=(operation,), daemon=True)
        for worker in (a, c)
        for operation in worker.optimizer._after_steps(1)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    assert a.values() == ([-RATE * 1] * 2, -RATE * 2, 1)


def test_a_worker_of_downpour_pushes_what_it_has_when_it_ends(cluster: LocalCluster) -> None:
    a, b, c = started(cluster, lambda: tf.train.replicas.downpour(descent(), fetch=4, push=4))
    for worker, steps in ((a, 0), (b, 3), (c, 4)):
        for _ in range(steps):
            worker.whole_step(1, 1)
            worker.hook.after_run(tf.train.SessionRunContext(tf.train.SessionRunArgs(None), worker.session), None)
    assert a.values() == ([-RATE * 4] * 2, -RATE * 8, 1)
    for worker in (b, c, a):
        leaves(worker)
    assert a.values() == ([-RATE * 7] * 2, -RATE * 14, 2)


def test_copies_are_averaged(cluster: LocalCluster) -> None:
    workers = started(cluster, lambda: tf.train.replicas.averaging(descent(), every=2, workers=3))
    expected = np.zeros(3)
    for rounds in (1, 2):
        for steps in (1, 2):
            for index, worker in enumerate(workers):
                worker.whole_step(index + steps * 8, 4)
                copy = worker.session.run(worker.w)
                expected[index] -= RATE * (index + steps * 8)
                assert list(copy) == [expected[index], pytest.approx(-RATE * 4 * (steps + 2 * (rounds - 1)))]
        running = [
            threading.Thread(target=worker.session.run, args=(operation,), daemon=True)
            for worker in workers
            for operation in worker.optimizer._after_steps(2)
        ]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join(DEADLINE)
        expected[:] = expected.mean()
        w, _, step = workers[0].values()
        assert (list(w), step) == ([expected[0], -RATE * 8 * rounds], rounds)
        for worker in workers:
            assert list(worker.session.run(worker.w)) == list(w)


@pytest.mark.parametrize("rule", ["averaging", "downpour"])
def test_copies_of_partitioned_variables_are_in_parts_and_are_regularized(rule: str) -> None:
    with local_cluster(ps=2, worker=1) as cluster, tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(2, worker_device="/job:worker/task:0")):
            optimizer: Any = {
                "averaging": lambda: tf.train.replicas.averaging(descent(), every=1, workers=1),
                "downpour": lambda: tf.train.replicas.downpour(descent(), fetch=1, push=1),
            }[rule]()
            with optimizer.local_copies():
                table = tf.get_variable(
                    "table",
                    [5, 2],
                    initializer=tf.ones_initializer(),
                    partitioner=tf.fixed_size_partitioner(2),
                    regularizer=lambda part: 0.5 * tf.reduce_sum(tf.square(part)),
                    constraint=lambda part: tf.minimum(part, 0.7),
                )
            rows = tf.nn.embedding_lookup(table, [0, 4], partition_strategy="div")
            train = optimizer.minimize(tf.reduce_sum(rows) + tf.losses.get_regularization_loss())
            hook = optimizer.make_session_run_hook(is_chief=True)
        assert [(v.op.name, v.device, v.shape.as_list()) for v in tf.trainable_variables()] == [
            ("table/part_0/copy", "/job:worker/task:0", [3, 2]),
            ("table/part_1/copy", "/job:worker/task:0", [2, 2]),
        ]
        shared = [v for v in tf.global_variables() if v.op.name.startswith("table/part") and "copy" not in v.op.name]
        assert [v.device for v in shared] == ["/job:ps/task:0", "/job:ps/task:1"]
        with tf.train.MonitoredTrainingSession(cluster.target(), hooks=[hook], config=config()) as session:
            session.run(train)
            # the regularizer has gradient 1 everywhere, and the rows that are looked up have another 1
            learned = np.float32([1 - 2 * RATE, 1 - RATE, 1 - RATE, 1 - RATE, 1 - 2 * RATE]).clip(max=np.float32(0.7))
            for values in (session.run(shared), session.run(list(table))):
                np.testing.assert_array_equal(np.concatenate(values), np.stack([learned] * 2, axis=1))


def test_downpour_fetches_and_pushes_at_intervals(cluster: LocalCluster) -> None:
    a, b, _ = started(cluster, lambda: tf.train.replicas.downpour(descent(), fetch=3, push=2, local=descent()))
    shared, copies, sums = 0.0, {a: 0.0, b: 0.0}, {a: 0.0, b: 0.0}
    for count in range(1, 7):
        for worker, gradient in ((a, float(count)), (b, 2.0)):
            worker.whole_step(gradient, gradient)
            sums[worker] += gradient
            copies[worker] -= RATE * gradient
            for operation in worker.optimizer._after_steps(count):
                worker.session.run(operation)
            if count % 2 == 0:
                shared, sums[worker] = shared - RATE * sums[worker], 0.0
            if count % 3 == 0:
                copies[worker] = shared
            assert list(worker.session.run(worker.w)) == [copies[worker]] * 2
            assert worker.values()[:2] == ([shared] * 2, 2 * shared)
    assert a.values()[2] == 6
    # b fetched after 3 steps, when 2 pushes had come, and again after 6
    assert a.status()[1].steps == 3
    assert a.status()[1].staleness == 3


@pytest.mark.parametrize("rule", ["synchronous", "averaging"])
def test_workers_that_wait_end_with_the_chief(rule: str) -> None:
    """Nobody ends rounds any more: they end as at the end of their data, and those who have a token do its step."""
    aggregate, steps = 2, 4
    makes: dict[str, Callable[[], Any]] = {
        "synchronous": lambda: tf.train.replicas.synchronous(descent(), aggregate),
        "averaging": lambda: tf.train.replicas.averaging(descent(), every=1, workers=aggregate),
    }
    taken = [0] * aggregate

    def train(cluster: LocalCluster, index: int) -> None:
        with tf.Graph().as_default():
            with tf.device(tf.train.replica_device_setter(1, worker_device=f"/job:worker/task:{index}")):
                optimizer = makes[rule]()
                with getattr(optimizer, "local_copies", contextlib.nullcontext)():
                    w = tf.get_variable("w", initializer=np.zeros(2, np.float32))
                step = optimizer.minimize(tf.reduce_sum(w))
                hook = optimizer.make_session_run_hook(index == 0)
            # the chief takes as many steps as the test says, the other as many as it can
            with tf.train.MonitoredTrainingSession(
                cluster.target("worker", index), index == 0, hooks=[hook], config=config()
            ) as session:
                while index > 0 or taken[0] < steps:
                    session.run(step)
                    taken[index] += 1

    with local_cluster(ps=1, worker=aggregate) as cluster, ThreadPoolExecutor(aggregate) as pool:
        for ended in [pool.submit(train, cluster, index) for index in range(aggregate)]:
            ended.result(DEADLINE)
    assert taken == [steps, steps]


def test_no_round_is_ended_for_a_worker_that_has_not_heard_yet_of_the_chiefs_end(cluster: LocalCluster) -> None:
    """The chief's session is open for a moment longer than its training, and its thread ends rounds until then."""
    chief, other = (
        Worker(cluster.target("worker", i), i, lambda: tf.train.replicas.synchronous(descent(), aggregate=2))
        for i in range(2)
    )
    chief.begin(initialize=True)
    other.begin(initialize=False)
    for worker, gradient in ((chief, 1), (other, 3)):
        worker.read(gradient, gradient)
        worker.hand_in()
    chief.done()
    other.done()
    # it has its gradients of the next round, and does not look for tokens
    other.read(100, 100)
    chief.hook.end(chief.session)
    other.hand_in()
    with pytest.raises(tf.errors.OutOfRangeError):
        other.done()
    assert chief.values() == ([-RATE * 2] * 2, -RATE * 4, 1)
