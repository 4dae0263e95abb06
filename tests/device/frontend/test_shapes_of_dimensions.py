"""Shapes are lists of dimensions too, of small tensors, which are constants, as of large ones, which a step fills."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import anabranch as tf


@pytest.mark.parametrize("size", [2, 3000])
@pytest.mark.parametrize(
    "make", [tf.ones, tf.zeros, lambda shape: tf.fill(shape, 1.0), tf.random_normal, tf.random_uniform]
)
def test_a_list_of_dimensions_is_a_shape(make: Callable[[Any], Any], size: int) -> None:
    dimension = tf.Dimension(size)
    with tf.Graph().as_default(), tf.Session() as session:
        sizes = tf.placeholder(tf.int32, [])
        for shape in ([dimension, dimension], [dimension, size], (size, dimension), tf.TensorShape([size, size])):
            assert make(shape).shape.as_list() == [size, size]
        partly = tf.shape(make([dimension, sizes]))
        assert session.run(partly, {sizes: 4}).tolist() == [size, 4]


def test_a_variable_is_a_dimension() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        size = tf.Variable(4)
        drawn = tf.random_normal([2, size])
        assert drawn.shape.as_list() == [2, None]
        session.run(tf.global_variables_initializer())
        assert session.run(drawn).shape == (2, 4)
