"""Loops and conditionals compute nothing for results that nobody uses, as TensorFlow prunes them (§3.2, §3.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import anabranch as tf
from anabranch import errors
from anabranch.pipeline import plan_step

Build = Callable[[Any, Any], Any]


def fails(x: Any) -> Any:
    return tf.check_numerics(x / 0.0 * 0.0, "not a number")


def inner_loop(x: Any, bad: Any) -> Any:
    return tf.while_loop(lambda i: i < 3.0, lambda i: i + bad, [x])


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x, bad: tf.cond(x > 5.0, lambda: x, lambda: [bad * 2.0, x * 2.0][1]), 2.0),
        (lambda x, bad: tf.cond(x > 5.0, lambda: (x, x), lambda: (x * 2.0, bad * 2.0))[0], 2.0),
        (lambda x, bad: tf.cond(x > 5.0, lambda: (x, x), lambda: (fails(x), x * 2.0))[1], 2.0),
        (lambda x, bad: tf.cond(x > 5.0, lambda: x, lambda: [inner_loop(x, bad), x * 2.0][1]), 2.0),
        (lambda x, bad: tf.switch_case(1, [lambda: (x, bad), lambda: (x * 2.0, bad)])[0], 2.0),
        (lambda x, bad: tf.while_loop(lambda i: i < 3.0, lambda i: [bad * 2.0, i + 1.0][1], [x]), 3.0),
        (lambda x, bad: tf.while_loop(lambda i: [bad * 2.0, i < 3.0][1], lambda i: i + 1.0, [x]), 3.0),
        (lambda x, bad: tf.while_loop(lambda i, j: i < 3.0, lambda i, j: (i + 1.0, j), [x, bad])[0], 3.0),
        (lambda x, bad: tf.while_loop(lambda i, j: i < 3.0, lambda i, j: (i + 1.0, fails(j)), [x, x])[0], 3.0),
        (lambda x, bad: tf.map_fn(lambda row: [bad * 2.0, row + 1.0][1], tf.stack([x]))[0], 2.0),
    ],
)
def test_what_nobody_uses_is_not_computed(build: Build, expected: float) -> None:
    x = tf.placeholder(tf.float32, [])
    with tf.Session() as session:
        assert session.run(build(x, fails(x)), {x: 1.0}) == expected


@pytest.mark.parametrize(
    "build",
    [
        lambda x, bad: tf.cond(x > 5.0, lambda: (x, x), lambda: (x * 2.0, bad * 2.0))[1],
        lambda x, bad: tf.while_loop(lambda i, j: i + 0 * j < 3.0, lambda i, j: (i + 1.0, j), [x, bad])[0],
        lambda x, bad: tf.while_loop(lambda i, j, k: i < 9.0, lambda i, j, k: (i + j, k, bad), [x, x, x])[0],
        lambda x, bad: inner_loop(x, tf.cond(x > 5.0, lambda: x, lambda: bad)),
    ],
)
def test_what_is_used_in_a_later_iteration_is_computed(build: Build) -> None:
    x = tf.placeholder(tf.float32, [])
    with tf.Session() as session, pytest.raises(errors.InvalidArgumentError, match="not a number"):
        session.run(build(x, fails(x)), {x: 1.0})


def test_a_result_stays_where_a_change_of_state_comes_with_it() -> None:
    x = tf.placeholder(tf.float32, [])
    total = tf.get_variable("total", initializer=0.0, use_resource=True)

    def counted(i: Any, seen: Any) -> Any:
        with tf.control_dependencies([tf.assign_add(total, 1.0)]):
            return i + 1.0, tf.identity(seen)

    loop = tf.while_loop(lambda i, seen: i < 3.0, counted, [x, x])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(loop[0], {x: 1.0}) == 3.0
        assert session.run(total) == 2.0


def test_a_loop_is_as_wide_as_its_uses() -> None:
    """A step that uses everything, or differentiates the loop, has the functions of the graph."""
    x = tf.placeholder(tf.float32, [])
    i, j, k = tf.while_loop(lambda i, j, k: i < 3.0, lambda i, j, k: (i + 1.0, j * k, k + 1.0), [x, x, x])
    widths = []
    for fetches in ([i], [i, j], [k], [i, j, k], [tf.gradients(j, x)[0]]):
        plan = plan_step(fetches, [], [x])
        widths.append(next(len(op.attrs["T"]) for op in plan.step.operations if "While" in op.type))
    assert widths == [1, 3, 2, 3, 3]
