"""Convolutions by oneDNN, where the extra `native` is installed: all data formats, groups, strides, dilations.

In float32, and in bfloat16 (with sums in float32) on processors that have instructions for it.

Two kernels each for a convolution, its gradient to the data, and the one to the filter:

* ``onednn``: data and gradients stay in the layout that the program has; the filter is copied into the library's;
* ``onednn blocked``: all three are copied into and out of the library's layouts of 8 or 16 channels, which pays where
  the library is slow otherwise: data with channels first, and some gradients to the filter.

What the library has only a slow reference implementation for is not offered (`onednn.Library.primitive`).
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.core.processor import core_count
from anabranch.kernels import native_calls, onednn, pool_handler
from anabranch.kernels.convolutions import CONVOLUTIONS, WIDE_SHARES, WITH_BIAS, Direction
from anabranch.kernels.onednn import NativeError, Strided
from anabranch.kernels.onednn_stages import Computation
from anabranch.ops.nn.conv import Geometry

#: what the texts of these computations begin with
KIND: Final = "convolution"
#: windows with strides that have fewer positions along an axis are not trusted in bfloat16
_FEW_POSITIONS: Final = 8
#: channels that fill a tile of AMX, in bfloat16, and half of it
_TILE, _HALF_TILE = 32, 16
#: forward, to the input, to the filter
FORWARD, TO_INPUT, TO_FILTER = range(3)


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution as the library describes it; lengths in the library's order of axes.

    Attributes:
        direction: 0: the convolution itself, 1: its gradient to the data, 2: to the filter.
        blocked: whether data and output may be copied into layouts of the library's.
        type: of all three arrays, as the library calls it.
        data, filter, output: lengths and strides (elements) of [batch, channels, *spatial], [(groups,) out, in,
            *spatial], [batch, out, *spatial].
        strides, dilations, low, high: of each spatial axis; a dilation of 0 is none, as the library counts.
        biased: whether a number for each channel is added to the output (forward only).
        relu: whether what is negative then becomes zero.
    """

    direction: int
    blocked: bool
    type: int
    data: tuple[tuple[int, ...], tuple[int, ...]]
    filter: tuple[tuple[int, ...], tuple[int, ...]]
    output: tuple[tuple[int, ...], tuple[int, ...]]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    biased: bool = False
    relu: bool = False

    @staticmethod
    def of(geometry: Geometry, direction: int, blocked: bool, type: int = onednn.FLOAT32) -> Convolution:
        """The description of an operation's convolution."""
        layout, window = geometry.layout, geometry.window
        axes = (0, layout.channel, *layout.spatial)
        pads = layout.pick(window.pads)
        return Convolution(
            direction,
            blocked,
            type,
            _picked(geometry.shape, axes),
            _filter(geometry),
            _picked(geometry.out_shape, axes),
            tuple(map(int, layout.pick(window.strides))),
            tuple(int(dilation) - 1 for dilation in layout.pick(window.dilations)),
            tuple(int(low) for low, _ in pads),
            tuple(int(high) for _, high in pads),
        )

    @property
    def text(self) -> str:
        """What `native_calls.prepared` takes; the same in every process."""
        # flat: `asdict` would copy each tuple of numbers, again and again, which a network's first step would feel
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return f"{KIND} {json.dumps(values, separators=(',', ':'))}"

    @property
    def trusted(self) -> bool:
        """Whether oneDNN 3.2 computes it rightly; random tests found kinds that it does not.

        * Where a position of the window lies in the padding alone, "gemm:jit" to the data is wrong.
        * Where a filter of one tap has strides, "jit_1x1:avx2" to the filter is wrong for few channels that lie last.
        * In bfloat16 "jit_bf16" to the filter leaves out parts of the sum, or adds what lay in its scratch memory: for
          volumes, for windows with dilations, and for those with strides that have few positions along the last axis.
        * With AMX "brgconv" is wrong for more than a few channels where the window has a stride along the last axis and
          channels do not fill tiles, and now and then where strides are more than 2, or there are dilations, too.
        """
        if any(math.prod(lengths) > onednn.MOST_ELEMENTS for lengths, _ in (self.data, self.filter, self.output)):
            return False
        taps = self.filter[0][-len(self.strides) :]
        spans = [(count - 1) * (dilation + 1) for count, dilation in zip(taps, self.dilations, strict=True)]
        if any(max(pads) > span for *pads, span in zip(self.low, self.high, spans, strict=True)):
            return False
        if self.direction == FORWARD and self.type == onednn.BFLOAT16 and max(self.strides) > 1 and _has_tiles():
            channels = self.data[0][1]
            fills = self.strides[-1] == 1 or channels % _TILE == 0
            return channels <= _HALF_TILE or (fills and max(self.strides) <= 2 and not any(self.dilations))
        if self.direction != TO_FILTER:
            return True
        if self.type == onednn.BFLOAT16:
            few = self.strides[-1] > 1 and self.output[0][-1] < _FEW_POSITIONS
            if few or len(taps) > 2 or any(self.dilations):
                return False
        return self.blocked or max(taps) > 1 or max(self.strides) == 1

    @property
    def products(self) -> int:
        """Multiplications and additions."""
        lengths = self.filter[0]
        inner = math.prod(lengths[-len(self.strides) - 1 :])
        return inner * math.prod(self.output[0])


