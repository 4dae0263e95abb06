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


@pytest.mark.parametrize("of_labels", [None, (None,), (None, None)])
@pytest.mark.parametrize("of_scores", [None, (None, 4)])
def test_labels_whose_rank_only_the_step_knows(of_labels: Any, of_scores: Any) -> None:
    labels, scores = tf.placeholder(tf.int64, of_labels), tf.placeholder(tf.float32, of_scores)
    metrics = [
        tf.metrics.precision_at_k(labels, scores, 1, class_id=3),
        tf.metrics.recall_at_k(labels, scores, 2),
        tf.metrics.average_precision_at_k(labels, scores, 2),
    ]
    forms = [CLASSES, CLASSES[:, None]]
    if of_labels is not None:
        forms = [form for form in forms if form.ndim == len(of_labels)]
    with tf.Session() as session:
        for given in forms:
            session.run(tf.local_variables_initializer())
            assert session.run([update for _, update in metrics], {labels: given, scores: SCORES}) == [0.5, 1.0, 0.75]
            nothing = {labels: given[:0], scores: SCORES[:0]}
            assert session.run([update for _, update in metrics], nothing) == [0.5, 1.0, 0.75]


def test_labels_of_another_rank_are_refused() -> None:
    with pytest.raises(ValueError, match="Unexpected labels shape"):
        tf.metrics.recall_at_k(np.zeros((2, 1, 1), np.int64), tf.constant(SCORES), 1)


def test_running_counts_are_named_after_what_they_count() -> None:
    tf.metrics.precision_at_k(CLASSES, tf.constant(SCORES), 1)
    tf.metrics.recall_at_k(CLASSES, tf.constant(SCORES), 2, class_id=3)
    assert sorted(v.op.name for v in tf.local_variables()) == [
        "precision_at_1/false_positive_at_1",
        "precision_at_1/true_positive_at_1",
        "recall_at_2_class3/false_negative_at_2_class3",
        "recall_at_2_class3/true_positive_at_2_class3",
    ]


def test_labels_outside_the_classes_are_never_found() -> None:
    labels = tf.SparseTensor([[0, 0], [0, 1], [1, 0], [1, 1]], np.array([3, -1, 2, 10], np.int64), [2, 2])
    _recall, all_found = tf.metrics.recall_at_k(labels, tf.constant(SCORES), 2)
    _none, nothing = tf.metrics.recall_at_k(CLASSES, tf.constant(SCORES), 1, class_id=-1)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        assert session.run(all_found) == 0.5
        assert np.isnan(session.run(nothing))


def test_negative_labels_of_a_dense_tensor_do_not_count_in_average_precision() -> None:
    scores = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]], np.float32)
    _, average = tf.metrics.average_precision_at_k(np.array([[2, 3], [3, -1]]), tf.constant(scores), 2)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        assert session.run(average) == 0.5


@pytest.mark.parametrize("shape", [(), (3,), (3, 1)])
def test_weights_whose_rank_only_the_step_knows(shape: tuple[int, ...]) -> None:
    weights = tf.placeholder(tf.float32)
    _, accuracy = tf.metrics.accuracy(np.array([[1], [0], [0]]), np.array([1, 1, 1]), weights)
    logits = np.eye(3, dtype=np.float32)
    loss = tf.losses.sparse_softmax_cross_entropy(
        tf.placeholder_with_default(np.array([[0], [1], [2]]), None), logits, weights
    )
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        given = np.broadcast_to(np.float32(2.0), shape).copy()
        assert session.run(accuracy, {weights: given}) == pytest.approx(1 / 3)
        assert session.run(loss, {weights: given}) == pytest.approx(2.0 * (np.log(np.e + 2.0) - 1.0), rel=1e-5)
