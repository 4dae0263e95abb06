"""Convolutions with 3x3, 5x5, 1x7 and 7x1 filters in fewer multiplications, in blocks, on XLA's threads
(`pool_winograd.c`).

The algorithm is that of `kernels.winograd`, F(4x4, 3x3), a quarter of the multiplications, and so is the rounding:
about 5e-6 of the largest result. At the same points, 5x5 filters are F(2x2, 5x5), 36 multiplications where a direct
sum takes 100. Filters of seven taps along one axis are F(4, 7), 10 for 28, at the points 0, 1, -1, 3/2, -3/2, 2/3,
-2/3, 1/4, -4 and infinity, which round as those do. In `kernels.winograd` XLA takes the whole data to points and back,
each time over memory; here some tiles at a time, which stay in a core's cache. So it pays from fewer channels on. For
convolutions of float32 and bfloat16, with bias and ReLU behind them where they have them, and for their gradients
(`pool_winograd_filter.c` has that to the filter).

What is of bfloat16 is computed in float32, and rounded once: where vectors multiply bfloat16 but twice as fast as
float32, fewer multiplications of float32 take less time. Results do not depend on how many threads there are.
"""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.core.processor import core_count
from anabranch.kernels import onednn, pool_handler, winograd
from anabranch.kernels.convolutions import CONVOLUTIONS, WIDE_SHARES, WITH_BIAS, Direction
from anabranch.ops.nn.conv import Geometry

#: its name among the kernels
NAME: Final = "winograd in blocks"
#: forward, to the data and to the filter, as `WIDE_SHARES` has them
FORWARD, TO_INPUT, TO_FILTER = 0, 1, 2
#: tiles, and channels of the result, whose sums registers hold; numbers of a vector
_DOWN, _WIDE, _LANES = 12, 32, 16
#: the most points of a tile
_MOST_POINTS: Final = winograd.TILE**2
#: how many taps a filter may have along both axes, and along one
_EITHER_TAPS: Final = (3, 5)
_LINE_TAPS: Final = 7
#: an array inside the memory that a call works in begins at a multiple of it (bytes)
_ALIGNMENT: Final = 64
#: the most threads that a call uses: each has memory of its own
_MOST_PLACES: Final = 64
#: the most tiles of a part, with taps along both axes and along one, and the bytes at points that they may take
_MOST_TILES, _MOST_LINES = 48, 96
_MOST_BYTES: Final = 7 << 18
#: the most tiles whose products are added to a filter's sums at a time: at a point, those of 256 channels on both sides
#: and their sums take half a megabyte, of a core's second cache
_MOST_OF_A_GROUP: Final = 132
#: channels of the data, whose sums for a filter registers hold
_SUMMED: Final = 8
#: so many parts for each thread take the tiles of a group to points, so that none waits long for the last
_PARTS_OF_A_THREAD: Final = 4
#: what it takes to begin a part, in tiles: to read the filter anew
_BEGINNING: Final = 6
#: convolutions of fewer channels, or with fewer multiplications (of a direct sum), take less time otherwise
LEAST_CHANNELS: Final = 16
LEAST_PRODUCTS: Final = 1 << 24
_MOST_CHANNELS: Final = 1 << 14
#: Of each direction, the share of a direct sum at the processor's full rate: of the products; what taking tiles to
#: points and back adds, per channel on either side; and the filter, per tile (of which few pay for it). They fit what
#: was measured to and from 64 - 512 channels within a quarter: `docs/performance.md`.
_SHARES: Final = ((0.4, 4.0, 32.0), (0.36, 4.0, 32.0), (0.33, 6.0, 8.0))


