"""Pooling: maxima and averages under sliding windows, in two and three dimensions.

A maximum's gradient goes to the first of equal elements, in the window's row-major order, as in TensorFlow.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax, numpy as jnp

from anabranch.core.arrays import Array, ArrayLibrary, ElementType
from anabranch.core.dtypes import DType
from anabranch.core.kernel_context import KernelOperation, OperationContext
from anabranch.core.quantised_arrays import as_integers
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.known_shapes import full_shape
from anabranch.ops.nn import windows
from anabranch.ops.nn.ordered_bits import from_order, has_16_bits, in_order, key
from anabranch.ops.nn.sliding import MAX_UNROLLED_TAPS, Window, combined_on_host, shifted, unshifted, wide

Attrs = dict[str, Any]

_POOLED = "{half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = float32"
_SIZES_2D = "ksize: list(int) >= 4, strides: list(int) >= 4"
_SIZES_3D = "ksize: list(int) >= 5, strides: list(int) >= 5"
_PADDING = "padding: {'SAME', 'VALID'}"
_EXPLICIT = "padding: {'SAME', 'VALID', 'EXPLICIT'}, explicit_paddings: list(int) = []"
_FORMAT_2D = "data_format: {'NHWC', 'NCHW'} = 'NHWC'"
_FORMAT_3D = "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'"
_VECTORS = "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"


# ---------------------------------------------------------------------- windows
def pool_window(shape: Sequence[int], attrs: Attrs) -> Window:
    """The window over data of `shape`; `attrs`: ksize, strides, padding, data_format, explicit_paddings."""
    layout = windows.layout_of(attrs.get("data_format", b"NHWC"))
    size = windows.per_axis(attrs["ksize"], layout, "ksize")
    strides = windows.per_axis(attrs["strides"], layout, "strides")
    explicit = attrs.get("explicit_paddings") or [0] * (2 * layout.rank)
    pairs = list(zip(explicit[::2], explicit[1::2], strict=True))
    padding = attrs["padding"]
    if padding == b"SAME":
        # a window that reaches beyond both ends from every position is as good as the shortest that does
        size = tuple(min(k, n + (-(-n // s) - 1) * s) if n else k for n, k, s in zip(shape, size, strides, strict=True))
    per_axis = list(zip(shape, size, strides, pairs, strict=True))
    pads = tuple(windows.pad_amounts(n, k, s, padding, 1, p) for n, k, s, p in per_axis)
    outputs = tuple(windows.positions(n, k, s, padding, 1, p) or 0 for n, k, s, p in per_axis)
    return Window(size, strides, (1,) * layout.rank, pads, tuple(shape), outputs)


def largest_seen(xp: ArrayLibrary, x: Array, window: Window) -> Any:
    """The largest numbers that the positions of a window see."""
    if has_16_bits(x):
        return from_order(_most(xp, in_order(x, xp), window, key(-np.inf, x.dtype)), x.dtype, xp)
    return _most(xp, x, window, np.array(windows.lowest(x.dtype), x.dtype))


def _most(xp: ArrayLibrary, x: Array, window: Window, lowest: Array) -> Any:
    if xp is np:
        return combined_on_host(np.maximum, x, window, lowest)
    if window.taps > MAX_UNROLLED_TAPS:
        return lax.reduce_window(x, lowest, lax.max, window.size, window.strides, window.pads)
    seen = shifted(x, window, lowest)
    maxima = seen[0]
    for part in seen[1:]:
        maxima = jnp.maximum(maxima, part)
    return maxima


def _first_hit(xp: ArrayLibrary, x: Array, maxima: Array, window: Window) -> Any:
    """Which tap sees the maximum first, int32 of the output's shape; the number of taps where none does (NaN)."""
    hit: Any = xp.full(maxima.shape, window.taps, np.int32)
    for tap, part in reversed(list(enumerate(shifted(x, window, windows.lowest(x.dtype), xp)))):
        hit = xp.where(part == maxima, np.int32(tap), hit)
    return hit


def to_first_hit(xp: ArrayLibrary, x: Array, maxima: Array, grad: Array, window: Window) -> Any:
    """The gradient of `largest_seen`."""
    zero = np.zeros((), grad.dtype)
    hit = _first_hit(xp, x, maxima, window)
    if xp is not np and window.size == window.strides and not any(map(any, window.pads)):
        return _to_own_place(hit, grad, window)
    parts = (wide(xp.where(hit == tap, grad, zero)) for tap in range(window.taps))
    return unshifted(parts, window, xp).astype(grad.dtype)


