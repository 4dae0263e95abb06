"""What random operations that run on the host draw from: for each run of each operation a stream of its own."""

from __future__ import annotations

import functools
from typing import Final

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import DTypeLike, NDArray

from anabranch.graph.step_nodes import StepNode
from anabranch.xla.random_keys import hash_name

Words = NDArray[np.uint32 | np.uint64]

#: how many numbers lie between the streams of two runs, out of 2**128: the golden section of them, which is what
#: NumPy's `PCG64.jumped` takes too
_JUMP: Final = 0x9E3779B97F4A7C15F39CC0605CEDC835
_STREAMS: Final = (1 << 128) - 1
#: of so many operations it is remembered where their first streams begin
_REMEMBERED: Final = 4096


class _Mixed(ISeedSequence):
    """A seed that is well mixed already: to mix it anew for each run would take longer than most kernels draw for."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def generate_state(self, n_words: int, dtype: DTypeLike = np.uint32) -> Words:
        """The words; PCG64 asks for four of 64 bits."""
        return self._words


def generator(op: StepNode, count: int, run_seed: int) -> np.random.Generator:
    """What an operation draws from when it has run `count` times.

    Args:
        run_seed: what operations without a seed of their own take for one.
    """
    # any `ISeedSequence` will do, which NumPy's annotations do not say
    bits = np.random.PCG64(_mixed(*_seed(op, run_seed)))  # type: ignore[arg-type]
    if count:
        bits.advance(count * _JUMP & _STREAMS)
    return np.random.Generator(bits)


@functools.lru_cache(_REMEMBERED)
def _mixed(seed: int, seed2: int) -> _Mixed:
    return _Mixed(np.random.SeedSequence((seed, seed2)).generate_state(4, np.uint64))


def _seed(op: StepNode, run_seed: int) -> tuple[int, int]:
    seed, seed2 = op.attrs.get("seed", 0), op.attrs.get("seed2", 0)
    if seed == 0 and seed2 == 0:
        return run_seed, hash_name(op.name)
    return seed & 0xFFFFFFFFFFFFFFFF, seed2 & 0xFFFFFFFFFFFFFFFF
