"""Conditionals nested so deeply that Python's stack would end: they are planned and run all the same."""

from __future__ import annotations

from typing import Any

import pytest

import anabranch as tf
from anabranch.graph.graph import Graph
from anabranch.graph.loop_bodies import innermost_first, nesting
from anabranch.passes.prune import prune


def nested(x: Any, depth: int) -> Any:
    """Conditionals in conditionals, each adding 1."""
    if not depth:
        return x
    return tf.cond(x > 0.0, lambda: nested(x + 1.0, depth - 1), lambda: tf.square(x))


def test_deeply_nested_conditionals() -> None:
    with Graph().as_default():
        x = tf.placeholder(tf.float32, [])
        y = nested(x, 60)
        with tf.Session() as session:
            assert session.run(y, {x: 1.0}) == 61
            assert session.run(y, {x: -3.0}) == 9


@pytest.mark.parametrize("depth", [1, 8, 32])
def test_gradients_of_nested_conditionals(depth: int) -> None:
    with Graph().as_default():
        x = tf.placeholder(tf.float32, [])
        gradient = tf.gradients(nested(x, depth), x)[0]
        with tf.Session() as session:
            assert session.run(gradient, {x: 1.0}) == 1
            assert session.run(gradient, {x: -3.0}) == -6


def test_gradient_of_nested_loops() -> None:
    def looped(x: Any, depth: int) -> Any:
        if not depth:
            return x * 1.5
        return tf.while_loop(lambda k, _: k < 1, lambda k, v: (k + 1, looped(v, depth - 1)), [0, x])[1]

    with Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [])
        assert session.run(tf.gradients(looped(x, 7), x), {x: 2.0}) == [1.5]


def test_bodies_come_innermost_first_and_know_their_depth() -> None:
    with Graph().as_default():
        x = tf.placeholder(tf.float32, [])
        chosen = nested(x, 3)
        inside = tf.while_loop(lambda k: k < 2, lambda k: tf.cast(nested(tf.cast(k, tf.float32), 1), tf.int32), [0])
        step = prune([chosen, inside], [], [x])
        op = next(op for op in step.operations if op.type.endswith("If"))
        assert nesting(op) == 3
        assert nesting(step.fetches[1].op) == 4
        bodies = innermost_first(op.function(op.attrs["then_branch"].name))
    positions = {body: at for at, body in enumerate(bodies)}
    for body in bodies:
        for inner in body.operations:
            for attr in ("then_branch", "else_branch"):
                if attr in inner.attrs:
                    assert positions[inner.function(inner.attrs[attr].name)] < positions[body]
    assert len(bodies) == 5
