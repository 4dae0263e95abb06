"""Faults of networks, tasks and programs, injected for real: each test sees that it happened, and what became of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.distributed import described_tasks, links
from tests.cluster.places import DEADLINE, until
from tests.cluster.proxies import ProxiedCluster, ProxiedTask, proxied

PS, WORKER = "/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"


def on(job: str, index: int = 0) -> Any:
    return tf.device(f"/job:{job}/task:{index}")


def session(cluster: ProxiedCluster, target: str = "worker/0") -> tf.Session:
    config = tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))
    return tf.Session(cluster.target(target), config=config)


def within(milliseconds: int) -> Any:
    return tf.RunOptions(timeout_in_ms=milliseconds)


def started(call: Callable[[], Any]) -> Future[Any]:
    """The outcome of a call on a thread of its own."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is believed soon."""
    for name, seconds in {"BEAT_EVERY": 0.25, "SUSPECT_AFTER": 0.7, "LOST_AFTER": 1.5}.items():
        monkeypatch.setattr(links, name, seconds)


def until_it_runs(s: tf.Session, fetch: Any, value: float) -> None:
    """Runs a step again until nobody is lost in it any more; any value but the right one is an error."""

    def runs() -> bool:
        try:
            assert s.run(fetch, options=within(2000)) == value
        except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError):
            return False
        return True

    until(runs, "a step that runs")


def nothing_is_under_way(cluster: ProxiedCluster, *names: str) -> bool:
    return all(cluster.tasks[name].steps == 0 for name in names)


# ---------------------------------------------------------------------- networks
def test_a_cut_in_one_direction_is_noticed_by_both_and_healed(impatient: None) -> None:
    with proxied(ps=1, worker=1) as cluster:
        with on("ps"):
            v = tf.get_variable("v", initializer=3.0, use_resource=True)
        with on("worker"):
            doubled = v * 2
        with session(cluster) as s:
            s.run(v.initializer)
            assert s.run(doubled) == 6
            # what the parameter server sends goes on arriving
            cluster.proxies["ps/0"].cut()
            with pytest.raises((tf.errors.UnavailableError, tf.errors.AbortedError), match="ps"):
                s.run(doubled)
            assert cluster.proxies["ps/0"].held
            # it is the only one who hears nothing; the others are told, and what it says arrives
            until(lambda: {"client", WORKER} <= set(cluster.tasks["ps/0"].handler.losses), "its loss of both")
            until(lambda: PS in cluster.tasks["worker/0"].handler.losses, "its word to the worker")
            cluster.proxies["ps/0"].heal()
            until(lambda: nothing_is_under_way(cluster, "ps/0", "worker/0"), "the end of the steps")
            until_it_runs(s, doubled, 6)


@pytest.mark.parametrize("is_cut_both_ways", [False, True], ids=["one way", "both ways"])
def test_two_tasks_that_cannot_reach_each_other_end_the_step_though_the_master_reaches_both(
    impatient: None, is_cut_both_ways: bool
) -> None:
    with proxied(ps=1, worker=1) as cluster:
        with on("ps"):
            v = tf.get_variable("v", initializer=3.0, use_resource=True)
        with on("worker"):
            doubled = v * 2
        with session(cluster) as s:
            s.run(v.initializer)
            assert s.run(doubled) == 6
            ways = {"worker/0": "ps/0"} | ({"ps/0": "worker/0"} if is_cut_both_ways else {})
            for there, here in ways.items():
                cluster.proxies[there].cut(cluster.tasks[here].endpoint)
            with pytest.raises(tf.errors.UnavailableError, match="the link between") as caught:
                s.run(doubled)
            assert PS in str(caught.value)
            assert WORKER in str(caught.value)
            if is_cut_both_ways:
                # neither has been told by the other
                for here, name in (("worker/0", PS), ("ps/0", WORKER)):
                    until(lambda here=here, name=name: name in cluster.tasks[here].handler.losses, "the loss")  # type: ignore[misc]
            for there in ways:
                assert cluster.proxies[there].held
            assert s.run(v) == 3, "the master and the parameter server work on"
            for there in ways:
                cluster.proxies[there].heal()
            until_it_runs(s, doubled, 6)


