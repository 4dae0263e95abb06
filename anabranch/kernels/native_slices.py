"""Gradients of convolutions with one tap and strides by oneDNN: of what the window sees, as if there were no strides.

A window of one tap with strides sees one place of several. The library's own ways to such gradients take up to twice as
long as they take without strides. So what the window sees is copied together first; and what comes back is spread
among zeros, along axes that are split for it, since XLA divides for each number where it puts zeros between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from jax import lax, numpy as jnp

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.kernels import native_calls, native_convolutions, onednn
from anabranch.kernels.convolutions import CONVOLUTIONS, Direction
from anabranch.kernels.native_convolutions import TO_FILTER, TO_INPUT
from anabranch.ops.nn.conv import Geometry

#: its name among the kernels
NAME: Final = "onednn of what is seen"
#: what share of the time of XLA's own convolution, which multiplies for each place of the data, one without strides
#: takes; and what the copy adds to it
_WITHOUT_STRIDES: Final = {TO_INPUT: 0.75, TO_FILTER: 1.0}
_COPY_SHARE: Final = 0.01


def _dense(geometry: Geometry, attrs: Mapping[str, Any]) -> Geometry | None:
    """The convolution without strides of what the window sees; None where it is one of another kind."""
    window = geometry.window
    if window.taps != 1 or max(window.strides) == 1 or any(map(any, window.pads)):
        return None
    ones = [1] * len(window.size)
    without = {**attrs, "strides": ones, "dilations": ones, "padding": b"VALID", "explicit_paddings": []}
    return Geometry(without, window.outputs, geometry.filter_shape, depthwise=False)


def _spread(small: Array, strides: Sequence[int], lengths: Sequence[int]) -> Any:
    """Numbers at the places that a window of one tap sees, and zeros between: [batch, rows, columns, channels]."""
    batch, rows, columns, channels = small.shape
    _, down, across, _ = strides
    split = small.reshape(batch, rows, 1, columns, 1, channels)
    # the window's last position is the last place, or so many before it that another position would not fit
    split = jnp.pad(split, [(0, 0), (0, 0), (0, down - 1), (0, 0), (0, across - 1), (0, 0)])
    return lax.slice(split.reshape(batch, rows * down, columns * across, channels), (0,) * 4, lengths)


def _register(direction: Direction, at: int) -> None:
    def takes(case: KernelCase) -> bool:
        library = onednn.library()
        if library is None or not library.computes(case.inputs[direction.operands[0]].dtype):
            return False
        geometry = direction.covered(case)
        return geometry is not None and _dense(geometry, case.attrs) is not None

    def dense_of(case: KernelCase) -> tuple[native_convolutions.Convolution, Geometry]:
        geometry = direction.covered(case)
        dense = None if geometry is None else _dense(geometry, case.attrs)
        assert dense is not None  # `takes` has said so
        dtype = str(case.inputs[direction.operands[0]].dtype)
        return native_convolutions.described_of(dense, at, False, dtype)[0], dense

    def estimate(case: KernelCase) -> float:
        return native_convolutions.cost(*dense_of(case)) * _WITHOUT_STRIDES[at] + _COPY_SHARE

    def kernel(*inputs: Array, ctx: OperationContext) -> Any:
        assert direction.sizes is not None  # gradients have them
        geometry = direction.geometry(ctx.op.attrs, [value.shape for value in inputs], inputs[direction.sizes])
        dense = _dense(geometry, ctx.op.attrs)
        assert dense is not None  # `takes` has said so
        one, other = (inputs[i] for i in direction.operands)
        window, dtype = geometry.window, one.dtype
        text = native_convolutions.described_of(dense, at, False, str(dtype))[1]
        if at == TO_INPUT:
            small = native_calls.call(ctx.op.name, text, (one, other), dense.shape, dtype)
            return _spread(small, window.strides, window.lengths)
        ends = [(count - 1) * stride + 1 for count, stride in zip(window.outputs, window.strides, strict=True)]
        seen = lax.slice(one, (0,) * len(ends), ends, window.strides)
        return native_calls.call(ctx.op.name, text, (seen, other), tuple(map(int, dense.filter_shape)), dtype)

    register_kernel(
        direction.op_type,
        NAME,
        device_type="CPU",
        types={"T": [dtypes.float32, dtypes.bfloat16]},
        applies=takes,
        offered=lambda case: native_convolutions.usable(dense_of(case)[0]),
        cost=estimate,
        rough=native_calls.is_rough,
        calls_back=True,
    )(kernel)


for _at in (TO_INPUT, TO_FILTER):
    _register(CONVOLUTIONS[0][_at], _at)
