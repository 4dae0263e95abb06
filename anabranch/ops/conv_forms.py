"""Convolutions as XLA's CPU backend runs them best: sums of shifted copies, or one matrix product.

All functions work on data with channels last, [batch, *spatial, channels], and filters [*spatial, in, out], without
groups; the window covers all axes of the data, with size 1 for batch and channels. A *column matrix* holds, for each
output position, the inputs that all taps of the filter see there, [batch, *output, taps * channels].

Measured on 2 cores (AMD EPYC, AVX-512, float32, milliseconds; `lax` is XLA's own convolution):

    batch, size, channels, filter, stride      forward          to the input      to the filter
    128  28x28    1 ->  32   5x5   1      lax 0.9  here 0.9   lax  5.1  here 1.0   lax  2.3  here 2.2
    128  28x28    1 ->  32   3x3   1      lax 0.5  here 0.3   lax  2.1  here 0.4   lax  1.7  here 0.5
     32  32x32    3 ->  64   3x3   1      lax 0.5  here 0.4   lax  1.1  here 0.5   lax  0.9  here 0.6
     16 112x112   3 ->  32   3x3   2      lax 2.6  here 0.9   lax  1.1  here 0.9   lax  0.9  here 0.6
    128   8x8    32 ->  64   3x3   1      lax 1.2  here 1.0   lax  1.2  here 0.8   lax  2.1  here 1.4
     32  28x28  128 -> 256   1x1   1      lax 8.5  here 3.9   lax  9.0  here 4.0   lax 33    here 5.7
     32  28x28   64 x 1      3x3   1      lax 29   here 0.5   lax 30    here 0.3   lax 13    here 13    (per channel)

Column matrices that do not fit the last-level cache lose (14x14, 32 -> 64, 5x5, batch 128: 11 against 45), hence
`MAX_COLUMN_BYTES`.
"""

from __future__ import annotations

import math
from typing import Any

from jax import numpy as jnp

from anabranch.ops.sliding import MAX_UNROLLED_TAPS, Window, shifted, unshifted, wide

#: about half of a server's last-level cache
MAX_COLUMN_BYTES = 16 << 20


def columns(data: Any, window: Window) -> Any:
    """The column matrix."""
    return jnp.concatenate(shifted(data, window), axis=-1)


def column_bytes(window: Window, itemsize: int) -> int:
    return math.prod(window.outputs) * window.taps * itemsize


# ---------------------------------------------------------------------- the three convolutions
def sums_taps(channels: int, window: Window) -> bool:
    """Whether `forward` needs no column matrix: with one channel each tap is an outer product, and all of them fuse."""
    return channels == 1 and 1 < window.taps <= MAX_UNROLLED_TAPS


def forward(data: Any, filter: Any, window: Window) -> Any:
    if sums_taps(data.shape[-1], window):
        taps = wide(filter).reshape(window.taps, filter.shape[-1])
        parts = [wide(part) * tap for part, tap in zip(shifted(data, window), taps, strict=True)]
        return _narrowed(sum(parts), data)
    return columns(data, window) @ filter.reshape(-1, filter.shape[-1])


def to_input(filter: Any, grad: Any, window: Window) -> Any:
    channels = filter.shape[-2]
    rows = grad @ filter.reshape(-1, filter.shape[-1]).T
    parts = [wide(rows[..., t * channels : (t + 1) * channels]) for t in range(window.taps)]
    return _narrowed(unshifted(parts, window), grad)


def to_filter(data: Any, grad: Any, window: Window) -> Any:
    depth = grad.shape[-1]
    seen = columns(data, window).reshape(-1, window.taps * data.shape[-1])
    return (seen.T @ grad.reshape(-1, depth)).reshape(*window.size[1:-1], data.shape[-1], depth)


# ---------------------------------------------------------------------- per channel
def depthwise_forward(data: Any, filter: Any, window: Window) -> Any:
    channels, multiplier = filter.shape[-2:]
    taps = wide(filter).reshape(window.taps, channels, multiplier)
    parts = [wide(part)[..., None] * tap for part, tap in zip(shifted(data, window), taps, strict=True)]
    return _narrowed(sum(parts), data).reshape(*window.outputs[:-1], channels * multiplier)


def depthwise_to_input(filter: Any, grad: Any, window: Window) -> Any:
    channels, multiplier = filter.shape[-2:]
    taps = wide(filter).reshape(window.taps, channels, multiplier)
    incoming = wide(grad).reshape(*grad.shape[:-1], channels, multiplier)
    return _narrowed(unshifted([(incoming * tap).sum(axis=-1) for tap in taps], window), grad)


def depthwise_to_filter(data: Any, grad: Any, window: Window) -> Any:
    channels = data.shape[-1]
    multiplier = grad.shape[-1] // channels
    incoming = wide(grad).reshape(*grad.shape[:-1], channels, multiplier)
    summed = tuple(range(grad.ndim - 1))
    taps = [(wide(part)[..., None] * incoming).sum(axis=summed) for part in shifted(data, window)]
    return _narrowed(jnp.stack(taps), grad).reshape(*window.size[1:-1], channels, multiplier)


def _narrowed(x: Any, like: Any) -> Any:
    return x.astype(like.dtype)
