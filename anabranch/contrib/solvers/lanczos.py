"""`tf.contrib.solvers.lanczos`: matrices as products with a bidiagonal one (Golub and Kahan 1965)."""

from __future__ import annotations

from typing import Any, NamedTuple

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.contrib.solvers import util


class LanczosBidiagState(NamedTuple):
    """``A v = u B`` and ``A* u[:, :-1] = v B[:-1]*``, where B [k + 1, k] is lower bidiagonal.

    Args:
        u: [rows, k + 1]: orthonormal columns.
        v: [columns, k]: orthonormal columns.
        alpha: [k]: the diagonal of B.
        beta: [k]: what is below.
    """

    u: tf.Tensor
    v: tf.Tensor
    alpha: tf.Tensor
    beta: tf.Tensor


def lanczos_bidiag(
    operator: PassedOn,
    k: TensorLike,
    orthogonalize: bool = True,
    starting_vector: TensorLike | None = None,
    name: str = "lanczos_bidiag",
) -> LanczosBidiagState:
    """Makes `k` steps of Lanczos' bidiagonalization.

    Args:
        operator: A, as `util.create_operator` gives it.
        k: the number of steps.
        orthogonalize: whether each vector is made orthogonal to all before it, which rounding else spoils; twice, as
            once leaves what cancelled (Parlett 1980).
        starting_vector: [rows]; None: random.
        name: of the operations.
    """
    with tf.name_scope(name):
        dtype = operator.dtype
        begin = tf.random_uniform(operator.shape[:1], -1, 1, dtype) if starting_vector is None else starting_vector
        first, _ = util.l2normalize(tf.convert_to_tensor(begin))
        rows, columns = operator.shape[0], operator.shape[1]

        def unit(v: tf.Tensor, basis: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            for _ in range(2 if orthogonalize else 0):  # those that are still to come are zeros
                v -= tf.matmul(basis, tf.matmul(basis, v), transpose_a=True)
            norm = util.l2norm(v)
            return tf.div_no_nan(v, norm), norm  # nothing is left where the space is exhausted

        def step(i: tf.Tensor, state: LanczosBidiagState) -> Any:
            u = state.u[i][:, tf.newaxis]
            last = tf.maximum(i - 1, 0)  # the vector before the first is zero
            r = operator.apply_adjoint(u) - state.beta[last] * state.v[last][:, tf.newaxis]
            v, alpha = unit(r, state.v)
            u, beta = unit(operator.apply(v) - alpha * u, state.u)
            further = LanczosBidiagState(
                state.u + _at(i + 1, u, tf.shape(state.u)[0]),
                state.v + _at(i, v, k),
                state.alpha + alpha * tf.one_hot(i, k, dtype=dtype),
                state.beta + beta * tf.one_hot(i, k, dtype=dtype),
            )
            util.same_shapes(state, further)
            return i + 1, further

        empty = LanczosBidiagState(
            tf.concat([first[tf.newaxis], tf.zeros([k, rows], dtype)], 0),
            tf.zeros([k, columns], dtype),
            tf.zeros([k], dtype),
            tf.zeros([k], dtype),
        )
        _, whole = tf.while_loop(lambda i, _: i < k, step, [0, empty])
        return LanczosBidiagState(tf.transpose(whole.u), tf.transpose(whole.v), whole.alpha, whole.beta)


def _at(i: tf.Tensor, v: tf.Tensor, size: TensorLike) -> tf.Tensor:
    """A matrix of zeros but for a column vector that is its row `i`."""
    result: tf.Tensor = tf.one_hot(i, size, dtype=v.dtype)[:, tf.newaxis] * tf.transpose(v)
    return result


def bidiag_matmul(
    matrix: tf.Tensor, alpha: tf.Tensor, beta: tf.Tensor, adjoint_b: bool = False, name: str = "bidiag_matmul"
) -> tf.Tensor:
    """A matrix times a lower bidiagonal one, B [k + 1, k].

    Args:
        matrix: [rows, k + 1], or [rows, k] with `adjoint_b`.
        alpha: [k]: the diagonal of B.
        beta: [k]: what is below.
        adjoint_b: whether to multiply by the transpose of B without its last row.
        name: of the operations.
    """
    with tf.name_scope(name):
        if not adjoint_b:
            result: tf.Tensor = matrix[:, :-1] * alpha + matrix[:, 1:] * beta
            return result
        return matrix * alpha + tf.pad(matrix[:, :-1] * beta[:-1], [[0, 0], [1, 0]])
