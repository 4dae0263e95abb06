"""Constants of nested sums are added in the program's order: XLA adds them up first, which loses small ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf

SMALL = 1e-8
ONES = np.ones(3, np.float32)


@pytest.mark.parametrize(
    "sums",
    [
        lambda x: (1.0 - x) + SMALL,
        lambda x: (x - 1.0) + SMALL,
        lambda x: SMALL + (x - 1.0),
        lambda x: (x - 1.0) - SMALL,
        lambda x: tf.identity(1.0 - x) + SMALL,
        lambda x: tf.add((-1.0) + x, tf.constant(SMALL)),
    ],
)
def test_a_small_constant_is_not_lost(sums: Callable[[Any], Any]) -> None:
    x = tf.placeholder(tf.float32, [3])
    result = sums(x)
    with tf.Session() as session:
        for _ in range(4):  # the first steps run operation by operation
            assert np.abs(session.run(result, {x: ONES})).tolist() == [np.float32(SMALL)] * 3


def test_what_was_added_to_a_small_number_is_taken_away() -> None:
    x = tf.placeholder(tf.float32, [3])
    nothing = (x + 1.0) - 1.0
    with tf.Session() as session:
        for _ in range(4):
            assert session.run(nothing, {x: ONES * np.float32(SMALL)}).tolist() == [0.0] * 3


def test_logarithms_that_a_small_constant_keeps_finite_and_their_gradients() -> None:
    logits = tf.placeholder(tf.float32, [2])
    p = tf.sigmoid(logits)
    loss = tf.log(1.0 - p + SMALL)
    (gradient,) = tf.gradients(loss, logits)
    with tf.Session() as session:
        for _ in range(4):
            losses, gradients = session.run([loss, gradient], {logits: [40.0, 0.0]})
            np.testing.assert_allclose(losses, [np.log(SMALL), np.log(0.5)], rtol=1e-5)
            np.testing.assert_allclose(gradients, [0.0, -0.5], rtol=1e-5, atol=1e-30)


def test_in_a_loop_and_in_a_function() -> None:
    x = tf.placeholder(tf.float32, [3])
    _, looped = tf.while_loop(lambda i, _: i < 3, lambda i, _: (i + 1, (1.0 - x) + SMALL), [0, x])
    called = tf.cond(x[0] > 0, lambda: (1.0 - x) + SMALL, lambda: x)
    with tf.Session() as session:
        for _ in range(4):
            for result in session.run([looped, called], {x: ONES}):
                assert result.tolist() == [np.float32(SMALL)] * 3
