"""What brings a gradient to the shape that it has is taken out of a step, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.pipeline import plan_step

KINDS = {"BroadcastGradientArgs", "Sum", "Reshape", "BroadcastTo"}


def left(fetches: list[Any], feeds: list[Any]) -> Counter[str]:
    """The operations of these kinds that a step has."""
    items = plan_step(fetches, [], feeds).items
    return Counter(op.type for item in items for op in item.operations if op.type in KINDS)


def test_gradients_of_operands_of_one_shape() -> None:
    x = tf.placeholder(tf.float32, [None, 3])
    y = tf.exp(x) * tf.tanh(x) + tf.where(x > 0.0, x, -x) / tf.fill(tf.shape(x), 2.0)
    gradient = tf.gradients(y, x)[0]
    assert not left([gradient], [x])


def test_shapes_that_may_differ() -> None:
    x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
    gradients = tf.gradients(x * y, [x, y])
    assert left(gradients, [x, y]) == {"BroadcastGradientArgs": 2, "Sum": 2, "Reshape": 2}
    with tf.Session() as session:
        by_x, by_y = session.run(gradients, {x: [1, 2, 3], y: [4]})
    np.testing.assert_array_equal(by_x, [4, 4, 4])
    np.testing.assert_array_equal(by_y, [6])


@pytest.mark.parametrize("shape", [[-1], [2, -1]])
def test_what_is_left_over(shape: list[int]) -> None:
    """Two tensors that are brought to [-1] have different shapes, or one of them is refused."""
    given = tf.placeholder(tf.int32, [len(shape)])
    x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
    product = tf.reshape(x, given) * tf.reduce_sum(tf.reshape(y, given))
    again = tf.reshape(tf.reshape(x, given), tf.shape(tf.reshape(y, given)))
    with tf.Session() as session:
        values = session.run(tf.gradients(product, x)[0], {given: shape, x: np.arange(4), y: np.ones(2)})
        np.testing.assert_array_equal(values, [2, 2, 2, 2])
        assert session.run(tf.shape(again), {given: shape, x: np.arange(4), y: np.arange(4)}).size == len(shape)
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(again, {given: shape, x: np.arange(4), y: np.ones(2)})


@pytest.mark.parametrize(
    "make",
    [
        lambda x: tf.fill([1], x),
        lambda x: tf.reshape(x, [1, -1]),
        lambda x: tf.broadcast_to(x, [2, 1]),
        lambda x: tf.reduce_sum(x, keep_dims=True),
        lambda x: tf.reduce_sum(tf.reshape(x, [-1]), []),
    ],
)
def test_values_are_the_same(make: Callable[[Any], Any]) -> None:
    x = tf.placeholder(tf.int32, [])
    made = tf.abs(make(x))
    with tf.Session() as session:
        value = session.run(made, {x: 7})
        assert np.array_equal(value, session.run(tf.ones(tf.shape(made), tf.int32) * 7, {x: 7}))


def test_what_is_fetched_stays() -> None:
    x = tf.placeholder(tf.float32, [None])
    same = tf.reshape(tf.exp(x), tf.shape(x))
    with tf.Session() as session:
        np.testing.assert_allclose(session.run([same, -same], {x: [0, 1]})[0], np.exp([0, 1]), rtol=1e-6)
        assert session.run(-same, {same: [3, 4]}).tolist() == [-3, -4]