def _to_every_hit(xp: ArrayLibrary, x: Array, maxima: Array, grad: Array, window: Window) -> Any:
    """The gradient of `largest_seen` that TensorFlow has for volumes: all that is as good as equal to the maximum of a
    window gets what comes in, and nothing does where that is infinite.
    """
    zero, close = np.zeros((), grad.dtype), np.array(1e-5, x.dtype)
    seen = shifted(x, window, windows.lowest(x.dtype), xp)
    parts = (wide(xp.where(xp.abs(part - maxima) < close, grad, zero)) for part in seen)
    return unshifted(parts, window, xp).astype(grad.dtype)


def _to_own_place(hit: Array, grad: Array, window: Window) -> Any:
    """Windows that do not overlap: spreads both over their windows and keeps what stands at the hit."""
    rank = len(window.size)
    taps = np.arange(window.taps, dtype=np.int32).reshape(window.size)
    inner = tuple(range(1, 2 * rank, 2))
    at = np.expand_dims(taps, tuple(range(0, 2 * rank, 2)))
    spread = jnp.where(jnp.expand_dims(hit, inner) == at, jnp.expand_dims(grad, inner), np.zeros((), grad.dtype))
    covered = spread.reshape([n * k for n, k in zip(window.outputs, window.size, strict=True)])
    rest = [(0, n - c, 0) for n, c in zip(window.lengths, covered.shape, strict=True)]
    return lax.pad(covered, np.zeros((), grad.dtype), rest)


def _from_first_hit(xp: ArrayLibrary, x: Array, maxima: Array, values: Array, window: Window) -> Any:
    """What stands in `values` where `x` has its maxima; zero where a window has none."""
    hit = _first_hit(xp, x, maxima, window)
    picked: Any = xp.zeros(maxima.shape, values.dtype)
    for tap, part in enumerate(shifted(values, window, 0, xp)):
        picked = xp.where(hit == tap, part, picked)
    return picked


def _sums(xp: ArrayLibrary, x: Array, window: Window) -> Any:
    zero = np.zeros((), x.dtype)
    if xp is np:
        return combined_on_host(np.add, x, window, zero)
    if window.taps > MAX_UNROLLED_TAPS:
        return lax.reduce_window(x, zero, lax.add, window.size, window.strides, window.pads)
    return sum(shifted(x, window))


def _from_sums(xp: ArrayLibrary, grad: Array, window: Window) -> Any:
    """The transpose of `_sums`."""
    if xp is not np and window.taps > MAX_UNROLLED_TAPS:
        return jax.linear_transpose(lambda x: _sums(xp, x, window), jnp.empty(window.lengths, grad.dtype))(grad)[0]
    return unshifted(itertools.repeat(grad, window.taps), window, xp)


def _counts(window: Window, dtype: ElementType) -> Any:
    """How many elements of the data each window position covers: padding does not count in averages."""
    counts: Any = np.ones((), dtype)
    for n, k, s, (before, _), length in zip(
        window.outputs, window.size, window.strides, window.pads, window.lengths, strict=True
    ):
        first = np.arange(n) * s - before
        covered = np.minimum(first + k, length) - np.maximum(first, 0)
        counts = np.multiply.outer(counts, covered.astype(dtype))
    return counts


def _average(xp: ArrayLibrary, x: Array, window: Window) -> Any:
    summed = _sums(xp, wide(x), window)
    return (summed / _counts(window, summed.dtype)).astype(x.dtype)


def _from_average(xp: ArrayLibrary, grad: Array, window: Window) -> Any:
    shared = wide(grad)
    return _from_sums(xp, shared / _counts(window, shared.dtype), window).astype(grad.dtype)


# ---------------------------------------------------------------------- shapes and attributes


def _pooled_shape(op: OpFunction) -> None:
    """The output is the pooled first input."""
    if "explicit_paddings" in op.attrs:

        @op.shape
        def _(
            data: TensorShape,
            *,
            ksize: list[int],
            strides: list[int],
            padding: bytes,
            explicit_paddings: list[int],
            data_format: bytes,
        ) -> TensorShape:
            return windows.pooled_shape(data, ksize, strides, padding, data_format, explicit_paddings)

    else:

        @op.shape
        def _(
            data: TensorShape, *, ksize: list[int], strides: list[int], padding: bytes, data_format: bytes
        ) -> TensorShape:
            return windows.pooled_shape(data, ksize, strides, padding, data_format)


