"""The mean of the losses of examples against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf

LOSSES = np.random.default_rng(5).random((4, 3))


def value(tensor: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(tensor, feeds)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_sum_over_the_first_dimension(dtype: Any) -> None:
    losses = LOSSES.astype(dtype)
    mean = value(tf.nn.compute_average_loss(losses))
    assert mean.dtype == dtype
    np.testing.assert_allclose(mean, LOSSES.sum() / 4, rtol=2e-3)
    np.testing.assert_allclose(
        value(tf.nn.compute_average_loss(losses, global_batch_size=8)), LOSSES.sum() / 8, rtol=2e-3
    )
    np.testing.assert_allclose(value(tf.nn.scale_regularization_loss(losses)), LOSSES.sum(), rtol=2e-3)


@pytest.mark.parametrize(
    ("shape", "weights"),
    [
        ((4, 3), np.array(2.0)),
        ((4, 3), np.arange(12.0).reshape(4, 3)),
        ((4, 3), np.arange(4.0).reshape(4, 1)),
        ((4, 3), np.arange(4.0)),
        ((12,), np.arange(12.0).reshape(12, 1)),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_weights_of_a_rank_beside(shape: tuple[int, ...], weights: Any, known: bool) -> None:
    losses = LOSSES.reshape(shape)
    placeholders = [tf.placeholder(tf.float64, a.shape if known else None) for a in (losses, weights)]
    mean = value(
        tf.nn.compute_average_loss(placeholders[0], placeholders[1]),
        dict(zip(placeholders, (losses, weights), strict=True)),
    )
    by_row = weights.reshape(-1, 1) if weights.ndim == 1 else weights.reshape(shape) if len(shape) == 1 else weights
    assert mean.dtype == np.float64
    np.testing.assert_allclose(mean, (losses * by_row).sum() / shape[0], rtol=1e-6)


def test_one_number_is_refused() -> None:
    with pytest.raises(ValueError, match="at least rank 1"):
        tf.nn.compute_average_loss(3.0)
    fed = tf.placeholder(tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="per_example_loss"):
        value(tf.nn.compute_average_loss(fed), {fed: 3.0})
    with pytest.raises(ValueError, match="broadcast"):
        tf.nn.compute_average_loss(LOSSES, np.ones((4, 2)))
