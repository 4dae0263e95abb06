"""Kernels of convolutions on processors, where XLA's own are slow: what they cost, and when they apply.

A convolution, its gradient with respect to the data and the one with respect to the filter have the same alternates:

* ``product``: one matrix product, where the filter is 1x1 or covers the whole data (`conv_forms`);
* ``columns``, for the gradient with respect to the data: one product, whose columns are added up (`conv_forms`);
* ``shifts``, for convolutions per channel: sums of shifted copies, which fuse (`conv_forms`);
* ``winograd``: 3x3 filters in fewer multiplications (`winograd`).

All need channels last and no groups. Estimates are shares of the time of XLA's own convolution, from the measurements
in `docs/performance.md`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jax import numpy as jnp

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.attrs import AttributeValue
from anabranch.core.kernel_context import OperationContext
from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.core.processor import has_wide_vectors
from anabranch.kernels import conv_forms, winograd
from anabranch.ops.nn.conv import Geometry, geometry_to_input
from anabranch.ops.nn.conv_relu import with_bias_and_relu
from anabranch.ops.nn.sliding import Window

#: computes a convolution from its two operands
Form = Callable[[Any, Any, Window], Any]


@dataclass(frozen=True, slots=True)
class Direction:
    """A convolution, or one of its gradients, as an operation with two operands.

    Attributes:
        operands: which inputs they are.
        sizes: which input has the sizes of what is computed; None: the convolution itself, which needs none.
        bias: which input is the bias, where bias and ReLU follow.
    """

    op_type: str
    operands: tuple[int, int]
    sizes: int | None
    depthwise: bool
    bias: int | None = None

    def geometry(self, attrs: Mapping[str, Any], shapes: Sequence[tuple[int, ...]], sizes: Array) -> Geometry:
        """The convolution of data and a filter that this belongs to."""
        one, other = (tuple(map(int, shapes[i])) for i in self.operands)
        given = () if self.sizes is None else tuple(int(d) for d in sizes)
        read = tuple((name, _plain(attrs[name])) for name in _ATTRS if name in attrs)
        return _geometry(self, read, one, other, given)

    def fitting(self, case: KernelCase) -> Geometry | None:
        """The convolution of a case, if its shapes fit each other and nothing is empty.

        Where shapes do not fit, the operation's own kernel says so.
        """
        shapes = [given.shape for given in case.inputs]
        sizes = None if self.sizes is None else case.inputs[self.sizes].value
        if self.sizes is not None and sizes is None:
            return None
        try:
            dims = self.geometry(case.attrs, shapes, sizes)
        except (ValueError, IndexError):
            return None
        if self.sizes is not None and tuple(shapes[self.operands[1]]) != dims.out_shape:
            return None
        if self.bias is not None and tuple(shapes[self.bias]) != dims.filter_shape[-1:]:
            return None
        return None if 0 in (*dims.shape, *dims.filter_shape, *dims.out_shape) else dims

    def covered(self, case: KernelCase) -> Geometry | None:
        """The same, if channels are last, and there are no groups."""
        dims = self.fitting(case)
        if dims is None or dims.layout.channel != dims.layout.rank - 1 or dims.filter_shape[-2] != dims.channels:
            return None
        return dims

    def register(
        self,
        name: str,
        form: Form,
        applies: Callable[[Window], bool],
        cost: Callable[[Geometry], float],
        types: Mapping[str, Any] | None = None,
    ) -> None:
        """Registers a form of it for processors."""

        def takes(case: KernelCase) -> bool:
            geometry = self.covered(case)
            return geometry is not None and applies(geometry.window)

        def estimate(case: KernelCase) -> float:
            geometry = self.covered(case)
            assert geometry is not None  # `takes` has said so
            return cost(geometry)

        def kernel(*inputs: Array, ctx: OperationContext) -> Any:
            sizes = None if self.sizes is None else inputs[self.sizes]
            geometry = self.geometry(ctx.op.attrs, [value.shape for value in inputs], sizes)
            result = form(inputs[self.operands[0]], inputs[self.operands[1]], geometry.window)
            return result if self.bias is None else with_bias_and_relu(result, inputs[self.bias], jnp, ctx)

        register_kernel(self.op_type, name, device_type="CPU", types=types, applies=takes, cost=estimate)(kernel)


#: the attributes that a convolution depends on
_ATTRS: Final = ("strides", "padding", "dilations", "data_format", "explicit_paddings")


def _plain(value: AttributeValue) -> Hashable:
    return tuple(value) if isinstance(value, list) else value


@functools.lru_cache(2048)
def _geometry(
    direction: Direction,
    attrs: tuple[tuple[str, Any], ...],
    one: tuple[int, ...],
    other: tuple[int, ...],
    sizes: tuple[int, ...],
) -> Geometry:
    """The convolution; it is asked for by each kernel, and in each call that runs directly."""
    if direction.sizes is None:
        return Geometry(dict(attrs), one, other, direction.depthwise)
    if direction.sizes == 0:
        return geometry_to_input(dict(attrs), sizes, one, other, direction.depthwise)
    return Geometry(dict(attrs), one, sizes, direction.depthwise)


def _directions(forward: str, to_input: str, to_filter: str, depthwise: bool = False) -> tuple[Direction, ...]:
    return (
        Direction(forward, (0, 1), None, depthwise),
        Direction(to_input, (1, 2), 0, depthwise),
        Direction(to_filter, (0, 2), 1, depthwise),
    )


# ---------------------------------------------------------------------- what they cost
#: a product where the filter has one element, and where it covers the data: of forward, to the input, to the filter
_PRODUCT_COSTS: Final = ((0.95, 0.15), (0.95, 0.05), (0.15, 0.4))
#: what a direct sum at the processor's full rate takes of the time of XLA's own convolution
WIDE_SHARES: Final = (0.65, 0.7, 0.3)
_TO_INPUT: Final = 1
#: 60 times faster
_SHIFTS_COST: Final = 0.02


def _product_cost(direction: int) -> Callable[[Geometry], float]:
    single, covering = _PRODUCT_COSTS[direction]
    return lambda geometry: single if geometry.window.taps == 1 else covering


def _columns_cost(geometry: Geometry) -> float:
    return conv_forms.spreading_cost(geometry.channels, geometry.filter_shape[-1], geometry.window)


def _winograd_cost(direction: int) -> Callable[[Geometry], float]:
    def cost(geometry: Geometry) -> float:
        channels = geometry.filter_shape[-2:]
        if has_wide_vectors():
            share = winograd.wide_cost(geometry.window, *channels)
            return share if share > 1 else share * WIDE_SHARES[direction]
        share = winograd.cost(geometry.window, *channels)
        if direction != _TO_INPUT or share > 1:
            return share
        # XLA multiplies for each place of the data, also where the window never stood; here only its positions count
        return share * min(1.0, conv_forms.occupied_share(geometry.window))

    return cost


# ---------------------------------------------------------------------- the kernels
#: forward, to the input, to the filter: in two and three dimensions, and per channel
CONVOLUTIONS: Final = (
    _directions("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"),
    _directions("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"),
    _directions(
        *("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter"),
        depthwise=True,
    ),
)

#: the convolution of images with bias and ReLU behind it
WITH_BIAS: Final = Direction("_Conv2DBiasRelu", (0, 1), None, False, bias=2)

for _forward in (CONVOLUTIONS[0][0], CONVOLUTIONS[1][0], WITH_BIAS):
    _forward.register("product", conv_forms.forward, conv_forms.is_product, _product_cost(0))
for _three in CONVOLUTIONS[:2]:
    _three[1].register("product", conv_forms.to_input, conv_forms.is_product, _product_cost(1))
    _three[1].register("columns", conv_forms.to_input, conv_forms.can_spread, _columns_cost)
    _three[2].register("product", conv_forms.to_filter, conv_forms.is_product, _product_cost(2))

for _direction, _form, _cost in zip(
    (*CONVOLUTIONS[0], WITH_BIAS),
    (winograd.forward, winograd.to_input, winograd.to_filter, winograd.forward),
    map(_winograd_cost, (0, 1, 2, 0)),
    strict=True,
):
    _direction.register("winograd", _form, winograd.applies, _cost, {"T": [dtypes.float32]})

for _direction, _form in zip(
    CONVOLUTIONS[2],
    (conv_forms.depthwise_forward, conv_forms.depthwise_to_input, conv_forms.depthwise_to_filter),
    strict=True,
):
    _direction.register("shifts", _form, lambda window: True, lambda geometry: _SHIFTS_COST)
