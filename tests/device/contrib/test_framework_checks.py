"""`tf.contrib.framework`'s checks and `py_func`; texts of hyperparameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

framework = tf.contrib.framework


def value(fetches: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(fetches, feeds)


def test_shapes_that_are_known_are_checked_at_once() -> None:
    x = tf.constant([[1.0, 2.0]])
    for shape in ([1, 2], np.array([1, 2], np.int32), tf.TensorShape([None, 2])):
        assert framework.with_shape(shape, x) is x
    assert framework.with_shape([], x[:, :1]).shape.as_list() == []
    for wrong, words in (([2, 1], "Invalid shape"), ([[1], [2]], "Invalid rank"), ([1.0, 2.0], "Invalid dtype")):
        with pytest.raises(ValueError, match=words):
            framework.with_shape(wrong, x)
    with pytest.raises(ValueError, match="SparseTensor not supported"):
        framework.with_shape([1], tf.SparseTensor([[0]], [1], [1]))


def test_others_are_checked_in_the_step() -> None:
    fed = tf.placeholder(tf.float32)
    checked = framework.with_shape([2], fed)
    assert checked.shape.as_list() == [2]
    alike = framework.with_same_shape(fed, tf.identity(fed))
    other = framework.with_same_shape(fed, tf.placeholder_with_default([1.0], None))
    assert value([checked, alike], {fed: [1.0, 2.0]})[1].tolist() == [1.0, 2.0]
    for tensor in (checked, other):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Wrong shape"):
            value(tensor, {fed: [[1.0, 2.0]]})


def test_integers_and_sums() -> None:
    assert value(framework.assert_scalar_int(3)) == 3
    for wrong in (3.0, [3]):
        with pytest.raises(ValueError, match=r"integer type|scalar"):
            framework.assert_scalar_int(wrong)
    parts = [tf.constant([1.0, 2.0]), tf.constant(4.0)]
    assert value([framework.reduce_sum_n(parts), framework.reduce_sum_n(parts[:1])]) == [7.0, 3.0]
    with pytest.raises(ValueError, match="No tensors"):
        framework.reduce_sum_n([])


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(("predictions", "labels"), [([4, 1], [4]), ([4], [4, 1]), ([4, 1], [4, 1])])
def test_a_dimension_more(predictions: list[int], labels: list[int], is_known: bool) -> None:
    given = [np.zeros(shape, np.float32) for shape in (predictions, labels)]
    places = [tf.placeholder(tf.float32, array.shape if is_known else None) for array in given]
    found = value(framework.remove_squeezable_dimensions(*places), dict(zip(places, given, strict=True)))
    expected = [predictions, labels] if len(predictions) == len(labels) else [[4], [4]]
    assert [list(array.shape) for array in found] == expected


def test_a_variable_becomes_zero() -> None:
    v = tf.get_variable("v", initializer=[1.0, 2.0])
    zeroed = framework.zero_initializer(v)
    with tf.Session() as session:
        session.run(zeroed.op)
        assert session.run(v).tolist() == [0.0, 0.0]
    fed = tf.placeholder(tf.int32)
    assert framework.get_placeholders(tf.get_default_graph()) == [fed]
    with pytest.raises(TypeError, match="Graph"):
        framework.get_placeholders("graph")


def test_python_functions_with_structures() -> None:
    def function(pair: Any, scale: Any) -> Any:
        return {"sum": (pair[0] + pair[1]) * scale, "first": [pair[0]]}

    x = tf.constant([1.0, 2.0])
    kinds = {"sum": tf.float32, "first": [tf.float32]}
    found = framework.py_func(
        function, [(x, 2.0 * x)], {"scale": tf.constant(10.0)}, kinds, {"sum": [2], "first": [[2]]}, False
    )
    assert found["sum"].shape.as_list() == [2]
    assert value(found["sum"]).tolist() == [30.0, 60.0]
    assert value(found["first"][0]).tolist() == [1.0, 2.0]
    asked = framework.py_func(lambda a: a + 1, [x], output_types=lambda a: a.dtype, output_shapes=lambda a: a.shape)
    assert asked.shape.as_list() == [2]
    assert value(asked).tolist() == [2.0, 3.0]
    with pytest.raises(TypeError, match="args must be list"):
        framework.py_func(function, x, output_types=tf.float32)
    with pytest.raises(TypeError, match="kwargs must be dict"):
        framework.py_func(function, [x], [x], tf.float32)


def test_texts_of_hyperparameters() -> None:
    parse = tf.contrib.training.parse_values
    types = {"a": float, "b.c": int, "s": str, "on": bool}
    text = "a=1,b.c=[2,3],s=x=y,on=true"
    assert parse(text, types) == {"a": 1.0, "b.c": [2, 3], "s": "x=y", "on": True}
    assert parse("b.c[1]=5,b.c[3]=7,other=1", types, ignore_unknown=True) == {"b.c": {1: 5, 3: 7}}
    for wrong, words in (
        ("other=1", "Unknown hyperparameter"),
        ("a=x", "Could not parse"),
        ("a=1,a=2", "Multiple assignments to variable 'a'"),
        ("b.c=[1],b.c[0]=2", "Multiple assignments to variable 'b.c'"),
        ("b.c[0]=1,b.c[0]=2", r"Multiple assignments to variable 'b.c\[0\]'"),
        ("b.c[0]=[1]", "list to a list index"),
    ):
        with pytest.raises(ValueError, match=words):
            parse(wrong, types)
    hparams = tf.contrib.training.HParams(a=1.0, b=[2, 3], s="x")
    again = tf.contrib.training.HParams(a=0.0, b=[0], s="").parse(str(hparams))
    assert again.values() == hparams.values()
    for wrong, words in (("b=4", "Must pass a list"), ("a=[1]", "Must not pass a list")):
        with pytest.raises(ValueError, match=words):
            hparams.parse(wrong)
    for name, other in (("s", 2.0), ("a", True)):
        with pytest.raises(ValueError, match="Could not cast"):
            hparams.set_hparam(name, other)
    with pytest.raises(ValueError, match="Could not cast"):
        hparams.get("b", ["x"])
