"""Gradients of gradients where a loop's result matters through what its iterations compute only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.fuzz.gradients import check, program

VALUES = np.array([0.2, 0.3, -0.4])


def _array(x: Any) -> Any:
    array = tf.TensorArray(tf.float64, 3)
    return tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a.write(i, x[i] ** 3)), [0, array])[1].stack()


def _of_host_work(x: Any) -> Any:
    @tf.custom_gradient
    def cube(value: Any) -> Any:
        found = tf.py_func(lambda v: v**3, [value], tf.float64, stateful=False)
        found.set_shape(value.shape)
        return found, lambda dy: 3.0 * dy * value * value

    return tf.map_fn(cube, x)


def _by_gather(x: Any) -> Any:
    return tf.map_fn(lambda i: tf.reduce_prod(tf.gather(x, [i, i, i])), tf.range(3), dtype=tf.float64)


@pytest.mark.parametrize(
    "cube",
    [
        lambda x: tf.map_fn(lambda r: r * r * r, x),
        lambda x: tf.map_fn(lambda r: r[0] * r[1] * r[1], (x, x), dtype=tf.float64),
        lambda x: tf.scan(lambda _, r: r**3, x, tf.zeros([], tf.float64)),
        lambda x: tf.scan(lambda _, r: r**3, x, tf.zeros([], tf.float64), reverse=True),
        lambda x: tf.map_fn(lambda r: tf.map_fn(lambda s: s * s * s, r), x[:, None])[:, 0],
        lambda x: tf.map_fn(lambda r: tf.cond(r > 0, lambda: r * r * r, lambda: r**3), x),
        _array,
        _of_host_work,
        _by_gather,
    ],
)
def test_derivatives_of_cubes(cube: Callable[[Any], Any]) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float64, [3])
        derivatives = [cube(x)]
        for _ in range(2):
            derivatives.append(tf.gradients(derivatives[-1], x)[0])
        found = session.run(derivatives, {x: VALUES})
    wanted = [VALUES**3, 3 * VALUES**2, 6 * VALUES]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_the_hessian_of_a_mapped_function() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float64, [3])
        (hessian,) = tf.hessians(tf.reduce_sum(tf.map_fn(lambda r: r * r * r, x)), x)
        np.testing.assert_allclose(session.run(hessian, {x: VALUES}), np.diag(6 * VALUES), rtol=1e-12)


def test_a_gradient_function_that_uses_tensors_of_the_body() -> None:
    """Its operation takes a value that no iteration changes, but must stay where those tensors are."""

    @tf.custom_gradient
    def sine(value: Any) -> Any:
        return tf.sin(value), lambda dy: dy * tf.cos(value)

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float64, [3])
        y = tf.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, v * sine(x)), [0, x])[1]
        first = tf.gradients(y, x)[0]
        found = session.run(tf.gradients(first, x)[0], {x: VALUES})
    s, c = np.sin(VALUES), np.cos(VALUES)
    np.testing.assert_allclose(found, 4 * s * c + 2 * VALUES * (c * c - s * s), rtol=1e-12)


def test_gradient_functions_that_use_tensors_of_the_branch() -> None:
    """As StyleGAN's leaky ReLU, whose gradient's gradient uses what is inside of the branch."""

    @tf.custom_gradient
    def leaky(value: Any) -> Any:
        y = tf.maximum(value, value * 0.2)

        @tf.custom_gradient
        def gradient(dy: Any) -> Any:
            return tf.where(y >= 0, dy, dy * 0.2), lambda ddx: tf.where(y >= 0, ddx, ddx * 0.2)

        return y, gradient

    with tf.Graph().as_default(), tf.Session() as session:
        x, goes = tf.placeholder(tf.float64, [4]), tf.placeholder(tf.bool, [])
        y = tf.cond(goes, lambda: leaky(x * x * x), lambda: x)
        first = tf.gradients(y, x)[0]
        second = tf.gradients(first, x)[0]
        (third,) = tf.gradients(second, x)
        given = np.array([-2.0, -0.5, 0.5, 2.0])
        found = session.run([y, first, second, third], {x: given, goes: True})
        assert session.run([first, second], {x: given, goes: False})[1].tolist() == [0.0] * 4
    slope = np.where(given >= 0, 1.0, 0.2)
    np.testing.assert_allclose(found, slope * [given**3, 3 * given**2, 6 * given, np.full(4, 6.0)], rtol=1e-12)


def test_zeros_for_a_variable_that_nothing_depends_on() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x, w = tf.placeholder(tf.float64, [3]), tf.get_variable("w", [2, 2], tf.float64, use_resource=True)
        (zeros,) = tf.gradients(x, [w], unconnected_gradients="zero")
        assert zeros.dtype is tf.float64
        assert zeros.shape.as_list() == [2, 2]
        session.run(w.initializer)
        np.testing.assert_array_equal(session.run(zeros), np.zeros([2, 2]))


def test_nothing_flows_back_through_loops_without_back_prop() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float64, [3])
        for y in (
            tf.map_fn(tf.exp, x, back_prop=False),
            tf.scan(lambda a, r: a * r, x, back_prop=False),
            tf.foldl(lambda a, r: a * r, x, back_prop=False),
        ):
            assert tf.gradients(y, x) == [None]


@pytest.mark.parametrize("seed", [19, 62])
def test_random_programs(seed: int) -> None:
    """A short run of the fuzzer: ``python -m tests.fuzz.gradients`` makes a long one."""
    check(program(seed, depth=1), seed)
