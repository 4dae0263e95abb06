"""Rows of a large table, changed in place: repeated indices combined, with static shapes  (§4.2).

A sparse update must cost what its rows cost, whatever the size of the table. The table is a donated buffer, which a
scatter changes in place; so nothing here may compute on the table as a whole, not even a `where` that keeps the old
value of a step that fails: it is the indices that are moved beyond the end of the table, where a scatter drops them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import Array
from anabranch.graph.kernel_contexts import StepTracingContext


def guarded(ctx: StepTracingContext, indices: Array, size: int) -> Any:
    """`indices`, or beyond the end (`size`) when a check of the island does not hold."""
    wide = jnp.asarray(indices).astype(jnp.int64)
    return wide if ctx.guard is None else jnp.where(ctx.guard, wide, np.int64(size))


def combined_rows(
    indices: Array, values: Array, size: int, combine: Callable[[Any, Any], Any] = jnp.add
) -> tuple[Any, Any]:
    """Combines the values of equal indices.

    Args:
        indices: [n], integers; those that are not below `size` stay beyond the end.
        values: [n, ...].
        size: the number of rows of the table.
        combine: addition or multiplication.

    Returns:
        int64 [n]: each index once, and beyond the end of the table, all different, where an index was a repetition;
        [n, ...]: the combined values, anything at repetitions.
    """
    count = indices.shape[0]
    indices = indices.astype(jnp.int64)
    unused = np.int64(size) + jax.lax.iota(jnp.int64, count)
    if count <= 1:
        return jnp.where(indices < size, indices, unused), values
    # One sort of index and position packed into a word is several times faster than an argsort.
    width = count.bit_length()
    packed = jnp.sort((indices << width) | jax.lax.iota(jnp.int64, count))
    distinct, values = packed >> width, values[packed & (2**width - 1)]
    is_first = jnp.concatenate([jnp.ones((1,), bool), distinct[1:] != distinct[:-1]])
    group = jax.lax.cummax(jnp.where(is_first, jax.lax.iota(jnp.int64, count), 0))
    rows = jnp.where(is_first & (distinct < size), distinct, unused)
    return rows, _combined(values, group, is_first, combine)


def _combined(values: Array, group: Array, is_first: Array, combine: Callable[[Any, Any], Any]) -> Any:
    """At the first position of each group the combination of all its values."""
    at = values.at[jnp.where(is_first, values.shape[0], group)]
    return at.add(values, mode="drop") if combine is jnp.add else at.multiply(values, mode="drop")
