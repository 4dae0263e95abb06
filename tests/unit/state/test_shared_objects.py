"""Barriers, accumulators, staging areas, mutexes and stacks as pure machines."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest

from anabranch.core import dtypes
from anabranch.core.pending import Pending
from anabranch.core.shapes import TensorShape
from anabranch.errors import CancelledError, InvalidArgumentError, OutOfRangeError, ResourceExhaustedError
from anabranch.state.accumulators import DenseAccumulator, SparseAccumulator
from anabranch.state.barrier import SharedBarrier
from anabranch.state.components import Components
from anabranch.state.mutex import Mutex
from anabranch.state.stack import Stack
from anabranch.state.staging import StagedLine, StagedMap

GIVEN_UP = CancelledError(None, None, "given up")


def array(*values: float, dtype: Any = np.float32) -> Any:
    return np.array(values, dtype)


def lists(pending: Pending) -> list[Any]:
    assert pending.is_settled
    assert pending.error is None, pending.error
    return [v.tolist() for v in pending.values]


class Contended:
    """A lock that somebody else always has just taken when it is tried; whoever waits for it gets it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self, blocking: bool = True) -> bool:
        return blocking and self._lock.acquire()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_whoever_decides_answers_even_if_the_lock_is_never_free() -> None:
    a = DenseAccumulator("a", dtypes.float32, TensorShape([]), "SUM")
    first = a.take_gradient(1)
    a._lock = Contended()  # type: ignore[assignment]
    a.apply_gradient(0, np.float32(3))
    assert lists(first) == [3]
    second = a.take_gradient(1)
    a.apply_gradient(5, np.float32(4))
    assert lists(second) == [4]


# ---------------------------------------------------------------------- barriers
def barrier() -> SharedBarrier:
    return SharedBarrier(
        "b", Components((dtypes.float32, dtypes.float32), (TensorShape([]), TensorShape([2])), "Barrier 'b'")
    )


def test_a_barrier_puts_components_together() -> None:
    b = barrier()
    waiting = b.take_many(2)
    b.insert_many(0, [b"x", b"y", b"z"], array(1, 2, 3))
    assert (b.ready_size(), b.incomplete_size()) == (0, 3)
    b.insert_many(1, [b"z", b"x"], array(3, 3, 1, 1).reshape(2, 2))
    indices, keys, first, second = lists(waiting)
    assert (keys, first, second) == ([b"z", b"x"], [3, 1], [[3, 3], [1, 1]])
    assert indices[0] == indices[1]
    assert (b.ready_size(), b.incomplete_size()) == (0, 1)


def test_a_closed_barrier_completes_what_it_has() -> None:
    b = barrier()
    b.insert_many(0, [b"x", b"y"], array(1, 2))
    rest = b.take_many(5, up_to=True)
    b.request_close(by="end")
    with pytest.raises(CancelledError, match="brand new key: z"):
        b.insert_many(0, [b"z"], array(1))
    waiting = b.take_many(2)
    b.insert_many(1, [b"x", b"y"], array(1, 1, 2, 2).reshape(2, 2))
    assert lists(rest)[1] == [b"x", b"y"]
    late = b.take_many(1, up_to=True)
    assert isinstance(late.error, OutOfRangeError)
    with pytest.raises(OutOfRangeError, match=r"closed and has insufficient elements \(requested 2, total size 0\)"):
        raise waiting.error or AssertionError
    with pytest.raises(CancelledError, match="already closed"):
        b.request_close()


def test_who_waits_for_more_than_there_will_be_gets_what_is_ready_at_the_close() -> None:
    """What is incomplete may be completed by the very step that waits; in TensorFlow it waits for ever."""
    b = barrier()
    b.insert_many(0, [b"x", b"y", b"z"], array(1, 2, 3))
    b.insert_many(1, [b"x"], array(1, 1).reshape(1, 2))
    waiting, behind = b.take_many(2, up_to=True), b.take_many(2, up_to=True)
    assert not waiting.is_settled
    b.request_close()
    assert lists(waiting)[1] == [b"x"]
    # nothing is ready; what is may still come
    assert not behind.is_settled
    b.insert_many(1, [b"z"], array(3, 3).reshape(1, 2))
    assert lists(behind)[1] == [b"z"]


def test_a_barrier_closed_with_cancellation_forgets() -> None:
    b = barrier()
    b.insert_many(0, [b"x"], array(1))
    waiting = b.take_many(1)
    b.request_close(cancel_pending_enqueues=True)
    assert isinstance(waiting.error, OutOfRangeError)
    with pytest.raises(CancelledError, match="Pending enqueues cancelled: 1"):
        b.insert_many(1, [b"x"], array(1, 1).reshape(1, 2))


