"""tf.py_function: functions of tensors that have values, and gradients through them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import anabranch as tf


@pytest.fixture
def session() -> Iterator[tf.Session]:
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def test_operations_have_values_at_once(session: tf.Session) -> None:
    seen: list[Any] = []

    def function(x: Any, words: Any) -> Any:
        doubled = tf.matmul(x, x) * 2.0
        unique, _ = tf.unique(tf.reshape(doubled, [-1]))
        seen.extend([tf.executing_eagerly(), unique.shape.as_list(), len(unique), float(unique[0]), f"{unique[1]:.1f}"])
        seen.extend(
            [np.sinh(x).shape, words.numpy().tolist(), [int(row[0]) for row in doubled], range(5)[unique.shape[0]]]
        )
        seen.extend([isinstance(x, tf.Tensor), str(words.dtype), repr(x[0, 0]), str(x[0, 0])])
        return doubled if tf.reduce_sum(x) > 0.0 else -doubled, tf.strings.join([words, words])

    x = tf.constant([[1.0, 0.0], [0.0, 1.0]])
    result, joined = session.run(tf.py_function(function, [x, ["a", "b"]], [tf.float32, tf.string]))
    assert result.tolist() == [[2, 0], [0, 2]]
    assert joined.tolist() == [b"aa", b"bb"]
    assert seen[:5] == [True, [2], 2, 2.0, "0.0"]
    assert seen[5:9] == [(2, 2), [b"a", b"b"], [2, 0], 2]
    assert seen[9:11] == [True, "<dtype: 'string'>"]
    assert seen[11:] == [
        "<tf.Tensor: shape=(), dtype=float32, numpy=1.0>",
        "tf.Tensor(1.0, shape=(), dtype=float32)",
    ]
    assert not tf.executing_eagerly()


def test_what_has_effects_runs_when_it_is_called_and_once(session: tf.Session) -> None:
    def function(start: Any) -> Any:
        v = tf.Variable(start)
        with tf.control_dependencies([v.assign_add(1.0)]):
            numbers = tf.random_uniform([3])
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.Assert(start > 5.0, [start])
        return v.read_value(), numbers - numbers, numbers.numpy() - numbers

    last, first, second = session.run(tf.py_function(function, [2.0], [tf.float32] * 3))
    assert last == 3
    assert first.tolist() == second.tolist() == [0, 0, 0]


def test_gradients_of_what_was_computed(session: tf.Session) -> None:
    calls: list[Any] = []

    def huber(x: Any, m: Any, words: Any) -> Any:
        calls.append(words.numpy())
        if tf.abs(x) <= m:
            return x**2, x * m
        return m**2 * (1.0 - 2.0 * tf.math.log(m) + tf.math.log(x**2)), x

    x, m = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    y, z = tf.py_function(huber, [x, m, "word"], [tf.float32, tf.float32])
    gradients = tf.gradients([y, z], [x, m])
    assert [g.shape.as_list() for g in gradients] == [[], []]
    assert session.run([y, *gradients], {x: 1.0, m: 2.0}) == [1.0, 4.0, 1.0]
    assert session.run([y, *gradients], {x: 4.0, m: 2.0}) == pytest.approx([4 + 8 * np.log(2), 3.0, 8 * np.log(2)])
    assert calls == [b"word"] * 2, "the record of a call serves its gradient"
    again = tf.gradients(gradients[0], x)[0]
    assert session.run(again, {x: 3.0, m: 4.0}) == 2.0


def test_random_numbers_of_a_call_are_those_of_its_gradient(session: tf.Session) -> None:
    x = tf.constant([1.0, 2.0, 3.0])
    random = np.random.default_rng(1)
    y = tf.py_function(lambda x: x * random.uniform(size=3).astype(np.float32), [x], tf.float32)
    for _ in range(3):
        value, gradient = session.run([y, tf.gradients(y, x)[0]])
        np.testing.assert_allclose(value, gradient * [1, 2, 3], rtol=1e-6)


def test_gradients_in_loops_and_in_branches(session: tf.Session) -> None:
    def cube(x: Any) -> Any:
        y = tf.py_function(lambda x: x**3, [x], tf.float32)
        y.set_shape([])
        return y

    x = tf.placeholder(tf.float32, [])
    _, looped = tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, cube(v)), (0, x))
    branched = tf.cond(x > 1.0, lambda: cube(x), lambda: x)
    gradients = tf.gradients(looped, x) + tf.gradients(branched, x)
    assert session.run(gradients, {x: 1.0}) == [27.0, 1.0]
    assert session.run(gradients, {x: -1.0}) == [27.0, 1.0]
    assert session.run(gradients[1], {x: 2.0}) == 12.0


def test_arguments_without_a_way_to_the_result_have_the_gradient_zero(session: tf.Session) -> None:
    x, n = tf.constant([1.0, 2.0]), tf.constant(3)
    y = tf.py_function(lambda x, n: x.numpy() * n.numpy(), [x, n], tf.float32)
    gradients = tf.gradients(y, [x, n])
    assert gradients[1] is None
    assert session.run([y, gradients[0]])[1].tolist() == [0, 0]


def test_results_become_tensors_of_the_declared_types(session: tf.Session) -> None:
    assert session.run(tf.py_function(lambda: [1, 2.5], [], tf.float64)).tolist() == [1, 2.5]
    assert session.run(tf.py_function(lambda: (np.float64(1), 2), [], [tf.float32, tf.int64])) == [1, 2]
    assert session.run(tf.py_function(lambda: None, [], [])) is None
    for function, words in (
        (lambda: tf.constant(1), "requested dtype float32 for Tensor with dtype int32"),
        (lambda: None, "returns 0 values, but expects to see 1"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            session.run(tf.py_function(function, [], tf.float32))


def test_what_has_no_value_in_the_function(session: tf.Session) -> None:
    outside = tf.constant(1.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="a tensor of another graph"):
        session.run(tf.py_function(lambda: outside + 1.0, [], tf.float32))
    with pytest.raises(tf.errors.InvalidArgumentError, match="belongs to another graph"):
        session.run(tf.py_function(lambda x: x + outside, [1.0], tf.float32))
    with pytest.raises(tf.errors.UnknownError, match="Attempting to return a variable"):
        session.run(tf.py_function(lambda: tf.Variable(0.0), [], tf.float32))
    for call in (tf.py_function, tf.py_func):
        with pytest.raises(ValueError, match="callable"):
            call(outside, [outside], tf.float32)  # type: ignore[call-overload]


def test_numpy_of_a_scalar_is_a_number_or_bytes() -> None:
    seen: list[Any] = []

    def look(text: Any, number: Any) -> Any:
        seen.extend([text.numpy(), number.numpy()])
        return tf.strings.length(text)

    length = tf.py_function(look, [tf.constant("abc"), tf.constant(2.5)], tf.int32)
    element = tf.data.Dataset.from_tensors("abc").map(lambda t: tf.py_function(look, [t, 2.5], tf.int32))
    with tf.Session() as session:
        assert session.run([length, element.make_one_shot_iterator().get_next()]) == [3, 3]
    assert [type(value) for value in seen] == [bytes, np.float32] * 2
