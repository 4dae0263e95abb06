"""Random generators whose state is a variable: beside what TensorFlow recorded, and what the class does."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.ops.arithmetic import philox
from tests.device.frontend.test_recorded_functions import same
from tests.oracles.generator_cases import CASES

FIXTURE = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "generators.json.gz"
RECORDED: dict[str, list[dict[str, Any]]] = json.loads(gzip.decompress(FIXTURE.read_bytes()))
Generator = tf.random.experimental.Generator


@pytest.mark.parametrize("name", CASES)
def test_numbers_and_states_are_those_that_tensorflow_recorded(name: str) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        values = session.run(CASES[name](tf))
    assert len(values) == len(RECORDED[name])
    for index, (value, entry) in enumerate(zip(values, RECORDED[name], strict=True)):
        same(np.asarray(value), entry, f"value {index} of {name}")


@pytest.mark.parametrize("draw", [philox.uniform, philox.normal, philox.truncated_normal])
def test_a_compiled_step_draws_what_numpy_draws(draw: Any) -> None:
    generator = Generator.from_key_counter(key=5, counter=[2**63 + 9, 1], alg=1)
    by_name = {"uniform": generator.uniform, "normal": generator.normal, "truncated_normal": generator.truncated_normal}
    numbers = by_name[draw.__name__]([30], dtype=tf.float64)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(4):  # the first steps run directly, the later ones compiled
            state = session.run(generator.state)
            np.testing.assert_allclose(session.run(numbers), draw(state, (30,), np.float64, np), rtol=1e-12)
    if draw is philox.truncated_normal:
        assert np.abs(draw(state, (10000,), np.float32, np)).max() < 2


def test_bfloat16_has_the_last_bits_of_each_word() -> None:
    generator = Generator.from_seed(7)
    words, numbers = generator.uniform_full_int([9], tf.uint32), generator.uniform([9], dtype=tf.bfloat16)
    with tf.Session() as session:
        session.run(generator.state.initializer)
        whole = session.run(words)
        session.run(generator.reset_from_seed(7))
        np.testing.assert_array_equal(session.run(numbers).astype(np.float32), (whole & 0x7F) / 128)


def test_a_loop_draws_anew_in_each_turn() -> None:
    generator = Generator.from_seed(3)
    total = tf.while_loop(
        lambda i, _: i < 3, lambda i, drawn: (i + 1, drawn + generator.uniform([2])), (0, tf.zeros([2]))
    )[1]
    with tf.Session() as session:
        session.run(generator.state.initializer)
        state = session.run(generator.state)
        expected = np.zeros(2)
        for _ in range(3):
            expected += philox.uniform(state, (2,), np.float32, np)
            state = philox.after(state, 2, np)
        np.testing.assert_allclose(session.run(total), expected, rtol=1e-6)
        np.testing.assert_array_equal(session.run(generator.state), state)


def test_states_of_seeds() -> None:
    make = tf.random.experimental.create_rng_state
    assert make(5, 1).tolist() == [5, 0, 0]
    assert make(2**64 + 2**63, 1).tolist() == [-(2**63), 1, 0]
    assert make([7], 1).tolist() == [0, 0, 7]
    assert make([1, 2, 3, 4], 2).tolist() == [1, 2]
    with pytest.raises(ValueError, match="Unsupported algorithm"):
        make(5, 3)
    with pytest.raises(ValueError, match="one dimension"):
        make(np.ones((2, 2), np.int64), 1)


def test_what_a_generator_is_made_of() -> None:
    first = Generator.from_state([1, 2, 3], alg=1)
    with tf.control_dependencies([first.state.initializer]):
        second = Generator(copy_from=first)
    third = Generator.from_non_deterministic_state()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run([first.key, second.key]) == [3, 3]
        once = session.run(third.state)
        session.run(third.state.initializer)
        assert (session.run(third.state) != once).all()
        session.run(first.reset_from_key_counter(9, [8, 7]))
        session.run(first.skip(2))
        assert session.run(first.state).tolist() == [8 + 512, 7, 9]
        session.run(first.reset([4, 5, 6]))
        assert session.run(first.state).tolist() == [4, 5, 6]
        assert session.run(second.state).tolist() == [1, 2, 3]
    for wrong in ({}, {"state": [1, 2, 3]}, {"copy_from": first, "alg": 1}, {"state": [1, 2], "alg": 1}):
        with pytest.raises(ValueError, match=r"generator|compatible"):
            Generator(**wrong)


def test_distributions_of_the_public_methods() -> None:
    generator = Generator.from_seed(11)
    drawn = [
        generator.normal([5000], 3.0, 2.0),
        generator.truncated_normal([5000], 3.0, 2.0),
        generator.uniform([5000], 2.0, 4.0),
        generator.uniform([5000], -3, 3, tf.int32),
        generator.binomial([2, 2000], [10.0, 1000.0], [0.25, 0.5]),
    ]
    with tf.Session() as session:
        session.run(generator.state.initializer)
        normal, truncated, uniform, whole, binomial = session.run(drawn)
    assert abs(normal.mean() - 3) < 0.15
    assert abs(normal.std() - 2) < 0.1
    assert np.abs(truncated - 3).max() < 4
    assert uniform.min() >= 2
    assert uniform.max() < 4
    assert set(whole.tolist()) == set(range(-3, 3))
    np.testing.assert_allclose(binomial.mean(axis=1), [2.5, 500], rtol=0.03)
    np.testing.assert_allclose(binomial.var(axis=1), [1.875, 250], rtol=0.12)
    with pytest.raises(ValueError, match="maxval"):
        generator.uniform([2], dtype=tf.int64)


def test_seeds_and_generators_that_a_generator_makes() -> None:
    generator = Generator.from_seed(4)
    children = generator.split(2)
    seeds = generator.make_seeds(3)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        keys = session.run([child.key for child in children])
        assert len({*keys, session.run(generator.key)}) == 3
        assert session.run(children[0].state).tolist() == [0, 0, keys[0]]
        values = session.run(seeds)
    assert values.shape == (2, 3)
    assert values[1].tolist() == [0, 0, 0]


def test_the_global_generator_is_one_for_the_graph() -> None:
    first = tf.random.experimental.get_global_generator()
    assert tf.random.experimental.get_global_generator() is first
    mine = Generator.from_seed(1)
    tf.random.experimental.set_global_generator(mine)
    assert tf.random.experimental.get_global_generator() is mine
    with tf.Graph().as_default():
        assert tf.random.experimental.get_global_generator() is not mine


def test_the_first_form_of_the_state_has_its_algorithm_before_it() -> None:
    state = tf.Variable(np.array([1, 4, 5, 6], np.int64), use_resource=True)
    numbers = tf.raw_ops.StatefulStandardNormal(resource=state.handle, shape=[3])
    with tf.Session() as session:
        session.run(state.initializer)
        expected = philox.normal(np.array([4, 5, 6], np.int64), (3,), np.float32, np)
        np.testing.assert_allclose(session.run(numbers), expected, rtol=1e-5)
        assert session.run(state).tolist() == [1, 4 + 3 * 256, 5, 6]


@pytest.mark.parametrize("dtype", [tf.int32, tf.uint32, tf.int64, tf.uint64])
def test_numbers_that_nothing_determines(dtype: Any) -> None:
    drawn = tf.raw_ops.NonDeterministicInts(shape=[2, 50], dtype=dtype)
    assert drawn.shape.as_list() == [2, 50]
    with tf.Session() as session:
        once, again = session.run(drawn), session.run(drawn)
    assert once.dtype == dtype.as_numpy_dtype
    assert (once != again).any()
    assert np.unique(once).size > 90


@pytest.mark.parametrize(
    ("state", "algorithm", "dtype", "message"),
    [
        (np.array([1, 2, 3]), 2, tf.float32, "Unsupported algorithm id: 2"),
        (np.array([1, 2]), 1, tf.float32, "at least 3"),
        (np.array([[1, 2, 3]]), 1, tf.float32, "vector"),
        (np.array([1, 2, 3], np.int32), 1, tf.float32, "int64"),
        (np.array([1, 2, 3]), 1, tf.int32, "dtype must be one of"),
    ],
)
def test_states_that_are_none(state: Any, algorithm: int, dtype: Any, message: str) -> None:
    variable = tf.Variable(state, use_resource=True)
    numbers = tf.raw_ops.StatefulUniform(
        resource=variable.handle, algorithm=np.int64(algorithm), shape=[2], dtype=dtype
    )
    with tf.Session() as session:
        session.run(variable.initializer)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            session.run(numbers)
        np.testing.assert_array_equal(session.run(variable), state)


def test_bounds_and_counts_that_are_refused() -> None:
    generator = Generator.from_seed(1)
    low = tf.placeholder(tf.int64, [])
    with pytest.raises(ValueError, match="scalar or a vector"):
        generator.binomial([2], [[1.0]], 0.5)
    with tf.Session() as session:
        session.run(generator.state.initializer)
        with pytest.raises(tf.errors.InvalidArgumentError, match="minval < maxval"):
            session.run(generator.uniform([2], low, 3, tf.int64), {low: 3})
        with pytest.raises(tf.errors.InvalidArgumentError, match="counts must be"):
            session.run(generator.binomial([3], [1.0, 2.0], 0.5))
        assert session.run(generator.uniform([0, 2])).shape == (0, 2)
        assert np.isnan(session.run(generator.binomial([1], 3.0, np.float32(np.nan), tf.float32))).all()
