"""`tf.gradients` adds to a graph, and changes nothing that is there: so the plans of earlier fetches stay valid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.graph.graph import Graph
from anabranch.pipeline import plan_listeners, plan_step
from anabranch.xla.variants import compile_log
from tests.device.autodiff.test_random_loops import Looped, program


class _Facts:
    """What can be known of a graph, its functions included, in the order in which it came to be."""

    def __init__(self, graph: Graph) -> None:
        self.graphs = {"": graph, **graph.functions}
        self.operations = {name: [_known_of(op) for op in g.get_operations()] for name, g in self.graphs.items()}
        self.versions = {name: g.structure_version for name, g in self.graphs.items()}
        self.functions = {name: (list(g.inputs), list(g.outputs)) for name, g in graph.functions.items()}  # type: ignore[attr-defined]

    def stand_in(self, later: _Facts) -> None:
        for name, operations in self.operations.items():
            assert later.graphs[name] is self.graphs[name]
            assert later.versions[name] == self.versions[name]
            assert later.operations[name][: len(operations)] == operations
        for name, function in self.functions.items():
            assert later.functions[name] == function


def _known_of(op: Any) -> tuple[Any, ...]:
    attrs = {key: value.tobytes() if isinstance(value, np.ndarray) else repr(value) for key, value in op.attrs.items()}
    outputs = [(t, t.dtype, t.shape.as_list() if t.shape.ndims is not None else None) for t in op.outputs]
    return op, op._id, op.name, op.op_def, attrs, [*op.inputs], op.control_inputs, outputs, op.device


def _results(statements: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """A program's value, and then after each `tf.gradients` the sum of what it gives."""
    xs = [tf.placeholder(tf.float64, [2, 2]) for _ in range(3)]
    fed = tf.placeholder(tf.int32, [])
    y, z = Looped(xs[2], fed).run(statements, (xs[0], xs[1]), tf.constant(1))
    value = tf.reduce_sum(y * tf.cos(z))
    yield value, [*xs, fed]
    for _ in range(2):
        value = tf.add_n([tf.reduce_sum(tf.sin(g)) for g in tf.gradients(value, xs) if g is not None] or [value])
        yield value, [*xs, fed]


@pytest.mark.parametrize("seed", [0, 1, 7, 12, 38])
def test_what_was_there_stays_as_it_was(seed: int) -> None:
    random = np.random.default_rng(seed)
    statements = [
        *program(random, 3),
        ("loop", (["known", "fed"][seed % 2], 2), program(random, 1)),
        *program(random, 2),
    ]
    with tf.Graph().as_default() as graph:
        facts = None
        planned: list[tuple[Any, list[Any], list[Any]]] = []
        for value, feeds in _results(statements):
            for fetch, given, before in planned:
                assert _steps(fetch, given) == before
            if facts is not None:
                facts.stand_in(_Facts(graph))
            facts = _Facts(graph)
            planned.append((value, feeds, _steps(value, feeds)))


def _steps(value: Any, feeds: list[Any]) -> list[Any]:
    """What a step that fetches a value runs, bodies included."""
    found = []
    stack = [plan_step([value], [], feeds).step.operations]
    while stack:
        for op in stack.pop():
            found.append((op.name, op.type))
            stack += [function.operations for function in op.functions.values()]
    return found


@pytest.mark.parametrize("seed", [2, 5, 8])
def test_nothing_is_planned_or_compiled_again(seed: int) -> None:
    random = np.random.default_rng(seed)
    statements = [("loop", ("fed", 2), program(random, 2)), *program(random, 1)]
    made: list[Any] = []
    with tf.Graph().as_default(), tf.Session() as session:
        values = _results(statements)
        first, feeds = next(values)
        given = dict(zip(feeds, [*random.normal(size=(3, 2, 2)) / 2, 2], strict=True))
        before = session.run(first, given)
        plan_listeners.append(made.append)
        compile_log.listeners.append(made.append)
        try:
            second, _ = next(values)
            assert session.run(first, given) == before
            assert made == []
            session.run(second, given)
            assert made
            made.clear()
            next(values)
            assert session.run(first, given) == before
            session.run(second, given)
            assert made == []
        finally:
            plan_listeners.remove(made.append)
            compile_log.listeners.remove(made.append)


