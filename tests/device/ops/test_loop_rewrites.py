"""Loops give the same with their products rewritten and without (docs: `ops.control_flow.loop_rewrites`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.ops.control_flow import loop_rewrites
from anabranch.ops.control_flow.loop_rewrites import REWRITES_VARIABLE
from anabranch.xla.variants import CompileEvent, compile_log

RNG = np.random.default_rng(3)
Build = Callable[[], tuple[list[Any], dict[Any, Any]]]


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short lists are multiplied before the loop as well."""
    monkeypatch.setattr(loop_rewrites, "MIN_ROWS", 1)


def run(build: Build, monkeypatch: pytest.MonkeyPatch, rewritten: bool) -> tuple[list[Any], str]:
    """What a program fetches, and what the compiler told of its loops."""
    monkeypatch.setenv(REWRITES_VARIABLE, "1" if rewritten else "0")
    events: list[CompileEvent] = []
    compile_log.listeners.append(events.append)
    try:
        with tf.Graph().as_default(), tf.Session() as session:
            tf.set_random_seed(5)
            fetches, feeds = build()
            session.run(tf.global_variables_initializer())
            return session.run([tf.convert_to_tensor(f) for f in fetches], feeds), " ".join(e.reason for e in events)
    finally:
        compile_log.listeners.remove(events.append)


def check_same(build: Build, monkeypatch: pytest.MonkeyPatch, note: str) -> list[Any]:
    wanted, silent = run(build, monkeypatch, rewritten=False)
    found, told = run(build, monkeypatch, rewritten=True)
    assert "sums after it" not in silent
    assert note in told
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12 * max(1.0, np.abs(b).max(initial=0.0)))
    return found


def recurrent(cell: Any, batch: int, lengths: Any = None, steps: int = 6, feed_count: bool = False) -> Build:
    def build() -> tuple[list[Any], dict[Any, Any]]:
        value = np.random.default_rng(0).normal(size=(batch, steps, 3))
        x = tf.placeholder(tf.float64, [batch, None if feed_count else steps, 3])
        outputs, state = tf.nn.dynamic_rnn(cell(), x, lengths, dtype=tf.float64)
        loss = tf.reduce_sum(tf.sin(outputs)) + sum(tf.reduce_sum(s * s) for s in tf.nest.flatten(state))
        grads = tf.gradients(loss, [x, *tf.trainable_variables()])
        squares = sum(tf.reduce_sum(tf.square(g)) for g in grads)
        return [loss, *grads, *tf.gradients(squares, [x, *tf.trainable_variables()])], {x: value}

    return build


CELLS: dict[str, Callable[[], Any]] = {
    "lstm": lambda: tf.nn.rnn_cell.BasicLSTMCell(40),
    "gru": lambda: tf.nn.rnn_cell.GRUCell(40),
    "rnn": lambda: tf.nn.rnn_cell.BasicRNNCell(40),
    "deep": lambda: tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.BasicRNNCell(40), tf.nn.rnn_cell.BasicLSTMCell(30)]),
}


@pytest.mark.parametrize(("cell", "batch"), [("lstm", 2), ("lstm", 20), ("gru", 20), ("rnn", 2), ("deep", 20)])
def test_recurrent_networks_and_second_order(cell: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_same(recurrent(CELLS[cell], batch), monkeypatch, "products with work before")


def test_lengths_and_a_time_dimension_that_is_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    build = recurrent(CELLS["lstm"], 3, lengths=np.array([2, 6, 0]), feed_count=True)
    check_same(build, monkeypatch, "2 sums after it")


def weighted(count: Any, stop: int, body: Callable[..., Any], extra: Callable[..., Any] | None = None) -> Build:
    """Rows of a list times a matrix, until `stop`; the rows that are not read are not numbers."""

    def build() -> tuple[list[Any], dict[Any, Any]]:
        rows = np.random.default_rng(1).normal(size=(8, 2, 30))
        rows[stop:] = np.nan
        x, w = tf.placeholder(tf.float64, [8, 2, 30]), tf.get_variable("w", [30, 30], tf.float64)
        source = tf.TensorArray(tf.float64, 8).unstack(x)
        n = tf.placeholder(tf.int32, [])
        limit = n if count == "fed" else stop
        _, y = tf.while_loop(
            lambda i, y: i < limit, lambda i, y: (i + 1, body(i, y, source, w)), (0, tf.zeros([2, 30], tf.float64))
        )
        return [y, *tf.gradients(tf.sin(y), w)], {x: rows, n: stop}

    return build


@pytest.mark.parametrize("count", ["known", "fed"])
@pytest.mark.parametrize("stop", [0, 1, 5, 8])
def test_loops_that_stop_early(count: str, stop: int, monkeypatch: pytest.MonkeyPatch) -> None:
    build = weighted(count, stop, lambda i, y, source, w: tf.tanh(tf.matmul(source.read(i), w) + y))
    found = check_same(build, monkeypatch, "1 products with work before")
    assert np.isfinite(found[0]).all()
    assert np.isfinite(found[1]).all()


def test_rows_from_last_to_first(monkeypatch: pytest.MonkeyPatch) -> None:
    build = weighted("known", 8, lambda i, y, source, w: tf.tanh(tf.matmul(tf.concat([source.read(7 - i)], 1), w) + y))
    check_same(build, monkeypatch, "products with work before")


def test_an_index_that_is_no_counter_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    build = weighted("known", 4, lambda i, y, source, w: tf.tanh(tf.matmul(source.read(i * i // 4), w) + y))
    _, told = run(build, monkeypatch, rewritten=True)
    assert "0 products with work before" in told or "loop while/" not in told
    check_same(build, monkeypatch, "")


def test_an_index_outside_of_the_list_is_still_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    build = weighted("known", 8, lambda i, y, source, w: tf.matmul(source.read(i + 1), w) + y)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Tried to read from index 8 but array size is: 8"):
        run(build, monkeypatch, rewritten=True)


@pytest.mark.parametrize("seen", ["condition", "body", "both", "no"])
def test_a_sum_that_somebody_looks_at_is_carried(seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> tuple[list[Any], dict[Any, Any]]:
        x = tf.constant(RNG.normal(size=(2, 40)) * 0 + 0.01)
        zeros = tf.zeros([40, 40], tf.float64)

        def cond(i: Any, y: Any, total: Any) -> Any:
            return tf.logical_and(i < 5, tf.reduce_sum(total) < 1e9) if seen in {"condition", "both"} else i < 5

        def body(i: Any, y: Any, total: Any) -> Any:
            new = tf.tanh(y * 1.5 + (tf.reduce_sum(total) if seen in {"body", "both"} else 0.1))
            return i + 1, new, tf.matmul(y, new, transpose_a=True) + total

        _, y, total = tf.while_loop(cond, body, (0, x, zeros))
        other = tf.gradients(y, x)[0]  # makes it a loop whose length is bounded
        return [y, total, other], {}

    check_same(build, monkeypatch, "loop while/While: 1 sums after it" if seen == "no" else "")
    _, told = run(build, monkeypatch, rewritten=True)
    assert ("1 sums after it" in told) == (seen == "no")
