"""`tf.contrib.solvers.util`: operators, and norms of vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import anabranch as tf


class MultiplyingOperator(NamedTuple):
    """A matrix as what multiplies by it: what the solvers take; any object with these attributes will do.

    Args:
        shape: of the matrix, as a list or a tensor.
        dtype: of its elements.
        apply: multiplies a column vector [columns, 1] by it.
        apply_adjoint: multiplies a column vector [rows, 1] by its conjugate transpose.
    """

    shape: Any
    dtype: tf.DType
    apply: Callable[[tf.Tensor], tf.Tensor]
    apply_adjoint: Callable[[tf.Tensor], tf.Tensor]


def create_operator(matrix: tf.Tensor) -> MultiplyingOperator:
    """What multiplies by a matrix."""
    return MultiplyingOperator(
        _shape(matrix),
        matrix.dtype,
        lambda v: tf.matmul(matrix, v),
        lambda v: tf.matmul(matrix, v, adjoint_a=True),
    )


def identity_operator(matrix: tf.Tensor) -> MultiplyingOperator:
    """What leaves vectors as they are, with the shape and dtype of a matrix."""
    return MultiplyingOperator(_shape(matrix), matrix.dtype, lambda v: v, lambda v: v)


def _shape(matrix: tf.Tensor) -> Any:
    return matrix.shape.as_list() if matrix.shape.is_fully_defined() else tf.shape(matrix)


def same_shapes(before: Iterable[tf.Tensor], after: Iterable[tf.Tensor]) -> None:
    """States of a loop keep their shapes, which operators may not know."""
    for old, new in zip(before, after, strict=True):
        new.set_shape(old.shape)


def dot(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """The product of the conjugate of x and y, summed."""
    result: tf.Tensor = tf.reduce_sum(tf.conj(x) * y)
    return result


def l2norm_squared(v: tf.Tensor) -> tf.Tensor:
    """The sum of the squares."""
    return tf.reduce_sum(tf.square(v))


def l2norm(v: tf.Tensor) -> tf.Tensor:
    """The Euclidean norm."""
    return tf.sqrt(l2norm_squared(v))


def l2normalize(v: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(The vector divided by its norm, the norm)."""
    norm = l2norm(v)
    return v / norm, norm
