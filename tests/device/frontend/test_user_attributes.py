"""Programs hang attributes of their own on what they build a graph from."""

from __future__ import annotations

from typing import Any

import pytest

import anabranch as tf


def _sparse() -> Any:
    return tf.SparseTensor([[0, 1]], [1.0], [2, 2])


def _queue() -> Any:
    return tf.FIFOQueue(2, [tf.float32])


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.constant(1.0),
        lambda: tf.constant(1.0).op,
        tf.no_op,
        lambda: tf.get_variable("v", [2]),
        lambda: tf.get_variable("v", [2], use_resource=True),
        lambda: tf.get_variable("p", [4], partitioner=tf.fixed_size_partitioner(2)),
        tf.Graph,
        tf.get_default_graph,
        _sparse,
        lambda: tf.IndexedSlices(tf.constant([1.0]), tf.constant([0])),
        lambda: tf.TensorArray(tf.float32, 2),
        lambda: tf.TensorShape([1, None]),
        lambda: tf.TensorShape([1, None])[0],
        lambda: tf.as_dtype("float32"),
        lambda: tf.DeviceSpec(job="worker"),
        lambda: tf.TensorSpec([2], tf.float32),
        tf.Session,
        lambda: tf.train.GradientDescentOptimizer(0.1),
        tf.train.Coordinator,
        lambda: tf.nn.rnn_cell.BasicLSTMCell(2),
        lambda: tf.data.Dataset.range(3),
        _queue,
        tf.GradientTape,
        lambda: tf.layers.Dense(2),
        tf.zeros_initializer,
    ],
)
def test_an_attribute_of_the_users(make: Any) -> None:
    with tf.Graph().as_default():
        made = make()
        made._keras_shape = (None, 3)
        made.a_note = "mine"
        assert made._keras_shape == (None, 3)
        assert made.a_note == "mine"
        del made.a_note
        assert not hasattr(made, "a_note")


def test_attributes_are_no_part_of_the_graph() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None])
        before = graph.as_graph_def()
        x.note = x.op.note = x.shape.note = "mine"
        assert graph.as_graph_def() == before
        assert not hasattr(tf.identity(x), "note")
        assert not hasattr(tf.TensorShape([None]), "note")
        with tf.Session() as session:
            assert session.run(x * 2.0, {x: [1.0]}) == 2.0
