"""tf.function, Defun, recompute_grad: what no recorded value can show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.frontend.control_flow.defined_functions import Defun


@pytest.fixture
def session() -> Any:
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def test_a_function_is_traced_once_for_each_kind_of_arguments(session: tf.Session) -> None:
    traced = []

    @tf.function
    def double(x: Any, factor: float = 2.0) -> Any:
        traced.append((x.dtype, factor))
        return x * tf.cast(factor, x.dtype)

    x = tf.constant([1.0, 2.0])
    results = [double(x), double(x + 1.0), double(x, 3.0), double(x, factor=3.0), double(tf.constant([1, 2]))]
    assert traced == [(tf.float32, 2.0), (tf.float32, 3.0), (tf.int32, 2.0)]
    values = [value.tolist() for value in session.run(results)]
    assert values == [[2.0, 4.0], [4.0, 6.0], [3.0, 6.0], [3.0, 6.0], [2, 4]]


def test_what_has_effects_runs_in_order_and_before_the_results(session: tf.Session) -> None:
    v = tf.Variable(1.0)

    @tf.function
    def step(x: Any) -> Any:
        before = v + 0.0
        v.assign_add(x)
        v.assign(v * 2.0)
        return before

    result = step(tf.constant(3.0))

    @tf.function
    def halve() -> None:
        v.assign(0.5)

    nothing = halve()
    assert isinstance(nothing, tf.Operation)
    session.run(v.initializer)
    assert session.run(result) == 1.0
    assert session.run(v) == 8.0
    session.run(nothing)
    assert session.run(v) == 0.5


def test_a_method_makes_its_variables_once(session: tf.Session) -> None:
    class Scale:
        v: Any = None

        @tf.function
        def __call__(self, x: Any) -> Any:
            if self.v is None:
                self.v = tf.Variable(3.0)
            return self.v * x

    scale, other = Scale(), Scale()
    results = [scale(tf.constant(2.0)), scale(tf.constant([4.0])), other(tf.constant(1.0))]
    assert len(tf.global_variables()) == 2
    session.run(tf.global_variables_initializer())
    assert [np.ravel(v).tolist() for v in session.run(results)] == [[6.0], [12.0], [3.0]]


def test_a_signature_takes_only_what_it_allows() -> None:
    square = tf.function(lambda x: x * x, input_signature=[tf.TensorSpec([None], tf.float32)])
    with tf.Graph().as_default():
        assert square.get_concrete_function().outputs[0].shape.as_list() == [None]
        assert square(np.ones(4, np.float32)).shape.as_list() == [4]
        with pytest.raises(ValueError, match=r"shape \(2, 2\), not \(\?,\)"):
            square(tf.ones([2, 2]))
        with pytest.raises(ValueError, match="requested dtype float32"):
            square(tf.constant([1]))


def test_a_python_condition_on_a_tensor_is_converted_unless_that_is_not_wanted() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        assert session.run(tf.function(lambda x: x if x > 0 else -x)(tf.constant(-1.5))) == 1.5
        with pytest.raises(TypeError, match=r"tf\.cond"):
            tf.function(lambda x: x if x > 0 else -x, autograph=False)(tf.constant(1.0))


def test_defuns_have_gradients_of_their_own(session: tf.Session) -> None:
    @Defun(tf.float32, tf.float32, func_name="backward")
    def backward(x: Any, dy: Any) -> Any:
        return dy * x * 10.0

    @Defun(tf.float32, grad_func=backward)
    def square(x: Any) -> Any:
        return x * x

    @Defun(tf.float32, python_grad_func=lambda op, dy: dy * op.inputs[0] + op.outputs[0])
    def cube(x: Any) -> Any:
        return x * x * x

    @Defun(tf.float32, tf.float32)
    def both(x: Any, y: Any) -> Any:
        return x + y, x * y

    x = tf.constant(2.0)
    total, product = both(x, 3.0)
    gradients = [tf.gradients(y, x)[0] for y in (square(x), cube(x), total * product)]
    assert session.run(gradients) == [20.0, 10.0, 21.0]
    with pytest.raises(ValueError, match="both takes 2 arguments, got 1"):
        both(x)
    with pytest.raises(TypeError, match="no keyword 'grad'"):
        Defun(tf.float32, grad=None)


def test_recomputed_gradients_reach_variables(session: tf.Session) -> None:
    calls = []

    @tf.recompute_grad
    def layer(x: Any) -> Any:
        calls.append(x)
        w = tf.get_variable("w", initializer=[2.0, 3.0])
        return tf.square(w) * x

    x = tf.constant([1.0, 5.0])
    gradients = tf.gradients(layer(x), [x, *tf.trainable_variables()])
    assert len(calls) == 2
    assert len(tf.trainable_variables()) == 1
    session.run(tf.global_variables_initializer())
    assert [v.tolist() for v in session.run(gradients)] == [[4.0, 9.0], [4.0, 30.0]]


def test_a_table_says_in_a_function_what_shape_it_finds(session: tf.Session) -> None:
    table = tf.contrib.lookup.HashTable(tf.contrib.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), -1)
    shapes = []

    @tf.function
    def numbers(keys: Any) -> Any:
        found = table.lookup(keys)
        shapes.append(found.shape.as_list())
        return found

    found = numbers(tf.placeholder_with_default(["b", "c"], [None]))
    session.run(tf.tables_initializer())
    assert session.run(found).tolist() == [2, -1]
    assert shapes == [[None]]