def from_json(text: str) -> Convolution:
    """The convolution of a text, without its first word."""
    values = json.loads(text)
    data, filter, output = (_pair(*values[name]) for name in ("data", "filter", "output"))
    strides, dilations, low, high = (tuple(values[name]) for name in ("strides", "dilations", "low", "high"))
    kind = (values["direction"], values["blocked"], values["type"])
    return Convolution(*kind, data, filter, output, strides, dilations, low, high, values["biased"], values["relu"])


def _pair(lengths: list[int], strides: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(lengths), tuple(strides)


def _picked(shape: Sequence[int], axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Lengths and strides of an array that lies row by row, of these axes in this order."""
    strides = onednn.row_strides(shape)
    return tuple(int(shape[a]) for a in axes), tuple(strides[a] for a in axes)


def _filter(geometry: Geometry) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The filter, [*spatial, in, out], or [*spatial, groups, out of each] where it is per channel."""
    *spatial, inner, outer = map(int, geometry.filter_shape)
    *steps, inner_step, outer_step = onednn.row_strides(geometry.filter_shape)
    if geometry.depthwise:
        return (inner, outer, 1, *spatial), (inner_step, outer_step, inner_step, *steps)
    groups = geometry.channels // inner
    if groups == 1:
        return (outer, inner, *spatial), (outer_step, inner_step, *steps)
    each = outer // groups
    return (groups, each, inner, *spatial), (each * outer_step, outer_step, inner_step, *steps)


# ---------------------------------------------------------------------- computations
def _make(text: str) -> native_calls.Prepared:
    """What `native_calls` calls."""
    library = onednn.library()
    if library is None:
        raise NativeError(f"oneDNN is not there: {onednn.library_state().missing}")
    one = from_json(text)
    made, arrays = computation(library, one)
    # where several threads add to one filter, they wait for each other
    sizes = tuple(math.prod(array.lengths) for array in arrays)
    return native_calls.Prepared(made, sizes, spins=one.direction == TO_FILTER)


def computation(
    library: onednn.Library, one: Convolution, sums: int | None = None
) -> tuple[Computation, list[Strided]]:
    """A convolution, and the arrays that it takes: what it reads, in order, and its result.

    Args:
        sums: the type of the sums of a gradient to the filter, where it is another than the result's.

    Raises:
        NativeError: the library cannot compute it, or only slowly.
    """
    data, filter, output = (Strided(*pair, one.type) for pair in (one.data, one.filter, one.output))
    described = [
        library.described(data, free=one.blocked),
        library.described(filter if sums is None else replace(filter, type=sums), free=True),
        library.described(output, free=one.blocked),
    ]
    x, w, y = (each.value for each in described)
    bias = Strided((output.lengths[1],), (1,), one.type)
    b = library.described(bias) if one.biased else None
    window = tuple(map(onednn.dimensions, (one.strides, one.dilations, one.low, one.high)))
    forward = (onednn.FORWARD_TRAINING, onednn.CONVOLUTION_DIRECT, x, w, b and b.value, y, *window)
    if one.direction == FORWARD:
        primitive = library.convolution("convolution_forward", *forward, relu=one.relu)
        given, result = {onednn.SOURCE: data, onednn.WEIGHTS: filter}, {onednn.DESTINATION: output}
        given |= {onednn.BIAS: bias} if one.biased else {}
    elif one.direction == TO_INPUT:
        primitive = library.convolution("convolution_backward_data", onednn.CONVOLUTION_DIRECT, x, w, y, *window)
        given = {onednn.WEIGHTS: filter, onednn.DESTINATION_GRADIENT: output}
        result = {onednn.SOURCE_GRADIENT: data}
    else:
        kind = "convolution_backward_weights"
        primitive = library.convolution(kind, onednn.CONVOLUTION_DIRECT, x, w, None, y, *window)
        given = {onednn.SOURCE: data, onednn.DESTINATION_GRADIENT: output}
        result = {onednn.WEIGHTS_GRADIENT: filter}
    return Computation(library, primitive, given, result), [*given.values(), *result.values()]


native_calls.register_maker(KIND, _make)


@functools.lru_cache(1024)
def usable(convolution: Convolution) -> bool:
    """Whether the library has an implementation that is worth while."""
    if not convolution.trusted:
        return False
    try:
        computation = native_calls.prepared(convolution.text)
    except NativeError:
        return False
    # without a copy of data or output the two kernels are one
    return not convolution.blocked or (isinstance(computation, Computation) and computation.reorders > 1)


# ---------------------------------------------------------------------- what they cost
#: shares of the time of XLA's own convolution (AVX2 and AVX-512): forward, to the data, to the filter
_SHARES: Final = WIDE_SHARES
#: of the gradient to a filter of one tap without strides: for many positions of the window, and for few, where XLA's
#: product is the quicker
_TO_ONE_TAP_SHARES: Final = (0.08, 0.2)
_MANY_POSITIONS: Final = 1024
#: the same in bfloat16 (AVX512-BF16, and AMX): XLA multiplies in float32, and converts
_BFLOAT16_SHARES: Final = (0.4, 0.4, 0.24)
#: without AMX, of the gradient to a filter of one tap without strides, where XLA's product converts as well
_TO_ONE_TAP_BFLOAT16_SHARE: Final = 0.1
#: with several taps, and data of few channels: vectors have few numbers to add to
_TO_FILTER_OF_FEW_SHARE, _HALF_VECTOR = 0.38, 32
#: and of the gradient to the first filter of a network, with strides: as it lies, in parts or not; and blocked
_TO_FIRST_SHARE_IN_PARTS, _TO_FIRST_SHARE, _TO_FIRST_SHARE_BLOCKED = 0.14, 1.0, 0.3
_TILE_SHARES: Final = (0.12, 0.12, 0.06)
#: the same per channel, and a factor where channels are in groups, with which XLA is slow
_DEPTHWISE_SHARE: Final = 0.03
_GROUPED_FACTOR: Final = 0.3
#: what the copies of data and output add, without AMX and with it (of 128 convolutions of Inception-v3 in float32 three
#: gained more than a sixth by them); and what data that is copied nowhere, with channels first, adds
_BLOCKED_SHARE, _BLOCKED_SHARE_WITH_TILES = 0.15, 0.25
_CHANNELS_FIRST_SHARE: Final = 0.3
#: the gradient to data of fewer channels is no faster than XLA's
_FEW_CHANNELS: Final = 8


def _shares(one: Convolution) -> tuple[float, ...]:
    if one.type != onednn.BFLOAT16:
        return _SHARES
    return _TILE_SHARES if _has_tiles() else _BFLOAT16_SHARES


def _has_tiles() -> bool:
    library = onednn.library()
    return library is not None and library.has_tiles


def cost(one: Convolution, geometry: Geometry) -> float:
    share = _share_to_filter(one, geometry) if one.direction == TO_FILTER else _shares(one)[one.direction]
    if geometry.channels < _FEW_CHANNELS and one.type == onednn.FLOAT32 and one.direction == TO_INPUT:
        share = 1.0
    if geometry.depthwise:
        return _DEPTHWISE_SHARE * (2 if one.blocked else 1) + native_calls.call_cost(one.products)
    channels_last = geometry.layout.channel == geometry.layout.rank - 1
    if channels_last and one.blocked:
        share += _BLOCKED_SHARE_WITH_TILES if _has_tiles() else _BLOCKED_SHARE
    elif not channels_last and not one.blocked:
        share += _CHANNELS_FIRST_SHARE
    if len(one.filter[0]) > len(one.data[0]):
        share *= _GROUPED_FACTOR
    return share + native_calls.call_cost(one.products)


def _share_to_filter(one: Convolution, geometry: Geometry) -> float:
    """Of a gradient to a filter, without what copies add."""
    shares = _shares(one)
    if geometry.window.taps == max(one.strides) == 1 and shares is not _TILE_SHARES:
        if one.type == onednn.BFLOAT16:
            return _TO_ONE_TAP_BFLOAT16_SHARE
        positions = one.output[0][0] * math.prod(one.output[0][2:])
        return _TO_ONE_TAP_SHARES[positions < _MANY_POSITIONS]
    if shares is _BFLOAT16_SHARES and geometry.channels < _FEW_CHANNELS and max(one.strides) > 1:
        if one.blocked:
            return _TO_FIRST_SHARE_BLOCKED
        # (whether there is a compiler is not asked here: it would be called, and the first step does not wait for it)
        return _TO_FIRST_SHARE_IN_PARTS if core_count() > 1 and pool_handler.is_usable() else _TO_FIRST_SHARE
    if shares is _BFLOAT16_SHARES and geometry.channels <= _HALF_VECTOR:
        return _TO_FILTER_OF_FEW_SHARE
    return shares[TO_FILTER]


# ---------------------------------------------------------------------- the kernels
@functools.lru_cache(2048)
def described_of(
    geometry: Geometry, at: int, blocked: bool, dtype: str, biased: bool = False, relu: bool = False
) -> tuple[Convolution, str]:
    """A convolution, and its text; for each geometry once, since each call that runs directly asks for it."""
    one = replace(Convolution.of(geometry, at, blocked, onednn.TYPES[dtype]), biased=biased, relu=relu)
    return one, one.text


def _register(direction: Direction, at: int, blocked: bool) -> None:
    has_bias = direction.bias is not None

    def takes(case: KernelCase) -> bool:
        library = onednn.library()
        if library is None or not library.computes(case.inputs[direction.operands[0]].dtype):
            return False
        return direction.fitting(case) is not None

    def described(case: KernelCase) -> tuple[Convolution, Geometry]:
        geometry = direction.fitting(case)
        assert geometry is not None  # `takes` has said so
        dtype = str(case.inputs[direction.operands[0]].dtype)
        return described_of(geometry, at, blocked, dtype, has_bias, has_bias)[0], geometry

    def kernel(*inputs: Array, ctx: OperationContext) -> Any:
        sizes = None if direction.sizes is None else inputs[direction.sizes]
        geometry = direction.geometry(ctx.op.attrs, [value.shape for value in inputs], sizes)
        operands = [inputs[i] for i in direction.operands]
        if direction.bias is not None:
            operands.append(inputs[direction.bias])
        text = described_of(geometry, at, blocked, str(operands[0].dtype), has_bias, has_bias)[1]
        shape = (geometry.out_shape, geometry.shape, geometry.filter_shape)[at]
        return native_calls.call(ctx.op.name, text, operands, tuple(map(int, shape)), operands[0].dtype)

    name = "onednn blocked" if blocked else "onednn"
    register_kernel(
        direction.op_type,
        name,
        device_type="CPU",
        types={"T": [dtypes.float32, dtypes.bfloat16]},
        applies=takes,
        offered=lambda case: usable(described(case)[0]),
        cost=lambda case: cost(*described(case)),
        rough=native_calls.is_rough,
        calls_back=True,
        takes_numpy=True,
    )(kernel)


def can_add_bias(geometry: Geometry, dtype: object) -> bool:
    """Whether the library computes a convolution and adds a number for each channel, where the data lies."""
    return usable(described_of(geometry, FORWARD, False, str(dtype), True)[0])


def text_with_bias(geometry: Geometry, dtype: object) -> str:
    """What `native_calls.call` takes for that: of the data, the filter and the bias."""
    return described_of(geometry, FORWARD, False, str(dtype), True)[1]


for _blocked in (False, True):
    for _three in CONVOLUTIONS:
        for _at, _direction in enumerate(_three):
            _register(_direction, _at, _blocked)
    _register(WITH_BIAS, FORWARD, _blocked)
