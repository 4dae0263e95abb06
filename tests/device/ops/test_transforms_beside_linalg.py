"""Fourier transforms and matrix decompositions in one island: each wants its operands laid out in its own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf

TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "fft": tf.signal.fft,
    "fft2d": tf.signal.fft2d,
    "ifft3d": tf.signal.ifft3d,
    "rfft2d": lambda x: tf.signal.rfft2d(tf.math.real(x), [4, 6]),
    "irfft2d": lambda x: tf.cast(tf.signal.irfft2d(x, [4, 4]), tf.complex64),
}
DECOMPOSITIONS: dict[str, Callable[[Any], Any]] = {
    "svd": lambda x: tf.linalg.svd(x, compute_uv=False),
    "inverse": tf.linalg.inv,
    "qr": lambda x: tf.abs(tf.linalg.qr(x)[1]),
    "determinant": tf.linalg.det,
}


@pytest.mark.parametrize("decomposition", DECOMPOSITIONS)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_one_after_the_other_is_what_it_is_in_two_steps(transform: str, decomposition: str) -> None:
    rng = np.random.default_rng(0)
    value = (rng.normal(size=(3, 4, 4)) + 1j * rng.normal(size=(3, 4, 4))).astype(np.complex64)
    x, y = tf.placeholder(tf.complex64, [3, 4, 4]), tf.placeholder(tf.complex64, [3, 4, 4])
    transformed = TRANSFORMS[transform](x)
    both, second = DECOMPOSITIONS[decomposition](transformed), DECOMPOSITIONS[decomposition](y)
    before = TRANSFORMS[transform](DECOMPOSITIONS["inverse"](x))
    with tf.Session() as session:
        expected = session.run(second, {y: session.run(transformed, {x: value})})
        np.testing.assert_allclose(session.run(both, {x: value}), expected, rtol=1e-3, atol=1e-3)
        assert np.isfinite(session.run(before, {x: value})).all()


@pytest.mark.parametrize("transform", [tf.spectral.fft, tf.spectral.ifft2d, tf.spectral.rfft, tf.spectral.irfft])
def test_a_transform_leaves_the_other_results_row_by_row(transform: Callable[[Any], Any]) -> None:
    """A transform that is a result of a compiled program, beside a variable's new value that XLA would transpose."""
    random = np.random.default_rng(1)
    image, signal = random.normal(size=(2, 5, 4, 3)).astype(np.float32), random.normal(size=(2, 3, 4, 6))
    fed, wave = tf.placeholder(tf.float32, [2, 5, 4, 3]), tf.placeholder(tf.float64, [2, 3, 4, 6])
    resized = tf.image.resize_area(fed, [7, 9])
    variable = tf.Variable(tf.zeros([2, 7, 9, 3]))
    assigned = variable.assign(resized).op
    given = wave if transform is tf.spectral.rfft else tf.complex(wave, wave)
    transformed, after = transform(given), tf.tanh(variable)
    with tf.Session() as session:
        session.run(variable.initializer)
        expected = np.tanh(session.run(resized, {fed: image}))
        for _ in range(4):
            session.run([assigned, transformed], {fed: image, wave: signal})
            np.testing.assert_allclose(session.run(after), expected, rtol=1e-5)
