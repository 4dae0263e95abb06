"""tf.contrib.legacy_seq2seq: shapes, shared weights, feeding back, losses and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.contrib import legacy_seq2seq as seq2seq

RNG = np.random.default_rng(0)
BATCH, DEPTH, SYMBOLS = 3, 4, 6
SOURCE = [RNG.normal(size=(BATCH, DEPTH)).astype(np.float32) for _ in range(3)]
TARGET = [RNG.normal(size=(BATCH, DEPTH)).astype(np.float32) for _ in range(2)]
WORDS = [RNG.integers(0, SYMBOLS, BATCH).astype(np.int32) for _ in range(3)]


def cell() -> Any:
    return tf.nn.rnn_cell.BasicLSTMCell(5)


def run(fetches: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches, feeds)


def names() -> set[str]:
    return {v.op.name for v in tf.trainable_variables()}


@pytest.fixture(autouse=True)
def graph() -> Any:
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        yield


def test_basic() -> None:
    outputs, state = seq2seq.basic_rnn_seq2seq(SOURCE, TARGET, cell())
    assert names() == {
        f"basic_rnn_seq2seq/{part}/basic_lstm_cell/{v}" for part in ("rnn", "rnn_decoder") for v in ("kernel", "bias")
    }
    values, last = run([outputs, state])
    assert [v.shape for v in values] == [(BATCH, 5)] * 2
    np.testing.assert_array_equal(last.h, values[-1])


def test_tied_is_one_network_over_both_sequences() -> None:
    shared = cell()
    outputs, state = seq2seq.tied_rnn_seq2seq(SOURCE, TARGET, shared)
    assert names() == {f"combined_tied_rnn_seq2seq/tied_rnn_seq2seq/basic_lstm_cell/{v}" for v in ("kernel", "bias")}
    with tf.variable_scope("combined_tied_rnn_seq2seq", reuse=True):
        whole, _ = tf.nn.static_rnn(
            cell(), [tf.constant(x) for x in SOURCE + TARGET], dtype=tf.float32, scope="tied_rnn_seq2seq"
        )
    found, expected = run([[*outputs, state.h], [*whole[3:], whole[-1]]])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_the_loop_function_replaces_all_inputs_but_the_first() -> None:
    start = tf.nn.rnn_cell.BasicRNNCell(DEPTH)
    zeros = start.zero_state(BATCH, tf.float32)
    outputs, _ = seq2seq.rnn_decoder(
        [TARGET[0]] + [np.full_like(TARGET[0], np.nan)] * 2, zeros, start, lambda o, i: o * i
    )
    with tf.variable_scope("rnn_decoder", reuse=True):
        again = tf.nn.rnn_cell.BasicRNNCell(DEPTH)
        first, state = again(tf.constant(TARGET[0]), zeros)
        second, state = again(first, state)
        third, _ = again(second * 2, state)
    found, expected = run([outputs, [first, second, third]])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("tied", [False, True])
def test_symbols_and_feeding_back(tied: bool) -> None:
    feed = tf.placeholder(tf.bool, [])

    def build(feed_previous: Any, targets: Any) -> Any:
        if tied:
            return seq2seq.embedding_tied_rnn_seq2seq(WORDS, targets, cell(), SYMBOLS, 4, feed_previous=feed_previous)
        return seq2seq.embedding_rnn_seq2seq(WORDS, targets, cell(), SYMBOLS, SYMBOLS, 4, feed_previous=feed_previous)

    logits, state = build(feed, WORDS)
    before = names()
    with tf.variable_scope("", reuse=True):
        given, _ = build(False, WORDS)
        fed_back, _ = build(True, [WORDS[0], *[np.zeros_like(w) for w in WORDS[1:]]])
    assert names() == before
    assert len(before) == (5 if tied else 8)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for value, other in ((False, given), (True, fed_back)):
            found, expected = session.run([logits, other], {feed: value})
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
        assert found[0].shape == (BATCH, SYMBOLS)
    assert state.h.shape.as_list() == [BATCH, 5]


def test_projection_and_gradients_through_fed_symbols() -> None:
    projection = (tf.get_variable("w", [5, SYMBOLS]), tf.get_variable("b", [SYMBOLS]))
    outputs, _ = seq2seq.embedding_rnn_seq2seq(
        WORDS, WORDS, cell(), SYMBOLS, SYMBOLS, 4, projection, feed_previous=True
    )
    assert outputs[0].shape.as_list() == [BATCH, 5]
    logits = [tf.nn.xw_plus_b(o, *projection) for o in outputs]
    loss = seq2seq.sequence_loss(logits, WORDS, [tf.ones([BATCH])] * 3)
    assert all(g is not None for g in tf.gradients(loss, tf.trainable_variables()))
    with pytest.raises(ValueError, match=r"compatible|Shapes"):
        seq2seq.embedding_rnn_decoder(WORDS, None, cell(), SYMBOLS + 1, 4, projection)


def test_one_to_many() -> None:
    outputs, states = seq2seq.one2many_rnn_seq2seq(
        WORDS, {"a": WORDS, "b": WORDS[:2]}, cell(), {"a": cell(), "b": cell()}, SYMBOLS, {"a": 6, "b": 9}, 4
    )
    found = run(outputs)
    assert [v.shape for v in found["a"]] == [(BATCH, 6)] * 3
    assert [v.shape for v in found["b"]] == [(BATCH, 9)] * 2
    assert set(states) == {"a", "b"}
    assert any(name.startswith("one2many_rnn_seq2seq/one2many_decoder_b/") for name in names())


def test_losses_are_weighted_means() -> None:
    logits = [RNG.normal(size=(BATCH, SYMBOLS)).astype(np.float32) for _ in WORDS]
    weights = [RNG.uniform(size=BATCH).astype(np.float32) for _ in WORDS]
    entropy = [np.log(np.exp(x).sum(1)) - x[np.arange(BATCH), w] for x, w in zip(logits, WORDS, strict=True)]
    sums = sum(e * w for e, w in zip(entropy, weights, strict=True))
    by_example = sums / sum(weights)
    got = run(
        [
            seq2seq.sequence_loss_by_example(logits, WORDS, weights),
            seq2seq.sequence_loss_by_example(logits, WORDS, weights, average_across_timesteps=False),
            seq2seq.sequence_loss(logits, WORDS, weights),
            seq2seq.sequence_loss(logits, WORDS, weights, average_across_batch=False),
        ]
    )
    for a, b in zip(got, [by_example, sums, by_example.mean(), by_example.sum()], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    with pytest.raises(ValueError, match="must be the same: 3, 2, 3"):
        seq2seq.sequence_loss(logits, WORDS, weights[:2])


def test_buckets_share_their_variables() -> None:
    targets, weights = WORDS, [np.ones(BATCH, np.float32)] * 3

    def network(source: Any, target: Any) -> Any:
        return seq2seq.embedding_tied_rnn_seq2seq(source, target, cell(), SYMBOLS, 4)

    outputs, losses = seq2seq.model_with_buckets(WORDS, WORDS, targets, weights, [(1, 2), (3, 3)], network)
    assert [len(o) for o in outputs] == [2, 3]
    assert len(names()) == 5
    assert np.isfinite(run(losses)).all()
    with pytest.raises(ValueError, match="at least that of the last bucket"):
        seq2seq.model_with_buckets(WORDS[:2], WORDS, targets, weights, [(3, 3)], network)


def test_training_reaches_a_copy_task() -> None:
    logits, _ = seq2seq.embedding_rnn_seq2seq(WORDS, [w * 0 for w in WORDS], cell(), SYMBOLS, SYMBOLS, 4)
    loss = seq2seq.sequence_loss(logits, WORDS, [tf.ones([BATCH])] * 3)
    train = tf.train.AdamOptimizer(0.05).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        losses = [session.run([loss, train])[0] for _ in range(60)]
    assert losses[-1] < 0.2 * losses[0]


# ---------------------------------------------------------------------- attention
def test_attention_is_a_weighted_mean_of_what_was_encoded() -> None:
    states = RNG.normal(size=(BATCH, 4, 6)).astype(np.float32)
    start = tf.zeros([BATCH, 5])
    outputs, _ = seq2seq.attention_decoder(
        TARGET, start, tf.constant(states), tf.nn.rnn_cell.BasicRNNCell(5), num_heads=2, initial_state_attention=True
    )
    values = {v.op.name.removeprefix("attention_decoder/"): v for v in tf.global_variables()}
    assert {"kernel", "AttnW_1", "AttnV_0", "Attention_1/bias", "AttnOutputProjection/kernel"} <= set(values)
    found, at = run([outputs, values])

    def linear(scope: str, *inputs: Any) -> Any:
        return np.concatenate(inputs, 1) @ at[f"{scope}kernel"] + at[f"{scope}bias"]

    def means(query: Any) -> list[Any]:
        answer = []
        for head in range(2):
            features = states @ at[f"AttnW_{head}"][0, 0] + linear(f"Attention_{head}/", query)[:, None]
            weights = np.exp((np.tanh(features) * at[f"AttnV_{head}"]).sum(2))
            answer.append(((weights / weights.sum(1, keepdims=True))[:, :, None] * states).sum(1))
        return answer

    state, looked = np.zeros((BATCH, 5), np.float32), means(np.zeros((BATCH, 5), np.float32))
    for step, given in enumerate(TARGET):
        state = np.tanh(linear("basic_rnn_cell/", linear("", given, *looked), state))
        looked = means(state)
        np.testing.assert_allclose(found[step], linear("AttnOutputProjection/", state, *looked), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("heads", [1, 2])
def test_attention_over_symbols_and_feeding_back(heads: int) -> None:
    feed = tf.placeholder(tf.bool, [])

    def build(feed_previous: Any, targets: Any) -> Any:
        return seq2seq.embedding_attention_seq2seq(
            WORDS, targets, cell(), SYMBOLS, SYMBOLS, 4, num_heads=heads, feed_previous=feed_previous
        )

    logits, state = build(feed, WORDS)
    before = names()
    with tf.variable_scope("", reuse=True):
        given, _ = build(False, WORDS)
        fed_back, _ = build(True, [WORDS[0], *[np.zeros_like(w) for w in WORDS[1:]]])
    assert names() == before
    assert "embedding_attention_seq2seq/embedding_attention_decoder/attention_decoder/AttnW_0" in before
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for value, other in ((False, given), (True, fed_back)):
            found, expected = session.run([logits, other], {feed: value})
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert found[0].shape == (BATCH, SYMBOLS)
    assert state.h.shape.as_list() == [BATCH, 5]


def test_errors_of_attention() -> None:
    one = tf.nn.rnn_cell.BasicRNNCell(5)
    states = tf.zeros([BATCH, 4, 6])
    for match, inputs, heads in (("at least 1 input", [], 1), ("less than 1 heads", TARGET, 0)):
        with pytest.raises(ValueError, match=match):
            seq2seq.attention_decoder(inputs, tf.zeros([BATCH, 5]), states, one, num_heads=heads)
    unknown = tf.placeholder(tf.float32, [BATCH, 4, None])
    with pytest.raises(ValueError, match=r"Shape\[2\]"):
        seq2seq.attention_decoder(TARGET, tf.zeros([BATCH, 5]), unknown, one)
