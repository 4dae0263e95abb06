"""The operations on queues and barriers, run by sessions.

Each test names the operation types it runs: FIFOQueueV2, PaddingFIFOQueueV2, PriorityQueueV2, RandomShuffleQueueV2,
QueueEnqueueV2, QueueEnqueueManyV2, QueueDequeueV2, QueueDequeueManyV2, QueueDequeueUpToV2, QueueSizeV2,
QueueIsClosedV2, QueueCloseV2, _SelectHandle; Barrier, BarrierInsertMany, BarrierTakeMany, BarrierClose,
BarrierReadySize, BarrierIncompleteSize.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.frontend.resources.queues import Barrier
from anabranch.ops import raw
from tests.device.shared_task import SharedTask

DEADLINE = 30.0


class Background:
    """A step in a thread; `result` waits for it, at most as long as a test may take."""

    def __init__(self, session: Any, fetches: Any) -> None:
        self._outcome: list[Any] = []
        self._thread = threading.Thread(target=self._run, args=(session, fetches), daemon=True)
        self._thread.start()

    def _run(self, session: Any, fetches: Any) -> None:
        try:
            self._outcome.append(session.run(fetches))
        except tf.errors.OpError as error:
            self._outcome.append(error)

    def result(self) -> Any:
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), "the step still waits"
        if isinstance(self._outcome[0], Exception):
            raise self._outcome[0]
        return self._outcome[0]


@pytest.fixture(params=["FIFOQueueV2", "PaddingFIFOQueueV2", "RandomShuffleQueueV2"])
def handle(request: pytest.FixtureRequest) -> Any:
    op = getattr(raw, request.param)
    return op(component_types=[tf.int32, tf.string], shapes=[[], []], capacity=3)


def test_the_operations_of_a_queue(handle: Any) -> None:
    types = [tf.int32, tf.string]
    one = raw.QueueEnqueueV2(handle, [np.int32(1), b"a"])
    several = raw.QueueEnqueueManyV2(handle, [np.array([2, 3], np.int32), [b"b", b"c"]])
    batch = raw.QueueDequeueManyV2(handle, 2, component_types=types)
    rest = raw.QueueDequeueUpToV2(handle, 5, component_types=types)
    single = raw.QueueDequeueV2(handle, component_types=types)
    assert [t.shape.as_list() for t in (*batch, *rest, *single)] == [[2], [2], [None], [None], [], []]
    with tf.Session() as session:
        session.run(one)
        session.run(several)
        assert session.run(raw.QueueSizeV2(handle)) == 3
        taken = session.run(batch)
        session.run(raw.QueueCloseV2(handle))
        assert session.run(raw.QueueIsClosedV2(handle))
        left = session.run(rest)
        pairs = sorted(zip(np.concatenate([taken[0], left[0]]), [*taken[1], *left[1]], strict=True))
        assert pairs == [(1, b"a"), (2, b"b"), (3, b"c")]
        with pytest.raises(tf.errors.OutOfRangeError, match=r"is closed and has insufficient elements \(requested 1"):
            session.run(single)
        with pytest.raises(tf.errors.CancelledError, match="is closed"):
            session.run(one)


def test_priorities() -> None:
    handle = raw.PriorityQueueV2(component_types=[tf.string], shapes=[[]], capacity=10)
    put = raw.QueueEnqueueManyV2(handle, [np.array([5, -1, 3]), [b"c", b"a", b"b"]])
    take = raw.QueueDequeueManyV2(handle, 3, component_types=[tf.int64, tf.string])
    with tf.Session() as session:
        session.run(put)
        assert [v.tolist() for v in session.run(take)] == [[-1, 3, 5], [b"a", b"b", b"c"]]


def test_a_consumer_waits_for_a_producer_and_the_reverse() -> None:
    queue = tf.FIFOQueue(1, tf.float32, shapes=[[2]])
    put, take = queue.enqueue([[1.0, 2.0]]), queue.dequeue_many(2)
    with tf.Session() as session:
        waiting = Background(session, take)
        session.run(put)
        session.run(put)
        assert waiting.result().tolist() == [[1, 2], [1, 2]]
        session.run(put)
        blocked = Background(session, put)
        session.run(take)
        blocked.result()


def test_steps_that_compute_before_and_after() -> None:
    queue = tf.FIFOQueue(10, tf.float32, shapes=[[]])
    x = tf.placeholder(tf.float32, [])
    put = queue.enqueue(tf.exp(x) * 2)
    total = tf.Variable(0.0)
    add = total.assign_add(queue.dequeue() / 2)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(put, {x: 0.0})
        session.run(put, {x: 1.0})
        session.run(add)
        assert session.run(add) == pytest.approx(1 + np.e)


def test_an_element_is_not_the_array_that_was_fed() -> None:
    queue = tf.FIFOQueue(10, tf.float32, shapes=[[3]])
    x = tf.placeholder(tf.float32, [3])
    put, take = queue.enqueue(x), queue.dequeue()
    value = np.ones(3, np.float32)
    with tf.Session() as session:
        session.run(put, {x: value})
        value[:] = 7
        assert session.run(take).tolist() == [1, 1, 1]


# ---------------------------------------------------------------------- the end
def test_closing_a_session_wakes_what_waits() -> None:
    queue = tf.FIFOQueue(1, tf.float32)
    take = queue.dequeue()
    task = SharedTask()
    session = task.session()
    entry = task.containers.find_object(session.run(queue.queue_ref))
    waiting = Background(session, take)
    deadline = time.monotonic() + DEADLINE
    while not entry.object.waiting():
        assert time.monotonic() < deadline
    session.close()
    with pytest.raises(tf.errors.CancelledError, match="was cancelled"):
        waiting.result()


def test_closing_cancels_producers_that_wait() -> None:
    queue = tf.FIFOQueue(1, tf.float32)
    put = queue.enqueue(1.0)
    with tf.Session() as session:
        session.run(put)
        waiting = Background(session, put)
        session.run(queue.close(cancel_pending_enqueues=True))
        with pytest.raises(tf.errors.CancelledError):
            waiting.result()


def test_the_error_names_operation_and_place() -> None:
    queue = tf.FIFOQueue(1, tf.float32, name="numbers")
    take = queue.dequeue(name="take_one")
    with tf.Session() as session:
        session.run(queue.close(name="finish"))
        with pytest.raises(tf.errors.OutOfRangeError) as caught:
            session.run(take)
    assert caught.value.op.name == "take_one"
    assert "'finish' closed it" in str(caught.value)
    assert "test_queues.py" in str(caught.value)


# ---------------------------------------------------------------------- shared queues and containers
def test_a_shared_queue_is_one_and_must_agree() -> None:
    one = tf.FIFOQueue(10, tf.float32, shapes=[[]], shared_name="q")
    same = tf.FIFOQueue(10, tf.float32, shapes=[[]], shared_name="q")
    own = tf.FIFOQueue(10, tf.float32, shapes=[[]])
    with tf.Session() as session:
        session.run(one.enqueue(3.0))
        assert session.run([same.size(), own.size()]) == [1, 0]
        assert session.run(same.dequeue()) == 3
        for other, fact in (
            (tf.FIFOQueue(11, tf.float32, shapes=[[]], shared_name="q"), "capacity"),
            (tf.FIFOQueue(10, tf.int32, shapes=[[]], shared_name="q"), "component types"),
            (tf.FIFOQueue(10, tf.float32, shapes=[[1]], shared_name="q"), "component shapes"),
            (tf.RandomShuffleQueue(10, 0, tf.float32, shapes=[[]], shared_name="q"), "queue type"),
        ):
            with pytest.raises(tf.errors.InvalidArgumentError, match=f"Shared queue 'q' has {fact}"):
                session.run(other.size())


def test_sessions_of_one_task_share_queues() -> None:
    graphs = [tf.Graph(), tf.Graph()]
    queues = []
    for graph in graphs:
        with graph.as_default():
            queues.append((tf.FIFOQueue(10, tf.int32, shared_name="between"), tf.FIFOQueue(10, tf.int32)))
    with (
        tf.Session("local://queues_of_a_test", graph=graphs[0]) as one,
        tf.Session("local://queues_of_a_test", graph=graphs[1]) as other,
    ):
        with graphs[0].as_default():
            one.run([queues[0][0].enqueue(5), queues[0][1].enqueue(6)])
        with graphs[1].as_default():
            assert other.run(queues[1][0].dequeue()) == 5
            assert other.run(queues[1][1].size()) == 0


def test_a_container_is_reset() -> None:
    with tf.container("mine"):
        queue = tf.FIFOQueue(10, tf.int32, name="q")
    put, size = queue.enqueue(1), queue.size()
    assert queue.queue_ref.op.get_attr("container") == b"mine"
    target = SharedTask().target
    with tf.Session(target) as session:
        session.run(put)
        tf.Session.reset(target, ["mine"])
        assert session.run(size) == 0


def test_one_queue_of_several() -> None:
    queues = [tf.FIFOQueue(5, tf.int32, shapes=[[]]) for _ in range(3)]
    which = tf.placeholder(tf.int32, [])
    chosen = tf.QueueBase.from_list(which, queues)
    put, take = chosen.enqueue(7), queues[1].dequeue()
    with tf.Session() as session:
        session.run(put, {which: 1})
        assert session.run(take) == 7
        with pytest.raises(tf.errors.InvalidArgumentError, match="no such queue"):
            session.run(put, {which: 3})


# ---------------------------------------------------------------------- wrong uses
def test_wrong_components() -> None:
    queue = tf.FIFOQueue(5, [tf.int32, tf.float32], shapes=[[], [2]])
    x, n = tf.placeholder(tf.float32, None), tf.placeholder(tf.int32, [])
    with pytest.raises(ValueError, match="2 components, but 1 were given"):
        queue.enqueue([1])
    with pytest.raises(ValueError, match="incompatible"):
        queue.enqueue([1, [1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match="must have the same length"):
        tf.FIFOQueue(5, [tf.int32, tf.float32], shapes=[[]])
    with tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"tuple component 1. Expected \[2\], got \[3\]"):
            session.run(queue.enqueue([1, x]), {x: [1, 2, 3]})
        with pytest.raises(tf.errors.InvalidArgumentError, match="holds"):
            session.run(raw.QueueDequeueV2(queue.queue_ref, component_types=[tf.int32]))
        with pytest.raises(tf.errors.InvalidArgumentError, match="-2 < 0"):
            session.run(queue.dequeue_many(n), {n: -2})


def test_a_handle_of_another_kind() -> None:
    reader = tf.TextLineReader()
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="needs the handle of a queue"):
        session.run(raw.QueueSizeV2(reader.reader_ref))


def test_names_of_components() -> None:
    queue = tf.FIFOQueue(5, [tf.int32, tf.float32], shapes=[[], []], names=["i", "f"])
    with tf.Session() as session:
        session.run(queue.enqueue({"f": 1.5, "i": 2}))
        assert session.run(queue.dequeue()) == {"i": 2, "f": 1.5}
        session.run(queue.enqueue_many({"f": [1.5, 2.5], "i": [2, 3]}))
        assert session.run(queue.dequeue_up_to(2))["f"].tolist() == [1.5, 2.5]
    with pytest.raises(ValueError, match="Keys in dictionary"):
        queue.enqueue({"i": 2})
    with pytest.raises(ValueError, match="You must enqueue a dictionary"):
        queue.enqueue([2, 1.5])


# ---------------------------------------------------------------------- barriers
def test_the_operations_of_a_barrier() -> None:
    handle = raw.Barrier(component_types=[tf.float32, tf.string], shapes=[[], []])
    first = raw.BarrierInsertMany(handle, [b"x", b"y"], [1.0, 2.0], component_index=0)
    second = raw.BarrierInsertMany(handle, [b"y", b"x"], [b"two", b"one"], component_index=1)
    take = raw.BarrierTakeMany(handle, 2, component_types=[tf.float32, tf.string])
    sizes = [raw.BarrierReadySize(handle), raw.BarrierIncompleteSize(handle)]
    assert take.values[0].shape.as_list() == [2]
    with tf.Session() as session:
        waiting = Background(session, take)
        session.run(first)
        assert session.run(sizes) == [0, 2]
        session.run(second)
        taken = waiting.result()
        found = dict(zip(taken.keys.tolist(), zip(*[v.tolist() for v in taken.values], strict=True), strict=True))
        assert found == {b"x": (1.0, b"one"), b"y": (2.0, b"two")}
        session.run(raw.BarrierClose(handle))
        with pytest.raises(tf.errors.OutOfRangeError, match="insufficient elements"):
            session.run(take)
        with pytest.raises(tf.errors.CancelledError, match="brand new key|closed"):
            session.run(first)


def test_a_barrier_of_the_front_end() -> None:
    barrier = Barrier((tf.float32,), shapes=((),), name="B")
    with tf.Session() as session:
        session.run(barrier.insert_many(0, [b"k"], [3.0]))
        assert session.run([barrier.ready_size(), barrier.incomplete_size()]) == [1, 0]
        _, keys, values = session.run(barrier.take_many(1))
        assert (keys.tolist(), values[0].tolist()) == ([b"k"], [3.0])
        session.run(barrier.close(cancel_pending_enqueues=True))
    with pytest.raises(ValueError, match="Empty tensors are not supported"):
        Barrier((tf.float32,), shapes=((0,),))


# ---------------------------------------------------------------------- steps that are given up
def test_steps_that_run_out_of_time_lose_nothing() -> None:
    queue = tf.FIFOQueue(3, tf.int32, shapes=[[]])
    x = tf.placeholder(tf.int32, [])
    put, batch = queue.enqueue(x), queue.dequeue_many(2)
    impatient = tf.RunOptions(timeout_in_ms=2)
    taken: list[int] = []
    with tf.Session() as session:

        def produce() -> None:
            for i in range(60):
                session.run(put, {x: i})

        producer = threading.Thread(target=produce, daemon=True)
        producer.start()
        deadline = time.monotonic() + DEADLINE
        while len(taken) < 60 and time.monotonic() < deadline:
            try:
                taken.extend(session.run(batch, options=impatient).tolist())
            except tf.errors.DeadlineExceededError:
                continue
        producer.join(DEADLINE)
        assert taken == list(range(60))
        assert session.run(queue.size()) == 0


@pytest.mark.parametrize("shapes", [None, [None], [2, None], []])
def test_partial_shapes_are_given_in_a_list(shapes: Any) -> None:
    with pytest.raises(ValueError, match="a list of shapes must be provided"):
        tf.PaddingFIFOQueue(3, tf.float32, shapes=shapes)


def test_fewer_than_no_elements_are_refused_while_the_graph_is_built() -> None:
    queue = tf.FIFOQueue(3, tf.float32, shapes=[[]])
    with pytest.raises(ValueError, match=r"'fifo_queue_DequeueMany' .*Input 'n' must be >= 0, but is -1"):
        queue.dequeue_many(-1)
