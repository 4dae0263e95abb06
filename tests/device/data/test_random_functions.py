"""Random operations in the functions of datasets: their sequences begin with each initialisation of an iterator."""

from __future__ import annotations

from typing import Any

import pytest

import anabranch as tf

Dataset = tf.data.Dataset


def drawn(dataset: Any, walks: int = 2, count: int = 4) -> list[list[float]]:
    """The elements of so many walks through a dataset with one iterator."""
    iterator = dataset.make_initializable_iterator()
    following = iterator.get_next()
    found = []
    with tf.Session() as session:
        for _ in range(walks):
            session.run(iterator.initializer)
            found.append([float(session.run(following)) for _ in range(count)])
    return found


def uniform(seed: int | None = None) -> Any:
    return lambda _: tf.random_uniform([], seed=seed)


@pytest.mark.parametrize("calls", [None, 1])
def test_seeded_numbers_are_those_of_the_first_walk_again(calls: int | None) -> None:
    with tf.Graph().as_default():
        first, second = drawn(Dataset.range(9).map(uniform(7), num_parallel_calls=calls))
    assert first == second
    assert len(set(first)) == 4


def test_the_seed_of_the_graph_does_the_same() -> None:
    with tf.Graph().as_default():
        tf.set_random_seed(3)
        first, second = drawn(Dataset.range(9).map(uniform()))
    assert first == second


def test_numbers_without_a_seed_are_others_in_each_walk() -> None:
    with tf.Graph().as_default():
        first, second = drawn(Dataset.range(9).map(uniform()))
    assert not set(first) & set(second)


def test_random_choices_on_the_host_begin_anew_too() -> None:
    with tf.Graph().as_default():
        first, second = drawn(Dataset.range(9).map(lambda _: tf.random_shuffle(tf.range(1000), seed=5)[0]))
    assert first == second
    assert len(set(first)) > 1


def test_a_repetition_goes_on_with_the_sequence() -> None:
    with tf.Graph().as_default():
        (found,) = drawn(Dataset.range(2).map(uniform(7)).repeat(), walks=1)
    assert len(set(found)) == 4


def test_the_steps_of_the_session_do_not_move_the_sequence() -> None:
    with tf.Graph().as_default():
        function = uniform(7)
        dataset = Dataset.range(9).map(function)
        outside = function(0)
        iterator = dataset.make_initializable_iterator()
        following = iterator.get_next()
        with tf.Session() as session:
            session.run(iterator.initializer)
            alone = [session.run(following) for _ in range(3)]
            session.run(iterator.initializer)
            between = [session.run([following, outside])[0] for _ in range(3)]
    assert alone == between
