"""`tf.contrib.solvers.least_squares`: conjugate gradients for what has no solution, or many."""

from __future__ import annotations

from typing import NamedTuple

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.contrib.solvers import util


class CGLSState(NamedTuple):
    """What conjugate gradients for least squares have come to.

    Args:
        i: the number of steps, int32.
        x: the solution, [columns].
        r: what is left of the right-hand side, [rows].
        p: the direction of the next step, [columns].
        gamma: the squared norm of the residual of the normal equations, [].
    """

    i: tf.Tensor
    x: tf.Tensor
    r: tf.Tensor
    p: tf.Tensor
    gamma: tf.Tensor


def cgls(operator: PassedOn, rhs: TensorLike, tol: float = 1e-6, max_iter: int = 20, name: str = "cgls") -> CGLSState:
    """Minimizes the norm of ``A x - rhs`` by conjugate gradients for the normal equations, which are not formed.

    Args:
        operator: A, as `util.create_operator` gives it.
        rhs: [rows].
        tol: ends where the norm of the normal equations' residual is at most this part of what it was.
        max_iter: ends after so many steps.
        name: of the operations.

    Example:
        >>> util = tf.contrib.solvers.util
        >>> A = util.create_operator(tf.constant([[1.0], [1.0]]))
        >>> sess.run(tf.contrib.solvers.least_squares.cgls(A, [3.0, 5.0]).x)
        array([4.], dtype=float32)
    """
    with tf.name_scope(name):
        right = tf.expand_dims(tf.convert_to_tensor(rhs), -1)
        direction = operator.apply_adjoint(right)
        gamma = util.l2norm_squared(direction)
        enough = tol * tol * gamma

        def go_on(state: CGLSState) -> tf.Tensor:
            return tf.logical_and(state.i < max_iter, state.gamma > enough)

        def step(state: CGLSState) -> list[CGLSState]:
            image = operator.apply(state.p)
            length = state.gamma / util.l2norm_squared(image)
            r = state.r - length * image
            gradient = operator.apply_adjoint(r)
            gamma = util.l2norm_squared(gradient)
            p = gradient + gamma / state.gamma * state.p
            further = CGLSState(state.i + 1, state.x + length * state.p, r, p, gamma)
            util.same_shapes(state, further)
            return [further]

        first = CGLSState(tf.constant(0), tf.zeros_like(direction), right, direction, gamma)
        (last,) = tf.while_loop(go_on, step, [first])
        return CGLSState(last.i, last.x[:, 0], last.r[:, 0], last.p[:, 0], last.gamma)
