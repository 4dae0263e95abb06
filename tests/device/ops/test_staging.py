"""The operations on accumulators, staging areas, mutexes, stacks and maps of sparse tensors, run by sessions."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.frontend.resources.staging import MapStagingArea, StagingArea
from anabranch.ops import raw

DEADLINE = 30.0


def in_background(session: Any, fetches: Any) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(session.run(fetches)), daemon=True)
    thread.start()
    return thread, found


def joined(thread: threading.Thread) -> None:
    thread.join(DEADLINE)
    assert not thread.is_alive()


# ---------------------------------------------------------------------- accumulators
def test_what_an_accumulator_gives_in_a_branch() -> None:
    """AccumulatorTakeGradient: the handle that a branch is given says nothing of the shape of gradients."""
    sums = tf.ConditionalAccumulator(tf.float32, [2, 3], shared_name="in a branch")
    add = sums.apply_grad(np.full([2, 3], 4.0))
    taken = tf.cond(sums.num_accumulated() > 1, lambda: sums.take_grad(2), lambda: tf.zeros([2, 3]))
    with tf.Session() as session:
        session.run(add)
        assert (session.run(taken) == 0).all()
        session.run(add)
        assert (session.run(taken) == 4).all()


@pytest.mark.parametrize("prefix", ["", "Resource"])
def test_the_operations_of_an_accumulator(prefix: str) -> None:
    """ConditionalAccumulator, AccumulatorApplyGradient, AccumulatorTakeGradient, AccumulatorSetGlobalStep,
    AccumulatorNumAccumulated; ResourceConditionalAccumulator, ResourceAccumulatorApplyGradient,
    ResourceAccumulatorTakeGradient, ResourceAccumulatorSetGlobalStep, ResourceAccumulatorNumAccumulated.
    """

    def op(name: str) -> Any:
        return getattr(raw, prefix + name)

    handle = op("ConditionalAccumulator")(dtype=tf.float32, shape=[2])
    step, gradient = tf.placeholder(tf.int64, []), tf.placeholder(tf.float32, [None])
    apply = op("AccumulatorApplyGradient")(handle, step, gradient)
    take = op("AccumulatorTakeGradient")(handle, 2, dtype=tf.float32)
    count = op("AccumulatorNumAccumulated")(handle)
    assert take.shape.as_list() == [2]
    with tf.Session() as session:
        session.run(op("AccumulatorSetGlobalStep")(handle, np.int64(4)))
        session.run(apply, {step: 3, gradient: [9, 9]})
        assert session.run(count) == 0
        thread, found = in_background(session, take)
        session.run(apply, {step: 4, gradient: [1, 2]})
        session.run(apply, {step: 5, gradient: [3, 4]})
        joined(thread)
        assert found[0].tolist() == [2, 3]
        with pytest.raises(tf.errors.InvalidArgumentError, match="Shape mismatch"):
            session.run(apply, {step: 9, gradient: [1, 2, 3]})


def test_a_sparse_accumulator() -> None:
    """SparseConditionalAccumulator, SparseAccumulatorApplyGradient, SparseAccumulatorTakeGradient."""
    accumulator = tf.SparseConditionalAccumulator(tf.float32, shape=[4, 1], reduction_type="SUM")
    slices = tf.IndexedSlices(tf.constant([[1.0], [2.0]]), tf.constant([3, 0]), tf.constant([4, 1]))
    apply = accumulator.apply_indexed_slices_grad(slices)
    other = accumulator.apply_grad([3], [[5.0]])
    taken = accumulator.take_indexed_slices_grad(2)
    with tf.Session() as session:
        session.run(apply)
        session.run(other)
        assert session.run(accumulator.num_accumulated()) == 2
        value = session.run(taken)
        assert value.indices.tolist() == [0, 3]
        assert value.values.tolist() == [[2], [6]]
        assert value.dense_shape.tolist() == [4, 1]
        session.run(accumulator.set_global_step(3))
        session.run(accumulator.apply_grad([3], [[5.0]], local_step=2))
        assert session.run(accumulator.num_accumulated()) == 0


# ---------------------------------------------------------------------- staging areas
def test_the_operations_of_a_staging_area() -> None:
    """Stage, Unstage, StagePeek, StageSize, StageClear."""
    area = StagingArea([tf.float32, tf.int32], shapes=[[2], []], capacity=2)
    x = tf.placeholder(tf.float32, [2])
    put, get, peek, size = area.put([x, 7]), area.get(), area.peek(1), area.size()
    assert [t.shape.as_list() for t in get] == [[2], []]
    with tf.Session() as session:
        for value in (1, 2):
            session.run(put, {x: [value, value]})
        assert session.run(peek)[0].tolist() == [2, 2]
        thread, _ = in_background(session, area.put([[3.0, 3.0], 8]))
        assert session.run(get)[0].tolist() == [1, 1]
        joined(thread)
        assert session.run(size) == 2
        session.run(area.clear())
        assert session.run(size) == 0


@pytest.mark.parametrize("ordered", [False, True])
def test_the_operations_of_a_map(ordered: bool) -> None:
    """MapStage, MapUnstage, MapUnstageNoKey, MapPeek, MapSize, MapIncompleteSize, MapClear; OrderedMapStage,
    OrderedMapUnstage, OrderedMapUnstageNoKey, OrderedMapPeek, OrderedMapSize, OrderedMapIncompleteSize,
    OrderedMapClear.
    """
    area = MapStagingArea([tf.float32, tf.int32], shapes=[[], []], names=["f", "i"], ordered=ordered)
    with tf.Session() as session:
        session.run(area.put(5, {"f": 1.5}))
        assert session.run([area.size(), area.incomplete_size()]) == [0, 1]
        thread, found = in_background(session, area.peek(5))
        session.run(area.put(5, {"i": 3}))
        joined(thread)
        assert found[0] == {"f": 1.5, "i": 3}
        session.run(area.put(4, {"f": 2.5, "i": 4}))
        key, element = session.run(area.get())
        assert (key, element) == ((4, {"f": 2.5, "i": 4}) if ordered else (5, {"f": 1.5, "i": 3}))
        left = 5 if ordered else 4
        assert session.run(area.get(left, ["i"])) == (left, {"i": 3 if ordered else 4})
        session.run(area.clear())
        assert session.run([area.size(), area.incomplete_size()]) == [0, 0]


# ---------------------------------------------------------------------- critical sections
def test_what_is_read_and_written_in_a_critical_section_is_one() -> None:
    """MutexV2, MutexLock, ConsumeMutexLock."""
    section, total = tf.CriticalSection(), tf.Variable(0)

    def add() -> Any:
        seen = total.read_value()
        with tf.control_dependencies([seen]):
            seen = tf.py_func(lambda v: v, [seen], tf.int32)
        return total.assign(tf.reshape(seen, []) + 1)

    added = section.execute(add)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())

        def work() -> None:
            for _ in range(25):
                session.run(added)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            joined(thread)
        assert session.run(total) == 100


def test_many_sections_of_one_step_take_turns() -> None:
    section, total = tf.CriticalSection(), tf.Variable(0)
    added = [section.execute(lambda: total.assign_add(1), name=f"add_{i}") for i in range(20)]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert sorted(session.run(added)) == list(range(1, 21))


def test_a_section_waits_for_what_it_uses_before_it_takes_the_lock() -> None:
    section, v = tf.CriticalSection(name="section"), tf.get_variable("v", initializer=0)
    first = section.execute(lambda: tf.assign_add(v, 1))
    second = tf.cond(first > 0, lambda: section.execute(lambda: tf.assign_add(v, 10 * first)), lambda: first)
    third = section.execute(lambda: tf.assign_add(v, 10 * second))
    with tf.Session() as session:
        for _ in range(3):
            session.run(v.initializer)
            assert session.run(third) == 121


@pytest.mark.parametrize("where", ["a section", "a branch"])
def test_locks_are_taken_in_the_order_in_which_a_step_comes_to_their_variables(where: str) -> None:
    """Else the second has the lock, and waits for the first to update the variable, which waits for the lock."""
    section, v = tf.CriticalSection(name="section"), tf.get_variable("v", initializer=0)
    late = tf.FIFOQueue(1, tf.int32, [[]])
    amount = late.dequeue()
    first = section.execute(lambda: tf.assign_add(v, amount))
    if where == "a branch":
        first = tf.cond(amount > 0, lambda: section.execute(lambda: tf.assign_add(v, amount)), lambda: amount)
    second = section.execute(lambda: tf.assign(v, 2 * v))
    give = late.enqueue(1)
    with tf.Session(config=tf.ConfigProto(operation_timeout_in_ms=60_000)) as session:
        for _ in range(3):
            session.run(v.initializer)
            thread, results = in_background(session, [first, second])
            session.run(give)
            joined(thread)
            assert results == [[1, 2]]


def test_wrong_critical_sections() -> None:
    one, other, total = tf.CriticalSection(), tf.CriticalSection(), tf.Variable(0)
    one.execute(lambda: total.assign_add(1))
    with pytest.raises(ValueError, match="requested exclusive resource access"):
        other.execute(lambda: total.assign_add(1))
    with pytest.raises(ValueError, match="would cause deadlocks"):
        one.execute(lambda: one.execute(lambda: tf.constant(1)))


def test_a_step_that_fails_lets_the_lock_go() -> None:
    mutex = raw.MutexV2(shared_name="m")
    x = tf.placeholder(tf.int32, [])
    lock = raw.MutexLock(mutex)
    with tf.control_dependencies([lock]):
        checked = tf.Assert(x > 0, [x])
    with tf.control_dependencies([checked]):
        done = raw.ConsumeMutexLock(lock)
    kept = []  # whoever keeps an error keeps the frames that it went through
    with tf.Session() as session:
        for _ in range(2):
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                session.run(done, {x: 0})
            kept.append(caught.value)
        thread, _ = in_background(session, mutex.op)
        joined(thread)
        session.run(done, {x: 1})


# ---------------------------------------------------------------------- stacks
@pytest.mark.parametrize("version", ["V2", ""])
def test_the_operations_of_a_stack(version: str) -> None:
    """StackV2, StackPushV2, StackPopV2, StackCloseV2; Stack, StackPush, StackPop, StackClose."""

    def op(name: str) -> Any:
        return getattr(raw, f"Stack{name}{version}")

    handle = op("")(1 if version else tf.float32, elem_type=tf.float32) if version else op("")(elem_type=tf.float32)
    pushed = op("Push")(handle, [1.0, 2.0])
    with tf.control_dependencies([pushed]):
        popped = op("Pop")(handle, elem_type=tf.float32)
    with tf.control_dependencies([popped]):
        empty = op("Pop")(handle, elem_type=tf.float32)
        closed = op("Close")(handle)
    with tf.Session() as session:
        for _ in range(2):
            assert session.run([pushed, popped, closed])[:2][1].tolist() == [1, 2]
        with pytest.raises(tf.errors.InvalidArgumentError, match="empty when calling Pop"):
            session.run(empty)


# ---------------------------------------------------------------------- maps of sparse tensors
def test_sparse_tensors_by_number() -> None:
    """AddSparseToTensorsMap, AddManySparseToTensorsMap, TakeManySparseFromTensorsMap."""
    one = raw.AddSparseToTensorsMap(np.array([[1], [4]]), [10, 40], np.array([5]), shared_name="m")
    many = raw.AddManySparseToTensorsMap(
        np.array([[0, 2], [1, 0], [1, 1]]), [2, 10, 11], np.array([2, 3]), shared_name="m"
    )
    numbers = tf.placeholder(tf.int64, [None])
    take = raw.TakeManySparseFromTensorsMap(numbers, dtype=tf.int32, shared_name="m")
    with tf.Session() as session:
        first, rest = session.run([one, many])
        indices, values, shape = session.run(take, {numbers: [rest[1], first, rest[0]]})
        assert indices.tolist() == [[0, 0], [0, 1], [1, 1], [1, 4], [2, 2]]
        assert values.tolist() == [10, 11, 10, 40, 2]
        assert shape.tolist() == [3, 5]
        with pytest.raises(tf.errors.InvalidArgumentError, match="Unable to find SparseTensor"):
            session.run(take, {numbers: [first]})
