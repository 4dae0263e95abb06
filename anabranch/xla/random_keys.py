"""The random keys of operations in a step: the same numbers in a compiled program and where kernels run directly."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.values import TensorValue
from anabranch.graph.step_nodes import StepNode
from anabranch.ops.arithmetic.random_bits import HostKey

#: 2**64 divided by the golden ratio: spreads the bits of small seeds
_GOLDEN: Final = 0x9E3779B97F4A7C15
_LOW_63_BITS: Final = 0x7FFFFFFFFFFFFFFF


def host_key(op: StepNode, run_seed: int, counter: int) -> HostKey:
    """As `random_key`, of numbers that are known."""
    seed, seed2 = _seeds_of(op, run_seed)
    return HostKey.of((seed * _GOLDEN + seed2) & _LOW_63_BITS).folded(counter)


def _seeds_of(op: StepNode, run_seed: TensorValue | int) -> tuple[Any, int]:
    """The seeds of an operation; one without has the session's, and its name, so that it differs from others."""
    seed, seed2 = op.attrs.get("seed", 0), op.attrs.get("seed2", 0)
    return (run_seed, hash_name(op.name)) if seed == 0 and seed2 == 0 else (seed, seed2)


def random_key(op: StepNode, run_seed: TensorValue, counter: TensorValue) -> TensorValue:
    """The random key of an operation in a step.

    Args:
        run_seed: the session's seed (a traced uint32 scalar) for operations that have none of their own.
        counter: how often the operation ran before in this session (a traced uint32 scalar).
    """
    seed, seed2 = _seeds_of(op, run_seed)
    # Threefry keys: they are independent whatever the seeds. Only the bulk of the numbers comes from a faster generator
    # (`ops.arithmetic.random_bits`). One million float32 numbers on 2 cores: Threefry 1.3 ms, rbg and unsafe_rbg 4.4,
    # ours 0.2.
    if isinstance(seed, int):
        word: Any = (seed * _GOLDEN + seed2) & _LOW_63_BITS
    else:
        mixed = jnp.asarray(seed, np.uint64) * np.uint64(_GOLDEN) + np.uint64(seed2)
        word = (mixed & np.uint64(_LOW_63_BITS)).astype(np.int64)
    base = jax.random.key(word)
    return jax.random.fold_in(base, counter)


def hash_name(name: str) -> int:
    """A stable 31-bit hash (FNV-1a) of an operation's name."""
    value = 0x811C9DC5
    for byte in name.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value >> 1
