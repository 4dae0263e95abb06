"""The first calls of a new graph: a small one runs by its operations' own kernels, and is compiled at the third."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import anabranch as tf
from anabranch.ops.arithmetic.random_bits import HostKey
from anabranch.runtime import explain
from anabranch.xla import executable
from anabranch.xla.executable import CompileEvent, compile_log


@pytest.fixture
def compilations() -> Iterator[list[CompileEvent]]:
    events: list[CompileEvent] = []
    compile_log.listeners.append(events.append)
    yield events
    compile_log.listeners.remove(events.append)


def test_the_third_call_is_compiled_and_gives_the_same(compilations: list[CompileEvent]) -> None:
    x = tf.placeholder(tf.float32, [2, 3])
    w = tf.Variable(np.full((3, 4), 0.5, np.float32))
    loss = tf.reduce_sum(tf.sigmoid(x @ w)[:, 1:])
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    fed = {x: np.arange(6.0).reshape(2, 3)}
    values = []
    for calls in (executable.FIRST_DIRECT_CALLS, 0):
        with pytest.MonkeyPatch.context() as patch, tf.Session() as session:
            patch.setattr(executable, "FIRST_DIRECT_CALLS", calls)
            session.run(tf.global_variables_initializer())
            compilations.clear()
            for step in range(1, 5):
                session.run(train, fed)
                assert len([e for e in compilations if e.operations > 5]) == (step > calls)
            values.append(session.run(w))
    np.testing.assert_allclose(*values, rtol=1e-6)


def test_small_systems_of_equations_are_not_compiled_at_first(compilations: list[CompileEvent]) -> None:
    numbers = np.random.default_rng(0).normal(size=(2, 4, 4))
    a = tf.placeholder(tf.float64, [2, 4, 4])
    symmetric = a @ tf.matrix_transpose(a) + tf.eye(4, dtype=tf.float64)
    factor = tf.cholesky(symmetric)
    fetches = [
        tf.matrix_inverse(a),
        tf.matrix_solve(a, symmetric, adjoint=True),
        tf.matrix_triangular_solve(factor, symmetric, adjoint=True),
        tf.matrix_determinant(a),
        *tf.linalg.slogdet(a),
        tf.linalg.expm(a * 9.0),
        tf.gradients(factor, a)[0],
    ]
    with tf.Session() as session:
        values = []
        for step in range(1, 4):
            values.append(session.run(fetches, {a: numbers}))
            assert bool(compilations) == (step > executable.FIRST_DIRECT_CALLS)
        for direct, compiled in zip(values[0], values[-1], strict=True):
            np.testing.assert_allclose(direct, compiled, rtol=1e-9)


@pytest.mark.parametrize("direct", [True, False])
def test_matrices_that_are_singular_or_not_finite(direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 2 if direct else 0)
    a = tf.placeholder(tf.float32, [2, 2, 2])
    identity = np.eye(2)
    refused = {
        "Cholesky decomposition was not successful": (tf.cholesky(a), [[1, 2], [2, 1]]),
        "Input is not invertible": (tf.matrix_inverse(a), [[1, 2], [2, 4]]),
        "Input matrix is not invertible": (tf.matrix_solve(a, a), [[np.nan, 2], [np.nan, 4]]),
        "Input is not invertible.": (tf.matrix_triangular_solve(a, a), [[0, 2], [2, 4]]),
    }
    with tf.Session() as session:
        for message, (result, matrix) in refused.items():
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                session.run(result, {a: [identity, matrix]})
        not_finite = {a: [identity, [[1, np.nan], [np.nan, 1]]]}
        good, bad = session.run(tf.cholesky(a), not_finite)
        np.testing.assert_array_equal(good, identity)
        np.testing.assert_array_equal(bad, [[1, 0], [np.nan, np.nan]])
        sign, logarithm = session.run(list(tf.linalg.slogdet(a)), not_finite)
        np.testing.assert_array_equal([sign, logarithm], [[1, np.nan], [0, np.nan]])
        assert np.isnan(session.run(tf.linalg.expm(a), not_finite)[1]).all()


def test_what_fails_leaves_the_variables_as_they_were() -> None:
    rows = tf.placeholder(tf.int32, [None])
    v, w = (tf.get_variable(name, initializer=np.zeros(3, np.float32), use_resource=True) for name in "vw")
    with tf.control_dependencies([v.assign_add([1.0, 2.0, 3.0])]):
        step = w.scatter_add(tf.IndexedSlices(tf.ones_like(rows, tf.float32), rows))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for expected in (1, 2, 3):  # directly, directly, compiled
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"= 3 is not in \[0, 3\)"):
                session.run(step, {rows: [0, 3]})
            session.run(step, {rows: [1, 1]})
            found = session.run([v, w])
            np.testing.assert_array_equal(found, np.multiply(expected, [[1, 2, 3], [0, 2, 0]]))


@pytest.mark.parametrize("what", ["large", "special", "loop"])
def test_what_is_large_or_has_no_kernel_in_numpy_is_compiled_at_once(
    what: str, compilations: list[CompileEvent]
) -> None:
    x = tf.placeholder(tf.float32, [3])
    built = {
        "large": lambda: tf.reduce_sum(tf.fill([executable.MAX_FIRST_ELEMENTS], x[0])),
        "special": lambda: tf.digamma(x),
        "loop": lambda: tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y)), (0, x))[1],
    }[what]()
    with tf.Session() as session:
        session.run(built, {x: np.ones(3)})
    assert len(compilations) == 1


def test_random_numbers_are_the_same_in_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    tf.set_random_seed(7)
    for seed in (None, 5):
        for dtype in (tf.float32, tf.float64, tf.float16, tf.bfloat16):
            drawn += [tf.random_uniform([3, 5], dtype=dtype, seed=seed), tf.random_normal([17], dtype=dtype, seed=seed)]
        drawn += [tf.truncated_normal([50], seed=seed), tf.random_shuffle(tf.range(20), seed=seed)]
        drawn += [tf.random_uniform((), -5, 1 << 20, dtype=tf.int32, seed=seed)]
        drawn += [tf.random_uniform([4], -(1 << 60), 1 << 61, dtype=tf.int64, seed=seed)]
    found: list[list[Any]] = []
    for calls in (2, 0):
        monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", calls)
        with tf.Session() as session:
            found.append(session.run(drawn) + session.run(drawn))
    for direct, compiled in zip(*found, strict=True):
        assert direct.dtype == compiled.dtype
        np.testing.assert_array_equal(direct, compiled)


@pytest.mark.parametrize("seed", [0, 1 << 40, (1 << 63) - 1])
def test_keys_outside_of_jax(seed: int) -> None:
    key = HostKey.of(seed).folded(11)
    with jax.enable_x64(True):
        known = jax.random.fold_in(jax.random.key(np.int64(seed)), 11)
        assert [*key] == jax.random.key_data(known).tolist() == jax.random.key_data(key.on_device()).tolist()
        assert key.bits64() == int(jax.random.bits(known, (), jnp.uint64))


def test_explanations_tell_the_tier() -> None:
    output = io.StringIO()
    explainer = explain.enable(Console(file=output, width=200))
    try:
        y = tf.tanh(tf.placeholder_with_default([1.0, 2.0], [2]), name="bent")
        with tf.Session() as session:
            for _ in range(3):
                session.run(y)
        explainer.print_summary()
    finally:
        explain.disable()
    told = output.getvalue()
    assert told.index("ran directly") < told.index("compiled after 1 more: first run of this step")
    assert told.index("compiled after") < told.index("compiled island")
    assert "1 kinds of steps, 1 compilations in" in told
    assert "1 programs that ran directly first" in told
