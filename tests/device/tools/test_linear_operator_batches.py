"""Matrices of several batches, which libraries let broadcast by a private module of TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.compat.private import linear_operator_batches as batches
from anabranch.tools import deferred_modules

_RANDOM = np.random.default_rng(3)
_MATRICES = _RANDOM.normal(size=(3, 1, 2, 2)) + 3 * np.eye(2)
_RIGHT = _RANDOM.normal(size=(4, 2, 1))


@pytest.mark.parametrize("known", [True, False])
def test_solutions_of_two_batches(known: bool) -> None:
    matrix = tf.placeholder(tf.float64, _MATRICES.shape if known else None)
    right = tf.placeholder(tf.float64, _RIGHT.shape if known else None)
    lower, symmetric = np.tril(_MATRICES), _MATRICES @ _MATRICES.swapaxes(-1, -2)
    checked: list[tuple[Any, Any]] = [
        (batches.matrix_solve_with_broadcast(matrix, right), _MATRICES),
        (batches.matrix_solve_with_broadcast(matrix, right, adjoint=True), _MATRICES.swapaxes(-1, -2)),
        (batches.matrix_triangular_solve_with_broadcast(matrix, right), lower),
        (batches.matrix_triangular_solve_with_broadcast(matrix, right, adjoint=True), lower.swapaxes(-1, -2)),
        (
            batches.cholesky_solve_with_broadcast(tf.linalg.cholesky(matrix @ tf.matrix_transpose(matrix)), right),
            symmetric,
        ),
    ]
    with tf.Session() as session:
        for found, system in checked:
            expected = np.linalg.solve(np.broadcast_to(system, (3, 4, 2, 2)), np.broadcast_to(_RIGHT, (3, 4, 2, 1)))
            np.testing.assert_allclose(session.run(found, {matrix: _MATRICES, right: _RIGHT}), expected, rtol=1e-9)
            assert not known or found.shape.as_list() == [3, 4, 2, 1]


def test_batches_of_their_own() -> None:
    first, second = tf.zeros([2, 3]), tf.zeros([5, 4, 1])
    assert [one.shape.as_list() for one in batches.broadcast_matrix_batch_dims([first, second])] == [
        [5, 2, 3],
        [5, 4, 1],
    ]
    assert batches.broadcast_matrix_batch_dims([first]) == [first]
    with pytest.raises(ValueError, match="broadcast"):
        batches.broadcast_matrix_batch_dims([tf.zeros([2, 1, 1]), tf.zeros([3, 1, 1])])


def test_they_are_found_below_a_module_that_is_not_there() -> None:
    package = deferred_modules.find_module("python.ops.linalg")
    assert package is not None
    assert package.linear_operator_util is batches
