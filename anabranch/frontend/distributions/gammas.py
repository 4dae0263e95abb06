"""Distributions made of gamma functions: gamma, exponential, beta, Dirichlet."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.elementwise import digamma, lgamma, log, log1p, sqrt, square, xlogy
from anabranch.frontend.arithmetic.math import betainc, igamma, lbeta
from anabranch.frontend.arithmetic.random import random_gamma, random_uniform
from anabranch.frontend.arithmetic.reduction import reduce_min, reduce_sum
from anabranch.frontend.arrays.casting import cast
from anabranch.frontend.arrays.constants import ones, ones_like, zeros_like
from anabranch.frontend.arrays.gathering import where_v2
from anabranch.frontend.arrays.joining import concat
from anabranch.frontend.arrays.shapes import expand_dims, shape as shape_of
from anabranch.frontend.control_flow.checks import (
    assert_less,
    assert_near,
    assert_positive,
    assert_rank_at_least,
    assert_same_float_dtype,
)
from anabranch.frontend.control_flow.grouping import with_dependencies
from anabranch.frontend.distributions.distribution import FULLY_REPARAMETERIZED, Distribution
from anabranch.frontend.distributions.divergences import RegisterKL
from anabranch.frontend.distributions.parameters import (
    ScalarDistribution,
    derived_seed,
    floating_parameters,
    options,
    positive,
    vector_covariance,
)
from anabranch.frontend.framework import name_scope
from anabranch.graph.operation import Tensor


class Gamma(ScalarDistribution):
    """The gamma distribution: density proportional to x^(concentration - 1) exp(-rate x).

    Args:
        concentration, rate: above 0.

    Raises:
        ValueError: the two differ in dtype.
    """

    _scalar_parameters: tuple[str, ...] = ("concentration", "rate")

    def __init__(
        self,
        concentration: TensorLike,
        rate: TensorLike,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Gamma",
    ) -> None:
        parameters = {"concentration": concentration, "rate": rate, **options(validate_args, allow_nan_stats, name)}
        with name_scope(name, values=[concentration, rate]) as scope:
            converted = floating_parameters(concentration=concentration, rate=rate)
            self._concentration, self._rate = (positive(p, validate_args) for p in converted)
            dtype = assert_same_float_dtype(converted)
        parents = [self._concentration, self._rate]
        super().__init__(dtype, FULLY_REPARAMETERIZED, validate_args, allow_nan_stats, parameters, parents, scope)

    @property
    def concentration(self) -> Tensor:
        return self._concentration

    @property
    def rate(self) -> Tensor:
        return self._rate

    def _value_tensor(self, value: TensorLike) -> Tensor:
        return _valid_sample(super()._value_tensor(value), self.validate_args)

    def _sample_n(self, n: Tensor, seed: int | None) -> Tensor:
        return random_gamma([n], self.concentration, self.rate, self.dtype, seed)

    def _log_prob(self, value: Tensor) -> Any:
        normalization = lgamma(self.concentration) - self.concentration * log(self.rate)
        return xlogy(self.concentration - 1.0, value) - self.rate * value - normalization

    def _cdf(self, value: Tensor) -> Tensor:
        whole = zeros_like(value + self.concentration + self.rate)
        return igamma(self.concentration + whole, self.rate * value + whole)

    def _entropy(self) -> Any:
        c = self.concentration
        return c - log(self.rate) + lgamma(c) + (1.0 - c) * digamma(c)

    def _mean(self) -> Any:
        return self.concentration / self.rate

    def _variance(self) -> Any:
        return self.concentration / square(self.rate)

    def _stddev(self) -> Any:
        return sqrt(self.concentration) / self.rate

    def _mode(self) -> Tensor:
        mode = (self.concentration - 1.0) / self.rate
        return _defined_mode(self, [self.concentration], mode, "mode not defined when any concentration <= 1")


class Exponential(Gamma):
    """The exponential distribution: density rate exp(-rate x)."""

    _scalar_parameters = ("rate",)

    def __init__(
        self, rate: TensorLike, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Exponential"
    ) -> None:
        with name_scope(name, values=[rate]) as scope:
            (self._rate,) = floating_parameters(rate=rate)
            one = ones([], dtype=self._rate.dtype)
        super().__init__(one, self._rate, validate_args, allow_nan_stats, scope)
        self._parameters = {"rate": rate, **options(validate_args, allow_nan_stats, name)}

    def _sample_n(self, n: Tensor, seed: int | None) -> Any:
        shape = concat([[n], shape_of(self._rate)], 0)
        smallest = np.finfo(self.dtype.as_numpy_dtype).tiny
        return -log(random_uniform(shape, smallest, 1.0, self.dtype, seed)) / self._rate

    def _log_survival_function(self, value: Tensor) -> Any:
        return -value * self._rate


@RegisterKL(Gamma, Gamma)
def _kl_gamma_gamma(a: Gamma, b: Gamma, name: str | None = None) -> Any:
    with name_scope(name, "kl_gamma_gamma", [a.concentration, b.concentration, a.rate, b.rate]):
        return (
            (a.concentration - b.concentration) * digamma(a.concentration)
            + lgamma(b.concentration)
            - lgamma(a.concentration)
            + b.concentration * (log(a.rate) - log(b.rate))
            + a.concentration * (b.rate / a.rate - 1.0)
        )


class Beta(ScalarDistribution):
    """The beta distribution over (0, 1): density proportional to x^(concentration1 - 1) (1 - x)^(concentration0 - 1).

    Args:
        concentration1, concentration0: above 0; default: 1.
    """

    _scalar_parameters = ("concentration1", "concentration0")

    def __init__(
        self,
        concentration1: TensorLike | None = None,
        concentration0: TensorLike | None = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Beta",
    ) -> None:
        given = {"concentration1": concentration1, "concentration0": concentration0}
        parameters = {**given, **options(validate_args, allow_nan_stats, name)}
        given = {n: 1.0 if v is None else v for n, v in given.items()}
        with name_scope(name, values=list(given.values())) as scope:
            converted = floating_parameters(**given)
            dtype = assert_same_float_dtype(converted)
            self._concentration1, self._concentration0 = (_concentration(p, validate_args) for p in converted)
            self._total = self._concentration1 + self._concentration0
        parents = [self._concentration1, self._concentration0]
        super().__init__(dtype, FULLY_REPARAMETERIZED, validate_args, allow_nan_stats, parameters, parents, scope)

    @property
    def concentration1(self) -> Tensor:
        return self._concentration1

    @property
    def concentration0(self) -> Tensor:
        return self._concentration0

    @property
    def total_concentration(self) -> Tensor:
        return self._total

    def _value_tensor(self, value: TensorLike) -> Tensor:
        tensor = super()._value_tensor(value)
        if not self.validate_args:
            return tensor
        below_one = assert_less(tensor, ones([], self.dtype), message="sample must be less than `1`.")
        return with_dependencies([below_one], _valid_sample(tensor, True))

    def _sample_n(self, n: Tensor, seed: int | None) -> Any:
        one = ones_like(self._total, dtype=self.dtype)
        first = random_gamma([n], self._concentration1 * one, dtype=self.dtype, seed=seed)
        second = random_gamma([n], self._concentration0 * one, dtype=self.dtype, seed=derived_seed(seed, "beta"))
        return first / (first + second)

    def _log_prob(self, value: Tensor) -> Any:
        unnormalized = xlogy(self._concentration1 - 1.0, value) + (self._concentration0 - 1.0) * log1p(-value)
        return unnormalized - self._log_normalization()

    def _log_normalization(self) -> Any:
        return lgamma(self._concentration1) + lgamma(self._concentration0) - lgamma(self._total)

    def _cdf(self, value: Tensor) -> Tensor:
        whole = zeros_like(value + self._total)
        return betainc(self._concentration1 + whole, self._concentration0 + whole, value + whole)

    def _entropy(self) -> Any:
        a, b, total = self._concentration1, self._concentration0, self._total
        return (
            self._log_normalization() - (a - 1.0) * digamma(a) - (b - 1.0) * digamma(b) + (total - 2.0) * digamma(total)
        )

    def _mean(self) -> Any:
        return self._concentration1 / self._total

    def _variance(self) -> Any:
        mean = self._mean()
        return mean * (1.0 - mean) / (1.0 + self._total)

    def _mode(self) -> Tensor:
        mode = (self._concentration1 - 1.0) / (self._total - 2.0)
        parents = [self._concentration1, self._concentration0]
        return _defined_mode(self, parents, mode, "Mode undefined for concentration <= 1.")


@RegisterKL(Beta, Beta)
def _kl_beta_beta(a: Beta, b: Beta, name: str | None = None) -> Any:
    def term(parameter: str) -> Any:
        first, second = getattr(a, parameter), getattr(b, parameter)
        return (first - second) * digamma(first)

    parents = [a.concentration1, a.concentration0, b.concentration1, b.concentration0]
    with name_scope(name, "kl_beta_beta", parents):
        total = (b.total_concentration - a.total_concentration) * digamma(a.total_concentration)
        normalization = b._log_normalization() - a._log_normalization()
        return normalization + term("concentration1") + term("concentration0") + total


class Dirichlet(Distribution):
    """The Dirichlet distribution over vectors of positive numbers that sum to 1.

    Args:
        concentration: [..., classes], above 0.
    """

    def __init__(
        self,
        concentration: TensorLike,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Dirichlet",
    ) -> None:
        parameters = {"concentration": concentration, **options(validate_args, allow_nan_stats, name)}
        with name_scope(name, values=[concentration]) as scope:
            (converted,) = floating_parameters(concentration=concentration)
            self._concentration = vector_concentration(converted, validate_args)
            self._total = reduce_sum(self._concentration, -1)
        super().__init__(
            converted.dtype,
            FULLY_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._concentration, self._total],
            scope,
        )

    @property
    def concentration(self) -> Tensor:
        return self._concentration

    @property
    def total_concentration(self) -> Tensor:
        return self._total

    def _batch_shape(self) -> TensorShape:
        return self._total.shape

    def _batch_shape_tensor(self) -> Tensor:
        return shape_of(self._total)

    def _event_shape(self) -> TensorShape:
        return self._concentration.shape.with_rank_at_least(1)[-1:]

    def _event_shape_tensor(self) -> Any:
        return shape_of(self._concentration)[-1:]

    def _value_tensor(self, value: TensorLike) -> Tensor:
        tensor = super()._value_tensor(value)
        if not self.validate_args:
            return tensor
        total = reduce_sum(tensor, -1)
        checks = [
            assert_positive(tensor, message="samples must be positive"),
            assert_near(ones([], self.dtype), total, message="sample last-dimension must sum to `1`"),
        ]
        return with_dependencies(checks, tensor)

    def _sample_n(self, n: Tensor, seed: int | None) -> Any:
        gamma = random_gamma([n], self._concentration, dtype=self.dtype, seed=seed)
        return gamma / reduce_sum(gamma, -1, keepdims=True)

    def _log_prob(self, value: Tensor) -> Any:
        return reduce_sum(xlogy(self._concentration - 1.0, value), -1) - lbeta(self._concentration)

    def _entropy(self) -> Any:
        classes = cast(self.event_shape_tensor()[0], self.dtype)
        weighted = reduce_sum((self._concentration - 1.0) * digamma(self._concentration), -1)
        return lbeta(self._concentration) + (self._total - classes) * digamma(self._total) - weighted

    def _mean(self) -> Any:
        return self._concentration / expand_dims(self._total, -1)

    def _covariance(self) -> Tensor:
        scaled = self._scale_of_variance() * self._mean()
        return vector_covariance(scaled, scaled, self._variance())

    def _variance(self) -> Any:
        scale, mean = self._scale_of_variance(), self._mean()
        return square(scale) * mean * (1.0 - mean)

    def _scale_of_variance(self) -> Any:
        return 1.0 / sqrt(1.0 + expand_dims(self._total, -1))

    def _mode(self) -> Tensor:
        classes = cast(self.event_shape_tensor()[0], self.dtype)
        mode = (self._concentration - 1.0) / (expand_dims(self._total, -1) - classes)
        least = reduce_min(self._concentration, -1, keepdims=True)
        return _defined_mode(self, [least], mode, "Mode undefined when any concentration <= 1")


@RegisterKL(Dirichlet, Dirichlet)
def _kl_dirichlet_dirichlet(a: Dirichlet, b: Dirichlet, name: str | None = None) -> Any:
    with name_scope(name, "kl_dirichlet_dirichlet", [a.concentration, b.concentration]):
        difference = digamma(a.concentration) - expand_dims(digamma(a.total_concentration), -1)
        weighted = reduce_sum((a.concentration - b.concentration) * difference, -1)
        return weighted - lbeta(a.concentration) + lbeta(b.concentration)


def _concentration(parameter: Tensor, validate_args: bool) -> Tensor:
    if not validate_args:
        return parameter
    check = assert_positive(parameter, message="Concentration parameter must be positive.")
    return with_dependencies([check], parameter)


def vector_concentration(parameter: Tensor, validate_args: bool) -> Tensor:
    """A parameter [..., classes], above 0, with at least two classes."""
    if not validate_args:
        return parameter
    checks = [
        assert_positive(parameter, message="Concentration parameter must be positive."),
        assert_rank_at_least(parameter, 1, message="Concentration parameter must have >=1 dimensions."),
        assert_less(1, shape_of(parameter)[-1], message="Concentration parameter must have event_size >= 2."),
    ]
    return with_dependencies(checks, parameter)


def _valid_sample(value: Tensor, validate_args: bool) -> Tensor:
    if not validate_args:
        return value
    return with_dependencies([assert_positive(value, message="sample must be positive")], value)


def _defined_mode(distribution: Distribution, parameters: list[Tensor], mode: Tensor, message: str) -> Tensor:
    """The mode where all of its parameters are above 1; elsewhere NaN, or an error in the step."""
    if not distribution.allow_nan_stats:
        checks = [assert_less(ones([], p.dtype), p, message=message) for p in parameters]
        return with_dependencies(checks, mode)
    for parameter in parameters:
        mode = where_v2(parameter > 1.0, mode, np.asarray(np.nan, mode.dtype.as_numpy_dtype))
    return mode