class TileShape(NamedTuple):
    """What a filter's tiles are.

    Attributes:
        taps: of the filter, along an axis.
        axes: 0: along both axes, 1: along rows (a column of taps), 2: along columns.
        points: of a tile.
        high, wide: outputs of a tile: as many along an axis as there are points that taps leave.
    """

    taps: int
    axes: int
    points: int
    high: int
    wide: int

    @staticmethod
    def of(geometry: Geometry) -> TileShape:
        _, down, across, _ = geometry.window.size
        if down == across:
            outputs = winograd.TILE + 1 - down
            return TileShape(down, 0, _MOST_POINTS, outputs, outputs)
        return TileShape(_LINE_TAPS, 1, 10, 4, 1) if down > across else TileShape(_LINE_TAPS, 2, 10, 1, 4)

    def count(self, result: tuple[int, ...]) -> int:
        """Of a result."""
        return result[0] * -(-result[1] // self.high) * -(-result[2] // self.wide)


class Cut(NamedTuple):
    """A convolution as the handler takes it.

    Attributes:
        numbers: what the handler reads.
        scratch_bytes: what it works in.
    """

    numbers: tuple[int, ...]
    scratch_bytes: int

    @staticmethod
    def of(geometry: Geometry, at: int, biased: bool) -> Cut:
        """How a convolution, or a gradient of it, is cut."""
        if at == TO_FILTER:
            return Cut._of_filter(geometry)
        tile = TileShape.of(geometry)
        data, result = _arrays(geometry, at)
        pads = [low for low, _ in geometry.window.pads[1:3]]
        if at == TO_INPUT:
            pads = [taps - 1 - low for taps, low in zip(geometry.window.size[1:3], pads, strict=True)]
        filled, threads = _whole(data[3], _LANES), min(core_count(), _MOST_PLACES)
        tiles = tile.count(result)
        fitting = _MOST_BYTES // (tile.points * filled * np.float32().nbytes)
        most = min(max(fitting, _DOWN), _MOST_LINES if tile.axes else _MOST_TILES)
        of_a_part = _tiles_of_a_part(tiles, most, threads)
        floats = tile.points * (of_a_part * (filled + _WIDE) + 2 * _LANES) * threads
        floats += _whole(result[3], _WIDE) * tile.points * data[3]
        numbers = (*data, *result[1:], *pads, int(at == TO_INPUT), int(biased), tile.taps, tile.axes)
        return Cut((*numbers, of_a_part, threads), floats * np.float32().nbytes + _ALIGNMENT)

    @staticmethod
    def _of_filter(geometry: Geometry) -> Cut:
        tile = TileShape.of(geometry)
        data, output = _arrays(geometry, FORWARD)
        tiles = tile.count(output)
        groups = -(-tiles // _MOST_OF_A_GROUP)
        of_a_group = _whole(-(-tiles // groups), _DOWN)
        threads = min(core_count(), _MOST_PLACES)
        of_a_part = -(-of_a_group // (threads * _PARTS_OF_A_THREAD))
        channels, depth = _whole(data[3], _LANES), _whole(output[3], _WIDE)
        sums = _whole(data[3], _SUMMED) * depth
        floats = tile.points * (of_a_group * (channels + depth) + sums + 3 * _LANES)
        pads = [low for low, _ in geometry.window.pads[1:3]]
        numbers = (*data, *output[1:], *pads, 0, 0, tile.taps, tile.axes, of_a_group, of_a_part)
        return Cut(numbers, floats * np.float32().nbytes + _ALIGNMENT)


def _arrays(geometry: Geometry, at: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What is read beside the filter, and the result: batch, rows, columns, channels."""
    data, output = (tuple(map(int, shape)) for shape in (geometry.shape, geometry.out_shape))
    return (output, data) if at == TO_INPUT else (data, output)


def _tiles_of_a_part(tiles: int, most: int, threads: int) -> int:
    """Such that the threads are soon through with all parts, one of which takes so many tiles at most."""

    def seconds(of_a_part: int) -> int:
        """What the thread with the most parts takes, in the time of a tile."""
        return -(-tiles // (of_a_part * threads)) * (of_a_part + _BEGINNING)

    # (of equals the largest: it comes first)
    return min(range(most - most % _DOWN, 0, -_DOWN), key=seconds)


def _whole(length: int, step: int) -> int:
    """The least multiple of a step that is not below a length."""
    return -(-length // step) * step


def pays(geometry: Geometry, at: int) -> bool:
    """Whether a convolution has a filter of these that is worth it, and its arrays are not too large."""
    window = geometry.window
    _, down, across, _ = size = window.size
    is_square = down == across and down in _EITHER_TAPS
    if size[0] != 1 or not (is_square or (down, across) in ((_LINE_TAPS, 1), (1, _LINE_TAPS))):
        return False
    if max(*window.strides, *window.dilations) > 1:
        return False
    if any(low >= taps for taps, (low, _) in zip(size, window.pads, strict=True)):
        return False
    data, result = _arrays(geometry, at)
    channels, depth = data[3], result[3]
    products = int(np.prod(geometry.out_shape)) * window.taps * geometry.channels
    enough = min(channels, depth) >= LEAST_CHANNELS and products >= LEAST_PRODUCTS
    fits = max(int(np.prod(array)) for array in (data, result)) <= onednn.MOST_ELEMENTS
    return enough and fits and max(channels, depth) <= _MOST_CHANNELS


def cost(geometry: Geometry, at: int) -> float:
    """What share of the time of XLA's own convolution it takes."""
    data, result = _arrays(geometry, at)
    tile = TileShape.of(geometry)
    tiles, of_a_tile = tile.count(result), tile.high * tile.wide
    filled = int(np.prod(result[:3])) / (tiles * of_a_tile)
    products, transforms, of_filter = _SHARES[at]
    share = (products + transforms * (1 / data[3] + 1 / result[3])) / filled + of_filter / tiles
    # of what a direct sum multiplies for a tile
    direct = (winograd.OUTPUTS * winograd.TAPS) ** 2 / (of_a_tile * geometry.window.taps)
    return share * WIDE_SHARES[at] * direct * tile.points / _MOST_POINTS


def can_multiply() -> bool:
    """Whether the handler is there, and the processor has the instructions."""
    library = onednn.library()
    return library is not None and not pool_handler.missing() and _has_instructions(library)


def _has_tiles() -> bool:
    """Whether the processor multiplies tiles of bfloat16, so much faster that nothing is gained here."""
    library = onednn.library()
    return library is not None and library.has_tiles


@functools.cache
def _has_instructions(library: onednn.Library) -> bool:
    return bool(pool_handler.loaded(library).anabranch_pool_winograd_can())


def call(node: str, one: Array, other: Array, bias: Array | None, geometry: Geometry, at: int) -> Any:
    """A call of a convolution, in a program that is being traced.

    Args:
        node: the operation that it computes, for errors.
        one: what is convolved, of float32 or bfloat16, as all arrays are; for a gradient to the data, that of the
            output.
        other: the filter, [rows, columns, in, out], of the convolution itself; for a gradient to it, that of the
            output.
        bias: [out], with which ReLU follows; None: neither.
    """
    cut = Cut.of(geometry, at, bias is not None)
    struct = jax.ShapeDtypeStruct
    shape = tuple(map(int, geometry.filter_shape)) if at == TO_FILTER else _arrays(geometry, at)[1]
    results = (
        struct(shape, one.dtype),  # type: ignore[no-untyped-call]
        struct((cut.scratch_bytes,), np.uint8),  # type: ignore[no-untyped-call]
    )
    given = (one, other) if bias is None else (one, other, bias)
    target = pool_handler.WINOGRAD_FILTER_TARGET if at == TO_FILTER else pool_handler.WINOGRAD_TARGET
    found, _ = jax.ffi.ffi_call(target, results)(*given, node=node, numbers=np.array(cut.numbers, np.int64))
    return found


def _register(direction: Direction, at: int) -> None:
    def takes(case: KernelCase) -> bool:
        geometry = direction.covered(case)
        if geometry is None or not pays(geometry, at) or not can_multiply():
            return False
        if case.attrs["T"] == dtypes.float32:
            return True
        # lines save less than what vectors of bfloat16 do
        return not _has_tiles() and TileShape.of(geometry).axes == 0

    def estimate(case: KernelCase) -> float:
        geometry = direction.covered(case)
        assert geometry is not None  # `takes` has said so
        return cost(geometry, at)

    def kernel(*inputs: Array, ctx: OperationContext) -> Any:
        sizes = None if direction.sizes is None else inputs[direction.sizes]
        geometry = direction.geometry(ctx.op.attrs, [value.shape for value in inputs], sizes)
        one, other = (inputs[i] for i in direction.operands)
        bias = None if direction.bias is None else inputs[direction.bias]
        return call(ctx.op.name, *((other, one) if at == TO_INPUT else (one, other)), bias, geometry, at)

    register_kernel(
        direction.op_type,
        NAME,
        device_type="CPU",
        types={"T": [dtypes.float32, dtypes.bfloat16]},
        applies=takes,
        cost=estimate,
    )(kernel)


for _at in (FORWARD, TO_INPUT, TO_FILTER):
    _register(CONVOLUTIONS[0][_at], _at)
_register(WITH_BIAS, FORWARD)