def test_wrong_insertions() -> None:
    b = barrier()
    b.insert_many(0, [b"x"], array(1))
    with pytest.raises(InvalidArgumentError, match="already has a value for component 0"):
        b.insert_many(0, [b"y", b"x"], array(1, 2))
    assert b.incomplete_size() == 1
    with pytest.raises(InvalidArgumentError, match="need 2 rows"):
        b.insert_many(0, [b"y", b"z"], array(1))
    with pytest.raises(InvalidArgumentError, match="out of range"):
        b.insert_many(2, [b"y"], array(1))
    with pytest.raises(InvalidArgumentError, match="Shape mismatch"):
        b.insert_many(1, [b"y"], array(1))


# ---------------------------------------------------------------------- accumulators
def test_an_accumulator_drops_what_is_stale() -> None:
    a = DenseAccumulator("a", dtypes.float32, TensorShape([2]), "MEAN")
    waiting = a.take_gradient(2)
    a.apply_gradient(0, array(1, 2))
    a.apply_gradient(0, array(3, 6))
    assert lists(waiting) == [[2, 4]]
    a.apply_gradient(0, array(100, 100))
    assert a.count == 0
    a.apply_gradient(1, array(5, 5))
    a.set_global_step(7)
    a.apply_gradient(6, array(100, 100))
    assert a.count == 1
    assert lists(a.take_gradient(1)) == [[5, 5]]


def test_gradients_beyond_the_most_that_count_are_late_before_anybody_takes_the_sum() -> None:
    dense = DenseAccumulator("a", dtypes.float32, TensorShape([2]), "MEAN")
    assert [dense.apply_gradient(0, array(value, value), most=2) for value in (1, 3, 100)] == [0, 0, 1]
    assert lists(dense.take_gradient(2)) == [[2, 2]]
    # what was late stays so; the next step has room
    assert [dense.apply_gradient(step, array(5, 5), most=2) for step in (0, 1)] == [1, 1]
    assert dense.count == 1
    sparse = SparseAccumulator("a", dtypes.float32, TensorShape([6, 1]), "MEAN")
    rows, nothing = np.array([4]), np.zeros(0, np.int64)
    for value, time in ((1, 0), (3, 0), (100, 1)):
        values = array(value).reshape(1, 1)
        assert sparse.apply_gradient(0, rows, values, nothing, False, most=2) == time
    assert lists(sparse.take_gradient(2)) == [[4], [[2]], [6, 1]]


def test_a_take_waits_for_no_more_gradients_than_are_expected() -> None:
    a = DenseAccumulator("a", dtypes.float32, TensorShape([1]), "MEAN")
    waiting = a.take_gradient(3)
    for value in (2, 4):
        assert a.apply_gradient(0, array(value), most=3) == 0
    assert not waiting.is_settled
    first, other = 5 << 32, 1 << 32
    a.expect(2, first + 7)
    assert lists(waiting) == [[3]]
    # a third of the same step is late, and so it is of the next while nobody takes
    assert a.apply_gradient(0, array(9), most=3) == 1
    assert [a.apply_gradient(1, array(6), most=3) for _ in range(3)] == [1, 1, 2]
    # what is older changes nothing; another who counts begins anew
    a.expect(1, first + 6)
    third = a.take_gradient(3)
    assert lists(third) == [[6]]
    waiting = a.take_gradient(3)
    a.expect(4, other)
    for _ in range(2):
        a.apply_gradient(2, array(1), most=3)
    assert not waiting.is_settled
    a.apply_gradient(2, array(4), most=3)
    assert lists(waiting) == [[2]]
    with pytest.raises(InvalidArgumentError, match="must be positive"):
        a.expect(0, other)


def test_a_cancelled_take_takes_nothing() -> None:
    a = DenseAccumulator("a", dtypes.int32, TensorShape(None), "MEAN")
    waiting = a.take_gradient(2)
    waiting.cancel(GIVEN_UP)
    for value in (-7, 2):
        a.apply_gradient(0, array(value, dtype=np.int32))
    assert lists(a.take_gradient(2)) == [[-2]]
    with pytest.raises(InvalidArgumentError, match="must be positive"):
        a.take_gradient(0)


