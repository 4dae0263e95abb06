"""What a session gives its caller is the caller's alone, whether it was copied or not."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import anabranch as tf
from anabranch.core.host_memory import aligned_empty
from anabranch.runtime.fetched_values import fetched_values

SIZE = 1 << 16


def made() -> Any:
    array = aligned_empty((SIZE,), np.float32)
    array[:] = 1.0
    return array


def address(array: Any) -> int:
    return int(array.ctypes.data)


@pytest.mark.parametrize("make", [made, lambda: np.ones(SIZE)], ids=["aligned", "plain"])
def test_an_array_that_nobody_else_holds_is_given_as_it_is(make: Any) -> None:
    where = []

    def results() -> list[Any]:
        values = [make(), make()]
        where.extend(map(address, values))
        return values

    fetched = fetched_values(results())
    assert list(map(address, fetched)) == where


@pytest.mark.parametrize(
    "hold",
    [
        pytest.param(lambda array: array, id="the array"),
        pytest.param(lambda array: array[:2], id="a view"),
        pytest.param(lambda array: array.base, id="its memory"),
        pytest.param(memoryview, id="a buffer"),
        pytest.param(jax.numpy.asarray, id="an array of JAX's"),
        pytest.param(jax.jit(lambda x: x), id="the result of a program"),
    ],
)
def test_an_array_that_others_hold_is_copied(hold: Any) -> None:
    held = []

    def results() -> list[Any]:
        array = made()
        held.append(hold(array))
        return [array]

    (fetched,) = fetched_values(results())
    fetched[:] = 2.0
    assert np.asarray(held[0]).view(np.float32)[0] != 2.0


def test_a_part_of_a_large_array_does_not_keep_all_of_it() -> None:
    (fetched,) = fetched_values([np.ones((4, SIZE))[0]])
    assert fetched.base is None


def test_a_tensor_and_what_only_hands_it_on_are_two_arrays() -> None:
    value = tf.py_func(made, [], tf.float32)
    with tf.Session() as session:
        one, other = session.run([value, tf.identity(value)])
    one[:] = 2.0
    assert other[0] == 1.0
    other[:] = 3.0
    assert one[0] == 2.0


def test_what_a_function_keeps_is_not_given_away() -> None:
    kept = made()
    value = tf.py_func(lambda: kept, [], tf.float32)
    with tf.Session() as session:
        session.run(value)[:] = 2.0
    assert kept[0] == 1.0


@pytest.mark.parametrize("finish", ["repeat", "cache", "prefetch"])
def test_elements_that_come_again_are_not_given_away(finish: str) -> None:
    dataset = tf.data.Dataset.from_tensors(np.ones((8, SIZE), np.float32)).repeat(4)
    if finish == "cache":
        dataset = dataset.map(lambda x: x + 1.0).batch(2).cache().repeat()
    if finish == "prefetch":
        dataset = dataset.prefetch(2)
    following = tf.data.make_one_shot_iterator(dataset).get_next()
    with tf.Session() as session:
        first = session.run(following)
        expected = first.copy()
        for _ in range(3):
            first[:] = 9.0
            first = session.run(following)
            np.testing.assert_array_equal(first, expected)


def test_batches_are_not_copied_on_their_way_into_a_program() -> None:
    """XLA takes an array's memory as it is where it begins at a multiple of 64 bytes."""
    dataset = tf.data.Dataset.range(3).map(lambda x: tf.fill([SIZE], tf.cast(x, tf.float32))).batch(3)
    following = tf.data.make_one_shot_iterator(dataset).get_next()
    with tf.Session() as session:
        batch = session.run(following)
    assert address(batch) % 64 == 0
    np.testing.assert_array_equal(batch[:, -1], [0.0, 1.0, 2.0])
