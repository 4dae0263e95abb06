"""Facts about bodies are found innermost first, once, and anew when a graph has changed."""

from __future__ import annotations

from typing import Any

import pytest

import anabranch as tf
from anabranch.graph.graph import Graph
from anabranch.graph.loop_bodies import (
    behind_identities,
    bodies_of,
    contains_loop,
    innermost_first,
    nesting,
    remembered,
)
from anabranch.passes.prune import prune


@pytest.fixture
def graph() -> Any:
    with Graph().as_default() as made:
        yield made


def conditional(x: Any, depth: int, inside: Any) -> Any:
    if not depth:
        return inside(x)
    return tf.cond(x > 0, lambda: conditional(x, depth - 1, inside), lambda: x)


def owner(tensor: Any) -> Any:
    """The operation with bodies that a result comes from, as a step runs it."""
    return behind_identities(prune([tensor], [], []).fetches[0]).op


def loop(x: Any) -> Any:
    return tf.while_loop(lambda v: v < 3, lambda v: v + 1, [x])


def test_bodies_come_after_those_that_they_call(graph: Graph) -> None:
    op = owner(conditional(tf.placeholder(tf.float32, []), 3, loop))
    for body in bodies_of(op):
        ordered = innermost_first(body)
        assert ordered[-1] is body
        assert len(set(ordered)) == len(ordered)
        for at, one in enumerate(ordered):
            called = {inner for o in one.operations for inner in bodies_of(o)}
            assert called <= set(ordered[:at])
        assert innermost_first(body, lambda one, body=body: one is not body) == [body]


def test_loops_are_found_however_deep(graph: Graph) -> None:
    x = tf.placeholder(tf.float32, [])
    with_loop, without = owner(conditional(x, 3, loop)), owner(conditional(x, 3, tf.sin))
    assert contains_loop(with_loop)
    assert not contains_loop(without)
    assert (nesting(with_loop), nesting(without), nesting(owner(x))) == (6, 3, 0)  # a loop counts three times
    assert contains_loop(owner(loop(x)))


def test_a_fact_is_found_once_for_each_body_until_a_graph_changes(graph: Graph) -> None:
    asked = []

    @remembered
    def count(body: Any) -> int:
        asked.append(body)
        return len(body.operations) + sum(count(one) for op in body.operations for one in bodies_of(op))

    chosen = conditional(tf.placeholder(tf.float32, []), 4, tf.sin)
    bodies = [one for body in bodies_of(owner(chosen)) for one in innermost_first(body)]
    total = [count(body) for body in bodies_of(owner(chosen))]
    assert len(asked) == len(set(asked)) == len(set(bodies))
    assert [count(body) for body in bodies_of(owner(chosen))] == total
    assert len(asked) == len(set(bodies))
    innermost: Any = graph.get_function(bodies[0].name)
    with innermost.as_default():
        tf.no_op()
    assert [count(body) for body in bodies_of(owner(chosen))] == total
    anew = {body.name for body in asked[len(set(bodies)) :]}
    callers = {one.name for one in bodies if bodies[0] in innermost_first(one)}
    assert anew == callers >= {bodies[0].name}