def test_sums_and_wrong_gradients() -> None:
    a = DenseAccumulator("a", dtypes.float32, TensorShape([None]), "SUM")
    a.apply_gradient(0, array(1, 2))
    with pytest.raises(InvalidArgumentError, match=r"Shape mismatch.*expected \[2\], got \[3\]"):
        a.apply_gradient(0, array(1, 2, 3))
    with pytest.raises(InvalidArgumentError, match=r"Shape mismatch.*expected \[\?\], got \[1,1\]"):
        a.apply_gradient(0, array(1).reshape(1, 1))
    with pytest.raises(InvalidArgumentError, match="holds float32, but the gradient is int32"):
        a.apply_gradient(0, array(1, dtype=np.int32))
    a.apply_gradient(0, array(10, 20))
    assert lists(a.take_gradient(1)) == [[11, 22]]


def test_a_row_is_averaged_over_the_gradients_that_touch_it() -> None:
    random_numbers = np.random.default_rng(1)
    a = SparseAccumulator("a", dtypes.float32, TensorShape([6, 2]), "MEAN")
    total, count = np.zeros((6, 2)), np.zeros(6)
    for _ in range(5):
        rows = random_numbers.integers(0, 6, 4)
        values = random_numbers.normal(size=(4, 2)).astype(np.float32)
        a.apply_gradient(0, rows, values, np.array([6, 2]), True)
        np.add.at(total, rows, values)
        count[np.unique(rows)] += 1
    indices, values, shape = a.take_gradient(5).wait()
    assert indices.tolist() == np.flatnonzero(count).tolist()
    np.testing.assert_allclose(values, (total / np.maximum(count, 1)[:, None])[indices], rtol=1e-5)
    assert shape.tolist() == [6, 2]


