"""Recurrent cells and networks against NumPy and the unrolled graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.autodiff.gradients import gradients
from anabranch.frontend.nn import rnn
from anabranch.frontend.nn.rnn_cell_base import RNNCell
from anabranch.frontend.nn.rnn_cells import BasicLSTMCell, BasicRNNCell, GRUCell, LSTMCell, LSTMStateTuple, MultiRNNCell
from anabranch.frontend.nn.rnn_wrappers import DeviceWrapper, DropoutWrapper, ResidualWrapper
from anabranch.frontend.variables.scope import variable_scope
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw
from anabranch.session import Session


def placeholder(shape: Any, dtype: str = "float64", name: str = "x") -> Any:
    return raw.Placeholder(dtype=dtype, shape=shape, name=name)


def variables() -> list[Any]:
    return list(get_default_graph().get_collection("variables"))


def run(fetches: Any, feeds: Any = None, values: Any = None) -> Any:
    with Session() as session:
        session.run([v.initializer for v in variables()])
        for variable, value in (values or {}).items():
            variable.load(value, session)
        return session.run(fetches, feeds)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


RNG = np.random.default_rng(3)
X = RNG.normal(size=(2, 3, 5))


def test_names_and_values_of_an_lstm() -> None:
    x = placeholder([2, 3, 5])
    outputs, state = rnn.dynamic_rnn(BasicLSTMCell(4), x, dtype="float64")
    kernel, bias = variables()
    assert [v.name for v in (kernel, bias)] == ["rnn/basic_lstm_cell/kernel:0", "rnn/basic_lstm_cell/bias:0"]
    assert outputs.shape.as_list() == [2, 3, 4]
    k, b = RNG.normal(size=(9, 16)), RNG.normal(size=16)
    got, last = run([outputs, state], {x: X}, {kernel: k, bias: b})
    c = h = np.zeros((2, 4))
    for t in range(3):
        i, j, f, o = np.split(np.concatenate([X[:, t], h], 1) @ k + b, 4, axis=1)
        c = c * sigmoid(f + 1) + sigmoid(i) * np.tanh(j)
        h = np.tanh(c) * sigmoid(o)
        np.testing.assert_allclose(got[:, t], h)
    assert isinstance(last, LSTMStateTuple)
    np.testing.assert_allclose(last.c, c)


def test_lstm_with_everything() -> None:
    x = placeholder([2, 5])
    cell = LSTMCell(4, use_peepholes=True, cell_clip=0.3, num_proj=3, proj_clip=0.2)
    c, h = RNG.normal(size=(2, 4)), RNG.normal(size=(2, 3))
    output, state = cell(x, LSTMStateTuple(convert_to_tensor(c), convert_to_tensor(h)))
    assert [v.op.name for v in cell.weights] == [
        f"lstm_cell/{n}" for n in ("kernel", "bias", "w_f_diag", "w_i_diag", "w_o_diag", "projection/kernel")
    ]
    values = {v: RNG.normal(size=v.shape.as_list()) for v in cell.weights}
    k, b, wf, wi, wo, p = values.values()
    got, last = run([output, state], {x: X[:, 0]}, values)
    i, j, f, o = np.split(np.concatenate([X[:, 0], h], 1) @ k + b, 4, axis=1)
    new = np.clip(sigmoid(f + 1 + wf * c) * c + sigmoid(i + wi * c) * np.tanh(j), -0.3, 0.3)
    wanted = np.clip((sigmoid(o + wo * new) * np.tanh(new)) @ p, -0.2, 0.2)
    np.testing.assert_allclose(got, wanted)
    np.testing.assert_allclose(last.c, new)


def test_gated_recurrent_unit() -> None:
    x = placeholder([2, 5])
    cell = GRUCell(4)
    h = RNG.normal(size=(2, 4))
    output, _ = cell(x, convert_to_tensor(h))
    assert [v.op.name for v in cell.weights] == [
        f"gru_cell/{n}" for n in ("gates/kernel", "gates/bias", "candidate/kernel", "candidate/bias")
    ]
    values = {v: RNG.normal(size=v.shape.as_list()) for v in cell.weights}
    gk, gb, ck, cb = values.values()
    r, u = np.split(sigmoid(np.concatenate([X[:, 0], h], 1) @ gk + gb), 2, axis=1)
    candidate = np.tanh(np.concatenate([X[:, 0], r * h], 1) @ ck + cb)
    np.testing.assert_allclose(run(output, {x: X[:, 0]}, values), u * h + (1 - u) * candidate)
    assert (run(cell.weights[1]) == 1).all()


def test_variables_that_a_getter_keeps_from_training() -> None:
    def not_trained(getter: Any, *args: Any, **kwargs: Any) -> Any:
        return getter(*args, **{**kwargs, "trainable": False})

    with variable_scope("root", custom_getter=not_trained):
        cell = LSTMCell(4, num_proj=3, num_unit_shards=2)
        cell(placeholder([2, 5]), cell.zero_state(2, "float64"))
    assert not cell.trainable_variables
    assert [v.op.name if hasattr(v, "op") else v.name for v in cell.non_trainable_variables] == [
        f"root/lstm_cell/{name}" for name in ("kernel", "bias", "projection/kernel")
    ]


CELLS: dict[str, Callable[[], Any]] = {
    "rnn": lambda: BasicRNNCell(4),
    "lstm": lambda: BasicLSTMCell(4),
    "lstm in one tensor": lambda: BasicLSTMCell(4, state_is_tuple=False),
    "projection": lambda: LSTMCell(4, use_peepholes=True, num_proj=3),
    "gru": lambda: GRUCell(4),
    "in parts": lambda: LSTMCell(4, num_proj=3, num_unit_shards=3, num_proj_shards=2),
    "stack": lambda: MultiRNNCell([GRUCell(4), ResidualWrapper(DeviceWrapper(BasicLSTMCell(4), "/cpu:0"))]),
}


@pytest.mark.parametrize("kind", sorted(CELLS))
@pytest.mark.parametrize("lengths", [None, [3, 1]])
def test_the_loop_is_the_unrolled_network(kind: str, lengths: Any) -> None:
    x = placeholder([None, None, 5])
    outputs, state = rnn.dynamic_rnn(CELLS[kind](), x, lengths, dtype="float64")
    made = variables()
    steps = [
        raw.StridedSlice(x, [0, t], [0, t + 1], [1, 1], begin_mask=1, end_mask=1, shrink_axis_mask=2) for t in range(3)
    ]
    with variable_scope("", reuse=True):
        plain, plain_state = rnn.static_rnn(CELLS[kind](), steps, None, "float64", lengths, scope="rnn")
    assert variables() == made
    pairs = []
    for values, last in ((outputs, state), (raw.Pack(plain, axis=1), plain_state)):
        from_states = [raw.Sum(raw.Sin(s), [0, 1]) for s in _flat(last)]
        loss = raw.AddN([raw.Sum(raw.Square(values), [0, 1, 2]), *from_states])
        pairs.append([values, *_flat(last), *map(convert_to_tensor, gradients(loss, [*made, x]))])
    got, wanted = run(pairs, {x: X})
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert all(np.abs(g).max() > 0 for g in got)


def _flat(state: Any) -> list[Any]:
    return [t for part in state for t in _flat(part)] if isinstance(state, tuple) else [state]


def test_time_major() -> None:
    x = placeholder([3, 2, 5])
    outputs, _ = rnn.dynamic_rnn(GRUCell(4), x, dtype="float64", time_major=True)
    with variable_scope("", reuse=True):
        other, _ = rnn.dynamic_rnn(GRUCell(4), raw.Transpose(x, [1, 0, 2]), dtype="float64", scope="rnn")
    a, b = run([outputs, other], {x: X.swapaxes(0, 1)})
    np.testing.assert_allclose(a, b.swapaxes(0, 1))


@pytest.mark.parametrize("lengths", [None, [3, 2]])
def test_bidirectional(lengths: Any) -> None:
    x = placeholder([2, 3, 5])
    (fw, bw), states = rnn.bidirectional_dynamic_rnn(GRUCell(4), GRUCell(3), x, lengths, dtype="float64")
    assert {v.op.name.rsplit("/gru_cell", 1)[0] for v in variables()} == {
        "bidirectional_rnn/fw",
        "bidirectional_rnn/bw",
    }
    with variable_scope("", reuse=True):
        joined, last_fw, last_bw = rnn.static_bidirectional_rnn(
            GRUCell(4), GRUCell(3), raw.Unpack(x, num=3, axis=1), None, None, "float64", lengths
        )
    got = run([fw, bw, *states, raw.Pack(joined, axis=1), last_fw, last_bw], {x: X})
    np.testing.assert_allclose(np.concatenate(got[:2], 2), got[4])
    np.testing.assert_allclose(got[2], got[5])
    np.testing.assert_allclose(got[3], got[6])


def test_raw_rnn_is_dynamic_rnn() -> None:
    x, lengths = placeholder([2, 3, 5]), convert_to_tensor(np.array([3, 2], np.int32))
    cell = GRUCell(4)

    def loop_fn(time: Any, output: Any, state: Any, held: Any) -> Any:
        done = raw.GreaterEqual(time, lengths)
        position = raw.Minimum(time, 2)
        given = raw.Squeeze(raw.GatherV2(x, raw.ExpandDims(position, 0), 1), squeeze_dims=[1])
        new = cell.zero_state(2, "float64") if state is None else state
        counted = convert_to_tensor(0) if held is None else raw.AddV2(held, 1)
        return done, given, new, output, counted

    emitted, state, counted = rnn.raw_rnn(cell, loop_fn)
    stacked = emitted.stack()
    with variable_scope("", reuse=True):
        outputs, last = rnn.dynamic_rnn(GRUCell(4), x, lengths, dtype="float64", scope="rnn")
    got = run([stacked, state, counted, outputs, last, gradients(stacked, x)[0], gradients(outputs, x)[0]], {x: X})
    np.testing.assert_allclose(got[0], got[3].swapaxes(0, 1))
    np.testing.assert_allclose(got[1], got[4])
    assert got[2] == 3
    np.testing.assert_allclose(got[5], got[6])


def test_what_raw_rnn_emits_may_have_a_shape_that_is_fed() -> None:
    x, width = placeholder([2, 5]), placeholder([], "int32", "width")
    cell = BasicRNNCell(4)

    def loop_fn(time: Any, output: Any, state: Any, held: Any) -> Any:
        done = raw.GreaterEqual(time, convert_to_tensor(np.array([3, 2], np.int32)))
        if state is None:
            return done, x, cell.zero_state(2, "float64"), (raw.Fill(raw.Reshape(width, [1]), 0),), None
        return done, x, state, (raw.Fill(raw.Pack([2, width]), time),), None

    emitted, _, _ = rnn.raw_rnn(cell, loop_fn)
    stacked = emitted[0].stack()
    assert run(stacked, {x: X[:, 0], width: 2})[:, :, 1].tolist() == [[1, 1], [2, 2], [3, 0]]


def test_dropout() -> None:
    x = placeholder([200, 3, 50])
    wrapped = DropoutWrapper(BasicRNNCell(40), output_keep_prob=0.5, seed=1)
    outputs, _ = rnn.dynamic_rnn(wrapped, x, dtype="float64")
    got = run(outputs, {x: np.ones((200, 3, 50))})
    assert 0.45 < (got == 0).mean() < 0.55
    assert ((got[:, 0] == 0) != (got[:, 1] == 0)).any()
    fixed = DropoutWrapper(
        BasicLSTMCell(40), 0.5, 0.5, 0.5, variational_recurrent=True, input_size=50, dtype="float64", seed=1
    )
    outputs, _ = rnn.dynamic_rnn(fixed, x, dtype="float64", scope="fixed")
    got = run(outputs, {x: np.ones((200, 3, 50))})
    assert ((got[:, 0] == 0) == (got[:, 2] == 0)).all()
    assert 0.3 < (got == 0).mean() < 0.7
    with pytest.raises(ValueError, match="input_keep_prob must be between 0 and 1"):
        DropoutWrapper(BasicRNNCell(4), input_keep_prob=0.0)


def test_a_cell_of_ones_own() -> None:
    class Sum(RNNCell):
        @property
        def state_size(self) -> int:
            return 5

        @property
        def output_size(self) -> int:
            return 5

        def call(self, inputs: Any, state: Any) -> Any:  # type: ignore[override]
            total = raw.AddV2(inputs, state)
            return total, total

    x = placeholder([2, 3, 5])
    np.testing.assert_allclose(run(rnn.dynamic_rnn(Sum(), x, dtype="float64")[0], {x: X}), np.cumsum(X, 1))


def test_mistakes() -> None:
    x = placeholder([2, 3, 5])
    with pytest.raises(TypeError, match="is not an RNNCell"):
        rnn.dynamic_rnn(object(), x, dtype="float64")
    with pytest.raises(ValueError, match="must give a dtype"):
        rnn.dynamic_rnn(GRUCell(4), x)
    with pytest.raises(ValueError, match="at least one cell"):
        MultiRNNCell([])
    with pytest.raises(ValueError, match="Expected state to be a tuple of length 2"):
        MultiRNNCell([GRUCell(2), GRUCell(2)])(placeholder([1, 2]), placeholder([1, 4]))
    with pytest.raises(ValueError, match="must be a vector"):
        rnn.dynamic_rnn(GRUCell(4), x, np.zeros((2, 2), np.int32), dtype="float64")
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        rnn.dynamic_rnn(GRUCell(4), placeholder([2]), dtype="float64", scope="a")


def test_outputs_have_the_names_by_which_programs_look_for_them() -> None:
    """Of graphs that were frozen or are served: those of TensorFlow."""
    cells = [tf.nn.rnn_cell.GRUCell(2), tf.nn.rnn_cell.BasicLSTMCell(2)]
    x = tf.zeros([3, 4, 2])
    outputs, _ = tf.nn.dynamic_rnn(cells[0], x, dtype=tf.float32)
    assert outputs.name == "rnn/transpose_1:0"
    (forwards, backwards), _ = tf.nn.bidirectional_dynamic_rnn(*cells, x, [4, 3, 2], dtype=tf.float32)
    assert [forwards.name, backwards.name] == ["bidirectional_rnn/fw/fw/transpose_1:0", "ReverseSequence:0"]
    assert tf.nn.rnn_cell.BasicLSTMCell(2).zero_state(3, tf.float32).c.name == "BasicLSTMCellZeroState/zeros:0"


# ---------------------------------------------------------------------- scopes and configurations
def test_a_second_cell_of_a_class_has_variables_of_its_own() -> None:
    """As TensorFlow names layers; each wrapper leaves that to the cell."""
    names = []
    for wrap in (lambda cell: cell, DropoutWrapper, ResidualWrapper, lambda cell: MultiRNNCell([cell])):
        cell = BasicRNNCell(1)
        wrapped = wrap(cell)
        wrapped(tf.ones([1, 1]), wrapped.zero_state(1, tf.float32))
        wrapped(tf.ones([1, 1]), wrapped.zero_state(1, tf.float32))  # its own once more
        names.append(cell.variables[0].op.name)
    assert names == [
        "basic_rnn_cell/kernel",
        "basic_rnn_cell_1/kernel",
        "basic_rnn_cell_2/kernel",
        "multi_rnn_cell/cell_0/basic_rnn_cell/kernel",
    ]
    assert len(variables()) == 8


@pytest.mark.parametrize(
    "cell",
    [
        lambda: BasicRNNCell(3),
        lambda: GRUCell(3, bias_initializer=tf.ones_initializer()),
        lambda: BasicLSTMCell(3, forget_bias=0.5, activation="relu"),
        lambda: LSTMCell(4, use_peepholes=True, num_proj=3, num_unit_shards=2, name="chosen"),
    ],
)
def test_cells_and_wrappers_are_made_again_by_their_configurations(cell: Callable[[], Any]) -> None:
    made = cell()
    config = made.get_config()
    again = type(made).from_config(config)
    assert again.get_config() == config
    assert (again.state_size, again.output_size) == (made.state_size, made.output_size)
    for wrapper in (
        DropoutWrapper(made, 0.5, seed=3, dropout_state_filter_visitor=lambda _: False),
        ResidualWrapper(made, lambda inputs, outputs: inputs + 2 * outputs),
        DeviceWrapper(made, "/cpu:0"),
    ):
        config = wrapper.get_config()
        assert config["cell"] == {"class_name": type(made).__name__, "config": made.get_config()}
        with pytest.raises(ValueError, match="overwrite the cell"):
            type(wrapper).from_config(config)
        other = type(wrapper).from_config({**config, "cell": again})
        assert other.get_config() == config
        assert other.wrapped_cell is again
