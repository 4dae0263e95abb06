"""Decoding loops against dynamic_rnn, and against plain Python loops in NumPy."""

from __future__ import annotations

import io
import itertools
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import anabranch as tf
from anabranch.runtime import explain

seq2seq = tf.contrib.seq2seq
RNG = np.random.default_rng(5)
X = RNG.normal(size=(3, 5, 4))
LENGTHS = np.array([5, 2, 3], np.int32)


def run(fetches: Any, feeds: Any = None) -> Any:
    tf.set_random_seed(7)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches, feeds)


def constants() -> Any:
    return tf.initializers.random_normal(seed=3, dtype=tf.float64)


def training(cell: Any, x: Any, lengths: Any, time_major: bool = False, layer: Any = None, **options: Any) -> Any:
    helper = seq2seq.TrainingHelper(x, lengths, time_major=time_major)
    decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(3, tf.float64), layer)
    return seq2seq.dynamic_decode(decoder, output_time_major=time_major, **options)


# ------------------------------------------------------------------------------------------------ with data
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("steps", [5, None])
def test_a_training_helper_decodes_what_dynamic_rnn_computes(time_major: bool, steps: int | None) -> None:
    data = X.transpose(1, 0, 2) if time_major else X
    x = tf.placeholder(tf.float64, [steps, 3, 4] if time_major else [3, steps, 4])
    lengths = tf.placeholder(tf.int32, [3])
    cell = tf.nn.rnn_cell.LSTMCell(6)
    outputs, state, taken = training(cell, x, lengths, time_major, impute_finished=True)
    expected = tf.nn.dynamic_rnn(cell, x, lengths, dtype=tf.float64, time_major=time_major, scope="decoder")
    weights = tf.trainable_variables()
    assert [w.op.name for w in weights] == ["decoder/lstm_cell/kernel", "decoder/lstm_cell/bias"]
    slopes = [tf.gradients(tf.reduce_sum(tf.sin(o)), [x, *weights]) for o in (outputs.rnn_output, expected[0])]
    got, last, counted, known, ours, theirs = run(
        [outputs, state, taken, expected, *slopes], {x: data, lengths: LENGTHS}
    )
    np.testing.assert_allclose(got.rnn_output, known[0], atol=1e-12)
    np.testing.assert_allclose(last, known[1], atol=1e-12)
    assert counted.tolist() == LENGTHS.tolist()
    ended = np.arange(5)[None] >= LENGTHS[:, None]
    chosen = np.where(ended, 0, known[0].argmax(-1).T if time_major else known[0].argmax(-1))
    assert (got.sample_id == (chosen.T if time_major else chosen)).all()
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-12)
        assert np.abs(mine).max() > 0


@pytest.mark.parametrize("lengths", [[4, 2, 1], [0, 0, 0]])
def test_outputs_end_with_the_longest_sequence(lengths: list[int]) -> None:
    cell = tf.nn.rnn_cell.GRUCell(6)
    x = tf.placeholder(tf.float64, [3, None, 4])
    outputs, _, counted = training(cell, x, tf.constant(lengths))
    got, found = run([outputs, counted], {x: X})
    assert got.rnn_output.shape == (3, max(lengths), 6)
    assert found.tolist() == lengths


