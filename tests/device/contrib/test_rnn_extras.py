"""The cells and networks of `tf.contrib.rnn` that are its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

RNG = np.random.default_rng(2)
X = RNG.normal(size=(3, 5, 4))


def run(fetches: Any) -> Any:
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("normalize", [True, False])
def test_a_normalized_lstm(normalize: bool) -> None:
    # the same weights in each run: a result that happens to be near zero would be compared by its ratio
    tf.set_random_seed(1)
    cell = tf.contrib.rnn.LayerNormBasicLSTMCell(6, 0.5, layer_norm=normalize, norm_gain=1.5, norm_shift=0.25)
    outputs, last = tf.nn.dynamic_rnn(cell, tf.constant(X), dtype=tf.float64)
    names = [v.op.name.removeprefix("rnn/layer_norm_basic_lstm_cell/") for v in tf.trainable_variables()]
    parts = ("input", "transform", "forget", "output", "state")
    norms = [f"{part}/{kind}" for part in parts for kind in ("gamma", "beta")]
    assert names == (["kernel", *norms] if normalize else ["kernel", "bias"])
    got, state, (kernel, *others) = run([outputs, last, tf.trainable_variables()])
    bias = 0.0 if normalize else others[0]

    def norm(value: Any) -> Any:
        if not normalize:
            return value
        spread = np.sqrt(value.var(-1, keepdims=True) + 1e-12)
        scaled = (value - value.mean(-1, keepdims=True)) / spread
        return scaled * 1.5 + 0.25

    c = h = np.zeros((3, 6))
    for step in range(5):
        i, j, f, o = (norm(g) for g in np.split(np.concatenate([X[:, step], h], 1) @ kernel + bias, 4, axis=1))
        c = norm(c * sigmoid(f + 0.5) + sigmoid(i) * np.tanh(j))
        h = np.tanh(c) * sigmoid(o)
        np.testing.assert_allclose(got[:, step], h, rtol=1e-8)
    np.testing.assert_allclose(state.c, c, rtol=1e-8)


def test_dropout_in_a_normalized_lstm() -> None:
    cell = tf.contrib.rnn.LayerNormBasicLSTMCell(1000, layer_norm=False, dropout_keep_prob=0.25)
    _, state = cell(tf.ones([2, 3]), cell.zero_state(2, tf.float32))
    kept = (run(state).c != 0).mean()
    assert 0.15 < kept < 0.35


def test_stacks_are_bidirectional_networks_one_on_the_other() -> None:
    def cells() -> list[Any]:
        return [tf.nn.rnn_cell.GRUCell(n) for n in (3, 2)]

    lengths = [5, 2, 3]
    with tf.variable_scope("a"):
        dynamic = tf.contrib.rnn.stack_bidirectional_dynamic_rnn(
            cells(), cells(), tf.constant(X), dtype=tf.float64, sequence_length=lengths
        )
    with tf.variable_scope("a", reuse=True):
        steps = tf.unstack(tf.constant(X), axis=1)
        static = tf.contrib.rnn.stack_bidirectional_rnn(
            cells(), cells(), steps, dtype=tf.float64, sequence_length=lengths
        )
    assert (
        tf.trainable_variables()[0].name
        == "a/stack_bidirectional_rnn/cell_0/bidirectional_rnn/fw/gru_cell/gates/kernel:0"
    )
    got, other = run([dynamic, static])
    assert got[0].shape == (3, 5, 4)
    np.testing.assert_allclose(got[0], np.stack(other[0], 1), atol=1e-12)
    for mine, theirs in zip(got[1] + got[2], other[1] + other[2], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)
    assert (got[0][1, 2:] == 0).all()


def test_stacks_of_different_heights_are_refused() -> None:
    cell = tf.nn.rnn_cell.GRUCell(3)
    with pytest.raises(ValueError, match="1 forward cells, but 2 backward"):
        tf.contrib.rnn.stack_bidirectional_dynamic_rnn([cell], [cell, cell], tf.constant(X), dtype=tf.float64)
    with pytest.raises(ValueError, match="list of cells"):
        tf.contrib.rnn.stack_bidirectional_rnn(cell, [cell], [tf.constant(X[0])], dtype=tf.float64)
    with pytest.raises(ValueError, match="list of 1 states"):
        tf.contrib.rnn.stack_bidirectional_dynamic_rnn([cell], [cell], tf.constant(X), [], dtype=tf.float64)


def test_batch_and_time_change_places() -> None:
    assert run(tf.contrib.rnn.transpose_batch_time(X)).shape == (5, 3, 4)
    assert run(tf.contrib.rnn.transpose_batch_time([1, 2])).tolist() == [1, 2]
