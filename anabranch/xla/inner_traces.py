"""JAX's traces of its own inner functions, which it keeps without bound.

Many functions of `jax.numpy` are compiled functions of their own; tracing an island traces them for the shapes at hand,
and JAX keeps each such trace for as long as the function lives: for ever. Where shapes change from step to step these
are some 30 KB a step. JAX has no public way to bound them but `jax.clear_caches`, which throws compiled programs away
as well, those of other users of JAX in the process included. So this empties the one cache of traces when it is large;
what is traced again is traced in milliseconds.
"""

from __future__ import annotations

from typing import Final

from jax._src.interpreters.partial_eval import trace_to_jaxpr

#: traces kept
MAX_INNER_TRACES: Final = 2048


def inner_traces() -> int:
    """How many traces JAX keeps at the moment."""
    size: int = trace_to_jaxpr.cache_info().currsize
    return size


def bound_inner_traces() -> None:
    """Empties the cache of traces if it holds too many."""
    if inner_traces() > MAX_INNER_TRACES:
        trace_to_jaxpr.cache_clear()