def test_lengths_beyond_the_data_are_refused() -> None:
    cell = tf.nn.rnn_cell.GRUCell(6)
    outputs, _, _ = training(cell, tf.constant(X), tf.constant([7, 2, 3]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Tried to read from index _ but array size is: 5"):
        run(outputs)


def test_without_imputation_ended_sequences_go_on() -> None:
    cell = tf.nn.rnn_cell.GRUCell(6)
    outputs, state, lengths = training(cell, tf.constant(X), tf.constant(LENGTHS))
    zeroed = training(cell, tf.constant(X), tf.constant(LENGTHS), impute_finished=True, scope="decoder")
    plain = tf.nn.dynamic_rnn(cell, tf.constant(X), dtype=tf.float64, scope="decoder")
    with tf.variable_scope(tf.get_variable_scope(), reuse=True):
        got, last, counted, known, imputed = run([outputs, state, lengths, plain, zeroed])
    np.testing.assert_allclose(got.rnn_output, known[0], atol=1e-12)
    np.testing.assert_allclose(last, known[1], atol=1e-12)
    assert counted.tolist() == LENGTHS.tolist()
    ended = np.arange(5)[None] >= LENGTHS[:, None]
    assert (imputed[0].rnn_output[ended] == 0).all()
    assert (got.rnn_output[ended] != 0).all()


@pytest.mark.parametrize("most", [0, 3, 9])
def test_there_are_no_more_steps_than_allowed(most: int) -> None:
    limit = tf.placeholder(tf.int32, [])
    cell = tf.nn.rnn_cell.GRUCell(6)
    outputs, _, lengths = training(cell, tf.constant(X), tf.constant(LENGTHS), maximum_iterations=limit)
    got, counted = run([outputs, lengths], {limit: most})
    steps = min(most, 5)
    assert got.rnn_output.shape == (3, steps, 6)
    assert counted.tolist() == np.minimum(LENGTHS, steps).tolist()


def test_an_output_layer_and_its_numeric_gradient() -> None:
    cell = tf.nn.rnn_cell.BasicRNNCell(3)
    layer = tf.layers.Dense(2, use_bias=False)
    x = tf.placeholder(tf.float64, [3, 5, 4])
    outputs, state, _ = training(cell, x, tf.constant(LENGTHS), layer=layer, impute_finished=True)
    assert outputs.rnn_output.shape.as_list() == [3, None, 2]
    loss = tf.reduce_sum(outputs.rnn_output**2) + tf.reduce_sum(state)
    slope = tf.gradients(loss, x)[0]
    step = 1e-5 * RNG.normal(size=X.shape)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found = session.run(slope, {x: X})
        change = session.run(loss, {x: X + step}) - session.run(loss, {x: X - step})
    np.testing.assert_allclose(change / 2, (found * step).sum(), rtol=1e-4)
    assert (found[1, 2:] == 0).all()


# ------------------------------------------------------------------------------------------------ on its own
def symbols(size: int = 7, units: int = 5) -> tuple[Any, ...]:
    """An embedding, a cell and a projection, whose weights are found by name."""
    with tf.variable_scope("model", initializer=constants(), dtype=tf.float64):
        embedding = tf.get_variable("embedding", [size, 4])
    cell = tf.nn.rnn_cell.BasicRNNCell(units, dtype=tf.float64)
    layer = tf.layers.Dense(size, use_bias=False, kernel_initializer=constants())
    return embedding, cell, layer


def greedily(values: dict[str, Any], start: list[int], end: int, most: int) -> tuple[Any, list[int]]:
    """What a greedy helper decodes, one sequence after the other."""
    kernel, bias = values["decoder/basic_rnn_cell/kernel:0"], values["decoder/basic_rnn_cell/bias:0"]
    rows, lengths = [], []
    for symbol in start:
        row: list[int] = []
        state = np.zeros(bias.shape)
        while len(row) < most and (not row or row[-1] != end):
            given = values["model/embedding:0"][row[-1] if row else symbol]
            state = np.tanh(np.concatenate([given, state]) @ kernel + bias)
            row.append(int((state @ values["decoder/dense/kernel:0"]).argmax()))
        rows.append(row + [0] * (most - len(row)))
        lengths.append(len(row))
    return np.array(rows)[:, : max(lengths)], lengths


def test_a_greedy_decoder_is_a_plain_loop() -> None:
    embedding, cell, layer = symbols()
    start = [0, 1, 2, 3, 4, 5]
    helper = seq2seq.GreedyEmbeddingHelper(embedding, start, 6)
    decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(len(start), tf.float64), layer)
    outputs, _, lengths = seq2seq.dynamic_decode(decoder, impute_finished=True, maximum_iterations=12)
    variables = {v.name: v for v in tf.global_variables()}
    got, counted, values = run([outputs.sample_id, lengths, variables])
    expected, ends = greedily(values, start, 6, 12)
    assert got.tolist() == expected.tolist()
    assert counted.tolist() == ends


def test_a_sampling_decoder_draws_from_the_distribution() -> None:
    """Of one step from fixed logits, 4000 sequences at once; at a low temperature the likeliest is always drawn."""
    logits = np.log(np.array([0.1, 0.2, 0.7]))
    cell = tf.nn.rnn_cell.BasicRNNCell(3, dtype=tf.float64)

    def decoded(temperature: float | None) -> Any:
        helper = seq2seq.SampleEmbeddingHelper(
            lambda ids: tf.zeros([tf.size(ids), 2], tf.float64), tf.zeros([4000], tf.int32), 9, temperature, seed=4
        )
        layer = tf.layers.Dense(
            3, kernel_initializer=tf.zeros_initializer(), bias_initializer=tf.constant_initializer(logits)
        )
        decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(4000, tf.float64), layer)
        return seq2seq.dynamic_decode(decoder, maximum_iterations=2)[0].sample_id

    plain, cold = run([decoded(None), decoded(0.01)])
    assert plain.shape == (4000, 2)
    np.testing.assert_allclose(np.bincount(plain.ravel()) / plain.size, [0.1, 0.2, 0.7], atol=0.03)
    assert (plain[:, 0] != plain[:, 1]).any()
    assert (cold == 2).all()


