"""The Hurwitz zeta function, sum of (q + n)^-x over n >= 0, and the polygamma functions.

Terms are added while q + n <= 9, nine at least, and the rest by an asymptotic series. (JAX's own function adds nine
whatever q is, which is wrong for q < -9, and gives NaN where a term overflows or q is infinite.) What is settled stays
as it is. Below q = -500, where x must be whole, let f = q - floor(q): the terms with q + n < 0 are, up to the sign
(-1)^x, those of zeta(x, 1 - f) that are not in zeta(x, 1 - q), and the rest is zeta(x, f). So three sums with
positive q are enough, however far below zero it lies.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array

#: terms before the asymptotic series (Euler and Maclaurin's), and q + n where it begins
_TERMS = 9
#: how far below zero terms are added one by one
_DIRECT = 500
#: (2 k)! / B(2 k), where B are Bernoulli's numbers
_DIVISORS = (
    12.0,
    -720.0,
    30240.0,
    -1209600.0,
    47900160.0,
    -1.8924375803183791606e9,
    7.47242496e10,
    -2.950130727918164224e12,
    1.1646782814350067249e14,
    -4.5979787224074726105e15,
    1.8152105401943546773e17,
    -7.1661652561756670113e18,
)


def zeta(x: Array, q: Array) -> Any:
    """The function of arrays that broadcast: infinite where x is one, or x is even and -q a natural number."""
    x, q = jnp.broadcast_arrays(x, q)
    at_pole = (q <= 0) & (q == jnp.floor(q))
    even, whole = (jnp.mod(x, 2) == 0) | jnp.isinf(x), x == jnp.floor(x)
    far = q < -_DIRECT
    value = jnp.where(far, _far_below_zero(x, jnp.where(far, q, -_DIRECT - 0.5), even), _sum(x, jnp.where(far, 1, q)))
    value = jnp.where((q > 0) | whole, value, np.nan)
    value = jnp.where(at_pole, jnp.where(even, np.inf, np.nan), value)
    return jnp.where(x > 1, value, jnp.where(x == 1, np.inf, np.nan)).astype(x.dtype)


def _far_below_zero(x: Array, q: Array, even: Array) -> Any:
    fraction = (q - jnp.floor(q)).astype(x.dtype)
    left = _sum(x, 1 - fraction) - _sum(x, 1 - q)
    return _sum(x, fraction) + jnp.where(even, left, -left)


def polygamma(n: Array, x: Array) -> Any:
    """The derivative of order n of the digamma function; NaN where n is no natural number."""
    n, x = jnp.broadcast_arrays(n, x)
    # of n + 1 as the dtype has it: an order of 1e30 has the sign of TensorFlow's power of -1
    sign = jnp.where(jnp.mod(n + 1, 2) == 0, 1, -1).astype(x.dtype)
    derivative = sign * jnp.exp(jax.lax.lgamma(n + 1)) * zeta(n + 1, x)
    defined = (n >= 0) & (n == jnp.floor(n))
    return jnp.where(n == 0, jax.lax.digamma(x), jnp.where(defined, derivative, np.nan))


def _sum(x: Array, q: Array) -> Any:
    """The sum where x > 1, and q > 0 or x is whole; any value elsewhere."""
    total, at, term, settled = _first_terms(x, q)
    total = jnp.where(settled, total, total + term * at / (x - 1) - term / 2)
    epsilon = np.finfo(x.dtype).eps / 2
    factor = jnp.ones_like(x)
    for k, divisor in enumerate(_DIVISORS):
        factor = factor * (x + 2 * k)
        term = term / at
        part = factor * term / divisor
        total = jnp.where(settled, total, total + part)
        settled = settled | (jnp.abs(part) < epsilon * jnp.abs(total))
        factor = factor * (x + 2 * k + 1)
        term = term / at
    return total


def _first_terms(x: Array, q: Array) -> tuple[Any, Any, Any, Any]:
    """The sum of the first terms, the last of them and its q + n, and where the others no longer matter."""
    epsilon = np.finfo(x.dtype).eps / 2

    def more(state: tuple[Array, ...]) -> Any:
        count, _, at, _, settled = state
        return (count < _TERMS) | ((count < _DIRECT + _TERMS + 1) & jnp.any((at <= _TERMS) & ~settled))

    def step(state: tuple[Array, ...]) -> Any:
        count, total, at, term, settled = state
        going = ~settled & ((count < _TERMS) | (at <= _TERMS))
        next_at = jnp.where(going, at + 1, at)
        term = jnp.where(going, jnp.power(next_at, -x), term)
        total = jnp.where(going, total + term, total)
        # below zero terms grow from one to the next: one that is nothing beside the sum says nothing of those to come
        settled = settled | (going & (next_at > 0) & (jnp.abs(term) <= epsilon * jnp.abs(total)))
        return count + 1, total, next_at, term, settled

    first = jnp.power(q, -x)
    end = jax.lax.while_loop(more, step, (jnp.int32(0), first, q, first, jnp.isinf(q)))
    return end[1], end[2], end[3], end[4]
