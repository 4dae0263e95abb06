"""Interpreted programs against compiled ones: each primitive, the choice between the two, and what may not change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import anabranch as tf
from anabranch.xla import executable, interpreter
from anabranch.xla.executable import compile_log
from anabranch.xla.interpreter import Interpretation, TooLargeError
from anabranch.xla.jax_settings import in_wide_types

rng = np.random.default_rng(0)
X = rng.standard_normal((3, 4)).astype(np.float32)
Y = rng.standard_normal((3, 4)).astype(np.float32)
M = rng.standard_normal((4, 5)).astype(np.float32)
B = rng.standard_normal((2, 3, 4)).astype(np.float32)
I = np.array([[7, -7, 0, 3], [-1, 5, 2, -3], [9, 1, 4, 6]], np.int32)
J = np.array([[2, 2, 0, -2], [5, -3, 1, 0], [4, 2, 3, 7]], np.int32)
ROWS = np.array([2, 0, -1, 5], np.int32)

PROGRAMS: dict[str, Any] = {
    "arithmetic": (lambda x, y: [x + y, x - y, x * y, x / y, -x, lax.rem(x, y), lax.max(x, y), lax.min(x, y)], X, Y),
    "integers": (lambda x, y: [lax.div(x, y), lax.rem(x, y), lax.sign(x), abs(x), x & y, x | y, x ^ y, ~x], I, J),
    "shifts": (
        lambda x: [
            lax.shift_left(x, x * 0 + 3),
            lax.shift_right_logical(x, x * 0 + 3),
            lax.shift_right_arithmetic(x, x * 0 + 3),
        ],
        I,
    ),
    "functions": (
        lambda x: [jnp.exp(x), jnp.tanh(x), lax.rsqrt(x * x), lax.logistic(x), jnp.log1p(x * x), jnp.expm1(x)],
        X,
    ),
    "powers": (lambda x: [x**3, lax.integer_pow(x, -2), jnp.power(abs(x), x), jnp.square(x), jnp.sqrt(abs(x))], X),
    "rounding": (lambda x: [jnp.round(3 * x), jnp.floor(x), jnp.ceil(x), jnp.clip(x, -0.5, 0.5)], X),
    "comparisons": (
        lambda x, y: [x < y, x <= y, x > y, x >= y, x == y, x != y, jnp.isfinite(x / 0), jnp.where(x < y, x, y)],
        X,
        Y,
    ),
    "conversions": (
        lambda x: [
            x.astype(jnp.int32),
            x.astype(bool),
            (x * 1e20).astype(jnp.int32),
            x.astype(jnp.float64),
            (x * np.nan).astype(int),
        ],
        X,
    ),
    "bits": (lambda x: lax.bitcast_convert_type(x, jnp.int32), X),
    "shapes": (
        lambda x: [x.T, x.reshape(2, 6), x[:, None], jnp.broadcast_to(x[0], (2, 4)), x[::2, 1:], x[::-1], x.ravel()],
        X,
    ),
    "joining": (
        lambda x, y: [jnp.concatenate([x, y], 1), jnp.stack([x, y], 1), *jnp.split(x, 2, 1), jnp.pad(x, 2)],
        X,
        Y,
    ),
    "interior padding": (lambda x: lax.pad(x, np.float32(7), ((1, 0, 2), (0, 2, 1))), X),
    "windows": (
        lambda x, i: [lax.dynamic_slice(x, (i[0], i[3]), (2, 3)), lax.dynamic_update_slice(x, x[:1], (i[1], i[2]))],
        X,
        ROWS,
    ),
    "reductions": (
        lambda x: [
            x.sum(),
            x.sum(0),
            x.max(1),
            x.min(),
            x.prod(0),
            x.argmax(1),
            x.argmin(0),
            (x > 0).all(),
            (x > 0).any(1),
        ],
        X,
    ),
    "scans": (lambda x: [jnp.cumsum(x, 0), lax.cumsum(x, 1, reverse=True), jnp.cumprod(x, 1), lax.cummax(x, 0)], X),
    "products": (
        lambda x, m, b: [x @ m, jnp.einsum("bij,kj->bik", b, x), jnp.einsum("bij,bij->b", b, b), jnp.vdot(x, x)],
        X,
        M,
        B,
    ),
    "empty products": (lambda x: x[:, :0] @ x[:, :0].T, X),
    "gather": (
        lambda x, i: [x[i], x[:, i], jnp.take(x, i, 1, mode="clip"), jnp.take(x, i, 0), x[i[:3], i[:3]]],
        X,
        ROWS,
    ),
    "gather windows": (lambda b, i: [b[:, i], b[0, i, 1:], jnp.take_along_axis(b, i.reshape(1, 4, 1) % 3, 1)], B, ROWS),
    "scatter": (lambda x, i: [x.at[i].add(1.0), x.at[:, i].set(2.0), x.at[i].max(0.5), x.at[i, i].add(x[0])], X, ROWS),
    "top k": (lambda x: lax.top_k(x, 2), X),
    "constants": (lambda x: [x + jnp.asarray(Y), jnp.arange(4) + x[0], jnp.eye(3, 4) * x], X),
    "calls": (lambda x: [jax.nn.relu(x), jax.nn.softmax(x), jax.jit(lambda v: v + 1)(x), jax.nn.gelu(x)], X),
    "without a rule": (lambda x: [jnp.sort(x, 1), lax.erf_inv(x / 10), lax.lgamma(abs(x))], X),
    "random": (lambda s: jax.random.uniform(jax.random.key(s), (3,)), np.uint32(5)),
    "loops": (lambda x: lax.fori_loop(0, 3, lambda i, v: v * 2 + i, x), X),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_compiled(name: str) -> None:
    program, *args = PROGRAMS[name]

    def flat(*args: Any) -> Any:
        return jax.tree.leaves(program(*args))

    compiled = in_wide_types(jax.jit(flat), *args)
    interpreted = in_wide_types(lambda: Interpretation(flat, args)(*args))
    assert len(compiled) == len(interpreted)
    for ours, theirs in zip(interpreted, compiled, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=3e-6, atol=1e-6)


def test_results_share_memory_with_nothing() -> None:
    fed = X.copy()
    first, second, constant = Interpretation(lambda x: [x, x.reshape(3, 4), jnp.asarray(Y)], [fed])(fed)
    fed[:] = 0
    np.testing.assert_array_equal(first, X)
    assert first.unsafe_buffer_pointer() != second.unsafe_buffer_pointer()
    assert not np.shares_memory(np.asarray(constant), Y)


def test_large_programs_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooLargeError):
        Interpretation(lambda x: jnp.zeros((4096, 4096)) + x, [np.float32(1)])
    monkeypatch.setattr(interpreter, "MAX_FOREIGN", 0)
    with pytest.raises(TooLargeError):
        Interpretation(jnp.sort, [X])


@pytest.fixture
def compilations() -> Iterator[list[Any]]:
    events: list[Any] = []
    compile_log.listeners.append(events.append)
    yield events
    compile_log.listeners.remove(events.append)


def test_training_on_batches_of_every_size_compiles_twice(compilations: list[Any]) -> None:
    """Episodes of different lengths: a step each, of which none waits for a compilation but the first two."""
    images, labels = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.int32, [None])
    weights = tf.get_variable("weights", [4, 3], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=images @ weights))
    train = tf.train.AdamOptimizer(0.1).minimize(loss)
    expected = np.zeros((4, 3))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        compilations.clear()
        moments, squares = np.zeros((4, 3)), np.zeros((4, 3))
        for step, size in enumerate(range(3, 30), 1):
            batch = rng.standard_normal((size, 4)).astype(np.float32)
            classes = rng.integers(0, 3, size)
            session.run(train, {images: batch, labels: classes})
            logits = batch @ expected
            probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            gradient = batch.T @ (probabilities - np.eye(3)[classes]) / size
            moments, squares = 0.9 * moments + 0.1 * gradient, 0.999 * squares + 0.001 * gradient**2
            rate = 0.1 * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            expected = expected - rate * moments / (np.sqrt(squares) + 1e-8)
        np.testing.assert_allclose(session.run(weights), expected, rtol=1e-3, atol=1e-4)
    assert len([e for e in compilations if e.operations > 5]) == executable.EAGER_VARIANTS


def test_a_shape_that_comes_often_is_compiled(compilations: list[Any]) -> None:
    x = tf.placeholder(tf.float32, [None])
    y = tf.reduce_sum(tf.square(x) + 1.0)
    with tf.Session() as session:
        for size in (1, 2, 3):
            session.run(y, {x: np.ones(size)})
        assert len(compilations) == 2
        for _ in range(executable.INTERPRETED_CALLS):
            assert session.run(y, {x: np.ones(3)}) == 6
        assert len(compilations) == 3


def test_checks_are_made(compilations: list[Any]) -> None:
    x, rows = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.int32, [None])
    total = tf.Variable(0.0)
    with tf.control_dependencies([tf.Assert(tf.reduce_all(x > 0), [x])]):
        add = tf.assign_add(total, tf.reduce_sum(tf.gather(x, rows)))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for size in range(1, 6):
            session.run(add, {x: np.ones(size), rows: np.arange(size)})
        with pytest.raises(tf.errors.InvalidArgumentError, match="assertion failed"):
            session.run(add, {x: -np.ones(7), rows: [0]})
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = 9"):
            session.run(add, {x: np.ones(8), rows: [9]})
        assert session.run(total) == 15
