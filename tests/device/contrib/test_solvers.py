"""`tf.contrib.solvers`, beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import anabranch as tf

solvers = tf.contrib.solvers
RNG = np.random.default_rng(8)
WIDE = RNG.normal(size=(4, 7))


def test_conjugate_gradients_solve_equations() -> None:
    matrix = WIDE @ WIDE.T
    right = RNG.normal(size=4)
    operator = solvers.util.create_operator(tf.constant(matrix))
    inverse = solvers.util.create_operator(tf.constant(np.diag(1 / np.diag(matrix))))
    plain = solvers.linear_equations.conjugate_gradient(operator, right, tol=1e-10)
    exact = np.linalg.solve(matrix, right)
    near = solvers.linear_equations.conjugate_gradient(operator, right, inverse, exact + 1e-3, 1e-6)
    nothing = solvers.linear_equations.conjugate_gradient(solvers.util.identity_operator(tf.eye(4)), tf.ones(4))
    with tf.Session() as session:
        plain, near, nothing = session.run([plain, near, nothing])
    np.testing.assert_allclose(plain.x, exact, rtol=1e-7)
    np.testing.assert_allclose(near.x, exact, atol=1e-6)
    np.testing.assert_allclose(plain.r, right - matrix @ plain.x, atol=1e-8)
    assert 4 <= plain.i <= 6
    assert nothing.i == 1


@pytest.mark.parametrize("shape", [(4, 7), (7, 4)])
def test_least_squares(shape: tuple[int, int]) -> None:
    matrix, right = WIDE.reshape(shape), RNG.normal(size=shape[0])
    fed = tf.placeholder(tf.float64)
    operator = solvers.util.create_operator(fed)
    with tf.Session() as session:
        found = session.run(solvers.least_squares.cgls(operator, right, 1e-12), {fed: matrix})
    np.testing.assert_allclose(found.x, np.linalg.lstsq(matrix, right, rcond=None)[0], rtol=1e-8)


@pytest.mark.parametrize("orthogonalize", [True, False])
@pytest.mark.parametrize("k", [2, 4])
def test_bidiagonalization(k: int, orthogonalize: bool) -> None:
    operator = solvers.util.create_operator(tf.constant(WIDE.T))
    start = tf.constant(RNG.normal(size=7))
    state = solvers.lanczos.lanczos_bidiag(operator, k, orthogonalize, start)
    forward = solvers.lanczos.bidiag_matmul(state.u, state.alpha, state.beta)
    backward = solvers.lanczos.bidiag_matmul(state.v, state.alpha, state.beta, adjoint_b=True)
    with tf.Session() as session:
        state, forward, backward = session.run([state, forward, backward])
    np.testing.assert_allclose(WIDE.T @ state.v, forward, atol=1e-12)
    np.testing.assert_allclose(WIDE @ state.u[:, :-1], backward, atol=1e-12)
    np.testing.assert_allclose(state.u.T @ state.u, np.eye(k + 1), atol=1e-9)
