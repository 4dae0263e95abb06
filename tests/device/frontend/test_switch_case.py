"""tf.switch_case, and tf.case on top of it (§3.4, WP4.4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf


def chosen(index: Any, x: Any) -> Any:
    return tf.switch_case(index, [lambda: x * x, lambda: tf.sin(x), lambda: x * x * x + tf.stop_gradient(x)])


@pytest.mark.parametrize(("index", "taken"), [(0, 0), (1, 1), (2, 2), (3, 2), (-1, 2)])
@pytest.mark.parametrize("known", [False, True])
def test_values_and_gradients_of_two_orders(index: int, taken: int, known: bool) -> None:
    value = np.float32(1.3)
    with tf.Graph().as_default(), tf.Session() as session:
        number = tf.constant(index) if known else tf.placeholder(tf.int32, [])
        x = tf.constant(value)
        y = chosen(number, x)
        (first,) = tf.gradients(y, x)
        (second,) = tf.gradients(first, x)
        got = session.run([y, first, second], {} if known else {number: index})
    expected = [
        (value**2, 2 * value, 2),
        (np.sin(value), np.cos(value), -np.sin(value)),
        (value**3 + value, 3 * value**2, 6 * value),
    ][taken]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_all_branches_are_one_program() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        number = tf.placeholder(tf.int32, [])
        y = chosen(number, tf.constant(2.0))
        assert y.op.type == "StatelessCase"
        assert y.shape.as_list() == []
        options, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
        assert session.run(y, {number: 0}, options, metadata) == 4
        assert session.run(y, {number: 2}) == 10


def test_only_the_branch_taken_changes_state() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.Variable(1.0)
        number = tf.placeholder(tf.int32, [])
        y = tf.switch_case(
            number, {0: lambda: v.assign_add(1.0) + 0.0, 1: lambda: v.assign_add(10.0) + 0.0}, lambda: 0.0
        )
        session.run(v.initializer)
        assert session.run(y, {number: 1}) == 11
        assert session.run(y, {number: 7}) == 0
        assert session.run(v) == 11
        assert y.op.type == "Case"


def test_branches_of_different_shapes_and_host_work_run_on_the_host() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        number = tf.placeholder(tf.int32, [])
        grown = tf.switch_case(number, [lambda: tf.zeros([2]), lambda: tf.ones([3]), lambda: tf.ones([1])])
        assert grown.shape.as_list() == [None]
        text = tf.switch_case(number, [lambda: tf.constant("a"), lambda: tf.as_string(number)])
        for index, size, word in ((0, 2, b"a"), (1, 3, b"1"), (5, 1, b"5")):
            got = session.run([grown, text], {number: index})
            assert got[0].shape == (size,)
            assert got[1] == word


def test_a_case_of_one_branch() -> None:
    with tf.Graph().as_default() as graph, tf.Session() as session:
        number, x = tf.placeholder(tf.int32, []), tf.placeholder(tf.float32, [])
        y = tf.switch_case(number, [lambda: x * 2.0, lambda: x * 3.0])
        y.op.attrs["branches"] = y.op.attrs["branches"][1:]
        graph._changed()
        assert session.run(y, {number: 4, x: 1.5}) == 4.5


def test_structures_and_a_failing_check_in_a_branch_not_taken() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        number = tf.placeholder(tf.int32, [])
        row = tf.placeholder(tf.int32, [])
        table = tf.constant([1.0, 2.0])
        result = tf.switch_case(
            number, [lambda: {"a": tf.gather(table, row), "b": (row,)}, lambda: {"a": 0.5, "b": (row + 1,)}]
        )
        assert session.run(result, {number: 1, row: 9}) == {"a": 0.5, "b": (10,)}
        with pytest.raises(tf.errors.InvalidArgumentError, match="indices"):
            session.run(result, {number: 0, row: 9})


def test_gradients_to_variables_and_in_a_loop() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.Variable([1.5, 2.5])
        number = tf.placeholder(tf.int32, [])

        def body(i: Any, x: Any) -> Any:
            return i + 1, tf.switch_case(i, [lambda: x * w[0], lambda: x + w[1], lambda: x * x])

        _, y = tf.while_loop(lambda i, _: i < number, body, (0, tf.constant(3.0)))
        (grad,) = tf.gradients(y, w)
        session.run(tf.global_variables_initializer())
        value, found = session.run([y, tf.convert_to_tensor(grad)], {number: 3})
        assert value == 49
        np.testing.assert_allclose(found, [2 * 7 * 3, 2 * 7])


def test_one_function_is_called_at_once() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        assert session.run(tf.switch_case(tf.constant(4), [lambda: tf.constant(1.0)])) == 1


def test_one_function_alone_waits_as_several_do() -> None:
    x, number = tf.placeholder(tf.float32, []), tf.placeholder(tf.int32, [])
    v = tf.get_variable("v", initializer=0.0)
    with tf.control_dependencies([v.assign_add(1.0)]):
        y = tf.switch_case(number, [lambda: x])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(y, {x: 2.0, number: 5}) == 2
        assert session.run(v) == 1
        assert session.run(tf.gradients(y, x), {x: 2.0, number: 0}) == [1]


def test_case_is_one_conditional() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [])
        y = tf.case([(x < 1, lambda: x), (x < 2, lambda: x * 10), (x < 3, lambda: x * 100)], lambda: tf.constant(-1.0))
        assert y.op.type == "StatelessCase"
        (grad,) = tf.gradients(y, x)
        for value, expected in ((0.5, (0.5, 1)), (1.5, (15, 10)), (2.5, (250, 100)), (4.0, (-1, 0))):
            assert session.run([y, grad], {x: value}) == list(expected)


def test_an_exported_case_runs_again() -> None:
    with tf.Graph().as_default() as graph:
        number = tf.placeholder(tf.int32, [], name="number")
        tf.identity(chosen(number, tf.constant(2.0)), name="y")
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph.as_graph_def(), name="")
        assert session.run("y:0", {"number:0": 0}) == 4


@pytest.mark.parametrize(
    ("functions", "error", "message"),
    [
        ([], ValueError, "contiguous"),
        ({1: lambda: 1.0, 2: lambda: 2.0}, ValueError, r"must form contiguous numbers from 0 on, found \[1, 2\]"),
        ([(0, lambda: 1.0), (0, lambda: 2.0)], ValueError, "contiguous"),
        ({"a": lambda: 1.0}, TypeError, "must be a Python `int`, got 'a'"),
        ([lambda: 1.0, 2], TypeError, "callable"),
        (3, TypeError, "dict, list, or tuple"),
        ([lambda: 1.0, lambda: 1], TypeError, "branch 0 and branch 1 must have the same type"),
        ([lambda: 1.0, lambda: (1.0, 2.0)], ValueError, "Incompatible return values of branch 0 and branch 1"),
    ],
)
def test_mistakes(functions: Any, error: type[Exception], message: str) -> None:
    with tf.Graph().as_default(), pytest.raises(error, match=message):
        tf.switch_case(tf.placeholder(tf.int32, []), functions)


def test_the_number_is_a_scalar() -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError, match="scalar"):
        tf.switch_case(tf.constant([1]), [lambda: 1.0, lambda: 2.0])
