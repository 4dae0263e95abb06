"""`tf.contrib.seq2seq.BeamSearchDecoder`, beside a search that looks at everything."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import anabranch as tf

seq2seq = tf.contrib.seq2seq
RANDOM = np.random.RandomState(7)
VOCABULARY, START, END, STEPS = 4, 0, 3, 3
#: log probabilities of the next word, by the word before: for each of two sequences
TABLE = np.log(RANDOM.dirichlet(np.ones(VOCABULARY), (2, VOCABULARY))).astype(np.float32)


class TableCell(tf.nn.rnn_cell.RNNCell):  # type: ignore[misc]
    """Gives the row of a table that belongs to the sequence and the last word, which its input is."""

    output_size, state_size = VOCABULARY, 1

    def call(self, inputs: Any, state: Any) -> Any:
        words = tf.cast(inputs[:, 0], tf.int32)
        return tf.gather_nd(TABLE, tf.stack([tf.cast(state[:, 0], tf.int32), words], 1)), state


def decoded(beams: int, steps: int = STEPS, **options: Any) -> tuple[Any, Any, Any]:
    state = seq2seq.tile_batch(tf.constant([[0.0], [1.0]]), beams)
    decoder = seq2seq.BeamSearchDecoder(
        TableCell(), lambda ids: tf.cast(ids[..., tf.newaxis], tf.float32), [START, START], END, state, beams, **options
    )
    outputs, last, lengths = seq2seq.dynamic_decode(decoder, maximum_iterations=steps)
    with tf.Session() as session:
        return session.run([outputs, last, lengths])


def everything(sequence: int, weight: float = 0.0) -> dict[tuple[int, ...], float]:
    """The scores of all sequences of `STEPS` words; ended ones are filled up with `END`.

    As in TensorFlow, the end counts as a word once it is not the last.
    """
    scores: dict[tuple[int, ...], float] = {}
    for words in itertools.product(range(VOCABULARY), repeat=STEPS):
        total, before, count = 0.0, START, 0
        for at, word in enumerate(words):
            total += float(TABLE[sequence, before, word])
            if word == END:
                count = at + (at + 1 < STEPS)
                words = (*words[:at], *[END] * (STEPS - at))
                break
            before, count = word, at + 1
        scores[words] = total / ((5 + count) / 6) ** weight
    return scores


@pytest.mark.parametrize("weight", [0.0, 0.9])
def test_wide_beams_find_what_looking_at_everything_finds(weight: float) -> None:
    beams = 20
    outputs, last, _ = decoded(beams, length_penalty_weight=weight)
    assert outputs.predicted_ids.shape == (2, STEPS, beams)
    for sequence in range(2):
        score_of = everything(sequence, weight)
        scores = outputs.beam_search_decoder_output.scores[sequence, -1]
        np.testing.assert_allclose(scores, sorted(score_of.values(), reverse=True)[:beams], rtol=1e-5)
        words = [tuple(map(int, ids)) for ids in outputs.predicted_ids[sequence].T]
        assert len(set(words)) == beams
        np.testing.assert_allclose([score_of[each] for each in words], scores, rtol=1e-5)
    assert last.lengths.dtype == np.int64


def test_one_beam_is_greedy() -> None:
    outputs, last, _ = decoded(1)
    for sequence in range(2):
        word, total = START, 0.0
        for step in range(STEPS):
            row = TABLE[sequence, word]
            word = int(row.argmax())
            total += float(row[word])
            assert outputs.predicted_ids[sequence, step, 0] == word
            if word == END:
                break
        np.testing.assert_allclose(last.log_probs[sequence, 0], total, rtol=1e-5)


def numeric_tree(ids: Any, parents: Any, lengths: Any, end: int) -> Any:
    result = np.full_like(ids, end)
    for batch, beam in itertools.product(range(ids.shape[1]), range(ids.shape[2])):
        at = beam
        for time in reversed(range(min(len(ids), lengths[batch]))):
            result[time, batch, beam] = ids[time, batch, at]
            at = parents[time, batch, at]
        ends = np.flatnonzero(result[:, batch, beam] == end)
        if len(ends):
            result[ends[0] :, batch, beam] = end
    return result


def test_sequences_are_followed_back_from_their_ends() -> None:
    ids = RANDOM.randint(0, 9, (5, 3, 4)).astype(np.int32)
    parents = RANDOM.randint(0, 4, (5, 3, 4)).astype(np.int32)
    lengths = np.array([5, 3, 9], np.int32)
    shape = tf.placeholder_with_default(ids, [None, None, 4])
    with tf.Session() as session:
        for given in (ids, shape):
            sequences = session.run(seq2seq.gather_tree(given, parents, lengths, 8))
            np.testing.assert_array_equal(sequences, numeric_tree(ids, parents, lengths, 8))


def test_what_was_kept_of_steps_follows_the_beams() -> None:
    kept = RANDOM.randn(5, 3, 4, 2).astype(np.float32)
    parents = RANDOM.randint(0, 4, (5, 3, 4)).astype(np.int32)
    lengths = np.full((3, 4), 5)
    order = numeric_tree(np.tile(np.arange(4, dtype=np.int32), (5, 3, 1)), parents, np.full(3, 5), 5)
    wanted = np.take_along_axis(kept, order[..., None], axis=2)
    with tf.Session() as session:
        got = session.run(seq2seq.gather_tree_from_array(kept, parents, lengths))
        flat = session.run(seq2seq.gather_tree_from_array(kept.reshape(5, 12, 2), parents, lengths))
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(flat, wanted.reshape(5, 12, 2))


@pytest.mark.parametrize("coverage", [0.0, 0.2])
def test_attention_goes_along_with_the_beams(coverage: float) -> None:
    batch, beams, positions, units = 2, 3, 5, 4
    memory = seq2seq.tile_batch(tf.constant(RANDOM.randn(batch, positions, units).astype(np.float32)), beams)
    lengths = seq2seq.tile_batch(tf.constant([5, 2]), beams)
    mechanism = seq2seq.LuongAttention(units, memory, lengths)
    cell = seq2seq.AttentionWrapper(tf.nn.rnn_cell.LSTMCell(units), mechanism, units, alignment_history=True)
    decoder = seq2seq.BeamSearchDecoder(
        cell, tf.get_variable("words", [7, 3]), [1, 1], 2, cell.zero_state(batch * beams, tf.float32), beams,
        output_layer=tf.layers.Dense(7), coverage_penalty_weight=coverage, length_penalty_weight=0.5,
    )  # fmt: skip
    outputs, last, _ = seq2seq.dynamic_decode(decoder, output_time_major=True, maximum_iterations=6)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        ids, history, attended = session.run(
            [outputs.predicted_ids, last.cell_state.alignment_history, last.accumulated_attention_probs]
        )
    assert ids.shape[1:] == (batch, beams)
    assert history.shape == (len(ids), batch * beams, positions)
    np.testing.assert_allclose(history.sum(axis=2), 1.0, rtol=1e-5)
    assert not history[:, beams:, 2:].any()
    assert isinstance(attended, tuple) == (coverage == 0)


def test_what_is_wrong_is_told() -> None:
    cell, state = TableCell(), tf.zeros([2, 1])
    with pytest.raises(ValueError, match="start_tokens must be a vector"):
        seq2seq.BeamSearchDecoder(cell, lambda ids: ids, 0, END, state, 1)
    with pytest.raises(ValueError, match="end_token must be a scalar"):
        seq2seq.BeamSearchDecoder(cell, lambda ids: ids, [0], [END], state, 1)
    with pytest.raises(TypeError, match="not an RNNCell"):
        seq2seq.BeamSearchDecoder(len, lambda ids: ids, [0], END, state, 1)
    with pytest.raises(ValueError, match="needs attention"):
        decoded(2, coverage_penalty_weight=0.5)
