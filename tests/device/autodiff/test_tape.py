"""GradientTape in a graph; gradients given for ys of another shape; reductions' edges."""

from __future__ import annotations

import pytest

import anabranch as tf


def test_a_tape_differentiates_what_the_graph_holds() -> None:
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        with tape.stop_recording():
            y = {"square": x * x, "cube": x * x * x}
    found = tape.gradient(y, {"x": x})
    with tf.Session() as session:
        assert session.run(found) == {"x": 6.0 + 27.0}
    with pytest.raises(RuntimeError, match="once"):
        tape.gradient(y, x)


def test_grad_ys_with_as_many_elements_take_the_shape_of_y() -> None:
    x = tf.constant([1.0, 2.0])
    grad = tf.gradients(tf.reduce_sum(x), x, grad_ys=tf.constant([5.0]))[0]
    with tf.Session() as session:
        assert session.run(grad).tolist() == [5.0, 5.0]
    with pytest.raises(ValueError, match=r"grad_ys\[0\]"):
        tf.gradients(tf.reduce_sum(x), x, grad_ys=tf.constant([5.0, 6.0]))


def test_reductions_at_their_edges() -> None:
    with pytest.raises(ValueError, match="Invalid reduction dimension 2"):
        tf.reduce_sum(tf.ones([2, 3]), [2])
    with pytest.raises(ValueError, match="at most rank 1"):
        tf.reduce_sum(tf.placeholder("float32"), [[1], [2]])
    with tf.Session() as session:
        assert session.run(tf.reduce_all([])) is not None
        assert session.run(tf.math.reduce_euclidean_norm([3.0, -4.0], [])).tolist() == [3.0, 4.0]
