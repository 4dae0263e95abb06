"""Worker: how many elements per second pass through a queue, from producing steps to a consuming step."""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import threading
import time
from typing import Any

import numpy as np


def alone(tf: Any) -> float:
    """Seconds for an enqueue step and a dequeue step of one element, in one thread."""
    queue = tf.FIFOQueue(100, [tf.float32], shapes=[[8]])
    x = tf.placeholder(tf.float32, [8])
    put, take = queue.enqueue([x]), queue.dequeue()
    value = np.ones(8, np.float32)
    with tf.Session() as session:
        for _ in range(50):
            session.run(put, {x: value})
            session.run(take)
        start = time.perf_counter()
        for _ in range(3000):
            session.run(put, {x: value})
            session.run(take)
        return (time.perf_counter() - start) / 3000


def per_element(tf: Any, producers: int, batch: int, elements: int) -> float:
    """Seconds per element: `producers` threads enqueue one by one, one thread dequeues batches."""
    queue = tf.FIFOQueue(1000, [tf.float32], shapes=[[8]])
    put, take = queue.enqueue([tf.ones([8])]), queue.dequeue_many(batch)
    with tf.Session() as session:
        session.run(queue.enqueue_many([np.ones((batch, 8), np.float32)]))
        session.run([put, take])
        enqueue = session.make_callable(put)

        def produce() -> None:
            with contextlib.suppress(tf.errors.CancelledError):  # the consumer has enough
                for _ in range(elements // producers):
                    enqueue()

        threads = [threading.Thread(target=produce, daemon=True) for _ in range(producers)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for _ in range(elements // batch - 1):
            session.run(take)
        elapsed = time.perf_counter() - start
        session.run(queue.close(cancel_pending_enqueues=True))
        for thread in threads:
            thread.join(60)
        return elapsed / elements


def through_batches(tf: Any) -> float:
    """Seconds per element when both sides move 100 elements at a time."""
    queue = tf.FIFOQueue(1000, [tf.float32], shapes=[[8]])
    put, take = queue.enqueue_many([tf.ones([100, 8])]), queue.dequeue_many(100)
    with tf.Session() as session:
        session.run(put)
        session.run(take)
        start = time.perf_counter()
        for _ in range(300):
            session.run(put)
            session.run(take)
        return (time.perf_counter() - start) / 30_000


def system(name: str) -> Any:
    if name == "anabranch":
        import anabranch as tf

        return tf
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    return tf


def main(name: str) -> None:
    tf = system(name)

    def median(measured: Any) -> float:
        return statistics.median(measured() for _ in range(3))

    results = {
        "enqueue + dequeue, one thread": median(lambda: alone(tf)),
        "element, 1 producer": median(lambda: per_element(tf, 1, 100, 8000)),
        "element, 4 producers": median(lambda: per_element(tf, 4, 100, 8000)),
        "element, 100 at a time": median(lambda: through_batches(tf)),
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
