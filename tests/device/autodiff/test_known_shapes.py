"""Gradients that need no more of a tensor than its shape, which the graph knows, do without the tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.nn.depthwise_conv2d(x, tf.ones([2, 2, 3, 2]), [1, 1, 1, 1], "SAME"),
        lambda x: tf.nn.conv2d(x, tf.ones([2, 2, 3, 2]), [1, 1, 1, 1], "SAME"),
        lambda x: tf.nn.avg_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"),
    ],
)
def test_the_gradient_of_a_linear_function_needs_no_argument(function: Any) -> None:
    x = tf.placeholder(tf.float32, [1, 4, 4, 3])
    (gradient,) = tf.gradients(function(x), x)
    with tf.Session() as session:
        without = session.run(gradient)
        np.testing.assert_array_equal(without, session.run(gradient, {x: np.ones([1, 4, 4, 3])}))
    assert without.shape == (1, 4, 4, 3)
    assert np.all(without > 0)
