"""Variables that a loop does not change are read before it (docs: `frontend.control_flow.loop_invariants`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.graph.graph_copy import functions_of


def kinds(loop: Any) -> set[str]:
    """The types of the operations that the body of a loop runs."""
    op = loop.op
    body = functions_of(op.graph, [op])[op.attrs["body"].name]
    return {inner.type for inner in body.operations}


def product(v: Any, inside: Any = lambda x: x) -> Any:
    return tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, inside(x * v)), (0, tf.constant(1.0)))[1]


def test_it_is_read_once_and_differentiated() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=tf.constant(2.0))
        y = product(v)
        assert "ReadVariableOp" not in kinds(y)
        assert y.op.type == "StatelessWhile"
        session.run(v.initializer)
        grad = tf.gradients(y, v)[0]
        assert session.run([y, grad, tf.gradients(grad, v)[0]]) == [8, 12, 12]


@pytest.mark.parametrize("where", ["body", "branch"])
def test_not_where_the_loop_changes_a_variable(where: str) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=tf.constant(2.0))

        def inside(x: Any) -> Any:
            def assign() -> Any:
                with tf.control_dependencies([x]):
                    return v.assign_add(1.0) * 0.0

            with tf.control_dependencies([assign() if where == "body" else tf.cond(x > 0, assign, lambda: 0.0)]):
                return tf.identity(x)

        y = product(v, inside)
        assert "ReadVariableOp" in kinds(y)
        session.run(v.initializer)
        assert session.run(y) == 2 * 3 * 4


def test_not_where_the_read_waits_or_python_runs() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=tf.constant(2.0))

        def late(x: Any) -> Any:
            with tf.control_dependencies([x]):
                return x + v.read_value() * 0.0

        def python(x: Any) -> Any:
            result = tf.py_func(np.float32, [x], tf.float32)
            result.set_shape([])
            return result

        waiting, calling = product(1.0, late), product(v, python)
        session.run(v.initializer)
        assert session.run([waiting, calling]) == [1, 8]
        assert "ReadVariableOp" in kinds(waiting) & kinds(calling)


def test_writes_before_and_after_the_loop_keep_their_order() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=tf.constant(2.0))
        with tf.control_dependencies([v.assign(3.0)]):
            first = product(v)
        with tf.control_dependencies([first]):
            assign = v.assign(10.0)
        with tf.control_dependencies([assign]):
            grad = tf.gradients(first, v)[0] + 0.0
        session.run(v.initializer)
        assert session.run([first, grad, assign]) == [27, 27, 10]


def test_nested_loops_and_the_condition() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=tf.constant(2.0))
        y = tf.while_loop(lambda x: x < 100 * v, lambda x: product(v) * x, [tf.constant(1.0)])
        assert "ReadVariableOp" not in kinds(y)
        session.run(v.initializer)
        assert session.run([y, tf.gradients(y, v)[0]]) == [512, 3 * 3 * 2**8]
