"""Measuring what one kernel costs: it is compiled alone, for inputs of given shapes, and run a few times."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import numpy as np

#: runs of a kernel, of which the quickest counts, and the time after which no further one begins (s)
_RUNS: Final = 15
_ENOUGH_SECONDS: Final = 0.05


def measured_seconds(
    program: Callable[..., Any],
    inputs: Sequence[tuple[tuple[int, ...], np.typing.DTypeLike]],
    device: jax.Device | None,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """What a run of `program` takes (s), the least of a few.

    May be called while something is traced.

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
        best, spent = float("inf"), 0.0
        for _ in range(_RUNS):
            start = clock()
            jax.block_until_ready(compiled(*values))  # type: ignore[no-untyped-call]
            taken = clock() - start
            best, spent = min(best, taken), spent + taken
            if spent > _ENOUGH_SECONDS:
                break
    return max(best, 1e-9)


def _filled(shape: tuple[int, ...], dtype: np.typing.DTypeLike) -> np.ndarray[Any, Any]:
    """Small numbers of both signs, if the dtype has them. (Zeros would all lie in one page of memory.)"""
    signed = np.dtype(dtype).kind not in "bu"
    return (np.arange(int(np.prod(shape))) % 7 - 3 * signed).astype(dtype).reshape(shape)
