"""Loops whose condition counts: how often they run is found while they are compiled, and what fails is told as ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.ops.control_flow import loop_counts, settled_checks
from anabranch.xla.variants import CompileEvent, compile_log


@pytest.fixture
def told() -> Iterator[list[CompileEvent]]:
    events: list[CompileEvent] = []
    compile_log.listeners.append(events.append)
    yield events
    compile_log.listeners.remove(events.append)


def counts(events: list[CompileEvent]) -> list[str]:
    """The numbers of iterations that compilations tell of."""
    return [part.split()[-2] for e in events for part in e.reason.split("; ") if part.endswith(" times")]


def python_loop(goes: Callable[[Any], Any], step: Callable[[Any], Any], start: Any) -> tuple[Any, int]:
    number = 0
    while goes(start):
        start, number = step(start), number + 1
    return start, number


COUNTERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Any]] = {
    "up": (lambda i: i < 7, lambda i: i + 1, 0),
    "up by three, up to the limit": (lambda i: i <= 11, lambda i: i + 3, -1),
    "down": (lambda i: i > 2, lambda i: i - 2, 9),
    "down to the limit, from a constant": (lambda i: i >= -3, lambda i: -2 + i, 0),
    "not at all": (lambda i: i < 0, lambda i: i + 1, 0),
    "once": (lambda i: i < 1, lambda i: i + 5, 0),
    "many times": (lambda i: i < 70_001, lambda i: i + 1, 0),
}


@pytest.mark.parametrize("case", COUNTERS)
@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_counts(case: str, dtype: Any, told: list[CompileEvent]) -> None:
    goes, step, start = COUNTERS[case]
    wanted, number = python_loop(goes, step, start)
    loop = tf.while_loop(lambda i, x: goes(i), lambda i, x: (step(i), x + 1.5), (tf.constant(start, dtype), 0.0))
    with tf.Session() as session:
        assert session.run(loop) == (wanted, np.float32(1.5 * number))
    assert counts(told) == [str(number)]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("start", [7, [5, 6]])
def test_what_else_grows_is_a_number_or_not_and_known_or_not(start: Any, known: bool, told: list[CompileEvent]) -> None:
    fed = tf.placeholder(tf.int32, np.shape(start))
    other = tf.constant(start) if known else fed
    written = tf.TensorArray(tf.int32, 4, element_shape=fed.shape)
    _, last, written = tf.while_loop(
        lambda i, v, a: i < 4, lambda i, v, a: (i + 1, v + 2, a.write(i, v)), (0, other, written)
    )
    with tf.Session() as session:
        grown, values = session.run((last, written.stack()), {} if known else {fed: start})
    assert grown.tolist() == (np.array(start) + 8).tolist()
    assert values.tolist() == [(np.array(start) + 2 * i).tolist() for i in range(4)]
    assert counts(told) == ["4"]


@pytest.mark.parametrize(
    ("goes", "step"),
    [
        (lambda i, j: tf.logical_and(i < 9, j > 0), lambda i, j: (i + 1, j - 2)),
        (lambda i, j: tf.logical_and(j > 3, tf.logical_and(i < 9, i < 40)), lambda i, j: (i + 1, j - 1)),
    ],
)
def test_the_first_limit_ends_the_loop(goes: Any, step: Any, told: list[CompileEvent]) -> None:
    with tf.Session() as session:
        i, j = session.run(tf.while_loop(goes, step, (0, 8)))
    assert counts(told) == [str(i)]
    assert (i, j) in {(4, 0), (5, 3)}


@pytest.mark.parametrize(
    "build",
    [
        lambda fed: tf.while_loop(lambda i: i < fed, lambda i: i + 1, [0]),
        lambda fed: tf.while_loop(lambda i: i < 5, lambda i: i + fed, [0]),
        lambda fed: tf.while_loop(lambda i: i < 5, lambda i: i + 1, [fed]),
        lambda fed: tf.while_loop(lambda i, n: i < n, lambda i, n: (i + 1, n - 1), [0, 9]),
        lambda fed: tf.while_loop(lambda i: tf.not_equal(i, 6), lambda i: i + 2, [0]),
        lambda fed: tf.while_loop(lambda i: i < 5.0, lambda i: i + 1.0, [0.0]),
        lambda fed: tf.while_loop(lambda i: tf.logical_or(i < 5, i < 3), lambda i: i + 1, [0]),
        lambda fed: tf.while_loop(lambda i: i > 0, lambda i: i * 2, [tf.constant(1, tf.int8)]),
        lambda fed: tf.while_loop(lambda i: i < 100, lambda i: i + 40, [tf.constant(0, tf.int8)]),
    ],
    ids=["limit", "step", "start", "changing limit", "unequal", "float", "or", "doubled", "overflow"],
)
def test_other_conditions_are_asked_in_each_iteration(build: Any, told: list[CompileEvent]) -> None:
    """A counter of eight bits that wraps around (0, 40, 80, 120) ends above its limit, and is found out by running."""
    fed = tf.placeholder(tf.int32, [])
    with tf.Session() as session:
        session.run(build(fed), {fed: 2})
    assert counts(told) in ([], ["3"])


def test_a_counter_that_would_overflow_is_not_believed() -> None:
    def condition(values: list[Any]) -> list[Any]:
        return [values[0] <= np.int8(127)]

    class _Parameter:
        dtype = tf.int8

    cond: Any = type("_Function", (), {"inputs": [_Parameter()]})()
    assert loop_counts.first_false(condition, cond, [np.int8(100)], [1]) == (28, True)


@pytest.mark.parametrize("known", [True, False])
def test_what_fails_is_told_of_the_iteration_in_which_it_does(known: bool, told: list[CompileEvent]) -> None:
    """A check on a counter is made before the loop; the message and the variables are as where it is made inside."""
    v = tf.get_variable("v", initializer=1.0, use_resource=True)
    limit = tf.placeholder(tf.int32, [])
    array = tf.TensorArray(tf.float32, 4, clear_after_read=False).unstack([1.0, 2.0, 3.0, 4.0])
    total = tf.while_loop(
        lambda i, s: i < (6 if known else limit), lambda i, s: (i + 1, s + array.read(i)), (tf.constant(0), 0.0)
    )[1]
    with tf.Session() as session:
        session.run(v.initializer)
        with pytest.raises(tf.errors.OpError, match="4"):
            session.run(v.assign_add(total), {limit: 6})
        assert session.run(v) == 1
    assert counts(told) == (["6"] if known else [])


@pytest.mark.parametrize("known", [True, False])
def test_the_first_failure_is_shown(known: bool) -> None:
    x = tf.placeholder(tf.float32, [None])
    limit = tf.placeholder(tf.int32, [])

    def body(i: Any, s: Any) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(s < 3.0, ["s is", s, "in", i])]):
            return i + 1, s + tf.gather(x, i)

    total = tf.while_loop(lambda i, s: i < (4 if known else limit), body, (tf.constant(0), 0.0))[1]
    with tf.Session() as session:
        assert session.run(total, {x: [0.5, 0.25, 1.0, 8.0], limit: 4}) == 9.75
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)s is.*5.*in.*2"):
            session.run(total, {x: [1.0, 4.0, 1.0, 9.0], limit: 4})


def test_checks_of_counters_are_no_part_of_an_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[int] = []
    settle = settled_checks.settle
    monkeypatch.setattr(settled_checks, "settle", lambda *given: settled.append(len(found := settle(*given))) or found)
    x = tf.constant(np.arange(12, dtype=np.float32).reshape(2, 3, 2))
    outputs, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.BasicRNNCell(4), x, dtype=tf.float32)
    gradient = tf.gradients(tf.reduce_sum(outputs * outputs), tf.trainable_variables())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(gradient)
    # the element of the input that is read, and that of the outputs that is written; in the gradient the records too
    assert settled[0] == 2
    assert settled[1] > 2


def test_gradients_of_rnns_do_not_write_lists_that_nobody_reads(told: list[CompileEvent]) -> None:
    x = tf.constant(np.random.default_rng(0).normal(size=(2, 5, 3)))
    outputs, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.BasicRNNCell(4), x, dtype=tf.float64)
    gradient = tf.gradients(tf.reduce_sum(outputs * outputs), tf.trainable_variables())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(gradient)
    assert "1 lists as they were" in " ".join(event.reason for event in told)


@pytest.mark.parametrize("offset", [0, 1])
def test_a_list_that_is_read_where_another_iteration_wrote_is_carried(offset: int) -> None:
    """Prefix sums in place: each iteration reads what the one before has written."""

    def body(i: Any, array: Any) -> Any:
        return i + 1, array.write(i, array.read(i - offset) + array.read(i))

    array = tf.TensorArray(tf.float64, 6, clear_after_read=False).unstack(np.arange(6.0))
    last = tf.while_loop(lambda i, _: i < 6, body, (tf.constant(1), array))[1].stack()
    wanted = np.arange(6.0)
    for i in range(1, 6):
        wanted[i] += wanted[i - offset]
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(last), wanted)


def test_a_list_whose_elements_are_written_twice_has_gradients_of_the_last() -> None:
    """Each element is written by two iterations: what the gradient puts in the list's gradient is read again."""
    x = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], tf.float64)

    def body(i: Any, array: Any) -> Any:
        return i + 1, array.write(i % 3, tf.gather(x, i) ** 2)

    array = tf.TensorArray(tf.float64, 3, clear_after_read=False)
    last = tf.while_loop(lambda i, _: i < 6, body, (tf.constant(0), array))[1].stack()
    gradient = tf.gradients(tf.reduce_sum(last), x)[0]
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(tf.convert_to_tensor(gradient)), [0, 0, 0, 8, 10, 12])
