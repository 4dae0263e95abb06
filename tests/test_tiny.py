"""The tiny suite: a few seconds that touch every part, for every save."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anabranch as tf


def test_a_model_learns_and_survives_a_restart(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(64, 3)).astype(np.float32)
    ys = xs @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 0.25

    def build() -> tuple:
        x = tf.placeholder(tf.float32, [None, 3], name="x")
        y = tf.placeholder(tf.float32, [None, 1], name="y")
        loss = tf.reduce_mean(tf.square(tf.layers.dense(x, 1, name="line") - y))
        return x, y, loss, tf.train.AdamOptimizer(0.1).minimize(loss), tf.train.Saver()

    x, y, loss, train, saver = build()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first = session.run(loss, {x: xs, y: ys})
        for _ in range(200):
            session.run(train, {x: xs, y: ys})
        last = session.run(loss, {x: xs, y: ys})
        path = saver.save(session, str(tmp_path / "model"), global_step=200)
    assert last < 1e-3 < first
    with tf.Graph().as_default():
        x, y, loss, _, saver = build()
        with tf.Session() as session:
            saver.restore(session, path)
            assert session.run(loss, {x: xs, y: ys}) == last


def test_gradients_conditionals_and_strings() -> None:
    x = tf.placeholder(tf.float32, [])
    y = tf.cond(x > 0, lambda: x * x, lambda: -x)
    text = tf.as_string(y)
    with tf.Session() as session:
        assert session.run([y, tf.gradients(y, x)[0]], {x: 3.0}) == [9, 6]
        assert float(session.run(text, {x: -2.0})) == 2


def test_a_graph_travels_as_bytes() -> None:
    with tf.Graph().as_default() as graph:
        tf.add(tf.placeholder(tf.float32, name="a"), 1.0, name="sum")
        data = graph.as_graph_def().SerializeToString()
    total = tf.import_graph_def(tf.GraphDef.FromString(data), return_elements=["sum:0"], name="")[0]
    with tf.Session() as session:
        assert session.run(total, {"a:0": 2.0}) == 3


def test_errors_name_the_line() -> None:
    table = tf.constant([1.0, 2.0])
    index = tf.placeholder(tf.int32, [])
    row = tf.gather(table, index, name="pick")
    with (
        tf.Session() as session,
        pytest.raises(tf.errors.InvalidArgumentError, match="pick.*test_tiny.py|test_tiny.py"),
    ):
        session.run(row, {index: 7})
