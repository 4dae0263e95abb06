"""Few rows of a constant are taken by the host where it has the places and wants the rows; else they stay compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.pipeline import plan_step
from anabranch.xla.islands import Island

TABLE = np.random.default_rng(0).normal(size=(3000, 32)).astype(np.float32)


def islands(targets: list[Any], fetches: list[Any] = (), feeds: list[Any] = ()) -> int:  # type: ignore[assignment]
    return sum(isinstance(item, Island) for item in plan_step(list(fetches), targets, list(feeds)).items)


def test_examples_from_queue_to_queue() -> None:
    places, examples = tf.FIFOQueue(5000, tf.int64, [[]]), tf.FIFOQueue(5000, tf.float32, [[32]])
    move = examples.enqueue(tf.gather(tf.constant(TABLE), places.dequeue()))
    assert islands([move]) == 0
    with tf.Session() as session:
        session.run(places.enqueue_many([[2999, 0, 7]]))
        for place in (2999, 0, 7):
            session.run(move)
            np.testing.assert_array_equal(session.run(examples.dequeue()), TABLE[place])
        session.run(places.enqueue(3000))
        with pytest.raises(tf.errors.InvalidArgumentError, match="not in \\[0, 3000\\)"):
            session.run(move)


def test_many_rows_and_other_work_stay_compiled() -> None:
    queue, out = tf.FIFOQueue(5000, tf.int64, [[]]), tf.FIFOQueue(5000, tf.float32)
    table = tf.constant(TABLE)
    rows = tf.gather(table, tf.range(1000) + tf.cast(queue.dequeue(), tf.int32))
    assert islands([out.enqueue(rows)]) == 1
    product = tf.matmul(tf.gather(table, tf.reshape(queue.dequeue(), [1])), table, transpose_b=True)
    assert islands([out.enqueue(product)]) >= 1
