"""Loops that make lists and tensors longer, and tensors as long as a mask says, of which several tasks have a part."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.testing.local_cluster import local_cluster

#: seconds; no wait of a test lasts longer
DEADLINE = 30.0
#: where something is made: a job and a number
Place = Callable[[str, int], AbstractContextManager[Any]]
Made = tuple[list[Any], dict[Any, Any]]


def recurrent(place: Place) -> Made:
    """A loop of a worker over sequences that end by themselves; the weights are a server's."""
    lengths = tf.placeholder(tf.int32, [3])
    words = np.random.default_rng(0).normal(size=(6, 3, 2)).astype(np.float32)
    with place("ps", 1):
        weights = tf.get_variable("weights", initializer=np.full((5, 3), 0.3, np.float32), use_resource=True)
    with place("worker", 0):
        array = tf.TensorArray(tf.float32, 6).unstack(words)

        def body(time: Any, state: Any, outputs: Any) -> Any:
            state = tf.tanh(tf.matmul(tf.concat([array.read(time), state], 1), weights))
            return time + 1, state, outputs.write(time, state)

        outputs = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[3, 3])
        _, state, outputs = tf.while_loop(
            lambda time, *_: time < tf.reduce_max(lengths), body, [0, tf.zeros([3, 3]), outputs]
        )
        stacked = outputs.stack()
        gradient = tf.gradients(tf.reduce_sum(stacked**2) + tf.reduce_sum(state), weights)[0]
    with place("ps", 1):
        update = weights.assign_sub(0.1 * gradient)
    return [stacked, state, gradient, update], {lengths: [2, 5, 1]}


def appended(place: Place) -> Made:
    """A tensor that a loop of one task makes longer, of which another task reads how long it became."""
    start, count = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.int32, [])
    with place("worker", 1):
        _, grown = tf.while_loop(
            lambda i, _: i < count,
            lambda i, x: (i + 1, tf.concat([x, x[-1:] * 2.0], 0)),
            [0, start],
            shape_invariants=[tf.TensorShape([]), start.shape],
        )
    with place("ps", 0):
        rows = tf.shape(grown)[0]
        mean = tf.reduce_sum(grown, 0) / tf.cast(rows, tf.float32)
    return [grown, rows, mean], {start: np.arange(1.0, 5).reshape(2, 2), count: 3}


def masked(place: Place) -> Made:
    """What a mask of one task leaves of another's tensor, looked up in a third's table."""
    values = tf.placeholder(tf.float32, [None])
    with place("ps", 0):
        table = tf.get_variable("table", initializer=np.arange(12, dtype=np.float32).reshape(6, 2), use_resource=True)
    with place("worker", 1):
        mask = values > 1.0
    with place("worker", 0):
        places = tf.where(mask)
        left = tf.boolean_mask(values, mask)
        rows = tf.nn.embedding_lookup(table, tf.cast(left, tf.int32))
        gradient = tf.convert_to_tensor(tf.gradients(tf.reduce_sum(rows * rows), table)[0])
    return [places, left, rows, gradient], {values: [0.5, 3, 1, 2, 3, 5]}


def nowhere(job: str, index: int) -> AbstractContextManager[Any]:
    return nullcontext()


def on_tasks(job: str, index: int) -> AbstractContextManager[Any]:
    device: AbstractContextManager[Any] = tf.device(f"/job:{job}/task:{index}")
    return device


def results(make: Callable[[Place], Made], place: Place, target: str) -> list[list[Any]]:
    """What several steps give: first by the kernels one after the other, then compiled."""
    with tf.Graph().as_default():
        fetches, fed = make(place)
        config = tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))
        with tf.Session(target, config=config) as session:
            session.run(tf.global_variables_initializer())
            return [session.run(fetches, fed) for _ in range(4)]


@pytest.mark.parametrize("make", [recurrent, appended, masked])
def test_several_tasks_give_what_one_process_gives(make: Callable[[Place], Made]) -> None:
    alone = results(make, nowhere, "")
    with local_cluster(ps=2, worker=2) as tasks:
        together = results(make, on_tasks, tasks.target("worker", 0))
    for one, other in zip(alone, together, strict=True):
        for wanted, got in zip(one, other, strict=True):
            assert np.shape(wanted) == np.shape(got)
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-6)
