"""Further cells of `tf.contrib.rnn` beside NumPy's results with the same variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

RNG = np.random.default_rng(6)
X = RNG.normal(size=(3, 5, 4))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def random_variables(session: tf.Session) -> dict[str, Any]:
    """Gives the variables random values; these by name."""
    values = {}
    for variable in tf.global_variables():
        value = np.asarray(RNG.normal(size=variable.shape.as_list()))
        variable.load(value, session)
        values[variable.op.name] = value
    return values


def run(cell: Any, inputs: Any = X) -> tuple[Any, Any, dict[str, Any]]:
    """Outputs and last state over five steps, and the variables by the names that they have in the cell."""
    outputs, state = tf.nn.dynamic_rnn(cell, tf.constant(inputs), dtype=tf.float64)
    with tf.Session() as session:
        values = random_variables(session)
        got, last = session.run([outputs, state])
    assert all(name.startswith("rnn/") for name in values)
    return got, last, {name.split("/", 2)[2]: value for name, value in values.items()}


def test_simple_recurrent_unit() -> None:
    got, last, v = run(tf.contrib.rnn.SRUCell(3))
    assert {name: value.shape for name, value in v.items()} == {"kernel": (4, 12), "bias": (6,)}
    c = np.zeros((3, 3))
    for step in range(5):
        new, forgotten, reset, passed = np.split(X[:, step] @ v["kernel"], 4, 1)
        f, r = sigmoid(forgotten + v["bias"][:3]), sigmoid(reset + v["bias"][3:])
        c = f * c + (1 - f) * new
        np.testing.assert_allclose(got[:, step], r * np.tanh(c) + (1 - r) * passed, rtol=1e-8)
    np.testing.assert_allclose(last, c, rtol=1e-8)


def test_independent_units() -> None:
    got, last, v = run(tf.contrib.rnn.IndRNNCell(3, tf.nn.relu))
    assert {name: value.shape for name, value in v.items()} == {"kernel_w": (4, 3), "kernel_u": (1, 3), "bias": (3,)}
    h = np.zeros((3, 3))
    for step in range(5):
        h = np.maximum(X[:, step] @ v["kernel_w"] + h * v["kernel_u"] + v["bias"], 0)
        np.testing.assert_allclose(got[:, step], h, rtol=1e-8)
    np.testing.assert_allclose(last, h, rtol=1e-8)


def test_independent_units_of_a_gru() -> None:
    got, _, v = run(tf.contrib.rnn.IndyGRUCell(3))
    of_gates = {"gates/kernel_w", "gates/kernel_u", "gates/bias"}
    assert set(v) == of_gates | {"candidate/kernel", "candidate/kernel_u", "candidate/bias"}
    h = np.zeros((3, 3))
    for step in range(5):
        x = X[:, step]
        gates = x @ v["gates/kernel_w"] + np.tile(h, [1, 2]) * v["gates/kernel_u"] + v["gates/bias"]
        r, u = np.split(sigmoid(gates), 2, 1)
        new = np.tanh(x @ v["candidate/kernel"] + r * h * v["candidate/kernel_u"] + v["candidate/bias"])
        h = u * h + (1 - u) * new
        np.testing.assert_allclose(got[:, step], h, rtol=1e-8)


def test_independent_units_of_an_lstm() -> None:
    got, last, v = run(tf.contrib.rnn.IndyLSTMCell(3, forget_bias=0.5))
    assert {name: value.shape for name, value in v.items()} == {"kernel_w": (4, 12), "kernel_u": (1, 12), "bias": (12,)}
    c = h = np.zeros((3, 3))
    for step in range(5):
        i, j, f, o = np.split(X[:, step] @ v["kernel_w"] + np.tile(h, [1, 4]) * v["kernel_u"] + v["bias"], 4, 1)
        c = sigmoid(f + 0.5) * c + sigmoid(i) * np.tanh(j)
        h = sigmoid(o) * np.tanh(c)
        np.testing.assert_allclose(got[:, step], h, rtol=1e-8)
    np.testing.assert_allclose(last.c, c, rtol=1e-8)


def test_first_values_of_independent_units() -> None:
    cell = tf.contrib.rnn.IndyGRUCell(50, bias_initializer=None)
    tf.nn.dynamic_rnn(cell, tf.zeros([1, 2, 3]), dtype=tf.float32)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found = {v.op.name.removeprefix("rnn/indy_gru_cell/"): session.run(v) for v in tf.global_variables()}
    assert found["gates/bias"].tolist() == [1] * 100
    assert found["candidate/bias"].tolist() == [0] * 50
    own = np.concatenate([found["gates/kernel_u"], found["candidate/kernel_u"]], 1)
    assert -1 <= own.min() < -0.8 < 0.8 < own.max() <= 1


@pytest.mark.parametrize("size", [4, 3])
def test_a_gate_in_time_and_one_in_depth(size: int) -> None:
    got, last, v = run(tf.contrib.rnn.IntersectionRNNCell(size, num_in_proj=size, forget_bias=0.5))
    assert set(v) == {"kernel", "bias"} | (set() if size == 4 else {"in_projection/kernel", "in_projection/bias"})
    h = np.zeros((3, size))
    for step in range(5):
        x = X[:, step] if size == 4 else X[:, step] @ v["in_projection/kernel"] + v["in_projection/bias"]
        parts = np.split(np.concatenate([x, h], 1) @ v["kernel"] + v["bias"], 4, 1)
        kept, passed = sigmoid(parts[0] + 0.5), sigmoid(parts[2] + 0.5)
        h = kept * h + (1 - kept) * np.tanh(parts[1])
        np.testing.assert_allclose(got[:, step], passed * x + (1 - passed) * np.maximum(parts[3], 0), rtol=1e-8)
    np.testing.assert_allclose(last, h, rtol=1e-8)


def test_depth_keeps_its_size() -> None:
    with pytest.raises(ValueError, match="input size == output size"):
        run(tf.contrib.rnn.IntersectionRNNCell(3))


@pytest.mark.parametrize("projection", [None, 6])
def test_an_lstm_in_groups(projection: int | None) -> None:
    got, last, v = run(tf.contrib.rnn.GLSTMCell(8, num_proj=projection, number_of_groups=2, activation=tf.nn.relu))
    names = {"group0/kernel", "group1/kernel", "bias_i", "bias_j", "bias_f", "bias_o"}
    assert set(v) == names | ({"projection/kernel"} if projection else set())
    c, m = np.zeros((3, 8)), np.zeros((3, projection or 8))
    for step in range(5):
        xs, ms = np.split(X[:, step], 2, 1), np.split(m, 2, 1)
        groups = [np.split(np.concatenate([xs[k], ms[k]], 1) @ v[f"group{k}/kernel"], 4, 1) for k in range(2)]
        i, j, f, o = (np.concatenate([g[k] for g in groups], 1) + v[f"bias_{'ijfo'[k]}"] for k in range(4))
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
        m = sigmoid(o) * np.maximum(c, 0)
        m = m @ v["projection/kernel"] if projection else m
        np.testing.assert_allclose(got[:, step], m, rtol=1e-8)
    np.testing.assert_allclose(last.c, c, rtol=1e-8)


def test_groups_divide_sizes() -> None:
    for sizes in ((7, None), (8, 7)):
        with pytest.raises(ValueError, match="must be divisible by number_of_groups"):
            tf.contrib.rnn.GLSTMCell(sizes[0], num_proj=sizes[1], number_of_groups=2)
    with pytest.raises(ValueError, match=r"input size \(4\) must be divisible"):
        run(tf.contrib.rnn.GLSTMCell(6, number_of_groups=3))


def rows_normalized(x: Any, v: dict[str, Any], scope: str) -> Any:
    return (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True) * v[f"{scope}/gamma"] + v[f"{scope}/beta"]


@pytest.mark.parametrize("peepholes", [False, True])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize(("projection", "shards"), [(None, 1), (2, 3)])
@pytest.mark.parametrize("is_tuple", [False, True])
def test_coupled_gates(peepholes: bool, layer_norm: bool, projection: int | None, shards: int, is_tuple: bool) -> None:
    cell = tf.contrib.rnn.CoupledInputForgetGateLSTMCell(
        3, peepholes, num_proj=projection, proj_clip=0.9, num_unit_shards=shards, num_proj_shards=min(shards, 2),
        state_is_tuple=is_tuple, layer_norm=layer_norm,
    )  # fmt: skip
    got, last, v = run(cell)
    names = {f"W_{k}" for k in range(shards)} | {"B"}
    if layer_norm:
        names |= {f"{s}/{n}" for s in ("transform", "forget", "output", "state") for n in ("gamma", "beta")}
    names |= {"W_F_diag", "W_O_diag"} if peepholes else set()
    assert set(v) == names | ({"W_P_0", "W_P_1"} if projection else set())

    def normal(x: Any, scope: str) -> Any:
        return rows_normalized(x, v, scope) if layer_norm else x

    kernel = np.concatenate([v[f"W_{k}"] for k in range(shards)])
    c, m = np.zeros((3, 3)), np.zeros((3, projection or 3))
    for step in range(5):
        j, f, o = np.split(np.concatenate([X[:, step], m], 1) @ kernel + (0 if layer_norm else v["B"]), 3, 1)
        f = sigmoid(normal(f, "forget") + 1 + v.get("W_F_diag", 0) * c)
        c = normal(f * c + (1 - f) * np.tanh(normal(j, "transform")), "state")
        m = sigmoid(normal(o, "output") + v.get("W_O_diag", 0) * c) * np.tanh(c)
        m = np.clip(m @ np.concatenate([v["W_P_0"], v["W_P_1"]]), -0.9, 0.9) if projection else m
        np.testing.assert_allclose(got[:, step], m, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(np.concatenate(last, 1) if is_tuple else last, np.concatenate([c, m], 1), rtol=1e-6)


@pytest.mark.parametrize("peepholes", [False, True])
def test_an_lstm_over_frequencies(peepholes: bool) -> None:
    cell = tf.contrib.rnn.TimeFreqLSTMCell(3, peepholes, cell_clip=0.5, feature_size=4, frequency_skip=2)
    assert (cell.state_size, cell.output_size) == (6, 3)
    inputs, state = RNG.normal(size=(2, 9)), RNG.normal(size=(2, 18))
    output, new_state = cell(tf.constant(inputs), tf.constant(state), "cell")
    with tf.Session() as session:
        v = {name.removeprefix("cell/"): value for name, value in random_variables(session).items()}
        got, last = session.run([output, new_state])
    lower, states, outputs = np.zeros((2, 3)), [], []
    for part in range(3):
        c, m = state[:, 6 * part : 6 * part + 3], state[:, 6 * part + 3 : 6 * part + 6]
        feature = inputs[:, 2 * part : 2 * part + 4]
        i, j, f, o = np.split(np.concatenate([feature, m, lower], 1) @ v["W_0"] + v["B"], 4, 1)
        kept, entered = sigmoid(f + 1 + v.get("W_F_diag", 0) * c), sigmoid(i + v.get("W_I_diag", 0) * c)
        c = np.clip(kept * c + entered * np.tanh(j), -0.5, 0.5)
        lower = sigmoid(o + v.get("W_O_diag", 0) * c) * np.tanh(c)
        states += [c, lower]
        outputs.append(lower)
    np.testing.assert_allclose(got, np.concatenate(outputs, 1), rtol=1e-8)
    np.testing.assert_allclose(last, np.concatenate(states, 1), rtol=1e-8)


def grid(features: Any, held: Any, v: dict[str, Any], block: int, coupled: bool, shared: bool) -> tuple[Any, Any]:
    """Goes over parts, with peepholes where there are such variables."""
    before = lower = np.zeros((len(features[0]), 3))
    outputs, states = [], []
    for x, (c, m) in zip(features, held, strict=True):
        given, new, gates = np.concatenate([x, m, lower], 1), {}, {}
        for way in ("freq", "time"):
            of = "freq" if shared else way

            def seen(gate: str, f: Any, t: Any, of: str = of) -> Any:
                diagonals = [v.get(f"W_{gate}_diag_{of}{which}_{block}", 0) for which in "ft"]
                return diagonals[0] * f + diagonals[1] * t

            parts = np.split(given @ v[f"W_{of[0]}_{block}_0"] + v[f"B_{of[0]}_{block}"], 3 if coupled else 4, 1)
            i = sigmoid(parts[0] + seen("I", before, c))
            f = 1 - i if coupled else sigmoid(parts[2] + 1 + seen("F", before, c))
            new[way] = f * {"freq": before, "time": c}[way] + i * np.tanh(parts[1])
            gates[way] = parts[-1], seen
        shown = {
            way: sigmoid(gate + seen("O", new["freq"], new["time"])) * np.tanh(new[way])
            for way, (gate, seen) in gates.items()
        }
        before, lower = new["freq"], shown["freq"]
        outputs += [shown["time"], lower]
        states += [new["time"], shown["time"]]
    return outputs, states


@pytest.mark.parametrize("peepholes", [False, True])
@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("is_tuple", [False, True])
def test_a_grid_of_one_block(peepholes: bool, coupled: bool, shared: bool, is_tuple: bool) -> None:
    cell = tf.contrib.rnn.GridLSTMCell(
        3, peepholes, shared, feature_size=2, frequency_skip=1, num_frequency_blocks=[3],
        couple_input_forget_gates=coupled, state_is_tuple=is_tuple,
    )  # fmt: skip
    got, last, v = run(cell)
    if is_tuple:
        assert cell.state_size._fields[:3] == ("state_f00_b00_c", "state_f00_b00_m", "state_f01_b00_c")
        assert cell.state_tuple_type.__name__ == "GridLSTMStateTuple"
    assert ("W_t_0_0" in v) == (not shared)
    assert ("W_F_diag_freqf_0" in v) == (peepholes and not coupled)
    assert ("W_O_diag_timet_0" in v) == (peepholes and not shared)
    states = [np.zeros((3, 3))] * 6
    for step in range(5):
        held = list(zip(states[::2], states[1::2], strict=True))
        features = [X[:, step, part : part + 2] for part in range(3)]
        outputs, states = grid(features, held, v, 0, coupled, shared)
        np.testing.assert_allclose(got[:, step], np.concatenate(outputs, 1), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(np.concatenate(last, 1) if is_tuple else last, np.concatenate(states, 1), rtol=1e-8)


def test_a_grid_of_two_blocks() -> None:
    cell = tf.contrib.rnn.GridLSTMCell(
        3, True, feature_size=2, frequency_skip=1, num_frequency_blocks=[2, 1],
        start_freqindex_list=[0, 2], end_freqindex_list=[3, 4],
    )  # fmt: skip
    got, last, v = run(cell)
    assert cell.output_size == got.shape[2] == 18
    states = [np.zeros((3, 3))] * 6
    for step in range(5):
        held, x = list(zip(states[::2], states[1::2], strict=True)), X[:, step]
        first = grid([x[:, 0:2], x[:, 1:3]], held[:2], v, 0, False, False)
        second = grid([x[:, 2:4]], held[2:], v, 1, False, False)
        states = first[1] + second[1]
        np.testing.assert_allclose(got[:, step], np.concatenate(first[0] + second[0], 1), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(np.concatenate(last, 1), np.concatenate(states, 1), rtol=1e-8)


@pytest.mark.parametrize("offset", [0, 1, -1])
def test_a_grid_in_both_directions(offset: int) -> None:
    cell = tf.contrib.rnn.BidirectionalGridLSTMCell(
        3, True, feature_size=2, frequency_skip=1, num_frequency_blocks=[3], backward_slice_offset=offset
    )
    got, last, v = run(cell)
    assert cell.output_size == got.shape[2] == 36
    assert cell.state_size._fields[6] == "bwd_state_f00_b00_c"
    of = {d: {n.removeprefix(f"{d}/"): a for n, a in v.items() if n.startswith(d)} for d in ("fwd", "bwd")}
    states = {"fwd": [np.zeros((3, 3))] * 6, "bwd": [np.zeros((3, 3))] * 6}
    for step in range(5):
        forward = [X[:, step, part : part + 2] for part in range(3)]
        moved = np.pad(X[:, step], [(0, 0), (max(-offset, 0), max(offset, 0))])[:, max(offset, 0) :]
        back = [moved[:, part : part + 2] for part in (2, 1, 0)]
        outputs = []
        for direction, features in (("fwd", forward), ("bwd", back)):
            held = list(zip(states[direction][::2], states[direction][1::2], strict=True))
            shown, states[direction] = grid(features, held, of[direction], 0, False, False)
            outputs += shown
        np.testing.assert_allclose(got[:, step], np.concatenate(outputs, 1), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(np.concatenate(last, 1), np.concatenate(states["fwd"] + states["bwd"], 1), rtol=1e-8)


def test_grids_fit_their_inputs() -> None:
    with pytest.raises(ValueError, match="Must specify num_frequency_blocks"):
        tf.contrib.rnn.GridLSTMCell(3, feature_size=2, frequency_skip=1)
    with pytest.raises(ValueError, match="requires 2 but gets 3"):
        run(tf.contrib.rnn.GridLSTMCell(3, feature_size=2, frequency_skip=1, num_frequency_blocks=[2]))
    with pytest.raises(ValueError, match="the same length"):
        run(tf.contrib.rnn.GridLSTMCell(3, feature_size=2, frequency_skip=1, num_frequency_blocks=[2, 1]))
    with pytest.raises(ValueError, match="Too many shards"):
        run(tf.contrib.rnn.CoupledInputForgetGateLSTMCell(3, num_unit_shards=9))


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("is_list", [False, True])
def test_networks_as_objects(is_dynamic: bool, is_list: bool) -> None:
    steps: Any = tf.constant(X.swapaxes(0, 1))
    lengths = [5, 2, 3]
    network = tf.contrib.rnn.FusedRNNCellAdaptor(tf.nn.rnn_cell.BasicRNNCell(3), is_dynamic)
    back = tf.contrib.rnn.TimeReversedFusedRNN(network)
    assert isinstance(back, tf.contrib.rnn.FusedRNNCell)
    given = tf.unstack(steps) if is_list else steps
    forward = network(given, dtype=tf.float64, sequence_length=lengths, scope="a")
    backward = back(given, dtype=tf.float64, sequence_length=None if is_list else lengths, scope="b")
    with tf.Session() as session:
        v = random_variables(session)
        (outputs, last), (outputs_back, last_back) = session.run([forward, backward])
    for values, state, reverse, scope in ((outputs, last, False, "a"), (outputs_back, last_back, True, "b")):
        kernel, bias = (v.get(f"{scope}/basic_rnn_cell/{n}", v[f"a/basic_rnn_cell/{n}"]) for n in ("kernel", "bias"))
        for row, length in enumerate(lengths):
            length = 5 if is_list and reverse else length
            order, h = list(range(length)), np.zeros(3)
            for step in order[::-1] if reverse else order:
                h = np.tanh(np.concatenate([X[row, step], h]) @ kernel + bias)
                np.testing.assert_allclose(values[step][row], h, rtol=1e-8)
            np.testing.assert_allclose(state[row], h, rtol=1e-8)


def test_a_cell_that_is_compiled() -> None:
    got, _, v = run(tf.contrib.rnn.CompiledWrapper(tf.nn.rnn_cell.BasicRNNCell(3)))
    np.testing.assert_allclose(got[:, 0], np.tanh(X[:, 0] @ v["kernel"][:4] + v["bias"]), rtol=1e-8)


class Scaled(tf.contrib.rnn.LayerRNNCell):
    """A cell of a program's own, with its variables in `build`."""

    state_size = output_size = 4

    def build(self, inputs_shape: Any) -> None:
        self._scale = self.add_variable("scale", shape=[inputs_shape[1]])
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        output = inputs * self._scale + state
        return output, output


def test_a_cell_of_ones_own() -> None:
    _, last, v = run(Scaled(name="mine"))
    np.testing.assert_allclose(last, X.sum(1) * v["scale"], rtol=1e-8)


def test_size_of_a_batch() -> None:
    unknown = tf.placeholder(tf.float32, [4, None, 2])
    assert tf.contrib.rnn.best_effort_input_batch_size([unknown, tf.zeros([4, 7, 1])]) == 7
    with tf.Session() as session:
        size = tf.contrib.rnn.best_effort_input_batch_size([unknown])
        assert session.run(size, {unknown: np.zeros([4, 3, 2])}) == 3
