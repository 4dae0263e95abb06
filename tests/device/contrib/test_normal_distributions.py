"""Normal distributions of vectors beside SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import anabranch as tf

distributions = tf.contrib.distributions
MEANS = np.array([[0.5, -1.0, 2.0], [0.0, 1.0, -2.0]])
SCALES = np.array([1.0, 0.5, 3.0])
VALUES = np.random.default_rng(0).normal(size=(5, 2, 3))


def run(fetches: Any) -> Any:
    with tf.Session() as session:
        return session.run(fetches)


def scipys(i: int) -> Any:
    return stats.multivariate_normal(MEANS[i], np.diag(SCALES**2))


def test_densities_and_statistics() -> None:
    normal = distributions.MultivariateNormalDiag(MEANS, SCALES)
    assert (normal.batch_shape.as_list(), normal.event_shape.as_list()) == ([2], [3])
    names = ("entropy", "mean", "mode", "stddev", "variance", "covariance", "batch_shape_tensor", "event_shape_tensor")
    fetches = {name: getattr(normal, name)() for name in names} | {"log_prob": normal.log_prob(VALUES)}
    got = run(fetches)
    for i in range(2):
        np.testing.assert_allclose(got["log_prob"][:, i], scipys(i).logpdf(VALUES[:, i]), rtol=1e-10)
        np.testing.assert_allclose(got["entropy"][i], scipys(i).entropy(), rtol=1e-10)
        np.testing.assert_allclose(got["covariance"][i], np.diag(SCALES**2), rtol=1e-10)
    np.testing.assert_array_equal(got["mean"], MEANS)
    np.testing.assert_array_equal(got["mode"], MEANS)
    np.testing.assert_allclose(got["stddev"], np.broadcast_to(SCALES, (2, 3)))
    np.testing.assert_allclose(got["variance"], np.broadcast_to(SCALES**2, (2, 3)))
    assert (got["batch_shape_tensor"].tolist(), got["event_shape_tensor"].tolist()) == ([2], [3])


def test_samples_have_the_moments_and_gradients() -> None:
    normal = distributions.MultivariateNormalDiag(tf.constant(MEANS), tf.constant(SCALES))
    samples = normal.sample(20000, seed=3)
    gradient = tf.gradients(tf.reduce_mean(samples), normal.loc)[0]
    got, slopes = run([samples, gradient])
    assert got.shape == (20000, 2, 3)
    np.testing.assert_allclose(got.mean(0), MEANS, atol=0.1)
    np.testing.assert_allclose(got.std(0), np.broadcast_to(SCALES, (2, 3)), rtol=0.05)
    np.testing.assert_allclose(slopes, np.full((2, 3), 1 / 6), rtol=1e-6)


@pytest.mark.parametrize(
    ("diagonal", "multiplier", "expected"),
    [
        (None, None, np.ones((2, 3))),
        (None, np.array([2.0, 4.0]), np.array([[2.0] * 3, [4.0] * 3])),
        (SCALES, np.array([2.0, 4.0]), np.array([SCALES + 2, SCALES + 4])),
    ],
)
def test_ways_to_say_deviations(diagonal: Any, multiplier: Any, expected: Any) -> None:
    normal = distributions.MultivariateNormalDiag(MEANS, diagonal, multiplier)
    np.testing.assert_allclose(run(normal.stddev()), expected)
    assert normal.dtype == tf.float64


def test_divergence_is_the_mean_difference_of_log_densities() -> None:
    a = distributions.MultivariateNormalDiag(MEANS, SCALES)
    b = distributions.MultivariateNormalDiag(MEANS[0], SCALES[::-1].copy())
    got = run(distributions.kl_divergence(a, b))
    for i in range(2):
        means, scales = MEANS[i] - MEANS[0], SCALES[::-1]
        expected = np.log(scales / SCALES) + (SCALES**2 + means**2) / (2 * scales**2) - 0.5
        np.testing.assert_allclose(got[i], expected.sum(), rtol=1e-10)


def test_scales_before_a_softplus() -> None:
    one = distributions.NormalWithSoftplusScale(1.0, -3.0)
    vector = distributions.MultivariateNormalDiagWithSoftplusScale([1.0, 2.0], [-3.0, 3.0])
    got = run([one.stddev(), vector.stddev(), vector.copy(scale_diag=[0.0, 0.0]).stddev()])
    softplus = np.log1p(np.exp([-3.0, 3.0]))
    np.testing.assert_allclose(got[0], softplus[0], rtol=1e-6)
    np.testing.assert_allclose(got[1], softplus, rtol=1e-6)
    np.testing.assert_allclose(got[2], np.log([2.0, 2.0]), rtol=1e-6)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="say loc or scale_diag"):
        distributions.MultivariateNormalDiag()
    deviation = tf.placeholder_with_default([0.0], [1])
    checked = distributions.MultivariateNormalDiag([0.0], deviation, validate_args=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="a standard deviation is 0"):
        run(checked.stddev())
    with pytest.raises(AttributeError, match="tensorflow-probability"):
        _ = distributions.bijectors


def test_names_are_those_of_tf_distributions() -> None:
    assert distributions.Normal is tf.distributions.Normal
    assert distributions.Categorical is tf.distributions.Categorical
