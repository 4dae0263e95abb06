"""`tf.contrib.seq2seq`: attention, as NumPy computes it from the same variables, and monotonic attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf

seq2seq = tf.contrib.seq2seq
RANDOM = np.random.RandomState(5)
BATCH, POSITIONS, DEPTH, UNITS = 3, 4, 5, 6
MEMORY = RANDOM.randn(BATCH, POSITIONS, DEPTH).astype(np.float32)
QUERY = RANDOM.randn(BATCH, UNITS).astype(np.float32)
LENGTHS = np.array([4, 2, 1], np.int32)


def masked_softmax(scores: Any, lengths: Any) -> Any:
    scores = np.where(np.arange(POSITIONS) < lengths[:, None], scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def run_mechanism(mechanism: Any) -> tuple[Any, dict[str, Any]]:
    """Its alignments to `QUERY`, and the values of the variables by the last parts of their names."""
    state = mechanism.initial_state(BATCH, tf.float32)
    alignments, _ = mechanism(tf.constant(QUERY), state)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        values = session.run({v.op.name: v for v in tf.global_variables()})
        return session.run(alignments), values


def of_name(values: dict[str, Any], ending: str) -> Any:
    (value,) = [value for name, value in values.items() if name.endswith(ending)]
    return value


@pytest.mark.parametrize("scale", [False, True])
def test_luong(scale: bool) -> None:
    alignments, values = run_mechanism(seq2seq.LuongAttention(UNITS, MEMORY, LENGTHS, scale=scale))
    masked = MEMORY * (np.arange(POSITIONS) < LENGTHS[:, None])[..., None]
    keys = masked @ of_name(values, "memory_layer/kernel")
    gain = of_name(values, "attention_g") if scale else 1.0
    scores = gain * np.einsum("bu,bpu->bp", QUERY, keys)
    np.testing.assert_allclose(alignments, masked_softmax(scores, LENGTHS), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("normalize", [False, True])
def test_bahdanau(normalize: bool) -> None:
    alignments, values = run_mechanism(seq2seq.BahdanauAttention(7, MEMORY, LENGTHS, normalize=normalize))
    masked = MEMORY * (np.arange(POSITIONS) < LENGTHS[:, None])[..., None]
    keys = masked @ of_name(values, "memory_layer/kernel")
    query = (QUERY @ of_name(values, "query_layer/kernel"))[:, None]
    v, bias = of_name(values, "attention_v"), 0.0
    if normalize:
        v = of_name(values, "attention_g") * v / np.sqrt(np.sum(v**2))
        bias = of_name(values, "attention_b")
    scores = np.sum(v * np.tanh(keys + query + bias), axis=2)
    np.testing.assert_allclose(alignments, masked_softmax(scores, LENGTHS), rtol=1e-4, atol=1e-6)


def test_a_wrapped_cell_attends_and_keeps_what_it_attended_to() -> None:
    mechanisms = [seq2seq.LuongAttention(UNITS, MEMORY, LENGTHS), seq2seq.BahdanauAttention(7, MEMORY, LENGTHS)]
    cell = seq2seq.AttentionWrapper(
        tf.nn.rnn_cell.GRUCell(UNITS), mechanisms, attention_layer_size=[3, 2], alignment_history=True
    )
    assert cell.output_size == 5
    helper = seq2seq.TrainingHelper(RANDOM.randn(BATCH, 6, 2).astype(np.float32), np.array([6, 3, 1], np.int32))
    start = cell.zero_state(BATCH, tf.float32).clone(cell_state=tf.ones([BATCH, UNITS]))
    outputs, state, lengths = seq2seq.dynamic_decode(seq2seq.BasicDecoder(cell, helper, start))
    histories = [history.stack() for history in state.alignment_history]
    gradients = tf.gradients(outputs.rnn_output, tf.trainable_variables())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        values, kept, aligned, taken, grads = session.run(
            [outputs.rnn_output, histories, state.alignments, lengths, gradients]
        )
    assert values.shape == (BATCH, 6, 5)
    assert taken.tolist() == [6, 3, 1]
    assert all(np.any(gradient) for gradient in grads)
    for history, last in zip(kept, aligned, strict=True):
        assert history.shape == (6, BATCH, POSITIONS)
        np.testing.assert_allclose(history.sum(axis=2), 1.0, rtol=1e-5)
        assert not history[:, 2, 1:].any()
        np.testing.assert_array_equal(history[-1], last)


def test_without_a_layer_the_context_is_the_attention() -> None:
    cell = seq2seq.AttentionWrapper(
        tf.nn.rnn_cell.GRUCell(UNITS), seq2seq.LuongAttention(UNITS, MEMORY, LENGTHS), output_attention=False
    )
    output, state = cell(tf.ones([BATCH, 2]), cell.zero_state(BATCH, tf.float32))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        values, alignments, attention = session.run([output, state.alignments, state.attention])
    assert values.shape == (BATCH, UNITS)
    masked = MEMORY * (np.arange(POSITIONS) < LENGTHS[:, None])[..., None]
    np.testing.assert_allclose(attention, np.einsum("bp,bpd->bd", alignments, masked), rtol=1e-4, atol=1e-6)


def numeric_monotonic(p: Any, before: Any) -> Any:
    """The definition, one position after the other."""
    attention = np.zeros_like(p)
    for row in range(len(p)):
        reached = 0.0
        for at in range(p.shape[1]):
            reached = (reached * (1 - p[row, at - 1]) if at else 0.0) + before[row, at]
            attention[row, at] = p[row, at] * reached
    return attention


def test_monotonic_attention_goes_on_from_where_it_was() -> None:
    p, before = RANDOM.uniform(0.1, 0.9, (4, 6)), RANDOM.dirichlet(np.ones(6), 4)
    hard = (p > 0.5).astype(np.float64)
    at_one = np.eye(6)[[0, 2, 5, 3]]
    with tf.Session() as session:
        recursive, parallel = session.run(
            [seq2seq.monotonic_attention(p, before, m) for m in ("recursive", "parallel")]
        )
        chosen, same = session.run([seq2seq.monotonic_attention(hard, at_one, m) for m in ("hard", "recursive")])
    np.testing.assert_allclose(recursive, numeric_monotonic(p, before), rtol=1e-10)
    np.testing.assert_allclose(parallel, recursive, rtol=1e-8)
    np.testing.assert_allclose(chosen, same, atol=1e-12)


@pytest.mark.parametrize("kind", [seq2seq.BahdanauMonotonicAttention, seq2seq.LuongMonotonicAttention])
@pytest.mark.parametrize("mode", ["recursive", "parallel", "hard"])
def test_monotonic_mechanisms(kind: Callable[..., Any], mode: str) -> None:
    mechanism = kind(UNITS, MEMORY, LENGTHS, mode=mode, score_bias_init=0.5)
    start = mechanism.initial_state(BATCH, tf.float32)
    first, _ = mechanism(tf.constant(QUERY), start)
    second, _ = mechanism(tf.constant(QUERY), first)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        begin, one, two = session.run([start, first, second])
    assert begin.tolist() == [[1, 0, 0, 0]] * BATCH
    assert not one[2, 1:].any()
    # what is attended to does not move back
    assert (np.cumsum(two, axis=1) <= np.cumsum(one, axis=1) + 1e-5).all()
    if mode == "hard":
        assert set(np.unique(one)) <= {0.0, 1.0}


def test_hardmax_and_cumulative_products() -> None:
    with tf.Session() as session:
        assert session.run(seq2seq.hardmax([[1.0, 3.0, 3.0], [5.0, 1.0, 2.0]])).tolist() == [[0, 1, 0], [1, 0, 0]]
        x = tf.constant([0.5, 0.0, 0.25])
        products = seq2seq.safe_cumprod(x)
        np.testing.assert_allclose(session.run(products), [0.5, 0, 0], atol=1e-30)
        assert np.isfinite(session.run(tf.gradients(products, x)[0])).all()


def test_what_is_wrong_is_told() -> None:
    mechanism = seq2seq.LuongAttention(UNITS, MEMORY, LENGTHS)
    cell = tf.nn.rnn_cell.GRUCell(UNITS)
    with pytest.raises(ValueError, match="depth 5 .* cannot be multiplied with keys of depth 6"):
        mechanism(tf.zeros([BATCH, 5]), mechanism.initial_state(BATCH, tf.float32))
    with pytest.raises(ValueError, match="tile_batch"):
        seq2seq.AttentionWrapper(cell, mechanism).zero_state(BATCH * 2, tf.float32)
    with pytest.raises(ValueError, match="an entry for each of the 1 attention mechanisms, got 2"):
        seq2seq.AttentionWrapper(cell, mechanism, attention_layer_size=[1, 2])
    with pytest.raises(TypeError, match="AttentionMechanism"):
        seq2seq.AttentionWrapper(cell, cell)
    with pytest.raises(ValueError, match="mode must be one of"):
        seq2seq.BahdanauMonotonicAttention(UNITS, MEMORY, mode="soft")
    with pytest.raises(ValueError, match="sizes of the memory"):
        seq2seq.LuongAttention(UNITS, tf.placeholder(tf.float32, [None, None, None]))
