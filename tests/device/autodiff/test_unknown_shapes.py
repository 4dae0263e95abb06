"""Gradients whose formula depends on a shape that only the step knows."""

from __future__ import annotations

import numpy as np
import pytest

import anabranch as tf


def gradients_of_solutions(matrix: tf.Tensor, rhs: tf.Tensor, penalty: float) -> list[tf.Tensor]:
    """Of the first and of the second order, with respect to the matrix and the right-hand side."""
    solution = tf.sin(tf.matrix_solve_ls(matrix, rhs, l2_regularizer=penalty))
    first = tf.gradients(solution, [matrix, rhs])
    return first + tf.gradients(first[0] ** 2, [matrix, rhs])


@pytest.mark.parametrize("penalty", [0.0, 0.3])
@pytest.mark.parametrize("known", [None, [None, None], [3, None]])
def test_least_squares_of_a_system_of_any_shape(penalty: float, known: list[int | None] | None) -> None:
    rng = np.random.default_rng(3)
    fed = tf.placeholder(tf.float64, known), tf.placeholder(tf.float64, [None, 2])
    of_any_shape = gradients_of_solutions(*fed, penalty)
    with tf.Session() as session:
        for columns in (2, 3, 5):
            matrix, rhs = rng.normal(size=(3, columns)), rng.normal(size=(3, 2))
            expected = gradients_of_solutions(tf.constant(matrix), tf.constant(rhs), penalty)
            got = session.run([of_any_shape, expected], dict(zip(fed, (matrix, rhs), strict=True)))
            for one, other in zip(*got, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12)
