"""Convolutions, pooling and normalization of quantised images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.core.dtypes import DType, quint8
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import OpFunction, define_op
from anabranch.ops import shape_rules
from anabranch.ops.nn import windows
from anabranch.ops.quantized import products, steps
from anabranch.ops.quantized.arithmetic import check_bytes, wide_product

_T = steps.TYPES
_NHWC = b"NHWC"


# ---------------------------------------------------------------------- convolution
def patches(x: HostArray, size: Sequence[int], window: products.ByteWindow) -> HostArray:
    """What a window sees at each place of images: [batch, rows, columns, *size, channels], zeros outside of them.

    A view, which must not be written to. A padding below 0 cuts something off.
    """
    pads, (down, across), dilations = window.pads, window.strides, window.dilations
    grown = np.pad(x, ((0, 0), *((max(0, a), max(0, b)) for a, b in pads), (0, 0)))
    rows, columns = (slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(pads, grown.shape[1:3], strict=True))
    seen = grown[:, rows, columns]
    batch, row, column, channel = seen.strides
    return np.lib.stride_tricks.as_strided(
        seen,
        (seen.shape[0], *window.places(x.shape[1:3], size), *size, seen.shape[3]),
        (batch, row * down, column * across, row * dilations[0], column * dilations[1], channel),
        writeable=False,
    )


def convolved(x: HostArray, filter: HostArray, window: products.ByteWindow) -> HostArray:
    """The convolution of images and a filter [*size, channels, outputs]: int32."""
    seen = patches(x, filter.shape[:2], window)
    depth = int(np.prod(filter.shape[:3]))
    count = int(np.prod(seen.shape[:3]))
    product = wide_product(seen.reshape(count, depth), filter.reshape(depth, filter.shape[3]))
    return np.asarray(product.reshape(*seen.shape[:3], filter.shape[3]))


def convolved_per_channel(x: HostArray, filter: HostArray, window: products.ByteWindow) -> HostArray:
    """The same with a filter [*size, channels, multiplier] each of whose channels sees that of the images."""
    seen = patches(x, filter.shape[:2], window)
    total = np.einsum("nrcijk,ijkm->nrckm", seen.astype(np.int32), filter.astype(np.int32))
    return np.asarray(total.reshape(*total.shape[:3], total.shape[3] * total.shape[4]))


def convolution_shape(
    input: TensorShape,
    filter: TensorShape,
    strides: list[int],
    padding: bytes,
    dilations: list[int],
    explicit: list[int] | None = None,
    depthwise: bool = False,
) -> TensorShape:
    """That of a convolution of images [batch, rows, columns, channels].

    Raises:
        ValueError: it does not fit.
    """
    layout = windows.layout_of(_NHWC)
    data = shape_rules.with_rank(input, 4, "the input of a convolution")
    kernel = shape_rules.with_rank(filter, 4, "the filter")
    shape_rules.merged(data[3:], kernel[2:3])
    steps_of, spread = (windows.per_axis(v, layout, w) for v, w in ((strides, "strides"), (dilations, "dilations")))
    if min(steps_of) < 1 or min(spread) < 1:
        raise ValueError(f"strides and dilations must be positive, got {strides} and {dilations}")
    pads = layout.pick_pairs(explicit or ())
    dims, size = data.dims_tuple or (None,) * 4, kernel.dims_tuple or (None,) * 4
    mode = b"EXPLICIT" if explicit else padding
    lengths = [
        windows.output_length(dims[a], size[a - 1], steps_of[a], mode, spread[a], pads[a - 1]) for a in layout.spatial
    ]
    channels = dims[3] if dims[3] is not None else size[2]
    outputs = size[3]
    if depthwise:
        outputs = None if channels is None or size[3] is None else channels * size[3]
    return layout.shape(dims[0], outputs, lengths)


QuantizedConv2D = define_op(
    "QuantizedConv2D",
    "input: Tinput, filter: Tfilter, min_input: float, max_input: float, min_filter: float, max_filter: float -> "
    "output: out_type, min_output: float, max_output: float",
    f"Tinput: {_T}, Tfilter: {_T}, out_type: {_T} = qint32, strides: list(int), padding: {{'SAME', 'VALID'}}, "
    "dilations: list(int) = [1, 1, 1, 1]",
    ranks={"input": 4, "filter": 4, "min_input": 0, "max_input": 0, "min_filter": 0, "max_filter": 0},
    static=("min_input", "max_input", "min_filter", "max_filter"),
    takes_quantised=True,
)
QuantizedConv2D.not_differentiable()
QuantizedConv2D.early_outputs(steps.product_ends("Tinput", "Tfilter", "out_type"))


@QuantizedConv2D.shape
def _(
    input: TensorShape,
    filter: TensorShape,
    *_: TensorShape,
    strides: list[int],
    padding: bytes,
    dilations: list[int],
) -> list[TensorShape]:
    return steps.with_scalars(convolution_shape(input, filter, strides, padding, dilations))


@QuantizedConv2D.host_kernel
def _(
    input: Array,
    filter: Array,
    min_input: Array,
    max_input: Array,
    min_filter: Array,
    max_filter: Array,
    *,
    out_type: DType,
    ctx: OperationContext,
) -> Any:
    ranges = _checked_ranges(min_input, max_input, min_filter, max_filter, ctx)
    # outside the images are zeros, whichever step stands for zero
    x, w = steps.from_zero(input, *ranges[0]), steps.from_zero(filter, *ranges[1])
    window = window_of(x.shape, w.shape, ctx.op.attrs)
    return steps.saturated(convolved(x, w, window), out_type), *steps.product_range(*ranges, out_type)


def compiled_convolution(convolve: products.Convolve) -> Callable[..., Any]:
    """A compiled kernel of `QuantizedConv2D` that convolves bytes so."""

    def kernel(
        input: Array,
        filter: Array,
        min_input: Array,
        max_input: Array,
        min_filter: Array,
        max_filter: Array,
        *,
        out_type: DType,
        ctx: OperationContext,
    ) -> Any:
        ranges = _checked_ranges(min_input, max_input, min_filter, max_filter, ctx)
        x, w = (products.Bytes(v, steps.zero_of(*r)) for v, r in zip((input, filter), ranges, strict=True))
        total = convolve(x, w, window_of(input.shape, filter.shape, ctx.op.attrs), ctx.op.name)
        return steps.saturated(total, out_type), *steps.product_range(*ranges, out_type)

    return kernel


QuantizedConv2D.kernel(compiled_convolution(products.convolution))


def _checked_ranges(
    min_input: Array, max_input: Array, min_filter: Array, max_filter: Array, ctx: OperationContext
) -> tuple[steps.Range, steps.Range]:
    """The ranges of images and filter, of a convolution that this operation knows."""
    attrs = ctx.op.attrs
    types, strides, dilations = (attrs["Tinput"], attrs["Tfilter"]), attrs["strides"], attrs["dilations"]
    check_bytes(ctx, *types)
    if strides[0] != 1 or strides[3] != 1 or strides[1] != strides[2] or list(dilations) != [1, 1, 1, 1]:
        raise InvalidArgumentError(
            None,
            ctx.op,
            "a quantised convolution has equal strides for rows and columns, 1 for the others, and no dilation, got "
            f"strides {strides} and dilations {dilations}",
        )
    return (float(min_input), float(max_input), types[0]), (float(min_filter), float(max_filter), types[1])


def window_of(images: Sequence[int], filter: Sequence[int], attrs: Mapping[str, Any]) -> products.ByteWindow:
    """How the filter of a `QuantizedConv2D` goes over images, of these shapes."""
    stride, padding = attrs["strides"][1], attrs["padding"]
    pads = [_centred_pads(images[axis + 1], filter[axis], stride, padding) for axis in (0, 1)]
    return products.ByteWindow((stride, stride), pads)


def _centred_pads(length: int, window: int, stride: int, padding: bytes) -> tuple[int, int]:
    """Padding by which all windows together lie in the middle of an axis, as this operation alone has it.

    It differs from that of other convolutions where a stride leaves 3 elements or more over.
    """
    count = windows.positions(length, window, stride, padding) or 0
    reach = (count - 1) * stride + window
    before = int((reach - length + (padding == b"VALID")) / 2)
    return before, reach - length - before


# ---------------------------------------------------------------------- pooling
def _pooling(name: str) -> OpFunction:
    op = define_op(
        name,
        "input: T, min_input: float, max_input: float -> output: T, min_output: float, max_output: float",
        f"T: {_T}, ksize: list(int), strides: list(int), padding: {{'SAME', 'VALID'}}",
        ranks={"min_input": 0, "max_input": 0},
        takes_quantised=True,
    )
    op.not_differentiable()
    op.early_outputs(steps.passed_on({1: 1, 2: 2}))

    @op.shape
    def _(
        input: TensorShape, *_: TensorShape, ksize: list[int], strides: list[int], padding: bytes
    ) -> list[TensorShape]:
        return steps.with_scalars(windows.pooled_shape(input, ksize, strides, padding, _NHWC))

    return op


def _pooled(
    x: Array, fill: int, over: str, ksize: list[int], strides: list[int], padding: bytes, ctx: OperationContext
) -> Any:
    """What a reduction of that name gives for all that the window sees at each place, `fill` outside of the images."""
    if ksize[0] != 1 or ksize[3] != 1 or strides[0] != 1 or strides[3] != 1:
        raise InvalidArgumentError(
            None, ctx.op, f"quantised pooling is along rows and columns, got ksize {ksize} and strides {strides}"
        )
    pads = [windows.pad_amounts(x.shape[a], ksize[a], strides[a], padding) for a in (1, 2)]
    library, steps_of = steps.library_of(x), (strides[1], strides[2])
    grown = library.pad(x, ((0, 0), *pads, (0, 0)), constant_values=x.dtype.type(fill))
    window = products.ByteWindow(steps_of, ((0, 0), (0, 0)))
    if library is np:
        return getattr(np, over)(patches(grown, ksize[1:3], window), axis=(3, 4))
    return products.reduced(grown, ksize[1:3], window, over)


QuantizedMaxPool = _pooling("QuantizedMaxPool")


@steps.everywhere(QuantizedMaxPool)
def _(
    input: Array,
    min_input: Array,
    max_input: Array,
    *,
    T: DType,
    ksize: list[int],
    strides: list[int],
    padding: bytes,
    ctx: OperationContext,
) -> Any:
    first, _ = steps.limits(T)
    most = _pooled(steps.integers_of(input), first, "max", ksize, strides, padding, ctx)
    return steps.quantised(most, T), min_input, max_input


QuantizedAvgPool = _pooling("QuantizedAvgPool")


@steps.everywhere(QuantizedAvgPool)
def _(
    input: Array,
    min_input: Array,
    max_input: Array,
    *,
    T: DType,
    ksize: list[int],
    strides: list[int],
    padding: bytes,
    ctx: OperationContext,
) -> Any:
    x = steps.integers_of(input)
    # sums of bytes have room in 32 bits
    x = x.astype(np.int32 if x.dtype.itemsize == 1 else np.int64)
    total = _pooled(x, 0, "sum", ksize, strides, padding, ctx)
    count = _pooled(np.ones((1, *x.shape[1:3], 1), x.dtype), 0, "sum", ksize, strides, padding, ctx)
    library = steps.library_of(total)
    # integer division as processors do it, towards zero
    return steps.quantised(library.sign(total) * (library.abs(total) // count), T), min_input, max_input


# ---------------------------------------------------------------------- normalization
_MOMENTS = ("m", "v", "beta", "gamma")

QuantizedBatchNormWithGlobalNormalization = define_op(
    "QuantizedBatchNormWithGlobalNormalization",
    "t: Tinput, t_min: float, t_max: float, "
    + ", ".join(f"{n}: Tinput, {n}_min: float, {n}_max: float" for n in _MOMENTS)
    + " -> result: out_type, result_min: float, result_max: float",
    f"Tinput: {_T}, out_type: {_T}, variance_epsilon: float, scale_after_normalization: bool",
    ranks={"t": 4, **dict.fromkeys(_MOMENTS, 1), **{f"{n}_{e}": 0 for n in ("t", *_MOMENTS) for e in ("min", "max")}},
)
QuantizedBatchNormWithGlobalNormalization.not_differentiable()


@QuantizedBatchNormWithGlobalNormalization.shape
def _(t: TensorShape, *rest: TensorShape) -> list[TensorShape]:
    channels = shape_rules.merged(t[-1:] if t.ndims is not None else TensorShape([None]), *rest[2::3])
    known = t if t.ndims is None else t[:-1].concatenate(channels)
    return steps.with_scalars(known)


@QuantizedBatchNormWithGlobalNormalization.host_kernel
def _(
    *inputs: Array,
    Tinput: DType,
    out_type: DType,
    variance_epsilon: float,
    scale_after_normalization: bool,
    ctx: OperationContext,
) -> Any:
    if inputs[0].ndim != 4 or any(x.shape != inputs[0].shape[-1:] for x in inputs[3::3]):
        raise InvalidArgumentError(
            None, ctx.op, f"the moments must have a number for each channel of {[x.shape for x in inputs[::3]]}"
        )
    given = [
        (steps.integers_of(x), float(a), float(b)) for x, a, b in zip(*(inputs[i::3] for i in range(3)), strict=True)
    ]
    mean, variance, beta, gamma = (steps.floats_of(x, a, b, Tinput) for x, a, b in given[1:])
    # a range in which usual values have ten bits after the point, and do not overflow
    most = float(1 << 20)
    scale = np.float32(1) / np.sqrt(variance + np.float32(variance_epsilon))
    if scale_after_normalization:
        scale = scale * gamma
    scales, offsets, moved = (
        np.clip(steps.steps_of(x, -most, most, out_type), *steps.limits(out_type))
        for x in (scale, -mean * scale + beta, steps.floats_of(*given[0], Tinput))
    )
    one = steps.step_of(1.0, -most, most, out_type)
    product = steps.wrapped(moved * scales).astype(np.int64)
    result = np.sign(product) * (np.abs(product) // one) + offsets
    return steps.quantised(result, out_type), np.float32(-most), np.float32(most)


QuantizedInstanceNorm = define_op(
    "QuantizedInstanceNorm",
    "x: T, x_min: float, x_max: float -> y: T, y_min: float, y_max: float",
    f"T: {_T}, output_range_given: bool = False, given_y_min: float = 0.0, given_y_max: float = 0.0, "
    "variance_epsilon: float = 1e-5, min_separation: float = 1e-3",
    ranks={"x": 4, "x_min": 0, "x_max": 0},
)
QuantizedInstanceNorm.not_differentiable()


@QuantizedInstanceNorm.shape
def _(x: TensorShape, *_: TensorShape) -> list[TensorShape]:
    return steps.with_scalars(x)


@QuantizedInstanceNorm.host_kernel
def _(
    x: Array,
    x_min: Array,
    x_max: Array,
    *,
    T: DType,
    output_range_given: bool,
    given_y_min: float,
    given_y_max: float,
    variance_epsilon: float,
    min_separation: float,
    ctx: OperationContext,
) -> Any:
    if T is not quint8:
        raise InvalidArgumentError(None, ctx.op, f"instances are normalized as quint8, not as {T.name}")
    steps.check_range(float(x_min), float(x_max), "x", ctx)
    if output_range_given and not given_y_min < given_y_max:
        raise InvalidArgumentError(
            None, ctx.op, f"given_y_min must be less than given_y_max: {given_y_min} >= {given_y_max}"
        )
    scale = (np.float32(x_max) - np.float32(x_min)) / np.float32(255)
    numbers = steps.integers_of(x).astype(np.float32)
    centred = numbers - numbers.mean(axis=(1, 2), keepdims=True, dtype=np.float32)
    variance = np.square(scale * centred).mean(axis=(1, 2), keepdims=True, dtype=np.float32)
    normed = scale * centred * (np.float32(1) / np.sqrt(variance + np.float32(variance_epsilon)))
    least, most = np.float32(given_y_min), np.float32(given_y_max)
    if not output_range_given:
        highest = np.finfo(np.float32).max
        least, most = normed.min(initial=highest), normed.max(initial=-highest)
    if most - least < np.float32(min_separation):
        most = least + np.float32(min_separation)
    return steps.quantised(steps.quick_steps_of(normed, least, most, T), T), least, most
