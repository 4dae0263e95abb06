"""`tf.contrib.cudnn_rnn` beside NumPy's results with the same variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

RNG = np.random.default_rng(5)
TIME, BATCH, SIZE, UNITS = 4, 3, 5, 2
X = RNG.normal(size=(TIME, BATCH, SIZE))
CELLS = {
    "CudnnLSTM": "cudnn_compatible_lstm_cell",
    "CudnnGRU": "cudnn_compatible_gru_cell",
    "CudnnRNNTanh": "basic_rnn_cell",
    "CudnnRNNRelu": "basic_rnn_cell",
}


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def step(kind: str, x: Any, state: Any, v: dict[str, Any]) -> Any:
    """The next state, a list of h and, for an LSTM, c; after what cuDNN's documentation says of its cells."""
    h = state[0]
    both = np.concatenate([x, h], 1)
    if kind == "CudnnLSTM":
        i, j, f, o = np.split(both @ v["kernel"] + v["bias"], 4, 1)
        c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(j)
        return [sigmoid(o) * np.tanh(c), c]
    if kind == "CudnnGRU":
        reset, update = np.split(sigmoid(both @ v["gates/kernel"] + v["gates/bias"]), 2, 1)
        from_inputs = x @ v["candidate/input_projection/kernel"] + v["candidate/input_projection/bias"]
        from_state = h @ v["candidate/hidden_projection/kernel"] + v["candidate/hidden_projection/bias"]
        return [update * h + (1 - update) * np.tanh(from_inputs + reset * from_state)]
    value = both @ v["kernel"] + v["bias"]
    return [np.tanh(value) if kind == "CudnnRNNTanh" else np.maximum(value, 0)]


def layer_of(kind: str, inputs: Any, first: Any, v: dict[str, Any], lengths: Any) -> tuple[Any, Any]:
    """One layer in one direction: outputs [time, batch, units], the last state."""
    state, outputs = first, []
    for t, x in enumerate(inputs):
        alive = (t < lengths)[:, None]
        state = [np.where(alive, new, old) for new, old in zip(step(kind, x, state, v), state, strict=True)]
        outputs.append(np.where(alive, state[0], 0))
    return np.stack(outputs), state


def turned(values: Any, lengths: Any) -> Any:
    result = values.copy()
    for b, length in enumerate(lengths):
        result[:length, b] = values[:length, b][::-1]
    return result


@pytest.mark.parametrize("lengths", [None, [4, 1, 2]])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("kind", CELLS)
def test_two_layers(kind: str, directions: int, lengths: list[int] | None) -> None:
    direction = "unidirectional" if directions == 1 else "bidirectional"
    layer = getattr(tf.contrib.cudnn_rnn, kind)(2, UNITS, direction=direction, dtype=tf.float64, name="net")
    shapes = layer.state_shape(BATCH)
    initial = tuple(RNG.normal(size=shape) for shape in shapes)
    outputs, state = layer(tf.constant(X), tuple(map(tf.constant, initial)), lengths)
    variables = tf.global_variables()
    assert [v.op.name for v in layer.trainable_variables] == [v.op.name for v in variables]
    with tf.Session() as session:
        for variable in variables:
            variable.load(RNG.normal(size=variable.shape.as_list()), session)
        got, last, values = session.run([outputs, state, variables])
    by_name = {v.op.name: value for v, value in zip(variables, values, strict=True)}
    until = np.array(lengths or [TIME] * BATCH)
    inputs, states = X, []
    for i in range(2):
        results = []
        for d in range(directions):
            one_way = f"net/rnn/multi_rnn_cell/cell_{i}/"
            both_ways = f"net/stack_bidirectional_rnn/cell_{i}/bidirectional_rnn/{'fb'[d]}w/"
            scope = f"{one_way if directions == 1 else both_ways}{CELLS[kind]}/"
            v = {name.removeprefix(scope): value for name, value in by_name.items() if name.startswith(scope)}
            first = [part[i * directions + d] for part in initial]
            given = turned(inputs, until) if d else inputs
            result, end = layer_of(kind, given, first, v, until)
            results.append(turned(result, until) if d else result)
            states.append(end)
        inputs = np.concatenate(results, 2)
    np.testing.assert_allclose(got, inputs, rtol=1e-8, atol=1e-12)
    assert len(last) == len(initial)
    for mine, expected in zip(last, zip(*states, strict=True), strict=True):
        np.testing.assert_allclose(mine, np.stack(expected), rtol=1e-8, atol=1e-12)


def test_a_layer_is_built_before_it_is_called_and_called_twice() -> None:
    layer = tf.contrib.cudnn_rnn.CudnnGRU(1, UNITS)
    layer.build([TIME, BATCH, SIZE])
    first, _ = layer(tf.constant(X, tf.float32))
    second, _ = layer(tf.constant(X.transpose(1, 0, 2), tf.float32), time_major=False)
    assert len(tf.global_variables()) == len(layer.variables) == 6
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        got, turned_around = session.run([first, second])
    np.testing.assert_allclose(got, turned_around.transpose(1, 0, 2), rtol=1e-5)


def test_gates_are_initialized_one_by_one() -> None:
    layer = tf.contrib.cudnn_rnn.CudnnLSTM(
        1, 64, kernel_initializer=tf.orthogonal_initializer(), bias_initializer=tf.constant_initializer(0.25)
    )
    layer(tf.zeros([TIME, BATCH, 64]))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        kernel, bias = session.run(layer.variables)
    for gate in np.split(kernel, 4, 1):
        for block in np.split(gate, 2, 0):
            np.testing.assert_allclose(block @ block.T, np.eye(64), atol=1e-4)
    np.testing.assert_array_equal(bias, np.full(256, 0.25, np.float32))


def test_what_is_between_layers_is_dropped_in_training_only() -> None:
    ones = tf.ones_initializer()
    layer = tf.contrib.cudnn_rnn.CudnnRNNRelu(2, 100, dropout=0.5, seed=3, kernel_initializer=ones)
    inputs = tf.ones([1, 2, 3])
    trained, _ = layer(inputs, training=True)
    asked, _ = layer(inputs, training=False)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        dropped, whole = session.run([trained, asked])
    assert (whole == 300).all()  # 100 units of 3 each
    assert ((dropped % 6) == 0).all()  # those kept count twice
    assert 180 < dropped.mean() < 420
    assert not (dropped == 300).all()


def test_modes_that_there_are_not() -> None:
    with pytest.raises(ValueError, match="direction must be"):
        tf.contrib.cudnn_rnn.CudnnLSTM(1, 2, direction="both")
    with pytest.raises(ValueError, match="input_mode must be"):
        tf.contrib.cudnn_rnn.CudnnLSTM(1, 2, input_mode="skip_input")
    with pytest.raises(ValueError, match="say linear_input"):
        tf.contrib.cudnn_rnn.CudnnLSTM(1, SIZE, input_mode="auto_select")(tf.constant(X, tf.float32))
