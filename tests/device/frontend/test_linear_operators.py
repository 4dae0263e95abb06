"""Linear operators of tensors whose rank is not known until the step: as those of known tensors, which NumPy checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.session import Session

_random = np.random.default_rng(0)
MATRIX, VECTOR = _random.normal(size=[2, 3, 3]), _random.normal(size=[2, 3])
LOWER = np.tril(MATRIX)
RIGHT = _random.normal(size=[4, 1, 3, 2])
DIAGONAL = np.eye(3) * VECTOR[:, None]
Given = Callable[[Any], Any]

OPERATORS: dict[str, tuple[Callable[[Given], Any], Any]] = {
    "full": (lambda of: tf.linalg.LinearOperatorFullMatrix(of(MATRIX)), MATRIX),
    "lower": (lambda of: tf.linalg.LinearOperatorLowerTriangular(of(MATRIX)), LOWER),
    "diagonal": (lambda of: tf.linalg.LinearOperatorDiag(of(VECTOR)), DIAGONAL),
    "scaled": (lambda of: tf.linalg.LinearOperatorScaledIdentity(3, of(VECTOR[:, 0])), np.eye(3) * VECTOR[:, :1, None]),
    "adjoint": (lambda of: tf.linalg.LinearOperatorFullMatrix(of(MATRIX)).H, MATRIX.transpose(0, 2, 1)),
    "composition": (
        lambda of: tf.linalg.LinearOperatorFullMatrix(of(MATRIX)) @ tf.linalg.LinearOperatorDiag(of(VECTOR)),
        MATRIX @ DIAGONAL,
    ),
    "low rank": (
        lambda of: tf.linalg.LinearOperatorLowRankUpdate(tf.linalg.LinearOperatorDiag(of(VECTOR)), of(MATRIX[..., :1])),
        DIAGONAL + MATRIX[..., :1] @ MATRIX[..., :1].transpose(0, 2, 1),
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_unknown_rank(name: str) -> None:
    make, dense = OPERATORS[name]
    operator = make(lambda value: tf.placeholder_with_default(value, None))
    right = tf.placeholder_with_default(RIGHT, None)
    column = right[..., 0]
    with Session() as session:
        found = session.run(
            [operator.matmul(right), operator.solve(right), operator.solvevec(column), operator.to_dense()]
            + [operator.log_abs_determinant(), operator.shape_tensor()]
        )
    solved = np.linalg.solve(np.broadcast_to(dense, [4, 2, 3, 3]), np.broadcast_to(RIGHT, [4, 2, 3, 2]))
    wanted = [dense @ RIGHT, solved, solved[..., 0], dense, np.linalg.slogdet(dense)[1], dense.shape]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
