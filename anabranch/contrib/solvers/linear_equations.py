"""`tf.contrib.solvers.linear_equations`: conjugate gradients (Hestenes and Stiefel 1952)."""

from __future__ import annotations

from typing import NamedTuple

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.contrib.solvers import util


class CGState(NamedTuple):
    """What conjugate gradients have come to.

    Args:
        i: the number of steps, int32.
        x: the solution, [n].
        r: what is left of the right-hand side, [n].
        p: the direction of the next step, [n].
        gamma: the product of the residual and the preconditioned residual, [].
    """

    i: tf.Tensor
    x: tf.Tensor
    r: tf.Tensor
    p: tf.Tensor
    gamma: tf.Tensor


def conjugate_gradient(
    operator: PassedOn,
    rhs: TensorLike,
    preconditioner: PassedOn = None,
    x: TensorLike | None = None,
    tol: float = 1e-4,
    max_iter: int = 20,
    name: str = "conjugate_gradient",
) -> CGState:
    """Solves ``A x = rhs`` for a self-adjoint, positive definite A.

    Args:
        operator: A, as `util.create_operator` gives it.
        rhs: [n].
        preconditioner: what multiplies by something like the inverse of A; None: nothing.
        x: [n]: where to begin; None: at zero.
        tol: ends where the residual's norm is at most this part of what it was.
        max_iter: ends after so many steps.
        name: of the operations.

    Example:
        >>> util = tf.contrib.solvers.util
        >>> A = util.create_operator(tf.constant([[2.0, 1.0], [1.0, 3.0]]))
        >>> sess.run(tf.contrib.solvers.linear_equations.conjugate_gradient(A, [3.0, 4.0]).x).round(4)
        array([1., 1.], dtype=float32)
    """
    with tf.name_scope(name):
        right = tf.expand_dims(tf.convert_to_tensor(rhs), -1)
        begin = tf.zeros_like(right) if x is None else tf.expand_dims(tf.convert_to_tensor(x), -1)
        left = right if x is None else right - operator.apply(begin)

        def conditioned(r: tf.Tensor) -> tf.Tensor:
            result: tf.Tensor = r if preconditioner is None else preconditioner.apply(r)
            return result

        direction = conditioned(left)
        enough = tol * tf.norm(left)

        def go_on(state: CGState) -> tf.Tensor:
            return tf.logical_and(state.i < max_iter, tf.norm(state.r) > enough)

        def step(state: CGState) -> list[CGState]:
            image = operator.apply(state.p)
            length = state.gamma / util.dot(state.p, image)
            r = state.r - length * image
            z = conditioned(r)
            gamma = util.dot(r, z)
            p = z + gamma / state.gamma * state.p
            further = CGState(state.i + 1, state.x + length * state.p, r, p, gamma)
            util.same_shapes(state, further)
            return [further]

        first = CGState(tf.constant(0), begin, left, direction, util.dot(left, direction))
        (last,) = tf.while_loop(go_on, step, [first])
        return CGState(last.i, last.x[:, 0], last.r[:, 0], last.p[:, 0], last.gamma)
