"""tf.contrib.legacy_seq2seq: decoders with attention, against NumPy, and the names of their variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.contrib import legacy_seq2seq as seq2seq

RNG = np.random.default_rng(0)
BATCH, LENGTH, DEPTH, SIZE, SYMBOLS = 3, 4, 5, 2, 6
INPUTS = [RNG.normal(size=(BATCH, SIZE)).astype(np.float32) for _ in range(3)]
MEMORY = RNG.normal(size=(BATCH, LENGTH, DEPTH)).astype(np.float32)
WORDS = [RNG.integers(0, SYMBOLS, BATCH).astype(np.int32) for _ in range(3)]


@pytest.fixture(autouse=True)
def graph() -> Any:
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        yield


def names() -> set[str]:
    return {v.op.name for v in tf.trainable_variables()}


def by_hand(values: dict[str, Any], first: Any, heads: int, reads_first: bool) -> tuple[list[Any], Any]:
    """The same network in NumPy, from the values of the variables by their names in the scope."""

    def dense(name: str, *parts: Any) -> Any:
        return np.concatenate(parts, 1) @ values[f"{name}kernel"] + values[f"{name}bias"]

    def attend(query: Any) -> list[Any]:
        reads = []
        for head in range(heads):
            hidden = MEMORY @ values[f"AttnW_{head}"][0, 0] + dense(f"Attention_{head}/", query)[:, None]
            scores = np.exp(np.tanh(hidden) @ values[f"AttnV_{head}"])
            shares = scores / scores.sum(1, keepdims=True)
            reads.append((shares[:, :, None] * MEMORY).sum(1))
        return reads

    state, outputs = first, []
    reads = attend(state) if reads_first else [np.zeros((BATCH, DEPTH), np.float32)] * heads
    for given in INPUTS:
        state = np.tanh(dense("basic_rnn_cell/", dense("", given, *reads), state))
        reads = attend(state)
        outputs.append(dense("AttnOutputProjection/", state, *reads))
    return outputs, state


@pytest.mark.parametrize(("heads", "reads_first"), [(1, False), (2, True)])
def test_decoder_is_the_network_written_out(heads: int, reads_first: bool) -> None:
    cell = tf.nn.rnn_cell.BasicRNNCell(4)
    first = RNG.normal(size=(BATCH, 4)).astype(np.float32)
    outputs, state = seq2seq.attention_decoder(
        INPUTS, tf.constant(first), MEMORY, cell, 7, heads, initial_state_attention=reads_first
    )
    assert [output.shape.as_list() for output in outputs] == [[BATCH, 7]] * 3
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        variables = {v.op.name.removeprefix("attention_decoder/"): v for v in tf.trainable_variables()}
        values, found, last = session.run([variables, outputs, state])
    expected, expected_state = by_hand(values, first, heads, reads_first)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, expected_state, rtol=1e-5, atol=1e-6)


def test_variables_have_tensorflows_names() -> None:
    seq2seq.embedding_attention_seq2seq(WORDS, WORDS, tf.nn.rnn_cell.BasicLSTMCell(4), SYMBOLS, SYMBOLS, 3)
    whole = "embedding_attention_seq2seq/"
    decoder = f"{whole}embedding_attention_decoder/attention_decoder/"
    matrices = [f"{whole}rnn/basic_lstm_cell/", decoder, f"{decoder}basic_lstm_cell/"]
    matrices += [f"{decoder}{part}/" for part in ("Attention_0", "AttnOutputProjection", "output_projection_wrapper")]
    expected = {f"{matrix}{kind}" for matrix in matrices for kind in ("kernel", "bias")}
    expected |= {f"{decoder}AttnW_0", f"{decoder}AttnV_0", f"{whole}embedding_attention_decoder/embedding"}
    expected |= {f"{whole}rnn/embedding_wrapper/embedding"}
    assert names() == expected


@pytest.mark.parametrize("layers", [1, 2])
def test_feeding_back(layers: int) -> None:
    feed = tf.placeholder(tf.bool, [])

    def build(feed_previous: Any, targets: Any) -> Any:
        cells = [tf.nn.rnn_cell.BasicLSTMCell(5) for _ in range(layers)]
        cell = tf.nn.rnn_cell.MultiRNNCell(cells)
        return seq2seq.embedding_attention_seq2seq(
            WORDS, targets, cell, SYMBOLS, SYMBOLS, 4, num_heads=2, feed_previous=feed_previous
        )

    logits, state = build(feed, WORDS)
    before = names()
    with tf.variable_scope("", reuse=True):
        given, _ = build(False, WORDS)
        fed_back, _ = build(True, [WORDS[0], *[np.zeros_like(w) for w in WORDS[1:]]])
    assert names() == before
    assert len(state) == layers
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for value, other in ((False, given), (True, fed_back)):
            found, expected = session.run([logits, other], {feed: value})
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_projection_and_gradients() -> None:
    projection = (tf.get_variable("w", [5, SYMBOLS]), tf.get_variable("b", [SYMBOLS]))
    cell = tf.nn.rnn_cell.GRUCell(5)
    outputs, _ = seq2seq.embedding_attention_seq2seq(WORDS, WORDS, cell, SYMBOLS, SYMBOLS, 4, 1, projection, True)
    assert outputs[0].shape.as_list() == [BATCH, 5]
    logits = [tf.nn.xw_plus_b(output, *projection) for output in outputs]
    loss = seq2seq.sequence_loss(logits, WORDS, [tf.ones([BATCH])] * 3)
    assert all(gradient is not None for gradient in tf.gradients(loss, tf.trainable_variables()))


def test_what_is_refused() -> None:
    cell = tf.nn.rnn_cell.BasicRNNCell(4)
    zeros = cell.zero_state(BATCH, tf.float32)
    with pytest.raises(ValueError, match="at least 1 input"):
        seq2seq.attention_decoder([], zeros, MEMORY, cell)
    with pytest.raises(ValueError, match="less than 1 heads"):
        seq2seq.attention_decoder(INPUTS, zeros, MEMORY, cell, num_heads=0)
    with pytest.raises(ValueError, match="must be known"):
        seq2seq.attention_decoder(INPUTS, zeros, tf.placeholder(tf.float32, [None, None, None]), cell)
    with pytest.raises(ValueError, match="infer input size"):
        seq2seq.attention_decoder([tf.placeholder(tf.float32, [None, None])], zeros, MEMORY, cell)
    projection = (tf.zeros([4, SYMBOLS]), tf.zeros([SYMBOLS + 1]))
    with pytest.raises(ValueError, match=r"compatible|Shapes"):
        seq2seq.embedding_attention_decoder(WORDS, zeros, MEMORY, cell, SYMBOLS, 3, output_projection=projection)
