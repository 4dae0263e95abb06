"""Cells of recurrent networks that are one operation: beside the same of many, at the ends of sequences, refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.oracles.nn_cases import BATCH, SIZE, STEPS, WIDTH, numbers, of_an_lstm


def step(x: Any, c: Any, h: Any, given: dict[str, Any], forget_first: bool) -> Any:
    """One step of operations that are tested elsewhere."""
    i, a, b, o = tf.split(tf.matmul(tf.concat([x, h], 1), given["w"]) + given["b"], 4, 1)
    new, forget = (b, a) if forget_first else (a, b)
    c = tf.sigmoid(forget + c * given["wcf"]) * c + tf.sigmoid(i + c * given["wci"]) * tf.tanh(new)
    return c, tf.sigmoid(o + c * given["wco"]) * tf.tanh(c)


@pytest.mark.parametrize("version", ["", "V2"])
def test_a_sequence_and_its_gradient_are_those_of_its_steps(version: str) -> None:
    r = np.random.RandomState(3)
    given = {name: tf.constant(value) for name, value in of_an_lstm(r).items()}
    given["x"] = tf.constant(numbers(r, STEPS, BATCH, WIDTH))
    weights = numbers(r, 2, 4, BATCH, SIZE)
    bias = {} if version else {"forget_bias": 0.0}
    op = getattr(tf.raw_ops, f"BlockLSTM{version}")
    gates = op(seq_len_max=np.int64(4), use_peephole=True, cell_clip=0.0, **bias, **given)
    c, h, states = given["cs_prev"], given["h_prev"], []
    for now in tf.unstack(given["x"])[:4]:
        c, h = step(now, c, h, given, version == "V2")
        states.append((c, h))
    parts = [tf.stack(all_of) for all_of in zip(*states, strict=True)]
    sources = list(given.values())
    mine = tf.gradients(tf.reduce_sum(gates[1][:4] * weights[0] + gates[6][:4] * weights[1]), sources)
    wanted = tf.gradients(tf.reduce_sum(parts[0] * weights[0] + parts[1] * weights[1]), sources)
    with tf.Session() as session:
        got, expected = session.run([[gates[1][:4], gates[6][:4], *mine], [*parts, *wanted]])
        rest = session.run([gate[4:] for gate in gates])
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert not any(value.any() for value in rest), "nothing follows the last step"


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize("kind", ["LSTMBlockCell", "GRUBlockCell", "GRUBlockCellV2"])
def test_cells_give_what_plain_cells_do(kind: str, dtype: Any) -> None:
    x = np.random.RandomState(4).randn(BATCH, STEPS, WIDTH).astype(dtype.as_numpy_dtype)
    lstm = kind == "LSTMBlockCell"
    if lstm:
        block = tf.contrib.rnn.LSTMBlockCell(SIZE, use_peephole=True)
        plain = tf.nn.rnn_cell.LSTMCell(SIZE, use_peepholes=True)
    else:
        block, plain = getattr(tf.contrib.rnn, kind)(SIZE), tf.nn.rnn_cell.GRUCell(SIZE)
    results, kernels = [], []
    for cell in (block, plain):
        with tf.variable_scope(f"of_{len(results)}"):
            outputs, _ = tf.nn.dynamic_rnn(cell, tf.constant(x), dtype=dtype)
        results.append([outputs, *tf.gradients(outputs, cell.trainable_variables)])
        kernels.append(cell.trainable_variables)
    types = {op.type for op in tf.get_default_graph().get_operations()}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for mine, theirs in zip(*kernels, strict=True):
            theirs.load(session.run(mine), session)
        for a, b in zip(*session.run(results), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert not types & {"LSTMBlockCell", "GRUBlockCell"}, "the step is in the body of the loop"


def test_what_is_refused() -> None:
    r = np.random.RandomState(5)
    given = of_an_lstm(r) | {"x": numbers(r, STEPS, BATCH, WIDTH)}
    with pytest.raises(ValueError, match="four gates"):
        tf.raw_ops.BlockLSTM(seq_len_max=np.int64(1), **(given | {"b": numbers(r, 6)}))
    long = tf.raw_ops.BlockLSTM(seq_len_max=np.int64(STEPS + 1), **given)
    narrow = tf.raw_ops.BlockLSTM(seq_len_max=np.int64(1), **(given | {"w": numbers(r, 3, 4 * SIZE)}))
    gru = {"x": numbers(r, 2, 3), "h_prev": numbers(r, 2, 4), "w_ru": numbers(r, 7, 8), "w_c": numbers(r, 7, 3)}
    crooked = tf.raw_ops.GRUBlockCell(b_ru=numbers(r, 8), b_c=numbers(r, 4), **gru)
    with tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="at most the number of steps, 6, got 7"):
            session.run(long[6])
        with pytest.raises(tf.errors.InvalidArgumentError, match="need an output before of that shape"):
            session.run(narrow[6])
        with pytest.raises(tf.errors.InvalidArgumentError, match="need w_ru, w_c, b_ru and b_c"):
            session.run(crooked[3])