@pytest.mark.parametrize("host", [False, True], ids=["compiled", "host"])
def test_a_loop_runs_once_for_its_result_and_its_gradients(host: bool) -> None:
    """The factors are drawn at random: a loop that ran twice would have a gradient that does not fit its result."""
    runs = []

    def noted(number: Any) -> Any:
        runs.append(int(number))
        return number

    def body(i: Any, a: Any) -> Any:
        following = i + 1
        if host:
            following = tf.ensure_shape(tf.py_func(noted, [i], tf.int32), []) + 1
        return following, a * tf.random_uniform([], 0.5, 2.0)

    x = tf.constant(3.0)
    y = tf.while_loop(lambda i, _: i < 5, body, (0, x))[1]
    first, second = tf.gradients(y, x)[0], tf.gradients(2.0 * y, x)[0]
    with tf.Session() as session:
        value, once, twice = session.run([y, first, second])
        np.testing.assert_allclose([once * 3.0, twice * 1.5], value, rtol=1e-5)
        assert runs == [0, 1, 2, 3, 4] * host
        assert abs(session.run(first) - once) > 1e-6, "another step draws other numbers"


def test_a_conditional_runs_once_for_its_result_and_its_gradients() -> None:
    x, taken = tf.constant(3.0), tf.placeholder(tf.bool, [])
    y = tf.cond(taken, lambda: tf.sin(x * tf.random_uniform([])), lambda: x)
    first, second = tf.gradients(y, x)[0], tf.gradients(y * y, x)[0]
    with tf.Session() as session:
        value, once, twice = session.run([y, first, second], {taken: True})
        np.testing.assert_allclose(twice, 2.0 * value * once, rtol=1e-5)
        assert session.run([y, first], {taken: False}) == [3.0, 1.0]


def test_a_fed_result_does_not_stop_the_records() -> None:
    x = tf.constant(0.5)
    y = tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a * a), (0, x))[1]
    gradient = tf.gradients(tf.sin(y), x)[0]
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(gradient, {y: 0.0}), 8 * 0.5**7, rtol=1e-5)


def test_the_number_of_iterations_is_found_before_a_later_write() -> None:
    """The condition reads a variable, which is written after the loop and before the gradient is asked for."""
    limit = tf.get_variable("limit", [1], tf.int32, tf.constant_initializer(5), use_resource=True)
    x = tf.placeholder(tf.float32, [])
    y = tf.while_loop(lambda i, _: i < tf.nn.embedding_lookup(limit, 0), lambda i, a: (i + 1, a * a * 1.1), (0, x))[1]
    with tf.control_dependencies([y]):
        lower = limit.assign([1])
    gradient = tf.gradients(y, x)[0]
    with tf.Session() as session:
        session.run(limit.initializer)
        alone = session.run(gradient, {x: 0.9})
        beside, _ = session.run([gradient, lower], {x: 0.9})
        assert beside == alone
        assert session.run(gradient, {x: 0.9}) != alone


def test_one_pass_backwards_serves_a_loop_and_its_records() -> None:
    """Second derivatives meet at a loop by way of its result and of what was recorded: the loop is walked once."""
    x = tf.placeholder(tf.float64, [])
    y = tf.while_loop(lambda i, _: i < 4, lambda i, a: (i + 1, tf.sin(a) * x), (0, x))[1]
    (first,) = tf.gradients(y, x)
    before = _loops()
    (second,) = tf.gradients(y * first, x)
    assert _loops() - before == 2, "the gradient of the loop and that of its gradient"
    with tf.Session() as session:
        low, high = (session.run(y * first, {x: 0.7 + d}) for d in (-1e-6, 1e-6))
        np.testing.assert_allclose(session.run(second, {x: 0.7}), (high - low) / 2e-6, rtol=1e-6)


def _loops() -> int:
    return sum(
        op.type in {"While", "StatelessWhile", "_RecordingWhile"} for op in tf.get_default_graph().get_operations()
    )


def test_records_without_their_loop_are_refused() -> None:
    x = tf.constant(0.5)
    y = tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a * a), (0, x))[1]
    gradient = tf.gradients(y, x)[0]
    (records,) = y.op.control_outputs
    records._control_inputs.clear()
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="does not wait for the loop"):
        session.run(gradient)
