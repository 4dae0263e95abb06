"""Help with pipelines of threads in tests: a source that ends, starting, draining, ending."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import anabranch as tf

DEADLINE = 30.0


def counted(limit: int, name: str = "counter") -> Any:
    """A tensor that gives 0, 1, ... and ends at `limit`."""
    return tf.Variable(0, name=name).count_up_to(limit)


def started(session: Any, **options: Any) -> tuple[Any, list[threading.Thread]]:
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    coord = tf.train.Coordinator()
    return coord, tf.train.start_queue_runners(session, coord, **options)


def drained(session: Any, fetches: Any) -> Iterator[Any]:
    while True:
        try:
            yield session.run(fetches)
        except tf.errors.OutOfRangeError:
            return


def ended(coord: Any, threads: list[threading.Thread]) -> None:
    coord.request_stop()
    coord.join(threads, stop_grace_period_secs=DEADLINE)
    assert not any(t.is_alive() for t in threads)
