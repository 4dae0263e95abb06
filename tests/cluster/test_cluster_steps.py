"""Steps on several tasks: values, errors, cancellation, lost tasks. Messages are copied, without sockets."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from jax import numpy as jnp

import anabranch as tf
from anabranch.distributed import cluster_master
from anabranch.proto.config_pb2 import CallableOptions
from anabranch.runtime import lent_tensors
from anabranch.testing.local_cluster import LocalCluster, local_cluster

#: seconds; no wait of a test lasts longer
DEADLINE = 30.0


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(ps=2, worker=2) as tasks:
        yield tasks


def ps(index: int) -> Any:
    return tf.device(f"/job:ps/task:{index}")


def worker(index: int) -> Any:
    return tf.device(f"/job:worker/task:{index}")


def config(**options: Any) -> Any:
    return tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000), **options)


def session(cluster: LocalCluster, index: int = 0, **options: Any) -> tf.Session:
    return tf.Session(cluster.target("worker", index), config=config(**options))


# ---------------------------------------------------------------------- values
def test_variables_are_where_they_were_put_and_shared_by_sessions(cluster: LocalCluster) -> None:
    with ps(0):
        v = tf.get_variable("v", initializer=np.zeros(3, np.float32), use_resource=True)
    with ps(1):
        w = tf.get_variable("w", initializer=np.ones(3, np.float32), use_resource=True)
    with worker(1):
        total = v * 2 + w
    update = v.assign_add(total)
    with session(cluster) as first:
        first.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(first.run(update), [1, 1, 1])
    with session(cluster, 1) as second:
        np.testing.assert_array_equal(second.run(update), [4, 4, 4])
        np.testing.assert_array_equal(second.run(total), [9, 9, 9])
    tf.Session.reset(cluster.target())
    with session(cluster) as third, pytest.raises(tf.errors.FailedPreconditionError):
        third.run(v)


def test_a_session_with_state_of_its_own(cluster: LocalCluster) -> None:
    with ps(0):
        v = tf.get_variable("v", initializer=np.float32(1), use_resource=True)
    with session(cluster) as shared, session(cluster, isolate_session_state=True) as alone:
        shared.run(v.initializer)
        with pytest.raises(tf.errors.FailedPreconditionError):
            alone.run(v)
        alone.run(v.initializer)
        alone.run(v.assign_add(5.0))
        assert shared.run(v) == 1


@pytest.mark.parametrize("use_resource", [False, True])
def test_what_can_travel(cluster: LocalCluster, use_resource: bool) -> None:
    """Numbers of all kinds, strings, sparse tensors, empty tensors and large ones go from task to task."""
    values = {
        "half": np.float16([1.5, 2.5]),
        "complex": np.complex64([1 + 2j]),
        "bool": np.bool_([True, False]),
        "uint8": np.arange(5, dtype=np.uint8),
        "int64": np.int64(1) << 40,
        "string": np.array([b"a", b"", b"\xff\x00"], np.object_),
        "empty": np.zeros((0, 3), np.float32),
        "large": np.random.default_rng(0).normal(size=(300, 1000)).astype(np.float32),
    }
    sent, back = {}, {}
    for name, value in values.items():
        feed = tf.placeholder(tf.as_dtype(np.asarray(value).dtype), np.shape(value), name)
        with ps(0):
            there = tf.identity(feed)
        with worker(1):
            sent[feed], back[name] = value, tf.identity(there)
    with ps(1):
        sparse = tf.sparse.from_dense([[0, 1], [2, 0]])
    with worker(0):
        dense = tf.sparse.to_dense(sparse)
    with session(cluster) as s:
        got = s.run(back, sent)
        for name, value in values.items():
            np.testing.assert_array_equal(got[name], value)
        np.testing.assert_array_equal(s.run(dense), [[0, 1], [2, 0]])


def test_float32_tensors_can_travel_as_half_as_many_bytes(cluster: LocalCluster) -> None:
    """WP5.5. What stays on its task, and what is not float32, keeps all of its bits."""
    value = np.float32([1 + 2**-7, 1 + 2**-20])
    x, y = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.float64, [2])
    with ps(0):
        there, exact = tf.identity(x), tf.identity(y)
        kept = there * 1
    with worker(1):
        rounded, untouched = tf.identity(there), tf.identity(exact)
    options = tf.GraphOptions(enable_bfloat16_sendrecv=True)
    with session(cluster, graph_options=options) as s:
        got = s.run([rounded, untouched, kept], {x: value, y: value.astype(np.float64)})
    np.testing.assert_array_equal(got[0], np.float32([1 + 2**-7, 1]))
    np.testing.assert_array_equal(got[1], value.astype(np.float64))
    np.testing.assert_array_equal(got[2], value)


def test_what_lies_on_a_device_of_the_client_goes_by_way_of_its_host(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # arrays of JAX stand for what lies in an accelerator's memory
    monkeypatch.setattr(lent_tensors, "_OF_THE_HOST", frozenset())
    x = tf.placeholder(tf.float32, [3], name="x")
    with ps(1):
        y = tf.multiply(x, 2.0, name="y")
    lent = jnp.arange(3.0)
    with session(cluster) as opened:
        assert opened.run([x, y], {x: lent})[1].tolist() == [0, 2, 4]
        options = CallableOptions(feed=["x:0"], fetch=["y:0"])
        assert opened._make_callable_from_options(options)(lent)[0].tolist() == [0, 2, 4]
        options.fetch_devices["y:0"] = "/job:ps/task:1/cpu:0"
        with pytest.raises(tf.errors.UnimplementedError, match="leave out fetch_devices"):
            opened._make_callable_from_options(options)


def test_queues_are_shared_by_sessions_and_steps_wait_for_them(cluster: LocalCluster) -> None:
    with ps(0):
        queue = tf.FIFOQueue(10, [tf.float32], shapes=[[]], shared_name="shared")
    with worker(1):
        taken = queue.dequeue() * 2
    x = tf.placeholder(tf.float32, [])
    put = queue.enqueue(x)
    got: list[Any] = []
    with session(cluster) as consumer, session(cluster, 1) as producer:
        thread = threading.Thread(target=lambda: got.append(consumer.run(taken)))
        thread.start()
        producer.run(put, {x: 21.0})
        thread.join(DEADLINE)
        assert got == [42.0]


def test_random_numbers_go_on_from_step_to_step_on_their_task(cluster: LocalCluster) -> None:
    with ps(1):
        drawn = tf.random.uniform([4], seed=3)
    with session(cluster) as one:
        first, second = one.run(drawn), one.run(drawn)
    assert not np.array_equal(first, second)
    with session(cluster) as another:
        np.testing.assert_array_equal(another.run(drawn), first)


def test_python_functions_and_input_pipelines_run_on_their_task(cluster: LocalCluster) -> None:
    with ps(0):
        element = tf.data.make_one_shot_iterator(tf.data.Dataset.range(5).map(lambda n: n * n)).get_next()
    with worker(1):
        doubled = element * 2
    with session(cluster) as s:
        assert [s.run(doubled) for _ in range(5)] == [0, 2, 8, 18, 32]
        with pytest.raises(tf.errors.OutOfRangeError):
            s.run(doubled)


def test_partial_runs_and_callables(cluster: LocalCluster) -> None:
    x, late = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    with ps(0):
        y = x + 1
        count = tf.get_variable("count", initializer=0, use_resource=True)
        with tf.control_dependencies([y]):
            counted = count.assign_add(1, read_value=False)
    with worker(1), tf.control_dependencies([counted]):
        z = y * 10 + late
    with ps(1):
        end = tf.py_func(lambda value: value - 1, [z], tf.float32)
    with session(cluster) as s:
        s.run(count.initializer)
        assert s.make_callable(z, [x, late])(2.0, 0.0) == 30.0
        handle = s.partial_run_setup([y, z, end], [x, late])
        assert s.partial_run(handle, y, {x: 1.0}) == 2.0
        assert s.partial_run(handle, z, {late: 5.0}) == 25.0
        assert s.partial_run(handle, end) == 24.0
        assert s.run(count) == 2, "what a piece needs has run once, on its task"


def test_traces_of_all_tasks_are_on_one_clock(cluster: LocalCluster) -> None:
    """Each task has its row; no operation begins before what it takes was there, whichever task computed it."""
    x = tf.placeholder(tf.float32, [])
    with ps(0):
        first = tf.py_func(lambda value: value + 1, [x], tf.float32, name="first")
    with worker(1):
        second = tf.py_func(lambda value: value * 2, [first], tf.float32, name="second")
    with ps(1):
        third = tf.py_func(lambda value: value - 1, [second], tf.float32, name="third")
    options, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
    with session(cluster) as s:
        s.run(third, {x: 1.0})
        before = time.time() * 1e6
        assert s.run(third, {x: 1.0}, options=options, run_metadata=metadata) == 3
        after = time.time() * 1e6
    rows = {row.device: {node.node_name: node for node in row.node_stats} for row in metadata.step_stats.dev_stats}
    places = {"first": "/job:ps/replica:0/task:0", "second": "/job:worker/replica:0/task:1"}
    places["third"] = "/job:ps/replica:0/task:1"
    nodes = [rows[f"{task}/device:CPU:0"][name] for name, task in places.items()]
    # whole microseconds
    ends = [node.all_start_micros + node.all_end_rel_micros + 1 for node in nodes]
    assert before - 1 <= nodes[0].all_start_micros
    assert all(end <= later.all_start_micros + 1 for end, later in zip(ends, nodes[1:], strict=False))
    assert ends[-1] <= after + 1


def test_a_filter_hides_tasks(cluster: LocalCluster) -> None:
    with session(cluster, 1, device_filters=["/job:ps"]) as s:
        names = {device.name.rpartition("/")[0] for device in s.list_devices()}
        assert names == {
            "/job:ps/replica:0/task:0",
            "/job:ps/replica:0/task:1",
            "/job:worker/replica:0/task:1",
        }
        with worker(0):
            hidden = tf.constant(1) + tf.placeholder_with_default(1, [])
        with pytest.raises(tf.errors.InvalidArgumentError, match="worker"):
            s.run(hidden)


def test_a_step_is_one_message_to_each_task_and_one_for_each_tensor(cluster: LocalCluster) -> None:
    with ps(0):
        v = tf.get_variable("v", initializer=np.float32(1), use_resource=True)
    with ps(1):
        w = tf.get_variable("w", initializer=np.float32(1), use_resource=True)
    with worker(0):
        total = v.read_value() + w.read_value()
    with session(cluster) as s:
        s.run(tf.global_variables_initializer())
        s.run(total)
        before = cluster.messages
        s.run(total)
        assert cluster.messages - before == 3 + 2


def test_updates_are_counted_without_the_worker(cluster: LocalCluster) -> None:
    x = tf.placeholder(tf.float32, [])
    with tf.device(tf.train.replica_device_setter(2, worker_device="/job:worker/task:0")):
        step = tf.train.get_or_create_global_step()
        variables = [tf.get_variable(name, initializer=0.0, use_resource=True) for name in "ab"]
        gradient = x * 2
        train = tf.train.GradientDescentOptimizer(1.0).apply_gradients([(gradient, v) for v in variables], step)
    assert {v.device for v in variables} == {"/job:ps/task:0", "/job:ps/task:1"}
    with session(cluster) as s:
        s.run(tf.global_variables_initializer())
        s.run(train, {x: 1.0})
        before = cluster.messages
        s.run(train, {x: 1.0})
        # a start to each of three tasks, a gradient to two, and that one server has updated to the one that counts
        assert cluster.messages - before == 3 + 2 + 1
        assert s.run([step, *variables]) == [2, -4, -4]


# ---------------------------------------------------------------------- errors
def test_the_cause_is_told_and_not_its_consequences(cluster: LocalCluster) -> None:
    x = tf.placeholder(tf.float32, [])
    with ps(0):
        checked = tf.debugging.check_numerics(tf.log(x), "the logarithm", name="checked")
    with worker(1):
        result = checked + 1
    with session(cluster) as s:
        for _ in range(3):
            with pytest.raises(tf.errors.InvalidArgumentError, match="the logarithm") as caught:
                s.run(result, {x: -1.0})
            assert caught.value.op is checked.op
            assert s.run(result, {x: 1.0}) == 1.0
    assert all(task.state.containers.rendezvous.steps == 0 for task in cluster.tasks.values())


def test_a_deadline_names_who_waits_for_what(cluster: LocalCluster) -> None:
    with ps(0):
        queue = tf.FIFOQueue(1, [tf.float32], shared_name="never")
        element = queue.dequeue(name="element")
    with worker(1):
        result = element + 1
    with session(cluster) as s:
        with pytest.raises(tf.errors.DeadlineExceededError, match="Timed out") as caught:
            s.run(result, options=tf.RunOptions(timeout_in_ms=200))
        # either task may be the first to say so: who waits for the queue, or for what comes of its element
        by_the_queue = "'element' .* waits for 1 elements of FIFOQueue 'never', which holds 0"
        by_the_worker = "waits for .*element:0 from /job:ps/replica:0/task:0.* to /job:worker/replica:0/task:1"
        assert re.search(f"{by_the_queue}|{by_the_worker}", str(caught.value))
        s.run(queue.enqueue(1.0))
        assert s.run(result) == 2.0


def test_closing_cancels_what_waits(cluster: LocalCluster) -> None:
    with ps(0):
        queue = tf.FIFOQueue(1, [tf.float32], shared_name="closing")
        element = queue.dequeue()
    with worker(1):
        result = element + 1
    s = session(cluster)
    error = failure_of(cluster, s, result, s.close)
    assert isinstance(error, tf.errors.CancelledError)


def failure_of(cluster: LocalCluster, s: tf.Session, fetch: tf.Tensor, happens: Callable[[], object]) -> BaseException:
    """What a step that waits on the first parameter server fails with when something happens."""
    with ThreadPoolExecutor(1) as pool:
        step = pool.submit(s.run, fetch)
        wait_until_a_step_waits(cluster)
        happens()
        error = step.exception(DEADLINE)
    assert error is not None
    return error


def wait_until_a_step_waits(cluster: LocalCluster) -> None:
    """Waits until a step on the first parameter server does nothing but wait."""
    service: Any = cluster.tasks["/job:ps/replica:0/task:0"].service
    for _ in range(int(DEADLINE / 0.001)):
        if any(run.only_waits for lease in service._sessions.open for run in list(lease.held.session._active._runs)):
            return
        threading.Event().wait(0.001)
    raise AssertionError("no step waits")


# ---------------------------------------------------------------------- lost tasks
def test_a_lost_task_fails_its_steps_and_serves_again_when_it_is_back(cluster: LocalCluster) -> None:
    name = "/job:ps/replica:0/task:0"
    with ps(0):
        v = tf.get_variable("v", initializer=np.float32(7), use_resource=True)
    with ps(1):
        w = tf.get_variable("w", initializer=np.float32(1), use_resource=True)
    with worker(1):
        total = v + w
    with session(cluster) as s:
        s.run(tf.global_variables_initializer())
        assert s.run(total) == 8
        cluster.lose(name)
        with pytest.raises(tf.errors.UnavailableError):
            s.run(total)
        assert s.run(w) == 1, "what the lost task has no part in goes on"
        cluster.begin(name)
        with pytest.raises(tf.errors.AbortedError, match="another process"):
            s.run(total)
        with pytest.raises(tf.errors.FailedPreconditionError):
            s.run(total)
        s.run(v.initializer)
        assert s.run(total) == 8


def test_a_task_lost_in_a_step_fails_it_on_the_others(cluster: LocalCluster) -> None:
    with ps(0):
        queue = tf.FIFOQueue(1, [tf.float32], shared_name="lost")
        element = queue.dequeue()
    with worker(1):
        result = element + 1
    outcome: list[BaseException] = []
    with session(cluster) as s:

        def run() -> None:
            try:
                s.run(result)
            except tf.errors.OpError as error:
                outcome.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        wait_until_a_step_waits(cluster)
        cluster.lose("/job:ps/replica:0/task:0")
        thread.join(DEADLINE)
    assert isinstance(outcome[0], tf.errors.UnavailableError)
    assert cluster.tasks["/job:worker/replica:0/task:1"].state.containers.rendezvous.steps == 0


def test_a_task_that_got_the_address_of_another_is_not_asked_to_do_its_part(cluster: LocalCluster) -> None:
    with ps(0):
        v = tf.get_variable("v", initializer=np.float32(1), use_resource=True)
    name, other = "/job:ps/replica:0/task:0", "/job:worker/replica:0/task:1"
    with session(cluster) as s:
        s.run(v.initializer)
        cluster.lose(name)
        cluster.begin(other, instead=name)
        for _ in range(2):
            with pytest.raises(tf.errors.UnavailableError, match=f"{other} answers at .*, where {name} is expected"):
                s.run(v.initializer)
        with pytest.raises(tf.errors.UnavailableError, match=f"{other} answers at .*, where {name} is expected"):
            session(cluster)
        cluster.lose(name)
        cluster.begin(name)
        with pytest.raises(tf.errors.AbortedError, match="has come back as another process"):
            s.run(v.initializer)
        s.run(v.initializer)
        assert s.run(v) == 1


def test_a_task_refuses_what_is_for_another_that_had_its_address_until_just_now(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master has asked who is there, and then another task comes."""
    monkeypatch.setattr(cluster_master, "check_task", lambda name, address, said: None)
    with ps(0):
        v = tf.get_variable("v", initializer=np.float32(1), use_resource=True)
    name, other = "/job:ps/replica:0/task:0", "/job:worker/replica:0/task:1"
    with session(cluster) as s:
        cluster.lose(name)
        task = cluster.begin(other, instead=name)
        with pytest.raises(tf.errors.AbortedError):
            s.run(v.initializer)
        with pytest.raises(tf.errors.UnavailableError, match=f"{other} was asked to do what {name} is to do"):
            s.run(v.initializer)
        assert task.state.containers.rendezvous.steps == 0


