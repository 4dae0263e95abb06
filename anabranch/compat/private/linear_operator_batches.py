"""Of TensorFlow's private `linear_operator_util`: matrices of several batches, which libraries let broadcast."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import anabranch as tf
from anabranch.core.values import TensorLike


def broadcast_matrix_batch_dims(batch_matrices: Sequence[TensorLike], name: str | None = None) -> list[tf.Tensor]:
    """The same matrices, of shapes [..., n, m] of their own, each repeated for the batch of all together.

    Raises:
        ValueError: the batches do not go together.
    """
    with tf.name_scope(name or "broadcast_matrix_batch_dims"):
        matrices = [tf.convert_to_tensor(one) for one in batch_matrices]
        if len(matrices) < 2:
            return matrices
        batches = [one.shape[:-2] for one in matrices]
        known = functools.reduce(tf.broadcast_static_shape, batches)
        if known.is_fully_defined():
            repeated = (known != batch for batch in batches)
            pairs = zip(matrices, repeated, strict=True)
            return [_repeated(one, tf.constant(known.as_list(), tf.int32)) if again else one for one, again in pairs]
        batch = functools.reduce(tf.broadcast_dynamic_shape, [tf.shape(one)[:-2] for one in matrices])
        return [_repeated(one, batch) for one in matrices]


def _repeated(matrix: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
    return tf.broadcast_to(matrix, tf.concat([batch, tf.shape(matrix)[-2:]], 0))


def matrix_solve_with_broadcast(
    matrix: TensorLike, rhs: TensorLike, adjoint: bool = False, name: str | None = None
) -> tf.Tensor:
    """`tf.linalg.solve`, whose batches broadcast."""
    with tf.name_scope(name or "MatrixSolveWithBroadcast"):
        matrix, rhs = broadcast_matrix_batch_dims([matrix, rhs])
        return tf.linalg.solve(matrix, rhs, adjoint=adjoint)


def matrix_triangular_solve_with_broadcast(
    matrix: TensorLike, rhs: TensorLike, lower: bool = True, adjoint: bool = False, name: str | None = None
) -> tf.Tensor:
    """`tf.linalg.triangular_solve`, whose batches broadcast."""
    with tf.name_scope(name or "MatrixTriangularSolveWithBroadcast"):
        matrix, rhs = broadcast_matrix_batch_dims([matrix, rhs])
        return tf.linalg.triangular_solve(matrix, rhs, lower=lower, adjoint=adjoint)


def cholesky_solve_with_broadcast(chol: TensorLike, rhs: TensorLike, name: str | None = None) -> tf.Tensor:
    """`tf.linalg.cholesky_solve`, whose batches broadcast."""
    with tf.name_scope(name or "CholeskySolveWithBroadcast"):
        chol, rhs = broadcast_matrix_batch_dims([chol, rhs])
        return tf.linalg.cholesky_solve(chol, rhs)
