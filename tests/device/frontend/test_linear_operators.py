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


# --------------------------------------------------------------------------- operators of a program's own
class Reversal(tf.linalg.LinearOperator):
    """Turns rows round: known by its product alone, as TensorFlow's documentation has it."""

    def __init__(self, size: Any, batch: list[int]) -> None:
        super().__init__(tf.float64, is_square=True, name="Reversal")
        self._size, self._batch = tf.convert_to_tensor(size), batch

    def _shape(self) -> tf.TensorShape:
        known = tf.get_static_value(self._size)
        return tf.TensorShape([*self._batch, known, known])

    def _shape_tensor(self) -> tf.Tensor:
        return tf.stack([*self._batch, self._size, self._size])

    def _matmul(self, x: tf.Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> tf.Tensor:
        with self._name_scope("turned"):
            self._check_input_dtype(x)
            return tf.reverse(tf.linalg.adjoint(x) if adjoint_arg else x, [-2])


@pytest.mark.parametrize("batch", [[], [2]])
@pytest.mark.parametrize("known", [True, False])
def test_an_operator_of_a_programs_own_is_its_product(known: bool, batch: list[int]) -> None:
    operator = Reversal(3 if known else tf.placeholder_with_default(3, []), batch)
    dense = np.broadcast_to(np.eye(3)[::-1], [*batch, 3, 3])
    right = MATRIX if batch else MATRIX[0]
    composed = tf.linalg.LinearOperatorFullMatrix(right) @ operator
    made = [operator.to_dense(), operator.matmul(right), operator.matmul(right, adjoint_arg=True), operator.trace()]
    made += [operator.solve(right), operator.H.to_dense(), composed.to_dense()]
    with Session() as session:
        found = session.run(made)
    turned = right[..., ::-1, :]
    wanted = [dense, turned, np.swapaxes(right, -1, -2)[..., ::-1, :], np.ones(batch), turned, dense, right @ dense]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    assert any("Reversal/turned/" in operation.name for operation in tf.get_default_graph().get_operations())


def test_an_operator_that_says_too_little_is_refused() -> None:
    class Nothing(tf.linalg.LinearOperator):
        def _shape(self) -> tf.TensorShape:
            return tf.TensorShape([None, None])

    class Product(Nothing):
        def _matmul(self, x: tf.Tensor, adjoint: bool = False, adjoint_arg: bool = False) -> tf.Tensor:
            return x

    with pytest.raises(NotImplementedError, match="Nothing defines neither _to_dense nor _matmul"):
        Nothing(tf.float32).to_dense()
    with pytest.raises(NotImplementedError, match="has to define _shape_tensor"):
        Product(tf.float32).to_dense()
    with pytest.raises(TypeError, match="Expected argument to have dtype"):
        Product(tf.float32)._check_input_dtype(tf.constant(1))
