"""Sliding windows as shifted copies: what each tap of a window sees, and back.

A *tap* is one position inside a window. XLA fuses the copies of all taps into whatever consumes them; on CPUs that is
many times faster than its own window operations (measured on 2 cores, float32, milliseconds: the gradient of 2x2
max pooling of [128, 28, 28, 32] 0.5 against 29, of 3x3 with stride 2 of [32, 112, 112, 64] 66 against 304).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax, numpy as jnp

from anabranch.core.arrays import Array

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


def shifted(data: Array, window: Window, fill: Array = 0) -> list[Any]:
    """For each tap, what it sees at every position of the window: arrays of the output's shape."""
    if 0 in window.outputs:
        return [jnp.zeros(window.outputs, data.dtype)] * window.taps
    padded = lax.pad(data, np.array(fill, data.dtype), [(low, high, 0) for low, high in window.pads])
    copies = []
    for offset in window.offsets():
        ends = [o + (n - 1) * s + 1 for o, n, s in zip(offset, window.outputs, window.strides, strict=True)]
        copies.append(lax.slice(padded, offset, ends, window.strides))
    return copies


def unshifted(parts: Sequence[Any], window: Window) -> Any:
    """The transpose of `shifted`: puts what each tap saw back in place, and sums."""
    if 0 in window.outputs:
        return jnp.zeros(window.lengths, parts[0].dtype)
    total: Any = 0
    zero = np.zeros((), parts[0].dtype)
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
