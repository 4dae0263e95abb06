"""Morphological dilation of grey images: the largest sum of pixel and filter under a sliding window, per channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from jax import numpy as jnp

from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.nn import windows
from anabranch.ops.nn.sliding import Window, shifted, unshifted, wide

_ATTRS = "T: real, strides: list(int) >= 4, rates: list(int) >= 4, padding: {'SAME', 'VALID'}"
_NHWC = windows.layout_of(b"NHWC")


def _window(shape: Sequence[int], filter: Array, attrs: dict[str, Any]) -> Window:
    size = (1, *filter[:2], 1)
    per_axis = list(zip(shape, size, attrs["strides"], attrs["rates"], strict=True))
    padding = attrs["padding"]
    return Window(
        size,
        tuple(attrs["strides"]),
        tuple(attrs["rates"]),
        tuple(windows.pad_amounts(n, k, s, padding, r) for n, k, s, r in per_axis),
        tuple(shape),
        tuple(windows.positions(n, k, s, padding, r) or 0 for n, k, s, r in per_axis),
    )


def _sums(data: Array, filter: Array, window: Window) -> list[Any]:
    """Pixel plus filter for each tap; outside the image the lowest number, which never wins."""
    lowest = _lowest(data.dtype)
    taps = filter.reshape(window.taps, filter.shape[-1])
    inside = shifted(np.ones(data.shape, bool), window, False)
    fill = np.array(lowest, data.dtype)
    return [
        jnp.where(within, part + tap, fill)
        for within, part, tap in zip(inside, shifted(data, window), taps, strict=True)
    ]


def _lowest(dtype: np.dtype[Any]) -> Any:
    """The lowest finite number."""
    limits = np.iinfo(dtype) if dtype.kind in "iu" else ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return limits.min


def _first_best(sums: list[Any]) -> tuple[Any, Any]:
    """The largest of the sums, and which tap has it first. NaN is not larger than anything, nor is -infinity."""
    best: Any = jnp.full(sums[0].shape, _lowest(sums[0].dtype), sums[0].dtype)
    hit: Any = jnp.zeros(best.shape, np.int32)
    for tap, part in enumerate(sums):
        better = part > best
        hit = jnp.where(better, np.int32(tap), hit)
        best = jnp.where(better, part, best)
    return best, hit


Dilation2D = define_op("Dilation2D", "input: T, filter: T -> output: T", _ATTRS)


@Dilation2D.shape
def _dilated_shape(
    input: TensorShape, filter: TensorShape, *, strides: list[int], rates: list[int], padding: bytes
) -> TensorShape:
    dims = shape_rules.with_rank(input, 4, "the input").dims_tuple or (None,) * 4
    kernel = shape_rules.with_rank(filter, 3, "the filter").dims_tuple or (None,) * 3
    windows.per_axis(strides, _NHWC, "strides")
    windows.per_axis(rates, _NHWC, "rates")
    if None not in (dims[3], kernel[2]) and dims[3] != kernel[2]:
        raise ValueError(f"the filter is for {kernel[2]} channels, but the input has {dims[3]}")
    lengths = [windows.positions(dims[a], kernel[a - 1], strides[a], padding, rates[a]) for a in (1, 2)]
    return TensorShape([dims[0], *lengths, kernel[2] if dims[3] is None else dims[3]])


@Dilation2D.kernel
def _(input: Array, filter: Array, *, ctx: OperationContext) -> Any:
    return _first_best(_sums(input, filter, _window(input.shape, filter.shape, ctx.op.attrs)))[0]


@Dilation2D.gradient
def _(op: Operation, grad: Tensor) -> Any:
    data, filter = op.inputs
    attrs = {name: op.attrs[name] for name in ("strides", "rates", "padding")}
    return (
        raw.Dilation2DBackpropInput(data, filter, grad, **attrs),
        raw.Dilation2DBackpropFilter(data, filter, grad, **attrs),
    )


Dilation2DBackpropInput = define_op(
    "Dilation2DBackpropInput", "input: T, filter: T, out_backprop: T -> in_backprop: T", _ATTRS
)
Dilation2DBackpropInput.not_differentiable()


@Dilation2DBackpropInput.late_shape
def _(
    input: TensorShape,
    filter: TensorShape,
    out_backprop: TensorShape,
    *,
    strides: list[int],
    rates: list[int],
    padding: bytes,
) -> TensorShape:
    shape_rules.merged(_dilated_shape(input, filter, strides=strides, rates=rates, padding=padding), out_backprop)
    return shape_rules.with_rank(input, 4, "the input")


@Dilation2DBackpropInput.kernel
def _(input: Array, filter: Array, out_backprop: Array, *, ctx: OperationContext) -> Any:
    window = _window(input.shape, filter.shape, ctx.op.attrs)
    _, hit = _first_best(_sums(input, filter, window))
    zero = np.zeros((), out_backprop.dtype)
    parts = [wide(jnp.where(hit == tap, out_backprop, zero)) for tap in range(window.taps)]
    return unshifted(parts, window).astype(input.dtype)


Dilation2DBackpropFilter = define_op(
    "Dilation2DBackpropFilter", "input: T, filter: T, out_backprop: T -> filter_backprop: T", _ATTRS
)
Dilation2DBackpropFilter.not_differentiable()


@Dilation2DBackpropFilter.late_shape
def _(
    input: TensorShape,
    filter: TensorShape,
    out_backprop: TensorShape,
    *,
    strides: list[int],
    rates: list[int],
    padding: bytes,
) -> TensorShape:
    shape_rules.merged(_dilated_shape(input, filter, strides=strides, rates=rates, padding=padding), out_backprop)
    return shape_rules.with_rank(filter, 3, "the filter")


@Dilation2DBackpropFilter.kernel
def _(input: Array, filter: Array, out_backprop: Array, *, ctx: OperationContext) -> Any:
    window = _window(input.shape, filter.shape, ctx.op.attrs)
    _, hit = _first_best(_sums(input, filter, window))
    incoming = wide(jnp.asarray(out_backprop))
    taps = [jnp.where(hit == tap, incoming, np.zeros((), incoming.dtype)).sum((0, 1, 2)) for tap in range(window.taps)]
    return jnp.stack(taps).reshape(filter.shape).astype(filter.dtype)
