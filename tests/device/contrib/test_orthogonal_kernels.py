"""Kernels of convolutions that keep lengths, by convolutions round the edges in NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import anabranch as tf

RNG = np.random.default_rng(4)


def around_the_edges(signal: Any, kernel: Any) -> Any:
    """The convolution of a signal [place, ..., inputs] whose ends meet, by its definition."""
    sizes = kernel.shape[:-2]
    out = np.zeros([*signal.shape[:-1], kernel.shape[-1]])
    for place in itertools.product(*map(range, sizes)):
        out += np.roll(signal, [-i for i in place], axis=tuple(range(len(sizes)))) @ kernel[place]
    return out


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("convolutional_delta_orthogonal", [3, 4, 5]),
        ("convolutional_delta_orthogonal", [4, 3, 2, 3]),
        ("convolutional_delta_orthogonal", [3, 3, 3, 2, 2]),
        ("convolutional_orthogonal_1d", [4, 3, 5]),
        ("convolutional_orthogonal_2d", [1, 1, 3, 5]),
        ("convolutional_orthogonal_2d", [3, 3, 3, 4]),
        ("convolutional_orthogonal_3d", [3, 3, 3, 2, 3]),
    ],
)
def test_a_convolution_keeps_lengths(name: str, shape: list[int]) -> None:
    make = getattr(tf.contrib.framework, name)(gain=1.5, seed=3, dtype=tf.float64)
    with tf.Session() as sess:
        kernel = sess.run(make(shape))
    assert kernel.shape == tuple(shape)
    signal = RNG.normal(size=[*([6] * (len(shape) - 2)), shape[-2]])
    out = around_the_edges(signal, kernel)
    np.testing.assert_allclose(np.linalg.norm(out), 1.5 * np.linalg.norm(signal), rtol=1e-10)
    if "delta" in name:
        middle = tuple((size - 1) // 2 for size in shape[:-2])
        assert np.count_nonzero(kernel) == np.count_nonzero(kernel[middle]) > 0
    elif shape[0] > 1:
        assert np.count_nonzero(np.abs(kernel).max(axis=(-1, -2)) > 1e-6) > 1  # it is no single matrix


def test_a_seed_says_which_kernel() -> None:
    made = [tf.contrib.framework.convolutional_orthogonal_1d(seed=seed)([3, 2, 2]) for seed in (1, 1, 2)]
    with tf.Session() as sess:
        first, same, other = sess.run(made)
    np.testing.assert_array_equal(first, same)
    assert np.abs(first - other).max() > 1e-3


def test_a_kernel_as_a_variable_of_another_dtype() -> None:
    make = tf.contrib.framework.convolutional_orthogonal_2d(dtype=tf.float64)
    kernel = tf.get_variable("kernel", [2, 2, 2, 2], tf.float32, initializer=make)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(kernel).dtype == np.float32
    assert make.get_config() == {"gain": 1.0, "seed": None, "dtype": "float64"}


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("convolutional_delta_orthogonal", [3, 3], "3 or 4 or 5 dimensions"),
        ("convolutional_orthogonal_1d", [3, 3, 2, 2], "3 dimensions"),
        ("convolutional_orthogonal_2d", [3, 2, 2, 2], "Kernel sizes must be equal"),
        ("convolutional_orthogonal_3d", [1, 1, 1, 3, 2], "In_filters cannot be greater"),
    ],
)
def test_shapes_that_no_kernel_has(name: str, shape: list[int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        getattr(tf.contrib.framework, name)()(shape)
