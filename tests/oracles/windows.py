"""Sliding windows in plain NumPy, position by position: the oracle of convolutions and pooling."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Pairs = Sequence[tuple[int, int]]


def padding_of(
    lengths: Sequence[int], size: Sequence[int], strides: Sequence[int], dilations: Sequence[int], padding: Any
) -> Pairs:
    """(before, after) per spatial axis; `padding` is "SAME", "VALID" or the pairs themselves."""
    if padding == "VALID":
        return [(0, 0)] * len(lengths)
    if padding != "SAME":
        return list(padding)
    pairs = []
    for n, k, s, d in zip(lengths, size, strides, dilations, strict=True):
        total = max(0, ((n + s - 1) // s - 1) * s + (k - 1) * d + 1 - n)
        pairs.append((total // 2, total - total // 2))
    return pairs


def positions(
    lengths: Sequence[int], size: Sequence[int], strides: Sequence[int], dilations: Sequence[int], padding: Any
) -> tuple[tuple[int, ...], Iterator[tuple[tuple[int, ...], list[tuple[tuple[int, ...], tuple[int, ...]]]]]]:
    """The output's lengths; and for each output position, the (tap, input position) pairs inside the data."""
    pairs = padding_of(lengths, size, strides, dilations, padding)
    outputs = tuple(
        (n + sum(p) - (k - 1) * d - 1) // s + 1
        for n, k, s, d, p in zip(lengths, size, strides, dilations, pairs, strict=True)
    )

    def walk() -> Iterator[Any]:
        for out in itertools.product(*map(range, outputs)):
            seen = []
            for tap in itertools.product(*map(range, size)):
                place = tuple(
                    o * s + t * d - p[0] for o, s, t, d, p in zip(out, strides, tap, dilations, pairs, strict=True)
                )
                if all(0 <= at < n for at, n in zip(place, lengths, strict=True)):
                    seen.append((tap, place))
            yield out, seen

    return outputs, walk()


def convolve(
    data: Array, filter: Array, strides: Sequence[int], dilations: Sequence[int], padding: Any, depthwise: bool = False
) -> Array:
    """Channels last."""
    lengths, size = data.shape[1:-1], filter.shape[:-2]
    outputs, walk = positions(lengths, size, strides, dilations, padding)
    channels, depth = filter.shape[-2:]
    out = np.zeros((data.shape[0], *outputs, channels * depth if depthwise else depth), np.float64)
    for at, seen in walk:
        for tap, place in seen:
            pixel, weights = data[(slice(None), *place)].astype(np.float64), filter[tap].astype(np.float64)
            if depthwise:
                out[(slice(None), *at)] += (pixel[:, :, None] * weights).reshape(data.shape[0], -1)
            else:
                out[(slice(None), *at)] += pixel @ weights
    return out.astype(np.result_type(data))


def convolve_to_input(
    shape: Sequence[int],
    filter: Array,
    grad: Array,
    strides: Sequence[int],
    dilations: Sequence[int],
    padding: Any,
    depthwise: bool = False,
) -> Array:
    """The transpose of `convolve`: what a pixel gave to an output through a tap, comes back to it through that tap."""
    _, walk = positions(shape[1:-1], filter.shape[:-2], strides, dilations, padding)
    channels, depth = filter.shape[-2:]
    out = np.zeros(shape, np.float64)
    for at, seen in walk:
        back = grad[(slice(None), *at)].astype(np.float64)
        for tap, place in seen:
            weights = filter[tap].astype(np.float64)
            if depthwise:
                out[(slice(None), *place)] += (back.reshape(-1, channels, depth) * weights).sum(-1)
            else:
                out[(slice(None), *place)] += back @ weights.T
    return out.astype(grad.dtype)


def convolve_to_filter(
    data: Array,
    shape: Sequence[int],
    grad: Array,
    strides: Sequence[int],
    dilations: Sequence[int],
    padding: Any,
    depthwise: bool = False,
) -> Array:
    """The transpose of `convolve` in the filter: each tap adds up the products of its pixels with their outputs."""
    _, walk = positions(data.shape[1:-1], shape[:-2], strides, dilations, padding)
    channels, depth = shape[-2:]
    out = np.zeros(shape, np.float64)
    for at, seen in walk:
        back = grad[(slice(None), *at)].astype(np.float64)
        for tap, place in seen:
            pixel = data[(slice(None), *place)].astype(np.float64)
            if depthwise:
                out[tap] += (pixel[:, :, None] * back.reshape(-1, channels, depth)).sum(0)
            else:
                out[tap] += pixel.T @ back
    return out.astype(grad.dtype)


def pool(data: Array, size: Sequence[int], strides: Sequence[int], padding: Any, reduce: Callable[..., Array]) -> Array:
    """Pools every axis; `reduce(values, axis=0)` sees what lies inside the data."""
    ones = [1] * data.ndim
    outputs, walk = positions(data.shape, size, strides, ones, padding)
    out = np.zeros(outputs, data.dtype)
    for at, seen in walk:
        out[at] = reduce(np.array([data[place] for _, place in seen]), axis=0)
    return out


def max_pool_places(data: Array, size: Sequence[int], strides: Sequence[int], padding: Any) -> Any:
    """For each output position, where its first maximum lies: pairs (output position, input position)."""
    _, walk = positions(data.shape, size, strides, [1] * data.ndim, padding)
    return [(at, max(seen, key=lambda pair: data[pair[1]])[1]) for at, seen in walk]
