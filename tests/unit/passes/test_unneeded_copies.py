"""Copies are taken out of a step where nobody notices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import anabranch as tf
from anabranch.pipeline import plan_step


def left(fetches: Sequence[tf.Tensor], targets: Sequence[tf.Operation] = (), feeds: Sequence[tf.Tensor] = ()) -> int:
    """How many copies a step has, on the host and in islands."""
    items = plan_step(list(fetches), list(targets), list(feeds)).items
    return sum(op.op_def.passes_on and bool(op.outputs) for item in items for op in item.operations)


def test_copies_are_taken_out() -> None:
    x = tf.placeholder(tf.float32, [2])
    y = tf.identity(tf.exp(x)) * tf.stop_gradient(x)
    assert left([y + 1.0, *tf.gradients(y, x), tf.identity(tf.strings.as_string(x)) + "!"], feeds=[x]) == 0


def test_what_is_fetched_asked_for_or_fed_stays() -> None:
    x = tf.placeholder(tf.float32, [2])
    copied = tf.identity(tf.exp(x))
    assert left([copied], feeds=[x]) == 1
    assert left([tf.negative(copied)], [copied.op], feeds=[x]) == 1
    with tf.Session() as session:
        np.testing.assert_allclose(session.run([copied, -copied], {x: [0, 1]})[0], np.exp([0, 1]), rtol=1e-6)
        assert session.run(-copied, {copied: [3, 4]}).tolist() == [-3, -4]


def test_what_waits_or_is_waited_for_stays() -> None:
    x, count = tf.placeholder(tf.float32, [2]), tf.Variable(0.0)
    with tf.control_dependencies([count.assign_add(1.0)]):
        late = tf.identity(x)
    with tf.control_dependencies([tf.identity(tf.exp(x))]):
        after = tf.negative(x)
    assert left([late + 1.0], feeds=[x]) == 1
    assert left([after], feeds=[x]) == 1
    with tf.Session() as session:
        session.run(count.initializer)
        assert session.run(late + 1.0, {x: [1, 2]}).tolist() == [2, 3]
        assert session.run(count) == 1


@pytest.mark.parametrize("given", [True, False])
def test_copies_in_primitives_of_control_flow_stay(given: bool) -> None:
    """A copy of a Switch's output is dead where that is."""
    x, chosen = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.bool, [])
    outcome = tf.cond(chosen, lambda: tf.py_func(lambda v: v + 1, [tf.identity(x)], tf.float32), lambda: tf.identity(x))
    with tf.Session() as session:
        assert session.run(outcome, {x: [1, 2], chosen: given}).tolist() == ([2, 3] if given else [1, 2])


def test_a_copy_on_another_device_stays() -> None:
    x = tf.placeholder(tf.float32, [2])
    with tf.device("/cpu:1"):
        copied = tf.identity(tf.exp(x))
        with tf.device("/cpu:0"):
            there = tf.identity(copied) * 2.0
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        np.testing.assert_allclose(session.run(there, {x: [0, 1]}), 2 * np.exp([0, 1]), rtol=1e-6)
