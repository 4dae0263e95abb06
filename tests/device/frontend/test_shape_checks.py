"""assert_shapes, assert_rank with a bad rank, assert_same_float_dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf


@pytest.mark.parametrize(
    ("shape", "symbols", "message"),
    [
        ([3, 2], (3, 4), "must have size 4"),
        ([3, 2], ("N", "N"), "Specified by tensor .* dimension 0"),
        ([3, 2], ("N",), "must have rank 1"),
        ([3, 2], ("N", "*"), "only allowed as the first entry"),
        ([3, 2], 3, "must be an iterable"),
    ],
)
def test_a_shape_known_to_be_wrong_is_an_error_at_once(shape: list[int], symbols: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tf.debugging.assert_shapes([(tf.ones(shape), symbols)])


def test_a_shape_known_in_the_step_is_checked_there() -> None:
    x, y = tf.placeholder("float32", [None, 2]), tf.placeholder("float32", None)
    check = tf.debugging.assert_shapes([(x, ("N", 2)), (y, ("*", "N"))])
    with tf.Session() as session:
        session.run(check, {x: np.ones([3, 2]), y: np.ones([5, 3])})
        with pytest.raises(tf.errors.InvalidArgumentError, match="must have size"):
            session.run(check, {x: np.ones([3, 2]), y: np.ones([5, 4])})


def test_a_scalar_counts_as_a_vector_of_one_element() -> None:
    tf.debugging.assert_shapes([(tf.constant(1.0), ("a",)), (tf.ones([1, 2]), ("a", 2))])
    with pytest.raises(ValueError, match="must have size 1"):
        tf.debugging.assert_shapes([(tf.constant([1.0, 2.0]), ())])


def test_a_rank_must_be_an_int32_scalar() -> None:
    with pytest.raises(TypeError, match="must be of type"):
        tf.assert_rank(tf.ones([2]), 1.5)
    with pytest.raises(ValueError, match="must be a scalar"):
        tf.assert_rank(tf.ones([2]), [1])
    rank = tf.placeholder("int32")
    check = tf.assert_rank(tf.ones([2]), rank)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="Rank must be a scalar"):
        session.run(check, {rank: [1, 1]})


def test_assert_same_float_dtype() -> None:
    half = tf.constant(1.0, tf.float16)
    assert tf.debugging.assert_same_float_dtype([half, None]) is tf.float16
    assert tf.debugging.assert_same_float_dtype() is tf.float32
    with pytest.raises(ValueError, match="float16"):
        tf.debugging.assert_same_float_dtype([half], tf.float32)
    with pytest.raises(ValueError, match="floating"):
        tf.debugging.assert_same_float_dtype(dtype=tf.int32)


def test_shapes_that_do_not_broadcast_name_the_two_lengths() -> None:
    with pytest.raises(ValueError, match="Dimensions must be equal, but are 3 and 2"):
        tf.ones([2, 3]) + tf.ones([4, 2])


def test_an_index_out_of_range_is_named_by_its_place() -> None:
    rows = tf.gather(tf.placeholder_with_default([1.0, 2.0], [2]), [[0, 7]])
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0,1\] = 7 is not in"):
        session.run(rows)
