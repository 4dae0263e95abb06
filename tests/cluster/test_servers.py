"""Servers of one process over real sockets: sessions at their targets, several in a cluster, stopping them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.cluster.places import held_addresses

DEADLINE_MS = 30_000


def config(**options: Any) -> Any:
    return tf.ConfigProto(operation_timeout_in_ms=DEADLINE_MS, **options)


@contextlib.contextmanager
def servers(ps: int, workers: int) -> Iterator[dict[str, list[tf.train.Server]]]:
    """Servers of a cluster whose ports the system chose."""
    with contextlib.ExitStack() as stack:
        addresses = stack.enter_context(held_addresses("localhost", ps=ps, worker=workers))
        yield {
            job: [stack.enter_context(tf.train.Server(addresses, job, index)) for index in range(len(of_job))]
            for job, of_job in addresses.items()
        }


def test_a_local_server_keeps_variables_between_sessions() -> None:
    with tf.train.Server.create_local_server() as server:
        assert server.target.startswith("grpc://localhost:")
        v = tf.get_variable("v", initializer=np.zeros(2, np.float32))
        with tf.Session(server.target, config=config()) as session:
            session.run(tf.global_variables_initializer())
            session.run(v.assign_add([1, 2]))
        with tf.Session(server.target, config=config()) as session:
            np.testing.assert_array_equal(session.run(v), [1, 2])
            assert [d.name for d in session.list_devices()] == ["/job:local/replica:0/task:0/device:CPU:0"]
        tf.Session.reset(server.target)
        with tf.Session(server.target, config=config()) as session, pytest.raises(tf.errors.FailedPreconditionError):
            session.run(v)


def test_between_graph_replication_trains_on_variables_of_parameter_servers() -> None:
    """The program of TensorFlow's guide to distributed execution, with a thread for each worker."""
    with servers(ps=2, workers=2) as cluster:
        spec = tf.train.ClusterSpec(cluster["ps"][0].server_def.cluster)
        losses: dict[int, list[float]] = {}

        def work(index: int) -> None:
            with tf.Graph().as_default():
                device = tf.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=spec)
                with tf.device(device):
                    x, y = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.float32, [None, 1])
                    hidden = tf.layers.dense(x, 8, tf.nn.tanh)
                    loss = tf.losses.mean_squared_error(y, tf.layers.dense(hidden, 1))
                    step = tf.train.get_or_create_global_step()
                    train = tf.train.AdagradOptimizer(0.1).minimize(loss, global_step=step)
                variables = {v.name: v.device for v in tf.trainable_variables()}
                assert {"/job:ps/task:0", "/job:ps/task:1"} == set(variables.values())
                rng = np.random.default_rng(index)
                with tf.train.MonitoredTrainingSession(
                    cluster["worker"][index].target, is_chief=index == 0, config=config()
                ) as session:
                    for _ in range(60):
                        batch = rng.normal(size=(32, 4)).astype(np.float32)
                        feeds = {x: batch, y: batch.sum(axis=1, keepdims=True)}
                        losses.setdefault(index, []).append(session.run([loss, train], feeds)[0])
                    if index == 0:
                        assert session.run(step) >= 60

        threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_MS / 1000)
        for index in range(2):
            assert len(losses[index]) == 60
            assert np.mean(losses[index][-10:]) < np.mean(losses[index][:5]) / 2


def test_a_client_that_is_no_task_reaches_a_cluster() -> None:
    with servers(ps=1, workers=1) as cluster:
        with tf.device("/job:ps/task:0"):
            there = tf.placeholder(tf.float32, [2]) * 2
        with tf.device("/job:worker/task:0"):
            result = there + 1
        # as another process would: by the address alone
        target = cluster["worker"][0].target.replace("localhost", "127.0.0.1")
        with tf.Session(target, config=config()) as session:
            feeds = {there.op.inputs[0]: [1, 2]}
            np.testing.assert_array_equal(session.run(result, feeds), [3, 5])


def test_stopping_a_server_cancels_its_steps_and_frees_its_address() -> None:
    with servers(ps=1, workers=1) as cluster:
        with tf.device("/job:ps/task:0"):
            begun = tf.FIFOQueue(1, [tf.int32], shapes=[[]])
            with tf.control_dependencies([begun.enqueue(0)]):
                element = tf.FIFOQueue(1, [tf.float32]).dequeue()
            has_begun = begun.dequeue()
        with tf.Session(cluster["worker"][0].target, config=config()) as session:

            def stops() -> None:
                # the step is on the parameter server, where it waits for an element
                session.run(has_begun)
                cluster["ps"][0].stop()

            with ThreadPoolExecutor(1) as pool:
                stopping = pool.submit(stops)
                with pytest.raises((tf.errors.CancelledError, tf.errors.UnavailableError, tf.errors.AbortedError)):
                    session.run(element)
                stopping.result(DEADLINE_MS / 1000)
        definition = cluster["ps"][0].server_def
        with tf.train.Server(definition) as again:
            assert again.target == cluster["ps"][0].target