def test_the_sessions_of_a_lost_client_end(cluster: LocalCluster) -> None:
    with ps(0):
        queue = tf.FIFOQueue(1, [tf.float32], shared_name="lease")
        element = queue.dequeue()
    s = session(cluster)
    error = failure_of(cluster, s, element, lambda: cluster.tasks["/job:ps/replica:0/task:0"].lost("client", "client"))
    assert isinstance(error, tf.errors.CancelledError)


def test_a_task_that_has_ended_is_a_lost_one_to_masters_of_other_processes(cluster: LocalCluster) -> None:
    """Also before its links have gone: whatever its sessions say, a monitored session is to look for it again."""
    with tf.device("/job:ps/task:0"):
        element = tf.FIFOQueue(1, [tf.float32], shapes=[[]], shared_name="to come").dequeue()
        there = tf.placeholder_with_default(1.0, []) * 2
    s = session(cluster)
    assert s.run(there) == 2
    error = failure_of(cluster, s, element, cluster.tasks["/job:ps/replica:0/task:0"].service.close)
    ended = "/job:ps/replica:0/task:0 has ended"
    assert isinstance(error, tf.errors.UnavailableError)
    assert ended in str(error)
    with pytest.raises(tf.errors.UnavailableError, match=ended):
        s.run(there)


