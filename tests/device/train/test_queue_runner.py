"""Threads that fill queues: their end, their failures, their coordinator, and their description in meta graphs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.device.pipelines import DEADLINE, counted, drained, ended, started


def test_the_last_thread_closes_the_queue() -> None:
    queue = tf.FIFOQueue(3, tf.int32, shapes=[[]])
    enqueues = [queue.enqueue(counted(20, f"c{i}")) for i in range(3)]
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, enqueues))
    take = queue.dequeue()
    with tf.Session() as session:
        coord, threads = started(session)
        assert len(threads) == 4
        assert sorted(drained(session, take)) == sorted([*range(20)] * 3)
        ended(coord, threads)


def test_a_failure_reaches_join_and_wakes_consumers() -> None:
    def fail(value: Any) -> Any:
        if value == 5:
            raise KeyError("no such record")
        return value

    queue = tf.FIFOQueue(100, tf.int32, shapes=[[]])
    broken = queue.enqueue(tf.reshape(tf.py_func(fail, [counted(100)], tf.int32), []))
    runner = tf.train.QueueRunner(queue, [broken])
    tf.train.add_queue_runner(runner)
    take = queue.dequeue()
    with tf.Session() as session:
        coord, threads = started(session)
        assert list(drained(session, take)) == [0, 1, 2, 3, 4]
        with pytest.raises(tf.errors.UnknownError, match="no such record"):
            coord.join(threads, stop_grace_period_secs=DEADLINE)
        assert len(runner.exceptions_raised) == 1


def test_a_stop_wakes_producers() -> None:
    queue = tf.FIFOQueue(1, tf.int32)
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(1)] * 3))
    with tf.Session() as session:
        coord, threads = started(session)
        session.run(queue.dequeue())
        ended(coord, threads)


def test_consumers_that_die_do_not_keep_producers() -> None:
    queue = tf.FIFOQueue(1, tf.int32)
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(1)] * 2))
    take = queue.dequeue()
    with tf.Session() as session:
        coord, threads = started(session)

        def consume() -> None:
            with coord.stop_on_exception():
                session.run(take)
                raise ValueError("the consumer is broken")

        consumer = threading.Thread(target=consume)
        consumer.start()
        with pytest.raises(ValueError, match="the consumer is broken"):
            coord.join([*threads, consumer], stop_grace_period_secs=DEADLINE)


def test_a_session_that_closes_ends_the_threads() -> None:
    queue = tf.FIFOQueue(1, tf.int32)
    runner = tf.train.QueueRunner(queue, [queue.enqueue(1)] * 2)
    with tf.Session() as session:
        threads = runner.create_threads(session, start=True, daemon=True)
        session.run(queue.dequeue())
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    assert len(runner.exceptions_raised) == 2


def test_threads_are_started_once_for_each_session() -> None:
    queue = tf.FIFOQueue(1, tf.int32)
    runner = tf.train.QueueRunner(queue, [queue.enqueue(1)])
    with tf.Session() as one, tf.Session() as other:
        coord = tf.train.Coordinator()
        threads = runner.create_threads(one, coord, daemon=True, start=True)
        assert not runner.create_threads(one, coord)
        threads += runner.create_threads(other, coord, daemon=True, start=True)
        assert len(threads) == 4
        ended(coord, threads)


def test_a_monitored_session_starts_them() -> None:
    queue = tf.FIFOQueue(5, tf.int32, shapes=[[]])
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(counted(7))]))
    tf.train.get_or_create_global_step()
    take = queue.dequeue()
    found = []
    with tf.train.MonitoredTrainingSession() as session:
        while not session.should_stop():
            found.append(session.run(take))
    assert found == list(range(7))


def test_a_meta_graph_keeps_them() -> None:
    queue = tf.FIFOQueue(5, tf.int32, shapes=[[]], name="q")
    tf.train.add_queue_runner(
        tf.train.QueueRunner(
            queue,
            [queue.enqueue(counted(3))],
            queue_closed_exception_types=(tf.errors.OutOfRangeError, tf.errors.CancelledError),
        )
    )
    taken = queue.dequeue(name="taken")
    meta_graph = tf.train.export_meta_graph()
    with tf.Graph().as_default():
        tf.train.import_meta_graph(meta_graph, import_scope="again")
        (runner,) = tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
        assert runner.name == "again/q"
        assert runner.queue_closed_exception_types == (tf.errors.OutOfRangeError, tf.errors.CancelledError)
        with tf.Session() as session:
            coord, threads = started(session)
            assert list(drained(session, f"again/{taken.name}")) == [0, 1, 2]
            ended(coord, threads)
        message = runner.to_proto(export_scope="again")
        assert message.queue_name == "q"
        assert runner.to_proto(export_scope="elsewhere") is None


def test_wrong_arguments() -> None:
    queue = tf.FIFOQueue(5, tf.int32)
    with pytest.raises(ValueError, match="Must provide queue and enqueue_ops"):
        tf.train.QueueRunner(queue)
    with pytest.raises(TypeError, match="tuple of tf.error types"):
        tf.train.QueueRunner(queue, [queue.enqueue(1)], queue_closed_exception_types=(ValueError,))
    with pytest.raises(ValueError, match="No default session"):
        tf.train.start_queue_runners()
    with pytest.raises(TypeError, match="must be a `tf.Session` object"):
        tf.train.start_queue_runners("session")


def test_a_text_pipeline(tmp_path: Any) -> None:
    """Files -> lines -> shuffled batches, with several threads, until the input is used up."""
    for i in range(3):
        (tmp_path / f"part{i}.csv").write_text("".join(f"{i},{j}\n" for j in range(10)), "utf-8")
    names = tf.train.match_filenames_once(str(tmp_path / "*.csv"))
    queue = tf.train.string_input_producer(names, num_epochs=2)
    _, line = tf.TextLineReader().read(queue)
    part, number = tf.decode_csv(line, [[0], [0]])
    batches = tf.train.shuffle_batch(
        [part, number], 8, capacity=40, min_after_dequeue=10, num_threads=2, allow_smaller_final_batch=True
    )
    with tf.Session() as session:
        coord, threads = started(session)
        found = list(drained(session, batches))
        ended(coord, threads)
    pairs = [tuple(p) for one in found for p in np.stack(one, 1).tolist()]
    assert sorted(pairs) == sorted([(i, j) for i in range(3) for j in range(10)] * 2)
    assert [len(one[0]) for one in found] == [8] * 7 + [4]


def test_threads_that_begin_after_join_has_are_waited_for() -> None:
    done: list[str] = []
    last = threading.Thread(target=lambda: done.append("last"), daemon=True)

    def begin_the_last() -> None:
        first.join()
        threading.Event().wait(0.1)  # long enough that `join` looks meanwhile
        last.start()

    go = threading.Event()
    first = threading.Thread(target=go.wait, args=(DEADLINE,), daemon=True)
    first.start()
    starter = threading.Thread(target=begin_the_last, daemon=True)
    coord = tf.train.Coordinator()
    joined = threading.Thread(target=coord.join, args=([first, last],), daemon=True)
    joined.start()
    starter.start()
    go.set()
    joined.join(DEADLINE)
    assert done == ["last"]
    # nobody waits for a thread that nobody runs beside
    coord.join([threading.Thread(target=lambda: None)])
    starter.join(DEADLINE)
