"""Convolutions in NumPy: products of matrices, whose rows are what each position of the filter sees.

For the first calls of a program, which run before it is compiled (docs/decisions/0046). Data and gradients have their
channels last here, [batch, *spatial, channels], and filters are [*spatial, channels of a group, out]; the window covers
all axes. Numbers of 16 bits are summed in float32, as XLA does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import as_strided

from anabranch.core.arrays import Array, HostArray
from anabranch.ops.nn.sliding import (
    Window,
    padded_lengths,
    padded_on_host,
    shifted,
    unshifted,
    wide,
    without_padding,
)

#: elements of what positions see that are laid out at a time, unless one example has more
_MOST_SEEN: Final = 1 << 22


def convolved(data: Array, filter: Array, window: Window) -> HostArray:
    """The convolution; groups where the filter is for fewer channels than the data has."""
    channels, (*_, width, out) = data.shape[-1], filter.shape
    given, weights = wide(data), wide(filter)
    result = np.zeros((*window.outputs[:-1], out), weights.dtype)
    if not result.size or not filter.size:
        return result.astype(data.dtype)
    if _is_per_channel(channels, width):
        taps = weights.reshape(-1, channels, out // channels)
        each = result.reshape(*result.shape[:-1], channels, -1)
        for part, tap in zip(shifted(given, window, 0, np), taps, strict=True):
            each += part[..., None] * tap
        return result.astype(data.dtype, copy=False)
    padded = padded_on_host(given, window)
    for these, inputs, outputs in _parts(window, channels, filter.shape):
        kernel = weights[..., outputs].reshape(-1, outputs.stop - outputs.start)
        place = result[these, ..., outputs]
        place[...] = (_seen(padded[these, ..., inputs], window) @ kernel).reshape(place.shape)
    return result.astype(data.dtype, copy=False)


def convolved_to_data(filter: Array, grad: Array, window: Window) -> HostArray:
    """The gradient to the data of what comes in for the result."""
    channels, (*_, width, out) = window.lengths[-1], filter.shape
    weights, incoming = wide(filter), wide(grad)
    if not grad.size or not filter.size:
        return np.zeros(window.lengths, grad.dtype)
    if _is_per_channel(channels, width):
        taps = weights.reshape(-1, channels, out // channels)
        each = incoming.reshape(*incoming.shape[:-1], channels, -1)
        parts = ((each * tap).sum(axis=-1) for tap in taps)
        result: HostArray = unshifted(parts, window, np)
        return result.astype(grad.dtype, copy=False)
    padded = np.zeros(padded_lengths(window), weights.dtype)
    for these, inputs, outputs in _parts(window, channels, filter.shape):
        kernel = weights[..., outputs].reshape(-1, outputs.stop - outputs.start)
        part = incoming[these, ..., outputs]
        products = part.reshape(-1, part.shape[-1]) @ kernel.T
        seen = products.reshape(*part.shape[:-1], window.taps, width)
        target = padded[these, ..., inputs]
        for tap, offset in enumerate(window.offsets()):
            target[(slice(None), *window.seen(offset)[1:-1])] += seen[..., tap, :]
    result = without_padding(padded, window)
    return result.astype(grad.dtype, copy=False)


def convolved_to_filter(data: Array, grad: Array, window: Window, shape: tuple[int, ...]) -> HostArray:
    """The gradient to the filter, which has this shape, of what comes in for the result."""
    channels, (*_, width, out) = data.shape[-1], shape
    given, incoming = wide(data), wide(grad)
    result = np.zeros(shape, incoming.dtype)
    if not grad.size or not result.size:
        return result.astype(grad.dtype)
    if _is_per_channel(channels, width):
        each = incoming.reshape(-1, channels, out // channels)
        taps = result.reshape(-1, channels, out // channels)
        for tap, part in zip(taps, shifted(given, window, 0, np), strict=True):
            np.einsum("nc,ncm->cm", part.reshape(-1, channels), each, out=tap)
        return result.astype(grad.dtype, copy=False)
    padded = padded_on_host(given, window)
    for these, inputs, outputs in _parts(window, channels, shape):
        part = incoming[these, ..., outputs]
        place = result[..., outputs]
        sums = _seen(padded[these, ..., inputs], window).T @ part.reshape(-1, part.shape[-1])
        place += sums.reshape(place.shape)
    return result.astype(grad.dtype, copy=False)


def _is_per_channel(channels: int, width: int) -> bool:
    """Whether each channel is convolved for itself: sums of shifted copies then, as there is no product to speak of."""
    return width == 1 and channels > 1


def _parts(window: Window, channels: int, filter: tuple[int, ...]) -> Iterator[tuple[slice, slice, slice]]:
    """Examples, the channels of a group, and its outputs: what is computed at a time."""
    width = filter[-2]
    groups = channels // width
    depth = filter[-1] // groups
    of_one = math.prod(window.outputs[1:-1]) * window.taps * width
    step = max(1, _MOST_SEEN // of_one)
    for start in range(0, window.outputs[0], step):
        these = slice(start, min(start + step, window.outputs[0]))
        for group in range(groups):
            yield these, slice(group * width, (group + 1) * width), slice(group * depth, (group + 1) * depth)


def _seen(padded: HostArray, window: Window) -> Any:
    """What each position sees, [examples * positions, taps * channels]."""
    spatial = slice(1, -1)
    batch, *inner, channel = padded.strides
    taps, counts = window.size[spatial], window.outputs[spatial]
    between = [step * n for step, n in zip(inner, window.strides[spatial], strict=True)]
    within = [step * n for step, n in zip(inner, window.dilations[spatial], strict=True)]
    shape = (len(padded), *counts, *taps, padded.shape[-1])
    # a view that stays inside of `padded`: the window has no position in which it would reach beyond
    seen = as_strided(padded, shape, (batch, *between, *within, channel), writeable=False)
    return seen.reshape(len(padded) * math.prod(counts), window.taps * padded.shape[-1])
