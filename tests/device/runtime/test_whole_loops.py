"""Loops that XLA can take are compiled whole, with whatever is around them."""

from __future__ import annotations

from typing import Any

import pytest

import anabranch as tf
from anabranch.pipeline import plan_step
from anabranch.xla.islands import Island


def _recurrent(x: Any) -> Any:
    outputs, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.LSTMCell(8), x, dtype=tf.float32)
    return outputs


def _loop_with_a_variable(x: Any) -> Any:
    weights = tf.get_variable("weights", [4, 4])
    return tf.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, tf.tanh(tf.matmul(y, weights))), [0, x[:, 0]])[1]


def _conditional_with_a_variable(x: Any) -> Any:
    weights = tf.get_variable("weights", [4, 4])
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.matmul(x[:, 0], weights), lambda: x[:, 0])


@pytest.mark.parametrize("network", [_recurrent, _loop_with_a_variable, _conditional_with_a_variable])
def test_a_training_step_is_one_island(network: Any) -> None:
    x = tf.placeholder(tf.float32, [3, 7, 4])
    loss = tf.reduce_sum(tf.square(network(x)))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    plan = plan_step([loss], [train], [x])
    assert not [item for item in plan.items if not isinstance(item, Island)]
    assert not [op.name for op in plan.step.operations if op.op_def.is_primitive]
    assert len(plan.items) == 1


def test_a_step_that_takes_no_record_does_not_look_for_the_bound_of_a_loop() -> None:
    x, count = tf.placeholder(tf.float32, [4]), tf.placeholder(tf.int32, [])
    weights = tf.get_variable("weights", [4], initializer=tf.ones_initializer())
    y = tf.while_loop(lambda i, _: i < count, lambda i, y: (i + 1, tf.tanh(y * weights)), [0, x])[1]
    before = plan_step([y], [], [x, count])
    gradient = tf.gradients(y, weights)[0]
    inference, training = plan_step([y], [], [x, count]), plan_step([y, gradient], [], [x, count])
    bounds = [[op for op in p.step.operations if op.type == "_DeviceLoopBound"] for p in (inference, training)]
    assert [len(found) for found in bounds] == [0, 1]
    assert len(inference.items) == len(before.items) == 1
    assert [op.type for op in inference.step.operations] == [op.type for op in before.step.operations]
    with tf.Session() as session:
        session.run(weights.initializer)
        feeds = {x: [0.1, 0.2, 0.3, 0.4], count: 3}
        alone, beside = session.run(y, feeds), session.run([y, gradient], feeds)[0]
    assert alone.tolist() == beside.tolist()
