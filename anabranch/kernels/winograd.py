"""Convolutions with 3x3 filters in fewer multiplications: F(4x4, 3x3) of Lavin and Gray, "Fast Algorithms for
Convolutional Neural Networks", 2015, after Winograd.

Why it is right. A filter of three taps slides over six values and gives four. As polynomials, with the order of the
output reversed, that is the transpose of multiplying a polynomial of degree 2 by one of degree 3; the product, of
degree 5, is known from its values at six points (here 0, 1, -1, 2, -2 and infinity), and at a point, polynomials
multiply by multiplying their values. So with fixed matrices B (data to points), G (filter to points), A (points to
outputs)::

    outputs = A.T @ ((G @ filter) * (B.T @ data))               six multiplications where twelve were needed

and the same along the other axis: 36 multiplications for a tile of 4x4 outputs instead of 144. Summing over channels
turns the elementwise product into 36 matrix products [tiles, in] @ [in, out]. All three steps are linear, so that the
gradients are their transposes: to the filter from the transformed data and gradient, to the data from the transformed
filter and gradient. What the three convolutions of a training step share (transformed data, filter, gradient) XLA
computes once.

Rounding: the matrices have entries up to 8, so that float32 results differ from those of a direct sum by about 5e-6
of the largest (a direct sum's own error is about 1e-6). Only float32 is done this way.

Example (one axis, one channel)::

    >>> data, filter = np.arange(6.0), np.array([1.0, 10.0, 100.0])
    >>> FROM_POINTS.T @ ((FILTER_TO_POINTS @ filter) * (TO_POINTS.T @ data))
    array([210., 321., 432., 543.])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from jax import lax, numpy as jnp

from anabranch.core.arrays import Array
from anabranch.ops.nn.sliding import Window

#: outputs per tile and axis; values that they depend on; taps
OUTPUTS: Final = 4
TILE: Final = 6
TAPS: Final = 3

#: The transforms cost as much as they save unless the matrix products are this wide: channels, and channels times depth
#: (times the share of the tiles that the output fills). Measured: `docs/performance.md`.
MIN_CHANNELS: Final = 32
MIN_PRODUCTS: Final = 2000
#: the share of XLA's time that it takes beyond them: of wide products, and what the transforms add, per product
_LEAST_COST: Final = 0.45
_TRANSFORMS_COST: Final = 550
#: On processors with vectors of 512 bits, the share of a direct sum at their full rate: of the products; what the
#: transforms add, which go over memory and are no faster there, per channel on either side; and those of the filter,
#: per tile. They fit what was measured to and from 64 - 1,024 channels within a fifth, with a tenth on top.
_WIDE_PRODUCTS: Final = TILE**2 / (OUTPUTS * TAPS) ** 2
_WIDE_TRANSFORMS: Final = 52.0
_WIDE_FILTER: Final = 11.0

#: B, [values of data, points]
TO_POINTS: Final = np.array(
    [
        [4, 0, 0, 0, 0, 0],
        [0, -4, 4, -2, 2, 4],
        [-5, -4, -4, -1, -1, 0],
        [0, 1, -1, 2, -2, -5],
        [1, 1, 1, 1, 1, 0],
        [0, 0, 0, 0, 0, 1],
    ],
    np.float32,
)
#: G, [points, taps]
FILTER_TO_POINTS: Final = np.array(
    [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ],
    np.float32,
)
#: A, [points, outputs]
FROM_POINTS: Final = np.array(
    [[1, 0, 0, 0], [1, 1, 1, 1], [1, -1, 1, -1], [1, 2, 4, 8], [1, -2, 4, -8], [0, 0, 0, 1]], np.float32
)
#: G for both axes, [points, taps]
_FILTER_TO_POINTS_2D: Final = np.kron(FILTER_TO_POINTS, FILTER_TO_POINTS)


def applies(window: Window) -> bool:
    """Whether a convolution, of float32, can be done this way."""
    return window.size == (1, TAPS, TAPS, 1) and max(window.strides) == max(window.dilations) == 1


def cost(window: Window, channels: int, depth: int) -> float:
    """What share of the time of a direct sum a convolution of `channels` to `depth` channels takes this way."""
    products = channels * depth * _filled(window)
    narrow = max(MIN_PRODUCTS / products, MIN_CHANNELS / min(channels, depth))
    # below the thresholds little is gained, and rounding is worse: so it is not done where it might just be quicker
    return narrow if narrow > 1 else _LEAST_COST + _TRANSFORMS_COST / products


def wide_cost(window: Window, channels: int, depth: int) -> float:
    """The same where vectors have 512 bits: the share of the time of a direct sum at the processor's full rate."""
    least = cost(window, channels, depth)
    if least > 1:
        return least
    share = _WIDE_PRODUCTS + _WIDE_TRANSFORMS * (1 / channels + 1 / depth)
    return share / _filled(window) + _WIDE_FILTER / math.prod(_tiles(window))


def _filled(window: Window) -> float:
    """The share of the tiles that the output fills."""
    _, rows, columns = _tiles(window)
    return window.outputs[1] * window.outputs[2] / (rows * columns * OUTPUTS * OUTPUTS)


def forward(data: Array, filter: Array, window: Window) -> Any:
    """The convolution of [batch, height, width, in] with [3, 3, in, out]."""
    products = _batched(_data_at_points(data, window), _filter_at_points(filter), (2,), (1,))
    return _outputs(products, window)


def to_input(filter: Array, grad: Array, window: Window) -> Any:
    """Its gradient with respect to the data, from that of the output."""
    products = _batched(_gradient_at_points(grad, window), _filter_at_points(filter), (2,), (2,))
    return _data_from_points(products, window)


