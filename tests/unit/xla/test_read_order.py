"""Which results of a step are computed from a variable's value, and do not lead to what overwrites it."""

from __future__ import annotations

from typing import Any

import numpy as np

import anabranch as tf
from anabranch.passes.fold import fold
from anabranch.passes.prune import prune
from anabranch.xla.read_order import unordered_reads

SIZE = 128  # squared: the least size that counts


def named(fetches: list[Any], targets: list[Any], feeds: list[Any]) -> dict[str, list[str]]:
    step = fold(prune(list(fetches), targets, feeds))
    found = unordered_reads(step.operations)
    return {op.name: [t.name for t in results] for op, results in found.items()}


def weights(name: str, size: int = SIZE) -> Any:
    return tf.get_variable(name, [size, size], initializer=tf.zeros_initializer(), use_resource=True)


def test_gradients_to_data_do_not_lead_to_the_update_of_what_they_read() -> None:
    x = tf.placeholder(tf.float32, [4, SIZE])
    first, second = weights("first"), weights("second")
    out = tf.matmul(tf.matmul(x, first, name="one"), second, name="two")
    train = tf.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(tf.square(out)))
    # `one` and `two` lead to both gradients; the gradient to the data of the first layer nobody needs
    assert named([], [train], [x]) == {
        "GradientDescent/update_second/ResourceApplyGradientDescent": ["gradients/two_grad/MatMul:0"]
    }


def test_small_variables_and_other_operations_do_not_count() -> None:
    x = tf.placeholder(tf.float32, [4, SIZE])
    small, large = weights("small", 64), weights("large")
    fetches = [tf.matmul(x[:, :64], small), tf.exp(large)]
    with tf.control_dependencies([fetches[0].op, fetches[1].op]):
        targets = [small.assign(np.ones((64, 64), np.float32)).op, large.assign(np.ones((SIZE, SIZE), np.float32)).op]
    assert named(fetches, targets, [x]) == {}


def test_only_earlier_reads_count() -> None:
    x = tf.placeholder(tf.float32, [4, SIZE])
    kept = weights("kept")
    early = tf.matmul(x, kept.read_value(), name="early")
    with tf.control_dependencies([early]):
        write = kept.assign(np.ones((SIZE, SIZE), np.float32), read_value=False)
    with tf.control_dependencies([write]):
        late = tf.matmul(x, kept.read_value(), name="late")
    assert named([early, late], [], [x]) == {write.name: ["early:0"]}
