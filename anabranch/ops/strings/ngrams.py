"""N-grams: neighbouring strings of a row, joined."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.core.sizes import check_storable
from anabranch.graph.building import define_op
from anabranch.ops.ragged.parts import splits_of

StringNGrams = define_op(
    "StringNGrams",
    "data: string, data_splits: Tsplits -> ngrams: string, ngrams_splits: Tsplits",
    "separator: string, ngram_widths: list(int) >= 0, left_pad: string, right_pad: string, pad_width: int, "
    "preserve_short_sequences: bool, Tsplits: {int32, int64} = int64",
    ranks={"data": 1, "data_splits": 1},
)
StringNGrams.not_differentiable()


@StringNGrams.shape
def _(data: TensorShape, data_splits: TensorShape) -> Any:
    return TensorShape([None]), data_splits


def _padding(pad_width: int, width: int) -> int:
    """How many pads stand on each side: fewer than an n-gram is wide; all that make sense for a negative width."""
    return width - 1 if pad_width < 0 else min(pad_width, width - 1)


def _count(length: int, width: int, pad_width: int) -> int:
    return max(0, length + 2 * _padding(pad_width, width) - width + 1)


@StringNGrams.host_kernel
def _(
    data: Array,
    data_splits: Array,
    *,
    separator: bytes,
    ngram_widths: list[int],
    left_pad: bytes,
    right_pad: bytes,
    pad_width: int,
    preserve_short_sequences: bool,
    ctx: OperationContext,
) -> Any:
    ctx.check(all(width > 0 for width in ngram_widths), "ngram_widths must contain positive values")
    size = len(data)
    _check_splits(data_splits, size, ctx)
    if not size or not data_splits.size:
        return np.empty(0, np.object_), np.zeros_like(data_splits)
    cuts = data_splits.tolist()
    lengths = [limit - start for start, limit in itertools.pairwise(cuts)]
    widths = [_widths(n, ngram_widths, pad_width, preserve_short_sequences, ctx) for n in lengths]
    counts = [
        sum(_count(length, width, pad_width) for width in of_row)
        for length, of_row in zip(lengths, widths, strict=True)
    ]
    check_storable([sum(counts)], np.object_, ctx.op, "the n-grams")
    found: list[bytes] = []
    for start, limit, of_row in zip(cuts[:-1], cuts[1:], widths, strict=True):
        row = data[start:limit].tolist()
        for width in of_row:
            pads = _padding(pad_width, width)
            found.extend(_ngrams(row, width, [left_pad] * pads, [right_pad] * pads, separator))
    out = np.empty(len(found), np.object_)
    out[:] = found
    return out, splits_of(np.array(counts, np.int64), data_splits.dtype)


def _widths(length: int, widths: list[int], pad_width: int, preserve: bool, ctx: OperationContext) -> list[int]:
    """The widths of the n-grams of a row: those asked for, or one that takes all of a row too short for them."""
    if not (preserve and length) or any(_count(length, width, pad_width) for width in widths):
        return widths
    ctx.check(
        pad_width >= 0,
        "pad_width must not be negative where short sequences are preserved and there are no ngram_widths, "
        f"got {pad_width}",
    )
    return [length + 2 * pad_width]


def _ngrams(row: list[bytes], width: int, left: list[bytes], right: list[bytes], separator: bytes) -> Iterator[bytes]:
    padded = [*left, *row, *right]
    for at in range(len(padded) - width + 1):
        yield separator.join(padded[at : at + width])


def _check_splits(splits: Array, size: int, ctx: OperationContext) -> None:
    """Rows begin at 0, do not overlap, and end with the data."""
    if not splits.size:
        return
    ctx.check(bool(splits[0] == 0), "First split value must be 0, got {0}", splits[0])
    lowest = np.concatenate([splits[:1], splits[:-1]])
    for least, split in zip(lowest.tolist(), splits.tolist(), strict=True):
        ctx.check(least <= split <= size, f"Invalid split value {split}, must be in [{least}, {size}]")
    ctx.check(bool(splits[-1] == size), f"Last split value must be data size. Expected {size}, got {{0}}", splits[-1])
