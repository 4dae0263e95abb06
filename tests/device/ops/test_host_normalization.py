"""Batch normalization of NumPy's arrays, in blocks, beside what is compiled of the same formulas."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import anabranch as tf
from anabranch.ops.nn.normalization import fused_backward, fused_forward

#: less than a block, several blocks of which the last is not full, more channels than fit a block, nothing
SHAPES = [(2, 3, 5, 4), (3, 61, 53, 12), (2, 1, 2, 40_000), (0, 4, 4, 3), (2, 3, 3, 0)]


def attributes(is_training: bool, factor: float = 1.0) -> dict[str, Any]:
    return {
        "data_format": b"NHWC",
        "epsilon": 1e-3,
        "is_training": is_training,
        "exponential_avg_factor": factor,
    }


def check(got: Any, wanted: Any, tolerance: float) -> None:
    for one, other in zip(got, wanted, strict=True):
        assert isinstance(one, np.ndarray)
        assert one.dtype == other.dtype
        np.testing.assert_allclose(np.float64(one), np.float64(other), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-4), (np.float16, 2e-3)])
@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_give_what_the_whole_gives(
    shape: tuple[int, ...], dtype: Any, tolerance: float, is_training: bool
) -> None:
    rng = np.random.default_rng(0)
    x, grad = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
    # far from zero, where sums of squares would lose what differs
    x += dtype(8)
    scale, offset, mean = (rng.standard_normal(shape[-1]).astype(np.float32) for _ in range(3))
    variance = rng.uniform(0.5, 2, shape[-1]).astype(np.float32)
    attrs = attributes(is_training, 0.5 if is_training else 1.0)
    values = {"x": x, "scale": scale, "offset": offset, "mean": mean, "variance": variance}
    before = x.copy(), grad.copy()
    forward = fused_forward(np, x, scale, offset, mean, variance, attrs)
    on_device = {name: jnp.asarray(value) for name, value in values.items()}
    check(forward, fused_forward(jnp, **on_device, attrs=attrs), tolerance)
    backward = fused_backward(np, grad, x, scale, mean, variance, attrs)
    del on_device["offset"]
    wanted = fused_backward(jnp, jnp.asarray(grad), **on_device, attrs=attrs)
    # sums over all positions
    check(backward, wanted, tolerance * max(1, x.size // max(1, shape[-1])) ** 0.5)
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(grad, before[1])


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_gradients_of_an_empty_batch_are_zero(is_training: bool, data_format: str) -> None:
    """Its variance is no number."""
    shape = [0, 3, 5, 2] if data_format == "NHWC" else [0, 2, 3, 5]
    with tf.Graph().as_default(), tf.Session() as session:
        x, scale, offset = tf.placeholder(tf.float32, shape), tf.ones(2), tf.zeros(2)
        given = {} if is_training else {"mean": tf.zeros(2), "variance": tf.ones(2)}
        y = tf.nn.fused_batch_norm(x, scale, offset, is_training=is_training, data_format=data_format, **given)[0]
        gradients = tf.gradients(y, [x, scale, offset])
        found = session.run(gradients, {x: np.zeros(shape, np.float32)})
    assert [one.tolist() for one in found[1:]] == [[0.0, 0.0], [0.0, 0.0]]
    assert found[0].shape == tuple(shape)
