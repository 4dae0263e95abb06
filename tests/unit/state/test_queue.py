"""Queues as pure machines: random interleavings against a model that counts what goes in and comes out."""

from __future__ import annotations

import collections
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anabranch.core import dtypes
from anabranch.core.pending import Pending
from anabranch.core.shapes import TensorShape
from anabranch.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from anabranch.state.components import Components
from anabranch.state.element_stores import ElementStore, FifoStore, PriorityStore, ShuffleStore
from anabranch.state.queue import Queue

DEADLINE = 30.0
GIVEN_UP = CancelledError(None, None, "given up")


def queue_of(capacity: int, store: ElementStore, shape: Any = ()) -> Queue:
    components = Components((dtypes.int64,), (TensorShape(shape),), "Queue 'q'")
    return Queue("q", "Queue", components, capacity, store)


def number(value: int) -> list[Any]:
    return [np.array(value, np.int64)]


def values_of(pending: Pending) -> list[int]:
    assert pending.is_settled
    assert pending.error is None
    return [int(v) for v in np.reshape(pending.values[0], -1)]


STORES: dict[str, Callable[[], ElementStore]] = {
    "fifo": FifoStore,
    "shuffle": lambda: ShuffleStore(0, (1, 2)),
    "priority": PriorityStore,
}


class Interleaving:
    """Random requests to one queue, and what must be true of the answers."""

    def __init__(self, seed: int, kind: str) -> None:
        self.random = random.Random(seed)
        self.kind = kind
        self.queue = queue_of(self.random.choice([1, 2, 3, 7]), STORES[kind]())
        self.enqueues: list[tuple[Pending, list[int]]] = []
        self.dequeues: list[tuple[Pending, int, bool]] = []
        self.next = 0
        self.order: list[int] = []  # what was taken, in the order in which the requests came

    def pending(self) -> list[Pending]:
        return [*(p for p, _ in self.enqueues), *(p for p, _, _ in self.dequeues)]

    def step(self) -> None:
        choice = self.random.random()
        if choice < 0.4:
            count = self.random.choice([1, 1, 1, 3, 5])
            items = list(range(self.next, self.next + count))
            self.next += count
            if count == 1:
                pending = self.queue.enqueue(number(items[0]))
            else:
                pending = self.queue.enqueue_many([np.array(items)])
            self.enqueues.append((pending, items))
        elif choice < 0.8:
            count = self.random.choice([1, 1, 2, 4])
            up_to = self.random.random() < 0.3
            self.dequeues.append((self.queue.dequeue_many(count, up_to), count, up_to))
        elif choice < 0.95 and (self.enqueues or self.dequeues):
            waiting = [p for p in self.pending() if not p.is_settled]
            if waiting:
                self.random.choice(waiting).cancel(GIVEN_UP)

    def finish(self) -> None:
        closed = self.queue.request_close()
        while not closed.is_settled or self.queue.size():
            self.dequeues.append((self.queue.dequeue_many(1), 1, False))
        assert all(p.is_settled for p in self.pending())

    def check(self) -> None:
        taken = [v for p, *_ in self.dequeues if p.error is None for v in values_of(p)]
        assert len(taken) == len(set(taken)), "an element came out twice"
        certain = {v for p, items in self.enqueues if p.error is None for v in items}
        possible = {v for _, items in self.enqueues for v in items}
        assert certain <= set(taken) <= possible, "an element was lost, or invented"
        for pending, count, up_to in self.dequeues:
            if pending.error is None:
                assert len(values_of(pending)) == count or (up_to and 0 < len(values_of(pending)) <= count)
            else:
                assert pending.error is GIVEN_UP or isinstance(pending.error, OutOfRangeError)
        for pending, items in self.enqueues:
            if pending.error is not None:  # a cancelled enqueue of several may have put in its first elements
                inside = [v in taken for v in items]
                assert inside == sorted(inside, reverse=True)


@pytest.mark.parametrize("kind", sorted(STORES))
def test_nothing_is_lost_and_nothing_comes_out_twice(kind: str) -> None:
    for seed in range(60):
        run = Interleaving(seed, kind)
        for _ in range(40):
            run.step()
        run.finish()
        run.check()


