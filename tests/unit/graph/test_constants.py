"""What is known of values while a graph is built: constants, and vectors of which some elements are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.graph.constants import constant_value, constant_value_as_shape, partial_vector
from anabranch.ops import raw


def open_shape() -> Any:
    """The shape of something of which the second length is known."""
    return tf.shape(tf.placeholder(tf.float32, [None, 3, None]))


def test_constants_are_computed_with() -> None:
    value = constant_value(raw.AddV2(tf.constant([1, 2]), raw.Mul(tf.constant([3, 4]), tf.constant(2))))
    assert value is not None
    np.testing.assert_array_equal(value, [7, 10])
    assert value.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        value[0] = 1


@pytest.mark.parametrize(
    "build",
    [
        lambda: tf.placeholder(tf.int32, []) * 0,
        lambda: raw.RandomUniform([2], dtype=tf.float32),
        lambda: tf.get_variable("v", [], use_resource=True).read_value(),
        lambda: tf.placeholder_with_default(3, []),
        lambda: raw.Reshape(tf.constant([1, 2, 3]), tf.placeholder(tf.int32, [1])),
        lambda: tf.shape(tf.placeholder(tf.float32, [None])),
    ],
)
def test_what_a_step_decides_is_unknown(build: Any) -> None:
    assert constant_value(build()) is None


def test_a_kernel_that_fails_leaves_the_error_to_the_step() -> None:
    assert constant_value(raw.GatherV2(tf.constant([1, 2]), tf.constant(5), tf.constant(0))) is None


def test_an_unknown_value_is_asked_for_again() -> None:
    x = tf.placeholder(tf.float32)
    shape = tf.shape(x)
    assert constant_value(shape) is None
    x.set_shape([2, 3])
    np.testing.assert_array_equal(constant_value(shape), [2, 3])


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (open_shape, [None, 3, None]),
        (lambda: tf.cast(tf.identity(open_shape()), tf.int64), [None, 3, None]),
        (lambda: open_shape()[1:], [3, None]),
        (lambda: open_shape()[::-2], [None, None]),
        (lambda: open_shape()[-2], [3]),
        (lambda: tf.concat([open_shape()[:2], [7]], 0), [None, 3, 7]),
        (lambda: tf.stack([open_shape()[0], 4, open_shape()[1]]), [None, 4, 3]),
        (lambda: tf.stack([open_shape()[1], tf.placeholder(tf.int32)]), [3, None]),
        (lambda: tf.stack([tf.placeholder(tf.int32), tf.placeholder(tf.int32)]), [None, None]),
        (lambda: tf.placeholder(tf.int32, [2]), [None, None]),
        (lambda: tf.placeholder(tf.int32, []), [None]),
        (lambda: tf.placeholder(tf.int32, [None]), None),
        (lambda: tf.placeholder(tf.int32, [2, 2]), None),
        (lambda: tf.constant([[1, 2]]), None),
        (lambda: tf.concat([open_shape(), tf.placeholder(tf.int32, [None])], 0), None),
        (lambda: tf.shape(tf.placeholder(tf.float32)), None),
    ],
)
def test_vectors_of_which_some_elements_are_known(build: Any, wanted: Any) -> None:
    assert partial_vector(build()) == wanted


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (lambda: tf.constant([2, -1]), [2, None]),
        (lambda: tf.constant(-1), None),
        (lambda: tf.placeholder(tf.int32, [2]), [None, None]),
        (lambda: tf.constant([], tf.int32), []),
        (open_shape, [None, 3, None]),
    ],
)
def test_vectors_as_shapes(build: Any, wanted: Any) -> None:
    shape = constant_value_as_shape(build())
    assert (None if shape.ndims is None else shape.as_list()) == wanted


def test_a_scalar_is_no_shape() -> None:
    with pytest.raises(ValueError, match="a scalar shape must be -1"):
        constant_value_as_shape(tf.constant(4))


def test_the_known_rows_of_a_stack() -> None:
    unknown = tf.placeholder(tf.float32, [2])
    rows = tf.get_static_value(tf.stack([[1.0, 2.0], unknown]), partial=True)
    assert rows[0].tolist() == [1.0, 2.0]
    assert rows[1] is None
    assert tf.get_static_value(tf.stack([[1.0, 2.0], unknown])) is None
    assert tf.get_static_value(tf.stack([unknown, unknown]), partial=True) is None
    assert tf.get_static_value(tf.stack([[1.0, 2.0], unknown], axis=1), partial=True) is None
    assert tf.get_static_value(3, partial=True) == 3


def test_a_known_value_is_the_callers() -> None:
    tensor = tf.constant(3) * 2
    value = tf.get_static_value(tensor)
    value += 1
    assert (value, tf.get_static_value(tensor)) == (7, 6)


def test_what_has_numpys_interface_becomes_a_constant() -> None:
    class Words:
        __array_interface__ = np.array([b"foo", b"bar"]).__array_interface__

    assert constant_value(tf.constant(Words())).tolist() == [b"foo", b"bar"]
