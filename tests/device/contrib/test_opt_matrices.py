"""The optimizers of `tf.contrib.opt` that invert matrices, beside NumPy's decompositions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.contrib import opt_matrix_roots

opt = tf.contrib.opt
RNG = np.random.default_rng(6)


def power(matrix: Any, exponent: float, damping: float = 0.0) -> Any:
    values, vectors = np.linalg.eigh(matrix + damping * np.eye(len(matrix)))
    return vectors * np.maximum(values, 1e-12) ** exponent @ vectors.T


def positive(size: int) -> Any:
    factor = RNG.normal(size=(size, size))
    return factor @ factor.T + 0.5 * np.eye(size)


def train(made: Any, starts: list[Any], gradients: list[list[Any]], count: Any = None) -> list[Any]:
    """The variables after a step for each list of gradients."""
    variables = [tf.get_variable(f"v{i}", initializer=start) for i, start in enumerate(starts)]
    fed = [tf.placeholder(start.dtype, start.shape) for start in starts]
    step = made.apply_gradients(zip(fed, variables, strict=True), global_step=count)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for given in gradients:
            session.run(step, dict(zip(fed, given, strict=True)))
        found: list[Any] = session.run(variables)
        return found


# ---------------------------------------------------------------------- roots
@pytest.mark.parametrize("size", [1, 2, 5])
def test_square_roots(size: int) -> None:
    matrix = positive(size)
    found = opt_matrix_roots.matrix_square_root(matrix, size, ridge_epsilon=1e-3)
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(found), power(matrix, 0.5, 1e-3), atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("root", [1, 2, 3, 4, 7])
def test_inverse_roots(size: int, root: int) -> None:
    matrix = positive(size)
    found = opt_matrix_roots.matrix_inverse_pth_root(matrix, size, -1 / root, ridge_epsilon=1e-3)
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(found), power(matrix, -1 / root, 1e-3), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("alpha", [0.5, 0.0, -0.3])
def test_other_powers_are_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha must be -1/p"):
        opt_matrix_roots.matrix_inverse_pth_root(np.eye(2), 2, alpha)


# ---------------------------------------------------------------------- GGT
@pytest.mark.parametrize(("dtype", "eps"), [(np.float32, 1e-4), (np.float64, 1e-4), (np.float64, 1e3)])
def test_ggt(dtype: Any, eps: float) -> None:
    shapes, window, steps = [(2, 2), (3,)], 3, 5
    starts = [RNG.normal(size=shape).astype(dtype) for shape in shapes]
    gradients = [[RNG.normal(size=shape).astype(dtype) for shape in shapes] for _ in range(steps)]
    made = opt.GGTOptimizer(0.1, 0.8, window=window, eps=eps, svd_eps=1e-3, sigma_eps=0.05)
    flat, mean, kept = np.concatenate([s.ravel() for s in starts]).astype(float), np.zeros(7), np.zeros((window, 7))
    for t, given in enumerate(gradients):
        mean = 0.8 * mean + 0.2 * np.concatenate([g.ravel() for g in given])
        kept[t % window] = mean
        m = kept.T / np.sqrt(min(t + 1, window))
        variances, u = np.linalg.eigh(m.T @ m + 1e-3 * np.eye(window))
        s = np.sqrt(variances)
        change = m @ u @ np.diag((s + 0.05) ** -3) @ u.T @ m.T @ mean
        if s.min() > eps:
            change += (mean - m @ u @ np.diag(1 / variances) @ u.T @ m.T @ mean) / s.min()
        flat -= 0.1 * change
    found = np.concatenate([value.ravel() for value in train(made, starts, gradients)])
    np.testing.assert_allclose(found, flat, rtol=2e-3 if dtype == np.float32 else 1e-6)
    assert sorted(v.op.name for v in made.variables()) == ["flat_grad", "global_step", "grad_buffer", "moment1"]


def test_ggt_refuses_what_it_cannot_put_into_one_vector() -> None:
    a, b = tf.get_variable("a", [2]), tf.get_variable("b", [2], tf.float64)
    with pytest.raises(ValueError, match="variables of one dtype"):
        opt.GGTOptimizer().minimize(tf.reduce_sum(a) + tf.cast(tf.reduce_sum(b), tf.float32))
    made = opt.GGTOptimizer()
    made.minimize(tf.reduce_sum(a), var_list=[a])
    with pytest.raises(ValueError, match="make another one for other variables"):
        made.minimize(tf.reduce_sum(b), var_list=[b])
    with pytest.raises(NotImplementedError, match="Sparse gradient updates are not supported"):
        opt.GGTOptimizer().minimize(tf.gather(a, [1]), var_list=[a])
    with pytest.raises(ValueError, match="window must be a positive number"):
        opt.GGTOptimizer(window=0)


# ---------------------------------------------------------------------- Shampoo
def along(tensor: Any, matrix: Any, axis: int) -> Any:
    return np.moveaxis(np.tensordot(tensor, matrix, axes=([axis], [0])), -1, axis)


def as_matrix(tensor: Any, axis: int) -> Any:
    return np.moveaxis(tensor, axis, 0).reshape(tensor.shape[axis], -1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4,), (3, 2), (2, 3, 2), (1, 3)])
@pytest.mark.parametrize("is_iterative", [False, True])
def test_shampoo(dtype: Any, shape: tuple[int, ...], is_iterative: bool) -> None:
    start = RNG.normal(size=shape).astype(dtype)
    gradients = [RNG.normal(size=shape).astype(dtype) for _ in range(4)]
    settings: dict[str, Any] = {"gbar_decay": 0.9, "gbar_weight": 0.2, "mat_gbar_decay": 0.95, "mat_gbar_weight": 0.5}
    made = opt.ShampooOptimizer(learning_rate=0.1, epsilon=0.1, use_iterative_root=is_iterative, **settings)
    w, gbar = start.astype(float), np.zeros(shape)
    matrices = [np.zeros((size, size)) for size in shape]
    for grad in gradients:
        gbar = 0.9 * gbar + 0.2 * grad
        change = gbar
        for axis, size in enumerate(shape):
            flat = as_matrix(grad, axis)
            matrices[axis] = 0.95 * matrices[axis] + 0.5 * flat @ flat.T
            if is_iterative:  # the root of a root of what is damped
                root = power(matrices[axis] / size, 0.5, 0.1)
                inverse = power(root, -1 / len(shape))
            else:
                inverse = power(matrices[axis] / size, -0.5 / len(shape), 0.1)
            change = along(change, inverse, axis)
        w -= 0.1 * change
    found = train(made, [start], [[g] for g in gradients])[0]
    np.testing.assert_allclose(found, w, rtol=2e-3 if dtype == np.float32 else 1e-4, atol=1e-4)


def test_shampoo_keeps_the_diagonal_of_a_large_dimension() -> None:
    start = RNG.normal(size=(3, 5))
    gradients = [RNG.normal(size=(3, 5)) for _ in range(3)]
    for grad in gradients:
        grad[:, 2] = 0  # a diagonal element that stays zero
    made = opt.ShampooOptimizer(max_matrix_size=4, learning_rate=0.1, epsilon=1e-3)
    w, rows, columns = start.copy(), np.zeros((3, 3)), np.zeros(5)
    for grad in gradients:
        rows += grad @ grad.T
        columns += (grad**2).sum(0) / 5
        scale = np.where(columns > 0, np.where(columns > 0, columns, 1) ** -0.25, 0)
        w -= 0.1 * power(rows / 3, -0.25, 1e-3) @ grad * scale
    np.testing.assert_allclose(train(made, [start], [[g] for g in gradients])[0], w, rtol=1e-6)
    variable = tf.global_variables()[0]
    assert made.get_slot_names() == ["Gbar_0", "Gbar_1", "gbar"]
    assert made.get_slot(variable, "Gbar_1").shape.as_list() == [5]


def test_shampoo_computes_roots_now_and_then_and_follows_the_step() -> None:
    start, gradients = RNG.normal(size=(2, 3)), [RNG.normal(size=(2, 3)) for _ in range(7)]
    count = tf.train.get_or_create_global_step()
    made = opt.ShampooOptimizer(
        count,
        svd_interval=lambda t: tf.where(t < 4, 2.0, 3.0),
        precond_update_interval=2,
        learning_rate=lambda t: 0.1 / t,
        gbar_weight=lambda t: t / (t + 1.0),
        epsilon=1e-3,
    )
    w, matrices, inverses = start.copy(), [np.zeros((2, 2)), np.zeros((3, 3))], [np.eye(2), np.eye(3)]
    for t, grad in enumerate(gradients, 1):
        change = t / (t + 1) * grad
        for axis in range(2):
            flat = as_matrix(grad, axis)
            if t % 2 == 0:
                matrices[axis] = matrices[axis] + 2 * flat @ flat.T
            if t % (2 if t < 4 else 3) == 0:
                inverses[axis] = power(matrices[axis] / len(flat), -0.25, 1e-3)
            change = along(change, inverses[axis], axis)
        w -= 0.1 / t * change
    found = train(made, [start], [[g] for g in gradients], count)[0]
    np.testing.assert_allclose(found, w, rtol=1e-5, atol=1e-7)
    assert made.get_slot_names() == ["Gbar_0", "Gbar_1", "H_0", "H_1", "gbar"]


@pytest.mark.parametrize("largest", [8, 4, 1])
def test_sparse_gradients_of_shampoo(largest: int) -> None:
    """Of a large variable the rows alone: another step than with the dense gradient, whose mean is over all rows."""
    start = RNG.normal(size=(6, 2))
    made = opt.ShampooOptimizer(max_matrix_size=largest, learning_rate=0.1, epsilon=1e-3)
    w = tf.get_variable("w", initializer=start)
    fed, indices = tf.placeholder(tf.float64, [None, 2]), tf.placeholder(tf.int32, [None])
    step = made.apply_gradients([(tf.IndexedSlices(fed, indices, [6, 2]), w)])
    value, rows, columns, matrix = start.copy(), np.zeros(6), np.zeros((2, 2)), np.zeros((6, 6))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for at in ([1, 4], [4, 0], [5, 5]):
            given = RNG.normal(size=(2, 2))
            session.run(step, {fed: given, indices: at})
            grad = np.zeros((6, 2))
            np.add.at(grad, at, given)
            columns += grad.T @ grad
            if largest < 6:
                rows += (grad**2).sum(1)
                left = np.diag(np.where(rows > 0, np.where(rows > 0, rows, 1) ** -0.25, 0))
            else:
                matrix += grad @ grad.T
                left = power(matrix / 6, -0.25, 1e-3)
            right = power(columns / 2, -0.25, 1e-3) if largest > 1 else np.diag(columns.diagonal() ** -0.25)
            value -= 0.1 * left @ grad @ right
        np.testing.assert_allclose(session.run(w), value, rtol=1e-6)


def test_shampoo_says_what_it_cannot_do_for_rows() -> None:
    w = tf.get_variable("w", [6, 2])
    rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([3]), [6, 2])
    with pytest.raises(ValueError, match="mat_gbar_decay must be 1"):
        opt.ShampooOptimizer(max_matrix_size=4, mat_gbar_decay=0.9).apply_gradients([(rows, w)])
