"""Roots of symmetric positive semidefinite matrices by iterations that consist of products only."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import TensorLike


def matrix_square_root(
    mat_a: TensorLike, mat_a_size: TensorLike, iter_count: int = 100, ridge_epsilon: float = 1e-4
) -> tf.Tensor:
    """The square root of a matrix by the product form of Newton's iteration (Higham, 1997).

    "Stable iterations for the matrix square root", equation 2.6b: ``x = (3 I - Z Y) / 2; Y = Y x; Z = x Z`` from Y the
    matrix over its norm and Z the identity. It ends when the error grows, and gives the iterate before.

    Args:
        mat_a: [n, n].
        mat_a_size: n.
        iter_count: how many iterations there may be.
        ridge_epsilon: is added to the diagonal, so that the matrix is positive definite.

    Returns:
        [n, n].
    """
    mat_a = tf.convert_to_tensor(mat_a)
    identity = tf.eye(tf.cast(mat_a_size, tf.int32), dtype=mat_a.dtype)
    mat_a = mat_a + ridge_epsilon * identity
    norm = tf.norm(mat_a)

    def improves(
        i: tf.Tensor, _y: tf.Tensor, _last_y: tf.Tensor, _z: tf.Tensor, error: tf.Tensor, last_error: tf.Tensor
    ) -> tf.Tensor:
        return tf.logical_and(i < iter_count, error < last_error)

    def iterate(
        i: tf.Tensor, y: tf.Tensor, _last_y: tf.Tensor, z: tf.Tensor, error: tf.Tensor, _last_error: tf.Tensor
    ) -> tuple[Any, ...]:
        factor = 0.5 * (3.0 * identity - tf.matmul(z, y))
        new_y = tf.matmul(y, factor)
        new_error = tf.norm(mat_a - norm * tf.matmul(new_y, new_y)) / norm
        return i + 1, new_y, y, tf.matmul(factor, z), new_error, error

    start = mat_a / norm
    last = tf.while_loop(improves, iterate, [0, start, start, identity, norm, norm + 1.0])
    root: tf.Tensor = last[2] * tf.sqrt(norm)
    return root


def matrix_inverse_pth_root(
    mat_g: TensorLike,
    mat_g_size: TensorLike,
    alpha: float,
    iter_count: int = 100,
    epsilon: float = 1e-6,
    ridge_epsilon: float = 1e-6,
) -> tf.Tensor:
    """The power ``alpha = -1/p`` of a matrix by a coupled Newton iteration (Guo and Higham, 2006).

    "A Schur-Newton method for the matrix p-th root and its inverse", equation 3.2: ``S = (1 - alpha) I + alpha M; M =
    S^p M; X = X S``, until M is the identity.

    Args:
        mat_g: [n, n].
        mat_g_size: n.
        alpha: -1/p, for an integer p > 0.
        iter_count: how many iterations there may be.
        epsilon: how far from the identity M may be in the end.
        ridge_epsilon: is added to the diagonal, so that the matrix is positive definite.

    Returns:
        [n, n].

    Raises:
        ValueError: `alpha` is no such number.
    """
    power = -1.0 / alpha if alpha else 0.0
    root = round(power)
    if root < 1 or abs(power - root) > 1e-6:
        raise ValueError(
            f"alpha must be -1/p for a positive integer p, got {alpha}; a singular value decomposition "
            "gives other powers"
        )
    mat_g = tf.convert_to_tensor(mat_g)
    if mat_g_size == 1:
        return tf.pow(mat_g + ridge_epsilon, alpha)
    identity = tf.eye(tf.cast(mat_g_size, tf.int32), dtype=mat_g.dtype)
    damped = mat_g + ridge_epsilon * identity
    # a scale with which the iteration converges, and soon, if the singular values differ by 2^p or more
    scale = (1 - 1 / alpha) / (2 * tf.norm(damped))

    def is_far(i: tf.Tensor, m: tf.Tensor, _x: tf.Tensor) -> tf.Tensor:
        return tf.logical_and(i < iter_count, tf.reduce_max(tf.abs(m - identity)) > epsilon)

    def iterate(i: tf.Tensor, m: tf.Tensor, x: tf.Tensor) -> tuple[Any, ...]:
        step = (1 - alpha) * identity + alpha * m
        return i + 1, tf.matmul(_matrix_power(step, root), m), tf.matmul(x, step)

    last = tf.while_loop(is_far, iterate, [0, damped * scale, identity * tf.pow(scale, -alpha)])
    inverse: tf.Tensor = last[2]
    return inverse


def _matrix_power(matrix: tf.Tensor, exponent: int) -> tf.Tensor:
    """By squaring; the exponent is at least 1."""
    if exponent == 1:
        return matrix
    half = _matrix_power(matrix, exponent // 2)
    square: tf.Tensor = tf.matmul(half, half)
    return tf.matmul(square, matrix) if exponent % 2 else square