def test_what_is_wrong_with_a_server_is_told() -> None:
    with pytest.raises(ValueError, match="explicit `job_name`"):
        tf.train.Server({"ps": ["localhost:0"], "worker": ["localhost:0"]})
    with pytest.raises(ValueError, match="explicit `task_index`"):
        tf.train.Server({"ps": ["localhost:0", "localhost:0"]}, "ps")
    with pytest.raises(tf.errors.InvalidArgumentError, match="protocol 'http'"):
        tf.train.Server({"ps": ["localhost:0"]}, protocol="http")
    with pytest.raises(tf.errors.UnauthenticatedError, match="anabranch cluster keys"):
        tf.train.Server({"ps": ["0.0.0.0:0"]})
    with tf.train.Server.create_local_server() as server, pytest.raises(tf.errors.UnavailableError, match="taken|use"):
        tf.train.Server({"local": [server.target.removeprefix("grpc://")]})


def test_a_server_that_has_not_started_answers_nobody() -> None:
    with tf.train.Server.create_local_server(start=False) as server:
        with pytest.raises(tf.errors.DeadlineExceededError, match="did not answer"):
            tf.Session(server.target, config=tf.ConfigProto(operation_timeout_in_ms=300))
        server.start()
        with tf.Session(server.target, config=config()) as session:
            assert session.run(tf.constant(1) + 1) == 2


def test_conditionals_whose_values_go_to_another_task_run_beside_each_other() -> None:
    """Each is compiled, turns out to need the host, and is run in parts, which no other task knows as a step."""
    with servers(ps=1, workers=1) as cluster:
        kept, copies = [], []
        for index in range(2):
            with tf.device("/job:worker/task:0"):
                local = [tf.GraphKeys.LOCAL_VARIABLES]
                kept.append(tf.get_variable(f"v{index}", initializer=np.full(2, index, np.float32), collections=local))
                value = kept[-1].initialized_value()
            with tf.device("/job:ps/task:0"):
                copies.append(tf.Variable(value))
        with tf.Session(cluster["worker"][0].target, config=config()) as session:
            for _ in range(5):
                session.run(tf.global_variables_initializer())
            np.testing.assert_array_equal(session.run(copies), [[0, 0], [1, 1]])
            session.run([v.initializer for v in kept])
            session.run([v.assign_add([2, 3]) for v in kept])
            session.run(tf.global_variables_initializer())
            np.testing.assert_array_equal(session.run(copies), [[2, 3], [3, 4]])


def test_feeds_that_a_step_does_not_take_leave_the_others_in_their_places() -> None:
    """A step of one part, on a task of this process that is not the target's, takes the second feed only."""
    with servers(ps=2, workers=1) as cluster:
        unused, used = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
        with tf.device("/job:ps/task:1"):
            result = used + 1
        with tf.Session(cluster["worker"][0].target, config=config()) as session:
            assert session.run(result, {unused: 5.0, used: 2.0}) == 3
            assert session.make_callable(result, [unused, used])(5.0, 2.0) == 3


def test_a_session_can_use_tasks_that_its_target_does_not_know() -> None:
    """`ConfigProto.cluster_def`: a worker that was started after the others, which were told of themselves only."""
    with contextlib.ExitStack() as stack:
        addresses = stack.enter_context(held_addresses(worker=2))["worker"]
        definition = tf.train.ClusterSpec({"worker": addresses}).as_cluster_def()
        first, second = (
            stack.enter_context(tf.train.Server({"worker": {i: addresses[i]}}, "worker", i)) for i in range(2)
        )
        x = tf.placeholder(tf.float32, [])
        with tf.device("/job:worker/task:1"):
            there = x * 2
        with tf.device("/job:worker/task:0"):
            here = there + 1
        for target in (first.target, second.target):
            with tf.Session(target, config=config(cluster_def=definition)) as session:
                assert len(session.list_devices()) == 2
                assert session.run(here, {x: 4.0}) == 9
        with tf.Session(first.target, config=config()) as session:
            assert len(session.list_devices()) == 1
        other = tf.train.ClusterSpec({"ps": addresses}).as_cluster_def()
        with pytest.raises(tf.errors.InvalidArgumentError, match="cluster_def of its configuration does not name"):
            tf.Session(first.target, config=config(cluster_def=other))
