"""Loops that make lists and tensors longer: compiled where it is known how often they run, else run by the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import pipeline
from anabranch.pipeline import Plan, lowering_everything
from anabranch.xla.islands import Island

LENGTHS = np.array([2, 5, 1], np.int32)


def raw_rnn() -> tuple[list[Any], dict[str, Any]]:
    """A cell over three sequences that end by themselves, with the gradient to its weights."""
    lengths = tf.placeholder(tf.int32, [3])
    words = tf.constant(np.random.default_rng(0).normal(size=(6, 3, 2)).astype(np.float32))
    array = tf.TensorArray(tf.float32, 6).unstack(words)
    cell = tf.nn.rnn_cell.BasicRNNCell(4)

    def step(time: Any, output: Any, state: Any, loop_state: Any) -> Any:
        finished = time >= lengths
        following = cell.zero_state(3, tf.float32) if output is None else state
        taken = tf.cond(tf.reduce_all(finished), lambda: tf.zeros([3, 2]), lambda: array.read(time))
        return finished, taken, following, output, None

    outputs, state, _ = tf.nn.raw_rnn(cell, step)
    stacked = outputs.stack()
    gradients = tf.gradients(tf.reduce_sum(stacked**2) + tf.reduce_sum(state), tf.trainable_variables())
    return [stacked, state, *gradients], {"lengths": lengths}


def counted_writes() -> tuple[list[Any], dict[str, Any]]:
    """Writes at a counter and one place further, up to a limit that is fed; two elements were there already."""
    limit = tf.placeholder(tf.int32, [])
    array = tf.TensorArray(tf.float32, 2, dynamic_size=True, element_shape=[2])

    def body(i: Any, x: Any, a: Any) -> Any:
        return i + 2, x * 0.5, a.write(i, x).write(i + 1, -x)

    _, _, array = tf.while_loop(lambda i, x, a: i < limit, body, [0, tf.ones([2]), array])
    return [array.stack(), array.size()], {"limit": limit}


def appended() -> tuple[list[Any], dict[str, Any]]:
    """Two tensors that grow, one along the last axis and one along the first."""
    start = tf.placeholder(tf.float32, [None, 1])

    def body(i: Any, x: Any, wide: Any, long: Any) -> Any:
        x = x * 2.0
        return (
            i + 1,
            x,
            tf.concat(
                [
                    wide,
                    x,
                ],
                -1,
            ),
            tf.concat([long, tf.concat([x, x], 0)], 0),
        )

    shapes = [tf.TensorShape([]), start.shape, tf.TensorShape([None, None]), start.shape]
    results = tf.while_loop(lambda i, *_: i < 5, body, [0, start, start, start], shape_invariants=shapes)
    return list(results[1:]), {"start": start}


def beams(limit: int = 5) -> tuple[list[Any], dict[str, Any]]:
    """Sequences whose beams change places in each iteration, and which are read at their ends."""
    start = tf.placeholder(tf.int32, [None, 3, None])
    numbers = tf.tile(tf.range(tf.shape(start)[0])[:, None], [1, 3])

    def body(i: Any, words: Any, score: Any) -> Any:
        last = words[:, :, -1]
        parents = (last + i) % 3
        words = tf.gather_nd(words, tf.stack([numbers, parents], 2))
        added = tf.stack([last * 2 % 7, last + i], 2)
        return i + 1, tf.concat([words, added], 2), score + tf.to_float(tf.reduce_sum(parents))

    shapes = [tf.TensorShape([]), start.shape, tf.TensorShape([])]
    results = tf.while_loop(lambda i, *_: i < limit, body, [0, start, 1.0], shape_invariants=shapes, back_prop=False)
    return list(results[1:]), {"start": start}


def no_beams() -> tuple[list[Any], dict[str, Any]]:
    """The same without iterations."""
    return beams(0)


def flat_beams() -> tuple[list[Any], dict[str, Any]]:
    """The same with the beams of all sequences in one axis; time comes last, and ids are taken along the first axis."""
    start = tf.placeholder(tf.int32, [4, None])

    def body(i: Any, words: Any) -> Any:
        last = words[..., -1]
        words = tf.identity(tf.gather(words, (last + tf.range(4)) % 4))
        return i + 1, tf.concat([words, last[:, None] + 1], -1)

    shapes = [tf.TensorShape([]), start.shape]
    results = tf.while_loop(lambda i, _: i < 5, body, [0, start], shape_invariants=shapes)
    return [results[1]], {"start": start}


def batched_beams() -> tuple[list[Any], dict[str, Any]]:
    """Rows of each sequence alone, by `batch_dims`, in an axis before the one that grows."""
    start = tf.placeholder(tf.float32, [2, 3, None])

    def body(i: Any, words: Any) -> Any:
        order = tf.argsort(words[:, :, -1], 1)
        words = tf.gather(words, order, axis=1, batch_dims=1)
        return i + 1, tf.concat([words, tf.fill([2, 3, 1], tf.to_float(i))], 2)

    shapes = [tf.TensorShape([]), start.shape]
    results = tf.while_loop(lambda i, _: i < 3, body, [0, start], shape_invariants=shapes)
    return [results[1]], {"start": start}


def run(make: Callable[[], Any], fed: dict[str, Any], times: int = 1) -> tuple[list[Any], list[Plan]]:
    plans: list[Plan] = []
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        fetches, feeds = make()
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            pipeline.plan_listeners.append(plans.append)
            try:
                for _ in range(times):
                    values = session.run(fetches, {feeds[name]: value for name, value in fed.items()})
            finally:
                pipeline.plan_listeners.remove(plans.append)
    return values, plans


@pytest.mark.parametrize(
    ("make", "fed"),
    [
        (raw_rnn, {"lengths": LENGTHS}),
        (raw_rnn, {"lengths": np.array([0, 0, 0], np.int32)}),
        (counted_writes, {"limit": 5}),
        (counted_writes, {"limit": 0}),
        (counted_writes, {"limit": 1}),
        (appended, {"start": np.ones([2, 1], np.float32)}),
        (beams, {"start": np.arange(12).reshape(2, 3, 2)}),
        (no_beams, {"start": np.arange(12).reshape(2, 3, 2)}),
        (beams, {"start": np.zeros([0, 3, 1])}),
        (flat_beams, {"start": np.arange(8).reshape(4, 2)}),
        (batched_beams, {"start": np.random.default_rng(0).normal(size=(2, 3, 2)).astype(np.float32)}),
    ],
)
def test_compiled_whole(make: Callable[[], Any], fed: dict[str, Any]) -> None:
    """They are one plan of islands, and give what the executor gives, first and later."""
    with lowering_everything():
        expected, _ = run(make, fed)
    for times in (1, 4):
        values, plans = run(make, fed, times)
        for value, other in zip(values, expected, strict=True):
            np.testing.assert_allclose(value, other, rtol=2e-5, atol=1e-6)
            assert np.shape(value) == np.shape(other)
        (plan,) = plans
        assert all(isinstance(item, Island) for item in plan.items)


def test_many_counts() -> None:
    """Where the count is another in most steps, the host runs the loop, and no more programs are compiled."""
    with tf.Graph().as_default():
        fetches, feeds = counted_writes()
        plans: list[Plan] = []
        with tf.Session() as session:
            session.run(fetches, {feeds["limit"]: 1})
            pipeline.plan_listeners.append(plans.append)
            try:
                for limit in range(2, 40, 2):
                    stacked, size = session.run(fetches, {feeds["limit"]: limit})
                    assert size == limit
                    np.testing.assert_array_equal(stacked[::2, 0], 0.5 ** np.arange(limit / 2))
            finally:
                pipeline.plan_listeners.remove(plans.append)
    assert plans, "no step was planned anew for the host"


def test_a_list_that_is_read() -> None:
    """A list that the body reads, or asks for its length, grows in each iteration."""
    with tf.Graph().as_default():

        def body(i: Any, a: Any, seen: Any) -> Any:
            return i + 1, a.write(i, i), seen + a.size()

        start = [0, tf.TensorArray(tf.int32, 0, dynamic_size=True, element_shape=[]), 0]
        _, array, seen = tf.while_loop(lambda i, a, seen: i < 4, body, start)
        with tf.Session() as session:
            values = session.run([array.stack(), seen])
    np.testing.assert_array_equal(values[0], [0, 1, 2, 3])
    assert values[1] == 0 + 1 + 2 + 3


def test_a_tensor_that_is_looked_at() -> None:
    """What an iteration computes from a tensor that grows is computed from it as it is then."""
    with tf.Graph().as_default():

        def body(i: Any, x: Any, total: Any) -> Any:
            return i + 1, tf.concat([x, [i]], 0), total + tf.reduce_sum(x)

        shapes = [tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape([])]
        loop = tf.while_loop(lambda i, *_: i < 4, body, [1, tf.zeros([1], tf.int32), 0], shape_invariants=shapes)
        with tf.Session() as session:
            _, x, total = session.run(loop)
    np.testing.assert_array_equal(x, [0, 1, 2, 3])
    assert total == 0 + 0 + 1 + 3


@pytest.mark.parametrize("look", ["size", "first", "middle", "sum", "condition", "other variable", "along"])
def test_beams_that_are_looked_at_elsewhere(look: str) -> None:
    """Whoever sees how long a tensor is, or takes what may be room, gets what is there."""

    def make() -> tuple[list[Any], dict[str, Any]]:
        start = tf.placeholder(tf.int32, [2, None])

        def body(i: Any, words: Any, seen: Any) -> Any:
            looks = {
                "size": lambda: tf.shape(words)[1],
                "first": lambda: words[0, 0],
                "middle": lambda: words[0, -2],
                "sum": lambda: tf.reduce_sum(words),
                "condition": lambda: 0,
                "other variable": lambda: 0,
                "along": lambda: tf.gather(words, [0], axis=1)[0, 0],
            }
            seen = words if look == "other variable" else seen + looks[look]()
            words = tf.gather(words, (words[:, -1] + i) % 2)
            return i + 1, tf.concat([words, words[:, -1:] + 1], 1), seen

        def going(i: Any, words: Any, seen: Any) -> Any:
            return (i < 4) & (tf.shape(words)[1] < 5) if look == "condition" else i < 4

        first = start if look == "other variable" else tf.constant(0)
        shapes = [tf.TensorShape([]), start.shape, first.shape]
        results = tf.while_loop(going, body, [0, start, first], shape_invariants=shapes)
        return list(results[1:]), {"start": start}

    fed = {"start": np.array([[1, 2], [0, 5]])}
    with lowering_everything():
        expected, _ = run(make, fed)
    values, _ = run(make, fed, 4)
    for value, other in zip(values, expected, strict=True):
        np.testing.assert_array_equal(value, other)


def test_an_end_of_nothing_is_an_error_that_names_the_operation() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="slice index -1 of dimension 1 out of bounds"):
        run(flat_beams, {"start": np.zeros([4, 0])}, 4)


def test_a_parent_that_is_not_there_is_an_error() -> None:
    def make() -> tuple[list[Any], dict[str, Any]]:
        parents, start = tf.placeholder(tf.int32, [2]), tf.placeholder(tf.int32, [2, None])

        def body(i: Any, words: Any) -> Any:
            return i + 1, tf.concat([tf.gather(words, parents + i, name="chosen"), words[:, -1][:, None]], 1)

        results = tf.while_loop(
            lambda i, _: i < 3, body, [0, start], shape_invariants=[tf.TensorShape([]), start.shape]
        )
        return [results[1]], {"start": start, "parents": parents}

    fed = {"start": np.arange(4).reshape(2, 2), "parents": np.array([0, -2])}
    for times in (1, 4):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[1\] = -2 is not in \[0, 2\)") as raised:
            run(make, fed, times)
        assert "chosen" in str(raised.value)
