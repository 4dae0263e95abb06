"""Cells of `tf.contrib.rnn` beside NumPy's results with the same variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

RNG = np.random.default_rng(4)
X = RNG.normal(size=(3, 5, 4))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def run(cell: Any, inputs: Any = X) -> tuple[Any, Any, dict[str, Any]]:
    """Outputs and last state over five steps, and the variables by name, which are random numbers."""
    outputs, state = tf.nn.dynamic_rnn(cell, tf.constant(inputs), dtype=tf.float64)
    variables = tf.global_variables()
    with tf.Session() as session:
        for variable in variables:
            variable.load(RNG.normal(size=variable.shape.as_list()), session)
        got, last = session.run([outputs, state])
        values = session.run(variables)
    names = [v.op.name.removeprefix("rnn/") for v in variables]
    return got, last, dict(zip(names, values, strict=True))


@pytest.mark.parametrize(("projection", "biases"), [(None, False), (2, True)])
def test_the_cell_of_a_search(projection: int | None, biases: bool) -> None:
    got, last, variables = run(tf.contrib.rnn.NASCell(3, projection, biases))
    v = {name.removeprefix("nas_cell/"): value for name, value in variables.items()}
    extra = {"bias", "projection_weights"} if biases else set()
    assert set(v) == {"recurrent_kernel", "kernel"} | extra
    c, m = np.zeros((3, 3)), np.zeros((3, projection or 3))
    for step in range(5):
        x = np.split(X[:, step] @ v["kernel"], 8, 1)
        h = np.split(m @ v["recurrent_kernel"] + v.get("bias", 0), 8, 1)
        lower = [
            np.tanh(sigmoid(x[0] + h[0]) * np.maximum(x[1] + h[1], 0)),
            np.tanh(sigmoid(x[2] + h[2]) + np.maximum(x[3] * h[3], 0)),
            np.tanh(np.tanh(x[4] + h[4]) * sigmoid(x[5] + h[5])),
            sigmoid(np.tanh(x[6] + h[6]) + sigmoid(x[7] + h[7])),
        ]
        c = np.tanh(lower[0] + c) * lower[1]
        m = np.tanh(c * np.tanh(lower[2] + lower[3]))
        m = m if projection is None else m @ v["projection_weights"]
        np.testing.assert_allclose(got[:, step], m, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(last.c, c, rtol=1e-8, atol=1e-12)


def test_a_cell_with_one_gate() -> None:
    got, last, v = run(tf.contrib.rnn.UGRNNCell(3, forget_bias=0.5))
    state = np.zeros((3, 3))
    for step in range(5):
        side_by_side = np.concatenate([X[:, step], state], 1)
        gate, new = np.split(side_by_side @ v["ugrnn_cell/kernel"] + v["ugrnn_cell/bias"], 2, 1)
        kept = sigmoid(gate + 0.5)
        state = kept * state + (1 - kept) * np.tanh(new)
        np.testing.assert_allclose(got[:, step], state, rtol=1e-8)
    np.testing.assert_allclose(last, state, rtol=1e-8)


def plain(x: Any, state: Any, v: dict[str, Any], scope: str) -> Any:
    return np.tanh(np.concatenate([x, state], 1) @ v[f"{scope}/kernel"] + v[f"{scope}/bias"])


def test_projections_before_and_after_a_cell() -> None:
    inner = tf.contrib.rnn.InputProjectionWrapper(tf.nn.rnn_cell.BasicRNNCell(3), 6, tf.sigmoid)
    cell = tf.contrib.rnn.OutputProjectionWrapper(inner, 2, tf.tanh)
    assert (cell.state_size, cell.output_size) == (3, 2)
    got, _, v = run(cell)
    after, before = "output_projection_wrapper", "output_projection_wrapper/input_projection_wrapper"
    state = np.zeros((3, 3))
    for step in range(5):
        given = sigmoid(X[:, step] @ v[f"{before}/kernel"] + v[f"{before}/bias"])
        state = plain(given, state, v, f"{before}/basic_rnn_cell")
        np.testing.assert_allclose(got[:, step], np.tanh(state @ v[f"{after}/kernel"] + v[f"{after}/bias"]), rtol=1e-8)


def test_an_embedding_before_a_cell() -> None:
    symbols = RNG.integers(0, 7, (3, 5, 1))
    cell = tf.contrib.rnn.EmbeddingWrapper(tf.nn.rnn_cell.BasicRNNCell(3), 7, 4)
    got, _, v = run(cell, symbols)
    state = np.zeros((3, 3))
    for step in range(5):
        vectors = v["embedding_wrapper/embedding"][symbols[:, step, 0]]
        state = plain(vectors, state, v, "embedding_wrapper/basic_rnn_cell")
        np.testing.assert_allclose(got[:, step], state, rtol=1e-8)


@pytest.mark.parametrize("state_is_tuple", [True, False])
def test_attention_to_the_last_outputs(state_is_tuple: bool) -> None:
    inner = tf.nn.rnn_cell.GRUCell(3, bias_initializer=tf.ones_initializer())
    cell = tf.contrib.rnn.AttentionCellWrapper(inner, 2, 4, 5, state_is_tuple=state_is_tuple)
    assert cell.state_size == ((3, 4, 8) if state_is_tuple else 15)
    got, last, variables = run(cell)
    v = {name.removeprefix("attention_cell_wrapper/"): value for name, value in variables.items()}

    def affine(value: Any, scope: str) -> Any:
        return value @ v[f"{scope}kernel"] + v[f"{scope}bias"]

    state, attended, outputs = np.zeros((3, 3)), np.zeros((3, 4)), np.zeros((3, 2, 4))
    for step in range(5):
        given = affine(np.concatenate([X[:, step], attended], 1), "")
        reset, update = np.split(sigmoid(affine(np.concatenate([given, state], 1), "gru_cell/gates/")), 2, 1)
        new = np.tanh(affine(np.concatenate([given, reset * state], 1), "gru_cell/candidate/"))
        state = update * state + (1 - update) * new
        compared = outputs @ v["attention/attn_w"][0, 0] + affine(state, "attention/")[:, None]
        scores = np.exp((v["attention/attn_v"] * np.tanh(compared)).sum(2))
        attended = ((scores / scores.sum(1, keepdims=True))[..., None] * outputs).sum(1)
        output = affine(np.concatenate([state, attended], 1), "attn_output_projection/")
        outputs = np.stack([outputs[:, 1], output], 1)
        np.testing.assert_allclose(got[:, step], output, rtol=1e-8, atol=1e-12)
    parts = last if state_is_tuple else np.split(last, [3, 7], 1)
    for mine, expected in zip(parts, (state, attended, outputs.reshape(3, 8)), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("coupled", [True, False])
def test_a_highway(coupled: bool) -> None:
    got, _, v = run(tf.contrib.rnn.HighwayWrapper(tf.nn.rnn_cell.BasicRNNCell(4), coupled))
    state = np.zeros((3, 4))
    for step in range(5):
        x = X[:, step]
        state = plain(x, state, v, "basic_rnn_cell")
        carried = sigmoid(x @ v["carry_w"] + v["carry_b"])
        passed = 1 - carried if coupled else sigmoid(x @ v["transform_w"] + v["transform_b"])
        np.testing.assert_allclose(got[:, step], x * carried + state * passed, rtol=1e-8)


def test_what_an_lstm_over_all_steps_needs() -> None:
    fused = tf.contrib.rnn.LSTMBlockFusedCell(3)
    assert isinstance(fused, tf.contrib.rnn.LSTMBlockWrapper)
    with pytest.raises(ValueError, match="Either initial_state or dtype needs to be specified"):
        fused(tf.zeros([5, 2, 4]))
    with pytest.raises(ValueError, match="tuple with length 2"):
        fused(tf.zeros([5, 2, 4]), initial_state=[tf.zeros([2, 3])])
    with pytest.raises(TypeError, match="abstract"):
        tf.contrib.rnn.LSTMBlockWrapper()
    steps = tf.placeholder(tf.float32, [None, None, 4])
    outputs, state = fused(steps, [tf.ones([2, 3])] * 2, sequence_length=[0, 2])
    assert outputs.shape.as_list()[2] == 3
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        got, last = session.run([outputs, state], {steps: X[:2, :2]})
    np.testing.assert_array_equal(got[:, 0], 0.0)
    np.testing.assert_array_equal([last.c[0], last.h[0]], 1.0)
    np.testing.assert_array_equal(last.h[1], got[1, 1])


@pytest.mark.parametrize(("dtype", "error"), [(tf.float64, 1e-8), (tf.float32, 1e-5)])
def test_an_lstm_over_all_steps_is_its_cell_step_by_step(dtype: tf.DType, error: float) -> None:
    tf.set_random_seed(7)  # outputs near zero have no five digits in float32
    steps = tf.constant(X.transpose(1, 0, 2), dtype)
    lengths = [5, 1, 3]
    fused = tf.contrib.rnn.LSTMBlockFusedCell(3, use_peephole=True)
    outputs, state = fused(steps, dtype=dtype, sequence_length=lengths)
    listed, _ = fused(tf.unstack(steps), dtype=dtype, sequence_length=lengths)
    names = [v.op.name for v in tf.global_variables()]
    assert names[:2] == ["lstm_fused_cell/kernel", "lstm_fused_cell/bias"]
    assert len(names) == len(fused.variables) == 5
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        got, last, again, values = session.run([outputs, state, listed, tf.global_variables()])
    np.testing.assert_allclose(got, np.stack(again), rtol=1e-12)
    v = dict(zip([name.removeprefix("lstm_fused_cell/") for name in names], values, strict=True))
    c = h = np.zeros((3, 3))
    for step in range(5):
        i, j, f, o = np.split(np.concatenate([X[:, step], h], 1) @ v["kernel"] + v["bias"], 4, 1)
        new_c = sigmoid(f + 1 + c * v["w_f_diag"]) * c + sigmoid(i + c * v["w_i_diag"]) * np.tanh(j)
        new_h = sigmoid(o + new_c * v["w_o_diag"]) * np.tanh(new_c)
        alive = (step < np.array(lengths))[:, None]
        c, h = np.where(alive, new_c, c), np.where(alive, new_h, h)
        np.testing.assert_allclose(got[step], np.where(alive, h, 0), rtol=error)
    np.testing.assert_allclose(last.c, c, rtol=error)


def test_sizes_of_a_gru() -> None:
    assert tf.contrib.rnn.GRUBlockCellV2(3).output_size == tf.contrib.rnn.GRUBlockCellV2(cell_size=3).output_size == 3
    with pytest.raises(ValueError, match="either num_units or cell_size, got None and None"):
        tf.contrib.rnn.GRUBlockCellV2()


def test_what_is_no_cell_is_refused() -> None:
    cell = tf.nn.rnn_cell.LSTMCell(3)
    with pytest.raises(TypeError, match="not an RNNCell: 3"):
        tf.contrib.rnn.InputProjectionWrapper(3, 4)
    with pytest.raises(ValueError, match="output_size must be > 0"):
        tf.contrib.rnn.OutputProjectionWrapper(cell, 0)
    with pytest.raises(ValueError, match="state_is_tuple must be True"):
        tf.contrib.rnn.AttentionCellWrapper(cell, 3, state_is_tuple=False)
    with pytest.raises(ValueError, match="greater than zero"):
        tf.contrib.rnn.AttentionCellWrapper(cell, 0)
    with pytest.raises(ValueError, match="must be > 0: 0, 2"):
        tf.contrib.rnn.EmbeddingWrapper(cell, 0, 2)
