"""Convolutions in two and three dimensions, and per channel (depthwise).

Filters have the layout [*spatial, in channels, out channels]. Gradients with respect to the data and to the filter are
operations of their own. Each of the three is linear in two arguments and the other two are its gradients, so any order
of derivative is made of the same three.

The kernels are XLA's own convolution and its transposes. Where others are faster, `kernels/convolutions.py` has them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax, numpy as jnp

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.op_def import FlopsRule
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.constants import ShapeContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import shape_rules
from anabranch.ops.known_shapes import full_shape
from anabranch.ops.nn import host_convolutions, windows
from anabranch.ops.nn.sliding import Window
from anabranch.ops.nn.windows import Layout

Attrs = dict[str, Any]
Shape = tuple[int, ...] | None
Shapes = Sequence[Shape]

_ATTRS_2D = (
    "padding: {'SAME', 'VALID', 'EXPLICIT'}, explicit_paddings: list(int) = [], "
    "data_format: {'NHWC', 'NCHW'} = 'NHWC', dilations: list(int) = [1, 1, 1, 1]"
)
_ATTRS_3D = (
    "strides: list(int) >= 5, padding: {'SAME', 'VALID'}, data_format: {'NDHWC', 'NCDHW'} = 'NDHWC', "
    "dilations: list(int) = [1, 1, 1, 1, 1]"
)
#: where an operation takes `input_sizes` of either integer type
_SIZES_TYPE = ", Tshape: index = int32"


# ---------------------------------------------------------------------- shapes
def forward_shape(shapes: Sequence[TensorShape], attrs: Attrs, depthwise: bool) -> TensorShape:
    """The shape of a convolution of data and a filter.

    Raises:
        ValueError: they do not go together, or the attributes are wrong.
    """
    layout = windows.layout_of(attrs["data_format"])
    _check_attrs(attrs, layout)
    data = shape_rules.with_rank(shapes[0], layout.rank, "the input of a convolution")
    filter = shape_rules.with_rank(shapes[1], layout.rank, "the filter")
    dims, kernel = data.dims_tuple or (None,) * layout.rank, filter.dims_tuple or (None,) * layout.rank
    channels, depth, out = dims[layout.channel], kernel[-2], kernel[-1]
    _check_channels(channels, depth, depthwise)
    if not depthwise:
        _check_groups(channels, depth, out)
    if depthwise:
        known = depth if channels is None else channels
        out = None if known is None or out is None else known * out
    lengths = _output_lengths([dims[a] for a in layout.spatial], kernel, attrs, layout, windows.output_length)
    return layout.shape(dims[0], out, lengths)


def _output_lengths(
    lengths: Sequence[int | None],
    kernel: Sequence[int | None],
    attrs: Attrs,
    layout: Layout,
    counted: Callable[..., int | None],
) -> list[int | None]:
    per_axis = zip(
        lengths,
        kernel[: len(lengths)],
        layout.pick(attrs["strides"]),
        layout.pick(attrs["dilations"]),
        layout.pick_pairs(attrs.get("explicit_paddings", ())),
        strict=True,
    )
    return [counted(n, k, s, attrs["padding"], d, p) for n, k, s, d, p in per_axis]


def _check_attrs(attrs: Attrs, layout: Layout) -> None:
    windows.check_explicit(attrs["padding"], attrs.get("explicit_paddings", ()), layout)
    for what in ("strides", "dilations"):
        values = windows.per_axis(attrs[what], layout, what)
        if values[0] != 1 or values[layout.channel] != 1:
            raise ValueError(f"{what} must be 1 for the batch and the channel axis, got {list(values)}")
        if min(values) < 1:
            raise ValueError(f"{what} must be positive, got {list(values)}")


def _check_channels(channels: int | None, depth: int | None, depthwise: bool) -> None:
    if channels is None or depth is None:
        return
    if depthwise and channels != depth:
        raise ValueError(f"the filter is for {depth} channels, but the input has {channels}")
    if depth == 0 or channels % depth:
        raise ValueError(f"the input has {channels} channels, no multiple of the filter's {depth}")


def _check_groups(channels: int | None, depth: int | None, out: int | None) -> None:
    """A filter for fewer channels than the input has belongs to groups of them, each with as many of the outputs."""
    if channels is None or depth is None:
        return
    groups = channels // depth
    if groups == 0:
        raise ValueError(f"the filter is for {depth} channels, but the input has none")
    if out is not None and out % groups:
        raise ValueError(
            f"the filter gives {out} channels, no multiple of the {groups} groups that an input of {channels} channels "
            f"and a filter for {depth} make"
        )


def _to_input_shape(shapes: tuple[TensorShape, ...], attrs: Attrs, ctx: ShapeContext, early: bool) -> TensorShape:
    """Where not `early`, only the shape of the sizes is refused before the operation runs."""
    layout = windows.layout_of(attrs["data_format"])
    if early:
        filter, grad = _filter_and_gradient(shapes, attrs, layout)
        shape_rules.merged(filter[-1:], grad[layout.channel : layout.channel + 1])
    else:
        filter, grad = shape_rules.late(_filter_and_gradient, shapes, attrs, layout)
    sizes = _full_sizes(ctx.constant_as_shape("input_sizes"), filter, grad, layout)
    if early:
        shape_rules.merged(sizes[:1], grad[:1])
    return shape_rules.with_rank(sizes, layout.rank, "input_sizes")


def _filter_and_gradient(
    shapes: tuple[TensorShape, ...], attrs: Attrs, layout: Layout
) -> tuple[TensorShape, TensorShape]:
    _check_attrs(attrs, layout)
    filter = shape_rules.with_rank(shapes[1], layout.rank, "the filter")
    return filter, shape_rules.with_rank(shapes[2], layout.rank, "out_backprop")


def _to_filter_shape(shapes: tuple[TensorShape, ...], attrs: Attrs, ctx: ShapeContext) -> TensorShape:
    layout = windows.layout_of(attrs["data_format"])
    shape_rules.late(_check_attrs, attrs, layout)
    shape_rules.late(shape_rules.with_rank, shapes[0], layout.rank, "the input of a convolution")
    return shape_rules.with_rank(ctx.constant_as_shape("filter_sizes"), layout.rank, "filter_sizes")


def _full_sizes(sizes: TensorShape, filter: TensorShape, grad: TensorShape, layout: Layout) -> TensorShape:
    """`input_sizes` may leave out the batch and the channels."""
    if sizes.ndims == 2 and layout.rank == 4:
        return layout.shape(grad[0], filter[2], list(sizes))
    return sizes


# ---------------------------------------------------------------------- kernels
class Geometry:
    """One convolution of data and a filter of known shapes."""

    __slots__ = ("depthwise", "filter_shape", "layout", "out_shape", "shape", "window")

    def __init__(self, attrs: Attrs, shape: Sequence[int], filter_shape: Sequence[int], depthwise: bool) -> None:
        self.layout = layout = windows.layout_of(attrs["data_format"])
        self.shape, self.filter_shape, self.depthwise = tuple(shape), tuple(filter_shape), depthwise
        self.window = _window(attrs, self.shape, self.filter_shape[:-2], layout)
        depth = self.filter_shape[-1] * (self.filter_shape[-2] if depthwise else 1)
        outputs = [self.window.outputs[a] for a in layout.spatial]
        self.out_shape = tuple(int(d) for d in layout.shape(shape[0], depth, outputs))

    @property
    def channels(self) -> int:
        return self.shape[self.layout.channel]

    def convolve(self, data: Array, filter: Array) -> Any:
        """XLA's own convolution."""
        layout, window = self.layout, self.window
        groups = self.channels // max(1, self._grouped[-2])
        filter = filter.reshape(self._grouped)
        spatial = layout.name.replace("N", "").replace("C", "")
        return lax.conv_general_dilated(
            data,
            filter,
            layout.pick(window.strides),
            layout.pick(window.pads),
            rhs_dilation=layout.pick(window.dilations),
            dimension_numbers=(layout.name, spatial + "IO", layout.name),
            feature_group_count=groups,
        )

    def convolve_to_input(self, filter: Array, grad: Array) -> Any:
        data = jnp.empty(self.shape, grad.dtype)
        return jax.linear_transpose(lambda x: self.convolve(x, filter), data)(grad)[0]

    def convolve_to_filter(self, data: Array, grad: Array) -> Any:
        filter = jnp.empty(self.filter_shape, grad.dtype)
        return jax.linear_transpose(lambda w: self.convolve(data, w), filter)(grad)[0]

    # ------------------------------------------------------------------ the same three in NumPy
    def convolve_on_host(self, data: Array, filter: Array) -> Any:
        result = host_convolutions.convolved(self._turned(data), filter.reshape(self._grouped), self._last)
        return self._turned_back(result)

    def convolve_to_input_on_host(self, filter: Array, grad: Array) -> Any:
        grouped, turned = filter.reshape(self._grouped), self._turned(grad)
        return self._turned_back(host_convolutions.convolved_to_data(grouped, turned, self._last))

    def convolve_to_filter_on_host(self, data: Array, grad: Array) -> Any:
        turned = self._turned(data), self._turned(grad)
        return host_convolutions.convolved_to_filter(*turned, self._last, self._grouped).reshape(self.filter_shape)

    @property
    def _grouped(self) -> tuple[int, ...]:
        """The filter's shape where it says how many channels a group has: one, where it is depthwise."""
        if not self.depthwise:
            return self.filter_shape
        return *self.filter_shape[:-2], 1, self.filter_shape[-2] * self.filter_shape[-1]

    def _turned(self, array: Array) -> Any:
        """With channels last."""
        return np.moveaxis(array, self.layout.channel, -1)

    def _turned_back(self, array: Array) -> Any:
        return np.moveaxis(array, -1, self.layout.channel)

    @property
    def _last(self) -> Window:
        """The window over data with channels last.

        Raises:
            ValueError: the channels of data and filter do not go together, which XLA sees for itself.
        """
        _check_channels(self.channels, self.filter_shape[-2], self.depthwise)
        if not self.depthwise:
            _check_groups(self.channels, *self.filter_shape[-2:])
        axes, window = (0, *self.layout.spatial, self.layout.channel), self.window
        per_axis = (window.size, window.strides, window.dilations, window.lengths, window.outputs)
        size, strides, dilations, lengths, outputs = (tuple(values[axis] for axis in axes) for values in per_axis)
        return Window(size, strides, dilations, tuple(window.pads[axis] for axis in axes), lengths, outputs)


