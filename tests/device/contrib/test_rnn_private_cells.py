"""Cells that programs import from TensorFlow's private module, beside NumPy: normalized LSTMs, gates, a memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.contrib.rnn_memory import NTMCell
from anabranch.contrib.rnn_normalized import CFNCell, LayerNormLSTMCell, MinimalRNNCell, WeightNormLSTMCell

RNG = np.random.default_rng(6)
LSTMStateTuple = tf.nn.rnn_cell.LSTMStateTuple


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def one_step(cell: Any, inputs: Any, state: Any) -> tuple[Any, Any, dict[str, Any]]:
    """The output, the new state and the variables of a cell, all of which are random."""
    with tf.variable_scope("cell", initializer=tf.random_normal_initializer(stddev=0.5)):
        output, new = cell(tf.constant(inputs), tf.nest.map_structure(tf.constant, state))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        variables = {v.op.name.split("/", 2)[-1]: v for v in tf.global_variables()}
        found: tuple[Any, Any, dict[str, Any]] = sess.run((output, new, variables))
    return found


def normal_rows(x: Any) -> Any:
    return (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("peepholes", [False, True])
def test_an_lstm_of_normalized_gates(layer_norm: bool, peepholes: bool) -> None:
    x, c, h = drawn(2, 3), drawn(2, 4), drawn(2, 5)
    cell = LayerNormLSTMCell(
        4, use_peepholes=peepholes, cell_clip=1.0, num_proj=5, proj_clip=0.7, layer_norm=layer_norm, norm_gain=0.9
    )
    output, new, v = one_step(cell, x, LSTMStateTuple(c, h))
    assert cell.output_size == 5
    sums = np.concatenate([x, h], 1) @ v["kernel"] + (0 if layer_norm else v["bias"])
    gates = np.split(sums, 4, 1)
    if layer_norm:
        names = ("input", "transform", "forget", "output")
        gates = [normal_rows(g) * v[f"{name}/gamma"] + v[f"{name}/beta"] for g, name in zip(gates, names, strict=True)]
        assert v["input/gamma"].tolist() == pytest.approx([0.9] * 4)
    i, j, f, o = gates
    see = {name: v[name] if peepholes else 0.0 for name in ("w_i_diag", "w_f_diag", "w_o_diag")}
    wanted = c * sigmoid(f + 1 + see["w_f_diag"] * c) + sigmoid(i + see["w_i_diag"] * c) * np.tanh(j)
    if layer_norm:
        wanted = normal_rows(wanted) * v["state/gamma"] + v["state/beta"]
    wanted = np.clip(wanted, -1, 1)
    shown = (sigmoid(o + see["w_o_diag"] * wanted) * np.tanh(wanted)) @ v["projection/kernel"]
    np.testing.assert_allclose(new.c, wanted, atol=1e-5)
    np.testing.assert_allclose(output, np.clip(shown, -0.7, 0.7), atol=1e-5)
    np.testing.assert_array_equal(output, new.h)


@pytest.mark.parametrize("norm", [False, True])
def test_an_lstm_of_normalized_weights(norm: bool) -> None:
    x, c, h = drawn(2, 3), drawn(2, 4), drawn(2, 2)
    output, new, v = one_step(WeightNormLSTMCell(4, norm=norm, num_proj=2), x, LSTMStateTuple(c, h))
    v = {name.removeprefix("wn_lstm_cell/"): value for name, value in v.items()}

    def directed(kernel: Any, *lengths: Any) -> Any:
        parts = np.split(kernel, [3]) if len(lengths) == 2 else [kernel]
        if not norm:
            return kernel
        return np.concatenate([p / np.linalg.norm(p, axis=0) * g for p, g in zip(parts, lengths, strict=True)])

    lengths = (v["norm_0"], v["norm_1"]) if norm else ()
    i, j, f, o = np.split(np.concatenate([x, h], 1) @ directed(v["kernel"], *lengths) + v["bias"], 4, 1)
    wanted = c * sigmoid(f + 1) + sigmoid(i) * np.tanh(j)
    of_projection = (v["projection/norm_0"],) if norm else ()
    shown = (sigmoid(o) * np.tanh(wanted)) @ directed(v["projection/kernel"], *of_projection)
    np.testing.assert_allclose(new.c, wanted, atol=1e-5)
    np.testing.assert_allclose(output, shown, atol=1e-5)


def test_a_cell_of_one_gate() -> None:
    x, h = drawn(2, 3), drawn(2, 4)
    output, new, v = one_step(MinimalRNNCell(4), x, h)
    assert v["bias"].tolist() == [1] * 4
    first = np.tanh(x @ v["kernel"][:3])
    kept = sigmoid(np.concatenate([first, h], 1) @ v["kernel"][3:] + v["bias"])
    np.testing.assert_allclose(output, kept * h + (1 - kept) * first, atol=1e-6)
    np.testing.assert_array_equal(output, new)


def test_a_cell_without_chaos() -> None:
    x, h = drawn(2, 3), drawn(2, 4)
    make = tf.random_normal_initializer()
    output, _, v = one_step(CFNCell(4, activation=tf.nn.softsign, bias_initializer=make), x, h)
    sums = x @ v["kernel"][:, :8] + h @ v["recurrent_kernel"] + v["bias"]
    kept, shut = np.split(sigmoid(sums), 2, 1)

    def softsign(value: Any) -> Any:
        return value / (1 + np.abs(value))

    wanted = kept * softsign(h) + (1 - shut) * softsign(x @ v["kernel"][:, 8:])
    np.testing.assert_allclose(output, wanted, atol=1e-6)


def test_an_activation_that_is_none() -> None:
    with pytest.raises(ValueError, match="no activation 'nothing'"):
        MinimalRNNCell(4, activation="nothing")


# ---------------------------------------------------------------------- a memory
class Controller:
    """A simple recurrent cell, step by step."""

    def __init__(self, v: dict[str, Any]) -> None:
        self.v, self.hidden = v, np.zeros(6)

    def __call__(self, given: Any) -> Any:
        self.hidden = np.tanh(np.concatenate([given, self.hidden]) @ self.v["kernel"] + self.v["bias"])
        return self.hidden


class Memory:
    """The machine of Graves et al. (2014), section 3, for one example, with the cell's variables."""

    def __init__(self, cell: NTMCell, v: dict[str, Any]) -> None:
        self.cell, self.v, self.memory = cell, v, v["memory"].copy()
        self.reads = [np.tanh(v[f"initial_read_vector_{i}"][0]) for i in range(cell.read_head_num)]
        weights = [np.exp(v[f"initial_address_weights_{i}"][0]) for i in range(cell.num_heads)]
        self.addresses = [w / w.sum() for w in weights]

    def step(self, given: Any, controller: Any) -> Any:
        cell, v = self.cell, self.v
        out = controller(np.concatenate([given, *self.reads]))
        parameters = out @ v["parameters_kernel"] + v["parameters_bias"]
        size = cell.num_parameters_per_head
        self.addresses = [
            self.address(parameters[i * size : (i + 1) * size], self.addresses[i]) for i in range(cell.num_heads)
        ]
        self.reads = [self.addresses[i] @ self.memory for i in range(cell.read_head_num)]
        rest = parameters[size * cell.num_heads :].reshape(-1, 2, cell.memory_vector_dim)
        for address, (erased, added) in zip(self.addresses[cell.read_head_num :], rest, strict=True):
            self.memory = self.memory * (1 - np.outer(address, sigmoid(erased))) + np.outer(address, np.tanh(added))
        return np.concatenate([out, *self.reads]) @ v["output_kernel"] + v["output_bias"]

    def address(self, p: Any, before: Any) -> Any:
        width, reach = self.cell.memory_vector_dim, self.cell.shift_range
        key, strength, gate = np.tanh(p[:width]), np.log1p(np.exp(p[width])), sigmoid(p[width + 1])
        shifts, sharpness = np.exp(p[width + 2 : -1]), np.log1p(np.exp(p[-1])) + 1
        norms = np.linalg.norm(self.memory, axis=1) * np.linalg.norm(key)
        content = np.exp(strength * (self.memory @ key) / (norms + 1e-8))
        mixed = gate * content / content.sum() + (1 - gate) * before
        moved = np.zeros_like(mixed)
        for place in range(len(mixed)):
            for index, by in enumerate([*range(reach + 1), *range(-reach, 0)]):
                moved[(place + by) % len(mixed)] += mixed[place] * shifts[index] / shifts.sum()
        sharp = moved**sharpness
        return sharp / sharp.sum()


