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


# ------------------------------------------------------------------------------------------ what a loop changes
def _counting(body: Any, goes_on: Any = lambda i, a: i < 3) -> Any:
    return tf.while_loop(goes_on, body, (0, 0.0), parallel_iterations=1)


def _used_after_an_update(v: tf.Variable, read: tf.Tensor) -> Any:
    def body(i: Any, a: Any) -> Any:
        with tf.control_dependencies([a]):
            update = v.assign_add(1.0)
        with tf.control_dependencies([update]):
            return i + 1, a + read * 1.0

    return _counting(body)


def _used_for_the_update(v: tf.Variable, read: tf.Tensor) -> Any:
    def body(i: Any, a: Any) -> Any:
        update = v.assign(read * 2.0)
        with tf.control_dependencies([update]):
            return i + 1, a + update

    return _counting(body)


def _in_the_condition(v: tf.Variable, read: tf.Tensor) -> Any:
    def body(i: Any, a: Any) -> Any:
        with tf.control_dependencies([v.assign_sub(1.0)]):
            return i + 1, a + 1.0

    return _counting(body, lambda i, a: tf.logical_and(i < 10, read > 0.5))


def _in_a_loop_inside(v: tf.Variable, read: tf.Tensor) -> Any:
    def body(i: Any, a: Any) -> Any:
        def inner(j: Any, b: Any) -> Any:
            with tf.control_dependencies([v.assign_add(1.0)]):
                return j + 1, b + read * 1.0

        return i + 1, tf.while_loop(lambda j, b: j < 2, inner, (0, a), parallel_iterations=1)[1]

    return _counting(body)


def _updated_in_a_branch(v: tf.Variable, read: tf.Tensor) -> Any:
    def body(i: Any, a: Any) -> Any:
        update = tf.cond(i > 0, lambda: v.assign_add(1.0), lambda: tf.identity(v))
        with tf.control_dependencies([update]):
            return i + 1, a + read * 1.0

    return _counting(body)


def _given_back(v: tf.Variable, read: tf.Tensor) -> Any:
    def body(i: Any, a: Any) -> Any:
        with tf.control_dependencies([a]):
            update = v.assign_add(1.0)
        with tf.control_dependencies([update]):
            return i + 1, tf.identity(read)

    return _counting(body)


@pytest.mark.parametrize("shown", [tf.identity, lambda v: v.value(), lambda v: tf.identity(tf.identity(v))])
@pytest.mark.parametrize(
    ("build", "result", "left"),
    [
        (_used_after_an_update, 15.0, 6.0),
        (_used_for_the_update, 42.0, 24.0),
        (_in_the_condition, 3.0, 0.0),
        (_in_a_loop_inside, 39.0, 9.0),
        (_updated_in_a_branch, 12.0, 5.0),
        (_given_back, 6.0, 6.0),
    ],
)
def test_a_loop_sees_its_updates_in_what_was_read_of_a_reference(
    build: Any, result: float, left: float, shown: Any
) -> None:
    """The numbers are those of genuine TensorFlow, whose references share their memory with such tensors."""
    v = tf.Variable(3.0, use_resource=False)
    loop = build(v, shown(v))
    with tf.Session() as session:
        session.run(v.initializer)
        assert session.run(loop)[1] == result
        assert session.run(v) == left


def test_a_loop_does_not_see_them_in_reads_of_resources_nor_in_what_was_computed() -> None:
    for resource in (False, True):
        v = tf.Variable(3.0, use_resource=resource)
        loop = _used_after_an_update(v, tf.identity(v) if resource else v * 1.0)
        with tf.Session() as session:
            session.run(v.initializer)
            assert session.run(loop)[1] == 9.0


def test_gradients_of_what_a_loop_reads_are_of_the_values_that_it_read() -> None:
    v = tf.Variable(3.0, use_resource=False)
    read = tf.identity(v)

    def body(i: Any, a: Any) -> Any:
        with tf.control_dependencies([a]):
            update = v.assign_add(1.0)
        with tf.control_dependencies([update]):
            return i + 1, a + read * read

    loop = _counting(body)
    (gradient,) = tf.gradients(loop[1], [v])
    with tf.Session() as session:
        session.run(v.initializer)
        total, slope = session.run([loop[1], gradient])
    assert total == 4 * 4 + 5 * 5 + 6 * 6
    assert slope == 2 * (4 + 5 + 6)
