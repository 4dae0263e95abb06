"""Gradients of biases of NumPy's arrays: many rows added up, exactly, by no threads that outlive the sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.ops import raw

#: less than a block of rows, some blocks and a rest, whole blocks, nothing, no columns
SHAPES = [(7, 5), (3, 61, 53, 12), (2, 32, 32, 64), (0, 4, 3), (9, 0), (200_000, 3)]


def first_run(make: Any, value: Any) -> Any:
    """What a new graph gives, whose kernels run one after the other."""
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(value.dtype, value.shape)
        return session.run(make(x), {x: value})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_are_exact(shape: tuple[int, ...], dtype: Any) -> None:
    # all of one sign, so that a sum over all rows in turn would lose their last digits
    value = np.random.default_rng(0).uniform(0.5, 1, shape).astype(dtype)
    got = first_run(raw.BiasAddGrad, value)
    assert (got.dtype, got.shape) == (dtype, shape[-1:])
    exact = value.astype(np.longdouble).reshape(-1, shape[-1]).sum(0) if value.size else np.zeros(shape[-1])
    np.testing.assert_allclose(got, exact.astype(np.float64), rtol=2e-6 if dtype is np.float32 else 1e-14)


def test_rows_with_gaps() -> None:
    value = np.arange(2 * 2048 * 6, dtype=np.float32).reshape(2, 2048, 6)
    got = first_run(lambda x: raw.BiasAddGrad(tf.split(x + 1, 2, axis=2)[1]), value)
    np.testing.assert_allclose(got, (value[..., 3:].astype(np.float64) + 1).sum((0, 1)), rtol=2e-6)