def to_filter(data: Array, grad: Array, window: Window) -> Any:
    """Its gradient with respect to the filter."""
    products = _batched(_data_at_points(data, window), _gradient_at_points(grad, window), (1,), (1,))
    channels, depth = products.shape[1:]
    return (_FILTER_TO_POINTS_2D.T @ products.reshape(TILE * TILE, -1)).reshape(TAPS, TAPS, channels, depth)


def _batched(one: Array, other: Array, one_axes: Sequence[int], other_axes: Sequence[int]) -> Any:
    """One matrix product for each of the 36 points; the axes are those summed over."""
    return lax.dot_general(one, other, ((one_axes, other_axes), ((0,), (0,))))


# ---------------------------------------------------------------------- the transforms
# Each is done along the height and then along the width, as sums of slices that XLA fuses. A matrix product with the
# constant matrices takes two to three times as long.
def _filter_at_points(filter: Array) -> Any:
    """[3, 3, in, out] -> [36, in, out]"""
    return (_FILTER_TO_POINTS_2D @ filter.reshape(TAPS * TAPS, -1)).reshape(TILE * TILE, *filter.shape[2:])


def _data_at_points(data: Array, window: Window) -> Any:
    """[batch, height, width, in] -> [36, tiles, in]"""
    batch, rows, columns, channels = *_tiles(window), data.shape[-1]
    pads = [
        (low, OUTPUTS * tiles + TAPS - 1 - low - length, 0)
        for (low, _), tiles, length in zip(window.pads[1:3], (rows, columns), window.lengths[1:3], strict=True)
    ]
    padded = lax.pad(data, np.float32(0), [(0, 0, 0), *pads, (0, 0, 0)])
    high = jnp.stack(_combined([_every_fourth(padded, at, rows, 1) for at in range(TILE)], TO_POINTS))
    both = jnp.stack(_combined([_every_fourth(high, at, columns, 3) for at in range(TILE)], TO_POINTS), 1)
    return both.reshape(TILE * TILE, batch * rows * columns, channels)


def _every_fourth(data: Array, start: int, count: int, axis: int) -> Any:
    return lax.slice_in_dim(data, start, start + OUTPUTS * (count - 1) + 1, OUTPUTS, axis)


def _data_from_points(products: Array, window: Window) -> Any:
    """The transpose of `_data_at_points`: tiles overlap, and what they give to one value is added."""
    batch, rows, columns = _tiles(window)
    points = products.reshape(TILE, TILE, batch, rows, columns, -1)
    wide = _overlapped(_combined(list(points), TO_POINTS.T), 2, window.pads[1][0], window.lengths[1])
    return _overlapped(_combined(list(wide), TO_POINTS.T), 2, window.pads[2][0], window.lengths[2])


def _overlapped(parts: list[Any], axis: int, start: int, length: int) -> Any:
    """Lays tiles of six values (one array each, tiles along `axis`) four apart and adds them; cuts out the data."""
    blocks = [_padded(part, axis, 0, 1) for part in parts[:OUTPUTS]]
    for at, part in enumerate(parts[OUTPUTS:]):
        blocks[at] = blocks[at] + _padded(part, axis, 1, 0)
    laid = jnp.stack(blocks, axis + 1)
    shape = (*laid.shape[:axis], laid.shape[axis] * OUTPUTS, *laid.shape[axis + 2 :])
    return lax.slice_in_dim(laid.reshape(shape), start, start + length, axis=axis)


def _padded(data: Array, axis: int, before: int, after: int) -> Any:
    pads = [(before, after, 0) if a == axis else (0, 0, 0) for a in range(data.ndim)]
    return lax.pad(data, np.float32(0), pads)


def _outputs(products: Array, window: Window) -> Any:
    """[36, tiles, out] -> [batch, height, width, out]"""
    batch, rows, columns = _tiles(window)
    points = products.reshape(TILE, TILE, batch, rows, columns, -1)
    high = jnp.stack(_combined(list(points), FROM_POINTS), 3)
    both = jnp.stack(_combined(list(high), FROM_POINTS), 4)
    full = both.reshape(batch, rows * OUTPUTS, columns * OUTPUTS, -1)
    return full[:, : window.outputs[1], : window.outputs[2]]


def _gradient_at_points(grad: Array, window: Window) -> Any:
    """The transpose of `_outputs`: [batch, height, width, out] -> [36, tiles, out]"""
    batch, rows, columns = _tiles(window)
    pads = [
        (0, OUTPUTS * tiles - length, 0) for tiles, length in zip((rows, columns), window.outputs[1:3], strict=True)
    ]
    padded = lax.pad(grad, np.float32(0), [(0, 0, 0), *pads, (0, 0, 0)])
    tiles = padded.reshape(batch, rows, OUTPUTS, columns, OUTPUTS, -1)
    high = jnp.stack(_combined([tiles[:, :, at] for at in range(OUTPUTS)], FROM_POINTS.T))
    both = jnp.stack(_combined([high[:, :, :, :, at] for at in range(OUTPUTS)], FROM_POINTS.T), 1)
    return both.reshape(TILE * TILE, batch * rows * columns, -1)


def _tiles(window: Window) -> tuple[int, int, int]:
    """Batch, and how many tiles cover the output's height and width."""
    batch, height, width, _ = window.outputs
    return batch, -(-height // OUTPUTS), -(-width // OUTPUTS)


def _combined(parts: Sequence[Any], weights: np.ndarray[Any, Any]) -> list[Any]:
    """For each column of `weights`, the sum of the parts with these weights."""
    return [
        sum(part if weight == 1 else part * weight for part, weight in zip(parts, column, strict=True) if weight)
        for column in weights.T
    ]
