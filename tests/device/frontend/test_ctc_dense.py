"""Connectionist temporal classification with dense labels, beside the sum over all paths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import anabranch as tf

TIME, CLASSES = 4, 3


def collapsed(path: tuple[int, ...], blank: int) -> list[int]:
    """The labels that a path of classes stands for: repetitions once, blanks not at all."""
    return [c for c, _ in itertools.groupby(path) if c != blank]


def expected_loss(logits: np.ndarray, labels: list[int], blank: int) -> float:
    """-log of the summed probabilities of all paths, [time, classes] of logits."""
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    total = 0.0
    for path in itertools.product(range(logits.shape[1]), repeat=len(logits)):
        if collapsed(path, blank) == labels:
            total += float(np.prod([probabilities[t, c] for t, c in enumerate(path)]))
    return -float(np.log(total))


@pytest.mark.parametrize("blank", [None, 0, 1, -1])
@pytest.mark.parametrize("form", ["dense", "sparse", "batch major"])
def test_the_loss_is_the_sum_over_all_paths(blank: int | None, form: str) -> None:
    index = (blank or 0) % CLASSES
    others = [c for c in range(CLASSES) if c != index]
    rows = [[others[0]], [others[1], others[0]], [others[1], others[1]]]
    steps = [2, TIME, TIME]
    logits = np.random.default_rng(7).normal(size=(TIME, len(rows), CLASSES)).astype(np.float32)
    dense = np.array([row + [others[0]] * (2 - len(row)) for row in rows], np.int32)
    where = [[i, j] for i, row in enumerate(rows) for j in range(len(row))]
    labels = tf.SparseTensor(np.array(where, np.int64), np.concatenate(rows).astype(np.int32), [3, 2])
    given = tf.constant(logits if form != "batch major" else logits.swapaxes(0, 1))
    loss = tf.nn.ctc_loss_v2(
        labels if form == "sparse" else dense,
        given,
        None if form == "sparse" else [len(row) for row in rows],
        steps,
        logits_time_major=form != "batch major",
        blank_index=index if form == "sparse" else blank,
    )
    (gradient,) = tf.gradients(loss, given)
    with tf.Session() as session:
        values, slope = session.run([loss, gradient])
    expected = [expected_loss(logits[:n, i], row, index) for i, (row, n) in enumerate(zip(rows, steps, strict=True))]
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    assert slope.shape == given.shape
    assert np.abs(slope.sum(-1)).max() < 1e-5  # adding a number to all logits of a step changes nothing


def test_what_the_dense_loss_does_not_take() -> None:
    logits = tf.zeros([TIME, 1, CLASSES])
    labels = tf.SparseTensor([[0, 0]], np.array([1], np.int32), [1, 1])
    with pytest.raises(ValueError, match="`blank_index` must be provided"):
        tf.nn.ctc_loss_v2(labels, logits, None, [TIME])
    with pytest.raises(ValueError, match="label_length"):
        tf.nn.ctc_loss_v2([[1]], logits, None, [TIME])
    with pytest.raises(ValueError, match="none of the 3 classes"):
        tf.nn.ctc_loss_v2([[1]], logits, [1], [TIME], blank_index=3)


def test_repetitions_are_collapsed() -> None:
    rows = np.array([[1, 1, 2, 2, 1], [3, 3, 3, 3, 3], [1, 2, 3, 4, 5]])
    labels, lengths = tf.nn.collapse_repeated(rows, np.array([5, 3, 0], np.int64))
    with tf.Session() as session:
        values, counts = session.run([labels, lengths])
    assert values.tolist() == [[1, 2, 1], [3, 0, 0], [0, 0, 0]]
    assert counts.tolist() == [3, 1, 0]
    assert counts.dtype == np.int64


def test_different_labels_of_each_row() -> None:
    rows, places = tf.nn.ctc_unique_labels([[3, 4, 4, 3], [1, 1, 1, 0]])
    with tf.Session() as session:
        values, where = session.run([rows, places])
    assert values.tolist() == [[3, 4, 0, 0], [1, 0, 0, 0]]
    assert where.tolist() == [[0, 1, 1, 0], [0, 0, 0, 1]]
