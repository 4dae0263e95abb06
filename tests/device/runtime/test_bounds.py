"""What sessions keep to be quick is bounded, and what they let go is gone."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.runtime.bound_partition import PLANS_VARIABLE, BoundPartition
from anabranch.xla import executable, inner_traces
from anabranch.xla.variants import EXECUTABLES_VARIABLE, Variant, compile_log


@pytest.fixture(autouse=True)
def nothing_left() -> None:
    gc.collect()


def _alive(kind: type) -> list[Any]:
    return [one for one in gc.get_objects() if isinstance(one, kind)]


def _bound(*fetches: Any) -> BoundPartition:
    """The partition of this process that was bound last for these fetches, whoever has it."""
    names = [fetch.name for fetch in fetches]
    found = [one for one in _alive(BoundPartition) if [t.name for t in one.partition.fetches] == names]
    return max(found, key=lambda one: one.used)


def _totals(count: int) -> list[Any]:
    v = tf.get_variable("v", initializer=np.zeros(3, np.float32), use_resource=True)
    return [tf.reduce_sum(v + float(i)) for i in range(count)]


def test_steps_of_all_sessions_are_bounded_and_their_executables_go_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLANS_VARIABLE, "3")
    totals = _totals(4)
    pairs = list(itertools.combinations(totals, 2))
    with tf.Session() as one, tf.Session() as other:
        for session in (one, other):
            session.run(tf.global_variables_initializer())
        functions = []
        for pair in pairs:
            for session in (one, other):
                session.run(pair)
            calls: list[Any] = _bound(*pair)._calls
            functions += [weakref.ref(v.function) for c in calls for v in c.executable._variants.values()]
            del calls
        mappings = [*one._mappings.values(), *other._mappings.values()]
        assert sum(len(mapping.steps) for mapping in mappings) == 3
        # without the garbage collector: a memory mapping that waits for it is one too many
        assert sum(function() is not None for function in functions) <= 2
        assert one.run(pairs[0]) == (0.0, 3.0)


def test_the_step_that_is_used_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLANS_VARIABLE, "3")
    totals = _totals(6)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(totals[0])
        first = next(iter(session._mapping(totals[0]).steps.values()))
        for total in totals[1:]:
            session.run(total)
            session.run(totals[0])
        assert next(iter(session._mapping(totals[0]).steps.values())) is first
        assert not session._mapping(totals[1]).steps


def test_executables_of_all_islands_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXECUTABLES_VARIABLE, "4")
    x = tf.placeholder(tf.float32, [None])
    results = [x + 1.0, x * 2.0]
    others = {id(one): one for one in _alive(Variant)}  # those that something else in this process holds
    with tf.Session() as session:
        for size in range(1, 6):
            for result in results:
                session.run(result, {x: np.ones(size)})
        gc.collect()
        assert len([one for one in _alive(Variant) if id(one) not in others]) <= 4
        np.testing.assert_array_equal(session.run(results[1], {x: np.ones(1)}), [2.0])


def test_the_variant_that_was_not_used_for_longest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "MAX_VARIANTS", 2)
    x = tf.placeholder(tf.float32, [None])
    y = x + 1.0
    with tf.Session() as session:
        for size in (1, 2, 1, 3):
            session.run(y, {x: np.ones(size)})
        call: Any = _bound(y)._calls[0]
        assert set(call.executable._variants) == {((1,),), ((3,),)}


def test_traces_of_inner_functions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_traces, "MAX_INNER_TRACES", 40)
    x = tf.placeholder(tf.float32, [None, None])
    w = tf.get_variable("w", [1, 4], use_resource=True)
    loss = tf.reduce_mean(tf.square(tf.matmul(tf.reduce_sum(x, 1, keepdims=True), w) - 1))
    train = tf.train.AdamOptimizer(0.01).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train, {x: np.ones((1, 1))})
        one_step = inner_traces.inner_traces()
        for size in range(2, 12):
            session.run(train, {x: np.ones((size, size + 1))})
            assert inner_traces.inner_traces() <= 40 + one_step


def test_a_closed_session_keeps_no_executables() -> None:
    totals = _totals(3)
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    for total in totals:
        session.run(total)
    call: Any = _bound(totals[0])._calls[0]
    functions = [weakref.ref(v.function) for v in call.executable._variants.values()]
    del call
    session.close()
    assert [function() for function in functions] == [None]
    gc.collect()


# ------------------------------------------------------------------------------------------------ partial runs
def _declared() -> tuple[Any, ...]:
    a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    total = a + b
    return a, b, total, total * b


def test_a_partial_run_is_prepared_once() -> None:
    a, b, total, product = _declared()
    with tf.Session() as session:
        for number in range(4):
            handle = session.partial_run_setup([total, product], [a, b])
            assert session.partial_run(handle, total, {a: number, b: 2.0}) == number + 2
            assert session.partial_run(handle, product) == 2 * (number + 2)
            if number == 0:
                before, steps = len(compile_log.events), len(_alive(BoundPartition))
        assert (len(compile_log.events), len(_alive(BoundPartition))) == (before, steps)
        assert not session._partial_runs
        with pytest.raises(tf.errors.InvalidArgumentError, match="there is no partial run"):
            session.partial_run(handle, product)


def test_a_partial_run_is_over_when_a_piece_fails() -> None:
    a, b, total, product = _declared()
    with tf.control_dependencies([tf.assert_positive(a)]):
        checked = tf.identity(total)
    with tf.Session() as session:
        handle = session.partial_run_setup([checked, product], [a, b])
        with pytest.raises(tf.errors.InvalidArgumentError, match="not fed yet"):
            session.partial_run(handle, checked, {a: -1.0})
        assert session._partial_runs  # nothing ran
        with pytest.raises(tf.errors.InvalidArgumentError, match="> 0"):
            session.partial_run(handle, checked, {a: -1.0, b: 2.0})
        assert not session._partial_runs


def test_partial_runs_at_once_have_different_handles() -> None:
    a, b, total, product = _declared()
    with tf.Session() as session:
        handles = [session.partial_run_setup([total, product], [a, b]) for _ in range(2)]
        for number, handle in enumerate(handles):
            session.partial_run(handle, total, {a: number, b: 1.0})
        handles.append(session.partial_run_setup([total], [a, b]))
        assert len(set(handles)) == 3
        assert [session.partial_run(handle, product) for handle in handles[:2]] == [1.0, 2.0]
        session.close()
        assert not session._partial_runs
