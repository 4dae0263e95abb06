"""Steps whose shapes change each time: small ones run their operations' kernels directly before they are compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.xla import executable

rng = np.random.default_rng(0)


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
        for _ in range(executable.DIRECT_CALLS):
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


def test_results_share_memory_with_nothing(compilations: list[Any]) -> None:
    x = tf.placeholder(tf.float32, [None])
    fetches = [tf.identity(x), tf.reshape(x, [-1, 1]), x[:], tf.constant([1.0, 2.0])]
    with tf.Session() as session:
        for size in (1, 2, 3, 4):
            fed = np.arange(size, dtype=np.float32)
            found = session.run(fetches, {x: fed})
            fed[:] = -1
            np.testing.assert_array_equal(found[0], np.arange(size))
            for number, value in enumerate(found):
                assert not any(np.shares_memory(value, other) for other in [fed, *found[:number]])
    assert len(compilations) == executable.EAGER_VARIANTS


@pytest.mark.parametrize("build", ["wide", "filled", "special", "loop"])
def test_what_is_large_or_has_no_kernel_in_numpy_is_compiled(
    build: str, compilations: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executable, "MAX_DIRECT_ELEMENTS", 5000)
    monkeypatch.setattr(executable, "MAX_FOREIGN", 0)
    x = tf.placeholder(tf.float32, [None])
    built = {
        "wide": lambda: tf.reduce_sum(x[:, None] * x[None, :]),
        "filled": lambda: tf.reduce_sum(tf.fill([100 * tf.shape(x)[0]], x[0])),
        "special": lambda: tf.digamma(x),
        "loop": lambda: tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y)), (0, x))[1],
    }[build]()
    with tf.Session() as session:
        for size in (100, 101, 102, 103):
            session.run(built, {x: np.ones(size)})
    assert len(compilations) == 4


def test_conditionals_run_the_branch_that_is_taken(compilations: list[Any]) -> None:
    x, v = tf.placeholder(tf.float32, [None]), tf.get_variable("v", [], initializer=tf.zeros_initializer())
    y = tf.cond(tf.reduce_sum(x) > 3, lambda: tf.assign_add(v, tf.reduce_sum(x)), lambda: tf.identity(v))
    with tf.Session() as session:
        session.run(v.initializer)
        compilations.clear()
        assert [session.run(y, {x: np.ones(n)}) for n in range(1, 8)] == [0, 0, 0, 4, 9, 15, 22]
        assert len(compilations) == executable.EAGER_VARIANTS
