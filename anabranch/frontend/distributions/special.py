"""Functions of the normal and Laplace distributions that stay accurate in the tails."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.frontend.arithmetic.elementwise import erf, erfc, exp, log, log1p, maximum, minimum, sqrt, square
from anabranch.frontend.arithmetic.math import abs
from anabranch.frontend.arrays.constants import ones_like, zeros_like
from anabranch.frontend.arrays.gathering import where
from anabranch.graph.operation import Tensor

#: below this the series replaces the logarithm of `ndtr`
_LIMITS = {dtypes.float64: -20.0, dtypes.float32: -10.0, dtypes.float16: -5.0}
#: terms of the asymptotic series; the first that is left out is below the precision at the limit
_TERMS = 4

# Acklam's rational approximations of the quantile function: relative error below 1.2e-9.
_CENTRE = (
    (
        -3.969683028665376e01,
        2.209460984245205e02,
        -2.759285104469687e02,
        1.383577518672690e02,
        -3.066479806614716e01,
        2.506628277459239e00,
    ),
    (
        -5.447609879822406e01,
        1.615858368580409e02,
        -1.556989798598866e02,
        6.680131188771972e01,
        -1.328068155288572e01,
        1.0,
    ),
)
_TAIL = (
    (
        -7.784894002430293e-03,
        -3.223964580411365e-01,
        -2.400758277161838e00,
        -2.549732539343734e00,
        4.374664141464968e00,
        2.938163982698783e00,
    ),
    (7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e00, 3.754408661907416e00, 1.0),
)
_TAIL_BEGINS = 0.02425


def _constant(like: Tensor, value: float) -> np.ndarray:  # type: ignore[type-arg]
    return np.asarray(value, like.dtype.as_numpy_dtype)


def ndtr(x: Tensor) -> Tensor:
    """P(X <= x) of the standard normal distribution."""
    w = x * _constant(x, math.sqrt(0.5))
    middle = 0.5 * (1.0 + erf(minimum(maximum(w, -1.0), 1.0)))
    tail = 0.5 * erfc(abs(w))
    return where(abs(w) < 1.0, middle, where(w > 0.0, 1.0 - tail, tail))


def log_ndtr(x: Tensor) -> Tensor:
    """log(P(X <= x)) of the standard normal distribution, also where P is too small to be represented."""
    low = _constant(x, _LIMITS.get(x.dtype.base_dtype, _LIMITS[dtypes.float32]))
    above = log1p(-ndtr(-maximum(x, 0.0)))
    below = log(ndtr(minimum(maximum(x, low), 0.0)))
    return where(x > 0.0, above, where(x > low, below, _log_ndtr_series(minimum(x, low))))


def _log_ndtr_series(x: Tensor) -> Any:
    """-x^2/2 - log(-x sqrt(2 pi)) + log(1 - 1/x^2 + 3/x^4 - 15/x^6 ...), for x far below 0."""
    squared, total, term = square(x), ones_like(x), ones_like(x)
    for i in range(1, _TERMS + 1):
        term = -term * _constant(x, 2 * i - 1) / squared
        total = total + term
    return -0.5 * squared - log(-x) - _constant(x, 0.5 * math.log(2 * math.pi)) + log(total)


def ndtri(p: Tensor) -> Tensor:
    """The x for which P(X <= x) = p: Acklam's approximation, improved by one step of Halley's method."""
    upper = p > 0.5
    q = where(upper, 1.0 - p, p)
    inside = maximum(q, _constant(p, np.finfo(p.dtype.as_numpy_dtype).tiny))
    r = sqrt(-2.0 * log(minimum(inside, _constant(p, _TAIL_BEGINS))))
    tail = _polynomial(r, _TAIL[0]) / _polynomial(r, _TAIL[1])
    c = maximum(q, _constant(p, _TAIL_BEGINS)) - 0.5
    centre = c * _polynomial(square(c), _CENTRE[0]) / _polynomial(square(c), _CENTRE[1])
    x = where(q < _TAIL_BEGINS, tail, centre)
    error = (ndtr(x) - inside) * exp(0.5 * square(x)) * _constant(p, math.sqrt(2 * math.pi))
    x = x - error / (1.0 + 0.5 * x * error)
    x = where(q > 0.0, x, zeros_like(x) - np.inf)
    return where(upper, -x, x)


def _polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Any:
    total = zeros_like(x) + _constant(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + _constant(x, coefficient)
    return total


def log_cdf_laplace(x: Tensor) -> Tensor:
    """log(P(X <= x)) of the standard Laplace distribution."""
    below = x + _constant(x, -math.log(2.0))
    above = log1p(-0.5 * exp(-abs(x)))
    return where(x < 0.0, below, above)
