"""One live copy of each variable, and no growth from step to step."""

from __future__ import annotations

import gc

import jax
import numpy as np
import pytest

import anabranch as tf


def live_bytes() -> int:
    gc.collect()
    return sum(array.nbytes for array in jax.live_arrays())


def test_initial_values_leave_no_copy_behind() -> None:
    before = live_bytes()
    tf.Variable(np.ones((300, 300), np.float32))
    tf.get_variable("zeros", [400, 300], initializer=tf.zeros_initializer())
    tf.get_variable("random", [300, 300])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert live_bytes() - before == sum(v.shape.num_elements() * 4 for v in tf.global_variables())
    assert live_bytes() == before


def test_steps_keep_nothing() -> None:
    x = tf.placeholder(tf.float32, [None, 8])
    loss = tf.reduce_mean(tf.square(tf.layers.dense(x, 16)))
    train = tf.train.AdamOptimizer().minimize(loss)
    batch = np.ones((4, 8), np.float32)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run([train, loss], {x: batch})
        after_one = live_bytes()
        for _ in range(50):
            session.run([train, loss], {x: batch})
        assert live_bytes() == after_one


@pytest.mark.usefixtures("in_the_worker")
@pytest.mark.parametrize("waits", [False, True])
def test_what_a_step_no_longer_needs_is_let_go(waits: bool) -> None:
    """Whether it runs straight through or by the executor, because a user function may wait."""
    size = 1 << 20
    large = tf.exp(tf.placeholder_with_default(np.zeros(size, np.float32), [size]))
    few = tf.py_func(lambda x: x[:3], [large], tf.float32) if waits else tf.where(large > 2.0)
    text = tf.strings.as_string(tf.reduce_sum(tf.cast(few, tf.float32)))
    held = {}
    with tf.Session() as session:
        step = session._prepare(session._mapping([text]), [])
        before = live_bytes()
        step.run([], lambda event: held.setdefault(event.name, live_bytes() - before))
    assert max(held.values()) >= size
    assert held["AsString"] < size / 2
