"""What a ragged tensor is to kernels: vectors that cut rows out of what lies below them, and the values.

The splits s of n rows are n + 1 numbers: row i is what lies at s[i] up to s[i + 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import Array, ElementType
from anabranch.core.kernel_context import OperationContext


def check_splits(splits: Array, size: int, ctx: OperationContext, what: str) -> None:
    """Makes the step fail unless `splits` cut `size` values into rows."""
    ctx.check(splits.ndim == 1 and splits.size > 0, f"{what} must be a vector that is not empty: it ends each row")
    ctx.check(splits[0] == 0, f"{what} must begin with 0, got {{0}}", splits[0])
    ctx.check(bool((splits[1:] >= splits[:-1]).all()), f"{what} must not decrease")
    ctx.check(
        splits[-1] == size,
        f"{what} must end with {{1}}, the number of values that they cut into rows, got {{0}}",
        splits[-1],
        np.int64(size),
    )


def check_nested(nested: Sequence[Array], values: Array, ctx: OperationContext, what: str) -> None:
    """Makes the step fail unless each of the nested splits cuts what the next one holds, and the last the values."""
    ctx.check(values.ndim > 0, "the values of a ragged tensor must not be a scalar")
    for i, splits in enumerate(nested):
        below = values.shape[0] if i + 1 == len(nested) else len(nested[i + 1]) - 1
        check_splits(splits, below, ctx, f"{what}[{i}]")


def ranges(starts: Array, limits: Array) -> Any:
    """The integers from starts[i] up to limits[i], for one i after another, int64."""
    starts, lengths = starts.astype(np.int64), (limits - starts).astype(np.int64)
    offsets = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(starts - offsets, lengths)


def splits_of(lengths: Array, dtype: ElementType) -> Any:
    """The splits of rows of these lengths."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(dtype)


def rows_of(rows: Array, nested: Sequence[Array], values: Array) -> tuple[list[Any], Any]:
    """The rows of these numbers: their nested splits, and their values."""
    out = []
    for splits in nested:
        starts, limits = splits[rows], splits[rows + 1]
        out.append(splits_of(limits - starts, splits.dtype))
        rows = ranges(starts, limits)
    return out, values[rows]
