"""Products in a loop with a matrix that stays the same: it may be transposed before the loop.

Which way a matrix is read sooner depends on the processor. With 32 rows and a matrix of 1024 x 2048 (float32, XLA), a
product takes 0.62 ms on a Xeon where what is summed up lies together, and 1.0 where a row of the result does; on a Zen
5 it is the other way round (docs/performance.md). So it is measured, where matrices are large and rows are few. Small
ones stay in a processor's caches, and are read quickest along the result; for many rows it makes no difference.
"""

from __future__ import annotations

import math
from typing import Any, Final

import jax.numpy as jnp
from jax import lax

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.kernels import KernelCase, register_kernel

#: what takes several times of the second factor: its name among the kernels
NAME: Final = "turned"
#: matrices of so many elements are measured, for so many rows
_LARGE: Final = 1 << 20
_FEW_ROWS: Final = range(4, 129)
#: shares of the time that the matrix takes as it lies, where a row of the result lies together there, and where not
_AGAINST_ROWS, _FOR_ROWS = 1.1, 0.75


def _is_open(case: KernelCase) -> bool:
    """Whether only a measurement tells which way is quicker."""
    rows, matrix = (described.shape for described in case.inputs)
    return rows[0] in _FEW_ROWS and math.prod(matrix) >= _LARGE


def _applies(case: KernelCase) -> bool:
    return not case.attrs["transpose_a"] and (bool(case.attrs["transpose_b"]) or _is_open(case))


def _cost(case: KernelCase) -> float:
    return _FOR_ROWS if case.attrs["transpose_b"] else _AGAINST_ROWS


def _transposed(matrix: Array) -> Any:
    return jnp.swapaxes(matrix, 0, 1)


@register_kernel(
    "MatMul",
    NAME,
    device_type="CPU",
    types={"T": [dtypes.float32, dtypes.float64]},
    applies=_applies,
    cost=_cost,
    rough=_is_open,
    prepares={1: _transposed},
)
def _(a: Array, b: Array, *, transpose_b: bool) -> Any:
    # a transposition here would be taken out of the loop, and cancelled against the one before it
    return lax.dot_general(a, b, (((1,), (0 if transpose_b else 1,)), ((), ())))
