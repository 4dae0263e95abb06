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
from anabranch.kernels import onednn, pool_handler
from anabranch.kernels.convolutions import CONVOLUTIONS
from anabranch.kernels.processor import core_count
from anabranch.ops.nn.conv import Geometry

#: its name among the kernels
NAME: Final = "direct in blocks"
_TO_FILTER: Final = 2
#: channels of the data, and of the gradient, whose sums registers hold; numbers of a vector
_ROWS, _COLUMNS, _LANES = 8, 48, 16
#: bytes of a vector, and of a sum
_VECTOR_BYTES, _SUM_BYTES = 64, 4
#: the memory of a thread begins at a multiple of it (bytes)
_PAGE: Final = 4096
#: the most threads that a call uses: each has memory of its own
_MOST_PLACES: Final = 64
#: into so many spans channels are divided
_DIVISIONS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
#: the least steps of a group, if there are as many: sums are read and written once for each group
_STEPS: Final = 192
#: cycles that a core takes to pack a byte, and to read and write one of a sum that lies in its second cache
_CYCLES_OF_A_PACKED_BYTE, _CYCLES_OF_A_BYTE = 0.12, 0.04
#: what a part packs, and its sums, lie in half a megabyte, of a core's second cache
_MOST_BYTES: Final = 3 << 18
#: convolutions of fewer channels, or with fewer multiplications, take less time otherwise
LEAST_CHANNELS: Final = 8
LEAST_PRODUCTS: Final = 1 << 22
_MOST_TAPS: Final = 64
#: of the time of XLA's own convolution, in float32 and in bfloat16: with one tap and many positions of the window, with
#: one tap and few, and with more taps
_SHARES: Final = {dtypes.float32: (0.075, 0.18, 0.28), dtypes.bfloat16: (0.09, 0.09, 0.21)}
_MANY_POSITIONS: Final = 1024


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
        window = geometry.window
        (batch, rows, columns, depth), (_, out_rows, out_columns, out_depth) = _lengths(geometry)
        steps = -(-out_columns // 2) if is_half else out_columns
        of_image = -(-_STEPS // steps)
        group_rows = out_rows if of_image >= out_rows else _even(out_rows, of_image)
        images = min(batch, max(1, round(_STEPS / (steps * out_rows)))) if group_rows == out_rows else 1
        down, across = window.size[1:3]
        seen = min(window.strides[1], down) * (group_rows + (down - 1) // window.strides[1]) * across
        data_bytes, grad_bytes = ((images * n * steps + 1) * _VECTOR_BYTES for n in (seen, group_rows))
        groups = -(-batch // images) * -(-out_rows // group_rows)
        work = Work(depth, out_depth, window.taps, groups, images * group_rows * steps, data_bytes, grad_bytes)
        data_span, grad_span, shares = work.cut(min(core_count(), _MOST_PLACES))
        places = min(core_count(), _MOST_PLACES)
        pads = (low for low, _ in window.pads[1:3])
        numbers = (
            *(batch, rows, columns, depth, out_rows, out_columns, out_depth),
            *(down, across, *window.strides[1:3], *pads),
            *(group_rows, images, data_span, grad_span, shares, places),
        )
        place = _whole(-(-data_span // _LANES) * data_bytes + grad_span // _LANES * grad_bytes, _PAGE)
        sums = window.taps * _whole(depth, _ROWS) * _whole(out_depth, _LANES) * _SUM_BYTES
        return Sums(tuple(map(int, numbers)), places * place + shares * sums + _VECTOR_BYTES)


class Work(NamedTuple):
    """What there is to do.

    Attributes:
        depth, out_depth: channels of the data, and of the gradient.
        taps: of the filter.
        groups, steps: how many groups there are, and steps of each.
        data_bytes, grad_bytes: of a vector of either in a group, as it is packed.
    """

    depth: int
    out_depth: int
    taps: int
    groups: int
    steps: int
    data_bytes: int
    grad_bytes: int

    def cut(self, threads: int) -> tuple[int, int, int]:
        """Channels of the data and of the gradient that a part takes, and among how many parts the groups are divided.

        Those with which the last thread is likely to be ready first.
        """
        data_spans = {_whole(-(-self.depth // n), _ROWS) for n in _DIVISIONS}
        grad_spans = {_whole(-(-self.out_depth // n), _LANES) for n in _DIVISIONS}
        shares = {1, min(threads, self.groups), min(2 * threads, self.groups)}
        choices = [(d, g, s) for d in sorted(data_spans) for g in sorted(grad_spans) for s in sorted(shares)]
        return min(choices, key=lambda choice: self._cycles(choice, threads))

    def _cycles(self, choice: tuple[int, int, int], threads: int) -> float:
        """About how many cycles of a core it takes."""
        data_span, grad_span, shares = choice
        vectors = self.taps * data_span * grad_span / _LANES
        packed = (data_span * self.data_bytes + grad_span * self.grad_bytes) / _LANES
        sums = vectors * _VECTOR_BYTES
        wide = -(-grad_span // _LANES)
        filled = wide / (wide + (wide % 3 == 1) * 0.34 + (wide == 1))  # registers
        group = self.steps * vectors / 2 / filled + packed * _CYCLES_OF_A_PACKED_BYTE
        if self.groups > shares:
            group += sums * (_CYCLES_OF_A_BYTE if packed + sums < _MOST_BYTES else 4 * _CYCLES_OF_A_BYTE)
        parts = -(-self.depth // data_span) * -(-self.out_depth // grad_span) * shares
        whole = self.taps * self.depth * self.out_depth * _SUM_BYTES
        added = whole * (shares + 1) * 4 * _CYCLES_OF_A_BYTE / threads if shares > 1 else 0.0
        return -(-parts // threads) * -(-self.groups // shares) * group + added


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
    row = max((n for n in range(2, min(places, 2 * _STEPS) + 1, 2) if places % n == 0), default=0)
    lengths = (1, places // row, row) if row > _STEPS // 2 else (1, 1, places)
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
    return fits and min(geometry.channels, output[3]) >= LEAST_CHANNELS and products >= LEAST_PRODUCTS


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
        single, few, several = _SHARES[case.attrs["T"]]
        if geometry.window.taps > 1:
            return several
        return few if math.prod(geometry.out_shape[:3]) < _MANY_POSITIONS else single

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
