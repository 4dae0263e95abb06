"""Measuring what kernels cost: each is compiled alone, for inputs of given shapes; then they run in turns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np

#: runs of each kernel, of which the quickest counts
_TURNS: Final = 15
#: the time for each kernel after which no further turn begins (s), but for the first few, which have longer
_ENOUGH_SECONDS: Final = 0.05
_FEW_TURNS, _LONG_SECONDS = 3, 0.25
#: the share of the turns in which what is clearly quicker has to be
_MOST_TURNS: Final = 0.75

#: runs a kernel once, and says what that took (s)
Run = Callable[[], float]


def timed_run(
    program: Callable[..., Any],
    inputs: Sequence[tuple[tuple[int, ...], np.typing.DTypeLike]],
    device: jax.Device | None,
    clock: Callable[[], float] = time.perf_counter,
) -> Run:
    """Compiles `program`, runs it once, and gives what runs it again and says what that took.

    May be called while something is traced, and so may what it gives.

    Args:
        program: a function of arrays that JAX can trace.
        inputs: the arrays' shapes and dtypes.
        device: the `jax.Device` to run on; None: JAX's default device.

    Raises:
        Exception: whatever compiling or running it raised.
    """
    with jax.ensure_compile_time_eval(), jax.default_device(device):
        values = [jax.device_put(_filled(shape, dtype), device) for shape, dtype in inputs]
        compiled = jax.jit(program).lower(*values).compile()
        jax.block_until_ready(compiled(*values))  # type: ignore[no-untyped-call]

    def run() -> float:
        with jax.ensure_compile_time_eval(), jax.default_device(device):
            start = clock()
            jax.block_until_ready(compiled(*values))  # type: ignore[no-untyped-call]
            return max(clock() - start, 1e-9)

    return run


def seconds_in_turns(runs: Mapping[str, Run]) -> dict[str, list[float]]:
    """What kernels take in each of a few turns (s), of which each runs every one of them once.

    Whatever else the machine does meanwhile slows all of them alike, or is seen in single turns only. A kernel that
    fails is left out.
    """
    found: dict[str, list[float]] = {name: [] for name in runs}
    spent = 0.0
    for turn in range(1, _TURNS + 1):
        for name in list(found):
            try:
                taken = runs[name]()
            except Exception:  # what fails alone is not chosen; where all fail, the step says why
                del found[name]
                continue
            found[name].append(taken)
            spent += taken
        if spent > len(found) * (_ENOUGH_SECONDS if turn >= _FEW_TURNS else _LONG_SECONDS):
            break
    return found


def is_mostly_quicker(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether a kernel was the quicker one in nearly all of the turns that both ran in."""
    turns = min(len(one), len(other))
    return sum(a < b for a, b in zip(one, other, strict=False)) >= math.ceil(_MOST_TURNS * turns)


def _filled(shape: tuple[int, ...], dtype: np.typing.DTypeLike) -> np.ndarray[Any, Any]:
    """Small numbers of both signs, if the dtype has them. (Zeros would all lie in one page of memory.)"""
    signed = np.dtype(dtype).kind not in "bu"
    return (np.arange(int(np.prod(shape))) % 7 - 3 * signed).astype(dtype).reshape(shape)