def _window(attrs: Attrs, shape: Sequence[int], size: Sequence[int], layout: Layout) -> Window:
    """The filter's window over all axes of data of that shape."""
    lengths = [shape[a] for a in layout.spatial]
    strides, dilations = layout.pick(attrs["strides"]), layout.pick(attrs["dilations"])
    explicit = layout.pick_pairs(attrs.get("explicit_paddings", ()))
    pads = [
        windows.pad_amounts(n, k, s, attrs["padding"], d, p)
        for n, k, s, d, p in zip(lengths, size, strides, dilations, explicit, strict=True)
    ]
    outputs = [n or 0 for n in _output_lengths(lengths, size, attrs, layout, windows.positions)]
    return Window(
        layout.spread(size, 1),
        layout.spread(strides, 1),
        layout.spread(dilations, 1),
        layout.spread(pads, (0, 0)),
        tuple(shape),
        tuple(outputs[layout.spatial.index(a)] if a in layout.spatial else n for a, n in enumerate(shape)),
    )


def geometry_to_input(
    attrs: Attrs, sizes: Sequence[Any], filter_shape: Sequence[int], grad_shape: Sequence[int], depthwise: bool
) -> Geometry:
    """The convolution whose gradient with respect to the data is taken, `sizes` being the value of `input_sizes`."""
    given = TensorShape([int(d) for d in sizes])
    layout = windows.layout_of(attrs["data_format"])
    shape = _full_sizes(given, TensorShape(filter_shape), TensorShape(grad_shape), layout)
    return Geometry(attrs, [int(d) for d in shape], filter_shape, depthwise)


