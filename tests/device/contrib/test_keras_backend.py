"""What stands for TensorFlow's module of Keras' backend: phases, functions that are run, cross entropies."""

from __future__ import annotations

import numpy as np
import pytest

import anabranch as tf
from anabranch.compat.private import keras_backend


class _Rows:
    """What is fed as the value that it gives."""

    def as_fed(self) -> tf.SparseTensorValue:
        return tf.SparseTensorValue(np.array([[0, 1]]), np.array([3.0], np.float32), np.array([1, 2]))


def test_a_phase_is_fixed_in_a_block_and_asking_for_it_adds_nothing_to_the_graph() -> None:
    with tf.Graph().as_default() as graph:
        assert keras_backend.fixed_learning_phase() is None
        with keras_backend.learning_phase_set(1):
            assert keras_backend.learning_phase() == keras_backend.fixed_learning_phase() == 1
            with keras_backend.learning_phase_set(0):
                assert keras_backend.fixed_learning_phase() == 0
            assert keras_backend.fixed_learning_phase() == 1
        assert not graph.get_operations()
        assert isinstance(keras_backend.learning_phase(), tf.Tensor)


def test_a_function_takes_rows_of_sparse_tensors_and_leaves_out_what_has_a_default() -> None:
    with tf.Graph().as_default(), tf.Session():
        sparse = tf.sparse_placeholder(tf.float32, [None, 2])
        factor = tf.placeholder_with_default(2.0, [])
        function = keras_backend.function([sparse, factor], tf.sparse.to_dense(sparse) * factor)
        np.testing.assert_array_equal(function([_Rows(), None]), [[0, 6]])
        np.testing.assert_array_equal(function([_Rows(), 3.0]), [[0, 9]])


def test_cross_entropies_of_tensors_of_unknown_rank() -> None:
    logits = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    shares = np.exp(logits) / np.exp(logits).sum(0)
    with tf.Graph().as_default(), tf.Session() as session:
        unknown = tf.placeholder(tf.float32)
        loss = keras_backend.categorical_crossentropy(unknown, unknown, from_logits=True, axis=0)
        expected = -(logits * np.log(shares)).sum(0)
        np.testing.assert_allclose(session.run(loss, {unknown: logits}), expected, rtol=1e-5)
        with pytest.raises(ValueError, match="unknown rank"):
            keras_backend.sparse_categorical_crossentropy(unknown, unknown, axis=0)


def test_a_variable_of_no_collection_is_initialized_where_it_is_tracked() -> None:
    with tf.Graph().as_default():
        v = tf.Variable(3.0, collections=[])
        keras_backend.track_variable(v)
        keras_backend.track_variable(v)
        assert keras_backend.get_session().run(v) == 3.0
        assert tf.global_variables() == []
