"""Powers of integers, modulo 2 to the number of their bits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from anabranch.core.arrays import Array


def integer_power(x: Array, y: Array) -> Any:
    """Powers, elementwise, by squaring (Knuth, The Art of Computer Programming, 4.6.3).

    `jnp.power` looks at the six lowest bits of an exponent alone, since results beyond them seldom fit. Here they wrap
    around, as in TensorFlow.

    Args:
        x, y: integers of one dtype, whose shapes broadcast; no exponent is negative.
    """
    x, y = jnp.broadcast_arrays(x, y)

    def has_more(state: tuple[Any, Any, Any]) -> Any:
        return jnp.any(state[2] > 0)

    def step(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        power, square, left = state
        return jnp.where(left & 1 == 1, power * square, power), square * square, left >> 1

    return jax.lax.while_loop(has_more, step, (jnp.ones_like(x), x, y))[0]
