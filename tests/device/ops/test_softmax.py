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
