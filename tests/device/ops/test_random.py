"""The distributions of the random operations, and what their seeds promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.stats

from anabranch.autodiff.gradients import gradients
from anabranch.graph.graph import Graph
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.xla import executable

COUNT = 20000
#: a test that draws from the right distribution fails with this probability
UNLIKELY = 1e-4


def draw(build: Any, runs: int = 1) -> list[Any]:
    graph = Graph()
    with graph.as_default():
        output = build()
    with Session(graph=graph) as session:
        return [session.run(output) for _ in range(runs)]


def drawing(build: Callable[..., Any], parameters: int) -> Iterator[Callable[..., Any]]:
    """What draws with parameters that are fed: one program for all of them, where rejection takes long to compile."""
    with Graph().as_default() as graph:
        fed = [raw.Placeholder(dtype="float64", shape=[]) for _ in range(parameters)]
        output = build(*fed)
    session = Session(graph=graph)
    yield lambda *values: session.run(output, dict(zip(fed, values, strict=True)))
    session.close()


@pytest.fixture(scope="module")
def truncated_normal() -> Iterator[Callable[..., Any]]:
    yield from drawing(lambda *bounds: raw.ParameterizedTruncatedNormal([COUNT], *bounds, seed=1), 4)


@pytest.fixture(scope="module")
def gamma() -> Iterator[Callable[..., Any]]:
    yield from drawing(lambda alpha: raw.RandomGamma([COUNT], alpha, seed=1), 1)


@pytest.fixture(scope="module")
def poisson() -> Iterator[Callable[..., Any]]:
    yield from drawing(lambda rate: raw.RandomPoissonV2([COUNT], rate, seed=1), 1)


def assert_from(distribution: Any, sample: Any) -> None:
    assert scipy.stats.kstest(np.asarray(sample, np.float64).ravel(), distribution.cdf).pvalue > UNLIKELY


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("op", "distribution"),
    [
        ("RandomUniform", scipy.stats.uniform),
        ("RandomStandardNormal", scipy.stats.norm),
        ("TruncatedNormal", scipy.stats.truncnorm(-2, 2)),
    ],
)
def test_continuous_distributions(op: str, distribution: Any, dtype: str) -> None:
    (sample,) = draw(lambda: getattr(raw, op)([COUNT], dtype=dtype, seed=1, seed2=2))
    assert_from(distribution, sample)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("op", "distribution"),
    [
        ("StatelessRandomUniform", scipy.stats.uniform),
        ("StatelessRandomNormal", scipy.stats.norm),
        ("StatelessTruncatedNormal", scipy.stats.truncnorm(-2, 2)),
    ],
)
def test_stateless_distributions(op: str, distribution: Any, dtype: str) -> None:
    (sample,) = draw(lambda: getattr(raw, op)([COUNT], [0, 0], dtype=dtype))
    assert_from(distribution, sample)


@pytest.mark.parametrize(
    ("low", "high", "mean", "deviation"), [(-1.0, 3.0, 0.0, 1.0), (30.0, 31.0, 0.0, 1.0), (-8.0, -7.0, 1.0, 2.0)]
)
def test_a_truncated_normal_distribution_far_from_its_mean(
    truncated_normal: Callable[..., Any], low: float, high: float, mean: float, deviation: float
) -> None:
    sample = truncated_normal(mean, deviation, low, high)
    # scipy's own truncnorm is exact in these tails
    assert_from(scipy.stats.truncnorm((low - mean) / deviation, (high - mean) / deviation, mean, deviation), sample)


@pytest.mark.parametrize("alpha", [0.1, 0.3, 1.0, 7.5, 1e6])
def test_gamma(gamma: Callable[..., Any], alpha: float) -> None:
    assert_from(scipy.stats.gamma(alpha), gamma(alpha))


def test_gamma_in_single_precision() -> None:
    """Large and small parameters beside each other."""
    alphas = np.float32([0.1, 1.0, 1e6])
    (sample,) = draw(lambda: raw.RandomGamma([COUNT], alphas, seed=1))
    assert sample.dtype == np.float32
    for alpha, column in zip(alphas, sample.T, strict=True):
        assert_from(scipy.stats.gamma(float(alpha)), column)


@pytest.mark.parametrize("calls", [0, 2])
def test_gamma_of_what_is_no_alpha(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", calls)
    alphas = np.array([0.0, -1.0, np.nan, np.inf, 3.0])
    (sample,) = draw(lambda: raw.RandomGamma([4], alphas, seed=1))
    np.testing.assert_array_equal(sample[:, :4], [[0.0, np.nan, np.nan, np.inf]] * 4)
    assert (sample[:, 4] > 0).all()
    assert draw(lambda: raw.RandomGamma([0], alphas))[0].shape == (0, 5)


def test_numbers_that_do_not_depend_on_their_neighbours() -> None:
    """Some numbers take more rounds than others; which ones stand beside them changes nothing."""
    alphas = np.full(300, 0.7)
    (before,) = draw(lambda: raw.RandomGamma(np.int32([]), alphas, seed=1))
    alphas[::2] = 5.0
    (after,) = draw(lambda: raw.RandomGamma(np.int32([]), alphas, seed=1))
    np.testing.assert_array_equal(before[1::2], after[1::2])
    assert (before[::2] != after[::2]).all()


@pytest.mark.parametrize("rate", [0.4, 6.0, 60.0])
def test_poisson(poisson: Callable[..., Any], rate: float) -> None:
    counts = np.bincount(poisson(rate))
    expected = scipy.stats.poisson(rate).pmf(np.arange(len(counts))) * COUNT
    common = expected > 10
    chi2 = np.sum((counts[common] - expected[common]) ** 2 / expected[common])
    assert scipy.stats.chi2(common.sum() - 1).sf(chi2) > UNLIKELY


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_cover_their_range_evenly(dtype: Any) -> None:
    (sample,) = draw(lambda: raw.RandomUniformInt([COUNT], dtype(-5), dtype(6), seed=1))
    assert scipy.stats.chisquare(np.bincount(sample + 5)).pvalue > UNLIKELY


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_over_the_whole_range(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    (sample,) = draw(lambda: raw.RandomUniformInt([COUNT], dtype(limits.min), dtype(limits.max), seed=1))
    assert scipy.stats.kstest(sample / 2.0 ** (8 * np.dtype(dtype).itemsize) + 0.5, "uniform").pvalue > UNLIKELY


def test_multinomial_draws_each_class_as_often_as_its_logit_says() -> None:
    weights = np.array([[1.0, 0.0, 4.0, 5.0], [2.0, 3.0, 3.0, 2.0]])
    with np.errstate(divide="ignore"):
        logits = np.log(weights) + [[100.0], [-100.0]]
    (sample,) = draw(lambda: raw.Multinomial(logits, COUNT, seed=1))
    for row, weight in zip(sample, weights, strict=True):
        counts, expected = np.bincount(row, minlength=4), weight / weight.sum() * COUNT
        assert counts[expected == 0].sum() == 0
        assert scipy.stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue > UNLIKELY


def test_a_shuffle_takes_every_order_equally_often() -> None:
    samples = draw(lambda: raw.RandomShuffle(np.arange(3), seed=1), runs=600)
    orders, counts = np.unique([s.tolist() for s in samples], axis=0, return_counts=True)
    assert len(orders) == 6
    assert scipy.stats.chisquare(counts).pvalue > UNLIKELY


# ---------------------------------------------------------------------- seeds
def uniform(**seeds: int) -> Any:
    return lambda: raw.RandomUniform([8], dtype="float32", **seeds)


def test_each_run_draws_anew() -> None:
    first, second = draw(uniform(seed=1, seed2=2), runs=2)
    assert not np.any(first == second)


def test_a_seed_gives_the_same_sequence_in_every_session() -> None:
    np.testing.assert_array_equal(draw(uniform(seed=1, seed2=2), runs=3), draw(uniform(seed=1, seed2=2), runs=3))


@pytest.mark.parametrize("other", [{"seed": 1}, {"seed": 2, "seed2": 2}, {"seed": 1, "seed2": 3}, {}])
def test_another_seed_gives_other_numbers(other: dict[str, int]) -> None:
    assert not np.any(draw(uniform(seed=1, seed2=2))[0] == draw(uniform(**other))[0])


def test_without_a_seed_sessions_differ() -> None:
    assert not np.any(draw(uniform())[0] == draw(uniform())[0])


def test_two_operations_without_a_seed_differ() -> None:
    ((first, second),) = draw(lambda: [uniform()(), uniform()()])
    assert not np.any(first == second)


def test_stateless_numbers_follow_from_the_seed_alone() -> None:
    def build() -> Any:
        return [raw.StatelessRandomUniform([4], seed) for seed in ([1, 2], [1, 2], [2, 1], [1, 2 + 2**32], [-1, 2])]

    first, second = draw(build, runs=2)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first[0], first[1])
    assert len({tuple(numbers.tolist()) for numbers in first}) == 4


def test_one_operation_and_consecutive_runs_are_uncorrelated() -> None:
    samples = np.array(draw(uniform(seed=5), runs=400))
    assert scipy.stats.kstest(samples.ravel(), "uniform").pvalue > UNLIKELY
    assert np.abs(np.corrcoef(samples[:-1, 0], samples[1:, 0])[0, 1]) < 0.2


def test_the_gradient_of_gamma_follows_the_sample() -> None:
    """The mean of a gamma distribution is alpha, so the mean of its samples' derivatives by alpha is 1."""
    (gradient,) = draw(_gamma_gradient)
    np.testing.assert_allclose(gradient, [1.0, 1.0], atol=0.05)


def _gamma_gradient() -> Any:
    alpha = raw.Const(value=np.array([0.7, 4.0]), dtype="float64")
    sample = raw.RandomGamma([COUNT], alpha, seed=3)
    return gradients(raw.Mul(sample, np.float64(1 / COUNT)), [alpha])[0]
