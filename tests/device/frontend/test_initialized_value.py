"""Variables that may have no value yet; values after assignments to slices."""

from __future__ import annotations

import pytest

import anabranch as tf


def test_initialized_value_before_and_after_the_initializer() -> None:
    first = tf.Variable(3.0)
    second = tf.Variable(first.initialized_value() * 2)
    chosen = tf.cond(tf.is_variable_initialized(first), first.read_value, lambda: tf.constant(-1.0))
    with tf.Session() as session:
        assert session.run([chosen, second.initial_value]) == [-1.0, 6.0]
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized"):
            session.run(first)
        session.run(tf.global_variables_initializer())
        session.run(first.assign(5.0))
        assert session.run([chosen, second.initial_value, second]) == [5.0, 10.0, 6.0]


def test_a_handle_says_whether_its_variable_has_a_value() -> None:
    variable = tf.Variable(3.0)
    with tf.Session() as session:
        assert not session.run(tf.is_variable_initialized(variable.handle))


def test_an_assigned_slice_gives_the_new_value() -> None:
    variable = tf.Variable([1.0, 2.0, 3.0])
    with tf.Session() as session:
        session.run(variable.initializer)
        assert session.run(variable[1:].assign([5.0, 6.0])).tolist() == [1.0, 5.0, 6.0]