def test_a_step_over_a_link_with_a_delay_takes_as_long_and_no_error() -> None:
    with proxied(ps=1, worker=1) as cluster:
        with on("ps"):
            v = tf.get_variable("v", initializer=3.0, use_resource=True)
        with on("worker"):
            doubled = v * 2
        with session(cluster) as s:
            s.run(v.initializer)
            s.run(doubled)
            proxy = cluster.proxies["worker/0"]
            passed = proxy.passed_from[cluster.tasks["ps/0"].endpoint.incarnation]
            proxy.delay = 0.2
            began = time.monotonic()
            assert s.run(doubled, options=within(10_000)) == 6
            assert time.monotonic() - began >= 0.2
            assert proxy.delayed
            assert proxy.passed_from[cluster.tasks["ps/0"].endpoint.incarnation] > passed, "the value came by it"


def test_what_is_large_on_a_slow_link_does_not_hold_up_what_is_small() -> None:
    with proxied(ps=1, worker=1) as cluster:
        value = np.arange(1 << 20, dtype=np.float32)
        with on("ps"):
            large = tf.get_variable("large", initializer=value, use_resource=True)
            small = tf.get_variable("small", initializer=3.0, use_resource=True)
        with on("worker"):
            total, doubled = tf.reduce_max(large), small * 2
        with session(cluster) as s:
            s.run(tf.global_variables_initializer())
            s.run([total, doubled])
            passed = cluster.proxies["worker/0"].passed
            cluster.proxies["worker/0"].bytes_per_second = 3e6
            slow = started(lambda: s.run(total))
            until(lambda: cluster.proxies["worker/0"].passed > passed + 200_000, "the beginning of the tensor")
            assert s.run(doubled) == 6
            assert not slow.done(), "the small step ended while the large one was under way"
            assert slow.result(DEADLINE) == value[-1]
            assert cluster.proxies["worker/0"].passed > passed + value.nbytes


@pytest.mark.parametrize("resets", [True, False], ids=["reset", "truncated"])
def test_a_connection_that_breaks_within_a_tensor_fails_the_step_and_leaves_nothing_half_done(resets: bool) -> None:
    with proxied(ps=1, worker=1) as cluster:
        value = np.arange(2 << 20, dtype=np.float32)
        with on("ps"):
            v = tf.get_variable("v", initializer=tf.zeros_like(value), use_resource=True)
        with on("worker"):
            update = tf.constant(value)
        with on("ps"):
            assign = v.assign(update)
            first_and_last = tf.gather(v, [1, value.size - 1])
        with session(cluster) as s:
            s.run(v.initializer)
            s.run(first_and_last)
            proxy = cluster.proxies["ps/0"]
            proxy.resets, proxy.break_after = resets, value.nbytes // 2
            with pytest.raises(tf.errors.UnavailableError, match="may be lost|the link between"):
                s.run(assign.op)
            assert proxy.broken == 1
            until(lambda: nothing_is_under_way(cluster, "ps/0", "worker/0"), "the end of the steps")
            assert s.run(first_and_last).tolist() == [0, 0]
            s.run(assign.op)
            assert s.run(first_and_last).tolist() == [1, value.size - 1]


