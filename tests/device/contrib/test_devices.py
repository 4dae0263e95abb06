"""`tf.contrib.nccl` and `tf.contrib.memory_stats`: sums over devices, and what memory they use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.graph.graph import Graph

nccl = tf.contrib.nccl
stats = tf.contrib.memory_stats


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (nccl.all_sum, lambda a, b, c: a + b + c),
        (nccl.all_prod, lambda a, b, c: a * b * c),
        (nccl.all_min, lambda a, b, c: np.minimum(np.minimum(a, b), c)),
        (nccl.all_max, lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    ],
)
def test_every_device_gets_the_result(function: Callable[..., Any], expected: Callable[..., Any]) -> None:
    values = [np.array(row, np.float32) for row in ([1, 5, -2], [4, 0, 3], [2, 2, 2])]
    with Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"CPU": 3})) as session:
        tensors = []
        for number, value in enumerate(values):
            with tf.device(f"/cpu:{number}"):
                tensors.append(tf.constant(value))
        results = function(tensors)
        assert [t.device for t in results] == [t.device for t in tensors]
        for result in session.run(results):
            np.testing.assert_array_equal(result, expected(*values))


def test_the_gradient_of_a_sum_is_the_sum_of_gradients() -> None:
    with Graph().as_default(), tf.Session() as session:
        x, y = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.float32, [2])
        first, second = nccl.all_sum([x, y])
        slopes = tf.gradients([first * 2.0, tf.square(second)], [x, y])
        # d/dx (2 (x + y) + (x + y)^2) = 2 + 2 (x + y)
        for slope in session.run(slopes, {x: [1.0, 2.0], y: [3.0, 4.0]}):
            assert slope.tolist() == [10.0, 14.0]
        assert session.run([nccl.reduce_sum([x, y]), nccl.broadcast(x)], {x: [1.0, 2.0], y: [3.0, 4.0]})[
            0
        ].tolist() == [
            4.0,
            6.0,
        ]
        with pytest.raises(ValueError, match="Must pass >0 tensors"):
            nccl.all_sum([])
        with pytest.raises(ValueError, match="must be of one type and shape"):
            nccl.all_max([x, tf.zeros([3])])


def test_memory_grows_with_what_is_held() -> None:
    with Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("v", initializer=tf.zeros([16, 1024, 1024]), trainable=False)
        with tf.device("/cpu:0"):
            asked = [stats.BytesInUse(), stats.MaxBytesInUse(), stats.BytesLimit()]
        before = session.run(asked)
        session.run(variable.initializer)
        session.run(variable.assign_add(tf.ones([16, 1024, 1024])))
        after = session.run(asked)
    assert all(value.dtype == np.int64 for value in after)
    assert after[0] - before[0] > 32 << 20  # of 64 MiB
    assert 0 < after[0] <= after[1] < after[2] == before[2]
