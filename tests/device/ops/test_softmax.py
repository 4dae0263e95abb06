"""Softmax and its like of large products: the largest less itself is nothing, and no rounding error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.ops import raw

ROWS = np.array([[-0.4, 3.0, -2.9, 1.6], [1.7, 3.3, 1e30, -1.4], [1e30, 1e30, 0.3, 1e30]], np.float32)
LABELS = np.array([3, 0, 2])
KINDS: dict[str, Callable[[Any], Any]] = {
    "Softmax": raw.Softmax,
    "LogSoftmax": raw.LogSoftmax,
    "SparseSoftmaxCrossEntropyWithLogits": lambda x: raw.SparseSoftmaxCrossEntropyWithLogits(x, LABELS),
    "SoftmaxCrossEntropyWithLogits": lambda x: raw.SoftmaxCrossEntropyWithLogits(
        x, np.eye(4, dtype=np.float32)[LABELS]
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_large_products_are_as_good_as_their_values(kind: str) -> None:
    """Some compilers subtract from a product before it is rounded."""
    with tf.Graph().as_default(), tf.Session() as session:
        logits, factor = tf.placeholder(tf.float32, ROWS.shape), tf.placeholder(tf.float32, [])
        of_product, of_value = tf.tuple(_outputs(kind, logits * factor)), tf.tuple(_outputs(kind, logits))
        for number in np.linspace(0.9, 1.1, 11).astype(np.float32):
            got = session.run(of_product, {logits: ROWS, factor: number})
            wanted = session.run(of_value, {logits: ROWS * number})
            for ours, other in zip(got, wanted, strict=True):
                np.testing.assert_allclose(ours, other, rtol=1e-5, atol=1e-6)
                assert np.isfinite(ours).all()


@pytest.mark.parametrize("wild", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays_so(wild: float) -> None:
    rows = np.array([[1, wild, 2], [wild, wild, wild]], np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        found = session.run(raw.Softmax(rows))
        assert np.isnan(found[1]).all()
        assert np.isnan(found[0]).any() == (wild != -np.inf)


def _outputs(kind: str, logits: Any) -> list[Any]:
    outputs = KINDS[kind](logits)
    return list(outputs) if isinstance(outputs, list | tuple) else [outputs]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("labels_dtype", ["int32", "int64"])
def test_cross_entropy_of_many_classes(dtype: str, labels_dtype: str) -> None:
    """The first runs compute it by NumPy, a later one by a compiled program."""
    rng = np.random.default_rng(5)
    rows, labels = rng.normal(0, 3, (33, 700)), rng.integers(0, 700, 33)
    labels[:2] = 0, 699
    with tf.Graph().as_default(), tf.Session() as session:
        logits = tf.placeholder(dtype, [None, 700])
        loss, backprop = raw.SparseSoftmaxCrossEntropyWithLogits(logits, labels.astype(labels_dtype))
        outputs = [loss, backprop, tf.gradients(loss, logits)[0]]
        fed = rows.astype(logits.dtype.as_numpy_dtype)
        wide = fed.astype(np.float64)
        shares = np.exp(wide - wide.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        wanted = shares - np.eye(700)[labels]
        tolerance = {"float32": 1e-6, "float64": 1e-12}.get(dtype, 1e-2)
        for _ in range(4):
            one, two, three = session.run(outputs, {logits: fed})
            np.testing.assert_allclose(one.astype(np.float64), -np.log(shares[range(33), labels]), rtol=10 * tolerance)
            np.testing.assert_allclose(two.astype(np.float64), wanted, atol=tolerance)
            np.testing.assert_allclose(three.astype(np.float64), wanted, atol=tolerance)


def test_the_gradient_of_cross_entropy_is_the_numeric_one() -> None:
    rng = np.random.default_rng(6)
    rows, labels = rng.normal(size=(5, 90)), rng.integers(0, 90, 5)
    with tf.Graph().as_default(), tf.Session():
        logits = tf.constant(rows)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        assert tf.test.compute_gradient_error(logits, rows.shape, loss, [5], x_init_value=rows) < 1e-6
        (slope,) = tf.gradients(loss, logits)
        assert tf.test.compute_gradient_error(logits, rows.shape, slope, rows.shape, x_init_value=rows) < 1e-6


@pytest.mark.parametrize("shape", [(0, 4), (0, 0)])
def test_cross_entropy_of_nothing(shape: tuple[int, int]) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        logits, labels = tf.placeholder(tf.float32, [None, None]), tf.placeholder(tf.int32, [None])
        outputs = raw.SparseSoftmaxCrossEntropyWithLogits(logits, labels)
        for _ in range(4):
            loss, backprop = session.run(outputs, {logits: np.zeros(shape), labels: np.zeros(0)})
            assert (loss.shape, backprop.shape) == ((0,), shape)


@pytest.mark.parametrize("bad", [-1, 4])
def test_labels_that_do_not_exist_are_refused(bad: int) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        logits, labels = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.int32, [None])
        outputs = raw.SparseSoftmaxCrossEntropyWithLogits(logits, labels)
        for _ in range(4):
            with pytest.raises(tf.errors.InvalidArgumentError, match=f"Received a label value of {bad} which is"):
                session.run(outputs, {logits: ROWS, labels: [0, bad, 1]})