def convolved(xp: ArrayLibrary, data: Array, filter: Array, attrs: Attrs, depthwise: bool) -> Any:
    """A convolution, by XLA or by NumPy."""
    geometry = Geometry(attrs, data.shape, filter.shape, depthwise)
    return geometry.convolve_on_host(data, filter) if xp is np else geometry.convolve(data, filter)


def _to_input(
    xp: ArrayLibrary, sizes: Array, filter: Array, grad: Array, ctx: OperationContext, depthwise: bool
) -> Any:
    geometry = geometry_to_input(ctx.op.attrs, sizes, filter.shape, grad.shape, depthwise)
    _check_grad(grad, geometry, ctx)
    return (geometry.convolve_to_input_on_host if xp is np else geometry.convolve_to_input)(filter, grad)


def _to_filter(xp: ArrayLibrary, data: Array, sizes: Array, grad: Array, ctx: OperationContext, depthwise: bool) -> Any:
    geometry = Geometry(ctx.op.attrs, data.shape, [int(d) for d in sizes], depthwise)
    _check_grad(grad, geometry, ctx)
    return (geometry.convolve_to_filter_on_host if xp is np else geometry.convolve_to_filter)(data, grad)


def _check_grad(grad: Array, geometry: Geometry, ctx: OperationContext) -> None:
    ctx.check(
        grad.shape == geometry.out_shape,
        f"out_backprop has shape {grad.shape}, but data of shape {geometry.shape} and a filter of shape "
        f"{geometry.filter_shape} give {geometry.out_shape}",
    )