def test_functions_make_helpers() -> None:
    tf.set_random_seed(1)  # weights at random made a result near zero now and then, a sum that cancels
    cell = tf.nn.rnn_cell.BasicRNNCell(2)

    def following(time: Any, outputs: Any, state: Any, sample_ids: Any) -> Any:
        return tf.fill([3], time >= 3), sample_ids, state

    custom = seq2seq.CustomHelper(
        lambda: (tf.zeros([3], tf.bool), tf.ones([3, 2])),
        lambda time, outputs, state: outputs + tf.cast(time, tf.float32),
        following,
        [2],
        tf.float32,
    )
    with pytest.raises(ValueError, match="before initialize"):
        _ = custom.batch_size
    inference = seq2seq.InferenceHelper(
        lambda outputs: outputs, [2], tf.float32, tf.ones([3, 2]), lambda ids: tf.reduce_any(ids > 2, 1)
    )
    custom.initialize()
    outputs, _, lengths = seq2seq.dynamic_decode(seq2seq.BasicDecoder(cell, custom, cell.zero_state(3, tf.float32)))
    decoder = seq2seq.BasicDecoder(cell, inference, cell.zero_state(3, tf.float32))
    own, _, _ = seq2seq.dynamic_decode(decoder, maximum_iterations=6)
    got, counted, other, kernel = run([outputs, lengths, own, tf.global_variables()[0]])
    assert counted.tolist() == [4, 4, 4]
    np.testing.assert_allclose(got.sample_id, got.rnn_output + np.arange(4.0)[None, :, None], rtol=1e-6)
    state, given = np.zeros((3, 2)), np.ones((3, 2))
    for step in range(6):
        given = state = np.tanh(np.concatenate([given, state], 1) @ kernel)
        np.testing.assert_allclose(other.rnn_output[:, step], state, rtol=1e-4)


# ------------------------------------------------------------------------------------------------ some of both
@pytest.mark.parametrize("probability", [0.0, 1.0, 0.5])
def test_scheduled_sampling_of_symbols(probability: float) -> None:
    embedding, cell, layer = symbols()
    data = tf.constant(X)
    helper = seq2seq.ScheduledEmbeddingTrainingHelper(data, LENGTHS, embedding, probability, seed=1, scheduling_seed=2)
    decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(3, tf.float64), layer)
    outputs, _, lengths = seq2seq.dynamic_decode(decoder)
    values, got, counted = run([{v.name: v for v in tf.global_variables()}, outputs, lengths])
    assert counted.tolist() == LENGTHS.tolist()
    chosen = got.sample_id
    assert ((chosen >= 0) | (probability < 1)).all()
    assert ((chosen == -1) | (probability > 0)).all()
    state, kernel = np.zeros((3, 5)), values["decoder/basic_rnn_cell/kernel:0"]
    for step in range(5):
        own = np.where(chosen[:, step - 1] >= 0, True, False)[:, None] & (step > 0)
        given = np.where(own, values["model/embedding:0"][chosen[:, step - 1]], X[:, step])
        state = np.tanh(np.concatenate([given, state], 1) @ kernel)
        expected = state @ values["decoder/dense/kernel:0"]
        running = step < LENGTHS
        np.testing.assert_allclose(got.rnn_output[running, step], expected[running], atol=1e-12)


