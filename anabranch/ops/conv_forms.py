"""Convolutions as XLA's CPU backend runs them best: sums of shifted copies, or one matrix product.

All functions work on data with channels last, [batch, *spatial, channels], and filters [*spatial, in, out], without
groups. A *tap* is one spatial position of the filter; a *column matrix* holds, for each output position, the inputs
that all taps see there, [batch, *output, taps * channels].

Measured on 2 cores (AMD EPYC, AVX-512, float32, milliseconds; `lax` is XLA's own convolution):

    batch, size, channels, filter, stride      forward          to the input      to the filter
    128  28x28    1 ->  32   5x5   1      lax 0.9  here 0.9   lax  5.1  here 1.0   lax  2.3  here 2.2
    128  28x28    1 ->  32   3x3   1      lax 0.5  here 0.3   lax  2.1  here 0.4   lax  1.7  here 0.5
     32  32x32    3 ->  64   3x3   1      lax 0.5  here 0.4   lax  1.1  here 0.5   lax  0.9  here 0.6
     16 112x112   3 ->  32   3x3   2      lax 2.6  here 0.9   lax  1.1  here 0.9   lax  0.9  here 0.6
    128   8x8    32 ->  64   3x3   1      lax 1.2  here 1.0   lax  1.2  here 0.8   lax  2.1  here 1.4
     32  28x28  128 -> 256   1x1   1      lax 23   here 3.9   lax  9.0  here 4.0   lax 33    here 5.7
     32  28x28   64 x 1      3x3   1      lax 29   here 0.5   lax 30    here 0.3   lax 13    here 13    (per channel)

Column matrices that do not fit the last-level cache lose (14x14, 32 -> 64, 5x5, batch 128: 11 against 45), hence
`MAX_COLUMN_BYTES`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

#: about half of a server's last-level cache
MAX_COLUMN_BYTES = 16 << 20
#: unrolled sums over more taps compile slowly
MAX_UNROLLED_TAPS = 32


@dataclass(frozen=True)
class Window:
    """A sliding window over data of known shape: one number per spatial axis in each attribute."""

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
        """Where each tap stands in the window, in the filter's order."""
        for place in itertools.product(*(range(k) for k in self.size)):
            yield tuple(i * d for i, d in zip(place, self.dilations, strict=True))


def shifted(data: Any, window: Window, fill: Any = 0) -> list[Any]:
    """For each tap, what it sees: arrays of shape [batch, *outputs, channels]."""
    edge = (0, 0, 0)
    padded = lax.pad(data, np.array(fill, data.dtype), [edge, *((lo, max(0, hi), 0) for lo, hi in window.pads), edge])
    batch, channels = data.shape[0], data.shape[-1]
    found = []
    for offset in window.offsets():
        ends = [o + (n - 1) * s + 1 for o, n, s in zip(offset, window.outputs, window.strides, strict=True)]
        found.append(lax.slice(padded, (0, *offset, 0), (batch, *ends, channels), (1, *window.strides, 1)))
    return found


def unshifted(parts: Sequence[Any], window: Window) -> Any:
    """The transpose of `shifted`: puts what each tap saw back in place, and sums."""
    total: Any = 0
    zero = np.zeros((), parts[0].dtype)
    for part, offset in zip(parts, window.offsets(), strict=True):
        pads = []
        for at, (before, _), length, count, stride in zip(
            offset, window.pads, window.lengths, window.outputs, window.strides, strict=True
        ):
            low = at - before
            pads.append((low, length - low - ((count - 1) * stride + 1), stride - 1))
        total = total + lax.pad(part, zero, [(0, 0, 0), *pads, (0, 0, 0)])
    return total


def columns(data: Any, window: Window) -> Any:
    """The column matrix."""
    return jnp.concatenate(shifted(data, window), axis=-1)


def column_bytes(batch: int, channels: int, window: Window, itemsize: int) -> int:
    return batch * math.prod(window.outputs) * window.taps * channels * itemsize


# ---------------------------------------------------------------------- the three convolutions
def sums_taps(channels: int, window: Window) -> bool:
    """Whether `forward` needs no column matrix: with one channel each tap is an outer product, and all of them fuse."""
    return channels == 1 and 1 < window.taps <= MAX_UNROLLED_TAPS


def forward(data: Any, filter: Any, window: Window) -> Any:
    if sums_taps(data.shape[-1], window):
        taps = _wide(filter).reshape(window.taps, filter.shape[-1])
        parts = [_wide(part) * tap for part, tap in zip(shifted(data, window), taps, strict=True)]
        return _narrowed(sum(parts), data)
    return columns(data, window) @ filter.reshape(-1, filter.shape[-1])


def to_input(filter: Any, grad: Any, window: Window) -> Any:
    channels = filter.shape[-2]
    rows = grad @ filter.reshape(-1, filter.shape[-1]).T
    parts = [_wide(rows[..., t * channels : (t + 1) * channels]) for t in range(window.taps)]
    return _narrowed(unshifted(parts, window), grad)


def to_filter(data: Any, grad: Any, window: Window) -> Any:
    depth = grad.shape[-1]
    seen = columns(data, window).reshape(-1, window.taps * data.shape[-1])
    return (seen.T @ grad.reshape(-1, depth)).reshape(*window.size, data.shape[-1], depth)


# ---------------------------------------------------------------------- per channel
def depthwise_forward(data: Any, filter: Any, window: Window) -> Any:
    channels, multiplier = filter.shape[-2:]
    taps = _wide(filter).reshape(window.taps, channels, multiplier)
    parts = [_wide(part)[..., None] * tap for part, tap in zip(shifted(data, window), taps, strict=True)]
    return _narrowed(sum(parts), data).reshape(data.shape[0], *window.outputs, channels * multiplier)


def depthwise_to_input(filter: Any, grad: Any, window: Window) -> Any:
    channels, multiplier = filter.shape[-2:]
    taps = _wide(filter).reshape(window.taps, channels, multiplier)
    incoming = _wide(grad).reshape(*grad.shape[:-1], channels, multiplier)
    return _narrowed(unshifted([(incoming * tap).sum(axis=-1) for tap in taps], window), grad)


def depthwise_to_filter(data: Any, grad: Any, window: Window) -> Any:
    channels = data.shape[-1]
    multiplier = grad.shape[-1] // channels
    incoming = _wide(grad).reshape(*grad.shape[:-1], channels, multiplier)
    summed = tuple(range(grad.ndim - 1))
    taps = [(_wide(part)[..., None] * incoming).sum(axis=summed) for part in shifted(data, window)]
    return _narrowed(jnp.stack(taps), grad).reshape(*window.size, channels, multiplier)


def _wide(x: Any) -> Any:
    """Sums are taken in float32 at least."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def _narrowed(x: Any, like: Any) -> Any:
    return x.astype(like.dtype)
