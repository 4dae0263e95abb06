"""Changes of a graph that stands: what is known of shapes and values follows them, and what steps compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core.shapes import TensorShape
from anabranch.graph.graph import Graph
from anabranch.graph.rewiring import NewInput, rewire


@pytest.fixture(autouse=True)
def graph() -> Any:
    with Graph().as_default() as made:
        yield made


def test_shapes_become_known_behind_a_change() -> None:
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    y = tf.matmul(x, tf.ones([3, 2]))
    rows = tf.shape(y)[0]
    z = tf.reshape(y, tf.stack([rows * 2, 1]))
    assert z.shape.as_list() == [None, 1]
    rewire([NewInput(y.op, 0, tf.ones([5, 3]))])
    assert (y.shape.as_list(), z.shape.as_list()) == ([5, 2], [10, 1])
    with tf.Session() as session:
        assert session.run(z).shape == (10, 1)


def test_shapes_become_unknown_behind_a_change_and_nothing_is_taken_for_known() -> None:
    x = tf.ones([5, 3])
    y = tf.identity(x)
    called = tf.py_func(lambda a: a, [tf.constant([1.0])], tf.float32)
    called.set_shape([1])
    apart = tf.identity(called)
    size, count = tf.raw_ops.Size(input=y), tf.raw_ops.Shape(input=y)[0] * 2  # `tf.size` would be a constant
    with tf.Session() as session:
        assert session.run([size, count]) == [15, 10]
        free = tf.placeholder(tf.float32, [None, 3])
        assert rewire([NewInput(y.op, 0, free)]) == 1
        assert tf.get_static_value(size) is None
        assert session.run([size, count], {free: np.ones([2, 3])}) == [6, 4]
        assert y.shape.as_list() == [None, 3]
    assert apart.shape.as_list() == [1]


def test_values_are_those_of_the_new_constant() -> None:
    a, b = tf.constant([2, 3]), tf.constant([6, 1])
    shape = a + 0
    made = tf.reshape(tf.range(6), shape)
    assert (made.shape.as_list(), tf.get_static_value(shape).tolist()) == ([2, 3], [2, 3])
    rewire([NewInput(shape.op, 0, b)])
    assert (made.shape.as_list(), tf.get_static_value(shape).tolist()) == ([6, 1], [6, 1])
    with tf.Session() as session:
        assert session.run(made).shape == (6, 1)


def test_what_cannot_follow_is_refused_and_all_stays() -> None:
    x = tf.placeholder(tf.float32, [None, None])
    y = tf.identity(x)
    z = tf.matmul(y, tf.ones([3, 2]))
    stated = tf.identity(y)
    stated.set_shape([7, 3])
    values = [y._shape, z._shape, stated._shape]
    with pytest.raises(ValueError, match="MatMul"):
        rewire([NewInput(y.op, 0, tf.ones([4, 4]))])
    with pytest.raises(ValueError, match=r"would have shape \(4, 3\), and its shape is stated to be \(7, 3\)"):
        rewire([NewInput(y.op, 0, tf.ones([4, 3]))])
    with pytest.raises(ValueError, match="float32; .* of int32 cannot take its place: use tf.cast"):
        rewire([NewInput(y.op, 0, tf.ones([7, 3], tf.int32))])
    with pytest.raises(ValueError, match="Cannot update edge, incompatible shapes"):
        rewire([NewInput(z.op, 1, tf.ones([3, 5]))])
    with pytest.raises(IndexError, match="has 1 inputs, and no input 1"):
        rewire([NewInput(y.op, 1, x)])
    assert y.op.inputs == [x]
    assert [y._shape, z._shape, stated._shape] == values
    with tf.Session() as session:
        assert session.run(z, {x: np.ones([7, 3])}).shape == (7, 2)


def test_many_changes_are_one_though_single_ones_would_be_cycles() -> None:
    a = tf.constant(1.0)
    b = tf.negative(a)
    c = tf.add(b, 10.0)
    # c before b: b takes c, c takes a
    assert rewire([NewInput(b.op, 0, c), NewInput(c.op, 0, a)]) == 2
    with tf.Session() as session:
        assert session.run([b, c]) == [-11.0, 11.0]
    slope = tf.gradients(b, a)[0]
    with tf.Session() as session:
        assert session.run(slope) == -1.0
    message = tf.get_default_graph().as_graph_def()
    with Graph().as_default():
        (again,) = tf.import_graph_def(message, return_elements=[b.name], name="")
        with tf.Session() as session:
            assert session.run(again) == -11.0


def a_loop(x: Any) -> Any:
    return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), [0, tf.ones([2])])[1]


def test_a_loop_takes_another_tensor_and_its_gradient_follows() -> None:
    x, other = tf.placeholder(tf.float32, [2], name="x"), tf.placeholder(tf.float32, [2], name="other")
    y = a_loop(x)
    slope = tf.gradients(y, x)[0]
    with tf.Session() as session:
        assert session.run([y, slope], {x: [2.0, 3.0]})[1].tolist() == [12.0, 27.0]
        assert tf.contrib.graph_editor.reroute_ts(other, x) > 0
        values = session.run([y, slope], {other: [1.0, 2.0]})
    assert [value.tolist() for value in values] == [[1.0, 8.0], [3.0, 12.0]]


def test_only_the_loop_is_named_and_what_stands_beside_it_follows() -> None:
    x, other = tf.placeholder(tf.float32, [2], name="x"), tf.placeholder(tf.float32, [2], name="other")
    y = a_loop(x)
    tf.gradients(y, x)
    loop = next(op for op in tf.get_default_graph().get_operations() if op.op_def.is_functional)
    tf.contrib.graph_editor.reroute_ts(other, x, can_modify=loop)
    with tf.Session() as session:
        assert session.run(y, {other: [1.0, 2.0]}).tolist() == [1.0, 8.0]
    records = [op for op in loop.control_outputs if op.type == "_LoopRecords"]
    assert records
    with pytest.raises(ValueError, match="must wait for it"):
        tf.contrib.graph_editor.remove_control_inputs(records[0], loop)


def test_a_body_keeps_the_shapes_that_it_was_built_for() -> None:
    x = tf.placeholder(tf.float32, [2])
    y = a_loop(x)
    with pytest.raises(
        ValueError, match=r"were built for an input \d of shape \(2,\), and would get one of shape \(\?,\)"
    ):
        tf.contrib.graph_editor.reroute_ts(tf.placeholder(tf.float32, [None]), x)
    with tf.Session() as session:
        assert session.run(y, {x: [2.0, 3.0]}).tolist() == [8.0, 27.0]
    assert TensorShape([2]) == y.shape
