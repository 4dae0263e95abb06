"""The incomplete gamma functions and their derivatives, by a series and a continued fraction.

JAX's own go on until the terms no longer matter, which for large arguments that are nearly equal (1e16 and 1e16) is
never: the step would not end, nor could it be interrupted. Here the number of terms is bounded, as it is in Eigen,
whose algorithm this is, and with it TensorFlow's; where the bound is met the result is inexact, as theirs is.

With main = x^a exp(-x) / gamma(a) the lower function is main / a * (1 + x/(a+1) + x^2/((a+1)(a+2)) + ...), which
converges quickly for x <= a and x <= 1; elsewhere the upper one is main times a continued fraction (Cephes' igam and
igamc).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array

#: terms of a value, and of a derivative by dtype
_TERMS = 2000
_DERIVATIVE_TERMS = {"float32": 200, "float64": 500}


class _Mode(enum.Enum):
    """Which function is computed: the value, or one of the derivatives."""

    VALUE = enum.auto()
    #: the derivative by `a` of the lower function
    DERIVATIVE = enum.auto()
    #: the derivative by `a` of a sample of the gamma distribution
    SAMPLE_DERIVATIVE = enum.auto()


def lower(a: Array, x: Array) -> Any:
    """The regularised lower incomplete gamma function of arrays that broadcast."""
    return _widened(_lower, a, x, _Mode.VALUE)


def lower_by_a(a: Array, x: Array) -> Any:
    """The derivative by `a` of the lower function."""
    return _widened(_lower, a, x, _Mode.DERIVATIVE)


def sample_by_a(a: Array, x: Array) -> Any:
    """The derivative by `a` of a sample of the gamma distribution."""
    return _widened(_lower, a, x, _Mode.SAMPLE_DERIVATIVE)


def upper(a: Array, x: Array) -> Any:
    """One minus the lower function, exact where that is nearly one."""
    return _widened(_upper, a, x)


def _widened(function: Callable[..., Any], a: Array, x: Array, *more: Array) -> Any:
    """The arrays, in single precision where theirs is less."""
    a, x = jnp.broadcast_arrays(a, x)
    wide = a.dtype if a.dtype.name in _DERIVATIVE_TERMS else np.dtype(np.float32)
    return function(a.astype(wide), x.astype(wide), *more).astype(a.dtype)


def _lower(a: Array, x: Array, mode: _Mode) -> Any:
    by_fraction = (x > 1) & (x > a)
    defined = (x >= 0) & (a > 0)
    fraction = _continued_fraction(a, x, defined & by_fraction, mode)
    series = _power_series(a, x, defined & (x > 0) & ~by_fraction, mode)
    complement = 1 - fraction if mode is _Mode.VALUE else -fraction
    value = jnp.where(by_fraction, complement, series)
    return jnp.where(x == 0, 0, jnp.where(defined, value, np.nan))


def _upper(a: Array, x: Array) -> Any:
    by_series = (x < 1) | (x < a)
    defined = (x >= 0) & (a > 0)
    series = _power_series(a, x, defined & by_series, _Mode.VALUE)
    fraction = _continued_fraction(a, x, defined & ~by_series, _Mode.VALUE)
    return jnp.where(defined, jnp.where(by_series, 1 - series, fraction), np.nan)


def _main_term(a: Array, x: Array) -> Any:
    """x^a exp(-x) / gamma(a); zero where that underflows, or where infinities leave nothing to say."""
    logarithm = a * jnp.log(x) - x - jax.lax.lgamma(a)
    return jnp.where(logarithm >= -np.log(np.finfo(x.dtype).max), jnp.exp(logarithm), 0)


def _terms(dtype: np.dtype[Any], mode: _Mode) -> int:
    return _TERMS if mode is _Mode.VALUE else _DERIVATIVE_TERMS[dtype.name]


class _Series(NamedTuple):
    """Sum and last term, and their derivatives by `a`; each with the elements that still change."""

    terms: Any
    going: Any
    divisor: Any
    term: Any
    total: Any
    term_by_a: Any
    total_by_a: Any


def _power_series(a: Array, x: Array, wanted: Array, mode: _Mode) -> Any:
    main = _main_term(a, x)
    epsilon = np.finfo(x.dtype).eps / 2
    most = _terms(x.dtype, mode)
    one, zero = jnp.ones_like(x), jnp.zeros_like(x)

    def more(state: _Series) -> Any:
        return (state.terms < most) & jnp.any(state.going)

    def step(state: _Series) -> Any:
        divisor = state.divisor + 1
        factor = x / divisor
        term_by_a = factor * state.term_by_a - x / (divisor * divisor) * state.term
        total_by_a = state.total_by_a + term_by_a
        term = state.term * factor
        total = state.total + term
        if mode is _Mode.VALUE:
            settled = term <= epsilon * total
        else:
            settled = jnp.abs(term_by_a) <= epsilon * jnp.abs(total_by_a)
        new = _Series(state.terms + 1, state.going & ~settled, divisor, term, total, term_by_a, total_by_a)
        return _where_going(state, new)

    start = _Series(jnp.int32(0), wanted & (main != 0), a, one, one, zero, zero)
    end: Any = jax.lax.while_loop(more, step, start)
    log_main_by_a = jnp.log(x) - jax.lax.digamma(a + 1)
    if mode is _Mode.SAMPLE_DERIVATIVE:
        value = -(end.total_by_a + end.total * log_main_by_a) * x / a
    elif mode is _Mode.DERIVATIVE:
        value = (end.total * log_main_by_a + end.total_by_a) * (main / a)
    else:
        value = end.total * (main / a)
    return jnp.where(main == 0, 0, value)


class _Fraction(NamedTuple):
    """Numerators and denominators of the last two convergents, with their derivatives by `a`, and the fraction."""

    terms: Any
    going: Any
    y: Any
    z: Any
    #: numerator and denominator before the last, last; the same four derived by `a`
    parts: tuple[Any, ...]
    fraction: Any
    fraction_by_a: Any


def _continued_fraction(a: Array, x: Array, wanted: Array, mode: _Mode) -> Any:
    main = _main_term(a, x)
    epsilon = np.finfo(x.dtype).eps / 2
    most = _terms(x.dtype, mode)
    one, zero = jnp.ones_like(x), jnp.zeros_like(x)

    def more(state: _Fraction) -> Any:
        return (state.terms < most) & jnp.any(state.going)

    def step(state: _Fraction) -> Any:
        count = (state.terms + 1).astype(x.dtype)
        y, z = state.y + 1, state.z + 2
        p2, q2, p1, q1, dp2, dq2, dp1, dq1 = state.parts
        yc = y * count
        p, q = p1 * z - p2 * yc, q1 * z - q2 * yc
        dp = dp1 * z - p1 - dp2 * yc + p2 * count
        dq = dq1 * z - q1 - dq2 * yc + q2 * count
        valid = q != 0
        fraction = jnp.where(valid, p / q, state.fraction)
        by_a = jnp.where(valid, (dp - fraction * dq) / q, state.fraction_by_a)
        if mode is _Mode.VALUE:
            settled = jnp.abs(state.fraction - fraction) <= epsilon * jnp.abs(fraction)
        else:
            settled = jnp.abs(by_a - state.fraction_by_a) <= epsilon
        scale = jnp.where(jnp.abs(p) > 1 / epsilon, epsilon, 1).astype(x.dtype)
        parts = tuple(part * scale for part in (p1, q1, p, q, dp1, dq1, dp, dq))
        going = state.going & ~(valid & settled)
        return _where_going(state, _Fraction(state.terms + 1, going, y, z, parts, fraction, by_a))

    first = (one, x, x + 1, (x + (1 - a) + 1) * x, zero, zero, zero, -x)
    fraction = first[2] / first[3]
    by_a = -fraction * first[7] / first[3]
    start = _Fraction(
        jnp.int32(0), wanted & jnp.isfinite(x) & (main != 0), 1 - a, x + (1 - a) + 1, first, fraction, by_a
    )
    end: Any = jax.lax.while_loop(more, step, start)
    log_main_by_a = jnp.log(x) - jax.lax.digamma(a)
    if mode is _Mode.SAMPLE_DERIVATIVE:
        value = -(end.fraction_by_a + end.fraction * log_main_by_a) * x
    elif mode is _Mode.DERIVATIVE:
        value = end.fraction * main * log_main_by_a + end.fraction_by_a * main
    else:
        value = end.fraction * main
    return jnp.where(jnp.isinf(x) | (main == 0), 0, value)


def _where_going(state: _Series | _Fraction, new: _Series | _Fraction) -> Any:
    """The new state of the elements that were still changing, the old one of the others."""
    kept = jax.tree.map(lambda was, now: jnp.where(state.going, now, was), state, new)
    return kept._replace(terms=new.terms, going=new.going)
