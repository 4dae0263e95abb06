"""Sessions whose worker shares nothing with them but messages.

`pytest --over-bytes tests/device` runs all tests of devices like that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.runtime.local_master import LocalMaster
from anabranch.testing.copied_messages import CopiedMessages, over_bytes
from tests.device.runtime.test_started_steps import DEADLINE, Outcomes, prepared


@pytest.fixture
def transport() -> Iterator[CopiedMessages]:
    with over_bytes() as transport:
        yield transport


def test_a_model_is_trained(transport: CopiedMessages) -> None:
    x, y = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [None, 1])
    loss = tf.reduce_mean(tf.square(tf.layers.dense(x, 1) - y))
    train = tf.train.AdamOptimizer(0.1).minimize(loss)
    data = np.eye(3, dtype=np.float32)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first = session.run(loss, {x: data, y: data[:, :1]})
        before = transport.count
        for _ in range(100):
            session.run(train, {x: data, y: data[:, :1]})
        assert transport.count - before == 101, "a message for each run, one for the partition"
        assert session.run(loss, {x: data, y: data[:, :1]}) < 0.01 * first


def test_loops_texts_functions_and_datasets(transport: CopiedMessages) -> None:
    def added(i: Any, total: Any) -> Any:
        number = tf.py_func(np.float32, [i], tf.float32)
        number.set_shape([])
        return i + 1, total + number

    total = tf.while_loop(lambda i, _: i < 4, added, (0, 0.0))
    text = tf.strings.join([tf.as_string(total[1]), "!"])
    dataset = tf.data.Dataset.range(6).map(lambda i: tf.cond(i > 2, lambda: i * 2, lambda: i)).batch(4)
    batch = tf.data.make_one_shot_iterator(dataset).get_next()
    with tf.Session() as session:
        found = session.run([text, batch])
        assert found[0] == b"6.000000!"
        np.testing.assert_array_equal(found[1], [0, 1, 2, 6])
        np.testing.assert_array_equal(session.run(batch), [8, 10])
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(batch)


def test_errors_name_the_users_operation(transport: CopiedMessages) -> None:
    index = tf.placeholder(tf.int32, [])
    row = tf.gather(tf.constant([1.0]), index, name="row")
    inside = tf.cond(index > 0, lambda: tf.strings.to_number(["no number"], name="inside"), lambda: [0.0])
    with tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            session.run(row, {index: 5})
        assert caught.value.op is row.op
        with pytest.raises(tf.errors.InvalidArgumentError, match="no number") as caught:
            session.run(inside, {index: 1})
        assert caught.value.op is not None
        assert caught.value.op.name.endswith("inside")


def test_traces_come_back(transport: CopiedMessages) -> None:
    y = tf.exp(tf.placeholder_with_default([1.0], [1]))
    metadata = tf.RunMetadata()
    with tf.Session() as session:
        session.run(y, options=tf.RunOptions(trace_level=tf.RunOptions.SOFTWARE_TRACE), run_metadata=metadata)
    assert [n.node_name for d in metadata.step_stats.dev_stats for n in d.node_stats] == [y.op.name]


def test_sessions_share_a_task_and_close_apart(transport: CopiedMessages) -> None:
    v = tf.get_variable("v", initializer=1.0, use_resource=True)
    q = tf.FIFOQueue(1, [tf.float32])
    with tf.Session("local://copied") as one, tf.Session("local://copied") as other:
        one.run(v.initializer)
        other.run(v.assign_add(1.0))
        assert one.run(v) == 2.0
        failed: list[Any] = []
        begun = threading.Event()
        # a step that has begun is cancelled; a session that is closed before it would refuse it
        with tf.control_dependencies([tf.py_func(lambda: begun.set() or np.float32(0), [], tf.float32)]):
            waiting = q.dequeue()

        def wait() -> None:
            try:
                other.run(waiting)
            except tf.errors.CancelledError as error:
                failed.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        assert begun.wait(60.0)
        other.close()
        thread.join(60.0)
        assert len(failed) == 1
        assert one.run(v) == 2.0
    tf.Session.reset("local://copied")


def test_started_steps_come_back(transport: CopiedMessages) -> None:
    q = tf.FIFOQueue(10, [tf.float32])
    x = tf.placeholder(tf.float32, [])
    master, outcomes = LocalMaster(), Outcomes()
    take, give = prepared(master, q.dequeue() + 1.0), prepared(master, q.enqueue(x), feeds=[x])
    for _ in range(3):
        take.start([], outcomes)
    for value in range(3):
        give.start([np.float32(value)], lambda _: None)
    assert sorted(outcomes.next()[0] for _ in range(3)) == [1.0, 2.0, 3.0]
    take.start([], outcomes, 0.05)
    with pytest.raises(tf.errors.DeadlineExceededError):
        outcomes.next()
    master.close()


def test_a_partition_that_nobody_holds_is_let_go(transport: CopiedMessages) -> None:
    master = LocalMaster()
    served: Any = transport.service._sessions.at(master.worker.name)  # type: ignore[attr-defined]
    step = prepared(master, tf.exp(1.0))
    assert step.run([])
    assert len(served.partitions) == 1
    before = set(served.partitions)
    del step
    # the next request takes along what the collector must not send by itself
    other = prepared(master, tf.exp(2.0))
    assert other.run([])
    assert len(served.partitions) == 1
    assert before.isdisjoint(served.partitions)
    master.close()
    master.forget()
    for _ in range(int(DEADLINE / 0.001)):  # nobody is told that it is done
        if not transport.service._sessions:
            return
        threading.Event().wait(0.001)
    raise AssertionError("the worker has not forgotten the session")


def test_a_closed_session_holds_nothing_on_its_task(transport: CopiedMessages) -> None:
    master = LocalMaster()
    served: Any = transport.service._sessions.at(master.worker.name)  # type: ignore[attr-defined]
    step = prepared(master, tf.exp(tf.placeholder_with_default(1.0, [])))
    assert step.run([])
    master.close()
    assert not served.partitions, "they hold the session's variables"
    with pytest.raises(tf.errors.CancelledError, match="session was closed"):
        step.run([])