@pytest.mark.parametrize("probability", [0.0, 1.0, 0.5])
def test_scheduled_sampling_of_outputs(probability: float) -> None:
    cell = tf.nn.rnn_cell.BasicRNNCell(4, dtype=tf.float64)
    extra = RNG.normal(size=(3, 5, 2))
    helper = seq2seq.ScheduledOutputTrainingHelper(
        tf.constant(X),
        LENGTHS,
        probability,
        seed=1,
        next_inputs_fn=lambda o: 2 * o,
        auxiliary_inputs=tf.constant(extra),
    )
    decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(3, tf.float64))
    outputs, _, _ = seq2seq.dynamic_decode(decoder)
    got, kernel = run([outputs, tf.global_variables()[0]])
    assert {0: [0], 1: [1], 0.5: [0, 1]}[probability] == sorted(set(got.sample_id.ravel().tolist()))
    state = np.zeros((3, 4))
    for step in range(5):
        own = (got.sample_id[:, step - 1] == 1)[:, None] & (step > 0)
        given = np.concatenate([np.where(own, 2 * state, X[:, step]), extra[:, step]], 1)
        state = np.tanh(np.concatenate([given, state], 1) @ kernel)
        running = step < LENGTHS
        np.testing.assert_allclose(got.rnn_output[running, step], state[running], atol=1e-12)


# ------------------------------------------------------------------------------------------------ how it runs
def test_a_loop_is_compiled_once_whatever_its_length() -> None:
    """One island for the whole loop or few: compilations do not grow with the steps that are taken."""
    explainer = explain.enable(Console(file=io.StringIO()))
    try:
        embedding, cell, layer = symbols()
        limit = tf.placeholder(tf.int32, [])
        helper = seq2seq.GreedyEmbeddingHelper(embedding, [0, 1], -1)
        decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(2, tf.float64), layer)
        outputs, _, lengths = seq2seq.dynamic_decode(decoder, maximum_iterations=limit)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            before = len(explainer.compilations)
            counts = []
            for most in (3, 20, 40, 33):
                ids, counted = session.run([outputs.sample_id, lengths], {limit: most})
                assert ids.shape == (2, most)
                assert counted.tolist() == [most, most]
                counts.append(len(explainer.compilations) - before)
    finally:
        explain.disable()
    assert counts[0] <= 6
    assert counts[-1] - counts[0] <= 6


def test_the_steps_state_may_hold_arrays() -> None:
    """A decoder of one's own, which tracks what has ended, keeps a TensorArray in its state and finishes by itself."""

    class Counting(seq2seq.Decoder):  # type: ignore[name-defined, misc]
        batch_size = 2
        output_size = tf.TensorShape([])
        output_dtype = tf.int32
        tracks_own_finished = True

        def initialize(self, name: str | None = None) -> Any:
            history = tf.TensorArray(tf.int32, size=4, element_shape=[2])
            return tf.zeros([2], tf.bool), tf.constant([5, 6]), (tf.constant(0), history)

        def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> Any:
            count, history = state
            return inputs, (count + 1, history.write(time, inputs)), inputs + 1, tf.fill([2], time >= 3)

        def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> Any:
            return -outputs, (final_state[0], final_state[1].stack())

    outputs, state, lengths = run(seq2seq.dynamic_decode(Counting(), impute_finished=True))
    assert outputs.tolist() == [[-5, -6, -7, -8], [-6, -7, -8, -9]]
    assert state[0] == 4
    assert state[1].tolist() == [[5, 6], [6, 7], [7, 8], [8, 9]]
    assert lengths.tolist() == [4, 4]


# ------------------------------------------------------------------------------------------------ losses, batches
def reference_loss(logits: Any, targets: Any, weights: Any, time: bool, batch: bool, times: bool, batches: bool) -> Any:
    shifted = logits - logits.max(-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    losses = -np.take_along_axis(logs, targets[..., None], -1)[..., 0] * weights
    axes = tuple(axis for axis, on in enumerate((batch, time)) if on)
    sums = tuple(axis for axis, on in enumerate((batches, times)) if on)
    if axes:
        total, size = losses.sum(axes), weights.sum(axes)
    elif sums:
        total, size = losses.sum(sums), (weights != 0).sum(sums)
    else:
        return losses
    return np.where(size == 0, 0, total / np.where(size == 0, 1, size))


@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=4)))
def test_the_loss_of_sequences(flags: tuple[bool, bool, bool, bool]) -> None:
    logits, targets = RNG.normal(size=(3, 5, 4)), RNG.integers(0, 4, (3, 5))
    weights = RNG.random((3, 5)) * (np.arange(5) < np.array([5, 2, 0])[:, None])
    time, batch, times, batches = flags
    if (time and times) or (batch and batches):
        with pytest.raises(ValueError, match="cannot be set to True at same time"):
            seq2seq.sequence_loss(tf.constant(logits), targets, tf.constant(weights), *flags)
        return
    loss = seq2seq.sequence_loss(tf.constant(logits), targets, tf.constant(weights), *flags)
    np.testing.assert_allclose(run(loss), reference_loss(logits, targets, weights, *flags), rtol=1e-12)


