"""Labels of the metrics of the k best predictions: dense or sparse, with or without a dimension of labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

SCORES = np.array([[0.1, 0.3, 0.2, 0.4], [0.1, 0.2, 0.3, 0.4]], np.float32)
CLASSES = np.array([3, 2], np.int64)


def sparse(indices: Any, shape: Any) -> Any:
    return tf.SparseTensor(np.array(indices, np.int64), CLASSES, np.array(shape, np.int64))


@pytest.mark.parametrize("form", ["vector", "column", "sparse vector", "sparse column"])
def test_labels_of_every_form_count_the_same(form: str) -> None:
    labels = {
        "vector": lambda: CLASSES,
        "column": lambda: CLASSES[:, None],
        "sparse vector": lambda: sparse([[0], [1]], [2]),
        "sparse column": lambda: sparse([[0, 0], [1, 0]], [2, 1]),
    }[form]()
    precision = tf.metrics.precision_at_k(labels, tf.constant(SCORES), 1, class_id=3)
    recall = tf.metrics.recall_at_k(labels, tf.constant(SCORES), 2)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        assert session.run([precision[1], recall[1]]) == [0.5, 1.0]


def test_an_uninitialized_metric_names_its_variable() -> None:
    update = tf.metrics.precision_at_k(CLASSES, tf.constant(SCORES), 1)[1]
    with tf.Session() as session, pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value"):
        session.run(update)
