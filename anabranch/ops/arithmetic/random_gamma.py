"""Gamma numbers by Marsaglia and Tsang's method (ACM Trans. Math. Softw. 26, 2000), all of them side by side.

A normal number `x` is bent into a candidate `d (1 + c x)**3`, which is accepted with a probability of 0.95 or more; the
numbers that were not are proposed anew in the next round, under another key. Half a million of them take some five
rounds. A loop for each number, as `jax.random.gamma` has it on processors, takes ten times as long: no two of its
numbers are computed together.

Number `i` depends on the key, `i` and its own `alpha` only.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array, RandomSource
from anabranch.ops.arithmetic import random_bits
from anabranch.ops.arithmetic.random_bits import HostKey


def gamma(key: RandomSource, alpha: Array, shape: tuple[int, ...]) -> Any:
    """Gamma numbers of scale 1: NaN for what is no `alpha`, 0 for 0.

    Args:
        key: a scalar JAX random key, or a `HostKey`.
        alpha: float32 or float64, broadcast with `shape`.
    """
    if not isinstance(key, HostKey):
        return _side_by_side(key, jnp.broadcast_to(alpha, shape))
    padded = random_bits.padded(np.broadcast_to(alpha, shape), 1.0)
    numbers = np.asarray(_compiled(np.asarray(key, np.uint32), padded))
    return numbers[: np.prod(shape, dtype=np.int64)].reshape(shape)


@jax.jit
def _compiled(words: Array, alpha: Array) -> Any:
    return _side_by_side(jax.random.wrap_key_data(words), alpha)


def _side_by_side(key: RandomSource, alpha: Array) -> Any:
    """Numbers of the shape and the type of `alpha`."""
    number, shape = alpha.dtype.type, alpha.shape
    small = alpha < 1
    d = jnp.where(small, alpha + 1, alpha) - number(1 / 3)
    c = number(1 / 3) / jnp.sqrt(d)

    def propose(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        count, cubes, waiting = state
        of_round = jax.random.fold_in(key, count)
        x = random_bits.normal(jax.random.fold_in(of_round, 0), shape, alpha.dtype)
        y = c * x
        cube = (1 + y) ** 3
        # log(cube) + 1 - cube, with y * y taken out of what cancels
        rest = 3 * (jnp.log1p(y) - y) - y * y * (3 + y)
        accepted = (y > -1) & (_log_part(jax.random.fold_in(of_round, 1), alpha) < x * x / 2 + d * rest)
        return count + np.uint32(1), jnp.where(waiting & accepted, cube, cubes), waiting & ~accepted

    waiting = jnp.isfinite(alpha) & (alpha >= 0)
    start = (jnp.zeros((), jnp.uint32) + np.uint32(1), jnp.ones_like(alpha), waiting)
    cubes = jax.lax.while_loop(lambda state: jnp.any(state[2]), propose, start)[1]
    # what is below 1 is drawn for 1 more, times a power of a uniform number
    power = jnp.exp(_log_part(jax.random.fold_in(key, 0), alpha) / alpha)
    return jnp.where(alpha >= 0, d * cubes * jnp.where(small, power, 1), jnp.nan)


def _log_part(key: RandomSource, like: Array) -> Any:
    """The logarithm of a number in (0, 1)."""
    return jnp.log(jnp.abs(random_bits.symmetric(key, like.shape, like.dtype)))