def test_elements_come_out_in_the_order_in_which_they_went_in() -> None:
    for seed in range(40):
        run = Interleaving(seed, "fifo")
        for _ in range(60):
            run.step()
        run.finish()
        taken = [v for p, *_ in run.dequeues if p.error is None for v in values_of(p)]
        assert taken == sorted(taken)


def test_requests_are_served_in_the_order_in_which_they_came() -> None:
    queue = queue_of(10, FifoStore())
    large = queue.dequeue_many(3)
    small = queue.dequeue()
    queue.enqueue_many([np.array([1, 2])])
    assert not large.is_settled
    assert not small.is_settled
    queue.enqueue_many([np.array([3, 4])])
    assert values_of(large) == [1, 2, 3]
    assert values_of(small) == [4]


def test_a_cancelled_batch_goes_back_in_front() -> None:
    queue = queue_of(10, FifoStore())
    batch, single = queue.dequeue_many(4), queue.dequeue_many(2)
    queue.enqueue_many([np.array([1, 2, 3])])
    batch.cancel(GIVEN_UP)
    assert values_of(single) == [1, 2]
    assert values_of(queue.dequeue()) == [3]


def test_an_answer_may_use_the_queue_again() -> None:
    queue = queue_of(1, FifoStore())
    found: list[int] = []
    first = queue.dequeue()
    first.when_settled(lambda p: found.extend(values_of(queue.dequeue())) if queue.enqueue(number(8)) else None)
    queue.enqueue(number(7))
    assert values_of(first) == [7]
    assert found == [8]


def test_nobody_waits_for_the_lock_to_make_a_request() -> None:
    queue = queue_of(2, FifoStore())
    with queue._alone():
        asked = queue.dequeue()
        given = queue.enqueue_many([np.array([1, 2])])
        assert not asked.is_settled
        assert not given.is_settled
    assert values_of(asked) == [1]
    assert given.is_settled
    assert queue.size() == 1


def test_what_arrived_is_served_although_whoever_held_the_lock_failed() -> None:
    queue = queue_of(2, FifoStore())
    given: list[Pending] = []

    def fail_alone() -> None:
        with queue._alone():
            given.append(queue.enqueue(number(1)))
            raise KeyError

    with pytest.raises(KeyError):
        fail_alone()
    assert given[0].is_settled
    assert values_of(queue.dequeue()) == [1]


def test_a_cancellation_that_comes_too_late_has_no_effect() -> None:
    queue = queue_of(1, FifoStore())
    waiting, other = queue.dequeue(), queue.dequeue()
    cancelled: list[bool] = []
    # the element for `other` is decided already when the answer to `waiting` gives it up
    waiting.when_settled(lambda _: cancelled.append(other.cancel(GIVEN_UP)))
    queue.enqueue_many([np.array([1, 2])])
    assert cancelled == [False]
    assert values_of(waiting) == [1]
    assert values_of(other) == [2]


def test_a_full_queue_makes_producers_wait() -> None:
    queue = queue_of(2, FifoStore())
    many = queue.enqueue_many([np.arange(5)])
    assert not many.is_settled
    assert queue.size() == 2
    assert values_of(queue.dequeue_many(3)) == [0, 1, 2]
    assert many.is_settled
    assert queue.size() == 2


def test_a_batch_may_be_larger_than_the_queue() -> None:
    queue = queue_of(2, FifoStore())
    batch = queue.dequeue_many(4)
    for value in range(4):
        queue.enqueue(number(value))
    assert values_of(batch) == [0, 1, 2, 3]


# ---------------------------------------------------------------------- the end
def test_a_closed_queue_tells_its_story() -> None:
    queue = queue_of(10, FifoStore())
    queue.enqueue(number(1))
    queue.request_close(by="the_end")
    too_many = queue.dequeue_many(2)
    with pytest.raises(OutOfRangeError, match=r"closed and has insufficient elements \(requested 2, current size 1\)"):
        too_many.wait()
    with pytest.raises(OutOfRangeError, match="'the_end' closed it; 1 elements had been put in"):
        queue.dequeue_many(2).wait()
    assert values_of(queue.dequeue_many(2, up_to=True)) == [1]
    with pytest.raises(CancelledError, match="closed, by 'the_end', so 'late' cannot put"):
        queue.enqueue(number(2), by="late").wait()
    with pytest.raises(CancelledError, match="already closed"):
        queue.request_close().wait()


