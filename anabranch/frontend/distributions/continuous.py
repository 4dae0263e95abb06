"""Distributions over all real numbers and over an interval: normal, Laplace, Student's t, uniform."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.elementwise import digamma, exp, is_nan, lgamma, log, log1p, sign, square
from anabranch.frontend.arithmetic.math import abs, betainc
from anabranch.frontend.arithmetic.random import random_gamma, random_normal, random_uniform
from anabranch.frontend.arrays.constants import fill, ones, ones_like, zeros_like
from anabranch.frontend.arrays.gathering import where, where_v2
from anabranch.frontend.arrays.joining import concat
from anabranch.frontend.control_flow.checks import assert_less, assert_positive, assert_same_float_dtype
from anabranch.frontend.control_flow.grouping import with_dependencies
from anabranch.frontend.distributions.distribution import FULLY_REPARAMETERIZED
from anabranch.frontend.distributions.divergences import RegisterKL
from anabranch.frontend.distributions.parameters import (
    ScalarDistribution,
    derived_seed,
    floating_parameters,
    options,
)
from anabranch.frontend.distributions.special import log_cdf_laplace, log_ndtr, ndtr, ndtri
from anabranch.frontend.framework import name_scope
from anabranch.graph.operation import Tensor


def _all_checked(positive: list[Tensor], *parameters: Tensor) -> list[Tensor]:
    """The parameters, none of which can be used without looking whether some of them are above 0."""
    checks = [assert_positive(parameter) for parameter in positive]
    return [with_dependencies(checks, parameter) for parameter in parameters]


class _LocationScale(ScalarDistribution):
    """A distribution of one shape, moved by `loc` and stretched by `scale`."""

    _scalar_parameters = ("loc", "scale")

    def __init__(
        self, loc: TensorLike, scale: TensorLike, validate_args: bool, allow_nan_stats: bool, name: str
    ) -> None:
        parameters = {"loc": loc, "scale": scale, **options(validate_args, allow_nan_stats, name)}
        with name_scope(name, values=[loc, scale]) as scope:
            self._loc, self._scale = floating_parameters(loc=loc, scale=scale)
            if validate_args:
                self._loc, self._scale = _all_checked([self._scale], self._loc, self._scale)
            dtype = assert_same_float_dtype([self._loc, self._scale])
        parents = [self._loc, self._scale]
        super().__init__(dtype, FULLY_REPARAMETERIZED, validate_args, allow_nan_stats, parameters, parents, scope)

    @property
    def loc(self) -> Tensor:
        return self._loc

    @property
    def scale(self) -> Tensor:
        return self._scale

    def _mean(self) -> Any:
        return self.loc + zeros_like(self.scale)

    def _mode(self) -> Any:
        return self._mean()

    def _z(self, value: Tensor) -> Any:
        """The value in units of the scale, from the location."""
        with name_scope("standardize", values=[value]):
            return (value - self.loc) / self.scale


class Normal(_LocationScale):
    """The normal distribution.

    Args:
        loc: the mean.
        scale: the standard deviation, above 0.

    Raises:
        ValueError: the two differ in dtype.
    """

    def __init__(
        self,
        loc: TensorLike,
        scale: TensorLike,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Normal",
    ) -> None:
        super().__init__(loc, scale, validate_args, allow_nan_stats, name)

    def _sample_n(self, n: Tensor, seed: int | None) -> Any:
        shape = concat([[n], self.batch_shape_tensor()], 0)
        return random_normal(shape, dtype=self.dtype, seed=seed) * self.scale + self.loc

    def _log_prob(self, value: Tensor) -> Any:
        return -0.5 * square(self._z(value)) - (0.5 * math.log(2.0 * math.pi) + log(self.scale))

    def _log_cdf(self, value: Tensor) -> Tensor:
        return log_ndtr(self._z(value))

    def _cdf(self, value: Tensor) -> Tensor:
        return ndtr(self._z(value))

    def _log_survival_function(self, value: Tensor) -> Tensor:
        return log_ndtr(-self._z(value))

    def _survival_function(self, value: Tensor) -> Tensor:
        return ndtr(-self._z(value))

    def _quantile(self, value: Tensor) -> Any:
        return ndtri(value) * self.scale + self.loc

    def _entropy(self) -> Any:
        return 0.5 * math.log(2.0 * math.pi) + 0.5 + log(self.scale * ones_like(self.loc))

    def _stddev(self) -> Any:
        return self.scale * ones_like(self.loc)


@RegisterKL(Normal, Normal)
def _kl_normal_normal(a: Normal, b: Normal, name: str | None = None) -> Any:
    with name_scope(name, "kl_normal_normal", [a.loc, b.loc]):
        ratio = square(a.scale) / square(b.scale)
        return square(a.loc - b.loc) / (2.0 * square(b.scale)) + 0.5 * (ratio - 1.0 - log(ratio))


class Laplace(_LocationScale):
    """The Laplace distribution: density exp(-|x - loc| / scale) / (2 scale).

    Raises:
        ValueError: `loc` and `scale` differ in dtype.
    """

    def __init__(
        self,
        loc: TensorLike,
        scale: TensorLike,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Laplace",
    ) -> None:
        super().__init__(loc, scale, validate_args, allow_nan_stats, name)

    def _sample_n(self, n: Tensor, seed: int | None) -> Any:
        shape = concat([[n], self.batch_shape_tensor()], 0)
        above_minus_one = np.nextafter(self.dtype.as_numpy_dtype(-1.0), self.dtype.as_numpy_dtype(0.0))
        uniform = random_uniform(shape, above_minus_one, 1.0, self.dtype, seed)
        return self.loc - self.scale * sign(uniform) * log1p(-abs(uniform))

    def _log_prob(self, value: Tensor) -> Any:
        return -abs(self._z(value)) - math.log(2.0) - log(self.scale)

    def _log_cdf(self, value: Tensor) -> Tensor:
        return log_cdf_laplace(self._z(value))

    def _cdf(self, value: Tensor) -> Any:
        z = self._z(value)
        return 0.5 + 0.5 * sign(z) * (1.0 - exp(-abs(z)))

    def _log_survival_function(self, value: Tensor) -> Tensor:
        return log_cdf_laplace(-self._z(value))

    def _entropy(self) -> Any:
        return math.log(2.0) + 1.0 + log(self.scale + zeros_like(self.loc))

    def _stddev(self) -> Any:
        return math.sqrt(2.0) * self.scale + zeros_like(self.loc)


class StudentT(ScalarDistribution):
    """Student's t distribution, moved by `loc` and stretched by `scale`.

    Args:
        df: degrees of freedom, above 0.
        scale: above 0 (the sign of a negative one is ignored unless `validate_args`).

    Raises:
        ValueError: the parameters differ in dtype.
    """

    _scalar_parameters = ("df", "loc", "scale")

    def __init__(
        self,
        df: TensorLike,
        loc: TensorLike,
        scale: TensorLike,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "StudentT",
    ) -> None:
        parameters = {"df": df, "loc": loc, "scale": scale, **options(validate_args, allow_nan_stats, name)}
        with name_scope(name, values=[df, loc, scale]) as scope:
            self._df, self._loc, self._scale = floating_parameters(df=df, loc=loc, scale=scale)
            if validate_args:
                positive = [self._df, self._scale]
                self._df, self._loc, self._scale = _all_checked(positive, self._df, self._loc, self._scale)
            dtype = assert_same_float_dtype([self._df, self._loc, self._scale])
        parents = [self._df, self._loc, self._scale]
        super().__init__(dtype, FULLY_REPARAMETERIZED, validate_args, allow_nan_stats, parameters, parents, scope)

    @property
    def df(self) -> Tensor:
        return self._df

    @property
    def loc(self) -> Tensor:
        return self._loc

    @property
    def scale(self) -> Tensor:
        return self._scale

    def _sample_n(self, n: Tensor, seed: int | None) -> Any:
        """A normal variable over the root of an independent chi-square one divided by its degrees of freedom."""
        shape = concat([[n], self.batch_shape_tensor()], 0)
        normal = random_normal(shape, dtype=self.dtype, seed=seed)
        df = self.df * ones(self.batch_shape_tensor(), dtype=self.dtype)
        chi_square = random_gamma([n], 0.5 * df, beta=0.5, dtype=self.dtype, seed=derived_seed(seed, "student_t"))
        return normal * (chi_square / df) ** -0.5 * self.scale + self.loc

    def _log_prob(self, value: Tensor) -> Any:
        z = (value - self.loc) / self.scale
        normalization = (
            log(abs(self.scale))
            + 0.5 * log(self.df)
            + 0.5 * math.log(math.pi)
            + lgamma(0.5 * self.df)
            - lgamma(0.5 * (self.df + 1.0))
        )
        return -0.5 * (self.df + 1.0) * log1p(square(z) / self.df) - normalization

    def _cdf(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / abs(self.scale)
        whole = zeros_like(z + self.df)
        z, df = z + whole, self.df + whole
        tail = 0.5 * betainc(0.5 * df, zeros_like(df) + 0.5, df / (square(z) + df))
        return where(z < 0.0, tail, 1.0 - tail)

    def _entropy(self) -> Any:
        df = self.df * ones(self.batch_shape_tensor(), dtype=self.dtype)
        log_beta = lgamma(0.5 * df) + math.lgamma(0.5) - lgamma(0.5 * (df + 1.0))
        difference = digamma(0.5 * (df + 1.0)) - digamma(0.5 * df)
        return log(abs(self.scale)) + 0.5 * log(df) + log_beta + 0.5 * (df + 1.0) * difference

    def _mean(self) -> Tensor:
        mean = self.loc * ones(self.batch_shape_tensor(), dtype=self.dtype)
        return self._where_defined(1.0, "mean not defined for components of df <= 1", mean)

    def _variance(self) -> Tensor:
        safe = where_v2(self.df > 2.0, self.df - 2.0, ones_like(self.df))
        variance = square(self.scale) * self.df / safe * ones(self.batch_shape_tensor(), dtype=self.dtype)
        infinite = fill(self.batch_shape_tensor(), self.dtype.as_numpy_dtype(np.inf))
        variance = where_v2(self.df > 2.0, variance, infinite)
        return self._where_defined(1.0, "variance not defined for components of df <= 1", variance)

    def _where_defined(self, least: float, message: str, values: Tensor) -> Tensor:
        """The values, where there are more degrees of freedom than `least`; elsewhere NaN or an error."""
        if self.allow_nan_stats:
            nan = fill(self.batch_shape_tensor(), self.dtype.as_numpy_dtype(np.nan))
            return where_v2(self.df > least, values, nan)
        check = assert_less(ones([], dtype=self.dtype), self.df, message=message)
        return with_dependencies([check], values)

    def _mode(self) -> Any:
        return self.loc * ones(self.batch_shape_tensor(), dtype=self.dtype)


class Uniform(ScalarDistribution):
    """The uniform distribution over [low, high).

    Raises:
        ValueError: `low` and `high` differ in dtype.
        InvalidArgumentError: (in the step, with `validate_args`) low is not below high.
    """

    _scalar_parameters = ("low", "high")

    def __init__(
        self,
        low: TensorLike = 0.0,
        high: TensorLike = 1.0,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Uniform",
    ) -> None:
        parameters = {"low": low, "high": high, **options(validate_args, allow_nan_stats, name)}
        with name_scope(name, values=[low, high]) as scope:
            self._low, self._high = floating_parameters(low=low, high=high)
            dtype = assert_same_float_dtype([self._low, self._high])
            if validate_args:
                check = assert_less(self._low, self._high, message="uniform not defined when low >= high.")
                self._low, self._high = (with_dependencies([check], v) for v in (self._low, self._high))
        parents = [self._low, self._high]
        super().__init__(dtype, FULLY_REPARAMETERIZED, validate_args, allow_nan_stats, parameters, parents, scope)

    @property
    def low(self) -> Tensor:
        return self._low

    @property
    def high(self) -> Tensor:
        return self._high

    def range(self, name: str = "range") -> Tensor:
        """High - low."""
        with self._scope(name):
            return self.high - self.low

    def _sample_n(self, n: Tensor, seed: int | None) -> Any:
        shape = concat([[n], self.batch_shape_tensor()], 0)
        return self.low + self.range() * random_uniform(shape, dtype=self.dtype, seed=seed)

    def _prob(self, value: Tensor) -> Tensor:
        whole = zeros_like(value + self.low + self.high)
        x, low, high = value + whole, self.low + whole, self.high + whole
        outside = where_v2((x < low) | (x >= high), whole, 1.0 / (high - low))
        return where_v2(is_nan(x), x, outside)  # NaN stays NaN

    def _cdf(self, value: Tensor) -> Tensor:
        whole = zeros_like(value + self.low + self.high)
        x, low, high = value + whole, self.low + whole, self.high + whole
        inside = (x - low) / (high - low)
        return where_v2(x < low, whole, where_v2(x >= high, ones_like(whole), inside))

    def _entropy(self) -> Any:
        return log(self.range())

    def _mean(self) -> Any:
        return (self.low + self.high) / 2.0

    def _variance(self) -> Any:
        return square(self.range()) / 12.0

    def _stddev(self) -> Any:
        return self.range() / math.sqrt(12.0)