def test_a_loss_of_ones_own() -> None:
    def loss(labels: Any, logits: Any) -> Any:
        return tf.cast(labels, tf.float32) + tf.reduce_sum(logits, 1)

    got = seq2seq.sequence_loss(
        tf.ones([2, 3, 4]), tf.ones([2, 3], tf.int32), tf.ones([2, 3]), softmax_loss_function=loss
    )
    assert run(got) == 5
    with pytest.raises(ValueError, match="Targets must be"):
        seq2seq.sequence_loss(tf.ones([2, 3, 4]), tf.ones([2], tf.int32), tf.ones([2, 3]))


def test_a_loss_as_an_object_sums_unless_told_otherwise() -> None:
    logits, targets = RNG.normal(size=(3, 5, 4)), RNG.integers(0, 4, (3, 5))
    weights = RNG.random((3, 5))
    for how in ((False, False, True, True), (True, True, False, False)):
        loss = seq2seq.SequenceLoss(*how) if how[0] else seq2seq.SequenceLoss()
        got = loss(targets, tf.constant(logits), tf.constant(weights))
        np.testing.assert_allclose(run(got), reference_loss(logits, targets, weights, *how), rtol=1e-12)


def test_batches_are_tiled() -> None:
    rows = np.arange(6).reshape(2, 3)
    x = tf.placeholder(tf.int64, [None, 3])
    both = seq2seq.tile_batch((tf.constant(rows), x, tf.constant([1, 2])), 3)
    assert both[0].shape.as_list() == [6, 3]
    assert both[1].shape.as_list() == [None, 3]
    got = run(both, {x: rows})
    for tiled in got[:2]:
        assert tiled.tolist() == np.repeat(rows, 3, 0).tolist()
    assert got[2].tolist() == [1, 1, 1, 2, 2, 2]
    with pytest.raises(ValueError, match="batch dimension"):
        seq2seq.tile_batch(tf.constant(1), 2)


# ------------------------------------------------------------------------------------------------ wrong arguments
def test_wrong_arguments_are_told() -> None:
    cell = tf.nn.rnn_cell.GRUCell(2)
    helper = seq2seq.TrainingHelper(tf.ones([2, 3, 4]), [1, 2])
    with pytest.raises(TypeError, match="helper must be a Helper"):
        seq2seq.BasicDecoder(cell, None, None)
    with pytest.raises(TypeError, match="not an RNNCell"):
        seq2seq.BasicDecoder(None, helper, None)
    with pytest.raises(TypeError, match="output_layer must be a Layer"):
        seq2seq.BasicDecoder(cell, helper, None, lambda x: x)
    with pytest.raises(TypeError, match="Expected decoder to be type Decoder"):
        seq2seq.dynamic_decode(cell)
    decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(2, tf.float32))
    with pytest.raises(ValueError, match="must be a scalar"):
        seq2seq.dynamic_decode(decoder, maximum_iterations=[3])
    with pytest.raises(ValueError, match="sequence_length to be a vector"):
        seq2seq.TrainingHelper(tf.ones([2, 3, 4]), 3)
    with pytest.raises(ValueError, match="end_token must be a scalar"):
        seq2seq.GreedyEmbeddingHelper(tf.ones([3, 2]), [1], [2])
    with pytest.raises(ValueError, match="start_tokens must be a vector"):
        seq2seq.GreedyEmbeddingHelper(tf.ones([3, 2]), 1, 2)
    with pytest.raises(ValueError, match="either a scalar or a vector"):
        seq2seq.ScheduledOutputTrainingHelper(tf.ones([2, 3, 4]), [1, 2], [[0.5]])