def test_closing_wakes_consumers() -> None:
    queue = queue_of(10, FifoStore())
    waiting, partly = queue.dequeue_many(2), queue.dequeue_many(3, up_to=True)
    queue.enqueue(number(1))
    queue.request_close()
    assert isinstance(waiting.error, OutOfRangeError)
    assert values_of(partly) == [1]


def test_closing_waits_for_producers_or_cancels_them() -> None:
    queue = queue_of(1, FifoStore())
    queue.enqueue(number(1))
    waiting, closing = queue.enqueue(number(2)), queue.request_close()
    assert not closing.is_settled
    assert not queue.is_closed
    queue.dequeue()
    assert waiting.is_settled
    assert closing.is_settled
    assert queue.is_closed
    other = queue_of(1, FifoStore())
    other.enqueue(number(1))
    waiting = other.enqueue(number(2), by="producer")
    other.request_close(cancel_pending_enqueues=True, by="stop")
    with pytest.raises(CancelledError, match="Enqueue operation was cancelled: 'stop' closed .* while 'producer'"):
        waiting.wait()
    assert values_of(other.dequeue()) == [1]


def test_a_container_that_goes_away_cancels_all() -> None:
    queue = queue_of(1, FifoStore())
    waiting = queue.dequeue(by="consumer")
    assert queue.waiting() == {"Dequeue": ["consumer"]}
    queue.close()
    with pytest.raises(CancelledError, match="'consumer' was cancelled"):
        waiting.wait()
    with pytest.raises(CancelledError, match="released"):
        queue.enqueue(number(1)).wait()


# ---------------------------------------------------------------------- kinds of queues
def test_a_shuffling_queue_keeps_some_until_it_is_closed() -> None:
    queue = queue_of(20, ShuffleStore(5, (3, 4)))
    queue.enqueue_many([np.arange(10)])
    first = values_of(queue.dequeue_many(5))
    waiting = queue.dequeue()
    assert not waiting.is_settled
    queue.request_close()
    rest = [*values_of(waiting), *values_of(queue.dequeue_many(4))]
    assert sorted(first + rest) == list(range(10))
    assert first + rest != list(range(10))


def test_a_seed_decides_the_order() -> None:
    def order(seed: tuple[int, int] | None) -> list[int]:
        queue = queue_of(50, ShuffleStore(0, seed))
        queue.enqueue_many([np.arange(30)])
        return values_of(queue.dequeue_many(30))

    assert order((1, 2)) == order((1, 2)) != order((1, 3))


def test_all_orders_are_about_equally_likely() -> None:
    counts: collections.Counter[tuple[int, ...]] = collections.Counter()
    queue = queue_of(3, ShuffleStore(0, (5, 6)))
    for _ in range(1200):
        queue.enqueue_many([np.arange(3)])
        counts[tuple(values_of(queue.dequeue_many(3)))] += 1
    assert len(counts) == 6
    assert all(140 < c < 260 for c in counts.values())


def test_priorities_and_equals_in_order() -> None:
    components = Components((dtypes.int64, dtypes.string), (TensorShape([]), TensorShape([])), "PriorityQueue")
    queue = Queue("p", "PriorityQueue", components, 10, PriorityStore())
    words = np.array([b"c", b"a", b"A", b"b"], object)
    queue.enqueue_many([np.array([3, 1, 1, 2]), words])
    waiting = queue.dequeue_many(6)
    waiting.cancel(GIVEN_UP)
    taken = queue.dequeue_many(4)
    assert taken.values[0].tolist() == [1, 1, 2, 3]
    assert taken.values[1].tolist() == [b"a", b"A", b"b", b"c"]


def test_a_batch_by_priority_waits_for_all_its_elements() -> None:
    queue = queue_of(4, PriorityStore())
    batch = queue.dequeue_many(4)
    for values in ([7, 5], [6]):
        queue.enqueue_many([np.array(values)])
        assert not batch.is_settled
    queue.enqueue(number(1))
    assert values_of(batch) == [1, 5, 6, 7]
    # a closed queue gives what it has, and one that is too small gives as they come
    queue.enqueue_many([np.array([3, 2])])
    rest = queue.dequeue_many(3, up_to=True)
    assert not rest.is_settled
    queue.request_close()
    assert values_of(rest) == [2, 3]
    small = queue_of(2, PriorityStore())
    large = small.dequeue_many(3)
    small.enqueue_many([np.array([3, 2, 1])])
    assert values_of(large) == [2, 3, 1]


