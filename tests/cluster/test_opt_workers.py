"""Workers that train copies of variables, or drop old gradients, by `tf.contrib.opt`: servers of one process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.cluster.places import held_addresses

opt = tf.contrib.opt
DEADLINE_S = 60
START = {"a": np.array([1.0, 2.0], np.float32), "b": np.float32(3.0)}


def config() -> Any:
    return tf.ConfigProto(operation_timeout_in_ms=DEADLINE_S * 1000)


@contextlib.contextmanager
def workers(count: int) -> Iterator[tuple[tf.train.ClusterSpec, list[tf.train.Server]]]:
    """The servers of a parameter server and some workers; those of the workers."""
    with contextlib.ExitStack() as stack:
        spec = tf.train.ClusterSpec(stack.enter_context(held_addresses(ps=1, worker=count)))
        stack.enter_context(tf.train.Server(spec, "ps", 0))
        yield spec, [stack.enter_context(tf.train.Server(spec, "worker", index)) for index in range(count)]


class Worker:
    """A worker's graph and session.

    Args:
        make: makes the optimizer, given a getter of variables.
        grads: the gradient of "a", also as rows, and that of "b".
    """

    def __init__(
        self,
        cluster: tuple[tf.train.ClusterSpec, list[tf.train.Server]],
        index: int,
        getter: type[Any] | None,
        make: Callable[[Any], Any],
        grads: dict[str, float],
    ) -> None:
        spec, servers = cluster
        self._graph = tf.Graph()
        self._server = servers[index]
        self.is_chief = index == 0
        device = f"/job:worker/task:{index}"
        placed = tf.train.replica_device_setter(worker_device=device, ps_device="/job:ps/task:0", cluster=spec)
        made = getter(device) if getter is not None else None
        with self._graph.as_default(), tf.device(placed), tf.variable_scope("", custom_getter=made):
            self.step = tf.train.get_or_create_global_step()
            self.variables = {name: tf.get_variable(name, initializer=start) for name, start in START.items()}
            a, b = self.variables.values()
            with tf.device(device):
                rows = tf.IndexedSlices(tf.fill([1], grads["a"]), tf.constant([1]), [2])
                self.optimizer = make(made)
                pairs = [(rows, a), (tf.constant(grads["b"]), b)]
                self.train = self.optimizer.apply_gradients(pairs, global_step=self.step)
            self.centers = {
                v.op.name.removeprefix("global_center_variable/"): v
                for v in tf.global_variables()
                if v.op.name.startswith("global_center_variable/") and v.op.name.count("/") == 1
            }

    @contextlib.contextmanager
    def session(self, hook: Any) -> Iterator[Any]:
        with (
            self._graph.as_default(),
            tf.train.MonitoredTrainingSession(
                self._server.target, is_chief=self.is_chief, hooks=[hook], config=config()
            ) as session,
        ):
            yield session

    def values(self, session: Any) -> list[Any]:
        """The second element of "a", "b", and their centers."""
        found = session.run([self.variables, self.centers])
        return [float(values[name] if name == "b" else values[name][1]) for values in found for name in "ab"]


@pytest.mark.parametrize("make", [tf.train.GradientDescentOptimizer, lambda rate: tf.train.MomentumOptimizer(rate, 0)])
def test_copies_and_centers_pull_at_each_other(make: Callable[[float], Any]) -> None:
    with workers(2) as cluster, contextlib.ExitStack() as stack:
        both = [
            Worker(
                cluster,
                index,
                opt.ElasticAverageCustomGetter,
                lambda made: opt.ElasticAverageOptimizer(make(1.0), 2, made, 2, moving_rate=0.25, rho=0.0),
                {"a": -1.0 - index, "b": 2.0},
            )
            for index in range(2)
        ]
        sessions = [
            stack.enter_context(worker.session(worker.optimizer.make_session_run_hook(worker.is_chief, index)))
            for index, worker in enumerate(both)
        ]
        copies, centers = [[2.0, 3.0], [2.0, 3.0]], [2.0, 3.0]
        for turn in range(4):
            for index, (worker, session) in enumerate(zip(both, sessions, strict=True)):
                session.run(worker.train)
                copies[index][0] += 1 + index
                copies[index][1] -= 2
                if turn % 2:
                    pulls = [0.25 * (copy - center) for copy, center in zip(copies[index], centers, strict=True)]
                    copies[index] = [copy - pull for copy, pull in zip(copies[index], pulls, strict=True)]
                    centers = [center + pull for center, pull in zip(centers, pulls, strict=True)]
                np.testing.assert_allclose(worker.values(session), [*copies[index], *centers], rtol=1e-6)
        assert sessions[0].run(both[0].step) == 4
        for worker in both:
            assert {v.device for v in worker.centers.values()} == {"/job:ps/task:0"}
            assert all(v.device.startswith("/job:worker") for v in worker.variables.values())


class Noting(tf.train.SessionRunHook):
    """Another hook, and an event for when a session is there and that hook begins."""

    def __init__(self, hook: tf.train.SessionRunHook, event: threading.Event) -> None:
        self._hook = hook
        self._event = event

    def begin(self) -> None:
        self._hook.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._event.set()
        self._hook.after_create_session(session, coord)


def test_workers_wait_for_each_other_at_the_start() -> None:
    with workers(2) as cluster:
        both = [
            Worker(
                cluster,
                index,
                opt.ElasticAverageCustomGetter,
                lambda made: opt.ElasticAverageOptimizer(
                    tf.train.GradientDescentOptimizer(1.0), 2, made, 1, synchronous=True
                ),
                {"a": -1.0, "b": 2.0},
            )
            for index in range(2)
        ]
        began: list[int] = []
        there = [threading.Event() for _ in both]

        def work(index: int) -> None:
            worker = both[index]
            hook = worker.optimizer.make_session_run_hook(worker.is_chief, index)
            with worker.session(Noting(hook, there[index])) as session:
                began.append(index)
                session.run(worker.train)

        threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
        threads[0].start()
        assert there[0].wait(DEADLINE_S)
        threads[0].join(1)
        assert began == []  # the first one waits
        threads[1].start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert sorted(began) == [0, 1]


def test_the_mean_of_several_gradients_is_applied_to_the_centers() -> None:
    with workers(2) as cluster, contextlib.ExitStack() as stack:
        both = [
            Worker(
                cluster,
                index,
                opt.AGNCustomGetter,
                lambda made: opt.AGNOptimizer(tf.train.GradientDescentOptimizer(0.5), 2, made, 2),
                {"a": -1.0 - index, "b": 2.0},
            )
            for index in range(2)
        ]
        sessions = [
            stack.enter_context(worker.session(worker.optimizer.make_session_run_hook(worker.is_chief, index)))
            for index, worker in enumerate(both)
        ]
        copies, centers = [[2.0, 3.0], [2.0, 3.0]], [2.0, 3.0]
        for turn in range(4):
            for index, (worker, session) in enumerate(zip(both, sessions, strict=True)):
                session.run(worker.train)
                copies[index] = [copies[index][0] + 0.5 * (1 + index), copies[index][1] - 1]
                if turn % 2:
                    centers = [centers[0] + 0.5 * (1 + index), centers[1] - 1]
                    copies[index] = list(centers)
                np.testing.assert_allclose(worker.values(session), [*copies[index], *centers], rtol=1e-6)
        assert sessions[0].run(both[0].step) == 4


def test_the_mean_of_the_copies_replaces_them() -> None:
    with workers(2) as cluster:
        both = [
            Worker(
                cluster,
                index,
                opt.ModelAverageCustomGetter,
                lambda made, is_chief=index == 0: opt.ModelAverageOptimizer(
                    tf.train.GradientDescentOptimizer(1.0), 2, is_chief, made, interval_steps=2
                ),
                {"a": -1.0 - index, "b": 2.0 * index},
            )
            for index in range(2)
        ]
        found: dict[int, list[list[float]]] = {0: [], 1: []}
        there = threading.Event()

        def work(index: int) -> None:
            worker = both[index]
            if not worker.is_chief:  # a worker that finds no variables looks again after half a minute
                assert there.wait(DEADLINE_S)
            with worker.session(Noting(worker.optimizer.make_session_run_hook(), there)) as session:
                for _ in range(4):
                    session.run(worker.train)
                    found[index].append(worker.values(session)[:2])
                if worker.is_chief:
                    found[index].append(worker.values(session)[2:])
                    found[index].append([float(session.run(worker.step))])

        threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
    np.testing.assert_allclose(found[1], [[4, 1], [5, 1], [7, -1], [8, -1]], rtol=1e-6)
    np.testing.assert_allclose(found[0][:4], [[3, 3], [5, 1], [6, 1], [8, -1]], rtol=1e-6)
    assert found[0][4:] == [[8.0, -1.0], [2.0]]


def test_gradients_of_a_slow_worker_are_dropped() -> None:
    with workers(2) as cluster, contextlib.ExitStack() as stack:
        graphs, sessions, parts = [], [], []
        for index in range(2):
            device = f"/job:worker/task:{index}"
            placed = tf.train.replica_device_setter(worker_device=device, cluster=cluster[0])
            graphs.append(tf.Graph())
            with graphs[-1].as_default(), tf.device(placed):
                step = tf.train.get_or_create_global_step()
                w = tf.get_variable("w", initializer=[0.0])
                made = opt.DropStaleGradientOptimizer(tf.train.MomentumOptimizer(1.0, 0.0), staleness=0)
                with tf.device(device):
                    gate = tf.FIFOQueue(1, [tf.float32], shapes=[[]], shared_name=f"gate_{index}")
                    (grad, _), *_ = made.compute_gradients(-tf.reduce_sum(w), [w])
                    noted = tf.FIFOQueue(1, [tf.int64], shapes=[[]], shared_name=f"noted_{index}")
                    with tf.control_dependencies([noted.enqueue(made._local_step)]):
                        late = grad * gate.dequeue()
                train = made.apply_gradients([(late, w)], global_step=step)
                parts.append((w, step, train, gate.enqueue(1.0), noted.dequeue()))
                session = stack.enter_context(
                    tf.train.MonitoredTrainingSession(cluster[1][index].target, is_chief=index == 0, config=config())
                )
                sessions.append(session)
        dropped: list[float] = []
        _, _, train, enqueue, noted_step = parts[1]
        # the slow worker notes the step when it begins, and gets on when the quick one has made its own
        slow = threading.Thread(target=lambda: dropped.append(float(sessions[1].run(train))))
        slow.start()
        assert sessions[1].run(noted_step) == 0
        sessions[0].run(parts[0][3])
        assert sessions[0].run(parts[0][2]) == 0
        sessions[1].run(enqueue)
        slow.join(DEADLINE_S)
        assert dropped == [1.0]
        assert [sessions[0].run(t).tolist() for t in (parts[0][0], parts[0][1])] == [[1.0], 1]


# ---------------------------------------------------------------------- without a cluster
def test_centers_are_saved_under_the_names_of_variables(tmp_path: Path) -> None:
    getter = opt.ElasticAverageCustomGetter("")
    with tf.variable_scope("", custom_getter=getter):
        a = tf.get_variable("a", initializer=[1.0, 2.0])
        with tf.variable_scope("", partitioner=tf.fixed_size_partitioner(2)):
            parts = tf.get_variable("parts", initializer=tf.constant([[5.0], [6.0]]))
    made = opt.ElasticAverageOptimizer(tf.train.GradientDescentOptimizer(1.0), 1, getter, 1, moving_rate=0.5)
    pairs = made.compute_gradients(tf.reduce_sum(a) + tf.reduce_sum(tf.convert_to_tensor(parts)))
    train = made.apply_gradients(pairs)
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        session.run(train)
        session.run(train)
        path = made.swapping_saver().save(session, str(tmp_path / "centers"))
        copies = session.run([a, tf.convert_to_tensor(parts)])
    # the second gradient has the distance from the center: copy 0.5 below it, rho 0.5
    copy, center = 1.0 - 1.0, 1.0
    copy, center = copy + 0.5, center - 0.5
    copy -= 1.0 + 0.5 * (copy - 1.0)
    copy, center = copy - 0.5 * (copy - center), center + 0.5 * (copy - center)
    np.testing.assert_allclose(copies[0], [copy, copy + 1], rtol=1e-6)
    with tf.Graph().as_default(), tf.Session() as session:
        a, parts = tf.get_variable("a", [2]), tf.get_variable("parts", [2, 1])
        tf.train.Saver().restore(session, path)
        np.testing.assert_allclose(session.run(a), [center, center + 1], rtol=1e-6)
        np.testing.assert_allclose(session.run(parts), [[center + 4], [center + 5]], rtol=1e-6)


def test_variables_without_centers_and_rates_that_are_not_known() -> None:
    class Own(tf.train.Optimizer):
        pass

    getter = opt.ElasticAverageCustomGetter("")
    adam = tf.train.AdamOptimizer(0.5)
    made = opt.ElasticAverageOptimizer(adam, 2, getter)
    assert made._moving_rate == pytest.approx(0.9 / 10 / 2)
    assert made._rho == pytest.approx(0.09)
    with pytest.raises(RuntimeError, match="there are no centers yet"):
        made.swapping_saver()
    with pytest.raises(ValueError, match="should not be empty"):
        made.get_init_op(0)
    w = tf.get_variable("w", [2])
    for call in (made.compute_gradients, lambda loss: made.apply_gradients([(loss, w)])):
        with pytest.raises(ValueError, match=r"\['w:0'\] have no center.*ElasticAverageCustomGetter"):
            call(tf.reduce_sum(w))
    with tf.variable_scope("other"), pytest.raises(ValueError, match="give rho"):
        opt.ElasticAverageOptimizer(Own(False, "Own"), 2, getter)
    with tf.variable_scope("mean"):
        mean = opt.ModelAverageOptimizer(adam, 2, True, opt.ModelAverageCustomGetter(""))
    with pytest.raises(ValueError, match="Must supply at least one variable"):
        mean.apply_gradients([], tf.train.get_or_create_global_step())
    with pytest.raises(ValueError, match="Global step is required"):
        mean.apply_gradients([(tf.ones([2]), w)])


def test_parts_of_variables_have_centers() -> None:
    getters = [opt.ElasticAverageCustomGetter(""), opt.AGNCustomGetter(""), opt.ModelAverageCustomGetter("")]
    for getter in getters:
        scope = type(getter).__name__
        with tf.variable_scope(scope, custom_getter=getter, partitioner=tf.fixed_size_partitioner(2)):
            parts = list(tf.get_variable("v", initializer=tf.constant([[1.0], [2.0]])))
        centers = getter._local_2_global if getter is getters[2] else getter._global_map
        assert [part.op.name for part in parts] == [f"{scope}/v/part_{i}" for i in range(2)]
        names = [centers[part].op.name for part in parts]
        assert names == [f"global_center_variable/{scope}/v/part_{i}" for i in range(2)]
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            assert [float(v[0, 0]) for v in session.run([centers[part] for part in parts])] == [1.0, 2.0]


def test_variables_are_shared_by_getters() -> None:
    for getter in (opt.ElasticAverageCustomGetter(""), opt.AGNCustomGetter(""), opt.ModelAverageCustomGetter("")):
        with tf.variable_scope(type(getter).__name__, custom_getter=getter) as scope:
            first = tf.get_variable("v", [2])
            count = len(tf.global_variables() + tf.local_variables())
            plain = tf.get_variable("plain", [2], trainable=False)
            local = tf.get_variable("local", [2], trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES])
        with tf.variable_scope(scope, reuse=True):
            assert tf.get_variable("v", [2]) is first
        assert len(tf.global_variables() + tf.local_variables()) == count + 2
        assert plain in tf.global_variables()
        assert local in tf.local_variables()
        assert first in tf.trainable_variables()
        assert first not in tf.global_variables()
