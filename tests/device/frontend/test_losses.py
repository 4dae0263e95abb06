"""Losses against NumPy: formulas, weights, reductions, collections, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors
from anabranch.core import dtypes
from anabranch.core.shapes import TensorShape
from anabranch.frontend.measures import losses
from anabranch.frontend.measures.losses import Reduction
from anabranch.frontend.measures.weights_broadcast import broadcast_weights
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw
from anabranch.session import Session

rng = np.random.default_rng(0)
LABELS, PREDICTIONS = rng.random((4, 3), np.float32), rng.random((4, 3), np.float32)
WEIGHTS = np.array([[1.0], [0.0], [2.0], [3.0]], np.float32)
CLASSES = np.array([0, 2, 1, 2])
ONE_HOT = np.eye(3, dtype=np.float32)[CLASSES]


def value(tensor: Any, feeds: Any = None) -> Any:
    with Session() as session:
        return session.run(tensor, feeds)


def softplus(x: Any) -> Any:
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


def cross_entropy(targets: Any, logits: Any) -> Any:
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -(targets * log_probabilities).sum(-1)


SIGNS = 2 * ONE_HOT - 1
ERROR = np.abs(PREDICTIONS - LABELS)
SMOOTH = ONE_HOT * 0.7 + 0.15


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("absolute_difference", (LABELS, PREDICTIONS), ERROR),
        ("mean_squared_error", (LABELS, PREDICTIONS), ERROR**2),
        ("huber_loss", (LABELS, 5 * PREDICTIONS), None),
        (
            "log_loss",
            (LABELS, PREDICTIONS),
            -LABELS * np.log(PREDICTIONS + 1e-7) - (1 - LABELS) * np.log(1 - PREDICTIONS + 1e-7),
        ),
        ("hinge_loss", (ONE_HOT, PREDICTIONS), np.maximum(0, 1 - SIGNS * PREDICTIONS)),
        ("sigmoid_cross_entropy", (ONE_HOT, PREDICTIONS), softplus(PREDICTIONS) - ONE_HOT * PREDICTIONS),
    ],
)
def test_elementwise_losses(name: str, arguments: tuple[Any, Any], expected: Any) -> None:
    if expected is None:
        error = np.abs(arguments[0] - arguments[1])
        expected = np.where(error <= 1, error**2 / 2, error - 0.5)
    function = getattr(losses, name)
    np.testing.assert_allclose(value(function(*arguments)), expected.mean(), rtol=1e-5)
    weighted = value(function(*arguments, WEIGHTS))
    np.testing.assert_allclose(weighted, (expected * WEIGHTS).sum() / 9, rtol=1e-5)


def test_classification_losses() -> None:
    plain = cross_entropy(ONE_HOT, PREDICTIONS)
    weights = WEIGHTS[:, 0]
    cases = [
        (losses.softmax_cross_entropy(ONE_HOT, PREDICTIONS), plain.mean()),
        (losses.softmax_cross_entropy(ONE_HOT, PREDICTIONS, weights), (plain * weights).sum() / 3),
        (
            losses.softmax_cross_entropy(ONE_HOT, PREDICTIONS, label_smoothing=0.3),
            cross_entropy(ONE_HOT * 0.7 + 0.1, PREDICTIONS).mean(),
        ),
        (losses.sparse_softmax_cross_entropy(CLASSES, PREDICTIONS), plain.mean()),
        (losses.sparse_softmax_cross_entropy(CLASSES[:, None], PREDICTIONS, WEIGHTS), (plain * weights).sum() / 3),
        (
            losses.sigmoid_cross_entropy(ONE_HOT, PREDICTIONS, label_smoothing=0.3),
            (softplus(PREDICTIONS) - SMOOTH * PREDICTIONS).mean(),
        ),
    ]
    for tensor, expected in cases:
        np.testing.assert_allclose(value(tensor), expected, rtol=1e-5)


def test_cosine_distance() -> None:
    expected = (1 - (LABELS * PREDICTIONS).sum(1)).mean()
    np.testing.assert_allclose(value(losses.cosine_distance(LABELS, PREDICTIONS, axis=1)), expected, rtol=1e-5)
    np.testing.assert_allclose(value(losses.cosine_distance(LABELS, PREDICTIONS, dim=1)), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="axis"):
        losses.cosine_distance(LABELS, PREDICTIONS)


def test_mean_pairwise_squared_error() -> None:
    difference = PREDICTIONS - LABELS
    pairs = (difference[:, :, None] - difference[:, None, :]) ** 2
    expected = pairs.sum((1, 2)) / 6
    found = value(losses.mean_pairwise_squared_error(LABELS, PREDICTIONS))
    np.testing.assert_allclose(found, expected.sum(), rtol=1e-4)
    found = value(losses.mean_pairwise_squared_error(LABELS, PREDICTIONS, WEIGHTS))
    np.testing.assert_allclose(found, (expected * WEIGHTS[:, 0]).sum(), rtol=1e-4)


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [
        (Reduction.NONE, LABELS * WEIGHTS),
        (Reduction.SUM, (LABELS * WEIGHTS).sum()),
        (Reduction.MEAN, (LABELS * WEIGHTS).sum() / 18),
        (Reduction.SUM_OVER_BATCH_SIZE, (LABELS * WEIGHTS).sum() / 12),
        (Reduction.SUM_BY_NONZERO_WEIGHTS, (LABELS * WEIGHTS).sum() / 9),
    ],
)
def test_reductions(reduction: str, expected: Any) -> None:
    found = value(losses.compute_weighted_loss(LABELS, WEIGHTS, reduction=reduction))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_no_weight_gives_zero() -> None:
    assert value(losses.mean_squared_error(LABELS, PREDICTIONS, 0.0)) == 0
    assert value(losses.mean_squared_error(LABELS, PREDICTIONS, 0.0, reduction=Reduction.MEAN)) == 0


def test_the_dtype_stays() -> None:
    assert losses.compute_weighted_loss(LABELS.astype(np.float64)).dtype is dtypes.float64


def test_weights_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="Mismatch at dim 0"):
        losses.mean_squared_error(LABELS, PREDICTIONS, np.ones((3, 1), np.float32))
    with pytest.raises(ValueError, match=r"values.rank=2. weights.rank=1"):
        losses.mean_squared_error(LABELS, PREDICTIONS, np.ones(4, np.float32))
    with pytest.raises(ValueError, match="Invalid Reduction"):
        losses.mean_squared_error(LABELS, PREDICTIONS, reduction="mean")
    with pytest.raises(ValueError, match="labels must not be None"):
        losses.mean_squared_error(None, PREDICTIONS)
    with pytest.raises(ValueError, match="incompatible"):
        losses.mean_squared_error(LABELS[:2], PREDICTIONS)


@pytest.mark.parametrize("shape", [None, [None, None]])
def test_weights_are_checked_in_the_step(shape: Any) -> None:
    weights = raw.Placeholder(dtype="float32", shape=TensorShape(shape))
    loss = losses.mean_squared_error(LABELS, PREDICTIONS, weights)
    np.testing.assert_allclose(value(loss, {weights: WEIGHTS}), (ERROR**2 * WEIGHTS).sum() / 9, rtol=1e-5)
    with pytest.raises(errors.InvalidArgumentError, match="can not be broadcast"):
        value(loss, {weights: np.ones((3, 1), np.float32)})
    if shape is None:
        assert value(loss, {weights: np.float32(0)}) == 0
        with pytest.raises(errors.InvalidArgumentError, match="can not be broadcast"):
            value(loss, {weights: np.ones(3, np.float32)})


def test_broadcast_weights() -> None:
    np.testing.assert_array_equal(value(broadcast_weights(WEIGHTS, LABELS)), np.repeat(WEIGHTS, 3, 1))
    np.testing.assert_array_equal(value(broadcast_weights(2.0, LABELS)), np.full((4, 3), 2))


# ---------------------------------------------------------------------- collections
def test_collections() -> None:
    first = losses.mean_squared_error(LABELS, PREDICTIONS)
    second = losses.absolute_difference(LABELS, PREDICTIONS, scope="other")
    losses.huber_loss(LABELS, PREDICTIONS, loss_collection=None)
    penalty = convert_to_tensor(2.0, name="penalty")
    get_default_graph().add_to_collection(GraphKeys.REGULARIZATION_LOSSES, penalty)
    assert losses.get_losses() == [first, second]
    assert losses.get_losses("other") == [second]
    assert losses.get_regularization_losses() == [penalty]
    total = losses.get_total_loss()
    assert total.name == "total_loss:0"
    assert first.name == "mean_squared_error/value:0"
    results = value([total, losses.get_total_loss(False), losses.get_regularization_loss()])
    parts = value([first, second])
    np.testing.assert_allclose(results, [sum(parts) + 2, sum(parts), 2], rtol=1e-6)


def test_no_losses() -> None:
    assert value(losses.get_regularization_loss()) == 0
    with pytest.raises(ValueError, match="no losses"):
        losses.get_total_loss()


def test_weights_that_fit_no_value_are_refused_by_the_step_where_a_size_is_open() -> None:
    """As in TensorFlow, which compares shapes while the graph is built only where all their sizes are known."""
    values, weights = tf.placeholder(tf.float32, [None, 1]), tf.placeholder(tf.float32, [None, 3])
    loss = tf.losses.compute_weighted_loss(values, weights)
    with tf.Session() as session, pytest.raises(errors.InvalidArgumentError, match="can not be broadcast"):
        session.run(loss, {values: np.ones([2, 1]), weights: np.ones([2, 3])})
    with pytest.raises(ValueError, match="Mismatch at dim 1"):
        tf.losses.compute_weighted_loss(tf.ones([2, 1]), tf.ones([2, 3]))
