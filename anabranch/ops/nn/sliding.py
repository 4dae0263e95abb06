"""Sliding windows as shifted copies: what each tap of a window sees, and back.

A *tap* is one position inside a window. XLA fuses the copies of all taps into whatever consumes them; on CPUs that is
many times faster than its own window operations (measured on 2 cores, float32, milliseconds: the gradient of 2x2
max pooling of [128, 28, 28, 32] 0.5 against 29, of 3x3 with stride 2 of [32, 112, 112, 64] 66 against 304).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax, numpy as jnp

from anabranch.core.arrays import Array, ArrayLibrary, ElementType

#: expressions over more taps compile slowly
MAX_UNROLLED_TAPS = 36


@dataclass(frozen=True)
class Window:
    """A window that slides over data of known shape: one number per axis in each attribute."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    #: lengths of the data and of the output
    lengths: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def taps(self) -> int:
        return math.prod(self.size)

    def offsets(self) -> Iterator[tuple[int, ...]]:
        """Where each tap stands in the window, in row-major order."""
        for place in itertools.product(*(range(k) for k in self.size)):
            yield tuple(i * d for i, d in zip(place, self.dilations, strict=True))

    def seen(self, offset: Sequence[int]) -> tuple[slice, ...]:
        """Where a tap looks in the padded data, from all positions of the window."""
        steps = zip(offset, self.outputs, self.strides, strict=True)
        return tuple(slice(at, at + (count - 1) * stride + 1, stride) for at, count, stride in steps)


def shifted(data: Array, window: Window, fill: Array = 0, xp: ArrayLibrary = jnp) -> list[Any]:
    """For each tap, what it sees at every position of the window: arrays of the output's shape (NumPy's: views)."""
    if 0 in window.outputs:
        return [xp.zeros(window.outputs, data.dtype)] * window.taps
    if xp is np:
        padded = padded_on_host(data, window, fill)
        return [padded[window.seen(offset)] for offset in window.offsets()]
    padded = lax.pad(data, np.array(fill, data.dtype), [(low, high, 0) for low, high in window.pads])
    copies = []
    for offset in window.offsets():
        ends = [o + (n - 1) * s + 1 for o, n, s in zip(offset, window.outputs, window.strides, strict=True)]
        copies.append(lax.slice(padded, offset, ends, window.strides))
    return copies


def unshifted(parts: Iterable[Any], window: Window, xp: ArrayLibrary = jnp) -> Any:
    """The transpose of `shifted`: puts what each tap saw back in place, and sums."""
    parts = iter(parts)
    first = next(parts)
    if 0 in window.outputs:
        return xp.zeros(window.lengths, first.dtype)
    parts = itertools.chain([first], parts)
    if xp is np:
        return _unshifted_on_host(parts, window, first.dtype)
    total: Any = 0
    zero = np.zeros((), first.dtype)
    for part, offset in zip(parts, window.offsets(), strict=True):
        pads = []
        for at, (before, _), length, count, stride in zip(
            offset, window.pads, window.lengths, window.outputs, window.strides, strict=True
        ):
            low = at - before
            pads.append((low, length - low - ((count - 1) * stride + 1), stride - 1))
        total = total + lax.pad(part, zero, pads)
    return total


def wide(x: Array) -> Any:
    """Sums are taken in float32 at least: `x` as float32 if it has 16 bits."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x


# ---------------------------------------------------------------------- in NumPy
def padded_on_host(data: Array, window: Window, fill: Array = 0) -> Any:
    """NumPy's data with its padding around it; itself where there is none."""
    if not any(map(any, window.pads)):
        return data
    return np.pad(data, window.pads, constant_values=np.array(fill, data.dtype))


def without_padding(padded: Array, window: Window) -> Any:
    """The inverse of `padded_on_host`."""
    return padded[tuple(slice(low, low + n) for (low, _), n in zip(window.pads, window.lengths, strict=True))]


def padded_lengths(window: Window) -> tuple[int, ...]:
    """The lengths of the padded data."""
    return tuple(low + n + high for (low, high), n in zip(window.pads, window.lengths, strict=True))


def _unshifted_on_host(parts: Iterable[Any], window: Window, dtype: ElementType) -> Any:
    total = np.zeros(padded_lengths(window), dtype)
    for part, offset in zip(parts, window.offsets(), strict=True):
        total[window.seen(offset)] += part
    return without_padding(total, window)


def combined_on_host(combine: np.ufunc, data: Array, window: Window, fill: Array) -> Any:
    """What a window without dilations sees, combined into one number: axis by axis, which is fewer taps than all.

    Args:
        combine: with whom the order of the taps does not matter, such as `np.maximum`.
        fill: what changes nothing when it is combined; the padding.
    """
    if 0 in window.outputs:
        return np.zeros(window.outputs, data.dtype)
    seen = padded_on_host(data, window, fill)
    for axis, (size, stride, count) in enumerate(zip(window.size, window.strides, window.outputs, strict=True)):
        at = [slice(None)] * seen.ndim
        parts = []
        for tap in range(size):
            at[axis] = slice(tap, tap + (count - 1) * stride + 1, stride)
            parts.append(seen[tuple(at)])
        seen = parts[0] if size == 1 else combine(parts[0], parts[1])
        for part in parts[2:]:
            combine(seen, part, out=seen)
    return seen
