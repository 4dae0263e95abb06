"""Values that are known while a program is compiled: computed then if they are small, and by the program if not."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import anabranch as tf


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda n: tf.zeros(tf.stack([n, 1000])) + 1.0, 5e6),
        (lambda n: tf.tile([[1.0, 2.0]], tf.stack([n, 1000])), 1.5e7),
        (lambda n: tf.cast(tf.range(n * 1000) // (n * 500), tf.float32), 2.5e6),
    ],
    ids=["fill", "tile", "range"],
)
def test_a_large_result_of_a_fed_size_is_no_constant_of_the_program(make, expected) -> None:
    n = tf.placeholder(tf.int32, [])
    total = tf.reduce_sum(make(n))
    with tf.Session() as session:
        session.run(total, {n: 10})
        tracemalloc.start()
        try:
            found = session.run(total, {n: 5000})
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert peak < 5e6, f"NumPy held {peak} bytes"


def test_a_small_result_of_a_fed_size_is_known() -> None:
    n = tf.placeholder(tf.int32, [])
    shape = tf.concat([tf.fill(tf.stack([n]), 2), [3]], 0)
    with tf.Session() as session:
        assert session.run(tf.shape(tf.random_uniform(shape)), {n: 2}).tolist() == [2, 2, 3]
