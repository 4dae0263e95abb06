"""`tf.gradients` in the body of a loop or a branch, with respect to what is outside: as if written out (§4.1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf


def run(fetches: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches, feeds)


def agree(found: Any, wanted: Any, feeds: Any = None) -> None:
    for one, other in zip(*run([found, wanted], feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_through_what_was_computed_outside_of_a_loop() -> None:
    x = tf.constant(5.0)
    square = tf.square(x)

    def step(total: Any) -> Any:
        return total * 0.5 + tf.gradients(tf.constant([1.0, 2.0, 3.0]) * square, x)[0]

    loop = tf.while_loop(lambda i, _: i < 3, lambda i, total: (i + 1, step(total)), (0, 0.0))[1]
    plain = step(step(step(tf.constant(0.0))))
    agree([loop, tf.gradients(loop, x)[0]], [plain, tf.gradients(plain, x)[0]])


@pytest.mark.parametrize("first", [True, False])
def test_in_a_branch(first: bool) -> None:
    p, x = tf.placeholder(tf.bool, []), tf.constant(10.0)
    y = x * 7.0
    result = tf.cond(p, lambda: tf.gradients(y * y, [x])[0], lambda: x * 3.0)
    agree([result], [tf.constant(980.0 if first else 30.0)], {p: first})


def test_in_a_loop_in_a_loop_with_the_start_of_the_loops_as_x() -> None:
    x = tf.constant([1.0, 2.0])
    y = tf.exp(x)

    def step(z: Any) -> Any:
        return z + 0.1 * tf.gradients(tf.reduce_sum(z * y), x)[0]

    def twice(z: Any) -> Any:
        return tf.while_loop(lambda j, _: j < 2, lambda j, z: (j + 1, step(z)), (0, z))[1]

    loop = tf.while_loop(lambda i, _: i < 2, lambda i, z: (i + 1, twice(z)), (0, x))[1]
    plain = x
    for _ in range(4):  # the carried value is not a function of x where the gradient is asked for
        plain = plain + 0.1 * plain * y
    agree([loop, tf.gradients(loop, x)[0]], [plain, tf.gradients(plain, x)[0]])


def test_through_a_loop_outside() -> None:
    x = tf.constant(1.5)
    power = tf.while_loop(lambda i, _: i < 3, lambda i, z: (i + 1, z * x), (0, x))[1]
    elements = [1.0, 2.0]
    found = tf.map_fn(lambda e: tf.gradients(e * power * x, x)[0], tf.constant(elements))
    agree([found], [tf.stack([e * 5.0 * x**4.0 for e in elements])])


def test_with_gradients_stopped_outside() -> None:
    x = tf.constant(1.5)
    y = x * x
    found = tf.map_fn(lambda e: tf.gradients(e * y * x, x, stop_gradients=[y])[0], tf.constant([1.0, 2.0]))
    agree([found], [tf.constant([2.25, 4.5])])


def test_with_respect_to_a_tensor_outside_one_behind_it_and_one_in_the_body() -> None:
    x = tf.constant(1.5)
    y = x * x

    def gradients(e: Any) -> Any:
        return tf.stack(tf.gradients(e * y * x, [x, y, e]))

    found = tf.map_fn(gradients, tf.constant([1.0, 2.0]))
    agree([found], [tf.constant([[6.75, 1.5, 3.375], [13.5, 3.0, 3.375]])])


def test_with_respect_to_a_variable_read_outside() -> None:
    v = tf.get_variable("v", [2], initializer=tf.ones_initializer())
    r = v * 3.0
    found = tf.map_fn(lambda e: tf.gradients(e * r * r, v)[0], tf.constant([1.0, 2.0]))
    agree([found], [tf.constant([[18.0, 18.0], [36.0, 36.0]])])


def test_learning_to_learn() -> None:
    """An inner training step for each task, and the gradient of what it leads to."""
    w = tf.get_variable("w", [3], initializer=tf.ones_initializer())
    tasks = [[1.0, 2.0, 3.0], [0.4, 0.5, 0.6]]

    def loss_after_a_step(x: Any) -> Any:
        inner = tf.gradients(tf.reduce_sum(tf.square(x * w)), w)[0]
        return tf.reduce_sum(tf.square(x * (w - 0.1 * inner)))

    found = tf.map_fn(loss_after_a_step, tf.constant(tasks))
    wanted = tf.stack([loss_after_a_step(tf.constant(x)) for x in tasks])
    agree([found, tf.gradients(found, w)[0]], [wanted, tf.gradients(wanted, w)[0]])
