"""Values whose shapes only the step knows, given to what was declared with another shape: refused, nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors
from anabranch.graph.graph import Graph

#: what gives a variable of shape [2] a new value, from a tensor of any shape; shapes that it must refuse
UPDATES: dict[str, tuple[Callable[[Any, Any], Any], list[list[int]]]] = {
    "assign": (tf.assign, [[3], [], [1], [2, 1], [0]]),
    "assign_add": (tf.assign_add, [[3], [], [1], [3, 2]]),
    "assign_sub": (tf.assign_sub, [[], [1], [3, 2]]),
    "scatter_update": (lambda v, x: tf.scatter_update(v, [0, 1], x), [[1], [3], [2, 1]]),
    "scatter_add_scalar_index": (lambda v, x: tf.scatter_add(v, 0, x), [[1], [2]]),
    "scatter_nd_update": (lambda v, x: tf.scatter_nd_update(v, [[0], [1]], x), [[], [1], [2, 1]]),
    "in_a_branch": (lambda v, x: tf.cond(tf.size(x) >= 0, lambda: tf.assign(v, x), lambda: v + 0.0), [[3], []]),
    "descent": (lambda v, x: tf.train.GradientDescentOptimizer(0.1).apply_gradients([(x, v)]), [[], [1], [3, 2]]),
    "momentum": (lambda v, x: tf.train.MomentumOptimizer(0.1, 0.9).apply_gradients([(x, v)]), [[], [3, 2]]),
    "adam": (lambda v, x: tf.train.AdamOptimizer(0.1).apply_gradients([(x, v)]), [[], [3]]),
    "rate": (lambda v, x: tf.train.GradientDescentOptimizer(x).apply_gradients([(v + 0.0, v)]), [[2], [1]]),
}


@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize("name", UPDATES)
def test_a_variable_keeps_its_value(name: str, resource: bool) -> None:
    update, shapes = UPDATES[name]
    with Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("v", initializer=tf.constant([1.0, 2.0]), use_resource=resource)
        value = tf.placeholder(tf.float32, None)
        updated = update(variable, value)
        session.run(tf.global_variables_initializer())
        for shape in shapes:
            with pytest.raises(errors.InvalidArgumentError):
                session.run(updated, {value: np.ones(shape)})
            np.testing.assert_array_equal(session.run(variable), [1.0, 2.0])


def test_a_variable_without_a_declared_shape_changes_its_own() -> None:
    with Graph().as_default(), tf.Session() as session:
        value = tf.placeholder(tf.float32, None)
        variable = tf.Variable(value, validate_shape=False, use_resource=True)
        session.run(variable.initializer, {value: [1.0, 2.0]})
        for shape in ([3], [], [2, 2]):
            assert session.run(tf.assign(variable, value), {value: np.ones(shape)}).shape == tuple(shape)
        with pytest.raises(errors.InvalidArgumentError):
            session.run(tf.assign_add(variable, value), {value: 1.0})


def array(x: Any) -> Any:
    return tf.TensorArray(tf.float32, 3, element_shape=[2])


def queued(x: Any) -> Any:
    queue = tf.FIFOQueue(2, tf.float32, [[2]])
    with tf.control_dependencies([queue.enqueue(x)]):
        return queue.dequeue()


def accumulated(x: Any) -> Any:
    accumulator = tf.ConditionalAccumulator(tf.float32, [2])
    with tf.control_dependencies([accumulator.apply_grad(x)]):
        return accumulator.take_grad(1)


#: what was declared for elements of shape [2], given a tensor of shape [3, 3]
DECLARED: dict[str, Callable[[Any], Any]] = {
    "TensorArray.write": lambda x: array(x).write(0, x).read(0),
    "TensorArray.unstack": lambda x: array(x).unstack(x).read(0),
    "TensorArray.scatter": lambda x: array(x).scatter([0, 1, 2], x).read(0),
    "TensorArray.split": lambda x: tf.TensorArray(tf.float32, 3, element_shape=[1, 2]).split(x, [1, 1, 1]).read(0),
    "TensorListFromTensor": lambda x: tf.raw_ops.TensorListLength(
        input_handle=tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=[2])
    ),
    "queue": queued,
    "accumulator": accumulated,
    "scatter_nd": lambda x: tf.scatter_nd([[0], [1]], x, [4]),
    "tensor_scatter_update": lambda x: tf.tensor_scatter_update(tf.zeros([4]), [[0], [1]], x),
}


@pytest.mark.parametrize("name", DECLARED)
def test_declared_elements(name: str) -> None:
    with Graph().as_default(), tf.Session() as session:
        value = tf.placeholder(tf.float32, None)
        result = DECLARED[name](value)
        with pytest.raises(errors.InvalidArgumentError):
            session.run(result, {value: np.ones([3, 3])})


@pytest.mark.parametrize("shape", [[], [1]])
@pytest.mark.parametrize("name", ["scatter_nd", "tensor_scatter_update"])
def test_updates_do_not_broadcast(name: str, shape: list[int]) -> None:
    with Graph().as_default(), tf.Session() as session:
        value = tf.placeholder(tf.float32, None)
        with pytest.raises(errors.InvalidArgumentError):
            session.run(DECLARED[name](value), {value: np.ones(shape)})