def _gradient_shape(
    orig_input: TensorShape, orig_output: TensorShape, grad: TensorShape, *_: TensorShape | list[TensorShape]
) -> TensorShape:
    orig_output.assert_is_compatible_with(grad)
    return orig_input


def _second_gradient_shape(data: TensorShape, output: TensorShape, grad: TensorShape, pooled: TensorShape) -> Any:
    """The gradient is shaped as the data is, and what comes of it as the pooled data."""
    shape_rules.merged(data, grad)
    return shape_rules.merged(pooled, output)


def _attrs(op: Operation, *left_out: str) -> Attrs:
    names = ("ksize", "strides", "padding", "explicit_paddings", "data_format")
    return {name: op.attrs[name] for name in names if name in op.attrs and name not in left_out}


def _with_sizes(op: KernelOperation, ksize: Sequence[int], strides: Sequence[int]) -> Attrs:
    """The attributes of an operation whose window arrives as tensors."""
    return {**op.attrs, "ksize": [int(k) for k in ksize], "strides": [int(s) for s in strides]}


# ---------------------------------------------------------------------- maxima
def _max_pool(names: tuple[str, str, str], types: tuple[str, str, str], sizes: str, formats: tuple[str, str]) -> Any:
    """Max pooling, its gradient, and the gradient of that.

    Args:
        types: what follows `T:` for each.
        formats: padding and data_format for the first two, and for the third.
    """
    forward = define_op(names[0], "input: T -> output: T", f"T: {types[0]}, {sizes}, {formats[0]}")
    grad_types = "orig_input: T, orig_output: T, grad: T"
    if "TInput" in types[1]:
        grad_types = "orig_input: TInput, orig_output: TInput, grad: T"
    backward = define_op(
        names[1],
        f"{grad_types} -> output: T",
        f"{sizes}, {formats[0].replace(_VECTORS, _FORMAT_2D)}, T: {types[1]}",
        ranks={"orig_input": 5 if sizes == _SIZES_3D else 4},
    )
    second = define_op(
        names[2], "orig_input: T, orig_output: T, grad: T -> output: T", f"{sizes}, {formats[1]}, T: {types[2]}"
    )
    _pooled_shape(forward)
    backward.late_shape(_gradient_shape)

    @second.shape
    def _(
        data: TensorShape,
        output: TensorShape,
        grad: TensorShape,
        *,
        ksize: list[int],
        strides: list[int],
        padding: bytes,
        data_format: bytes,
    ) -> Any:
        pooled = windows.pooled_shape(data, ksize, strides, padding, data_format)
        return _second_gradient_shape(data, output, grad, pooled)

    @forward.kernel
    def _(input: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        return largest_seen(xp, as_integers(input), pool_window(input.shape, ctx.op.attrs))

    @backward.kernel
    def _(orig_input: Array, orig_output: Array, grad: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        spread = _to_every_hit if sizes == _SIZES_3D else to_first_hit
        return spread(xp, orig_input, orig_output, grad, checked_window(orig_input, orig_output, ctx.op.attrs))

    @second.kernel
    def _(orig_input: Array, orig_output: Array, grad: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        return _from_first_hit(xp, orig_input, orig_output, grad, checked_window(orig_input, orig_output, ctx.op.attrs))

    @forward.gradient
    def _(op: Operation, grad: Tensor) -> Any:
        return backward(op.inputs[0], op.outputs[0], grad, **_attrs(op))

    @backward.gradient
    def _(op: Operation, grad: Tensor) -> Any:
        x, y, _ = op.inputs
        return raw.ZerosLike(x), raw.ZerosLike(y), second(x, y, grad, **_attrs(op, "explicit_paddings"))

    @second.gradient
    def _(op: Operation, grad: Tensor) -> Any:
        x, y, _ = op.inputs
        return raw.ZerosLike(x), raw.ZerosLike(y), backward(x, y, grad, **_attrs(op))

    return forward, backward, second


def checked_window(orig_input: Array, orig_output: Array, attrs: Attrs) -> Window:
    """The window of pooling that makes the one of the other.

    Raises:
        ValueError: no such window does.
    """
    window = pool_window(orig_input.shape, attrs)
    if window.outputs != orig_output.shape:
        raise ValueError(
            f"pooling data of shape {orig_input.shape} gives {window.outputs}, but orig_output has {orig_output.shape}"
        )
    return window


MaxPool, MaxPoolGrad, MaxPoolGradGrad = _max_pool(
    ("MaxPool", "MaxPoolGrad", "MaxPoolGradGrad"),
    (_POOLED, "real = float32", "real"),
    _SIZES_2D,
    (f"{_EXPLICIT}, {_VECTORS}", f"{_PADDING}, {_FORMAT_2D}"),
)
MaxPool3D, MaxPool3DGrad, MaxPool3DGradGrad = _max_pool(
    ("MaxPool3D", "MaxPool3DGrad", "MaxPool3DGradGrad"),
    (
        "{half, bfloat16, float}",
        "{half, bfloat16, float} = float32, TInput: {half, bfloat16, float} = float32",
        "real",
    ),
    _SIZES_3D,
    (f"{_PADDING}, {_FORMAT_3D}", f"{_PADDING}, {_FORMAT_3D}"),
)

MaxPoolV2 = define_op(
    "MaxPoolV2",
    "input: T, ksize: int32, strides: int32 -> output: T",
    f"T: {_POOLED}, {_PADDING}, {_VECTORS}",
    static=("ksize", "strides"),
    ranks={"ksize": 1, "strides": 1},
)


def _pooled_by_inputs(
    input: TensorShape, ksize: TensorShape, strides: TensorShape, padding: bytes, data_format: bytes, ctx: ShapeContext
) -> TensorShape:
    """The shape of pooled data where sizes are inputs, which may not be known."""
    rank = windows.layout_of(data_format).rank
    input = shape_rules.with_rank(input, rank, "the input of pooling")
    shape_rules.merged(ksize, strides, TensorShape([4]))
    windows_of_axes, steps = ctx.constant("ksize"), ctx.constant("strides")
    if windows_of_axes is None or steps is None:
        return TensorShape([None] * rank)
    return windows.pooled_shape(input, list(windows_of_axes), list(steps), padding, data_format)


@MaxPoolV2.shape
def _(
    input: TensorShape,
    ksize: TensorShape,
    strides: TensorShape,
    *,
    padding: bytes,
    data_format: bytes,
    ctx: ShapeContext,
) -> TensorShape:
    return _pooled_by_inputs(input, ksize, strides, padding, data_format, ctx)


@MaxPoolV2.kernel
def _(input: Array, ksize: Array, strides: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
    return largest_seen(xp, as_integers(input), pool_window(input.shape, _with_sizes(ctx.op, ksize, strides)))


@MaxPoolV2.gradient
def _(op: Operation, grad: Tensor) -> Any:
    x, ksize, strides = op.inputs
    return MaxPoolGradV2(x, op.outputs[0], grad, ksize, strides, **_attrs(op)), None, None


MaxPoolGradV2 = define_op(
    "MaxPoolGradV2",
    "orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32 -> output: T",
    f"{_PADDING}, {_FORMAT_2D}, T: real = float32",
    static=("ksize", "strides"),
    late_ranks={"ksize": 1, "strides": 1},
    ranks={"orig_input": 4},
)
MaxPoolGradV2.late_shape(_gradient_shape)


@MaxPoolGradV2.kernel
def _(
    orig_input: Array,
    orig_output: Array,
    grad: Array,
    ksize: Array,
    strides: Array,
    *,
    xp: ArrayLibrary,
    ctx: OperationContext,
) -> Any:
    window = checked_window(orig_input, orig_output, _with_sizes(ctx.op, ksize, strides))
    return to_first_hit(xp, orig_input, orig_output, grad, window)


@MaxPoolGradV2.gradient
def _(op: Operation, grad: Tensor) -> Any:
    x, y, _, ksize, strides = op.inputs
    second = MaxPoolGradGradV2(x, y, grad, ksize, strides, **_attrs(op))
    return raw.ZerosLike(x), raw.ZerosLike(y), second, None, None


MaxPoolGradGradV2 = define_op(
    "MaxPoolGradGradV2",
    "orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32 -> output: T",
    f"{_PADDING}, {_FORMAT_2D}, T: real",
    static=("ksize", "strides"),
    ranks={"ksize": 1, "strides": 1},
)


@MaxPoolGradGradV2.shape
def _(
    data: TensorShape,
    output: TensorShape,
    grad: TensorShape,
    ksize: TensorShape,
    strides: TensorShape,
    *,
    padding: bytes,
    data_format: bytes,
    ctx: ShapeContext,
) -> Any:
    pooled = _pooled_by_inputs(data, ksize, strides, padding, data_format, ctx)
    sizes_are_known = all(ctx.constant(name) is not None for name in ("ksize", "strides"))
    return _second_gradient_shape(data, output, grad, pooled if sizes_are_known else shape_rules.UNKNOWN)


@MaxPoolGradGradV2.kernel
def _(
    orig_input: Array,
    orig_output: Array,
    grad: Array,
    ksize: Array,
    strides: Array,
    *,
    xp: ArrayLibrary,
    ctx: OperationContext,
) -> Any:
    window = checked_window(orig_input, orig_output, _with_sizes(ctx.op, ksize, strides))
    return _from_first_hit(xp, orig_input, orig_output, grad, window)


@MaxPoolGradGradV2.gradient
def _(op: Operation, grad: Tensor) -> Any:
    x, y, _, ksize, strides = op.inputs
    first = MaxPoolGradV2(x, y, grad, ksize, strides, **_attrs(op))
    return raw.ZerosLike(x), raw.ZerosLike(y), first, None, None


# ---------------------------------------------------------------------- maxima and their places
MaxPoolWithArgmax = define_op(
    "MaxPoolWithArgmax",
    "input: T -> output: T, argmax: Targmax",
    f"{_SIZES_2D}, Targmax: index = int64, {_PADDING}, include_batch_in_index: bool = False, T: real",
)


@MaxPoolWithArgmax.shape
def _(input: TensorShape, *, ksize: list[int], strides: list[int], padding: bytes) -> tuple[TensorShape, TensorShape]:
    pooled = windows.pooled_shape(input, ksize, strides, padding, b"NHWC")
    return pooled, pooled


@MaxPoolWithArgmax.kernel
def _(input: Array, *, Targmax: DType, include_batch_in_index: bool, ctx: OperationContext) -> Any:
    ctx.check(input.size > 0, f"the input must not be empty, got shape {input.shape}")
    window = pool_window(input.shape, ctx.op.attrs)
    maxima = largest_seen(jnp, input, window)
    hit = jnp.minimum(_first_hit(jnp, input, maxima, window), window.taps - 1).astype(np.int64)
    places: Any = 0
    for axis, within in enumerate(jnp.unravel_index(hit, window.size)):
        if axis == 0 and not include_batch_in_index:
            continue
        first = np.arange(window.outputs[axis]) * window.strides[axis] - window.pads[axis][0]
        at = within + first.reshape([-1 if a == axis else 1 for a in range(4)])
        places = places * input.shape[axis] + at
    return maxima, places.astype(Targmax.as_numpy_dtype)


@MaxPoolWithArgmax.gradient
def _(op: Operation, grad: Tensor, _: Tensor | None) -> Any:
    return MaxPoolGradWithArgmax(op.inputs[0], grad, op.outputs[1], **_argmax_attrs(op))


def _argmax_attrs(op: Operation) -> Attrs:
    return {**_attrs(op), "include_batch_in_index": op.attrs["include_batch_in_index"]}


def _flat_places(argmax: Array, shape: Sequence[int], include_batch: bool, ctx: OperationContext) -> Any:
    """`argmax` as places in the whole flattened data."""
    size = int(np.prod(shape[1:], dtype=np.int64))
    total = size * shape[0] if include_batch else size
    ctx.check((argmax >= 0) & (argmax < total), f"argmax must be in [0, {total}), got {{0}}", argmax)
    places = argmax.astype(np.int64)
    return places if include_batch else places + size * np.arange(shape[0]).reshape(-1, 1, 1, 1)


def _argmax_op(name: str, **ranks: int) -> OpFunction:
    return define_op(
        name,
        "input: T, grad: T, argmax: Targmax -> output: T",
        f"{_SIZES_2D}, {_PADDING}, include_batch_in_index: bool = False, Targmax: index, T: real",
        ranks=ranks,
    )


MaxPoolGradWithArgmax = _argmax_op("MaxPoolGradWithArgmax", input=4)


@MaxPoolGradWithArgmax.late_shape
def _(
    input: TensorShape, grad: TensorShape, argmax: TensorShape, *, ksize: list[int], strides: list[int], padding: bytes
) -> TensorShape:
    shape_rules.merged(windows.pooled_shape(input, ksize, strides, padding, b"NHWC"), grad, argmax)
    return shape_rules.with_rank(input, 4, "the input")


@MaxPoolGradWithArgmax.kernel
def _(input: Array, grad: Array, argmax: Array, *, include_batch_in_index: bool, ctx: OperationContext) -> Any:
    places = _flat_places(argmax, input.shape, include_batch_in_index, ctx)
    return jnp.zeros(input.size, grad.dtype).at[places.reshape(-1)].add(grad.reshape(-1)).reshape(input.shape)


@MaxPoolGradWithArgmax.gradient
def _(op: Operation, grad: Tensor) -> Any:
    x, _, argmax = op.inputs
    return raw.ZerosLike(x), MaxPoolGradGradWithArgmax(x, grad, argmax, **_argmax_attrs(op)), None


MaxPoolGradGradWithArgmax = _argmax_op("MaxPoolGradGradWithArgmax")


@MaxPoolGradGradWithArgmax.late_shape
def _(
    input: TensorShape, grad: TensorShape, argmax: TensorShape, *, ksize: list[int], strides: list[int], padding: bytes
) -> TensorShape:
    shape_rules.merged(shape_rules.with_rank(input, 4, "the input"), grad)
    return shape_rules.merged(windows.pooled_shape(input, ksize, strides, padding, b"NHWC"), argmax)


@MaxPoolGradGradWithArgmax.kernel
def _(input: Array, grad: Array, argmax: Array, *, include_batch_in_index: bool, ctx: OperationContext) -> Any:
    return jnp.take(grad, _flat_places(argmax, input.shape, include_batch_in_index, ctx))


@MaxPoolGradGradWithArgmax.gradient
def _(op: Operation, grad: Tensor) -> Any:
    x, _, argmax = op.inputs
    return raw.ZerosLike(x), MaxPoolGradWithArgmax(x, grad, argmax, **_argmax_attrs(op)), None


# ---------------------------------------------------------------------- averages
def _average_pool(names: tuple[str, str], data: str, sizes: str, format: str) -> tuple[OpFunction, OpFunction]:
    attrs = f"{sizes}, {_PADDING}, {format}, T: floating"
    forward = define_op(names[0], f"{data}: T -> output: T", attrs)
    backward = define_op(
        names[1],
        "orig_input_shape: int32, grad: T -> output: T",
        attrs,
        static=("orig_input_shape",),
        ranks={"orig_input_shape": 1},
    )
    _pooled_shape(forward)

    @forward.kernel
    def _(x: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        return _average(xp, x, pool_window(x.shape, ctx.op.attrs))

    @forward.gradient
    def _(op: Operation, grad: Tensor) -> Any:
        return backward(full_shape(op.inputs[0]), grad, **_attrs(op))

    @backward.shape
    def _(orig_input_shape: TensorShape, grad: TensorShape, *, data_format: bytes, ctx: ShapeContext) -> TensorShape:
        wanted: TensorShape = ctx.constant_as_shape("orig_input_shape")
        return wanted.with_rank(windows.layout_of(data_format).rank)

    @backward.kernel
    def _(orig_input_shape: Array, grad: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        window = pool_window([int(d) for d in orig_input_shape], ctx.op.attrs)
        if window.outputs != grad.shape:
            raise ValueError(f"pooling shape {window.lengths} gives {window.outputs}, but grad has {grad.shape}")
        return _from_average(xp, grad, window)

    @backward.gradient
    def _(op: Operation, grad: Tensor) -> Any:
        return None, forward(grad, **_attrs(op))

    return forward, backward


AvgPool, AvgPoolGrad = _average_pool(("AvgPool", "AvgPoolGrad"), "value", _SIZES_2D, _FORMAT_2D)
AvgPool3D, AvgPool3DGrad = _average_pool(("AvgPool3D", "AvgPool3DGrad"), "input", _SIZES_3D, _FORMAT_3D)