def test_who_only_floods_a_task_does_not_keep_others_from_it() -> None:
    from tests.cluster.places import Stranger

    with proxied(ps=1, worker=1) as cluster:
        stranger = Stranger("proxied")
        try:
            with on("ps"):
                v = tf.get_variable("v", initializer=3.0, use_resource=True)
            with on("worker"):
                doubled = v * 2
            with session(cluster) as s:
                s.run(v.initializer)
                s.run(doubled)
                endpoint = cluster.tasks["ps/0"].endpoint
                push = stranger.connect(endpoint.address)
                stranger.hello(push)
                before = endpoint.handed_over
                stop = threading.Event()

                # what waits is bounded: whoever sends on has had messages taken, if only to be dropped
                sent = 0

                def flood() -> None:
                    nonlocal sent
                    frame = b"no message of a session"
                    while not stop.is_set():
                        kind = links.MessageKind.MESSAGE
                        header = stranger.header(kind, sent + 1, [frame], receiver=endpoint.incarnation)
                        push.send_multipart([header, frame])
                        sent += 1

                flooding = threading.Thread(target=flood)
                flooding.start()
                try:
                    until(lambda: endpoint.handed_over > before + 1000, "the flood")
                    for _ in range(5):
                        before = sent
                        assert s.run(doubled, options=within(10_000)) == 6
                        until(lambda before=before: sent > before + 100, "more of it")  # type: ignore[misc]
                finally:
                    stop.set()
                    flooding.join(DEADLINE)
        finally:
            stranger.close()


# ---------------------------------------------------------------------- tasks
def waiting_step(cluster: ProxiedCluster, name: str) -> tuple[Any, Any]:
    """A queue on a parameter server, and a step in which a worker waits for what comes of its element."""
    with on("ps"):
        queue = tf.FIFOQueue(1, [tf.float32], shapes=[[]], shared_name=name)
        element = queue.dequeue()
    with on("worker"):
        result = element * 2
    return queue, result


def test_the_death_of_a_producer_ends_the_step_of_those_who_wait_for_it() -> None:
    with proxied(ps=1, worker=1) as cluster:
        _, result = waiting_step(cluster, "producer")
        with session(cluster) as s:
            step = started(lambda: s.run(result))
            until(lambda: cluster.tasks["worker/0"].steps == cluster.tasks["ps/0"].steps == 1, "the step")
            cluster.tasks["ps/0"].kill()
            with pytest.raises(tf.errors.UnavailableError, match=PS):
                step.result(DEADLINE)
            assert nothing_is_under_way(cluster, "worker/0")


def test_the_death_of_a_consumer_ends_the_step_of_the_producer_which_loses_no_element() -> None:
    with proxied(ps=1, worker=2) as cluster:
        queue, result = waiting_step(cluster, "consumer")
        with on("ps"):
            put, get = queue.enqueue(7.0), queue.dequeue()
        with session(cluster, "worker/1") as s:
            step = started(lambda: s.run(result))
            until(lambda: cluster.tasks["worker/0"].steps == cluster.tasks["ps/0"].steps == 1, "the step")
            cluster.tasks["worker/0"].kill()
            with pytest.raises(tf.errors.UnavailableError, match=WORKER):
                step.result(DEADLINE)
            assert nothing_is_under_way(cluster, "ps/0"), "the step that waited for an element was cancelled"
            s.run(put)
            assert s.run(get) == 7


def test_death_inside_a_loop_of_several_tasks_ends_it_everywhere() -> None:
    with proxied(ps=1, worker=1) as cluster:
        with on("ps"):
            rounds = tf.get_variable("rounds", initializer=0, use_resource=True)

        def body(i: Any) -> Any:
            with on("ps"):
                counted = rounds.assign_add(1, read_value=True)
            with on("worker"), tf.control_dependencies([tf.identity(counted)]):
                return tf.py_func(lambda n: n + 1, [i], tf.int32)

        loop = tf.while_loop(lambda i: i < 1_000_000, body, [tf.constant(0)], shape_invariants=[tf.TensorShape(None)])
        with session(cluster, "ps/0") as s:
            s.run(rounds.initializer)
            step = started(lambda: s.run(loop))
            until(lambda: s.run(rounds) > 10, "ten iterations")
            cluster.tasks["worker/0"].kill()
            with pytest.raises(tf.errors.UnavailableError, match=WORKER):
                step.result(DEADLINE)
            assert nothing_is_under_way(cluster, "ps/0")
            reached = s.run(rounds)
            assert 10 < reached < 1_000_000
            assert s.run(rounds) == reached, "no iteration goes on"