def test_padding() -> None:
    components = Components((dtypes.float32, dtypes.string), (TensorShape([None, 2]), TensorShape([None])), "Padding")
    queue = Queue("p", "PaddingFIFOQueue", components, 10, FifoStore())
    for length in (1, 3, 2):
        queue.enqueue([np.full((length, 2), length, np.float32), np.array([b"x"] * length, object)])
    numbers, words = queue.dequeue_many(3).values
    assert numbers.shape == (3, 3, 2)
    assert numbers[0].tolist() == [[1, 1], [0, 0], [0, 0]]
    assert words.tolist() == [[b"x", b"", b""], [b"x"] * 3, [b"x", b"x", b""]]


# ---------------------------------------------------------------------- wrong elements
def test_elements_are_checked() -> None:
    components = Components((dtypes.float32, dtypes.int32), (TensorShape([2]), TensorShape([])), "FIFOQueue 'f'")
    queue = Queue("f", "FIFOQueue", components, 10, FifoStore())
    vector, scalar = np.zeros(2, np.float32), np.zeros((), np.int32)
    with pytest.raises(InvalidArgumentError, match=r"tuple component 0. Expected \[2\], got \[3\] \(FIFOQueue 'f'\)"):
        queue.enqueue([np.zeros(3, np.float32), scalar])
    with pytest.raises(InvalidArgumentError, match="component 1. Expected int32, got int64"):
        queue.enqueue([vector, np.zeros((), np.int64)])
    with pytest.raises(InvalidArgumentError, match="Expected 2, got 1"):
        queue.enqueue([vector])
    with pytest.raises(InvalidArgumentError, match="same size in the 0th dimension"):
        queue.enqueue_many([np.zeros((3, 2), np.float32), np.zeros(2, np.int32)])
    with pytest.raises(InvalidArgumentError, match=r"Expected \[3,2\], got \[3,4\]"):
        queue.enqueue_many([np.zeros((3, 4), np.float32), np.zeros(3, np.int32)])
    with pytest.raises(InvalidArgumentError, match="is a scalar; use enqueue"):
        queue.enqueue_many([np.zeros((3, 2), np.float32), scalar])
    with pytest.raises(InvalidArgumentError, match="-1 < 0"):
        queue.dequeue_many(-1)
    assert queue.size() == 0


def test_batches_need_shapes() -> None:
    queue = Queue("q", "FIFOQueue", Components((dtypes.int64,), (), "FIFOQueue 'q'"), 10, FifoStore())
    queue.enqueue([np.zeros((2, 2), np.int64)])
    with pytest.raises(InvalidArgumentError, match="require the components to have specified shapes"):
        queue.dequeue_many(1)
    assert queue.dequeue().values[0].shape == (2, 2)


def test_nothing_and_no_elements() -> None:
    queue = queue_of(2, FifoStore(), [3])
    assert queue.enqueue_many([np.zeros((0, 3), np.int64)]).is_settled
    assert queue.dequeue_many(0).values[0].shape == (0, 3)


def test_an_element_stays_what_it_was() -> None:
    queue = queue_of(4, FifoStore(), [2])
    value = np.array([1, 2])
    queue.enqueue([value])
    value[:] = 9
    (stored,) = queue.dequeue().values
    assert stored.tolist() == [1, 2]
    assert not stored.flags.writeable


# ---------------------------------------------------------------------- threads
def test_producers_and_consumers_in_threads() -> None:
    queue = queue_of(5, FifoStore())
    producers, each = 4, 400
    taken: list[list[int]] = [[] for _ in range(3)]

    def produce(place: int) -> None:
        for i in range(each):
            queue.enqueue(number(place * each + i)).wait()

    def consume(place: int) -> None:
        try:
            while True:
                taken[place].append(int(queue.dequeue().wait()[0]))
        except OutOfRangeError:
            return

    threads = [threading.Thread(target=produce, args=(i,), daemon=True) for i in range(producers)]
    consumers = [threading.Thread(target=consume, args=(i,), daemon=True) for i in range(3)]
    for thread in [*threads, *consumers]:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    queue.request_close()
    for thread in consumers:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    assert sorted(v for found in taken for v in found) == list(range(producers * each))
    for found in taken:
        for place in range(producers):
            mine = [v for v in found if v // each == place]
            assert mine == sorted(mine)
