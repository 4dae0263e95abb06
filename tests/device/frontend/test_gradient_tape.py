"""GradientTape in a graph; gradients given for ys of another shape; reductions' edges."""

from __future__ import annotations

from typing import Any

import numpy as np
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


def test_a_tape_watches_the_variables_that_are_read() -> None:
    a, b, c = (tf.get_variable(name, initializer=float(i)) for i, name in enumerate("abc"))
    fixed = tf.get_variable("fixed", initializer=1.0, trainable=False)
    with tf.GradientTape() as tape:
        y = c * a * fixed
        with tape.stop_recording():
            tf.square(b)
        assert tape.watched_variables() == [a, c]
    tf.square(b)
    assert tape.watched_variables() == [a, c]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(tape.gradient(y, tape.watched_variables())) == [2.0, 0.0]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([b, tf.constant(1.0)])
        tf.square(a)
    assert tape.watched_variables() == [b]
    tape.reset()
    assert tape.watched_variables() == []
    with pytest.raises(ValueError, match="not open"), tape.stop_recording():
        pass


def test_a_tape_in_a_loop_watches_what_the_body_reads() -> None:
    """`tfp.math.minimize` asks for the variables of a loss inside a loop's body."""
    v = tf.get_variable("v", initializer=3.0)
    watched = []

    def body(i: Any, _: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.square(v)
        watched.extend(tape.watched_variables())
        return i + 1, tape.gradient(loss, watched)[0]

    _, grad = tf.while_loop(lambda i, _: i < 2, body, (0, 0.0))
    assert watched == [v]
    with tf.Session() as session:
        session.run(v.initializer)
        assert session.run(grad) == 6.0


@pytest.mark.parametrize("known", [True, False])
def test_jacobians(known: bool) -> None:
    values = np.random.default_rng(0).normal(size=[2, 3])
    x = tf.constant(values) if known else tf.placeholder_with_default(values, None)
    w = tf.constant(2.0, tf.float64)
    with tf.GradientTape(persistent=True) as tape:
        y = w * tf.stack([x[0, 0] * x[1, 2], tf.exp(x[0, 1])])
    by_x, by_w, none = tape.jacobian(y, [x, w, tf.constant(1.0)])
    assert none is None
    zeros = tape.jacobian(y, tf.constant([1.0]), unconnected_gradients=tf.UnconnectedGradients.ZERO)
    expected = np.zeros([2, 2, 3])
    expected[0, 0, 0], expected[0, 1, 2], expected[1, 0, 1] = (
        2 * values[1, 2],
        2 * values[0, 0],
        2 * np.exp(values[0, 1]),
    )
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(by_x), expected)
        np.testing.assert_allclose(session.run(by_w), [values[0, 0] * values[1, 2], np.exp(values[0, 1])])
        assert session.run(zeros).tolist() == [[0.0], [0.0]]
    if known:
        assert by_x.shape.as_list() == [2, 2, 3]


@pytest.mark.parametrize("shape", [[4, 3], [None, 3]])
def test_jacobians_of_rows(shape: list[int | None]) -> None:
    """Row i of the target depends on row i of the source; second derivatives go through."""
    values = np.random.default_rng(1).normal(size=[4, 3])
    x = tf.placeholder(tf.float64, shape)
    with tf.GradientTape() as tape:
        y = tf.stack([tf.stack([x[:, 0] * x[:, 1], x[:, 2] ** 3], 1), tf.zeros_like(x[:, :2])], 2)
    found = tape.batch_jacobian(y, x)
    assert found is not None
    assert found.shape.as_list() == [shape[0], 2, 2, 3]
    expected = np.zeros([4, 2, 2, 3])
    expected[:, 0, 0, 0], expected[:, 0, 0, 1], expected[:, 1, 0, 2] = values[:, 1], values[:, 0], 3 * values[:, 2] ** 2
    with tf.Session() as session:
        second = tf.gradients(found, x)[0]
        first_value, second_value = session.run([found, second], {x: values})
    np.testing.assert_allclose(first_value, expected)
    np.testing.assert_allclose(second_value, np.stack([np.ones(4), np.ones(4), 6 * values[:, 2]], 1))


def test_jacobians_of_no_rows() -> None:
    x = tf.placeholder(tf.float32, [None, 2])
    with tf.GradientTape(persistent=True) as tape:
        y = tf.matmul(x * x, np.float32([[1, 2, 3], [4, 5, 6]]))
    by_row, whole = tape.batch_jacobian(y, x), tape.jacobian(y, x)
    with tf.Session() as session:
        found = session.run([by_row, whole], {x: np.zeros((0, 2))})
    assert [one.shape for one in found] == [(0, 3, 2), (0, 3, 0, 2)]


def test_jacobians_of_what_is_not_connected_and_of_what_does_not_fit() -> None:
    x, y = tf.ones([2, 3]), tf.ones([2, 1])
    assert tf.GradientTape().batch_jacobian(y, x) is None
    with pytest.raises(ValueError, match="to match"):
        tf.GradientTape().batch_jacobian(y, tf.ones([3, 3]))
    with pytest.raises(ValueError, match="rank"):
        tf.GradientTape().batch_jacobian(tf.ones([2]), x)
    tape = tf.GradientTape()
    tape.jacobian(y, x)
    with pytest.raises(RuntimeError, match="persistent=True"):
        tape.jacobian(y, x)


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
