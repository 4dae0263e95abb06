"""Gradients of slices whose parts do not fit, on branches that are never taken."""

from __future__ import annotations

import numpy as np
import pytest

import anabranch as tf


def test_a_branch_that_cannot_run_is_differentiated_and_refused_when_it_is_taken() -> None:
    x = tf.placeholder(tf.float32, [3, 1])
    taken = tf.placeholder(tf.bool, [])

    def unfit() -> tf.Tensor:
        return tf.reduce_sum(tf.raw_ops.StridedSliceGrad(shape=[4, 5], begin=[0, 0], end=[2, 2], strides=[1, 1], dy=x))

    gradient = tf.gradients(tf.cond(taken, unfit, lambda: tf.reduce_sum(x * 2.0)), x)[0]
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(gradient, {x: np.ones((3, 1)), taken: False}), np.full((3, 1), 2.0))
        value = tf.cond(taken, unfit, lambda: tf.reduce_sum(x))
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(value, {x: np.ones((3, 1)), taken: True})
