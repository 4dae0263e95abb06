"""Normalization: batches (fused and global), and local response."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from jax import lax

from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import LateShapeError, TensorShape
from anabranch.graph.building import OpFunction, define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules
from anabranch.ops.nn import windows
from anabranch.ops.nn.sliding import wide

_FORMATS_2D = "data_format: {'NHWC', 'NCHW'} = 'NHWC'"
FORMATS = "data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'"


# ---------------------------------------------------------------------- fused batch normalization
def fused_channels(x: TensorShape, data_format: bytes, *vectors: TensorShape) -> tuple[TensorShape, TensorShape]:
    """The data's shape, and that of the vectors with one number per channel."""
    layout = windows.layout_of(data_format)
    x = shape_rules.with_rank(x, layout.rank, "x")
    channels = TensorShape([x[layout.channel]])
    for vector in vectors:
        channels = channels.merge_with(shape_rules.with_rank(vector, 1, "what has one number per channel"))
    dims = list(x.dims_tuple or [None] * layout.rank)
    dims[layout.channel] = channels[0].value
    return TensorShape(dims), channels


class _PerChannel:
    """Sums over all axes but the channels', and broadcasting of what has one number per channel."""

    def __init__(self, xp: ArrayLibrary, x: Array, data_format: bytes) -> None:
        channel = windows.layout_of(data_format).channel
        self.xp = xp
        self.axes = tuple(a for a in range(x.ndim) if a != channel)
        self.shape = [-1 if a == channel else 1 for a in range(x.ndim)]
        self.count = x.size // max(1, x.shape[channel])
        self.is_last = channel == x.ndim - 1

    def sum(self, x: Array) -> Any:
        return self.xp.sum(x, axis=self.axes)

    def spread(self, vector: Array) -> Any:
        return self.xp.reshape(vector, self.shape)


def fused_forward(
    xp: ArrayLibrary, x: Array, scale: Array, offset: Array, mean: Array, variance: Array, attrs: dict[str, Any]
) -> tuple[Any, ...]:
    """y, the new running mean and variance, and the batch's own (or the given ones where not training)."""
    wanted, x, scale, offset = x.dtype, wide(x), wide(scale), wide(offset)
    per = _PerChannel(xp, x, attrs["data_format"])
    epsilon = np.asarray(attrs["epsilon"], x.dtype)
    running = wide(mean), wide(variance)
    in_blocks = xp is np and per.is_last
    if attrs["is_training"]:
        sums = _sums_on_host(x) if in_blocks else per.sum(x)
        own_mean = sums / np.asarray(max(1, per.count), x.dtype)
        centred = None if in_blocks else x - per.spread(own_mean)
        squares = _squares_on_host(x, own_mean) if centred is None else per.sum(xp.square(centred))
        own_variance = squares / np.asarray(max(1, per.count), x.dtype)
        if not per.count:  # an empty batch has neither, as TensorFlow says
            own_mean, own_variance = own_mean * np.nan, own_variance * np.nan
        running = running_averages(own_mean, own_variance, running, per.count, attrs)
    else:
        own_mean, own_variance = running
        centred = None if in_blocks else x - per.spread(own_mean)
    factor = scale / xp.sqrt(own_variance + epsilon)
    if centred is None:
        y = _scaled_on_host(x, own_mean, factor, offset)
    else:
        y = centred * per.spread(factor) + per.spread(offset)
    return y.astype(wanted, copy=False), *running, own_mean, own_variance


#: elements that NumPy works on at a time, so that they stay in a processor's cache from one operation to the next
_BLOCK: Final = 1 << 15


