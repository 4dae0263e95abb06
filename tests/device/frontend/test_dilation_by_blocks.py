"""`tf.nn.with_space_to_batch` beside convolutions that know dilation themselves."""

from __future__ import annotations

import numpy as np
import pytest

import anabranch as tf
from anabranch.graph.operation import Tensor


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("rates", [[1, 1], [2, 2], [3, 1], [2, 3]])
def test_a_dilated_convolution(padding: str, rates: list[int]) -> None:
    random = np.random.default_rng(3)
    image = random.normal(size=(2, 9, 8, 3)).astype(np.float32)
    window = random.normal(size=(3, 2, 3, 4)).astype(np.float32)

    def convolved(data: Tensor, spatial: int, inner: str) -> Tensor:
        assert spatial == 2
        result: Tensor = tf.nn.conv2d(data, window, [1, 1, 1, 1], inner)
        return result

    by_blocks = tf.nn.with_space_to_batch(image, rates, padding, convolved, filter_shape=window.shape[:2])
    direct = tf.nn.convolution(image, window, padding, dilation_rate=rates)
    with tf.Session() as session:
        a, b = session.run([by_blocks, direct])
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_other_dimensions_may_be_spatial() -> None:
    numbers = np.arange(2 * 3 * 8, dtype=np.float32).reshape(2, 3, 8)

    def neighbours(data: Tensor, spatial: int, inner: str) -> Tensor:
        assert (spatial, inner) == (1, "VALID")
        return data[:, :, :-1] + data[:, :, 1:]

    summed = tf.nn.with_space_to_batch(numbers, [2], "VALID", neighbours, spatial_dims=[2])
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(summed), numbers[:, :, :-2] + numbers[:, :, 2:])


def test_what_it_does_not_take() -> None:
    def same(data: Tensor, spatial: int, inner: str) -> Tensor:
        return data

    image = tf.zeros([1, 4, 4, 1])
    with pytest.raises(ValueError, match="filter_shape"):
        tf.nn.with_space_to_batch(image, [2, 2], "SAME", same)
    with pytest.raises(ValueError, match="dilation_rate"):
        tf.nn.with_space_to_batch(image, [0, 2], "VALID", same)
    with pytest.raises(ValueError, match="padding"):
        tf.nn.with_space_to_batch(image, [2, 2], "FULL", same)