def test_a_session_says_whom_it_waits_for() -> None:
    with local_cluster(ps=1, worker=1) as cluster:
        cluster.lose("/job:ps/replica:0/task:0")
        with pytest.raises(tf.errors.DeadlineExceededError, match="/job:ps/replica:0/task:0.example:1"):
            tf.Session(cluster.target(), config=tf.ConfigProto(operation_timeout_in_ms=100))


def test_a_session_can_wait_for_its_tasks_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with local_cluster(ps=1, worker=1) as cluster:
        cluster.lose("/job:ps/replica:0/task:0")
        refused, real = threading.Event(), cluster.task_at

        def task_at(address: str) -> Any:
            try:
                return real(address)
            except tf.errors.UnavailableError:
                refused.set()
                raise

        def starts() -> None:
            # the session has asked, in vain
            assert refused.wait(DEADLINE)
            cluster.begin("/job:ps/replica:0/task:0")

        monkeypatch.setattr(cluster, "task_at", task_at)
        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(starts)
            with session(cluster) as s:
                assert s.run(tf.constant(2) * 3) == 6
            starting.result(DEADLINE)


def test_a_process_that_was_a_task_before_is_not_taken_for_it_again(cluster: LocalCluster) -> None:
    """A task moves, comes back where it was as yet another process, and the one in between still answers."""
    name = "/job:ps/replica:0/task:0"
    there, elsewhere = cluster.addresses[name], "elsewhere.example:1"
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", initializer=1.0, use_resource=True)
        session = tf.Session(cluster.target())
        session.run(v.initializer)
        cluster.lose(name)
        # what other tasks say of it
        cluster.addresses[name] = elsewhere
        between = cluster.begin(name)
        assert told_once(session, v.initializer)
        session.run(v.initializer)
        # the link to it breaks, and there is no other yet
        cluster.connect(elsewhere).break_off()
        session.run(v)
        cluster.addresses[name] = there
        cluster.begin(name)
        cluster.connect(elsewhere).break_off()
        assert told_once(session, v.initializer)
        session.run(v.initializer)
        assert session.run(v.assign_add(1.0)) == 2.0
        # now others know the address of the one in between only, which answers, and so does the latest
        cluster.addresses[name] = elsewhere
        cluster.connect(there).break_off()
        assert session.run(v) == 2.0
        session.close()
        between.close()


def told_once(session: tf.Session, operation: tf.Operation) -> bool:
    with pytest.raises(tf.errors.AbortedError, match="another process"):
        session.run(operation)
    return True