def flops_of(arrays: Callable[[Shapes, Shapes], tuple[Shape, Shape]], depthwise: bool = False) -> FlopsRule:
    """For each element of the convolution's result as many products as the filter has elements per output channel.

    Args:
        arrays: the shapes of the filter and of the result, among those of an operation's inputs and outputs.
    """

    def rule(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
        filter, result = arrays(inputs, outputs)
        if filter is None or len(filter) < 3:
            return 2 * math.prod(result or ())
        # each output channel of a depthwise filter sees one channel
        return 2 * math.prod(result or ()) * math.prod(filter[: -2 if depthwise else -1])

    return rule


def of_forward(inputs: Shapes, outputs: Shapes) -> tuple[Shape, Shape]:
    """Of a convolution itself."""
    return inputs[1], outputs[0]


def _of_gradient(inputs: Shapes, outputs: Shapes) -> tuple[Shape, Shape]:
    """Of a gradient to the data, and of both that are shaped as tensors."""
    return inputs[1], inputs[2]


def _of_filter_gradient(inputs: Shapes, outputs: Shapes) -> tuple[Shape, Shape]:
    return outputs[0], inputs[2]


# ---------------------------------------------------------------------- the operations
def _convolution(
    names: tuple[str, str, str],
    linear: str,
    to_filter: str,
    sizes: str = "int32",
    depthwise: bool = False,
) -> tuple[OpFunction, OpFunction, OpFunction]:
    """A convolution, its gradient with respect to the data, and the one with respect to the filter.

    Args:
        names: of the three operations.
        linear, to_filter: attributes of the first two, and of the third.
        sizes: the type of `input_sizes`.
    """
    # cuDNN convolves floating-point numbers only
    forward = define_op(
        names[0], "input: T, filter: T -> output: T", linear.replace(_SIZES_TYPE, ""), processors_only="integers"
    )
    back = define_op(
        names[1],
        f"input_sizes: {sizes}, filter: T, out_backprop: T -> output: T",
        linear,
        static=("input_sizes",),
        ranks={"input_sizes": 1},
        processors_only="integers",
    )
    back_to_filter = define_op(
        names[2],
        "input: T, filter_sizes: int32, out_backprop: T -> output: T",
        to_filter,
        static=("filter_sizes",),
        ranks={"filter_sizes": 1},
        processors_only="integers",
    )
    _attach_shape(forward.shape, forward, lambda shapes, attrs, ctx: forward_shape(shapes, attrs, depthwise))
    _attach_shape(back.shape, back, functools.partial(_to_input_shape, early=names[0] == "Conv2D"))
    _attach_shape(back_to_filter.shape, back_to_filter, _to_filter_shape)

    @forward.kernel
    def _(input: Array, filter: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        return convolved(xp, input, filter, ctx.op.attrs, depthwise)

    @back.kernel
    def _(input_sizes: Array, filter: Array, out_backprop: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        return _to_input(xp, input_sizes, filter, out_backprop, ctx, depthwise)

    @back_to_filter.kernel
    def _(input: Array, filter_sizes: Array, out_backprop: Array, *, xp: ArrayLibrary, ctx: OperationContext) -> Any:
        return _to_filter(xp, input, filter_sizes, out_backprop, ctx, depthwise)

    forward.flops(flops_of(of_forward, depthwise))
    back.flops(flops_of(_of_gradient, depthwise))
    back_to_filter.flops(flops_of(_of_filter_gradient, depthwise))
    _attach_gradients(forward, back, back_to_filter)
    return forward, back, back_to_filter


def _attach_shape(
    attach: Callable[[Any], Any], op: OpFunction, rule: Callable[[tuple[TensorShape, ...], Attrs, Any], TensorShape]
) -> None:
    """Attaches `rule(input shapes, attributes, ctx)`."""
    if "explicit_paddings" in op.attrs:

        @attach
        def _(
            *shapes: TensorShape,
            strides: list[int],
            padding: bytes,
            explicit_paddings: list[int],
            data_format: bytes,
            dilations: list[int],
            ctx: OperationContext,
        ) -> TensorShape:
            attrs = {"strides": strides, "padding": padding, "data_format": data_format, "dilations": dilations}
            return rule(shapes, {**attrs, "explicit_paddings": explicit_paddings}, ctx)

    else:

        @attach
        def _(
            *shapes: TensorShape,
            strides: list[int],
            padding: bytes,
            data_format: bytes,
            dilations: list[int],
            ctx: OperationContext,
        ) -> TensorShape:
            attrs = {"strides": strides, "padding": padding, "data_format": data_format, "dilations": dilations}
            return rule(shapes, attrs, ctx)


def _attach_gradients(forward: OpFunction, to_input: OpFunction, to_filter: OpFunction) -> None:
    @forward.gradient
    def _(op: Operation, grad: Tensor) -> Any:
        data, filter = op.inputs
        attrs = _window_attrs(op)
        return to_input(full_shape(data), filter, grad, **attrs), to_filter(data, full_shape(filter), grad, **attrs)

    @to_input.gradient
    def _(op: Operation, grad: Tensor) -> Any:
        _, filter, incoming = op.inputs
        attrs = _window_attrs(op)
        return None, to_filter(grad, full_shape(filter), incoming, **attrs), forward(grad, filter, **attrs)

    @to_filter.gradient
    def _(op: Operation, grad: Tensor) -> Any:
        data, _, incoming = op.inputs
        attrs = _window_attrs(op)
        return to_input(full_shape(data), grad, incoming, **attrs), None, forward(data, grad, **attrs)


def _window_attrs(op: Operation) -> Attrs:
    names = ("strides", "padding", "explicit_paddings", "use_cudnn_on_gpu", "data_format", "dilations")
    return {name: op.attrs[name] for name in names if name in op.attrs}


#: the attributes of a convolution of images
PLAIN_2D = f"strides: list(int), use_cudnn_on_gpu: bool = True, {_ATTRS_2D}"

Conv2D, Conv2DBackpropInput, Conv2DBackpropFilter = _convolution(
    ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"),
    f"T: {{half, bfloat16, float, double, int32}}, {PLAIN_2D}",
    f"T: floating, {PLAIN_2D}",
)
DepthwiseConv2dNative, DepthwiseConv2dNativeBackpropInput, DepthwiseConv2dNativeBackpropFilter = _convolution(
    ("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter"),
    f"T: floating, strides: list(int), {_ATTRS_2D}",
    f"T: floating, strides: list(int), {_ATTRS_2D}",
    depthwise=True,
)
Conv3D, Conv3DBackpropInputV2, Conv3DBackpropFilterV2 = _convolution(
    ("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"),
    f"T: floating, {_ATTRS_3D}{_SIZES_TYPE}",
    f"T: floating, {_ATTRS_3D}",
    sizes="Tshape",
)


# ---------------------------------------------------------------------- gradients whose sizes are those of tensors
_OLD_3D = (
    "T: {half, float, double}, strides: list(int) >= 5, padding: {'SAME', 'VALID'}, "
    "dilations: list(int) = [1, 1, 1, 1, 1]"
)


def _old_gradient(name: str, sized: str) -> OpFunction:
    """A gradient of `Conv3D` with respect to an input, whose shape is that of the input."""
    op = define_op(name, "input: T, filter: T, out_backprop: T -> output: T", _OLD_3D)
    op.not_differentiable()

    @op.shape
    def _(input: TensorShape, filter: TensorShape, out_backprop: TensorShape) -> TensorShape:
        shape_rules.with_rank(out_backprop, 5, "out_backprop")
        wanted = {"input": input, "filter": filter}
        return [shape_rules.with_rank(shape, 5, what) for what, shape in wanted.items()][sized == "filter"]

    @op.kernel
    def _(input: Array, filter: Array, out_backprop: Array, *, ctx: OperationContext) -> Any:
        geometry = Geometry({**ctx.op.attrs, "data_format": b"NDHWC"}, input.shape, filter.shape, depthwise=False)
        _check_grad(out_backprop, geometry, ctx)
        if sized == "input":
            return geometry.convolve_to_input(filter, out_backprop)
        return geometry.convolve_to_filter(input, out_backprop)

    op.flops(flops_of(_of_gradient))
    return op


Conv3DBackpropInput = _old_gradient("Conv3DBackpropInput", "input")
Conv3DBackpropFilter = _old_gradient("Conv3DBackpropFilter", "filter")
