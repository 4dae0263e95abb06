"""Many threads over one session: producers, consumers, a trainer, and somebody who closes (§3.2, §4.1).

Steps are given up at random moments by their deadlines. Whatever the interleaving, every element comes out once.
"""

from __future__ import annotations

import collections
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf

DEADLINE = 60.0


class Soak:
    """Elements go through two queues: from producers over relays, which compute on them, to a trainer.

    Args:
        seed: of what the threads choose.
        producers: how many threads put elements in.
        relays: how many threads move elements from the first queue to the second.
        elements: how many elements each producer makes.
    """

    def __init__(self, seed: int, producers: int, relays: int, elements: int) -> None:
        self.seed = seed
        self.elements = elements
        self.fed = tf.placeholder(tf.int32, [None])
        self.raw = tf.FIFOQueue(7, tf.int32, shapes=[[]])
        self.cooked = tf.RandomShuffleQueue(20, 4, tf.int32, shapes=[[]], seed=1)
        self.put = self.raw.enqueue_many(self.fed)
        self.put_one = self.raw.enqueue(self.fed[0])
        self.relay = self.cooked.enqueue(self.raw.dequeue() * 2)
        self.relay_by_function = self.cooked.enqueue(self._doubled(self.raw.dequeue()))
        self.batch = self.cooked.dequeue_up_to(3)
        self.total = tf.Variable(0, use_resource=True)
        with tf.control_dependencies([self.total.assign_add(tf.reduce_sum(self.batch))]):
            self.train = tf.identity(self.batch)
        self.close_raw, self.close_cooked = self.raw.close(), self.cooked.close()
        self.session = tf.Session()
        self.session.run(self.total.initializer)
        self.taken: collections.Counter[int] = collections.Counter()
        self.given_up = 0
        self.failures: list[BaseException] = []
        self.producers = [self._thread(self._produce, i) for i in range(producers)]
        self.relays = [self._thread(self._relay, i) for i in range(relays)]
        self.trainer = self._thread(self._train, 0)

    @staticmethod
    def _doubled(element: Any) -> Any:
        doubled = tf.py_func(lambda v: np.int32(2 * v), [element], tf.int32)
        doubled.set_shape([])
        return doubled

    def _thread(self, work: Callable[[int, random.Random], None], number: int) -> threading.Thread:
        def run() -> None:
            try:
                work(number, random.Random(f"{self.seed} {work.__name__} {number}"))
            except BaseException as error:
                self.failures.append(error)

        return threading.Thread(target=run, name=f"{work.__name__} {number}")

    def run(self) -> None:
        """Lets all threads work until they have nothing left to do."""
        for thread in (*self.producers, *self.relays, self.trainer):
            thread.start()
        ended(self.producers)
        self.session.run(self.close_raw)
        ended(self.relays)
        self.session.run(self.close_cooked)
        ended([self.trainer])

    def _run_some_time(self, chance: random.Random, fetches: Any, feeds: Any = None) -> Any:
        """Runs a step again and again, most times with very little time, until it is done."""
        while True:
            hurried = chance.random() < 0.7
            options = tf.RunOptions(timeout_in_ms=chance.randrange(1, 4)) if hurried else None
            try:
                return self.session.run(fetches, feeds, options)
            except tf.errors.DeadlineExceededError:
                self.given_up += 1

    def _produce(self, number: int, chance: random.Random) -> None:
        for element in range(number * self.elements, (number + 1) * self.elements):
            self._run_some_time(chance, self.put_one, {self.fed: [element]})

    def _relay(self, number: int, chance: random.Random) -> None:
        """A relay that is given up between its two queues would lose what it holds, so it has all the time it wants."""
        while True:
            try:
                self.session.run(chance.choice([self.relay, self.relay_by_function]))
            except tf.errors.OutOfRangeError:
                return

    def _train(self, number: int, chance: random.Random) -> None:
        while True:
            try:
                self.taken.update(self._run_some_time(chance, self.train).tolist())
            except tf.errors.OutOfRangeError:
                return


def ended(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(DEADLINE)
    assert not [t.name for t in threads if t.is_alive()], "these threads did not end"


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_doubled_among_many_threads(seed: int) -> None:
    soak = Soak(seed, producers=8, relays=4, elements=25)
    with soak.session:
        soak.run()
        assert not soak.failures
        assert soak.taken == dict.fromkeys(range(0, 2 * 8 * 25, 2), 1)
        assert soak.session.run(soak.total) == sum(range(0, 2 * 8 * 25, 2))
        assert soak.session.run([soak.raw.size(), soak.cooked.size()]) == [0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_a_session_that_is_closed_in_the_midst_ends_all_its_threads(seed: int) -> None:
    soak = Soak(seed, producers=8, relays=4, elements=10_000)
    threads = [*soak.producers, *soak.relays, soak.trainer]
    some = threading.Event()
    soak.taken = _Told(some)
    for thread in threads:
        thread.start()
    assert some.wait(DEADLINE)
    soak.session.close()
    ended(threads)
    assert len(soak.failures) == len(threads)
    for failure in soak.failures:
        assert isinstance(failure, tf.errors.CancelledError) or "closed Session" in str(failure), failure


class _Told(collections.Counter[int]):
    """A counter that tells when something is counted."""

    def __init__(self, told: threading.Event) -> None:
        super().__init__()
        self._told = told

    def update(self, *args: Any, **kwargs: Any) -> None:
        super().update(*args, **kwargs)
        if hasattr(self, "_told"):
            self._told.set()
