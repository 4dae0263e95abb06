"""Gradients to filters of convolutions as direct sums, in blocks, on XLA's threads (`pool_filters.c`).

For filters of any size and strides, of float32, and of bfloat16 on processors that multiply pairs of it but no tiles
(AVX512-BF16 without AMX). Both arrays are packed, a group of places at a time, which stays in a core's caches while it
is added up. A core packs for itself alone: what another one has just written it would have to fetch from there.

How sums are grouped depends on the lengths, and on how many cores there are; not on how many threads come to help.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.core.processor import core_count
from anabranch.kernels import onednn, pool_handler
from anabranch.kernels.convolutions import CONVOLUTIONS
from anabranch.ops.nn.conv import Geometry

#: its name among the kernels
NAME: Final = "direct in blocks"
_TO_FILTER: Final = 2
#: channels of the data whose sums registers hold; numbers of a vector
_ROWS, _LANES = 8, 16
#: bytes of a vector, and of a sum
_VECTOR_BYTES, _SUM_BYTES = 64, 4
#: the memory of a thread begins at a multiple of it (bytes)
_PAGE: Final = 4096
#: the most threads that a call uses: each has memory of its own
_MOST_PLACES: Final = 64
#: about how many cycles a core takes to pack a byte, to read and write one of a sum that lies in its second cache or in
#: the third, and to begin the sums that its registers hold
_PACKED_BYTE, _SUMMED_BYTE, _SUMMED_FAR_BYTE, _BEGINNING = 0.14, 0.04, 0.16, 60
#: what a part packs, and its sums, take so much of a core's second cache (bytes)
_MOST_BYTES: Final = 3 << 18
#: into so many spans channels are divided
_DIVISIONS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)
#: steps of a group, if there are as many: sums are read and written once for each group, and rows between groups are
#: packed twice
_STEPS: Final = (128, 192, 256, 384, 512)
#: places of a row, where places are laid out anew; so few are one row, if no such row divides them; and of the longest
#: row, which a group has at least
_NEW_ROW, _SINGLE_ROW, _LONGEST_ROW = 128, 512, 1024
#: convolutions of fewer channels, or with fewer multiplications, take less time otherwise; of data with fewer, if there
#: are fewer numbers in a row of a filter's taps, too
LEAST_CHANNELS: Final = 8
_LEAST_IN_A_ROW: Final = 16
LEAST_PRODUCTS: Final = 1 << 22
_MOST_TAPS: Final = 64
#: of the time of XLA's own convolution, in float32 and in bfloat16: with one tap and many positions of the window, with
#: one tap and few, with more taps, and of data with few channels, as a rule the first layer of a network
_SHARES: Final = {dtypes.float32: (0.075, 0.18, 0.28, 0.26), dtypes.bfloat16: (0.09, 0.09, 0.21, 0.115)}
_MANY_POSITIONS: Final = 1024
#: on processors with AMX nothing was measured, and of the library's kernels much
_NOT_MEASURED: Final = 1.2


class Sums(NamedTuple):
    """A gradient to a filter as the handler takes it.

    Attributes:
        numbers: what the handler reads.
        scratch_bytes: what it works in.
    """

    numbers: tuple[int, ...]
    scratch_bytes: int

    @staticmethod
    def of(geometry: Geometry, is_half: bool) -> Sums:
        """How a gradient is cut, for float32 or (`is_half`) bfloat16."""
        threads = min(core_count(), _MOST_PLACES)
        layer = Summation.of(geometry)
        cut = _best(layer, is_half, threads)
        numbers = (*layer, *cut, threads)
        data_bytes, grad_bytes = layer.vector_bytes(cut, is_half)
        place = -(-cut.data_span // _LANES) * data_bytes + cut.grad_span // _LANES * grad_bytes
        sums = layer.taps * _whole(layer.depth, _ROWS) * _whole(layer.out_depth, _LANES) * _SUM_BYTES
        return Sums(numbers, threads * _whole(place, _PAGE) + cut.shares * sums + _VECTOR_BYTES)


class SummationCut(NamedTuple):
    """Groups and parts.

    Attributes:
        group_rows, group_images: rows of a group, of one image, or of images that it has whole.
        data_span, grad_span: channels of the data, and of the gradient, that a part takes.
        shares: among how many parts the groups are divided.
    """

    group_rows: int
    group_images: int
    data_span: int
    grad_span: int
    shares: int


class Summation(NamedTuple):
    """A convolution, in the handler's order of numbers.

    Attributes:
        channels: of the data.
        depth: how many numbers of the data a tap sees: the channels of a place, or, where these are few, of all places
            that a row of taps sees, which is one tap then.
    """

    batch: int
    rows: int
    columns: int
    channels: int
    depth: int
    out_rows: int
    out_columns: int
    out_depth: int
    taps_down: int
    taps_across: int
    stride_down: int
    stride_across: int
    top: int
    left: int

    @staticmethod
    def of(geometry: Geometry) -> Summation:
        window = geometry.window
        (batch, rows, columns, channels), (_, out_rows, out_columns, out_depth) = _lengths(geometry)
        down, across = map(int, window.size[1:3])
        depth, across = (channels * across, 1) if channels < LEAST_CHANNELS else (channels, across)
        (top, _), (left, _) = window.pads[1:3]
        strides = int(window.strides[1]), int(window.strides[2])
        outputs = out_rows, out_columns, out_depth
        return Summation(batch, rows, columns, channels, depth, *outputs, down, across, *strides, int(top), int(left))

    @property
    def taps(self) -> int:
        return self.taps_down * self.taps_across

    def cuts(self, wanted: int, is_half: bool, threads: int) -> list[SummationCut]:
        """Ways to cut it, with about so many steps in a group."""
        steps = self._steps(is_half)
        group_rows = _even(self.out_rows, -(-wanted // steps)) if steps * self.out_rows > wanted else self.out_rows
        images = min(self.batch, max(1, round(wanted / (steps * self.out_rows)))) if group_rows == self.out_rows else 1
        groups = self._groups(group_rows, images)
        data_spans = {_whole(-(-self.depth // n), _ROWS) for n in _DIVISIONS}
        grad_spans = {_whole(-(-self.out_depth // n), _LANES) for n in _DIVISIONS}
        shares = {1, min(threads, groups), min(2 * threads, groups)}
        return [SummationCut(group_rows, images, d, g, s) for d in data_spans for g in grad_spans for s in shares]

    def vector_bytes(self, cut: SummationCut, is_half: bool) -> tuple[int, int]:
        """Of a vector of the data, and of one of the gradient, in a group, as it is packed."""
        kinds = min(self.stride_down, self.taps_down)
        seen = self.taps_across * kinds * (cut.group_rows + (self.taps_down - 1) // self.stride_down)
        rows = (cut.group_images * of_image for of_image in (seen, cut.group_rows))
        data, grad = ((count * self._steps(is_half) + 1) * _VECTOR_BYTES for count in rows)
        return data, grad

    def cycles(self, cut: SummationCut, is_half: bool, threads: int) -> float:
        """About how many cycles of a core it takes, until the last thread is ready."""
        vectors = self.taps * cut.data_span * cut.grad_span / _LANES
        data_bytes, grad_bytes = self.vector_bytes(cut, is_half)
        packed = (cut.data_span * data_bytes + cut.grad_span * grad_bytes) / _LANES
        sums = vectors * _VECTOR_BYTES
        wide = -(-cut.grad_span // _LANES)
        held = 1 if wide == 1 else 2 if wide in (2, 4) else 3  # vectors of the gradient, by registers
        steps = cut.group_images * cut.group_rows * self._steps(is_half)
        # a single vector waits for sums, and two for what is read
        group = vectors * steps / 2 * (1.5, 1.1, 1.0)[held - 1] + vectors / (_ROWS * held) * _BEGINNING
        group += packed * _PACKED_BYTE
        groups = self._groups(cut.group_rows, cut.group_images)
        if groups > cut.shares:
            group += sums * (_SUMMED_BYTE if packed + sums < _MOST_BYTES else _SUMMED_FAR_BYTE)
        parts = -(-self.depth // cut.data_span) * -(-self.out_depth // cut.grad_span) * cut.shares
        whole = self.taps * self.depth * self.out_depth * _SUM_BYTES
        added = whole * (cut.shares + 1) * _SUMMED_FAR_BYTE / threads if cut.shares > 1 else 0.0
        return -(-parts // threads) * -(-groups // cut.shares) * group + added

    def _steps(self, is_half: bool) -> int:
        """Of a row."""
        return -(-self.out_columns // 2) if is_half else self.out_columns

    def _groups(self, group_rows: int, group_images: int) -> int:
        return -(-self.batch // group_images) * -(-self.out_rows // group_rows)


@functools.lru_cache(1024)
def _best(layer: Summation, is_half: bool, threads: int) -> SummationCut:
    """How a layer is cut such that the last thread is likely to be ready first."""
    cuts = {cut for steps in _STEPS for cut in layer.cuts(steps, is_half, threads)}
    return min(sorted(cuts), key=lambda cut: layer.cycles(cut, is_half, threads))


def _lengths(geometry: Geometry) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of the data and of the output: batch, rows, columns, channels.

    A window of one tap without strides has no rows: places are laid out anew, so that they come in whole groups, and in
    pairs.
    """
    data, output = (tuple(map(int, shape)) for shape in (geometry.shape, geometry.out_shape))
    window = geometry.window
    if window.taps > 1 or max(window.strides) > 1 or any(map(any, window.pads)):
        return data, output
    places = data[0] * data[1] * data[2]
    row = max((n for n in range(2, min(places, _NEW_ROW) + 1, 2) if places % n == 0), default=0)
    if row > _NEW_ROW // 4:
        lengths = (1, places // row, row)
    elif places <= _SINGLE_ROW:
        lengths = (1, 1, places)
    else:
        return data, output
    return (*lengths, data[3]), (*lengths, output[3])


def _whole(length: int, step: int) -> int:
    """The least multiple of a step that is not below a length."""
    return -(-length // step) * step


def _even(length: int, most: int) -> int:
    """How long the parts of a length are where they are as few, and as even, as `most` for each allows."""
    return -(-length // -(-length // most))


def pays(geometry: Geometry) -> bool:
    """Whether a gradient is worth it, and its arrays are not too large."""
    window, size = geometry.window, geometry.window.size
    if len(size) != 4 or size[0] != 1 or max(size) > _MOST_TAPS or max(window.dilations) > 1:
        return False
    if any(low >= taps or high > taps for taps, (low, high) in zip(size[1:3], window.pads[1:3], strict=True)):
        return False
    output = geometry.out_shape
    products = int(np.prod(output)) * window.taps * geometry.channels
    fits = max(map(int, map(np.prod, (geometry.shape, output, geometry.filter_shape)))) <= onednn.MOST_ELEMENTS
    enough = geometry.channels >= LEAST_CHANNELS or geometry.channels * size[2] >= _LEAST_IN_A_ROW
    enough = enough and output[3] >= LEAST_CHANNELS and products >= LEAST_PRODUCTS
    return fits and enough and _lengths(geometry)[1][2] <= _LONGEST_ROW


def cost(geometry: Geometry, dtype: dtypes.DType) -> float:
    """What share of the time of XLA's own convolution it takes."""
    library = onednn.library()
    factor = _NOT_MEASURED if library is not None and library.has_tiles else 1.0
    single, few, several, first = (factor * share for share in _SHARES[dtype])
    if geometry.channels < LEAST_CHANNELS:
        depth = geometry.channels * geometry.window.size[2]
        return first * _whole(depth, _ROWS) / depth
    if geometry.window.taps > 1:
        return several
    return few if math.prod(geometry.out_shape[:3]) < _MANY_POSITIONS else single


def can_sum(is_half: bool) -> bool:
    """Whether the handler is there, and the processor has the instructions, and none that are quicker."""
    library = onednn.library()
    if library is None or pool_handler.missing():
        return False
    return _has_instructions(library, is_half) and not (is_half and library.has_tiles)


@functools.cache
def _has_instructions(library: onednn.Library, is_half: bool) -> bool:
    return bool(pool_handler.loaded(library).anabranch_pool_filters_can(int(is_half)))


def call(node: str, data: Array, grad: Array, geometry: Geometry) -> Any:
    """A call of a gradient to a filter, in a program that is being traced.

    Args:
        node: the operation that it computes, for errors.
        data: [batch, rows, columns, in], of float32 or bfloat16, as all arrays are.
        grad: of the output.
    """
    sums = Sums.of(geometry, data.dtype != np.float32)
    struct = jax.ShapeDtypeStruct
    results = (
        struct(tuple(map(int, geometry.filter_shape)), data.dtype),  # type: ignore[no-untyped-call]
        struct((sums.scratch_bytes,), np.uint8),  # type: ignore[no-untyped-call]
    )
    numbers = np.array(sums.numbers, np.int64)
    found, _ = jax.ffi.ffi_call(pool_handler.FILTERS_TARGET, results)(data, grad, node=node, numbers=numbers)
    return found


def _register() -> None:
    direction = CONVOLUTIONS[0][_TO_FILTER]

    def takes(case: KernelCase) -> bool:
        geometry = direction.covered(case)
        return geometry is not None and pays(geometry) and can_sum(case.attrs["T"] == dtypes.bfloat16)

    def estimate(case: KernelCase) -> float:
        geometry = direction.covered(case)
        assert geometry is not None  # `takes` has said so
        return cost(geometry, case.attrs["T"])

    def kernel(*inputs: Array, ctx: OperationContext) -> Any:
        assert direction.sizes is not None  # gradients have them
        geometry = direction.geometry(ctx.op.attrs, [value.shape for value in inputs], inputs[direction.sizes])
        data, grad = (inputs[i] for i in direction.operands)
        return call(ctx.op.name, data, grad, geometry)

    register_kernel(
        direction.op_type,
        NAME,
        device_type="CPU",
        types={"T": [dtypes.float32, dtypes.bfloat16]},
        applies=takes,
        cost=estimate,
    )(kernel)


_register()
