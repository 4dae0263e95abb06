"""`tf.Module`, `tf.sets`, and what differs in `tf.compat.v2`."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import anabranch as tf
from anabranch.compat import v2


class Layer(tf.Module):
    """Holds a variable, and others in a list."""

    def __init__(self, others: list[tf.Module], name: str | None = None) -> None:
        super().__init__(name)
        self.others = others
        with self.name_scope:
            self.weight = tf.Variable(1.0, name="weight")
            self.count = tf.Variable(0, trainable=False, name="count")

    @tf.Module.with_name_scope
    def double(self) -> tf.Tensor:
        """An operation in the module's scope."""
        return tf.multiply(self.weight, 2.0, name="double")


def test_a_module_lists_what_it_holds() -> None:
    with tf.Graph().as_default():
        inner = Layer([], name="inner")
        outer = Layer([inner, inner])
        names = ["layer/count:0", "layer/weight:0", "inner/count:0", "inner/weight:0"]
        assert [v.name for v in outer.variables] == names
        assert [v.name for v in outer.trainable_variables] == [names[1], names[3]]
        assert outer.submodules == (inner,)
        assert outer.double().op.name == "layer/double"
        with pytest.raises(ValueError, match="not a valid module name"):
            tf.Module("a b")


def test_version_2_broadcasts_and_keeps_structures() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        chosen = v2.where([True, False], np.float32([[1], [2]]), tf.constant(0.0))
        assert session.run(chosen).tolist() == [[1, 0], [2, 0]]
        assert session.run(v2.where([False, True])).tolist() == [[1]]
        (end,) = v2.while_loop(lambda i: i < 5, lambda i: [i + 1], [tf.constant(0)])
        assert session.run(end) == 5
        assert session.run(v2.boolean_mask([[1, 2], [3, 4]], [True, False], 1)).tolist() == [[1], [3]]
    assert list(inspect.signature(v2.reduce_sum).parameters) == ["input_tensor", "axis", "keepdims", "name"]
    assert v2.newaxis is None
    with pytest.raises(AttributeError, match=r"tf\.compat\.v1\.placeholder"):
        v2.placeholder


def test_sets_take_dense_and_sparse_tensors() -> None:
    a, b = np.array([[1, 2, 2], [3, 4, 5]]), np.array([[2, 0], [5, 9]])
    with tf.Graph().as_default(), tf.Session() as session:
        sparse = tf.SparseTensor([[0, 0], [0, 1], [1, 0], [1, 1]], b.reshape(-1), [2, 2])
        for first, second in ((a, b), (a, sparse)):
            assert session.run(tf.sets.difference(first, second)).values.tolist() == [1, 3, 4]
            assert session.run(tf.sets.difference(second, first)).values.tolist() == [0, 9]
            assert session.run(tf.sets.intersection(second, first)).values.tolist() == [2, 5]
            assert session.run(tf.sets.union(first, second)).values.tolist() == [0, 1, 2, 3, 4, 5, 9]
        assert session.run(tf.sets.size(sparse)).tolist() == [2, 2]


def test_what_is_no_tensor_is_its_own_static_value() -> None:
    assert tf.get_static_value(3) == 3
    assert tf.get_static_value(None) is None
    assert tf.get_static_value(tf.constant(3)) == 3