@pytest.mark.parametrize(("reading", "writing", "shift_range"), [(1, 1, 1), (2, 1, 2)])
def test_a_memory_over_time(reading: int, writing: int, shift_range: int) -> None:
    x = drawn(2, 3, 4)
    controller = tf.nn.rnn_cell.BasicRNNCell(6)
    cell = NTMCell(controller, 5, 3, reading, writing, shift_range, output_dim=2)
    with tf.variable_scope("net", initializer=tf.random_normal_initializer()):
        outputs, last = tf.nn.dynamic_rnn(cell, tf.constant(x), initial_state=cell.zero_state(2, tf.float32))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        variables = {v.op.name.rsplit("/", 1)[-1]: v for v in cell.variables if "basic_rnn" not in v.op.name}
        own = {v.op.name.rsplit("/", 1)[-1]: v for v in controller.variables}
        found, state, v, w = sess.run([outputs, last, variables, own])
    assert found.shape == (2, 3, 2)
    assert state.time == 3
    for example in range(2):
        machine = Memory(cell, v)
        controller_of_numpy = Controller(w)
        wanted = [machine.step(step, controller_of_numpy) for step in x[example]]
        np.testing.assert_allclose(found[example], wanted, atol=2e-5)
        np.testing.assert_allclose(state.M[example], machine.memory, atol=2e-5)
        np.testing.assert_allclose([w[example] for w in state.w_list], machine.addresses, atol=2e-5)


def test_a_memory_takes_a_cell() -> None:
    with pytest.raises(TypeError, match="must be an RNNCell"):
        NTMCell("no cell", 5, 3, 1, 1)  # type: ignore[arg-type]


def test_the_bias_of_a_cell_that_is_not_normalized_is_as_its_scope_says() -> None:
    x, c, h = drawn(1, 2), drawn(1, 3), drawn(1, 3)
    with tf.variable_scope("cell", initializer=tf.constant_initializer(0.5)):
        cell = tf.contrib.rnn.LayerNormBasicLSTMCell(3, layer_norm=False)
        output, _ = cell(tf.constant(x), LSTMStateTuple(tf.constant(c), tf.constant(h)))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        found = sess.run(output)
    gate = 0.5 * (x.sum() + h.sum()) + 0.5
    state = c * sigmoid(gate + 1) + sigmoid(gate) * np.tanh(gate)
    np.testing.assert_allclose(found, np.tanh(state) * sigmoid(gate), atol=1e-6)