def test_dead_tensors_cross_tasks_as_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    with proxied(ps=1, worker=1) as cluster:
        condition = tf.placeholder(tf.bool, [])
        with on("ps"):
            no, yes = tf.raw_ops.Switch(data=tf.constant(5.0) * 1, pred=condition)
            no, yes = tf.py_func(lambda x: x + 1, [no], tf.float32), tf.py_func(lambda x: x + 2, [yes], tf.float32)
        with on("worker"):
            no, yes = no * 10, yes * 10
        with on("ps"):
            merged, _ = tf.raw_ops.Merge(inputs=[no, yes])
        rendezvous = cluster.tasks["worker/0"].task.state.containers.rendezvous  # type: ignore[union-attr]
        arrived: list[Any] = []
        arrive = rendezvous.arrive
        monkeypatch.setattr(
            rendezvous, "arrive", lambda key, value, size: (arrived.append(value), arrive(key, value, size))
        )
        with session(cluster) as s:
            assert s.run(merged, {condition: True}) == 70
            assert s.run(merged, {condition: False}) == 60
        dead = [value for value in arrived if not hasattr(value, "shape")]
        assert len(dead) == 2, "of each step, the branch that was not taken came as dead"


def test_a_late_value_of_a_dead_incarnation_is_dropped() -> None:
    with proxied(ps=1, worker=1) as cluster:
        with on("ps"):
            v = tf.get_variable("v", initializer=3.0, use_resource=True)
        with on("worker"):
            doubled = v * 2
        with session(cluster) as s:
            s.run(v.initializer)
            # what the old incarnation sends is under way while it dies
            proxy = cluster.proxies["worker/0"]
            proxy.cut(cluster.tasks["ps/0"].endpoint)
            step = started(lambda: s.run(doubled))
            until(lambda: proxy.held > 0, "a value under way")
            old = cluster.tasks["ps/0"]
            old.kill()
            with pytest.raises(tf.errors.UnavailableError):
                step.result(DEADLINE)
            cluster.tasks["ps/0"] = new = ProxiedTask(old.name, old.port)
            new.begin(cluster.addresses)
            proxy.heal()
            with pytest.raises(tf.errors.AbortedError, match="come back as another process"):
                s.run(v.initializer)
            s.run(v.initializer)
            # the worker may hear of the new incarnation only when that sends it something
            until_it_runs(s, doubled, 6)
            assert nothing_is_under_way(cluster, "ps/0", "worker/0")


def test_a_late_gradient_of_a_dead_worker_changes_nothing() -> None:
    with proxied(ps=1, worker=1) as cluster:
        with on("ps"):
            v = tf.get_variable("v", initializer=3.0, use_resource=True)
        with on("worker"):
            gradient = 2 * tf.placeholder_with_default(1.0, [])
        with on("ps"):
            update = v.assign_add(gradient)
        with session(cluster, "ps/0") as s:
            s.run(v.initializer)
            assert s.run(update) == 5
            proxy, old = cluster.proxies["ps/0"], cluster.tasks["worker/0"]
            proxy.cut(old.endpoint)
            step = started(lambda: s.run(update))
            until(lambda: proxy.held > 0, "a gradient under way")
            old.kill()
            with pytest.raises((tf.errors.UnavailableError, tf.errors.AbortedError)):
                step.result(DEADLINE)
            cluster.tasks["worker/0"] = new = ProxiedTask(old.name, old.port)
            new.begin(cluster.addresses)
            passed = proxy.passed_from[old.endpoint.incarnation]
            proxy.heal()
            until(lambda: proxy.passed_from[old.endpoint.incarnation] > passed, "the late gradient")
            assert s.run(v) == 5
            until_it_runs(s, 2 * update, 14)
            assert s.run(v) == 7
            assert nothing_is_under_way(cluster, "ps/0", "worker/0")


