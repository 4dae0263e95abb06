"""Convolutions that XLA's CPU backend runs better in another form: one matrix product, or sums of shifted copies.

All functions work on data with channels last, [batch, *spatial, channels], and filters [*spatial, in, out], without
groups; the window covers all axes of the data, with size 1 for batch and channels. What is not covered here is left to
XLA's own convolution, which reaches most of the machine's speed; `docs/performance.md` has the measurements.

* A filter of size 1, or one that covers the whole data, is a matrix product of reshaped operands.
* The gradient with respect to the data is one matrix product and a sum of shifted copies. That is better where XLA
  would exchange filter and gradient because the gradient is smaller than the filter, and where the data is so much
  larger than the gradient, or has so few channels, that XLA computes too much (`spreading_cost`).
* A convolution per channel (depthwise) is a sum of shifted copies, which fuse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax, numpy as jnp

from anabranch.core.arrays import Array
from anabranch.ops.nn.sliding import MAX_UNROLLED_TAPS, Window, shifted, unshifted, wide

#: what the sum over taps costs per product, in multiplications and additions of a matrix product (measured)
_SUM_COST = 48
#: XLA's matrix products with so few columns are slow
_FEW_CHANNELS = 8
#: shares of XLA's time: where it exchanges filter and gradient, of strided windows, of few channels, and of few
#: channels where the window stood everywhere
_EXCHANGED_COST = 0.06
_STRIDED_COST = 1.5
_FEW_CHANNELS_COST = 0.3
_FULL_COST = 1.2


# ---------------------------------------------------------------------- as one product
def is_product(window: Window) -> bool:
    """Whether every input is seen by at most one position of the window, and by one tap or by all of them."""
    return window.taps == 1 or _covers(window)


def _covers(window: Window) -> bool:
    """Whether the window covers the whole data and has one position."""
    spatial = slice(1, -1)
    return window.size[spatial] == window.lengths[spatial] and not any(map(any, window.pads[spatial]))


def can_spread(window: Window) -> bool:
    """Whether the gradient with respect to the data can be spread tap by tap: not where one product is all there is."""
    return window.taps <= MAX_UNROLLED_TAPS and not is_product(window)


def occupied_share(window: Window) -> float:
    """Positions of the window for each place of the data."""
    return math.prod(window.outputs[1:-1]) / math.prod(window.lengths[1:-1])


def spreading_cost(channels: int, depth: int, window: Window) -> float:
    """What share of XLA's time the gradient with respect to the data takes where it is spread tap by tap.

    XLA multiplies once per tap for each place of the data, also where the window never stood; here it is once per tap
    for each position of the window. To add up one product costs as much as `_SUM_COST` multiplications, which XLA is
    spared, unless the data has so few channels that its matrix product is no better. Where the window has fewer
    positions than taps, XLA takes the gradient for the filter, and is slow.
    """
    share = occupied_share(window)
    if math.prod(window.outputs[1:-1]) < window.taps:
        return _EXCHANGED_COST
    if max(window.strides) > 1:
        return _STRIDED_COST
    if channels < _FEW_CHANNELS:
        return _FEW_CHANNELS_COST if channels == 1 or share < 1 else _FULL_COST
    return share * (depth + _SUM_COST) / depth


def _seen(data: Array, window: Window) -> Any:
    """What the positions of the window of an `is_product` convolution see, [positions, taps * channels]."""
    if _covers(window):
        return data.reshape(data.shape[0], -1)
    return shifted(data, window)[0].reshape(-1, data.shape[-1])


def forward(data: Array, filter: Array, window: Window) -> Any:
    depth = filter.shape[-1]
    return (_seen(data, window) @ filter.reshape(-1, depth)).reshape(*window.outputs[:-1], depth)


def to_input(filter: Array, grad: Array, window: Window) -> Any:
    channels, depth = filter.shape[-2:]
    rows = lax.dot_general(grad.reshape(-1, depth), filter.reshape(-1, depth), (((1,), (1,)), ((), ())))
    if _covers(window):
        return rows.reshape(window.lengths)
    rows = rows.reshape(*grad.shape[:-1], window.taps, channels)
    parts = [wide(rows[..., tap, :]) for tap in range(window.taps)]
    whole = _narrowed(_overlapped(parts, window), grad)
    return lax.optimization_barrier(whole)  # type: ignore[no-untyped-call]


def _overlapped(parts: Sequence[Any], window: Window) -> Any:
    """The sum that `unshifted` gives, of parts that lie in memory: one axis after the other, each of them read once.

    `unshifted` is for parts that are computed while they are summed. What uses this sum must not take it apart again
    (hence the barrier around it): average pooling's gradient, say, would compute each element four times.
    """
    sums = list(parts)
    for axis in reversed(range(len(window.size))):
        taps = window.size[axis]
        sums = [_placed(sums[first : first + taps], window, axis) for first in range(0, len(sums), taps)]
    return sums[0]


def _placed(parts: Sequence[Any], window: Window, axis: int) -> Any:
    """The sum of what the taps along one axis saw, where they saw it."""
    length, count, stride = window.lengths[axis], window.outputs[axis], window.strides[axis]
    zero = np.zeros((), parts[0].dtype)
    total: Any = 0
    for tap, part in enumerate(parts):
        low = tap * window.dilations[axis] - window.pads[axis][0]
        pads = [(0, 0, 0)] * part.ndim
        pads[axis] = (low, length - low - ((count - 1) * stride + 1), stride - 1)
        total = total + lax.pad(part, zero, pads)
    return total


def to_filter(data: Array, grad: Array, window: Window) -> Any:
    depth = grad.shape[-1]
    product = lax.dot_general(_seen(data, window), grad.reshape(-1, depth), (((0,), (0,)), ((), ())))
    return product.reshape(*window.size[1:-1], data.shape[-1], depth)


# ---------------------------------------------------------------------- per channel
def depthwise_forward(data: Array, filter: Array, window: Window) -> Any:
    channels, multiplier = filter.shape[-2:]
    taps = wide(filter).reshape(window.taps, channels, multiplier)
    parts = [wide(part)[..., None] * tap for part, tap in zip(shifted(data, window), taps, strict=True)]
    return _narrowed(sum(parts), data).reshape(*window.outputs[:-1], channels * multiplier)


def depthwise_to_input(filter: Array, grad: Array, window: Window) -> Any:
    channels, multiplier = filter.shape[-2:]
    taps = wide(filter).reshape(window.taps, channels, multiplier)
    incoming = wide(grad).reshape(*grad.shape[:-1], channels, multiplier)
    return _narrowed(unshifted([(incoming * tap).sum(axis=-1) for tap in taps], window), grad)


def depthwise_to_filter(data: Array, grad: Array, window: Window) -> Any:
    channels = data.shape[-1]
    multiplier = grad.shape[-1] // channels
    incoming = wide(grad).reshape(*grad.shape[:-1], channels, multiplier)
    summed = tuple(range(grad.ndim - 1))
    taps = [(wide(part)[..., None] * incoming).sum(axis=summed) for part in shifted(data, window)]
    return _narrowed(jnp.stack(taps), grad).reshape(*window.size[1:-1], channels, multiplier)


def _narrowed(x: Array, like: Array) -> Any:
    return x.astype(like.dtype)