def test_wrong_sparse_gradients() -> None:
    a = SparseAccumulator("a", dtypes.float32, TensorShape([3, 2]), "MEAN")
    good = np.zeros((1, 2), np.float32)
    nothing = np.zeros(0, np.int64)
    for indices, values, shape, message in (
        (np.array([3]), good, None, "index is 3 exceeded 3"),
        (np.array([[0]]), good, None, "should be vector"),
        (np.array([0, 1]), good, None, "non-empty input values, got 1"),
        (np.array([0]), np.zeros((1, 3), np.float32), None, "expected values dim 1 to be 2, got 3"),
        (np.array([0]), good, np.array([4, 2]), "expected shape dim 0 to be 3, got 4"),
        (np.array([0]), np.float32(1), None, "0-dimensional"),
        (nothing, np.zeros((0, 2), np.float32), None, "Empty indices"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            a.apply_gradient(0, indices, values, nothing if shape is None else shape, shape is not None)
    assert a.count == 0


# ---------------------------------------------------------------------- staging areas
def test_a_staging_area_is_a_bounded_line() -> None:
    area = StagedLine("s", capacity=2, memory_limit=0)
    second = area.peek(1)
    first = area.get()
    area.put([array(1)])
    assert lists(first) == [[1]]
    area.put([array(2)])
    area.put([array(3)])
    waiting = area.put([array(4)])
    assert lists(second) == [[3]]
    assert not waiting.is_settled
    area.clear()
    assert waiting.is_settled
    assert area.size() == 1


def test_a_staging_area_counts_bytes() -> None:
    area = StagedLine("s", capacity=0, memory_limit=12)
    area.put([array(1, 2)])
    waiting = area.put([array(3, 4)])
    assert not waiting.is_settled
    with pytest.raises(ResourceExhaustedError, match="'16' bytes .* limit of '12'"):
        area.put([array(1, 2, 3, 4)])
    assert lists(area.get()) == [[1, 2]]
    assert waiting.is_settled


def test_a_cancelled_put_puts_nothing() -> None:
    area = StagedLine("s", capacity=1, memory_limit=0)
    area.put([array(1)])
    one, other = area.put([array(2)]), area.put([array(3)])
    one.cancel(GIVEN_UP)
    assert lists(area.get()) == [[1]]
    assert other.is_settled
    assert lists(area.get()) == [[3]]


def test_a_map_gathers_components() -> None:
    area = StagedMap("m", ordered=True, capacity=0, memory_limit=0)
    waiting = area.get(5)
    area.put(5, [1], [array(2)], 2)
    area.put(7, [0, 1], [array(3), array(4)], 2)
    assert (area.size(), area.incomplete_size()) == (1, 1)
    area.put(5, [0], [array(1)], 2)
    assert lists(waiting) == [[1], [2]]
    area.put(6, [0, 1], [array(5), array(6)], 2)
    key, *parts = area.get_any().values
    assert (key, [p.tolist() for p in parts]) == (6, [[5], [6]])
    assert lists(area.peek(7, [1])) == [[4]]
    assert lists(area.get(7, [0])) == [[3]]
    with pytest.raises(InvalidArgumentError, match="already been removed"):
        area.get(7, [0]).wait()
    assert lists(area.get(7, [1])) == [[4]]
    assert area.size() == 0


def test_a_component_is_put_once() -> None:
    area = StagedMap("m", ordered=False, capacity=1, memory_limit=0)
    area.put(1, [0], [array(1)], 2)
    with pytest.raises(InvalidArgumentError, match="already been inserted"):
        area.put(1, [0], [array(1)], 2).wait()
    with pytest.raises(InvalidArgumentError, match=r"components \[2\] of an element that has 2"):
        area.put(1, [2], [array(1)], 2)
    waiting = area.put(2, [0, 1], [array(1), array(1)], 2)
    assert not waiting.is_settled
    again = area.put(2, [1], [array(9)], 2)
    assert not again.is_settled
    area.put(1, [1], [array(1)], 2)
    area.get(1)
    assert waiting.is_settled
    with pytest.raises(InvalidArgumentError, match="already been inserted"):
        again.wait()
    assert lists(area.get(2)) == [[1], [1]]
    assert (area.size(), area.incomplete_size()) == (0, 0)


def test_a_map_outlives_requests_that_do_not_fit_its_elements() -> None:
    area = StagedMap("m", ordered=False, capacity=0, memory_limit=0)
    area.put(1, [0], [array(1)], 2)
    with pytest.raises(InvalidArgumentError, match="an element that has 3, but the element for key 1 .* begun with 2"):
        area.put(1, [2], [array(3)], 3).wait()
    area.put(1, [1], [array(2)], 2)
    for get in (lambda: area.get(1, [0, 0]), lambda: area.get_any([1, 1])):
        with pytest.raises(InvalidArgumentError, match="name each once"):
            get()
    assert lists(area.peek(1, [0, 0])) == [[1], [1]]
    assert lists(area.get(1)) == [[1], [2]]


# ---------------------------------------------------------------------- mutexes and stacks
def test_a_lock_is_given_in_order() -> None:
    mutex = Mutex("m")
    requests = [mutex.acquire(str(i)) for i in range(4)]
    requests[1].cancel(GIVEN_UP)
    assert [r.is_settled for r in requests] == [True, True, False, False]
    requests[0].values[0].release()
    requests[0].values[0].release()
    assert requests[2].is_settled
    assert not requests[3].is_settled


def test_a_lock_that_nobody_refers_to_is_free() -> None:
    mutex = Mutex("m")
    held = mutex.acquire()
    waiting = mutex.acquire()
    del held
    assert waiting.is_settled


def test_a_stack() -> None:
    stack = Stack("s", dtypes.float32, 2)
    stack.push(array(1))
    stack.push(array(2))
    with pytest.raises(InvalidArgumentError, match="overflowed its max_size"):
        stack.push(array(3))
    assert [stack.pop().tolist(), stack.pop().tolist()] == [[2], [1]]
    with pytest.raises(InvalidArgumentError, match="empty when calling Pop"):
        stack.pop()
    with pytest.raises(InvalidArgumentError, match="holds float32"):
        stack.push(array(1, dtype=np.int32))
    stack.close()
    with pytest.raises(CancelledError, match="closed"):
        stack.push(array(1))


def test_a_hold_can_be_dropped_while_its_thread_has_the_lock_of_the_mutex() -> None:
    """As the garbage collector may do at any time."""
    mutex = Mutex("m")
    holds = [mutex.acquire().values[0]]
    waiting = mutex.acquire()
    with mutex._alone():
        holds.clear()
    assert waiting.is_settled


# ---------------------------------------------------------------------- interleavings
def test_random_interleavings_of_a_staging_area() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        area = StagedLine("s", capacity=chance.choice([0, 1, 3]), memory_limit=0)
        puts: list[tuple[Pending, int]] = []
        gets: list[Pending] = []
        for i in range(50):
            if chance.random() < 0.45:
                puts.append((area.put([array(i)]), i))
            elif chance.random() < 0.8:
                gets.append(area.get())
            else:
                waiting = [p for p in [*gets, *(p for p, _ in puts)] if not p.is_settled]
                if waiting:
                    chance.choice(waiting).cancel(GIVEN_UP)
        while area.size():
            gets.append(area.get())
        taken = [lists(g)[0][0] for g in gets if g.is_settled and g.error is None]
        assert taken == [i for p, i in puts if p.is_settled and p.error is None]
        assert not any(not p.is_settled for p, _ in puts)