def test_an_update_of_several_servers_may_be_there_uncounted_when_its_worker_dies() -> None:
    """Each server applies its part by itself; the step is counted when all have done so, and not if that is unknown."""
    with proxied(ps=2, worker=1) as cluster:
        with tf.device(tf.train.replica_device_setter(2, worker_device="/job:worker/task:0")):
            step = tf.train.get_or_create_global_step()
            variables = [tf.get_variable(name, initializer=0.0, use_resource=True) for name in "ab"]
            gradient = -tf.placeholder_with_default(1.0, [])
            optimizer = tf.train.GradientDescentOptimizer(1.0)
            train = optimizer.apply_gradients([(gradient, v) for v in variables], step)
        (here,), (there,) = ([v for v in variables if v.device == f"/job:ps/task:{i}"] for i in range(2))
        assert step.device == "/job:ps/task:0"
        with session(cluster, "ps/0") as s:
            s.run([v.initializer for v in (step, *variables)])
            s.run(train)
            cluster.proxies["ps/0"].cut(cluster.tasks["ps/1"].endpoint)
            begun = started(lambda: s.run(train))
            until(lambda: s.run([here, there], options=within(5000)) == [2, 2], "both updates")
            assert s.run(step) == 1
            cluster.tasks["worker/0"].kill()
            with pytest.raises((tf.errors.UnavailableError, tf.errors.AbortedError), match=WORKER):
                begun.result(DEADLINE)
            cluster.proxies["ps/0"].heal()
            until(lambda: nothing_is_under_way(cluster, "ps/0", "ps/1"), "the end of the step")
            assert s.run([step, here, there]) == [1, 2, 2]


# ---------------------------------------------------------------------- programs
def test_an_exception_in_one_task_is_the_cause_that_all_others_end_for() -> None:
    with proxied(ps=1, worker=2) as cluster:
        _queue, waits = waiting_step(cluster, "never")

        def fails() -> np.float32:
            until(lambda: cluster.tasks["ps/0"].steps == cluster.tasks["worker/0"].steps == 1, "the others' beginning")
            raise ValueError("the data are wrong")

        with on("worker", 1):
            failing = tf.py_func(fails, [], tf.float32, name="reader")
        with session(cluster) as s:
            with pytest.raises(tf.errors.InvalidArgumentError, match="the data are wrong") as caught:
                s.run([waits, failing])
            assert caught.value.op is not None
            assert caught.value.op.name == "reader"
            assert nothing_is_under_way(cluster, "ps/0", "worker/0", "worker/1")


@pytest.mark.parametrize("whose", ["Python's", "XLA's"])
def test_a_task_without_memory_fails_its_step_and_serves_the_next(whose: str) -> None:
    with proxied(ps=1, worker=2) as cluster:
        _, waits = waiting_step(cluster, "memory")
        size = tf.placeholder(tf.int32, [1])

        def length(megas: Any) -> Any:
            if megas[0] > 1:
                until(lambda: cluster.tasks["ps/0"].steps == cluster.tasks["worker/0"].steps == 1, "their beginning")
            return np.int64(megas[0]) << 20

        with on("worker", 1):
            megabytes = tf.py_func(length, [size], tf.int64)
            if whose == "Python's":
                ones = tf.py_func(lambda n: np.ones(n, np.float32), [megabytes], tf.float32)
            else:
                ones = tf.fill(tf.reshape(megabytes, [1]), 1.0)
            total = tf.reduce_sum(tf.identity(ones))
        with session(cluster) as s:
            with pytest.raises(tf.errors.ResourceExhaustedError):
                s.run([waits, total], {size: [1 << 30]})
            assert nothing_is_under_way(cluster, "ps/0", "worker/0", "worker/1")
            assert s.run(total, {size: [1]}) == 1 << 20


def test_resetting_a_cluster_does_not_wait_for_ever_for_a_task_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(described_tasks, "RESET_WITHIN", 0.5)
    with proxied(ps=1, worker=1) as cluster:
        cluster.tasks["worker/0"].kill()
        with pytest.raises(tf.errors.DeadlineExceededError, match="did not answer"):
            tf.Session.reset(cluster.target("worker/0"))