class _Blocks:
    """Blocks of rows of an array on the host, whose last axis is that of the channels.

    What is added to each row, or multiplied with it, is written out for a block: NumPy takes longer where it has to
    begin anew for each row of a few channels.
    """

    def __init__(self, x: Array) -> None:
        self.channels = x.shape[-1]
        count = math.prod(x.shape[:-1])
        self._rows = max(1, min(count, _BLOCK // max(1, self.channels)))
        size = self._rows * self.channels
        self.slices = [slice(start, start + size) for start in range(0, x.size, max(1, size))]

    def spread(self, vector: Array) -> Any:
        """A number per channel for each element of a block."""
        return np.tile(vector, self._rows)

    def of_rows(self, block: Array) -> Any:
        """A block as [rows, channels]."""
        return block.reshape(-1, self.channels)


def _sums_on_host(x: Array) -> Any:
    """Sums per channel, which is the last axis. Those of blocks are added in float64, as all sums here."""
    blocks, flat, total = _Blocks(x), x.reshape(-1), np.zeros(x.shape[-1])
    for block in blocks.slices:
        total += blocks.of_rows(flat[block]).sum(0)
    return total.astype(x.dtype)


def _squares_on_host(x: Array, mean: Array) -> Any:
    """Sums, per channel, which is the last axis, of the squares of what differs from the means."""
    blocks, flat, total = _Blocks(x), x.reshape(-1), np.zeros(x.shape[-1])
    means = blocks.spread(mean)
    for block in blocks.slices:
        part = flat[block]
        centred = blocks.of_rows(part - means[: len(part)])
        total += np.einsum("rc,rc->c", centred, centred)
    return total.astype(x.dtype)


def _scaled_on_host(x: Array, mean: Array, factor: Array, offset: Array) -> Any:
    """(x - mean) * factor + offset, per channel, which is the last axis."""
    blocks, flat = _Blocks(x), x.reshape(-1)
    means, factors, offsets = map(blocks.spread, (mean, factor, offset))
    y = np.empty_like(flat)
    for block in blocks.slices:
        part = y[block]
        size = len(part)
        np.subtract(flat[block], means[:size], out=part)
        part *= factors[:size]
        part += offsets[:size]
    return y.reshape(x.shape)


def _backward_on_host(
    grad: Array, x: Array, scale: Array, mean: Array, inverse: Array, is_training: bool
) -> tuple[Any, Any, Any]:
    """As `fused_backward`, for NumPy's arrays of which the channels are the last axis."""
    blocks, flat, grads = _Blocks(x), x.reshape(-1), grad.reshape(-1)
    means = blocks.spread(mean)
    scales, offsets = np.zeros(blocks.channels), np.zeros(blocks.channels)
    for block in blocks.slices:
        part, rows = flat[block], blocks.of_rows(grads[block])
        scales += np.einsum("rc,rc->c", blocks.of_rows(part - means[: len(part)]), rows)
        offsets += rows.sum(0)
    # an empty batch has no variance, and its gradients are zero all the same
    to_scale, to_offset = (scales * inverse if x.size else scales).astype(x.dtype), offsets.astype(x.dtype)
    if not is_training:
        return grad * (scale * inverse), to_scale, to_offset
    # the batch's own mean and variance move with x
    count = np.asarray(max(1, x.size // max(1, blocks.channels)), x.dtype)
    slopes, shifts, factors = map(blocks.spread, (inverse * to_scale / count, to_offset / count, scale * inverse))
    to_x = np.empty_like(flat)
    for block in blocks.slices:
        part = to_x[block]
        size = len(part)
        np.subtract(means[:size], flat[block], out=part)
        part *= slopes[:size]
        part -= shifts[:size]
        part += grads[block]
        part *= factors[:size]
    return to_x.reshape(x.shape), to_scale, to_offset


def running_averages(
    mean: Array, variance: Array, old: tuple[Any, Any], count: int, attrs: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Running averages of a batch's mean and variance, [channels] each, over `count` numbers a channel.

    They take the unbiased variance; factor 1 forgets what was.
    """
    factor: float = attrs["exponential_avg_factor"]
    unbiased = variance * np.asarray(count / max(1, count - 1), variance.dtype)
    if factor == 1:
        return mean, unbiased
    new, kept = np.asarray(factor, mean.dtype), np.asarray(1 - factor, mean.dtype)
    return old[0] * kept + mean * new, old[1] * kept + unbiased * new


def fused_backward(
    xp: ArrayLibrary, grad: Array, x: Array, scale: Array, mean: Array, variance: Array, attrs: dict[str, Any]
) -> tuple[Any, Any, Any]:
    wanted, grad, x, scale = x.dtype, wide(grad), wide(x), wide(scale)
    per = _PerChannel(xp, x, attrs["data_format"])
    inverse = np.asarray(1, x.dtype) / xp.sqrt(wide(variance) + np.asarray(attrs["epsilon"], x.dtype))
    if xp is np and per.is_last:
        to_x, to_scale, to_offset = _backward_on_host(grad, x, scale, wide(mean), inverse, attrs["is_training"])
        return to_x.astype(wanted, copy=False), to_scale, to_offset
    normal = (x - per.spread(wide(mean))) * per.spread(inverse)
    to_scale, to_offset = per.sum(grad * normal), per.sum(grad)
    if attrs["is_training"]:
        # The batch's own mean and variance move with x.
        count = np.asarray(max(1, per.count), x.dtype)
        grad = grad - per.spread(to_offset / count) - normal * per.spread(to_scale / count)
    to_x = grad * per.spread(scale * inverse)
    return to_x.astype(wanted), to_scale, to_offset


def _fused_gradient(op: Operation, grad: Tensor, *further: Tensor | None) -> list[Tensor | None]:
    """Only y is differentiated, as in TensorFlow: the averages are for bookkeeping."""
    x, scale, _, mean, variance = op.inputs
    reserved = list(op.outputs[3:])
    if not op.attrs["is_training"]:
        reserved[:2] = [mean, variance]
    backward = getattr(raw, op.type.replace("FusedBatchNorm", "FusedBatchNormGrad"))
    attrs = {name: op.attrs[name] for name in ("epsilon", "data_format", "is_training")}
    grads = backward(grad, x, scale, *reserved, **attrs)
    return [grads[0], grads[1], grads[2], None, None]


def _fused_second_gradient(
    op: Operation, grad_x: Tensor, grad_scale: Tensor, grad_offset: Tensor, *_: Tensor | None
) -> Any:
    """The gradient of the gradient; second-order as far as it depends on the incoming gradient, x and scale.

    With n the normalized x, r = 1/sqrt(variance + epsilon), <.> the mean per channel over N positions, and P(v) =
    v - <v> - n <v n>, the gradient is  dx = scale r P(g),  dscale = N <g n>,  doffset = N <g>.  P is its own
    transpose, and  d n[v] = r P(v),  d r[v] = -r^2 <n v>  (without training n moves by r v, and P is the identity).
    """
    g, x, scale, mean, variance, *rest = op.inputs
    wanted, wider = x.dtype, mean.dtype
    a, g, x = (raw.Cast(t, DstT=wider) for t in (grad_x, g, x))
    layout = windows.layout_of(op.attrs["data_format"])
    axes = np.array([axis for axis in range(layout.rank) if axis != layout.channel], np.int32)
    vector = np.array([-1 if axis == layout.channel else 1 for axis in range(layout.rank)], np.int32)
    training = op.attrs["is_training"]

    def spread(t: Array) -> Any:
        return raw.Reshape(t, vector)

    def average(t: Array) -> Any:
        return raw.Mean(t, axes, keep_dims=True)

    def project(t: Array) -> Any:
        if not training:
            return t
        return raw.Sub(raw.Sub(t, average(t)), _times(n, average(_times(t, n))))

    if training:  # computed anew: the gradient of the gradient depends on x through them as well
        mean, variance = average(x), average(raw.Square(raw.Sub(x, average(x))))
    else:
        mean, variance = spread(mean), spread(variance)
    r = raw.Rsqrt(raw.Add(variance, np.asarray(op.attrs["epsilon"], wider.as_numpy_dtype)))
    n = _times(raw.Sub(x, mean), r)
    s = spread(raw.Cast(scale, DstT=wider))
    b, c = spread(grad_scale), spread(grad_offset)
    to_grad = raw.AddN([_times(s, r, project(a)), _times(b, n), raw.BroadcastTo(c, raw.Shape(x))])
    product = _times(a, project(g))
    to_scale = raw.Reshape(_times(r, raw.Sum(product, axes, keep_dims=True)), np.array([-1], np.int32))
    if training:
        crossed = raw.Add(_times(a, average(_times(g, n))), _times(g, average(_times(a, n))))
        to_n = raw.Sub(_times(b, g), _times(s, r, crossed))
        to_x = raw.Sub(_times(r, project(to_n)), _times(s, r, r, n, average(product)))
    else:
        to_x = _times(r, b, g)
    cast = [raw.Cast(to_grad, DstT=wanted), raw.Cast(to_x, DstT=wanted), raw.Cast(to_scale, DstT=scale.dtype)]
    return [*cast, None, None, *([None] * len(rest))]


def _times(*factors: Array) -> Any:
    return functools.reduce(raw.Mul, factors)


def _fused(version: str, types: str, formats: str) -> tuple[OpFunction, OpFunction]:
    """One version of the operation and its gradient. V3 has a third reserved output, which CPUs leave empty.

    Args:
        types: the type attributes of the operation; those of the gradient have no bfloat16 vectors.
    """
    third = version == "V3"
    u = "U" if version else "T"
    reserved = [f"reserve_space_{i}: {u}" for i in (1, 2, 3)][: 3 if third else 2]
    forward = define_op(
        f"FusedBatchNorm{version}",
        f"x: T, scale: {u}, offset: {u}, mean: {u}, variance: {u} -> "
        f"y: T, batch_mean: {u}, batch_variance: {u}, {', '.join(reserved)}",
        f"{types}, epsilon: float = 0.0001, exponential_avg_factor: float = 1.0, {formats}, is_training: bool = True",
        ranks=dict.fromkeys(("scale", "offset"), 1),
    )
    spare = [f"reserve_space_{i + len(reserved)}: {u}" for i in (1, 2)]
    backward = define_op(
        f"FusedBatchNormGrad{version}",
        f"y_backprop: T, x: T, scale: {'float32' if version else 'T'}, {', '.join(reserved)} -> "
        f"x_backprop: T, scale_backprop: {u}, offset_backprop: {u}, {', '.join(spare)}",
        f"{types.replace('U: {bfloat16, float}', 'U: {float}')}, epsilon: float = 0.0001, {formats}, "
        "is_training: bool = True",
        ranks=dict.fromkeys(("scale", "reserve_space_1", "reserve_space_2"), 1),
    )

    @forward.shape
    def _(
        x: TensorShape,
        scale: TensorShape,
        offset: TensorShape,
        *given: TensorShape,
        data_format: bytes,
        is_training: bool,
        exponential_avg_factor: float,
    ) -> Any:
        """Mean and variance are used where nothing is trained, or where moving averages are computed."""
        used = not is_training or exponential_avg_factor != 1.0
        for vector in () if used else given:
            shape_rules.late(shape_rules.with_rank, vector, 1, "what is no moving average yet")
        data, channels = fused_channels(x, data_format, scale, offset, *(given if used else ()))
        return [data, *([channels] * 4), *([shape_rules.SCALAR] if third else [])]

    @forward.kernel
    def _(
        x: Array, scale: Array, offset: Array, mean: Array, variance: Array, *, xp: ArrayLibrary, ctx: OperationContext
    ) -> Any:
        y, *vectors = fused_forward(xp, x, scale, offset, mean, variance, ctx.op.attrs)
        vectors = [vector.astype(scale.dtype) for vector in vectors]
        return [y, *vectors, *([np.zeros((), scale.dtype)] if third else [])]

    @backward.shape
    def _(
        grad: TensorShape,
        x: TensorShape,
        scale: TensorShape,
        mean: TensorShape,
        variance: TensorShape,
        *_: TensorShape | list[TensorShape],
        data_format: bytes,
    ) -> Any:
        fused_channels(grad, data_format, scale)
        data, channels = fused_channels(x, data_format, scale, mean, variance)
        if not grad.is_compatible_with(x):
            raise LateShapeError(f"the gradient has shape {grad}, but x has {x}")
        return [data, channels, channels, TensorShape([0]), TensorShape([0])]

    @backward.kernel
    def _(
        grad: Array,
        x: Array,
        scale: Array,
        mean: Array,
        variance: Array,
        *rest: Array,
        xp: ArrayLibrary,
        ctx: OperationContext,
    ) -> Any:
        grads = fused_backward(xp, grad, x, scale, mean, variance, ctx.op.attrs)
        return [*grads, np.zeros(0, mean.dtype), np.zeros(0, mean.dtype)]

    forward.gradient(_fused_gradient)
    backward.gradient(_fused_second_gradient)
    return forward, backward


FusedBatchNorm, FusedBatchNormGrad = _fused("", "T: {float}", _FORMATS_2D)
FusedBatchNormV2, FusedBatchNormGradV2 = _fused("V2", "T: {half, bfloat16, float}, U: {float}", _FORMATS_2D)
FusedBatchNormV3, FusedBatchNormGradV3 = _fused("V3", "T: {half, bfloat16, float}, U: {bfloat16, float}", FORMATS)

# ---------------------------------------------------------------------- batch normalization with given moments
_GLOBAL = "T: numbers, variance_epsilon: float, scale_after_normalization: bool"

BatchNormWithGlobalNormalization = define_op(
    "BatchNormWithGlobalNormalization", "t: T, m: T, v: T, beta: T, gamma: T -> result: T", _GLOBAL
)


@BatchNormWithGlobalNormalization.shape
def _(t: TensorShape, m: TensorShape, v: TensorShape, beta: TensorShape, gamma: TensorShape) -> TensorShape:
    return fused_channels(t, b"NHWC", m, v, beta, gamma)[0]


def _global_scale(
    v: Array, gamma: Array, variance_epsilon: float, scale_after_normalization: bool, xp: ArrayLibrary
) -> tuple[Any, Any]:
    """1 / sqrt(v + epsilon), and that times gamma where it is asked for."""
    inverse = v.dtype.type(1) / xp.sqrt(v + v.dtype.type(variance_epsilon))
    return inverse, inverse * gamma if scale_after_normalization else inverse


@BatchNormWithGlobalNormalization.kernel
def _(
    t: Array,
    m: Array,
    v: Array,
    beta: Array,
    gamma: Array,
    *,
    variance_epsilon: float,
    scale_after_normalization: bool,
    xp: ArrayLibrary,
) -> Any:
    _, factor = _global_scale(v, gamma, variance_epsilon, scale_after_normalization, xp)
    return (t - m) * factor + beta


@BatchNormWithGlobalNormalization.gradient
def _(op: Operation, grad: Tensor) -> Any:
    t, m, v, _, gamma = op.inputs
    attrs = {name: op.attrs[name] for name in ("variance_epsilon", "scale_after_normalization")}
    return list(BatchNormWithGlobalNormalizationGrad(t, m, v, gamma, grad, **attrs))


BatchNormWithGlobalNormalizationGrad = define_op(
    "BatchNormWithGlobalNormalizationGrad",
    "t: T, m: T, v: T, gamma: T, backprop: T -> dx: T, dm: T, dv: T, db: T, dg: T",
    _GLOBAL,
)
BatchNormWithGlobalNormalizationGrad.not_differentiable()


@BatchNormWithGlobalNormalizationGrad.shape
def _(t: TensorShape, m: TensorShape, v: TensorShape, gamma: TensorShape, backprop: TensorShape) -> Any:
    data, channels = fused_channels(t.merge_with(backprop), b"NHWC", m, v, gamma)
    return [data, *([channels] * 4)]


@BatchNormWithGlobalNormalizationGrad.kernel
def _(
    t: Array,
    m: Array,
    v: Array,
    gamma: Array,
    backprop: Array,
    *,
    variance_epsilon: float,
    scale_after_normalization: bool,
    xp: ArrayLibrary,
) -> Any:
    inverse, factor = _global_scale(v, gamma, variance_epsilon, scale_after_normalization, xp)
    axes = (0, 1, 2)
    to_beta = xp.sum(backprop, axis=axes)
    centred = xp.sum(backprop * (t - m), axis=axes)
    to_gamma = centred * inverse if scale_after_normalization else centred * v.dtype.type(0)
    to_v = centred * factor * inverse * inverse * v.dtype.type(-0.5)
    grads = [backprop * factor, -to_beta * factor, to_v, to_beta, to_gamma]
    return [f.astype(t.dtype) for f in grads]


# ---------------------------------------------------------------------- local response
_LOCAL = (
    "depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5, "
    "T: {half, bfloat16, float} = float32"
)


def _depth_radius(x: Array, attrs: dict[str, Any]) -> int:
    radius = min(attrs["depth_radius"], x.shape[3])  # more sees the same channels
    if radius < 0:
        raise ValueError(f"depth_radius must not be negative, it is {radius}")
    return int(radius)


def _window_sums(x: Array, size: int, padding: int) -> Any:
    """Sums of so many channels in a row, with that many zeros at both ends."""
    sides = [(0, 0)] * 3 + [(padding, padding)]
    return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, (1, 1, 1, size), (1, 1, 1, 1), sides)


def _channel_sums(x: Array, attrs: dict[str, Any]) -> Any:
    """At each channel the sum of those within depth_radius."""
    radius = _depth_radius(x, attrs)
    return _window_sums(x, 2 * radius + 1, radius)


def _other_channel_sums(x: Array, attrs: dict[str, Any]) -> Any:
    """The same without the channel itself."""
    radius, channels = _depth_radius(x, attrs), x.shape[3]
    if radius == 0:
        return np.zeros((), x.dtype)
    sums = _window_sums(x, radius, radius)
    return sums[..., :channels] + sums[..., radius + 1 :]


def _local_norm(x: Array, attrs: dict[str, Any]) -> Any:
    """Bias + alpha * (sum of squares of the channels within depth_radius)."""
    bias, alpha = (np.asarray(attrs[name], x.dtype) for name in ("bias", "alpha"))
    return bias + alpha * _channel_sums(x * x, attrs)


def _local_response(x: Array, attrs: dict[str, Any]) -> Any:
    """The input / (its local norm) ** beta; float32."""
    return x * _local_norm(x, attrs) ** -np.asarray(attrs["beta"], x.dtype)


LRN = define_op("LRN", "input: T -> output: T", _LOCAL)


@LRN.shape
def _(input: TensorShape) -> TensorShape:
    return shape_rules.with_rank(input, 4, "the input")


@LRN.kernel
def _(input: Array, *, ctx: OperationContext) -> Any:
    return _local_response(wide(input), ctx.op.attrs).astype(input.dtype)


@LRN.gradient
def _(op: Operation, grad: Tensor) -> Any:
    attrs = {name: op.attrs[name] for name in ("depth_radius", "bias", "alpha", "beta")}
    return LRNGrad(grad, op.inputs[0], op.outputs[0], **attrs)


LRNGrad = define_op("LRNGrad", "input_grads: T, input_image: T, output_image: T -> output: T", _LOCAL)
LRNGrad.not_differentiable()


@LRNGrad.shape
def _(input_grads: TensorShape, input_image: TensorShape, output_image: TensorShape) -> TensorShape:
    merged = shape_rules.merged(input_grads, input_image, output_image)
    return shape_rules.with_rank(merged, 4, "the gradient, the input and the output")


@LRNGrad.kernel
def _(input_grads: Array, input_image: Array, output_image: Array, *, ctx: OperationContext) -> Any:
    """The output stands in the formula itself, and is taken as it is given."""
    grad, x, y = (wide(t) for t in (input_grads, input_image, output_image))
    attrs = ctx.op.attrs
    alpha, beta = (np.asarray(attrs[name], x.dtype) for name in ("alpha", "beta"))
    norm = _local_norm(x, attrs)
    factor = -2 * alpha * beta * x
    own = (norm**-beta + factor * y / norm) * grad  # one factor for the gradient: it may be infinite
    return (own + factor * _other_channel_sums(y / norm * grad, attrs)).astype(input_image.dtype)
