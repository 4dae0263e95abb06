"""Distributions against SciPy: densities, statistics, samples, divergences, shapes, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import anabranch as tf

ds = tf.distributions
A = np.array([0.5, 1.5, 4.0])
B = np.array([2.0, 1.2, 3.0])
POINTS = np.array([[0.2, 0.7, 0.9], [0.4, 0.1, 0.5]])

#: class, arguments, SciPy's distribution, points
SCALAR = [
    (ds.Normal, (A, B), stats.norm(A, B), 3 * POINTS),
    (ds.Laplace, (A, B), stats.laplace(A, B), 3 * POINTS),
    (ds.StudentT, (2 + A, A, B), stats.t(2 + A, A, B), 3 * POINTS),
    (ds.Uniform, (A, A + B), stats.uniform(A, B), A + 1.3 * B * POINTS),
    (ds.Gamma, (A, B), stats.gamma(A, scale=1 / B), 3 * POINTS),
    (ds.Exponential, (B,), stats.expon(scale=1 / B), 3 * POINTS),
    (ds.Beta, (A, B), stats.beta(A, B), POINTS),
]
NAMES = [case[0].__name__ for case in SCALAR]
#: ours -> SciPy's name of the same function
DENSITIES = {
    "prob": "pdf",
    "log_prob": "logpdf",
    "cdf": "cdf",
    "log_cdf": "logcdf",
    "survival_function": "sf",
    "log_survival_function": "logsf",
}
STATISTICS = {"mean": "mean", "variance": "var", "stddev": "std", "entropy": "entropy"}
ROWS = np.array([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])


def value(fetches: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(fetches, feeds)


@pytest.mark.parametrize(("kind", "arguments", "theirs", "points"), SCALAR, ids=NAMES)
def test_densities_and_statistics(kind: Any, arguments: Any, theirs: Any, points: Any) -> None:
    ours = kind(*arguments)
    fetches = {name: getattr(ours, name)(points) for name in DENSITIES}
    fetches.update({name: getattr(ours, name)() for name in STATISTICS})
    got = value({**fetches, "shape": ours.batch_shape_tensor()})
    assert got["shape"].tolist() == [3]
    assert ours.batch_shape.as_list() == [3]
    with np.errstate(divide="ignore"):
        expected = {ours: getattr(theirs, name)(points) for ours, name in DENSITIES.items()}
    expected.update({ours: getattr(theirs, name)() for ours, name in STATISTICS.items()})
    for name, wanted in expected.items():
        np.testing.assert_allclose(got[name], wanted, rtol=1e-8, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(("kind", "arguments", "theirs", "points"), SCALAR, ids=NAMES)
def test_samples_follow_the_distribution(kind: Any, arguments: Any, theirs: Any, points: Any) -> None:
    samples = kind(*arguments).sample([500, 4], seed=3)
    assert samples.shape.as_list() == [500, 4, 3]
    uniform = np.sort(theirs.cdf(value(samples).reshape(2000, 3)), axis=0)
    # Kolmogorov and Smirnov's distance, which is larger once in a thousand times
    assert np.abs(uniform - (np.arange(2000)[:, np.newaxis] + 0.5) / 2000).max() < 0.044


def test_the_tails_of_the_normal_distribution() -> None:
    points = np.array([-300.0, -25.0, -19.0, 0.0, 7.5, 8.5])
    probabilities = np.array([1e-300, 1e-12, 0.01, 0.3, 0.5, 0.9, 1 - 1e-9])
    normal = ds.Normal(np.float64(0), np.float64(1))
    log_cdf, quantile = value([normal.log_cdf(points), normal.quantile(probabilities)])
    np.testing.assert_allclose(log_cdf, stats.norm.logcdf(points), rtol=1e-8)
    np.testing.assert_allclose(quantile, stats.norm.ppf(probabilities), rtol=1e-9, atol=1e-15)


def test_bernoulli_and_categorical() -> None:
    coin, dice = ds.Bernoulli(probs=ROWS[0]), ds.Categorical(probs=ROWS)
    got = value(
        [coin.prob([1, 0, 1]), coin.entropy(), coin.variance(), coin.mode(), dice.prob([2, 0]), dice.cdf([2, 1])]
        + [dice.entropy(), dice.mode(), dice.log_prob([[0, 1], [1, 2], [2, 2]])]
    )
    expected = [
        [0.2, 0.5, 0.3],
        stats.bernoulli(ROWS[0]).entropy(),
        stats.bernoulli(ROWS[0]).var(),
        [0, 0, 0],
        [0.3, 0.1],
        [0.7, 0.1],
        [stats.entropy(row) for row in ROWS],
        [1, 2],
        np.log([[0.2, 0.1], [0.5, 0.8], [0.3, 0.8]]),
    ]
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_samples_of_classes() -> None:
    coin, dice = ds.Bernoulli(probs=ROWS[0]).sample(8000, seed=1), ds.Categorical(probs=ROWS).sample(8000, seed=2)
    flips, numbers = value([coin, dice])
    assert flips.dtype == numbers.dtype == np.int32
    np.testing.assert_allclose(flips.mean(0), ROWS[0], atol=0.02)
    frequencies = np.stack([(numbers == i).mean(0) for i in range(3)], axis=-1)
    np.testing.assert_allclose(frequencies, ROWS, atol=0.02)


def test_vectors() -> None:
    concentration = np.array([2.0, 3.0, 1.5])
    point = np.array([0.2, 0.5, 0.3])
    counts = np.array([2.0, 1.0, 3.0])
    dirichlet, multinomial = ds.Dirichlet(concentration), ds.Multinomial(np.float64(6), probs=ROWS[0])
    mixed = ds.DirichletMultinomial(np.float64(6), concentration)
    got = value(
        [dirichlet.log_prob(point), dirichlet.mean(), dirichlet.variance(), dirichlet.entropy()]
        + [multinomial.log_prob(counts), multinomial.mean(), multinomial.covariance()]
        + [mixed.log_prob(counts), mixed.mean(), mixed.covariance(), dirichlet.covariance()]
    )
    one, many, both = (
        stats.dirichlet(concentration),
        stats.multinomial(6, ROWS[0]),
        stats.dirichlet_multinomial(concentration, 6),
    )
    expected = [one.logpdf(point), one.mean(), one.var(), one.entropy(), many.logpmf(counts), 6 * ROWS[0], many.cov()]
    expected += [both.logpmf(counts.astype(int)), both.mean(), both.cov(), one.cov()]
    for i, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, err_msg=str(i))


def test_samples_of_vectors() -> None:
    concentration = np.array([2.0, 3.0, 1.5])
    simplex = ds.Dirichlet(concentration)
    counts = ds.Multinomial(np.array([6.0, 2.0]), probs=ROWS)
    mixed = ds.DirichletMultinomial(np.array([6.0, 2.0]), concentration)
    points, drawn, mixture = value([d.sample(4000, seed=5) for d in (simplex, counts, mixed)])
    np.testing.assert_allclose(points.sum(-1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(points.mean(0), concentration / 6.5, atol=0.02)
    for samples in (drawn, mixture):
        assert samples.shape == (4000, 2, 3)
        np.testing.assert_array_equal(samples.sum(-1), np.tile([6.0, 2.0], (4000, 1)))
    np.testing.assert_allclose(drawn.mean(0), [[6], [2]] * ROWS, atol=0.1)
    np.testing.assert_allclose(mixture.mean(0), [[6], [2]] * (concentration / 6.5), atol=0.15)
    covariance = stats.dirichlet_multinomial(concentration, 6).cov()
    np.testing.assert_allclose(np.cov(mixture[:, 0].T), covariance, atol=0.25)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda: ds.Normal(A, B), lambda: ds.Normal(B, A)),
        (lambda: ds.Gamma(A, B), lambda: ds.Gamma(B, A)),
        (lambda: ds.Beta(A, B), lambda: ds.Beta(B, A)),
        (lambda: ds.Bernoulli(probs=ROWS[0]), lambda: ds.Bernoulli(probs=ROWS[1])),
        (lambda: ds.Categorical(probs=ROWS), lambda: ds.Categorical(probs=ROWS[::-1])),
        (lambda: ds.Dirichlet(A), lambda: ds.Dirichlet(B)),
    ],
)
def test_divergences_are_means_of_log_ratios(first: Any, second: Any) -> None:
    a, b = first(), second()
    samples = a.sample(20000, seed=7)
    ratios = a.log_prob(samples) - b.log_prob(samples)
    divergence, drawn, same, cross, entropy = value(
        [a.kl_divergence(b), ratios, a.kl_divergence(a), a.cross_entropy(b), a.entropy()]
    )
    np.testing.assert_allclose(divergence, drawn.mean(0), atol=5 * (drawn.std(0) / np.sqrt(20000)).max())
    np.testing.assert_allclose(same, 0, atol=1e-12)
    np.testing.assert_allclose(cross, divergence + entropy)


def test_gradients_flow_through_samples() -> None:
    loc, scale = tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0])
    normal = ds.Normal(loc, scale)
    sample = normal.sample(5, seed=1)
    by_loc, by_scale = tf.gradients(sample, [loc, scale])
    drawn, first, second = value([sample, by_loc, by_scale])
    np.testing.assert_allclose(first, [5, 5])
    np.testing.assert_allclose(second, ((drawn - [1, 2]) / [3, 4]).sum(0), rtol=1e-5)
    assert normal.reparameterization_type is ds.FULLY_REPARAMETERIZED
    logits = tf.constant([[0.1, 0.2]])
    dice = ds.Categorical(logits)
    assert dice.reparameterization_type is ds.NOT_REPARAMETERIZED
    assert tf.gradients(tf.cast(dice.sample(3), tf.float32), logits) == [None]
    assert tf.gradients(dice.log_prob(dice.sample(3)), logits)[0] is not None


def test_shapes_that_are_known_in_the_step_only() -> None:
    loc, rows = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    normal, dice = ds.Normal(loc, 1.0), ds.Categorical(rows)
    assert normal.batch_shape.ndims is None
    fetches = [normal.batch_shape_tensor(), normal.sample([2, 2]), dice.sample(3), dice.prob([0, 1])]
    shape, samples, classes, probabilities = value(fetches, {loc: [1.0, 2.0, 3.0], rows: [[0.0, 0.0]] * 2})
    assert shape.tolist() == [3]
    assert samples.shape == (2, 2, 3)
    assert classes.shape == (3, 2)
    np.testing.assert_allclose(probabilities, 0.5)


def test_a_copy_and_the_shapes_of_parameters() -> None:
    normal = ds.Normal(0.0, [1.0, 2.0], name="noise")
    other = normal.copy(loc=[3.0, 4.0])
    assert normal.name == "noise/"
    assert other.parameters["scale"] == [1.0, 2.0]
    np.testing.assert_allclose(value(other.mean()), [3, 4])
    shapes = ds.Normal.param_static_shapes([5, 2])
    assert {k: v.as_list() for k, v in shapes.items()} == {"loc": [5, 2], "scale": [5, 2]}
    assert "batch_shape=(2,)" in repr(normal)


def test_a_divergence_can_be_registered() -> None:
    class Mine(ds.Normal):
        pass

    class Yours(Mine):
        pass

    @ds.RegisterKL(Mine, ds.Laplace)
    def rule(a: Any, b: Any, name: str | None = None) -> Any:
        return tf.constant([1.0, np.nan])

    a, b = Yours(0.0, 1.0, allow_nan_stats=False), ds.Laplace(0.0, 1.0)
    np.testing.assert_array_equal(value(ds.kl_divergence(a, b)), [1, np.nan])
    with pytest.raises(tf.errors.InvalidArgumentError, match="returned NaN values"):
        value(a.kl_divergence(b))
    with pytest.raises(ValueError, match="already been registered"):
        ds.RegisterKL(Mine, ds.Laplace)(rule)
    with pytest.raises(TypeError, match="must be callable"):
        ds.RegisterKL(Mine, ds.Uniform)("rule")  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="No KL"):
        ds.kl_divergence(b, a)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="Must pass probs or logits, but not both"):
        ds.Bernoulli()
    with pytest.raises(ValueError, match="dtype"):
        ds.Normal(np.float32(1), tf.constant(1.0, tf.float64))
    with pytest.raises(NotImplementedError, match="quantile is not implemented: Gamma"):
        ds.Gamma(1.0, 1.0).quantile(0.5)
    checked: list[Any] = [
        (lambda x: ds.Normal(0.0, x, validate_args=True).stddev(), "x > 0"),
        (lambda x: ds.Laplace(0.0, x, validate_args=True).mean(), "x > 0"),
        (lambda x: ds.StudentT(x, 0.0, 1.0, validate_args=True).loc, "x > 0"),
        (lambda x: ds.Uniform(1.0, x, validate_args=True).mean(), "x < y"),
        (lambda x: ds.Bernoulli(probs=x + 3, validate_args=True).mean(), "greater than 1"),
        (lambda x: ds.Beta(1.0, 1.0, validate_args=True).prob(x), "sample must be positive"),
        (lambda x: ds.Gamma(x + 1.5, 1.0, allow_nan_stats=False).mode(), "mode not defined"),
        (lambda x: ds.Multinomial(3.0, [0.0, 0.0], validate_args=True).prob([x, 2.0]), "non-negative"),
    ]
    for build, message in checked:
        x = tf.placeholder(tf.float32, [])
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            value(build(x), {x: -1.0})
